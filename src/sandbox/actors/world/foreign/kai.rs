//! KAI's objects: Queue of scheduling.run.ai/v2, PodGroup of v2alpha2, Topology of
//! kai.scheduler/v1alpha1.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::standing::{HeldBack, Standing, quantities, since, text};
use super::{definitions, kai_shares};
use crate::sandbox::actors::clock::{Clock, rfc3339};
use crate::sandbox::actors::objects::{Custom, Pod};
use crate::sandbox::calls::path;

pub(super) const POD_GROUPS: &str = "/apis/scheduling.run.ai/v2alpha2/podgroups";
pub(super) const QUEUES: &str = "/apis/scheduling.run.ai/v2/queues";
const TOPOLOGIES: &str = "/apis/kai.scheduler/v1alpha1/topologies";
pub(super) const GROUP_ANNOTATION: &str = "pod-group-name";
/// Priority classes below 100 can be preempted.
const PREEMPTIBLE: [&str; 3] = ["", "train", "build-preemptible"];

/// A queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// Name.
    pub name: String,
    /// The queue above; empty for none.
    pub parent: String,
    /// GPUs it may count on; -1 is without limit.
    pub quota_gpus: f64,
    /// GPUs it may hold at most; -1 is without limit.
    pub limit_gpus: f64,
    /// Weight for what is left over.
    pub over_quota_weight: f64,
    /// Priority among queues; 100 is KAI's default.
    pub priority: i64,
}

/// KAI as it is installed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Queues.
    pub queues: Vec<Queue>,
    /// Node labels of its Topology, the widest level first; none when empty.
    pub topology: Vec<String>,
}

impl Settings {
    /// Definitions, queues and the topology to create, in order.
    pub(super) fn objects(&self) -> Vec<(String, Value)> {
        let mut all = definitions::kai();
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kai_shares::NAMESPACE},
        });
        all.push((path::NAMESPACES.to_owned(), namespace));
        for queue in &self.queues {
            let unlimited = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
            let mut object = json!({
                "apiVersion": "scheduling.run.ai/v2",
                "kind": "Queue",
                "metadata": {"name": queue.name},
                "spec": {
                    "displayName": queue.name,
                    "priority": queue.priority,
                    "resources": {
                        "gpu": {
                            "quota": queue.quota_gpus,
                            "overQuotaWeight": queue.over_quota_weight,
                            "limit": queue.limit_gpus,
                        },
                        "cpu": unlimited,
                        "memory": unlimited,
                    },
                },
            });
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
                && !queue.parent.is_empty()
            {
                spec.insert("parentQueue".to_owned(), json!(queue.parent));
            }
            all.push((QUEUES.to_owned(), object));
        }
        if !self.topology.is_empty() {
            let levels: Vec<Value> = self
                .topology
                .iter()
                .map(|label| json!({"nodeLabel": label}))
                .collect();
            let object = json!({
                "apiVersion": "kai.scheduler/v1alpha1",
                "kind": "Topology",
                "metadata": {"name": "cluster-topology"},
                "spec": {"levels": levels},
            });
            all.push((TOPOLOGIES.to_owned(), object));
        }
        all
    }
}

/// The group that KAI's pod grouper makes for a pod: its annotation, collection and object.
pub(super) fn new_group(pod: &Pod) -> (&'static str, String, Value) {
    let meta = &pod.metadata;
    let owner = meta.controller();
    let (kind, name, uid) = owner.map_or(("Pod", &meta.name, &meta.uid), |owner| {
        (owner.kind.as_str(), &owner.name, &owner.uid)
    });
    let min = meta.annotations.get("kai.scheduler/batch-min-member");
    let min: u64 = min.and_then(|text| text.parse().ok()).unwrap_or(1);
    let queue = meta.labels.get("kai.scheduler/queue").cloned();
    let queue = queue.unwrap_or_else(|| "default".to_owned());
    let class = pod.spec.priority_class_name.as_str();
    let preemptible = PREEMPTIBLE.contains(&class);
    let api_version = match kind {
        "Job" => "batch/v1",
        "ReplicaSet" | "StatefulSet" => "apps/v1",
        _ => "v1",
    };
    let object = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": format!("pg-{name}-{uid}"),
            "namespace": meta.namespace,
            "labels": {"kai.scheduler/queue": queue},
            "annotations": {
                "kai.scheduler/top-owner-metadata":
                    json!({"name": name, "kind": kind}).to_string(),
            },
            "ownerReferences": [{
                "apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "queue": queue,
            "priorityClassName": if class.is_empty() { "train" } else { class },
            "markUnschedulable": true,
            "schedulingBackoff": 1,
            "minMember": min,
            "preemptibility": if preemptible { "preemptible" } else { "non-preemptible" },
        },
    });
    let collection = format!(
        "/apis/scheduling.run.ai/v2alpha2/namespaces/{}/podgroups",
        meta.namespace
    );
    (GROUP_ANNOTATION, collection, object)
}

