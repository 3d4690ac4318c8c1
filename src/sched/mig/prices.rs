//! What free slices are worth: the dual prices of covering the demand with whole GPUs.

use std::collections::BTreeSet;

use super::geometry::{Geometry, Mask, Profile};
use crate::sched::simplex;

/// Demands are moved by this factor's power, up and down, so that no single vertex decides.
const SPREAD: f64 = 0.2;
/// Vertices that are averaged.
const VERTICES: u32 = 16;
/// Which of the vertices move a profile's demand down: those with odd parity under its mask.
const PARITY: [u32; 6] = [1, 2, 4, 8, 15, 7];
/// A pattern has to be worth more than its cost by this.
const GAIN: f64 = 1e-7;

/// The worth of what is free on a GPU, in GPUs, for every occupancy.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices {
    geometry: &'static Geometry,
    /// By mask.
    free: Vec<f64>,
    /// Copies of each plain profile that fit, by mask.
    copies: Vec<Vec<u8>>,
    /// The most copies of each plain profile on one GPU.
    most: Vec<f64>,
}

impl Prices {
    /// Prices for `demand`: per plain profile the share of arrivals times the mean duration.
    /// Profiles that nobody asks for have demand 0; missing entries count as 0.
    #[must_use]
    pub fn new(geometry: &'static Geometry, demand: &[f64]) -> Self {
        let profiles: Vec<&Profile> = geometry.plain().collect();
        let masks = 0..=geometry.full();
        let copies: Vec<Vec<u8>> = masks
            .map(|mask| profiles.iter().map(|p| p.copies(mask)).collect())
            .collect();
        let most: Vec<f64> = profiles.iter().map(|p| f64::from(p.copies(0))).collect();
        let patterns = patterns(geometry);
        let mut free = vec![0.0; copies.len()];
        for k in 0..VERTICES {
            let moved: Vec<f64> = profiles
                .iter()
                .enumerate()
                .map(|(q, _)| {
                    let parity = PARITY.get(q).map_or(0, |m| (k & m).count_ones() % 2);
                    let by = if parity == 1 { -SPREAD } else { SPREAD };
                    let demand = demand.get(q).copied().unwrap_or(0.0);
                    if demand.is_finite() {
                        demand.max(0.0) * by.exp()
                    } else {
                        0.0
                    }
                })
                .collect();
            let mut w = simplex::prices(&moved, &most, |w| dearest(&patterns, w));
            for (price, demand) in w.iter_mut().zip(&moved) {
                if *demand <= 0.0 {
                    *price = 0.0;
                }
            }
            for (sum, worth) in free.iter_mut().zip(worth(geometry, &profiles, &w)) {
                *sum += worth / f64::from(VERTICES);
            }
        }
        Self {
            geometry,
            free,
            copies,
            most,
        }
    }

    /// GPUs that `demand`, in running instances of each plain profile, needs at least when packed
    /// in parts.
    #[must_use]
    pub fn gpus_needed(geometry: &'static Geometry, demand: &[f64]) -> f64 {
        let most: Vec<f64> = geometry.plain().map(|p| f64::from(p.copies(0))).collect();
        let patterns = patterns(geometry);
        let mut demand = demand.to_vec();
        demand.resize(most.len(), 0.0);
        let w = simplex::prices(&demand, &most, |w| dearest(&patterns, w));
        w.iter()
            .zip(&demand)
            .map(|(price, demand)| price * demand)
            .sum()
    }

    /// The model that the prices are for.
    #[must_use]
    pub fn geometry(&self) -> &'static Geometry {
        self.geometry
    }

    /// The worth of what `mask` leaves free, in GPUs.
    #[must_use]
    pub fn free(&self, mask: Mask) -> f64 {
        self.free.get(usize::from(mask)).copied().unwrap_or(0.0)
    }

    /// Copies of each plain profile that fit under `mask`.
    #[must_use]
    pub fn copies(&self, mask: Mask) -> &[u8] {
        self.copies
            .get(usize::from(mask))
            .map_or(&[], Vec::as_slice)
    }

    /// The most copies of each plain profile on an empty GPU.
    #[must_use]
    pub fn most(&self) -> &[f64] {
        &self.most
    }
}

/// By mask, the most that the free slices can be sold for.
fn worth(geometry: &Geometry, profiles: &[&Profile], w: &[f64]) -> Vec<f64> {
    let mut worth = vec![0.0; usize::from(geometry.full()) + 1];
    // A window only adds bits, so what it leads to is known already.
    for mask in (0..=geometry.full()).rev() {
        let mut best = 0.0_f64;
        for (profile, price) in profiles.iter().zip(w) {
            for (_, window) in profile.free_starts(mask) {
                let rest = worth.get(usize::from(mask | window)).copied();
                best = best.max(price + rest.unwrap_or(0.0));
            }
        }
        if let Some(slot) = worth.get_mut(usize::from(mask)) {
            *slot = best;
        }
    }
    worth
}

/// The counts of plain profiles on GPUs where nothing more fits.
pub(super) fn patterns(geometry: &Geometry) -> Vec<Vec<u8>> {
    let profiles: Vec<&Profile> = geometry.plain().collect();
    let mut seen: BTreeSet<(Mask, Vec<u8>)> = BTreeSet::new();
    let mut found: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut open = vec![(0, vec![0u8; profiles.len()])];
    while let Some((mask, counts)) = open.pop() {
        if !seen.insert((mask, counts.clone())) {
            continue;
        }
        let mut full = true;
        for (q, profile) in profiles.iter().enumerate() {
            for (_, window) in profile.free_starts(mask) {
                full = false;
                let mut counts = counts.clone();
                if let Some(count) = counts.get_mut(q) {
                    *count += 1;
                }
                open.push((mask | window, counts));
            }
        }
        if full {
            found.insert(counts);
        }
    }
    found.into_iter().collect()
}

/// The pattern worth most, when it is worth more than a GPU.
fn dearest(patterns: &[Vec<u8>], w: &[f64]) -> Option<Vec<f64>> {
    let mut best: Option<(&Vec<u8>, f64)> = None;
    for pattern in patterns {
        let worth: f64 = {
            let priced = pattern.iter().zip(w);
            priced.map(|(n, price)| f64::from(*n) * price).sum()
        };
        if worth > best.map_or(1.0 + GAIN, |(_, most)| most) {
            best = Some((pattern, worth));
        }
    }
    best.map(|(pattern, _)| pattern.iter().copied().map(f64::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::mig::A100_80;

    #[test]
    fn the_eight_slice_family_has_38_full_counts() {
        assert_eq!(patterns(&A100_80).len(), 38);
    }
}
