//! The jobs of a state: pods that belong together, how many of them have to start at once, and
//! what keeps pods from starting whatever the nodes look like.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::explain;
use super::gang::{self, GangKey};
use super::state::{State, Tracked};
use super::topology::{TOPOLOGY, Wish};
use super::turn::NewJob;
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

struct Gather<'a> {
    state: &'a State,
    now: Timestamp,
    jobs: Vec<NewJob<'a>>,
}

/// Gathers the jobs of these pods without a gang, and of these gangs.
pub(super) fn gather<'a>(
    state: &'a State,
    now: Timestamp,
    alone: &BTreeSet<&'a Uid>,
    gangs: &BTreeSet<&'a GangKey>,
) -> Vec<NewJob<'a>> {
    let mut gather = Gather {
        state,
        now,
        jobs: Vec::new(),
    };
    for uid in alone {
        if let Some(tracked) = state.tracked(uid) {
            if tracked.waiting.is_some() {
                gather.alone(tracked);
            } else if gather.runs(tracked) {
                gather.run_alone(tracked);
            }
        }
    }
    for key in gangs {
        gather.members(key);
    }
    gather.jobs
}

impl<'a> Gather<'a> {
    fn members(&mut self, key: &'a GangKey) {
        let state = self.state;
        let mut waiting: Vec<&Tracked> =
            state.members(key).filter(|t| t.waiting.is_some()).collect();
        waiting.sort_by(|a, b| {
            let order = |t: &'a Tracked| t.waiting.as_ref().map(|(key, _)| key);
            order(a).cmp(&order(b))
        });
        for (at, tracked) in waiting.iter().enumerate() {
            match self.need(key, &tracked.pod) {
                Ok(Need::Alone) => self.alone(tracked),
                Ok(Need::NotYetKnown) => self.say_nothing(tracked),
                Ok(Need::Pods(need)) => {
                    self.gang(
                        key,
                        need,
                        waiting.get(at..).unwrap_or_default(),
                        &BTreeSet::new(),
                    );
                    return;
                }
                Err(reason) => {
                    let reason = tracked.problem.as_ref().unwrap_or(&reason).clone();
                    self.jobs.push(NewJob {
                        told: vec![(tracked, reason)],
                        recheck: true,
                        ..NewJob::default()
                    });
                }
            }
        }
        let mut done: BTreeSet<&Uid> = BTreeSet::new();
        for tracked in state.members(key) {
            if tracked.waiting.is_some() || !self.runs(tracked) {
                continue;
            }
            match self.need(key, &tracked.pod) {
                Ok(Need::Alone) => {
                    done.insert(&tracked.pod.meta.uid);
                    self.run_alone(tracked);
                }
                // How many it needs is not known: it stays whole.
                Ok(Need::NotYetKnown) | Err(_) => {
                    self.gang(key, u32::MAX, &[], &done);
                    if let Some(job) = self.jobs.last_mut() {
                        job.recheck = true;
                    }
                    return;
                }
                Ok(Need::Pods(need)) => {
                    self.gang(key, need, &[], &done);
                    return;
                }
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
                        return self.without_job(pod);
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

    fn without_job(&self, pod: &Pod) -> Result<Need, Reason> {
        let grace = SignedDuration::from_secs(JOB_GRACE_SECS);
        let created = pod.meta.created.unwrap_or(Timestamp::MIN);
        if self.now.duration_since(created) < grace {
            return Ok(Need::NotYetKnown);
        }
        let why = self.state.source_trouble(Kind::Job);
        let name = pod.meta.controller().map_or("", |o| &*o.name);
        Err(Reason::Unsupported {
            what: format!(
                "Job {name} is not known, so neither is how many of its pods must start together{}",
                why.map_or_else(String::new, |w| format!(": {w}"))
            )
            .into(),
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

    /// Ours, and on a node to stay.
    fn runs(&self, tracked: &Tracked) -> bool {
        let ours = tracked.pod.scheduler == self.state.config.scheduler_name;
        ours && self.has_place(tracked)
    }

    fn has_place(&self, tracked: &Tracked) -> bool {
        self.state.has_place(&tracked.pod) && !self.state.holds.is_evicting(&tracked.pod.meta.uid)
    }

    fn run_alone(&mut self, tracked: &'a Tracked) {
        self.jobs.push(NewJob {
            min: 1,
            placed: vec![tracked],
            ..NewJob::default()
        });
    }

    fn say_nothing(&mut self, tracked: &'a Tracked) {
        self.jobs.push(NewJob {
            silent: vec![tracked],
            recheck: true,
            ..NewJob::default()
        });
    }

    fn alone(&mut self, tracked: &'a Tracked) {
        if let Some(reason) = &tracked.problem {
            self.jobs.push(NewJob {
                told: vec![(tracked, reason.clone())],
                ..NewJob::default()
            });
        } else if self.was_refused(&tracked.pod) {
            self.say_nothing(tracked);
        } else {
            self.jobs.push(NewJob {
                min: 1,
                waiting: vec![tracked],
                ..NewJob::default()
            });
        }
    }

    /// The members as one job, without those that are jobs by themselves.
    fn gang(
        &mut self,
        key: &'a GangKey,
        need: u32,
        waiting: &[&'a Tracked],
        done: &BTreeSet<&Uid>,
    ) {
        let state = self.state;
        let placed = state.members(key).filter(|t| self.has_place(t));
        let mut job = NewJob {
            gang: Some(key),
            min: need,
            placed: placed.filter(|t| !done.contains(&t.pod.meta.uid)).collect(),
            ..NewJob::default()
        };
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
                    job.told.push((tracked, reason.clone()));
                }
                None => able.push(*tracked),
            }
        }
        let with_place = u32::try_from(job.placed.len()).unwrap_or(u32::MAX);
        let (refused, mut able): (Vec<&Tracked>, Vec<&Tracked>) =
            able.into_iter().partition(|t| self.was_refused(&t.pod));
        job.recheck = !refused.is_empty();
        if with_place < need && !refused.is_empty() {
            job.silent = refused;
            job.silent.append(&mut able);
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
                // How many nodes there are is told as well.
                job.recheck |= held.is_some();
                let all = std::mem::take(&mut able);
                job.told
                    .extend(all.into_iter().map(|t| (t, reason.clone())));
            }
            job.silent = refused;
        }
        match self.wish(key) {
            Ok(wish) => job.wish = wish,
            Err(reason) => {
                let all = std::mem::take(&mut able);
                job.told
                    .extend(all.into_iter().map(|t| (t, reason.clone())));
            }
        }
        job.waiting = able;
        self.jobs.push(job);
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

    fn was_refused(&self, pod: &Pod) -> bool {
        self.state.decision(&pod.meta.uid).is_some_and(|last| {
            matches!(last.kind, DecisionKind::Waiting(Reason::Refused { .. }))
                && !is_older(last, self.now, self.state.config.refused_backoff_secs)
        })
    }
}

/// The decision was made longer ago than that.
pub(super) fn is_older(decision: &Decision, now: Timestamp, secs: i64) -> bool {
    let age = now.duration_since(decision.at);
    // A decision from the future is one of another clock: it does not hold anything back.
    age >= SignedDuration::from_secs(secs) || age.is_negative()
}
