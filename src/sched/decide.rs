//! One round of decisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::class::ClassId;
use super::explain;
use super::gang::{self, GangKey};
use super::scratch::{Scratch, Spot};
use super::state::{State, Tracked};
use crate::model::{Decision, DecisionKind, FilterCount, Kind, Phase, Pod, Reason};
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
        placed: 0,
        plan: Plan::default(),
    };
    for uid in state.queue.values() {
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

/// How many pods of a gang have to have a place at once.
enum Need {
    /// Each pod is for itself.
    Alone,
    /// So many.
    Pods(u32),
    /// Its Job is not known yet but may come any moment: the watches of two kinds are not in step.
    NotYetKnown,
}

/// How long after a pod's creation its Job may be missing before that is worth a word.
const JOB_GRACE_SECS: i64 = 5;

struct Round<'a> {
    state: &'a State,
    now: Timestamp,
    scratch: Scratch<'a>,
    seen_gangs: BTreeSet<&'a GangKey>,
    placed: u32,
    plan: Plan,
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

    fn need(&self, key: &GangKey, pod: &Pod) -> Result<Need, Reason> {
        let stated = gang::gang_min(pod.meta.annotation(gang::GANG_MIN))?;
        let need = match key {
            GangKey::Group { .. } => {
                let mut need = 1;
                for member in self.state.members(key) {
                    let stated = gang::gang_min(member.pod.meta.annotation(gang::GANG_MIN))?;
                    let group = member.pod.group.as_ref().and_then(|g| g.min_members);
                    need = need.max(stated.or(group).unwrap_or(1));
                }
                need
            }
            GangKey::Job(uid) => {
                if let Some(n) = stated {
                    n
                } else {
                    let Some(job) = self.state.job(uid) else {
                        let grace = SignedDuration::from_secs(JOB_GRACE_SECS);
                        let created = pod.meta.created.unwrap_or(Timestamp::MIN);
                        if self.now.duration_since(created) < grace {
                            return Ok(Need::NotYetKnown);
                        }
                        let why = self.state.source_trouble(Kind::Job);
                        let name = pod.meta.controller().map_or("", |o| &*o.name);
                        return Err(Reason::Unsupported {
                            what: format!(
                                "Job {name} is not known, so neither is how many of its pods \
                                 must start together{}",
                                why.map_or_else(String::new, |w| format!(": {w}"))
                            )
                            .into(),
                        });
                    };
                    match gang::gang_min(job.meta.annotation(gang::GANG_MIN))? {
                        Some(n) => n,
                        // What has succeeded is counted only where it matters.
                        None if job.parallelism <= 1 => 1,
                        None => gang::job_size(job, self.succeeded(key)),
                    }
                }
            }
        };
        Ok(if need > 1 {
            Need::Pods(need)
        } else {
            Need::Alone
        })
    }

    fn succeeded(&self, key: &GangKey) -> u32 {
        let done = self
            .state
            .members(key)
            .filter(|t| t.pod.phase == Phase::Succeeded)
            .count();
        u32::try_from(done).unwrap_or(u32::MAX)
    }

    fn alone(&mut self, tracked: &Tracked) {
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
        match self.scratch.place(*class) {
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

    /// All or nothing: the gang's pods with a place and those placed now reach `need`, or none is
    /// placed.
    fn gang(&mut self, key: &GangKey, need: u32) {
        let state = self.state;
        let with_place = state
            .members(key)
            .filter(|t| state.has_place(&t.pod))
            .count();
        let with_place = u32::try_from(with_place).unwrap_or(u32::MAX);
        let mut waiting: Vec<(&Tracked, ClassId)> = state
            .members(key)
            .filter_map(|t| t.waiting.as_ref().map(|(_, class)| (t, *class)))
            .collect();
        waiting.sort_by(|(a, _), (b, _)| {
            let order = |t: &'a Tracked| t.waiting.as_ref().map(|(key, _)| key);
            order(a).cmp(&order(b))
        });
        let mut able = Vec::with_capacity(waiting.len());
        let mut held = None;
        for (tracked, class) in waiting {
            match &tracked.problem {
                // A gated pod does not take part yet; another problem stops the gang only when
                // the others are too few without it.
                Some(reason) => {
                    if !matches!(reason, Reason::Gated { .. }) {
                        held.get_or_insert(reason);
                    }
                    self.wait(&tracked.pod, reason);
                }
                None => able.push((tracked, class)),
            }
        }
        if with_place >= need {
            for (tracked, _) in able {
                self.alone(tracked);
            }
            return;
        }
        if able.iter().any(|(t, _)| self.was_refused(&t.pod)) {
            return;
        }
        let have = with_place.saturating_add(u32::try_from(able.len()).unwrap_or(u32::MAX));
        if have < need {
            let reason = match held {
                Some(held) => Reason::GangDoesNotFit {
                    fits: have,
                    need,
                    filters: explain::as_filters(state, held),
                },
                None => Reason::GangIncomplete { have, need },
            };
            for (tracked, _) in able {
                self.wait(&tracked.pod, &reason);
            }
            return;
        }
        self.gang_of(&able, with_place, need);
    }

    fn gang_of(&mut self, able: &[(&Tracked, ClassId)], with_place: u32, need: u32) {
        let missing = usize::try_from(need - with_place).unwrap_or(usize::MAX);
        let mark = self.scratch.mark();
        let mut best: (usize, Box<[FilterCount]>) = (0, Box::default());
        for order in self.orders(able) {
            let (spots, stopped) = self.try_all(&order);
            let placed = spots.iter().flatten().count();
            if placed >= missing {
                self.settle_gang(&order, spots, missing);
                return;
            }
            let filters = stopped.map_or_else(Box::default, |class| self.scratch.filters(class));
            // The reason is asked for while the others hold their places.
            if best.1.is_empty() || placed > best.0 {
                best = (placed, filters);
            }
            self.scratch.undo(mark);
        }
        let reason = Reason::GangDoesNotFit {
            fits: with_place.saturating_add(u32::try_from(best.0).unwrap_or(u32::MAX)),
            need,
            filters: best.1,
        };
        for (tracked, _) in able {
            self.wait(&tracked.pod, &reason);
        }
    }

    /// The members in queue order and, when they differ, the largest first.
    fn orders<'t>(&self, able: &[(&'t Tracked, ClassId)]) -> Vec<Vec<(&'t Tracked, ClassId)>> {
        let mut orders = vec![able.to_vec()];
        if able.windows(2).any(|w| matches!(w, [a, b] if a.1 != b.1)) {
            let mut largest_first = able.to_vec();
            largest_first.sort_by_key(|(_, class)| std::cmp::Reverse(self.scratch.size(*class)));
            orders.push(largest_first);
        }
        orders
    }

    /// Tries each member; tells the spots and the class of the first that found none.
    fn try_all(&mut self, order: &[(&Tracked, ClassId)]) -> (Vec<Option<Spot>>, Option<ClassId>) {
        let mut stopped = None;
        let spots = order
            .iter()
            .map(|(_, class)| {
                let spot = self.scratch.place(*class);
                if spot.is_none() {
                    stopped.get_or_insert(*class);
                }
                spot
            })
            .collect();
        (spots, stopped)
    }

    /// The pods that the gang needs are one group; those beyond are for themselves.
    fn settle_gang(
        &mut self,
        order: &[(&Tracked, ClassId)],
        spots: Vec<Option<Spot>>,
        missing: usize,
    ) {
        let mut group = Vec::with_capacity(missing);
        let mut beyond = Vec::new();
        for ((tracked, class), spot) in order.iter().zip(spots) {
            match spot {
                Some(spot) => {
                    let action = self.place(&tracked.pod, spot);
                    if group.len() < missing {
                        group.push(action);
                    } else {
                        beyond.push(vec![action]);
                    }
                }
                None => {
                    let reason = self.scratch.reason(*class);
                    self.wait(&tracked.pod, &reason);
                }
            }
        }
        self.plan.groups.push(group);
        self.plan.groups.append(&mut beyond);
    }

    fn place(&mut self, pod: &Pod, spot: Spot) -> Action {
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

    fn wait(&mut self, pod: &Pod, reason: &Reason) {
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

    fn was_refused(&self, pod: &Pod) -> bool {
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
