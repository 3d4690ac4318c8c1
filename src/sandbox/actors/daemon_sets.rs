//! The DaemonSet controller: one pod for each node that the template's node selector takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agenda::Agenda;
use super::clock::Clock;
use super::objects::{DaemonSet, Node, Pod};
use super::watch::Change;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// Writes in flight at a time.
const IN_FLIGHT: usize = 32;
/// How long after a failed write it is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long changes are collected before the status of a DaemonSet is written.
const SETTLE: Duration = Duration::from_millis(100);

/// A DaemonSet on a node.
type Place = (String, String);

#[derive(Debug)]
struct Daemon {
    uid: String,
    name: String,
    leaving: bool,
    ended: bool,
    ready: bool,
}

/// The controller.
pub(super) struct DaemonSets {
    calls: Calls,
    clock: Clock,
    sets: BTreeMap<String, Arc<DaemonSet>>,
    nodes: BTreeMap<String, Arc<Node>>,
    node_names: BTreeMap<String, String>,
    /// Pods by DaemonSet's UID and node.
    pods: BTreeMap<Place, Vec<Daemon>>,
    places: BTreeMap<String, Place>,
    /// Creations that are under way or not seen yet.
    creating: BTreeSet<Place>,
    /// Pods made so far for each place, for their names.
    made: BTreeMap<Place, u32>,
    nodes_synced: bool,
    pods_synced: bool,
    agenda: Agenda,
    writes: JoinSet<(Write, Result<(), CallError>)>,
}

enum Write {
    Create(Place),
    Delete(Place),
    Status(String),
}

impl DaemonSets {
    /// A controller that writes through `calls`.
    pub(super) fn new(calls: Calls, clock: Clock) -> Self {
        Self {
            calls,
            clock,
            sets: BTreeMap::new(),
            nodes: BTreeMap::new(),
            node_names: BTreeMap::new(),
            pods: BTreeMap::new(),
            places: BTreeMap::new(),
            creating: BTreeSet::new(),
            made: BTreeMap::new(),
            nodes_synced: false,
            pods_synced: false,
            agenda: Agenda::default(),
            writes: JoinSet::new(),
        }
    }

