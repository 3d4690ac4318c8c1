//! Repeated texts are kept once: label keys, namespaces, node names.

use std::sync::Arc;

use ahash::AHashSet;

use crate::model::{Str, clean};

/// Entries below which a sweep is not worth its time.
const MIN_SWEEP: usize = 8_192;

/// Shares equal texts. What nobody else holds any more is swept out as the set grows.
#[derive(Default)]
pub(crate) struct Interner {
    texts: AHashSet<Str>,
    sweep_at: usize,
}

impl Interner {
    /// The shared, cleaned form of `raw`, cut to `max_chars` characters.
    pub(crate) fn get(&mut self, raw: &str, max_chars: usize) -> Str {
        let text = clean(raw, max_chars);
        if let Some(known) = self.texts.get(&*text) {
            return known.clone();
        }
        if self.texts.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.texts.retain(|t| Arc::strong_count(t) > 1);
            self.sweep_at = self.texts.len() * 2;
        }
        let new: Str = text.into();
        self.texts.insert(new.clone());
        new
    }

    /// Texts held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_and_unused_ones_go() {
        let mut interner = Interner::default();
        let a = interner.get("team-a", 253);
        assert!(Arc::ptr_eq(&a, &interner.get("team-a", 253)));
        for i in 0..100_000 {
            interner.get(&format!("once-{i}"), 253);
        }
        assert!(interner.len() < 3 * MIN_SWEEP, "{}", interner.len());
        assert!(Arc::ptr_eq(&a, &interner.get("team-a", 253)));
    }
}
