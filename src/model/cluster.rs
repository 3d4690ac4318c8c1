//! The one picture of a cluster, folded from deltas.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use ahash::AHashMap;

use super::change_log::ChangeLog;
use super::claim::ResourceClaim;
use super::decision::Decision;
use super::delta::{Change, Delta, Gone, Kind, SourceReport};
use super::event::Event;
use super::fabric::FabricRules;
use super::fault::NodeFaults;
use super::figures::NodeFacts;
use super::gpu::{GpuResource, MigProfile};
use super::gpu_node::GpuNode;
use super::job::{Job, Namespace, PriorityClass};
use super::meta::Uid;
use super::node::Node;
use super::node_labels::NodeLabels;
use super::node_use::NodeUse;
use super::pod::Pod;
use super::pricing::Pricing;
use super::telemetry::{NodeTelemetry, TelemetryLog};
use super::text::Str;
use super::unreadable::Unreadable;
use super::workload::WorkloadKey;
use super::workload_entry::{WorkloadEntry, earliest};
use foreign::ForeignState;
pub use known::Known;
use known::Unshown;

/// Decisions that are kept for the timeline.
const LOG_LIMIT: usize = 5_000;

#[derive(Default)]
struct NodeEntry {
    node: Option<Arc<Node>>,
    held: NodeUse,
    /// What it adds to the figures, worked out when it is first asked for after a change.
    facts: OnceLock<NodeFacts>,
    /// What its labels tell.
    labels: Arc<NodeLabels>,
}

impl NodeEntry {
    /// What it adds to the figures, if it is known and not only told of by its pods.
    fn facts(&self, pricing: &Pricing) -> Option<&NodeFacts> {
        let node = self.node.as_ref()?;
        let facts = || NodeFacts::of(node, &self.held, pricing);
        Some(self.facts.get_or_init(facts))
    }
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
    fabric: Arc<FabricRules>,
    telemetry: BTreeMap<Str, TelemetryLog>,
    /// By the name of the node.
    gpu_nodes: BTreeMap<Str, Arc<GpuNode>>,
    /// Nodes as the server has them, where ours say more.
    plain_nodes: AHashMap<Str, Arc<Node>>,
    claims: AHashMap<Uid, Arc<ResourceClaim>>,
    /// Claims by the nodes that they have GPUs of.
    claims_by_node: BTreeMap<Str, BTreeSet<Uid>>,
    /// Nodes that show MIG devices as `nvidia.com/gpu`, with what one of those is.
    single: BTreeMap<Str, MigProfile>,
    version: u64,
    node_changes: ChangeLog<Str>,
    workload_changes: ChangeLog<WorkloadKey>,
    /// Version of the last Event, decision or fault of a node.
    happened: u64,
    foreign: ForeignState,
    unshown: Unshown,
    faults: NodeFaults,
    pricing: Arc<Pricing>,
}

impl Cluster {
    /// An empty picture in which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty picture whose nodes have tiers and prices by these rules.
    pub fn with_pricing(pricing: Arc<Pricing>) -> Self {
        Cluster {
            pricing,
            ..Self::default()
        }
    }

    /// Folds one delta in.
    pub fn apply(&mut self, delta: &Delta) {
        self.version += 1;
        self.unreadable.apply(delta);
        self.unshown.apply(delta);
        match delta {
            Delta::Node(Change::Set(node)) => self.set_node(node),
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
            // Only decisions need volumes and budgets.
            Delta::VolumeClaim(_) | Delta::Volume(_) | Delta::Budget(_) => {}
            Delta::Foreign(kind, Change::Set(object)) => self.set_foreign(*kind, object),
            Delta::Foreign(kind, Change::Gone(gone)) => self.remove_foreign(*kind, &gone.uid),
            Delta::Source(report) => {
                self.sources
                    .insert((report.kind, report.namespace.clone()), report.clone());
            }
            Delta::Queue(Change::Set(queue)) => self.set_queue(queue),
            Delta::Queue(Change::Gone(gone)) => self.remove_queue(gone),
            Delta::Decision(decision) => self.set_decision(decision),
            Delta::ResourceClaim(Change::Set(claim)) => self.set_claim(claim),
            Delta::ResourceClaim(Change::Gone(gone)) => self.remove_claim(&gone.uid),
            Delta::GpuNode(Change::Set(agent)) => {
                let name = agent.meta.name.clone();
                self.gpu_nodes.insert(name.clone(), agent.clone());
                self.devices_changed(&name);
            }
            Delta::GpuNode(Change::Gone(gone)) => {
                let known = self.gpu_nodes.get(&gone.name);
                if known.is_some_and(|k| k.meta.uid == gone.uid) {
                    self.gpu_nodes.remove(&gone.name);
                    self.devices_changed(&gone.name);
                }
            }
            Delta::Telemetry(reading) => self.set_telemetry(reading),
            Delta::Fabric(rules) => {
                self.fabric = rules.clone();
                for entry in self.nodes.values_mut() {
                    if let Some(node) = &entry.node {
                        let (rules, pricing) = (rules.clone(), self.pricing.clone());
                        entry.labels = Arc::new(NodeLabels::of(node.clone(), rules, pricing));
                    }
                }
                self.node_changes.forget(self.version);
            }
            Delta::Unreadable { .. } => {}
        }
    }

