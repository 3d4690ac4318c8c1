//! What can be set.

use crate::model::Str;

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
}

impl Default for SchedConfig {
    fn default() -> Self {
        Self {
            scheduler_name: "gpudeck".into(),
            max_placements: 512,
            assume_secs: 30,
            refused_backoff_secs: 10,
            reason_refresh_secs: 30,
        }
    }
}