/// GPUs that a queue may hold at most; `None` without limit.
pub(super) fn limit_gpus(queue: &Custom) -> Option<i128> {
    let limit = queue.spec.pointer("/resources/gpu/limit")?.as_f64()?;
    (limit >= 0.0).then_some(limit as i128)
}

/// What holds a group back, in KAI's words.
pub(super) fn words(why: &HeldBack, queue: &str) -> String {
    match why {
        HeldBack::TooFewPods => "Waiting for the pods of the group to be created".to_owned(),
        HeldBack::OverLimit {
            limit,
            allocated,
            requested,
        } => format!(
            "{queue} quota has reached the allowable limit of GPUs. Limit is {limit} GPUs, \
             currently {allocated} GPUs allocated and workload requested {requested} GPUs"
        ),
        HeldBack::NoRoom { reasons, .. } => {
            let parts: Vec<String> = reasons
                .iter()
                .map(
                    |reason| match reason.split_once(" Insufficient nvidia.com/gpu") {
                        Some((count, "")) => {
                            format!("{count} node(s) didn't have enough resources: GPUs")
                        }
                        _ => reason.clone(),
                    },
                )
                .collect();
            format!(
                "no nodes with enough resources were found: {}.",
                parts.join(", ")
            )
        }
    }
}

/// The status of a PodGroup.
pub(super) fn group_status(
    standing: &Standing,
    object: &Custom,
    queue: &str,
    clock: Clock,
) -> Value {
    let firm = text(&object.spec, "preemptibility") == "non-preemptible";
    let none = BTreeMap::new();
    let held = if firm { &standing.allocated } else { &none };
    let mut conditions = Vec::new();
    if let Some(why) = &standing.held_back {
        let message = words(why, queue);
        let reasons = match why {
            HeldBack::OverLimit {
                limit,
                allocated,
                requested,
            } => json!([{
                "reason": "OverLimit",
                "message": message,
                "details": {"queueDetails": {
                    "name": queue,
                    "queueAllocatedResources": {"nvidia.com/gpu": allocated.to_string()},
                    "queueResourceLimits": {"nvidia.com/gpu": limit.to_string()},
                    "podGroupRequestedResources": {"nvidia.com/gpu": requested.to_string()},
                }},
            }]),
            _ => json!([]),
        };
        let mut condition = json!({
            "type": "UnschedulableOnNodePool",
            "nodePool": "default",
            "reason": "Unschedulable",
            "message": message,
            "reasons": reasons,
            "status": "True",
            "transitionID": "1",
        });
        let now = rfc3339(clock.now());
        let at = since(&object.status, "schedulingConditions", &condition, now);
        if let Some(map) = condition.as_object_mut() {
            map.insert("lastTransitionTime".to_owned(), json!(at));
        }
        conditions.push(condition);
    }
    json!({
        "resourcesStatus": {
            "allocated": quantities(&standing.allocated),
            "allocatedNonPreemptible": quantities(held),
            "requested": quantities(&standing.requested),
        },
        "schedulingConditions": conditions,
    })
}

/// The status of a Queue: what it and those below it hold and ask for.
pub(super) fn queue_status(
    queue: &Custom,
    queues: &BTreeMap<String, Arc<Custom>>,
    standings: &BTreeMap<String, Vec<Standing>>,
) -> Value {
    let name = &queue.metadata.name;
    let parent_is = |other: &&Arc<Custom>, of: &str| text(&other.spec, "parentQueue") == of;
    let below = |of: &str| {
        let all = queues.values().filter(|other| parent_is(other, of));
        all.map(|other| other.metadata.name.clone())
            .collect::<Vec<_>>()
    };
    let children = below(name);
    let mut mine = vec![name.clone()];
    // Three levels are as deep as KAI's docs go; a loop ends with the queues there are.
    let mut at = 0;
    while let Some(next) = mine.get(at).cloned() {
        for child in below(&next) {
            if !mine.contains(&child) {
                mine.push(child);
            }
        }
        at += 1;
    }
    let (mut allocated, mut requested) = (BTreeMap::new(), BTreeMap::new());
    let groups = mine.iter().filter_map(|name| standings.get(name)).flatten();
    for group in groups {
        for (sums, amounts) in [
            (&mut allocated, &group.allocated),
            (&mut requested, &group.requested),
        ] {
            for (resource, amount) in amounts {
                *sums.entry(resource.clone()).or_default() += amount;
            }
        }
    }
    json!({
        "childQueues": children,
        "allocated": quantities(&allocated),
        "allocatedNonPreemptible": {},
        "requested": quantities(&requested),
    })
}
