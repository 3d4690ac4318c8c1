//! What the picture keeps of one workload, and how lists show it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;

use super::foreign::Foreign;
use super::gpu::GpuResource;
use super::job::Job;
use super::meta::Uid;
use super::pod::Pod;
use super::text::Str;
use super::workload::{PhaseCounts, WorkloadKey, WorkloadState};

/// What is counted of one workload.
#[derive(Default)]
pub(super) struct WorkloadEntry {
    pub(super) pods: BTreeSet<Uid>,
    pub(super) waiting: BTreeSet<Uid>,
    /// Pods that say why they are as they are: a list of many workloads must not look at all pods.
    pub(super) with_reason: BTreeSet<Uid>,
    pub(super) counts: PhaseCounts,
    /// Devices that live pods ask for.
    pub(super) asked: BTreeMap<GpuResource, i128>,
    /// Its Jobs: one, or several that one controller (a JobSet) made.
    pub(super) jobs: BTreeMap<Uid, Arc<Job>>,
    /// The objects of other systems that it is: its own, and those below that.
    pub(super) foreign: BTreeMap<Uid, Arc<Foreign>>,
    pub(super) created: Option<Timestamp>,
    pub(super) priority: i32,
    pub(super) scheduler: Str,
    /// As lists show it, worked out when it is first asked for after a change: of many thousand
    /// workloads few change between two frames.
    pub(super) row: OnceLock<Arc<WorkloadRow>>,
}

/// A workload as lists show it.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkloadRow {
    /// Identity.
    pub key: WorkloadKey,
    /// State in one word.
    pub state: WorkloadState,
    /// Pods that exist.
    pub pods: u32,
    /// Pods that run.
    pub running: u32,
    /// Pods that wait for a node.
    pub waiting: u32,
    /// Pods that failed.
    pub failed: u32,
    /// Pods that ended well.
    pub done: u32,
    /// Devices that live pods ask for; for a workload without live pods that is to have some, what
    /// it says it will ask for.
    pub asked: Vec<(GpuResource, i64)>,
    /// Pods that it is to have; `None`: not stated.
    pub wanted: Option<u32>,
    /// The queue it is in, of the system that admits it.
    pub queue: Option<Str>,
    /// Highest priority among its pods.
    pub priority: i32,
    /// `schedulerName` of its pods.
    pub scheduler: Str,
    /// Earliest creation among its Job and pods.
    pub created: Option<Timestamp>,
    /// Why it waits or failed.
    pub reason: Option<Str>,
}

/// The earlier of two times, where known.
pub(super) fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl WorkloadEntry {
    pub(super) fn add(&mut self, pod: &Pod) {
        if !self.pods.insert(pod.meta.uid.clone()) {
            return;
        }
        self.row = OnceLock::new();
        self.counts.add(pod);
        self.ask(pod, 1);
        if pod.is_waiting() {
            self.waiting.insert(pod.meta.uid.clone());
        }
        if pod.reason.is_some() {
            self.with_reason.insert(pod.meta.uid.clone());
        }
        self.priority = if self.pods.len() == 1 {
            pod.priority
        } else {
            self.priority.max(pod.priority)
        };
        self.scheduler = pod.scheduler.clone();
        self.created = earliest(self.created, pod.meta.created);
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        if self.pods.remove(&pod.meta.uid) {
            self.row = OnceLock::new();
            self.counts.remove(pod);
            self.ask(pod, -1);
            self.waiting.remove(&pod.meta.uid);
            self.with_reason.remove(&pod.meta.uid);
        }
    }

    fn ask(&mut self, pod: &Pod, sign: i128) {
        if pod.is_terminal() {
            return;
        }
        for (resource, n) in pod.gpu_requests() {
            *self.asked.entry(resource).or_default() += i128::from(n) * sign;
        }
    }

    /// What its Jobs say, for the time in which no pod is alive; `None` without Jobs.
    pub(super) fn state_of_jobs(&self) -> Option<WorkloadState> {
        let jobs = || self.jobs.values();
        jobs().next()?;
        Some(if jobs().any(|j| j.failure.is_some()) {
            WorkloadState::Failed
        } else if jobs().all(|j| j.complete) {
            WorkloadState::Done
        } else if jobs().filter(|j| !j.complete).all(|j| j.suspended) {
            WorkloadState::Suspended
        } else {
            WorkloadState::Starting
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.jobs.is_empty() && self.foreign.is_empty()
    }
}
