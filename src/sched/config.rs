//! What can be set.

use std::collections::BTreeMap;

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
