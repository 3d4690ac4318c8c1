//! Rows that come, go and change one by one, each with what it is ordered by.

use std::cmp::Ordering;
use std::hash::Hash;

use ahash::AHashMap;

use super::sort_key::SortKey;

/// A row of a table.
pub trait Row {
    /// What tells it from all others and outlives every refresh.
    type Key: Clone + Eq + Ord + Hash + Send + 'static;

    /// Its key.
    fn key(&self) -> Self::Key;

    /// Where it stands among the others while no column is chosen; rows alike stand in the order
    /// of their keys.
    fn place(&self) -> SortKey;

    /// The order of the keys.
    fn key_order(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A change of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed<R: Row> {
    /// It is there, new or other than before.
    Set(R),
    /// It is gone.
    Gone(R::Key),
}

struct Slot<R> {
    row: R,
    place: SortKey,
    /// By the chosen column.
    column: SortKey,
    /// It passes the filter.
    shown: bool,
}

/// What a column orders by.
pub(super) type ColumnKey<R> = fn(&R) -> SortKey;

/// The rows. Each has a number that stays its own until it is gone.
pub(super) struct Rows<R: Row> {
    slots: Vec<Option<Slot<R>>>,
    free: Vec<u32>,
    numbers: AHashMap<R::Key, u32>,
    column: Option<ColumnKey<R>>,
    falling: bool,
}

impl<R: Row> Default for Rows<R> {
    fn default() -> Self {
        Rows {
            slots: Vec::new(),
            free: Vec::new(),
            numbers: AHashMap::new(),
            column: None,
            falling: false,
        }
    }
}

impl<R: Row> Rows<R> {
    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// All numbers are below this.
    pub(super) fn numbers_end(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, number: u32) -> Option<&Slot<R>> {
        self.slots.get(number as usize)?.as_ref()
    }

    /// A row by its number.
    pub(super) fn get(&self, number: u32) -> Option<&R> {
        self.slot(number).map(|s| &s.row)
    }

    /// The number of a row.
    pub(super) fn number(&self, key: &R::Key) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// Whether a row passes the filter.
    pub(super) fn is_shown(&self, number: u32) -> bool {
        self.slot(number).is_some_and(|s| s.shown)
    }

    /// All rows, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &R> {
        self.slots.iter().flatten().map(|s| &s.row)
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.numbers.clear();
    }

    /// Takes a row in, in the place of the one with its key; its number.
    pub(super) fn set(&mut self, row: R, shown: bool) -> u32 {
        let slot = Slot {
            place: row.place(),
            column: self.column.map(|c| c(&row)).unwrap_or_default(),
            shown,
            row,
        };
        let key = slot.row.key();
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => {
                let number = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(None);
                    u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
                });
                self.numbers.insert(key, number);
                number
            }
        };
        if let Some(place) = self.slots.get_mut(number as usize) {
            *place = Some(slot);
        }
        number
    }

    /// Takes a row out; its number, which another one may get now.
    pub(super) fn remove(&mut self, key: &R::Key) -> Option<u32> {
        let number = self.numbers.remove(key)?;
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = None;
        }
        self.free.push(number);
        Some(number)
    }

    /// Asks again which rows pass; the numbers of those that do.
    pub(super) fn pass(&mut self, passes: impl Fn(&R) -> bool) -> Vec<u32> {
        let mut shown = Vec::with_capacity(self.numbers.len());
        for (number, slot) in (0..).zip(&mut self.slots) {
            if let Some(slot) = slot {
                slot.shown = passes(&slot.row);
                if slot.shown {
                    shown.push(number);
                }
            }
        }
        shown
    }

    /// Orders by a column from now on, or by the rows' own places.
    pub(super) fn order_by(&mut self, column: Option<ColumnKey<R>>, falling: bool) {
        let same = match (self.column, column) {
            (Some(a), Some(b)) => std::ptr::fn_addr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        (self.column, self.falling) = (column, falling);
        if !same {
            for slot in self.slots.iter_mut().flatten() {
                slot.column = column.map(|c| c(&slot.row)).unwrap_or_default();
            }
        }
    }

    /// The order of two rows by their numbers.
    pub(super) fn compare(&self, a: u32, b: u32) -> Ordering {
        let (Some(a), Some(b)) = (self.slot(a), self.slot(b)) else {
            return a.cmp(&b);
        };
        let by_column = if self.falling {
            b.column.cmp(&a.column)
        } else {
            a.column.cmp(&b.column)
        };
        by_column
            .then_with(|| a.place.cmp(&b.place))
            .then_with(|| a.row.key_order(&b.row))
    }
}
