//! Clearing nodes: the cheapest set that makes room for one more pod on a node, then the cheapest
//! nodes until all pods have a place.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::evict::Hunt;
use super::piles::{NodeCost, PileKey, Piled, Piles, Rank};
use super::victim::{Price, Victim};
use crate::sched::queue::QueueId;
use crate::sched::slot::Held;
use crate::sched::turn::{JobId, PodId, Ratio, ShapeId, World};
use crate::sched::view::RowId;

/// Nodes that turn out dearer than they seemed before one is taken all the same, at most.
const MOST_RETRIES: usize = 64;
/// Victims of one node that are looked at, at most.
const MOST_ON_NODE: usize = 64;

/// Kinds of claimants whose nodes are kept in one round, at most.
const MOST_KEPT: usize = 32;
/// Nodes that are tried one by one where rights come about as victims leave, at most.
const MOST_GROWN: usize = 256;

/// Of many nodes only those with most room stay.
fn keep_nearest(world: &World<'_>, within: &mut [bool]) {
    let mut rows: Vec<(Reverse<i64>, u32, usize)> = (0..within.len())
        .filter(|at| within.get(*at) == Some(&true))
        .map(|at| {
            (
                Reverse(world.free_milli(RowId(at))),
                world.rank(RowId(at)),
                at,
            )
        })
        .collect();
    rows.sort_unstable();
    for (.., at) in rows.into_iter().skip(MOST_GROWN) {
        if let Some(flag) = within.get_mut(at) {
            *flag = false;
        }
    }
}

/// What leaves a node together: its price, and what it holds there.
type Item = (Price, Vec<(ShapeId, Held)>);

/// What a node costs beside others, by how far the queues were above their shares before.
fn rank_of(cost: &NodeCost, before: &Rank, levels: &[(QueueId, Ratio)]) -> Rank {
    let level = levels.iter().find(|(queue, _)| *queue == cost.payer);
    let excess = level.map_or(before.1, |(_, ratio)| Reverse(*ratio));
    (cost.grade, excess, cost.rest, before.3)
}

