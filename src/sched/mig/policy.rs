//! Where a slice goes when idle slices can be cut in place.

use super::geometry::{Mask, Profile};
use super::prices::Prices;

/// The most a class running short may weigh.
const SCARCITY_CAP: f64 = 50.0;
/// How much scarcity counts beside prices.
const SCARCITY_WEIGHT: f64 = 0.3;
/// What one running neighbour is worth: it keeps empty GPUs empty among equals.
const NEIGHBOUR: f64 = 0.003;
/// Scores this close are a tie.
const TIE: f64 = 1e-9;

/// One GPU in MIG mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Device {
    /// Occupied memory slices.
    pub mask: Mask,
    /// Instances that run something.
    pub running: u8,
    /// Compute slices of those.
    pub compute: u8,
}

/// Where an instance goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slot {
    /// Index of the GPU.
    pub device: usize,
    /// First memory slice.
    pub start: u8,
    /// What it costs, in GPUs; lower is better.
    pub score: f64,
}

/// What each plain profile weighs now, by how short the fleet is of room for it.
pub type Scarcity = Vec<f64>;

/// Weights of the plain profiles over `devices`; `share` is each profile's share of the arrivals.
#[must_use]
pub fn scarcity(prices: &Prices, share: &[f64], devices: &[Device]) -> Scarcity {
    let mut room = vec![0.0_f64; prices.most().len()];
    let mut free_gpus = 0.0;
    let compute = prices.geometry().compute;
    for device in devices {
        for (room, copies) in room.iter_mut().zip(prices.copies(device.mask)) {
            *room += f64::from(*copies);
        }
        free_gpus += f64::from(compute.saturating_sub(device.compute)) / f64::from(compute);
    }
    room.iter()
        .zip(prices.most())
        .zip(share)
        .map(|((room, most), share)| {
            let sigma = if *room > 0.0 {
                (free_gpus * most / room).min(SCARCITY_CAP)
            } else {
                SCARCITY_CAP
            };
            share / most * sigma * sigma
        })
        .collect()
}

/// The best place for an instance of `profile`, or `None` when it fits nowhere. Among equals the
/// lowest GPU, then the lowest start.
#[must_use]
pub fn choose(
    prices: &Prices,
    scarcity: &Scarcity,
    devices: &[Device],
    profile: &Profile,
) -> Option<Slot> {
    let mut best: Option<Slot> = None;
    for (index, device) in devices.iter().enumerate() {
        for (start, window) in profile.free_starts(device.mask) {
            let after = device.mask | window;
            let lost: f64 = prices
                .copies(device.mask)
                .iter()
                .zip(prices.copies(after))
                .zip(scarcity)
                .map(|((before, after), weight)| weight * (f64::from(*before) - f64::from(*after)))
                .sum();
            let score = prices.free(device.mask) - prices.free(after) + SCARCITY_WEIGHT * lost
                - NEIGHBOUR * f64::from(device.running);
            if best.is_none_or(|best| score < best.score - TIE) {
                best = Some(Slot {
                    device: index,
                    start,
                    score,
                });
            }
        }
    }
    best
}
