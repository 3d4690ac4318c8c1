//! Views that outlive one call of `decide`.
//!
//! They hold nothing that cannot be computed from the state, so the answer is the same with and
//! without them; a lock lets `decide` keep them though it only reads the state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::class::ClassId;
use super::rows::Version;
use super::view::{RowId, View};

/// Bytes that kept views may take.
const LIMIT: usize = 64 << 20;

/// A view and the state that it was right for.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) view: View,
    pub(super) rows: Version,
    /// `State::volume_version`.
    pub(super) volumes: u64,
    /// Rows on which something was tried since.
    pub(super) touched: Vec<RowId>,
}

/// The views, by class.
#[derive(Default)]
pub(super) struct Memo(Mutex<BTreeMap<ClassId, Arc<Kept>>>);

impl Clone for Memo {
    /// A fork shares the views until it or the original takes them.
    fn clone(&self) -> Self {
        Self(Mutex::new(self.lock().clone()))
    }
}

impl Memo {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ClassId, Arc<Kept>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a view out.
    pub(super) fn take(&self, class: ClassId) -> Option<Kept> {
        let kept = self.lock().remove(&class)?;
        Some(Arc::unwrap_or_clone(kept))
    }

    /// Keeps a view; the one that was looked at longest ago makes room for it.
    pub(super) fn keep(&self, class: ClassId, kept: Kept) {
        let mut views = self.lock();
        let bytes = kept.view.rows() * View::BYTES_A_ROW;
        if (views.len() + 1) * bytes > LIMIT
            && let Some(oldest) = views.iter().min_by_key(|(_, k)| k.rows).map(|(id, _)| *id)
        {
            views.remove(&oldest);
        }
        views.insert(class, Arc::new(kept));
    }

    /// The class has no pods any more.
    pub(super) fn forget(&mut self, class: ClassId) {
        self.0
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&class);
    }
}
