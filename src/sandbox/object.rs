//! A stored object: its compact JSON and the little that selectors need of it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

/// A field that a field selector may name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    /// As in the selector, `spec.nodeName`.
    pub(super) name: &'static str,
    /// JSON pointer to the value.
    pub(super) pointer: &'static str,
    /// The value where the object has none.
    pub(super) absent: &'static str,
}

/// One version of one object. Never changes once stored; shared by store, history and answers.
#[derive(Debug)]
pub(super) struct Object {
    /// Compact JSON, `metadata.resourceVersion` included.
    pub(super) json: Bytes,
    /// The resourceVersion.
    pub(super) rv: u64,
    /// `namespace/name`, or `name` for a cluster-scoped kind.
    pub(super) key: Arc<str>,
    // Packed with NUL between parts: two small allocations an object instead of dozens.
    labels: Box<str>,
    fields: Box<str>,
}

impl Object {
    /// Serialises `value`, after writing `rv` into it, and extracts what selectors look at.
    pub(super) fn new(
        key: Arc<str>,
        rv: u64,
        value: &mut Value,
        fields: &[Field],
    ) -> Result<Self, serde_json::Error> {
        set_resource_version(value, rv);
        let json = compact(value)?;
        let (labels, fields) = selectable(value, fields);
        Ok(Object {
            json: Bytes::from(json),
            rv,
            key,
            labels: labels.into_boxed_str(),
            fields: fields.into_boxed_str(),
        })
    }

    /// One whose JSON is written already, and what [`selectable`] takes of it.
    pub(super) fn printed(key: Arc<str>, rv: u64, json: &str, labels: &str, fields: &str) -> Self {
        Object {
            json: Bytes::copy_from_slice(json.as_bytes()),
            rv,
            key,
            labels: labels.into(),
            fields: fields.into(),
        }
    }

    /// The namespace, empty for a cluster-scoped object.
    pub(super) fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(ns, _)| ns)
    }

    /// The name.
    pub(super) fn name(&self) -> &str {
        self.key
            .split_once('/')
            .map_or(&*self.key, |(_, name)| name)
    }

    /// The value of one label.
    pub(super) fn label(&self, wanted: &str) -> Option<&str> {
        let mut parts = self.labels.split_terminator('\0');
        while let (Some(label), Some(text)) = (parts.next(), parts.next()) {
            if label == wanted {
                return Some(text);
            }
        }
        None
    }

    /// The value of the `index`th selectable field.
    pub(super) fn field(&self, index: usize) -> &str {
        self.fields
            .split_terminator('\0')
            .nth(index)
            .unwrap_or_default()
    }

    /// The object parsed.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// Bytes this version holds, for the history's budget.
    pub(super) fn size_bytes(&self) -> usize {
        self.json.len() + self.labels.len() + self.fields.len() + 160
    }
}

/// Compact JSON with `apiVersion` and `kind` in front, where a list can cut them off.
pub(super) fn compact(value: &Value) -> Result<Vec<u8>, serde_json::Error> {
    const FIRST: [&str; 3] = ["apiVersion", "kind", "metadata"];
    let Some(map) = value.as_object() else {
        return serde_json::to_vec(value);
    };
    let first = FIRST.iter().filter_map(|name| map.get_key_value(*name));
    let rest = map
        .iter()
        .filter(|(name, _)| !FIRST.contains(&name.as_str()));
    let mut json = Vec::with_capacity(1024);
    json.push(b'{');
    for (index, (name, value)) in first.chain(rest).enumerate() {
        if index > 0 {
            json.push(b',');
        }
        serde_json::to_writer(&mut json, name)?;
        json.push(b':');
        serde_json::to_writer(&mut json, value)?;
    }
    json.push(b'}');
    json.shrink_to_fit();
    Ok(json)
}

/// What selectors look at, packed: labels and their values, and the values of `fields`.
pub(super) fn selectable(value: &Value, fields: &[Field]) -> (String, String) {
    let mut labels = String::new();
    if let Some(map) = value.pointer("/metadata/labels").and_then(Value::as_object) {
        for (label, text) in map {
            push_part(&mut labels, label);
            push_part(&mut labels, text.as_str().unwrap_or_default());
        }
    }
    let mut packed = String::new();
    for field in fields {
        match at(value, field.pointer) {
            None | Some(Value::Null) => push_part(&mut packed, field.absent),
            Some(Value::String(text)) => push_part(&mut packed, text),
            Some(other) => push_part(&mut packed, &other.to_string()),
        }
    }
    (labels, packed)
}

fn push_part(packed: &mut String, part: &str) {
    if part.contains('\0') {
        packed.push_str(&part.replace('\0', "\u{fffd}"));
    } else {
        packed.push_str(part);
    }
    packed.push('\0');
}

/// Writes `metadata.resourceVersion`.
pub(super) fn set_resource_version(value: &mut Value, rv: u64) {
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.insert("resourceVersion".into(), rv.to_string().into());
    }
}

/// The value at `pointer`, as [`Value::pointer`] finds it, but without escapes (`~0`, `~1`): those
/// cost two allocations a step, and this runs dozens of times a request.
pub(super) fn at<'v>(value: &'v Value, pointer: &str) -> Option<&'v Value> {
    let mut steps = pointer.split('/');
    // What stands before the first slash: nothing.
    steps.next();
    steps.try_fold(value, |value, step| match value {
        Value::Object(map) => map.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The text at `pointer`, empty where there is none.
pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    at(value, pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