impl Hunt<'_> {
    /// Clears the cheapest nodes, one for each pod; tells how many got a place.
    pub(super) fn clear_nodes(&mut self, world: &mut World<'_>, pods: &[PodId]) -> usize {
        let Some(first) = pods.first().copied() else {
            return 0;
        };
        let mut piled = self.pile_up(world, first);
        self.rows = self.rows.max(piled.rows);
        let mut freed: BTreeSet<(u32, RowId)> = BTreeSet::new();
        let mut done = 0;
        for pod in pods {
            // Nodes that got room beside the one that was cleared.
            let spot = freed.iter().find_map(|(_, row)| world.spot_on(*pod, *row));
            if let Some(spot) = spot {
                world.put(*pod, spot);
                done += 1;
                continue;
            }
            freed.clear();
            let Some((node, victims)) = self.cheapest_node(world, &mut piled.piles, *pod) else {
                break;
            };
            let Some(spot) = world.spot_on(*pod, node) else {
                break;
            };
            world.put(*pod, spot);
            done += 1;
            let left = victims.iter().flat_map(|(v, _)| &v.pods);
            let mut touched: BTreeSet<RowId> = left.map(|(_, spot)| spot.row).collect();
            touched.insert(node);
            self.victims.extend(victims);
            for row in touched {
                if !piled.is_within(row) {
                    continue;
                }
                if world.spot_on(*pod, row).is_some() {
                    freed.insert((world.rank(row), row));
                } else {
                    let cost = self.cost(world, *pod, row);
                    piled.piles.try_out(row, cost, world.rank(row));
                }
            }
        }
        piled.piles.roll_back(world);
        if !self.grounds.prospects.grow && self.spared.is_empty() {
            if world.piled.len() >= MOST_KEPT {
                world.piled.clear();
            }
            world.piled.insert(self.key_of(world, first), piled);
        }
        done
    }

    fn key_of(&self, world: &World<'_>, pod: PodId) -> PileKey {
        PileKey {
            queue: self.claimant.queue,
            priority: self.claimant.priority,
            pool: self.claimant.pool,
            straddling: self.claimant.straddling,
            shape: world.shape_of(pod),
            set: self.grounds.set,
        }
    }

    /// The nodes that may be cleared by what they cost now: those of a claimant before that was
    /// alike, brought up to date, or new ones.
    fn pile_up(&self, world: &mut World<'_>, pod: PodId) -> Piled {
        let key = self.key_of(world, pod);
        let payers = &self.grounds.prospects.queues;
        let known = world.piled.get(&key).filter(|k| k.payers == *payers);
        let within = known.map(|k| k.within.clone());
        if self.spared.is_empty()
            && !self.grounds.prospects.grow
            && within.is_some()
            && let Some(mut piled) = world.piled.remove(&key)
        {
            let news = world.journal.get(piled.at..).unwrap_or_default();
            let news: BTreeSet<RowId> = news.iter().copied().collect();
            for row in news {
                if piled.is_within(row) {
                    let cost = self.cost(world, pod, row);
                    piled.piles.set(row, cost, world.rank(row));
                }
            }
            piled.at = world.journal.len();
            return piled;
        }
        let within = within.unwrap_or_else(|| {
            let find = || world.rows_to_clear(self.claimant, self.grounds.prospects);
            let marks = self.grounds.marks.get_or_init(find);
            let mut within = vec![false; marks.len()];
            for row in self.grounds.nodes {
                if let (Some(flag), Some(mark)) = (within.get_mut(row.0), marks.get(row.0)) {
                    *flag = *mark;
                }
            }
            if self.grounds.prospects.grow {
                keep_nearest(world, &mut within);
            }
            within
        });
        let mut piled = Piled {
            piles: Piles::default(),
            rows: within.iter().filter(|w| **w).count(),
            within,
            payers: payers.clone(),
            at: 0,
        };
        for at in 0..piled.within.len() {
            let row = RowId(at);
            if piled.is_within(row) {
                let cost = self.cost(world, pod, row);
                piled.piles.set(row, cost, world.rank(row));
            }
        }
        piled.at = world.journal.len();
        piled
    }

    fn cost(&self, world: &mut World<'_>, pod: PodId, node: RowId) -> Option<NodeCost> {
        world.priced += 1;
        if !self.grounds.prospects.grow {
            return self.estimate(world, pod, node);
        }
        let mark = world.mark();
        let victims = self.clear_node(world, pod, node);
        world.undo(mark);
        let prices: Vec<Price> = victims?.iter().map(|(_, p)| *p).collect();
        world.node_cost(self.claimant, &prices)
    }

    /// The cheapest node, cleared. What was estimated may have changed or may not hold.
    fn cheapest_node(
        &self,
        world: &mut World<'_>,
        piles: &mut Piles,
        pod: PodId,
    ) -> Option<(RowId, Vec<(Victim, Price)>)> {
        let pool = self.claimant.pool;
        let mut retries = 0;
        loop {
            let (before, node) = piles.pop(world, pool, self.shares)?;
            let next = piles.least(world, pool, self.shares);
            let levels = piles.levels(world, pool, self.shares);
            // What nobody pays for any more, or only at a higher price, is not tried in full.
            if !self.grounds.prospects.grow {
                let Some(cost) = self.estimate(world, pod, node) else {
                    continue;
                };
                let now = rank_of(&cost, &before, &levels);
                if now > before && retries < MOST_RETRIES && next.is_some_and(|n| now > n) {
                    retries += 1;
                    piles.try_out(node, Some(cost), before.3);
                    continue;
                }
            }
            let mark = world.mark();
            let Some(victims) = self.clear_node(world, pod, node) else {
                continue;
            };
            let prices: Vec<Price> = victims.iter().map(|(_, p)| *p).collect();
            let Some(cost) = world.node_cost(self.claimant, &prices) else {
                return Some((node, victims));
            };
            let now = rank_of(&cost, &before, &levels);
            retries += 1;
            if now <= before || retries > MOST_RETRIES || next.is_none_or(|next| now <= next) {
                return Some((node, victims));
            }
            world.undo(mark);
            piles.try_out(node, Some(cost), before.3);
        }
    }

    /// What clearing a node for a pod costs, as far as that can be told without trying it.
    fn estimate(&self, world: &World<'_>, pod: PodId, node: RowId) -> Option<NodeCost> {
        let shape = world.shape_of(pod);
        if !world.lets_in(shape, node) {
            return None;
        }
        let known = world.row(node)?;
        let mut slot = world.slot(node)?.clone();
        let mut items = self.items(world, node);
        items.sort_by_key(|(price, _)| *price);
        let ask = |of: ShapeId| world.class(of).map(|class| &class.ask);
        let mut taken = 0;
        while !world.fits_in(shape, node, known, &slot) {
            let (_, holds) = items.get(taken)?;
            taken += 1;
            for (of, held) in holds {
                slot.give(ask(*of)?, *held);
            }
        }
        let mut kept: Vec<Price> = Vec::with_capacity(taken);
        for (price, holds) in items.get(..taken)?.iter().rev() {
            for (of, held) in holds {
                slot.take(ask(*of)?, *held);
            }
            if taken > 1 && world.fits_in(shape, node, known, &slot) {
                continue;
            }
            for (of, held) in holds {
                slot.give(ask(*of)?, *held);
            }
            kept.push(*price);
        }
        world.node_cost(self.claimant, &kept)
    }

    /// What may leave a node, each by its own.
    fn items(&self, world: &World<'_>, node: RowId) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        for (job, here) in world.jobs_on(&[node]) {
            if self.spared.contains(&job) {
                continue;
            }
            let Some(row) = world.job(job) else { continue };
            let holds = |pods: &[PodId]| -> Vec<(ShapeId, Held)> {
                pods.iter()
                    .filter_map(|p| {
                        let row = world.pod(*p)?;
                        let spot = row.spot.filter(|s| s.row == node)?;
                        Some((row.shape, spot.held))
                    })
                    .collect()
            };
            let surplus = row.placed.saturating_sub(row.min);
            let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
            if surplus == 0 {
                if let Some(pods) = world.next_of(job, &here)
                    && let Some(price) = world.price(self.claimant, self.shares, job, &pods)
                {
                    items.push((price, holds(&here)));
                }
                continue;
            }
            let mut spare: Vec<PodId> = here.clone();
            spare.retain(|p| !world.is_protected(*p) && world.may_leave(&[*p]));
            spare.sort_by_key(|p| (world.loss(&[*p]), Reverse(*p)));
            for pod in spare.iter().take(surplus) {
                if let Some(price) = world.price(self.claimant, self.shares, job, &[*pod]) {
                    items.push((price, holds(&[*pod])));
                }
            }
            // The rest leaves with all others, wherever they are.
            if spare.len() > surplus
                && let Some(price) = world.price(self.claimant, self.shares, job, &row.pods)
            {
                items.push((price, holds(spare.get(surplus..).unwrap_or_default())));
            }
        }
        items
    }

    /// Lets go of the cheapest on one node until the pod fits, then gives back whoever is not
    /// needed. The picture keeps the change when it is found.
    fn clear_node(
        &self,
        world: &mut World<'_>,
        pod: PodId,
        node: RowId,
    ) -> Option<Vec<(Victim, Price)>> {
        if !world.lets_in(world.shape_of(pod), node) {
            return None;
        }
        let mut victims: Vec<(Victim, Price)> = Vec::new();
        let mark = world.mark();
        if world.spot_on(pod, node).is_some() {
            return Some(victims);
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
        Some(kept)
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
                if let Some((price, _)) = self.next_price(world, *job, here) {
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
                let Some((price, pods)) = self.next_price(world, *job, here) else {
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

    fn next_price(
        &self,
        world: &World<'_>,
        job: JobId,
        here: &[PodId],
    ) -> Option<(Price, Vec<PodId>)> {
        if self.spared.contains(&job) {
            return None;
        }
        let pods = world.next_of(job, here)?;
        let price = world.price(self.claimant, self.shares, job, &pods)?;
        Some((price, pods))
    }
}
