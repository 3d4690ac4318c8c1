//! Baselines that score a node by simple formulas, in whole points from 0 to 100.

use super::chooser::{Scored, Scorer};
use super::fleet::{Fleet, MAX_GPUS, NodeRow};
use super::shape::Shape;

/// The largest node of the published experiment, which the formulas refer to.
const LARGEST_CPU_MILLI: f64 = 128_000.0;
const LARGEST_MILLI_GPU: f64 = 8_000.0;

/// A simple rule.
#[derive(Debug, Clone)]
pub enum Baseline {
    /// The node with least left.
    BestFit,
    /// The node whose free vector is least aligned with the pod's.
    DotProduct,
    /// Used devices before used nodes before empty nodes.
    Packing,
    /// Nodes that host the same kind of pod; the counts of pods by kind and node.
    Clustering(Vec<[u32; MAX_GPUS + 1]>),
    /// kube-scheduler's default: LeastAllocated and BalancedAllocation over CPU and memory.
    KubeLeast,
    /// kube-scheduler's MostAllocated over CPU, memory and GPU.
    KubeMost,
}

impl Baseline {
    /// Clustering over an empty fleet of this many nodes.
    #[must_use]
    pub fn clustering(nodes: usize) -> Self {
        Self::Clustering(vec![[0; MAX_GPUS + 1]; nodes])
    }

    fn points(&self, index: usize, row: &NodeRow, shape: &Shape) -> u64 {
        match self {
            Self::BestFit => {
                let cpu = (row.cpu_milli - shape.cpu_milli) as f64 / LARGEST_CPU_MILLI;
                let gpu =
                    (row.free_milli_gpu() - shape.total_milli_gpu()) as f64 / LARGEST_MILLI_GPU;
                cut(100.0 * (1.0 - cpu / 2.0 - gpu / 2.0))
            }
            Self::DotProduct => {
                let cpu = row.cpu_milli as f64 * shape.cpu_milli as f64
                    / (LARGEST_CPU_MILLI * LARGEST_CPU_MILLI);
                let gpu = row.free_milli_gpu() as f64 * shape.total_milli_gpu() as f64
                    / (LARGEST_MILLI_GPU * LARGEST_MILLI_GPU);
                cut(100.0 * (1.0 - (cpu + gpu) / 2.0))
            }
            Self::Packing => packing(row, shape),
            Self::Clustering(hosted) => {
                let hosted = hosted.get(index).copied().unwrap_or([0; MAX_GPUS + 1]);
                clustering(&hosted, row, shape)
            }
            Self::KubeLeast => {
                let (cpu, mem) = used(row, shape);
                let least = (100 - percent(cpu) + 100 - percent(mem)) / 2;
                let apart = (fraction(cpu) - fraction(mem)).abs() / 2.0;
                least + cut(100.0 * (1.0 - apart))
            }
            Self::KubeMost => {
                let (cpu, mem) = used(row, shape);
                let gpu_capacity = i64::from(row.gpus()) * 1000;
                let taken = gpu_capacity - row.free_milli_gpu() + shape.total_milli_gpu();
                if shape.gpus == 0 {
                    (percent(cpu) + percent(mem)) / 2
                } else {
                    (percent(cpu) + percent(mem) + percent((taken, gpu_capacity))) / 3
                }
            }
        }
    }
}

fn packing(row: &NodeRow, shape: &Shape) -> u64 {
    if shape.gpus == 0 {
        return 0;
    }
    let whole = row.devices_with(1000) as u64;
    let fullest = row
        .fullest_device(shape.milli_gpu)
        .and_then(|device| row.free().get(device).copied())
        .filter(|free| shape.is_shared() && *free < 1000);
    if let Some(free) = fullest {
        (100 - u64::from(free) / 10 / 10).max(50)
    } else if whole < u64::from(row.gpus()) {
        50u64.saturating_sub(u64::from(shape.gpus)).max(33)
    } else {
        33u64.saturating_sub(whole).max(whole)
    }
}

fn clustering(hosted: &[u32; MAX_GPUS + 1], row: &NodeRow, shape: &Shape) -> u64 {
    if shape.gpus == 0 {
        return 0;
    }
    let this = kind(shape);
    let same = hosted.get(this).is_some_and(|count| *count > 0);
    let others = hosted
        .iter()
        .enumerate()
        .any(|(k, count)| k != this && *count > 0);
    let base = match (same, others) {
        (true, false) => 75.0,
        (true, true) => 50.0,
        (false, false) => 25.0,
        (false, true) => 0.0,
    };
    let free = row.free_milli_gpu() as f64;
    cut(base + 25.0 * (LARGEST_MILLI_GPU - free) / LARGEST_MILLI_GPU)
}

/// 0 for a shared pod, else its devices.
fn kind(shape: &Shape) -> usize {
    if shape.is_shared() {
        0
    } else {
        usize::from(shape.gpus)
    }
}

/// CPU and memory in use once the pod is there, each with the capacity.
fn used(row: &NodeRow, shape: &Shape) -> ((i64, i64), (i64, i64)) {
    let cpu = row.cpu_capacity_milli - row.cpu_milli + shape.cpu_milli;
    let mem = row.mem_capacity_mib - row.mem_mib + shape.mem_mib;
    ((cpu, row.cpu_capacity_milli), (mem, row.mem_capacity_mib))
}

fn percent((used, capacity): (i64, i64)) -> u64 {
    let points = used * 100 / capacity.max(1);
    u64::try_from(points.clamp(0, 100)).unwrap_or(0)
}

fn fraction((used, capacity): (i64, i64)) -> f64 {
    used as f64 / capacity.max(1) as f64
}

/// Cut to a whole number from 0 to 100.
fn cut(points: f64) -> u64 {
    points.clamp(0.0, 100.0) as u64
}

impl Scorer for Baseline {
    const SEES_MEMORY: bool = true;

    fn score(
        &mut self,
        _fleet: &Fleet,
        index: usize,
        row: &NodeRow,
        shape: &Shape,
    ) -> Option<Scored> {
        let devices = if shape.is_shared() {
            1 << row.fullest_device(shape.milli_gpu)?
        } else {
            row.lowest_devices(shape)
        };
        let key = 1_000 - self.points(index, row, shape).min(1_000);
        Some(Scored { key, devices })
    }

    fn changed(&mut self, node: usize, shape: &Shape, sign: i64) {
        if shape.gpus > 0
            && let Self::Clustering(hosted) = self
            && let Some(count) = hosted.get_mut(node).and_then(|h| h.get_mut(kind(shape)))
        {
            *count = if sign > 0 {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
        }
    }
}
