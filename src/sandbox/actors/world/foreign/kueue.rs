//! Kueue: Jobs and gated pods with a queue name get a Workload, wait for quota, and run once they
//! are admitted. Objects are of kueue.x-k8s.io/v1beta2.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::definitions;
use super::kueue_quota::Assignment;
use super::kueue_topology;
use crate::sandbox::actors::clock::{hash, name_suffix};
use crate::sandbox::actors::objects::Meta;
use crate::sandbox::calls::path;

pub(super) const CLUSTER_QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
pub(super) const LOCAL_QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/localqueues";
pub(super) const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/workloads";
pub(super) const PRIORITY_CLASSES: &str = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses";
const FLAVORS: &str = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors";
const TOPOLOGIES: &str = "/apis/kueue.x-k8s.io/v1beta2/topologies";
pub(super) const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// Label with the queue that a Job or pod wants.
pub(super) const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// Label with the WorkloadPriorityClass of a Job or pod.
pub(super) const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";
/// Scheduling gate of a plain pod that waits.
pub(super) const GATE: &str = "kueue.x-k8s.io/admission";

/// Kueue as it is installed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Flavors of capacity.
    pub flavors: Vec<Flavor>,
    /// ClusterQueues.
    pub cluster_queues: Vec<ClusterQueue>,
    /// LocalQueues.
    pub local_queues: Vec<LocalQueue>,
    /// WorkloadPriorityClasses: names with their values.
    pub priorities: Vec<(String, i64)>,
    /// Node labels of the Topology `default`, the widest level first; none when empty. Workloads that
    /// ask for a topology are given nodes when the last is `kubernetes.io/hostname`.
    pub topology: Vec<String>,
}

/// A ResourceFlavor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flavor {
    /// Name.
    pub name: String,
    /// Labels of its nodes.
    pub node_labels: BTreeMap<String, String>,
}

/// A ClusterQueue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterQueue {
    /// Name.
    pub name: String,
    /// The cohort it borrows from and lends to; empty for none.
    pub cohort: String,
    /// `true`: the first in line holds back all others (StrictFIFO).
    pub strict: bool,
    /// GPUs in each flavor, the preferred first.
    pub gpus: Vec<GpuQuota>,
    /// `withinClusterQueue`: whom of its own it stops for a workload; `Never` when empty.
    pub preempts: String,
    /// `reclaimWithinCohort`: whom of those that borrow from it; `Never` when empty.
    pub reclaims: String,
}

/// GPUs of one flavor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuQuota {
    /// The flavor's name.
    pub flavor: String,
    /// Its own GPUs.
    pub nominal: u32,
    /// GPUs it may borrow at most; `None`: all that the cohort lends.
    pub borrowing: Option<u32>,
}

/// A LocalQueue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalQueue {
    /// Namespace.
    pub namespace: String,
    /// Name, as the label of Jobs says it.
    pub name: String,
    /// The ClusterQueue behind it.
    pub cluster_queue: String,
}

