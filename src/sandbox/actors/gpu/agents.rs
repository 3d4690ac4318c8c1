//! What runs on the GPU nodes, all nodes in one task: device plugin and device manager, feature
//! discovery, mig-manager and the exporter's ports. It only reacts: a fleet at rest costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::agenda::Agenda;
use super::super::annotation;
use super::super::clock::{Clock, rfc3339};
use super::super::objects::{ClusterPolicy, ConfigMap, Meta, Node, Pod};
use super::super::watch::Change;
use super::config::Config;
use super::discovery_labels;
use super::exporter::Ports;
use super::hardware::Hardware;
use super::mig_manager::{self, Maps, Trigger};
use super::operands::{Operand, Operands, Turn};
use super::plugin::Amount;
use crate::sandbox::ApiServer;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path, patiently};
use crate::sandbox::signal::Signal;

/// How long after a failed write it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What the agents of all nodes share.
pub(super) struct Shared {
    pub calls: Calls,
    pub clock: Clock,
    pub config: Config,
    pub hardware: Hardware,
    pub operands: Mutex<Operands>,
    /// Where pods write their logs, when that is the embedded cluster.
    pub logs: Option<ApiServer>,
    /// Counts the changes of `operands`.
    pub changed: Signal,
    /// Faults by node, from `sandbox.gpudeck.dev/mig-fault`.
    pub faults: Mutex<BTreeMap<String, String>>,
    pub cancel: CancellationToken,
}

impl Shared {
    /// Reads or changes the operands.
    pub(super) fn operands<T>(&self, work: impl FnOnce(&mut Operands) -> T) -> T {
        work(&mut self.operands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes a line into the log of the operand's pod on the node, in the form of its loggers.
    pub(super) fn log(&self, node: &str, operand: Operand, level: &str, line: &str) {
        let Some(server) = &self.logs else { return };
        let pod = self.operands(|all| all.running_pod(node, operand));
        if let Some((uid, _)) = pod {
            let at = rfc3339(self.clock.now());
            let line = format!("time=\"{at}\" level={level} msg={line:?}");
            server.write_log(&uid, &line);
        }
    }

    /// The fault asked for on a node; empty for none.
    pub(super) fn fault(&self, node: &str) -> String {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.get(node).cloned().unwrap_or_default()
    }

    /// Merges `patch` into the node, patiently.
    pub(super) async fn patch_node(&self, node: &str, patch: &Value) -> Result<(), CallError> {
        let at = format!("{}/{node}", path::NODES);
        let call = || self.calls.patch::<IgnoredAny>(&at, PatchKind::Merge, patch);
        patiently(call).await.map(|_| ())
    }

    /// Merges labels into the node; `null` takes one away.
    pub(super) async fn label(&self, node: &str, labels: Value) -> Result<(), CallError> {
        self.patch_node(node, &json!({"metadata": {"labels": labels}}))
            .await
    }
}

/// What there is to do at a time, by node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// The plugin has started and registers.
    Register,
    /// The kubelet reports its devices.
    Report,
    /// Feature discovery has read the GPUs and its labels come through.
    Discover,
}

impl Due {
    fn key(self, node: &str) -> String {
        let word = match self {
            Self::Register => "register",
            Self::Report => "report",
            Self::Discover => "discover",
        };
        format!("{word} {node}")
    }