    /// A node, with what a DRA driver publishes of its GPUs.
    fn set_node(&mut self, plain: &Arc<Node>) {
        let name = &plain.meta.name;
        let node = &self.published(name).complete(plain);
        if Arc::ptr_eq(node, plain) {
            self.plain_nodes.remove(name);
        } else {
            self.plain_nodes.insert(name.clone(), plain.clone());
        }
        self.set_single_profile(node);
        if self.faults.set(node) {
            self.happened = self.version;
        }
        let (fabric, pricing) = (self.fabric.clone(), self.pricing.clone());
        let entry = self.nodes.entry(name.clone()).or_default();
        entry.node = Some(node.clone());
        entry.labels = Arc::new(NodeLabels::of(node.clone(), fabric, pricing));
        entry.facts = OnceLock::new();
        self.note_node(name);
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
            if self.faults.remove(&gone.name) {
                self.happened = self.version;
            }
            entry.node = None;
            entry.labels = Arc::default();
            entry.facts = OnceLock::new();
            self.plain_nodes.remove(&gone.name);
            self.single.remove(&gone.name);
            self.telemetry.remove(&gone.name);
            if entry.held.pods.is_empty() {
                self.nodes.remove(&gone.name);
            }
            self.note_node(&gone.name);
        }
    }

    fn set_claim(&mut self, claim: &Arc<ResourceClaim>) {
        self.remove_claim(&claim.meta.uid);
        let nodes: BTreeSet<Str> = claim.nodes().cloned().collect();
        if nodes.is_empty() {
            return;
        }
        for node in &nodes {
            let on_it = self.claims_by_node.entry(node.clone()).or_default();
            on_it.insert(claim.meta.uid.clone());
            self.note_node(node);
        }
        self.claims.insert(claim.meta.uid.clone(), claim.clone());
    }

    fn remove_claim(&mut self, uid: &Uid) {
        let Some(claim) = self.claims.remove(uid) else {
            return;
        };
        for node in claim.nodes() {
            if let Some(on_it) = self.claims_by_node.get_mut(node) {
                on_it.remove(uid);
                if on_it.is_empty() {
                    self.claims_by_node.remove(node);
                }
            }
            self.note_node(node);
        }
    }

    /// Another one tells, or the same tells otherwise, who holds which GPU of a node.
    fn devices_changed(&mut self, node: &Str) {
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.facts = OnceLock::new();
            self.note_node(node);
        }
    }

    fn set_telemetry(&mut self, reading: &Arc<NodeTelemetry>) {
        match self.telemetry.get_mut(&reading.node) {
            Some(log) => log.take(reading.clone()),
            // What is told of a node that nobody knows would be kept for good.
            None if !self.nodes.contains_key(&reading.node) => return,
            None => {
                let log = TelemetryLog::new(reading.clone());
                self.telemetry.insert(reading.node.clone(), log);
            }
        }
        let name = reading.node.clone();
        self.note_node(&name);
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
        let key = self.top(WorkloadKey::of_pod(pod, job.map(|j| &**j)));
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
        let key = self.top(WorkloadKey::of_job(job));
        if let Some(old) = self.jobs.insert(job.meta.uid.clone(), job.clone()) {
            let old_key = self.top(WorkloadKey::of_job(&old));
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
        self.forget_job_in(&self.top(WorkloadKey::of_job(&job)), uid);
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
}

mod foreign;
mod known;
mod read;

#[cfg(test)]
mod tests;
