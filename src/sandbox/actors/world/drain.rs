//! Draining a node before it goes: evictions through the API, as each provider does it.

use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::sandbox::actors::bound::{pod_note, pod_path, pods_on, stays_in_a_drain};
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::objects::{Node, Pod};
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// How often the pods that are left are asked again, in the actors' time: 5 s as in kubectl.
const AGAIN_SECS: f64 = 5.0;
/// The shortest real time between two looks.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// Attempts of a write that another writer overtakes.
const ATTEMPTS: u32 = 6;

/// What happens to a pod whose budget holds it past the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtDeadline {
    /// It goes down with the machine.
    Leave,
    /// It is deleted so early that its grace still fits (Karpenter).
    DeleteInTime,
}

/// Evicts the pods of `node`, again and again, until none is left or the deadline is there.
/// Returns whether all have left.
pub(super) async fn drain(
    calls: &Calls,
    clock: Clock,
    node: &str,
    deadline: Instant,
    at_deadline: AtDeadline,
) -> bool {
    loop {
        match round(calls, clock, node, deadline, at_deadline).await {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "drain goes on"),
        }
        let pause = clock.real(AGAIN_SECS).max(MIN_PAUSE);
        if Instant::now() + pause >= deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Asks every pod once; returns how many are still there.
async fn round(
    calls: &Calls,
    clock: Clock,
    node: &str,
    deadline: Instant,
    at_deadline: AtDeadline,
) -> Result<usize, CallError> {
    let mut left = 0;
    for pod in pods_on(calls, node).await? {
        if stays_in_a_drain(&pod) {
            continue;
        }
        left += 1;
        if pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let grace = pod
            .spec
            .termination_grace_period_seconds
            .unwrap_or(30)
            .max(0);
        let latest = deadline.checked_sub(clock.real(grace as f64));
        let late = latest.is_none_or(|latest| latest <= Instant::now());
        if late && at_deadline == AtDeadline::DeleteInTime {
            delete_in_time(calls, clock, &pod, grace, deadline).await?;
        } else {
            evict(calls, &pod).await?;
        }
    }
    Ok(left)
}

/// One eviction; a budget that refuses it (429) is no error.
async fn evict(calls: &Calls, pod: &Pod) -> Result<(), CallError> {
    let meta = &pod.metadata;
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": {"preconditions": {"uid": meta.uid}},
    });
    let at = format!("{}/eviction", pod_path(pod));
    match calls.post::<IgnoredAny>(&at, &body).await {
        Err(error) if error.is_not_found() || matches!(error.code(), Some(409 | 429)) => Ok(()),
        result => result.map(|_| ()),
    }
}

/// Karpenter's last means: past all budgets, with what is left of the time.
async fn delete_in_time(
    calls: &Calls,
    clock: Clock,
    pod: &Pod,
    grace_secs: i64,
    deadline: Instant,
) -> Result<(), CallError> {
    let left = deadline.saturating_duration_since(Instant::now());
    // The remaining real time as the actors' clock counts it.
    let left_secs = (left.as_secs_f64() / clock.real(1.0).as_secs_f64().max(1e-9)) as i64;
    let granted = left_secs.clamp(1, grace_secs.max(1));
    let ends = clock.at(deadline).strftime("%Y-%m-%d %H:%M:%S +0000 UTC");
    let message = format!(
        "Deleting the pod to accommodate the terminationTime {ends} of the node. The pod was \
         granted {granted} seconds of grace-period of its {grace_secs} \
         terminationGracePeriodSeconds. This bypasses the PDB of the pod and the do-not-disrupt \
         annotation."
    );
    pod_note(pod, "karpenter", (false, "Disrupted"), message)
        .write(calls)
        .await;
    let uid = &pod.metadata.uid;
    calls.delete(&pod_path(pod), uid, Some(granted)).await
}

/// Patches a node with what `change` makes of its present state; again when another writer was
/// faster.
///
/// # Errors
/// The server's last refusal.
pub(super) async fn update_node(
    calls: &Calls,
    name: &str,
    change: impl Fn(&Node) -> Value,
) -> Result<(), CallError> {
    let at = format!("{}/{name}", path::NODES);
    let mut attempt = 1;
    loop {
        let node: Node = calls.get(&at).await?;
        let mut patch = change(&node);
        let version = json!({"metadata": {"resourceVersion": node.metadata.resource_version}});
        merge(&mut patch, &version);
        match calls
            .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
            .await
        {
            Err(error) if error.code() == Some(409) && attempt < ATTEMPTS => attempt += 1,
            result => return result.map(|_| ()),
        }
    }
}

/// The node's taints with `more`, each key and effect once.
pub(super) fn with_taints(node: &Node, more: &[Value]) -> Vec<Value> {
    let mut taints = node.spec.taints.clone();
    for taint in more {
        let same = |other: &Value| {
            other.get("key") == taint.get("key") && other.get("effect") == taint.get("effect")
        };
        taints.retain(|other| !same(other));
        taints.push(taint.clone());
    }
    taints
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}
