//! Kueue's topology-aware scheduling: a workload that asks for it is let go once its pods have seats
//! on nodes, which its admission names; each pod waits at a gate until it is told its node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::kueue::workload_key;
use super::kueue_actor::Kueue;
use super::kueue_quota::Assignment;
use super::kueue_status as status;
use super::placer::{Placer, asks};
use crate::sandbox::actors::bound::pod_path;
use crate::sandbox::actors::objects::{Custom, Node, Pod};
use crate::sandbox::actors::watch::Change;
use crate::sandbox::calls::PatchKind;

/// Scheduling gate of a pod that is not told its node yet.
pub(super) const GATE: &str = "kueue.x-k8s.io/topology";
/// Label that pods of a resumed Job have.
const POD_SET: &str = "kueue.x-k8s.io/podset";
/// The level that seats are on, the narrowest there is.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Annotations of a pod template: all pods in one domain of this level, if possible so, or anywhere.
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";

/// The `topologyRequest` of a pod set, from the annotations of its template.
pub(super) fn request(template: &Value) -> Option<Value> {
    let note = |key: &str| template.get("metadata")?.get("annotations")?.get(key);
    if let Some(level) = note(REQUIRED) {
        return Some(json!({"required": level}));
    }
    if let Some(level) = note(PREFERRED) {
        return Some(json!({"preferred": level}));
    }
    let anywhere = note(UNCONSTRAINED).and_then(Value::as_str) == Some("true");
    anywhere.then(|| json!({"unconstrained": true}))
}

/// Nodes with what is held of them, and who is to sit where.
#[derive(Debug, Default)]
pub(super) struct Seats {
    placer: Placer,
    /// Pods of resumed Jobs, by UID.
    members: BTreeMap<String, Arc<Pod>>,
    /// Seats of each workload that no pod has taken yet: what holds them, and the node.
    promised: BTreeMap<String, Vec<(String, String)>>,
    /// A workload waits for room.
    pub(super) wanted: bool,
}

impl Seats {
    pub(super) fn node_changed(&mut self, change: Change<Node>) {
        match change {
            Change::Set(node) => self.placer.node_set(node),
            Change::Gone(uid) => self.placer.node_gone(&uid),
            Change::Synced => {}
        }
    }

    /// Whether there may be something to do.
    pub(super) fn pod_changed(&mut self, change: &Change<Pod>) -> bool {
        match change {
            Change::Set(pod) => {
                self.placer.pod_set(pod);
                let member = pod.metadata.labels.contains_key(POD_SET);
                if member && pod.metadata.controller().is_some() {
                    self.members
                        .insert(pod.metadata.uid.clone(), Arc::clone(pod));
                }
                member || (self.wanted && pod.is_terminal())
            }
            Change::Gone(uid) => {
                self.placer.pod_gone(uid);
                self.members.remove(uid).is_some() || self.wanted
            }
            Change::Synced => false,
        }
    }

    /// Holds seats for a workload.
    pub(super) fn promise(&mut self, workload: &str, pod: &Pod, nodes: &[String]) {
        self.release(workload);
        let seats = nodes.iter().enumerate().map(|(number, node)| {
            let id = format!("{workload}/{number}");
            self.placer.hold(&id, node, asks(pod));
            (id, node.clone())
        });
        let seats = seats.collect();
        self.promised.insert(workload.to_owned(), seats);
    }

    /// A pod takes its seat.
    pub(super) fn take(&mut self, workload: &str, node: &str, pod: &Pod) {
        let seats = self.promised.get_mut(workload);
        if let Some(seats) = seats
            && let Some(at) = seats.iter().position(|(_, seat)| seat == node)
        {
            let (id, _) = seats.swap_remove(at);
            self.placer.pod_gone(&id);
        }
        self.placer.hold(&pod.metadata.uid, node, asks(pod));
    }

