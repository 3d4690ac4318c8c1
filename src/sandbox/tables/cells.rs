//! The cells of each kind, after `pkg/printers/internalversion` of Kubernetes 1.37.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::{human, since};
use crate::sandbox::object::text;
use crate::sandbox::resources::Resource;
use crate::sandbox::selector::to_text;

/// Makes the cells of one kind.
pub(super) enum Cells {
    Pod,
    Node,
    Job,
    Namespace,
    Event,
    ConfigMap,
    Secret,
    Deployment,
    ReplicaSet,
    Budget,
    Lease,
    PriorityClass,
    /// A CRD.
    Definition,
    /// Name and when it was made.
    Dated,
    /// Name and age.
    Plain,
    /// Name and what a CRD's columns say: type and path.
    Columns(Vec<(String, String)>),
}

/// How the objects of a kind are shown.
pub(super) fn of(res: &Resource) -> Cells {
    if !res.columns.is_empty() {
        let column = |c: &Value| (text(c, "/type").to_owned(), text(c, "/jsonPath").to_owned());
        return Cells::Columns(res.columns.iter().map(column).collect());
    }
    if res.custom {
        return Cells::Plain;
    }
    match &*res.table {
        "/pods" => Cells::Pod,
        "/nodes" => Cells::Node,
        "batch/jobs" => Cells::Job,
        "/namespaces" => Cells::Namespace,
        "/events" => Cells::Event,
        "/configmaps" => Cells::ConfigMap,
        "/secrets" => Cells::Secret,
        "apps/deployments" => Cells::Deployment,
        "apps/replicasets" => Cells::ReplicaSet,
        "policy/poddisruptionbudgets" => Cells::Budget,
        "coordination.k8s.io/leases" => Cells::Lease,
        "scheduling.k8s.io/priorityclasses" => Cells::PriorityClass,
        "rbac.authorization.k8s.io/roles" | "rbac.authorization.k8s.io/clusterroles" => {
            Cells::Dated
        }
        "apiextensions.k8s.io/customresourcedefinitions" => Cells::Definition,
        _ => Cells::Plain,
    }
}

fn list<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn count(object: &Value, pointer: &str) -> usize {
    let map = object.pointer(pointer).and_then(Value::as_object);
    map.map_or(0, serde_json::Map::len)
}

fn or<'t>(text: &'t str, instead: &'t str) -> &'t str {
    if text.is_empty() { instead } else { text }
}

fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    list(object, "/status/conditions")
        .iter()
        .find(|c| text(c, "/type") == kind)
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| text(c, "/status") == "True")
}

