//! The picture's tables, which outlive a round: nodes, shapes, jobs, pods and what queues use.
//!
//! They hold nothing that cannot be computed from the state. Jobs are numbered in submit order and
//! pods in the order of their jobs, so a picture that was kept and brought up to date is the same
//! as one that is made anew. A fork shares the long ones until it changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use super::round::{Failed, Hopeless};
use super::shape::{Shape, ShapeId};
use crate::model::{Pod, Reason, Str, Uid};
use crate::sched::budgets::{BudgetId, Guard};
use crate::sched::chunks::Chunks;
use crate::sched::class::Class;
use crate::sched::gang::GangKey;
use crate::sched::queue::{Parts, QueueId};
use crate::sched::rows::Version;
use crate::sched::slot::{Held, Slot};
use crate::sched::topology::Wish;
use crate::sched::uid_map::UidMap;
use crate::sched::view::RowId;

/// Number of a pod.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::sched) struct PodId(pub(in crate::sched) usize);

/// Number of a job; jobs are numbered in submit order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::sched) struct JobId(pub(in crate::sched) usize);

/// A place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sched) struct Spot {
    /// The node.
    pub(in crate::sched) row: RowId,
    /// Its devices.
    pub(in crate::sched) held: Held,
}

/// A pod of ours: waiting, or with a place.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::sched) struct PodRow {
    pub(in crate::sched) pod: Arc<Pod>,
    pub(in crate::sched) job: JobId,
    pub(in crate::sched) shape: ShapeId,
    /// Where it is or shall be.
    pub(in crate::sched) spot: Option<Spot>,
    /// What its place counts in its queue, and in which pool.
    pub(in crate::sched) counted: (usize, Parts),
    /// It waits for a node (with a spot: for the one that is held for it).
    pub(in crate::sched) waiting: bool,
    /// When it began to run, and when it last saved its work for good.
    pub(in crate::sched) began: Option<Timestamp>,
    pub(in crate::sched) saved: Option<Timestamp>,
    /// How long it says that it runs.
    pub(in crate::sched) runtime_secs: Option<i64>,
    /// The server has just refused its eviction.
    pub(in crate::sched) left_alone: bool,
    /// The disruption budgets that it is in.
    pub(in crate::sched) guard: Guard,
}

/// Submit order: creation, namespace, name, UID.
pub(in crate::sched) type Order = (Timestamp, Str, Str, Uid);

/// A job: pods that start together, or one pod by itself.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::sched) struct JobRow {
    pub(in crate::sched) order: Order,
    /// The gang; `None` for a pod by itself.
    pub(in crate::sched) gang: Option<GangKey>,
    /// What its held places are known by.
    pub(in crate::sched) owner: Str,
    pub(in crate::sched) queue: QueueId,
    pub(in crate::sched) priority: i32,
    /// When its first pod was created.
    pub(in crate::sched) since: Option<Timestamp>,
    pub(in crate::sched) preemptible: bool,
    pub(in crate::sched) may_preempt: bool,
    /// It comes back by itself after an eviction, so it may be moved.
    pub(in crate::sched) comes_back: bool,
    /// Pods that run together or not at all.
    pub(in crate::sched) min: u32,
    /// How close together its pods have to be.
    pub(in crate::sched) wish: Wish,
    pub(in crate::sched) pods: Vec<PodId>,
    /// Pods with a spot.
    pub(in crate::sched) placed: u32,
    /// Some of its pods wait for us and are able to start.
    pub(in crate::sched) waits: bool,
    /// Pods that wait whatever the nodes look like, and why.
    pub(in crate::sched) told: Vec<(Arc<Pod>, Reason)>,
    /// Time alone may change what it is.
    pub(in crate::sched) recheck: bool,
    /// It is none any more; its number and those of its pods are kept for one of the same order.
    pub(super) gone: bool,
    /// The seats of all its pods, those that are only told among them.
    pub(super) seats: Vec<u32>,
}

