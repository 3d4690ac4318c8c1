//! Strategic merge patch: lists of objects are merged by a key that the field's type names.

use serde_json::{Map, Value};

use super::status::{ApiError, clip};

/// The merge key of a list field, by its name and its parent's; `None` for lists replaced whole.
/// From the `patchMergeKey` tags of `k8s.io/api` 1.37.
fn merge_key(parent: &str, field: &str) -> Option<&'static str> {
    Some(match (parent, field) {
        (_, "containers" | "initContainers" | "ephemeralContainers" | "env" | "volumes")
        | (_, "imagePullSecrets" | "schedulingGates" | "resourceClaims" | "secrets")
        | (_, "webhooks") => "name",
        ("status", "resourceClaimStatuses") => "name",
        (_, "volumeMounts") => "mountPath",
        (_, "volumeDevices") => "devicePath",
        ("containers" | "initContainers" | "ephemeralContainers", "ports") => "containerPort",
        ("spec", "ports") => "port",
        (_, "conditions" | "addresses") => "type",
        (_, "hostAliases" | "podIPs" | "hostIPs") => "ip",
        (_, "ownerReferences") => "uid",
        (_, "topologySpreadConstraints") => "topologyKey",
        _ => return None,
    })
}

/// Lists of plain values that are merged as sets.
fn is_set(field: &str) -> bool {
    matches!(field, "finalizers" | "podCIDRs" | "volumesInUse")
}

/// Applies `patch`, a JSON object, to `target`.
pub(super) fn apply(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Value::Object(patch) = patch else {
        return Err(ApiError::bad_request(
            "a strategic merge patch must be a JSON object",
        ));
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    match target.as_object_mut() {
        Some(map) => merge_map(map, patch, ""),
        None => Ok(()),
    }
}

fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    parent: &str,
) -> Result<(), ApiError> {
    match patch.get("$patch").map(|d| d.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            target.clear();
            target.extend(
                patch
                    .iter()
                    .filter(|(k, _)| !k.starts_with('$'))
                    .map(|(k, v)| (k.clone(), v.clone())),
            );
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some(other) => return Err(unknown_directive(other)),
    }
    for (name, change) in patch {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = change.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) {
                list.retain(|item| !gone.contains(item));
            }
        }
    }
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|name, _| kept.iter().any(|k| k.as_str() == Some(name)));
    }
    for (name, change) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        match change {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(change) => {
                let slot = target
                    .entry(name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Some(map) = slot.as_object_mut() {
                    merge_map(map, change, name)?;
                }
            }
            Value::Array(change) => {
                let slot = target
                    .entry(name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                if !slot.is_array() {
                    *slot = Value::Array(Vec::new());
                }
                if let Some(list) = slot.as_array_mut() {
                    merge_list(list, change, parent, name)?;
                }
            }
            plain => {
                target.insert(name.clone(), plain.clone());
            }
        }
    }
    for (name, order) in patch {
        let Some(field) = name.strip_prefix("$setElementOrder/") else {
            continue;
        };
        let order = order.as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) else {
            continue;
        };
        match merge_key(parent, field) {
            Some(key) => {
                let before: Vec<Value> = list.iter().filter_map(|i| i.get(key).cloned()).collect();
                let order: Vec<&Value> = order.iter().filter_map(|item| item.get(key)).collect();
                *list = in_order(std::mem::take(list), key, &order, &before);
            }
            // Stable: items that the order does not name stay behind the named ones.
            None => {
                list.sort_by_key(|item| order.iter().position(|o| o == item).unwrap_or(usize::MAX))
            }
        }
    }
    Ok(())
}

fn merge_list(
    target: &mut Vec<Value>,
    patch: &[Value],
    parent: &str,
    field: &str,
) -> Result<(), ApiError> {
    let Some(key) = merge_key(parent, field) else {
        if is_set(field) {
            for item in patch {
                if !target.contains(item) {
                    target.push(item.clone());
                }
            }
        } else {
            *target = patch.to_vec();
        }
        return Ok(());
    };
    if patch
        .iter()
        .any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace"))
    {
        *target = patch
            .iter()
            .filter(|item| item.get("$patch").is_none())
            .cloned()
            .collect();
        return Ok(());
    }
    let before: Vec<Value> = target
        .iter()
        .filter_map(|item| item.get(key).cloned())
        .collect();
    for item in patch {
        let Value::Object(change) = item else {
            return Err(ApiError::bad_request(format!(
                "strategic merge: an element of {field} is no object: {}",
                clip(&item.to_string())
            )));
        };
        let Some(id) = change.get(key) else {
            return Err(ApiError::unclassified(format!(
                "map: {} does not contain declared merge key: {key}",
                clip(&item.to_string())
            )));
        };
        let at = target
            .iter()
            .position(|existing| existing.get(key) == Some(id));
        match change.get("$patch").map(|d| d.as_str().unwrap_or_default()) {
            Some("delete") => {
                if let Some(at) = at {
                    target.remove(at);
                }
            }
            None | Some("merge") => match at.and_then(|at| target.get_mut(at)) {
                Some(Value::Object(existing)) => merge_map(existing, change, field)?,
                _ => {
                    // Through merge_map, so that directives and nulls do not end up in the object.
                    let mut fresh = Map::new();
                    merge_map(&mut fresh, change, field)?;
                    target.push(Value::Object(fresh));
                }
            },
            Some(other) => return Err(unknown_directive(other)),
        }
    }
    let order: Vec<&Value> = patch.iter().filter_map(|item| item.get(key)).collect();
    *target = in_order(std::mem::take(target), key, &order, &before);
    Ok(())
}

