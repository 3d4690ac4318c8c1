//! The smallest set of victims with which a newcomer starts, proven before anybody leaves.
//!
//! Node by node: the cheapest set that makes room for one more pod, then the cheapest nodes until
//! all pods have a place. Whoever can be given back with the newcomer still placed is given back,
//! the dearest first.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use super::claim::{Claimant, Grade};
use super::prospect::Prospects;
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
/// Nodes to clear that all searches of one set look at, at most, unless one search does.
const MOST_HUNTED: usize = 1_024;
/// Nodes that are priced in one round, at most, beside all nodes once: who comes then is looked
/// at in the next.
const MOST_PRICED: usize = 8_192;
/// Jobs among which the cheapest is looked for anew after each victim, at most.
const MOST_COMPARED: usize = 512;

fn cost_of(prices: &[Price]) -> Option<Cost> {
    let grade = prices.iter().map(|p| p.0).max()?;
    let excess = prices.iter().map(|p| p.1).max()?;
    let priority = prices.iter().map(|p| p.2).max()?;
    let whole = prices.iter().any(|p| p.3);
    let loss = prices.iter().map(|p| p.4).fold(0, i64::saturating_add);
    Some((grade, excess, priority, whole, loss, prices.len()))
}

/// Where victims are looked for.
#[derive(Clone, Copy)]
pub(super) struct Grounds<'a> {
    /// Nodes within which the newcomer goes.
    pub(super) nodes: &'a [RowId],
    /// Which of the sets of nodes they are.
    pub(super) set: usize,
    /// Queues that may pay.
    pub(super) prospects: &'a Prospects,
    /// Rows with somebody who may leave, by row, once they were asked for.
    pub(super) marks: &'a OnceCell<Vec<bool>>,
}

/// One search for victims.
pub(super) struct Hunt<'a> {
    pub(super) claimant: &'a Claimant<'a>,
    search: &'a Search<'a>,
    pub(super) shares: &'a [Parts],
    pub(super) grounds: Grounds<'a>,
    /// Jobs that are left alone.
    pub(super) spared: BTreeSet<JobId>,
    /// Nodes that were looked at.
    pub(super) rows: usize,
    pub(super) victims: Vec<(Victim, Price)>,
}

