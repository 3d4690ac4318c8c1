//! The slots of a state with a few of them changed.

use super::slot::Slot;
use super::view::RowId;

/// Not changed.
const SAME: u32 = u32::MAX;

/// Slots that are copied when they are first written.
pub(super) struct Overlay<'a> {
    base: &'a [Slot],
    /// By row: where its changed slot is.
    at: Vec<u32>,
    changed: Vec<Slot>,
}

impl<'a> Overlay<'a> {
    /// Nothing changed yet.
    pub(super) fn new(base: &'a [Slot]) -> Self {
        Self {
            base,
            at: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// A row's slot as it is now.
    pub(super) fn get(&self, id: RowId) -> Option<&Slot> {
        match self.at.get(id.0) {
            Some(at) if *at != SAME => self.changed.get(*at as usize),
            _ => self.base.get(id.0),
        }
    }

    /// A row's slot to be changed.
    pub(super) fn get_mut(&mut self, id: RowId) -> Option<&mut Slot> {
        if self.at.is_empty() {
            self.at = vec![SAME; self.base.len()];
        }
        let at = self.at.get_mut(id.0)?;
        if *at == SAME {
            self.changed.push(self.base.get(id.0)?.clone());
            *at = u32::try_from(self.changed.len() - 1).ok()?;
        }
        self.changed.get_mut(*at as usize)
    }
}
