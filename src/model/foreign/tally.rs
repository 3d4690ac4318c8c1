//! What waits and runs in one queue, counted as its work comes and goes.

use std::collections::{BTreeMap, BTreeSet};

use super::super::gpu::GpuResource;
use super::ForeignId;
use super::entry::{EntryState, QueueEntry};

/// The work of one queue.
#[derive(Clone, Default, Debug)]
pub struct QueueTally {
    /// All of it.
    pub entries: BTreeSet<ForeignId>,
    /// Pieces that are in line.
    pub waiting: u32,
    /// Pieces that may run.
    pub admitted: u32,
    waiting_milli: BTreeMap<GpuResource, i128>,
}

impl QueueTally {
    fn step(&mut self, entry: &QueueEntry, sign: i32) {
        let step = |n: &mut u32| *n = n.saturating_add_signed(sign);
        if entry.state.waits() {
            step(&mut self.waiting);
            for (resource, milli) in &entry.asked_milli {
                let sum = self.waiting_milli.entry(resource.clone()).or_default();
                *sum += i128::from(*milli) * i128::from(sign);
            }
        } else if matches!(entry.state, EntryState::Reserved | EntryState::Admitted) {
            step(&mut self.admitted);
        }
    }

    pub(in crate::model) fn add(&mut self, id: &ForeignId, entry: &QueueEntry) {
        if self.entries.insert(id.clone()) {
            self.step(entry, 1);
        }
    }

    pub(in crate::model) fn remove(&mut self, id: &ForeignId, entry: &QueueEntry) {
        if self.entries.remove(id) {
            self.step(entry, -1);
        }
    }

    /// Devices that what is in line asks for, in thousandths.
    pub fn waiting_milli(&self, resource: &GpuResource) -> i64 {
        let sum = self.waiting_milli.get(resource).copied().unwrap_or(0);
        i64::try_from(sum).unwrap_or(i64::MAX)
    }

    /// Devices of which something in line asks.
    pub fn waiting_for(&self) -> impl Iterator<Item = &GpuResource> {
        let asked = self.waiting_milli.iter().filter(|(_, n)| **n > 0);
        asked.map(|(resource, _)| resource)
    }
}
