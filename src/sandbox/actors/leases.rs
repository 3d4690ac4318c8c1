//! The quiet half of the kubelets: Leases in `kube-node-lease`, rare heartbeats, and the Ready
//! condition of a node that has none yet.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bound::{condition, patch_status, pods_on};
use super::clock::{Clock, rfc3339, rfc3339_micro};
use super::objects::Node;
use super::watch::Change;
use super::{Manage, annotation};
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// Where kubelets keep their Leases.
const NAMESPACE: &str = "kube-node-lease";
/// A kubelet's own renewal interval.
const RENEW_SECS: u64 = 10;
/// Renewals a second that all kubelets together make at most: 5,000 nodes renew every 25 s, still
/// inside the 40 s after which a controller-manager gives a node up.
const RENEWALS_PER_SEC: u64 = 200;
/// A kubelet's own interval of full status reports without a change.
const HEARTBEAT: Duration = Duration::from_secs(300);
/// Calls in flight at a time.
const IN_FLIGHT: usize = 16;
/// The conditions a kubelet reports.
pub(super) const KUBELET_CONDITIONS: [&str; 4] =
    ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];

struct Record {
    uid: String,
    /// What the kubelet does.
    state: State,
    /// The kubelet was stopped and has not reported since.
    restarts: bool,
    /// Its pods were marked as not ready while nothing was heard of it.
    resync: bool,
    conditions: Vec<String>,
    lease_due: Instant,
    heartbeat_due: Instant,
}

/// What a kubelet has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It starts, or is back: it posts a fresh status and renews.
    Starting,
    /// It renews, whether its node is ready or not.
    Renewing,
    /// It is gone and renews nothing.
    Silent,
}

/// Keeps the Leases and heartbeats of all nodes; real time, whatever the speed.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    manage: Manage,
    mut nodes: mpsc::Receiver<Change<Node>>,
    cancel: CancellationToken,
) {
    let mut records: BTreeMap<String, Record> = BTreeMap::new();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(change) => fold(&mut records, clock, manage, change),
                None => return,
            },
            _ = tick.tick() => {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    () = beat(&calls, clock, &mut records) => {}
                }
            }
        }
    }
}

fn fold(
    records: &mut BTreeMap<String, Record>,
    clock: Clock,
    manage: Manage,
    change: Change<Node>,
) {
    match change {
        Change::Set(node) if manage.includes(&node) => {
            let name = &node.metadata.name;
            let now = Instant::now();
            let marked = node.metadata.annotations.contains_key(annotation::KUBELET);
            // Spread over the interval, so that nodes do not renew all at once.
            let offset = |range: Duration| now + range.mul_f64(clock.unit(name));
            let record = records.entry(name.clone()).or_insert_with(|| Record {
                uid: String::new(),
                state: State::Starting,
                restarts: false,
                resync: false,
                conditions: Vec::new(),
                lease_due: offset(Duration::from_secs(RENEW_SECS)),
                heartbeat_due: offset(HEARTBEAT),
            });
            record.uid.clone_from(&node.metadata.uid);
            record.restarts &= node.ready() != Some("True");
            record.resync = record.restarts || node.ready() == Some("Unknown");
            record.state = match node.ready() {
                _ if record.restarts => State::Starting,
                None => State::Starting,
                // Given up during an outage: the kubelet lives and says so.
                Some("Unknown") if marked => State::Starting,
                Some("Unknown") => State::Silent,
                Some(_) => State::Renewing,
            };
            if record.state == State::Starting {
                record.lease_due = record.lease_due.min(now);
            }
            record.conditions = node
                .status
                .conditions
                .iter()
                .map(|condition| condition.kind.clone())
                .filter(|kind| KUBELET_CONDITIONS.contains(&kind.as_str()))
                .collect();
        }
        Change::Set(node) => {
            // Another's, or stopped.
            if let Some(record) = records.get_mut(&node.metadata.name) {
                record.state = State::Silent;
                record.restarts = true;
            }
        }
        Change::Synced => {}
        Change::Gone(uid) => records.retain(|_, record| record.uid != uid),
    }
}

