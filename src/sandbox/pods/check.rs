//! What a pod may be, and what of one may change.

use serde_json::{Value, json};

use super::super::object::text;
use super::super::resources::Resource;
use super::super::status::{ApiError, Cause, clip};
use super::super::{meta, quantity};
use super::{containers, is_gated};

/// Checks the types of the fields that the server and its readers walk through.
pub(in crate::sandbox) fn check_types(res: &Resource, pod: &Value) -> Result<(), ApiError> {
    let fail = |got: &Value, field: &str, wanted: &str| {
        Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: json: cannot unmarshal {} into Go struct field {field} of type {wanted}",
            res.kind,
            res.version,
            res.kind,
            meta::json_type(got)
        )))
    };
    let spec = match pod.get("spec") {
        None | Some(Value::Null) => return Ok(()),
        Some(spec @ Value::Object(_)) => spec,
        Some(other) => return fail(other, "Pod.spec", "v1.PodSpec"),
    };
    for (field, wanted) in [
        ("nodeName", "string"),
        ("schedulerName", "string"),
        ("priorityClassName", "string"),
        ("restartPolicy", "string"),
        ("serviceAccountName", "string"),
    ] {
        if let Some(other) = spec.get(field).filter(|v| !v.is_string()) {
            return fail(other, &format!("PodSpec.spec.{field}"), wanted);
        }
    }
    for field in [
        "terminationGracePeriodSeconds",
        "priority",
        "activeDeadlineSeconds",
    ] {
        if let Some(other) = spec.get(field).filter(|v| !v.is_i64()) {
            return fail(other, &format!("PodSpec.spec.{field}"), "int64");
        }
    }
    for (field, go_type) in [
        ("containers", "v1.Container"),
        ("initContainers", "v1.Container"),
        ("volumes", "v1.Volume"),
        ("tolerations", "v1.Toleration"),
        ("schedulingGates", "v1.PodSchedulingGate"),
    ] {
        match spec.get(field) {
            None => {}
            Some(Value::Array(items)) => {
                if let Some(other) = items.iter().find(|i| !i.is_object()) {
                    return fail(other, &format!("PodSpec.spec.{field}"), go_type);
                }
            }
            Some(other) => {
                return fail(
                    other,
                    &format!("PodSpec.spec.{field}"),
                    &format!("[]{go_type}"),
                );
            }
        }
    }
    if let Some(other) = spec.get("nodeSelector") {
        match other.as_object() {
            None => return fail(other, "PodSpec.spec.nodeSelector", "map[string]string"),
            Some(map) => {
                if let Some(other) = map.values().find(|v| !v.is_string()) {
                    return fail(other, "PodSpec.spec.nodeSelector", "string");
                }
            }
        }
    }
    for container in containers(spec, "containers").chain(containers(spec, "initContainers")) {
        for field in ["name", "image"] {
            if let Some(other) = container.get(field).filter(|v| !v.is_string()) {
                return fail(
                    other,
                    &format!("Container.spec.containers.{field}"),
                    "string",
                );
            }
        }
        for kind in ["limits", "requests"] {
            let Some(amounts) = container.pointer(&format!("/resources/{kind}")) else {
                continue;
            };
            let Some(map) = amounts.as_object() else {
                return fail(
                    amounts,
                    &format!("ResourceRequirements.{kind}"),
                    "v1.ResourceList",
                );
            };
            if map.values().any(|amount| quantity::milli(amount).is_none()) {
                return Err(ApiError::bad_request(format!(
                    "{} in version {:?} cannot be handled as a {}: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                    res.kind, res.version, res.kind
                )));
            }
        }
    }
    Ok(())
}

