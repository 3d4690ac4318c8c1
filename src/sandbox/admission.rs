//! What happens to objects between decoding and storing, kind by kind.

use serde_json::{Value, json};

use super::object::text;
use super::resources::{Resource, tables};
use super::serve::Call;
use super::status::{ApiError, Cause};
use super::verbs::Part;
use super::{Inner, crd, jobs, meta, nodes, pods, schema};

impl Inner {
    /// Defaults, mutates and validates an object about to be created (stored form).
    pub(super) fn admit_create(&self, call: &Call, object: &mut Value) -> Result<(), ApiError> {
        if call.res.custom {
            return complete_custom(call, "", object);
        }
        match (call.res.group.as_str(), call.res.plural.as_str()) {
            ("", "pods") => {
                self.set_priority(call, object)?;
                pods::set_defaults(object, &self.options.clock.time());
                pods::validate(&call.res, object)?;
            }
            ("", "nodes") => {
                nodes::taint_new(object);
                nodes::set_defaults(object);
                nodes::validate(&call.res, object)?;
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
                    map.entry("reportingComponent").or_insert_with(|| "".into());
                    map.entry("reportingInstance").or_insert_with(|| "".into());
                }
                let about = text(object, "/involvedObject/namespace");
                let namespace = call.path.namespace.as_str();
                // An event about a cluster-scoped object lies in `default`.
                let fits = about == namespace
                    || (about.is_empty() && matches!(namespace, "default" | "kube-system"));
                if !fits {
                    let why = "does not match event.namespace";
                    let cause = Cause::invalid("involvedObject.namespace", &about.into(), why);
                    let name = text(object, "/metadata/name");
                    return Err(ApiError::invalid(&call.res, name, vec![cause]));
                }
            }
            ("batch", "jobs") => jobs::admit_create(&call.res, object)?,
            ("apps", "deployments" | "replicasets" | "statefulsets") => {
                set_workload_defaults(&call.res.plural, object);
            }
            ("", "configmaps" | "secrets") => check_keys(&call.res, object)?,
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
            let hidden = if part == Part::Status { "status." } else { "" };
            return complete_custom(call, hidden, new);
        }
        let (group, plural) = (call.res.group.as_str(), call.res.plural.as_str());
        if part == Part::Status {
            if (group, plural) == ("", "nodes") {
                nodes::set_defaults(new);
                nodes::validate(&call.res, new)?;
            }
            if (group, plural) == ("", "pods") {
                let class = old.pointer("/status/qosClass").cloned();
                let address = text(new, "/status/podIP").to_owned();
                let status = new.get_mut("status").and_then(Value::as_object_mut);
                if let Some(status) = status.filter(|_| !address.is_empty()) {
                    status
                        .entry("podIPs")
                        .or_insert_with(|| json!([{"ip": address}]));
                }
                let status = new.get_mut("status").and_then(Value::as_object_mut);
                if let (Some(class), Some(status)) = (class, status) {
                    status.entry("qosClass").or_insert(class);
                }
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
                    pods::keep_filled_in(old, spec);
                    pods::default_pod_spec(spec);
                }
                pods::validate_update(&call.res, old, new)?;
            }
            ("", "nodes") => nodes::validate(&call.res, new)?,
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
        self.note_owners(&call.res, object);
        self.refresh_budgets(call, object);
        if *call.res.table == *tables::EVENTS {
            let name = text(object, "/metadata/name");
            self.event_written(&call.res.key(&call.path.namespace, name));
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
        if call.res.is("", "pods") {
            self.written.forget(uid);
        }
        self.refresh_budgets(call, last);
        self.collect_removed(call, last);
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

/// Defaults of what keeps a number of pods running.
fn set_workload_defaults(plural: &str, object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.entry("status").or_insert_with(|| match plural {
            "deployments" => json!({}),
            _ => json!({"replicas": 0}),
        });
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.entry("replicas").or_insert(json!(1));
    if plural == "deployments" {
        spec.entry("progressDeadlineSeconds").or_insert(json!(600));
        spec.entry("revisionHistoryLimit").or_insert(json!(10));
        let strategy = spec.entry("strategy").or_insert_with(|| json!({}));
        if let Some(strategy) = strategy.as_object_mut() {
            let kind = strategy
                .entry("type")
                .or_insert_with(|| "RollingUpdate".into());
            if kind == "RollingUpdate" {
                let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
                if let Some(rolling) = rolling.as_object_mut() {
                    rolling.entry("maxSurge").or_insert_with(|| "25%".into());
                    rolling
                        .entry("maxUnavailable")
                        .or_insert_with(|| "25%".into());
                }
            }
        }
    }
    let template = spec.get_mut("template").and_then(|t| t.get_mut("spec"));
    if let Some(spec) = template.and_then(Value::as_object_mut) {
        pods::default_spec(spec);
    }
}

/// Keys of a ConfigMap's or Secret's data.
fn check_keys(res: &Resource, object: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    for field in ["data", "binaryData"] {
        let map = object.get(field).and_then(Value::as_object);
        for key in map.into_iter().flatten().map(|(key, _)| key) {
            let fine = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if key.is_empty() || !key.chars().all(fine) {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                let at = format!("{field}[{key}]");
                causes.push(Cause::invalid(&at, &key.as_str().into(), why));
            }
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(
        res,
        text(object, "/metadata/name"),
        causes,
    ))
}

/// Prunes, defaults and checks a custom object under its schema.
fn complete_custom(call: &Call, hidden: &str, object: &mut Value) -> Result<(), ApiError> {
    let Some(schema) = &call.res.schema else {
        return Ok(());
    };
    schema::complete(schema, object);
    let causes = schema::faults(schema, object, hidden);
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(
        &call.res,
        text(object, "/metadata/name"),
        causes,
    ))
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
