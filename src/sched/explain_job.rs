//! Why a job waits and what would start it: its position, when its place becomes free, and single
//! changes that are tried on a copy of the picture.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::backfill::RUNTIME_ESTIMATE;
use super::budgets::{BudgetId, Guard};
use super::fabric::Level;
use super::queue::{Parts, QueueId, to_milli_gpu};
use super::reclaim::{Claimant, Denied};
use super::state::State;
use super::turn::{JobId, Lines, PodId, Search, Spared, Unit, World};
use crate::model::{DecisionKind, Reason, Str, Uid};

/// A kind of change that would start a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// A higher limit of a queue.
    Limit,
    /// A higher guarantee of its queue.
    Guarantee,
    /// A higher priority.
    Priority,
    /// A wider level of the fabric.
    Topology,
    /// It may be preempted.
    Preemptible,
    /// More nodes like one that exists.
    Nodes,
    /// Time.
    Wait,
    /// Time until work that it may displace is not left alone any more.
    MinRuntime,
    /// A disruption budget that lets more of its pods leave.
    Budget,
}

/// A single change that would start a job, proven on a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NearMiss {
    /// What changes.
    pub change: Change,
    /// In words, with numbers.
    pub text: Str,
}

/// Why a job waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Its queue.
    pub queue: Str,
    /// Its place among the jobs that wait, from 1, in the order in which they are served.
    pub position: usize,
    /// Jobs that wait.
    pub waiting: usize,
    /// What it was told last.
    pub reason: Option<Reason>,
    /// When its place becomes free by what others say of their run times; `None` is not known.
    pub predicted_start: Option<Timestamp>,
    /// What that goes by, or why it is not known.
    pub start_by: Str,
    /// What would start it.
    pub near_misses: Vec<NearMiss>,
}

/// Nodes of one kind that are counted as the answer, at most.
const MOST_NODES: u32 = 64;

/// Explains why the job of a pod waits; `None` when it does not, or waits for something that is not
/// the scheduler's to give.
pub fn explain(state: &State, now: Timestamp, pod: &Uid) -> Option<Explanation> {
    let mut world = World::open(state, now);
    let explanation = explain_in(&mut world, pod);
    world.close();
    explanation
}

fn explain_in(world: &mut World<'_>, pod: &Uid) -> Option<Explanation> {
    let (state, now) = (world.state, world.now);
    let id = world.waiting_job_of(pod)?;
    let shares = world.all_shares();
    let pods = world.job(id).map(|j| j.pods.clone())?;
    world.look_at(&pods);
    let position = position(world, &shares, id);
    let queue = world.job(id).map(|j| j.queue)?;
    let reason = state.decision(pod).and_then(|d| match &d.kind {
        DecisionKind::Waiting(reason) => Some(reason.clone()),
        DecisionKind::Placed { .. } | DecisionKind::Leaves { .. } => None,
    });
    let mut explanation = Explanation {
        queue: world.tree.node(queue).name.clone(),
        position,
        waiting: world.waiting.len(),
        reason,
        predicted_start: None,
        start_by: "it is not known how much its pods ask for".into(),
        near_misses: Vec::new(),
    };
    let Some(unit) = world.unit(id) else {
        return Some(explanation);
    };
    let pool = world.pool_of_job(id);
    let trial = Trial {
        world,
        unit,
        queue,
        pool,
        shares: shares.get(pool).cloned().unwrap_or_default(),
        now,
        found: Vec::new(),
        start_by: String::new(),
    };
    let (predicted, start_by, found) = trial.run();
    explanation.predicted_start = predicted;
    explanation.start_by = start_by.into();
    explanation.near_misses = found;
    Some(explanation)
}

/// The place of a job in the order of turns, if nothing else happened.
fn position(world: &World<'_>, shares: &[Vec<Parts>], id: JobId) -> usize {
    let mut lines = Lines::new(world, shares, world.waiting.iter().copied());
    let mut position = 0;
    while let Some(unit) = lines.next() {
        position += 1;
        if unit.job == id {
            break;
        }
        let queue = world.job(unit.job).map(|j| j.queue).unwrap_or_default();
        lines.drop_first(world, shares, queue);
    }
    position
}

