//! A picture of the cluster on which starts and evictions are tried and taken back: what each node
//! has left once those who leave are gone, what each queue uses, and who could leave.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::guard::Spared;
use super::shape::{ShapeId, parts_of};
use super::tables::Undo;
pub(in crate::sched) use super::tables::{JobId, JobRow, PodId, PodRow, Spot, Tables};
use crate::model::Str;
use crate::sched::class::Class;
use crate::sched::copies::copies;
use crate::sched::fabric::{DomainId, Fabric, Level};
use crate::sched::filters::{FixedVerdict, Row, Verdict, judge};
use crate::sched::needs::Share;
use crate::sched::place::NodeRow;
use crate::sched::queue::{Parts, QueueId, ROOT, Tree};
use crate::sched::reclaim::{PileKey, Piled};
use crate::sched::slot::Slot;
use crate::sched::state::State;
use crate::sched::view::RowId;

/// The picture.
pub(in crate::sched) struct World<'a> {
    pub(in crate::sched) state: &'a State,
    pub(in crate::sched) now: Timestamp,
    pub(in crate::sched) tree: Arc<Tree>,
    /// What the unit of a job has not got yet, as of a point in the journal: asked for again and
    /// again between two changes.
    pub(in crate::sched) missing: Cell<Option<((usize, JobId), Parts)>>,
    /// Nodes that were priced in this round, and whether somebody was not looked at for that.
    pub(in crate::sched) priced: usize,
    pub(in crate::sched) exhausted: bool,
    /// Nodes that were tried to be cleared by moves in this round.
    pub(in crate::sched) cleared: usize,
    /// Nodes that may be cleared, by who asks.
    pub(in crate::sched) piled: BTreeMap<PileKey, Piled>,
    /// What keeps running work from being evicted.
    pub(in crate::sched) spared: Spared,
    /// Jobs whose held places will not become free.
    pub(in crate::sched) given_up: Vec<Str>,
    /// Jobs for which others leave in this round, and those that move: what runs of them stays.
    pub(in crate::sched) served: BTreeSet<JobId>,
    /// By budget: pods that leave in this round and count in it.
    pub(super) spent: Vec<i64>,
    pub(super) t: Tables,
}

impl std::ops::Deref for World<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.t
    }
}

impl std::ops::DerefMut for World<'_> {
    fn deref_mut(&mut self) -> &mut Tables {
        &mut self.t
    }
}

/// Room that is kept for a pod which does not exist (yet).
const KEPT: Sums = Sums {
    used: true,
    firm: false,
    held: true,
};

/// In which sums a place counts.
#[derive(Clone, Copy)]
struct Sums {
    used: bool,
    firm: bool,
    held: bool,
}

impl Tables {
    /// A queue and all above it use so much more.
    fn count(&mut self, tree: &Tree, queue: QueueId, pool: usize, parts: Parts, sums: Sums) {
        if parts == 0 {
            return;
        }
        let mut at = queue;
        loop {
            for (list, counts) in [
                (&mut self.used, sums.used),
                (&mut self.firm, sums.firm),
                (&mut self.held, sums.held),
            ] {
                if counts && let Some(sum) = list.get_mut(pool).and_then(|l| l.get_mut(at.0)) {
                    *sum += parts;
                }
            }
            if at == ROOT {
                return;
            }
            at = tree.node(at).parent;
        }
    }

    /// Counts a pod's place in its queue, or out of it; one that waits has it held.
    fn count_pod(
        &mut self,
        tree: &Tree,
        job: JobId,
        counted: (usize, Parts),
        sign: i64,
        held: bool,
    ) {
        let Some((queue, firm)) = self.jobs.get(job.0).map(|j| (j.queue, !j.preemptible)) else {
            return;
        };
        let sums = Sums {
            used: true,
            firm,
            held,
        };
        let (pool, parts) = counted;
        self.count(tree, queue, pool, sign * parts, sums);
    }

    /// A pod waits for its place, or has started there.
    fn set_waiting(&mut self, tree: &Tree, pod: PodId, waiting: bool) {
        let Some(row) = self.pods.get_mut(pod.0) else {
            return;
        };
        let before = std::mem::replace(&mut row.waiting, waiting);
        let (job, (pool, parts)) = (row.job, row.counted);
        let Some(queue) = self.jobs.get(job.0).map(|j| j.queue) else {
            return;
        };
        let sums = Sums {
            used: false,
            firm: false,
            held: true,
        };
        let sign = i64::from(waiting) - i64::from(before);
        self.count(tree, queue, pool, sign * parts, sums);
    }
}

