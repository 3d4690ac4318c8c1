//! The kubelets of all nodes in one task: bound pods start, run, end and are deleted with grace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::{self, Rejection};
use super::agenda::Agenda;
use super::clock::{Clock, rfc3339, secs_since};
use super::events::Note;
use super::gpu::{Asks, Hardware};
use super::objects::{Node, Pod};
use super::pod_status::PodFacts;
use super::watch::Change;
use super::world::training::annotation::TRAIN_SECS;
use super::{Manage, annotation};
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// Status writes and deletes in flight at a time.
const IN_FLIGHT: usize = 64;
/// How long after a failed write the kubelet tries again.
const RETRY: Duration = Duration::from_secs(1);
/// The longest grace a pod uses, whatever it asks for, in seconds of the actors' time.
const MAX_GRACE_SECS: f64 = 2.0;
/// Run time of a Job's pod that says nothing about it, in seconds.
const JOB_RUN_SECS: (f64, f64) = (120.0, 900.0);
/// Time from binding to running, in seconds.
const START_SECS: (f64, f64) = (0.5, 2.5);

/// Where a pod is in its life, as this kubelet knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    Ended,
}

/// What is to be done next with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Start,
    End,
    Delete,
}

#[derive(Debug)]
struct PodRecord {
    namespace: String,
    name: String,
    node: String,
    asks: BTreeMap<String, i128>,
    /// What of it are devices, by container.
    devices: Asks,
    facts: PodFacts,
    stage: Stage,
    run_secs: Option<f64>,
    exit_code: i64,
    /// When deletion was seen to have begun, and the grace in seconds.
    deleting: Option<(Instant, f64)>,
    /// When the pod was first seen bound.
    seen: Instant,
    /// Its requests count as used on its node.
    admitted: bool,
    in_flight: bool,
    /// Not before this moment, after a failed write.
    not_before: Option<Instant>,
}

#[derive(Debug, Default)]
struct NodeRecord {
    allocatable: BTreeMap<String, i128>,
    used: BTreeMap<String, i128>,
    address: String,
    alive: bool,
    known: bool,
    uid: String,
    pods: BTreeSet<String>,
}

/// The kubelets of all nodes.
pub(super) struct Kubelet {
    calls: Calls,
    clock: Clock,
    manage: Manage,
    nodes: BTreeMap<String, NodeRecord>,
    nodes_synced: bool,
    pods: BTreeMap<String, PodRecord>,
    agenda: Agenda,
    writes: JoinSet<(String, Step, Result<(), CallError>)>,
    hardware: Hardware,
}

impl Kubelet {
    /// Kubelets that write through `calls`, on nodes with these GPUs.
    pub(super) fn new(calls: Calls, clock: Clock, manage: Manage, hardware: Hardware) -> Self {
        Self {
            hardware,
            calls,
            clock,
            manage,
            nodes: BTreeMap::new(),
            nodes_synced: false,
            pods: BTreeMap::new(),
            agenda: Agenda::default(),
            writes: JoinSet::new(),
        }
    }

