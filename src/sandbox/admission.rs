//! What happens to objects between decoding and storing, kind by kind.

use serde_json::{Value, json};

use super::object::text;
use super::resources::tables;
use super::serve::Call;
use super::status::{ApiError, Cause};
use super::verbs::Part;
use super::{Inner, crd, jobs, meta, pods};

impl Inner {
    /// Defaults, mutates and validates an object about to be created (stored form).
    pub(super) fn admit_create(&self, call: &Call, object: &mut Value) -> Result<(), ApiError> {
        if call.res.custom {
            return Ok(());
        }
        match (call.res.group.as_str(), call.res.plural.as_str()) {
            ("", "pods") => {
                self.set_priority(call, object)?;
                pods::set_defaults(object, &self.options.clock.time());
                pods::validate(&call.res, object)?;
            }
            ("", "nodes") => {
                taint_new_node(object);
                default_allocatable(object);
            }
            ("policy", "poddisruptionbudgets") => {
                if let Some(map) = object.as_object_mut() {
                    map.insert(
                        "status".into(),
                        json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
                    );
                }
            }
            ("", "namespaces") => {
                let name = text(object, "/metadata/name").to_owned();
                if let Some(meta) = meta::of(object) {
                    let labels = meta.entry("labels").or_insert_with(|| json!({}));
                    if let Some(labels) = labels.as_object_mut() {
                        labels.insert("kubernetes.io/metadata.name".into(), name.into());
                    }
                }
                if let Some(map) = object.as_object_mut() {
                    map.insert("spec".into(), json!({"finalizers": ["kubernetes"]}));
                    map.insert("status".into(), json!({"phase": "Active"}));
                }
            }
            ("" | "events.k8s.io", "events") => {
                if let Some(map) = object.as_object_mut() {
                    map.entry("source").or_insert_with(|| json!({}));
                }
            }
            ("batch", "jobs") => jobs::admit_create(&call.res, object)?,
            ("apps", "deployments" | "replicasets" | "statefulsets") => {
                if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                    spec.entry("replicas").or_insert(json!(1));
                }
            }
            ("scheduling.k8s.io", "priorityclasses") => {
                let name = text(object, "/metadata/name").to_owned();
                if name.starts_with("system-") {
                    let why = format!(
                        "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
                    );
                    return Err(ApiError::invalid(
                        &call.res,
                        &name,
                        vec![Cause::forbidden("metadata.name", &why)],
                    ));
                }
                if let Some(map) = object.as_object_mut() {
                    map.entry("preemptionPolicy")
                        .or_insert(json!("PreemptLowerPriority"));
                    map.entry("value").or_insert(json!(0));
                }
            }
            ("coordination.k8s.io", "leases") => check_lease(call, object)?,
            ("apiextensions.k8s.io", "customresourcedefinitions") => {
                crd::set_defaults(object);
                crd::validate(&call.res, object)?;
                let status = crd::established(object, &self.options.clock.time());
                if let Some(map) = object.as_object_mut() {
                    map.insert("status".into(), status);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Validates an update (stored form); may still change it.
    pub(super) fn admit_update(
        &self,
        call: &Call,
        part: Part,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        if call.res.custom {
            return Ok(());
        }
        let (group, plural) = (call.res.group.as_str(), call.res.plural.as_str());
        if part == Part::Status {
            if (group, plural) == ("", "nodes") {
                default_allocatable(new);
            }
            if (group, plural) == ("policy", "poddisruptionbudgets") {
                self.own_budgets.forget(text(old, "/metadata/uid"));
            }
            return Ok(());
        }
        match (group, plural) {
            ("", "pods") => {
                // A client may send what it sent at create, without the defaults.
                if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
                    pods::default_pod_spec(spec);
                }
                pods::validate_update(&call.res, old, new)?;
            }
            ("batch", "jobs") => {
                let template = new.pointer_mut("/spec/template/spec");
                if let Some(spec) = template.and_then(Value::as_object_mut) {
                    pods::default_spec(spec);
                }
                jobs::validate_update(&call.res, old, new)?;
            }
            ("scheduling.k8s.io", "priorityclasses") => {
                for field in ["value", "preemptionPolicy"] {
                    if old.get(field) != new.get(field) {
                        let why = "may not be changed in an update.";
                        return Err(ApiError::invalid(
                            &call.res,
                            &call.path.name,
                            vec![Cause::forbidden(field, why)],
                        ));
                    }
                }
            }
            ("coordination.k8s.io", "leases") => check_lease(call, new)?,
            ("apiextensions.k8s.io", "customresourcedefinitions") => {
                crd::set_defaults(new);
                crd::validate(&call.res, new)?;
                let mut status = crd::established(new, &self.options.clock.time());
                // The conditions keep their times: an update that changes nothing is none.
                if let Some(before) = old.pointer("/status/conditions")
                    && let Some(map) = status.as_object_mut()
                {
                    map.insert("conditions".into(), before.clone());
                }
                if let Some(map) = new.as_object_mut() {
                    map.insert("status".into(), status);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses deletions that no cluster allows.
    pub(super) fn admit_delete(&self, call: &Call, name: &str) -> Result<(), ApiError> {
        let kept = matches!(name, "default" | "kube-system" | "kube-public");
        if call.res.is("", "namespaces") && kept {
            return Err(ApiError::forbidden(
                "",
                "namespaces",
                name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }

    /// Follows up on a stored write.
    pub(super) fn after_write(&self, call: &Call, object: &Value) {
        if call
            .res
            .is("apiextensions.k8s.io", "customresourcedefinitions")
        {
            self.install_crd(object);
        }
    }

    /// Follows up on a removal.
    pub(super) fn after_remove(&self, call: &Call, last: &Value) {
        let uid = text(last, "/metadata/uid");
        if call
            .res
            .is("apiextensions.k8s.io", "customresourcedefinitions")
        {
            self.remove_crd(last);
        }
        if call.res.is("policy", "poddisruptionbudgets") {
            self.own_budgets.forget(uid);
        }
        if call.res.namespaced {
            self.finish_namespace(&call.path.namespace);
        }
    }

    /// The Priority admission plugin: resolves the class, or the default one, into a number.
    fn set_priority(&self, call: &Call, pod: &mut Value) -> Result<(), ApiError> {
        let mut class = text(pod, "/spec/priorityClassName").to_owned();
        let mut found = None;
        if class.is_empty() {
            let default = self
                .store
                .all(tables::PRIORITY_CLASSES, "")
                .iter()
                .map(|stored| stored.value())
                .filter(|class| class.get("globalDefault").and_then(Value::as_bool) == Some(true))
                // Of several defaults the lowest counts.
                .min_by_key(|class| class.get("value").and_then(Value::as_i64).unwrap_or(0));
            if let Some(default) = default {
                class = text(&default, "/metadata/name").to_owned();
                found = Some(default);
            }
        } else {
            let Some(stored) = self.store.get(tables::PRIORITY_CLASSES, &class) else {
                return Err(ApiError::forbidden(
                    "",
                    "pods",
                    text(pod, "/metadata/name"),
                    &format!("no PriorityClass with name {class} was found"),
                ));
            };
            found = Some(stored.value());
        }
        let value = found
            .as_ref()
            .and_then(|class| class.get("value"))
            .and_then(Value::as_i64)
            .unwrap_or(0);
        let policy = found
            .as_ref()
            .map(|class| text(class, "/preemptionPolicy"))
            .filter(|policy| !policy.is_empty())
            .unwrap_or("PreemptLowerPriority")
            .to_owned();
        let name = text(pod, "/metadata/name").to_owned();
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
            return Ok(());
        };
        if let Some(given) = spec.get("priority").and_then(Value::as_i64)
            && given != value
        {
            return Err(ApiError::forbidden(
                &call.res.group,
                "pods",
                &name,
                &format!(
                    "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
                ),
            ));
        }
        if !class.is_empty() {
            spec.insert("priorityClassName".into(), class.into());
        }
        spec.insert("priority".into(), value.into());
        spec.entry("preemptionPolicy")
            .or_insert_with(|| policy.into());
        Ok(())
    }
}

/// The TaintNodesByCondition admission plugin: a new node is not ready whatever it says.
fn taint_new_node(node: &mut Value) {
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

/// A node that names no allocatable resources can give all it has.
fn default_allocatable(node: &mut Value) {
    let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(capacity) = status.get("capacity").cloned() {
        status.entry("allocatable").or_insert(capacity);
    }
}

fn check_lease(call: &Call, lease: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    for (field, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        let Some(value) = lease.pointer(&format!("/spec/{field}")) else {
            continue;
        };
        match value.as_i64() {
            Some(number) if number >= least => {}
            Some(_) => {
                let why = if least == 1 {
                    "must be greater than 0"
                } else {
                    "must be greater than or equal to 0"
                };
                causes.push(Cause::invalid(&format!("spec.{field}"), value, why));
            }
            None => {
                return Err(ApiError::bad_request(format!(
                    "Lease in version \"v1\" cannot be handled as a Lease: json: cannot unmarshal {} into Go struct field LeaseSpec.spec.{field} of type int32",
                    meta::json_type(value)
                )));
            }
        }
    }
    let name = text(lease, "/metadata/name");
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(&call.res, name, causes))
    }
}
