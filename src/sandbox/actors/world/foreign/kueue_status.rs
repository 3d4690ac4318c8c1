//! The statuses that Kueue writes: conditions of workloads, admissions, and the counts of queues.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kueue_quota::{Amounts, Assignment, Quotas, Usage};
use super::standing::{quantities, quantity, text};
use crate::sandbox::actors::clock::{rfc3339, secs_since};
use crate::sandbox::actors::objects::{Custom, Job, Pod};
use crate::sandbox::actors::quantity::milli;

/// A condition of the object's status, by its type.
fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = status.get("conditions").and_then(Value::as_array)?;
    let of_kind = |condition: &&Value| text(condition, "type") == kind;
    conditions.iter().find(of_kind)
}

/// Whether the condition is True.
pub(super) fn is_true(object: &Custom, kind: &str) -> bool {
    find(&object.status, kind).is_some_and(|condition| text(condition, "status") == "True")
}

/// The condition's reason; `None` when there is no such condition.
pub(super) fn reason(object: &Custom, kind: &str) -> Option<String> {
    find(&object.status, kind).map(|condition| text(condition, "reason"))
}

/// Sets a condition; its time moves only with its status.
pub(super) fn set(
    status: &mut Value,
    object: &Custom,
    kind: &str,
    holds: bool,
    (reason, message): (&str, &str),
    now: Timestamp,
) {
    if !status.is_object() {
        *status = json!({});
    }
    let word = if holds { "True" } else { "False" };
    let before = find(status, kind).filter(|condition| text(condition, "status") == word);
    let at = before.map_or_else(|| rfc3339(now), |c| text(c, "lastTransitionTime"));
    let mut condition = json!({
        "type": kind,
        "status": word,
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    });
    if let Some(map) = condition
        .as_object_mut()
        .filter(|_| object.metadata.generation > 0)
    {
        map.insert(
            "observedGeneration".to_owned(),
            json!(object.metadata.generation),
        );
    }
    let Some(map) = status.as_object_mut() else {
        return;
    };
    let list = map.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else {
        return;
    };
    match list.iter_mut().find(|other| text(other, "type") == kind) {
        Some(other) => *other = condition,
        None => list.push(condition),
    }
}

/// PodsReady, in Kueue's words.
pub(super) fn set_ready(status: &mut Value, object: &Custom, ready: bool, now: Timestamp) {
    let why = if ready {
        (
            "Started",
            "All pods reached readiness and the workload is running",
        )
    } else {
        ("WaitForStart", "Not all pods are ready or succeeded")
    };
    set(status, object, "PodsReady", ready, why, now);
}

/// Says that a workload is to be stopped, and counts it.
pub(super) fn evict(
    status: &mut Value,
    object: &Custom,
    (reason, message): (&str, &str),
    now: Timestamp,
) {
    set(status, object, "Evicted", true, (reason, message), now);
    let Some(map) = status.as_object_mut() else {
        return;
    };
    let stats = map
        .entry("schedulingStats")
        .or_insert_with(|| json!({"evictions": []}));
    let Some(list) = stats.get_mut("evictions").and_then(Value::as_array_mut) else {
        return;
    };
    let before = list.iter_mut().find(|one| text(one, "reason") == reason);
    match before.and_then(|one| one.get_mut("count")) {
        Some(count) => *count = json!(count.as_i64().unwrap_or(0) + 1),
        None => list.push(json!({"reason": reason, "underlyingCause": "", "count": 1})),
    }
}

/// Takes the quota away from a workload that was stopped; one that was preempted may come again at
/// once.
pub(super) fn unreserve(status: &mut Value, object: &Custom, now: Timestamp) {
    let why = find(status, "Evicted").cloned().unwrap_or_default();
    let (reason, message) = (text(&why, "reason"), text(&why, "message"));
    release(status, object, &message, now);
    if reason == "Preempted" {
        let why = (reason.as_str(), message.as_str());
        set(status, object, "Requeued", true, why, now);
    }
}

fn release(status: &mut Value, object: &Custom, message: &str, now: Timestamp) {
    set(
        status,
        object,
        "QuotaReserved",
        false,
        ("Pending", message),
        now,
    );
    let why = ("NoReservation", "The workload has no reservation");
    set(status, object, "Admitted", false, why, now);
    set_ready(status, object, false, now);
    if let Some(map) = status.as_object_mut() {
        map.remove("admission");
    }
}

