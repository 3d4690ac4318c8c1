//! The few fields of each object that the actors read.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::quantity;

/// Metadata of any object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Labels.
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    /// Owners.
    #[serde(deserialize_with = "null_as_default")]
    pub owner_references: Vec<Owner>,
    /// When it was created.
    pub creation_timestamp: Option<String>,
    /// Set once deletion has begun.
    pub deletion_timestamp: Option<String>,
    /// Grace of the deletion, in seconds.
    pub deletion_grace_period_seconds: Option<i64>,
}

impl Meta {
    /// The owner that controls the object.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

/// An owner reference.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// Kind, such as `Job`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Whether this owner controls the object.
    pub controller: bool,
}

/// An object that can be watched.
pub(super) trait Tracked {
    /// Its metadata.
    fn meta(&self) -> &Meta;
}

macro_rules! tracked {
    ($($kind:ty),*) => {
        $(impl Tracked for $kind {
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        })*
    };
}
tracked!(
    Node,
    Pod,
    Job,
    Deployment,
    ReplicaSet,
    Event,
    DaemonSet,
    ConfigMap,
    ClusterPolicy,
    Lease,
    Custom
);

/// A condition of a node, Job or Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// What it says for people.
    #[serde(deserialize_with = "null_as_default")]
    pub message: String,
    /// When the status last changed.
    pub last_transition_time: Option<String>,
    /// Why, one word.
    #[serde(deserialize_with = "null_as_default")]
    pub reason: String,
}

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: NodeSpec,
    /// Status.
    #[serde(deserialize_with = "null_as_default")]
    pub status: NodeStatus,
}

/// A node's spec.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Cordoned.
    pub unschedulable: bool,
    /// Taints, kept whole because they are written back.
    #[serde(deserialize_with = "null_as_default")]
    pub taints: Vec<Value>,
}

/// A node's status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Capacity, as written.
    #[serde(deserialize_with = "null_as_default")]
    pub capacity: BTreeMap<String, String>,
    /// Allocatable resources, as written.
    #[serde(deserialize_with = "null_as_default")]
    pub allocatable: BTreeMap<String, String>,
    /// Conditions.
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
    /// Addresses.
    #[serde(deserialize_with = "null_as_default")]
    pub addresses: Vec<Address>,
}

/// A node's address.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Address {
    /// The address.
    pub address: String,
    /// `InternalIP`, `Hostname` and so on.
    #[serde(rename = "type")]
    pub kind: String,
}

impl Node {
    /// The status of the Ready condition; `None` when the node has none.
    pub fn ready(&self) -> Option<&str> {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Ready")
            .map(|condition| condition.status.as_str())
    }

    /// Allocatable resources in thousandths; unreadable ones are left out.
    pub fn allocatable_milli(&self) -> BTreeMap<String, i128> {
        self.status
            .allocatable
            .iter()
            .filter_map(|(name, text)| Some((name.clone(), quantity::milli(text)?)))
            .collect()
    }
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: PodSpec,
    /// Status.
    #[serde(deserialize_with = "null_as_default")]
    pub status: PodStatus,
}

/// A pod's spec.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    /// The node it is bound to; empty while pending.
    #[serde(deserialize_with = "null_as_default")]
    pub node_name: String,
    /// Containers.
    #[serde(deserialize_with = "null_as_default")]
    pub containers: Vec<Container>,
    /// Init containers and sidecars.
    #[serde(deserialize_with = "null_as_default")]
    pub init_containers: Vec<Container>,
    /// Overhead of the runtime class.
    #[serde(deserialize_with = "null_as_default")]
    pub overhead: BTreeMap<String, Value>,
    /// Who is to bind it.
    #[serde(deserialize_with = "null_as_default")]
    pub scheduler_name: String,
    /// Labels that its node must have.
    #[serde(deserialize_with = "null_as_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it bears.
    #[serde(deserialize_with = "null_as_default")]
    pub tolerations: Vec<Toleration>,
    /// What holds it back from scheduling.
    #[serde(deserialize_with = "null_as_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// The name of its priority class.
    #[serde(deserialize_with = "null_as_default")]
    pub priority_class_name: String,
    /// Seconds from SIGTERM to SIGKILL.
    pub termination_grace_period_seconds: Option<i64>,
}

