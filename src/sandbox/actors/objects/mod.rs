//! The few fields of each object that the actors read.

mod node;
mod pod;
mod workload;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(super) use self::node::Node;
pub(super) use self::pod::{Container, Pod};
pub(super) use self::workload::{DaemonSet, Deployment, Job, ReplicaSet};

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

impl Owner {
    /// Whether it is a Job of Kubernetes; Volcano has Jobs, too.
    pub fn is_job(&self) -> bool {
        self.kind == "Job" && self.api_version.starts_with("batch/")
    }
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
    /// API version, such as `batch/v1`.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
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
    Custom,
    VolcanoCommand
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

/// A Command of bus.volcano.sh/v1alpha1.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct VolcanoCommand {
    /// Metadata.
    pub metadata: Meta,
    /// `AbortJob`, `ResumeJob`, `RestartJob`, `OpenQueue`, `CloseQueue` and so on.
    pub action: String,
    /// The Job or queue.
    pub target: Owner,
}

/// A core/v1 Event, of which only the age matters here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Event {
    /// Metadata.
    pub(crate) metadata: Meta,
}

/// `null` as if the field were absent: servers write both.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
