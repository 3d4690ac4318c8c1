//! The part of the node lifecycle controller that notices a silent kubelet: its Lease is not
//! renewed, so its conditions become Unknown and its pods not ready.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bound::{condition, patch_status, pods_on};
use super::clock::{Clock, rfc3339};
use super::events::Note;
use super::leases::KUBELET_CONDITIONS;
use super::objects::{Lease, Node};
use super::watch::Change;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// How long a kubelet may be silent (kube-controller-manager's `--node-monitor-grace-period`; seen
/// on 1.37: 40 s without renewals). Real time, whatever the speed, as the Leases are.
const GRACE: Duration = Duration::from_secs(40);
/// How often it is looked (`--node-monitor-period`).
const PERIOD: Duration = Duration::from_secs(5);
/// Nodes marked at a time.
const IN_FLIGHT: usize = 16;
/// Why a condition is not known, in the controller's words.
const SILENT: (&str, &str) = ("NodeStatusUnknown", "Kubelet stopped posting node status.");

struct Record {
    uid: String,
    /// The Ready condition; empty when there is none.
    ready: String,
    /// When the kubelet was last heard of, and what it said.
    heard: Instant,
    renewed: String,
}

impl Record {
    /// Takes note of a Lease; returns whether it says something new.
    fn hear(&mut self, lease: &Lease) -> bool {
        let new = self.renewed != lease.spec.renew_time;
        if new {
            self.heard = Instant::now();
            self.renewed.clone_from(&lease.spec.renew_time);
        }
        new
    }
}

/// Watches the Leases of all nodes and marks those whose kubelet is silent.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    mut nodes: mpsc::Receiver<Change<Node>>,
    mut leases: mpsc::Receiver<Change<Lease>>,
    cancel: CancellationToken,
) {
    let mut records: BTreeMap<String, Record> = BTreeMap::new();
    let mut tick = tokio::time::interval(PERIOD);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(change) => node_changed(&mut records, change),
                None => return,
            },
            change = leases.recv() => match change {
                Some(Change::Set(lease)) => {
                    if let Some(record) = records.get_mut(&lease.metadata.name) {
                        record.hear(&lease);
                    }
                }
                // A fresh list may follow an outage in which no kubelet could renew.
                Some(Change::Synced) => {
                    records.values_mut().for_each(|record| record.heard = Instant::now());
                }
                Some(Change::Gone(_)) => {}
                None => return,
            },
            _ = tick.tick() => {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    () = mark_silent(&calls, clock, &mut records) => {}
                }
            }
        }
    }
}

fn node_changed(records: &mut BTreeMap<String, Record>, change: Change<Node>) {
    match change {
        Change::Set(node) => {
            let name = &node.metadata.name;
            let record = records.entry(name.clone()).or_insert_with(|| Record {
                uid: String::new(),
                ready: String::new(),
                heard: Instant::now(),
                renewed: String::new(),
            });
            if record.uid != node.metadata.uid {
                record.uid.clone_from(&node.metadata.uid);
                record.heard = Instant::now();
            }
            let ready = node.ready().unwrap_or_default();
            if record.ready != ready {
                ready.clone_into(&mut record.ready);
            }
        }
        Change::Gone(uid) => records.retain(|_, record| record.uid != uid),
        Change::Synced => {}
    }
}

async fn mark_silent(calls: &Calls, clock: Clock, records: &mut BTreeMap<String, Record>) {
    let mut silent: Vec<(String, String)> = records
        .iter()
        .filter(|(_, record)| record.ready != "Unknown" && record.heard.elapsed() > GRACE)
        .map(|(name, record)| (name.clone(), record.uid.clone()))
        .collect();
    silent.sort();
    let work = silent.into_iter().map(|(name, uid)| async move {
        let at = format!("{}/{name}", path::NODE_LEASES);
        let lease = calls.get::<Lease>(&at).await;
        (name, uid, lease)
    });
    let asked: Vec<(String, String, Result<Lease, CallError>)> = futures::stream::iter(work)
        .buffered(IN_FLIGHT)
        .collect()
        .await;
    for (name, uid, lease) in asked {
        let Some(record) = records.get_mut(&name) else {
            continue;
        };
        match lease {
            // It is not the kubelet that is silent, but the watch.
            Ok(lease) if record.hear(&lease) => continue,
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::debug!(%error, "lease not read");
                continue;
            }
        }
        match mark(calls, clock, &name, &uid).await {
            Ok(()) => "Unknown".clone_into(&mut record.ready),
            Err(error) => tracing::debug!(%error, "silent node not marked"),
        }
    }
}

async fn mark(calls: &Calls, clock: Clock, name: &str, uid: &str) -> Result<(), CallError> {
    let at = clock.now();
    let unknown = |kind: &&str| {
        json!({
            "type": kind,
            "status": "Unknown",
            "reason": SILENT.0,
            "message": SILENT.1,
            "lastTransitionTime": rfc3339(at),
        })
    };
    let conditions: Vec<Value> = KUBELET_CONDITIONS.iter().map(unknown).collect();
    let status_path = format!("{}/{name}/status", path::NODES);
    let body = json!({"metadata": {"uid": uid}, "status": {"conditions": conditions}});
    calls
        .patch::<IgnoredAny>(&status_path, PatchKind::Strategic, &body)
        .await?;
    let message = format!("Node {name} status is now: NodeNotReady");
    Note::node(
        name,
        uid,
        "node-controller",
        (false, "NodeNotReady"),
        message,
    )
    .write(calls)
    .await;
    // Its pods cannot be asked any more: services must not send them anything.
    for pod in pods_on(calls, name).await? {
        if pod.is_ready() {
            let ready =
                json!({"conditions": [condition("Ready", "False", ("NodeNotReady", ""), at)]});
            patch_status(calls, &pod, &ready).await?;
        }
    }
    Ok(())
}
