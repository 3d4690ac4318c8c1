//! Past use that fades: after one half-life a GPU-second counts half.
//!
//! Whole numbers only, so that a replay on another machine decides the same.

use jiff::Timestamp;

/// Two to the power of -1/2, -1/4, … -1/65536, times 2^32.
const ROOTS: [u64; 16] = [
    3_037_000_500,
    3_611_622_603,
    3_938_502_376,
    4_112_874_773,
    4_202_935_003,
    4_248_701_965,
    4_271_771_996,
    4_283_353_945,
    4_289_156_690,
    4_292_061_010,
    4_293_513_907,
    4_294_240_540,
    4_294_603_903,
    4_294_785_595,
    4_294_876_445,
    4_294_921_870,
];

/// What is left of `amount` after `secs` with this half-life.
pub(in crate::sched) fn fade(amount: i64, secs: i64, half_life_secs: i64) -> i64 {
    if secs <= 0 || half_life_secs <= 0 {
        return amount;
    }
    let halvings = secs / half_life_secs;
    let Ok(halvings) = u32::try_from(halvings.min(127)) else {
        return amount;
    };
    let mut left = i128::from(amount) >> halvings.min(126);
    // The fraction of a half-life, in 65536ths.
    let fraction = (i128::from(secs % half_life_secs) << 16) / i128::from(half_life_secs);
    for (bit, root) in ROOTS.iter().enumerate() {
        if fraction & (1 << (15 - bit)) != 0 {
            left = (left * i128::from(*root)) >> 32;
        }
    }
    i64::try_from(left).unwrap_or(amount)
}

/// Use of one queue, faded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::sched) struct PastUse {
    /// Thousandths of a GPU times seconds.
    milli_gpu_secs: i64,
    at: Option<Timestamp>,
}

impl PastUse {
    /// Counts what was used since the last call. A clock that goes back counts nothing.
    pub(in crate::sched) fn count(&mut self, milli_gpu: i64, now: Timestamp, half_life_secs: i64) {
        if let Some(before) = self.at {
            let secs = now.duration_since(before).as_secs().max(0);
            let faded = fade(self.milli_gpu_secs, secs, half_life_secs);
            // What was used within the span has faded by half of it on the mean.
            let fresh = fade(milli_gpu.saturating_mul(secs), secs / 2, half_life_secs);
            self.milli_gpu_secs = faded.saturating_add(fresh);
        }
        self.at = Some(now);
    }

    /// The faded use, in thousandths of a GPU times seconds.
    pub(in crate::sched) fn milli_gpu_secs(&self) -> i64 {
        self.milli_gpu_secs
    }
}

/// The weight of a queue by what it has used: between a quarter of its weight and all of it, times
/// 64. `due` is what its weight alone would have given it over the same time.
pub(in crate::sched) fn aged_weight(weight: i64, used: i64, due: i64) -> i64 {
    let whole = weight.max(0).saturating_mul(64);
    if used <= due || used <= 0 {
        return whole;
    }
    let part = i128::from(whole) * i128::from(due.max(0)) / i128::from(used);
    i64::try_from(part).unwrap_or(whole).max(whole / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_left_after_a_half_life() {
        for (secs, expected) in [
            (0, 1_000_000),
            (3_600, 500_000),
            (7_200, 250_000),
            (1_800, 707_106),
            (900, 840_896),
            (3_600 * 200, 0),
            (-5, 1_000_000),
        ] {
            let left = fade(1_000_000, secs, 3_600);
            assert!((left - expected).abs() <= 1, "{secs}: {left}");
        }
        assert_eq!(fade(i64::MAX, 0, 60), i64::MAX);
        assert_eq!(fade(5, 10, 0), 5, "no half-life: nothing fades");
    }

    #[test]
    fn a_clock_that_jumps_counts_nothing() {
        let at = |s| Timestamp::from_second(s).unwrap_or(Timestamp::MIN);
        let mut use_ = PastUse::default();
        use_.count(1_000, at(100), 3_600);
        assert_eq!(use_.milli_gpu_secs(), 0, "nothing is known of before");
        use_.count(1_000, at(110), 3_600);
        let used = use_.milli_gpu_secs();
        assert!((9_900..=10_000).contains(&used), "{used}");
        use_.count(1_000, at(50), 3_600);
        assert_eq!(use_.milli_gpu_secs(), used);
        use_.count(i64::MAX, Timestamp::MAX, 3_600);
        assert!(use_.milli_gpu_secs() >= 0);
    }

    #[test]
    fn past_use_takes_at_most_three_quarters_of_the_weight() {
        assert_eq!(aged_weight(2, 0, 0), 128);
        assert_eq!(aged_weight(2, 50, 100), 128);
        assert_eq!(aged_weight(2, 200, 100), 64);
        assert_eq!(aged_weight(2, i64::MAX, 1), 32);
        assert_eq!(aged_weight(0, 5, 1), 0);
    }
}
