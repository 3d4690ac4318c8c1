//! Training pods that work step by step, save checkpoints, lose what was not saved, and go on from
//! the last durable checkpoint.
//!
//! The unit is the gang: all pods of one Job (or one pod without an owner) work together or not at
//! all. How a gang behaves stands in annotations of its pods; what became of it is written to the
//! Job and to its first pod, in the terms of gpudeck's checkpoint contract.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::training_run::{Act, Report, Run, Spec};
use crate::sandbox::actors::agenda::Agenda;
use crate::sandbox::actors::annotation::KUBELET;
use crate::sandbox::actors::bound::{patch_status, pod_path};
use crate::sandbox::actors::clock::{Clock, rfc3339};
use crate::sandbox::actors::objects::{Job, Node, Pod};
use crate::sandbox::actors::pod_status::ended_status;
use crate::sandbox::actors::watch::Change;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// Annotations of training.
pub mod annotation {
    /// On a pod: seconds of work until the training is done, over all restarts. Marks the pod as
    /// one that trains: only then do the others count, and its kubelet never ends it.
    pub const TRAIN_SECS: &str = "sandbox.gpudeck.dev/train-secs";
    /// On a pod: seconds of one step; 1 when absent.
    pub const STEP_SECS: &str = "sandbox.gpudeck.dev/step-secs";
    /// On a pod: seconds that a save takes, in which no step is made; 30 when absent.
    pub const SAVE_SECS: &str = "sandbox.gpudeck.dev/checkpoint-secs";
    /// On a pod: the share of saves that fail, 0 to 1; 0 when absent.
    pub const FAILURE_RATE: &str = "sandbox.gpudeck.dev/checkpoint-failure-rate";
    /// On a pod: seconds to load a checkpoint; 20 when absent.
    pub const RESTORE_SECS: &str = "sandbox.gpudeck.dev/restore-secs";
    /// On a pod: mean seconds of work until the program crashes; never when absent.
    pub const CRASH_SECS: &str = "sandbox.gpudeck.dev/crash-mean-secs";
    /// On a pod: time between two saves, such as `900` or `15m`; none when absent.
    pub const INTERVAL: &str = "gpudeck.dev/checkpoint-interval";
    /// On a pod: `none`, `periodic`, `on-demand` or `both`; `both` when absent.
    pub const MODE: &str = "gpudeck.dev/checkpoint-mode";
    /// On a Job or a pod, by who wants a save: `{"id": …, "reason": …}`; each id is served once.
    pub const REQUEST: &str = "gpudeck.dev/checkpoint-request";
    /// Written: `Idle`, `Acked`, `Saving`, `Durable` or `Failed`.
    pub const STATE: &str = "gpudeck.dev/checkpoint-state";
    /// Written: the last durable checkpoint, as JSON with id, step, times and location.
    pub const LAST: &str = "gpudeck.dev/checkpoint-last";
    /// Written: how many saves failed.
    pub const FAILURES: &str = "gpudeck.dev/checkpoint-failures";
    /// Written: how often the gang began anew.
    pub const RESTARTS: &str = "gpudeck.dev/restarts";
    /// Written: GPU-seconds of work lost so far.
    pub const LOST: &str = "gpudeck.dev/lost-gpu-seconds";
    /// Written: the step from which this pod's life went on.
    pub const RESUMED: &str = "gpudeck.dev/resumed-from-step";
}

/// How training is played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings;

/// How long after a failed write it is tried again.
const RETRY: Duration = Duration::from_secs(1);

struct Gang {
    run: Run,
    /// It belongs to a Job that the feed has not shown yet.
    waits_for_job: bool,
    of_job: bool,
    pods: BTreeMap<String, Arc<Pod>>,
    /// Writes that follow each other, so that none overtakes an earlier one.
    writing: bool,
    reports: Vec<Report>,
}

struct Actor {
    calls: Calls,
    clock: Clock,
    gangs: BTreeMap<String, Gang>,
    /// The gang of each pod.
    owner: BTreeMap<String, String>,
    jobs: BTreeMap<String, Arc<Job>>,
    /// Names, by UID, of nodes whose machine is lost: nothing on them works.
    dead: BTreeMap<String, String>,
    agenda: Agenda,
    writes: JoinSet<(String, Result<(), CallError>)>,
}

