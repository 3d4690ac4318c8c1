//! The jobs of a state: pods that belong together, how many of them have to start at once, and
//! what keeps pods from starting whatever the nodes look like.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::explain;
use super::gang::{self, GangKey};
use super::queue::QueueId;
use super::state::{State, Tracked};
use super::topology::{TOPOLOGY, Wish};
use super::turn::JobId;
use super::turn::World;
use super::turn::build::{Builder, NewJob};
use crate::model::{Decision, DecisionKind, Kind, Phase, Pod, Reason, Uid};

/// How long after a pod's creation its Job may be missing before that is worth a word.
const JOB_GRACE_SECS: i64 = 5;

/// How many pods of a gang have to have a place at once.
enum Need {
    /// Each pod is for itself.
    Alone,
    /// So many.
    Pods(u32),
    /// Its Job is not known yet but may come any moment: the watches of two kinds are not in step.
    NotYetKnown,
}

/// What was found.
pub(super) struct Gathered<'a> {
    pub(super) world: World<'a>,
    /// Jobs that may start, in submit order.
    pub(super) waiting: Vec<JobId>,
    /// Pods that wait whatever the nodes look like.
    pub(super) told: Vec<(Arc<Pod>, Reason)>,
    /// Some pod is on its way out.
    pub(super) leaving: bool,
}

struct Gather<'a> {
    state: &'a State,
    now: Timestamp,
    jobs: Vec<(Order<'a>, NewJob<'a>)>,
    told: Vec<(Arc<Pod>, Reason)>,
    seen: BTreeSet<&'a GangKey>,
    taken: BTreeSet<&'a Uid>,
}

/// Submit order.
type Order<'a> = (Timestamp, &'a str, &'a str, &'a str);

fn order_of(pod: &Pod) -> Order<'_> {
    (
        pod.meta.created.unwrap_or(Timestamp::MAX),
        &pod.meta.namespace,
        &pod.meta.name,
        &pod.meta.uid.0,
    )
}

/// Gathers the jobs of a state.
pub(super) fn gather(state: &State, now: Timestamp) -> Gathered<'_> {
    let mut gather = Gather {
        state,
        now,
        jobs: Vec::new(),
        told: Vec::new(),
        seen: BTreeSet::new(),
        taken: BTreeSet::new(),
    };
    for uid in state.queue.values() {
        if let Some(tracked) = state.tracked(uid) {
            gather.waiting(tracked);
        }
    }
    for tracked in state.pods.values() {
        gather.running(tracked);
    }
    gather.finish()
}

