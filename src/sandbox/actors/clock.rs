//! Delays that `--speed` divides, seeded jitter, and timestamps as Kubernetes writes them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::sandbox::Time;

/// How fast the actors live, what time of day it is, and the seed of everything they choose.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    speed: f64,
    seed: u64,
    time: Time,
}

impl Clock {
    /// `speed` divides every delay: 60 makes a minute pass in a second. Values that are not
    /// positive numbers count as 1.
    pub fn new(speed: f64, seed: u64) -> Self {
        let speed = if speed.is_finite() && speed > 0.0 {
            speed
        } else {
            1.0
        };
        Self {
            speed,
            seed,
            time: Time::System,
        }
    }

    /// The same clock with another time of day.
    pub fn with_time(self, time: Time) -> Self {
        Self { time, ..self }
    }

    /// The time of day, for time stamps and for ages of what others stamped.
    pub fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// The time of day at `instant`, which is now or later.
    pub fn at(&self, instant: Instant) -> Timestamp {
        let ahead = instant.saturating_duration_since(Instant::now());
        let ahead = SignedDuration::try_from(ahead).unwrap_or_default();
        let now = self.now();
        now.checked_add(ahead).unwrap_or(now)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The real time that `secs` of the actors' time take.
    pub fn real(&self, secs: f64) -> Duration {
        Duration::try_from_secs_f64((secs / self.speed).max(0.0)).unwrap_or(Duration::MAX)
    }

    /// A number in 0..1 that depends only on the seed and `key`.
    pub fn unit(&self, key: &str) -> f64 {
        // 53 bits are what an f64 holds exactly.
        (hash(self.seed, key) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A time between `low` and `high` seconds that depends only on the seed and `key`.
    pub fn between(&self, low_secs: f64, high_secs: f64, key: &str) -> f64 {
        low_secs + (high_secs - low_secs) * self.unit(key)
    }

    /// A random (version 4) UUID that depends only on the seed and `key`.
    pub fn uuid(&self, key: &str) -> String {
        let high = hash(self.seed, key);
        let low = hash(high, key);
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff,
        )
    }

    /// An exponentially distributed time with this mean, in seconds, that depends only on the seed
    /// and `key`.
    pub fn exponential(&self, mean_secs: f64, key: &str) -> f64 {
        -mean_secs * (1.0 - self.unit(key)).ln()
    }

    /// Five characters as Kubernetes appends to generated names, from the seed and `key`.
    pub fn suffix(&self, key: &str) -> String {
        name_suffix(hash(self.seed, key))
    }
}

/// Five characters of the alphabet that Kubernetes uses for generated names (no vowels, no
/// 0, 1, 3: apimachinery/pkg/util/rand).
pub fn name_suffix(mut bits: u64) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let base = ALPHABET.len() as u64;
    let mut text = String::with_capacity(5);
    for _ in 0..5 {
        let at = usize::try_from(bits % base).unwrap_or(0);
        text.push(char::from(ALPHABET.get(at).copied().unwrap_or(b'b')));
        bits /= base;
    }
    text
}

/// FNV-1a over the seed and the text, then mixed so that near keys differ in every bit.
pub fn hash(seed: u64, key: &str) -> u64 {
    let mut bits: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in seed.to_le_bytes().iter().chain(key.as_bytes()) {
        bits = (bits ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits ^ (bits >> 33)
}

/// A timestamp as Kubernetes writes `Time`: whole seconds, UTC.
pub fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A timestamp as Kubernetes writes `MicroTime`.
pub fn rfc3339_micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Real seconds since `text`, a Kubernetes timestamp; `None` when it cannot be read.
pub fn secs_since(text: &str, now: Timestamp) -> Option<f64> {
    let then: Timestamp = text.parse().ok()?;
    Some(now.as_duration().as_secs_f64() - then.as_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_divides_delays() {
        assert_eq!(Clock::new(60.0, 1).real(120.0), Duration::from_secs(2));
        assert_eq!(Clock::new(0.0, 1).real(3.0), Duration::from_secs(3));
        assert_eq!(Clock::new(f64::NAN, 1).real(3.0), Duration::from_secs(3));
    }

    #[test]
    fn jitter_depends_on_seed_and_key_only() {
        let clock = Clock::new(1.0, 7);
        assert_eq!(clock.suffix("a"), Clock::new(9.0, 7).suffix("a"));
        assert_ne!(clock.suffix("a"), clock.suffix("b"));
        assert_ne!(clock.suffix("a"), Clock::new(1.0, 8).suffix("a"));
        let value = clock.between(10.0, 20.0, "x");
        assert!((10.0..20.0).contains(&value), "{value}");
    }

    #[test]
    fn timestamps_have_the_form_of_kubernetes() {
        let at = Timestamp::from_microsecond(1_796_040_000_123_456).unwrap_or_default();
        assert_eq!(rfc3339(at), "2026-11-30T12:00:00Z");
        assert_eq!(rfc3339_micro(at), "2026-11-30T12:00:00.123456Z");
        assert_eq!(
            secs_since("2026-11-30T11:59:00Z", at).map(f64::floor),
            Some(60.0)
        );
        assert_eq!(secs_since("yesterday", at), None);
    }
}
