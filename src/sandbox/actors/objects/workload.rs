//! What controllers make pods for: Jobs, and what keeps a number of pods running.

use serde::Deserialize;
use serde_json::Value;

use super::{Condition, Meta, null_as_default};

/// A batch/v1 Job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: JobSpec,
    /// Status, kept whole because it is compared and written back.
    pub status: Value,
}

/// A Job's spec.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// Pods at a time; 1 when absent.
    pub parallelism: Option<i64>,
    /// Successes needed; absent = any one success, then all must end.
    pub completions: Option<i64>,
    /// Failures allowed; 6 when absent.
    pub backoff_limit: Option<i64>,
    /// No pods while true.
    pub suspend: bool,
    /// `Indexed` or `NonIndexed`.
    pub completion_mode: Option<String>,
    /// Seconds after its end until the Job is deleted.
    pub ttl_seconds_after_finished: Option<i64>,
    /// Seconds that the Job may be active.
    pub active_deadline_seconds: Option<i64>,
    /// Another controller's name: the Job is not ours then.
    pub managed_by: Option<String>,
    /// Which failures do not count.
    #[serde(deserialize_with = "null_as_default")]
    pub pod_failure_policy: FailurePolicy,
    /// The pod template, copied into pods.
    pub template: Value,
}

/// A Job's podFailurePolicy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FailurePolicy {
    /// Rules, first match wins.
    #[serde(deserialize_with = "null_as_default")]
    pub rules: Vec<FailureRule>,
}

/// A rule of a podFailurePolicy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureRule {
    /// `Ignore`, `Count`, `FailJob` or `FailIndex`.
    pub action: String,
    /// Matches pods with such a condition.
    #[serde(deserialize_with = "null_as_default")]
    pub on_pod_conditions: Vec<Condition>,
}

/// An apps/v1 Deployment.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::sandbox::actors) struct Deployment {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: ReplicaSpec,
    /// Status, compared before it is written.
    pub status: Value,
}

/// An apps/v1 ReplicaSet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::sandbox::actors) struct ReplicaSet {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: ReplicaSpec,
    /// Status, compared before it is written.
    pub status: Value,
}

/// An apps/v1 DaemonSet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::sandbox::actors) struct DaemonSet {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: ReplicaSpec,
    /// Status, compared before it is written.
    pub status: Value,
}

/// What Deployments and ReplicaSets share.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::sandbox::actors) struct ReplicaSpec {
    /// Wanted pods; 1 when absent.
    pub replicas: Option<i64>,
    /// The selector, copied into the ReplicaSet.
    pub selector: Value,
    /// The pod template, copied into pods.
    pub template: Value,
}