    fn release(&mut self, workload: &str) {
        for (id, _) in self.promised.remove(workload).unwrap_or_default() {
            self.placer.pod_gone(&id);
        }
    }

    /// Nodes for `count` pods like this one; else why not.
    fn find(
        &self,
        levels: &[String],
        request: &Value,
        pod: &Pod,
        count: usize,
    ) -> Result<Vec<String>, String> {
        let level = |field: &str| {
            let wanted = request.get(field).and_then(Value::as_str)?;
            levels.iter().position(|level| level == wanted)
        };
        let named = |field: &str| request.get(field).and_then(Value::as_str);
        let tries: Vec<Option<usize>> = match (level("required"), level("preferred")) {
            (Some(at), _) => vec![Some(at)],
            // Ever wider.
            (None, Some(at)) => (0..=at).rev().map(Some).chain([None]).collect(),
            (None, None) => match named("required").or(named("preferred")) {
                Some(level) => return Err(format!("no requested topology level: {level}")),
                None => vec![None],
            },
        };
        let fit = |count: usize| {
            let mut places = tries.iter().flat_map(|level| self.domains(levels, *level));
            places.find_map(|domain| self.place(pod, count, &domain))
        };
        fit(count).ok_or_else(
            || match (1..count).rev().find(|fewer| fit(*fewer).is_some()) {
                Some(fewer) => {
                    format!("topology \"default\" allows to fit only {fewer} out of {count} pod(s)")
                }
                None => {
                    format!("topology \"default\" doesn't allow to fit any of {count} pod(s)")
                }
            },
        )
    }

    /// The domains of a level as labels, the fullest first; all nodes for none.
    fn domains(&self, levels: &[String], level: Option<usize>) -> Vec<BTreeMap<String, String>> {
        let Some(level) = level else {
            return vec![BTreeMap::new()];
        };
        let mut free: BTreeMap<BTreeMap<String, String>, i128> = BTreeMap::new();
        for node in self.placer.all() {
            let labels = &node.metadata.labels;
            let path = levels.iter().take(level + 1);
            let path = path.map(|key| Some((key.clone(), labels.get(key)?.clone())));
            if let Some(domain) = path.collect::<Option<BTreeMap<String, String>>>() {
                *free.entry(domain).or_default() += self.placer.free_gpus(&node.metadata.name);
            }
        }
        let mut domains: Vec<_> = free.into_iter().collect();
        domains.sort_by_key(|(_, free)| *free);
        domains.into_iter().map(|(domain, _)| domain).collect()
    }

    fn place(
        &self,
        pod: &Pod,
        count: usize,
        domain: &BTreeMap<String, String>,
    ) -> Option<Vec<String>> {
        let mut pod = pod.clone();
        pod.spec.node_selector.extend(domain.clone());
        // They are alike, so one stands for all.
        let pod = Arc::new(pod);
        self.placer.place(&vec![pod; count]).ok()
    }
}

/// The `topologyAssignment` of pods on these nodes, in the compressed form of v1beta2.
pub(super) fn assignment(nodes: &[String]) -> Value {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for node in nodes {
        *counts.entry(node).or_default() += 1;
    }
    let names: Vec<&str> = counts.keys().copied().collect();
    let pods: Vec<i64> = counts.values().copied().collect();
    let values = match names.as_slice() {
        [one] => json!({"universal": one}),
        _ => {
            let prefix = common_prefix(&names);
            let roots = names.iter().map(|name| name.get(prefix.len()..));
            let mut values = json!({"roots": roots.collect::<Vec<_>>()});
            if let Some(map) = values.as_object_mut().filter(|_| !prefix.is_empty()) {
                map.insert("prefix".to_owned(), json!(prefix));
            }
            json!({"individual": values})
        }
    };
    let same = pods.iter().collect::<BTreeSet<_>>().len() == 1;
    let counts = match pods.first().filter(|_| same) {
        Some(each) => json!({"universal": each}),
        None => json!({"individual": pods}),
    };
    json!({
        "levels": [HOSTNAME],
        "slices": [{
            "domainCount": names.len(), "valuesPerLevel": [values], "podCounts": counts,
        }],
    })
}