    fn read(key: &str) -> Option<(Self, &str)> {
        let (word, node) = key.split_once(' ')?;
        let due = match word {
            "register" => Self::Register,
            "report" => Self::Report,
            "discover" => Self::Discover,
            _ => return None,
        };
        Some((due, node))
    }
}

/// A write or a piece of work that has ended.
enum Done {
    Reported(String, BTreeMap<String, Amount>, Result<(), CallError>),
    Discovered(String, Result<(), CallError>),
    Reconfigured(String),
    Published,
}

/// What is remembered of a node.
#[derive(Debug, Default)]
struct Seen {
    uid: String,
    /// The last value of `nvidia.com/mig.config` that mig-manager took note of.
    mig_config: String,
    /// mig-manager works on it.
    busy: bool,
    /// A value has changed meanwhile, or mig-manager has started again.
    again: Option<Trigger>,
    xids: String,
    /// UID of the mig-manager pod whose log has begun.
    greeted: String,
    /// UID of the mig-manager's pod that has published its configurations.
    published: String,
}

/// The receivers of [`Agents::run`].
pub(super) struct Feeds {
    pub nodes: mpsc::Receiver<Change<Node>>,
    pub pods: mpsc::Receiver<Change<Pod>>,
    pub maps: mpsc::Receiver<Change<ConfigMap>>,
    pub policies: mpsc::Receiver<Change<ClusterPolicy>>,
}

/// The agents of all GPU nodes.
pub(super) struct Agents {
    shared: Arc<Shared>,
    agenda: Agenda,
    nodes: BTreeMap<String, Seen>,
    reporting: BTreeSet<String>,
    maps: Maps,
    ports: Ports,
    /// Pods whose processes an Xid has ended, for the kubelet.
    crashes: mpsc::UnboundedSender<String>,
    work: JoinSet<Done>,
}

impl Agents {
    /// Agents that tell the kubelet through `crashes` which pods have died.
    pub(super) fn new(
        shared: Arc<Shared>,
        ports: Ports,
        crashes: mpsc::UnboundedSender<String>,
    ) -> Self {
        Self {
            shared,
            agenda: Agenda::default(),
            nodes: BTreeMap::new(),
            reporting: BTreeSet::new(),
            maps: Maps::default(),
            ports,
            crashes,
            work: JoinSet::new(),
        }
    }

