//! The order in which jobs are served: work inside a guarantee before work above one, then by
//! band and priority, then the queue that is furthest below its share (after the start, then
//! before it), then who came first.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::world::{JobId, PodId, World};
use crate::sched::queue::{Parts, QueueId, ROOT};

/// Work without GPUs is counted in no pool and goes to nodes of each.
pub(in crate::sched) const ANY_POOL: usize = usize::MAX;

/// What starts at once: the pods that a job still needs, or one pod beyond them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sched) struct Unit {
    pub(in crate::sched) job: JobId,
    /// Pods that may start.
    pub(in crate::sched) pods: Vec<PodId>,
    /// How many of them start together.
    pub(in crate::sched) need: usize,
    /// The job runs already; this is one pod more.
    pub(in crate::sched) surplus: bool,
    /// What it counts in its queue.
    pub(in crate::sched) parts: Parts,
}

/// The jobs that wait, by queue, each queue in its own order, and of each queue which below it is
/// next. After a start or a failure only the way up from its queue is looked at again.
#[derive(Clone, Debug)]
pub(in crate::sched) struct Lines {
    /// By queue number; the next job is the last.
    waiting: Vec<Vec<JobId>>,
    /// What the next job of each queue starts.
    heads: Vec<Option<Unit>>,
    /// The queue whose head is next among a queue and all below it, with its key.
    next: Vec<Option<(TurnKey, QueueId)>>,
    /// The children of each queue below which something waits, the next first.
    children: Vec<BTreeSet<(TurnKey, QueueId)>>,
}

/// What decides between two queues: the least is served first.
type TurnKey = (bool, Reverse<i32>, Reverse<i32>, Ratio, Ratio, JobId);

/// Use by share, compared without division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sched) struct Ratio {
    used: Parts,
    share: Parts,
}

