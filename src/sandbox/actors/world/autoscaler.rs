//! A cluster autoscaler: pods that fit nowhere bring machines, minutes later, and machines that
//! stand empty go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::drain::{update_node, with_taints};
use super::machine;
use super::node_claims;
use super::scale_up::{Group, Upcoming, plan};
use crate::sandbox::actors::bound::pod_note;
use crate::sandbox::actors::clock::{Clock, rfc3339};
use crate::sandbox::actors::events::Note;
use crate::sandbox::actors::objects::{Node, Pod};
use crate::sandbox::actors::watch::Change;
use crate::sandbox::calls::{CallError, Calls, path};

pub use super::scale_up::{GROUP_LABEL, NodeGroup};

/// Who says it.
const COMPONENT: &str = "cluster-autoscaler";
const CANDIDATE: &str = "DeletionCandidateOfClusterAutoscaler";
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// The shortest real time between two looks.
const MIN_SCAN: Duration = Duration::from_millis(100);
/// How long a pod that was told that nothing can be done is not told again.
const TOLD_SECS: f64 = 300.0;
/// How long a scheduler has to use a machine that came for a pod.
const SETTLE_SECS: f64 = 120.0;

/// How the autoscaler works; times are seconds of the actors' time.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Groups, the preferred first.
    pub groups: Vec<NodeGroup>,
    /// Time between two looks (`--scan-interval`).
    pub scan_secs: f64,
    /// How long a pod waits unbound before it counts as unschedulable, if no scheduler says so
    /// in its PodScheduled condition.
    pub patience_secs: f64,
    /// How long a machine stands empty before it goes (`--scale-down-unneeded-time`).
    pub unneeded_secs: f64,
    /// Time from the mark on a machine to its end.
    pub delete_secs: f64,
    /// Writes the NodeClaim of a machine when it is asked for.
    pub claims: bool,
}

impl Default for Settings {
    /// The cluster autoscaler's own times, and no group.
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            scan_secs: 10.0,
            patience_secs: 60.0,
            unneeded_secs: 600.0,
            delete_secs: 30.0,
            claims: false,
        }
    }
}

/// A pod that is bound nowhere.
struct Waiting {
    pod: Arc<Pod>,
    since: Instant,
    /// Machines are on their way, or it was told that none will come: not again before this.
    quiet_until: Option<Instant>,
}

/// A machine of a group that may go.
#[derive(Default)]
struct Empty {
    since: Option<Instant>,
    marked: bool,
    ends: Option<Instant>,
}

struct Actor {
    calls: Calls,
    clock: Clock,
    settings: Settings,
    groups: Vec<Group>,
    nodes: BTreeMap<String, Arc<Node>>,
    waiting: BTreeMap<String, Waiting>,
    /// The node of each pod that has one and has not ended.
    bound: BTreeMap<String, Arc<str>>,
    pods_on: BTreeMap<Arc<str>, usize>,
    upcoming: Vec<Upcoming>,
    empty: BTreeMap<String, Empty>,
    made: u64,
}

/// Works until `cancel` or the end of a feed.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    settings: Settings,
    mut nodes: mpsc::Receiver<Change<Node>>,
    mut pods: mpsc::Receiver<Change<Pod>>,
    cancel: CancellationToken,
) {
    let mut scan = tokio::time::interval(clock.real(settings.scan_secs).max(MIN_SCAN));
    scan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let groups = settings.groups.iter().map(|group| Group::new(group, clock));
    let mut actor = Actor {
        calls,
        clock,
        groups: groups.collect(),
        settings,
        nodes: BTreeMap::new(),
        waiting: BTreeMap::new(),
        bound: BTreeMap::new(),
        pods_on: BTreeMap::new(),
        upcoming: Vec::new(),
        empty: BTreeMap::new(),
        made: 0,
    };
    let (mut nodes_synced, mut pods_synced) = (false, false);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(Change::Set(node)) => {
                    actor.nodes.insert(node.metadata.name.clone(), node);
                }
                Some(Change::Gone(uid)) => {
                    actor.nodes.retain(|_, node| node.metadata.uid != uid);
                    actor.empty.retain(|name, _| actor.nodes.contains_key(name));
                }
                Some(Change::Synced) => nodes_synced = true,
                None => return,
            },
            change = pods.recv() => match change {
                Some(Change::Set(pod)) => actor.pod_changed(pod),
                Some(Change::Gone(uid)) => actor.forget(&uid),
                Some(Change::Synced) => pods_synced = true,
                None => return,
            },
            _ = scan.tick(), if nodes_synced && pods_synced => {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    () = actor.look() => {}
                }
            }
        }
    }
}

