//! Nodes by what it costs to clear them, the cheapest first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::claim::{Claimant, Grade};
use super::victim::Price;
use crate::sched::queue::{Parts, QueueId};
use crate::sched::turn::{Ratio, ShapeId, World};
use crate::sched::view::RowId;

/// What clearing a node costs beside the right and the queue that pays: priority, whole jobs,
/// loss and number of victims.
pub(super) type Rest = (i32, bool, i64, usize);

/// What clearing a node costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeCost {
    pub(super) grade: Grade,
    /// The queue that is least above its share among those that pay.
    pub(super) payer: QueueId,
    pub(super) rest: Rest,
}

/// A node with the rest of its cost.
type Entry = Reverse<(Rest, u32, RowId)>;

/// What decides between piles and nodes.
pub(super) type Rank = (Grade, Reverse<Ratio>, Rest, u32);

/// The nodes by right and by the queue that pays: as victims leave it is not so far above its
/// share any more, which is one change for the pile and none for its nodes.
#[derive(Default)]
pub(super) struct Piles {
    piles: BTreeMap<(Grade, QueueId), BinaryHeap<Entry>>,
    /// By row what it costs; an entry of a pile that says another is out of date.
    costs: Vec<Option<NodeCost>>,
    /// What rows cost before this search.
    trail: Vec<(RowId, Option<NodeCost>)>,
}

impl Piles {
    /// Says what a node costs from now on, in all searches.
    pub(super) fn set(&mut self, row: RowId, cost: Option<NodeCost>, rank: u32) {
        if row.0 >= self.costs.len() {
            self.costs.resize(row.0 + 1, None);
        }
        if let Some(slot) = self.costs.get_mut(row.0) {
            *slot = cost;
        }
        if let Some(cost) = cost {
            let pile = self.piles.entry((cost.grade, cost.payer)).or_default();
            pile.push(Reverse((cost.rest, rank, row)));
        }
    }

    /// The same in this search only.
    pub(super) fn try_out(&mut self, row: RowId, cost: Option<NodeCost>, rank: u32) {
        let before = self.costs.get(row.0).copied().flatten();
        self.trail.push((row, before));
        self.set(row, cost, rank);
    }

    /// The search is over: all costs are as they were.
    pub(super) fn roll_back(&mut self, world: &World<'_>) {
        while let Some((row, before)) = self.trail.pop() {
            self.set(row, before, world.rank(row));
        }
    }

    /// What the cheapest node costs now.
    pub(super) fn least(
        &mut self,
        world: &World<'_>,
        pool: usize,
        shares: &[Parts],
    ) -> Option<Rank> {
        self.best(world, pool, shares).map(|(_, rank)| rank)
    }

    fn best(
        &mut self,
        world: &World<'_>,
        pool: usize,
        shares: &[Parts],
    ) -> Option<((Grade, QueueId), Rank)> {
        let costs = &self.costs;
        let mut best: Option<((Grade, QueueId), Rank)> = None;
        for (key, pile) in &mut self.piles {
            let right = |entry: &(Rest, u32, RowId)| {
                let cost = costs.get(entry.2.0).copied().flatten();
                cost.is_some_and(|c| (c.grade, c.payer, c.rest) == (key.0, key.1, entry.0))
            };
            while pile.peek().is_some_and(|Reverse(top)| !right(top)) {
                pile.pop();
            }
            let Some(Reverse((rest, rank, _))) = pile.peek() else {
                continue;
            };
            let excess = Reverse(world.excess_of(key.1, pool, shares));
            let rank = (key.0, excess, *rest, *rank);
            if best.is_none_or(|(_, least)| rank < least) {
                best = Some((*key, rank));
            }
        }
        best
    }

    /// Takes the cheapest node, for this search.
    pub(super) fn pop(
        &mut self,
        world: &World<'_>,
        pool: usize,
        shares: &[Parts],
    ) -> Option<(Rank, RowId)> {
        let (key, rank) = self.best(world, pool, shares)?;
        let Reverse((_, order, row)) = self.piles.get_mut(&key)?.pop()?;
        self.try_out(row, None, order);
        Some((rank, row))
    }

    /// How far the queues that pay are above their shares now.
    pub(super) fn levels(
        &self,
        world: &World<'_>,
        pool: usize,
        shares: &[Parts],
    ) -> Vec<(QueueId, Ratio)> {
        let queues = self.piles.keys().map(|(_, queue)| *queue);
        queues
            .map(|q| (q, world.excess_of(q, pool, shares)))
            .collect()
    }
}

/// Who asks: claimants that are alike find the same nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::sched) struct PileKey {
    pub(super) queue: QueueId,
    pub(super) priority: i32,
    pub(super) pool: usize,
    pub(super) straddling: bool,
    pub(super) shape: ShapeId,
    /// Which of the sets of nodes within which it may go.
    pub(super) set: usize,
}

/// Nodes that may be cleared for those who are alike, in one round.
pub(in crate::sched) struct Piled {
    pub(super) piles: Piles,
    /// Rows with somebody who may leave; by row.
    pub(super) within: Vec<bool>,
    /// How many these are.
    pub(super) rows: usize,
    /// Queues that may pay.
    pub(super) payers: Vec<QueueId>,
    /// The point in the picture's journal that the costs are right for.
    pub(super) at: usize,
}

impl Piled {
    /// Somebody may leave this row.
    pub(super) fn is_within(&self, row: RowId) -> bool {
        self.within.get(row.0).copied().unwrap_or(false)
    }
}

impl World<'_> {
    /// How far a queue is above its share.
    pub(super) fn excess_of(&self, queue: QueueId, pool: usize, shares: &[Parts]) -> Ratio {
        let share = shares.get(queue.0).copied().unwrap_or(0);
        Ratio::new(self.used(pool, queue), share)
    }

    /// What victims at these prices cost together, and who pays.
    pub(super) fn node_cost(&self, claimant: &Claimant<'_>, prices: &[Price]) -> Option<NodeCost> {
        let worst = prices.iter().max_by_key(|p| (p.1, p.5))?;
        let payer = self.job(worst.5.0).map(|j| j.queue)?;
        let payer = self
            .tree
            .part(claimant.queue, payer)
            .map_or(payer, |(_, theirs)| theirs);
        let priority = prices.iter().map(|p| p.2).max()?;
        let whole = prices.iter().any(|p| p.3);
        let loss = prices.iter().map(|p| p.4).fold(0, i64::saturating_add);
        Some(NodeCost {
            grade: prices.iter().map(|p| p.0).max()?,
            payer,
            rest: (priority, whole, loss, prices.len()),
        })
    }
}
