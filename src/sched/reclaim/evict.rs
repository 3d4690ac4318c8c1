//! The smallest set of victims with which a newcomer starts, proven before anybody leaves.
//!
//! Node by node: the cheapest set that makes room for one more pod, then the cheapest nodes until
//! all pods have a place. Whoever can be given back with the newcomer still placed is given back,
//! the dearest first.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::claim::{Claimant, Grade};
use super::victim::{Price, Victim};
use crate::sched::queue::{Parts, QueueId};
use crate::sched::turn::{JobId, PodId, Ratio, Search, Spot, World};
use crate::sched::view::RowId;

/// A proven eviction: who leaves, and where the newcomer goes.
#[derive(Clone, Debug)]
pub(in crate::sched) struct Eviction {
    pub(in crate::sched) victims: Vec<Victim>,
    pub(in crate::sched) placed: Vec<(PodId, Spot)>,
    cost: Cost,
}

/// What a set of victims costs: each part the worst or the sum of all.
type Cost = (Grade, Reverse<Ratio>, i32, bool, i64, usize);

/// Victims that are given back by placing the newcomer anew, at most.
const MOST_GIVEN_BACK: usize = 64;
/// Searches for one set of nodes, at most: each leaves out a victim of one before it.
const MOST_HUNTS: usize = 24;
/// Nodes that turn out dearer than they were before one is taken all the same, at most.
const MOST_RETRIES: usize = 64;
/// Victims of one node that are looked at, at most.
const MOST_ON_NODE: usize = 64;

fn cost_of(prices: &[Price]) -> Option<Cost> {
    let grade = prices.iter().map(|p| p.0).max()?;
    let excess = prices.iter().map(|p| p.1).max()?;
    let priority = prices.iter().map(|p| p.2).max()?;
    let whole = prices.iter().any(|p| p.3);
    let loss = prices.iter().map(|p| p.4).fold(0, i64::saturating_add);
    Some((grade, excess, priority, whole, loss, prices.len()))
}

/// One search for victims.
struct Hunt<'a> {
    claimant: &'a Claimant<'a>,
    search: &'a Search<'a>,
    shares: &'a [Parts],
    /// Jobs that are left alone.
    spared: BTreeSet<JobId>,
    victims: Vec<(Victim, Price)>,
}

impl World<'_> {
    /// Finds victims with which the unit starts; the picture is left as it was.
    pub(in crate::sched) fn find_victims(
        &mut self,
        claimant: &Claimant<'_>,
        search: &Search<'_>,
        shares: &[Parts],
    ) -> Option<Eviction> {
        let mut best: Option<Eviction> = None;
        for nodes in self.widest_sets(search) {
            self.hunt(claimant, search, shares, &nodes, &mut best);
        }
        best
    }

    /// The cheapest comes first, and may stand in the way of what is needed beside it, or do less
    /// for its price than another: so each victim that was found is left out once.
    fn hunt(
        &mut self,
        claimant: &Claimant<'_>,
        search: &Search<'_>,
        shares: &[Parts],
        nodes: &[RowId],
        best: &mut Option<Eviction>,
    ) {
        let mut tried: BTreeSet<BTreeSet<JobId>> = BTreeSet::new();
        let mut open: VecDeque<BTreeSet<JobId>> = VecDeque::from([BTreeSet::new()]);
        while let Some(spared) = open.pop_front() {
            if tried.len() >= MOST_HUNTS {
                return;
            }
            if !tried.insert(spared.clone()) {
                continue;
            }
            let mark = self.mark();
            let mut hunt = Hunt {
                claimant,
                search,
                shares,
                spared,
                victims: Vec::new(),
            };
            let found = hunt.run(self, nodes);
            let victims = std::mem::take(&mut hunt.victims);
            // In a large set one victim more or less decides nothing.
            if victims.len() <= MOST_HUNTS {
                for (victim, _) in &victims {
                    let mut next = hunt.spared.clone();
                    next.insert(victim.job);
                    open.push_back(next);
                }
            }
            if found && !victims.is_empty() {
                let prices: Vec<Price> = victims.iter().map(|(_, p)| *p).collect();
                if let Some(cost) = cost_of(&prices)
                    && best.as_ref().is_none_or(|b| cost < b.cost)
                {
                    *best = Some(Eviction {
                        victims: victims.into_iter().map(|(v, _)| v).collect(),
                        placed: self.places_of(search.pods),
                        cost,
                    });
                }
            }
            self.undo(mark);
        }
    }

    /// The places that these pods have.
    pub(in crate::sched) fn places_of(&self, pods: &[PodId]) -> Vec<(PodId, Spot)> {
        pods.iter()
            .filter_map(|p| Some((*p, self.pod(*p)?.spot?)))
            .collect()
    }

    /// Lets the cheapest rightful victim of the cluster go.
    pub(super) fn cheapest_of_all(
        &mut self,
        claimant: &Claimant<'_>,
        shares: &[Parts],
    ) -> Option<Victim> {
        let all: Vec<RowId> = self.rows().collect();
        let (price, job, pods) = self
            .jobs_on(&all)
            .iter()
            .filter_map(|(job, here)| {
                let pods = self.next_of(*job, here)?;
                let price = self.price(claimant, shares, *job, &pods)?;
                Some((price, *job, pods))
            })
            .min_by_key(|(price, job, _)| (*price, *job))?;
        Some(self.let_go(job, &pods, price.0))
    }

    /// Whether a queue is this one or below it.
    fn is_below(&self, queue: QueueId, above: QueueId) -> bool {
        self.tree.up(queue).any(|q| q == above)
    }
}

