//! The one picture of a cluster, folded from deltas.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use ahash::AHashMap;

use super::change_log::ChangeLog;
use super::decision::{Decision, DecisionKind};
use super::delta::{Change, Delta, Gone, Kind, SourceReport, SourceState};
use super::event::Event;
use super::figures::{NamespaceFigure, NodeFacts};
use super::gpu::{GpuResource, MigProfile};
use super::job::{Job, Namespace, PriorityClass};
use super::meta::Uid;
use super::node::Node;
use super::node_use::NodeUse;
use super::pod::Pod;
use super::resources::narrow;
use super::text::Str;
use super::unreadable::Unreadable;
use super::workload::{PhaseCounts, WorkloadKey, WorkloadState};
use super::workload_entry::{WorkloadEntry, WorkloadRow, earliest};

/// Decisions that are kept for the timeline.
const LOG_LIMIT: usize = 5_000;

#[derive(Default)]
struct NodeEntry {
    node: Option<Arc<Node>>,
    held: NodeUse,
    /// What it adds to the figures, worked out when it is first asked for after a change.
    facts: OnceLock<NodeFacts>,
}

/// A pod and the workload that it is counted in: removal must hit the same one even when the
/// pod's Job, which helped to tell the workload, has changed since.
struct PodEntry {
    pod: Arc<Pod>,
    workload: WorkloadKey,
}

#[derive(Default)]
struct NamespaceUse {
    pods: u32,
    // Wide enough that a pod with an absurd request can be taken out again exactly.
    gpus: i128,
    mig_instances: i128,
    waiting_pods: u32,
    waiting_gpus: i128,
}

/// The picture.
#[derive(Default)]
pub struct Cluster {
    nodes: BTreeMap<Str, NodeEntry>,
    pods: AHashMap<Uid, PodEntry>,
    jobs: AHashMap<Uid, Arc<Job>>,
    workloads: BTreeMap<WorkloadKey, WorkloadEntry>,
    namespaces: BTreeMap<Str, Arc<Namespace>>,
    namespace_use: BTreeMap<Str, NamespaceUse>,
    priority_classes: BTreeMap<Str, Arc<PriorityClass>>,
    events: AHashMap<Uid, Arc<Event>>,
    sources: BTreeMap<(Kind, Option<Str>), SourceReport>,
    decisions: AHashMap<Uid, Arc<Decision>>,
    decision_log: VecDeque<Arc<Decision>>,
    unreadable: Unreadable,
    /// Nodes that show MIG devices as `nvidia.com/gpu`, with what one of those is.
    single: BTreeMap<Str, MigProfile>,
    version: u64,
    node_changes: ChangeLog<Str>,
    workload_changes: ChangeLog<WorkloadKey>,
    /// Version of the last Event or decision.
    happened: u64,
}

impl Cluster {
    /// An empty picture in which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds one delta in.
    pub fn apply(&mut self, delta: &Delta) {
        self.version += 1;
        self.unreadable.apply(delta);
        match delta {
            Delta::Node(Change::Set(node)) => {
                self.set_single_profile(node);
                let entry = self.nodes.entry(node.meta.name.clone()).or_default();
                entry.node = Some(node.clone());
                entry.facts = OnceLock::new();
                self.note_node(&node.meta.name);
            }
            Delta::Node(Change::Gone(gone)) => self.remove_node(gone),
            Delta::Pod(Change::Set(pod)) => self.set_pod(pod),
            Delta::Pod(Change::Gone(gone)) => self.remove_pod(&gone.uid),
            Delta::Namespace(Change::Set(ns)) => {
                self.namespaces.insert(ns.meta.name.clone(), ns.clone());
            }
            Delta::Namespace(Change::Gone(gone)) => {
                self.namespaces.remove(&gone.name);
            }
            Delta::Job(Change::Set(job)) => self.set_job(job),
            Delta::Job(Change::Gone(gone)) => self.remove_job(&gone.uid),
            Delta::Event(Change::Set(event)) => {
                self.happened = self.version;
                self.events.insert(event.meta.uid.clone(), event.clone());
            }
            Delta::Event(Change::Gone(gone)) => {
                self.happened = self.version;
                self.events.remove(&gone.uid);
            }
            Delta::PriorityClass(Change::Set(class)) => {
                self.priority_classes
                    .insert(class.meta.name.clone(), class.clone());
            }
            Delta::PriorityClass(Change::Gone(gone)) => {
                self.priority_classes.remove(&gone.name);
            }
            // Only the scheduler needs volumes.
            Delta::VolumeClaim(_) | Delta::Volume(_) => {}
            Delta::Source(report) => {
                self.sources
                    .insert((report.kind, report.namespace.clone()), report.clone());
            }
            Delta::Decision(decision) => self.set_decision(decision),
            Delta::Unreadable { .. } => {}
        }
    }