/// A scheduling gate.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct SchedulingGate {
    /// Name.
    pub name: String,
}

/// A toleration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Toleration {
    /// Key; empty for all.
    #[serde(deserialize_with = "null_as_default")]
    pub key: String,
    /// `Exists`, or `Equal` when empty.
    #[serde(deserialize_with = "null_as_default")]
    pub operator: String,
    /// Value that must be equal.
    #[serde(deserialize_with = "null_as_default")]
    pub value: String,
    /// Effect; empty for all.
    #[serde(deserialize_with = "null_as_default")]
    pub effect: String,
    /// How long a NoExecute taint is borne; for ever when absent.
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Whether this bears `taint`.
    pub(super) fn bears(&self, taint: &Value) -> bool {
        let text = |field: &str| taint.get(field).and_then(Value::as_str).unwrap_or_default();
        let exists = self.operator == "Exists";
        let key = if self.key.is_empty() {
            exists
        } else {
            self.key == text("key")
        };
        key && (self.effect.is_empty() || self.effect == text("effect"))
            && (exists || self.value == text("value"))
    }
}

impl PodSpec {
    /// Whether a scheduler may place it on a node with these taints.
    pub(super) fn bears_all(&self, taints: &[Value]) -> bool {
        taints.iter().all(|taint| {
            let effect = taint.get("effect").and_then(Value::as_str);
            effect == Some("PreferNoSchedule")
                || self
                    .tolerations
                    .iter()
                    .any(|toleration| toleration.bears(taint))
        })
    }
}

/// A container of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    /// Name.
    pub name: String,
    /// Image.
    pub image: String,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    /// Requests and limits.
    #[serde(deserialize_with = "null_as_default")]
    pub resources: Resources,
}

/// Requests and limits, as written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources {
    /// Requests.
    #[serde(deserialize_with = "null_as_default")]
    pub requests: BTreeMap<String, Value>,
    /// Limits; a resource without a request asks for its limit.
    #[serde(deserialize_with = "null_as_default")]
    pub limits: BTreeMap<String, Value>,
}

/// A pod's status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    /// Phase; empty counts as Pending.
    pub phase: String,
    /// When the kubelet accepted it.
    pub start_time: Option<String>,
    /// Conditions.
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
}

impl Pod {
    /// Ended, well or not: it holds no resources any more.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Its scheduler has said that it fits nowhere.
    pub(super) fn is_unschedulable(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| {
            condition.kind == "PodScheduled"
                && condition.status == "False"
                && condition.reason == "Unschedulable"
        })
    }

    /// Its Ready condition is True.
    pub(super) fn is_ready(&self) -> bool {
        self.has_condition("Ready")
    }

    /// The condition of this type is True.
    pub(super) fn has_condition(&self, kind: &str) -> bool {
        let of_kind = |condition: &&Condition| condition.kind == kind;
        let found = self.status.conditions.iter().find(of_kind);
        found.is_some_and(|condition| condition.status == "True")
    }

    /// What the pod asks for, in thousandths: the greater of its containers with sidecars and
    /// each init container with the sidecars started before it, plus overhead
    /// (k8s.io/component-helpers/resource PodRequests).
    pub(super) fn requests_milli(&self) -> BTreeMap<String, i128> {
        let mut running = Amounts::default();
        for container in &self.spec.containers {
            running.add(&container.requests_milli());
        }
        let mut sidecars = Amounts::default();
        let mut starting = Amounts::default();
        for container in &self.spec.init_containers {
            let mut asks = Amounts(container.requests_milli());
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars.add(&asks.0);
                asks = sidecars.clone();
            } else {
                asks.add(&sidecars.0);
            }
            starting.raise_to(&asks.0);
        }
        running.add(&sidecars.0);
        running.raise_to(&starting.0);
        running.add(&amounts(&self.spec.overhead));
        running.0
    }
}

