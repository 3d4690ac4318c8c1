//! PodDisruptionBudgets: how many of their pods may leave now.

use super::meta::Meta;
use super::pod::MatchExpression;

/// A policy/v1 PodDisruptionBudget.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DisruptionBudget {
    /// Identity.
    pub meta: Meta,
    /// Its pods: all expressions hold; without any all pods of the namespace, `None`: none.
    pub selector: Option<Box<[MatchExpression]>>,
    /// `status.disruptionsAllowed`: pods that may leave now; 0 until its controller has seen it.
    pub allowed: i64,
    /// `status.currentHealthy`.
    pub healthy: i64,
    /// `status.desiredHealthy`.
    pub desired: i64,
    /// `spec.unhealthyPodEvictionPolicy: AlwaysAllow`: pods that are not ready leave at any time.
    pub unready_always_leave: bool,
}

impl DisruptionBudget {
    /// What decides whether one of its pods may leave.
    pub fn rules(&self) -> (i64, i64, i64, bool) {
        (
            self.allowed,
            self.healthy,
            self.desired,
            self.unready_always_leave,
        )
    }
}
