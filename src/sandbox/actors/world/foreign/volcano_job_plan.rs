//! What Volcano's job controller does next with a Job of batch.volcano.sh/v1alpha1: its pods, its
//! PodGroup and its status. Pure: objects in, decisions out.
//!
//! Pods are made at once; the real controller waits until the PodGroup has passed the enqueue gate.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::standing::{quantities, text};
use super::volcano::GROUP_ANNOTATION;
use crate::sandbox::actors::clock::{rfc3339, secs_since};
use crate::sandbox::actors::objects::{Custom, Pod};

pub(super) const API_VERSION: &str = "batch.volcano.sh/v1alpha1";
/// Annotation and label of a pod with the name of its Job.
pub(super) const JOB_NAME: &str = "volcano.sh/job-name";
const JOB_VERSION: &str = "volcano.sh/job-version";
const TASK: &str = "volcano.sh/task-spec";
/// `spec.maxRetry` when it is absent.
const MAX_RETRY: i64 = 3;

/// A Job's spec, as far as it is played.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    min_available: i64,
    queue: String,
    max_retry: Option<i64>,
    scheduler_name: String,
    priority_class_name: String,
    plugins: BTreeMap<String, Value>,
    policies: Vec<Policy>,
    network_topology: Option<Value>,
    tasks: Vec<Task>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Task {
    name: String,
    replicas: i64,
    min_available: Option<i64>,
    template: Value,
    policies: Vec<Policy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    event: String,
    events: Vec<String>,
    action: String,
}

impl Policy {
    fn is_for(&self, event: &str) -> bool {
        let mut all = self.events.iter().chain([&self.event]);
        all.any(|of| of == event || of == "*")
    }
}

impl Spec {
    fn read(job: &Custom) -> Self {
        let mut spec: Spec = serde_json::from_value(job.spec.clone()).unwrap_or_default();
        if spec.min_available == 0 {
            spec.min_available = spec.tasks.iter().map(|task| task.replicas).sum();
        }
        if spec.queue.is_empty() {
            "default".clone_into(&mut spec.queue);
        }
        if spec.scheduler_name.is_empty() {
            "volcano".clone_into(&mut spec.scheduler_name);
        }
        spec
    }

    /// What is to be done at `event`, of a task if one is named.
    fn action<'a>(&'a self, event: &str, task: Option<&'a Task>) -> Option<&'a str> {
        let own = task.into_iter().flat_map(|task| &task.policies);
        let mut all = own.chain(&self.policies);
        let found = all.find(|policy| policy.is_for(event));
        found.map(|policy| policy.action.as_str())
    }
}

/// What is to be done with a Job, in this order.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// Its status from now on.
    pub status: Value,
    /// Its PodGroup, if it is to be there.
    pub group: Option<Value>,
    pub delete: Vec<Arc<Pod>>,
    pub create: Vec<Value>,
    /// The action of a policy that is executed now.
    pub action: Option<String>,
}

/// Which try of the Job a pod belongs to.
pub(super) fn version_of(pod: &Pod) -> Option<i64> {
    let version = pod.metadata.annotations.get(JOB_VERSION)?;
    version.parse().ok()
}

/// The try that the Job is at.
pub(super) fn version(job: &Custom) -> i64 {
    number(&job.status, "version")
}

fn number(status: &Value, field: &str) -> i64 {
    status.get(field).and_then(Value::as_i64).unwrap_or(0)
}

/// The Job's phase; empty for a new one.
fn phase(job: &Custom) -> String {
    job.status
        .get("state")
        .map(|state| text(state, "phase"))
        .unwrap_or_default()
}

/// The next step. `lost`: a pod of this try was taken away. `command`: what a Command asks.
pub(super) fn step(
    job: &Custom,
    pods: &[Arc<Pod>],
    lost: bool,
    command: Option<&str>,
    now: Timestamp,
) -> Step {
    let spec = Spec::read(job);
    let before = phase(job);
    let (mut version, mut retry) = (version(job), number(&job.status, "retryCount"));
    let mut step = Step::default();
    let mut next = before.clone();
    let alive = |pod: &&Arc<Pod>| !pod.is_terminal();
    match before.as_str() {
        "" => "Pending".clone_into(&mut next),
        "Pending" | "Running" => {
            let action = command.map(str::to_owned);
            let action = action.or_else(|| happened(&spec, pods, version, lost));
            let kills = match action.as_deref() {
                Some("RestartJob") if retry >= spec.max_retry.unwrap_or(MAX_RETRY) => "Failed",
                Some("RestartJob") => {
                    retry += 1;
                    "Restarting"
                }
                Some("AbortJob") => "Aborting",
                Some("TerminateJob") => "Terminating",
                Some("CompleteJob") => "Completing",
                _ => "",
            };
            if kills.is_empty() {
                next = lived(&spec, pods, version).to_owned();
            } else {
                // Whatever kills a Job makes its next try another one.
                version += 1;
                kills.clone_into(&mut next);
                step.action = action;
            }
        }
        "Aborted" if command == Some("ResumeJob") => {
            version += 1;
            retry += 1;
            "Restarting".clone_into(&mut next);
            step.action = command.map(str::to_owned);
        }
        "Restarting" if pods.is_empty() => "Pending".clone_into(&mut next),
        "Aborting" | "Terminating" | "Completing" if !pods.iter().any(|pod| alive(&pod)) => {
            let ended = match before.as_str() {
                "Aborting" => "Aborted",
                "Terminating" => "Terminated",
                _ => "Completed",
            };
            ended.clone_into(&mut next);
        }
        _ => {}
    }
    match next.as_str() {
        "Pending" | "Running" => {
            step.group = Some(group(job, &spec));
            step.create = missing(job, &spec, pods, version, retry);
        }
        // What has ended is left for a look, but for a try that comes again.
        "Restarting" => step.delete = going(pods, |_| true),
        "Aborting" | "Terminating" | "Completing" | "Failed" => {
            step.delete = going(pods, |pod| !pod.is_terminal());
        }
        _ => {}
    }
    step.status = status(job, &spec, &next, (version, retry), pods, now);
    step
}

