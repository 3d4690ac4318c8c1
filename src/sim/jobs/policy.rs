//! Orders of jobs, by their names on the command line.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::sched::odds::Odds;

/// How long a job may have run, in GPU-seconds, before it counts as long under [`Policy::Las`]: ten
/// GPU-hours, as benchmarks of that rule take it.
const LAS_GPU_SECONDS: f64 = 36_000.0;

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// First come; who does not fit holds up all behind.
    FifoStrict,
    /// First come of those that fit.
    FifoGreedy,
    /// First come; others may go ahead when they do not delay the first. Knows durations.
    Easy,
    /// Shortest of those that fit. Knows durations.
    Sjf,
    /// Least work left, and interrupts for it. Knows durations.
    Srtf,
    /// Jobs that ran little before those that ran long, in two bands, and interrupts for it.
    Las,
    /// Pod by pod without gangs: GPUs are held while the rest of a job waits.
    Gangless,
    /// gpudeck's: by the odds of being done soon, learnt from jobs that were; interrupts for much
    /// better odds where that costs least, never for a job that would not fit.
    Ours,
}

/// What a policy does beside its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Only the first may start.
    HeadOfLine,
    /// Whoever fits may start.
    Greedy,
    /// Whoever does not delay the first may start.
    Backfill,
}

impl Policy {
    /// All, baselines first.
    pub const ALL: [Policy; 8] = [
        Policy::FifoStrict,
        Policy::FifoGreedy,
        Policy::Easy,
        Policy::Sjf,
        Policy::Srtf,
        Policy::Las,
        Policy::Gangless,
        Policy::Ours,
    ];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::FifoStrict => "fifo-strict",
            Policy::FifoGreedy => "fifo-greedy",
            Policy::Easy => "easy",
            Policy::Sjf => "sjf",
            Policy::Srtf => "srtf",
            Policy::Las => "las",
            Policy::Gangless => "gangless",
            Policy::Ours => "ours",
        }
    }

    /// Whether it looks at durations, which no cluster knows.
    #[must_use]
    pub fn is_oracle(self) -> bool {
        matches!(self, Policy::Easy | Policy::Sjf | Policy::Srtf)
    }

    pub(super) fn manner(self) -> Manner {
        match self {
            Policy::FifoStrict => Manner::HeadOfLine,
            Policy::Easy => Manner::Backfill,
            _ => Manner::Greedy,
        }
    }

    pub(super) fn interrupts(self) -> bool {
        matches!(self, Policy::Srtf | Policy::Las | Policy::Ours)
    }

    /// The GPU-seconds at which a job leaves a band; `None` for the last.
    pub(super) fn band_end(self, band: u8) -> Option<f64> {
        match self {
            Policy::Las => (band == 0).then_some(LAS_GPU_SECONDS),
            Policy::Ours => Odds::end(band),
            _ => None,
        }
    }

    /// The place of a job within its band: lower goes first.
    pub(super) fn key(self, submit_s: f64, duration_s: f64, done_s: f64) -> f64 {
        match self {
            Policy::Sjf => duration_s,
            Policy::Srtf => duration_s - done_s,
            _ => submit_s,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Policy::ALL.into_iter().find(|p| p.name() == text);
        found.ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            format!("{text:?} is no policy; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_told() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("lifo".parse::<Policy>().is_err_and(|e| e.contains("srtf")));
    }
}
