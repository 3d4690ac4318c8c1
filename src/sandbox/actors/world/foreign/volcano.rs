//! Volcano's objects: Queue and PodGroup of scheduling.volcano.sh/v1beta1. Its Jobs are in
//! `volcano_jobs`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::definitions;
use super::standing::{HeldBack, Standing, quantities, since, text};
use crate::sandbox::actors::clock::{Clock, hash, rfc3339};
use crate::sandbox::actors::objects::{Custom, Pod};

pub(super) const POD_GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/podgroups";
pub(super) const QUEUES: &str = "/apis/scheduling.volcano.sh/v1beta1/queues";
pub(super) const GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";

/// A queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// Name.
    pub name: String,
    /// The queue above; `root` when empty.
    pub parent: String,
    /// Weight among its siblings.
    pub weight: u32,
    /// GPUs it should have.
    pub deserved_gpus: Option<u32>,
    /// GPUs it may hold at most.
    pub capability_gpus: Option<u32>,
}

/// Volcano as it is installed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Queues besides `root` and `default`, which are always there.
    pub queues: Vec<Queue>,
    /// Node labels that HyperNodes are made from, the widest level first; none when empty.
    pub topology: Vec<String>,
}

impl Settings {
    /// Definitions and queues to create, in order.
    pub(super) fn objects(&self) -> Vec<(String, Value)> {
        let queue = |name: &str, spec: Value| {
            let object = json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": spec,
            });
            (QUEUES.to_owned(), object)
        };
        let mut all = definitions::volcano();
        all.push(queue("root", json!({"weight": 1, "reclaimable": false})));
        let plain = json!({"weight": 1, "reclaimable": true, "parent": "root"});
        all.push(queue("default", plain));
        for settings in &self.queues {
            let parent = match settings.parent.as_str() {
                "" => "root",
                parent => parent,
            };
            let mut spec = json!({
                "weight": settings.weight.max(1),
                "reclaimable": true,
                "parent": parent,
            });
            let gpus = [
                ("deserved", settings.deserved_gpus),
                ("capability", settings.capability_gpus),
            ];
            for (field, count) in gpus {
                if let (Some(count), Some(map)) = (count, spec.as_object_mut()) {
                    let amount = json!({"nvidia.com/gpu": count.to_string()});
                    map.insert(field.to_owned(), amount);
                }
            }
            all.push(queue(&settings.name, spec));
        }
        all
    }
}

/// The group that Volcano's controller makes for a pod without one: its annotation, collection and
/// object.
pub(super) fn new_group(pod: &Pod) -> (&'static str, String, Value) {
    let meta = &pod.metadata;
    let owner = meta.controller();
    let uid = owner.map_or(&meta.uid, |owner| &owner.uid);
    let find = |keys: &[&str]| {
        let mut found = keys
            .iter()
            .filter_map(|key| meta.annotations.get(*key).or_else(|| meta.labels.get(*key)));
        found.next().cloned()
    };
    let min = find(&["scheduling.volcano.sh/group-min-member"]);
    let min: u64 = min.and_then(|text| text.parse().ok()).unwrap_or(1);
    let queue = find(&["volcano.sh/queue-name", "scheduling.volcano.sh/queue-name"]);
    let each = pod.requests_milli().into_iter();
    let least = each
        .map(|(name, milli)| (name, milli * i128::from(min)))
        .collect();
    let mut object = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": format!("podgroup-{uid}"), "namespace": meta.namespace},
        "spec": {
            "minMember": min,
            "queue": queue.unwrap_or_else(|| "default".to_owned()),
            "minResources": quantities(&least),
            "priorityClassName": pod.spec.priority_class_name,
        },
    });
    let reference = match owner {
        Some(owner) if owner.kind == "Job" => json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": owner.name, "uid": owner.uid,
            "controller": true, "blockOwnerDeletion": true,
        }]),
        Some(_) => Value::Null,
        None => json!([{
            "apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid,
            "controller": true, "blockOwnerDeletion": true,
        }]),
    };
    if let Some(map) = object
        .pointer_mut("/metadata")
        .and_then(Value::as_object_mut)
    {
        map.insert("ownerReferences".to_owned(), reference);
    }
    let collection = format!(
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups",
        meta.namespace
    );
    (GROUP_ANNOTATION, collection, object)
}

/// GPUs that a queue may hold at most.
pub(super) fn limit_gpus(queue: &Custom) -> Option<i128> {
    let amount = queue
        .spec
        .get("capability")?
        .get("nvidia.com/gpu")?
        .as_str()?;
    amount.parse().ok()
}

