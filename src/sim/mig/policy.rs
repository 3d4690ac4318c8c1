//! The policies that can be compared, by name.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

use crate::sched::mig::{
    Device, Geometry, Mask, Prices, Profile, Slot, choose, fragmentation_increment, scarcity,
};

/// A policy of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigPolicy {
    /// Gap prices and scarcity.
    Ours,
    /// Least increment of fragmentation.
    Mfi,
    /// The same by FGD's measure: all free compute is lost to a profile that does not fit.
    Fgd,
    /// The GPU with fewest free slices.
    BestFit,
    /// The first GPU and start.
    FirstFit,
    /// Any GPU that fits, its first start.
    Random,
}

impl MigPolicy {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Ours,
        Self::Mfi,
        Self::Fgd,
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
            Self::Fgd => "fgd",
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
            Self::Fgd => least_lost(prices.geometry(), share, devices, profile),
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

/// The place after which least free compute is lost to those who may come; the first among equals.
fn least_lost(
    geometry: &'static Geometry,
    share: &[f64],
    devices: &[Device],
    profile: &Profile,
) -> Option<Slot> {
    let lost = |mask: Mask, compute: u8| -> f64 {
        let free = f64::from(geometry.compute.saturating_sub(compute));
        let lost_to = geometry.plain().zip(share);
        let lost_to = lost_to.filter(|(other, _)| other.free_starts(mask).next().is_none());
        lost_to.map(|(_, share)| share * free).sum()
    };
    let mut best: Option<Slot> = None;
    for (device, state) in devices.iter().enumerate() {
        let before = lost(state.mask, state.compute);
        for (start, window) in profile.free_starts(state.mask) {
            let after = lost(state.mask | window, state.compute + profile.compute);
            let score = after - before;
            if best.is_none_or(|best| score < best.score - 1e-9) {
                best = Some(Slot {
                    device,
                    start,
                    score,
                });
            }
        }
    }
    best
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
