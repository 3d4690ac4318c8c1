//! The pods of one node, as an ordinary client finds, marks and removes them.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::clock::rfc3339;
use super::events::Note;
use super::objects::Pod;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

#[derive(Deserialize)]
struct Pods {
    #[serde(default)]
    items: Vec<Pod>,
}

/// All pods bound to `node`.
pub(super) async fn pods_on(calls: &Calls, node: &str) -> Result<Vec<Pod>, CallError> {
    let path = format!("{}?fieldSelector=spec.nodeName%3D{node}", path::PODS);
    Ok(calls.get::<Pods>(&path).await?.items)
}

/// The path of a pod.
pub(super) fn pod_path(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}/{}", path::pods(&meta.namespace), meta.name)
}

/// A condition of a pod.
pub(super) fn condition(
    kind: &str,
    status: &str,
    (reason, message): (&str, &str),
    at: Timestamp,
) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": rfc3339(at),
    })
}

/// Merges `status` into the pod's, unless another pod has taken its name.
pub(super) async fn patch_status(
    calls: &Calls,
    pod: &Pod,
    status: &Value,
) -> Result<(), CallError> {
    let body = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let at = format!("{}/status", pod_path(pod));
    let written = calls.patch::<IgnoredAny>(&at, PatchKind::Strategic, &body);
    match written.await {
        // Gone, or another pod by now: nothing is left to be marked.
        Err(error) if error.is_not_found() || error.code() == Some(409) => Ok(()),
        result => result.map(|_| ()),
    }
}

/// Says in the pod's status why it is about to go (`DisruptionTarget`), and deletes it.
pub(super) async fn disrupt(
    calls: &Calls,
    pod: &Pod,
    why: (&str, &str),
    grace_secs: Option<i64>,
    at: Timestamp,
) -> Result<(), CallError> {
    let conditions = json!({"conditions": [condition("DisruptionTarget", "True", why, at)]});
    patch_status(calls, pod, &conditions).await?;
    let meta = &pod.metadata;
    calls.delete(&pod_path(pod), &meta.uid, grace_secs).await
}

/// The status of a pod that its kubelet ended because the machine goes down
/// (kubelet/nodeshutdown): SIGTERM is exit code 143.
pub(super) fn terminated_by_shutdown(pod: &Pod, at: Timestamp) -> Value {
    const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
    let ended = rfc3339(at);
    let began = pod.status.start_time.clone();
    let containers: Vec<Value> = pod
        .spec
        .containers
        .iter()
        .map(|container| {
            json!({
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": false,
                "started": false,
                "restartCount": 0,
                "state": {"running": null, "terminated": {
                    "exitCode": 143,
                    "reason": "Error",
                    "startedAt": began,
                    "finishedAt": ended,
                }},
            })
        })
        .collect();
    json!({
        "phase": "Failed",
        "reason": "Terminated",
        "message": MESSAGE,
        "conditions": [
            condition("DisruptionTarget", "True", ("TerminationByKubelet", MESSAGE), at),
            condition("Ready", "False", ("PodFailed", ""), at),
            condition("ContainersReady", "False", ("PodFailed", ""), at),
        ],
        "containerStatuses": containers,
    })
}

/// An Event about a pod.
pub(super) fn pod_note(
    pod: &Pod,
    component: &'static str,
    (warning, reason): (bool, &str),
    message: String,
) -> Note {
    Note {
        api_version: "v1",
        kind: "Pod",
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        component,
        host: String::new(),
        warning,
        reason: reason.to_owned(),
        message,
    }
}

/// A pod that a drain leaves alone: a DaemonSet's, a static one, or one that has ended.
pub(super) fn stays_in_a_drain(pod: &Pod) -> bool {
    let of_daemon_set = pod
        .metadata
        .controller()
        .is_some_and(|owner| owner.kind == "DaemonSet");
    let mirror = "kubernetes.io/config.mirror";
    of_daemon_set || pod.is_terminal() || pod.metadata.annotations.contains_key(mirror)
}
