//! One round of decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::backfill::{Ends, Reservation};
use super::class::ClassId;
use super::explain;
use super::jobs::is_older;
use super::queue::{Parts, to_milli_gpu};
use super::reclaim::{Denied, Grade};
use super::scratch::Scratch;
use super::state::State;
use super::turn::{Failed, Hopeless, JobId, PodId, Spot, Verdicts, World};
use super::view::Siblings;
use crate::model::{Decision, DecisionKind, Pod, Reason, Str, Uid};
use crate::plan::{Action, HeldPlace, Hold, Plan};

/// Decides about the waiting pods: whose turn it is starts, and whoever has a right to a place
/// gets one by moves or evictions, until all are seen or the round's bound is reached
/// ([`Plan::more`] says so).
///
/// Pure: the same state and time give the same plan. Nothing counts as placed, held or evicted
/// until [`State::hold`] and [`State::assume`] are told. Decisions are in the plan only when they
/// differ from the last that the state has folded. While [`State::blocked`] has a reason the plan
/// is empty.
///
/// Pods that wait after a refusal are tried again by a later call: call this from time to time
/// even when no delta comes.
pub fn decide(state: &State, now: Timestamp) -> Plan {
    if state.blocked().is_some() || state.queue.is_empty() {
        return Plan::default();
    }
    let mut world = World::open(state, now);
    let shares = world.all_shares();
    let verdicts = world.verdicts(&shares);
    let plan = Plan {
        given_up: std::mem::take(&mut world.given_up),
        ..Plan::default()
    };
    let mut round = Round {
        state,
        now,
        scratch: Scratch::new(state),
        leaving: world.leaving,
        world,
        shares,
        verdicts,
        reserved: Vec::new(),
        unreservable: BTreeSet::new(),
        ends: None,
        stuck: BTreeMap::new(),
        unclear: BTreeMap::new(),
        kept_off: false,
        searches: 0,
        siblings: BTreeMap::new(),
        placed: 0,
        evictions: Vec::new(),
        left: 0,
        plan,
    };
    round.tell_all();
    round.go();
    round.scratch.finish();
    let changed = round.placed > 0 || round.left > 0 || !round.plan.holds.is_empty();
    round
        .world
        .keep_verdicts(round.verdicts, round.shares, changed);
    round.world.close();
    round.plan
}

/// One round under way: it asks the order, places, displaces, and writes the plan.
pub(super) struct Round<'a> {
    pub(super) state: &'a State,
    pub(super) now: Timestamp,
    /// What is free at once.
    pub(super) scratch: Scratch<'a>,
    /// What is free once those who leave are gone, and the queues.
    pub(super) world: World<'a>,
    /// What each queue is due, by pool.
    pub(super) shares: Vec<Vec<Parts>>,
    /// Some place becomes free later.
    pub(super) leaving: bool,
    /// What was tried in vain while nothing has become free since.
    pub(super) verdicts: Verdicts,
    /// Places at a time to come.
    pub(super) reserved: Vec<Reservation>,
    /// Starts for which no time was found.
    pub(super) unreservable: BTreeSet<Failed>,
    /// When running pods end, as long as it is right.
    pub(super) ends: Option<Arc<Ends>>,
    /// Classes that found no row clear of reservations, by what they outlast, and when that was.
    pub(super) stuck: BTreeMap<(ClassId, usize, u64), (u32, usize)>,
    /// Those that found places in vain, for they are reserved: who, and when that was.
    pub(super) unclear: BTreeMap<(Hopeless, Vec<u64>), (u32, usize)>,
    /// A place was found and not taken for that reason.
    pub(super) kept_off: bool,
    /// Searches for moves so far.
    pub(super) searches: usize,
    /// Siblings of pods that are kept apart, with those placed in this round.
    pub(super) siblings: BTreeMap<Uid, Siblings>,
    pub(super) placed: u32,
    /// Who leaves for one job.
    pub(super) evictions: Vec<Action>,
    /// Pods that leave.
    pub(super) left: usize,
    pub(super) plan: Plan,
}

/// A pod, where it goes and why there.
pub(super) type Placed = (PodId, Spot, Str);

