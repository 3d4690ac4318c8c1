//! One round: whose turn it is starts, waits for a place that becomes free, lets others move or
//! leave, or is told why not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::gang::Search;
use super::order::{Lines, Unit};
use super::shape::ShapeId;
use super::world::{JobId, PodId, Spot, World};
use crate::model::Reason;
use crate::sched::decide::{Placed, Round};
use crate::sched::filters::{Verdict, judge};
use crate::sched::queue::{Parts, QueueId, aged_weight};
use crate::sched::reclaim::{Claimant, Denied, Moves, Victim};
use crate::sched::topology::Wish;
use crate::sched::view::RowId;

/// A start that was tried and failed: nothing has become free since, so it fails again.
pub(in crate::sched) type Failed = (Vec<ShapeId>, usize, Wish, usize);
/// The same with queue, priority and right to preempt: no victims were found either.
pub(in crate::sched) type Hopeless = (QueueId, i32, bool, Failed);

impl World<'_> {
    /// What each queue is due in each pool, by what runs and what waits.
    pub(in crate::sched) fn all_shares(&mut self, waiting: &[JobId]) -> Vec<Vec<Parts>> {
        let weights = self.weights();
        (0..self.tree.pools())
            .map(|pool| {
                let mut demand = vec![0; self.tree.len()];
                for (at, job) in self.jobs.iter().enumerate() {
                    let id = JobId(at);
                    let waits = waiting.binary_search(&id).is_ok();
                    let here = waits && self.pool_of_job(id) == pool;
                    let parts: Parts = job
                        .pods
                        .iter()
                        .filter_map(|pod| Some((*pod, self.pod(*pod)?)))
                        .filter(|(_, row)| match row.spot {
                            Some(spot) => self.pool(spot.row) == pool,
                            None => here && row.waiting,
                        })
                        .map(|(pod, _)| self.parts(pod))
                        .sum();
                    if let Some(sum) = demand.get_mut(job.queue.0) {
                        *sum += parts;
                    }
                }
                let capacity = self.capacity.get(pool).copied().unwrap_or(0);
                self.tree.shares(pool, capacity, &demand, |q| {
                    weights.get(q.0).copied().unwrap_or(0)
                })
            })
            .collect()
    }

    /// The weight of each queue by what it has used: less for who used more than its part of what
    /// its siblings and it used together.
    fn weights(&mut self) -> Vec<i64> {
        let state = self.state;
        let mut past = vec![0_i64; self.tree.len()];
        for (namespace, used) in state.past() {
            let Ok(queue) = self.tree.of_namespace(namespace) else {
                continue;
            };
            past.resize(self.tree.len(), 0);
            for at in self.tree.up(queue) {
                if let Some(sum) = past.get_mut(at.0) {
                    *sum = sum.saturating_add(used);
                }
            }
        }
        self.widen();
        let of = |list: &[i64], id: QueueId| list.get(id.0).copied().unwrap_or(0);
        (0..self.tree.len())
            .map(|at| {
                let id = QueueId(at);
                let node = self.tree.node(id);
                let siblings = &self.tree.node(node.parent).children;
                let (mut used, mut weights) = (0_i64, 0_i64);
                for sibling in siblings {
                    used = used.saturating_add(of(&past, *sibling));
                    weights = weights.saturating_add(self.tree.node(*sibling).weight);
                }
                let due = i128::from(used) * i128::from(node.weight) / i128::from(weights.max(1));
                let due = i64::try_from(due).unwrap_or(i64::MAX);
                aged_weight(node.weight, of(&past, id), due)
            })
            .collect()
    }
}

