//! One run.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;
use serde::Serialize;

use super::life::{Figures, Kind, Life};
use super::policy::MigPolicy;
use crate::sched::mig::{Device, Geometry, Prices, Profile};

/// Load up to which a fleet is filled.
const FILL_TO: f64 = 1.3;

/// Shares of the arrivals of each plain profile, small to large.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Mix(Vec<f64>);

impl Mix {
    /// Of each profile.
    pub(super) fn shares(&self) -> &[f64] {
        &self.0
    }

    /// What was asked for least is asked for most.
    pub(super) fn turned(&self) -> Self {
        Self(self.0.iter().rev().copied().collect())
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> usize {
        let mut at = rng.f64() * self.0.iter().sum::<f64>();
        let found = self.0.iter().position(|share| {
            at -= share;
            at < 0.0
        });
        found.unwrap_or(self.0.len().saturating_sub(1))
    }
}

impl fmt::Display for Mix {
    /// In percent, as it may be typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = |share: &f64| (share * 1_000.0).round() / 10.0;
        let shares: Vec<String> = self.0.iter().map(|s| tenths(s).to_string()).collect();
        f.pad(&shares.join(","))
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shares: Result<Vec<f64>, _> = text.split(',').map(str::parse).collect();
        match shares {
            Ok(shares) if shares.iter().all(|s| *s >= 0.0 && s.is_finite()) => {
                let sum: f64 = shares.iter().sum();
                if sum > 0.0 {
                    return Ok(Self(shares.iter().map(|share| share / sum).collect()));
                }
                Err("a mix of nothing".to_owned())
            }
            _ => Err(format!(
                "{text:?} is no mix; it is a share for each profile from 1g to the whole GPU, such \
                 as 35,8,22,15,8,12"
            )),
        }
    }
}

/// What is tried out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Experiment {
    /// Nothing leaves.
    Fill,
    /// A Poisson stream at this load; what fits nowhere is lost.
    Loss(f64),
    /// The same stream; what fits nowhere waits, and those behind it may go first.
    Queue(f64),
    /// The loss model with a mix that turns around every six mean durations; ours learns it.
    Drift(f64),
}

impl Experiment {
    /// As it is typed and printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fill => "fill",
            Self::Loss(_) => "loss",
            Self::Queue(_) => "queue",
            Self::Drift(_) => "drift",
        }
    }

    fn load(self) -> Option<f64> {
        match self {
            Self::Fill => None,
            Self::Loss(load) | Self::Queue(load) | Self::Drift(load) => Some(load),
        }
    }
}

/// Figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigRow {
    /// `fill`, `loss`, `queue` or `drift`.
    pub experiment: &'static str,
    /// The model of the GPUs.
    pub model: &'static str,
    /// GPUs.
    pub gpus: usize,
    /// Shares of the arrivals.
    pub mix: Mix,
    /// Load; absent in a fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// The policy.
    pub policy: &'static str,
    /// The seed.
    pub seed: u64,
    /// Allocated share of the compute in percent: at 100 and 130 % of a fill, or over time.
    pub alloc_pct: Vec<f64>,
    /// Share of the arrivals that were lost, in percent.
    pub rejected_pct: f64,
    /// Mean wait in mean durations; only of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<f64>,
    /// The same of those that ask for a whole GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_whole: Option<f64>,
}

/// The devices and what runs on them.
pub(super) struct Fleet {
    pub(super) devices: Vec<Device>,
    pub(super) compute: u64,
}

impl Fleet {
    pub(super) fn empty(gpus: usize) -> Self {
        Self {
            devices: vec![Device::default(); gpus],
            compute: 0,
        }
    }

    pub(super) fn change(&mut self, device: usize, profile: &Profile, start: u8, comes: bool) {
        let (Some(state), Some(window)) = (self.devices.get_mut(device), profile.window(start))
        else {
            return;
        };
        let compute = u64::from(profile.compute);
        if comes {
            state.mask |= window;
            state.running += 1;
            state.compute += profile.compute;
            self.compute += compute;
        } else {
            state.mask &= !window;
            state.running = state.running.saturating_sub(1);
            state.compute = state.compute.saturating_sub(profile.compute);
            self.compute = self.compute.saturating_sub(compute);
        }
    }
}