impl Hunt<'_> {
    fn run(&mut self, world: &mut World<'_>, nodes: &[RowId]) -> bool {
        if !self.obey_limits(world) {
            return false;
        }
        if !self.make_room(world, nodes) {
            return false;
        }
        self.give_back(world, nodes);
        self.holds(world)
    }

    /// The cheapest next victim among these jobs.
    fn cheapest(
        &self,
        world: &World<'_>,
        jobs: &[(JobId, Vec<PodId>)],
    ) -> Option<(Price, JobId, Vec<PodId>)> {
        jobs.iter()
            .filter(|(job, _)| !self.spared.contains(job))
            .filter_map(|(job, here)| {
                let pods = world.next_of(*job, here)?;
                let price = world.price(self.claimant, self.shares, *job, &pods)?;
                Some((price, *job, pods))
            })
            .min_by_key(|(price, job, _)| (*price, *job))
    }

    /// A queue at its limit makes room within it first.
    fn obey_limits(&mut self, world: &mut World<'_>) -> bool {
        let pool = self.claimant.pool;
        let queues: Vec<QueueId> = world.tree.up(self.claimant.queue).collect();
        let all: Vec<RowId> = world.rows().collect();
        for queue in queues {
            let Some(limit) = world.tree.node(queue).due(pool).limit else {
                continue;
            };
            if self.claimant.unit.parts > limit {
                return false;
            }
            let mut jobs = Vec::new();
            while world.used(pool, queue) + self.claimant.unit.parts > limit {
                if jobs.is_empty() {
                    jobs = world.jobs_on(&all);
                    jobs.retain(|(job, _)| {
                        world
                            .job(*job)
                            .is_some_and(|j| world.is_below(j.queue, queue))
                    });
                }
                let Some((price, job, pods)) = self.cheapest(world, &jobs) else {
                    return false;
                };
                let victim = world.let_go(job, &pods, price.0);
                self.victims.push((victim, price));
            }
        }
        true
    }

    fn make_room(&mut self, world: &mut World<'_>, nodes: &[RowId]) -> bool {
        let mut pods = self.search.pods.to_vec();
        let all = pods.len() == self.search.need;
        // All have to start: the largest first; only some: the smallest are the easiest.
        pods.sort_by_key(|p| world.class(world.shape_of(*p)).map(|c| c.size()));
        if all {
            pods.reverse();
        }
        let mut need = self.search.need;
        let mut at = 0;
        while need > 0 {
            let Some(first) = pods.get(at).copied() else {
                return false;
            };
            let shape = world.shape_of(first);
            let alike = pods
                .iter()
                .skip(at)
                .take_while(|p| world.shape_of(**p) == shape)
                .count();
            let group = pods
                .get(at..at + alike.min(need))
                .unwrap_or_default()
                .to_vec();
            at += alike;
            let done = world.fill_all(&group, nodes);
            let left = group.get(done..).unwrap_or_default();
            let more = self.clear_nodes(world, left, nodes);
            need -= done + more;
        }
        true
    }

    /// Clears the cheapest nodes, one for each pod; tells how many got a place.
    fn clear_nodes(&mut self, world: &mut World<'_>, pods: &[PodId], nodes: &[RowId]) -> usize {
        let Some(first) = pods.first().copied() else {
            return 0;
        };
        let mut heap: BinaryHeap<Reverse<(Cost, u32, RowId)>> = nodes
            .iter()
            .filter_map(|n| {
                let cost = self.price_of_node(world, first, *n)?;
                Some(Reverse((cost, world.rank(*n), *n)))
            })
            .collect();
        let mut done = 0;
        for pod in pods {
            let mut retries = 0;
            let victims = loop {
                let Some(Reverse((before, rank, node))) = heap.pop() else {
                    return done;
                };
                // What was found before may have changed since; it only gets dearer.
                let mark = world.mark();
                let Some((cost, victims)) = self.clear_node(world, *pod, node) else {
                    continue;
                };
                retries += 1;
                let still_best = cost <= before
                    || retries > MOST_RETRIES
                    || heap.peek().is_none_or(|Reverse((next, ..))| cost <= *next);
                if still_best {
                    break (victims, node);
                }
                world.undo(mark);
                heap.push(Reverse((cost, rank, node)));
            };
            let (victims, node) = victims;
            self.victims.extend(victims);
            if let Some(spot) = world.spot_on(*pod, node) {
                world.put(*pod, spot);
                done += 1;
            }
            if let Some(price) = self.price_of_node(world, *pod, node) {
                heap.push(Reverse((price, world.rank(node), node)));
            }
        }
        done
    }

    fn price_of_node(&self, world: &mut World<'_>, pod: PodId, node: RowId) -> Option<Cost> {
        let mark = world.mark();
        let found = self.clear_node(world, pod, node);
        world.undo(mark);
        found.map(|(cost, _)| cost)
    }

    /// Lets go of the cheapest on one node until the pod fits, then gives back whoever is not
    /// needed. The picture keeps the change when it is found.
    fn clear_node(
        &self,
        world: &mut World<'_>,
        pod: PodId,
        node: RowId,
    ) -> Option<(Cost, Vec<(Victim, Price)>)> {
        if !world.lets_in(world.shape_of(pod), node) {
            return None;
        }
        let mut victims: Vec<(Victim, Price)> = Vec::new();
        let mark = world.mark();
        if world.spot_on(pod, node).is_some() {
            let free = (
                Grade::Guarantee,
                Reverse(Ratio::new(1, 0)),
                i32::MIN,
                false,
                0,
                0,
            );
            return Some((free, victims));
        }
        if !self.let_go_until(world, pod, node, &mut victims) {
            world.undo(mark);
            return None;
        }
        let mut kept = Vec::with_capacity(victims.len());
        while let Some((victim, price)) = victims.pop() {
            let mark = world.mark();
            if world.take_back(&victim)
                && world.is_whole(victim.job)
                && world.spot_on(pod, node).is_some()
                && self.rightful(world, kept.iter().chain(&victims))
            {
                continue;
            }
            world.undo(mark);
            kept.push((victim, price));
        }
        let prices: Vec<Price> = kept.iter().map(|(_, p)| *p).collect();
        let cost = cost_of(&prices)?;
        Some((cost, kept))
    }

    /// Lets the jobs of a node go in their order until the pod fits.
    fn let_go_until(
        &self,
        world: &mut World<'_>,
        pod: PodId,
        node: RowId,
        victims: &mut Vec<(Victim, Price)>,
    ) -> bool {
        let jobs = world.jobs_on(&[node]);
        loop {
            let mut order: Vec<(Price, usize)> = Vec::with_capacity(jobs.len());
            for (at, (job, here)) in jobs.iter().enumerate() {
                if self.spared.contains(job) {
                    continue;
                }
                if let Some(pods) = world.next_of(*job, here)
                    && let Some(price) = world.price(self.claimant, self.shares, *job, &pods)
                {
                    order.push((price, at));
                }
            }
            order.sort_unstable();
            let before = victims.len();
            for (_, at) in order {
                let Some((job, here)) = jobs.get(at) else {
                    continue;
                };
                // The right may have gone with those who went before.
                let Some(pods) = world.next_of(*job, here) else {
                    continue;
                };
                let Some(price) = world.price(self.claimant, self.shares, *job, &pods) else {
                    continue;
                };
                let victim = world.let_go(*job, &pods, price.0);
                victims.push((victim, price));
                if world.spot_on(pod, node).is_some() {
                    return true;
                }
            }
            if victims.len() == before || victims.len() >= MOST_ON_NODE {
                return false;
            }
        }
    }

    /// The newcomer's side of every right that was used still holds.
    fn rightful<'v>(
        &self,
        world: &World<'_>,
        victims: impl Iterator<Item = &'v (Victim, Price)>,
    ) -> bool {
        let pool = self.claimant.pool;
        victims
            .filter(|(v, _)| matches!(v.grade, Grade::Guarantee | Grade::Share | Grade::Straddles))
            .all(|(victim, _)| {
                let Some(job) = world.job(victim.job) else {
                    return false;
                };
                let Some((mine, _)) = world.tree.part(self.claimant.queue, job.queue) else {
                    return true;
                };
                let after = world.used(pool, mine) + world.missing(self.claimant.unit);
                let due = if victim.grade == Grade::Share {
                    let shares = self.claimant.shares.unwrap_or_default();
                    shares.get(mine.0).copied().unwrap_or(0)
                } else {
                    world.tree.node(mine).due(pool).guaranteed
                };
                after <= due
            })
    }

    /// Gives back, the dearest first, whoever is not needed when the newcomer is placed anew.
    fn give_back(&mut self, world: &mut World<'_>, nodes: &[RowId]) {
        let few = self.victims.len() <= MOST_GIVEN_BACK;
        let mut order: Vec<usize> = (0..self.victims.len()).collect();
        order.sort_by_key(|at| Reverse(self.victims.get(*at).map(|(_, p)| *p)));
        let mut needed = vec![true; self.victims.len()];
        for at in order {
            let Some((victim, _)) = self.victims.get(at) else {
                continue;
            };
            let mark = world.mark();
            if self.without(world, victim, nodes, few) {
                let others = self
                    .victims
                    .iter()
                    .zip(&needed)
                    .enumerate()
                    .filter(|(other, (_, needed))| *other != at && **needed)
                    .map(|(_, (v, _))| v);
                if self.rightful(world, others)
                    && self.within_limits(world)
                    && world.is_whole(victim.job)
                {
                    if let Some(flag) = needed.get_mut(at) {
                        *flag = false;
                    }
                    continue;
                }
            }
            world.undo(mark);
        }
        let mut flags = needed.into_iter();
        self.victims.retain(|_| flags.next().unwrap_or(true));
    }

    /// The newcomer still has a place with this victim back.
    fn without(&self, world: &mut World<'_>, victim: &Victim, nodes: &[RowId], few: bool) -> bool {
        if world.take_back(victim) {
            return true;
        }
        // Of many victims each was needed for its own node.
        if !few {
            return false;
        }
        for pod in self.search.pods {
            world.lift(*pod);
        }
        world.take_back(victim) && world.place_in(self.search, nodes)
    }

    fn within_limits(&self, world: &World<'_>) -> bool {
        let pool = self.claimant.pool;
        let missing = world.missing(self.claimant.unit);
        world.tree.up(self.claimant.queue).all(|queue| {
            let limit = world.tree.node(queue).due(pool).limit;
            limit.is_none_or(|l| world.used(pool, queue) + missing <= l)
        })
    }

    fn holds(&self, world: &World<'_>) -> bool {
        let placed = self.search.pods.iter();
        let placed = placed
            .filter(|p| world.pod(**p).is_some_and(|p| p.spot.is_some()))
            .count();
        placed >= self.search.need
            && self.within_limits(world)
            && self.rightful(world, self.victims.iter())
    }
}
