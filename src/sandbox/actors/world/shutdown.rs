//! Graceful node shutdown, as the kubelet's shutdown manager does it: the node says that it is not
//! ready, pods get the first part of the time and critical ones the rest.

use futures::StreamExt;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::sandbox::actors::annotation;
use crate::sandbox::actors::bound::{
    patch_status, pods_on, stays_in_a_drain, terminated_by_shutdown,
};
use crate::sandbox::actors::clock::{Clock, rfc3339};
use crate::sandbox::actors::events::Note;
use crate::sandbox::actors::objects::Pod;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path, patiently};

/// Pods ended at a time.
const IN_FLIGHT: usize = 16;

/// How long a shutdown takes, in seconds of the actors' time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grace {
    /// All of it (`shutdownGracePeriod`).
    pub total_secs: f64,
    /// Its last part, for critical pods (`shutdownGracePeriodCriticalPods`).
    pub critical_secs: f64,
}

impl Grace {
    /// GKE's on spot nodes: 15 s for user pods, 15 s for critical ones.
    pub const GKE: Self = Self {
        total_secs: 30.0,
        critical_secs: 15.0,
    };
}

/// Shuts `node` down; when this is done its kubelet is stopped.
///
/// # Errors
/// The server refused for good, or was away for long.
pub(super) async fn shut_down(
    calls: &Calls,
    clock: Clock,
    (name, uid): (&str, &str),
    grace: Grace,
) -> Result<(), CallError> {
    let at = rfc3339(clock.now());
    let not_ready = json!({"metadata": {"uid": uid}, "status": {"conditions": [{
        "type": "Ready",
        "status": "False",
        "reason": "KubeletNotReady",
        "message": "node is shutting down",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }]}});
    let status_path = format!("{}/{name}/status", path::NODES);
    let kind = PatchKind::Strategic;
    patiently(|| calls.patch::<IgnoredAny>(&status_path, kind, &not_ready)).await?;
    let message = "Shutdown manager detected shutdown event".to_owned();
    let mut note = Note::node(name, uid, "kubelet", (false, "NodeShutdown"), message);
    name.clone_into(&mut note.host);
    note.write(calls).await;

    let pods = patiently(|| pods_on(calls, name)).await?;
    let leaving = pods.into_iter().filter(|pod| !stays_in_a_drain(pod));
    let (critical, others): (Vec<Pod>, Vec<Pod>) = leaving.partition(|pod| {
        matches!(
            pod.spec.priority_class_name.as_str(),
            "system-node-critical" | "system-cluster-critical"
        )
    });
    let critical_secs = grace.critical_secs.clamp(0.0, grace.total_secs.max(0.0));
    end(calls, clock, others, grace.total_secs - critical_secs).await;
    end(calls, clock, critical, critical_secs).await;
    stop_kubelet(calls, name).await
}

/// Ends the pods within `window_secs`, each when it is done or its own grace is over.
async fn end(calls: &Calls, clock: Clock, pods: Vec<Pod>, window_secs: f64) {
    let work = pods.into_iter().map(|pod| async move {
        let asked = pod.spec.termination_grace_period_seconds.unwrap_or(30);
        let longest = (asked.max(0) as f64).min(window_secs.max(0.0));
        // Few programs need all of their grace.
        let takes = clock.between(0.1, 1.0, &pod.metadata.uid) * longest;
        tokio::time::sleep(clock.real(takes)).await;
        let status = terminated_by_shutdown(&pod, clock.now());
        let written = patiently(|| patch_status(calls, &pod, &status)).await;
        if let Err(error) = written {
            tracing::debug!(%error, "pod of a node that shuts down not ended");
        }
    });
    // All have had the signal, but writes are bounded.
    futures::stream::iter(work)
        .buffer_unordered(IN_FLIGHT.max(110))
        .collect::<()>()
        .await;
}

/// Ends the kubelet of a node without a word.
pub(super) async fn stop_kubelet(calls: &Calls, node: &str) -> Result<(), CallError> {
    mark_kubelet(calls, node, "stopped").await
}

/// Starts the kubelet of a node again.
pub(super) async fn start_kubelet(calls: &Calls, node: &str) -> Result<(), CallError> {
    mark_kubelet(calls, node, "simulated").await
}

async fn mark_kubelet(calls: &Calls, node: &str, mark: &str) -> Result<(), CallError> {
    let patch = json!({"metadata": {"annotations": {annotation::KUBELET: mark}}});
    let at = format!("{}/{node}", path::NODES);
    let written = patiently(|| calls.patch::<IgnoredAny>(&at, PatchKind::Merge, &patch));
    match written.await {
        // The machine was deleted meanwhile.
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(|_| ()),
    }
}
