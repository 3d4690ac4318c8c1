//! One run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::str::FromStr;

use fastrand::Rng;
use serde::Serialize;

use super::policy::MigPolicy;
use crate::sched::mig::{Device, Geometry, Prices, Profile};

/// Load up to which a fleet is filled.
const FILL_TO: f64 = 1.3;
/// Departures of the loss model that are not measured, per GPU, and those that are.
const WARM_UP_PER_GPU: u64 = 20;
const MEASURED_PER_GPU: u64 = 200;
/// Time is kept in these parts of the mean duration, so that it is ordered.
const TICKS: f64 = 1e9;

/// Shares of the arrivals of each plain profile, small to large.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Mix(Vec<f64>);

impl Mix {
    fn draw(&self, rng: &mut Rng) -> usize {
        let mut at = rng.f64() * self.0.iter().sum::<f64>();
        let found = self.0.iter().position(|share| {
            at -= share;
            at < 0.0
        });
        found.unwrap_or(self.0.len().saturating_sub(1))
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
}

/// Figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigRow {
    /// `fill` or `loss`.
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
}

struct Fleet {
    devices: Vec<Device>,
    compute: u64,
}

impl Fleet {
    fn change(&mut self, device: usize, profile: &Profile, start: u8, comes: bool) {
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
    let prices = Prices::new(geometry, &mix.0);
    let capacity = (gpus as u64 * u64::from(geometry.compute)) as f64;
    let mut fleet = Fleet {
        devices: vec![Device::default(); gpus],
        compute: 0,
    };
    // The stream does not depend on what the policy draws.
    let (mut stream, mut dice) = (Rng::with_seed(seed), Rng::with_seed(!seed));
    let mut place = |fleet: &mut Fleet, profile: &'static Profile| {
        let slot = policy.place(&prices, &mix.0, &fleet.devices, profile, &mut dice)?;
        fleet.change(slot.device, profile, slot.start, true);
        Some((slot.device, slot.start))
    };
    let (mut came, mut lost) = (0u64, 0u64);
    let mut alloc_pct = Vec::new();
    match experiment {
        Experiment::Fill => {
            let mut asked = 0.0;
            for load in [1.0, FILL_TO] {
                while asked < load * capacity {
                    let Some(profile) = profiles.get(mix.draw(&mut stream)) else {
                        break;
                    };
                    asked += f64::from(profile.compute);
                    came += 1;
                    lost += u64::from(place(&mut fleet, profile).is_none());
                }
                alloc_pct.push(100.0 * fleet.compute as f64 / capacity);
            }
        }
        Experiment::Loss(load) => {
            let rate = load * gpus as f64 / Prices::gpus_needed(geometry, &mix.0).max(1e-9);
            let mut wait = |mean: f64| (-(1.0 - stream.f64()).ln() * mean * TICKS) as u64;
            let warm_up = WARM_UP_PER_GPU * gpus as u64;
            let total = warm_up + MEASURED_PER_GPU * gpus as u64;
            let mut drawn = Rng::with_seed(seed.wrapping_add(1 << 32));
            let mut leaving: BinaryHeap<Reverse<(u64, usize, usize, u8)>> = BinaryHeap::new();
            let (mut now, mut used, mut since) = (0u64, 0.0, 0u64);
            for number in 0..total {
                let at = now + wait(1.0 / rate);
                let q = mix.draw(&mut drawn);
                let life = wait(1.0);
                while let Some(Reverse((ends, device, q, start))) = leaving.peek().copied() {
                    if ends > at {
                        break;
                    }
                    leaving.pop();
                    used += (ends - now) as f64 * fleet.compute as f64;
                    now = ends;
                    if let Some(profile) = profiles.get(q) {
                        fleet.change(device, profile, start, false);
                    }
                }
                used += (at - now) as f64 * fleet.compute as f64;
                now = at;
                if number == warm_up {
                    (used, since, came, lost) = (0.0, now, 0, 0);
                }
                came += 1;
                let placed = profiles
                    .get(q)
                    .and_then(|profile| place(&mut fleet, profile));
                match placed {
                    Some((device, start)) => leaving.push(Reverse((now + life, device, q, start))),
                    None => lost += 1,
                }
            }
            alloc_pct.push(100.0 * used / ((now - since) as f64 * capacity).max(1e-9));
        }
    }
    Ok(MigRow {
        experiment: match experiment {
            Experiment::Fill => "fill",
            Experiment::Loss(_) => "loss",
        },
        model: geometry.model,
        gpus,
        mix: mix.clone(),
        load: match experiment {
            Experiment::Fill => None,
            Experiment::Loss(load) => Some(load),
        },
        policy: policy.name(),
        seed,
        alloc_pct,
        rejected_pct: 100.0 * lost as f64 / came.max(1) as f64,
    })
}
