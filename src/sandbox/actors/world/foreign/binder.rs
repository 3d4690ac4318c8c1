//! A scheduler of groups that binds the pods of its name: Volcano, KAI, or the default one without
//! groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::kai_shares::{self, Shares};
use super::placer::Placer;
use super::standing::{HeldBack, Standing, text};
use super::volcano_nodes::HyperNodes;
use super::{ensure_all, kai, volcano};
use crate::sandbox::actors::bound::{pod_note, pod_path};
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::objects::{Custom, Node, Pod};
use crate::sandbox::actors::watch::Change;
use crate::sandbox::calls::{Calls, PatchKind};

/// Time between two rounds, in seconds of the actors' time, and the shortest real one.
const ROUND_SECS: f64 = 1.0;
const MIN_ROUND: Duration = Duration::from_millis(100);

/// Which scheduler this is.
#[derive(Debug, Clone)]
pub(super) enum System {
    Volcano(volcano::Settings),
    Kai(kai::Settings),
    Default,
}

impl System {
    /// Collections of its groups and queues.
    pub(super) fn paths(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Volcano(_) => Some((volcano::POD_GROUPS, volcano::QUEUES)),
            Self::Kai(_) => Some((kai::POD_GROUPS, kai::QUEUES)),
            Self::Default => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Volcano(_) => "volcano",
            Self::Kai(_) => "kai-scheduler",
            Self::Default => "default-scheduler",
        }
    }

    fn objects(&self) -> Vec<(String, Value)> {
        match self {
            Self::Volcano(settings) => settings.objects(),
            Self::Kai(settings) => settings.objects(),
            Self::Default => Vec::new(),
        }
    }

    /// The group that the pod names; `None` when it names none.
    fn group_of(&self, pod: &Pod) -> Option<String> {
        let key = match self {
            Self::Volcano(_) => volcano::GROUP_ANNOTATION,
            Self::Kai(_) => kai::GROUP_ANNOTATION,
            Self::Default => return Some(pod.metadata.name.clone()),
        };
        pod.metadata.annotations.get(key).cloned()
    }

    /// A group for a pod that names none: its annotation, collection and object.
    fn new_group(&self, pod: &Pod) -> Option<(&'static str, String, Value)> {
        match self {
            Self::Volcano(_) => Some(volcano::new_group(pod)),
            Self::Kai(_) => Some(kai::new_group(pod)),
            Self::Default => None,
        }
    }
}

/// What the scheduler watches.
pub(super) struct Inputs {
    pub nodes: mpsc::Receiver<Change<Node>>,
    pub pods: mpsc::Receiver<Change<Pod>>,
    pub groups: Option<mpsc::Receiver<Change<Custom>>>,
    pub queues: Option<mpsc::Receiver<Change<Custom>>>,
}

#[derive(Default)]
struct Group {
    object: Option<Arc<Custom>>,
    pods: BTreeMap<String, Arc<Pod>>,
    held_back: Option<HeldBack>,
}

pub(super) struct Binder {
    pub(super) calls: Calls,
    clock: Clock,
    pub(super) system: System,
    pub(super) placer: Placer,
    /// Under KAI.
    pub(super) shares: Shares,
    /// By `namespace/name`.
    groups: BTreeMap<String, Group>,
    group_of_pod: BTreeMap<String, String>,
    ungrouped: BTreeMap<String, Arc<Pod>>,
    /// By name.
    queues: BTreeMap<String, Arc<Custom>>,
    /// Under Volcano.
    hyper_nodes: HyperNodes,
    /// Nodes came, changed or went since the HyperNodes were written.
    nodes_changed: bool,
    dirty: bool,
}

