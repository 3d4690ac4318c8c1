//! Events live for an hour after their last write, as kube-apiserver's `--event-ttl` has it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use super::Inner;
use super::resources::tables;

/// When which event goes.
#[derive(Debug, Default)]
pub(super) struct Expiry(Mutex<Due>);

#[derive(Debug, Default)]
struct Due {
    // In the order of writing, which is the order of going.
    queue: VecDeque<(Timestamp, Arc<str>)>,
    // The last write of each: an older entry in the queue does not count.
    written: HashMap<Arc<str>, Timestamp>,
}

impl Due {
    /// Takes out what was last written before `limit`.
    fn take(&mut self, limit: Timestamp) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        while self.queue.front().is_some_and(|(at, _)| *at < limit) {
            let Some((at, key)) = self.queue.pop_front() else {
                break;
            };
            if self.written.get(&key) == Some(&at) {
                self.written.remove(&key);
                gone.push(key);
            }
        }
        gone
    }
}

impl Inner {
    /// Notes the write of an event and removes those whose time is over.
    pub(super) fn event_written(&self, key: &str) {
        let now = self.options.clock.now();
        let gone = {
            let mut due = self.expiry.0.lock().unwrap_or_else(PoisonError::into_inner);
            let key: Arc<str> = key.into();
            due.queue.push_back((now, key.clone()));
            due.written.insert(key, now);
            let ttl =
                SignedDuration::try_from(self.options.event_ttl).unwrap_or(SignedDuration::MAX);
            match now.checked_sub(ttl) {
                Ok(limit) => due.take(limit),
                Err(_) => Vec::new(),
            }
        };
        for key in gone {
            if let Some(stored) = self.store.get(tables::EVENTS, &key) {
                // Written again this very moment: then its own entry removes it later.
                let _ = self
                    .store
                    .remove(tables::EVENTS, &key, stored.rv, &mut stored.value());
            }
        }
    }
}
