//! Moves: running work goes elsewhere so that a blocked job starts, and nobody loses a place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::claim::Claimant;
use super::victim::Victim;
use crate::sched::queue::Parts;
use crate::sched::turn::{JobId, Openings, PodId, Search, Spot, World};
use crate::sched::view::RowId;

/// A proven set of moves.
#[derive(Clone, Debug)]
pub(in crate::sched) struct Moves {
    /// Who leaves for good beside them.
    pub(in crate::sched) victims: Vec<Victim>,
    /// Pods that move, with their old and new places.
    pub(in crate::sched) moved: Vec<(PodId, Spot, Spot)>,
    /// Where the newcomer goes.
    pub(in crate::sched) placed: Vec<(PodId, Spot)>,
    /// GPU-milliseconds of work that the moves cost.
    cost: i64,
}

/// Nodes that are tried as the first to be cleared.
const MOST_STARTS: usize = 64;
/// Nodes on which those that move are placed anew in all tries together, at most, unless a few
/// tries do.
const MOST_PLACED: usize = 16_384;
/// Nodes that are tried to be cleared in one round, all searches together, at most: jobs that start
/// as they are do not wait for those that would need moves.
const MOST_CLEARED: usize = 1_024;
/// Pods that are moved for one job, at most.
const MOST_MOVED: usize = 64;

/// Running jobs among which both victims and moves are looked for, at most.
const MOST_RUNNING: usize = 512;

/// What clearing a node costs, the cheapest first: loss, pods, and the order among equals.
type Prices = Vec<(i64, usize, u32, RowId)>;

/// Why a try ended without moves.
enum Failed {
    /// Too few nodes can be cleared: leaving out some of them helps nobody.
    Nowhere,
    /// Those that would move have no other place.
    Homeless,
}

/// Pods that left their place for the newcomer: job, pods and old places.
type Lifted = BTreeMap<PodId, (JobId, Spot)>;

