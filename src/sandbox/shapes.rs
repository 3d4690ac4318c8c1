//! The JSON types of the fields that the server, its actors and the console walk through.
//!
//! The real server decodes into typed structs and answers a wrong type with 400; this table does
//! the same for the fields that matter, pods apart (`pods.rs`).

use serde_json::Value;

use super::meta::json_type;
use super::pods;
use super::quantity;
use super::resources::Resource;
use super::status::ApiError;

/// What a field must be.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Whole,
    Flag,
    Map,
    TextMap,
    /// A list of objects.
    Objects,
    /// Quantities by resource name.
    Amounts,
}

use Shape::{Amounts, Flag, Map, Objects, Text, TextMap, Whole};

/// (group, plural, pointer, shape, Go's name of the type)
#[rustfmt::skip]
const FIELDS: &[(&str, &str, &str, Shape, &str)] = &[
    ("", "configmaps", "/data", TextMap, "map[string]string"),
    ("", "configmaps", "/binaryData", TextMap, "map[string][]uint8"),
    ("", "secrets", "/data", TextMap, "map[string][]uint8"),
    ("", "secrets", "/stringData", TextMap, "map[string]string"),
    ("", "secrets", "/type", Text, "v1.SecretType"),
    ("", "nodes", "/spec", Map, "v1.NodeSpec"),
    ("", "nodes", "/spec/taints", Objects, "[]v1.Taint"),
    ("", "nodes", "/spec/unschedulable", Flag, "bool"),
    ("", "nodes", "/spec/providerID", Text, "string"),
    ("", "nodes", "/status", Map, "v1.NodeStatus"),
    ("", "nodes", "/status/capacity", Amounts, "v1.ResourceList"),
    ("", "nodes", "/status/allocatable", Amounts, "v1.ResourceList"),
    ("", "nodes", "/status/conditions", Objects, "[]v1.NodeCondition"),
    ("", "nodes", "/status/addresses", Objects, "[]v1.NodeAddress"),
    ("", "nodes", "/status/nodeInfo", Map, "v1.NodeSystemInfo"),
    ("", "namespaces", "/spec", Map, "v1.NamespaceSpec"),
    ("", "pods", "/status", Map, "v1.PodStatus"),
    ("", "pods", "/status/phase", Text, "v1.PodPhase"),
    ("", "pods", "/status/conditions", Objects, "[]v1.PodCondition"),
    ("", "pods", "/status/containerStatuses", Objects, "[]v1.ContainerStatus"),
    ("", "events", "/involvedObject", Map, "v1.ObjectReference"),
    ("", "events", "/message", Text, "string"),
    ("", "events", "/reason", Text, "string"),
    ("", "events", "/type", Text, "string"),
    ("", "events", "/count", Whole, "int32"),
    ("events.k8s.io", "events", "/regarding", Map, "v1.ObjectReference"),
    ("events.k8s.io", "events", "/note", Text, "string"),
    ("events.k8s.io", "events", "/reason", Text, "string"),
    ("events.k8s.io", "events", "/type", Text, "string"),
    ("batch", "jobs", "/spec", Map, "v1.JobSpec"),
    ("batch", "jobs", "/spec/suspend", Flag, "bool"),
    ("batch", "jobs", "/spec/template", Map, "v1.PodTemplateSpec"),
    ("batch", "jobs", "/spec/template/spec", Map, "v1.PodSpec"),
    ("batch", "jobs", "/spec/template/spec/containers", Objects, "[]v1.Container"),
    ("batch", "jobs", "/status", Map, "v1.JobStatus"),
    ("batch", "jobs", "/status/conditions", Objects, "[]v1.JobCondition"),
    ("policy", "poddisruptionbudgets", "/spec", Map, "v1.PodDisruptionBudgetSpec"),
    ("policy", "poddisruptionbudgets", "/spec/selector", Map, "v1.LabelSelector"),
    ("policy", "poddisruptionbudgets", "/status", Map, "v1.PodDisruptionBudgetStatus"),
    ("policy", "poddisruptionbudgets", "/status/disruptionsAllowed", Whole, "int32"),
    ("coordination.k8s.io", "leases", "/spec", Map, "v1.LeaseSpec"),
    ("coordination.k8s.io", "leases", "/spec/holderIdentity", Text, "string"),
    ("scheduling.k8s.io", "priorityclasses", "/value", Whole, "int32"),
    ("scheduling.k8s.io", "priorityclasses", "/globalDefault", Flag, "bool"),
    ("scheduling.k8s.io", "priorityclasses", "/preemptionPolicy", Text, "v1.PreemptionPolicy"),
    ("rbac.authorization.k8s.io", "roles", "/rules", Objects, "[]v1.PolicyRule"),
    ("rbac.authorization.k8s.io", "clusterroles", "/rules", Objects, "[]v1.PolicyRule"),
    ("rbac.authorization.k8s.io", "rolebindings", "/subjects", Objects, "[]v1.Subject"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "/subjects", Objects, "[]v1.Subject"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "/spec", Map, "v1.CustomResourceDefinitionSpec"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "/spec/versions", Objects, "[]v1.CustomResourceDefinitionVersion"),
];

/// 400 where a field of the table has another type.
pub(super) fn check(res: &Resource, object: &Value) -> Result<(), ApiError> {
    if res.custom {
        return Ok(());
    }
    if res.is("", "pods") {
        pods::check_types(res, object)?;
    }
    let own = FIELDS
        .iter()
        .filter(|(g, p, ..)| *g == res.group && *p == res.plural);
    for (_, _, pointer, shape, go_type) in own {
        let Some(value) = super::object::at(object, pointer) else {
            continue;
        };
        let good = match (shape, value) {
            (_, Value::Null)
            | (Text, Value::String(_))
            | (Flag, Value::Bool(_))
            | (Map, Value::Object(_)) => true,
            (Whole, Value::Number(number)) => number.is_i64(),
            (TextMap, Value::Object(map)) => map.values().all(|v| v.is_string() || v.is_null()),
            (Amounts, Value::Object(map)) => map.values().all(|v| quantity::milli(v).is_some()),
            (Objects, Value::Array(items)) => items.iter().all(|v| v.is_object() || v.is_null()),
            _ => false,
        };
        if !good {
            // Of a map of texts it is the value that is told, not the map.
            let inner = value.as_object().filter(|_| matches!(shape, TextMap));
            let inner = inner.and_then(|map| map.values().find(|v| !v.is_string() && !v.is_null()));
            let (value, go_type) = match inner {
                Some(inner) => (inner, &"string"),
                None => (value, go_type),
            };
            return Err(ApiError::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: json: cannot unmarshal {2} into Go struct field {0}{3} of type {go_type}",
                res.kind,
                res.version,
                json_type(value),
                pointer.replace('/', ".")
            )));
        }
    }
    Ok(())
}