/// What holds a group back, in Volcano's words.
pub(super) fn words(why: &HeldBack) -> String {
    match why {
        HeldBack::TooFewPods => "pod group is not ready".to_owned(),
        HeldBack::OverLimit { .. } => {
            "queue resource quota insufficient: insufficient nvidia.com/gpu".to_owned()
        }
        HeldBack::NoRoom { nodes, reasons } => {
            format!("0/{nodes} nodes are unavailable: {}.", reasons.join(", "))
        }
    }
}

/// The status of a PodGroup.
pub(super) fn group_status(standing: &Standing, object: &Custom, clock: Clock) -> Value {
    let all = standing.bound + standing.waiting;
    let ended = standing.succeeded + standing.failed;
    let phase = match &standing.held_back {
        _ if all == 0 && ended > 0 => "Completed",
        _ if standing.running >= standing.min => "Running",
        Some(HeldBack::NoRoom { .. }) => "Inqueue",
        Some(_) => "Pending",
        None if standing.bound > 0 => "Inqueue",
        None => "Pending",
    };
    let mut condition = match &standing.held_back {
        Some(why) => {
            let reason = match why {
                HeldBack::TooFewPods => "NotEnoughTasks",
                _ => "NotEnoughResources",
            };
            let (waiting, min) = (standing.waiting, standing.min);
            json!({
                "type": "Unschedulable",
                "status": "True",
                "reason": reason,
                "message": format!(
                    "{waiting}/{all} tasks in gang unschedulable: pod group is not ready, {waiting} \
                     Pending, {min} minAvailable; Pending: {waiting} Unschedulable. Origin reason \
                     is {}",
                    words(why)
                ),
            })
        }
        None => json!({
            "type": "Scheduled",
            "status": "True",
            "reason": "tasks in gang are ready to be scheduled",
            "message": "",
        }),
    };
    let at = since(
        &object.status,
        "conditions",
        &condition,
        rfc3339(clock.now()),
    );
    let bits = hash(0, &format!("{}/{at}", object.metadata.uid));
    if let Some(map) = condition.as_object_mut() {
        map.insert("lastTransitionTime".to_owned(), json!(at));
        let id = format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            bits >> 32,
            (bits >> 16) & 0xffff,
            bits & 0xfff,
            (bits >> 20) & 0xfff,
            hash(1, &at) >> 16
        );
        map.insert("transitionID".to_owned(), json!(id));
    }
    let mut status = json!({"phase": phase});
    let counts = [
        ("running", standing.running),
        ("succeeded", standing.succeeded),
        ("failed", standing.failed),
    ];
    if let Some(map) = status.as_object_mut() {
        if all > 0 {
            map.insert("conditions".to_owned(), json!([condition]));
        }
        let counted = counts.into_iter().filter(|(_, count)| *count > 0);
        map.extend(counted.map(|(name, count)| (name.to_owned(), json!(count))));
    }
    status
}

/// The status of a Queue; the one above all holds what the others do.
pub(super) fn queue_status(queue: &Custom, standings: &BTreeMap<String, Vec<Standing>>) -> Value {
    let name = &queue.metadata.name;
    let of_queue = standings
        .iter()
        .filter(|(other, _)| *other == name || name == "root");
    let groups: Vec<&Standing> = of_queue.flat_map(|(_, groups)| groups).collect();
    let mut allocated: BTreeMap<String, i128> = BTreeMap::new();
    let (mut pending, mut inqueue, mut running) = (0, 0, 0);
    for group in &groups {
        for (resource, amount) in &group.allocated {
            *allocated.entry(resource.clone()).or_default() += amount;
        }
        if group.bound > 0 {
            *allocated.entry("pods".to_owned()).or_default() += group.bound as i128 * 1000;
        }
        match &group.held_back {
            _ if group.bound + group.waiting == 0 => {}
            _ if group.running >= group.min => running += 1,
            Some(HeldBack::NoRoom { .. }) => inqueue += 1,
            None if group.bound > 0 => inqueue += 1,
            _ => pending += 1,
        }
    }
    let state = match text(&queue.status, "state") {
        state if state.is_empty() => "Open".to_owned(),
        state => state,
    };
    let mut amounts = quantities(&allocated);
    if let Some(map) = amounts.as_object_mut() {
        for resource in ["cpu", "memory"] {
            map.entry(resource).or_insert_with(|| json!("0"));
        }
    }
    let mut status = json!({"state": state, "allocated": amounts, "reservation": {}});
    if let Some(map) = status.as_object_mut().filter(|_| name != "root") {
        let counts = [
            ("pending", pending),
            ("inqueue", inqueue),
            ("running", running),
        ];
        let counted = counts.into_iter().filter(|(_, count)| *count > 0);
        map.extend(counted.map(|(field, count)| (field.to_owned(), json!(count))));
    }
    status
}
