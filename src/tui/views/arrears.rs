//! What the rows of a view are behind with: what has changed in the picture since they were made.
//! They catch up in parts, so that no key waits for it.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// Rows that are made in one part: a few milliseconds of work on a slow machine.
pub(super) const PART: usize = 50;

/// Keys of rows that are to be made anew, each once, the oldest first.
pub(super) struct Arrears<K> {
    keys: VecDeque<K>,
    there: HashSet<K>,
}

impl<K> Default for Arrears<K> {
    fn default() -> Self {
        Arrears {
            keys: VecDeque::new(),
            there: HashSet::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Arrears<K> {
    /// Takes keys in that have changed.
    pub(super) fn note<'k>(&mut self, keys: impl Iterator<Item = &'k K>)
    where
        K: 'k,
    {
        for key in keys {
            if self.there.insert(key.clone()) {
                self.keys.push_back(key.clone());
            }
        }
    }

    /// Gives out the next of them, so many at most. Their rows have to be made from the picture as
    /// it is now.
    pub(super) fn next(&mut self, at_most: usize) -> Vec<K> {
        let keys: Vec<K> = self.keys.drain(..at_most.min(self.keys.len())).collect();
        for key in &keys {
            self.there.remove(key);
        }
        keys
    }

    /// Forgets them: all rows have been made anew.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.there.clear();
    }

    /// Whether the rows show the picture.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
