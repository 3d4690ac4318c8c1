//! Sets of fields as `managedFields` keeps them: FieldsV1 of `meta/v1`.
//!
//! A set is a JSON object: `f:NAME` is a member of a map, `k:{...}` an item of a list told by its
//! keys, `v:VALUE` one of a set; a leaf holds `{}`, and `.` says that an item itself is meant.

use serde_json::{Map, Value, json};

/// What tells the items of a list apart.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Items {
    /// Nothing: the list is one value.
    Atomic,
    /// The values of these members.
    Keys(Vec<String>),
    /// The value itself.
    Set,
}

/// How lists are merged: by a CRD's schema, or as the built-in types say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lists<'s>(pub(super) Option<&'s Value>);

impl<'s> Lists<'s> {
    fn built_in(parent: &str, field: &str) -> Items {
        let keys = |keys: &[&str]| Items::Keys(keys.iter().map(|k| (*k).to_owned()).collect());
        match (parent, field) {
            (_, "containers" | "initContainers" | "ephemeralContainers" | "env" | "volumes")
            | (_, "imagePullSecrets" | "schedulingGates" | "resourceClaims" | "secrets") => {
                keys(&["name"])
            }
            (_, "volumeMounts") => keys(&["mountPath"]),
            (_, "volumeDevices") => keys(&["devicePath"]),
            ("spec", "ports") => keys(&["port", "protocol"]),
            (_, "ports") => keys(&["containerPort", "protocol"]),
            (_, "conditions" | "addresses") => keys(&["type"]),
            (_, "hostAliases" | "podIPs" | "hostIPs") => keys(&["ip"]),
            (_, "ownerReferences") => keys(&["uid"]),
            (_, "topologySpreadConstraints") => keys(&["topologyKey", "whenUnsatisfiable"]),
            (_, "finalizers" | "podCIDRs") => Items::Set,
            _ => Items::Atomic,
        }
    }

    fn items(self, parent: &str, field: &str) -> Items {
        let Some(schema) = self.0 else {
            return Self::built_in(parent, field);
        };
        let of = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        match of("x-kubernetes-list-type") {
            "set" => Items::Set,
            "map" => {
                let keys = schema
                    .get("x-kubernetes-list-map-keys")
                    .and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                Items::Keys(keys.map(str::to_owned).collect())
            }
            _ if parent == "metadata" => Self::built_in(parent, field),
            _ => Items::Atomic,
        }
    }

    /// Whether the members of a map are one value.
    fn whole_map(self, field: &str) -> bool {
        match self.0 {
            Some(schema) => {
                schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic")
            }
            None => matches!(
                field,
                "selector" | "labelSelector" | "nodeSelector" | "podSelector"
            ),
        }
    }

    fn member(self, name: &str) -> Lists<'s> {
        Lists(self.0.and_then(|schema| {
            let own = schema.get("properties").and_then(|p| p.get(name));
            own.or_else(|| schema.get("additionalProperties"))
        }))
    }

    fn item(self) -> Lists<'s> {
        Lists(self.0.and_then(|schema| schema.get("items")))
    }
}

/// The key of an item in a set: `k:{...}` or `v:...`.
fn item_key(items: &Items, item: &Value) -> Option<String> {
    match items {
        Items::Atomic => None,
        Items::Set => Some(format!("v:{item}")),
        Items::Keys(keys) => {
            let mut told = Map::new();
            for key in keys {
                let value = match (item.get(key), key.as_str()) {
                    (Some(value), _) => value.clone(),
                    (None, "protocol") => "TCP".into(),
                    (None, _) => continue,
                };
                told.insert(key.clone(), value);
            }
            Some(format!("k:{}", Value::from(told)))
        }
    }
}

/// The fields of `value`.
pub(super) fn of(lists: Lists<'_>, value: &Value) -> Value {
    set_of(lists, "", "", value)
}