struct Trial<'w, 'a> {
    world: &'w mut World<'a>,
    unit: Unit,
    queue: QueueId,
    pool: usize,
    shares: Vec<Parts>,
    now: Timestamp,
    found: Vec<NearMiss>,
    start_by: String,
}

impl Trial<'_, '_> {
    fn run(mut self) -> (Option<Timestamp>, String, Vec<NearMiss>) {
        let denied = self.world.admits(&self.unit, self.pool).err();
        let fits = self.fits();
        let mut predicted = None;
        if let Some(denied) = denied {
            self.start_by = "its queue, not room, is in the way".to_owned();
            if fits || self.victims(None) > 0 {
                self.tell_denied(&denied);
            }
        } else if !fits {
            self.spared();
            self.priority();
            self.guarantee();
            self.topology();
            self.nodes();
            predicted = self.wait();
        } else {
            self.start_by = "there is room for it now; those before it in line go first".to_owned();
        }
        (predicted, self.start_by, self.found)
    }

    fn tell(&mut self, change: Change, text: String) {
        let text = text.into();
        self.found.push(NearMiss { change, text });
    }

    fn search(&self) -> Search<'_> {
        Search {
            job: self.unit.job,
            pods: &self.unit.pods,
            need: self.unit.need,
            pool: self.pool,
        }
    }

    /// It fits once those who leave are gone.
    fn fits(&mut self) -> bool {
        let unit = self.unit.clone();
        let search = Search {
            job: unit.job,
            pods: &unit.pods,
            need: unit.need,
            pool: self.pool,
        };
        let mark = self.world.mark();
        let fits = self.world.place(&search);
        self.world.undo(mark);
        fits
    }

    /// Pods that would leave for it, with this priority instead of its own.
    fn victims(&mut self, priority: Option<i32>) -> usize {
        self.leave_for_it(priority, false).len()
    }

    fn leave_for_it(&mut self, priority: Option<i32>, straddling: bool) -> Vec<PodId> {
        let unit = self.unit.clone();
        let own = self.world.job(unit.job).map_or(0, |j| j.priority);
        let shares = self.shares.clone();
        let claimant = Claimant {
            unit: &unit,
            queue: self.queue,
            priority: priority.unwrap_or(own),
            pool: self.pool,
            shares: self.world.state.config.fair_reclaim.then_some(&shares[..]),
            straddling,
        };
        let search = Search {
            job: unit.job,
            pods: &unit.pods,
            need: unit.need,
            pool: self.pool,
        };
        let found = self.world.find_victims(&claimant, &search, &shares);
        let victims = found.map(|f| f.victims).unwrap_or_default();
        let pods = victims.iter().flat_map(|v| &v.pods);
        pods.map(|(pod, _)| *pod).collect()
    }

    /// Work that would leave for it but for its age or a disruption budget.
    fn spared(&mut self) {
        if !self.world.spares_some() {
            return;
        }
        let pods = self.leave_but_for(Spared {
            runtime: false,
            ..Spared::default()
        });
        if !pods.is_empty() {
            return self.tell_young(&pods);
        }
        let pods = self.leave_but_for(Spared {
            budgets: false,
            ..Spared::default()
        });
        if !pods.is_empty() {
            self.tell_budgets(&pods);
        }
    }

    fn leave_but_for(&mut self, spared: Spared) -> Vec<PodId> {
        let before = std::mem::replace(&mut self.world.spared, spared);
        self.world.piled.clear();
        let mut pods = self.leave_for_it(None, false);
        if pods.is_empty() {
            pods = self.leave_for_it(None, true);
        }
        self.world.spared = before;
        self.world.piled.clear();
        pods
    }

    /// These are left alone until they have run for as long as their queues say.
    fn tell_young(&mut self, pods: &[PodId]) {
        let young = pods.iter().filter_map(|id| {
            let pod = self.world.pod(*id)?;
            Some((self.world.protected_until(pod)?, pod.job))
        });
        let young: Vec<(Timestamp, JobId)> = young.collect();
        let Some((until, job)) = young.iter().max().copied() else {
            return;
        };
        let queue = self.world.job(job).map(|j| j.queue).unwrap_or_default();
        let name = self.world.tree.node(queue).name.clone();
        let secs = SignedDuration::from_secs;
        let within = secs(until.duration_since(self.now).as_secs().max(1));
        let whole = secs(self.world.min_runtime_secs(job));
        let text = format!(
            "{} of {} pod(s) that would leave for it are protected for another {within:#}: work of \
             queue {name} is left alone for {whole:#} after its start",
            young.len(),
            pods.len()
        );
        self.tell(Change::MinRuntime, text);
    }

    /// Budgets that let fewer of these leave than would have to.
    fn tell_budgets(&mut self, pods: &[PodId]) {
        let mut asked: BTreeMap<BudgetId, i64> = BTreeMap::new();
        let mut several = None;
        for pod in pods {
            match self.world.guard(*pod) {
                Guard::None => {}
                Guard::One(budget) => *asked.entry(budget).or_default() += 1,
                Guard::Several => several = several.or(Some(*pod)),
            }
        }
        let mut parts: Vec<String> = Vec::new();
        for (budget, pods) in asked {
            let allowed = self.world.allowance(budget).max(0);
            if allowed < pods {
                let name = self.world.state.budgets.name(budget);
                parts.push(format!(
                    "disruption budget {name} lets {allowed} of the {pods} pod(s) go that would \
                     have to leave for it"
                ));
            }
        }
        if let Some(pod) = several.and_then(|id| self.world.pod(id)) {
            let meta = &pod.pod.meta;
            parts.push(format!(
                "pod {}/{} is in more than one disruption budget, so that the server evicts it for \
                 nobody",
                meta.namespace, meta.name
            ));
        }
        if !parts.is_empty() {
            self.tell(Change::Budget, parts.join("; "));
        }
    }

    fn tell_denied(&mut self, denied: &Denied) {
        match *denied {
            Denied::Limit {
                queue,
                used,
                limit,
                asks,
            } => {
                let name = self.world.tree.node(queue).name.clone();
                let wanted = used.saturating_add(asks);
                self.tell(
                    Change::Limit,
                    format!(
                        "with a limit of {} GPUs for queue {name} (now {}) it would start",
                        gpus(wanted),
                        gpus(limit)
                    ),
                );
            }
            Denied::Guarantee {
                queue,
                used,
                guaranteed,
                asks,
            } => {
                let name = self.world.tree.node(queue).name.clone();
                let wanted = used.saturating_add(asks);
                self.tell(
                    Change::Guarantee,
                    format!(
                        "with a guarantee of {} GPUs for queue {name} (now {}) it would start",
                        gpus(wanted),
                        gpus(guaranteed)
                    ),
                );
                self.tell(
                    Change::Preemptible,
                    "if it could be preempted it would start above the guarantee".to_owned(),
                );
            }
        }
    }

    /// The lowest priority with which it would displace somebody of its queue.
    fn priority(&mut self) {
        let Some(job) = self.world.job(self.unit.job) else {
            return;
        };
        let own = job.priority;
        let mut others: Vec<i32> = self
            .world
            .jobs
            .iter()
            .filter(|j| j.queue == self.queue && j.placed > 0 && j.preemptible)
            .map(|j| j.priority)
            .filter(|p| *p >= own)
            .collect();
        others.sort_unstable();
        others.dedup();
        // More priority never gives less.
        let works: Vec<i32> = others.iter().map(|p| p.saturating_add(1)).collect();
        let mut found = None;
        let (mut low, mut high) = (0, works.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let Some(priority) = works.get(middle).copied() else {
                break;
            };
            match self.victims(Some(priority)) {
                0 => low = middle + 1,
                pods => {
                    found = Some((priority, pods));
                    high = middle;
                }
            }
        }
        if let Some((priority, pods)) = found {
            self.tell(
                Change::Priority,
                format!(
                    "with priority {priority} (now {own}) it would displace {pods} pod(s) of its \
                     queue"
                ),
            );
        }
    }

    /// The guarantee with which it would take back what others hold above theirs.
    fn guarantee(&mut self) {
        let used = self.world.used(self.pool, self.queue);
        let wanted = used.saturating_add(self.unit.parts);
        let before = self.world.tree.node(self.queue).due(self.pool).guaranteed;
        if wanted <= before {
            return;
        }
        let tree = self.world.tree.clone();
        std::sync::Arc::make_mut(&mut self.world.tree).guarantee(self.queue, self.pool, wanted);
        let pods = self.victims(None);
        self.world.tree = tree;
        if pods > 0 {
            let name = self.world.tree.node(self.queue).name.clone();
            self.tell(
                Change::Guarantee,
                format!(
                    "with a guarantee of {} GPUs for queue {name} (now {}) it would take back the \
                     place of {pods} pod(s)",
                    gpus(wanted),
                    gpus(before)
                ),
            );
        }
    }

    /// The closest wider level at which its pods would find a place.
    fn topology(&mut self) {
        let Some(required) = self.world.job(self.unit.job).and_then(|j| j.wish.required) else {
            return;
        };
        let mut wider: Vec<Level> = self
            .world
            .fabric()
            .levels()
            .iter()
            .map(|(level, _)| *level)
            .filter(|level| *level > required)
            .collect();
        wider.push(Level::CLUSTER);
        for level in wider {
            self.require(level);
            let fits = self.fits();
            self.require(required);
            if fits {
                let (from, to) = (required.name(), level.name());
                self.tell(
                    Change::Topology,
                    format!("within a {to} instead of a {from} it would start"),
                );
                return;
            }
        }
    }

    fn require(&mut self, level: Level) {
        if let Some(job) = self.world.jobs.get_mut(self.unit.job.0) {
            job.wish.required = Some(level);
        }
    }

    /// How many more nodes like the best that exists would do.
    fn nodes(&mut self) {
        let Some(first) = self.unit.pods.first().copied() else {
            return;
        };
        let shape = self.world.shape_of(first);
        let best = self
            .world
            .rows()
            .filter(|row| self.world.is_in(*row, self.pool) && self.world.lets_in(shape, *row))
            .filter_map(|row| Some((self.world.empty_room(shape, row)?, row)))
            .filter(|(room, _)| *room > 0)
            .max_by_key(|(room, row)| (*room, std::cmp::Reverse(*row)));
        let Some((room, row)) = best else { return };
        let search = self.search();
        let need = u32::try_from(search.need).unwrap_or(u32::MAX);
        let here = self.world.fits_now(&search);
        let missing = need.saturating_sub(here);
        let nodes = missing.div_ceil(room);
        if missing > 0 && nodes <= MOST_NODES {
            let name = self.world.row(row).map_or("", |r| &*r.name).to_owned();
            self.tell(
                Change::Nodes,
                format!(
                    "{here} of {need} pods have room now; {nodes} more empty node(s) like {name} \
                     would do"
                ),
            );
        }
    }

    fn wait(&mut self) -> Option<Timestamp> {
        let ends = self.world.ends();
        if ends.is_empty() {
            self.start_by = format!("nothing that runs says for how long ({RUNTIME_ESTIMATE})");
            return None;
        }
        let unit = self.unit.clone();
        let search = Search {
            job: unit.job,
            pods: &unit.pods,
            need: unit.need,
            pool: self.pool,
        };
        let Some((at, _)) = self.world.first_start(&search, &ends) else {
            self.start_by = format!(
                "not even the end of all {} pods that say how long they run would do",
                ends.len()
            );
            return None;
        };
        // Of those that end then the first by number, so that the same is always named.
        let last = ends.iter().find(|(end, _)| *end == at);
        self.start_by = match last.and_then(|(_, id)| self.world.pod(*id)) {
            Some(row) => format!(
                "when {}/{} ends by its own estimate, unless somebody before it in line takes the \
                 place",
                row.pod.meta.namespace, row.pod.meta.name
            ),
            None => "there is room for it now; those before it in line go first".to_owned(),
        };
        let secs = at.duration_since(self.now).as_secs().max(0);
        let within = SignedDuration::from_secs(secs);
        self.tell(
            Change::Wait,
            format!("its place is free in {within:#} by the run times that others state"),
        );
        Some(at)
    }
}

/// Parts as GPUs.
fn gpus(parts: Parts) -> String {
    let milli = to_milli_gpu(parts);
    if milli % 1_000 == 0 {
        (milli / 1_000).to_string()
    } else {
        format!("{}.{:03}", milli / 1_000, milli % 1_000)
    }
}