impl Cells {
    /// The cells of one object.
    pub(super) fn make(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = || Value::from(text(object, "/metadata/name"));
        let created = text(object, "/metadata/creationTimestamp");
        let age = || Value::from(since(created, now));
        match self {
            Cells::Pod => pod(object, now),
            Cells::Node => node(object, age()),
            Cells::Job => job(object, now, age()),
            Cells::Event => event(object, now),
            Cells::Namespace => vec![name(), text(object, "/status/phase").into(), age()],
            Cells::ConfigMap => {
                let data = count(object, "/data") + count(object, "/binaryData");
                vec![name(), data.into(), age()]
            }
            Cells::Secret => {
                let data = count(object, "/data");
                vec![name(), text(object, "/type").into(), data.into(), age()]
            }
            Cells::Deployment => {
                let ready = number(object, "/status/readyReplicas");
                let wanted = number(object, "/spec/replicas");
                let mut cells = vec![
                    name(),
                    format!("{ready}/{wanted}").into(),
                    number(object, "/status/updatedReplicas").into(),
                    number(object, "/status/availableReplicas").into(),
                    age(),
                ];
                cells.extend(template(object));
                cells
            }
            Cells::ReplicaSet => {
                let mut cells = vec![
                    name(),
                    number(object, "/spec/replicas").into(),
                    number(object, "/status/replicas").into(),
                    number(object, "/status/readyReplicas").into(),
                    age(),
                ];
                cells.extend(template(object));
                cells
            }
            Cells::Budget => {
                let bound = |pointer: &str| match object.pointer(pointer) {
                    None | Some(Value::Null) => "N/A".to_owned(),
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                };
                vec![
                    name(),
                    bound("/spec/minAvailable").into(),
                    bound("/spec/maxUnavailable").into(),
                    number(object, "/status/disruptionsAllowed").into(),
                    age(),
                ]
            }
            Cells::Lease => vec![name(), text(object, "/spec/holderIdentity").into(), age()],
            Cells::PriorityClass => vec![
                name(),
                number(object, "/value").into(),
                object
                    .get("globalDefault")
                    .and_then(Value::as_bool)
                    .unwrap_or(false)
                    .into(),
                age(),
                text(object, "/preemptionPolicy").into(),
            ],
            Cells::Definition => {
                let joined = |pointer: &str, field: &str| {
                    let texts = list(object, pointer).iter().map(|v| match field {
                        "" => v.as_str().unwrap_or_default(),
                        field => text(v, field),
                    });
                    texts.collect::<Vec<_>>().join(",")
                };
                vec![
                    name(),
                    text(object, "/spec/scope").into(),
                    joined("/spec/versions", "/name").into(),
                    created.into(),
                    text(object, "/spec/group").into(),
                    text(object, "/spec/names/kind").into(),
                    joined("/spec/names/shortNames", "").into(),
                    if is_true(object, "Established") {
                        "True"
                    } else {
                        "False"
                    }
                    .into(),
                ]
            }
            Cells::Dated => vec![name(), created.into()],
            Cells::Plain => vec![name(), age()],
            Cells::Columns(columns) => std::iter::once(name())
                .chain(
                    columns
                        .iter()
                        .map(|(kind, path)| custom(object, kind, path, now)),
                )
                .collect(),
        }
    }

    /// What a row says of its object besides the cells: that a pod is over.
    pub(super) fn conditions(&self, object: &Value) -> Option<Value> {
        let phase = text(object, "/status/phase");
        let message = match (self, phase) {
            (Cells::Pod, "Succeeded") => "The pod has completed successfully.",
            (Cells::Pod, "Failed") => "The pod failed.",
            _ => return None,
        };
        Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
    }
}

/// One cell of a custom column: the value at a simple JSONPath.
fn custom(object: &Value, kind: &str, path: &str, now: Timestamp) -> Value {
    let mut at = Some(object);
    let parts = path
        .replace("['", ".")
        .replace("']", "")
        .replace('[', ".")
        .replace(']', "");
    // A dot that is part of a name is written `\.`.
    let parts = parts.replace("\\.", "\u{1}");
    for part in parts.split('.').filter(|part| !part.is_empty()) {
        let part = part.replace('\u{1}', ".");
        at = at.and_then(|value| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            other => other.get(&part),
        });
    }
    match (kind, at) {
        (_, None | Some(Value::Null)) => Value::Null,
        ("date", Some(value)) => match value.as_str() {
            Some(text) => match text.parse::<Timestamp>() {
                Ok(_) => since(text, now).into(),
                Err(_) => "<invalid>".into(),
            },
            None => Value::Null,
        },
        ("string", Some(Value::String(text))) => text.as_str().into(),
        ("string", Some(other)) => other.to_string().into(),
        (_, Some(value)) => value.clone(),
    }
}

/// Containers, images and selector of what makes pods.
fn template(object: &Value) -> [Value; 3] {
    let containers = list(object, "/spec/template/spec/containers");
    let joined = |field: &str| {
        let texts: Vec<&str> = containers.iter().map(|c| text(c, field)).collect();
        texts.join(",")
    };
    [
        joined("/name").into(),
        joined("/image").into(),
        selector(object).into(),
    ]
}

fn selector(object: &Value) -> String {
    let text = to_text(object.pointer("/spec/selector").unwrap_or(&Value::Null));
    or(&text, "<none>").to_owned()
}

