//! The pod garbage collector: pods of a node that is no more are failed and removed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::bound::{condition, disrupt, patch_status, pods_on};
use super::clock::Clock;
use super::objects::Node;
use super::on_nodes::{Actor, Plans};
use super::watch::Change;
use crate::sandbox::calls::{CallError, Calls};

/// How long a node must be gone before its pods are (podgc's quarantine), in the actors' time.
const QUARANTINE_SECS: f64 = 40.0;
/// How long after a failed call it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Removes the pods of nodes that go.
pub(super) struct PodGc {
    calls: Calls,
    clock: Clock,
    /// Names by UID, of nodes that are there.
    there: BTreeMap<String, String>,
}

impl PodGc {
    pub(super) fn new(calls: Calls, clock: Clock) -> Self {
        Self {
            calls,
            clock,
            there: BTreeMap::new(),
        }
    }
}

impl Actor for PodGc {
    type Done = (String, Result<(), CallError>);

    fn changed(&mut self, change: Change<Node>, plans: &mut Plans<Self::Done>) {
        match change {
            Change::Set(node) => {
                let meta = &node.metadata;
                plans.agenda.remove(&meta.name);
                self.there.insert(meta.uid.clone(), meta.name.clone());
            }
            Change::Gone(uid) => {
                if let Some(name) = self.there.remove(&uid) {
                    let at = Instant::now() + self.clock.real(QUARANTINE_SECS);
                    plans.agenda.set(&name, at);
                }
            }
            Change::Synced => {}
        }
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
        if !self.there.values().any(|there| *there == name) {
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