fn common_prefix<'a>(names: &[&'a str]) -> &'a str {
    let Some((first, rest)) = names.split_first() else {
        return "";
    };
    let shared = |other: &&str| {
        let mut pairs = first.bytes().zip(other.bytes());
        let differ = pairs.position(|(a, b)| a != b);
        differ.unwrap_or(first.len().min(other.len()))
    };
    let length = rest.iter().map(shared).min().unwrap_or(first.len());
    // Names of nodes are ASCII; of others nothing is shared.
    first.get(..length).unwrap_or("")
}

/// Nodes and their pods, as an admission has them.
fn assigned(workload: &Custom) -> BTreeMap<String, i64> {
    let found = workload
        .status
        .pointer("/admission/podSetAssignments/0/topologyAssignment/slices");
    let mut all = BTreeMap::new();
    for slice in found.and_then(Value::as_array).into_iter().flatten() {
        let text = |pointer: &str| slice.pointer(pointer).and_then(Value::as_str);
        let list = |pointer: &str| {
            let list = slice.pointer(pointer).and_then(Value::as_array);
            list.map(Vec::as_slice).unwrap_or_default()
        };
        let prefix = text("/valuesPerLevel/0/individual/prefix").unwrap_or_default();
        let roots = list("/valuesPerLevel/0/individual/roots").iter();
        let roots = roots.filter_map(Value::as_str);
        let mut names: Vec<String> = roots.map(|root| format!("{prefix}{root}")).collect();
        names.extend(text("/valuesPerLevel/0/universal").map(str::to_owned));
        let each = slice
            .pointer("/podCounts/universal")
            .and_then(Value::as_i64);
        for (at, name) in names.into_iter().enumerate() {
            let own = list("/podCounts/individual")
                .get(at)
                .and_then(Value::as_i64);
            all.insert(name, own.or(each).unwrap_or(0));
        }
    }
    all
}

/// The node of a workload of one pod.
pub(super) fn only_node(workload: &Custom) -> Option<(String, String)> {
    let (node, _) = assigned(workload).pop_first()?;
    Some((HOSTNAME.to_owned(), node))
}

/// Whether pods of the workload wait for their nodes.
pub(super) fn is_assigned(workload: &Custom) -> bool {
    !assigned(workload).is_empty()
}

impl Kueue {
    /// A pod of the workload and the nodes that its pods get: none when it asks for no topology.
    ///
    /// # Errors
    /// There is no room, in Kueue's words.
    pub(super) fn seats_for(
        &self,
        object: &Custom,
        flavors: &Assignment,
    ) -> Result<Option<(Pod, Vec<String>)>, String> {
        let levels = &self.settings.topology;
        let set = object.spec.pointer("/podSets/0");
        let request = set.and_then(|set| set.get("topologyRequest"));
        let (Some(set), Some(request)) = (set, request) else {
            return Ok(None);
        };
        // Seats on nodes need nodes for a level.
        if levels.last().map(String::as_str) != Some(HOSTNAME) {
            return Ok(None);
        }
        let template = set.get("template").cloned().unwrap_or_default();
        let Ok(mut pod) = serde_json::from_value::<Pod>(template) else {
            return Ok(None);
        };
        pod.spec
            .node_selector
            .extend(self.settings.node_labels(flavors));
        let count = usize::try_from(status::pod_count(object)).unwrap_or(0);
        let found = self.seats.find(levels, request, &pod, count);
        found
            .map(|nodes| Some((pod, nodes)))
            .map_err(|why| format!("couldn't assign flavors to pod set main: {why}"))
    }

