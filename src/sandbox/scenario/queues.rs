//! Queues of gpudeck's own scheduler: the kind, and one object each.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toml::Spanned;

use super::numbers::Whole;
use super::schema::TierName;
use crate::sandbox::calls::{CallError, Calls, path};
use crate::sandbox::inventory::namespace;
use crate::sandbox::span::Span;

/// The kind as it is installed on any cluster.
const DEFINITION: &str = include_str!("../../../deploy/crds/gpuqueue.yaml");
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const QUEUES: &str = "/apis/gpudeck.dev/v1alpha1/gpuqueues";
/// A definition is served a moment after it is accepted.
const SERVED_AFTER: Duration = Duration::from_millis(250);
/// How often that is waited for.
const TRIES: u32 = 40;

/// A queue.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct QueueSpec {
    /// Its name.
    pub name: Spanned<String>,
    /// The queue above.
    #[serde(default)]
    pub parent: Option<String>,
    /// Namespaces whose pods are in it; they are created.
    #[serde(default)]
    pub namespaces: Vec<Spanned<String>>,
    /// Its part of what the guarantees leave; 1.
    #[serde(default)]
    pub weight: Option<Whole<0, 1_000_000>>,
    /// Queues of a higher band are served from that first; 0.
    #[serde(default)]
    pub band: i32,
    /// How long its jobs are left alone after their start, in real time; as the queue above.
    #[serde(default)]
    pub min_runtime: Option<Span>,
    /// From whom it takes back what others hold above their due; from any.
    #[serde(default)]
    pub reclaim: ReclaimName,
    /// What it is due, an entry a kind of GPU.
    #[serde(default)]
    pub gpus: Vec<QueueGpus>,
}

/// From whom a queue takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReclaimName {
    /// From nobody.
    Never,
    /// From lower priority.
    LowerPriority,
    /// From any.
    #[default]
    Any,
}

impl ReclaimName {
    fn name(self) -> &'static str {
        match self {
            ReclaimName::Never => "Never",
            ReclaimName::LowerPriority => "LowerPriority",
            ReclaimName::Any => "Any",
        }
    }
}

/// What a queue is due of one kind of GPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct QueueGpus {
    /// Short name of the model, as the console shows it.
    #[serde(default)]
    pub model: Option<String>,
    /// Tier of the nodes.
    #[serde(default)]
    pub tier: Option<TierName>,
    /// What it gets whenever it asks; 0.
    #[serde(default)]
    pub guaranteed: Option<Whole<0, 1_000_000>>,
    /// What it never exceeds.
    #[serde(default)]
    pub limit: Option<Whole<0, 1_000_000>>,
}

impl QueueSpec {
    fn object(&self) -> Value {
        let mut spec = Map::new();
        let mut put = |key: &str, value: Value| {
            spec.insert(key.to_owned(), value);
        };
        if let Some(parent) = &self.parent {
            put("parent", json!(parent));
        }
        if !self.namespaces.is_empty() {
            let names: Vec<&String> = self.namespaces.iter().map(Spanned::get_ref).collect();
            put("namespaces", json!(names));
        }
        put("weight", json!(self.weight.map_or(1, Whole::get)));
        put("band", json!(self.band));
        if !self.gpus.is_empty() {
            let gpus: Vec<Value> = self.gpus.iter().map(QueueGpus::object).collect();
            put("gpus", json!(gpus));
        }
        let mut preemption = Map::new();
        preemption.insert("reclaim".to_owned(), json!(self.reclaim.name()));
        if let Some(time) = self.min_runtime {
            let secs = time.duration().as_secs();
            preemption.insert("minRuntimeSeconds".to_owned(), json!(secs));
        }
        put("preemption", Value::Object(preemption));
        json!({
            "apiVersion": "gpudeck.dev/v1alpha1",
            "kind": "GpuQueue",
            "metadata": {"name": self.name.get_ref()},
            "spec": spec,
        })
    }
}

impl QueueGpus {
    fn object(&self) -> Value {
        let mut object = json!({"guaranteed": self.guaranteed.map_or(0, Whole::get)});
        let mut put = |key: &str, value: Option<Value>| {
            if let (Some(value), Some(map)) = (value, object.as_object_mut()) {
                map.insert(key.to_owned(), value);
            }
        };
        put("model", self.model.as_ref().map(|model| json!(model)));
        put("tier", self.tier.map(|tier| json!(tier.name())));
        put("limit", self.limit.map(|limit| json!(limit.get())));
        object
    }
}

/// Installs the kind and creates the queues with their namespaces.
pub(super) async fn write(queues: &[QueueSpec], calls: &Calls) -> Result<(), CallError> {
    if queues.is_empty() {
        return Ok(());
    }
    // Our own text: a test reads it.
    let definition: Value = serde_saphyr::from_str(DEFINITION).unwrap_or_default();
    calls.ensure(DEFINITIONS, &definition).await?;
    for queue in queues {
        for name in &queue.namespaces {
            let namespace = namespace(name.get_ref());
            calls.ensure(path::NAMESPACES, &namespace).await?;
        }
        let object = queue.object();
        let mut tries = 0;
        loop {
            match calls.ensure(QUEUES, &object).await {
                Err(error) if error.is_not_found() && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(SERVED_AFTER).await;
                }
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_definition_is_read() {
        let definition: Value = serde_saphyr::from_str(DEFINITION).unwrap();
        assert_eq!(
            definition.pointer("/metadata/name"),
            Some(&json!("gpuqueues.gpudeck.dev"))
        );
    }

    #[test]
    fn a_queue_becomes_an_object() {
        let spec: QueueSpec = toml::from_str(
            r#"
            name = "vision"
            parent = "labs"
            namespaces = ["vision"]
            min-runtime = "1m30s"
            gpus = [{ model = "H200", tier = "reserved", guaranteed = 8, limit = 16 }]
            "#,
        )
        .unwrap();
        assert_eq!(
            spec.object().get("spec"),
            Some(
                &json!({"parent": "labs", "namespaces": ["vision"], "weight": 1, "band": 0,
                "gpus": [{"model": "H200", "tier": "reserved", "guaranteed": 8, "limit": 16}],
                "preemption": {"minRuntimeSeconds": 90, "reclaim": "Any"}})
            )
        );
    }
}