impl Round<'_> {
    pub(super) fn pod(&self, id: PodId) -> Option<Arc<Pod>> {
        self.world.pod(id).map(|p| p.pod.clone())
    }

    fn node(&self, spot: Spot) -> Option<Str> {
        self.world.row(spot.row).map(|r| r.name.clone())
    }

    /// Pods that wait whatever the nodes look like are told so.
    fn tell_all(&mut self) {
        for id in self.world.telling.clone() {
            let told = self.world.job(id).map(|j| j.told.clone());
            for (pod, reason) in told.unwrap_or_default() {
                self.wait(&pod, &reason);
            }
        }
    }

    /// These pods are bound now, together.
    pub(super) fn begin(&mut self, places: Vec<Placed>) {
        let mut group = Vec::with_capacity(places.len());
        for (id, spot, why) in places {
            self.take_from_reservations(id, spot);
            self.world.put(id, spot);
            self.world.begin(id);
            let (Some(pod), Some(node)) = (self.pod(id), self.node(spot)) else {
                continue;
            };
            self.placed += 1;
            let kind = DecisionKind::Placed {
                node: node.clone(),
                why,
            };
            self.tell(&pod, kind);
            group.push(Action::Bind {
                pod: pod.meta.uid.clone(),
                namespace: pod.meta.namespace.clone(),
                name: pod.meta.name.clone(),
                node,
                device: spot.held.shared_device(),
            });
        }
        self.ends = None;
        self.plan.groups.push(group);
    }

    /// A pod leaves for a job.
    pub(super) fn leave(&mut self, id: PodId, from: Spot, for_job: JobId, grade: Option<Grade>) {
        let preemptor = self
            .world
            .job(for_job)
            .and_then(|j| j.pods.first())
            .and_then(|p| self.pod(*p));
        if let (Some(pod), Some(preemptor), Some(node)) = (self.pod(id), preemptor, self.node(from))
        {
            self.left += 1;
            self.evictions.push(Action::Evict {
                pod: pod.meta.uid.clone(),
                namespace: pod.meta.namespace.clone(),
                name: pod.meta.name.clone(),
                node,
                preemptor: (
                    preemptor.meta.namespace.clone(),
                    preemptor.meta.name.clone(),
                ),
                why: self.why_leaves(id, for_job, grade).into(),
            });
        }
    }

    fn why_leaves(&self, id: PodId, for_job: JobId, grade: Option<Grade>) -> String {
        let queue_of = |job: Option<JobId>| {
            let queue = job.and_then(|j| self.world.job(j)).map(|j| j.queue);
            self.world.tree.node(queue.unwrap_or_default()).name.clone()
        };
        let pod = self.world.pod(id);
        let (mine, theirs) = (queue_of(Some(for_job)), queue_of(pod.map(|p| p.job)));
        let right = match grade {
            None => "it runs again elsewhere at once".to_owned(),
            Some(Grade::Guarantee) => {
                format!("queue {mine} is below its guarantee, queue {theirs} above its own")
            }
            Some(Grade::Share) => {
                format!("queue {mine} is below its share, queue {theirs} above its own")
            }
            Some(Grade::Priority) => format!("it has the lower priority in queue {theirs}"),
            Some(Grade::Borrowed) => {
                format!("it has a lower priority and queue {theirs} is above its guarantee")
            }
            Some(Grade::Straddles) => format!(
                "queue {mine} is below its guarantee and nothing smaller of queue {theirs} serves"
            ),
        };
        let secs = pod.map_or(0, |p| self.world.loss_secs(p));
        let milli = to_milli_gpu(self.world.parts_anywhere(id));
        let loss = secs.saturating_mul(milli) / 1_000;
        format!("{right}; about {loss} GPU-seconds of work are lost")
    }

    /// These places are kept for a job.
    pub(super) fn keep(&mut self, job: JobId, places: &[(PodId, Spot)]) {
        let owner = self.world.job(job).map(|j| j.owner.clone());
        let mut kept = Vec::with_capacity(places.len());
        for (id, spot) in places {
            let (Some(pod), Some(node)) = (self.pod(*id), self.node(*spot)) else {
                continue;
            };
            kept.push(HeldPlace {
                pod: pod.meta.uid.clone(),
                node,
                device: spot.held.shared_device(),
            });
        }
        if let Some(owner) = owner {
            let places = kept;
            self.plan.holds.push(Hold { owner, places });
        }
    }

    pub(super) fn denied(&self, denied: &Denied) -> Reason {
        let name = |queue| self.world.tree.node(queue).name.clone();
        match *denied {
            Denied::Limit {
                queue,
                used,
                limit,
                asks,
            } => Reason::OverLimit {
                queue: name(queue),
                used_milli_gpu: to_milli_gpu(used),
                limit_milli_gpu: to_milli_gpu(limit),
                asks_milli_gpu: to_milli_gpu(asks),
            },
            Denied::Guarantee {
                queue,
                used,
                guaranteed,
                asks,
            } => Reason::OverGuarantee {
                queue: name(queue),
                used_milli_gpu: to_milli_gpu(used),
                guaranteed_milli_gpu: to_milli_gpu(guaranteed),
                asks_milli_gpu: to_milli_gpu(asks),
            },
        }
    }

    /// A place is held for the pods of a job and becomes free.
    pub(super) fn held(&self, pods: &[PodId]) -> Reason {
        let spots = pods.iter().filter_map(|p| self.world.pod(*p)?.spot);
        let nodes: BTreeSet<Str> = spots.filter_map(|s| self.node(s)).collect();
        Reason::PlaceHeld {
            nodes: nodes.into_iter().collect(),
        }
    }

    pub(super) fn wait(&mut self, pod: &Pod, reason: &Reason) {
        if let Some(last) = self.state.decision(&pod.meta.uid)
            && let DecisionKind::Waiting(before) = &last.kind
            && explain::same_but_counts(before, reason)
            && !is_older(last, self.now, self.state.config.reason_refresh_secs)
        {
            return;
        }
        self.tell(pod, DecisionKind::Waiting(reason.clone()));
    }

    fn tell(&mut self, pod: &Pod, kind: DecisionKind) {
        if self
            .state
            .decision(&pod.meta.uid)
            .is_some_and(|last| last.kind == kind)
        {
            return;
        }
        self.plan.decisions.push(Arc::new(Decision {
            pod: pod.meta.uid.clone(),
            namespace: pod.meta.namespace.clone(),
            name: pod.meta.name.clone(),
            kind,
            at: self.now,
        }));
    }
}
