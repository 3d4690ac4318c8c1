//! What the scheduler knows: the same deltas as the model, folded into rows and a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::amounts::Ask;
use super::budgets::{Budgets, News};
use super::changes::Changes;
use super::class::{Class, ClassId, Classes};
use super::config::SchedConfig;
use super::gang::GangKey;
use super::holds::{Held, Holds};
use super::memo::Memo;
use super::queue::{PastUse, Quotas, Tree, to_milli_gpu};
use super::rows::Rows;
use super::turn::Kept;
use super::uid_map::UidMap;
use super::view::{RowId, Rules};
use crate::model::{
    Change, Decision, DecisionKind, Delta, Foreign, ForeignKind, Gone, Job, Kind, Node, Pod,
    PriorityClass, Queue, Reason, ResourceVersion, SourceReport, SourceState, Str, Uid,
    VolumeClaim, VolumeTopology,
};
use crate::plan::Plan;

/// Seconds between two counts of what is used.
const COUNT_EVERY_SECS: i64 = 30;

/// Place in the queue: highest priority first, then oldest, then by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct QueueKey {
    pub(super) priority: std::cmp::Reverse<i32>,
    pub(super) created: Timestamp,
    pub(super) namespace: Str,
    pub(super) name: Str,
    pub(super) uid: Uid,
}

/// A pod as the scheduler keeps it.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) pod: Arc<Pod>,
    pub(super) gang: Option<GangKey>,
    /// What it asks, if it is ours.
    pub(super) class: Option<Arc<Class>>,
    /// Only while it waits for us.
    pub(super) waiting: Option<(QueueKey, ClassId)>,
    /// What keeps it waiting whatever the nodes look like.
    pub(super) problem: Option<Reason>,
    /// The node whose row counts it, because it is seen there or assumed to be.
    pub(super) place: Option<Str>,
    /// Thousandths of a GPU that it uses there, if it is ours.
    pub(super) milli_gpu: i64,
}

/// A binding that is written but not seen in the watch yet.
#[derive(Clone, Debug)]
pub(super) struct Assumed {
    pub(super) node: Str,
    /// The device that a share was given.
    pub(super) device: Option<u8>,
    /// Since when it is not known whether the server has made it; `None`: it has, or its answer is
    /// still to come.
    pub(super) doubted: Option<Timestamp>,
}

/// The scheduler's state. Two states that were told the same in the same order decide the same.
/// The order matters: what is learnt of the demand is learnt from the pods as they come.
#[derive(Clone, Default)]
pub struct State {
    pub(super) config: SchedConfig,
    pub(super) rows: Rows,
    pub(super) classes: Classes,
    pub(super) memo: Memo,
    pub(super) queue: BTreeMap<QueueKey, Uid>,
    pub(super) pods: UidMap<Tracked>,
    pub(super) gangs: BTreeMap<GangKey, Arc<BTreeSet<Uid>>>,
    /// Pods that are kept apart from those of the same owner: how many each node has.
    pub(super) siblings: BTreeMap<Uid, BTreeMap<RowId, u32>>,
    pub(super) assumed: BTreeMap<Uid, Assumed>,
    jobs: UidMap<Arc<Job>>,
    claims: BTreeMap<(Str, Str), Arc<VolumeClaim>>,
    volumes: BTreeMap<Str, Arc<VolumeTopology>>,
    /// Grows with each change of a claim or volume.
    pub(super) volume_version: u64,
    pub(super) priority_classes: BTreeMap<Str, Arc<PriorityClass>>,
    pub(super) decisions: UidMap<Arc<Decision>>,
    sources: BTreeMap<(Kind, Option<Str>), SourceReport>,
    pub(super) clock: Option<Timestamp>,
    pub(super) queues: BTreeMap<Str, Arc<Queue>>,
    /// The version of each queue of which a status was written, and when.
    pub(super) told_queues: BTreeMap<Str, (ResourceVersion, Option<Timestamp>)>,
    quotas: Quotas,
    tree: Arc<Tree>,
    pub(super) holds: Holds,
    pub(super) budgets: Budgets,
    /// What each namespace has used, faded.
    past: BTreeMap<Str, PastUse>,
    counted_at: Option<Timestamp>,
    /// Pods on a node that the server has told to go.
    pub(super) deleting: BTreeSet<Uid>,
    /// Pods that changed.
    pub(super) changed: Changes,
    /// Grows with each change by which something may start that could not before.
    pub(super) freed: u64,
    /// The picture of the last round.
    pub(super) kept: Kept,
}

impl State {
    /// A state in which nothing is known.
    pub fn new(config: SchedConfig) -> Self {
        Self {
            rows: Rows::new(config.topology_levels.clone()),
            config,
            ..Self::default()
        }
    }

