//! One round: whose turn it is starts, waits for a place that becomes free, lets others move or
//! leave, or is told why not.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::order::{Lines, Unit};
use super::shape::ShapeId;
use super::tables::Verdicts;
use super::world::{JobId, PodId, Spot, World};
use crate::model::Reason;
use crate::sched::decide::{Placed, Round};
use crate::sched::queue::{Parts, QueueId, aged_weight};
use crate::sched::reclaim::Denied;
use crate::sched::topology::Wish;
use crate::sched::view::RowId;

/// A start that was tried and failed: nothing has become free since, so it fails again. One pod
/// beyond those that a job needs is not worth a move: the last tells that moves were looked for.
pub(in crate::sched) type Failed = (Vec<ShapeId>, usize, Wish, usize, bool);
/// The same with queue, priority and right to preempt: no victims were found either.
pub(in crate::sched) type Hopeless = (QueueId, i32, bool, Failed);

impl World<'_> {
    /// What each queue is due in each pool, by what runs and what waits.
    pub(in crate::sched) fn all_shares(&mut self) -> Vec<Vec<Parts>> {
        let weights = self.weights();
        let demand = self.demand();
        demand
            .iter()
            .enumerate()
            .map(|(pool, demand)| {
                let capacity = self.capacity.get(pool).copied().unwrap_or(0);
                self.tree.shares(pool, capacity, demand, |q| {
                    weights.get(q.0).copied().unwrap_or(0)
                })
            })
            .collect()
    }

    /// What each queue asks for by itself, by pool: what runs there, and what waits for it.
    fn demand(&mut self) -> Vec<Vec<Parts>> {
        let (pools, queues) = (self.tree.pools(), self.tree.len());
        let mut demand: Vec<Vec<Parts>> = (0..pools)
            .map(|pool| {
                (0..queues)
                    .map(|at| {
                        let id = QueueId(at);
                        let below = self.tree.node(id).children.iter();
                        let below: Parts = below.map(|c| self.used(pool, *c)).sum();
                        self.used(pool, id) - below
                    })
                    .collect()
            })
            .collect();
        for id in self.waiting.clone() {
            if pools > 1
                && let Some(first) = self.job(id).and_then(|j| j.pods.first()).copied()
            {
                self.look(self.shape_of(first));
            }
            let pool = self.pool_of_job(id);
            let Some(job) = self.job(id) else { continue };
            let open = job
                .pods
                .iter()
                .filter(|p| self.pod(**p).is_some_and(|p| p.spot.is_none()));
            let parts: Parts = open.map(|p| self.parts_anywhere(*p)).sum();
            let sum = demand.get_mut(pool).and_then(|d| d.get_mut(job.queue.0));
            if let Some(sum) = sum {
                *sum = sum.saturating_add(parts);
            }
        }
        demand
    }

    /// Verdicts of the last round that still hold.
    pub(in crate::sched) fn verdicts(&mut self, shares: &[Vec<Parts>]) -> Verdicts {
        let mut kept = std::mem::take(&mut self.t.verdicts);
        if kept.freed != self.state.freed || kept.at.is_some_and(|at| self.some_lost_cover(at)) {
            return Verdicts::default();
        }
        if kept.shares != shares || kept.used != self.t.used {
            kept.hopeless.clear();
        }
        kept
    }

    /// Some pod had not run long enough to be evicted at that time, and has now.
    fn some_lost_cover(&self, at: Timestamp) -> bool {
        // Most have run for longer than any queue asks for.
        let queues = (0..self.tree.len()).map(|at| self.min_runtime_of(QueueId(at)));
        let longest = queues.max().unwrap_or(0);
        let long_ago = at.checked_sub(SignedDuration::from_secs(longest)).ok();
        self.pods.iter().any(|pod| {
            let runs = pod.spot.is_some() && !pod.waiting;
            let Some(began) = pod.began.filter(|_| runs) else {
                return false;
            };
            if long_ago.is_some_and(|t| began <= t) {
                return false;
            }
            let secs = SignedDuration::from_secs(self.min_runtime_secs(pod.job));
            let until = began.checked_add(secs).ok();
            until.is_some_and(|until| until > at && until <= self.now)
        })
    }

    /// Keeps them for the next round.
    pub(in crate::sched) fn keep_verdicts(
        &mut self,
        mut verdicts: Verdicts,
        shares: Vec<Vec<Parts>>,
        changed: bool,
    ) {
        // Who has started since may pay or move.
        if changed {
            verdicts = Verdicts::default();
        }
        if verdicts.failed.is_empty() && verdicts.hopeless.is_empty() {
            self.t.verdicts = Verdicts::default();
            return;
        }
        verdicts.at = Some(self.now);
        verdicts.freed = self.state.freed;
        verdicts.shares = shares;
        verdicts.used.clone_from(&self.t.used);
        self.t.verdicts = verdicts;
    }

    /// The weight of each queue by what it has used: less for who used more than its part of what
    /// its siblings and it used together.
    fn weights(&self) -> Vec<i64> {
        let state = self.state;
        let mut past = vec![0_i64; self.tree.len()];
        for (namespace, used) in state.past() {
            let Ok(queue) = self.tree.known_namespace(namespace) else {
                continue;
            };
            for at in self.tree.up(queue) {
                if let Some(sum) = past.get_mut(at.0) {
                    *sum = sum.saturating_add(used);
                }
            }
        }
        let sums: Vec<(i64, i64)> = (0..self.tree.len())
            .map(|at| {
                let children = self.tree.node(QueueId(at)).children.iter();
                children.fold((0_i64, 0_i64), |(used, weights), child| {
                    let part = past.get(child.0).copied().unwrap_or(0);
                    let weight = self.tree.node(*child).weight;
                    (used.saturating_add(part), weights.saturating_add(weight))
                })
            })
            .collect();
        let of = |list: &[i64], id: QueueId| list.get(id.0).copied().unwrap_or(0);
        (0..self.tree.len())
            .map(|at| {
                let id = QueueId(at);
                let node = self.tree.node(id);
                let (used, weights) = sums.get(node.parent.0).copied().unwrap_or_default();
                let even = |sum: i64| {
                    let part = i128::from(sum) * i128::from(node.weight);
                    i64::try_from(part / i128::from(weights.max(1))).unwrap_or(i64::MAX)
                };
                // Of what nobody has seen, each had its part: the first minutes of a history must
                // not turn the shares over.
                let unseen = (self.lasting_use(node.parent) - used).max(0);
                let past = of(&past, id).saturating_add(even(unseen));
                aged_weight(node.weight, past, even(used.saturating_add(unseen)))
            })
            .collect()
    }
}

