//! Karpenter's NodeClaims (karpenter.sh/v1): one for each node of a NodePool, from the launch of its
//! machine to its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::sandbox::actors::clock::{Clock, rfc3339};
use crate::sandbox::actors::objects::{Custom, Node};
use crate::sandbox::actors::on_nodes::{Actor, Plans};
use crate::sandbox::calls::{CallError, Calls, PatchKind};

const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
/// Label of a node with its NodePool.
const POOL: &str = "karpenter.sh/nodepool";
const TERMINATION: &str = "karpenter.sh/termination";
/// When the machine of a claim is gone at the latest.
const DEADLINE: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// How long after a failed write it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The name of a node's claim: its pool's with a suffix, as Karpenter generates it.
pub(super) fn name(node: &Node, clock: Clock) -> String {
    let pool = node.metadata.labels.get(POOL).map_or("", String::as_str);
    let suffix = clock.suffix(&format!("claim/{}", node.metadata.name));
    format!("{pool}-{suffix}")
}

/// How far a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its node is there, and not ready yet.
    Registered,
    /// Its node has been ready.
    Initialized,
    /// Its node is being emptied.
    Draining,
    /// Its node is no more.
    Gone,
}

struct Record {
    node: Arc<Node>,
    stage: Stage,
    /// The stage that was written last.
    written: Option<Stage>,
    busy: bool,
}

/// Keeps the claims.
pub(super) struct NodeClaims {
    calls: Calls,
    clock: Clock,
    nodes: BTreeMap<String, Record>,
}

impl NodeClaims {
    pub(super) fn new(calls: Calls, clock: Clock) -> Self {
        Self {
            calls,
            clock,
            nodes: BTreeMap::new(),
        }
    }
}

/// A node, the stage that was to be written for it, and what became of that.
pub(super) type Done = (String, Stage, Result<(), CallError>);

impl Actor for NodeClaims {
    type Done = Done;

    fn seen(&mut self, node: &Arc<Node>, plans: &mut Plans<Done>) {
        if !node.metadata.labels.contains_key(POOL) {
            return;
        }
        let taints = node.spec.taints.iter();
        let mut keys = taints.filter_map(|taint| taint.get("key")?.as_str());
        let leaves = keys.any(|key| key == "karpenter.sh/disrupted");
        let ready = node.ready() == Some("True");
        let name = node.metadata.name.clone();
        let before = self.nodes.get(&name).map(|record| record.stage);
        let stage = match before {
            _ if leaves => Stage::Draining,
            Some(stage @ (Stage::Initialized | Stage::Draining)) => stage,
            _ if ready => Stage::Initialized,
            _ => Stage::Registered,
        };
        if before != Some(stage) {
            plans.agenda.set(&name, Instant::now());
        }
        let record = self.nodes.entry(name).or_insert_with(|| Record {
            node: Arc::clone(node),
            stage,
            written: None,
            busy: false,
        });
        record.node = Arc::clone(node);
        record.stage = stage;
    }

    fn gone(&mut self, node: &Node, plans: &mut Plans<Done>) {
        let name = &node.metadata.name;
        if let Some(record) = self.nodes.get_mut(name) {
            record.stage = Stage::Gone;
            plans.agenda.set(name, Instant::now());
        }
    }

    fn due(&mut self, name: &str, plans: &mut Plans<Done>) {
        let Some(record) = self.nodes.get_mut(name) else {
            return;
        };
        // What is being written looks again when it is done.
        if record.busy || record.written == Some(record.stage) {
            return;
        }
        record.busy = true;
        let (calls, clock) = (self.calls.clone(), self.clock);
        let (node, stage, name) = (Arc::clone(&record.node), record.stage, name.to_owned());
        plans.begin(async move {
            let result = write(&calls, clock, &node, stage).await;
            (name, stage, result)
        });
    }