fn going(pods: &[Arc<Pod>], which: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
    let there = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && which(pod));
    there.cloned().collect()
}

/// The action of the first policy whose event has happened.
fn happened(spec: &Spec, pods: &[Arc<Pod>], version: i64, lost: bool) -> Option<String> {
    if lost && let Some(action) = spec.action("PodEvicted", None) {
        return Some(action.to_owned());
    }
    for task in &spec.tasks {
        let mine: Vec<&Arc<Pod>> = of_task(pods, task, version).collect();
        let ended = |wanted: &str| {
            let all = mine.iter().filter(|pod| pod.status.phase == wanted);
            all.count() as i64
        };
        let event = if ended("Failed") > 0 {
            "PodFailed"
        } else if ended("Succeeded") >= task.replicas.max(1) {
            "TaskCompleted"
        } else {
            continue;
        };
        if let Some(action) = spec.action(event, Some(task)) {
            return Some(action.to_owned());
        }
    }
    None
}

fn of_task<'a>(
    pods: &'a [Arc<Pod>],
    task: &'a Task,
    version: i64,
) -> impl Iterator<Item = &'a Arc<Pod>> {
    pods.iter().filter(move |pod| {
        pod.metadata.annotations.get(TASK) == Some(&task.name) && version_of(pod) == Some(version)
    })
}

/// The phase of a Job to which nothing is done.
fn lived(spec: &Spec, pods: &[Arc<Pod>], version: i64) -> &'static str {
    let wanted: i64 = spec.tasks.iter().map(|task| task.replicas).sum();
    let mine: Vec<&Arc<Pod>> = pods
        .iter()
        .filter(|pod| version_of(pod) == Some(version))
        .collect();
    let count = |phase: &str| {
        let all = mine.iter().filter(|pod| pod.status.phase == phase);
        all.count() as i64
    };
    let (running, succeeded, failed) = (count("Running"), count("Succeeded"), count("Failed"));
    if wanted > 0 && succeeded + failed >= wanted {
        return if succeeded >= spec.min_available {
            "Completed"
        } else {
            "Failed"
        };
    }
    if running + succeeded >= spec.min_available {
        "Running"
    } else {
        "Pending"
    }
}

/// The pods that are not there yet.
fn missing(job: &Custom, spec: &Spec, pods: &[Arc<Pod>], version: i64, retry: i64) -> Vec<Value> {
    let mut all = Vec::new();
    for task in &spec.tasks {
        for index in 0..task.replicas {
            let name = format!("{}-{}-{index}", job.metadata.name, task.name);
            if !pods.iter().any(|pod| pod.metadata.name == name) {
                all.push(pod(job, spec, task, (&name, index), version, retry));
            }
        }
    }
    all
}

fn group_name(job: &Custom) -> String {
    format!("{}-{}", job.metadata.name, job.metadata.uid)
}

fn owner(job: &Custom) -> Value {
    json!([{
        "apiVersion": API_VERSION, "kind": "Job", "name": job.metadata.name,
        "uid": job.metadata.uid, "controller": true, "blockOwnerDeletion": true,
    }])
}

fn pod(
    job: &Custom,
    spec: &Spec,
    task: &Task,
    (name, index): (&str, i64),
    version: i64,
    retry: i64,
) -> Value {
    let meta = &job.metadata;
    let own = |field: &str| {
        let found = task.template.pointer(&format!("/metadata/{field}"));
        found
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let index = index.to_string();
    let shared = [
        (JOB_NAME, meta.name.as_str()),
        ("volcano.sh/queue-name", &spec.queue),
        ("volcano.sh/task-index", &index),
        (TASK, &task.name),
    ];
    let with = |mut map: Map<String, Value>, more: &[(&str, &str)]| {
        for (key, value) in shared.iter().chain(more) {
            map.insert((*key).to_owned(), json!(value));
        }
        map
    };
    let annotations = [
        (GROUP_ANNOTATION, group_name(job)),
        (JOB_VERSION, version.to_string()),
        ("volcano.sh/job-retry-count", retry.to_string()),
        (
            "volcano.sh/template-uid",
            format!("{}-{}", meta.name, task.name),
        ),
    ];
    let annotations: Vec<(&str, &str)> = annotations
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let mut body = task.template.get("spec").cloned().unwrap_or_default();
    if let Some(map) = body.as_object_mut() {
        map.insert("schedulerName".to_owned(), json!(spec.scheduler_name));
        if !spec.priority_class_name.is_empty() {
            map.entry("priorityClassName")
                .or_insert_with(|| json!(spec.priority_class_name));
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": with(own("labels"), &[("volcano.sh/job-namespace", &meta.namespace)]),
            "annotations": with(own("annotations"), &annotations),
            "ownerReferences": owner(job),
        },
        "spec": body,
    })
}