impl World<'_> {
    /// What a queue's children would have used in all, faded, if they had always used what they do
    /// now: thousandths of a GPU times seconds.
    fn lasting_use(&self, queue: QueueId) -> i64 {
        let children = &self.tree.node(queue).children;
        let pools = 0..self.tree.pools();
        let uses = pools.flat_map(|pool| children.iter().map(move |c| self.used(pool, *c)));
        let milli = crate::sched::queue::to_milli_gpu(uses.fold(0, i64::saturating_add));
        // One half-life over the logarithm of two.
        let secs = self.state.config.half_life_secs.saturating_mul(1_443) / 1_000;
        milli.saturating_mul(secs)
    }
}

impl Round<'_> {
    pub(in crate::sched) fn go(&mut self) {
        self.bind_held();
        let waiting = self.world.waiting.iter().copied();
        let mut lines = Lines::new(&self.world, &self.shares, waiting);
        while let Some(unit) = lines.next().cloned() {
            if self.placed >= self.state.config.max_placements {
                self.plan.more = true;
                break;
            }
            let queue = self.world.job(unit.job).map_or(QueueId(0), |j| j.queue);
            let left = self.left;
            match self.try_start(&unit) {
                Ok(()) => lines.refresh(&self.world, &self.shares, queue),
                Err(reason) => {
                    self.all_wait(&unit, &reason);
                    lines.drop_first(&self.world, &self.shares, queue);
                    if self.left > left {
                        lines.refresh_all(&self.world, &self.shares);
                    }
                }
            }
        }
    }

    /// All pods of the job that wait are told the reason; each its own when it is one of surplus.
    fn all_wait(&mut self, unit: &Unit, reason: &Reason) {
        let pods = self
            .world
            .job(unit.job)
            .map_or(Vec::new(), |j| j.pods.clone());
        let told = unit.pods.first().map(|p| self.world.shape_of(*p));
        for id in pods {
            let Some(row) = self.world.pod(id) else {
                continue;
            };
            if !row.waiting {
                continue;
            }
            let (pod, shape) = (row.pod.clone(), row.shape);
            let own = unit.surplus && Some(shape) != told;
            let class = self.world.shapes.get(shape.0).and_then(|s| s.waiting);
            match class.filter(|_| own) {
                Some(class) => {
                    let reason = self.scratch.reason(class);
                    self.wait(&pod, &reason);
                }
                None => self.wait(&pod, reason),
            }
        }
    }

    /// Jobs whose place is held: bound there, or anywhere else, as soon as that is free.
    fn bind_held(&mut self) {
        if self.state.holds.all().next().is_none() {
            return;
        }
        let mut rows: BTreeSet<RowId> = BTreeSet::new();
        for id in self.world.waiting.clone() {
            let pods = self.held_pods(id);
            if pods.is_empty() {
                continue;
            }
            let spots = self.world.places_of(&pods);
            // The rest of a gang may still have to come back.
            let whole = self.world.job(id).is_some_and(|j| j.placed >= j.min);
            let free = whole.then(|| self.free_now(&pods, &spots)).flatten();
            match free {
                Some(places) => self.begin(places),
                None => {
                    rows.extend(spots.iter().map(|(_, s)| s.row));
                    let reason = self.held(&pods);
                    for pod in pods.iter().filter_map(|p| self.pod(*p)).collect::<Vec<_>>() {
                        self.wait(&pod, &reason);
                    }
                }
            }
        }
        // What is held for jobs that are not here counts as well.
        for (_, places) in self.state.holds.all() {
            rows.extend(
                places
                    .iter()
                    .filter_map(|h| self.state.rows.id(&h.place.node)),
            );
        }
        for row in rows {
            self.cap(row);
        }
    }

    /// Nothing starts on a row now that would stand in the way of what is held there.
    pub(super) fn cap(&mut self, row: RowId) {
        if let Some(later) = self.world.slot(row) {
            self.scratch.cap(row, later);
        }
    }

    pub(super) fn held_pods(&self, id: JobId) -> Vec<PodId> {
        let pods = self.world.job(id).map_or(&[][..], |j| &j.pods);
        let held = |p: &PodId| {
            self.world
                .pod(*p)
                .is_some_and(|p| p.waiting && p.spot.is_some())
        };
        pods.iter().copied().filter(held).collect()
    }

    /// The held places of a job when nobody is on them any more who still has to leave.
    fn free_now(&mut self, pods: &[PodId], spots: &[(PodId, Spot)]) -> Option<Vec<Placed>> {
        let mark = self.world.mark();
        for pod in pods {
            self.world.lift(*pod);
        }
        let tries = self.scratch.mark();
        let mut places = Vec::with_capacity(spots.len());
        for (pod, spot) in spots {
            let Some(held) = self.take_if_free(*pod, spot.row) else {
                self.scratch.undo(tries);
                self.world.undo(mark);
                return None;
            };
            let spot = Spot {
                row: spot.row,
                held,
            };
            self.world.put(*pod, spot);
            places.push((*pod, spot, "the place that was held for it".into()));
        }
        Some(places)
    }

    /// Takes a place on a row that is free both now and later.
    fn take_if_free(&mut self, pod: PodId, row: RowId) -> Option<crate::sched::slot::Held> {
        let shape = self.world.shape_of(pod);
        self.world.look(shape);
        let known = self.world.row(row)?;
        let mut slot = self.scratch.slot(row)?.clone();
        slot.cap(self.world.slot(row)?);
        if !self.world.fits_in(shape, row, known, &slot) {
            return None;
        }
        let class: Arc<_> = self.world.class(shape)?.clone();
        let prices = self.state.rules().slices;
        let held = slot.assign(&class.ask, &known.gpus, None, prices);
        self.scratch.take_here(&class, row, held);
        Some(held)
    }

    /// Starts a unit, or tells why not.
    fn try_start(&mut self, unit: &Unit) -> Result<(), Reason> {
        if unit.pods.len() < unit.need {
            let job = self.world.job(unit.job);
            let (min, placed) = job.map_or((0, 0), |j| (j.min, j.placed));
            let able = u32::try_from(unit.pods.len()).unwrap_or(u32::MAX);
            return Err(Reason::GangIncomplete {
                have: placed.saturating_add(able),
                need: min,
            });
        }
        let mut why = None;
        for pool in self.world.pools_of_job(unit.job) {
            match self.world.admits(unit, pool) {
                Ok(()) => match self.start_in(unit, pool) {
                    Ok(()) => return Ok(()),
                    Err(reason) => {
                        if self.displace(unit, pool) {
                            return Err(self.held(&self.held_pods(unit.job)));
                        }
                        self.reserve(unit, pool);
                        why = Some(reason);
                    }
                },
                Err(denied) => {
                    let over_limit = matches!(denied, Denied::Limit { .. });
                    if over_limit && self.displace_within(unit, pool) {
                        return Err(self.held(&self.held_pods(unit.job)));
                    }
                    let reason = self.denied(&denied);
                    why.get_or_insert(reason);
                }
            }
        }
        Err(why.unwrap_or(Reason::NoNodeFits {
            nodes: 0,
            filters: Box::default(),
        }))
    }

    fn start_in(&mut self, unit: &Unit, pool: usize) -> Result<(), Reason> {
        let places = self.place_now(unit, pool)?;
        self.begin(places);
        Ok(())
    }

    pub(in crate::sched) fn signature(&self, unit: &Unit, pool: usize) -> Option<Failed> {
        let job = self.world.job(unit.job)?;
        // Where its other pods are counts, and they do not move for it.
        if job.placed > 0 && (job.wish != Wish::default() || !unit.surplus) {
            return None;
        }
        let mut shapes: Vec<ShapeId> = unit.pods.iter().map(|p| self.world.shape_of(*p)).collect();
        shapes.sort_unstable();
        Some((shapes, unit.need, job.wish, pool, !unit.surplus))
    }
}
