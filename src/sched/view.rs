//! What the filters say of each node for one class and what it would cost there, kept up to date
//! node by node.

use std::collections::BTreeMap;

use super::class::Class;
use super::copies::copies;
use super::fabric::{DomainId, Fabric};
use super::filters::{FixedVerdict, Row, Verdict, Volumes, judge, judge_node};
use super::overlay::Overlay;
use super::place::Pricing;
use super::score::score;
use super::slices::SlicePrices;
use super::slot::Slot;
use crate::model::FilterCount;

/// A node's row. Rows keep their number while the node is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RowId(pub(super) usize);

/// Pods of one owner that are kept apart: how many each row has.
pub(super) type Siblings = BTreeMap<RowId, u32>;

/// Rows whose best is remembered together.
const BLOCK: usize = 64;
/// The key of a row that does not fit.
const NEVER: u64 = u64::MAX;

/// What all classes are judged by.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    /// Prices.
    pub(super) pricing: &'a Pricing,
    /// Prices of MIG slices.
    pub(super) slices: &'a SlicePrices,
    /// Only checkpointed pods go to spot nodes.
    pub(super) spot_needs_checkpoint: bool,
    /// By row: its place in the order of nodes, which decides among equals.
    pub(super) ranks: &'a [u32],
    /// Where the nodes stand, and the version of that.
    pub(super) fabric: (&'a Fabric, u64),
}

impl Rules<'_> {
    /// Keys of other prices are out of date.
    fn price_version(&self) -> (u64, u64) {
        (self.pricing.version(), self.slices.version())
    }
}

/// The verdicts of one class, one for each row.
#[derive(Clone)]
pub(super) struct View {
    pub(super) volumes: Volumes,
    fixed: Vec<FixedVerdict>,
    verdicts: Vec<Verdict>,
    keys: Vec<u64>,
    fits: u32,
    /// The best row of each block; the second field says that it is not known.
    blocks: Vec<(Option<RowId>, bool)>,
    /// Version of the prices that the keys are for.
    pricing: (u64, u64),
    /// Made when a gang asks for it.
    counts: Option<Counts>,
}

/// How many pods of the class there is room for.
#[derive(Clone)]
struct Counts {
    /// By row.
    rows: Vec<u16>,
    /// By domain of the fabric.
    domains: Vec<u32>,
    cluster: u32,
    /// Version of the fabric.
    fabric: u64,
}

impl Counts {
    fn set(&mut self, id: RowId, room: u16, fabric: &Fabric) {
        if id.0 >= self.rows.len() {
            self.rows.resize(id.0 + 1, 0);
        }
        let Some(slot) = self.rows.get_mut(id.0) else {
            return;
        };
        let before = std::mem::replace(slot, room);
        if before == room {
            return;
        }
        // The sum holds what is taken away, so this never goes below zero.
        let change = |sum: &mut u32| *sum = (*sum - u32::from(before)) + u32::from(room);
        change(&mut self.cluster);
        for domain in fabric.of_row(id) {
            if let Some(sum) = self.domains.get_mut(domain.0 as usize) {
                change(sum);
            }
        }
    }
}

impl View {
    /// Bytes that a row costs.
    pub(super) const BYTES_A_ROW: usize = 24;

    /// Asks the filters about every row.
    pub(super) fn build(
        class: &Class,
        volumes: Volumes,
        rules: Rules<'_>,
        rows: &[Row],
        slots: &[Slot],
    ) -> Self {
        let mut view = Self {
            volumes,
            fixed: vec![FixedVerdict::no(Verdict::Absent); rows.len()],
            verdicts: vec![Verdict::Absent; rows.len()],
            keys: vec![NEVER; rows.len()],
            fits: 0,
            blocks: vec![(None, true); rows.len().div_ceil(BLOCK)],
            pricing: rules.price_version(),
            counts: None,
        };
        for (i, (row, slot)) in rows.iter().zip(slots).enumerate() {
            view.update_node(class, rules, RowId(i), row, slot);
        }
        view
    }

    /// The node has changed: asks all filters again.
    pub(super) fn update_node(
        &mut self,
        class: &Class,
        rules: Rules<'_>,
        id: RowId,
        row: &Row,
        slot: &Slot,
    ) {
        if id.0 >= self.keys.len() {
            let rows = id.0 + 1;
            self.fixed.resize(rows, FixedVerdict::no(Verdict::Absent));
            self.verdicts.resize(rows, Verdict::Absent);
            self.keys.resize(rows, NEVER);
            self.blocks.resize(rows.div_ceil(BLOCK), (None, true));
        }
        if let Some(fixed) = self.fixed.get_mut(id.0) {
            *fixed = judge_node(class, &self.volumes, row, rules.spot_needs_checkpoint);
        }
        self.update(class, rules, id, row, slot);
    }

