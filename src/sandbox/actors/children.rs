//! Pods that controllers make from templates, and the names they get.

use serde_json::{Map, Value, json};

use super::clock::Clock;

/// The longest name that a suffix is appended to, as Kubernetes cuts generated names.
const MAX_BASE: usize = 57;

/// The controller of a pod to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Controller<'a> {
    /// API version, such as `batch/v1`.
    pub api_version: &'a str,
    /// Kind, such as `Job`.
    pub kind: &'a str,
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
}

impl Controller<'_> {
    /// The owner reference to it.
    pub(super) fn reference(&self) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}

/// `base-xxxxx`: the suffix depends only on the seed, the base and `attempt`, so that two runs
/// under one seed name their pods alike and a create whose answer was lost is not made twice.
pub(super) fn name(clock: Clock, namespace: &str, base: &str, attempt: u64) -> String {
    let suffix = clock.suffix(&format!("{namespace}/{base}/{attempt}"));
    let cut = base
        .char_indices()
        .nth(MAX_BASE)
        .map_or(base.len(), |(at, _)| at);
    let base = base.get(..cut).unwrap_or(base);
    format!("{base}-{suffix}")
}

/// A pod from `template`, with more labels and annotations, owned by `controller`.
pub(super) fn pod(
    template: &Value,
    namespace: &str,
    name: &str,
    controller: Controller<'_>,
    labels: &[(&str, &str)],
    annotations: &[(&str, &str)],
) -> Value {
    let metadata = template.get("metadata");
    let with = |field: &str, more: &[(&str, &str)]| {
        let own = metadata.and_then(|metadata| metadata.get(field));
        let mut all: Map<String, Value> =
            own.and_then(Value::as_object).cloned().unwrap_or_default();
        all.extend(
            more.iter()
                .map(|(key, value)| ((*key).to_owned(), json!(value))),
        );
        all
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": with("labels", labels),
            "annotations": with("annotations", annotations),
            "ownerReferences": [controller.reference()],
        },
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    })
}
