//! What the server does to nodes beyond storing them.

use serde_json::{Value, json};

use super::object::text;
use super::pods::is_extended;
use super::quantity;
use super::resources::Resource;
use super::status::{ApiError, Cause, clip};

/// The TaintNodesByCondition admission plugin: a new node is not ready whatever it says.
pub(super) fn taint_new(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let Some(map) = node.as_object_mut() else {
        return;
    };
    let spec = map.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else {
        return;
    };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    let Some(taints) = taints.as_array_mut() else {
        return;
    };
    let there = taints
        .iter()
        .any(|t| text(t, "/key") == KEY && text(t, "/effect") == "NoSchedule");
    if !there {
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
}

/// Members of `nodeInfo` that Go never leaves out.
const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

/// A node that names no allocatable resources can give all it has.
pub(super) fn set_defaults(node: &mut Value) {
    let Some(map) = node.as_object_mut() else {
        return;
    };
    let status = map.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else {
        return;
    };
    status
        .entry("daemonEndpoints")
        .or_insert_with(|| json!({"kubeletEndpoint": {"Port": 0}}));
    let info = status.entry("nodeInfo").or_insert_with(|| json!({}));
    if let Some(info) = info.as_object_mut() {
        for field in NODE_INFO {
            info.entry(field).or_insert_with(|| "".into());
        }
    }
    if let Some(capacity) = status.get("capacity").cloned() {
        status.entry("allocatable").or_insert(capacity);
    }
    for kind in ["capacity", "allocatable"] {
        if let Some(amounts) = status.get_mut(kind) {
            quantity::normalise(amounts);
        }
    }
}

/// Checks taint effects and that devices are counted in whole numbers.
pub(super) fn validate(res: &Resource, node: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    for (index, taint) in taints.into_iter().flatten().enumerate() {
        let effect = text(taint, "/effect");
        if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            causes.push(Cause {
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: {:?}: supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                    clip(effect)
                ),
                field: format!("metadata.taints[{index}].effect"),
            });
        }
    }
    for kind in ["capacity", "allocatable"] {
        let amounts = node
            .pointer(&format!("/status/{kind}"))
            .and_then(Value::as_object);
        for (name, amount) in amounts.into_iter().flatten() {
            if is_extended(name) && quantity::milli(amount).is_some_and(|milli| milli % 1000 != 0) {
                let field = format!("status.{kind}.{}", clip(name));
                causes.push(Cause::invalid(&field, amount, "must be an integer"));
            }
        }
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(res, text(node, "/metadata/name"), causes))
    }
}
