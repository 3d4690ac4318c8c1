//! The policies that can be compared, by name.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

use crate::sched::mig::{Device, Prices, Profile, Slot, choose, fragmentation_increment, scarcity};

/// A policy of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigPolicy {
    /// Gap prices and scarcity.
    Ours,
    /// Least increment of fragmentation.
    Mfi,
    /// The GPU with fewest free slices.
    BestFit,
    /// The first GPU and start.
    FirstFit,
    /// Any GPU that fits, its first start.
    Random,
}

impl MigPolicy {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ours,
        Self::Mfi,
        Self::BestFit,
        Self::FirstFit,
        Self::Random,
    ];

    /// As it is typed and printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Mfi => "mfi",
            Self::BestFit => "bestfit",
            Self::FirstFit => "firstfit",
            Self::Random => "random",
        }
    }

    /// Where an instance goes; `share` is each plain profile's share of the arrivals.
    pub(super) fn place(
        self,
        prices: &Prices,
        share: &[f64],
        devices: &[Device],
        profile: &Profile,
        rng: &mut Rng,
    ) -> Option<Slot> {
        let fitting = || {
            devices.iter().enumerate().filter_map(|(device, state)| {
                let (start, _) = profile.free_starts(state.mask).next()?;
                let score = 0.0;
                Some((
                    state,
                    Slot {
                        device,
                        start,
                        score,
                    },
                ))
            })
        };
        match self {
            Self::Ours => {
                let weights = scarcity(prices, share, devices);
                choose(prices, &weights, devices, profile)
            }
            Self::Mfi => fragmentation_increment(prices.geometry(), devices, profile),
            Self::BestFit => fitting()
                .min_by_key(|(state, _)| std::cmp::Reverse(state.mask.count_ones()))
                .map(|(_, slot)| slot),
            Self::FirstFit => fitting().next().map(|(_, slot)| slot),
            Self::Random => {
                let count = fitting().count();
                fitting()
                    .nth(rng.usize(..count.max(1)))
                    .map(|(_, slot)| slot)
            }
        }
    }
}

impl fmt::Display for MigPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for MigPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no policy {text:?}; there are {names}")
        })
    }
}
