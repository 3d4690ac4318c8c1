//! What each node has left.

use super::shape::{ModelId, Shape};

/// The most devices of one node.
pub const MAX_GPUS: usize = 16;

/// Changes that are remembered for each node before those who follow start anew.
const LOG_PER_NODE: usize = 16;

/// A node: what it has and what it has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Free CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Free memory in MiB.
    pub mem_mib: i64,
    /// CPU of the node in thousandths of a core.
    pub cpu_capacity_milli: i64,
    /// Memory of the node in MiB.
    pub mem_capacity_mib: i64,
    /// Model of its devices.
    pub model: ModelId,
    gpus: u8,
    milli: [u16; MAX_GPUS],
}

impl NodeRow {
    /// An empty node; devices past [`MAX_GPUS`] are left out.
    #[must_use]
    pub fn empty(cpu_milli: i64, mem_mib: i64, gpus: u8, model: ModelId) -> Self {
        let mut milli = [0; MAX_GPUS];
        let gpus = usize::from(gpus).min(MAX_GPUS);
        milli.iter_mut().take(gpus).for_each(|free| *free = 1000);
        Self {
            cpu_milli,
            mem_mib,
            cpu_capacity_milli: cpu_milli,
            mem_capacity_mib: mem_mib,
            model,
            gpus: u8::try_from(gpus).unwrap_or(0),
            milli,
        }
    }

    /// Devices.
    #[must_use]
    pub fn gpus(&self) -> u8 {
        self.gpus
    }

    /// Free thousandths of each device.
    #[must_use]
    pub fn free(&self) -> &[u16] {
        self.milli.get(..usize::from(self.gpus)).unwrap_or(&[])
    }

    /// Free thousandths of all devices together.
    #[must_use]
    pub fn free_milli_gpu(&self) -> i64 {
        // Those past the last are 0: a fixed number is added at once.
        i64::from(self.milli.iter().sum::<u16>())
    }

    /// Devices with at least `milli` free.
    #[must_use]
    pub fn devices_with(&self, milli: u16) -> usize {
        if milli == 0 {
            return usize::from(self.gpus);
        }
        let enough = self.milli.iter().map(|free| u16::from(*free >= milli));
        usize::from(enough.sum::<u16>())
    }

    /// Free thousandths of the devices that have at least `milli` free, 1 or more.
    pub(super) fn free_with(&self, milli: u16) -> u16 {
        let enough = |free: &u16| if *free >= milli { *free } else { 0 };
        self.milli.iter().map(enough).sum()
    }

    /// CPU, memory, model and devices suffice.
    #[must_use]
    pub fn fits(&self, shape: &Shape) -> bool {
        self.has_room(shape) && self.accepts(shape)
    }

    /// CPU and devices suffice.
    #[must_use]
    pub(super) fn has_room(&self, shape: &Shape) -> bool {
        self.cpu_milli >= shape.cpu_milli && self.has_devices(shape)
    }

    /// Devices suffice.
    #[must_use]
    pub(in crate::sched) fn has_devices(&self, shape: &Shape) -> bool {
        shape.gpus == 0 || self.devices_with(shape.milli_gpu) >= usize::from(shape.gpus)
    }

    /// The fullest device for a share, else the lowest that suffice.
    #[must_use]
    pub(in crate::sched) fn best_devices(&self, shape: &Shape) -> u16 {
        match self.fullest_device(shape.milli_gpu) {
            Some(device) if shape.is_shared() => 1 << device,
            _ => self.lowest_devices(shape),
        }
    }

    /// Memory suffices and the model is accepted.
    #[must_use]
    pub(super) fn accepts(&self, shape: &Shape) -> bool {
        self.mem_mib >= shape.mem_mib && (shape.gpus == 0 || shape.models.has(self.model))
    }

    /// The lowest devices that suffice, as a mask; 0 for a pod without GPUs.
    #[must_use]
    pub fn lowest_devices(&self, shape: &Shape) -> u16 {
        self.free()
            .iter()
            .enumerate()
            .filter(|(_, free)| **free >= shape.milli_gpu)
            .take(usize::from(shape.gpus))
            .fold(0, |mask, (i, _)| mask | 1 << i)
    }