    /// Keeps the profile that `nvidia.com/gpu` stands for on a node of strategy `single`. What the
    /// workloads there ask for reads differently when it changes.
    fn set_single_profile(&mut self, node: &Node) {
        let name = &node.meta.name;
        if self.single.get(name) == node.gpus.single_profile.as_ref() {
            return;
        }
        match &node.gpus.single_profile {
            Some(profile) => self.single.insert(name.clone(), profile.clone()),
            None => self.single.remove(name),
        };
        let held = self.nodes.get(name).into_iter().flat_map(|e| &e.held.pods);
        for pod in held.filter_map(|uid| self.pods.get(uid)) {
            if let Some(entry) = self.workloads.get_mut(&pod.workload) {
                entry.row = OnceLock::new();
                let all = self.workloads.len();
                self.workload_changes.note(self.version, &pod.workload, all);
            }
        }
    }

    fn remove_node(&mut self, gone: &Gone) {
        if let Some(entry) = self.nodes.get_mut(&gone.name) {
            if entry.node.as_ref().is_some_and(|n| n.meta.uid != gone.uid) {
                return;
            }
            entry.node = None;
            entry.facts = OnceLock::new();
            self.single.remove(&gone.name);
            if entry.held.pods.is_empty() {
                self.nodes.remove(&gone.name);
            }
            self.note_node(&gone.name);
        }
    }

    fn note_node(&mut self, name: &Str) {
        let all = self.nodes.len();
        self.node_changes.note(self.version, name, all);
    }

    fn note_workload(&mut self, key: &WorkloadKey) {
        let all = self.workloads.len();
        self.workload_changes.note(self.version, key, all);
    }

    fn key_of(&self, pod: &Pod) -> WorkloadKey {
        let job = pod
            .meta
            .controller()
            .and_then(|owner| self.jobs.get(&owner.uid));
        let key = WorkloadKey::of_pod(pod, job.map(|j| &**j));
        // The stored key's texts are shared by all pods of the workload.
        self.workloads
            .get_key_value(&key)
            .map_or(key, |(known, _)| known.clone())
    }

    fn set_pod(&mut self, pod: &Arc<Pod>) {
        self.remove_pod_use(&pod.meta.uid);
        if let Some(node) = pod.holds_node() {
            let entry = self.nodes.entry(node.clone()).or_default();
            entry.held.add(pod);
            entry.facts = OnceLock::new();
            self.note_node(node);
        }
        self.count_namespace(pod, 1);
        let workload = self.key_of(pod);
        self.note_workload(&workload);
        self.workloads.entry(workload.clone()).or_default().add(pod);
        self.pods.insert(
            pod.meta.uid.clone(),
            PodEntry {
                pod: pod.clone(),
                workload,
            },
        );
    }

    fn remove_pod(&mut self, uid: &Uid) {
        self.remove_pod_use(uid);
        self.decisions.remove(uid);
    }

