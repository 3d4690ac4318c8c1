//! What can be asked of the picture.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::super::decision::{Decision, DecisionKind};
use super::super::delta::{Kind, SourceReport, SourceState};
use super::super::devices::KnownDevice;
use super::super::event::Event;
use super::super::fabric::{FabricRules, GpuPort, Place, TopoTable};
use super::super::fault::NodeFault;
use super::super::figures::{NamespaceFigure, NodeFacts};
use super::super::foreign::{ForeignJob, QueueEntry};
use super::super::gpu::GpuResource;
use super::super::gpu_node::GpuNode;
use super::super::job::{Job, Namespace, PriorityClass};
use super::super::meta::Uid;
use super::super::node::Node;
use super::super::node_labels::NodeLabels;
use super::super::node_use::NodeUse;
use super::super::pod::Pod;
use super::super::pricing::Pricing;
use super::super::resources::narrow;
use super::super::telemetry::TelemetryLog;
use super::super::text::Str;
use super::super::workload::{PhaseCounts, WorkloadKey, WorkloadState};
use super::super::workload_entry::{WorkloadEntry, WorkloadRow};
use super::Cluster;

impl Cluster {
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

    /// Faults of nodes, and what is planned for them, by node.
    pub fn node_faults(&self) -> impl Iterator<Item = &NodeFault> {
        self.faults.all()
    }

    /// The version in which an Event, a decision or a fault of a node came last, or one went.
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

    /// What the labels of a node tell; of one that is not known, nothing.
    pub fn node_labels(&self, name: &str) -> Arc<NodeLabels> {
        let entry = self.nodes.get(name);
        entry.map(|e| e.labels.clone()).unwrap_or_default()
    }

    /// Rules for tiers, and prices.
    pub fn pricing(&self) -> &Arc<Pricing> {
        &self.pricing
    }

    /// What each known node adds to the figures.
    pub(in crate::model) fn node_facts(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.values().filter_map(|e| e.facts(&self.pricing))
    }

    /// Counts nodes that have changed since a version ahead of the next [`Figures`], which takes
    /// that much less time then.
    ///
    /// [`Figures`]: super::super::figures::Figures
    pub fn count_ahead(&self, version: u64) {
        let names = self.nodes_changed_since(version).into_iter().flatten();
        for entry in names.filter_map(|name| self.nodes.get(name)) {
            entry.facts(&self.pricing);
        }
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

    /// What is stated of the fabric besides the labels of known families.
    pub fn fabric_rules(&self) -> &Arc<FabricRules> {
        &self.fabric
    }

    /// Devices of a node that are allocated to ResourceClaims.
    pub(in crate::model) fn claimed_devices(&self, node: &str) -> Vec<KnownDevice> {
        let uids = self.claims_by_node.get(node).into_iter().flatten();
        let claims = uids.filter_map(|uid| self.claims.get(uid));
        let mut devices: Vec<KnownDevice> = claims.flat_map(|claim| claim.on(node)).collect();
        devices.sort();
        devices
    }

    /// What an agent on a node says of its GPUs.
    pub fn gpu_node(&self, node: &str) -> Option<&Arc<GpuNode>> {
        self.gpu_nodes.get(node)
    }

    /// Where the GPUs of a node are on its board, and the node's own table of links, as far as
    /// anybody tells.
    pub fn board(&self, node: &str) -> (Vec<GpuPort>, Option<&Arc<TopoTable>>) {
        let agent = self.gpu_nodes.get(node);
        let table = agent.and_then(|agent| agent.topology.as_ref());
        (self.published(node).ports(), table)
    }

    /// What the GPUs of a node measured last.
    pub fn telemetry(&self, node: &str) -> Option<&TelemetryLog> {
        self.telemetry.get(node)
    }

    /// Where a node hangs in the network.
    pub fn place(&self, node: &Node) -> Place {
        self.fabric.place(node)
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
            SourceState::Absent { .. } => 4,
            SourceState::Denied { .. } => 5,
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

    /// The same from behind one of them, or the first.
    pub fn workload_keys_after(
        &self,
        last: Option<&WorkloadKey>,
    ) -> impl Iterator<Item = &WorkloadKey> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.workloads.range((from, Bound::Unbounded));
        range.map(|(key, _)| key)
    }

    /// Workloads by key.
    pub fn workloads(&self) -> impl Iterator<Item = Arc<WorkloadRow>> {
        self.workloads
            .iter()
            .map(|(key, entry)| self.kept_row(key, entry))
    }

    /// Workloads of a namespace, by key.
    pub fn workloads_of(&self, namespace: &Str) -> impl Iterator<Item = Arc<WorkloadRow>> {
        let from = WorkloadKey {
            namespace: namespace.clone(),
            kind: Str::default(),
            name: Str::default(),
        };
        let all = self.workloads.range(from..);
        all.take_while(move |(key, _)| key.namespace == *namespace)
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
        let own = entry
            .foreign
            .values()
            .filter_map(|f| f.job())
            .find(|j| j.workload == *key);
        let own = own.or_else(|| entry.foreign.values().find_map(|f| f.job()));
        let state = if c == ended_or_none {
            let stated = own.and_then(|j| j.state);
            stated.or_else(|| entry.state_of_jobs())
        } else {
            None
        };
        let state = state.unwrap_or_else(|| match own {
            Some(_) if entry.pods.is_empty() => WorkloadState::Starting,
            _ => WorkloadState::of(&c),
        });
        let queued = self.entry_of(key);
        WorkloadRow {
            key: key.clone(),
            state,
            pods: u32::try_from(entry.pods.len()).unwrap_or(u32::MAX),
            running: c.running,
            waiting: c.waiting,
            failed: c.failed,
            done: c.done,
            asked: self.asked_or_wanted(entry, state, own, queued),
            wanted: own.and_then(|j| j.pods),
            queue: queued
                .map(|e| e.queue.to_string().into())
                .or_else(|| own.and_then(|j| j.queue.clone())),
            priority: match queued {
                Some(queued) if entry.pods.is_empty() => self.entry_priority(queued),
                _ => entry.priority,
            },
            scheduler: entry.scheduler.clone(),
            created: entry.created,
            reason: self
                .reason(entry, state)
                .or_else(|| own.and_then(|j| j.reason.clone()))
                .or_else(|| {
                    queued
                        .filter(|e| e.state.waits())
                        .and_then(|e| e.reason.clone())
                }),
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

    /// What its live pods ask for, else what it will ask for once it runs.
    fn asked_or_wanted(
        &self,
        entry: &WorkloadEntry,
        state: WorkloadState,
        own: Option<&ForeignJob>,
        queued: Option<&QueueEntry>,
    ) -> Vec<(GpuResource, i64)> {
        let asked = self.asked(entry);
        let comes = matches!(state, WorkloadState::Suspended | WorkloadState::Starting);
        if !asked.is_empty() || !comes {
            return asked;
        }
        if let Some(own) = own.filter(|j| !j.asks.is_empty()) {
            return own.asks.to_vec();
        }
        let asked = queued.into_iter().flat_map(|e| &e.asked_milli);
        asked
            .map(|(resource, milli)| (resource.clone(), milli.saturating_add(999) / 1_000))
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
