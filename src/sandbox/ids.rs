//! UIDs and generated names, drawn from the seed and the object's own key so that two runs under
//! one seed agree even where independent writers interleave differently.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The alphabet of generated name suffixes (no vowels, no digits that look like them).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Draws identities.
#[derive(Debug)]
pub(super) struct Ids {
    seed: u64,
    // How often each (purpose, table, key) was drawn for.
    drawn: Mutex<HashMap<u64, u64>>,
}

impl Ids {
    /// Identities of the run `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Ids {
            seed,
            drawn: Mutex::new(HashMap::new()),
        }
    }

    fn rng(&self, purpose: &str, table: &str, key: &str, advance: bool) -> fastrand::Rng {
        let hash = fnv1a(self.seed, [purpose, table, key]);
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let count = drawn.entry(hash).or_insert(0);
        let rng = fastrand::Rng::with_seed(hash ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if advance {
            *count += 1;
        }
        rng
    }

    /// The next UID for an object of this key, in the form of a version 4 UUID.
    pub(super) fn uid(&self, table: &str, key: &str, advance: bool) -> String {
        let bits = self.rng("uid", table, key, advance).u128(..);
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        format!(
            "{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        )
    }

    /// Five characters to go behind a `generateName`.
    pub(super) fn suffix(&self, table: &str, base: &str, advance: bool) -> String {
        let mut rng = self.rng("name", table, base, advance);
        (0..5)
            .filter_map(|_| ALPHABET.get(rng.usize(..ALPHABET.len())))
            .map(|byte| char::from(*byte))
            .collect()
    }
}

fn fnv1a<const N: usize>(seed: u64, parts: [&str; N]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for part in parts {
        // 0xff is no UTF-8 byte: it keeps ("ab","c") and ("a","bc") apart.
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_incarnations_differ() {
        let (a, b, c) = (Ids::new(1), Ids::new(1), Ids::new(2));
        let first = a.uid("/pods", "ns/p", true);
        assert_eq!(first, b.uid("/pods", "ns/p", true));
        assert_ne!(first, c.uid("/pods", "ns/p", true));
        let second = a.uid("/pods", "ns/p", true);
        assert_ne!(first, second);
        assert_eq!(second.len(), 36);
        assert_eq!(second.get(14..15), Some("4"));
        assert_eq!(a.suffix("/pods", "ns/x-", true).len(), 5);
        assert_eq!(
            a.suffix("/pods", "ns/x-", false),
            a.suffix("/pods", "ns/x-", false)
        );
    }
}