    /// Works until `cancel` or the end of a feed.
    pub(super) async fn run(
        mut self,
        mut nodes: mpsc::Receiver<Change<Node>>,
        mut pods: mpsc::Receiver<Change<Pod>>,
        mut crashed: mpsc::UnboundedReceiver<String>,
        cancel: CancellationToken,
    ) {
        loop {
            let room = self.writes.len() < IN_FLIGHT;
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                // Before the feeds: what is written makes room for more writes.
                Some(done) = self.writes.join_next(), if !self.writes.is_empty() => {
                    if let Ok((uid, step, result)) = done {
                        self.written(&uid, step, result);
                    }
                }
                change = nodes.recv() => match change {
                    Some(change) => self.node_changed(change),
                    None => return,
                },
                change = pods.recv() => match change {
                    Some(change) => self.pod_changed(change),
                    None => return,
                },
                Some(uid) = crashed.recv() => self.crash(&uid),
                () = self.agenda.due(), if room => {}
            }
            self.work();
        }
    }

    fn node_changed(&mut self, change: Change<Node>) {
        match change {
            Change::Set(node) => {
                self.hardware.see(&node);
                let managed = self.manage.includes(&node);
                let record = self.nodes.entry(node.metadata.name.clone()).or_default();
                record.known = true;
                record.uid.clone_from(&node.metadata.uid);
                record.allocatable = node.allocatable_milli();
                // A node that has not said whether it is ready is about to.
                record.alive = managed && matches!(node.ready(), None | Some("True"));
                record.address = node
                    .status
                    .addresses
                    .iter()
                    .find(|address| address.kind == "InternalIP")
                    .map_or_else(|| "10.0.0.1".to_owned(), |address| address.address.clone());
                let (waiting, alive) = (record.pods.clone(), record.alive);
                for uid in waiting {
                    self.hold_devices(&uid);
                    if alive {
                        self.plan(&uid);
                    }
                }
            }
            Change::Gone(uid) => self.node_gone(&uid),
            Change::Synced => {
                self.nodes_synced = true;
                let all: Vec<String> = self.pods.keys().cloned().collect();
                for uid in all {
                    self.plan(&uid);
                }
            }
        }
    }

    /// Pods of a vanished node wait; those that are being deleted are, as the pod garbage
    /// collector would.
    fn node_gone(&mut self, uid: &str) {
        self.hardware.forget(uid);
        let Some(record) = self.nodes.values_mut().find(|record| record.uid == uid) else {
            return;
        };
        record.known = false;
        record.alive = false;
        let left: Vec<String> = record.pods.iter().cloned().collect();
        for uid in left {
            self.plan(&uid);
        }
        self.nodes
            .retain(|_, record| record.known || !record.pods.is_empty());
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        match change {
            Change::Set(pod) => {
                if pod.spec.node_name.is_empty() {
                    return;
                }
                let uid = pod.metadata.uid.clone();
                self.fold(&uid, &pod);
                self.plan(&uid);
            }
            Change::Gone(uid) => {
                self.agenda.remove(&uid);
                self.release(&uid);
                if let Some(record) = self.pods.remove(&uid)
                    && let Some(node) = self.nodes.get_mut(&record.node)
                {
                    node.pods.remove(&uid);
                }
            }
            Change::Synced => {}
        }
    }

    fn fold(&mut self, uid: &str, pod: &Arc<Pod>) {
        let clock = self.clock;
        let node = self.nodes.entry(pod.spec.node_name.clone()).or_default();
        node.pods.insert(uid.to_owned());
        let address = node.address.clone();
        let record = self
            .pods
            .entry(uid.to_owned())
            .or_insert_with(|| new_record(pod, address, clock));
        record.stage = match pod.status.phase.as_str() {
            "Succeeded" | "Failed" => Stage::Ended,
            "Running" => Stage::Running,
            // The feed may lag behind the kubelet's own writes.
            _ => record.stage,
        };
        if pod.metadata.deletion_timestamp.is_some() && record.deleting.is_none() {
            let asked = pod
                .metadata
                .deletion_grace_period_seconds
                .unwrap_or(30)
                .max(0);
            let grace = (asked as f64).min(MAX_GRACE_SECS);
            record.deleting = Some((Instant::now(), grace));
        }
        match record.stage {
            Stage::Running => self.admit(uid),
            Stage::Ended => self.release(uid),
            Stage::Waiting => {}
        }
    }

    /// Counts the pod's requests on its node, once.
    fn admit(&mut self, uid: &str) {
        let Some(record) = self.pods.get_mut(uid).filter(|record| !record.admitted) else {
            return;
        };
        record.admitted = true;
        let node = self.nodes.entry(record.node.clone()).or_default();
        for (name, amount) in &record.asks {
            *node.used.entry(name.clone()).or_default() += amount;
        }
        self.hold_devices(uid);
    }

    /// Gives an admitted pod its devices, if it has none yet: one that ran before these kubelets
    /// did, or before its node was seen.
    fn hold_devices(&mut self, uid: &str) {
        let Some(record) = self.pods.get(uid).filter(|record| record.admitted) else {
            return;
        };
        if let Err(why) = self.allocate(uid, record) {
            tracing::debug!(why, pod = record.name, "a running pod has no devices");
        }
    }

    /// The kubelet's message when the device manager refuses.
    fn allocate(&self, uid: &str, record: &PodRecord) -> Result<(), String> {
        if record.devices.is_empty() {
            return Ok(());
        }
        let pod = (record.namespace.as_str(), record.name.as_str());
        let hardware = &self.hardware;
        hardware.allocate(&record.node, uid, pod, &record.devices)
    }

    /// The processes of a pod have died.
    fn crash(&mut self, uid: &str) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.run_secs = Some(0.0);
            record.exit_code = 1;
            self.plan(uid);
        }
    }

    /// Takes the pod's requests off its node, once.
    fn release(&mut self, uid: &str) {
        let Some(record) = self.pods.get_mut(uid).filter(|record| record.admitted) else {
            return;
        };
        record.admitted = false;
        self.hardware.free(&record.node, uid);
        if let Some(node) = self.nodes.get_mut(&record.node) {
            for (name, amount) in &record.asks {
                if let Some(used) = node.used.get_mut(name) {
                    *used -= amount;
                }
            }
        }
    }

    /// What is next for the pod, and when.
    fn next_step(&self, record: &PodRecord) -> Option<(Step, Instant)> {
        let node = self.nodes.get(&record.node);
        let node_lives = node.is_some_and(|node| node.alive);
        let node_missing = self.nodes_synced && !node.is_some_and(|node| node.known);
        if let Some((since, grace)) = record.deleting {
            let wait = match record.stage {
                Stage::Running => self.clock.real(grace),
                Stage::Waiting | Stage::Ended => Duration::ZERO,
            };
            return (node_lives || node_missing).then_some((Step::Delete, since + wait));
        }
        if !node_lives {
            return None;
        }
        match record.stage {
            Stage::Waiting => {
                let (low, high) = START_SECS;
                let delay = self.clock.between(low, high, &record.facts.key);
                Some((Step::Start, record.seen + self.clock.real(delay)))
            }
            Stage::Running => {
                let run = self.clock.real(record.run_secs?);
                let started = rfc3339(record.facts.started);
                let ran = secs_since(&started, self.clock.now())
                    .unwrap_or(0.0)
                    .max(0.0);
                let left = run.saturating_sub(Duration::try_from_secs_f64(ran).unwrap_or_default());
                Some((Step::End, Instant::now() + left))
            }
            Stage::Ended => None,
        }
    }

    fn plan(&mut self, uid: &str) {
        let Some(record) = self.pods.get(uid).filter(|record| !record.in_flight) else {
            return;
        };
        let Some((_, at)) = self.next_step(record) else {
            return;
        };
        let at = record.not_before.map_or(at, |earliest| at.max(earliest));
        self.agenda.set(uid, at);
    }

    /// Does what is due, as far as there is room for writes.
    fn work(&mut self) {
        let now = Instant::now();
        while self.writes.len() < IN_FLIGHT {
            let Some(uid) = self.agenda.pop(now) else {
                return;
            };
            self.act(&uid);
        }
    }

    fn act(&mut self, uid: &str) {
        let Some(record) = self.pods.get(uid).filter(|record| !record.in_flight) else {
            return;
        };
        let Some((step, at)) = self.next_step(record) else {
            return;
        };
        // A run's end is computed afresh from the wall clock and may be a moment later.
        if at > Instant::now() + Duration::from_millis(5) {
            self.agenda.set(uid, at);
            return;
        }
        let status_path = format!("{}/{}/status", path::pods(&record.namespace), record.name);
        let calls = self.calls.clone();
        let id = uid.to_owned();
        match step {
            Step::Delete => {
                let pod_path = format!("{}/{}", path::pods(&record.namespace), record.name);
                self.writes.spawn(async move {
                    let result = calls.delete(&pod_path, &id, Some(0)).await;
                    (id, step, result)
                });
            }
            Step::End => {
                let body = record.facts.ended(self.clock.now(), record.exit_code);
                self.spawn_status(id, step, status_path, body, None);
            }
            Step::Start => self.start(id, status_path),
        }
        if let Some(record) = self.pods.get_mut(uid) {
            record.in_flight = true;
        }
    }

    fn start(&mut self, uid: String, status_path: String) {
        let Some(record) = self.pods.get_mut(&uid) else {
            return;
        };
        record.facts.started = self.clock.now();
        if let Some(node) = self.nodes.get(&record.node) {
            record.facts.host_ip.clone_from(&node.address);
        }
        let Some(record) = self.pods.get(&uid) else {
            return;
        };
        let verdict = self.admission(&uid, record);
        match verdict {
            Ok(()) => {
                let body = record.facts.running();
                if self.hardware.holds_useless(&record.node, &uid) {
                    self.crash(&uid);
                }
                self.admit(&uid);
                self.spawn_status(uid, Step::Start, status_path, body, None);
            }
            Err(rejection) => {
                let body = record.facts.rejected(&rejection.reason, &rejection.message);
                let note = rejection_note(record, &uid, &rejection);
                self.hardware.free(&record.node, &uid);
                self.spawn_status(uid, Step::Start, status_path, body, Some(note));
            }
        }
    }

    /// Devices first, as the kubelet asks its device manager before it counts all else.
    fn admission(&self, uid: &str, record: &PodRecord) -> Result<(), Rejection> {
        let Some(node) = self.nodes.get(&record.node).filter(|_| !record.admitted) else {
            return Ok(());
        };
        self.allocate(uid, record).map_err(|message| Rejection {
            reason: "UnexpectedAdmissionError".to_owned(),
            message,
        })?;
        let managed = self.hardware.managed(&record.node, &record.devices);
        let asks = record.asks.iter();
        let asks = asks.filter(|(name, _)| !managed.contains(*name));
        let asks = asks.map(|(name, amount)| (name.clone(), *amount)).collect();
        admission::check(&asks, &node.used, &node.allocatable)
    }

    fn spawn_status(
        &mut self,
        uid: String,
        step: Step,
        status_path: String,
        body: Value,
        note: Option<Note>,
    ) {
        let calls = self.calls.clone();
        self.writes.spawn(async move {
            let kind = PatchKind::Strategic;
            let result = calls.patch::<IgnoredAny>(&status_path, kind, &body).await;
            if let (Ok(_), Some(note)) = (&result, note) {
                note.write(&calls).await;
            }
            (uid, step, result.map(|_| ()))
        });
    }

    fn written(&mut self, uid: &str, step: Step, result: Result<(), CallError>) {
        let Some(record) = self.pods.get_mut(uid) else {
            return;
        };
        record.in_flight = false;
        record.not_before = None;
        match (result, step) {
            (Ok(()), Step::Start) => {
                record.stage = if record.admitted {
                    Stage::Running
                } else {
                    Stage::Ended
                };
            }
            (Ok(()), Step::End) => {
                record.stage = Stage::Ended;
                self.release(uid);
            }
            // The feed tells when the pod is gone; were it to stay, ask again.
            (Ok(()), Step::Delete) => record.not_before = Some(Instant::now() + RETRY * 5),
            (Err(error), _) => {
                tracing::debug!(%error, "kubelet write failed");
                let wait = if error.is_passing() { RETRY } else { RETRY * 5 };
                record.not_before = Some(Instant::now() + wait);
            }
        }
        self.plan(uid);
    }
}

