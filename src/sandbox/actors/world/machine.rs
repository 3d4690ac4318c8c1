//! A new machine in the place of an old one: the same kind of node under another name.

use serde_json::{Value, json};

use super::notice::wipe;
use crate::sandbox::actors::annotation;
use crate::sandbox::actors::clock::{Clock, hash};
use crate::sandbox::calls::{CallError, Calls, Created, path};

/// On a replacement: the name of the machine that its like began with.
const FIRST: &str = "sandbox.gpudeck.dev/first-of-its-like";

/// A node like `old`, as it registers: no conditions, so that its kubelet reports first.
/// `generation` tells one successor from the next.
pub(super) fn successor(old: &Value, clock: Clock, generation: u64) -> Value {
    let text = |pointer: &str| {
        let value = old.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let metadata = old.get("metadata").cloned().unwrap_or_default();
    let annotations = metadata
        .get("annotations")
        .cloned()
        .unwrap_or_else(|| json!({}));
    let first = annotations.get(FIRST).and_then(Value::as_str);
    let first = first.map_or_else(|| text("/metadata/name"), str::to_owned);
    let suffix = clock.suffix(&format!("machine/{}/{generation}", text("/metadata/name")));
    let name = format!("{first}-{suffix}");
    let bits = hash(clock.seed(), &name);
    let [a, b, ..] = bits.to_le_bytes();

    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": metadata.get("labels"),
            "annotations": annotations,
        },
        "spec": {
            "taints": old.pointer("/spec/taints"),
            "providerID": provider_id(&text("/spec/providerID"), bits),
        },
        "status": {
            "capacity": old.pointer("/status/capacity"),
            "allocatable": old.pointer("/status/allocatable"),
            "addresses": [
                {"type": "InternalIP", "address": format!("10.21.{a}.{}", b.max(1))},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": old.pointer("/status/nodeInfo"),
        },
    });
    wipe(&mut node);
    for (pointer, key, value) in [
        ("/metadata/labels", "kubernetes.io/hostname", json!(name)),
        (
            "/metadata/annotations",
            annotation::KUBELET,
            json!("simulated"),
        ),
        ("/metadata/annotations", FIRST, json!(first)),
        ("/status/nodeInfo", "bootID", json!(format!("{bits:016x}"))),
    ] {
        if let Some(map) = node.pointer_mut(pointer).and_then(Value::as_object_mut) {
            map.insert(key.to_owned(), value);
        }
    }
    node
}

/// Another instance of the same account and zone.
fn provider_id(old: &str, bits: u64) -> String {
    match old.rsplit_once('/') {
        Some((head, _)) => format!("{head}/i-{bits:016x}0"),
        None => String::new(),
    }
}

/// The node as the server has it, whole.
pub(super) async fn whole(calls: &Calls, name: &str) -> Result<Value, CallError> {
    calls.get(&format!("{}/{name}", path::NODES)).await
}

/// Registers a node, unless one of that name is there.
pub(super) async fn register(calls: &Calls, node: &Value) -> Result<Created, CallError> {
    calls.ensure(path::NODES, node).await
}
