//! What the scheduler knows: the same deltas as the model, folded into rows and a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::amounts::Ask;
use super::class::{ClassId, Classes};
use super::config::SchedConfig;
use super::gang::{self, GangKey};
use super::memo::Memo;
use super::problem;
use super::rows::Rows;
use crate::model::{
    Change, Decision, Delta, Gone, Job, Kind, Pod, PriorityClass, Reason, SourceReport,
    SourceState, Str, Uid, VolumeClaim, VolumeTopology,
};
use crate::plan::Action;

/// Place in the queue: highest priority first, then oldest, then by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct QueueKey {
    priority: std::cmp::Reverse<i32>,
    created: Timestamp,
    namespace: Str,
    name: Str,
    uid: Uid,
}

/// A pod as the scheduler keeps it.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) pod: Arc<Pod>,
    pub(super) gang: Option<GangKey>,
    /// Only while it waits for us.
    pub(super) waiting: Option<(QueueKey, ClassId)>,
    /// What keeps it waiting whatever the nodes look like.
    pub(super) problem: Option<Reason>,
}

/// A binding that is written but not seen in the watch yet.
#[derive(Clone, Debug)]
struct Assumed {
    pod: Arc<Pod>,
    node: Str,
    /// By the clock that [`State::expire`] was last given; `None` before its first call.
    since: Option<Timestamp>,
}

/// The scheduler's state. Two states that folded the same deltas in the same order, or objects of
/// different identity in any order, decide the same.
#[derive(Clone, Default)]
pub struct State {
    pub(super) config: SchedConfig,
    pub(super) rows: Rows,
    pub(super) classes: Classes,
    pub(super) memo: Memo,
    pub(super) queue: BTreeMap<QueueKey, Uid>,
    pods: BTreeMap<Uid, Tracked>,
    gangs: BTreeMap<GangKey, BTreeSet<Uid>>,
    assumed: BTreeMap<Uid, Assumed>,
    jobs: BTreeMap<Uid, Arc<Job>>,
    claims: BTreeMap<(Str, Str), Arc<VolumeClaim>>,
    volumes: BTreeMap<Str, Arc<VolumeTopology>>,
    /// Grows with each change of a claim or volume.
    pub(super) volume_version: u64,
    priority_classes: BTreeMap<Str, Arc<PriorityClass>>,
    decisions: BTreeMap<Uid, Arc<Decision>>,
    sources: BTreeMap<(Kind, Option<Str>), SourceReport>,
    clock: Option<Timestamp>,
}