fn set_of(lists: Lists<'_>, parent: &str, field: &str, value: &Value) -> Value {
    match value {
        Value::Object(map) if !map.is_empty() && !lists.whole_map(field) => {
            let members = map.iter().map(|(name, value)| {
                (
                    format!("f:{name}"),
                    set_of(lists.member(name), field, name, value),
                )
            });
            Value::Object(members.collect())
        }
        Value::Array(list) => match lists.items(parent, field) {
            Items::Atomic => json!({}),
            items => {
                let mut set = Map::new();
                for item in list {
                    let Some(key) = item_key(&items, item) else {
                        continue;
                    };
                    let mut inner = match items {
                        Items::Set => json!({}),
                        _ => set_of(lists.item(), field, field, item),
                    };
                    if let (Items::Keys(_), Some(map)) = (&items, inner.as_object_mut()) {
                        map.insert(".".into(), json!({}));
                    }
                    set.insert(key, inner);
                }
                Value::Object(set)
            }
        },
        _ => json!({}),
    }
}

fn is_leaf(set: &Value) -> bool {
    set.as_object().is_none_or(Map::is_empty)
}

/// The member or item of `value` that a set's key names.
fn step<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    if let Some(name) = key.strip_prefix("f:") {
        return value.get(name);
    }
    let items = value.as_array()?;
    items.iter().find(|item| is_item(item, key))
}

fn is_item(item: &Value, key: &str) -> bool {
    if let Some(wanted) = key.strip_prefix("v:") {
        return serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| wanted == *item);
    }
    let Some(Ok(Value::Object(keys))) = key.strip_prefix("k:").map(serde_json::from_str) else {
        return false;
    };
    keys.iter().all(|(name, wanted)| match item.get(name) {
        Some(value) => value == wanted,
        None => name == "protocol" && wanted == "TCP",
    })
}

/// How a path into a set reads in a message: `.spec.containers[name="m"].image`.
pub(super) fn path_text(path: &[String]) -> String {
    let mut text = String::new();
    for part in path {
        if let Some(name) = part.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(value) = part.strip_prefix("v:") {
            text.push_str(&format!("[={value}]"));
        } else if let Some(Ok(Value::Object(keys))) =
            part.strip_prefix("k:").map(serde_json::from_str)
        {
            let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
            text.push_str(&format!("[{}]", keys.join(",")));
        }
    }
    text
}

/// The leaves of `wanted` that `held` holds too and where the two values differ.
pub(super) fn clashes(
    held: &Value,
    wanted: &Value,
    live: Option<&Value>,
    sent: Option<&Value>,
) -> Vec<Vec<String>> {
    let (Some(held), Some(wanted)) = (held.as_object(), wanted.as_object()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, inner) in wanted.iter().filter(|(key, _)| *key != ".") {
        let Some(theirs) = held.get(key) else {
            continue;
        };
        let (live, sent) = (
            live.and_then(|v| step(v, key)),
            sent.and_then(|v| step(v, key)),
        );
        if is_leaf(inner) || is_leaf(theirs) {
            if live != sent {
                found.push(vec![key.clone()]);
            }
            continue;
        }
        for mut path in clashes(theirs, inner, live, sent) {
            path.insert(0, key.clone());
            found.push(path);
        }
    }
    found
}

/// Takes `path` out of `set`, and what is empty then.
pub(super) fn remove(set: &mut Value, path: &[String]) {
    let (Some(map), Some((first, rest))) = (set.as_object_mut(), path.split_first()) else {
        return;
    };
    if rest.is_empty() {
        map.remove(first);
        return;
    }
    if let Some(inner) = map.get_mut(first) {
        remove(inner, rest);
        if is_leaf(inner) {
            map.remove(first);
        }
    }
}

/// Puts `path` into `set`.
pub(super) fn insert(set: &mut Value, path: Vec<String>) {
    let mut at = set;
    for part in path {
        let Some(map) = at.as_object_mut() else {
            return;
        };
        at = map.entry(part).or_insert_with(|| json!({}));
    }
}

/// The leaf paths of `set` whose values in `old` and `new` differ.
pub(super) fn changed(set: &Value, old: Option<&Value>, new: Option<&Value>) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (key, inner) in set.as_object().into_iter().flatten() {
        let (old, new) = if key == "." {
            (old.filter(|v| v.is_object()), new.filter(|v| v.is_object()))
        } else {
            (
                old.and_then(|v| step(v, key)),
                new.and_then(|v| step(v, key)),
            )
        };
        if key == "." {
            if old.is_some() != new.is_some() {
                found.push(vec![key.clone()]);
            }
        } else if is_leaf(inner) {
            if old != new {
                found.push(vec![key.clone()]);
            }
        } else {
            for mut path in changed(inner, old, new) {
                path.insert(0, key.clone());
                found.push(path);
            }
        }
    }
    found
}

