//! Places that were visited, with back and forward.

use super::view::{Target, ViewId};

/// Places kept.
const LIMIT: usize = 100;

/// A place: a view and what the cursor was on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stop {
    /// The view.
    pub(super) view: ViewId,
    /// The thing under its cursor.
    pub(super) target: Option<Target>,
}

/// Places before and after the present one.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    earlier: Vec<Stop>,
    later: Vec<Stop>,
}

impl History {
    /// Remembers the place that is being left for a new one.
    pub(super) fn leave(&mut self, here: Stop) {
        if self.earlier.len() == LIMIT {
            self.earlier.remove(0);
        }
        self.earlier.push(here);
        self.later.clear();
    }

    /// The place before; `here` becomes the place after it.
    pub(super) fn back(&mut self, here: Stop) -> Option<Stop> {
        let to = self.earlier.pop()?;
        self.later.push(here);
        Some(to)
    }

    /// The place after; `here` becomes the place before it.
    pub(super) fn forward(&mut self, here: Stop) -> Option<Stop> {
        let to = self.later.pop()?;
        self.earlier.push(here);
        Some(to)
    }

    /// Whether there is a place before.
    pub(super) fn has_earlier(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// Whether there is a place after.
    pub(super) fn has_later(&self) -> bool {
        !self.later.is_empty()
    }
}