impl Actor {
    fn pod_changed(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone();
        let ended = pod.is_terminal();
        if ended || !pod.spec.node_name.is_empty() {
            let daemon = pod
                .metadata
                .controller()
                .is_some_and(|owner| owner.kind == "DaemonSet");
            if ended || daemon {
                self.forget(&uid);
            } else if !self.bound.contains_key(&uid) {
                self.waiting.remove(&uid);
                let node: Arc<str> = pod.spec.node_name.as_str().into();
                *self.pods_on.entry(Arc::clone(&node)).or_default() += 1;
                self.bound.insert(uid, node);
            }
        } else if !pod.spec.scheduling_gates.is_empty() || pod.metadata.deletion_timestamp.is_some()
        {
            self.waiting.remove(&uid);
        } else {
            let waiting = self.waiting.entry(uid).or_insert_with(|| Waiting {
                pod: Arc::clone(&pod),
                since: Instant::now(),
                quiet_until: None,
            });
            waiting.pod = pod;
        }
    }

    fn forget(&mut self, uid: &str) {
        self.waiting.remove(uid);
        let Some(node) = self.bound.remove(uid) else {
            return;
        };
        if let Some(count) = self.pods_on.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.pods_on.remove(&node);
            }
        }
    }

    async fn look(&mut self) {
        self.register().await;
        self.scale_up().await;
        self.scale_down().await;
    }

    /// Machines whose time has come join the cluster.
    async fn register(&mut self) {
        let now = Instant::now();
        let (ready, later): (Vec<Upcoming>, Vec<Upcoming>) = self
            .upcoming
            .drain(..)
            .partition(|machine| machine.at <= now);
        self.upcoming = later;
        for machine in ready {
            let Some(group) = self.groups.get(machine.group) else {
                continue;
            };
            let node = group.node(&machine.name, machine.number, self.clock);
            match machine::register(&self.calls, &node).await {
                Ok(_) => {
                    let until = now + self.clock.real(SETTLE_SECS);
                    for uid in &machine.pods {
                        if let Some(waiting) = self.waiting.get_mut(uid) {
                            waiting.quiet_until = Some(until);
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a machine did not register");
                    self.upcoming.push(machine);
                }
            }
        }
    }

    /// How many machines of each group there are or will be.
    fn sizes(&self) -> Vec<usize> {
        let count = |(number, group): (usize, &Group)| {
            let label = |node: &&Arc<Node>| {
                node.metadata.labels.get(GROUP_LABEL) == Some(&group.settings.name)
            };
            let there = self.nodes.values().filter(label).count();
            let coming = self
                .upcoming
                .iter()
                .filter(|machine| machine.group == number);
            there + coming.count()
        };
        self.groups.iter().enumerate().map(count).collect()
    }

    async fn scale_up(&mut self) {
        let now = Instant::now();
        let patience = self.clock.real(self.settings.patience_secs);
        let helped: BTreeSet<&String> = self.upcoming.iter().flat_map(|up| &up.pods).collect();
        let due = self.waiting.iter().filter(|(uid, waiting)| {
            let quiet = waiting.quiet_until.is_some_and(|until| until > now);
            let given_up = waiting.pod.is_unschedulable();
            !quiet && !helped.contains(uid) && (given_up || now - waiting.since >= patience)
        });
        let mut pods: Vec<Arc<Pod>> = due.map(|(_, waiting)| Arc::clone(&waiting.pod)).collect();
        let age = |pod: &Arc<Pod>| {
            let meta = &pod.metadata;
            let created = meta.creation_timestamp.clone();
            (created, meta.namespace.clone(), meta.name.clone())
        };
        pods.sort_by_cached_key(age);
        let sizes = self.sizes();
        let taken: BTreeSet<&str> = self.nodes.keys().map(String::as_str).collect();
        let planned = plan(
            &self.groups,
            &sizes,
            &pods,
            &taken,
            self.clock,
            &mut self.made,
        );
        let until = now + self.clock.real(TOLD_SECS);
        let mut notes: Vec<Note> = Vec::new();
        for pod in &pods {
            let uid = &pod.metadata.uid;
            if let Some(why) = planned.hopeless.get(uid) {
                if let Some(waiting) = self.waiting.get_mut(uid) {
                    waiting.quiet_until = Some(until);
                }
                let message = format!("pod didn't trigger scale-up: {why}");
                notes.push(pod_note(
                    pod,
                    COMPONENT,
                    (false, "NotTriggerScaleUp"),
                    message,
                ));
            } else {
                let message = format!("pod triggered scale-up: [{}]", planned.summary);
                notes.push(pod_note(
                    pod,
                    COMPONENT,
                    (false, "TriggeredScaleUp"),
                    message,
                ));
            }
        }
        for machine in planned.machines.iter().filter(|_| self.settings.claims) {
            let group = self.groups.get(machine.group);
            let node = group.map(|group| group.node(&machine.name, machine.number, self.clock));
            let node = node.and_then(|node| serde_json::from_value(node).ok());
            let Some(node) = node else { continue };
            if let Err(error) = node_claims::launch(&self.calls, self.clock, &node).await {
                tracing::debug!(%error, "the claim of a machine was not written");
            }
        }
        self.upcoming.extend(planned.machines);
        for note in notes {
            note.write(&self.calls).await;
        }
    }

    async fn scale_down(&mut self) {
        let now = Instant::now();
        let sizes = self.sizes();
        for (number, group) in self.groups.iter().enumerate() {
            let mut spare = sizes.get(number).copied().unwrap_or(0);
            spare = spare.saturating_sub(group.settings.min);
            let members = self.nodes.iter().filter(|(_, node)| {
                node.metadata.labels.get(GROUP_LABEL) == Some(&group.settings.name)
            });
            for (name, node) in members {
                let entry = self.empty.entry(name.clone()).or_default();
                let used = self.pods_on.contains_key(name.as_str());
                let step = entry.next(now, used, spare > 0, &self.settings, self.clock);
                if entry.since.is_some() {
                    spare = spare.saturating_sub(1);
                }
                let result = match step {
                    Step::Nothing => Ok(()),
                    Step::Mark => mark(&self.calls, self.clock, node, CANDIDATE).await,
                    Step::Unmark => unmark(&self.calls, node).await,
                    Step::Condemn => mark(&self.calls, self.clock, node, TO_BE_DELETED).await,
                    Step::Delete => {
                        let at = format!("{}/{name}", path::NODES);
                        self.calls.delete(&at, &node.metadata.uid, None).await
                    }
                };
                if let Err(error) = result {
                    tracing::debug!(%error, "an empty machine was not written");
                }
            }
        }
    }
}

/// What is to be done with an empty machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Nothing,
    Mark,
    Unmark,
    Condemn,
    Delete,
}