fn group(job: &Custom, spec: &Spec) -> Value {
    let mut least: BTreeMap<String, i128> = BTreeMap::new();
    let mut tasks = Map::new();
    let mut left = spec.min_available;
    for task in &spec.tasks {
        let min = task.min_available.unwrap_or(task.replicas);
        tasks.insert(task.name.clone(), json!(min));
        // The least pods are those of the first tasks.
        let counted = min.min(left).max(0);
        left -= counted;
        let like = json!({"spec": task.template.get("spec")});
        let like: Pod = serde_json::from_value(like).unwrap_or_default();
        for (name, milli) in like.requests_milli() {
            *least.entry(name).or_default() += milli * i128::from(counted);
        }
    }
    let mut object = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(job),
            "namespace": job.metadata.namespace,
            "ownerReferences": owner(job),
        },
        "spec": {
            "minMember": spec.min_available,
            "minTaskMember": tasks,
            "minResources": quantities(&least),
            "queue": spec.queue,
            "priorityClassName": spec.priority_class_name,
        },
    });
    if let (Some(topology), Some(map)) = (
        &spec.network_topology,
        object.get_mut("spec").and_then(Value::as_object_mut),
    ) {
        map.insert("networkTopology".to_owned(), topology.clone());
    }
    object
}

fn status(
    job: &Custom,
    spec: &Spec,
    next: &str,
    (version, retry): (i64, i64),
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> Value {
    let before = &job.status;
    let changed = phase(job) != next;
    let at = rfc3339(now);
    let since = before
        .get("state")
        .map(|state| text(state, "lastTransitionTime"));
    let since = since.filter(|_| !changed).unwrap_or_else(|| at.clone());
    let mut conditions: Vec<Value> = before
        .get("conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if changed {
        conditions.push(json!({"status": next, "lastTransitionTime": at}));
    }
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    let mut tasks: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
    for pod in pods {
        let of = match pod.status.phase.as_str() {
            _ if pod.metadata.deletion_timestamp.is_some() => "terminating",
            "Running" => "running",
            "Succeeded" => "succeeded",
            "Failed" => "failed",
            _ => "pending",
        };
        *counts.entry(of).or_default() += 1;
        if let Some(task) = pod.metadata.annotations.get(TASK) {
            let phase = match pod.status.phase.as_str() {
                "" => "Pending",
                phase => phase,
            };
            *tasks.entry(task).or_default().entry(phase).or_default() += 1;
        }
    }
    let tasks: Map<String, Value> = tasks
        .into_iter()
        .map(|(task, phases)| (task.to_owned(), json!({"phase": phases})))
        .collect();
    let plugins: BTreeMap<String, &String> = spec
        .plugins
        .keys()
        .map(|name| (format!("plugin-{name}"), name))
        .collect();
    let mut status = json!({
        "state": {"phase": next, "lastTransitionTime": since},
        "minAvailable": spec.min_available,
        "version": version,
        "conditions": conditions,
    });
    let Some(map) = status.as_object_mut() else {
        return status;
    };
    map.extend(
        counts
            .into_iter()
            .map(|(name, n)| (name.to_owned(), json!(n))),
    );
    if !tasks.is_empty() {
        map.insert("taskStatusCount".to_owned(), Value::Object(tasks));
    }
    if !plugins.is_empty() {
        map.insert("controlledResources".to_owned(), json!(plugins));
    }
    if retry > 0 {
        map.insert("retryCount".to_owned(), json!(retry));
    }
    let over = matches!(next, "Completed" | "Failed" | "Terminated" | "Aborted");
    let lasted = before.get("runningDuration").cloned();
    let lasted = lasted.or_else(|| {
        let begun = job.metadata.creation_timestamp.as_deref()?;
        let secs = secs_since(begun, now)?;
        over.then(|| json!(duration(secs.max(0.0) as i64)))
    });
    if let Some(lasted) = lasted.filter(|_| over) {
        map.insert("runningDuration".to_owned(), lasted);
    }
    status
}

/// As Go writes a duration of whole seconds: `1h40m0s`.
fn duration(secs: i64) -> String {
    let (hours, minutes, rest) = (secs / 3600, secs / 60 % 60, secs % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let all = [5, 65, 6_000, 3_600].map(duration);
        assert_eq!(all, ["5s", "1m5s", "1h40m0s", "1h0m0s"]);
    }
}