    /// Forgets a known pod and takes it out of every sum.
    fn remove_pod_use(&mut self, uid: &Uid) {
        let Some(PodEntry { pod, workload }) = self.pods.remove(uid) else {
            return;
        };
        if let Some(name) = pod.holds_node()
            && let Some(entry) = self.nodes.get_mut(name)
        {
            entry.held.remove(&pod);
            entry.facts = OnceLock::new();
            if entry.held.pods.is_empty() && entry.node.is_none() {
                self.nodes.remove(name);
            }
            self.note_node(name);
        }
        self.count_namespace(&pod, -1);
        self.note_workload(&workload);
        if let Some(entry) = self.workloads.get_mut(&workload) {
            entry.remove(&pod);
            if entry.is_empty() {
                self.workloads.remove(&workload);
            }
        }
    }

    fn count_namespace(&mut self, pod: &Pod, sign: i32) {
        let sum = self
            .namespace_use
            .entry(pod.meta.namespace.clone())
            .or_default();
        let step = |n: &mut u32| *n = n.saturating_add_signed(sign);
        let (mut gpus, mut mig) = (0_i128, 0_i128);
        for (resource, n) in pod.gpu_requests() {
            match resource {
                GpuResource::Mig(_) => mig += i128::from(n),
                GpuResource::Whole | GpuResource::Shared => gpus += i128::from(n),
            }
        }
        let sign = i128::from(sign);
        if pod.holds_node().is_some() {
            step(&mut sum.pods);
            sum.gpus += gpus * sign;
            sum.mig_instances += mig * sign;
        } else if pod.is_waiting() {
            step(&mut sum.waiting_pods);
            sum.waiting_gpus += gpus * sign;
        }
    }

    fn set_job(&mut self, job: &Arc<Job>) {
        let key = WorkloadKey::of_job(job);
        if let Some(old) = self.jobs.insert(job.meta.uid.clone(), job.clone()) {
            let old_key = WorkloadKey::of_job(&old);
            if old_key != key {
                self.forget_job_in(&old_key, &job.meta.uid);
            }
        } else {
            // Pods that came before their Job may belong to the Job's own owner: they move over.
            let own = WorkloadKey {
                kind: "Job".into(),
                name: job.meta.name.clone(),
                ..key.clone()
            };
            self.regroup(&own, &job.meta.uid);
        }
        self.note_workload(&key);
        let entry = self.workloads.entry(key).or_default();
        entry.created = earliest(entry.created, job.meta.created);
        entry.jobs.insert(job.meta.uid.clone(), job.clone());
        entry.row = OnceLock::new();
    }

    fn remove_job(&mut self, uid: &Uid) {
        let Some(job) = self.jobs.remove(uid) else {
            return;
        };
        self.forget_job_in(&WorkloadKey::of_job(&job), uid);
    }

    fn forget_job_in(&mut self, key: &WorkloadKey, uid: &Uid) {
        self.note_workload(key);
        if let Some(entry) = self.workloads.get_mut(key) {
            entry.jobs.remove(uid);
            entry.row = OnceLock::new();
            if entry.is_empty() {
                self.workloads.remove(key);
                return;
            }
        }
        self.regroup(key, uid);
    }

    /// Groups the pods of a Job anew, after what is known of that Job has changed.
    fn regroup(&mut self, key: &WorkloadKey, job: &Uid) {
        let Some(entry) = self.workloads.get(key) else {
            return;
        };
        let pods: Vec<Arc<Pod>> = entry
            .pods
            .iter()
            .filter_map(|u| self.pod(u))
            .filter(|p| p.meta.controller().is_some_and(|o| o.uid == *job))
            .cloned()
            .collect();
        for pod in &pods {
            self.set_pod(pod);
        }
    }

    fn set_decision(&mut self, decision: &Arc<Decision>) {
        self.happened = self.version;
        if self.decision_log.len() == LOG_LIMIT {
            self.decision_log.pop_front();
        }
        self.decision_log.push_back(decision.clone());
        if let Some(pod) = self.pods.get(&decision.pod) {
            if let Some(entry) = self.workloads.get_mut(&pod.workload) {
                entry.row = OnceLock::new();
                let all = self.workloads.len();
                self.workload_changes.note(self.version, &pod.workload, all);
            }
            self.decisions
                .insert(decision.pod.clone(), decision.clone());
        }
    }

