//! Pods, and what they ask for.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::quantity;
use super::{Condition, Meta, null_as_default};

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::sandbox::actors) struct Pod {
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
pub(in crate::sandbox::actors) struct PodSpec {
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
pub(in crate::sandbox::actors) struct SchedulingGate {
    /// Name.
    pub name: String,
}

/// A toleration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::sandbox::actors) struct Toleration {
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
    pub(in crate::sandbox::actors) fn bears(&self, taint: &Value) -> bool {
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
    pub(in crate::sandbox::actors) fn bears_all(&self, taints: &[Value]) -> bool {
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
pub(in crate::sandbox::actors) struct Container {
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
pub(in crate::sandbox::actors) struct Resources {
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
pub(in crate::sandbox::actors) struct PodStatus {
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
    pub(in crate::sandbox::actors) fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Its scheduler has said that it fits nowhere.
    pub(in crate::sandbox::actors) fn is_unschedulable(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| {
            condition.kind == "PodScheduled"
                && condition.status == "False"
                && condition.reason == "Unschedulable"
        })
    }

    /// Its Ready condition is True.
    pub(in crate::sandbox::actors) fn is_ready(&self) -> bool {
        self.has_condition("Ready")
    }

    /// The condition of this type is True.
    pub(in crate::sandbox::actors) fn has_condition(&self, kind: &str) -> bool {
        let of_kind = |condition: &&Condition| condition.kind == kind;
        let found = self.status.conditions.iter().find(of_kind);
        found.is_some_and(|condition| condition.status == "True")
    }

    /// What the pod asks for, in thousandths: the greater of its containers with sidecars and
    /// each init container with the sidecars started before it, plus overhead
    /// (k8s.io/component-helpers/resource PodRequests).
    pub(in crate::sandbox::actors) fn requests_milli(&self) -> BTreeMap<String, i128> {
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
    pub(in crate::sandbox::actors) fn device_asks(&self) -> Vec<(String, Vec<(String, usize)>)> {
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
