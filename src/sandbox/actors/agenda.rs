//! What is to be looked at next, and when: one entry for each key.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

/// Keys with the moment they are due.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    by_key: BTreeMap<String, Instant>,
    by_time: BTreeSet<(Instant, String)>,
}

impl Agenda {
    /// Looks at `key` at `at`, whatever was planned for it before.
    pub(super) fn set(&mut self, key: &str, at: Instant) {
        self.remove(key);
        self.by_key.insert(key.to_owned(), at);
        self.by_time.insert((at, key.to_owned()));
    }

    /// Looks at `key` at `at` or sooner, if it is planned sooner.
    pub(super) fn at_latest(&mut self, key: &str, at: Instant) {
        if self.by_key.get(key).is_none_or(|planned| at < *planned) {
            self.set(key, at);
        }
    }

    /// Forgets `key`.
    pub(super) fn remove(&mut self, key: &str) {
        if let Some(at) = self.by_key.remove(key) {
            self.by_time.remove(&(at, key.to_owned()));
        }
    }

    /// When the next key is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the next key that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<String> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// Ends when the next key is due; never, when there is none.
    pub(super) async fn due(&self) {
        match self.next() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_entry_a_key_in_order_of_time() {
        let now = Instant::now();
        let at = |secs| now + Duration::from_secs(secs);
        let mut agenda = Agenda::default();
        agenda.set("a", at(1));
        agenda.set("b", at(2));
        agenda.set("a", at(3));
        agenda.at_latest("b", at(9));
        assert_eq!(agenda.next(), Some(at(2)));
        assert_eq!(agenda.pop(at(1)), None);
        assert_eq!(agenda.pop(at(5)).as_deref(), Some("b"));
        assert_eq!(agenda.pop(at(5)).as_deref(), Some("a"));
        assert_eq!(agenda.pop(at(5)), None);
        assert_eq!(agenda.next(), None);
    }
}