impl JobRow {
    /// It may be moved while it runs.
    pub(in crate::sched) fn is_movable(&self) -> bool {
        self.preemptible && self.comes_back
    }
}

/// A change that can be taken back.
#[derive(Clone, Debug)]
pub(super) enum Undo {
    /// The pod had this place.
    Place(PodId, Option<Spot>),
    /// The pod waited.
    Waited(PodId),
    /// The pod ran.
    Ran(PodId),
    /// This was given free on a row.
    Gave(RowId, Arc<Class>, Held),
    /// This was taken of a row.
    Took(RowId, Arc<Class>, Held),
    /// This was counted for a queue.
    Counted(QueueId, usize, Parts),
    /// So many pods were counted in a disruption budget.
    Spent(BudgetId, i64),
}

/// What of one node is counted in the capacity of its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counted {
    pub(super) pool: usize,
    pub(super) parts: Parts,
    /// Memory of one device, where it has some.
    pub(super) mem_mib: Option<u32>,
}

/// Verdicts of the last round that hold until something becomes free.
#[derive(Clone, Default, Debug)]
pub(in crate::sched) struct Verdicts {
    /// [`crate::sched::State`]'s count of what became free.
    pub(super) freed: u64,
    /// What queues were due and used.
    pub(super) shares: Vec<Vec<Parts>>,
    pub(super) used: Vec<Vec<Parts>>,
    /// When they were made: whoever may leave only since then changes them.
    pub(super) at: Option<Timestamp>,
    pub(super) failed: BTreeSet<Failed>,
    pub(super) hopeless: BTreeSet<Hopeless>,
}

/// The tables.
#[derive(Clone, Default)]
pub(in crate::sched) struct Tables {
    /// What each row has left.
    pub(super) slots: Chunks<Slot>,
    pub(super) rows: Vec<Counted>,
    /// Devices of each pool.
    pub(in crate::sched) capacity: Vec<Parts>,
    /// Memory of one device: how many nodes have it.
    pub(super) mems: BTreeMap<u32, u32>,
    pub(in crate::sched) shapes: Vec<Shape>,
    pub(super) by_class: BTreeMap<Arc<Class>, ShapeId>,
    pub(in crate::sched) pods: Chunks<PodRow>,
    /// Pods that run on each row.
    pub(super) residents: Chunks<Vec<PodId>>,
    pub(in crate::sched) jobs: Chunks<JobRow>,
    /// Jobs with pods that wait and are able to start, in submit order.
    pub(in crate::sched) waiting: BTreeSet<JobId>,
    /// Jobs with pods that wait whatever the nodes look like.
    pub(in crate::sched) telling: BTreeSet<JobId>,
    /// Jobs that time alone may change.
    pub(super) rechecks: BTreeSet<JobId>,
    /// Some place becomes free later.
    pub(in crate::sched) leaving: bool,
    /// Jobs that run, by queue.
    pub(super) running: Vec<Arc<BTreeSet<JobId>>>,
    /// How many of them may be moved.
    pub(in crate::sched) movable: usize,
    /// Pods that say how long they run.
    pub(in crate::sched) timed: Arc<BTreeSet<PodId>>,
    /// By queue: the priorities of those that may be evicted, and how many have each.
    pub(super) priorities: Vec<BTreeMap<i32, u32>>,
    /// What each queue uses with all below it, by pool.
    pub(super) used: Vec<Vec<Parts>>,
    /// The part of it that cannot be preempted.
    pub(super) firm: Vec<Vec<Parts>>,
    /// The part of it that is held for pods which have not started.
    pub(super) held: Vec<Vec<Parts>>,
    /// Each pod of ours has a seat, which stays the same while the pod lives.
    pub(super) seats: UidMap<u32>,
    /// By seat: the pod and its job.
    pub(super) seated: Chunks<Option<(Uid, JobId)>>,
    pub(super) free_seats: Vec<u32>,
    /// Jobs that are none any more.
    pub(super) holes: usize,
    /// Shapes above which it is looked whether all are of use.
    pub(super) most_shapes: usize,
    pub(super) log: Vec<Undo>,
    /// Rows in the order in which something was tried on them or taken back, in this round.
    pub(in crate::sched) journal: Vec<RowId>,
    pub(in crate::sched) verdicts: Verdicts,
    /// The state that they are right for.
    pub(super) seen: Seen,
}

