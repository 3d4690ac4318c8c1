//! Views that outlive one call of `decide`.
//!
//! They hold nothing that cannot be computed from the state, so the answer is the same with and
//! without them; a lock lets `decide` keep them though it only reads the state.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::class::ClassId;
use super::view::View;

/// Classes whose views are kept; each costs two bytes a node.
const LIMIT: usize = 4_096;

/// A view and the state that it was right for.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) view: View,
    /// [`super::rows::Rows::version`].
    pub(super) rows: usize,
    /// `State::volume_version`.
    pub(super) volumes: u64,
}

/// The views, by class.
#[derive(Default)]
pub(super) struct Memo(Mutex<BTreeMap<ClassId, Kept>>);

impl Clone for Memo {
    /// A copy starts without views.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Memo {
    /// Takes a view out.
    pub(super) fn take(&self, class: ClassId) -> Option<Kept> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&class)
    }

    /// Keeps a view if there is room.
    pub(super) fn keep(&self, class: ClassId, kept: Kept) {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if views.len() < LIMIT {
            views.insert(class, kept);
        }
    }

    /// The class has no pods any more.
    pub(super) fn forget(&mut self, class: ClassId) {
        self.0
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&class);
    }
}