impl Pod {
    /// What containers and sidecars ask for of extended resources, in whole devices; containers
    /// that ask for none are left out.
    pub(super) fn device_asks(&self) -> Vec<(String, Vec<(String, usize)>)> {
        let sidecars = self.spec.init_containers.iter();
        let sidecars = sidecars.filter(|init| init.restart_policy.as_deref() == Some("Always"));
        let containers = sidecars.chain(&self.spec.containers);
        let asks = containers.map(|container| {
            let all = container.requests_milli().into_iter();
            let devices = all.filter(|(name, milli)| name.contains('/') && *milli > 0);
            let whole = |milli: i128| usize::try_from(milli / 1000).unwrap_or(usize::MAX);
            let devices = devices.map(|(name, milli)| (name, whole(milli)));
            (container.name.clone(), devices.collect::<Vec<_>>())
        });
        asks.filter(|(_, devices)| !devices.is_empty()).collect()
    }
}

impl Container {
    fn requests_milli(&self) -> BTreeMap<String, i128> {
        let mut asks = amounts(&self.resources.limits);
        asks.extend(amounts(&self.resources.requests));
        asks
    }
}

#[derive(Debug, Clone, Default)]
struct Amounts(BTreeMap<String, i128>);

impl Amounts {
    fn add(&mut self, other: &BTreeMap<String, i128>) {
        for (name, amount) in other {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    fn raise_to(&mut self, other: &BTreeMap<String, i128>) {
        for (name, amount) in other {
            let most = self.0.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}

fn amounts(written: &BTreeMap<String, Value>) -> BTreeMap<String, i128> {
    let read = |value: &Value| match value {
        Value::String(text) => quantity::milli(text),
        Value::Number(number) => quantity::milli(&number.to_string()),
        _ => None,
    };
    let pairs = written.iter();
    pairs
        .filter_map(|(name, value)| Some((name.clone(), read(value)?)))
        .collect()
}

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
pub(super) struct Deployment {
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
pub(super) struct ReplicaSet {
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
pub(super) struct DaemonSet {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: ReplicaSpec,
    /// Status, compared before it is written.
    pub status: Value,
}

/// A core/v1 ConfigMap.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigMap {
    /// Metadata.
    pub metadata: Meta,
    /// Texts by key.
    #[serde(deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, String>,
}

/// The GPU operator's ClusterPolicy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterPolicy {
    /// Metadata.
    pub metadata: Meta,
    /// Spec, of which a few fields are read.
    pub spec: Value,
}

impl ClusterPolicy {
    /// The ConfigMap with the configurations of mig-manager; empty when they are generated.
    pub(super) fn mig_config_map(&self) -> &str {
        self.text("/migManager/config/name")
    }

    /// The value that a node without `nvidia.com/mig.config` gets; empty for none.
    pub(super) fn mig_config_default(&self) -> &str {
        self.text("/migManager/config/default")
    }

    fn text(&self, pointer: &str) -> &str {
        let found = self.spec.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default()
    }
}

/// A coordination/v1 Lease.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: LeaseSpec,
}

/// A Lease's spec.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LeaseSpec {
    /// When its holder last said that it lives.
    #[serde(deserialize_with = "null_as_default")]
    pub renew_time: String,
}

/// An object of a custom kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Custom {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: Value,
    /// Status.
    pub status: Value,
}

/// A core/v1 Event, of which only the age matters here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Event {
    /// Metadata.
    pub(crate) metadata: Meta,
}

/// What Deployments and ReplicaSets share.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplicaSpec {
    /// Wanted pods; 1 when absent.
    pub replicas: Option<i64>,
    /// The selector, copied into the ReplicaSet.
    pub selector: Value,
    /// The pod template, copied into pods.
    pub template: Value,
}

/// `null` as if the field were absent: servers write both.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_count_sidecars_init_containers_and_overhead() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"labels": null},
            "spec": {
                "containers": [
                    {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4", "nvidia.com/gpu": 2}}},
                    {"resources": {"requests": {"cpu": "500m"}}},
                ],
                "initContainers": [
                    {"resources": {"requests": {"cpu": "8"}}},
                    {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                    {"resources": {"requests": {"cpu": "3"}}},
                ],
                "overhead": {"cpu": "250m"},
            },
        }))
        .unwrap();
        let asks = pod.requests_milli();
        // Running: 2.5 + sidecar 1; first init alone 8; last init 3 + 1. The greatest, plus 0.25.
        assert_eq!(asks["cpu"], 8_250);
        assert_eq!(asks["nvidia.com/gpu"], 2_000);
    }
}