impl<'a> Gather<'a> {
    fn waiting(&mut self, tracked: &'a Tracked) {
        let Some(key) = &tracked.gang else {
            self.alone(tracked);
            return;
        };
        if self.seen.contains(key) {
            return;
        }
        match self.need(key, &tracked.pod) {
            Ok(Need::Alone) => self.alone(tracked),
            Ok(Need::NotYetKnown) => {}
            Ok(Need::Pods(need)) => {
                self.seen.insert(key);
                self.gang(key, need);
            }
            Err(reason) => {
                let reason = tracked.problem.as_ref().unwrap_or(&reason);
                self.told.push((tracked.pod.clone(), reason.clone()));
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
                // Pods that name a group belong together even where one is enough to start.
                return Ok(Need::Pods(need));
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

    fn alone(&mut self, tracked: &'a Tracked) {
        let pod = &tracked.pod;
        if let Some(reason) = &tracked.problem {
            self.told.push((pod.clone(), reason.clone()));
            return;
        }
        if self.was_refused(pod) {
            return;
        }
        self.push(None, 1, Wish::default(), vec![tracked], Vec::new());
    }

    fn has_place(&self, tracked: &Tracked) -> bool {
        self.state.has_place(&tracked.pod) && !self.state.holds.is_evicting(&tracked.pod.meta.uid)
    }

    fn gang(&mut self, key: &'a GangKey, need: u32) {
        let state = self.state;
        let placed: Vec<&Tracked> = state.members(key).filter(|t| self.has_place(t)).collect();
        let mut waiting: Vec<&Tracked> =
            state.members(key).filter(|t| t.waiting.is_some()).collect();
        waiting.sort_by(|a, b| {
            let order = |t: &'a Tracked| t.waiting.as_ref().map(|(key, _)| key);
            order(a).cmp(&order(b))
        });
        let mut able = Vec::with_capacity(waiting.len());
        let mut held = None;
        for tracked in waiting {
            match &tracked.problem {
                // A gated pod does not take part yet; another problem stops the gang only when
                // the others are too few without it.
                Some(reason) => {
                    if !matches!(reason, Reason::Gated { .. }) {
                        held.get_or_insert(reason);
                    }
                    self.told.push((tracked.pod.clone(), reason.clone()));
                }
                None => able.push(tracked),
            }
        }
        let with_place = u32::try_from(placed.len()).unwrap_or(u32::MAX);
        if with_place >= need {
            able.retain(|t| !self.was_refused(&t.pod));
        } else if able.iter().any(|t| self.was_refused(&t.pod)) {
            able.clear();
        } else {
            let more = u32::try_from(able.len()).unwrap_or(u32::MAX);
            let have = with_place.saturating_add(more);
            if have < need {
                let reason = match held {
                    Some(held) => Reason::GangDoesNotFit {
                        fits: have,
                        need,
                        filters: explain::as_filters(state, held),
                    },
                    None => Reason::GangIncomplete { have, need },
                };
                for t in std::mem::take(&mut able) {
                    self.told.push((t.pod.clone(), reason.clone()));
                }
            }
        }
        let wish = match self.wish(key) {
            Ok(wish) => wish,
            Err(reason) => {
                for t in std::mem::take(&mut able) {
                    self.told.push((t.pod.clone(), reason.clone()));
                }
                Wish::default()
            }
        };
        self.push(Some(key), need, wish, able, placed);
    }

    /// How close together the gang has to be, by its pods or their Job.
    fn wish(&self, key: &GangKey) -> Result<Wish, Reason> {
        let own = self.state.rows.levels();
        let mut found = Wish::default();
        for member in self.state.members(key) {
            let wish = Wish::of_meta(&member.pod.meta, TOPOLOGY, own)?;
            if wish == found || wish == Wish::default() {
                continue;
            }
            if found != Wish::default() {
                return Err(Reason::Unsupported {
                    what: format!("pods of one gang state different annotations {TOPOLOGY}").into(),
                });
            }
            found = wish;
        }
        if found == Wish::default()
            && let GangKey::Job(uid) = key
            && let Some(job) = self.state.job(uid)
        {
            return Wish::of_meta(&job.meta, TOPOLOGY, own);
        }
        Ok(found)
    }

    fn running(&mut self, tracked: &'a Tracked) {
        let pod = &tracked.pod;
        let ours = pod.scheduler == self.state.config.scheduler_name;
        if !ours || !self.has_place(tracked) || self.taken.contains(&pod.meta.uid) {
            return;
        }
        let Some(key) = &tracked.gang else {
            self.push(None, 1, Wish::default(), Vec::new(), vec![tracked]);
            return;
        };
        match self.need(key, pod) {
            Ok(Need::Alone) => self.push(None, 1, Wish::default(), Vec::new(), vec![tracked]),
            // How many it needs is not known: it stays whole.
            Ok(Need::NotYetKnown) | Err(_) if !self.seen.contains(key) => {
                self.seen.insert(key);
                self.gang(key, u32::MAX);
            }
            Ok(Need::Pods(need)) if !self.seen.contains(key) => {
                self.seen.insert(key);
                self.gang(key, need);
            }
            _ => {}
        }
    }

    fn push(
        &mut self,
        gang: Option<&'a GangKey>,
        min: u32,
        wish: Wish,
        waiting: Vec<&'a Tracked>,
        placed: Vec<&'a Tracked>,
    ) {
        let all = || waiting.iter().chain(&placed).map(|t| &t.pod);
        let Some(first) = all().min_by_key(|p| order_of(p)) else {
            return;
        };
        let priority = all()
            .map(|p| self.state.priority_of(p))
            .max()
            .unwrap_or_default();
        self.taken.extend(all().map(|p| &p.meta.uid));
        self.jobs.push((
            order_of(first),
            NewJob {
                gang: gang.cloned(),
                queue: QueueId::default(),
                priority,
                min,
                wish,
                waiting,
                placed,
            },
        ));
    }

    fn was_refused(&self, pod: &Pod) -> bool {
        self.state.decision(&pod.meta.uid).is_some_and(|last| {
            matches!(last.kind, DecisionKind::Waiting(Reason::Refused { .. }))
                && !is_older(last, self.now, self.state.config.refused_backoff_secs)
        })
    }

    fn finish(mut self) -> Gathered<'a> {
        self.jobs.sort_by_key(|(turn, _)| *turn);
        let mut builder = Builder::new(self.state, self.now);
        let mut leaving = false;
        for tracked in self.state.pods.values() {
            let pod = &tracked.pod;
            let going = pod.meta.deleting.is_some() || self.state.holds.is_evicting(&pod.meta.uid);
            if going && tracked.place.is_some() {
                leaving = true;
                builder.leaves(tracked);
            }
        }
        let mut waiting = Vec::new();
        for (_, mut job) in self.jobs {
            let namespace = job
                .waiting
                .first()
                .or(job.placed.first())
                .map_or_else(|| "".into(), |t| t.pod.meta.namespace.clone());
            match builder.world.tree.of_namespace(&namespace) {
                Ok(queue) => job.queue = queue,
                Err(why) => {
                    for t in std::mem::take(&mut job.waiting) {
                        let what = why.clone();
                        self.told
                            .push((t.pod.clone(), Reason::Unsupported { what }));
                    }
                }
            }
            let waits = !job.waiting.is_empty();
            let id = builder.add(job);
            if waits {
                waiting.push(id);
            }
        }
        let held = builder.hold_places(&waiting);
        Gathered {
            leaving: leaving || held > 0,
            world: builder.world,
            waiting,
            told: self.told,
        }
    }
}

/// The decision was made longer ago than that.
pub(super) fn is_older(decision: &Decision, now: Timestamp, secs: i64) -> bool {
    let age = now.duration_since(decision.at);
    // A decision from the future is one of another clock: it does not hold anything back.
    age >= SignedDuration::from_secs(secs) || age.is_negative()
}
