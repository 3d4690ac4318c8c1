//! A map by UID that is cheap to fork: parts are shared until they change.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::Uid;

/// Parts; with 100,000 pods each holds about a hundred.
const PARTS: usize = 1_024;

/// A map by UID.
#[derive(Clone)]
pub(super) struct UidMap<T>(Box<[Arc<BTreeMap<Uid, T>>]>);

impl<T> Default for UidMap<T> {
    fn default() -> Self {
        Self((0..PARTS).map(|_| Arc::default()).collect())
    }
}

/// FNV-1a: the same on every machine and in every run.
fn part_of(uid: &Uid) -> usize {
    let hash = uid.0.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The low bits of this hash are its weakest.
    usize::try_from(hash >> 32).unwrap_or(0) % PARTS
}

impl<T: Clone> UidMap<T> {
    /// The entry of a UID.
    pub(super) fn get(&self, uid: &Uid) -> Option<&T> {
        self.0.get(part_of(uid))?.get(uid)
    }

    /// The entry of a UID, to be changed.
    pub(super) fn get_mut(&mut self, uid: &Uid) -> Option<&mut T> {
        let part = self.0.get_mut(part_of(uid))?;
        if !part.contains_key(uid) {
            return None;
        }
        Arc::make_mut(part).get_mut(uid)
    }

    /// Whether there is an entry.
    pub(super) fn contains_key(&self, uid: &Uid) -> bool {
        self.get(uid).is_some()
    }

    /// All entries, always in the same order for the same UIDs.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|part| part.values())
    }

    /// Sets an entry and tells the one before.
    pub(super) fn insert(&mut self, uid: Uid, entry: T) -> Option<T> {
        let part = self.0.get_mut(part_of(&uid))?;
        Arc::make_mut(part).insert(uid, entry)
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, uid: &Uid) -> Option<T> {
        let part = self.0.get_mut(part_of(uid))?;
        if !part.contains_key(uid) {
            return None;
        }
        Arc::make_mut(part).remove(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_and_its_original_go_their_own_ways() {
        let uid = |i: u32| Uid(format!("uid-{i}").into());
        let mut map = UidMap::default();
        for i in 0..5_000 {
            assert_eq!(map.insert(uid(i), i), None);
        }
        let copy = map.clone();
        assert_eq!(map.remove(&uid(7)), Some(7));
        assert_eq!(map.remove(&uid(7)), None);
        if let Some(n) = map.get_mut(&uid(8)) {
            *n = 0;
        }
        assert_eq!((map.get(&uid(7)), map.get(&uid(8))), (None, Some(&0)));
        assert_eq!((copy.get(&uid(7)), copy.get(&uid(8))), (Some(&7), Some(&8)));
        assert!(!map.contains_key(&uid(9_999)));
    }
}