/// Works until `cancel` or the end of a feed.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    system: System,
    mut inputs: Inputs,
    cancel: CancellationToken,
) {
    tokio::select! {
        biased;
        () = cancel.cancelled() => return,
        () = ensure_all(&calls, system.objects()) => {}
    }
    let mut binder = Binder {
        calls,
        clock,
        system,
        placer: Placer::default(),
        shares: Shares::default(),
        groups: BTreeMap::new(),
        group_of_pod: BTreeMap::new(),
        ungrouped: BTreeMap::new(),
        queues: BTreeMap::new(),
        hyper_nodes: HyperNodes::default(),
        nodes_changed: true,
        dirty: true,
    };
    let mut round = tokio::time::interval(binder.clock.real(ROUND_SECS).max(MIN_ROUND));
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut synced = [false, false];
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = inputs.nodes.recv() => match change {
                Some(Change::Set(node)) => {
                    binder.nodes_changed = true;
                    binder.placer.node_set(node);
                }
                Some(Change::Gone(uid)) => {
                    binder.nodes_changed = true;
                    binder.placer.node_gone(&uid);
                }
                Some(Change::Synced) => synced[0] = true,
                None => return,
            },
            change = inputs.pods.recv() => match change {
                Some(Change::Set(pod)) => binder.pod_set(&pod),
                Some(Change::Gone(uid)) => binder.pod_gone(&uid),
                Some(Change::Synced) => synced[1] = true,
                None => return,
            },
            change = receive(&mut inputs.groups) => match change {
                Some(change) => binder.group_changed(change),
                None => return,
            },
            change = receive(&mut inputs.queues) => match change {
                Some(change) => binder.queue_changed(change),
                None => return,
            },
            _ = round.tick(), if synced == [true, true] => {
                if binder.nodes_changed {
                    tokio::select! {
                        biased;
                        () = cancel.cancelled() => return,
                        () = binder.tell_network() => {}
                    }
                }
                if std::mem::take(&mut binder.dirty) || !binder.all_bound() {
                    tokio::select! {
                        biased;
                        () = cancel.cancelled() => return,
                        () = binder.round() => {}
                    }
                }
            }
        }
    }
}

async fn receive(feed: &mut Option<mpsc::Receiver<Change<Custom>>>) -> Option<Change<Custom>> {
    match feed {
        Some(feed) => feed.recv().await,
        None => std::future::pending().await,
    }
}

impl Binder {
    fn pod_set(&mut self, pod: &Arc<Pod>) {
        self.placer.pod_set(pod);
        if matches!(self.system, System::Kai(_)) {
            self.shares.pod_set(pod);
        }
        if pod.spec.scheduler_name != self.system.name() {
            return;
        }
        self.dirty = true;
        let meta = &pod.metadata;
        match self.system.group_of(pod) {
            Some(group) => {
                self.ungrouped.remove(&meta.uid);
                let key = format!("{}/{group}", meta.namespace);
                self.group_of_pod.insert(meta.uid.clone(), key.clone());
                let group = self.groups.entry(key).or_default();
                group.pods.insert(meta.uid.clone(), Arc::clone(pod));
            }
            None => {
                self.ungrouped.insert(meta.uid.clone(), Arc::clone(pod));
            }
        }
    }

    fn pod_gone(&mut self, uid: &str) {
        self.placer.pod_gone(uid);
        self.shares.pod_gone(uid);
        self.ungrouped.remove(uid);
        let Some(key) = self.group_of_pod.remove(uid) else {
            return;
        };
        self.dirty = true;
        if let Some(group) = self.groups.get_mut(&key) {
            group.pods.remove(uid);
            if group.pods.is_empty() && group.object.is_none() {
                self.groups.remove(&key);
            }
        }
    }

    fn group_changed(&mut self, change: Change<Custom>) {
        match change {
            Change::Set(object) => {
                let key = format!("{}/{}", object.metadata.namespace, object.metadata.name);
                self.groups.entry(key).or_default().object = Some(object);
                self.dirty = true;
            }
            Change::Gone(uid) => {
                let is = |group: &Group| {
                    let object = group.object.as_ref();
                    object.is_some_and(|object| object.metadata.uid == uid)
                };
                for group in self.groups.values_mut().filter(|group| is(group)) {
                    group.object = None;
                }
                self.groups
                    .retain(|_, group| group.object.is_some() || !group.pods.is_empty());
            }
            Change::Synced => {}
        }
    }

    fn queue_changed(&mut self, change: Change<Custom>) {
        match change {
            Change::Set(queue) => {
                self.dirty |= self
                    .queues
                    .insert(queue.metadata.name.clone(), Arc::clone(&queue))
                    .is_none_or(|before| before.spec != queue.spec);
            }
            Change::Gone(uid) => self.queues.retain(|_, queue| queue.metadata.uid != uid),
            Change::Synced => {}
        }
    }

    fn all_bound(&self) -> bool {
        let waits = |group: &Group| group.pods.values().any(|pod| is_waiting(pod));
        !self.groups.values().any(waits)
    }

