//! MIG GPUs of the cluster that would carry more if they were cut anew.

use std::collections::BTreeMap;

use crate::model::Str;
use crate::sched::mig::{self, CutGpu, Geometry};
use crate::sched::slices::Layout;
use crate::sched::state::State;

/// What a re-cut costs and how many there may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RecutLimits {
    /// Seconds in which a GPU has no instances while it is cut.
    pub cut_secs: f64,
    /// How long work runs on an instance on average, in seconds.
    pub mean_run_secs: f64,
    /// GPUs at once, by model.
    pub most: usize,
}

impl Default for RecutLimits {
    fn default() -> Self {
        Self {
            cut_secs: 120.0,
            mean_run_secs: 3_600.0,
            most: 4,
        }
    }
}

/// An idle GPU to be cut anew.
#[derive(Clone, PartialEq, Debug)]
pub struct RecutProposal {
    /// The node.
    pub node: Str,
    /// The device, as the scheduler counts those in MIG mode on its node.
    pub device: u8,
    /// Profiles and numbers of instances that it has.
    pub from: Vec<(Str, u8)>,
    /// Those that it gets.
    pub to: Vec<(Str, u8)>,
    /// Compute slices busy on average, more than now.
    pub gain_slices: f64,
    /// Slice-seconds without instances while it is cut.
    pub cost_slice_secs: f64,
    /// All of it in words.
    pub why: Str,
}

/// A device of a node.
struct Found<'a> {
    node: &'a Str,
    device: u8,
    cut: CutGpu,
}

/// Re-cuts that pay for themselves, over GPUs on which nothing runs: what is asked for is what runs
/// on instances and what waits for them. Pure; a proposal changes nothing.
#[must_use]
pub fn propose_recuts(state: &State, limits: &RecutLimits) -> Vec<RecutProposal> {
    let mut models: BTreeMap<&'static str, (&'static Geometry, Vec<Found<'_>>, Vec<f64>)> =
        BTreeMap::new();
    for (row, slot) in state.rows.rows.iter().zip(&state.rows.slots) {
        let Some(layout) = row.gpus.layout.as_deref().filter(|_| row.node.is_some()) else {
            continue;
        };
        let geometry = layout.geometry();
        let profiles = geometry.plain().count();
        let (_, devices, load) = models
            .entry(geometry.model)
            .or_insert_with(|| (geometry, Vec::new(), vec![0.0; profiles]));
        for (device, slots, running) in cuts(layout, slot.slices) {
            for (load, n) in load.iter_mut().zip(&running) {
                *load += f64::from(*n);
            }
            devices.push(Found {
                node: &row.name,
                device,
                cut: CutGpu {
                    slots,
                    busy: running.iter().any(|n| *n > 0),
                },
            });
        }
    }
    let mut proposals = Vec::new();
    for (geometry, devices, mut load) in models.into_values() {
        waiting(state, geometry, &mut load);
        let cuts: Vec<CutGpu> = devices.iter().map(|found| found.cut.clone()).collect();
        let cut_time = limits.cut_secs / limits.mean_run_secs.max(1.0);
        for recut in mig::propose(geometry, &cuts, &load, cut_time, limits.most) {
            let Some(found) = devices.get(recut.gpu) else {
                continue;
            };
            let (from, to) = (
                named(geometry, &found.cut.slots),
                named(geometry, &recut.slots),
            );
            let cost = recut.cost * limits.mean_run_secs;
            let why = format!(
                "GPU {} of {} is idle: {} instead of {} carries {:.1} compute slices more, for \
                 {cost:.0} slice-seconds without instances",
                found.device,
                found.node,
                words(&to),
                words(&from),
                recut.gain,
            );
            proposals.push(RecutProposal {
                node: found.node.clone(),
                device: found.device,
                from,
                to,
                gain_slices: recut.gain,
                cost_slice_secs: cost,
                why: why.into(),
            });
        }
    }
    proposals
}

/// Instances of each plain profile, and those that run.
type Counts = (Vec<u8>, Vec<u8>);
/// The same with their device.
type Cut = (u8, Vec<u8>, Vec<u8>);

/// The devices of a layout; those with instances of a media profile are left out, for nobody
/// knows who would miss it.
fn cuts(layout: &Layout, free: u128) -> Vec<Cut> {
    let plain: Vec<&str> = layout.geometry().plain().map(|p| p.name).collect();
    let mut devices: BTreeMap<u8, Option<Counts>> = BTreeMap::new();
    for (i, (profile, device, _)) in layout.instances().enumerate() {
        let blank = || Some((vec![0; plain.len()], vec![0; plain.len()]));
        let entry = devices.entry(device).or_insert_with(blank);
        let at = plain.iter().position(|name| *name == profile);
        let (Some(at), Some((slots, running))) = (at, entry.as_mut()) else {
            *entry = None;
            continue;
        };
        if let (Some(n), Some(busy)) = (slots.get_mut(at), running.get_mut(at)) {
            *n += 1;
            *busy += u8::from(free >> i & 1 == 0);
        }
    }
    devices
        .into_iter()
        .filter_map(|(device, cut)| cut.map(|(slots, running)| (device, slots, running)))
        .collect()
}

/// Adds what waits for instances of a model.
fn waiting(state: &State, geometry: &'static Geometry, load: &mut [f64]) {
    let pods = state.queue.values().filter_map(|uid| state.tracked(uid));
    for tracked in pods.filter(|tracked| tracked.problem.is_none()) {
        for (at, profile) in geometry.plain().enumerate() {
            let key = format!("nvidia.com/mig-{}", profile.name);
            let n = tracked.pod.requests.extended(&key).clamp(0, 1_000);
            if let Some(load) = load.get_mut(at) {
                *load += n as f64;
            }
        }
    }
}

fn named(geometry: &'static Geometry, slots: &[u8]) -> Vec<(Str, u8)> {
    let all = geometry.plain().zip(slots);
    all.filter(|(_, n)| **n > 0)
        .map(|(profile, n)| (profile.name.into(), *n))
        .collect()
}

fn words(cut: &[(Str, u8)]) -> String {
    let all: Vec<String> = cut
        .iter()
        .map(|(name, n)| format!("{n} of {name}"))
        .collect();
    all.join(" and ")
}