/// Works until `cancel` or the end of a feed.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    mut nodes: mpsc::Receiver<Change<Node>>,
    mut pods: mpsc::Receiver<Change<Pod>>,
    mut jobs: mpsc::Receiver<Change<Job>>,
    cancel: CancellationToken,
) {
    let mut actor = Actor {
        calls,
        clock,
        gangs: BTreeMap::new(),
        owner: BTreeMap::new(),
        jobs: BTreeMap::new(),
        dead: BTreeMap::new(),
        agenda: Agenda::default(),
        writes: JoinSet::new(),
    };
    let (mut pods_synced, mut jobs_synced) = (false, false);
    loop {
        let ready = pods_synced && jobs_synced;
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(change) => actor.node_changed(change),
                None => return,
            },
            change = jobs.recv() => match change {
                Some(Change::Set(job)) => actor.job_changed(job),
                Some(Change::Gone(uid)) => {
                    actor.jobs.remove(&uid);
                    if actor.gangs.get(&uid).is_some_and(|gang| gang.pods.is_empty()) {
                        actor.gangs.remove(&uid);
                    }
                }
                Some(Change::Synced) => jobs_synced = true,
                None => return,
            },
            change = pods.recv() => match change {
                Some(Change::Set(pod)) => actor.pod_changed(&pod),
                Some(Change::Gone(uid)) => actor.pod_gone(&uid),
                Some(Change::Synced) => pods_synced = true,
                None => return,
            },
            Some(done) = actor.writes.join_next(), if !actor.writes.is_empty() => {
                if let Ok((key, result)) = done {
                    actor.written(&key, &result);
                }
            }
            () = actor.agenda.due(), if ready => {
                if let Some(key) = actor.agenda.pop(Instant::now()) {
                    actor.step(&key);
                }
            }
        }
    }
}

impl Actor {
    fn node_changed(&mut self, change: Change<Node>) {
        let changed = match change {
            Change::Set(node) => {
                let meta = &node.metadata;
                let mark = meta.annotations.get(KUBELET).map(String::as_str);
                if mark == Some("stopped") || node.ready() == Some("Unknown") {
                    let before = self.dead.insert(meta.uid.clone(), meta.name.clone());
                    before.is_none()
                } else {
                    self.dead.remove(&meta.uid).is_some()
                }
            }
            Change::Gone(uid) => self.dead.remove(&uid).is_some(),
            Change::Synced => false,
        };
        if changed {
            let now = Instant::now();
            self.gangs
                .keys()
                .for_each(|key| self.agenda.at_latest(key, now));
        }
    }

    fn job_changed(&mut self, job: Arc<Job>) {
        let uid = job.metadata.uid.clone();
        if let Some(gang) = self.gangs.get_mut(&uid) {
            if std::mem::take(&mut gang.waits_for_job) {
                gang.run.recall(&job.metadata.annotations);
            }
            if let Some(request) = job.metadata.annotations.get(annotation::REQUEST) {
                gang.run.request(request);
            }
            gang.run.size = size_of(&job);
            self.agenda.at_latest(&uid, Instant::now());
        }
        // Only what trains is kept.
        let template = job.spec.template.pointer("/metadata/annotations");
        if template.is_some_and(|all| all.get(annotation::TRAIN_SECS).is_some()) {
            self.jobs.insert(uid, job);
        }
    }

    fn pod_changed(&mut self, pod: &Arc<Pod>) {
        let meta = &pod.metadata;
        let Some(spec) = Spec::read(&meta.annotations) else {
            return;
        };
        let job = meta.controller().filter(|owner| owner.kind == "Job");
        let key = job.map_or_else(
            || format!("{}/{}", meta.namespace, meta.name),
            |owner| owner.uid.clone(),
        );
        let of_job = job.is_some();
        let job = self.jobs.get(&key);
        let gang = self.gangs.entry(key.clone()).or_insert_with(|| {
            let written = job.map_or(&meta.annotations, |job| &job.metadata.annotations);
            let name = job.map_or(&meta.name, |job| &job.metadata.name);
            let mut run = Run::new(&key, format!("{}/{name}", meta.namespace), spec, written);
            run.size = job.map_or(1, |job| size_of(job));
            Gang {
                run,
                waits_for_job: of_job && job.is_none(),
                of_job,
                pods: BTreeMap::new(),
                writing: false,
                reports: Vec::new(),
            }
        });
        if let Some(request) = meta.annotations.get(annotation::REQUEST) {
            gang.run.request(request);
        }
        gang.pods.insert(meta.uid.clone(), Arc::clone(pod));
        self.owner.insert(meta.uid.clone(), key.clone());
        self.agenda.at_latest(&key, Instant::now());
    }