impl Settings {
    pub(super) fn objects(&self) -> Vec<(String, Value)> {
        let mut all = definitions::kueue();
        let object = |kind: &str, name: &str, spec: Value| {
            json!({
                "apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec,
            })
        };
        if !self.topology.is_empty() {
            let levels = self
                .topology
                .iter()
                .map(|label| json!({"nodeLabel": label}));
            let spec = json!({"levels": levels.collect::<Vec<_>>()});
            all.push((TOPOLOGIES.to_owned(), object("Topology", "default", spec)));
        }
        for (name, value) in &self.priorities {
            let class = json!({
                "apiVersion": API_VERSION,
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": "",
            });
            all.push((PRIORITY_CLASSES.to_owned(), class));
        }
        for flavor in &self.flavors {
            let mut spec = json!({"nodeLabels": flavor.node_labels});
            if let Some(map) = spec.as_object_mut().filter(|_| !self.topology.is_empty()) {
                map.insert("topologyName".to_owned(), json!("default"));
            }
            all.push((
                FLAVORS.to_owned(),
                object("ResourceFlavor", &flavor.name, spec),
            ));
        }
        for queue in &self.cluster_queues {
            let flavors = queue.gpus.iter().map(|gpus| {
                let mut quota = json!({
                    "name": "nvidia.com/gpu",
                    "nominalQuota": gpus.nominal.to_string(),
                });
                if let (Some(limit), Some(map)) = (gpus.borrowing, quota.as_object_mut()) {
                    map.insert("borrowingLimit".to_owned(), json!(limit.to_string()));
                }
                json!({"name": gpus.flavor, "resources": [quota]})
            });
            let mut spec = json!({
                "queueingStrategy": if queue.strict { "StrictFIFO" } else { "BestEffortFIFO" },
                "namespaceSelector": {},
                "stopPolicy": "None",
                "flavorFungibility": {
                    "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor",
                },
                "preemption": {
                    "reclaimWithinCohort": or_never(&queue.reclaims),
                    "borrowWithinCohort": {"policy": "Never"},
                    "withinClusterQueue": or_never(&queue.preempts),
                },
                "resourceGroups": [{
                    "coveredResources": ["nvidia.com/gpu"],
                    "flavors": flavors.collect::<Vec<_>>(),
                }],
            });
            if let Some(map) = spec.as_object_mut().filter(|_| !queue.cohort.is_empty()) {
                map.insert("cohortName".to_owned(), json!(queue.cohort));
            }
            all.push((
                CLUSTER_QUEUES.to_owned(),
                object("ClusterQueue", &queue.name, spec),
            ));
        }
        for queue in &self.local_queues {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": queue.namespace},
            });
            all.push((path::NAMESPACES.to_owned(), namespace));
            let spec = json!({"clusterQueue": queue.cluster_queue, "stopPolicy": "None"});
            let mut object = object("LocalQueue", &queue.name, spec);
            if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.insert("namespace".to_owned(), json!(queue.namespace));
            }
            all.push((namespaced("localqueues", &queue.namespace), object));
        }
        all
    }

    /// Labels that a pod's node must have under these flavors.
    pub(super) fn node_labels(&self, assignment: &Assignment) -> BTreeMap<String, String> {
        let names: BTreeSet<&String> = assignment.values().collect();
        let flavors = self
            .flavors
            .iter()
            .filter(|flavor| names.contains(&flavor.name));
        flavors
            .flat_map(|flavor| flavor.node_labels.clone())
            .collect()
    }
}

fn or_never(policy: &str) -> &str {
    if policy.is_empty() { "Never" } else { policy }
}

pub(super) fn namespaced(plural: &str, namespace: &str) -> String {
    format!("/apis/{API_VERSION}/namespaces/{namespace}/{plural}")
}

/// Kueue's name for the workload of an owner: kind, name and a short hash.
fn workload_name(kind: &str, owner: &Meta) -> String {
    let suffix = name_suffix(hash(0, &owner.uid));
    let base: String = owner.name.chars().take(57 - kind.len()).collect();
    format!("{kind}-{base}-{suffix}")
}

pub(super) fn workload_key(kind: &str, owner: &Meta) -> String {
    format!("{}/{}", owner.namespace, workload_name(kind, owner))
}

/// A workload's priority and the class that gives it.
#[derive(Debug)]
pub(super) struct Priority {
    pub value: i64,
    /// `spec.priorityClassRef`.
    pub class: Value,
}

pub(super) fn workload(
    prefix: &str,
    owner: &Meta,
    (api_version, kind): (&str, &str),
    count: i64,
    template: &Value,
    priority: Option<Priority>,
) -> Value {
    let label = |key: &str| owner.labels.get(key).cloned().unwrap_or_default();
    let mut workload = json!({
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(prefix, owner),
            "namespace": owner.namespace,
            "labels": {"kueue.x-k8s.io/job-uid": owner.uid},
            "ownerReferences": [{
                "apiVersion": api_version, "kind": kind, "name": owner.name, "uid": owner.uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "podSets": [{"name": "main", "count": count, "template": template}],
            "queueName": label(QUEUE_LABEL),
            "active": true,
            "priority": priority.as_ref().map_or(0, |priority| priority.value),
        },
    });
    let set = workload.pointer_mut("/spec/podSets/0");
    if let (Some(set), Some(request)) = (
        set.and_then(Value::as_object_mut),
        kueue_topology::request(template),
    ) {
        set.insert("topologyRequest".to_owned(), request);
    }
    let spec = workload.get_mut("spec").and_then(Value::as_object_mut);
    if let (Some(spec), Some(priority)) = (spec, priority) {
        spec.insert("priorityClassRef".to_owned(), priority.class);
    }
    workload
}
