//! The three patch formats. Strategic merge is in `strategic.rs`.

use serde_json::{Map, Value};

use super::resources::Resource;
use super::status::{ApiError, clip};
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
        let unreadable = |error: &dyn std::fmt::Display| {
            ApiError::bad_request(format!("error decoding patch: {error}"))
        };
        match content_type {
            "application/json-patch+json" => {
                let patch: json_patch::Patch =
                    serde_json::from_slice(body).map_err(|e| unreadable(&e))?;
                if patch.0.len() > MOST_OPERATIONS {
                    return Err(ApiError {
                        code: 413,
                        ..ApiError::too_large(MOST_OPERATIONS)
                    });
                }
                Ok(Patch::Json(patch))
            }
            "application/merge-patch+json" => {
                let patch: Value = serde_json::from_slice(body).map_err(|e| unreadable(&e))?;
                object(patch).map(Patch::Merge)
            }
            "application/strategic-merge-patch+json" if !res.custom => {
                let patch: Value = serde_json::from_slice(body).map_err(|e| unreadable(&e))?;
                object(patch).map(Patch::Strategic)
            }
            _ => {
                let mut accepted =
                    "application/json-patch+json, application/merge-patch+json".to_owned();
                if !res.custom {
                    accepted.push_str(", application/strategic-merge-patch+json");
                }
                Err(ApiError::unsupported_media_type(&accepted))
            }
        }
    }

    /// Applies it.
    pub(super) fn apply(&self, target: &mut Value) -> Result<(), ApiError> {
        match self {
            Patch::Json(patch) => json_patch::patch(target, patch).map_err(|error| {
                ApiError::unprocessable(format!(
                    "the server rejected our request due to an error in our request: {}",
                    clip(&error.to_string())
                ))
            }),
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