fn new_record(pod: &Pod, address: String, clock: Clock) -> PodRecord {
    let meta = &pod.metadata;
    let key = format!("{}/{}", meta.namespace, meta.name);
    let number = |name: &str| {
        meta.annotations
            .get(name)
            .and_then(|text| text.parse().ok())
    };
    let run_secs = number(annotation::RUN_SECS)
        .filter(|secs: &f64| secs.is_finite() && *secs >= 0.0)
        .or_else(|| {
            // A training's end is the training's.
            let trains = meta.annotations.contains_key(TRAIN_SECS);
            let of_job = !trains && meta.controller().is_some_and(|owner| owner.kind == "Job");
            let (low, high) = JOB_RUN_SECS;
            of_job.then(|| clock.between(low, high, &key))
        });
    let mut asks = pod.requests_milli();
    asks.insert("pods".to_owned(), 1000);
    let containers = pod.spec.containers.iter();
    // Only a pod that ran before these kubelets did: the written time has whole seconds.
    let started = pod
        .status
        .start_time
        .as_ref()
        .and_then(|at| at.parse().ok());
    PodRecord {
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        node: pod.spec.node_name.clone(),
        devices: pod.device_asks(),
        asks,
        facts: PodFacts {
            uid: meta.uid.clone(),
            key,
            host_ip: address,
            containers: containers
                .map(|container| (container.name.clone(), container.image.clone()))
                .collect(),
            started: started.unwrap_or_else(|| clock.now()),
        },
        stage: Stage::Waiting,
        run_secs,
        exit_code: number(annotation::EXIT_CODE).map_or(0, |code: f64| code as i64),
        deleting: None,
        seen: Instant::now(),
        admitted: false,
        in_flight: false,
        not_before: None,
    }
}

fn rejection_note(record: &PodRecord, uid: &str, rejection: &Rejection) -> Note {
    Note {
        api_version: "v1",
        kind: "Pod",
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        uid: uid.to_owned(),
        component: "kubelet",
        host: record.node.clone(),
        warning: true,
        reason: rejection.reason.clone(),
        message: rejection.message.clone(),
    }
}