impl Empty {
    fn next(
        &mut self,
        now: Instant,
        used: bool,
        spare: bool,
        settings: &Settings,
        clock: Clock,
    ) -> Step {
        if let Some(ends) = self.ends {
            return if ends <= now {
                Step::Delete
            } else {
                Step::Nothing
            };
        }
        if used || !spare {
            self.since = None;
            return if std::mem::take(&mut self.marked) {
                Step::Unmark
            } else {
                Step::Nothing
            };
        }
        let since = *self.since.get_or_insert(now);
        if now - since >= clock.real(settings.unneeded_secs) {
            self.ends = Some(now + clock.real(settings.delete_secs));
            return Step::Condemn;
        }
        if std::mem::replace(&mut self.marked, true) {
            Step::Nothing
        } else {
            Step::Mark
        }
    }
}

/// Taints the node as the autoscaler marks what it may or will delete; the value is a unix time.
async fn mark(calls: &Calls, clock: Clock, node: &Node, key: &str) -> Result<(), CallError> {
    let meta = &node.metadata;
    let last = key == TO_BE_DELETED;
    update_node(calls, &meta.name, |node| {
        let now = clock.now();
        let taint = json!({
            "key": key,
            "value": now.as_second().to_string(),
            "effect": if last { "NoSchedule" } else { "PreferNoSchedule" },
            "timeAdded": rfc3339(now),
        });
        json!({"spec": {"taints": with_taints(node, &[taint])}})
    })
    .await?;
    if last {
        let message = "marked the node as toBeDeleted/unschedulable".to_owned();
        Note::node(
            &meta.name,
            &meta.uid,
            COMPONENT,
            (false, "ScaleDown"),
            message,
        )
        .write(calls)
        .await;
    }
    Ok(())
}

async fn unmark(calls: &Calls, node: &Node) -> Result<(), CallError> {
    update_node(calls, &node.metadata.name, |node| {
        let mut taints = node.spec.taints.clone();
        taints.retain(|taint| taint.get("key").and_then(|key| key.as_str()) != Some(CANDIDATE));
        json!({"spec": {"taints": taints}})
    })
    .await
}