/// Puts `applied` over `live`: maps and keyed lists by member, everything else whole.
pub(super) fn merge(lists: Lists<'_>, live: &mut Value, applied: &Value) {
    merge_at(lists, "", "", live, applied);
}

fn merge_at(lists: Lists<'_>, parent: &str, field: &str, live: &mut Value, applied: &Value) {
    match (live, applied) {
        (Value::Object(live), Value::Object(applied)) if !lists.whole_map(field) => {
            for (name, value) in applied {
                match live.get_mut(name) {
                    Some(slot) => merge_at(lists.member(name), field, name, slot, value),
                    None => {
                        live.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(live), Value::Array(applied))
            if lists.items(parent, field) != Items::Atomic =>
        {
            let items = lists.items(parent, field);
            for item in applied {
                let key = item_key(&items, item).unwrap_or_default();
                match live.iter_mut().find(|have| is_item(have, &key)) {
                    Some(have) => merge_at(lists.item(), field, field, have, item),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, applied) => *live = applied.clone(),
    }
}

/// Takes out of `value` what `before` holds and neither `now` nor one of `others` does.
pub(super) fn prune(value: &mut Value, before: &Value, now: Option<&Value>, others: &[&Value]) {
    for (key, inner) in before.as_object().into_iter().flatten() {
        if key == "." {
            continue;
        }
        let now = now.and_then(|set| set.get(key));
        let others: Vec<&Value> = others.iter().filter_map(|set| set.get(key)).collect();
        let kept = now.is_some() || !others.is_empty();
        if !kept && (is_leaf(inner) || inner.get(".").is_some()) {
            take(value, key);
            continue;
        }
        if is_leaf(inner) {
            continue;
        }
        let next = match (key.strip_prefix("f:"), &mut *value) {
            (Some(name), value) => value.get_mut(name),
            (None, Value::Array(items)) => items.iter_mut().find(|item| is_item(item, key)),
            _ => None,
        };
        if let Some(next) = next {
            prune(next, inner, now, &others);
            let empty = match next {
                Value::Object(map) => map.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            if empty && !kept {
                take(value, key);
            }
        }
    }
}

fn take(value: &mut Value, key: &str) {
    match (key.strip_prefix("f:"), value) {
        (Some(name), Value::Object(map)) => {
            map.remove(name);
        }
        (None, Value::Array(items)) => items.retain(|item| !is_item(item, key)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_name_members_and_items() {
        let pod = json!({"metadata": {"labels": {"a": "1"}}, "spec": {
            "nodeSelector": {"x": "y"},
            "tolerations": [{"key": "k"}],
            "containers": [{"name": "m", "ports": [{"containerPort": 80}]}]}});
        let set = of(Lists(None), &pod);
        assert_eq!(
            set,
            json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {
                "f:nodeSelector": {}, "f:tolerations": {},
                "f:containers": {"k:{\"name\":\"m\"}": {".": {}, "f:name": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":
                        {".": {}, "f:containerPort": {}}}}}}})
        );
    }

    #[test]
    fn what_is_applied_no_more_goes_unless_another_holds_it() {
        let mut value = json!({"data": {"a": "1", "b": "2", "c": "3"}});
        let before = json!({"f:data": {"f:a": {}, "f:b": {}}});
        let other = json!({"f:data": {"f:b": {}}});
        prune(&mut value, &before, None, &[&other]);
        assert_eq!(value, json!({"data": {"b": "2", "c": "3"}}));
    }

    #[test]
    fn keyed_items_merge_and_others_stay() {
        let mut live = json!({"spec": {"containers": [{"name": "a", "image": "1", "x": 1}]}});
        let sent = json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}});
        merge(Lists(None), &mut live, &sent);
        assert_eq!(
            live,
            json!({"spec": {"containers": [{"name": "a", "image": "2", "x": 1}, {"name": "b"}]}})
        );
    }
}