    /// A copy to try things on: what is done to it does not touch this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.clone()
    }

    /// What all classes are judged by.
    pub(super) fn rules(&self) -> Rules<'_> {
        self.rows.rules(self.config.spot_needs_checkpoint)
    }

    /// Folds one delta in.
    pub fn apply(&mut self, delta: &Delta) {
        match delta {
            Delta::Node(Change::Set(node)) => {
                self.set_node(&node.meta.name, Some(node.clone()));
            }
            Delta::Node(Change::Gone(gone)) => self.remove_node(gone),
            Delta::Pod(Change::Set(pod)) => self.set_pod(pod),
            Delta::Pod(Change::Gone(gone)) => self.remove_pod(&gone.uid),
            Delta::Job(Change::Set(job)) => {
                self.jobs.insert(job.meta.uid.clone(), job.clone());
                self.job_changed(&job.meta.uid);
            }
            Delta::Job(Change::Gone(gone)) => {
                self.jobs.remove(&gone.uid);
                self.job_changed(&gone.uid);
            }
            Delta::VolumeClaim(Change::Set(claim)) => {
                let key = (claim.meta.namespace.clone(), claim.meta.name.clone());
                self.claims.insert(key, claim.clone());
                self.volume_version += 1;
            }
            Delta::VolumeClaim(Change::Gone(gone)) => {
                let key = (gone.namespace.clone(), gone.name.clone());
                if self
                    .claims
                    .get(&key)
                    .is_some_and(|c| c.meta.uid == gone.uid)
                {
                    self.claims.remove(&key);
                    self.volume_version += 1;
                }
            }
            Delta::Volume(Change::Set(volume)) => {
                self.volumes
                    .insert(volume.meta.name.clone(), volume.clone());
                self.volume_version += 1;
            }
            Delta::Volume(Change::Gone(gone)) => {
                if self
                    .volumes
                    .get(&gone.name)
                    .is_some_and(|v| v.meta.uid == gone.uid)
                {
                    self.volumes.remove(&gone.name);
                    self.volume_version += 1;
                }
            }
            Delta::PriorityClass(Change::Set(class)) => {
                self.priority_classes
                    .insert(class.meta.name.clone(), class.clone());
                self.requeue(&class.meta.name);
                self.all_changed();
            }
            Delta::PriorityClass(Change::Gone(gone)) => {
                self.priority_classes.remove(&gone.name);
                self.requeue(&gone.name);
                self.all_changed();
            }
            Delta::Decision(decision) => {
                if self.pods.contains_key(&decision.pod) {
                    let before = self
                        .decisions
                        .insert(decision.pod.clone(), decision.clone());
                    if is_refusal(decision) || before.is_some_and(|d| is_refusal(&d)) {
                        self.changed.push(&decision.pod);
                    }
                }
            }
            Delta::Queue(Change::Set(queue)) => {
                let name = queue.meta.name.clone();
                let before = self.queues.insert(name, queue.clone());
                // What is told of a queue changes often and decides nothing.
                if before.is_none_or(|b| !b.says_the_same(queue)) {
                    self.rebuild_tree();
                }
            }
            Delta::Queue(Change::Gone(gone)) => {
                self.queues.remove(&gone.name);
                self.rebuild_tree();
            }
            Delta::Budget(Change::Set(budget)) => {
                let news = self.budgets.set(budget);
                self.budget_changed(news, &budget.meta.namespace);
            }
            Delta::Budget(Change::Gone(gone)) => {
                let news = self.budgets.remove(gone);
                self.budget_changed(news, &gone.namespace);
            }
            Delta::Foreign(ForeignKind::ResourceQuota, change) => self.quota_changed(change),
            Delta::Source(report) => {
                self.sources
                    .insert((report.kind, report.namespace.clone()), report.clone());
            }
            // No filter reads them.
            Delta::Namespace(_)
            | Delta::Event(_)
            | Delta::Fabric(_)
            | Delta::Foreign(..)
            | Delta::Telemetry(_)
            | Delta::ResourceClaim(_)
            | Delta::GpuNode(_)
            | Delta::Unreadable { .. } => {}
        }
    }

    /// The oldest queue first, which decides among equals.
    fn rebuild_tree(&mut self) {
        let mut queues: Vec<Arc<Queue>> = self.queues.values().cloned().collect();
        queues.sort_by_key(|q| {
            let created = q.meta.created.unwrap_or(Timestamp::MAX);
            (created, q.meta.name.clone())
        });
        self.tree = Arc::new(Tree::new(&queues, self.quotas.limits()));
        let namespaces: BTreeSet<Str> = self
            .pods
            .values()
            .filter(|t| t.pod.scheduler == self.config.scheduler_name)
            .map(|t| t.pod.meta.namespace.clone())
            .collect();
        for namespace in &namespaces {
            self.meet_namespace(namespace);
        }
        self.all_changed();
    }

    /// A namespace without a queue is one by itself from its first pod on.
    pub(super) fn meet_namespace(&mut self, namespace: &Str) {
        if !self.tree.knows_namespace(namespace) {
            // What is wrong with its queue is told for each pod that waits.
            let _ = Arc::make_mut(&mut self.tree).of_namespace(namespace);
        }
    }

    /// A quota on GPUs limits a namespace that no GpuQueue names.
    fn quota_changed(&mut self, change: &Change<Foreign>) {
        let namespace = match change {
            Change::Set(quota) => self.quotas.set(quota),
            Change::Gone(gone) => self.quotas.remove(&gone.uid),
        };
        if namespace.is_some_and(|ns| self.tree.is_of_its_own(&ns)) {
            self.rebuild_tree();
        }
    }

    fn budget_changed(&mut self, news: News, namespace: &Str) {
        if news == News::Pods {
            for tracked in self.pods.values() {
                let meta = &tracked.pod.meta;
                if meta.namespace == *namespace && tracked.place.is_some() {
                    self.changed.push(&meta.uid);
                }
            }
        }
        if news != News::None {
            self.freed += 1;
        }
    }

    /// Everything may have changed.
    pub(super) fn all_changed(&mut self) {
        self.changed.reset();
        self.freed += 1;
    }

    fn job_changed(&mut self, uid: &Uid) {
        if let Some(members) = self.gangs.get(&GangKey::Job(uid.clone())) {
            for member in members.iter() {
                self.changed.push(member);
            }
            self.freed += 1;
        }
    }

    /// Pods with a place that are on their way out, by our decision or another's.
    pub(super) fn leaving(&self) -> impl Iterator<Item = &Uid> {
        let ours = self.holds.all_evicting();
        let new = ours.filter(|uid| !self.deleting.contains(*uid));
        self.deleting.iter().chain(new)
    }

    /// The queues.
    pub(super) fn queues(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Counts what each namespace uses by our pods, once in a while.
    pub(super) fn count_use(&mut self, now: Timestamp) {
        let half_life = self.config.half_life_secs;
        let since = self.counted_at.map(|t| now.duration_since(t).as_secs());
        if half_life <= 0 || since.is_some_and(|secs| (0..COUNT_EVERY_SECS).contains(&secs)) {
            return;
        }
        self.counted_at = Some(now);
        let mut uses: BTreeMap<Str, i64> = BTreeMap::new();
        for tracked in self.pods.values() {
            if tracked.place.is_some() && tracked.milli_gpu > 0 {
                let namespace = &tracked.pod.meta.namespace;
                match uses.get_mut(namespace) {
                    Some(sum) => *sum += tracked.milli_gpu,
                    None => {
                        uses.insert(namespace.clone(), tracked.milli_gpu);
                    }
                }
            }
        }
        for namespace in uses.keys() {
            self.past.entry(namespace.clone()).or_default();
        }
        for (namespace, past) in &mut self.past {
            let used = uses.get(namespace).copied().unwrap_or(0);
            past.count(used, now, half_life);
        }
    }

    /// What each namespace has used.
    pub(super) fn past(&self) -> impl Iterator<Item = (&Str, i64)> {
        self.past
            .iter()
            .map(|(ns, past)| (ns, past.milli_gpu_secs()))
    }

    /// What a pod of ours uses on a node, in thousandths of a GPU.
    pub(super) fn milli_gpu_of(&self, class: Option<&Class>, place: Option<&Str>) -> i64 {
        let (Some(class), Some(node)) = (class, place) else {
            return 0;
        };
        to_milli_gpu(super::turn::parts_of(class, self.rows.memory_mib(node)))
    }

    /// A plan's places are held for their jobs until their pods are bound or time is up, and those
    /// that it gives up are not any more. Tell it before the plan's actions.
    pub fn hold(&mut self, plan: &Plan) {
        for owner in &plan.given_up {
            self.holds.give_up(owner);
            self.freed += 1;
        }
        for hold in &plan.holds {
            let places = hold
                .places
                .iter()
                .filter_map(|place| {
                    let pod = self.pods.get(&place.pod)?.pod.clone();
                    let place = place.clone();
                    Some(Held { pod, place })
                })
                .collect();
            self.holds.keep(&hold.owner, places, self.clock);
            self.freed += 1;
        }
    }

    fn remove_node(&mut self, gone: &Gone) {
        if self
            .rows
            .node(&gone.name)
            .is_some_and(|n| n.meta.uid == gone.uid)
        {
            self.holds.lose(&gone.name);
            self.set_node(&gone.name, None);
        }
    }

    fn set_node(&mut self, name: &Str, node: Option<Arc<Node>>) {
        let version = self.rows.version();
        if let Some(row) = self.rows.set_node(name, node) {
            let (pods, assumed) = (&self.pods, &self.assumed);
            self.rows.reassign(row, |uid| {
                let pod = &pods.get(uid)?.pod;
                let named = assumed.get(uid).map_or_else(|| pod.device(), |a| a.device);
                Some((Ask::of_pod(pod), named))
            });
        }
        if self.rows.version() != version {
            self.freed += 1;
        }
    }

    /// Why nothing is placed at the moment: nodes or pods are not (fully) known, so what is free
    /// is not known, or another kind that decisions rest on is still loading. A kind of which no
    /// source has reported counts as known.
    pub fn blocked(&self) -> Option<Str> {
        let known = [Kind::Node, Kind::Pod].into_iter();
        let loaded = [
            Kind::Job,
            Kind::PriorityClass,
            Kind::VolumeClaim,
            Kind::Volume,
            Kind::GpuQueue,
            Kind::Budget,
            Kind::Foreign(ForeignKind::ResourceQuota),
        ]
        .into_iter()
        .filter(|kind| {
            self.sources
                .values()
                .any(|r| r.kind == *kind && matches!(r.state, SourceState::Loading { .. }))
        });
        known.chain(loaded).find_map(|kind| {
            let why = self.source_trouble(kind)?;
            Some(format!("nothing is placed: {kind} are not known: {why}").into())
        })
    }

    /// What keeps a kind from being known in the whole cluster.
    pub(super) fn source_trouble(&self, kind: Kind) -> Option<Str> {
        let mut reports = self.sources.values().filter(|r| r.kind == kind).peekable();
        reports.peek()?;
        let mut first = None;
        for report in reports {
            match (&report.state, &report.namespace) {
                (SourceState::Live, None) => return None,
                (SourceState::Live, Some(ns)) => {
                    first
                        .get_or_insert_with(|| format!("only namespace {ns} may be listed").into());
                }
                (SourceState::Loading { read }, _) => {
                    first.get_or_insert_with(|| format!("still loading, {read} read").into());
                }
                (
                    SourceState::Stale { why, .. }
                    | SourceState::Denied { why }
                    | SourceState::Absent { why }
                    | SourceState::Failed { why },
                    _,
                ) => {
                    first.get_or_insert_with(|| why.clone());
                }
            }
        }
        first
    }

    pub(super) fn tracked(&self, uid: &Uid) -> Option<&Tracked> {
        self.pods.get(uid)
    }

    pub(super) fn members(&self, gang: &GangKey) -> impl Iterator<Item = &Tracked> {
        self.gangs
            .get(gang)
            .into_iter()
            .flat_map(|uids| uids.iter())
            .filter_map(|uid| self.pods.get(uid))
    }

    /// Pods of the class are kept apart from those of the same owner.
    pub(super) fn is_spread(&self, class: ClassId) -> bool {
        self.classes.get(class).is_some_and(|c| c.needs.spread)
    }

    pub(super) fn job(&self, uid: &Uid) -> Option<&Arc<Job>> {
        self.jobs.get(uid)
    }

    pub(super) fn claim(&self, namespace: &Str, name: &Str) -> Option<&Arc<VolumeClaim>> {
        self.claims.get(&(namespace.clone(), name.clone()))
    }

    pub(super) fn volume(&self, name: &Str) -> Option<&Arc<VolumeTopology>> {
        self.volumes.get(name)
    }

    pub(super) fn decision(&self, pod: &Uid) -> Option<&Arc<Decision>> {
        self.decisions.get(pod)
    }

    /// Has a place on a node, seen or assumed, and is not on its way out.
    pub(super) fn has_place(&self, pod: &Pod) -> bool {
        pod.meta.deleting.is_none()
            && (pod.holds_node().is_some() || self.assumed.contains_key(&pod.meta.uid))
    }

    /// Pods that wait for this scheduler.
    pub fn waiting_pods(&self) -> usize {
        self.queue.len()
    }

    /// Bindings that are written but not seen yet.
    pub fn assumed_pods(&self) -> usize {
        self.assumed.len()
    }
}

fn is_refusal(decision: &Decision) -> bool {
    matches!(
        &decision.kind,
        DecisionKind::Waiting(Reason::Refused { .. })
    )
}