    /// What the node has left has changed.
    pub(super) fn update(
        &mut self,
        class: &Class,
        rules: Rules<'_>,
        id: RowId,
        row: &Row,
        slot: &Slot,
    ) {
        let (Some(fixed), Some(verdict), Some(key)) = (
            self.fixed.get(id.0),
            self.verdicts.get_mut(id.0),
            self.keys.get_mut(id.0),
        ) else {
            return;
        };
        let now = judge(class, *fixed, row, slot);
        let before = std::mem::replace(verdict, now);
        if let Some(counts) = &mut self.counts
            && (before == Verdict::Fits || now == Verdict::Fits)
        {
            let room = match now {
                Verdict::Fits => copies(class, row, slot),
                _ => 0,
            };
            counts.set(id, room, rules.fabric.0);
        }
        match (before == Verdict::Fits, now == Verdict::Fits) {
            (true, false) => self.fits -= 1,
            (false, true) => self.fits += 1,
            (false, false) => return,
            (true, true) => {}
        }
        let new = if now == Verdict::Fits {
            score(rules, class, row, slot).key
        } else {
            NEVER
        };
        let old = std::mem::replace(key, new);
        self.note(id, old, rules.ranks);
    }

    /// Keeps the best of a row's block right, or lets it be found anew, after the row's key has
    /// changed.
    fn note(&mut self, id: RowId, old: u64, ranks: &[u32]) {
        let new = self.order(id, ranks);
        let Some((best, stale)) = self.blocks.get(id.0 / BLOCK).copied() else {
            return;
        };
        if stale || old == new.0 {
            return;
        }
        let block = match best {
            Some(best) if best == id => (Some(id), new.0 > old),
            Some(best) if new >= self.order(best, ranks) => return,
            _ if new.0 == NEVER => return,
            _ => (Some(id), false),
        };
        if let Some(slot) = self.blocks.get_mut(id.0 / BLOCK) {
            *slot = block;
        }
    }

    /// Counts from now on how many pods there is room for, in each row and domain.
    pub(super) fn count(
        &mut self,
        class: &Class,
        rules: Rules<'_>,
        rows: &[Row],
        slots: &Overlay<'_>,
    ) {
        let (fabric, version) = rules.fabric;
        if self.counts.as_ref().is_some_and(|c| c.fabric == version) {
            return;
        }
        let mut counts = Counts {
            rows: vec![0; self.keys.len()],
            domains: vec![0; fabric.count()],
            cluster: 0,
            fabric: version,
        };
        for (i, (row, verdict)) in rows.iter().zip(&self.verdicts).enumerate() {
            if *verdict == Verdict::Fits
                && let Some(slot) = slots.get(RowId(i))
            {
                counts.set(RowId(i), copies(class, row, slot), fabric);
            }
        }
        self.counts = Some(counts);
    }

    /// Counts of another fabric are of no use.
    pub(super) fn drop_counts_unless(&mut self, fabric: u64) {
        if self.counts.as_ref().is_some_and(|c| c.fabric != fabric) {
            self.counts = None;
        }
    }

    /// Pods of the class that a row has room for; 0 unless they are counted.
    pub(super) fn room_on(&self, id: RowId) -> u16 {
        let counts = self.counts.as_ref();
        counts.and_then(|c| c.rows.get(id.0)).copied().unwrap_or(0)
    }

    /// The same by row.
    pub(super) fn rooms(&self) -> &[u16] {
        self.counts.as_ref().map_or(&[], |c| &c.rows)
    }

    /// The same of a domain, or of the cluster.
    pub(super) fn room_in(&self, domain: Option<DomainId>) -> u32 {
        self.counts.as_ref().map_or(0, |c| match domain {
            None => c.cluster,
            Some(id) => c.domains.get(id.0 as usize).copied().unwrap_or(0),
        })
    }

    /// Brings the keys to the prices of now.
    pub(super) fn reprice(
        &mut self,
        class: &Class,
        rules: Rules<'_>,
        rows: &[Row],
        slots: &[Slot],
    ) {
        if self.pricing == rules.price_version() {
            return;
        }
        self.pricing = rules.price_version();
        let fits = self.verdicts.iter().map(|v| *v == Verdict::Fits);
        for (((row, slot), fits), key) in rows.iter().zip(slots).zip(fits).zip(&mut self.keys) {
            if fits {
                *key = score(rules, class, row, slot).key;
            }
        }
        self.forget_order();
    }

    /// All keys are about to be made by the prices of now.
    pub(super) fn set_pricing(&mut self, rules: Rules<'_>) {
        self.pricing = rules.price_version();
    }