/// Sorts a merged list as the real server does: named items in the patch's order, the others
/// between them where the old list had them, new ones before old ones.
fn in_order(merged: Vec<Value>, key: &str, order: &[&Value], before: &[Value]) -> Vec<Value> {
    let place = |item: &Value| {
        item.get(key)
            .and_then(|id| order.iter().position(|o| *o == id))
    };
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(item).is_some());
    named.sort_by_key(|item| place(item));
    let was = |item: &Value| {
        item.get(key)
            .and_then(|id| before.iter().position(|b| b == id))
    };
    let mut sorted = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    for other in others {
        while let Some(next) = named.next_if(|next| match (was(&other), was(next)) {
            (Some(other), Some(next)) => other >= next,
            _ => true,
        }) {
            sorted.push(next);
        }
        sorted.push(other);
    }
    sorted.extend(named);
    sorted
}

fn unknown_directive(directive: &str) -> ApiError {
    ApiError::unclassified(format!("unknown patch type: {} in map", clip(directive)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn patched(mut target: Value, patch: Value) -> Value {
        apply(&mut target, &patch).unwrap();
        target
    }

    #[test]
    fn containers_merge_by_name_and_ports_by_number() {
        let before = json!({"spec": {"containers": [
            {"name": "a", "image": "one", "ports": [{"containerPort": 80, "name": "http"}]},
            {"name": "b", "image": "two"}
        ]}});
        let after = patched(
            before,
            json!({"spec": {"containers": [
                {"name": "a", "image": "three", "ports": [{"containerPort": 81}]},
                {"name": "b", "$patch": "delete"}
            ]}}),
        );
        assert_eq!(
            after,
            json!({"spec": {"containers": [
                {"name": "a", "image": "three", "ports": [{"containerPort": 81}, {"containerPort": 80, "name": "http"}]}
            ]}})
        );
    }

    #[test]
    fn conditions_merge_and_taints_are_replaced() {
        let before = json!({"spec": {"taints": [{"key": "a"}]}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "x"}]}});
        let after = patched(
            before,
            json!({"spec": {"taints": [{"key": "b"}]}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": null}, {"type": "Disk", "status": "True"}]}}),
        );
        assert_eq!(
            after,
            json!({"spec": {"taints": [{"key": "b"}]}, "status": {"conditions": [
            {"type": "Ready", "status": "False"}, {"type": "Disk", "status": "True"}]}})
        );
    }

    #[test]
    fn directives_delete_replace_order_and_retain() {
        let before = json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}},
            "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}},
                     "volumes": [{"name": "v1"}, {"name": "v2"}]}});
        let after = patched(
            before,
            json!({
            "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"],
                         "labels": {"$patch": "replace", "y": "2"}},
            "spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"},
                     "$setElementOrder/volumes": [{"name": "v3"}, {"name": "v1"}],
                     "volumes": [{"name": "v3"}]}}),
        );
        assert_eq!(
            after,
            json!({"metadata": {"finalizers": ["b", "c"], "labels": {"y": "2"}},
            "spec": {"strategy": {"type": "Recreate"},
                     "volumes": [{"name": "v3"}, {"name": "v1"}, {"name": "v2"}]}})
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let mut target = json!({});
        for patch in [
            json!({"spec": {"$patch": "explode"}}),
            json!({"spec": {"containers": [{"image": "x"}]}}),
        ] {
            assert_eq!(apply(&mut target, &patch).unwrap_err().code, 500);
        }
        let plain = json!({"spec": {"containers": ["x"]}});
        assert_eq!(apply(&mut target, &plain).unwrap_err().code, 400);
    }
}