    /// Under Volcano: brings the HyperNodes to what the nodes say.
    async fn tell_network(&mut self) {
        self.nodes_changed = false;
        let System::Volcano(settings) = &self.system else {
            return;
        };
        let nodes = self.placer.all();
        let told = self
            .hyper_nodes
            .follow(&self.calls, &settings.topology, nodes);
        if let Err(error) = told.await {
            tracing::debug!(%error, "HyperNodes not written");
            self.nodes_changed = true;
        }
    }

    async fn round(&mut self) {
        self.make_groups().await;
        self.free_shares().await;
        let mut keys: Vec<(Option<String>, String)> = self
            .groups
            .iter()
            .map(|(key, group)| {
                let age = group
                    .pods
                    .values()
                    .filter_map(|p| p.metadata.creation_timestamp.clone());
                (age.min(), key.clone())
            })
            .collect();
        keys.sort();
        for (_, key) in &keys {
            self.schedule(key).await;
        }
        let mut standings: BTreeMap<String, Vec<Standing>> = BTreeMap::new();
        for (_, key) in &keys {
            let Some(standing) = self.groups.get(key).map(standing) else {
                continue;
            };
            let Some(object) = self.groups.get(key).and_then(|group| group.object.clone()) else {
                continue;
            };
            let queue = text(&object.spec, "queue");
            let status = match &self.system {
                System::Volcano(_) => volcano::group_status(&standing, &object, self.clock),
                System::Kai(_) => kai::group_status(&standing, &object, &queue, self.clock),
                System::Default => continue,
            };
            self.write_status(&object, &status).await;
            standings.entry(queue).or_default().push(standing);
        }
        for queue in self.queues.values().cloned().collect::<Vec<_>>() {
            let status = match &self.system {
                System::Volcano(_) => volcano::queue_status(&queue, &standings),
                System::Kai(_) => kai::queue_status(&queue, &self.queues, &standings),
                System::Default => continue,
            };
            self.write_status(&queue, &status).await;
        }
    }

    /// Groups for pods that name none, as each system's controller makes them.
    async fn make_groups(&mut self) {
        for pod in self.ungrouped.values().cloned().collect::<Vec<_>>() {
            if pod.is_terminal() || pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let Some((annotation, collection, object)) = self.system.new_group(&pod) else {
                continue;
            };
            if let Err(error) = self.calls.ensure(&collection, &object).await {
                tracing::debug!(%error, "pod group not created");
                continue;
            }
            let name = object
                .pointer("/metadata/name")
                .cloned()
                .unwrap_or_default();
            let patch = json!({"metadata": {
                "uid": pod.metadata.uid,
                "annotations": {annotation: name},
            }});
            let at = pod_path(&pod);
            if let Err(error) = self
                .calls
                .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
                .await
            {
                tracing::debug!(%error, "pod not put into its group");
            }
        }
    }

    /// Binds what may be bound of a group, and says what holds the rest back.
    async fn schedule(&mut self, key: &str) {
        let Some(group) = self.groups.get(key) else {
            return;
        };
        let mut waiting: Vec<Arc<Pod>> = group
            .pods
            .values()
            .filter(|pod| is_waiting(pod))
            .cloned()
            .collect();
        if waiting.is_empty() {
            if let Some(group) = self.groups.get_mut(key) {
                group.held_back = None;
            }
            return;
        }
        waiting.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let now = standing(group);
        let grouped = !matches!(self.system, System::Default);
        if grouped && group.object.is_none() {
            return;
        }
        let short = now.min.saturating_sub(now.bound);
        let verdict = if waiting.len() < short {
            Err(HeldBack::TooFewPods)
        } else {
            self.within_limit(group, &waiting)
        };
        let held_back = match verdict {
            Err(why) => Some(why),
            Ok(()) => {
                let rest = waiting.split_off(short);
                let mut why = self.bind_all(&waiting).await;
                if why.is_none() {
                    for pod in rest {
                        why = self.bind_all(&[pod]).await.or(why);
                    }
                }
                why
            }
        };
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let news = held_back.is_some() && group.held_back != held_back;
        group.held_back.clone_from(&held_back);
        if let (true, Some(why)) = (news, held_back) {
            let pod = group.pods.values().find(|pod| is_waiting(pod)).cloned();
            if let Some(pod) = pod {
                let (warning, message) = match &self.system {
                    System::Kai(_) => (true, kai::words(&why, &text_of_queue(group))),
                    _ => (true, volcano::words(&why)),
                };
                let reason = match self.system {
                    System::Kai(_) => "Unschedulable",
                    _ => "FailedScheduling",
                };
                pod_note(&pod, self.system.name(), (warning, reason), message)
                    .write(&self.calls)
                    .await;
            }
        }
    }