    /// Grows with each folded delta: a view rebuilds its rows only when this has moved.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Names of nodes that came, went or changed, themselves or in what their pods hold, after
    /// this version; latest first, one perhaps more than once. `None`: any may have changed.
    pub fn nodes_changed_since(&self, version: u64) -> Option<impl Iterator<Item = &Str>> {
        self.node_changes.since(version)
    }

    /// The same of workloads.
    pub fn workloads_changed_since(
        &self,
        version: u64,
    ) -> Option<impl Iterator<Item = &WorkloadKey>> {
        self.workload_changes.since(version)
    }

    /// The version in which an Event or a decision came last, or an Event went.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    /// What pods hold of a node that is not known itself.
    pub fn unknown_node(&self, name: &str) -> Option<(&Str, &NodeUse)> {
        let (name, entry) = self.nodes.get_key_value(name)?;
        entry.node.is_none().then_some((name, &entry.held))
    }

    /// Nodes by name, each with what its pods hold.
    pub fn nodes(&self) -> impl Iterator<Item = (&Arc<Node>, &NodeUse)> {
        self.nodes
            .values()
            .filter_map(|e| e.node.as_ref().map(|n| (n, &e.held)))
    }

    /// One node by name.
    pub fn node(&self, name: &str) -> Option<(&Arc<Node>, &NodeUse)> {
        let entry = self.nodes.get(name)?;
        entry.node.as_ref().map(|n| (n, &entry.held))
    }

    /// What each known node adds to the figures.
    pub(super) fn node_facts(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.values().filter_map(|e| {
            let node = e.node.as_ref()?;
            Some(e.facts.get_or_init(|| NodeFacts::of(node, &e.held)))
        })
    }

    /// Names of nodes that pods are bound to but that are not known themselves, with their use
    /// (a user who may list pods and not nodes sees these).
    pub fn unknown_nodes(&self) -> impl Iterator<Item = (&Str, &NodeUse)> {
        self.nodes
            .iter()
            .filter(|(_, e)| e.node.is_none())
            .map(|(name, e)| (name, &e.held))
    }

    /// A pod.
    pub fn pod(&self, uid: &Uid) -> Option<&Arc<Pod>> {
        self.pods.get(uid).map(|e| &e.pod)
    }