/// A point in the history of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Seen {
    pub(super) rows: Option<Version>,
    pub(super) pods: usize,
    pub(super) volumes: u64,
}

impl Tables {
    /// Puts a job into the lists in which it is looked up.
    pub(super) fn enlist(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id.0) else {
            return;
        };
        if job.waits {
            self.waiting.insert(id);
        }
        if job.recheck {
            self.rechecks.insert(id);
        }
        if !job.told.is_empty() {
            self.telling.insert(id);
        }
        if job.placed > 0 {
            if let Some(list) = self.running.get_mut(job.queue.0) {
                Arc::make_mut(list).insert(id);
            }
            self.movable += usize::from(job.is_movable());
            if job.preemptible
                && let Some(list) = self.priorities.get_mut(job.queue.0)
            {
                *list.entry(job.priority).or_default() += 1;
            }
        }
        for seat in &job.seats {
            if let Some(Some((_, job))) = self.seated.get_mut(*seat as usize) {
                *job = id;
            }
        }
        for pod in &job.pods {
            let Some(row) = self.pods.get(pod.0) else {
                continue;
            };
            if row.runtime_secs.is_some() {
                Arc::make_mut(&mut self.timed).insert(*pod);
            }
            if let Some(list) = row.spot.and_then(|s| self.residents.get_mut(s.row.0)) {
                list.push(*pod);
            }
        }
    }

    /// Takes a job out of these lists, but for its seats.
    pub(super) fn delist(&mut self, id: JobId) {
        self.waiting.remove(&id);
        self.rechecks.remove(&id);
        self.telling.remove(&id);
        let Some(job) = self.jobs.get(id.0) else {
            return;
        };
        if job.placed > 0 {
            if let Some(list) = self.running.get_mut(job.queue.0) {
                Arc::make_mut(list).remove(&id);
            }
            self.movable -= usize::from(job.is_movable());
            if job.preemptible
                && let Some(list) = self.priorities.get_mut(job.queue.0)
                && let Some(n) = list.get_mut(&job.priority)
            {
                *n -= 1;
                if *n == 0 {
                    list.remove(&job.priority);
                }
            }
        }
        for pod in &job.pods {
            let Some(row) = self.pods.get(pod.0) else {
                continue;
            };
            if row.runtime_secs.is_some() {
                Arc::make_mut(&mut self.timed).remove(pod);
            }
            if let Some(list) = row.spot.and_then(|s| self.residents.get_mut(s.row.0)) {
                list.retain(|p| p != pod);
            }
        }
    }

    /// Empties these lists.
    pub(super) fn clear_lists(&mut self) {
        self.residents.iter_mut().for_each(Vec::clear);
        self.running
            .iter_mut()
            .for_each(|list| *list = Arc::default());
        self.movable = 0;
        self.timed = Arc::default();
        self.priorities.iter_mut().for_each(BTreeMap::clear);
        self.waiting.clear();
        self.telling.clear();
        self.rechecks.clear();
    }

    /// Without holes.
    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    fn compact(&self) -> Self {
        let mut new = self.clone();
        new.jobs.clear();
        new.pods.clear();
        new.holes = 0;
        new.clear_lists();
        for job in self.jobs.iter().filter(|j| !j.gone) {
            let id = JobId(new.jobs.len());
            let mut job = job.clone();
            for number in &mut job.pods {
                let mut row = self.pods.get(number.0).unwrap().clone();
                row.job = id;
                *number = PodId(new.pods.len());
                new.pods.push(row);
            }
            new.jobs.push(job);
            new.enlist(id);
        }
        new
    }

    /// The same as tables that are made anew, but for what only makes them faster.
    #[cfg(test)]
    pub(in crate::sched) fn differ(&self, other: &Self) -> Option<String> {
        let (this, other) = (self.compact(), other.compact());
        this.differs(&other)
    }

    #[cfg(test)]
    fn differs(&self, other: &Self) -> Option<String> {
        let unlike = |what: &str, a: String, b: String| Some(format!("{what}: {a}\n!= {b}"));
        if self.slots.len() != other.slots.len()
            || self
                .slots
                .iter()
                .zip(other.slots.iter())
                .any(|(a, b)| (&a.room, &a.gpu, a.slices) != (&b.room, &b.gpu, b.slices))
        {
            return unlike(
                "slots",
                format!("{:?}", self.slots),
                format!("{:?}", other.slots),
            );
        }
        for (what, a, b) in [
            (
                "rows",
                format!("{:?}", self.rows),
                format!("{:?}", other.rows),
            ),
            (
                "capacity",
                format!("{:?}", self.capacity),
                format!("{:?}", other.capacity),
            ),
            (
                "used",
                format!("{:?}", self.used),
                format!("{:?}", other.used),
            ),
            (
                "firm",
                format!("{:?}", self.firm),
                format!("{:?}", other.firm),
            ),
            (
                "held",
                format!("{:?}", self.held),
                format!("{:?}", other.held),
            ),
            (
                "waiting",
                format!("{:?}", self.waiting),
                format!("{:?}", other.waiting),
            ),
            (
                "running",
                format!("{:?}", self.running),
                format!("{:?}", other.running),
            ),
            (
                "residents",
                format!("{:?}", self.residents),
                format!("{:?}", other.residents),
            ),
            (
                "movable and timed",
                format!("{} {:?}", self.movable, self.timed),
                format!("{} {:?}", other.movable, other.timed),
            ),
        ] {
            if a != b {
                return unlike(what, a, b);
            }
        }
        let plain = |t: &Tables| {
            let pods = t.pods.iter().map(|p| {
                let shape = t.shapes.get(p.shape.0).map(|s| (s.class.clone(), s.parts));
                let row = PodRow {
                    shape: ShapeId::default(),
                    ..p.clone()
                };
                format!("{row:?} {shape:?}")
            });
            let jobs = t.jobs.iter().map(|j| {
                let row = JobRow {
                    seats: Vec::new(),
                    ..j.clone()
                };
                format!("{row:?}")
            });
            pods.chain(jobs).collect::<Vec<String>>()
        };
        let (a, b) = (plain(self), plain(other));
        let first = a.iter().zip(&b).find(|(a, b)| a != b);
        match first {
            Some((a, b)) => unlike("row", a.clone(), b.clone()),
            None if a.len() != b.len() => unlike("rows", a.len().to_string(), b.len().to_string()),
            None => None,
        }
    }
}

