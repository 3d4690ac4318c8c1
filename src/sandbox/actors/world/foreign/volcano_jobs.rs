//! Volcano's job controller: Jobs of batch.volcano.sh with their pods, and the Commands of
//! bus.volcano.sh that stop and resume them or close a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::say_refused;
use super::volcano::QUEUES;
use super::volcano_job_plan::{API_VERSION, JOB_NAME, step, version, version_of};
use crate::sandbox::actors::bound::pod_path;
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::events::Note;
use crate::sandbox::actors::objects::{Custom, Pod, VolcanoCommand};
use crate::sandbox::actors::watch::Change;
use crate::sandbox::calls::{Calls, PatchKind, path};

pub(super) const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/jobs";
pub(super) const COMMANDS: &str = "/apis/bus.volcano.sh/v1alpha1/commands";
/// Time between two rounds, in seconds of the actors' time, and the shortest real one.
const ROUND_SECS: f64 = 1.0;
const MIN_ROUND: Duration = Duration::from_millis(100);

/// What the controller watches.
pub(super) struct Inputs {
    pub jobs: mpsc::Receiver<Change<Custom>>,
    pub commands: mpsc::Receiver<Change<VolcanoCommand>>,
    pub pods: mpsc::Receiver<Change<Pod>>,
}

struct Controller {
    calls: Calls,
    clock: Clock,
    /// By `namespace/name`.
    jobs: BTreeMap<String, Arc<Custom>>,
    /// Pods of each Job, by UID.
    pods: BTreeMap<String, BTreeMap<String, Arc<Pod>>>,
    commands: BTreeMap<String, Arc<VolcanoCommand>>,
    /// Jobs of whose present try a pod was taken away.
    lost: BTreeSet<String>,
    /// What Commands ask of Jobs.
    asked: BTreeMap<String, String>,
    dirty: BTreeSet<String>,
}

/// Works until `cancel` or the end of a feed.
pub(super) async fn run(calls: Calls, clock: Clock, mut inputs: Inputs, cancel: CancellationToken) {
    let mut controller = Controller {
        calls,
        clock,
        jobs: BTreeMap::new(),
        pods: BTreeMap::new(),
        commands: BTreeMap::new(),
        lost: BTreeSet::new(),
        asked: BTreeMap::new(),
        dirty: BTreeSet::new(),
    };
    let mut round = tokio::time::interval(clock.real(ROUND_SECS).max(MIN_ROUND));
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut jobs, mut pods) = (false, false);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = inputs.jobs.recv() => match change {
                Some(Change::Synced) => jobs = true,
                Some(change) => controller.job_changed(change),
                None => return,
            },
            change = inputs.commands.recv() => match change {
                Some(Change::Set(command)) => {
                    let uid = command.metadata.uid.clone();
                    controller.commands.insert(uid, command);
                }
                Some(Change::Gone(uid)) => {
                    controller.commands.remove(&uid);
                }
                Some(Change::Synced) => {}
                None => return,
            },
            change = inputs.pods.recv() => match change {
                Some(Change::Synced) => pods = true,
                Some(change) => controller.pod_changed(change),
                None => return,
            },
            _ = round.tick(), if jobs && pods => {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    () = controller.round() => {}
                }
            }
        }
    }
}

impl Controller {
    fn job_changed(&mut self, change: Change<Custom>) {
        match change {
            Change::Set(job) => {
                let key = format!("{}/{}", job.metadata.namespace, job.metadata.name);
                let number = |job: &Custom| job.metadata.resource_version.parse::<u64>().ok();
                let known = self.jobs.get(&key);
                let known = known.filter(|known| known.metadata.uid == job.metadata.uid);
                // The feed lags behind our own writes.
                if known.is_some_and(|known| number(known) > number(&job)) {
                    return;
                }
                self.jobs.insert(key.clone(), job);
                self.dirty.insert(key);
            }
            Change::Gone(uid) => self.jobs.retain(|_, job| job.metadata.uid != uid),
            Change::Synced => {}
        }
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        match change {
            Change::Set(pod) => {
                let meta = &pod.metadata;
                let Some(name) = meta.annotations.get(JOB_NAME) else {
                    return;
                };
                let key = format!("{}/{name}", meta.namespace);
                if meta.deletion_timestamp.is_some() {
                    self.note_loss(&key, &pod);
                }
                let uid = meta.uid.clone();
                self.dirty.insert(key.clone());
                self.pods.entry(key).or_default().insert(uid, pod);
            }
            Change::Gone(uid) => {
                let found = self.pods.iter_mut().find_map(|(key, pods)| {
                    let pod = pods.remove(&uid)?;
                    Some((key.clone(), pod))
                });
                if let Some((key, pod)) = found {
                    self.note_loss(&key, &pod);
                    self.dirty.insert(key);
                }
            }
            Change::Synced => {}
        }
    }

    /// A pod that has not ended is taken away, and not by us: ours are of an earlier try by then.
    fn note_loss(&mut self, key: &str, pod: &Pod) {
        let job = self.jobs.get(key);
        if !pod.is_terminal() && job.is_some_and(|job| version_of(pod) == Some(version(job))) {
            self.lost.insert(key.to_owned());
        }
    }

    async fn round(&mut self) {
        for command in std::mem::take(&mut self.commands).into_values() {
            self.obey(&command).await;
        }
        for key in std::mem::take(&mut self.dirty) {
            self.work(&key).await;
        }
    }

