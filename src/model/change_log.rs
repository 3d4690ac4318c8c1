//! What has changed since when, so that whoever shows many things need not look at all of them.

use std::collections::{BTreeSet, VecDeque};

/// Changes that are kept at least; more are kept while there are more things.
const KEPT: usize = 4_096;

/// Keys of things, each with the version in which it changed last.
pub(super) struct ChangeLog<K> {
    /// Changes up to this version are not known any more.
    forgotten: u64,
    changes: VecDeque<(u64, K)>,
    /// Length at which repeated keys are taken out.
    limit: usize,
}

impl<K> Default for ChangeLog<K> {
    fn default() -> Self {
        ChangeLog {
            forgotten: 0,
            changes: VecDeque::new(),
            limit: 2 * KEPT,
        }
    }
}

impl<K: Clone + Ord> ChangeLog<K> {
    /// Notes a change. `things`: how many there are; a log that names them all is no longer useful
    /// than a look at all of them.
    pub(super) fn note(&mut self, version: u64, key: &K, things: usize) {
        if let Some(last) = self.changes.back_mut().filter(|(_, last)| last == key) {
            last.0 = version;
            return;
        }
        self.changes.push_back((version, key.clone()));
        if self.changes.len() > self.limit {
            self.shorten(things.max(KEPT));
        }
    }

    /// Keeps the latest change of each thing, of at most `most` things.
    fn shorten(&mut self, most: usize) {
        let mut seen = BTreeSet::new();
        let mut kept = VecDeque::with_capacity(self.limit);
        while let Some((version, key)) = self.changes.pop_back() {
            if seen.len() == most {
                self.forgotten = version;
                break;
            }
            if seen.insert(key.clone()) {
                kept.push_front((version, key));
            }
        }
        self.changes = kept;
        self.limit = 2 * most;
    }

    /// Everything may have changed up to this version.
    pub(super) fn forget(&mut self, version: u64) {
        self.changes.clear();
        self.forgotten = version;
    }

    /// What has changed after this version, latest first, a thing perhaps more than once; `None`:
    /// not known, all may have changed.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = &K>> {
        let later = self.changes.iter().rev();
        (version >= self.forgotten)
            .then(|| later.take_while(move |(v, _)| *v > version).map(|(_, k)| k))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_long_log_keeps_the_latest_change_of_each_thing() {
        let mut log = ChangeLog::default();
        for version in 1..=100_000_u64 {
            log.note(version, &(version % 10), 10);
        }
        let mut changed: Vec<u64> = log.since(99_990).unwrap().copied().collect();
        changed.sort_unstable();
        assert_eq!(changed, (0..10).collect::<Vec<_>>());
        assert!(log.since(0).unwrap().count() <= 2 * KEPT);
        assert_eq!(log.since(100_000).unwrap().count(), 0);
    }

    #[test]
    fn what_is_forgotten_is_not_told_as_unchanged() {
        let mut log = ChangeLog::default();
        for version in 1..=50_000_u64 {
            log.note(version, &version, 10);
        }
        assert!(log.since(10).is_none());
        assert_eq!(log.since(49_900).unwrap().count(), 100);
    }
}
