//! Nodes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::quantity;
use super::{Condition, Meta, null_as_default};

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
    /// The machine, as its provider names it.
    #[serde(rename = "providerID", deserialize_with = "null_as_default")]
    pub provider_id: String,
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
