//! What can be set.

use std::collections::BTreeMap;

use super::queue::Ageing;
use crate::model::Str;

/// What a workload type (annotation `gpudeck.dev/workload-type`) stands for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TypeProfile {
    /// GPU memory in MiB that it needs unless its pods state their own.
    pub memory_mib: Option<u32>,
    /// A replica of a time-sliced or MPS device will not do.
    pub own_device: bool,
    /// It stays off nodes that can be taken away (spot, calendar-bound).
    pub latency_sensitive: bool,
    /// Replicas of one owner go to different nodes where they can.
    pub spread: bool,
}

/// Settings of the scheduler. The defaults suit a cluster of a few thousand nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchedConfig {
    /// Only pods with this `spec.schedulerName` are placed; all others only count as use.
    pub scheduler_name: Str,
    /// Pods placed by one call of [`super::decide`] before it says that there is more to do. A
    /// gang is never cut: it may go over this.
    pub max_placements: u32,
    /// Seconds for which a written binding that the watch does not show counts as use.
    pub assume_secs: i64,
    /// Seconds for which a pod whose binding the server refused is left alone.
    pub refused_backoff_secs: i64,
    /// A waiting pod whose reason has changed in its counts only is told again after this many
    /// seconds, not at each change of some node.
    pub reason_refresh_secs: i64,
    /// Workload types by name.
    pub types: BTreeMap<Str, TypeProfile>,
    /// Only GPU pods with a checkpoint contract (`gpudeck.dev/checkpoint-*`) go to spot nodes.
    pub spot_needs_checkpoint: bool,
    /// Node labels that tell the levels of the fabric, the widest first; empty to read the labels
    /// of topograph and the clouds.
    pub topology_levels: Box<[Str]>,
    /// Running work may be evicted for others with a right to its place.
    pub preemption: bool,
    /// Queues take back what they are due by weight, not only what they are guaranteed.
    pub fair_reclaim: bool,
    /// Running work may be moved to let a blocked job start.
    pub moves: bool,
    /// Seconds after which past use of a queue counts half; 0 forgets it at once. Who has used
    /// more than its part weighs less, down to a quarter.
    pub half_life_secs: i64,
    /// Points that waiting gives.
    pub ageing: Ageing,
    /// Seconds for which a job is left alone after its start; a queue may ask for more.
    pub min_runtime_secs: i64,
    /// Seconds from an eviction until the work runs again, beyond what is lost.
    pub restart_secs: i64,
    /// Seconds for which a freed place is held for the job it was freed for.
    pub hold_secs: i64,
    /// Seconds for which a pod is left alone whose eviction the server refused.
    pub eviction_backoff_secs: i64,
}

impl Default for SchedConfig {
    fn default() -> Self {
        Self {
            scheduler_name: "gpudeck".into(),
            max_placements: 512,
            assume_secs: 30,
            refused_backoff_secs: 10,
            reason_refresh_secs: 30,
            types: default_types(),
            spot_needs_checkpoint: true,
            topology_levels: Box::default(),
            preemption: true,
            fair_reclaim: true,
            moves: true,
            half_life_secs: 7 * 24 * 3_600,
            ageing: Ageing::default(),
            min_runtime_secs: 60,
            restart_secs: 60,
            hold_secs: 120,
            eviction_backoff_secs: 60,
        }
    }
}

fn default_types() -> BTreeMap<Str, TypeProfile> {
    let inference = TypeProfile {
        memory_mib: Some(8 * 1024),
        own_device: false,
        latency_sensitive: true,
        spread: true,
    };
    let training = TypeProfile {
        memory_mib: Some(14 * 1024),
        own_device: true,
        latency_sensitive: false,
        spread: false,
    };
    [("inference", inference), ("training", training)]
        .map(|(name, profile)| (name.into(), profile))
        .into()
}