    /// Whether the queue may hold the waiting pods too.
    fn within_limit(&self, group: &Group, waiting: &[Arc<Pod>]) -> Result<(), HeldBack> {
        let Some(object) = &group.object else {
            return Ok(());
        };
        let name = text(&object.spec, "queue");
        let Some(queue) = self.queues.get(&name) else {
            return Ok(());
        };
        let limit = match &self.system {
            System::Volcano(_) => volcano::limit_gpus(queue),
            System::Kai(_) => kai::limit_gpus(queue),
            System::Default => None,
        };
        let Some(limit) = limit else {
            return Ok(());
        };
        const GPU: &str = "nvidia.com/gpu";
        let gpus = |pod: &Arc<Pod>| pod.requests_milli().get(GPU).copied().unwrap_or(0) / 1000;
        let of_queue = self
            .groups
            .values()
            .filter(|other| text_of_queue(other) == name);
        let holding = of_queue.flat_map(|other| other.pods.values());
        let holding = holding.filter(|pod| !pod.spec.node_name.is_empty() && !pod.is_terminal());
        let allocated: i128 = holding.map(gpus).sum();
        let requested: i128 = waiting.iter().map(gpus).sum();
        if allocated + requested > limit {
            return Err(HeldBack::OverLimit {
                limit,
                allocated,
                requested,
            });
        }
        Ok(())
    }

    /// Writes a status that differs from what is there.
    async fn write_status(&self, object: &Custom, status: &Value) {
        if object.status == *status {
            return;
        }
        let Some((groups, queues)) = self.system.paths() else {
            return;
        };
        let meta = &object.metadata;
        let at = if meta.namespace.is_empty() {
            format!("{queues}/{}/status", meta.name)
        } else {
            let Some((group, plural)) = groups.rsplit_once('/') else {
                return;
            };
            format!(
                "{group}/namespaces/{}/{plural}/{}/status",
                meta.namespace, meta.name
            )
        };
        // Members that are gone are named, or a merge would leave them.
        let mut merged = status.clone();
        if let (Some(new), Some(old)) = (merged.as_object_mut(), object.status.as_object()) {
            for key in old.keys() {
                new.entry(key.clone()).or_insert(Value::Null);
            }
        }
        let body = json!({"metadata": {"uid": meta.uid}, "status": merged});
        if let Err(error) = self
            .calls
            .patch::<IgnoredAny>(&at, PatchKind::Merge, &body)
            .await
        {
            tracing::debug!(%error, "status of a foreign scheduler not written");
        }
    }
}

fn is_waiting(pod: &Pod) -> bool {
    pod.spec.node_name.is_empty()
        && pod.spec.scheduling_gates.is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && !pod.is_terminal()
}

fn text_of_queue(group: &Group) -> String {
    let spec = group.object.as_ref().map(|object| &object.spec);
    spec.map(|spec| text(spec, "queue")).unwrap_or_default()
}

fn standing(group: &Group) -> Standing {
    let min = group
        .object
        .as_ref()
        .and_then(|object| object.spec.get("minMember"));
    let mut all = Standing {
        min: min
            .and_then(Value::as_u64)
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(1),
        held_back: group.held_back.clone(),
        ..Standing::default()
    };
    for pod in group.pods.values() {
        match pod.status.phase.as_str() {
            "Succeeded" => all.succeeded += 1,
            "Failed" => all.failed += 1,
            phase => {
                let bound = !pod.spec.node_name.is_empty();
                all.bound += usize::from(bound);
                all.running += usize::from(phase == "Running");
                all.waiting += usize::from(!bound);
                let mut amounts = pod.requests_milli();
                if let Some(part) = kai_shares::fraction(pod) {
                    *amounts.entry("nvidia.com/gpu".to_owned()).or_default() += part;
                }
                for (name, amount) in amounts {
                    if bound {
                        *all.allocated.entry(name.clone()).or_default() += amount;
                    }
                    *all.requested.entry(name).or_default() += amount;
                }
            }
        }
    }
    all
}