    fn done(&mut self, (name, stage, result): Done, plans: &mut Plans<Done>) {
        let Some(record) = self.nodes.get_mut(&name) else {
            return;
        };
        record.busy = false;
        if let Err(error) = result {
            tracing::debug!(%error, "a NodeClaim was not written");
            plans.agenda.set(&name, Instant::now() + RETRY);
            return;
        }
        record.written = Some(stage);
        if record.stage != stage {
            plans.agenda.set(&name, Instant::now());
        } else if stage == Stage::Gone {
            self.nodes.remove(&name);
        }
    }
}

async fn write(calls: &Calls, clock: Clock, node: &Node, stage: Stage) -> Result<(), CallError> {
    let claim = name(node, clock);
    let at = format!("{CLAIMS}/{claim}");
    if stage == Stage::Gone {
        return end(calls, &at).await;
    }
    ensure(calls, node, &claim).await?;
    let meta = &node.metadata;
    let mut status = json!({
        "nodeName": meta.name,
        "providerID": node.spec.provider_id,
        "capacity": node.status.capacity,
        "allocatable": node.status.allocatable,
        "conditions": conditions(stage, &rfc3339(clock.now())),
    });
    let old: Custom = calls.get(&at).await?;
    keep_times(&mut status, &old.status);
    let patch = json!({"status": status});
    calls
        .patch::<IgnoredAny>(&format!("{at}/status"), PatchKind::Merge, &patch)
        .await?;
    if stage == Stage::Draining {
        if let Some(deadline) = meta.annotations.get(DEADLINE) {
            let patch = json!({"metadata": {"annotations": {DEADLINE: deadline}}});
            calls
                .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
                .await?;
        }
        // Its finalizer keeps it until the machine is gone.
        calls.delete(&at, &old.metadata.uid, None).await?;
    }
    Ok(())
}

/// Creates pool and claim, and their kinds where those are not known.
async fn ensure(calls: &Calls, node: &Node, claim: &str) -> Result<(), CallError> {
    match calls.ensure(POOLS, &pool(node)).await {
        Err(error) if error.is_not_found() => {
            for definition in definitions() {
                calls.ensure(DEFINITIONS, &definition).await?;
            }
            calls.ensure(POOLS, &pool(node)).await?;
        }
        result => {
            result?;
        }
    }
    calls.ensure(CLAIMS, &object(node, claim)).await.map(|_| ())
}

/// Lets a claim go whose machine is gone.
async fn end(calls: &Calls, at: &str) -> Result<(), CallError> {
    let old: Custom = match calls.get(at).await {
        Err(error) if error.is_not_found() => return Ok(()),
        result => result?,
    };
    calls.delete(at, &old.metadata.uid, None).await?;
    let patch = json!({"metadata": {"finalizers": null}});
    match calls
        .patch::<IgnoredAny>(at, PatchKind::Merge, &patch)
        .await
    {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(|_| ()),
    }
}

/// The claim of a machine that was asked for and has not registered; `node` is what it will be.
pub(super) async fn launch(calls: &Calls, clock: Clock, node: &Node) -> Result<(), CallError> {
    let claim = name(node, clock);
    ensure(calls, node, &claim).await?;
    let at = rfc3339(clock.now());
    let waits = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "Unknown", "reason": reason, "message": message,
            "lastTransitionTime": at,
        })
    };
    let status = json!({
        "providerID": node.spec.provider_id,
        "capacity": node.status.capacity,
        "allocatable": node.status.allocatable,
        "conditions": [
            holds("Launched", &at),
            waits("Registered", "NodeNotRegistered", "Node not registered with cluster"),
            waits("Initialized", "NodeNotFound", "Node not registered with cluster"),
            waits("Ready", "UnhealthyDependents", "Initialized=Unknown, Registered=Unknown"),
        ],
    });
    let status_path = format!("{CLAIMS}/{claim}/status");
    calls
        .patch::<IgnoredAny>(&status_path, PatchKind::Merge, &json!({"status": status}))
        .await
        .map(|_| ())
}

fn holds(kind: &str, at: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at,
    })
}