fn pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let spec = list(pod, "/spec/containers");
    let statuses = list(pod, "/status/containerStatuses");
    let init = list(pod, "/spec/initContainers");
    let phase = text(pod, "/status/phase");
    let mut reason = or(text(pod, "/status/reason"), phase).to_owned();
    if condition(pod, "PodScheduled").is_some_and(|c| text(c, "/reason") == "SchedulingGated") {
        reason = "SchedulingGated".into();
    }
    let (mut ready, mut restarts) = (0, 0);
    let mut last_restart = String::new();
    let mut initializing = false;
    for (index, status) in list(pod, "/status/initContainerStatuses")
        .iter()
        .enumerate()
    {
        restarts += number(status, "/restartCount");
        let done = status.pointer("/state/terminated");
        let started = status.get("started").and_then(Value::as_bool) == Some(true);
        let sidecar = init.iter().any(|c| {
            text(c, "/name") == text(status, "/name") && text(c, "/restartPolicy") == "Always"
        });
        if done.is_some_and(|d| number(d, "/exitCode") == 0) || (sidecar && started) {
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        reason = match done {
            Some(done) => match (text(done, "/reason"), number(done, "/signal")) {
                ("", 0) => format!("Init:ExitCode:{}", number(done, "/exitCode")),
                ("", signal) => format!("Init:Signal:{signal}"),
                (reason, _) => format!("Init:{reason}"),
            },
            None if !waiting.is_empty() && waiting != "PodInitializing" => {
                format!("Init:{waiting}")
            }
            None => format!("Init:{index}/{}", init.len()),
        };
        initializing = true;
        break;
    }
    if !initializing || is_true(pod, "Initialized") {
        restarts = 0;
        let mut running = false;
        for status in statuses.iter().rev() {
            restarts += number(status, "/restartCount");
            let ended = text(status, "/lastState/terminated/finishedAt");
            if ended > last_restart.as_str() {
                last_restart = ended.to_owned();
            }
            let waiting = text(status, "/state/waiting/reason");
            let terminated = status.pointer("/state/terminated");
            if !waiting.is_empty() {
                reason = waiting.to_owned();
            } else if let Some(done) = terminated {
                reason = match (text(done, "/reason"), number(done, "/signal")) {
                    ("", 0) => format!("ExitCode:{}", number(done, "/exitCode")),
                    ("", signal) => format!("Signal:{signal}"),
                    (reason, _) => reason.to_owned(),
                };
            } else if status.get("ready").and_then(Value::as_bool) == Some(true)
                && status.pointer("/state/running").is_some()
            {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" && running {
            let up = is_true(pod, "Ready");
            reason = if up { "Running" } else { "NotReady" }.into();
        }
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if text(pod, "/status/reason") == "NodeLost" {
            reason = "Unknown".into();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            reason = "Terminating".into();
        }
    }
    let restarts = match last_restart.as_str() {
        _ if restarts == 0 => "0".to_owned(),
        "" => restarts.to_string(),
        last => format!("{restarts} ({} ago)", since(last, now)),
    };
    let gates = list(pod, "/spec/readinessGates");
    let open = gates
        .iter()
        .filter(|g| is_true(pod, text(g, "/conditionType")))
        .count();
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        format!("{open}/{}", gates.len())
    };
    let cell = |pointer: &str| or(text(pod, pointer), "<none>").to_owned();
    vec![
        text(pod, "/metadata/name").into(),
        format!("{ready}/{}", spec.len()).into(),
        reason.into(),
        restarts.into(),
        since(text(pod, "/metadata/creationTimestamp"), now).into(),
        cell("/status/podIP").into(),
        cell("/spec/nodeName").into(),
        cell("/status/nominatedNodeName").into(),
        gates.into(),
    ]
}

