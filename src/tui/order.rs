//! An order over many rows that is worked out only where it is looked at.
//!
//! A screen shows some dozens of rows of ten thousands. Choosing those takes one pass; sorting all
//! would take many. The places that are in order stay so while single rows come, go and change.

use std::cmp::Ordering;
use std::ops::Range;

/// Gaps up to this long are sorted whole.
const SMALL: usize = 512;
/// Places that are put in order before and behind those that are wanted: the next step of the
/// cursor finds them.
const AROUND: usize = 128;

/// Rows by their numbers. Comparisons are given to each call; they must be total: no two rows
/// alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    rows: Vec<u32>,
    /// Places that are in order, from low to high, no two touching. What stands before one of them
    /// orders before all in it, what stands behind it behind.
    sorted: Vec<Range<usize>>,
}

impl Order {
    /// Takes rows of which no order is known.
    pub(super) fn replace(&mut self, rows: Vec<u32>) {
        self.rows = rows;
        self.sorted.clear();
    }

    /// The order is another one now.
    pub(super) fn forget(&mut self) {
        self.sorted.clear();
    }

    /// Rows by their places; in order only where [`Order::sort`] has been asked to put them.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The row at a place that has been put in order.
    pub(super) fn get(&self, place: usize) -> Option<u32> {
        self.rows.get(place).copied()
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Puts the rows of these places in order.
    pub(super) fn sort(&mut self, wanted: Range<usize>, cmp: impl Fn(u32, u32) -> Ordering) {
        let cmp = |a: &u32, b: &u32| cmp(*a, *b);
        let end = wanted.end.min(self.rows.len());
        let mut at = wanted.start;
        while at < end {
            let next = self.sorted.partition_point(|s| s.end <= at);
            if let Some(island) = self.sorted.get(next).filter(|s| s.start <= at) {
                at = island.end;
                continue;
            }
            let gap = self.gap_before(next);
            let (low, high) = if gap.len() <= SMALL {
                (gap.start, gap.end)
            } else {
                let low = wanted.start.saturating_sub(AROUND).max(gap.start);
                (low, end.saturating_add(AROUND).min(gap.end))
            };
            let mut part = self.rows.get_mut(gap.clone()).unwrap_or_default();
            if low > gap.start {
                part.select_nth_unstable_by(low - gap.start, cmp);
                part = part.get_mut(low - gap.start..).unwrap_or_default();
            }
            if high < gap.end {
                part.select_nth_unstable_by(high - low, cmp);
                part = part.get_mut(..high - low).unwrap_or_default();
            }
            part.sort_unstable_by(cmp);
            self.add_island(low..high);
            at = high;
        }
    }

    /// The places between the island `next` and the one before it.
    fn gap_before(&self, next: usize) -> Range<usize> {
        let before = next.checked_sub(1).and_then(|i| self.sorted.get(i));
        let start = before.map_or(0, |s| s.end);
        let end = self.sorted.get(next).map_or(self.rows.len(), |s| s.start);
        start..end
    }

    fn add_island(&mut self, island: Range<usize>) {
        let at = self.sorted.partition_point(|s| s.start < island.start);
        self.sorted.insert(at, island);
        self.sorted.dedup_by(|next, before| {
            let touch = before.end == next.start;
            if touch {
                before.end = next.end;
            }
            touch
        });
    }

    /// The island that `row` would stand in, or the gap; the number of islands before it.
    fn find(&self, row: u32, cmp: &impl Fn(u32, u32) -> Ordering) -> (usize, Range<usize>, bool) {
        let is_before = |place: usize| {
            self.get(place)
                .is_some_and(|r| cmp(r, row) == Ordering::Less)
        };
        let next = self.sorted.partition_point(|s| is_before(s.end - 1));
        if let Some(island) = self.sorted.get(next)
            && self
                .get(island.start)
                .is_some_and(|r| cmp(r, row) != Ordering::Greater)
        {
            return (next, island.clone(), true);
        }
        (next, self.gap_before(next), false)
    }

    fn before_in(
        &self,
        island: &Range<usize>,
        row: u32,
        cmp: &impl Fn(u32, u32) -> Ordering,
    ) -> usize {
        let part = self.rows.get(island.clone()).unwrap_or_default();
        island.start + part.partition_point(|r| cmp(*r, row) == Ordering::Less)
    }

    /// How many rows order before this one: its place, if it is one of them.
    pub(super) fn place_of(&self, row: u32, cmp: impl Fn(u32, u32) -> Ordering) -> usize {
        let (_, range, sorted) = self.find(row, &cmp);
        if sorted {
            return self.before_in(&range, row, &cmp);
        }
        let part = self.rows.get(range.clone()).unwrap_or_default();
        let before = part.iter().filter(|r| cmp(**r, row) == Ordering::Less);
        range.start + before.count()
    }

    /// Takes rows out, and rows in that are not there yet. What is in order stays so.
    pub(super) fn change(
        &mut self,
        is_gone: impl Fn(u32) -> bool,
        mut new: Vec<u32>,
        cmp: impl Fn(u32, u32) -> Ordering,
    ) {
        self.take_out(is_gone);
        new.sort_unstable_by(|a, b| cmp(*a, *b));
        // Places before which they go, rising as they are.
        let places: Vec<usize> = new
            .iter()
            .map(|row| match self.find(*row, &cmp) {
                (_, island, true) => self.before_in(&island, *row, &cmp),
                (_, gap, false) => gap.start,
            })
            .collect();
        let mut rows = Vec::with_capacity(self.rows.len() + new.len());
        let mut from = 0;
        for (place, row) in places.iter().zip(&new) {
            rows.extend_from_slice(self.rows.get(from..*place).unwrap_or_default());
            rows.push(*row);
            from = *place;
        }
        rows.extend_from_slice(self.rows.get(from..).unwrap_or_default());
        self.rows = rows;
        for island in &mut self.sorted {
            // One that goes before the first of an island or behind its last is not in it.
            let before = places.partition_point(|p| *p <= island.start);
            let until = places.partition_point(|p| *p < island.end);
            *island = island.start + before..island.end + until;
        }
    }

    fn take_out(&mut self, is_gone: impl Fn(u32) -> bool) {
        let mut rows = Vec::with_capacity(self.rows.len());
        let mut sorted: Vec<Range<usize>> = Vec::with_capacity(self.sorted.len());
        let mut keep = |part: Range<usize>| {
            let start = rows.len();
            let part = self.rows.get(part).unwrap_or_default();
            rows.extend(part.iter().filter(|r| !is_gone(**r)));
            start..rows.len()
        };
        let mut at = 0;
        for island in &self.sorted {
            keep(at..island.start);
            let left = keep(island.clone());
            at = island.end;
            match sorted.last_mut().filter(|s| s.end == left.start) {
                Some(before) => before.end = left.end,
                None if left.is_empty() => {}
                None => sorted.push(left),
            }
        }
        keep(at..self.rows.len());
        (self.rows, self.sorted) = (rows, sorted);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Look(usize, usize),
        Change(Vec<u16>, Vec<u16>),
        Find(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4_000_usize, 0..80_usize).prop_map(|(at, n)| Step::Look(at, n)),
            (
                prop::collection::vec(any::<u16>(), 0..40),
                prop::collection::vec(any::<u16>(), 0..40)
            )
                .prop_map(|(gone, new)| Step::Change(gone, new)),
            any::<u16>().prop_map(Step::Find),
        ]
    }

