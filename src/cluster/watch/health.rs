//! Counts per kind, for a health line.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::Kind;

/// Counters of one kind, each only ever growing.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) lists: AtomicU64,
    pub(super) watches: AtomicU64,
    pub(super) troubles: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) objects: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(u64::try_from(n).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// What one kind's task has done since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Lists begun; more than one means that the watch had to give up its place.
    pub lists: u64,
    /// Watches opened.
    pub watches: u64,
    /// Requests that failed.
    pub troubles: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Objects decoded.
    pub objects: u64,
}

/// The counters of all kinds; clones read the same ones.
#[derive(Clone, Default)]
pub struct HealthLog {
    kinds: Arc<BTreeMap<Kind, Arc<Counters>>>,
}

impl HealthLog {
    pub(super) fn new(kinds: &[Kind]) -> Self {
        HealthLog {
            kinds: Arc::new(kinds.iter().map(|k| (*k, Arc::default())).collect()),
        }
    }

    pub(super) fn counters(&self, kind: Kind) -> Arc<Counters> {
        self.kinds.get(&kind).cloned().unwrap_or_default()
    }

    /// The counts of one kind; zeros for one that is not watched.
    pub fn of(&self, kind: Kind) -> Health {
        let read = |c: &AtomicU64| c.load(Ordering::Relaxed);
        self.kinds
            .get(&kind)
            .map_or_else(Health::default, |c| Health {
                lists: read(&c.lists),
                watches: read(&c.watches),
                troubles: read(&c.troubles),
                bytes: read(&c.bytes),
                objects: read(&c.objects),
            })
    }
}
