//! What the GPUs would measure: numbers that follow from what runs on a device, the seed and the
//! time, believable and the same twice.

use super::super::clock::Clock;
use super::geometry::Model;

/// What one GPU or MIG device does at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Activity {
    /// Ratio of time in which anything ran on it.
    pub engine: f64,
    /// Ratio of cycles with a warp on a multiprocessor.
    pub sm: f64,
    /// Warps of those possible.
    pub occupancy: f64,
    /// Ratio of cycles of the tensor pipe.
    pub tensor: f64,
    /// Ratio of cycles of the memory interface.
    pub dram: f64,
    /// Share of the memory in use.
    pub memory: f64,
}

impl Activity {
    /// What the pod `pod` (its key) does on the device `device` in the collection `tick`.
    ///
    /// Of ten pods seven keep their device busy with pauses for checkpoints, two serve requests in
    /// waves, and one holds it and does next to nothing.
    pub(super) fn of(clock: Clock, pod: &str, device: &str, tick: u64) -> Self {
        let kind = clock.unit(&format!("{pod}/kind"));
        let phase = clock.unit(&format!("{pod}/phase"));
        let noise = clock.unit(&format!("{device}/{tick}")) - 0.5;
        let base = clock.unit(&format!("{pod}/base"));
        let turn = |period: f64| (tick as f64 / period + phase) * std::f64::consts::TAU;
        let engine = if kind < 0.7 {
            // Every 40th collection falls into a checkpoint.
            let pause = (tick + (phase * 40.0) as u64).is_multiple_of(40);
            let steady = 0.82 + 0.15 * base + 0.04 * noise;
            if pause { 0.12 } else { steady }
        } else if kind < 0.9 {
            0.45 + 0.3 * turn(60.0).sin() + 0.1 * noise
        } else {
            0.015 + 0.02 * (noise + 0.5)
        };
        let engine = engine.clamp(0.0, 1.0);
        Self {
            engine,
            sm: engine * (0.86 + 0.08 * base),
            occupancy: engine * (0.25 + 0.3 * base),
            tensor: engine * (0.25 + 0.35 * base),
            dram: engine * (0.35 + 0.3 * (1.0 - base)),
            memory: 0.35 + 0.6 * base,
        }
    }

    /// The mean of several devices by their weight, for the whole GPU that they are part of.
    pub(super) fn mean(parts: &[(Self, f64)]) -> Self {
        let sum = |pick: fn(&Self) -> f64| -> f64 {
            parts.iter().map(|(part, weight)| pick(part) * weight).sum()
        };
        Self {
            engine: sum(|a| a.engine),
            sm: sum(|a| a.sm),
            occupancy: sum(|a| a.occupancy),
            tensor: sum(|a| a.tensor),
            dram: sum(|a| a.dram),
            memory: sum(|a| a.memory),
        }
    }
}

/// What a GPU as a whole shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Board {
    /// Watts.
    pub power: f64,
    /// Degrees Celsius of the GPU and of its memory.
    pub temperature: (u32, u32),
    /// MHz of the multiprocessors.
    pub sm_clock: u32,
}

impl Board {
    /// The board of the GPU `uuid` that does `activity`.
    pub(super) fn of(clock: Clock, model: &Model, uuid: &str, activity: Activity) -> Self {
        let (idle, most) = model.power_watts;
        let own = clock.unit(&format!("{uuid}/board"));
        let load = 0.7 * activity.engine + 0.2 * activity.tensor + 0.1 * activity.dram;
        let power = idle * (0.9 + 0.2 * own) + (most - idle) * load;
        let heat = power / most;
        let gpu = 26.0 + 6.0 * own + 38.0 * heat;
        let busy = activity.engine > 0.01;
        let (sm_clock, _) = model.clocks_mhz;
        Self {
            power,
            temperature: (gpu.round() as u32, (gpu + 3.0 + 9.0 * heat).round() as u32),
            // Near its power limit a board clocks down a little.
            sm_clock: match (busy, heat > 0.85) {
                (false, _) => 345,
                (true, false) => sm_clock,
                (true, true) => sm_clock.saturating_sub(sm_clock / 9),
            },
        }
    }
}
