//! FGD, fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC '23).

use std::collections::BTreeMap;

use super::chooser::{Scored, Scorer};
use super::fleet::{Fleet, NodeRow};
use super::shape::Shape;

/// Share of the pods that the target workload covers.
const COVERED: f64 = 0.95;

/// A class of the target workload.
#[derive(Debug, Clone, Copy)]
struct Target {
    share: f64,
    shape: Shape,
    /// Its place in `sizes`; `None` for a pod without GPUs.
    size: Option<usize>,
}

/// Takes the node and device where fragmentation grows least.
#[derive(Debug, Clone)]
pub struct Fgd {
    targets: Vec<Target>,
    /// Distinct (devices, thousandths).
    sizes: Vec<(u8, u16)>,
}

impl Fgd {
    /// The target workload: the most frequent shapes of these pods (memory aside), each named by
    /// the text in which it states its models, up to 95 % of the pods.
    #[must_use]
    pub fn new<'a>(pods: impl IntoIterator<Item = (&'a Shape, &'a str)>) -> Self {
        let mut counts: BTreeMap<(Shape, &str), u32> = BTreeMap::new();
        for (shape, models) in pods {
            let class = Shape {
                mem_mib: 0,
                ..*shape
            };
            *counts.entry((class, models)).or_insert(0) += 1;
        }
        let total: u32 = counts.values().sum();
        let mut sorted: Vec<((Shape, &str), u32)> = counts.into_iter().collect();
        // Equally frequent shapes: the larger first.
        sorted.sort_by_key(|((shape, models), count)| {
            let size = (shape.cpu_milli, shape.milli_gpu, shape.gpus);
            std::cmp::Reverse((*count, size, *models))
        });
        let wanted = COVERED * f64::from(total);
        let (mut targets, mut sizes, mut covered) = (Vec::new(), Vec::new(), 0.0);
        for ((shape, _), count) in sorted {
            if covered >= wanted {
                break;
            }
            covered += f64::from(count);
            let size = (shape.gpus, shape.milli_gpu);
            let at = sizes.iter().position(|other| *other == size);
            let at = at.unwrap_or_else(|| {
                sizes.push(size);
                sizes.len() - 1
            });
            targets.push(Target {
                share: f64::from(count) / f64::from(total),
                shape,
                size: (shape.gpus > 0).then_some(at),
            });
        }
        // In two divisions, as published: scores on the edge of a whole number depend on it.
        let covered = covered / f64::from(total);
        targets
            .iter_mut()
            .for_each(|target: &mut Target| target.share /= covered);
        Self { targets, sizes }
    }

    /// Free thousandths that the target workload cannot use, in expectation.
    fn fragmentation(&self, row: &NodeRow) -> f64 {
        let total = row.free_milli_gpu() as f64;
        // Per size what is too small for it; `None` where there are too few devices.
        let lost: Vec<Option<f64>> = self
            .sizes
            .iter()
            .map(|(gpus, milli)| {
                (row.devices_with(*milli) >= usize::from(*gpus)).then(|| {
                    let small = row.free().iter().filter(|free| *free < milli);
                    small.map(|free| f64::from(*free)).sum()
                })
            })
            .collect();
        // Summed by cause, as published: scores on the edge of a whole number depend on it.
        let (mut both, mut gpu, mut cpu, mut no_gpu, mut no_cpu, mut model) =
            (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for target in &self.targets {
            let has_cpu = target.shape.cpu_milli <= row.cpu_milli;
            let all = target.share * total;
            match target.size {
                None if has_cpu => no_gpu += all,
                None => no_cpu += all,
                Some(_) if !target.shape.models.has(row.model) => model += all,
                Some(size) => match (lost.get(size).copied().flatten(), has_cpu) {
                    (Some(small), true) => gpu += target.share * small,
                    (Some(_), false) => cpu += all,
                    (None, true) => gpu += all,
                    (None, false) => both += all,
                },
            }
        }
        both + gpu + cpu + no_gpu + no_cpu + model
    }
}

/// A whole number from 0 to 100; the difference is in thousandths of a GPU.
fn points(less: f64) -> u64 {
    let sigmoid = 1.0 / (1.0 + (-less / 1000.0).exp());
    (sigmoid * 100.0) as u64
}

impl Scorer for Fgd {
    fn score(
        &mut self,
        _fleet: &Fleet,
        _index: usize,
        row: &NodeRow,
        shape: &Shape,
    ) -> Option<Scored> {
        let before = self.fragmentation(row);
        let mut best: Option<Scored> = None;
        let mut try_devices = |devices: u16| {
            let after = self.fragmentation(&row.after(shape, devices, 1));
            let key = 100 - points(before - after).min(100);
            if best.is_none_or(|best| key < best.key) {
                best = Some(Scored { key, devices });
            }
        };
        if shape.is_shared() {
            for (device, free) in row.free().iter().enumerate() {
                let seen = row.free().iter().take(device).any(|other| other == free);
                if *free >= shape.milli_gpu && !seen {
                    try_devices(1 << device);
                }
            }
        } else {
            try_devices(row.lowest_devices(shape));
        }
        best
    }
}