    /// A total order that is not that of the numbers.
    fn weight(row: u32) -> (u32, u32) {
        (row.wrapping_mul(2_654_435_761) >> 20, row)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
        #[test]
        fn what_is_looked_at_stands_as_if_all_were_sorted(
            start in prop::collection::btree_set(any::<u16>(), 0..3_000),
            steps in prop::collection::vec(step(), 1..25),
        ) {
            let cmp = |a: u32, b: u32| weight(a).cmp(&weight(b));
            let mut model: Vec<u32> = start.into_iter().map(u32::from).collect();
            let mut order = Order::default();
            order.replace(model.clone());
            for step in steps {
                model.sort_by(|a, b| cmp(*a, *b));
                match step {
                    Step::Look(at, n) => {
                        order.sort(at..at + n, cmp);
                        let seen: Vec<u32> =
                            (at..at + n).filter_map(|i| order.get(i)).collect();
                        let expected: Vec<u32> =
                            model.iter().skip(at).take(n).copied().collect();
                        prop_assert_eq!(seen, expected);
                    }
                    Step::Change(gone, new) => {
                        // A row that changes is taken out and in again.
                        let gone: Vec<u32> =
                            gone.iter().chain(&new).map(|n| u32::from(*n)).collect();
                        let mut new: Vec<u32> = new.into_iter().map(u32::from).collect();
                        new.sort_unstable();
                        new.dedup();
                        model.retain(|r| !gone.contains(r));
                        model.extend(&new);
                        order.change(|r| gone.contains(&r), new, cmp);
                        prop_assert_eq!(order.len(), model.len());
                    }
                    Step::Find(row) => {
                        let row = u32::from(row);
                        let place = model.iter().filter(|r| cmp(**r, row) == Ordering::Less);
                        prop_assert_eq!(order.place_of(row, cmp), place.count());
                    }
                }
            }
        }
    }
}
