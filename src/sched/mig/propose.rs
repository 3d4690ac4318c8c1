//! Which idle GPUs to cut anew, where layouts are fixed until a planner changes them.
//!
//! What a fleet of slots carries of the load is the Erlang loss formula's, profile by profile; an
//! idle GPU is cut anew when the slots that it would have carry enough more to pay for the time in
//! which it has none. A GPU on which anything runs is left alone: draining it never paid.

use super::geometry::{Geometry, Profile};
use super::prices::patterns;

/// A re-cut has to gain this many times the work that the cutting itself costs.
const WORTH: f64 = 2.0;

/// One GPU as a planner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct CutGpu {
    /// Instances of each plain profile.
    pub slots: Vec<u8>,
    /// Something runs on it.
    pub busy: bool,
}

/// An idle GPU to be cut anew.
#[derive(Debug, Clone, PartialEq)]
pub struct Recut {
    /// Index of the GPU.
    pub gpu: usize,
    /// Instances of each plain profile that it gets.
    pub slots: Vec<u8>,
    /// Compute slices that are busy on average then and are not now.
    pub gain: f64,
    /// Compute slices' worth of work lost while it is cut, spread over the mean duration.
    pub cost: f64,
}

/// Share of the arrivals that find all `slots` busy, at a load in running instances (Erlang B).
#[must_use]
pub fn blocked(slots: u32, load: f64) -> f64 {
    if load.is_nan() || load <= 0.0 {
        return 0.0;
    }
    (1..=slots).fold(1.0, |before, n| {
        let b = load * before;
        b / (f64::from(n) + b)
    })
}

/// What slots of each profile carry, in compute slices.
fn carried(profiles: &[&Profile], slots: &[u32], load: &[f64]) -> f64 {
    profiles
        .iter()
        .zip(slots)
        .zip(load)
        .map(|((profile, slots), load)| {
            f64::from(profile.compute) * load * (1.0 - blocked(*slots, *load))
        })
        .sum()
}

/// The re-cuts that pay, the best first: `load` is each plain profile's arrivals times its mean
/// duration, `cut_time` the time without slots in mean durations. Each counts on those before it,
/// and there are `most` at most.
#[must_use]
pub fn propose(
    geometry: &'static Geometry,
    gpus: &[CutGpu],
    load: &[f64],
    cut_time: f64,
    most: usize,
) -> Vec<Recut> {
    let profiles: Vec<&Profile> = geometry.plain().collect();
    let layouts = patterns(geometry);
    let mut slots = vec![0_u32; profiles.len()];
    for gpu in gpus {
        add(&mut slots, &gpu.slots);
    }
    let value = |slots: &[u32]| carried(&profiles, slots, load);
    let mut idle: Vec<usize> = (0..gpus.len())
        .filter(|at| gpus.get(*at).is_some_and(|gpu| !gpu.busy))
        .collect();
    let mut proposed: Vec<Recut> = Vec::new();
    while proposed.len() < most {
        let mut best: Option<Recut> = None;
        let mut seen: Vec<&[u8]> = Vec::new();
        for gpu in &idle {
            let Some(now) = gpus.get(*gpu).map(|gpu| gpu.slots.as_slice()) else {
                continue;
            };
            // GPUs that are cut alike are alike.
            if seen.contains(&now) {
                continue;
            }
            seen.push(now);
            let mut others = slots.clone();
            for (sum, n) in others.iter_mut().zip(now) {
                *sum = sum.saturating_sub(u32::from(*n));
            }
            let (without, with) = (value(&others), value(&slots));
            for layout in &layouts {
                let mut after = others.clone();
                add(&mut after, layout);
                let total = value(&after);
                let (gain, cost) = (total - with, WORTH * cut_time * (total - without));
                let net = gain - cost;
                let better = best
                    .as_ref()
                    .is_none_or(|best| net > best.gain - WORTH * best.cost + 1e-9);
                if net > 1e-9 && better {
                    best = Some(Recut {
                        gpu: *gpu,
                        slots: layout.clone(),
                        gain,
                        cost: cost / WORTH,
                    });
                }
            }
        }
        let Some(best) = best else { break };
        if let Some(before) = gpus.get(best.gpu) {
            for (sum, n) in slots.iter_mut().zip(&before.slots) {
                *sum = sum.saturating_sub(u32::from(*n));
            }
        }
        add(&mut slots, &best.slots);
        idle.retain(|gpu| *gpu != best.gpu);
        proposed.push(best);
    }
    proposed
}

fn add(slots: &mut [u32], more: &[u8]) {
    for (sum, n) in slots.iter_mut().zip(more) {
        *sum += u32::from(*n);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::sched::mig::A100_80;

    #[test]
    fn the_loss_formula_is_erlangs() {
        for (slots, load, loss) in [
            (0, 1.0, 1.0),
            (1, 1.0, 0.5),
            (2, 1.0, 0.2),
            (5, 3.0, 0.110_05),
        ] {
            assert!((blocked(slots, load) - loss).abs() < 1e-5, "{slots} {load}");
        }
        assert_eq!(blocked(3, 0.0), 0.0);
        assert_eq!(blocked(3, -1.0), 0.0);
        assert_eq!(blocked(3, f64::NAN), 0.0);
    }

    /// Counts of 1g, 1g with double memory, 2g, 3g, 4g, 7g.
    fn gpu(slots: [u8; 6], busy: bool) -> CutGpu {
        CutGpu {
            slots: slots.to_vec(),
            busy,
        }
    }

    #[test]
    fn only_idle_gpus_are_cut_and_only_for_what_is_asked() {
        let sevens = [7, 0, 0, 0, 0, 0];
        let gpus = [gpu(sevens, true), gpu(sevens, false), gpu(sevens, false)];
        let load = [2.0, 0.0, 0.0, 2.0, 0.0, 0.0];
        let all = propose(&A100_80, &gpus, &load, 0.02, 8);
        assert!(!all.is_empty() && all.iter().all(|r| r.gpu > 0), "{all:?}");
        assert_eq!(all[0].slots[3], 2, "two of 3g: {all:?}");
        assert!(all[0].gain > 2.0 * all[0].cost && all[0].cost > 0.0);
        // Nothing to gain, too dear, or not allowed.
        assert!(propose(&A100_80, &gpus, &[2.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.02, 8).is_empty());
        assert!(propose(&A100_80, &gpus, &load, 1.0, 8).is_empty());
        assert!(propose(&A100_80, &gpus, &load, 0.02, 0).is_empty());
        let busy = [gpu(sevens, true)];
        assert!(propose(&A100_80, &busy, &load, 0.02, 8).is_empty());
    }
}