    /// Works until the end of a feed or the cancellation.
    pub(super) async fn run(mut self, mut feeds: Feeds) {
        let cancel = self.shared.cancel.clone();
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                Some(done) = self.work.join_next(), if !self.work.is_empty() => {
                    if let Ok(done) = done {
                        self.done(done);
                    }
                }
                change = feeds.nodes.recv() => match change {
                    Some(change) => self.node_changed(change),
                    None => return,
                },
                change = feeds.pods.recv() => match change {
                    Some(change) => self.pod_changed(change),
                    None => return,
                },
                Some(change) = feeds.maps.recv() => self.map_changed(change),
                Some(change) = feeds.policies.recv() => self.policy_changed(&change),
                () = self.agenda.due() => self.due(),
            }
        }
    }

    fn node_changed(&mut self, change: Change<Node>) {
        match change {
            Change::Set(node) => {
                self.shared.hardware.see(&node);
                if self
                    .shared
                    .hardware
                    .with(&node.metadata.name, |_| ())
                    .is_some()
                {
                    self.gpu_node(&node);
                }
            }
            Change::Gone(uid) => {
                self.shared.hardware.forget(&uid);
                let gone = self.nodes.iter().find(|(_, seen)| seen.uid == uid);
                if let Some(name) = gone.map(|(name, _)| name.clone()) {
                    self.nodes.remove(&name);
                    self.shared.operands(|operands| operands.forget(&name));
                }
            }
            Change::Synced => {}
        }
    }

    fn gpu_node(&mut self, node: &Node) {
        let name = node.metadata.name.clone();
        let turns = self.shared.operands(|operands| operands.node(node));
        self.turned(turns);
        self.note_faults(&name, &node.metadata);
        let labels = &node.metadata.labels;
        let wanted = labels.get("nvidia.com/mig.config");
        let wanted = wanted.cloned().unwrap_or_default();
        let has_state = labels.contains_key("nvidia.com/mig.config.state");
        let known = self.nodes.get(&name);
        let new = known.is_none_or(|seen| seen.uid != node.metadata.uid);
        if new {
            let seen = Seen {
                uid: node.metadata.uid.clone(),
                ..Seen::default()
            };
            self.nodes.insert(name.clone(), seen);
        }
        let Some(seen) = self.nodes.get_mut(&name) else {
            return;
        };
        let changed = wanted != seen.mig_config && !wanted.is_empty();
        if changed {
            seen.mig_config = wanted;
        }
        // What a node says when it is first seen was done before.
        if changed && (!new || !has_state) {
            self.reconfigure(&name, Trigger::Label);
        }
        self.note_xids(&name, &node.metadata);
    }

    fn note_faults(&mut self, name: &str, meta: &Meta) {
        let mut faults = self
            .shared
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match meta.annotations.get(annotation::MIG_FAULT) {
            Some(fault) => faults.insert(name.to_owned(), fault.clone()),
            None => faults.remove(name),
        };
    }

    /// Xids asked for by the node's annotation: those behind what it said before.
    fn note_xids(&mut self, name: &str, meta: &Meta) {
        let asked = meta.annotations.get(annotation::XIDS);
        let asked = asked.map_or("", String::as_str);
        let Some(seen) = self.nodes.get_mut(name) else {
            return;
        };
        if asked == seen.xids {
            return;
        }
        let before = std::mem::replace(&mut seen.xids, asked.to_owned());
        let new = asked.strip_prefix(before.as_str()).unwrap_or(asked);
        let events: Vec<(u32, u32)> = new
            .split(',')
            .filter_map(|event| {
                let (gpu, code) = event.trim().split_once(':')?;
                Some((gpu.parse().ok()?, code.parse().ok()?))
            })
            .collect();
        let hardware = &self.shared.hardware;
        let ignored = &hardware.plugin().ignored_xids;
        for (gpu, code) in events {
            let died = hardware.with(name, |machine| machine.xid(gpu, code, ignored));
            for uid in died.unwrap_or_default() {
                // A kubelet that is not among these actors hears nothing.
                let _ = self.crashes.send(uid);
            }
        }
        self.plan_report(name);
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        let told = match change {
            Change::Set(pod) if pod.metadata.namespace == self.shared.config.namespace => {
                self.shared.operands(|operands| operands.pod(&pod))
            }
            Change::Gone(uid) => self.shared.operands(|operands| operands.pod_gone(&uid)),
            Change::Set(_) | Change::Synced => return,
        };
        let Some((node, operand, turn)) = told else {
            return;
        };
        self.turned(turn);
        if operand == Operand::Exporter {
            self.ports.follow(&self.shared, &node);
        }
        if operand == Operand::MigManager {
            self.publish(&node);
            self.greet(&node);
        }
        let count = self.shared.changed.newest() + 1;
        self.shared.changed.raise(count);
    }

    /// mig-manager's first words, once a pod.
    fn greet(&mut self, node: &str) {
        let running = |all: &mut Operands| all.running_pod(node, Operand::MigManager);
        let Some((uid, _)) = self.shared.operands(running) else {
            return;
        };
        let Some(seen) = self.nodes.get_mut(node).filter(|seen| seen.greeted != uid) else {
            return;
        };
        seen.greeted = uid;
        let words = "Waiting for change to 'nvidia.com/mig.config' label";
        self.shared.log(node, Operand::MigManager, "info", words);
    }

    /// A mig-manager that generates its configurations shows them in a ConfigMap of the node.
    fn publish(&mut self, node: &str) {
        let settings = self.shared.config.mig_manager.as_ref();
        let wanted = settings.is_some_and(|settings| settings.publish_generated);
        let running = |all: &mut Operands| all.running_pod(node, Operand::MigManager);
        let Some((uid, pod)) = self.shared.operands(running).filter(|_| wanted) else {
            return;
        };
        let Some(seen) = self.nodes.get_mut(node) else {
            return;
        };
        if !self.maps.are_generated() || seen.published == uid {
            return;
        }
        seen.published.clone_from(&uid);
        let (shared, node) = (Arc::clone(&self.shared), node.to_owned());
        self.work.spawn(async move {
            let owner = (uid.as_str(), pod.as_str());
            if let Err(error) = mig_manager::publish(&shared, &node, owner).await {
                tracing::debug!(%error, node, "generated configurations not published");
            }
            Done::Published
        });
    }

    fn turned(&mut self, turns: impl IntoIterator<Item = Turn>) {
        for Turn { node, operand, up } in turns {
            match (operand, up) {
                (Operand::DevicePlugin, true) => {
                    let delay = self.shared.config.plugin.start_secs;
                    self.plan(Due::Register, &node, delay);
                }
                (Operand::DevicePlugin, false) => {
                    self.agenda.remove(&Due::Register.key(&node));
                    let hardware = &self.shared.hardware;
                    hardware.with(&node, |machine| machine.devices.stop());
                    self.plan_report(&node);
                }
                (Operand::Discovery, true) => {
                    if let Some(discovery) = &self.shared.config.discovery {
                        let (low, high) = discovery.lag_secs;
                        let lag = self.shared.clock.between(low, high, &node);
                        self.plan(Due::Discover, &node, discovery.start_secs + lag);
                    }
                }
                (Operand::Discovery, false) => self.agenda.remove(&Due::Discover.key(&node)),
                (Operand::MigManager, true) => self.reconfigure(&node, Trigger::Start),
                (Operand::MigManager, false) | (Operand::Exporter, _) => {}
            }
        }
    }

    fn map_changed(&mut self, change: Change<ConfigMap>) {
        match change {
            Change::Set(map) if map.metadata.namespace == self.shared.config.namespace => {
                self.maps.set(&map);
            }
            Change::Gone(uid) => self.maps.gone(&uid),
            Change::Set(_) | Change::Synced => {}
        }
        self.resume_waiting();
    }

    /// Looks at the nodes whose mig-manager could not start before.
    fn resume_waiting(&mut self) {
        if !self.maps.can_mount(self.shared.config.operator.is_some()) {
            return;
        }
        let waiting = self.nodes.iter_mut().filter(|(_, seen)| !seen.busy);
        let waiting: Vec<(String, Trigger)> = waiting
            .filter_map(|(name, seen)| Some((name.clone(), seen.again.take()?)))
            .collect();
        for (name, trigger) in waiting {
            self.reconfigure(&name, trigger);
        }
    }

    /// Another ConfigMap rolls the mig-managers: each starts anew and applies its label again.
    fn policy_changed(&mut self, change: &Change<ClusterPolicy>) {
        let Change::Set(policy) = change else {
            return;
        };
        if self.maps.configured(policy.mig_config_map()) {
            let names: Vec<String> = self.nodes.keys().cloned().collect();
            for name in names {
                self.reconfigure(&name, Trigger::Start);
            }
        }
        if self.maps.are_generated() {
            let names: Vec<String> = self.nodes.keys().cloned().collect();
            for name in names {
                self.publish(&name);
            }
        }
        self.resume_waiting();
    }

    /// Lets mig-manager look at a node, after what it does there now.
    fn reconfigure(&mut self, node: &str, trigger: Trigger) {
        if self.shared.config.mig_manager.is_none() {
            return;
        }
        let runs = |all: &mut Operands| all.is_up(node, Operand::MigManager);
        let Some(seen) = self.nodes.get_mut(node) else {
            return;
        };
        // One that does not run looks when it starts.
        if seen.mig_config.is_empty() || !self.shared.operands(runs) {
            return;
        }
        let can_mount = self.maps.can_mount(self.shared.config.operator.is_some());
        if seen.busy || !can_mount {
            seen.again = Some(trigger);
            return;
        }
        seen.busy = true;
        let (shared, name) = (Arc::clone(&self.shared), node.to_owned());
        let file = self.maps.mounted(node, trigger, &self.shared);
        let config = seen.mig_config.clone();
        self.work.spawn(async move {
            mig_manager::reconfigure(&shared, &name, &config, file).await;
            Done::Reconfigured(name)
        });
    }

    fn plan(&mut self, due: Due, node: &str, secs: f64) {
        let at = Instant::now() + self.shared.clock.real(secs);
        self.agenda.set(&due.key(node), at);
    }

    /// The kubelet reports at its next turn, which is each node's own.
    fn plan_report(&mut self, node: &str) {
        let interval = self.shared.config.plugin.report_secs;
        let at = self.shared.clock.between(0.0, interval, node);
        let at = Instant::now() + self.shared.clock.real(at);
        self.agenda.at_latest(&Due::Report.key(node), at);
    }

    fn due(&mut self) {
        let now = Instant::now();
        while let Some(key) = self.agenda.pop(now) {
            match Due::read(&key) {
                Some((Due::Register, node)) => {
                    let hardware = &self.shared.hardware;
                    hardware.with(node, super::hardware::Machine::start_plugin);
                    self.plan_report(node);
                }
                Some((Due::Report, node)) => self.report(node),
                Some((Due::Discover, node)) => self.discover(node),
                None => {}
            }
        }
    }

    /// Writes capacity and allocatable, when they have changed.
    fn report(&mut self, node: &str) {
        if self.reporting.contains(node) {
            self.plan_report(node);
            return;
        }
        let grace = self.shared.clock.real(self.shared.config.plugin.grace_secs);
        let report = self.shared.hardware.with(node, |machine| {
            let devices = &mut machine.devices;
            (devices.report(grace), devices.grace_end(grace))
        });
        let Some((amounts, grace_end)) = report else {
            return;
        };
        if let Some(at) = grace_end {
            self.agenda.at_latest(&Due::Report.key(node), at);
        }
        let Some(amounts) = amounts else {
            return;
        };
        self.reporting.insert(node.to_owned());
        let (shared, node) = (Arc::clone(&self.shared), node.to_owned());
        self.work.spawn(async move {
            let of = |pick: fn(&Amount) -> usize| -> Map<String, Value> {
                let pairs = amounts.iter();
                pairs
                    .map(|(name, amount)| (name.clone(), pick(amount).to_string().into()))
                    .collect()
            };
            let body = json!({"status": {
                "capacity": of(|(capacity, _)| *capacity),
                "allocatable": of(|(_, allocatable)| *allocatable),
            }});
            let at = format!("{}/{node}/status", path::NODES);
            let calls = &shared.calls;
            let call = || calls.patch::<IgnoredAny>(&at, PatchKind::Strategic, &body);
            let result = patiently(call).await.map(|_| ());
            Done::Reported(node, amounts, result)
        });
    }

    /// Writes the labels of the present layout over those of the last, with a new timestamp.
    fn discover(&mut self, node: &str) {
        let labels = self.shared.hardware.with(node, |machine| machine.labels());
        let Some(labels) = labels else {
            return;
        };
        let (shared, node) = (Arc::clone(&self.shared), node.to_owned());
        self.work.spawn(async move {
            let result = write_labels(&shared, &node, labels).await;
            Done::Discovered(node, result)
        });
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Reported(node, amounts, result) => {
                self.reporting.remove(&node);
                match result {
                    Ok(()) => {
                        let hardware = &self.shared.hardware;
                        hardware.with(&node, |machine| machine.devices.reported(amounts));
                    }
                    Err(error) if error.is_not_found() => {}
                    Err(error) => {
                        tracing::debug!(%error, "devices not reported");
                        let at = Instant::now() + RETRY;
                        self.agenda.at_latest(&Due::Report.key(&node), at);
                    }
                }
            }
            Done::Discovered(node, result) => match result {
                Err(error) if !error.is_not_found() => {
                    tracing::debug!(%error, "labels not written");
                    let at = Instant::now() + RETRY;
                    self.agenda.at_latest(&Due::Discover.key(&node), at);
                }
                Ok(()) | Err(_) => {}
            },
            Done::Published => {}
            Done::Reconfigured(node) => {
                let Some(seen) = self.nodes.get_mut(&node) else {
                    return;
                };
                seen.busy = false;
                if let Some(trigger) = seen.again.take() {
                    self.reconfigure(&node, trigger);
                }
            }
        }
    }
}

async fn write_labels(
    shared: &Shared,
    node: &str,
    labels: BTreeMap<String, String>,
) -> Result<(), CallError> {
    let at = format!("{}/{node}", path::NODES);
    let present: Node = patiently(|| shared.calls.get(&at)).await?;
    let present = present.metadata.labels;
    let mut patch = Map::new();
    for name in present.keys() {
        if discovery_labels::owns(name) && !labels.contains_key(name) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    for (name, value) in labels {
        if present.get(&name) != Some(&value) {
            patch.insert(name, value.into());
        }
    }
    let now = shared.clock.now().as_second().to_string();
    patch.insert("nvidia.com/gfd.timestamp".to_owned(), now.into());
    shared.label(node, Value::Object(patch)).await
}
