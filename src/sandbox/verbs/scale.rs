//! The scale subresource of kinds with replicas.

use serde_json::{Map, Value, json};

use crate::sandbox::Inner;
use crate::sandbox::object::{Object, text};
use crate::sandbox::patch::Patch;
use crate::sandbox::resources::{Resource, StatusRule};
use crate::sandbox::serve::{Answer, Call};
use crate::sandbox::status::{ApiError, Cause};
use crate::sandbox::{meta, selector};

use super::update::Part;

/// From the stored object to the Scale that is asked for.
type Change = Box<dyn Fn(&Value) -> Result<Value, ApiError>>;

/// Whether a kind has a scale.
pub(in crate::sandbox) fn has_scale(res: &Resource) -> bool {
    res.is("", "replicationcontrollers")
        || (res.group == "apps"
            && matches!(&*res.plural, "deployments" | "replicasets" | "statefulsets"))
}

/// The Scale of an object.
fn scale_of(object: &Value) -> Value {
    let mut metadata = Map::new();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object.get("metadata").and_then(|m| m.get(field)) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let replicas = match number("/spec/replicas") {
        0 => json!({}),
        count => json!({"replicas": count}),
    };
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": replicas,
        "status": {
            "replicas": number("/status/replicas"),
            "selector": selector::to_text(object.pointer("/spec/selector").unwrap_or(&Value::Null)),
        },
    })
}

/// Scale as a kind of its own, for messages about it.
fn scale_kind(res: &Resource) -> Resource {
    Resource {
        group: "autoscaling".into(),
        version: "v1".into(),
        kind: "Scale".into(),
        list_kind: String::new(),
        plural: "scales".into(),
        status: StatusRule::None,
        ..res.clone()
    }
}

impl Inner {
    /// Reads or changes the number of replicas.
    pub(in crate::sandbox) fn scale(&self, verb: &str, call: &Call) -> Result<Answer, ApiError> {
        let object = || {
            self.store
                .get(&call.res.table, &call.key())
                .map(|stored: std::sync::Arc<Object>| stored.value())
                .ok_or_else(|| ApiError::not_found(&call.res, &call.path.name))
        };
        let kind = scale_kind(&call.res);
        let sent: Change = match verb {
            "get" => return Ok(Answer::Value(200, scale_of(&object()?))),
            "update" => {
                let mut body = call.json()?;
                meta::check_type(&kind, &mut body)?;
                meta::check_shape(&kind, &body)?;
                Box::new(move |_| Ok(body.clone()))
            }
            "patch" => {
                let patch = Patch::parse(&call.content_type, &call.body, &kind)?;
                Box::new(move |old| {
                    let mut scale = scale_of(old);
                    patch.apply(&mut scale)?;
                    Ok(scale)
                })
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        object()?;
        let changed = self.change(call, Part::Main, |old| {
            let scale = sent(old)?;
            let name = text(&scale, "/metadata/name");
            if name != call.path.name {
                return Err(super::update::misnamed(call, name));
            }
            let replicas = match scale.pointer("/spec/replicas") {
                None | Some(Value::Null) => 0,
                Some(value) => value.as_i64().ok_or_else(|| {
                    ApiError::bad_request(format!(
                        "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                        meta::json_type(value)
                    ))
                })?,
            };
            if replicas < 0 {
                let why = "must be greater than or equal to 0";
                let cause = Cause::invalid("spec.replicas", &replicas.into(), why);
                return Err(ApiError::invalid(&kind, name, vec![cause]));
            }
            let mut new = old.clone();
            if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("replicas".into(), replicas.into());
            }
            let version = scale.pointer("/metadata/resourceVersion").cloned();
            if let Some(metadata) = meta::of(&mut new) {
                match version.filter(|v| v.as_str().is_some_and(|v| !v.is_empty())) {
                    Some(version) => metadata.insert("resourceVersion".into(), version),
                    None => metadata.remove("resourceVersion"),
                };
            }
            Ok(new)
        })?;
        Ok(match changed {
            Answer::Bytes(code, bytes) => {
                let object = serde_json::from_slice(&bytes).unwrap_or_default();
                Answer::Value(code, scale_of(&object))
            }
            Answer::Value(code, object) => Answer::Value(code, scale_of(&object)),
            other => other,
        })
    }
}
