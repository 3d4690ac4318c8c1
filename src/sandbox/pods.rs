//! What the server does to pods beyond storing them: defaults here, validation in `check`.

mod check;

use serde_json::{Map, Value, json};

pub(super) use self::check::{check_types, is_extended, validate, validate_update};
use super::object::text;
use super::quantity;

/// Whether a scheduling gate holds the pod back.
pub(super) fn is_gated(pod: &Value) -> bool {
    pod.pointer("/spec/schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|g| !g.is_empty())
}

/// Whether its phase is final.
pub(super) fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether its Ready condition is true.
pub(super) fn is_ready(pod: &Value) -> bool {
    pod.pointer("/status/conditions")
        .and_then(Value::as_array)
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True")
        })
}

/// Sets a condition by its type, keeping the place of an existing one.
pub(super) fn set_condition(object: &mut Value, condition: Value) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    let status = map
        .entry("status")
        .or_insert_with(|| Value::Object(Map::new()));
    let Some(status) = status.as_object_mut() else {
        return;
    };
    let list = status
        .entry("conditions")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(list) = list.as_array_mut() else {
        return;
    };
    match list
        .iter_mut()
        .find(|c| c.get("type") == condition.get("type"))
    {
        Some(slot) => *slot = condition,
        None => list.push(condition),
    }
}

fn containers<'p>(spec: &'p Value, field: &str) -> impl Iterator<Item = &'p Value> {
    spec.get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Fills in what the real server does and readers depend on.
pub(super) fn set_defaults(pod: &mut Value, now: &str) {
    let Some(map) = pod.as_object_mut() else {
        return;
    };
    let spec = map.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else {
        return;
    };
    default_pod_spec(spec);
    let qos = pod.get("spec").map(qos_class).unwrap_or_default();
    let mut status = json!({"phase": "Pending", "qosClass": qos});
    if is_gated(pod)
        && let Some(map) = status.as_object_mut()
    {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": now,
        });
        map.insert("conditions".into(), json!([condition]));
    }
    if let Some(map) = pod.as_object_mut() {
        map.insert("status".into(), status);
    }
}

/// Defaults of a pod's own spec, at create and at update.
pub(super) fn default_pod_spec(spec: &mut Map<String, Value>) {
    spec.entry("enableServiceLinks").or_insert(json!(true));
    default_spec(spec);
    default_tolerations(spec);
    for field in ["containers", "initContainers"] {
        let list = spec.get_mut(field).and_then(Value::as_array_mut);
        list.into_iter().flatten().for_each(default_requests);
    }
}

/// What the server filled in at create stays when an update leaves it out.
pub(super) fn keep_filled_in(old: &Value, spec: &mut Map<String, Value>) {
    for field in ["priority", "preemptionPolicy", "priorityClassName"] {
        if let (Some(value), None) = (old.pointer(&format!("/spec/{field}")), spec.get(field)) {
            spec.insert(field.into(), value.clone());
        }
    }
}

/// Defaults of a PodSpec, also inside templates.
pub(super) fn default_spec(spec: &mut Map<String, Value>) {
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
    ] {
        spec.entry(field).or_insert(value);
    }
    for field in ["containers", "initContainers"] {
        let list = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            default_container(container);
        }
    }
}

fn default_container(container: &mut Map<String, Value>) {
    let image = container
        .get("image")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // No tag, or the tag `latest`, means Always. A port number has no tag's place.
    let tag = image
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .split_once(':')
        .map(|(_, tag)| tag);
    let pull = if matches!(tag, None | Some("latest")) && !image.contains('@') {
        "Always"
    } else {
        "IfNotPresent"
    };
    for (field, value) in [
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("imagePullPolicy", json!(pull)),
    ] {
        container.entry(field).or_insert(value);
    }
    container.entry("resources").or_insert_with(|| json!({}));
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        port.entry("protocol").or_insert_with(|| "TCP".into());
    }
    for kind in ["limits", "requests"] {
        if let Some(amounts) = container.get_mut("resources").and_then(|r| r.get_mut(kind)) {
            quantity::normalise(amounts);
        }
    }
}

/// A limit without a request is a request too; in a pod, not in a template.
fn default_requests(container: &mut Value) {
    let Some(resources) = container
        .get_mut("resources")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if let Some(requests) = requests.as_object_mut() {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

/// The DefaultTolerationSeconds admission plugin.
fn default_tolerations(spec: &mut Map<String, Value>) {
    let slot = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = slot.as_array_mut() else {
        return;
    };
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerated = list.iter().any(|t| {
            let (k, effect) = (text(t, "/key"), text(t, "/effect"));
            (k == key || k.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            list.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300
            }));
        }
    }
}

/// `BestEffort`, `Burstable` or `Guaranteed`, from cpu and memory alone.
fn qos_class(spec: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for container in containers(spec, "initContainers").chain(containers(spec, "containers")) {
        for resource in ["cpu", "memory"] {
            let amount = |kind: &str| {
                container
                    .pointer(&format!("/resources/{kind}/{resource}"))
                    .and_then(quantity::milli)
                    .filter(|milli| *milli != 0)
            };
            let (limit, request) = (amount("limits"), amount("requests"));
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
