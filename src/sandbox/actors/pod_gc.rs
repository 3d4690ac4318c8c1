//! The pod garbage collector: pods of a node that is no more are failed and removed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agenda::Agenda;
use super::bound::{condition, disrupt, patch_status, pods_on};
use super::clock::Clock;
use super::objects::Node;
use super::watch::Change;
use crate::sandbox::calls::{CallError, Calls};

/// How long a node must be gone before its pods are (podgc's quarantine), in the actors' time.
const QUARANTINE_SECS: f64 = 40.0;
/// How long after a failed call it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Removes the pods of nodes that go.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    mut nodes: mpsc::Receiver<Change<Node>>,
    cancel: CancellationToken,
) {
    // Names by UID, of nodes that are there.
    let mut there: BTreeMap<String, String> = BTreeMap::new();
    let mut agenda = Agenda::default();
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(Change::Set(node)) => {
                    agenda.remove(&node.metadata.name);
                    there.insert(node.metadata.uid.clone(), node.metadata.name.clone());
                }
                Some(Change::Gone(uid)) => {
                    if let Some(name) = there.remove(&uid) {
                        agenda.set(&name, Instant::now() + clock.real(QUARANTINE_SECS));
                    }
                }
                Some(Change::Synced) => {}
                None => return,
            },
            () = agenda.due() => {
                let Some(name) = agenda.pop(Instant::now()) else { continue };
                let result = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    result = collect(&calls, clock, &name) => result,
                };
                if let Err(error) = result {
                    tracing::debug!(%error, "pods of a vanished node not removed");
                    agenda.set(&name, Instant::now() + RETRY);
                }
            }
        }
    }
}

async fn collect(calls: &Calls, clock: Clock, node: &str) -> Result<(), CallError> {
    const WHY: (&str, &str) = ("DeletionByPodGC", "PodGC: node no longer exists");
    for pod in pods_on(calls, node).await? {
        let at = clock.now();
        if !pod.is_terminal() {
            let status = json!({
                "phase": "Failed",
                "conditions": [condition("DisruptionTarget", "True", WHY, at)],
            });
            patch_status(calls, &pod, &status).await?;
        }
        disrupt(calls, &pod, WHY, Some(0), at).await?;
    }
    Ok(())
}