/// Checks a new pod; all problems in one 422.
pub(in crate::sandbox) fn validate(res: &Resource, pod: &Value) -> Result<(), ApiError> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mut causes = Vec::new();
    if containers(spec, "containers").next().is_none() {
        causes.push(Cause::required("spec.containers", ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for field in ["initContainers", "containers"] {
        for (index, container) in containers(spec, field).enumerate() {
            let at = format!("spec.{field}[{index}]");
            let name = text(container, "/name");
            if name.is_empty() {
                causes.push(Cause::required(&format!("{at}.name"), ""));
            } else if names.contains(&name) {
                causes.push(Cause {
                    reason: "FieldValueDuplicate",
                    message: format!("Duplicate value: {:?}", clip(name)),
                    field: format!("{at}.name"),
                });
            } else {
                names.push(name);
            }
            if text(container, "/image").is_empty() {
                causes.push(Cause::required(&format!("{at}.image"), ""));
            }
            validate_resources(&at, container, &mut causes);
        }
    }
    let restart = text(spec, "/restartPolicy");
    if !matches!(restart, "Always" | "OnFailure" | "Never") {
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: {:?}: supported values: \"Always\", \"OnFailure\", \"Never\"",
                clip(restart)
            ),
            field: "spec.restartPolicy".into(),
        });
    }
    let node = text(spec, "/nodeName");
    if !node.is_empty() && is_gated(pod) {
        causes.push(Cause::forbidden(
            "spec.nodeName",
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
    if !node.is_empty() && !meta::is_subdomain(node) {
        causes.push(Cause::invalid(
            "spec.nodeName",
            &node.into(),
            meta::SUBDOMAIN_RULE,
        ));
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(res, text(pod, "/metadata/name"), causes))
    }
}

/// A resource with a domain other than `kubernetes.io` counts whole devices.
pub(in crate::sandbox) fn is_extended(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

fn shown(amount: &Value) -> String {
    amount
        .as_str()
        .map_or_else(|| amount.to_string(), str::to_owned)
}

fn validate_resources(at: &str, container: &Value, causes: &mut Vec<Cause>) {
    let limits = container
        .pointer("/resources/limits")
        .and_then(Value::as_object);
    let requests = container
        .pointer("/resources/requests")
        .and_then(Value::as_object);
    for (kind, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts.into_iter().flatten() {
            let Some(milli) = quantity::milli(amount) else {
                continue;
            };
            let field = format!("{at}.resources.{kind}[{}]", clip(name));
            if milli < 0 {
                causes.push(Cause::invalid(
                    &field,
                    amount,
                    "must be greater than or equal to 0",
                ));
            } else if is_extended(name) && milli % 1000 != 0 {
                causes.push(Cause::invalid(&field, amount, "must be an integer"));
            }
        }
    }
    for (name, request) in requests.into_iter().flatten() {
        let field = format!("{at}.resources.requests");
        let limit = limits.and_then(|l| l.get(name));
        let (wanted, most) = (quantity::milli(request), limit.and_then(quantity::milli));
        if is_extended(name) {
            if limit.is_none() {
                let message = "Limit must be set for non overcommitable resources";
                causes.push(Cause::required(&format!("{at}.resources.limits"), message));
            } else if wanted != most {
                let most_text = limit.map(shown).unwrap_or_default();
                let why = format!("must be equal to {name} limit of {most_text}");
                causes.push(Cause::invalid(&field, request, &why));
            }
        } else if let (Some(wanted), Some(most)) = (wanted, most)
            && wanted > most
        {
            let most_text = limit.map(shown).unwrap_or_default();
            let why = format!("must be less than or equal to {name} limit of {most_text}");
            causes.push(Cause::invalid(&field, request, &why));
        }
    }
}

/// Checks that an update touches only what may change in a pod.
pub(in crate::sandbox) fn validate_update(
    res: &Resource,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let name = text(old, "/metadata/name");
    let (Some(was), Some(is)) = (old.get("spec"), new.get("spec")) else {
        let cause = Cause::required("spec.containers", "");
        return Err(ApiError::invalid(res, name, vec![cause]));
    };
    let list = |spec: &Value, field: &str| {
        spec.get(field)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let (had, has) = (list(was, "schedulingGates"), list(is, "schedulingGates"));
    if let Some((index, gate)) = has.iter().enumerate().find(|(_, gate)| !had.contains(gate)) {
        let why = format!(
            "only deletion is allowed, but found new scheduling gate '{}'",
            clip(text(gate, "/name"))
        );
        let cause = Cause::forbidden(&format!("spec.schedulingGates[{index}].name"), &why);
        return Err(ApiError::invalid(res, name, vec![cause]));
    }
    let (had, has) = (list(was, "tolerations"), list(is, "tolerations"));
    if had.iter().any(|toleration| !has.contains(toleration)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        let cause = Cause::forbidden("spec.tolerations", why);
        return Err(ApiError::invalid(res, name, vec![cause]));
    }
    let mut settled = is.clone();
    if let (Some(settled), Some(was_map)) = (settled.as_object_mut(), was.as_object()) {
        let mut keep = |field: &str| {
            match was_map.get(field) {
                Some(value) => settled.insert(field.into(), value.clone()),
                None => settled.remove(field),
            };
        };
        for field in [
            "enableServiceLinks",
            "schedulingGates",
            "tolerations",
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
        ] {
            keep(field);
        }
        if is_gated(old) {
            // While gated, a pod's placement may be narrowed.
            if !narrowed_selector(was, is) {
                let why =
                    "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
                let value = is.get("nodeSelector").cloned().unwrap_or(Value::Null);
                let cause = Cause::invalid("spec.nodeSelector", &value, why);
                return Err(ApiError::invalid(res, name, vec![cause]));
            }
            keep("nodeSelector");
            if narrowed_affinity(was, is) {
                keep("affinity");
            }
        }
    }
    for field in ["containers", "initContainers"] {
        let images = list(was, field);
        let slot = settled.get_mut(field).and_then(Value::as_array_mut);
        for (container, before) in slot.into_iter().flatten().zip(images) {
            if let (Some(container), Some(image)) = (container.as_object_mut(), before.get("image"))
            {
                container.insert("image".into(), image.clone());
            }
        }
    }
    if settled != *was {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        return Err(ApiError::invalid(
            res,
            name,
            vec![Cause::forbidden("spec", why)],
        ));
    }
    Ok(())
}

fn narrowed_selector(was: &Value, is: &Value) -> bool {
    let map = |spec: &Value| {
        spec.get("nodeSelector")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let (was, is) = (map(was), map(is));
    was.iter()
        .all(|(label, value)| is.get(label) == Some(value))
}

/// Only the required node affinity may change: set where there was none, or each term get more
/// expressions.
fn narrowed_affinity(was: &Value, is: &Value) -> bool {
    const TERMS: &str =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let without = |spec: &Value| {
        let mut affinity = spec.get("affinity").cloned().unwrap_or_else(|| json!({}));
        if let Some(node) = affinity
            .get_mut("nodeAffinity")
            .and_then(Value::as_object_mut)
        {
            node.remove("requiredDuringSchedulingIgnoredDuringExecution");
            if node.is_empty()
                && let Some(map) = affinity.as_object_mut()
            {
                map.remove("nodeAffinity");
            }
        }
        affinity
    };
    if without(was) != without(is) {
        return false;
    }
    let Some(before) = was
        .pointer(TERMS)
        .and_then(Value::as_array)
        .filter(|t| !t.is_empty())
    else {
        return true;
    };
    let after = is
        .pointer(TERMS)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    before.len() == after.len()
        && before.iter().zip(after).all(|(before, after)| {
            ["matchExpressions", "matchFields"].iter().all(|field| {
                let list = |term: &Value| {
                    term.get(*field)
                        .and_then(Value::as_array)
                        .cloned()
                        .unwrap_or_default()
                };
                let (before, after) = (list(before), list(after));
                before.iter().all(|expression| after.contains(expression))
            })
        })
}