    /// Works until `cancel` or the end of a feed.
    pub(super) async fn run(
        mut self,
        mut sets: mpsc::Receiver<Change<DaemonSet>>,
        mut nodes: mpsc::Receiver<Change<Node>>,
        mut pods: mpsc::Receiver<Change<Pod>>,
        cancel: CancellationToken,
    ) {
        loop {
            let room = self.writes.len() < IN_FLIGHT && self.nodes_synced && self.pods_synced;
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                Some(done) = self.writes.join_next(), if !self.writes.is_empty() => {
                    if let Ok((write, result)) = done {
                        self.written(write, result);
                    }
                }
                change = sets.recv() => match change {
                    Some(change) => self.set_changed(change),
                    None => return,
                },
                change = nodes.recv() => match change {
                    Some(change) => self.node_changed(change),
                    None => return,
                },
                change = pods.recv() => match change {
                    Some(change) => self.pod_changed(change),
                    None => return,
                },
                () = self.agenda.due(), if room => self.work(),
            }
        }
    }

    fn set_changed(&mut self, change: Change<DaemonSet>) {
        match change {
            Change::Set(set) => {
                let uid = set.metadata.uid.clone();
                let nodes: Vec<String> = self.nodes.keys().cloned().collect();
                self.sets.insert(uid.clone(), set);
                for node in nodes {
                    self.plan(&(uid.clone(), node), Instant::now());
                }
                self.plan_status(&uid);
            }
            // Its pods go with it, by their owner references.
            Change::Gone(uid) => {
                self.sets.remove(&uid);
            }
            Change::Synced => {}
        }
    }

    fn node_changed(&mut self, change: Change<Node>) {
        match change {
            Change::Set(node) => {
                let name = node.metadata.name.clone();
                self.node_names
                    .insert(node.metadata.uid.clone(), name.clone());
                let before = self.nodes.insert(name.clone(), Arc::clone(&node));
                if before.is_none_or(|before| before.metadata.labels != node.metadata.labels) {
                    self.plan_node(&name);
                }
            }
            Change::Gone(uid) => {
                if let Some(name) = self.node_names.remove(&uid) {
                    self.nodes.remove(&name);
                    self.plan_node(&name);
                }
            }
            Change::Synced => self.nodes_synced = true,
        }
    }

    fn plan_node(&mut self, node: &str) {
        let sets: Vec<String> = self.sets.keys().cloned().collect();
        for set in sets {
            self.plan(&(set.clone(), node.to_owned()), Instant::now());
            self.plan_status(&set);
        }
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        match change {
            Change::Set(pod) => {
                let owner = pod.metadata.controller();
                let Some(owner) = owner.filter(|owner| owner.kind == "DaemonSet") else {
                    return;
                };
                let place = (owner.uid.clone(), pod.spec.node_name.clone());
                let daemon = Daemon {
                    uid: pod.metadata.uid.clone(),
                    name: pod.metadata.name.clone(),
                    leaving: pod.metadata.deletion_timestamp.is_some(),
                    ended: pod.is_terminal(),
                    ready: pod.is_ready(),
                };
                self.creating.remove(&place);
                self.places.insert(daemon.uid.clone(), place.clone());
                let daemons = self.pods.entry(place.clone()).or_default();
                daemons.retain(|other| other.uid != daemon.uid);
                daemons.push(daemon);
                self.plan(&place, Instant::now());
                self.plan_status(&place.0);
            }
            Change::Gone(uid) => {
                let Some(place) = self.places.remove(&uid) else {
                    return;
                };
                if let Some(daemons) = self.pods.get_mut(&place) {
                    daemons.retain(|daemon| daemon.uid != uid);
                    if daemons.is_empty() {
                        self.pods.remove(&place);
                    }
                }
                self.plan(&place, Instant::now());
                self.plan_status(&place.0);
            }
            Change::Synced => self.pods_synced = true,
        }
    }

    fn plan(&mut self, (set, node): &Place, at: Instant) {
        self.agenda.at_latest(&format!("{set} {node}"), at);
    }

    fn plan_status(&mut self, set: &str) {
        self.agenda
            .at_latest(&format!("{set} "), Instant::now() + SETTLE);
    }

    fn work(&mut self) {
        while self.writes.len() < IN_FLIGHT {
            let Some(key) = self.agenda.pop(Instant::now()) else {
                return;
            };
            let Some((set, node)) = key.split_once(' ') else {
                continue;
            };
            if node.is_empty() {
                self.write_status(set);
            } else {
                self.sync(&(set.to_owned(), node.to_owned()));
            }
        }
    }

    fn wants(&self, set: &DaemonSet, node: &str) -> bool {
        let selector = set.spec.template.pointer("/spec/nodeSelector");
        let selector = selector.and_then(Value::as_object);
        self.nodes.get(node).is_some_and(|node| {
            let labels = &node.metadata.labels;
            let matches = |(name, value): (&String, &Value)| {
                labels.get(name).map(String::as_str) == value.as_str()
            };
            selector.is_none_or(|selector| selector.iter().all(matches))
        })
    }

    fn sync(&mut self, place: &Place) {
        let Some(set) = self.sets.get(&place.0).cloned() else {
            return;
        };
        let wanted = self.wants(&set, &place.1);
        let daemons = self.pods.get(place).map_or(&[][..], Vec::as_slice);
        let pods = path::pods(&set.metadata.namespace);
        let useless = daemons
            .iter()
            .find(|daemon| !daemon.leaving && (!wanted || daemon.ended));
        let calls = self.calls.clone();
        let work = place.clone();
        if let Some(daemon) = useless {
            let (at, uid) = (format!("{pods}/{}", daemon.name), daemon.uid.clone());
            self.writes.spawn(async move {
                let result = calls.delete(&at, &uid, None).await;
                (Write::Delete(work), result)
            });
        } else if wanted && daemons.is_empty() && self.creating.insert(place.clone()) {
            let made = self.made.entry(place.clone()).or_default();
            *made += 1;
            let key = format!("{}/{}/{made}", set.metadata.name, place.1);
            let pod = pod(&set, &place.1, &self.clock.suffix(&key));
            self.writes.spawn(async move {
                let result = calls.post::<IgnoredAny>(&pods, &pod).await;
                (Write::Create(work), result.map(|_| ()))
            });
        }
    }

    fn write_status(&mut self, uid: &str) {
        let Some(set) = self.sets.get(uid) else {
            return;
        };
        let wanted = self.nodes.keys().filter(|node| self.wants(set, node));
        let wanted = wanted.count();
        let of_set = self.pods.iter().filter(|((set, _), _)| set == uid);
        let daemons: Vec<&Daemon> = of_set.flat_map(|(_, daemons)| daemons).collect();
        let ready = daemons.iter().filter(|d| d.ready && !d.leaving).count();
        let status = json!({
            "currentNumberScheduled": daemons.len().min(wanted),
            "desiredNumberScheduled": wanted,
            "numberAvailable": ready,
            "numberMisscheduled": 0,
            "numberReady": ready,
            "numberUnavailable": wanted.saturating_sub(ready),
            "observedGeneration": set.metadata.generation,
            "updatedNumberScheduled": daemons.len().min(wanted),
        });
        let same = status.as_object().is_some_and(|fields| {
            fields
                .iter()
                .all(|(name, value)| set.status.get(name).unwrap_or(&json!(0)) == value)
        });
        if same {
            return;
        }
        let meta = &set.metadata;
        let collection = path::daemon_sets(&meta.namespace);
        let at = format!("{collection}/{}/status", meta.name);
        let (calls, uid) = (self.calls.clone(), uid.to_owned());
        self.writes.spawn(async move {
            let body = json!({"metadata": {"uid": uid}, "status": status});
            let result = calls
                .patch::<IgnoredAny>(&at, PatchKind::Merge, &body)
                .await;
            (Write::Status(uid), result.map(|_| ()))
        });
    }

    fn written(&mut self, write: Write, result: Result<(), CallError>) {
        let Err(error) = result else {
            return;
        };
        tracing::debug!(%error, "DaemonSet write failed");
        let at = Instant::now() + RETRY;
        match write {
            Write::Create(place) => {
                self.creating.remove(&place);
                self.plan(&place, at);
            }
            Write::Delete(place) => self.plan(&place, at),
            Write::Status(uid) => self.agenda.at_latest(&format!("{uid} "), at),
        }
    }
}