impl World<'_> {
    /// Finds victims with which the unit starts; the picture is left as it was.
    pub(in crate::sched) fn find_victims(
        &mut self,
        claimant: &Claimant<'_>,
        search: &Search<'_>,
        shares: &[Parts],
    ) -> Option<Eviction> {
        let prospects = self.prospects(claimant);
        if prospects.queues.is_empty() {
            return None;
        }
        if self.priced >= MOST_PRICED + self.slots_len() {
            self.exhausted = true;
            return None;
        }
        self.look_at(search.pods);
        let strict = Prospects {
            grow: false,
            ..prospects.clone()
        };
        let found = self.hunt_all(claimant, search, shares, &strict);
        if found.is_some() || !prospects.grow {
            return found;
        }
        self.hunt_all(claimant, search, shares, &prospects)
    }

    fn hunt_all(
        &mut self,
        claimant: &Claimant<'_>,
        search: &Search<'_>,
        shares: &[Parts],
        prospects: &Prospects,
    ) -> Option<Eviction> {
        let mut best: Option<Eviction> = None;
        let marks = OnceCell::new();
        for (set, nodes) in self.widest_sets(search).into_iter().enumerate() {
            let grounds = Grounds {
                nodes: &nodes,
                set,
                prospects,
                marks: &marks,
            };
            self.hunt(claimant, search, shares, grounds, &mut best);
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
        grounds: Grounds<'_>,
        best: &mut Option<Eviction>,
    ) {
        let mut most = MOST_HUNTS;
        let mut tried: BTreeSet<BTreeSet<JobId>> = BTreeSet::new();
        let mut open: VecDeque<BTreeSet<JobId>> = VecDeque::from([BTreeSet::new()]);
        while let Some(spared) = open.pop_front() {
            if tried.len() >= most {
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
                grounds,
                spared,
                rows: 0,
                victims: Vec::new(),
            };
            let found = hunt.run(self);
            let victims = std::mem::take(&mut hunt.victims);
            most = most.min((MOST_HUNTED / hunt.rows.max(1)).max(1));
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
        let prospects = self.prospects(claimant);
        let (price, job, pods) = prospects
            .queues
            .iter()
            .flat_map(|queue| self.running(*queue))
            .filter_map(|job| {
                let pods = self.next_of(*job, &self.job(*job)?.pods)?;
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
    fn run(&mut self, world: &mut World<'_>) -> bool {
        if !self.obey_limits(world) {
            return false;
        }
        if !self.make_room(world) {
            return false;
        }
        self.give_back(world);
        self.holds(world)
    }

    /// The cheapest next victim among these jobs.
    fn cheapest(&self, world: &World<'_>, jobs: &[JobId]) -> Option<(Price, JobId, Vec<PodId>)> {
        let priced = jobs.iter().filter_map(|job| self.price_of(world, *job));
        priced.min_by_key(|(price, job, _)| (*price, *job))
    }

    fn price_of(&self, world: &World<'_>, job: JobId) -> Option<(Price, JobId, Vec<PodId>)> {
        if self.spared.contains(&job) {
            return None;
        }
        let pods = world.next_of(job, &world.job(job)?.pods)?;
        let price = world.price(self.claimant, self.shares, job, &pods)?;
        Some((price, job, pods))
    }

    /// A queue at its limit makes room within it first.
    fn obey_limits(&mut self, world: &mut World<'_>) -> bool {
        let pool = self.claimant.pool;
        let queues: Vec<QueueId> = world.tree.up(self.claimant.queue).collect();
        for queue in queues {
            let Some(limit) = world.tree.node(queue).due(pool).limit else {
                continue;
            };
            if self.claimant.unit.parts > limit {
                return false;
            }
            let over = |world: &World<'_>| {
                world.used(pool, queue) + world.missing(self.claimant.unit) > limit
            };
            if !over(world) {
                continue;
            }
            let below = (0..world.tree.len()).map(QueueId);
            let jobs: Vec<JobId> = below
                .filter(|q| world.is_below(*q, queue))
                .flat_map(|q| world.running(q).iter().copied())
                .collect();
            // Of many, their first order does.
            let mut order: Vec<(Price, JobId)> = Vec::new();
            if jobs.len() > MOST_COMPARED {
                let priced = jobs.iter().filter_map(|job| self.price_of(world, *job));
                order.extend(priced.map(|(price, job, _)| (price, job)));
                order.sort_unstable_by(|a, b| b.cmp(a));
            }
            while over(world) {
                let next = if jobs.len() > MOST_COMPARED {
                    match order.last().map(|(_, job)| self.price_of(world, *job)) {
                        Some(None) => {
                            order.pop();
                            continue;
                        }
                        next => next.flatten(),
                    }
                } else {
                    self.cheapest(world, &jobs)
                };
                let Some((price, job, pods)) = next else {
                    return false;
                };
                let victim = world.let_go(job, &pods, price.0);
                self.victims.push((victim, price));
            }
        }
        true
    }

    fn make_room(&mut self, world: &mut World<'_>) -> bool {
        let nodes = self.grounds.nodes;
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
            let more = self.clear_nodes(world, left);
            need -= done + more;
        }
        true
    }

    /// The newcomer's side of every right that was used still holds.
    pub(super) fn rightful<'v>(
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
    fn give_back(&mut self, world: &mut World<'_>) {
        let few = self.victims.len() <= MOST_GIVEN_BACK;
        let mut order: Vec<usize> = (0..self.victims.len()).collect();
        order.sort_by_key(|at| Reverse(self.victims.get(*at).map(|(_, p)| *p)));
        let mut needed = vec![true; self.victims.len()];
        for at in order {
            let Some((victim, _)) = self.victims.get(at) else {
                continue;
            };
            let mark = world.mark();
            if self.without(world, victim, few) {
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
    fn without(&self, world: &mut World<'_>, victim: &Victim, few: bool) -> bool {
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
        world.take_back(victim) && world.place_in(self.search, self.grounds.nodes)
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
