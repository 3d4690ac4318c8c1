//! The pod garbage collector: pods of a node that is no more are failed and removed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::bound::{condition, disrupt, patch_status, pods_on};
use super::clock::Clock;
use super::objects::Node;
use super::on_nodes::{Actor, Plans};
use crate::sandbox::calls::{CallError, Calls};

/// How long a node must be gone before its pods are (podgc's quarantine), in the actors' time.
const QUARANTINE_SECS: f64 = 40.0;
/// How long after a failed call it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Removes the pods of nodes that go.
pub(super) struct PodGc {
    calls: Calls,
    clock: Clock,
}

impl PodGc {
    pub(super) fn new(calls: Calls, clock: Clock) -> Self {
        Self { calls, clock }
    }
}

impl Actor for PodGc {
    type Done = (String, Result<(), CallError>);

    fn seen(&mut self, node: &Arc<Node>, plans: &mut Plans<Self::Done>) {
        plans.agenda.remove(&node.metadata.name);
    }

    fn gone(&mut self, node: &Node, plans: &mut Plans<Self::Done>) {
        let at = Instant::now() + self.clock.real(QUARANTINE_SECS);
        plans.agenda.set(&node.metadata.name, at);
    }

    fn due(&mut self, name: &str, plans: &mut Plans<Self::Done>) {
        let (calls, clock, name) = (self.calls.clone(), self.clock, name.to_owned());
        plans.begin(async move {
            let result = collect(&calls, clock, &name).await;
            (name, result)
        });
    }

    fn done(&mut self, (name, result): Self::Done, plans: &mut Plans<Self::Done>) {
        let Err(error) = result else { return };
        tracing::debug!(%error, "pods of a vanished node not removed");
        // Unless one of its name has come meanwhile.
        if !plans.nodes.contains_key(&name) {
            plans.agenda.set(&name, Instant::now() + RETRY);
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