/// One second's share of the work.
async fn beat(calls: &Calls, clock: Clock, records: &mut BTreeMap<String, Record>) {
    let now = Instant::now();
    let renew = RENEW_SECS.max(records.len() as u64 / RENEWALS_PER_SEC);
    let share = usize::try_from(RENEWALS_PER_SEC).unwrap_or(200);
    let mut names = Vec::new();
    for (name, record) in records.iter_mut() {
        if names.len() >= share {
            break;
        }
        if record.state == State::Silent || record.lease_due > now {
            continue;
        }
        record.lease_due = now + Duration::from_secs(renew);
        let status = match record.state {
            State::Starting => {
                record.heartbeat_due = now + HEARTBEAT;
                Some(first_status(clock))
            }
            _ if record.heartbeat_due <= now => {
                record.heartbeat_due = now + HEARTBEAT;
                Some(heartbeat(clock, &record.conditions))
            }
            _ => None,
        };
        let resync = record.state == State::Starting && record.resync;
        names.push((name.clone(), record.uid.clone(), status, resync));
    }
    let work = names
        .into_iter()
        .map(|(name, uid, status, resync)| async move {
            if let Err(error) = renew_lease(calls, clock, &name, &uid, renew * 4).await {
                tracing::debug!(%error, "lease not renewed");
            }
            if let Some(body) = status {
                let at = format!("{}/{name}/status", path::NODES);
                let result = calls
                    .patch::<IgnoredAny>(&at, PatchKind::Strategic, &body)
                    .await;
                if let Err(error) = result {
                    tracing::debug!(%error, "heartbeat failed");
                }
            }
            if resync && let Err(error) = report_pods(calls, clock, &name).await {
                tracing::debug!(%error, "pods of a node that is back not reported");
            }
        });
    futures::stream::iter(work)
        .buffer_unordered(IN_FLIGHT)
        .collect::<()>()
        .await;
}

/// A kubelet that is back says that its pods still run.
async fn report_pods(calls: &Calls, clock: Clock, node: &str) -> Result<(), CallError> {
    for pod in pods_on(calls, node).await? {
        let leaves = pod.metadata.deletion_timestamp.is_some();
        if pod.status.phase == "Running" && !pod.is_ready() && !leaves {
            let ready = condition("Ready", "True", ("", ""), clock.now());
            patch_status(calls, &pod, &json!({"conditions": [ready]})).await?;
        }
    }
    Ok(())
}

async fn renew_lease(
    calls: &Calls,
    clock: Clock,
    node: &str,
    uid: &str,
    duration_secs: u64,
) -> Result<(), CallError> {
    let collection = path::leases(NAMESPACE);
    let spec = json!({
        "holderIdentity": node,
        "leaseDurationSeconds": duration_secs,
        "renewTime": rfc3339_micro(clock.now()),
    });
    let at = format!("{collection}/{node}");
    let patch = json!({"spec": spec});
    match calls
        .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
        .await
    {
        Err(error) if error.is_not_found() => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": node,
                    "namespace": NAMESPACE,
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
                    ],
                },
                "spec": spec,
            });
            calls
                .post::<IgnoredAny>(&collection, &lease)
                .await
                .map(|_| ())
        }
        result => result.map(|_| ()),
    }
}

fn heartbeat(clock: Clock, kinds: &[String]) -> Value {
    let at = rfc3339(clock.now());
    let conditions: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"type": kind, "lastHeartbeatTime": at}))
        .collect();
    json!({"status": {"conditions": conditions}})
}

fn first_status(clock: Clock) -> Value {
    let at = rfc3339(clock.now());
    json!({"status": {"conditions": kubelet_conditions(&at, &at)}})
}

/// The four conditions of a healthy kubelet.
pub(crate) fn kubelet_conditions(heartbeat: &str, transition: &str) -> Vec<Value> {
    [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        (
            "Ready",
            "True",
            "KubeletReady",
            "kubelet is posting ready status",
        ),
    ]
    .iter()
    .map(|(kind, status, reason, message)| {
        json!({
            "type": kind,
            "status": status,
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": transition,
            "reason": reason,
            "message": message,
        })
    })
    .collect()
}
