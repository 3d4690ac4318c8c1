//! The picture: what the nodes have left once those who leave are gone, pods, jobs and what each
//! queue uses, with an undo log.

use std::sync::Arc;

use super::shape::{Shape, ShapeId, parts_of};
use crate::model::Pod;
use crate::sched::class::Class;
use crate::sched::copies::copies;
use crate::sched::fabric::{DomainId, Fabric, Level};
use crate::sched::filters::{FixedVerdict, Row, Verdict, judge, judge_node};
use crate::sched::gang::GangKey;
use crate::sched::place::NodeRow;
use crate::sched::queue::{Parts, QueueId, ROOT, Tree};
use crate::sched::slot::{Held, Slot};
use crate::sched::state::State;
use crate::sched::topology::Wish;
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
#[derive(Clone, Debug)]
pub(in crate::sched) struct PodRow {
    pub(in crate::sched) pod: Arc<Pod>,
    pub(in crate::sched) job: JobId,
    pub(in crate::sched) shape: ShapeId,
    /// Where it is or shall be.
    pub(in crate::sched) spot: Option<Spot>,
    /// It waits for a node (with a spot: for the one that is held for it).
    pub(in crate::sched) waiting: bool,
    /// Seconds of work that its end costs: since its last durable checkpoint, restart, requeue.
    pub(in crate::sched) loss_secs: i64,
    /// It may not be evicted yet or at all, whatever its job says.
    pub(in crate::sched) protected: bool,
}

/// A job: pods that start together, or one pod by itself.
#[derive(Clone, Debug)]
pub(in crate::sched) struct JobRow {
    /// The gang; `None` for a pod by itself.
    pub(in crate::sched) gang: Option<GangKey>,
    pub(in crate::sched) queue: QueueId,
    pub(in crate::sched) priority: i32,
    /// Priority with the points for waiting.
    pub(in crate::sched) turn_priority: i32,
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
}

/// The picture.
#[derive(Clone)]
pub(in crate::sched) struct World<'a> {
    pub(in crate::sched) state: &'a State,
    pub(in crate::sched) tree: Tree,
    /// What each row has left once those who leave are gone.
    slots: Vec<Slot>,
    /// Kind of GPU in which the queues of a row are counted.
    pools: Vec<usize>,
    pub(in crate::sched) shapes: Vec<Shape>,
    pub(in crate::sched) pods: Vec<PodRow>,
    /// Pods that run on each row.
    residents: Vec<Vec<PodId>>,
    pub(in crate::sched) jobs: Vec<JobRow>,
    /// What each queue uses with all below it, by pool.
    used: Vec<Vec<Parts>>,
    /// The part of it that cannot be preempted.
    firm: Vec<Vec<Parts>>,
    /// Devices of each pool.
    pub(in crate::sched) capacity: Vec<Parts>,
    log: Vec<(PodId, Option<Spot>)>,
}

impl<'a> World<'a> {
    pub(super) fn empty(state: &'a State) -> Self {
        let tree = state.queues().clone();
        let (pools, queues) = (tree.pools(), tree.len());
        World {
            state,
            tree,
            slots: state.rows.slots.clone(),
            pools: vec![0; state.rows.rows.len()],
            shapes: Vec::new(),
            pods: Vec::new(),
            residents: vec![Vec::new(); state.rows.rows.len()],
            jobs: Vec::new(),
            used: vec![vec![0; queues]; pools],
            firm: vec![vec![0; queues]; pools],
            capacity: vec![0; pools],
            log: Vec::new(),
        }
    }

