//! The part of the node lifecycle controller that scheduling depends on: taints follow the Ready
//! condition and the cordon.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agenda::Agenda;
use super::clock::{Clock, rfc3339};
use super::objects::Node;
use super::watch::Change;
use crate::sandbox::calls::{Calls, PatchKind, path};

/// How long after a failed write it is tried again.
const RETRY: Duration = Duration::from_secs(1);

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Keeps the taints of all nodes right.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    mut nodes: mpsc::Receiver<Change<Node>>,
    cancel: CancellationToken,
) {
    // Nodes whose taints differ from what they should be, by UID: name and patch.
    let mut wrong: BTreeMap<String, (String, Value)> = BTreeMap::new();
    let mut agenda = Agenda::default();
    loop {
        tokio::select! {
            // Changes first: a patch made from an old version would only be refused.
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(Change::Set(node)) => {
                    let uid = &node.metadata.uid;
                    if let Some(patch) = correction(&node, &rfc3339(clock.now())) {
                        agenda.set(uid, Instant::now());
                        wrong.insert(uid.clone(), (node.metadata.name.clone(), patch));
                    } else {
                        agenda.remove(uid);
                    }
                }
                Some(Change::Gone(uid)) => agenda.remove(&uid),
                Some(Change::Synced) => {}
                None => return,
            },
            () = agenda.due() => {
                let Some(uid) = agenda.pop(Instant::now()) else {
                    continue;
                };
                let Some((name, patch)) = wrong.remove(&uid) else {
                    continue;
                };
                let at = format!("{}/{name}", path::NODES);
                if let Err(error) = calls.patch::<IgnoredAny>(&at, PatchKind::Merge, &patch).await {
                    tracing::debug!(%error, "taints not written");
                    agenda.set(&uid, Instant::now() + RETRY);
                    wrong.insert(uid, (name, patch));
                }
            }
        }
    }
}

/// The taints that follow from a node's state, by key and effect. Pods leave for the NoExecute ones.
const OURS: [(&str, &str); 5] = [
    (NOT_READY, "NoSchedule"),
    (NOT_READY, "NoExecute"),
    (UNREACHABLE, "NoSchedule"),
    (UNREACHABLE, "NoExecute"),
    (UNSCHEDULABLE, "NoSchedule"),
];

/// The merge patch that makes the node's taints right, with `now` as the time of new ones; `None`
/// when they are.
fn correction(node: &Node, now: &str) -> Option<Value> {
    let wanted = |key: &str| match key {
        NOT_READY => node.ready() == Some("False"),
        UNREACHABLE => node.ready() == Some("Unknown"),
        _ => node.spec.unschedulable,
    };
    let mut taints = node.spec.taints.clone();
    let mut changed = false;
    for (key, effect) in OURS {
        let has = taints.iter().any(|taint| is(taint, key, effect));
        // A node that has not reported yet keeps the not-ready taint of its admission.
        let undecided = key == NOT_READY && node.ready().is_none();
        if has && !wanted(key) && !undecided {
            taints.retain(|taint| !is(taint, key, effect));
            changed = true;
        } else if !has && wanted(key) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": now}));
            changed = true;
        }
    }
    changed.then(|| {
        json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints},
        })
    })
}

fn is(taint: &Value, key: &str, effect: &str) -> bool {
    let text = |field: &str| taint.get(field).and_then(Value::as_str);
    text("key") == Some(key) && text("effect") == Some(effect)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const NOW: &str = "2026-11-30T12:00:00Z";

    fn node(ready: &str, taints: &Value, cordoned: bool) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n1", "resourceVersion": "7"},
            "spec": {"taints": taints, "unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn taints_follow_readiness_and_cordon() {
        let own = json!({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"});
        let fresh = json!([own, {"key": NOT_READY, "effect": "NoSchedule"}]);
        let patch = correction(&node("True", &fresh, false), NOW).unwrap();
        assert_eq!(patch["spec"]["taints"], json!([own]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");

        assert_eq!(correction(&node("True", &json!([own]), false), NOW), None);
        let patch = correction(&node("Unknown", &Value::Null, true), NOW).unwrap();
        assert_eq!(
            patch["spec"]["taints"],
            json!([
                {"key": UNREACHABLE, "effect": "NoSchedule", "timeAdded": NOW},
                {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": NOW},
                {"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": NOW},
            ])
        );
    }
}