/// The pod of `set` on `node`.
fn pod(set: &DaemonSet, node: &str, suffix: &str) -> Value {
    let meta = &set.metadata;
    let mut pod = set.spec.template.clone();
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("nodeName".to_owned(), node.into());
        let terms = json!([{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]},
        ]}]);
        let affinity = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }});
        spec.insert("affinity".to_owned(), affinity);
        let given = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(tolerations) = given.as_array_mut() {
            // As the real controller adds them.
            for (key, effect) in [
                ("node.kubernetes.io/not-ready", "NoExecute"),
                ("node.kubernetes.io/unreachable", "NoExecute"),
                ("node.kubernetes.io/disk-pressure", "NoSchedule"),
                ("node.kubernetes.io/memory-pressure", "NoSchedule"),
                ("node.kubernetes.io/pid-pressure", "NoSchedule"),
                ("node.kubernetes.io/unschedulable", "NoSchedule"),
            ] {
                tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
            }
        }
    }
    let mut metadata = pod.get("metadata").cloned().unwrap_or_else(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("name".to_owned(), format!("{}-{suffix}", meta.name).into());
        metadata.insert("namespace".to_owned(), meta.namespace.clone().into());
        let owner = json!([{
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": meta.name,
            "uid": meta.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
        metadata.insert("ownerReferences".to_owned(), owner);
    }
    if let Some(pod) = pod.as_object_mut() {
        pod.insert("apiVersion".to_owned(), "v1".into());
        pod.insert("kind".to_owned(), "Pod".into());
        pod.insert("metadata".to_owned(), metadata);
        pod.insert("spec".to_owned(), spec);
    }
    pod
}