impl<'a> World<'a> {
    /// A node's row.
    pub(in crate::sched) fn row(&self, id: RowId) -> Option<&'a Row> {
        self.state.rows.rows.get(id.0)
    }

    /// Rows.
    pub(in crate::sched) fn slots_len(&self) -> usize {
        self.t.slots.len()
    }

    /// All rows, in no order that means anything.
    pub(in crate::sched) fn rows(&self) -> impl Iterator<Item = RowId> + use<> {
        (0..self.t.slots.len()).map(RowId)
    }

    /// What a row has left later.
    pub(in crate::sched) fn slot(&self, id: RowId) -> Option<&Slot> {
        self.t.slots.get(id.0)
    }

    /// Where the nodes stand.
    pub(in crate::sched) fn fabric(&self) -> &'a Fabric {
        self.state.rows.fabric().0
    }

    /// The order of nodes, which decides among equals.
    pub(in crate::sched) fn rank(&self, id: RowId) -> u32 {
        let ranks = self.state.rules().ranks;
        ranks.get(id.0).copied().unwrap_or(u32::MAX)
    }

    /// The pool of a row.
    pub(in crate::sched) fn pool(&self, id: RowId) -> usize {
        self.t.rows.get(id.0).map_or(0, |c| c.pool)
    }

    /// A row belongs to this pool, or the pool is any.
    pub(in crate::sched) fn is_in(&self, id: RowId, pool: usize) -> bool {
        pool == super::order::ANY_POOL || self.pool(id) == pool
    }

    /// Free thousandths of a GPU of a row.
    pub(in crate::sched) fn free_milli(&self, id: RowId) -> i64 {
        self.slot(id).map_or(0, |s| s.gpu.free_milli_gpu())
    }

    /// A pod that exists.
    pub(in crate::sched) fn pod(&self, id: PodId) -> Option<&PodRow> {
        self.t.pods.get(id.0)
    }

    /// A job that exists.
    pub(in crate::sched) fn job(&self, id: JobId) -> Option<&JobRow> {
        self.t.jobs.get(id.0)
    }

    /// The job of a pod that waits and is able to start.
    pub(in crate::sched) fn waiting_job_of(&self, uid: &crate::model::Uid) -> Option<JobId> {
        let seat = self.t.seats.get(uid)?;
        let (_, id) = self.t.seated.get(*seat as usize)?.as_ref()?;
        let job = self.job(*id).filter(|j| j.waits)?;
        let waits = |p: &PodId| {
            self.pod(*p)
                .is_some_and(|p| p.waiting && p.pod.meta.uid == *uid)
        };
        job.pods.iter().any(waits).then_some(*id)
    }

    /// The class of a shape.
    pub(in crate::sched) fn class(&self, id: ShapeId) -> Option<&Arc<Class>> {
        self.t.shapes.get(id.0).map(|s| &s.class)
    }

    /// The shape of a pod.
    pub(in crate::sched) fn shape_of(&self, id: PodId) -> ShapeId {
        self.pod(id).map_or(ShapeId::default(), |p| p.shape)
    }

    /// Pods that run on a row, and some that did.
    pub(in crate::sched) fn residents(&self, id: RowId) -> &[PodId] {
        self.t.residents.get(id.0).map_or(&[], |list| list)
    }

    /// Jobs of a queue that ran when the round began.
    pub(in crate::sched) fn running(&self, queue: QueueId) -> &BTreeSet<JobId> {
        const NONE: &BTreeSet<JobId> = &BTreeSet::new();
        self.t.running.get(queue.0).map_or(NONE, |list| list)
    }

    /// The lowest priority among the jobs of a queue that run and may be evicted.
    pub(in crate::sched) fn lowest_priority(&self, queue: QueueId) -> Option<i32> {
        let priorities = self.t.priorities.get(queue.0)?;
        priorities.first_key_value().map(|(lowest, _)| *lowest)
    }

    /// What a queue uses with all below it.
    pub(in crate::sched) fn used(&self, pool: usize, queue: QueueId) -> Parts {
        let list = self.t.used.get(pool);
        list.and_then(|l| l.get(queue.0)).copied().unwrap_or(0)
    }

    /// What of it is not only held for pods that have not started.
    pub(in crate::sched) fn started(&self, pool: usize, queue: QueueId) -> Parts {
        let list = self.t.held.get(pool);
        let held = list.and_then(|l| l.get(queue.0)).copied().unwrap_or(0);
        self.used(pool, queue) - held
    }

    /// What of it cannot be preempted.
    pub(in crate::sched) fn firm(&self, pool: usize, queue: QueueId) -> Parts {
        let list = self.t.firm.get(pool);
        list.and_then(|l| l.get(queue.0)).copied().unwrap_or(0)
    }

    /// What a pod counts in its queue: by its node when it has one.
    pub(in crate::sched) fn parts(&self, id: PodId) -> Parts {
        match self.pod(id) {
            Some(row) if row.spot.is_some() => row.counted.1,
            _ => self.parts_anywhere(id),
        }
    }

    fn parts_on(&self, id: ShapeId, row: RowId) -> Parts {
        let Some(shape) = self.t.shapes.get(id.0) else {
            return 0;
        };
        if !matches!(shape.class.ask.share, Share::MemoryMib(_)) {
            return shape.parts;
        }
        let mem = self.row(row).and_then(|r| r.gpus.memory_mib);
        parts_of(&shape.class, mem)
    }

    /// What a pod counts whether it has a place or not.
    pub(in crate::sched) fn parts_anywhere(&self, id: PodId) -> Parts {
        let shape = self.shape_of(id);
        self.t.shapes.get(shape.0).map_or(0, |s| s.parts)
    }

    /// Parts of several pods.
    pub(in crate::sched) fn sum(&self, pods: &[PodId]) -> Parts {
        pods.iter().map(|p| self.parts(*p)).sum()
    }

    /// Priority with the points for waiting.
    pub(in crate::sched) fn turn_priority(&self, job: &JobRow) -> i32 {
        if !job.waits {
            return job.priority;
        }
        let points = self.state.config.ageing.points(job.since, self.now);
        job.priority.saturating_add(points)
    }

    pub(super) fn ran_secs(&self, pod: &PodRow) -> i64 {
        pod.began
            .map_or(0, |t| self.now.duration_since(t).as_secs().max(0))
    }

    /// Seconds of work that a pod's end costs: since its last durable checkpoint, restart, requeue.
    pub(in crate::sched) fn loss_secs(&self, pod: &PodRow) -> i64 {
        let ran = self.ran_secs(pod);
        let saved = pod
            .saved
            .map(|t| self.now.duration_since(t).as_secs().max(0));
        let lost = saved.map_or(ran, |s| s.min(ran));
        lost.saturating_add(self.state.config.restart_secs)
    }

    /// A mark to go back to.
    pub(in crate::sched) fn mark(&self) -> usize {
        self.t.log.len()
    }

    /// Takes back every change since the mark.
    pub(in crate::sched) fn undo(&mut self, mark: usize) {
        while self.t.log.len() > mark {
            let Some(undo) = self.t.log.pop() else {
                return;
            };
            match undo {
                Undo::Place(pod, before) => self.set(pod, before),
                Undo::Waited(pod) => {
                    self.t.set_waiting(&self.tree, pod, true);
                    if let Some(row) = self.t.pods.get_mut(pod.0) {
                        row.began = None;
                        row.left_alone = false;
                    }
                }
                Undo::Ran(pod) => self.t.set_waiting(&self.tree, pod, false),
                Undo::Gave(row, class, held) => {
                    self.t.journal.push(row);
                    if let Some(slot) = self.t.slots.get_mut(row.0) {
                        slot.take(&class.ask, held);
                    }
                }
                Undo::Took(row, class, held) => {
                    self.t.journal.push(row);
                    if let Some(slot) = self.t.slots.get_mut(row.0) {
                        slot.give(&class.ask, held);
                    }
                }
                Undo::Counted(queue, pool, parts) => {
                    self.t.count(&self.tree, queue, pool, -parts, KEPT);
                }
                Undo::Spent(budget, pods) => self.count_spent(budget, -pods),
            }
        }
    }

    /// Gives a pod a place.
    pub(in crate::sched) fn put(&mut self, pod: PodId, spot: Spot) {
        let before = self.pod(pod).and_then(|p| p.spot);
        self.t.log.push(Undo::Place(pod, before));
        self.set(pod, Some(spot));
    }

    /// Takes a pod's place away.
    pub(in crate::sched) fn lift(&mut self, pod: PodId) {
        let before = self.pod(pod).and_then(|p| p.spot);
        if before.is_some() {
            self.t.log.push(Undo::Place(pod, before));
            self.set(pod, None);
        }
    }

    /// A pod with a place starts there now.
    pub(in crate::sched) fn begin(&mut self, pod: PodId) {
        let now = self.now;
        if self.pod(pod).is_none_or(|p| !p.waiting) {
            return;
        }
        self.t.set_waiting(&self.tree, pod, false);
        if let Some(row) = self.t.pods.get_mut(pod.0) {
            row.began = Some(now);
            // Who starts in this round does not leave in it.
            row.left_alone = true;
            self.t.log.push(Undo::Waited(pod));
        }
    }

    /// A pod that moves waits for its new place: it runs nowhere meanwhile, and cannot leave a
    /// second time.
    pub(in crate::sched) fn waits_again(&mut self, pod: PodId) {
        if self.pod(pod).is_some_and(|p| !p.waiting) {
            self.t.set_waiting(&self.tree, pod, true);
            self.t.log.push(Undo::Ran(pod));
        }
    }

    fn set(&mut self, id: PodId, spot: Option<Spot>) {
        let Some((job, shape)) = self.pod(id).map(|p| (p.job, p.shape)) else {
            return;
        };
        let counted = spot.map_or((0, 0), |s| (self.pool(s.row), self.parts_on(shape, s.row)));
        let t = &mut self.t;
        let Some(row) = t.pods.get_mut(id.0) else {
            return;
        };
        let old = std::mem::replace(&mut row.spot, spot);
        let before = std::mem::replace(&mut row.counted, counted);
        let waits = row.waiting;
        if let Some(job) = t.jobs.get_mut(job.0) {
            job.placed = job.placed + u32::from(spot.is_some()) - u32::from(old.is_some());
        }
        let Some(class) = t.shapes.get(shape.0).map(|s| &s.class) else {
            return;
        };
        t.journal.extend(old.iter().chain(&spot).map(|s| s.row));
        if let Some(spot) = old
            && let Some(slot) = t.slots.get_mut(spot.row.0)
        {
            slot.give(&class.ask, spot.held);
        }
        if let Some(spot) = spot
            && let Some(slot) = t.slots.get_mut(spot.row.0)
        {
            slot.take(&class.ask, spot.held);
        }
        t.count_pod(&self.tree, job, before, -1, waits);
        t.count_pod(&self.tree, job, counted, 1, waits);
    }

    /// A bound pod, which its row counts already: its queue does not yet.
    pub(super) fn settle_in(&mut self, id: PodId, spot: Spot) {
        let Some((job, shape)) = self.pod(id).map(|p| (p.job, p.shape)) else {
            return;
        };
        let counted = (self.pool(spot.row), self.parts_on(shape, spot.row));
        if let Some(row) = self.t.pods.get_mut(id.0) {
            row.spot = Some(spot);
            row.counted = counted;
        }
        if let Some(job) = self.t.jobs.get_mut(job.0) {
            job.placed += 1;
        }
        self.t.count_pod(&self.tree, job, counted, 1, false);
    }

    /// A bound pod that is no part of the picture any more: its row is another's to count.
    pub(super) fn count_out(&mut self, id: PodId) {
        if let Some(row) = self.pod(id).filter(|p| p.spot.is_some()) {
            let (job, counted) = (row.job, row.counted);
            self.t.count_pod(&self.tree, job, counted, -1, false);
        }
    }

    /// A pod that leaves: its room is free later.
    pub(super) fn give(&mut self, row: RowId, class: Arc<Class>, held: crate::sched::slot::Held) {
        self.t.journal.push(row);
        if let Some(slot) = self.t.slots.get_mut(row.0) {
            slot.give(&class.ask, held);
            self.t.log.push(Undo::Gave(row, class, held));
        }
    }

    /// Room that is kept for a pod which does not exist (yet).
    pub(super) fn take(
        &mut self,
        row: RowId,
        class: Arc<Class>,
        held: crate::sched::slot::Held,
        queue: QueueId,
    ) {
        let Some(slot) = self.t.slots.get_mut(row.0) else {
            return;
        };
        slot.take(&class.ask, held);
        self.t.journal.push(row);
        let mem = self.row(row).and_then(|r| r.gpus.memory_mib);
        let (pool, parts) = (self.pool(row), parts_of(&class, mem));
        self.t.log.push(Undo::Took(row, class, held));
        self.t.count(&self.tree, queue, pool, parts, KEPT);
        self.t.log.push(Undo::Counted(queue, pool, parts));
    }

    /// One more pod of the shape fits on a row.
    pub(in crate::sched) fn fits(&self, id: ShapeId, row: RowId) -> bool {
        let (Some(known), Some(slot)) = (self.row(row), self.slot(row)) else {
            return false;
        };
        self.fits_in(id, row, known, slot)
    }

    /// The same with this left of the row.
    pub(in crate::sched) fn fits_in(
        &self,
        id: ShapeId,
        row: RowId,
        known: &Row,
        slot: &Slot,
    ) -> bool {
        const YES: FixedVerdict = FixedVerdict {
            first: None,
            last: None,
        };
        self.lets_in(id, row)
            && self
                .class(id)
                .is_some_and(|class| judge(class, YES, known, slot) == Verdict::Fits)
    }

    /// The node lets the shape in, by labels, taints, devices and volumes.
    pub(in crate::sched) fn lets_in(&self, id: ShapeId, row: RowId) -> bool {
        let word = self
            .t
            .shapes
            .get(id.0)
            .and_then(|s| s.lets_in.get(row.0 / 64));
        word.is_some_and(|w| w & (1 << (row.0 % 64)) != 0)
    }

    /// How many pods of the shape a row takes.
    pub(in crate::sched) fn room(&self, id: ShapeId, row: RowId) -> u32 {
        if !self.fits(id, row) {
            return 0;
        }
        match (self.class(id), self.row(row), self.slot(row)) {
            (Some(class), Some(known), Some(slot)) => u32::from(copies(class, known, slot)),
            _ => 0,
        }
    }

    /// How many pods of the shape a row would take if it were empty.
    pub(in crate::sched) fn empty_room(&self, id: ShapeId, row: RowId) -> Option<u32> {
        let (class, known) = (self.class(id)?, self.row(row)?);
        let node = known.node.as_ref()?;
        let mut slot = Slot::default();
        slot.room.offer(&node.allocatable, 1);
        slot.gpu = NodeRow::empty(0, 0, known.gpus.devices, known.gpus.model);
        slot.slices = u128::MAX;
        Some(u32::from(copies(class, known, &slot)))
    }

    /// How many of the pods have room somewhere, whatever level they require.
    pub(in crate::sched) fn fits_now(&self, search: &super::gang::Search<'_>) -> u32 {
        let Some(first) = search.pods.first() else {
            return 0;
        };
        let shape = self.shape_of(*first);
        let most = u32::try_from(search.need).unwrap_or(u32::MAX);
        let mut fits = 0_u32;
        for row in self.rows().filter(|row| self.is_in(*row, search.pool)) {
            if fits >= most {
                break;
            }
            fits = fits.saturating_add(self.room(shape, row));
        }
        fits.min(most)
    }

    /// Finds the place of one pod on one row, without taking it.
    pub(in crate::sched) fn spot_on(&self, pod: PodId, row: RowId) -> Option<Spot> {
        let shape = self.shape_of(pod);
        if !self.fits(shape, row) {
            return None;
        }
        let (class, known, slot) = (self.class(shape)?, self.row(row)?, self.slot(row)?);
        let prices = self.state.rules().slices;
        let held = slot.assign(&class.ask, &known.gpus, None, prices);
        Some(Spot { row, held })
    }

    /// The domain of a row at a level.
    pub(in crate::sched) fn domain(&self, row: RowId, level: Level) -> Option<DomainId> {
        self.fabric().at(row, level)
    }
}
