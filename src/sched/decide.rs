//! One round of decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::class::ClassId;
use super::explain;
use super::gang::GangKey;
use super::gangs::Need;
use super::scratch::{Scratch, Spot};
use super::state::{State, Tracked};
use super::view::Siblings;
use crate::model::{Decision, DecisionKind, Pod, Reason, Uid};
use crate::plan::{Action, Plan};

/// Decides about the waiting pods, in their order, until all are seen or the round's bound is
/// reached ([`Plan::more`] says so).
///
/// Pure: the same state and time give the same plan. Nothing counts as placed until
/// [`State::assume`] is told. Decisions are in the plan only when they differ from the last that
/// the state has folded. While [`State::blocked`] has a reason the plan is empty.
///
/// Pods that wait after a refusal are tried again by a later call: call this from time to time
/// even when no delta comes.
pub fn decide(state: &State, now: Timestamp) -> Plan {
    if state.blocked().is_some() {
        return Plan::default();
    }
    let mut round = Round {
        state,
        now,
        scratch: Scratch::new(state),
        seen_gangs: BTreeSet::new(),
        siblings: BTreeMap::new(),
        placed: 0,
        plan: Plan::default(),
    };
    for uid in order(state) {
        if round.placed >= state.config.max_placements {
            round.plan.more = true;
            break;
        }
        if let Some(tracked) = state.tracked(uid) {
            round.consider(tracked);
        }
    }
    round.scratch.finish();
    round.plan
}

/// Whose turn it is: the highest priority first, then the oldest.
fn order(state: &State) -> impl Iterator<Item = &Uid> {
    state.queue.values()
}

/// One round under way: it asks the order, places, and writes the plan.
pub(super) struct Round<'a> {
    pub(super) state: &'a State,
    pub(super) now: Timestamp,
    pub(super) scratch: Scratch<'a>,
    seen_gangs: BTreeSet<&'a GangKey>,
    /// Siblings of pods that are kept apart, with those placed in this round.
    siblings: BTreeMap<Uid, Siblings>,
    placed: u32,
    pub(super) plan: Plan,
}

impl<'a> Round<'a> {
    fn consider(&mut self, tracked: &'a Tracked) {
        let Some(key) = &tracked.gang else {
            self.alone(tracked);
            return;
        };
        if self.seen_gangs.contains(key) {
            return;
        }
        match self.need(key, &tracked.pod) {
            Ok(Need::Alone) => self.alone(tracked),
            Ok(Need::NotYetKnown) => {}
            Ok(Need::Pods(need)) => {
                self.seen_gangs.insert(key);
                self.gang(key, need);
            }
            Err(reason) => {
                let reason = tracked.problem.as_ref().unwrap_or(&reason);
                self.wait(&tracked.pod, reason);
            }
        }
    }

    pub(super) fn alone(&mut self, tracked: &Tracked) {
        let (pod, Some((_, class))) = (&tracked.pod, &tracked.waiting) else {
            return;
        };
        if let Some(reason) = &tracked.problem {
            self.wait(pod, reason);
            return;
        }
        if self.was_refused(pod) {
            return;
        }
        let spot = match pod.meta.controller() {
            Some(owner) if self.state.is_spread(*class) => self.apart(&owner.uid, *class),
            _ => self.scratch.place(*class),
        };
        match spot {
            Some(spot) => {
                let action = self.place(pod, spot);
                self.plan.groups.push(vec![action]);
            }
            None => {
                let reason = self.scratch.reason(*class);
                self.wait(pod, &reason);
            }
        }
    }

    /// Apart from the pods of the same owner, those placed in this round among them.
    fn apart(&mut self, owner: &Uid, class: ClassId) -> Option<Spot> {
        let known = self.state.siblings.get(owner);
        let siblings = self
            .siblings
            .entry(owner.clone())
            .or_insert_with(|| known.cloned().unwrap_or_default());
        let (spot, row) = if siblings.is_empty() {
            let spot = self.scratch.place(class)?;
            let row = self.state.rows.id(&spot.node)?;
            (spot, row)
        } else {
            self.scratch.place_apart(class, siblings)?
        };
        *siblings.entry(row).or_default() += 1;
        Some(spot)
    }

    pub(super) fn place(&mut self, pod: &Pod, spot: Spot) -> Action {
        self.placed += 1;
        let (node, device) = (spot.node.clone(), spot.device);
        self.tell(
            pod,
            DecisionKind::Placed {
                node: spot.node,
                why: spot.why,
            },
        );
        Action::Bind {
            pod: pod.meta.uid.clone(),
            namespace: pod.meta.namespace.clone(),
            name: pod.meta.name.clone(),
            node,
            device,
        }
    }

    pub(super) fn wait(&mut self, pod: &Pod, reason: &Reason) {
        if let Some(last) = self.state.decision(&pod.meta.uid)
            && let DecisionKind::Waiting(before) = &last.kind
            && explain::same_but_counts(before, reason)
            && !self.is_older(last, self.state.config.reason_refresh_secs)
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

    pub(super) fn was_refused(&self, pod: &Pod) -> bool {
        self.state.decision(&pod.meta.uid).is_some_and(|last| {
            matches!(last.kind, DecisionKind::Waiting(Reason::Refused { .. }))
                && !self.is_older(last, self.state.config.refused_backoff_secs)
        })
    }

    fn is_older(&self, decision: &Decision, secs: i64) -> bool {
        let age = self.now.duration_since(decision.at);
        // A decision from the future is one of another clock: it does not hold anything back.
        age >= SignedDuration::from_secs(secs) || age.is_negative()
    }
}