    /// A node's row.
    pub(in crate::sched) fn row(&self, id: RowId) -> Option<&'a Row> {
        self.state.rows.rows.get(id.0)
    }

    /// All rows, in no order that means anything.
    pub(in crate::sched) fn rows(&self) -> impl Iterator<Item = RowId> + use<> {
        (0..self.slots.len()).map(RowId)
    }

    /// What a row has left later.
    pub(in crate::sched) fn slot(&self, id: RowId) -> Option<&Slot> {
        self.slots.get(id.0)
    }

    pub(super) fn slot_mut(&mut self, id: RowId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0)
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

    pub(super) fn set_pool(&mut self, id: RowId, pool: usize) {
        if let Some(slot) = self.pools.get_mut(id.0) {
            *slot = pool;
        }
    }

    /// The pool of a row.
    pub(in crate::sched) fn pool(&self, id: RowId) -> usize {
        self.pools.get(id.0).copied().unwrap_or(0)
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
        self.pods.get(id.0)
    }

    /// A job that exists.
    pub(in crate::sched) fn job(&self, id: JobId) -> Option<&JobRow> {
        self.jobs.get(id.0)
    }

    /// The class of a shape.
    pub(in crate::sched) fn class(&self, id: ShapeId) -> Option<&Arc<Class>> {
        self.shapes.get(id.0).map(|s| &s.class)
    }

    /// The shape of a pod.
    pub(in crate::sched) fn shape_of(&self, id: PodId) -> ShapeId {
        self.pod(id).map_or(ShapeId::default(), |p| p.shape)
    }

    /// Pods that run on a row, and some that did.
    pub(in crate::sched) fn residents(&self, id: RowId) -> &[PodId] {
        self.residents.get(id.0).map_or(&[], |list| list)
    }

    /// What a queue uses with all below it.
    pub(in crate::sched) fn used(&self, pool: usize, queue: QueueId) -> Parts {
        let list = self.used.get(pool);
        list.and_then(|l| l.get(queue.0)).copied().unwrap_or(0)
    }

    /// What of it cannot be preempted.
    pub(in crate::sched) fn firm(&self, pool: usize, queue: QueueId) -> Parts {
        let list = self.firm.get(pool);
        list.and_then(|l| l.get(queue.0)).copied().unwrap_or(0)
    }

    /// What a pod counts in its queue: by its node when it has one.
    pub(in crate::sched) fn parts(&self, id: PodId) -> Parts {
        let Some(row) = self.pod(id) else { return 0 };
        match row.spot {
            Some(spot) => self.parts_on(row.shape, spot.row),
            None => self.parts_anywhere(id),
        }
    }

    fn parts_on(&self, shape: ShapeId, row: RowId) -> Parts {
        let mem = self.row(row).and_then(|r| r.gpus.memory_mib);
        self.class(shape).map_or(0, |class| parts_of(class, mem))
    }

    /// What a pod counts whether it has a place or not.
    pub(in crate::sched) fn parts_anywhere(&self, id: PodId) -> Parts {
        let shape = self.shape_of(id);
        self.shapes.get(shape.0).map_or(0, |s| s.parts)
    }

    /// Parts of several pods.
    pub(in crate::sched) fn sum(&self, pods: &[PodId]) -> Parts {
        pods.iter().map(|p| self.parts(*p)).sum()
    }

    /// A mark to go back to.
    pub(in crate::sched) fn mark(&self) -> usize {
        self.log.len()
    }

    /// Takes back every change since the mark.
    pub(in crate::sched) fn undo(&mut self, mark: usize) {
        while self.log.len() > mark {
            let Some((pod, before)) = self.log.pop() else {
                return;
            };
            self.set(pod, before);
        }
    }

    /// Forgets how to go back: what is done stays done.
    pub(in crate::sched) fn settle(&mut self) {
        self.log.clear();
    }

    /// Gives a pod a place.
    pub(in crate::sched) fn put(&mut self, pod: PodId, spot: Spot) {
        let before = self.pod(pod).and_then(|p| p.spot);
        self.log.push((pod, before));
        self.set(pod, Some(spot));
    }

    /// Takes a pod's place away.
    pub(in crate::sched) fn lift(&mut self, pod: PodId) {
        let before = self.pod(pod).and_then(|p| p.spot);
        if before.is_some() {
            self.log.push((pod, before));
            self.set(pod, None);
        }
    }

    fn set(&mut self, id: PodId, spot: Option<Spot>) {
        let Some(row) = self.pods.get_mut(id.0) else {
            return;
        };
        let old = std::mem::replace(&mut row.spot, spot);
        let (job, shape) = (row.job, row.shape);
        if let Some(job) = self.jobs.get_mut(job.0) {
            job.placed = job.placed + u32::from(spot.is_some()) - u32::from(old.is_some());
        }
        for (spot, sign) in [(old, -1), (spot, 1)] {
            let Some(spot) = spot else { continue };
            self.count(job, shape, spot.row, sign);
            if let (Some(slot), Some(shape)) =
                (self.slots.get_mut(spot.row.0), self.shapes.get(shape.0))
            {
                if sign > 0 {
                    slot.take(&shape.class.ask, spot.held);
                } else {
                    slot.give(&shape.class.ask, spot.held);
                }
            }
        }
    }

    /// A bound pod, which its row counts already: its queue does not yet.
    pub(super) fn settle_in(&mut self, id: PodId, spot: Spot) {
        let Some(row) = self.pods.get_mut(id.0) else {
            return;
        };
        row.spot = Some(spot);
        let (job, shape) = (row.job, row.shape);
        if let Some(job) = self.jobs.get_mut(job.0) {
            job.placed += 1;
        }
        if let Some(list) = self.residents.get_mut(spot.row.0) {
            list.push(id);
        }
        self.count(job, shape, spot.row, 1);
    }

    fn count(&mut self, job: JobId, shape: ShapeId, row: RowId, sign: i64) {
        let parts = sign * self.parts_on(shape, row);
        let Some((queue, firm)) = self.job(job).map(|j| (j.queue, !j.preemptible)) else {
            return;
        };
        self.reserve(queue, self.pool(row), parts, firm);
    }

    /// A queue and all above it use so much more.
    pub(super) fn reserve(&mut self, queue: QueueId, pool: usize, parts: Parts, firm: bool) {
        let mut at = queue;
        loop {
            for (list, counts) in [(&mut self.used, true), (&mut self.firm, firm)] {
                if counts && let Some(sum) = list.get_mut(pool).and_then(|l| l.get_mut(at.0)) {
                    *sum += parts;
                }
            }
            if at == ROOT {
                return;
            }
            at = self.tree.node(at).parent;
        }
    }

    /// Makes room for the counts of queues that were added to the tree.
    pub(super) fn widen(&mut self) {
        let queues = self.tree.len();
        for list in self.used.iter_mut().chain(self.firm.iter_mut()) {
            list.resize(queues, 0);
        }
    }

    /// Learns what of each node does not change for this shape.
    pub(in crate::sched) fn look(&mut self, id: ShapeId) {
        let state = self.state;
        let Some(shape) = self.shapes.get_mut(id.0) else {
            return;
        };
        let rows = &state.rows.rows;
        if shape.fixed.len() == rows.len() {
            return;
        }
        let spot = state.config.spot_needs_checkpoint;
        let no = FixedVerdict::no(Verdict::VolumeMissing);
        shape.fixed = match &shape.volumes {
            Ok(volumes) => rows
                .iter()
                .map(|row| judge_node(&shape.class, volumes, row, spot))
                .collect(),
            Err(_) => vec![no; rows.len()],
        };
    }

    /// One more pod of the shape fits on a row.
    pub(in crate::sched) fn fits(&self, id: ShapeId, row: RowId) -> bool {
        let Some(shape) = self.shapes.get(id.0) else {
            return false;
        };
        let (Some(fixed), Some(known), Some(slot)) =
            (shape.fixed.get(row.0), self.row(row), self.slot(row))
        else {
            return false;
        };
        judge(&shape.class, *fixed, known, slot) == Verdict::Fits
    }

    /// The node lets the shape in, by labels, taints, devices and volumes.
    pub(in crate::sched) fn lets_in(&self, id: ShapeId, row: RowId) -> bool {
        let fixed = self.shapes.get(id.0).and_then(|s| s.fixed.get(row.0));
        fixed.is_some_and(|f| f.first.is_none() && f.last.is_none())
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
