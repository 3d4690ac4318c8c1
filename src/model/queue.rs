//! Queues: who may use how much, and who pays when somebody below its guarantee asks.
//!
//! Source: the project's own `gpudeck.dev/v1alpha1` GpuQueue (deploy/crds/gpuqueue.yaml).

use super::meta::Meta;
use super::text::Str;
use super::tier::Tier;

/// From whom a queue may take back what others hold above their due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum ReclaimFrom {
    /// From nobody.
    Never,
    /// From jobs of strictly lower priority.
    LowerPriority,
    /// From any priority.
    #[default]
    Any,
}

/// Whom a queue's jobs may displace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueuePreemption {
    /// Across queues.
    pub reclaim: ReclaimFrom,
    /// Strictly lower priorities of the same queue.
    pub within_queue: bool,
    /// Above its guarantee it may still displace work of other queues up to this priority.
    pub borrow_up_to_priority: Option<i32>,
}

impl Default for QueuePreemption {
    fn default() -> Self {
        Self {
            reclaim: ReclaimFrom::Any,
            within_queue: true,
            borrow_up_to_priority: None,
        }
    }
}

/// What a queue is due of one kind of GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueTerms {
    /// Short name of the GPU model (`H100-80`); `None` means every model.
    pub model: Option<Str>,
    /// Tier of the nodes; `None` means every tier.
    pub tier: Option<Tier>,
    /// What it gets whenever it asks, in thousandths of a GPU.
    pub guaranteed_milli_gpu: i64,
    /// What it never exceeds; `None` means no limit.
    pub limit_milli_gpu: Option<i64>,
}

/// A GpuQueue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Identity; cluster-scoped.
    pub meta: Meta,
    /// The queue above, by name.
    pub parent: Option<Str>,
    /// Namespaces whose pods belong to it.
    pub namespaces: Box<[Str]>,
    /// What it is due, one entry a kind of GPU.
    pub terms: Box<[QueueTerms]>,
    /// Share of what is left above the guarantees; 0 takes none of it.
    pub weight: i64,
    /// Queues of a higher band are served from what is left before those of a lower one.
    pub band: i32,
    /// Whom its jobs may displace.
    pub preemption: QueuePreemption,
    /// Seconds for which its running jobs are left alone after their start; `None`: as the queue
    /// above says, else the scheduler's setting.
    pub min_runtime_secs: Option<i64>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            meta: Meta::default(),
            parent: None,
            namespaces: Box::default(),
            terms: Box::default(),
            weight: 1,
            band: 0,
            preemption: QueuePreemption::default(),
            min_runtime_secs: None,
        }
    }
}
