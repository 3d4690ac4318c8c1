//! What is known of one kind, so that a relist can be told as a difference.

use std::collections::BTreeSet;

use ahash::{AHashMap, AHashSet};
use jiff::Timestamp;

use super::super::decode::Object;
use crate::model::{Delta, Kind, Uid};

/// Events kept, newest first; a busy cluster holds a hundred thousand.
pub(super) const MAX_EVENTS: usize = 5_000;

/// The known objects of one kind.
pub(super) struct Store {
    known: AHashMap<Uid, Object>,
    /// For Events: by time, oldest first.
    by_time: Option<BTreeSet<(Timestamp, Uid)>>,
}

fn event_time(object: &Object) -> Timestamp {
    match object {
        Object::Event(e) => e.last_seen,
        _ => None,
    }
    .unwrap_or(Timestamp::MIN)
}

impl Store {
    pub(super) fn new(kind: Kind) -> Self {
        Store {
            known: AHashMap::new(),
            by_time: (kind == Kind::Event).then(BTreeSet::new),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Takes an object over and tells it if it is new or changed.
    pub(super) fn set(&mut self, object: Object, out: &mut Vec<Delta>) {
        let uid = object.meta().uid.clone();
        let new_time = event_time(&object);
        if let Some(old) = self.known.get(&uid) {
            let version = &old.meta().resource_version;
            if !version.0.is_empty() && *version == object.meta().resource_version {
                return;
            }
            let old_time = event_time(old);
            if let Some(by_time) = &mut self.by_time {
                by_time.remove(&(old_time, uid.clone()));
            }
        }
        self.known.insert(uid.clone(), object.clone());
        out.push(object.into_set());
        if let Some(by_time) = &mut self.by_time {
            by_time.insert((new_time, uid));
            while by_time.len() > MAX_EVENTS {
                if let Some((_, oldest)) = by_time.pop_first()
                    && let Some(gone) = self.known.remove(&oldest)
                {
                    out.push(gone.to_gone());
                }
            }
        }
    }

    /// Forgets an object and tells it.
    pub(super) fn remove(&mut self, uid: &Uid, out: &mut Vec<Delta>) {
        if let Some(old) = self.known.remove(uid) {
            if let Some(by_time) = &mut self.by_time {
                by_time.remove(&(event_time(&old), uid.clone()));
            }
            out.push(old.to_gone());
        }
    }

    /// Whether this very version is known.
    fn is_known(&self, object: &Object) -> bool {
        self.known.get(&object.meta().uid).is_some_and(|old| {
            !old.meta().resource_version.0.is_empty()
                && old.meta().resource_version == object.meta().resource_version
        })
    }
}

/// A list under way over a store that is not empty: told as a difference at its end, first what
/// vanished (a name may have passed to a new object), then what changed.
#[derive(Default)]
pub(super) struct Relist {
    seen: AHashSet<Uid>,
    changed: Vec<Object>,
}

impl Relist {
    pub(super) fn add(&mut self, object: Object, store: &Store) {
        self.seen.insert(object.meta().uid.clone());
        if store.is_known(&object) {
            return;
        }
        self.changed.push(object);
        if store.by_time.is_some() && self.changed.len() > 2 * MAX_EVENTS {
            self.keep_newest();
        }
    }

    fn keep_newest(&mut self) {
        self.changed
            .sort_by_key(|o| std::cmp::Reverse(event_time(o)));
        self.changed.truncate(MAX_EVENTS);
    }

    pub(super) fn finish(mut self, store: &mut Store, out: &mut Vec<Delta>) {
        let gone: Vec<Uid> = store
            .known
            .keys()
            .filter(|uid| !self.seen.contains(*uid))
            .cloned()
            .collect();
        for uid in &gone {
            store.remove(uid, out);
        }
        if store.by_time.is_some() {
            self.keep_newest();
        }
        for object in self.changed {
            store.set(object, out);
        }
    }
}