impl State {
    /// A state in which nothing is known.
    pub fn new(config: SchedConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Folds one delta in.
    pub fn apply(&mut self, delta: &Delta) {
        match delta {
            Delta::Node(Change::Set(node)) => {
                self.rows.set_node(&node.meta.name, Some(node.clone()));
            }
            Delta::Node(Change::Gone(gone)) => self.remove_node(gone),
            Delta::Pod(Change::Set(pod)) => self.set_pod(pod),
            Delta::Pod(Change::Gone(gone)) => self.remove_pod(&gone.uid),
            Delta::Job(Change::Set(job)) => {
                self.jobs.insert(job.meta.uid.clone(), job.clone());
            }
            Delta::Job(Change::Gone(gone)) => {
                self.jobs.remove(&gone.uid);
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
            }
            Delta::PriorityClass(Change::Gone(gone)) => {
                self.priority_classes.remove(&gone.name);
                self.requeue(&gone.name);
            }
            Delta::Decision(decision) => {
                if self.pods.contains_key(&decision.pod) {
                    self.decisions
                        .insert(decision.pod.clone(), decision.clone());
                }
            }
            Delta::Source(report) => {
                self.sources
                    .insert((report.kind, report.namespace.clone()), report.clone());
            }
            // No filter reads them.
            Delta::Namespace(_) | Delta::Event(_) | Delta::Unreadable { .. } => {}
        }
    }

    fn remove_node(&mut self, gone: &Gone) {
        if self
            .rows
            .node(&gone.name)
            .is_some_and(|n| n.meta.uid == gone.uid)
        {
            self.rows.set_node(&gone.name, None);
        }
    }

    fn set_pod(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.meta.uid;
        if let Some(tracked) = self.pods.get_mut(uid)
            && tracked.waiting.is_none()
            && !self.assumed.contains_key(uid)
            && holds_the_same(&tracked.pod, pod)
        {
            tracked.pod = pod.clone();
            return;
        }
        if pod.node.is_some() || pod.is_terminal() {
            self.drop_assumed(uid);
        }
        // The new one enters its class before the old one leaves, so that the class lives on.
        let waiting = self.waiting_entry(pod);
        self.untrack(uid);
        if let Some(node) = pod.holds_node() {
            self.rows.take(node, &Ask::of_pod(pod));
        }
        let problem = waiting.as_ref().and_then(|_| problem::of_pod(pod));
        let gang = gang::key_of(pod);
        if let Some(gang) = &gang {
            self.gangs
                .entry(gang.clone())
                .or_default()
                .insert(uid.clone());
        }
        if let Some((key, _)) = &waiting {
            self.queue.insert(key.clone(), uid.clone());
        }
        self.pods.insert(
            uid.clone(),
            Tracked {
                pod: pod.clone(),
                gang,
                waiting,
                problem,
            },
        );
    }

    fn remove_pod(&mut self, uid: &Uid) {
        self.drop_assumed(uid);
        self.untrack(uid);
        self.decisions.remove(uid);
    }

    /// Takes a pod out of every sum.
    fn untrack(&mut self, uid: &Uid) {
        let Some(tracked) = self.pods.remove(uid) else {
            return;
        };
        if let Some(node) = tracked.pod.holds_node() {
            self.rows.give(node, &Ask::of_pod(&tracked.pod));
        }
        if let Some(gang) = &tracked.gang
            && let Some(members) = self.gangs.get_mut(gang)
        {
            members.remove(uid);
            if members.is_empty() {
                self.gangs.remove(gang);
            }
        }
        self.leave_queue(tracked.waiting);
    }

    fn leave_queue(&mut self, waiting: Option<(QueueKey, ClassId)>) {
        if let Some((key, class)) = waiting {
            self.queue.remove(&key);
            if self.classes.leave(class) {
                self.memo.forget(class);
            }
        }
    }

    /// Counts a pod into its class if it waits for us.
    fn waiting_entry(&mut self, pod: &Pod) -> Option<(QueueKey, ClassId)> {
        let ours = pod.scheduler == self.config.scheduler_name
            && pod.is_waiting()
            && !self.assumed.contains_key(&pod.meta.uid);
        ours.then(|| (self.queue_key(pod), self.classes.enter(pod)))
    }

    fn queue_key(&self, pod: &Pod) -> QueueKey {
        // The API server resolves the class at admission; a server that does not leaves 0.
        let by_class = self
            .priority_classes
            .get(&pod.priority_class)
            .filter(|_| pod.priority == 0)
            .map(|c| c.value);
        QueueKey {
            priority: std::cmp::Reverse(by_class.unwrap_or(pod.priority)),
            created: pod.meta.created.unwrap_or(Timestamp::MAX),
            namespace: pod.meta.namespace.clone(),
            name: pod.meta.name.clone(),
            uid: pod.meta.uid.clone(),
        }
    }

    /// Gives the waiting pods of a priority class their place anew.
    fn requeue(&mut self, priority_class: &Str) {
        let moved: Vec<(QueueKey, Uid, QueueKey)> = self
            .queue
            .iter()
            .filter_map(|(old, uid)| {
                let pod = &self.pods.get(uid)?.pod;
                let new = (pod.priority_class == *priority_class).then(|| self.queue_key(pod))?;
                (new != *old).then(|| (old.clone(), uid.clone(), new))
            })
            .collect();
        for (old, uid, new) in moved {
            self.queue.remove(&old);
            if let Some((key, _)) = self.pods.get_mut(&uid).and_then(|t| t.waiting.as_mut()) {
                *key = new.clone();
            }
            self.queue.insert(new, uid);
        }
    }

    /// A binding is written: it counts as use until the watch shows it, it is forgotten or it
    /// expires. A pod that is not waiting (any more) is left as it is.
    pub fn assume(&mut self, action: &Action) {
        let Action::Bind { pod: uid, node, .. } = action;
        let Some(tracked) = self.pods.get_mut(uid) else {
            return;
        };
        let Some(waiting) = tracked.waiting.take() else {
            return;
        };
        let pod = tracked.pod.clone();
        self.leave_queue(Some(waiting));
        self.rows.take(node, &Ask::of_pod(&pod));
        self.assumed.insert(
            uid.clone(),
            Assumed {
                pod,
                node: node.clone(),
                since: self.clock,
            },
        );
    }

    /// The binding was refused: the pod waits again. Without a matching [`State::assume`] this
    /// does nothing.
    pub fn forget(&mut self, action: &Action) {
        let Action::Bind { pod: uid, node, .. } = action;
        if self.assumed.get(uid).is_some_and(|a| a.node == *node) {
            self.unassume(uid);
        }
    }

    /// Moves the scheduler's clock on: assumed bindings that the watch has not shown within
    /// [`SchedConfig::assume_secs`] are given up and their pods wait again. Call it before
    /// [`super::decide`], with the same time.
    ///
    /// While the pods' source is not live nothing ages: what the watch could not show may well
    /// have happened.
    pub fn expire(&mut self, now: Timestamp) {
        self.clock = Some(now);
        if self.source_trouble(Kind::Pod).is_some() {
            for assumed in self.assumed.values_mut() {
                assumed.since = Some(now);
            }
            return;
        }
        let limit = SignedDuration::from_secs(self.config.assume_secs);
        let mut expired = Vec::new();
        for (uid, assumed) in &mut self.assumed {
            // A clock that was set back must not hold a place for ever.
            let since = assumed.since.map_or(now, |s| s.min(now));
            assumed.since = Some(since);
            if now.duration_since(since) >= limit {
                expired.push(uid.clone());
            }
        }
        for uid in &expired {
            self.unassume(uid);
        }
    }

    fn drop_assumed(&mut self, uid: &Uid) -> bool {
        let Some(assumed) = self.assumed.remove(uid) else {
            return false;
        };
        self.rows.give(&assumed.node, &Ask::of_pod(&assumed.pod));
        true
    }

    fn unassume(&mut self, uid: &Uid) {
        if !self.drop_assumed(uid) {
            return;
        }
        let Some(pod) = self.pods.get(uid).map(|t| t.pod.clone()) else {
            return;
        };
        let waiting = self.waiting_entry(&pod);
        if let Some((key, _)) = &waiting {
            self.queue.insert(key.clone(), uid.clone());
        }
        if let Some(tracked) = self.pods.get_mut(uid) {
            tracked.problem = waiting.as_ref().and_then(|_| problem::of_pod(&pod));
            tracked.waiting = waiting;
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
            .flatten()
            .filter_map(|uid| self.pods.get(uid))
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

/// A bound pod of which nothing that counts has changed.
fn holds_the_same(old: &Pod, new: &Pod) -> bool {
    new.node.is_some()
        && old.node == new.node
        && old.is_terminal() == new.is_terminal()
        && old.requests == new.requests
        && old.constraints.host_ports == new.constraints.host_ports
        && old.group == new.group
        && old.meta.owners == new.meta.owners
        && old.meta.annotations == new.meta.annotations
}