impl World<'_> {
    /// Finds moves with which the pods start; the picture is left as it was.
    pub(in crate::sched) fn find_moves(&mut self, search: &Search<'_>) -> Option<Moves> {
        let mut best: Option<Moves> = None;
        if self.cleared >= MOST_CLEARED || !self.could_hold(search) {
            return None;
        }
        self.look_at(search.pods);
        for nodes in self.widest_sets(search) {
            let near = self.nearest_to_free(search, &nodes);
            let starts = (MOST_PLACED / nodes.len().max(1)).clamp(4, MOST_STARTS);
            let mut openings = Openings::new(&nodes, self.slots_len());
            let mut prices = None;
            for skipped in 0..starts.min(near.len()) {
                let mark = self.mark();
                let found = self.try_moves(search, (&mut openings, &near), skipped, &mut prices);
                self.undo(mark);
                match found {
                    Ok(found) => {
                        if best.as_ref().is_none_or(|b| found.cost < b.cost) {
                            best = Some(found);
                        }
                        break;
                    }
                    Err(Failed::Homeless) => {}
                    Err(Failed::Nowhere) => break,
                }
            }
        }
        best
    }

    /// Victims that leave as much free as the newcomer asks, and moves that bring it together.
    pub(in crate::sched) fn find_victims_and_moves(
        &mut self,
        claimant: &Claimant<'_>,
        search: &Search<'_>,
        shares: &[Parts],
    ) -> Option<Moves> {
        let mark = self.mark();
        let mut victims = Vec::new();
        let mut found = None;
        let queues = self.prospects(claimant).queues;
        let running: usize = queues.iter().map(|q| self.running(*q).len()).sum();
        // All pairs of sets are not worth the time of all others.
        if running > MOST_RUNNING {
            return None;
        }
        // To compare so many takes as long as to clear a node.
        let effort = 1 + running / 8;
        let mut admitted = 0_usize;
        while victims.len() < MOST_MOVED && self.cleared < MOST_CLEARED {
            self.cleared += effort;
            let Some(victim) = self.cheapest_of_all(claimant, shares) else {
                break;
            };
            victims.push(victim);
            if self.admits(claimant.unit, claimant.pool).is_err() {
                continue;
            }
            // One more of many victims changes little.
            admitted += 1;
            if admitted > 4 && !admitted.is_power_of_two() {
                continue;
            }
            found = self.find_moves(search);
            if found.is_some() {
                break;
            }
        }
        self.undo(mark);
        let mut found = found?;
        found.victims = victims;
        Some(found)
    }

    /// The nodes of which least has to be cleared for one more pod.
    fn nearest_to_free(&self, search: &Search<'_>, nodes: &[RowId]) -> Vec<RowId> {
        if nodes.len() <= MOST_STARTS {
            return nodes.to_vec();
        }
        let shapes: BTreeSet<_> = search.pods.iter().map(|p| self.shape_of(*p)).collect();
        let lets_in = |row: &&RowId| shapes.iter().any(|shape| self.lets_in(*shape, **row));
        let mut near: Vec<(Reverse<i64>, u32, RowId)> = nodes
            .iter()
            .filter(lets_in)
            .map(|row| (Reverse(self.free_milli(*row)), self.rank(*row), *row))
            .collect();
        if near.len() > MOST_STARTS {
            near.select_nth_unstable(MOST_STARTS);
            near.truncate(MOST_STARTS);
        }
        near.sort_unstable();
        near.into_iter().map(|(.., row)| row).collect()
    }

    /// The cluster has as many devices free as are asked.
    fn could_hold(&self, search: &Search<'_>) -> bool {
        let asked: i64 = search
            .pods
            .iter()
            .take(search.need)
            .map(|p| self.parts(*p))
            .sum();
        let free: i64 = self
            .rows()
            .filter(|row| self.is_in(*row, search.pool))
            .map(|row| self.free_milli(row))
            .sum();
        crate::sched::queue::of_milli_gpu(free.saturating_add(1)) >= asked || asked == 0
    }

    /// A gang that has lost pods would not be bound again, for it is too few.
    fn may_move(&self, job: JobId) -> bool {
        let Some(row) = self.job(job).filter(|row| row.is_movable()) else {
            return false;
        };
        if row.min <= 1 {
            return true;
        }
        let ran = |p: &&PodId| self.pod(**p).is_some_and(|p| !p.waiting);
        let ran = row.pods.iter().filter(ran).count();
        u32::try_from(ran).is_ok_and(|ran| ran >= row.min)
    }

    /// One try, in which the `skipped` cheapest nodes to begin with are left out.
    fn try_moves(
        &mut self,
        search: &Search<'_>,
        (openings, near): (&mut Openings<'_>, &[RowId]),
        skipped: usize,
        prices: &mut Option<Prices>,
    ) -> Result<Moves, Failed> {
        let mut lifted: Lifted = BTreeMap::new();
        let mut pods = search.pods.to_vec();
        pods.sort_by_key(|p| Reverse(self.class(self.shape_of(*p)).map(|c| c.size())));
        let mut heap: BinaryHeap<Reverse<(i64, usize, u32, RowId)>> = BinaryHeap::new();
        let mut shape = None;
        let mut first = true;
        let mut left = search.need;
        for pod in pods {
            if left == 0 {
                break;
            }
            if let Some(spot) = openings.fullest(self, pod) {
                self.put(pod, spot);
                left -= 1;
                continue;
            }
            if shape != Some(self.shape_of(pod)) {
                shape = Some(self.shape_of(pod));
                // All tries come to their first pod without room by the same way.
                heap = match prices {
                    Some(known) if first => {
                        known.iter().skip(skipped).map(|p| Reverse(*p)).collect()
                    }
                    _ => {
                        let mut new = self.prices(search.job, pod, near);
                        new.sort_unstable();
                        if first {
                            *prices = Some(new.clone());
                        }
                        new.into_iter().map(Reverse).collect()
                    }
                };
                first = false;
            }
            let spot = loop {
                let Reverse((.., node)) = heap.pop().ok_or(Failed::Nowhere)?;
                self.cleared += 1;
                let mark = self.mark();
                if let Some(list) = self.clear_by_moving(search.job, pod, node)
                    && let Some(spot) = self.spot_on(pod, node)
                {
                    lifted.extend(list);
                    break spot;
                }
                self.undo(mark);
            };
            self.put(pod, spot);
            left -= 1;
            if lifted.len() > MOST_MOVED {
                return Err(Failed::Homeless);
            }
        }
        if left > 0 {
            return Err(Failed::Nowhere);
        }
        self.place_again(search, lifted).ok_or(Failed::Homeless)
    }

    /// What it costs to clear each of these nodes for a pod, as far as the round allows.
    fn prices(&mut self, job: JobId, pod: PodId, near: &[RowId]) -> Prices {
        let mut prices = Prices::new();
        if self.movable == 0 {
            return prices;
        }
        for node in near {
            if self.cleared >= MOST_CLEARED {
                break;
            }
            self.cleared += 1;
            if let Some((cost, pods)) = self.price_of_clearing(job, pod, *node) {
                prices.push((cost, pods, self.rank(*node), *node));
            }
        }
        prices
    }

    fn price_of_clearing(&mut self, job: JobId, pod: PodId, node: RowId) -> Option<(i64, usize)> {
        let mark = self.mark();
        let list = self.clear_by_moving(job, pod, node);
        let price = list.map(|list| {
            let pods: Vec<PodId> = list.iter().map(|(p, _)| *p).collect();
            (self.loss_of(&list), pods.len())
        });
        self.undo(mark);
        price
    }

    fn loss_of(&self, list: &[(PodId, (JobId, Spot))]) -> i64 {
        let pods: Vec<PodId> = list.iter().map(|(p, _)| *p).collect();
        self.loss(&pods)
    }

    /// Lifts the smallest movable pods of a node until the pod fits there, and puts those back
    /// that are not in its way.
    fn clear_by_moving(
        &mut self,
        newcomer: JobId,
        pod: PodId,
        node: RowId,
    ) -> Option<Vec<(PodId, (JobId, Spot))>> {
        if !self.lets_in(self.shape_of(pod), node) {
            return None;
        }
        let mut here: Vec<(i64, PodId, JobId)> = self
            .jobs_on(&[node])
            .into_iter()
            .filter(|(job, _)| self.may_move(*job) && *job != newcomer)
            .flat_map(|(job, pods)| pods.into_iter().map(move |p| (job, p)))
            .filter(|(_, p)| !self.is_protected(*p))
            .filter(|(_, p)| {
                let at = self.pod(*p).and_then(|p| p.spot);
                at.is_some_and(|s| s.row == node)
            })
            .map(|(job, p)| (self.parts(p), p, job))
            .collect();
        here.sort_unstable();
        let mark = self.mark();
        let mut lifted: Vec<(PodId, (JobId, Spot))> = Vec::new();
        for (_, id, job) in here {
            if self.spot_on(pod, node).is_some() {
                break;
            }
            if let Some(spot) = self.pod(id).and_then(|p| p.spot)
                && self.may_leave(&[id])
            {
                self.send_off(id);
                lifted.push((id, (job, spot)));
            }
        }
        if self.spot_on(pod, node).is_none() {
            self.undo(mark);
            return None;
        }
        let mut kept = Vec::with_capacity(lifted.len());
        while let Some((id, (job, spot))) = lifted.pop() {
            let mark = self.mark();
            self.put(id, spot);
            self.stays(id);
            if self.spot_on(pod, node).is_some() {
                continue;
            }
            self.undo(mark);
            kept.push((id, (job, spot)));
        }
        Some(kept)
    }

    /// A gang that would be left below its minimum starts anew as a whole.
    fn lift_broken(&mut self, lifted: &mut Lifted) -> Option<BTreeSet<JobId>> {
        let jobs: BTreeSet<JobId> = lifted.values().map(|(job, _)| *job).collect();
        let broken: BTreeSet<JobId> = jobs.into_iter().filter(|j| !self.is_whole(*j)).collect();
        for id in &broken {
            let pods = self.job(*id)?.pods.clone();
            for pod in pods {
                let row = self.pod(pod)?;
                let Some(spot) = row.spot.filter(|_| !row.waiting) else {
                    continue;
                };
                if self.is_protected(pod) || !self.may_leave(&[pod]) {
                    return None;
                }
                self.send_off(pod);
                lifted.insert(pod, (*id, spot));
            }
        }
        Some(broken)
    }

    /// Gives everybody that was lifted a place again, the largest first.
    fn place_again(&mut self, search: &Search<'_>, mut lifted: Lifted) -> Option<Moves> {
        let restarted = self.lift_broken(&mut lifted)?;
        let mut jobs: BTreeMap<JobId, Vec<PodId>> = BTreeMap::new();
        for (pod, (job, _)) in &lifted {
            jobs.entry(*job).or_default().push(*pod);
        }
        let mut order: Vec<(Reverse<i64>, JobId, Vec<PodId>)> = jobs
            .into_iter()
            .map(|(job, pods)| {
                let most = pods.iter().map(|p| self.parts(*p)).max().unwrap_or(0);
                (Reverse(most), job, pods)
            })
            .collect();
        order.sort();
        for (_, job, pods) in &order {
            let again = Search {
                job: *job,
                pods,
                need: pods.len(),
                pool: search.pool,
            };
            if !self.place(&again) {
                return None;
            }
        }
        let moved: Vec<(PodId, Spot, Spot)> = lifted
            .iter()
            .filter_map(|(pod, (job, old))| {
                let new = self.pod(*pod)?.spot?;
                let leaves = new != *old || restarted.contains(job);
                leaves.then_some((*pod, *old, new))
            })
            .collect();
        let pods: Vec<PodId> = moved.iter().map(|(p, _, _)| *p).collect();
        Some(Moves {
            victims: Vec::new(),
            cost: self.loss(&pods),
            moved,
            placed: self.places_of(search.pods),
        })
    }
}