    /// The order among equals has changed.
    pub(super) fn forget_order(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.1 = true);
    }

    /// The node lets the class in, by labels, taints, devices and volumes.
    pub(super) fn lets_in(&self, id: RowId) -> bool {
        let fixed = self.fixed.get(id.0);
        fixed.is_some_and(|f| f.first.is_none() && f.last.is_none())
    }

    /// Rows that it has an answer for.
    pub(super) fn rows(&self) -> usize {
        self.keys.len()
    }

    /// Rows that fit.
    pub(super) fn fits(&self) -> u32 {
        self.fits
    }

    /// The key of a row; lower is better.
    pub(super) fn key(&self, id: RowId) -> u64 {
        self.keys.get(id.0).copied().unwrap_or(NEVER)
    }

    fn order(&self, id: RowId, ranks: &[u32]) -> (u64, u32) {
        (self.key(id), ranks.get(id.0).copied().unwrap_or(u32::MAX))
    }

    fn best_of(&self, rows: impl Iterator<Item = usize>, ranks: &[u32]) -> Option<RowId> {
        rows.map(RowId)
            .filter(|id| self.key(*id) != NEVER)
            .min_by_key(|id| self.order(*id, ranks))
    }

    /// The cheapest row among some.
    pub(super) fn best_among(&self, ranks: &[u32], among: impl Fn(RowId) -> bool) -> Option<RowId> {
        let fits = (0..self.keys.len()).filter(|i| self.key(RowId(*i)) != NEVER);
        self.best_of(fits.filter(|i| among(RowId(*i))), ranks)
    }

    /// The cheapest row, the first in order among equals.
    pub(super) fn best(&mut self, ranks: &[u32]) -> Option<RowId> {
        if self.fits == 0 {
            return None;
        }
        for at in 0..self.blocks.len() {
            if self.blocks.get(at).is_some_and(|(_, stale)| *stale) {
                let end = ((at + 1) * BLOCK).min(self.keys.len());
                let best = self.best_of(at * BLOCK..end, ranks);
                if let Some(block) = self.blocks.get_mut(at) {
                    *block = (best, false);
                }
            }
        }
        self.blocks
            .iter()
            .filter_map(|(best, _)| *best)
            .min_by_key(|id| self.order(*id, ranks))
    }

    /// The cheapest row among those that have fewest siblings, and of these in the closest domain
    /// that has fewest.
    pub(super) fn best_apart(&self, siblings: &Siblings, rules: Rules<'_>) -> Option<RowId> {
        let fabric = rules.fabric.0;
        let leaf = |id: RowId| fabric.of_row(id).first().copied();
        let mut by_leaf: BTreeMap<DomainId, u32> = BTreeMap::new();
        for (row, count) in siblings {
            if let Some(leaf) = leaf(*row) {
                *by_leaf.entry(leaf).or_default() += count;
            }
        }
        (0..self.keys.len())
            .map(RowId)
            .filter(|id| self.key(*id) != NEVER)
            .min_by_key(|id| {
                let here = siblings.get(id).copied().unwrap_or(0);
                let near = leaf(*id).and_then(|l| by_leaf.get(&l)).copied();
                (here, near.unwrap_or(0), self.order(*id, rules.ranks))
            })
    }

    /// The cheapest row but one; call after [`View::best`].
    pub(super) fn runner_up(&self, best: RowId, ranks: &[u32]) -> Option<RowId> {
        let block = best.0 / BLOCK;
        let end = ((block + 1) * BLOCK).min(self.keys.len());
        let here = self.best_of((block * BLOCK..end).filter(|i| *i != best.0), ranks);
        let others = self
            .blocks
            .iter()
            .filter_map(|(other, _)| *other)
            .filter(|id| id.0 / BLOCK != block);
        others.chain(here).min_by_key(|id| self.order(*id, ranks))
    }

    /// Nodes that exist, and how many each filter took out, largest first. A node that lacks
    /// several resources counts at each.
    pub(super) fn counts(&self, class: &Class) -> (u32, Box<[FilterCount]>) {
        let mut sums: Vec<(Verdict, u32)> = Vec::new();
        let mut count = |verdict: Verdict| match sums.iter_mut().find(|(v, _)| *v == verdict) {
            Some((_, n)) => *n += 1,
            None => sums.push((verdict, 1)),
        };
        let mut nodes = 0;
        for verdict in self.verdicts.iter().filter(|v| **v != Verdict::Absent) {
            nodes += 1;
            match verdict {
                Verdict::Lacks(lacks) => lacks.parts().for_each(&mut count),
                other => count(*other),
            }
        }
        sums.sort_by_key(|(verdict, n)| (std::cmp::Reverse(*n), *verdict));
        let filters = sums
            .into_iter()
            .filter(|(v, _)| *v != Verdict::Fits)
            .map(|(v, nodes)| FilterCount {
                nodes,
                why: v.words(class),
            })
            .collect();
        (nodes, filters)
    }
}