/// Gives a workload its quota.
pub(super) fn admit(
    status: &mut Value,
    object: &Custom,
    (queue, count): (&str, i64),
    asks: &Amounts,
    assignment: &Assignment,
    topology: Option<Value>,
    now: Timestamp,
) {
    let message = format!("Quota reserved in ClusterQueue {queue}");
    set(
        status,
        object,
        "QuotaReserved",
        true,
        ("QuotaReserved", &message),
        now,
    );
    let why = ("Admitted", "The workload is admitted");
    set(status, object, "Admitted", true, why, now);
    for kind in ["Evicted", "Preempted"] {
        let Some(before) = find(status, kind).filter(|before| text(before, "status") == "True")
        else {
            continue;
        };
        let message = format!("Previously: {}", text(before, "message"));
        let why = ("QuotaReserved", message.as_str());
        set(status, object, kind, false, why, now);
    }
    if let Some(map) = status.as_object_mut() {
        let mut set = json!({
            "name": "main",
            "count": count,
            "flavors": assignment,
            "resourceUsage": quantities(asks),
        });
        if let (Some(set), Some(topology)) = (set.as_object_mut(), topology) {
            set.insert("topologyAssignment".to_owned(), topology);
        }
        let admission = json!({"clusterQueue": queue, "podSetAssignments": [set]});
        map.insert("admission".to_owned(), admission);
    }
}

fn pod_set(object: &Custom) -> Option<&Value> {
    object.spec.pointer("/podSets/0")
}

/// Pods of the workload.
pub(super) fn pod_count(object: &Custom) -> i64 {
    let count = pod_set(object).and_then(|set| set.get("count"));
    count.and_then(Value::as_i64).unwrap_or(1)
}

/// Its priority among those that wait.
pub(super) fn priority(object: &Custom) -> i64 {
    let priority = object.spec.get("priority").and_then(Value::as_i64);
    priority.unwrap_or(0)
}

/// When the workload got its quota.
pub(super) fn reserved_at(object: &Custom) -> String {
    find(&object.status, "QuotaReserved").map_or_else(String::new, |condition| {
        text(condition, "lastTransitionTime")
    })
}

/// Pods of a Job that have not ended.
pub(super) fn job_active(job: &Job) -> i64 {
    let count = |field: &str| job.status.get(field).and_then(Value::as_i64).unwrap_or(0);
    count("active") + count("terminating")
}

/// What all pods of the workload ask for together.
pub(super) fn asks(object: &Custom) -> Amounts {
    let spec = pod_set(object).and_then(|set| set.pointer("/template/spec"));
    let pod = json!({"spec": spec});
    let pod: Pod = serde_json::from_value(pod).unwrap_or_default();
    let count = i128::from(pod_count(object));
    let each = pod.requests_milli().into_iter();
    each.map(|(name, amount)| (name, amount * count)).collect()
}

/// Flavors of an admitted workload, by resource.
pub(super) fn assignment(object: &Custom) -> Assignment {
    let flavors = object
        .status
        .pointer("/admission/podSetAssignments/0/flavors");
    let pairs = flavors.and_then(Value::as_object).into_iter().flatten();
    pairs
        .filter_map(|(resource, flavor)| Some((resource.clone(), flavor.as_str()?.to_owned())))
        .collect()
}

/// Adds what the workload holds.
pub(super) fn add_usage(object: &Custom, usage: &mut Usage) {
    let Some(queue) = object
        .status
        .pointer("/admission/clusterQueue")
        .and_then(Value::as_str)
    else {
        return;
    };
    let amounts = object
        .status
        .pointer("/admission/podSetAssignments/0/resourceUsage");
    for (resource, flavor) in assignment(object) {
        let amount = amounts
            .and_then(|all| all.get(&resource))
            .and_then(Value::as_str);
        let amount = amount.and_then(milli).unwrap_or(0);
        *usage
            .entry((queue.to_owned(), flavor, resource))
            .or_default() += amount;
    }
}

/// Whole seconds since the workload was created.
pub(super) fn age_secs(object: &Custom, now: Timestamp) -> i64 {
    let created = object.metadata.creation_timestamp.as_deref();
    let secs = created.and_then(|at| secs_since(at, now)).unwrap_or(0.0);
    secs.max(0.0) as i64
}

/// How a Job ended, as the Finished condition says it; `None` while it has not.
pub(super) fn job_end(job: &Job) -> Option<(&'static str, &'static str)> {
    let is = |kind: &str| {
        find(&job.status, kind).is_some_and(|condition| text(condition, "status") == "True")
    };
    if is("Complete") {
        Some(("Succeeded", "Job finished successfully"))
    } else if is("Failed") {
        Some(("Failed", "Job failed"))
    } else {
        None
    }
}

