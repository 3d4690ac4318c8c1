//! The status bodies that a kubelet writes, as strategic merge patches.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::clock::{hash, rfc3339};
use super::objects::Pod;

/// What the status of a pod is made from.
#[derive(Debug, Clone)]
pub(super) struct PodFacts {
    /// UID: the patch carries it, so that a new pod of the same name is left alone.
    pub uid: String,
    /// `namespace/name`.
    pub key: String,
    /// The node's internal address.
    pub host_ip: String,
    /// Containers: name and image.
    pub containers: Vec<(String, String)>,
    /// When the kubelet accepted the pod.
    pub started: Timestamp,
}

impl PodFacts {
    /// All containers run and are ready.
    pub(super) fn running(&self) -> Value {
        let at = rfc3339(self.started);
        let statuses: Vec<Value> = self
            .containers
            .iter()
            .map(|(name, image)| {
                self.container(name, image, true, json!({"running": {"startedAt": at}}))
            })
            .collect();
        let ip = self.pod_ip();
        self.patch(json!({
            "phase": "Running",
            "hostIP": self.host_ip,
            "hostIPs": [{"ip": self.host_ip}],
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "startTime": at,
            "conditions": [
                condition("PodReadyToStartContainers", "True", &at, None),
                condition("Initialized", "True", &at, None),
                condition("Ready", "True", &at, None),
                condition("ContainersReady", "True", &at, None),
            ],
            "containerStatuses": statuses,
        }))
    }

    /// All containers ended at `ended` with `exit_code`.
    pub(super) fn ended(&self, ended: Timestamp, exit_code: i64) -> Value {
        let (from, to) = (rfc3339(self.started), rfc3339(ended));
        let (phase, reason, pod_reason) = if exit_code == 0 {
            ("Succeeded", "Completed", "PodCompleted")
        } else {
            ("Failed", "Error", "PodFailed")
        };
        let statuses: Vec<Value> = self
            .containers
            .iter()
            .map(|(name, image)| {
                let state = json!({"terminated": {
                    "exitCode": exit_code,
                    "reason": reason,
                    "startedAt": from,
                    "finishedAt": to,
                    "containerID": self.container_id(name),
                }});
                self.container(name, image, false, state)
            })
            .collect();
        self.patch(json!({
            "phase": phase,
            "conditions": [
                condition("PodReadyToStartContainers", "False", &to, None),
                condition("Ready", "False", &to, Some(pod_reason)),
                condition("ContainersReady", "False", &to, Some(pod_reason)),
            ],
            "containerStatuses": statuses,
        }))
    }

    /// The kubelet did not admit the pod.
    pub(super) fn rejected(&self, reason: &str, message: &str) -> Value {
        self.patch(json!({
            "phase": "Failed",
            "reason": reason,
            "message": format!("Pod was rejected: {message}"),
            "startTime": rfc3339(self.started),
        }))
    }

    fn patch(&self, status: Value) -> Value {
        json!({"metadata": {"uid": self.uid}, "status": status})
    }

    fn container(&self, name: &str, image: &str, running: bool, state: Value) -> Value {
        json!({
            "name": name,
            "image": image,
            "imageID": format!("{}@sha256:{}", image_name(image), hex64(image)),
            "containerID": self.container_id(name),
            "ready": running,
            "started": running,
            "restartCount": 0,
            "state": state,
        })
    }

    fn container_id(&self, name: &str) -> String {
        format!("containerd://{}", hex64(&format!("{}/{name}", self.uid)))
    }

    /// An address in 10.64.0.0/10 made from the pod's name.
    fn pod_ip(&self) -> String {
        let bits = hash(0, &self.key);
        let [a, b, c, ..] = bits.to_le_bytes();
        format!("10.{}.{}.{}", 64 + (a & 63), b, c.max(1))
    }
}

/// The status of a pod whose containers ended by themselves at `ended`, for one who knows only the
/// pod, as a status to merge.
pub(super) fn ended_status(pod: &Pod, ended: Timestamp, exit_code: i64) -> Value {
    let meta = &pod.metadata;
    let containers = pod.spec.containers.iter();
    let began = pod.status.start_time.as_ref();
    let facts = PodFacts {
        uid: meta.uid.clone(),
        key: format!("{}/{}", meta.namespace, meta.name),
        host_ip: String::new(),
        containers: containers
            .map(|container| (container.name.clone(), container.image.clone()))
            .collect(),
        started: began.and_then(|at| at.parse().ok()).unwrap_or(ended),
    };
    let patch = facts.ended(ended, exit_code);
    patch.get("status").cloned().unwrap_or_default()
}

fn condition(kind: &str, status: &str, at: &str, reason: Option<&str>) -> Value {
    let mut condition = json!({
        "type": kind,
        "status": status,
        "lastProbeTime": null,
        "lastTransitionTime": at,
    });
    if let (Some(reason), Some(map)) = (reason, condition.as_object_mut()) {
        map.insert("reason".to_owned(), json!(reason));
    }
    condition
}

fn image_name(image: &str) -> &str {
    match image.rsplit_once(':') {
        // A colon before a slash belongs to a port.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

fn hex64(key: &str) -> String {
    (0..4)
        .map(|part| format!("{:016x}", hash(part, key)))
        .collect()
}
