//! The rows of a set with room for one more pod of a shape, the fullest first, kept up to date
//! while placements are tried and taken back.

use std::collections::{BTreeMap, BTreeSet};

use super::shape::ShapeId;
use super::world::{PodId, Spot, World};
use crate::sched::view::RowId;

/// What decides between two rows: pods without GPUs keep off nodes that have some, then the
/// fullest, then the first.
type Key = (bool, i64, u32);

/// The rows of one shape.
struct Opening {
    /// The point in the picture's journal that it is right for.
    at: usize,
    order: BTreeSet<(Key, RowId)>,
    keys: BTreeMap<RowId, Key>,
}

/// A set of rows and what has room there.
pub(in crate::sched) struct Openings<'a> {
    rows: &'a [RowId],
    /// By row: it is in the set.
    inside: Vec<bool>,
    by_shape: BTreeMap<ShapeId, Opening>,
}

impl<'a> Openings<'a> {
    /// Nothing is known of these rows yet.
    pub(in crate::sched) fn new(rows: &'a [RowId], all: usize) -> Self {
        let mut inside = vec![false; all];
        for row in rows {
            if let Some(flag) = inside.get_mut(row.0) {
                *flag = true;
            }
        }
        Self {
            rows,
            inside,
            by_shape: BTreeMap::new(),
        }
    }

    /// The fullest row that takes the pod, and its place there.
    pub(in crate::sched) fn fullest(&mut self, world: &World<'_>, pod: PodId) -> Option<Spot> {
        let gpu = world.parts_anywhere(pod) > 0;
        let shape = world.shape_of(pod);
        let key = |row: RowId| {
            let off = !gpu && world.row(row).is_some_and(|r| r.has_gpus);
            let key = (off, world.free_milli(row), world.rank(row));
            world.fits(shape, row).then_some(key)
        };
        let end = world.journal.len();
        let opening = self.by_shape.entry(shape).or_insert_with(|| {
            let keys: BTreeMap<RowId, Key> = self
                .rows
                .iter()
                .filter_map(|row| Some((*row, key(*row)?)))
                .collect();
            Opening {
                at: end,
                order: keys.iter().map(|(row, key)| (*key, *row)).collect(),
                keys,
            }
        });
        for row in world.journal.get(opening.at..).unwrap_or_default() {
            if self.inside.get(row.0) == Some(&true) {
                opening.set(*row, key(*row));
            }
        }
        opening.at = end;
        let (_, row) = opening.order.first()?;
        world.spot_on(pod, *row)
    }
}

impl Opening {
    fn set(&mut self, row: RowId, key: Option<Key>) {
        let before = match key {
            Some(key) => self.keys.insert(row, key),
            None => self.keys.remove(&row),
        };
        if before == key {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, row));
        }
        if let Some(key) = key {
            self.order.insert((key, row));
        }
    }
}
