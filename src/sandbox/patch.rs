//! The three patch formats. Strategic merge is in `strategic.rs`.

use serde_json::{Map, Value};

use super::resources::Resource;
use super::status::ApiError;
use super::strategic;

/// A patch, parsed.
#[derive(Debug)]
pub(super) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own.
    Strategic(Value),
}

/// Most operations in one JSON patch, as in the real server.
const MOST_OPERATIONS: usize = 10_000;

impl Patch {
    /// Reads the body under its content type.
    pub(super) fn parse(content_type: &str, body: &[u8], res: &Resource) -> Result<Self, ApiError> {
        let read = || -> Result<Value, ApiError> {
            serde_json::from_slice(body).map_err(|_| ApiError::bad_request("invalid JSON patch"))
        };
        match content_type {
            "application/json-patch+json" => {
                let steps = read()?;
                let Some(count) = steps.as_array().map(Vec::len) else {
                    return Err(ApiError::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                        super::meta::json_type(&steps)
                    )));
                };
                if count > MOST_OPERATIONS {
                    return Err(ApiError::too_large(MOST_OPERATIONS));
                }
                serde_json::from_value(steps)
                    .map(Patch::Json)
                    .map_err(|_| ApiError::unpatchable())
            }
            "application/merge-patch+json" => object(read()?).map(Patch::Merge),
            "application/strategic-merge-patch+json" if !res.custom => {
                object(read()?).map(Patch::Strategic)
            }
            _ => Err(ApiError::unsupported_patch(res.custom)),
        }
    }

    /// Applies it.
    pub(super) fn apply(&self, target: &mut Value) -> Result<(), ApiError> {
        match self {
            Patch::Json(patch) => {
                json_patch::patch(target, patch).map_err(|_| ApiError::unpatchable())
            }
            Patch::Merge(patch) => {
                merge(target, patch);
                Ok(())
            }
            Patch::Strategic(patch) => strategic::apply(target, patch),
        }
    }
}

fn object(patch: Value) -> Result<Value, ApiError> {
    if patch.is_object() {
        Ok(patch)
    } else {
        Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            super::meta::json_type(&patch)
        )))
    }
}

/// RFC 7386.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return;
    };
    for (name, change) in patch {
        if change.is_null() {
            map.remove(name);
        } else {
            merge(map.entry(name).or_insert(Value::Null), change);
        }
    }
}
