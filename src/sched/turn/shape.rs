//! Shapes: what pods ask, kept once for all that ask the same, and what it counts in a queue.

use std::sync::Arc;

use crate::model::{GpuResource, Reason};
use crate::sched::class::{Class, ClassId};
use crate::sched::filters::Volumes;
use crate::sched::needs::Share;
use crate::sched::queue::{GPU, MOST_PARTS, Parts, of_milli_gpu};

/// Sevenths of a GPU's compute: what the slices of a profile are counted in.
const SEVENTHS: i64 = 7;

/// Number of a shape.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::sched) struct ShapeId(pub(in crate::sched) usize);

/// A shape and what is known of it.
#[derive(Clone)]
pub(in crate::sched) struct Shape {
    pub(in crate::sched) class: Arc<Class>,
    /// Its class among those that wait.
    pub(in crate::sched) waiting: Option<ClassId>,
    /// What it counts in its queue where the node does not matter; a share by memory is counted
    /// by the smallest device of the cluster.
    pub(in crate::sched) parts: Parts,
    /// Its volumes, or why its claims keep it waiting.
    pub(in crate::sched) volumes: Result<Volumes, Reason>,
    /// The rest is known.
    pub(super) is_looked_at: bool,
    /// Nodes that let it in, a bit each.
    pub(super) lets_in: Vec<u64>,
    /// Nodes with room for one more pod, a bit each, as of a point in the picture's journal.
    pub(super) open: Vec<u64>,
    pub(super) open_at: Option<usize>,
    /// Pools with GPUs in which some node lets it in, where there are several.
    pub(super) pools: Vec<usize>,
}

/// What a pod of a class counts in its queue, with a device of this memory.
pub(in crate::sched) fn parts_of(class: &Class, device_mem_mib: Option<u32>) -> Parts {
    let ask = &class.ask;
    let shared = match ask.share {
        Share::Milli(milli) => of_milli_gpu(i64::from(milli)),
        Share::MemoryMib(mib) => by_memory(mib, device_mem_mib),
        Share::None => 0,
    };
    ask.extended
        .iter()
        .map(|(key, n)| match GpuResource::from_key(key) {
            Some(GpuResource::Mig(profile)) => {
                let sevenths = i64::from(profile.compute_slices).min(SEVENTHS);
                n.saturating_mul(GPU / SEVENTHS * sevenths)
            }
            Some(GpuResource::Whole | GpuResource::Shared) => n.saturating_mul(GPU),
            None => 0,
        })
        .fold(shared, i64::saturating_add)
        .min(MOST_PARTS)
}

/// A share by memory as parts, rounded up; all of a device whose memory is not known.
fn by_memory(mib: u32, device_mem_mib: Option<u32>) -> Parts {
    let Some(all) = device_mem_mib.filter(|m| *m > 0) else {
        return GPU;
    };
    let product = i64::from(mib).saturating_mul(GPU);
    let all = i64::from(all);
    product / all + i64::from(product % all > 0)
}