fn conditions(stage: Stage, at: &str) -> Vec<Value> {
    let mut all = vec![holds("Launched", at), holds("Registered", at)];
    if stage == Stage::Registered {
        for (kind, reason, message) in [
            ("Initialized", "NodeNotReady", "Node status is NotReady"),
            ("Ready", "UnhealthyDependents", "Initialized=Unknown"),
        ] {
            all.push(json!({
                "type": kind, "status": "Unknown", "reason": reason, "message": message,
                "lastTransitionTime": at,
            }));
        }
        return all;
    }
    all.extend(["Initialized", "Ready"].map(|kind| holds(kind, at)));
    if stage == Stage::Draining {
        all.push(json!({
            "type": "Drained", "status": "Unknown", "reason": "Draining", "message": "Draining",
            "lastTransitionTime": at,
        }));
    }
    all
}

/// The time of a condition moves with its status only.
fn keep_times(status: &mut Value, old: &Value) {
    let before = old.get("conditions").and_then(Value::as_array);
    let list = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in list.into_iter().flatten() {
        let same = before.into_iter().flatten().find(|other| {
            ["type", "status"]
                .iter()
                .all(|field| other.get(field) == condition.get(field))
        });
        if let (Some(at), Some(map)) = (
            same.and_then(|other| other.get("lastTransitionTime")),
            condition.as_object_mut(),
        ) {
            map.insert("lastTransitionTime".to_owned(), at.clone());
        }
    }
}

fn label<'a>(node: &'a Node, key: &str) -> &'a str {
    node.metadata.labels.get(key).map_or("", String::as_str)
}

fn requirement(node: &Node, key: &str) -> Value {
    json!({"key": key, "operator": "In", "values": [label(node, key)]})
}

fn node_class() -> Value {
    json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"})
}

const KEYS: [&str; 4] = [
    "karpenter.sh/capacity-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    POOL,
];

fn object(node: &Node, claim: &str) -> Value {
    let labels: BTreeMap<&str, &str> = KEYS.map(|key| (key, label(node, key))).into();
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": claim, "labels": labels, "finalizers": [TERMINATION]},
        "spec": {
            "expireAfter": "720h",
            "nodeClassRef": node_class(),
            "requirements": KEYS.map(|key| requirement(node, key)),
            "taints": node.spec.taints.iter().filter(|taint| {
                // Those of its pool, not those of its present state.
                taint.get("key").and_then(Value::as_str) == Some("nvidia.com/gpu")
            }).collect::<Vec<_>>(),
        },
    })
}

fn pool(node: &Node) -> Value {
    let [tier, instance, ..] = KEYS;
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": label(node, POOL)},
        "spec": {
            "disruption": {
                "consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m",
                "budgets": [{"nodes": "10%"}],
            },
            "template": {"spec": {
                "expireAfter": "720h",
                "nodeClassRef": node_class(),
                "requirements": [requirement(node, tier), requirement(node, instance)],
            }},
        },
    })
}

/// The two kinds as Karpenter installs them; schemas take any fields.
fn definitions() -> [Value; 2] {
    let definition = |kind: &str, plural: &str, columns: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.karpenter.sh")},
            "spec": {
                "group": "karpenter.sh",
                "scope": "Cluster",
                "names": {
                    "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                    "singular": kind.to_lowercase(), "categories": ["karpenter"],
                },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        })
    };
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let ready = column("Ready", ".status.conditions[?(@.type==\"Ready\")].status");
    [
        definition(
            "NodeClaim",
            "nodeclaims",
            json!([
                column(
                    "Type",
                    ".metadata.labels.node\\.kubernetes\\.io/instance-type"
                ),
                column("Capacity", ".metadata.labels.karpenter\\.sh/capacity-type"),
                column("Zone", ".metadata.labels.topology\\.kubernetes\\.io/zone"),
                column("Node", ".status.nodeName"),
                ready,
            ]),
        ),
        definition(
            "NodePool",
            "nodepools",
            json!([column("NodeClass", ".spec.template.spec.nodeClassRef.name")]),
        ),
    ]
}