    fn pod_gone(&mut self, uid: &str) {
        let Some(key) = self.owner.remove(uid) else {
            return;
        };
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.pods.remove(uid);
            // A lone pod may come back under its name, and a Job has more pods until it is gone.
            let over = gang.run.is_done() || (gang.of_job && !self.jobs.contains_key(&key));
            if gang.pods.is_empty() && over {
                self.gangs.remove(&key);
                self.agenda.remove(&key);
                return;
            }
            self.agenda.at_latest(&key, Instant::now());
        }
    }

    fn step(&mut self, key: &str) {
        let Some(gang) = self.gangs.get_mut(key).filter(|gang| !gang.waits_for_job) else {
            return;
        };
        let dead = &self.dead;
        let lives = |pod: &Pod| !dead.values().any(|node| *node == pod.spec.node_name);
        let running = gang
            .pods
            .values()
            .filter(|pod| pod.status.phase == "Running" && lives(pod));
        let together = running.clone().count() >= gang.run.size;
        let gpus: i128 = running
            .map(|pod| {
                pod.requests_milli()
                    .get("nvidia.com/gpu")
                    .copied()
                    .unwrap_or(0)
            })
            .sum();
        let act = gang
            .run
            .advance(Instant::now(), together, gpus as f64 / 1000.0, self.clock);
        gang.reports.append(&mut gang.run.reports);
        if let Some(at) = gang.run.due(self.clock) {
            self.agenda.set(key, at);
        }
        match act {
            Act::Nothing => {}
            Act::Finish => self.end(key, 0),
            Act::Crash => self.end(key, 1),
        }
        self.write(key);
    }

    /// Ends the gang's pods as their containers would: all of them well, or the first one badly.
    fn end(&mut self, key: &str, exit_code: i64) {
        let Some(gang) = self.gangs.get(key) else {
            return;
        };
        let running = gang
            .pods
            .values()
            .filter(|pod| pod.status.phase == "Running");
        let mut ending: Vec<Arc<Pod>> = running.cloned().collect();
        ending.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        if exit_code != 0 {
            ending.truncate(1);
        }
        let at = self.clock.now();
        for pod in ending {
            let calls = self.calls.clone();
            let status = ended_status(&pod, at, exit_code);
            self.writes.spawn(async move {
                let result = patch_status(&calls, &pod, &status).await;
                // The name of no gang: nothing follows from this write but what the feed tells.
                (String::new(), result)
            });
        }
    }

    /// Writes the oldest report that is not written, unless one is on its way.
    fn write(&mut self, key: &str) {
        let Some(gang) = self.gangs.get_mut(key) else {
            return;
        };
        if gang.writing || gang.reports.is_empty() {
            return;
        }
        let report = gang.reports.remove(0);
        let first = gang
            .pods
            .values()
            .filter(|pod| !pod.is_terminal())
            .min_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let mut targets: Vec<(String, String)> = Vec::new();
        if let Some(job) = self.jobs.get(key) {
            let meta = &job.metadata;
            let at = format!("{}/{}", path::jobs(&meta.namespace), meta.name);
            targets.push((at, meta.uid.clone()));
        }
        if let Some(pod) = first {
            targets.push((pod_path(pod), pod.metadata.uid.clone()));
        }
        gang.writing = true;
        let (calls, key) = (self.calls.clone(), key.to_owned());
        let annotations = report.annotations(|at| rfc3339(self.clock.at(at)));
        self.writes.spawn(async move {
            let mut result = Ok(());
            for (at, uid) in targets {
                let body = json!({"metadata": {"uid": uid, "annotations": annotations}});
                let written = calls
                    .patch::<IgnoredAny>(&at, PatchKind::Merge, &body)
                    .await;
                result = match written {
                    Err(error) if !error.is_not_found() && error.code() != Some(409) => Err(error),
                    _ => result,
                };
            }
            (key, result)
        });
    }

    fn written(&mut self, key: &str, result: &Result<(), CallError>) {
        if let Err(error) = result {
            tracing::debug!(%error, "training not reported");
        }
        if let Some(gang) = self.gangs.get_mut(key) {
            gang.writing = false;
            self.write(key);
        } else if result.is_err() {
            // An end that was not written is tried again with the gang's next step.
            let keys: Vec<String> = self.gangs.keys().cloned().collect();
            for key in keys {
                self.agenda.at_latest(&key, Instant::now() + RETRY);
            }
        }
    }
}

fn size_of(job: &Job) -> usize {
    let wanted = job.spec.parallelism.unwrap_or(1).max(1);
    usize::try_from(wanted).unwrap_or(1)
}