impl Round<'_> {
    pub(in crate::sched) fn go(&mut self, waiting: &[JobId]) {
        for job in waiting {
            self.look(*job);
        }
        self.bind_held(waiting);
        let mut lines = Lines::new(&self.world, waiting.iter().copied());
        while let Some(unit) = lines.next(&self.world, &self.shares) {
            if self.placed >= self.state.config.max_placements {
                self.plan.more = true;
                break;
            }
            let queue = self.world.job(unit.job).map_or(QueueId(0), |j| j.queue);
            let evictions = self.evictions.len();
            match self.try_start(&unit) {
                Ok(()) => lines.refresh(&self.world, queue),
                Err(reason) => {
                    self.all_wait(&unit, &reason);
                    lines.drop_first(&self.world, queue);
                    if self.evictions.len() > evictions {
                        lines.refresh_all(&self.world);
                    }
                }
            }
        }
    }

    fn look(&mut self, job: JobId) {
        let pods = self.world.job(job).map_or(Vec::new(), |j| j.pods.clone());
        let shapes: BTreeSet<ShapeId> = pods.iter().map(|p| self.world.shape_of(*p)).collect();
        for shape in shapes {
            self.world.look(shape);
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
    fn bind_held(&mut self, waiting: &[JobId]) {
        let mut rows: BTreeSet<RowId> = BTreeSet::new();
        for id in waiting {
            let pods = self.held_pods(*id);
            if pods.is_empty() {
                continue;
            }
            let spots = self.world.places_of(&pods);
            match self.free_now(&pods, &spots) {
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
    fn cap(&mut self, row: RowId) {
        if let Some(later) = self.world.slot(row) {
            self.scratch.cap(row, later);
        }
    }

    fn held_pods(&self, id: JobId) -> Vec<PodId> {
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
        let shape = self.world.shapes.get(self.world.shape_of(pod).0)?;
        let known = self.world.row(row)?;
        let mut slot = self.scratch.slot(row)?.clone();
        slot.cap(self.world.slot(row)?);
        let class: Arc<_> = shape.class.clone();
        if judge(&class, *shape.fixed.get(row.0)?, known, &slot) != Verdict::Fits {
            return None;
        }
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

    fn signature(&self, unit: &Unit, pool: usize) -> Option<Failed> {
        let job = self.world.job(unit.job)?;
        if job.placed > 0 && job.wish != Wish::default() {
            return None;
        }
        let mut shapes: Vec<ShapeId> = unit.pods.iter().map(|p| self.world.shape_of(*p)).collect();
        shapes.sort_unstable();
        Some((shapes, unit.need, job.wish, pool))
    }

    /// Places that become free, then moves, then victims.
    fn displace(&mut self, unit: &Unit, pool: usize) -> bool {
        let signature = self.signature(unit, pool);
        let job = self.world.job(unit.job);
        let rights = job.map(|j| (j.queue, j.priority, j.may_preempt && !unit.surplus));
        let known = match (&signature, rights) {
            (Some(s), Some((queue, priority, may))) => Some((queue, priority, may, s.clone())),
            _ => None,
        };
        if known.as_ref().is_some_and(|k| self.hopeless.contains(k)) {
            return false;
        }
        let seen = signature.as_ref().is_some_and(|s| self.failed.contains(s));
        let done = (!seen && self.leaving && self.wait_for_room(unit, pool))
            || (!seen && self.state.config.moves && !unit.surplus && self.move_others(unit, pool))
            || self.displace_within(unit, pool);
        if !done {
            self.failed.extend(signature);
            self.hopeless.extend(known);
        }
        done
    }

    fn search<'u>(unit: &'u Unit, pool: usize) -> Search<'u> {
        Search {
            job: unit.job,
            pods: &unit.pods,
            need: unit.need,
            pool,
        }
    }

    fn wait_for_room(&mut self, unit: &Unit, pool: usize) -> bool {
        if !self.world.place(&Self::search(unit, pool)) {
            return false;
        }
        let places = self.world.places_of(&unit.pods);
        self.hold(unit.job, &places);
        true
    }

    /// The job's places, which the picture has, are held from now on.
    fn hold(&mut self, job: JobId, places: &[(PodId, Spot)]) {
        self.world.settle();
        let rows: BTreeSet<RowId> = places.iter().map(|(_, s)| s.row).collect();
        for row in rows {
            self.cap(row);
        }
        self.keep(job, places);
        self.leaving = true;
        self.failed.clear();
        self.hopeless.clear();
    }

    fn move_others(&mut self, unit: &Unit, pool: usize) -> bool {
        for job in 0..self.world.jobs.len() {
            self.look(JobId(job));
        }
        let Some(found) = self.world.find_moves(&Self::search(unit, pool)) else {
            return false;
        };
        self.carry_out(unit.job, &found);
        true
    }

    fn carry_out(&mut self, for_job: JobId, found: &Moves) {
        self.evict(for_job, &found.victims);
        let mut by_job: BTreeMap<JobId, Vec<(PodId, Spot)>> = BTreeMap::new();
        for (pod, old, new) in &found.moved {
            self.world.lift(*pod);
            self.leave(*pod, *old, for_job, None);
            let job = self.world.pod(*pod).map_or(for_job, |p| p.job);
            by_job.entry(job).or_default().push((*pod, *new));
        }
        for (pod, spot) in found.placed.iter().chain(by_job.values().flatten()) {
            self.world.put(*pod, *spot);
        }
        self.hold(for_job, &found.placed);
        for (job, places) in by_job {
            self.hold(job, &places);
        }
    }

    fn displace_within(&mut self, unit: &Unit, pool: usize) -> bool {
        let Some(job) = self.world.job(unit.job).cloned() else {
            return false;
        };
        if unit.surplus || !job.may_preempt || !self.state.config.preemption {
            return false;
        }
        let shares = self.shares.get(pool).cloned().unwrap_or_default();
        let search = Self::search(unit, pool);
        let mut claimant = Claimant {
            unit,
            queue: job.queue,
            priority: job.priority,
            pool,
            shares: self.state.config.fair_reclaim.then_some(&shares[..]),
            straddling: false,
        };
        let mut found = self.world.find_victims(&claimant, &search, &shares);
        if found.is_none() && self.state.config.moves {
            let moves = self
                .world
                .find_victims_and_moves(&claimant, &search, &shares);
            if let Some(moves) = moves {
                self.carry_out(unit.job, &moves);
                return true;
            }
        }
        if found.is_none() {
            claimant.straddling = true;
            found = self.world.find_victims(&claimant, &search, &shares);
        }
        let Some(found) = found else {
            return false;
        };
        self.evict(unit.job, &found.victims);
        for (pod, spot) in &found.placed {
            self.world.put(*pod, *spot);
        }
        self.hold(unit.job, &found.placed);
        true
    }

    fn evict(&mut self, for_job: JobId, victims: &[Victim]) {
        for victim in victims {
            for (pod, spot) in &victim.pods {
                self.world.lift(*pod);
                self.leave(*pod, *spot, for_job, Some(victim.grade));
            }
        }
    }
}