    /// The fullest device that a shared pod fits on, lowest index first.
    #[must_use]
    pub fn fullest_device(&self, milli: u16) -> Option<usize> {
        self.free()
            .iter()
            .enumerate()
            .filter(|(_, free)| **free >= milli)
            .min_by_key(|(_, free)| **free)
            .map(|(i, _)| i)
    }

    /// The row after `shape` has gone (`sign` 1) to or left (-1) these devices.
    #[must_use]
    pub(super) fn after(&self, shape: &Shape, devices: u16, sign: i64) -> Self {
        let mut row = self.clone();
        row.cpu_milli -= sign * shape.cpu_milli;
        row.mem_mib -= sign * shape.mem_mib;
        row.shift(devices, shape.milli_gpu, sign);
        row
    }

    /// Takes (`sign` 1) or gives back (-1) thousandths of these devices.
    pub(in crate::sched) fn shift(&mut self, devices: u16, milli: u16, sign: i64) {
        let mut left = devices;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            if at < usize::from(self.gpus)
                && let Some(free) = self.milli.get_mut(at)
            {
                let left = i64::from(*free) - sign * i64::from(milli);
                *free = u16::try_from(left.clamp(0, 1000)).unwrap_or(0);
            }
        }
    }
}

/// The nodes. Their order is the order of preference among equal scores.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    rows: Vec<NodeRow>,
    /// Version of each row's last change.
    latest: Vec<u64>,
    /// Rows in the order in which they changed.
    log: Vec<u32>,
    /// Changes before the first that `log` holds.
    log_start: u64,
    free_milli_gpu: i64,
}

impl Fleet {
    /// A fleet of these nodes.
    #[must_use]
    pub fn new(rows: Vec<NodeRow>) -> Self {
        Self {
            latest: vec![0; rows.len()],
            free_milli_gpu: rows.iter().map(NodeRow::free_milli_gpu).sum(),
            rows,
            log: Vec::new(),
            log_start: 0,
        }
    }

    /// The nodes.
    #[must_use]
    pub fn rows(&self) -> &[NodeRow] {
        &self.rows
    }

    /// Free thousandths of a GPU over all nodes.
    #[must_use]
    pub fn free_milli_gpu(&self) -> i64 {
        self.free_milli_gpu
    }

    /// Changes so far.
    pub(super) fn version(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// Version of a row's last change.
    pub(super) fn changed_at(&self, index: usize) -> u64 {
        self.latest.get(index).copied().unwrap_or(0)
    }

    /// Rows changed since `version`, each once; `None` when that is too long ago.
    pub(super) fn changed_since(&self, version: u64) -> Option<impl Iterator<Item = usize>> {
        let from = usize::try_from(version.checked_sub(self.log_start)?).ok()?;
        let changes = self.log.get(from..)?;
        let first = version + 1;
        Some((first..).zip(changes).filter_map(|(at, row)| {
            let row = *row as usize;
            (self.changed_at(row) == at).then_some(row)
        }))
    }

    /// A pod goes to these devices of a node; the caller has found that it fits.
    pub fn place(&mut self, node: usize, shape: &Shape, devices: u16) {
        self.change(node, shape, devices, 1);
    }

    /// A pod leaves these devices of a node.
    pub fn remove(&mut self, node: usize, shape: &Shape, devices: u16) {
        self.change(node, shape, devices, -1);
    }

    fn change(&mut self, node: usize, shape: &Shape, devices: u16, sign: i64) {
        let Some(row) = self.rows.get_mut(node) else {
            return;
        };
        let before = row.free_milli_gpu();
        *row = row.after(shape, devices, sign);
        self.free_milli_gpu += row.free_milli_gpu() - before;
        if self.log.len() >= LOG_PER_NODE * self.rows.len() {
            self.log_start += self.log.len() as u64;
            self.log.clear();
        }
        self.log.push(u32::try_from(node).unwrap_or(u32::MAX));
        let version = self.version();
        if let Some(latest) = self.latest.get_mut(node) {
            *latest = version;
        }
    }
}
