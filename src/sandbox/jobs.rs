//! batch/v1 Job: defaults and what may change.

use serde_json::{Value, json};

use super::object::text;
use super::resources::Resource;
use super::status::{ApiError, Cause};
use super::{meta, pods};

/// Defaults a new Job and gives its pods the labels that its controller selects by.
pub(super) fn admit_create(res: &Resource, job: &mut Value) -> Result<(), ApiError> {
    let name = text(job, "/metadata/name").to_owned();
    let uid = text(job, "/metadata/uid").to_owned();
    let Some(map) = job.as_object_mut() else {
        return Err(ApiError::bad_request("a Job must be a JSON object"));
    };
    map.insert("status".into(), json!({}));
    let spec = map.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else {
        return Err(ApiError::bad_request("a Job's spec must be a JSON object"));
    };
    // Completions stay unset for a work queue: parallelism alone.
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".into(), json!(1));
    }
    for (field, value) in [
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("manualSelector", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        spec.entry(field).or_insert(value);
    }
    let manual = spec.get("manualSelector").and_then(Value::as_bool) == Some(true);
    if !manual {
        spec.insert(
            "selector".into(),
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}),
        );
    }
    let template = spec.entry("template").or_insert_with(|| json!({}));
    if !manual && let Some(meta) = meta::of(template) {
        let labels = meta.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            for (label, value) in [
                ("batch.kubernetes.io/controller-uid", &uid),
                ("batch.kubernetes.io/job-name", &name),
                ("controller-uid", &uid),
                ("job-name", &name),
            ] {
                labels.insert(label.into(), value.clone().into());
            }
        }
    }
    let mut causes = Vec::new();
    let template_labels = template.pointer("/metadata/labels").cloned();
    if let Some(template) = template.as_object_mut() {
        template.entry("spec").or_insert_with(|| json!({}));
    }
    match template.get_mut("spec").and_then(Value::as_object_mut) {
        None => causes.push(Cause::required("spec.template.spec", "")),
        Some(pod) => {
            if pod
                .get("containers")
                .and_then(Value::as_array)
                .is_none_or(Vec::is_empty)
            {
                causes.push(Cause::required("spec.template.spec.containers", ""));
            }
            let given = pod
                .get("restartPolicy")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if !matches!(given, "OnFailure" | "Never") {
                causes.push(Cause {
                    reason: "FieldValueRequired",
                    message: "Required value: valid values: \"OnFailure\", \"Never\"".into(),
                    field: "spec.template.spec.restartPolicy".into(),
                });
            }
            pods::default_spec(pod);
        }
    }
    for field in ["parallelism", "completions", "backoffLimit"] {
        match spec.get(field) {
            Some(value) if value.as_i64().is_none() => {
                return Err(ApiError::bad_request(format!(
                    "Job in version \"v1\" cannot be handled as a Job: json: cannot unmarshal {} into Go struct field JobSpec.spec.{field} of type int32",
                    meta::json_type(value)
                )));
            }
            Some(value) if value.as_i64().is_some_and(|n| n < 0) => {
                let why = "must be greater than or equal to 0";
                causes.push(Cause::invalid(&format!("spec.{field}"), value, why));
            }
            _ => {}
        }
    }
    // A Job without labels takes those of its pods.
    if let (Some(labels), Some(meta)) = (template_labels, meta::of(job)) {
        meta.entry("labels").or_insert(labels);
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(res, &name, causes))
    }
}

/// Fields of a suspended Job's pod template that may still change.
const MUTABLE_POD_FIELDS: [&str; 4] =
    ["nodeSelector", "affinity", "tolerations", "schedulingGates"];

/// A Job's completions, selector and template are fixed, but for where a suspended one may run.
pub(super) fn validate_update(res: &Resource, old: &Value, new: &Value) -> Result<(), ApiError> {
    let name = text(old, "/metadata/name");
    let at = |job: &Value, pointer: &str| job.pointer(pointer).cloned().unwrap_or(Value::Null);
    let mut causes = Vec::new();
    let indexed = text(old, "/spec/completionMode") == "Indexed";
    for field in [
        "completions",
        "selector",
        "completionMode",
        "podFailurePolicy",
    ] {
        let pointer = format!("/spec/{field}");
        // An Indexed job may be scaled by changing both numbers together.
        let scaled = field == "completions"
            && indexed
            && at(new, "/spec/completions") == at(new, "/spec/parallelism");
        if at(old, &pointer) != at(new, &pointer) && !scaled {
            let value = at(new, &pointer);
            causes.push(Cause::invalid(
                &format!("spec.{field}"),
                &value,
                "field is immutable",
            ));
        }
    }
    // Only a Job that is suspended and has never started pods may move.
    let movable = old.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true)
        && old.pointer("/status/startTime").is_none();
    let settled = |job: &Value| {
        let mut template = at(job, "/spec/template");
        if movable {
            if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
                MUTABLE_POD_FIELDS.iter().for_each(|field| {
                    spec.remove(*field);
                });
            }
            if let Some(meta) = template.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.remove("labels");
                meta.remove("annotations");
            }
        }
        template
    };
    if settled(old) != settled(new) {
        let value = at(new, "/spec/template");
        causes.push(Cause::invalid(
            "spec.template",
            &value,
            "field is immutable",
        ));
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(res, name, causes))
    }
}