    /// All pods, in no order.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().map(|e| &e.pod)
    }

    /// Number of pods.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// Namespaces by name.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.namespaces.values()
    }

    /// Names of all namespaces that exist or that a known pod lives in.
    pub fn namespace_names(&self) -> BTreeSet<Str> {
        self.namespaces
            .keys()
            .chain(self.namespace_use.keys())
            .cloned()
            .collect()
    }

    /// Priority classes by name.
    pub fn priority_classes(&self) -> impl Iterator<Item = &Arc<PriorityClass>> {
        self.priority_classes.values()
    }

    /// Events, in no order.
    pub fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.events.values()
    }

    /// One event.
    pub fn event(&self, uid: &Uid) -> Option<&Arc<Event>> {
        self.events.get(uid)
    }

    /// Our scheduler's decisions, oldest first, the newest [`LOG_LIMIT`] of them.
    pub fn decision_log(&self) -> impl DoubleEndedIterator<Item = &Arc<Decision>> {
        self.decision_log.iter()
    }

    /// The latest decision about a pod.
    pub fn decision(&self, pod: &Uid) -> Option<&Arc<Decision>> {
        self.decisions.get(pod)
    }

    /// Objects that could not be read, oldest first.
    pub fn unreadable(&self) -> impl DoubleEndedIterator<Item = &(Kind, Str)> {
        self.unreadable.log()
    }

    /// Known objects of which something could not be read: kind, `namespace/name`, and what.
    pub fn partly_read(&self) -> impl Iterator<Item = (Kind, &Str, &[Str])> {
        self.unreadable.partly()
    }

    /// Objects that could not be read, in whole or in part.
    pub fn unreadable_count(&self) -> usize {
        self.unreadable.count()
    }

    /// State of the sources.
    pub fn sources(&self) -> impl Iterator<Item = &SourceReport> {
        self.sources.values()
    }

    /// State of one kind's source: the best of its namespaced ones where it is split.
    pub fn source(&self, kind: Kind) -> Option<&SourceReport> {
        let rank = |s: &SourceState| match s {
            SourceState::Live => 0,
            SourceState::Stale { .. } => 1,
            SourceState::Loading { .. } => 2,
            SourceState::Failed { .. } => 3,
            SourceState::Denied { .. } => 4,
        };
        self.sources
            .values()
            .filter(|r| r.kind == kind)
            .min_by_key(|r| rank(&r.state))
    }

    /// Whether objects of this kind have been read to the end once: only then "none" means none.
    pub fn is_known(&self, kind: Kind) -> bool {
        self.source(kind)
            .is_some_and(|r| matches!(r.state, SourceState::Live | SourceState::Stale { .. }))
    }

    /// Use by namespace, those with live pods.
    pub fn namespace_figures(&self) -> Vec<NamespaceFigure> {
        self.namespace_use
            .iter()
            .filter(|(_, u)| u.pods > 0 || u.waiting_pods > 0)
            .map(|(namespace, u)| NamespaceFigure {
                namespace: namespace.clone(),
                pods: u.pods,
                gpus: narrow(u.gpus),
                mig_instances: narrow(u.mig_instances),
                waiting_pods: u.waiting_pods,
                waiting_gpus: narrow(u.waiting_gpus),
            })
            .collect()
    }

    /// Number of workloads.
    pub fn workload_count(&self) -> usize {
        self.workloads.len()
    }

    /// Keys of all workloads, in order; much cheaper than their rows.
    pub fn workload_keys(&self) -> impl Iterator<Item = &WorkloadKey> {
        self.workloads.keys()
    }

    /// Workloads by key.
    pub fn workloads(&self) -> impl Iterator<Item = Arc<WorkloadRow>> {
        self.workloads
            .iter()
            .map(|(key, entry)| self.kept_row(key, entry))
    }

    /// One workload.
    pub fn workload(&self, key: &WorkloadKey) -> Option<Arc<WorkloadRow>> {
        self.workloads
            .get(key)
            .map(|entry| self.kept_row(key, entry))
    }

    /// The workload a known pod belongs to.
    pub fn workload_of(&self, pod: &Uid) -> Option<&WorkloadKey> {
        self.pods.get(pod).map(|e| &e.workload)
    }

    /// Pods of a workload, by name.
    pub fn workload_pods(&self, key: &WorkloadKey) -> Vec<&Arc<Pod>> {
        let mut pods: Vec<&Arc<Pod>> = self
            .workloads
            .get(key)
            .into_iter()
            .flat_map(|e| &e.pods)
            .filter_map(|u| self.pod(u))
            .collect();
        pods.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        pods
    }

    /// The batch/v1 Jobs behind a workload: none, one, or those of a JobSet and its like.
    pub fn workload_jobs(&self, key: &WorkloadKey) -> impl Iterator<Item = &Arc<Job>> {
        self.workloads
            .get(key)
            .into_iter()
            .flat_map(|e| e.jobs.values())
    }

    fn kept_row(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> Arc<WorkloadRow> {
        entry
            .row
            .get_or_init(|| Arc::new(self.row(key, entry)))
            .clone()
    }

    fn row(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> WorkloadRow {
        let c = entry.counts;
        let ended_or_none = PhaseCounts {
            failed: c.failed,
            done: c.done,
            ..PhaseCounts::default()
        };
        let state = if c == ended_or_none {
            entry.state_of_jobs()
        } else {
            None
        };
        let state = state.unwrap_or_else(|| WorkloadState::of(&c));
        WorkloadRow {
            key: key.clone(),
            state,
            pods: u32::try_from(entry.pods.len()).unwrap_or(u32::MAX),
            running: c.running,
            waiting: c.waiting,
            failed: c.failed,
            done: c.done,
            asked: self.asked(entry),
            priority: entry.priority,
            scheduler: entry.scheduler.clone(),
            created: entry.created,
            reason: self.reason(entry, state),
        }
    }

    /// What its live pods ask for. On nodes of strategy `single` a `nvidia.com/gpu` is a MIG device
    /// and is told as one.
    fn asked(&self, entry: &WorkloadEntry) -> Vec<(GpuResource, i64)> {
        let mut asked = entry.asked.clone();
        let whole = asked.get(&GpuResource::Whole).copied().unwrap_or(0);
        if whole > 0 && !self.single.is_empty() {
            for pod in entry.pods.iter().filter_map(|uid| self.pod(uid)) {
                let node = pod.holds_node();
                let Some(profile) = node.and_then(|name| self.single.get(name)) else {
                    continue;
                };
                let devices = i128::from(pod.requests.extended("nvidia.com/gpu"));
                *asked.entry(GpuResource::Whole).or_default() -= devices;
                *asked.entry(GpuResource::Mig(profile.clone())).or_default() += devices;
            }
        }
        asked
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|(resource, n)| (resource, narrow(n)))
            .collect()
    }

    fn first_reason(&self, entry: &WorkloadEntry) -> Option<Str> {
        let first = entry.with_reason.first()?;
        self.pod(first)?.reason.clone()
    }

    fn reason(&self, entry: &WorkloadEntry, state: WorkloadState) -> Option<Str> {
        match state {
            WorkloadState::Waiting => {
                let first = entry.waiting.first()?;
                match self.decisions.get(first).map(|d| &d.kind) {
                    Some(DecisionKind::Waiting(reason)) => Some(reason.to_string().into()),
                    _ => self.pod(first)?.reason.clone(),
                }
            }
            WorkloadState::Failed => {
                let failure = entry.jobs.values().find_map(|j| j.failure.clone());
                failure.or_else(|| self.first_reason(entry))
            }
            WorkloadState::Starting | WorkloadState::Running => self.first_reason(entry),
            WorkloadState::Suspended | WorkloadState::Done => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::meta::{Meta, Owner};
    use super::super::pod::Phase;
    use super::super::resources::Resources;
    use super::*;
    use proptest::prelude::*;

    /// A step of a random history over few names, so that they meet often.
    fn step() -> impl Strategy<Value = (u8, u8, u8, u8, u8)> {
        (0..8_u8, 0..12_u8, 0..4_u8, 0..5_u8, 0..3_u8)
    }

    fn pod(uid: u8, node: u8, phase: u8, job: u8) -> Arc<Pod> {
        let mut requests = Resources::default();
        // Two of them ask for more than 64 bits can sum up.
        let gpus = if uid < 10 {
            i64::from(uid % 3)
        } else {
            i64::MAX - 1
        };
        requests.set_extended(&"nvidia.com/gpu".into(), gpus);
        requests.set_extended(&"nvidia.com/mig-1g.10gb".into(), i64::from(uid % 2));
        let owner = Owner {
            kind: "Job".into(),
            name: format!("job-{job}").into(),
            uid: Uid(format!("j{job}").into()),
            controller: true,
        };
        Arc::new(Pod {
            meta: Meta {
                uid: Uid(format!("p{uid}").into()),
                name: format!("pod-{uid}").into(),
                namespace: format!("ns-{}", job % 2).into(),
                owners: Box::new([owner]),
                ..Meta::default()
            },
            node: (node > 0).then(|| format!("node-{node}").into()),
            phase: [
                Phase::Pending,
                Phase::Running,
                Phase::Succeeded,
                Phase::Failed,
                Phase::Unknown,
            ]
            .get(usize::from(phase))
            .copied()
            .unwrap_or_default(),
            requests,
            ..Pod::default()
        })
    }

    fn job(uid: u8, owned: bool) -> Arc<Job> {
        let owner = Owner {
            kind: "TrainJob".into(),
            name: "top".into(),
            uid: Uid("top".into()),
            controller: true,
        };
        Arc::new(Job {
            meta: Meta {
                uid: Uid(format!("j{uid}").into()),
                name: format!("job-{uid}").into(),
                namespace: format!("ns-{}", uid % 2).into(),
                owners: if owned {
                    Box::new([owner])
                } else {
                    Box::new([])
                },
                ..Meta::default()
            },
            ..Job::default()
        })
    }

    fn gone(uid: String, name: String) -> Gone {
        Gone {
            uid: Uid(uid.into()),
            namespace: "".into(),
            name: name.into(),
        }
    }

    fn delta((what, uid, node, phase, job_uid): (u8, u8, u8, u8, u8)) -> Delta {
        match what {
            0..=3 => Delta::Pod(Change::Set(pod(uid, node, phase, job_uid))),
            4 => Delta::Pod(Change::Gone(gone(format!("p{uid}"), format!("pod-{uid}")))),
            5 => Delta::Job(Change::Set(job(job_uid, uid % 2 == 0))),
            6 => Delta::Job(Change::Gone(gone(
                format!("j{job_uid}"),
                format!("job-{job_uid}"),
            ))),
            _ if phase == 0 => Delta::Node(Change::Gone(gone(
                format!("n{node}"),
                format!("node-{node}"),
            ))),
            _ => Delta::Node(Change::Set(Arc::new(Node {
                meta: Meta {
                    uid: Uid(format!("n{node}").into()),
                    name: format!("node-{node}").into(),
                    ..Meta::default()
                },
                ..Node::default()
            }))),
        }
    }

    proptest! {
        /// Whatever the order of changes, the running sums are those of a fresh count of the end.
        #[test]
        fn sums_equal_a_fresh_count(history in prop::collection::vec(step(), 0..120)) {
            let mut folded = Cluster::new();
            for s in history {
                folded.apply(&delta(s));
            }
            let mut fresh = Cluster::new();
            for job in folded.jobs.values() {
                fresh.apply(&Delta::Job(Change::Set(job.clone())));
            }
            for (node, _) in folded.nodes() {
                fresh.apply(&Delta::Node(Change::Set(node.clone())));
            }
            for pod in folded.pods() {
                fresh.apply(&Delta::Pod(Change::Set(pod.clone())));
            }
            prop_assert_eq!(folded.namespace_figures(), fresh.namespace_figures());
            prop_assert_eq!(folded.workloads().collect::<Vec<_>>(), fresh.workloads().collect::<Vec<_>>());
            let held = |c: &Cluster| -> Vec<(Str, NodeUse)> {
                c.nodes.iter().map(|(n, e)| (n.clone(), e.held.clone())).collect()
            };
            prop_assert_eq!(held(&folded).into_iter().filter(|h| !h.1.pods.is_empty()).collect::<Vec<_>>(),
                held(&fresh).into_iter().filter(|h| !h.1.pods.is_empty()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_workload_of_several_jobs_lasts_until_its_last_one() {
        let mut c = Cluster::new();
        let set = |id: u8| Delta::Job(Change::Set(job(id, true)));
        let leave = |id: u8| Delta::Job(Change::Gone(gone(format!("j{id}"), format!("job-{id}"))));
        c.apply(&set(1));
        c.apply(&set(3));
        assert_eq!(c.workload_count(), 1, "one controller made both");
        c.apply(&leave(3));
        assert_eq!(c.workload_count(), 1);
        c.apply(&leave(1));
        assert_eq!(c.workload_count(), 0);
    }

    #[test]
    fn a_denied_source_is_not_an_empty_one() {
        let mut c = Cluster::new();
        let report = |state| {
            Delta::Source(SourceReport {
                kind: Kind::Node,
                namespace: None,
                state,
                at: jiff::Timestamp::UNIX_EPOCH,
            })
        };
        c.apply(&report(SourceState::Denied {
            why: "list nodes".into(),
        }));
        assert_eq!(super::super::figures::Figures::of(&c).nodes, None);
        c.apply(&report(SourceState::Live));
        assert_eq!(super::super::figures::Figures::of(&c).nodes, Some(0));
    }
}