/// Tables that wait for the next round; a lock lets a round keep them though it only reads the
/// state.
#[derive(Default)]
pub(in crate::sched) struct Kept(Mutex<Option<Arc<Tables>>>);

impl Clone for Kept {
    /// A fork shares the tables until it or the original takes them.
    fn clone(&self) -> Self {
        Self(Mutex::new(self.lock().clone()))
    }
}

impl Kept {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Tables>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes them out.
    pub(super) fn take(&self) -> Option<Tables> {
        let kept = self.lock().take()?;
        Some(Arc::unwrap_or_clone(kept))
    }

    /// Keeps them for the next round.
    pub(super) fn keep(&self, tables: Tables) {
        *self.lock() = Some(Arc::new(tables));
    }

    /// The next round makes them anew.
    #[cfg(test)]
    pub(in crate::sched) fn forget(&self) {
        *self.lock() = None;
    }
}

/// What differs between the tables that two states have kept.
#[cfg(test)]
pub(in crate::sched) fn kept_unlike(
    a: &crate::sched::State,
    b: &crate::sched::State,
) -> Option<String> {
    match (&*a.kept.lock(), &*b.kept.lock()) {
        (Some(a), Some(b)) => a.differ(b),
        // A state in which nobody waits makes none.
        _ => None,
    }
}