    /// Tells the pods of admitted Jobs their nodes.
    pub(super) async fn seat(&mut self) {
        let holds = |object: &Custom| {
            let is = |kind: &str| status::is_true(object, kind);
            is("Admitted") && !is("Finished") && !is("Evicted")
        };
        let promised: Vec<String> = self.seats.promised.keys().cloned().collect();
        for key in promised {
            if !self.workloads.get(&key).is_some_and(|object| holds(object)) {
                self.seats.release(&key);
            }
        }
        for job in self.jobs.values().cloned().collect::<Vec<_>>() {
            let key = workload_key("job", &job.metadata);
            let object = self.workloads.get(&key).filter(|object| holds(object));
            let Some(mut left) = object.map(|object| assigned(object)) else {
                continue;
            };
            let members = self.seats.members.values().filter(|pod| {
                let owner = pod.metadata.controller();
                owner.is_some_and(|owner| owner.uid == job.metadata.uid) && !pod.is_terminal()
            });
            let (mut waiting, told): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) =
                members.cloned().partition(|pod| is_gated(pod));
            for pod in told {
                let node = pod.spec.node_selector.get(HOSTNAME);
                if let Some(count) = node.and_then(|node| left.get_mut(node)) {
                    *count -= 1;
                }
            }
            waiting.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
            for pod in waiting {
                let Some((node, count)) = left.iter_mut().find(|(_, count)| **count > 0) else {
                    break;
                };
                *count -= 1;
                let node = node.clone();
                self.tell(&key, &pod, &node).await;
            }
        }
    }

    async fn tell(&mut self, workload: &str, pod: &Pod, node: &str) {
        let gates = pod.spec.scheduling_gates.iter();
        let gates = gates.filter(|gate| gate.name != GATE);
        let gates: Vec<Value> = gates.map(|gate| json!({"name": gate.name})).collect();
        let patch = json!({
            "metadata": {"uid": pod.metadata.uid},
            "spec": {"schedulingGates": gates, "nodeSelector": {HOSTNAME: node}},
        });
        let at = pod_path(pod);
        match self.calls.patch::<Pod>(&at, PatchKind::Merge, &patch).await {
            Ok(written) => {
                self.seats.take(workload, node, &written);
                let uid = written.metadata.uid.clone();
                self.seats.members.insert(uid, Arc::new(written));
            }
            Err(error) => {
                tracing::debug!(%error, "a pod was not told its node");
                self.dirty = true;
            }
        }
    }
}

fn is_gated(pod: &Pod) -> bool {
    let mut gates = pod.spec.scheduling_gates.iter();
    gates.any(|gate| gate.name == GATE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_assignment_is_read_as_it_was_written() {
        let workload = |nodes: &[&str]| {
            let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
            let assignment = assignment(&nodes);
            let status = json!({"admission": {"podSetAssignments": [
                {"name": "main", "topologyAssignment": assignment},
            ]}});
            serde_json::from_value::<Custom>(json!({"status": status})).unwrap()
        };
        let all = |nodes: &[&str]| {
            let assigned = assigned(&workload(nodes)).into_iter();
            assigned.collect::<Vec<(String, i64)>>()
        };
        let two = [("h100-001".to_owned(), 2), ("h100-002".to_owned(), 1)];
        assert_eq!(all(&["h100-001", "h100-002", "h100-001"]), two);
        assert_eq!(all(&["n"]), [("n".to_owned(), 1)]);
        let ends = [("a".to_owned(), 1), ("ab".to_owned(), 1)];
        assert_eq!(all(&["a", "ab"]), ends);
        let written = workload(&["h100-001", "h100-002"]).status;
        let slices = written
            .pointer("/admission/podSetAssignments/0/topologyAssignment/slices")
            .unwrap();
        assert_eq!(
            *slices,
            json!([{
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "h100-00", "roots": ["1", "2"]}}],
                "podCounts": {"universal": 1},
            }])
        );
    }
}
