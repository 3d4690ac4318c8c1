//! What a node's room is worth to the classes that come, by how short the fleet is of each.

use std::collections::BTreeMap;

use super::fleet::NodeRow;
use super::shape::{ModelId, Shape};

/// Copies that CPU would allow count this much more: a node short of CPU is not yet useless.
const CPU_SLACK: f64 = 1.75;
/// How sharply scarcity weighs.
const SHARPNESS: f64 = 1.5;
/// The most a class running short may weigh.
const CAP: f64 = 50.0;

/// Devices that a class asks for, and where its entries are.
#[derive(Debug, Clone, Copy)]
struct Size {
    gpus: u8,
    milli: u16,
    from: usize,
    to: usize,
}

/// CPU that a class asks for, and copies per thousandth of a core.
#[derive(Debug, Clone, Copy)]
struct Entry {
    cpu_milli: i64,
    per_cpu: f64,
}

/// Weights of all classes.
#[derive(Debug, Clone, Default)]
pub(in crate::sched) struct Weights {
    sizes: Vec<Size>,
    /// By size, then CPU.
    entries: Vec<Entry>,
    /// By model, a weight per entry.
    models: Vec<Vec<f64>>,
}

impl Weights {
    /// Weights for these shares of arrivals over this fleet. A class counts by its size to the
    /// power of `by_size`; `normal` scales them so that a free GPU is worth 1 on average.
    pub(super) fn new<'a>(
        shares: &[(Shape, f64)],
        rows: impl Iterator<Item = &'a NodeRow> + Clone,
        free_milli_gpu: i64,
        by_size: f64,
        normal: bool,
    ) -> Self {
        let mut weights = Self::layout(shares);
        let models = rows.clone().map(|row| row.model.index() + 1).max();
        let blank = vec![0.0; weights.entries.len()];
        let mut room = vec![blank.clone(); models.unwrap_or(0)];
        for row in rows {
            if let Some(room) = room.get_mut(row.model.index()) {
                weights.each_copy(row, |entry, copies| {
                    if let Some(sum) = room.get_mut(entry) {
                        *sum += copies;
                    }
                });
            }
        }
        weights.models = vec![blank; room.len()];
        let index = weights.index();
        let free_gpus = free_milli_gpu as f64 / 1000.0;
        let mut worth = 0.0;
        for (shape, share) in shares.iter().filter(|(shape, _)| shape.gpus > 0) {
            let Some(entry) = index.get(&key(shape)).copied() else {
                continue;
            };
            let accepted = |model: usize| ModelId::new(model).is_some_and(|m| shape.models.has(m));
            let copies: f64 = room
                .iter()
                .enumerate()
                .filter(|(model, _)| accepted(*model))
                .filter_map(|(_, room)| room.get(entry))
                .sum();
            let size = shape.total_milli_gpu() as f64 / 1000.0;
            let short = if copies > 0.0 {
                (free_gpus / (copies * size)).min(CAP)
            } else {
                CAP
            };
            let weight = share * size.powf(by_size) * short.powf(SHARPNESS);
            worth += weight * copies;
            for (model, row) in weights.models.iter_mut().enumerate() {
                if accepted(model)
                    && let Some(slot) = row.get_mut(entry)
                {
                    *slot += weight;
                }
            }
        }
        if normal && worth > 0.0 {
            let by = free_gpus / worth;
            weights.models.iter_mut().flatten().for_each(|w| *w *= by);
        }
        weights
    }

    /// Sizes and entries of the classes, without weights.
    fn layout(shares: &[(Shape, f64)]) -> Self {
        let mut by_size: BTreeMap<(u8, u16), Vec<i64>> = BTreeMap::new();
        for (shape, _) in shares.iter().filter(|(shape, _)| shape.gpus > 0) {
            let (gpus, milli, cpu) = key(shape);
            by_size.entry((gpus, milli)).or_default().push(cpu);
        }
        let mut weights = Self::default();
        for ((gpus, milli), mut cpus) in by_size {
            cpus.sort_unstable();
            cpus.dedup();
            let from = weights.entries.len();
            weights
                .entries
                .extend(cpus.into_iter().map(|cpu_milli| Entry {
                    cpu_milli,
                    per_cpu: if cpu_milli > 0 {
                        CPU_SLACK / cpu_milli as f64
                    } else {
                        f64::INFINITY
                    },
                }));
            weights.sizes.push(Size {
                gpus,
                milli,
                from,
                to: weights.entries.len(),
            });
        }
        weights
    }

    fn index(&self) -> BTreeMap<(u8, u16, i64), usize> {
        let mut index = BTreeMap::new();
        for size in &self.sizes {
            let entries = self.entries.get(size.from..size.to).unwrap_or(&[]);
            for (at, entry) in (size.from..).zip(entries) {
                index.insert((size.gpus, size.milli, entry.cpu_milli), at);
            }
        }
        index
    }

    /// Copies that a row could take of each entry it has room for.
    fn each_copy(&self, row: &NodeRow, mut each: impl FnMut(usize, f64)) {
        for size in &self.sizes {
            let copies = size.copies(row);
            if copies > 0.0 {
                let entries = self.entries.get(size.from..size.to).unwrap_or(&[]);
                for (at, entry) in (size.from..).zip(entries) {
                    if entry.cpu_milli > row.cpu_milli {
                        break;
                    }
                    each(at, entry.limit(row, copies));
                }
            }
        }
    }

    /// What the room of a row is worth.
    pub(super) fn value(&self, row: &NodeRow) -> f64 {
        let Some(weights) = self.models.get(row.model.index()) else {
            return 0.0;
        };
        let mut sum = 0.0;
        for size in &self.sizes {
            let copies = size.copies(row);
            if copies <= 0.0 {
                continue;
            }
            let entries = self.entries.get(size.from..size.to).unwrap_or(&[]);
            let weights = weights.get(size.from..size.to).unwrap_or(&[]);
            for (entry, weight) in entries.iter().zip(weights) {
                if entry.cpu_milli > row.cpu_milli {
                    break;
                }
                sum += weight * entry.limit(row, copies);
            }
        }
        sum
    }
}