fn node(node: &Value, age: Value) -> Vec<Value> {
    const ROLE: &str = "node-role.kubernetes.io/";
    let mut status = match condition(node, "Ready") {
        None => "Unknown".to_owned(),
        Some(ready) if text(ready, "/status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(label, value)| match label.strip_prefix(ROLE) {
            Some("") => None,
            Some(role) => Some(role),
            None if label == "kubernetes.io/role" => value.as_str().filter(|v| !v.is_empty()),
            None => None,
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let found = list(node, "/status/addresses")
            .iter()
            .find(|a| text(a, "/type") == kind);
        found.map_or("<none>", |a| text(a, "/address")).to_owned()
    };
    let info = |field: &str| {
        let pointer = format!("/status/nodeInfo/{field}");
        or(text(node, &pointer), "<unknown>").to_owned()
    };
    let kernel = match text(node, "/status/nodeInfo/architecture") {
        "" => info("kernelVersion"),
        architecture => format!("{} ({architecture})", info("kernelVersion")),
    };
    vec![
        text(node, "/metadata/name").into(),
        status.into(),
        or(&roles.join(","), "<none>").into(),
        age,
        text(node, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        info("osImage").into(),
        kernel.into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn job(job: &Value, now: Timestamp, age: Value) -> Vec<Value> {
    let succeeded = number(job, "/status/succeeded");
    let completions = match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None => match number(job, "/spec/parallelism") {
            parallel if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
            _ => format!("{succeeded}/1"),
        },
    };
    let begun = text(job, "/status/startTime");
    let failed = condition(job, "Failed").filter(|c| text(c, "/status") == "True");
    let ended = match (text(job, "/status/completionTime"), failed) {
        ("", Some(failed)) => text(failed, "/lastTransitionTime"),
        (time, _) => time,
    };
    let duration = match (begun.parse::<Timestamp>(), ended.parse::<Timestamp>()) {
        (Err(_), _) => String::new(),
        (Ok(begun), Ok(ended)) => human(ended.as_second() - begun.as_second()),
        (Ok(begun), Err(_)) => human(now.as_second() - begun.as_second()),
    };
    let status = match () {
        () if is_true(job, "Complete") => "Complete",
        () if is_true(job, "Failed") => "Failed",
        () if job.pointer("/metadata/deletionTimestamp").is_some() => "Terminating",
        () if is_true(job, "Suspended") => "Suspended",
        () if is_true(job, "FailureTarget") => "FailureTarget",
        () if is_true(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let mut cells = vec![
        text(job, "/metadata/name").into(),
        status.into(),
        completions.into(),
        duration.into(),
        age,
    ];
    cells.extend(template(job));
    cells
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let timed = |field: &str| match text(event, field) {
        "" => text(event, "/eventTime"),
        time => time,
    };
    // Of the two views of an Event, core/v1's names come first.
    let either = |core: &str, events: &str| or(text(event, core), text(event, events)).to_owned();
    let object = |field: &str| {
        either(
            &format!("/involvedObject/{field}"),
            &format!("/regarding/{field}"),
        )
    };
    let first = or(timed("/firstTimestamp"), timed("/deprecatedFirstTimestamp"));
    let last = match text(event, "/series/lastObservedTime") {
        "" => or(timed("/lastTimestamp"), timed("/deprecatedLastTimestamp")),
        time => time,
    };
    let component = match either("/source/component", "/deprecatedSource/component").as_str() {
        "" => either("/reportingComponent", "/reportingController"),
        source => source.to_owned(),
    };
    let host = match either("/source/host", "/deprecatedSource/host").as_str() {
        "" => text(event, "/reportingInstance").to_owned(),
        host => host.to_owned(),
    };
    let source = if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    };
    let counts = ["/series/count", "/count", "/deprecatedCount"];
    let count = counts.iter().map(|c| number(event, c)).find(|c| *c > 0);
    vec![
        since(last, now).into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        format!("{}/{}", object("kind").to_lowercase(), object("name")).into(),
        object("fieldPath").into(),
        source.into(),
        either("/message", "/note").trim().into(),
        since(first, now).into(),
        count.unwrap_or(1).into(),
        text(event, "/metadata/name").into(),
    ]
}