    /// Takes a Command away and does what it says: it is executed at most once.
    async fn obey(&mut self, command: &VolcanoCommand) {
        let meta = &command.metadata;
        let collection = format!(
            "/apis/bus.volcano.sh/v1alpha1/namespaces/{}/commands",
            meta.namespace
        );
        let at = format!("{collection}/{}", meta.name);
        if let Err(error) = self.calls.delete(&at, &meta.uid, None).await {
            tracing::debug!(%error, "command not taken");
            return;
        }
        let target = &command.target;
        match command.action.as_str() {
            action @ ("OpenQueue" | "CloseQueue") => {
                let state = if action == "OpenQueue" {
                    "Open"
                } else {
                    "Closed"
                };
                let at = format!("{QUEUES}/{}/status", target.name);
                let body = json!({"status": {"state": state}});
                let kind = PatchKind::Merge;
                if let Err(error) = self.calls.patch::<IgnoredAny>(&at, kind, &body).await {
                    tracing::debug!(%error, "queue neither opened nor closed");
                }
            }
            action => {
                let key = format!("{}/{}", meta.namespace, target.name);
                if let Some(job) = self.jobs.get(&key).cloned() {
                    let message = format!(
                        "Start to execute command {action}, and clean it up to make sure executed \
                         not more than once."
                    );
                    self.say(&job, "CommandIssued", message).await;
                }
                self.asked.insert(key.clone(), action.to_owned());
                self.dirty.insert(key);
            }
        }
    }

    async fn work(&mut self, key: &str) {
        let Some(job) = self.jobs.get(key).cloned() else {
            return;
        };
        let pods = self.pods.get(key).into_iter().flatten();
        let pods = pods.map(|(_, pod)| pod).filter(|pod| {
            let owner = pod.metadata.controller();
            owner.is_some_and(|owner| owner.uid == job.metadata.uid)
        });
        let pods: Vec<Arc<Pod>> = pods.cloned().collect();
        let lost = self.lost.remove(key);
        let command = self.asked.remove(key);
        let step = step(&job, &pods, lost, command.as_deref(), self.clock.now());
        if let Some(action) = step.action.filter(|_| command.is_none()) {
            let message = format!("Start to execute action {action} ");
            self.say(&job, "ExecuteAction", message).await;
        }
        // Before the pods go: they are of an earlier try then.
        if !self.write(key, &job, &step.status).await {
            if lost {
                self.lost.insert(key.to_owned());
            }
            if let Some(command) = command {
                self.asked.insert(key.to_owned(), command);
            }
            self.dirty.insert(key.to_owned());
            return;
        }
        let namespace = &job.metadata.namespace;
        if let Some(group) = step.group.filter(|_| !step.create.is_empty()) {
            let groups =
                format!("/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups");
            if let Err(error) = self.calls.ensure(&groups, &group).await {
                say_refused(&error);
            }
        }
        for pod in step.delete {
            let result = self
                .calls
                .delete(&pod_path(&pod), &pod.metadata.uid, None)
                .await;
            if let Err(error) = result {
                tracing::debug!(%error, "pod of a Volcano job not deleted");
                self.dirty.insert(key.to_owned());
            }
        }
        for pod in step.create {
            if let Err(error) = self.calls.ensure(&path::pods(namespace), &pod).await {
                say_refused(&error);
                self.dirty.insert(key.to_owned());
            }
        }
    }

    /// Writes a status that differs; whether it is there now.
    async fn write(&mut self, key: &str, job: &Custom, status: &Value) -> bool {
        if job.status == *status {
            return true;
        }
        let meta = &job.metadata;
        let at = format!(
            "/apis/{API_VERSION}/namespaces/{}/jobs/{}/status",
            meta.namespace, meta.name
        );
        // Members that are gone are named, or a merge would leave them.
        let mut merged = status.clone();
        if let (Some(new), Some(old)) = (merged.as_object_mut(), job.status.as_object()) {
            for member in old.keys() {
                new.entry(member.clone()).or_insert(Value::Null);
            }
            let tasks = job.status.get("taskStatusCount").and_then(Value::as_object);
            for (task, counts) in tasks.into_iter().flatten() {
                let new = new
                    .get_mut("taskStatusCount")
                    .and_then(|all| all.get_mut(task))
                    .and_then(|task| task.get_mut("phase"))
                    .and_then(Value::as_object_mut);
                let old = counts.get("phase").and_then(Value::as_object);
                if let (Some(new), Some(old)) = (new, old) {
                    for phase in old.keys() {
                        new.entry(phase.clone()).or_insert(Value::Null);
                    }
                }
            }
        }
        let body = json!({"metadata": {"uid": meta.uid}, "status": merged});
        match self
            .calls
            .patch::<Custom>(&at, PatchKind::Merge, &body)
            .await
        {
            Ok(written) => {
                self.jobs.insert(key.to_owned(), Arc::new(written));
                true
            }
            Err(error) => {
                tracing::debug!(%error, "status of a Volcano job not written");
                // Gone, or another by now: nothing is left to be told.
                error.is_not_found() || error.code() == Some(409)
            }
        }
    }

    async fn say(&self, job: &Custom, reason: &str, message: String) {
        let meta = &job.metadata;
        let note = Note {
            api_version: API_VERSION,
            kind: "Job",
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            component: "vc-controller-manager",
            host: String::new(),
            warning: false,
            reason: reason.to_owned(),
            message,
        };
        note.write(&self.calls).await;
    }
}