impl Ratio {
    /// Use by share; a queue without a share is above it with whatever it uses.
    pub(in crate::sched) fn new(used: Parts, share: Parts) -> Self {
        Ratio {
            used: used.max(0),
            share: share.max(0),
        }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self.share, other.share) {
            (0, 0) => self.used.cmp(&other.used),
            (0, _) if self.used == 0 => 0.cmp(&other.used),
            (_, 0) if other.used == 0 => self.used.cmp(&0),
            (0, _) => std::cmp::Ordering::Greater,
            (_, 0) => std::cmp::Ordering::Less,
            (a, b) => {
                let left = i128::from(self.used) * i128::from(b);
                left.cmp(&(i128::from(other.used) * i128::from(a)))
            }
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Lines {
    /// Puts the waiting jobs in line.
    pub(in crate::sched) fn new(
        world: &World<'_>,
        shares: &[Vec<Parts>],
        jobs: impl Iterator<Item = JobId>,
    ) -> Self {
        let queues = world.tree.len();
        let mut lines = Lines {
            waiting: vec![Vec::new(); queues],
            heads: vec![None; queues],
            next: vec![None; queues],
            children: vec![BTreeSet::new(); queues],
        };
        let mut jobs: Vec<(i32, Reverse<JobId>, QueueId)> = jobs
            .filter_map(|id| {
                let job = world.job(id)?;
                Some((world.turn_priority(job), Reverse(id), job.queue))
            })
            .collect();
        jobs.sort_unstable();
        for (_, Reverse(id), queue) in jobs {
            if let Some(line) = lines.waiting.get_mut(queue.0) {
                line.push(id);
            }
        }
        lines.refresh_all(world, shares);
        lines
    }

    /// The next job of a queue has changed, or what it still needs; a job that needs nothing
    /// more leaves the line.
    pub(in crate::sched) fn refresh(
        &mut self,
        world: &World<'_>,
        shares: &[Vec<Parts>],
        queue: QueueId,
    ) {
        self.find_head(world, queue);
        for at in world.tree.up(queue).chain([ROOT]) {
            self.find_next(world, shares, at);
        }
    }

    fn find_head(&mut self, world: &World<'_>, queue: QueueId) {
        let Some(line) = self.waiting.get_mut(queue.0) else {
            return;
        };
        let mut unit = None;
        while let Some(first) = line.last() {
            unit = world.unit(*first);
            if unit.is_some() {
                break;
            }
            line.pop();
        }
        if let Some(head) = self.heads.get_mut(queue.0) {
            *head = unit;
        }
    }

    /// Which queue at or below this one is next; those below know theirs.
    fn find_next(&mut self, world: &World<'_>, shares: &[Vec<Parts>], at: QueueId) {
        let head = |queue: QueueId| self.heads.get(queue.0).and_then(Option::as_ref);
        let below = self.children.get(at.0).and_then(BTreeSet::first);
        let leaf = match below {
            _ if head(at).is_some() => Some(at),
            Some((_, child)) => self.next.get(child.0).copied().flatten().map(|n| n.1),
            None => None,
        };
        let next = leaf.and_then(|leaf| Some((turn_key(world, shares, at, head(leaf)?), leaf)));
        let Some(slot) = self.next.get_mut(at.0) else {
            return;
        };
        let before = std::mem::replace(slot, next);
        if at == ROOT {
            return;
        }
        let parent = world.tree.node(at).parent;
        if let Some(siblings) = self.children.get_mut(parent.0) {
            if let Some((key, _)) = before {
                siblings.remove(&(key, at));
            }
            if let Some((key, _)) = next {
                siblings.insert((key, at));
            }
        }
    }

    /// Running jobs have lost pods: what is left to start may differ, and so do all keys.
    pub(in crate::sched) fn refresh_all(&mut self, world: &World<'_>, shares: &[Vec<Parts>]) {
        // Children have higher numbers than their parents.
        for queue in (0..self.waiting.len()).rev() {
            self.find_head(world, QueueId(queue));
            self.find_next(world, shares, QueueId(queue));
        }
    }

    /// The next job of a queue is done with for this round.
    pub(in crate::sched) fn drop_first(
        &mut self,
        world: &World<'_>,
        shares: &[Vec<Parts>],
        queue: QueueId,
    ) {
        if let Some(line) = self.waiting.get_mut(queue.0) {
            line.pop();
        }
        self.refresh(world, shares, queue);
    }

    /// Whose turn it is.
    pub(in crate::sched) fn next(&self) -> Option<&Unit> {
        let (_, leaf) = self.next.get(ROOT.0)?.as_ref()?;
        self.heads.get(leaf.0)?.as_ref()
    }
}

fn turn_key(world: &World<'_>, shares: &[Vec<Parts>], queue: QueueId, unit: &Unit) -> TurnKey {
    let job = world.job(unit.job);
    let node = world.tree.node(queue);
    let pool = world.pool_of_job(unit.job);
    let after = world.used(pool, queue).saturating_add(unit.parts);
    let share = shares
        .get(pool)
        .and_then(|s| s.get(queue.0))
        .copied()
        .unwrap_or(0);
    (
        after > node.due(pool).guaranteed,
        Reverse(node.band),
        Reverse(job.map_or(i32::MIN, |j| world.turn_priority(j))),
        Ratio::new(after, share),
        Ratio::new(world.used(pool, queue), share),
        unit.job,
    )
}

impl World<'_> {
    /// What a job starts next: `None` when all its pods have a place.
    pub(in crate::sched) fn unit(&self, id: JobId) -> Option<Unit> {
        let job = self.job(id)?;
        let mut pods: Vec<PodId> = job
            .pods
            .iter()
            .copied()
            .filter(|p| self.pod(*p).is_some_and(|p| p.waiting && p.spot.is_none()))
            .collect();
        let missing = job.min.saturating_sub(job.placed);
        // A job whose place is held starts there and nowhere else.
        let held = job
            .pods
            .iter()
            .any(|p| self.pod(*p).is_some_and(|p| p.waiting && p.spot.is_some()));
        if pods.is_empty() || held {
            return None;
        }
        let surplus = missing == 0;
        let need = usize::try_from(missing.max(1)).unwrap_or(usize::MAX);
        if surplus {
            pods.truncate(1);
        }
        let parts = if need >= pods.len() {
            self.sum(&pods)
        } else {
            let mut each: Vec<Parts> = pods.iter().map(|p| self.parts(*p)).collect();
            each.sort_unstable();
            each.iter().take(need).sum()
        };
        Some(Unit {
            job: id,
            pods,
            need,
            surplus,
            parts,
        })
    }

    /// The pool in which a job is counted while it waits: that of its pods that run, else the
    /// first whose nodes let its first waiting pod in.
    pub(in crate::sched) fn pool_of_job(&self, id: JobId) -> usize {
        self.pools_of_job(id).first().copied().unwrap_or(0)
    }

    /// The pools in which a job may start, in the order in which they are tried.
    pub(in crate::sched) fn pools_of_job(&self, id: JobId) -> Vec<usize> {
        let pools = self.tree.pools();
        let Some(job) = self.job(id) else {
            return vec![0];
        };
        if job.pods.iter().all(|p| self.parts(*p) == 0) {
            return vec![ANY_POOL];
        }
        if pools == 1 {
            return vec![0];
        }
        let running = job
            .pods
            .iter()
            .find_map(|p| Some(self.pool(self.pod(*p)?.spot?.row)));
        if let Some(pool) = running {
            return vec![pool];
        }
        let Some(shape) = job.pods.first().map(|p| self.shape_of(*p)) else {
            return vec![0];
        };
        let mut list = self
            .shapes
            .get(shape.0)
            .map_or(Vec::new(), |s| s.pools.clone());
        if list.is_empty() {
            list.push(pools - 1);
        }
        list
    }
}