/// Pods of a Job that are ready or have succeeded.
pub(super) fn job_ready(job: &Job) -> i64 {
    let count = |field: &str| job.status.get(field).and_then(Value::as_i64).unwrap_or(0);
    count("ready") + count("succeeded")
}

struct Counts {
    pending: usize,
    reserving: usize,
    admitted: usize,
}

fn counts(workloads: &[&Arc<Custom>]) -> Counts {
    let open = workloads
        .iter()
        .filter(|object| !is_true(object, "Finished"));
    let mut counts = Counts {
        pending: 0,
        reserving: 0,
        admitted: 0,
    };
    for object in open {
        let reserves = is_true(object, "QuotaReserved");
        let active = object.spec.get("active").and_then(Value::as_bool) != Some(false);
        counts.pending += usize::from(!reserves && active);
        counts.reserving += usize::from(reserves);
        counts.admitted += usize::from(is_true(object, "Admitted"));
    }
    counts
}

fn active(queue: &Custom, holds: bool, (reason, message): (&str, &str), now: Timestamp) -> Value {
    let mut status = json!({"conditions": queue.status.get("conditions").cloned()});
    if status.get("conditions").is_none_or(Value::is_null) {
        status = json!({});
    }
    set(&mut status, queue, "Active", holds, (reason, message), now);
    status.get("conditions").cloned().unwrap_or_default()
}

fn is_stopped(queue: &Custom) -> bool {
    !matches!(text(&queue.spec, "stopPolicy").as_str(), "" | "None")
}

/// The status of a ClusterQueue.
pub(super) fn cluster_queue(
    queue: &Custom,
    quotas: Option<&Quotas>,
    usage: &Usage,
    workloads: &[&Arc<Custom>],
    now: Timestamp,
) -> Value {
    let name = &queue.metadata.name;
    let flavors: Vec<Value> = quotas
        .into_iter()
        .flat_map(Quotas::flavors)
        .map(|(flavor, resources)| {
            let rows: Vec<Value> = resources
                .into_iter()
                .map(|(resource, nominal)| {
                    let key = (name.clone(), flavor.clone(), resource.clone());
                    let used = usage.get(&key).copied().unwrap_or(0);
                    json!({
                        "name": resource,
                        "total": quantity(used),
                        "borrowed": quantity((used - nominal).max(0)),
                    })
                })
                .collect();
            json!({"name": flavor, "resources": rows})
        })
        .collect();
    let counts = counts(workloads);
    let why = if is_stopped(queue) {
        (false, ("Stopped", "Can't admit new workloads: is stopped"))
    } else {
        (true, ("Ready", "Can admit new workloads"))
    };
    json!({
        "conditions": active(queue, why.0, why.1, now),
        "flavorsReservation": flavors,
        "flavorsUsage": flavors,
        "pendingWorkloads": counts.pending,
        "reservingWorkloads": counts.reserving,
        "admittedWorkloads": counts.admitted,
    })
}

/// The status of a LocalQueue.
pub(super) fn local_queue(
    queue: &Custom,
    cluster: Option<&Custom>,
    workloads: &[&Arc<Custom>],
    now: Timestamp,
) -> Value {
    let mut usage = Usage::new();
    for object in workloads
        .iter()
        .filter(|object| is_true(object, "QuotaReserved") && !is_true(object, "Finished"))
    {
        add_usage(object, &mut usage);
    }
    let flavors: Vec<Value> = usage
        .iter()
        .map(|((_, flavor, resource), used)| {
            let row = json!({"name": resource, "total": quantity(*used)});
            json!({"name": flavor, "resources": [row]})
        })
        .collect();
    let counts = counts(workloads);
    let (holds, why) = match cluster {
        _ if is_stopped(queue) => (false, ("Stopped", "LocalQueue is stopped")),
        None => (
            false,
            (
                "ClusterQueueDoesNotExist",
                "Can't submit new workloads to clusterQueue",
            ),
        ),
        Some(cluster) if is_stopped(cluster) => (
            false,
            (
                "ClusterQueueIsInactive",
                "Can't submit new workloads to clusterQueue",
            ),
        ),
        Some(_) => (true, ("Ready", "Can submit new workloads to localQueue")),
    };
    json!({
        "conditions": active(queue, holds, why, now),
        "pendingWorkloads": counts.pending,
        "reservingWorkloads": counts.reserving,
        "admittedWorkloads": counts.admitted,
        "flavorsReservation": flavors,
        "flavorsUsage": flavors,
    })
}