impl Weights {
    /// By devices and thousandths of each, how much of the worth of `before` is not in `after`.
    pub(in crate::sched) fn lost(&self, before: &NodeRow, after: &NodeRow) -> Vec<(u8, u16, f64)> {
        let Some(weights) = self.models.get(before.model.index()) else {
            return Vec::new();
        };
        let worth = |size: &Size, row: &NodeRow| -> f64 {
            let copies = size.copies(row);
            let entries = self.entries.get(size.from..size.to).unwrap_or(&[]);
            let weights = weights.get(size.from..size.to).unwrap_or(&[]);
            entries
                .iter()
                .zip(weights)
                .take_while(|(entry, _)| entry.cpu_milli <= row.cpu_milli && copies > 0.0)
                .map(|(entry, weight)| weight * entry.limit(row, copies))
                .sum()
        };
        self.sizes
            .iter()
            .map(|size| {
                (
                    size.gpus,
                    size.milli,
                    worth(size, before) - worth(size, after),
                )
            })
            .collect()
    }
}

impl Entry {
    fn limit(&self, row: &NodeRow, copies: f64) -> f64 {
        // No CPU asked for and none free would be 0 times infinity; `min` then takes the copies.
        copies.min(row.cpu_milli as f64 * self.per_cpu)
    }
}

impl Size {
    /// Copies that the devices could take, in parts.
    fn copies(&self, row: &NodeRow) -> f64 {
        if self.gpus == 1 {
            f64::from(row.free_with(self.milli)) / f64::from(self.milli)
        } else {
            let whole = row.devices_with(self.milli);
            if whole >= usize::from(self.gpus) {
                whole as f64 / f64::from(self.gpus)
            } else {
                0.0
            }
        }
    }
}

fn key(shape: &Shape) -> (u8, u16, i64) {
    (shape.gpus, shape.milli_gpu.max(1), shape.cpu_milli)
}