/// Runs an experiment on `gpus` empty GPUs.
///
/// # Errors
/// The mix has not a share for each of the model's profiles.
pub fn run(
    geometry: &'static Geometry,
    gpus: usize,
    mix: &Mix,
    experiment: Experiment,
    policy: MigPolicy,
    seed: u64,
) -> Result<MigRow, String> {
    let profiles: Vec<&'static Profile> = geometry.plain().collect();
    if profiles.len() != mix.0.len() {
        let names: Vec<&str> = profiles.iter().map(|profile| profile.name).collect();
        return Err(format!(
            "the mix has {} shares; {} has {} profiles: {}",
            mix.0.len(),
            geometry.model,
            names.len(),
            names.join(", ")
        ));
    }
    let capacity = (gpus as u64 * u64::from(geometry.compute)) as f64;
    let figures = match experiment {
        Experiment::Fill => fill(geometry, gpus, mix, policy, seed),
        Experiment::Loss(load) | Experiment::Queue(load) | Experiment::Drift(load) => {
            let kind = Kind {
                waits: matches!(experiment, Experiment::Queue(_)),
                drifts: matches!(experiment, Experiment::Drift(_)),
            };
            Life::new(geometry, gpus, mix, policy, seed).run(kind, load)
        }
    };
    let share = |compute: f64| 100.0 * compute / capacity;
    Ok(MigRow {
        experiment: experiment.name(),
        model: geometry.model,
        gpus,
        mix: mix.clone(),
        load: experiment.load(),
        policy: policy.name(),
        seed,
        alloc_pct: figures.compute.into_iter().map(share).collect(),
        rejected_pct: 100.0 * figures.lost as f64 / figures.came.max(1) as f64,
        wait: figures.wait,
        wait_whole: figures.wait_whole,
    })
}

fn fill(
    geometry: &'static Geometry,
    gpus: usize,
    mix: &Mix,
    policy: MigPolicy,
    seed: u64,
) -> Figures {
    let profiles: Vec<&'static Profile> = geometry.plain().collect();
    let prices = Prices::new(geometry, mix.shares());
    let capacity = (gpus as u64 * u64::from(geometry.compute)) as f64;
    let mut fleet = Fleet::empty(gpus);
    // The stream does not depend on what the policy draws.
    let (mut stream, mut dice) = (Rng::with_seed(seed), Rng::with_seed(!seed));
    let mut figures = Figures::default();
    let mut asked = 0.0;
    for load in [1.0, FILL_TO] {
        while asked < load * capacity {
            let Some(profile) = profiles.get(mix.draw(&mut stream)) else {
                break;
            };
            asked += f64::from(profile.compute);
            figures.came += 1;
            let slot = policy.place(&prices, mix.shares(), &fleet.devices, profile, &mut dice);
            match slot {
                Some(slot) => fleet.change(slot.device, profile, slot.start, true),
                None => figures.lost += 1,
            }
        }
        figures.compute.push(fleet.compute as f64);
    }
    figures
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::sched::mig::{A30_24, A100_80};

    fn row(experiment: Experiment, policy: MigPolicy) -> MigRow {
        let mix = "35,8,22,15,8,12".parse().unwrap();
        run(&A100_80, 8, &mix, experiment, policy, 1).unwrap()
    }

    #[test]
    fn who_waits_is_not_lost_and_waits_longer_under_more_load() {
        let at = |load| row(Experiment::Queue(load), MigPolicy::Ours);
        let (low, high) = (at(0.6), at(0.9));
        for row in [&low, &high] {
            assert_eq!(row.rejected_pct, 0.0);
            assert!(row.wait_whole.unwrap() > row.wait.unwrap(), "{row:?}");
        }
        assert!(low.wait.unwrap() < high.wait.unwrap());
        assert!(low.alloc_pct[0] < high.alloc_pct[0]);
        assert_eq!(high, at(0.9), "the same seed, the same run");
        let loss = row(Experiment::Loss(0.9), MigPolicy::Ours);
        assert!(loss.wait.is_none() && loss.rejected_pct > 0.0);
        assert!(high.alloc_pct[0] > loss.alloc_pct[0], "nothing is lost");
    }

    #[test]
    fn a_mix_that_turns_around_is_learnt() {
        // Three profiles: prices are quickly made.
        let mix: Mix = "70,20,10".parse().unwrap();
        let at = |policy| run(&A30_24, 8, &mix, Experiment::Drift(0.9), policy, 1).unwrap();
        let (ours, random) = (at(MigPolicy::Ours), at(MigPolicy::Random));
        assert!(
            ours.alloc_pct[0] > random.alloc_pct[0] + 3.0,
            "{ours:?} {random:?}"
        );
    }
}
