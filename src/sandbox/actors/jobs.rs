//! The batch/v1 Job controller: parallelism, completions, Indexed, suspend, back-off, deadline,
//! time to live, and the end of a deleted Job's pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agenda::Agenda;
use super::children::{self, Controller};
use super::clock::Clock;
use super::events::Note;
use super::job_plan::{INDEX, JobPod, Tally, decide};
use super::objects::{Job, Meta, Pod};
use super::watch::Change;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// How long after a failed write the Job is looked at again.
const RETRY: Duration = Duration::from_secs(1);
/// A created pod that the feed does not show for this long is taken to be gone again.
const UNSEEN: Duration = Duration::from_secs(30);
/// Pods created or deleted at a time for one Job.
const IN_FLIGHT: usize = 16;
/// The controller that a Job without `managedBy` belongs to.
const SELF: &str = "kubernetes.io/job-controller";

#[derive(Default)]
struct Record {
    /// `None` while only pods of the Job were seen.
    job: Option<Arc<Job>>,
    pods: BTreeMap<String, JobPod>,
    /// Pods created here that the feed has not shown yet.
    unseen: BTreeMap<String, Instant>,
    tally: Tally,
    attempts: u64,
}

/// The Job controller.
pub(super) struct Jobs {
    calls: Calls,
    clock: Clock,
    records: BTreeMap<String, Record>,
    /// Job UID of each pod.
    owners: BTreeMap<String, String>,
    /// Namespace of each Job, also of one that is gone while its pods are not.
    namespaces: BTreeMap<String, String>,
    agenda: Agenda,
    jobs_synced: bool,
    pods_synced: bool,
}

impl Jobs {
    /// A controller that writes through `calls`.
    pub(super) fn new(calls: Calls, clock: Clock) -> Self {
        Self {
            calls,
            clock,
            records: BTreeMap::new(),
            owners: BTreeMap::new(),
            agenda: Agenda::default(),
            namespaces: BTreeMap::new(),
            jobs_synced: false,
            pods_synced: false,
        }
    }

    /// Works until `cancel` or the end of a feed.
    pub(super) async fn run(
        mut self,
        mut jobs: mpsc::Receiver<Change<Job>>,
        mut pods: mpsc::Receiver<Change<Pod>>,
        cancel: CancellationToken,
    ) {
        loop {
            let ready = self.jobs_synced && self.pods_synced;
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                change = jobs.recv() => match change {
                    Some(change) => self.job_changed(change),
                    None => return,
                },
                change = pods.recv() => match change {
                    Some(change) => self.pod_changed(change),
                    None => return,
                },
                () = self.agenda.due(), if ready => {
                    if let Some(uid) = self.agenda.pop(Instant::now()) {
                        tokio::select! {
                            biased;
                            () = cancel.cancelled() => return,
                            () = self.reconcile(&uid) => {}
                        }
                    }
                }
            }
        }
    }

    fn look(&mut self, uid: &str) {
        self.agenda.at_latest(uid, Instant::now());
    }

    fn job_changed(&mut self, change: Change<Job>) {
        match change {
            Change::Set(job) => {
                let ours = job
                    .spec
                    .managed_by
                    .as_deref()
                    .is_none_or(|name| name == SELF);
                let uid = job.metadata.uid.clone();
                if ours {
                    self.namespaces
                        .insert(uid.clone(), job.metadata.namespace.clone());
                    self.records.entry(uid.clone()).or_default().job = Some(job);
                    self.look(&uid);
                }
            }
            Change::Gone(uid) => {
                if let Some(record) = self.records.get_mut(&uid) {
                    record.job = None;
                    self.look(&uid);
                }
            }
            Change::Synced => self.jobs_synced = true,
        }
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        match change {
            Change::Set(pod) => {
                let Some(owner) = pod.metadata.controller().filter(|owner| owner.is_job()) else {
                    return;
                };
                let (job_uid, pod_uid) = (owner.uid.clone(), pod.metadata.uid.clone());
                self.namespaces
                    .entry(job_uid.clone())
                    .or_insert_with(|| pod.metadata.namespace.clone());
                let record = self.records.entry(job_uid.clone()).or_default();
                let mut fresh = JobPod::new(&pod);
                let before = record.pods.get(&pod_uid);
                fresh.removed_by_us = before.is_some_and(|before| before.removed_by_us);
                fresh.deleting |= fresh.removed_by_us;
                record.unseen.remove(&pod_uid);
                record.pods.insert(pod_uid.clone(), fresh);
                self.owners.insert(pod_uid, job_uid.clone());
                self.look(&job_uid);
            }
            Change::Gone(uid) => {
                if let Some(job_uid) = self.owners.remove(&uid) {
                    if let Some(record) = self.records.get_mut(&job_uid) {
                        record.pods.remove(&uid);
                        record.unseen.remove(&uid);
                    }
                    self.look(&job_uid);
                }
            }
            Change::Synced => self.pods_synced = true,
        }
    }

    async fn reconcile(&mut self, uid: &str) {
        let Some(record) = self.records.get_mut(uid) else {
            return;
        };
        forget_unseen(record);
        let Some(job) = record.job.clone() else {
            self.clean_up(uid).await;
            return;
        };
        let decision = decide(
            &job,
            &record.pods,
            &mut record.tally,
            self.clock.now(),
            self.clock,
        );
        let meta = &job.metadata;
        let job_path = format!("{}/{}", path::jobs(&meta.namespace), meta.name);
        let mut failed = false;
        if decision.expired {
            failed |= warn(self.calls.delete(&job_path, &meta.uid, None).await);
        }
        failed |= self
            .delete_pods(uid, &meta.namespace, &decision.delete)
            .await;
        failed |= self.create_pods(uid, &job, &decision.create).await;
        if let Some(patch) = decision.status {
            let at = format!("{job_path}/status");
            let result = self
                .calls
                .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
                .await;
            let refused = warn(result.map(|_| ()));
            if let (false, Some(said)) = (refused, decision.ended) {
                end_note(&job, said).write(&self.calls).await;
            }
            failed |= refused;
        }
        let now = Instant::now();
        // One that is deleted is gone when the watch says so, which may be cut just then: looking again
        // at once would go round and round, and under a clock that jumps for ever.
        if failed || decision.expired {
            self.agenda.at_latest(uid, now + RETRY);
        } else if let Some(wait) = decision.again.and_then(|wait| now.checked_add(wait)) {
            self.agenda.at_latest(uid, wait);
        }
    }

    /// Deletes what is left of a Job that is gone.
    async fn clean_up(&mut self, uid: &str) {
        let Some(record) = self.records.get(uid) else {
            return;
        };
        if record.pods.is_empty() {
            self.records.remove(uid);
            self.namespaces.remove(uid);
            return;
        }
        let left: Vec<String> = record
            .pods
            .iter()
            .filter(|(_, pod)| !pod.deleting)
            .map(|(uid, _)| uid.clone())
            .collect();
        let namespace = self.namespaces.get(uid).cloned().unwrap_or_default();
        if self.delete_pods(uid, &namespace, &left).await {
            self.agenda.at_latest(uid, Instant::now() + RETRY);
        }
    }

    /// Whether a delete failed.
    async fn delete_pods(&mut self, job_uid: &str, namespace: &str, uids: &[String]) -> bool {
        let Some(record) = self.records.get_mut(job_uid) else {
            return false;
        };
        let calls = &self.calls;
        let collection = &path::pods(namespace);
        let work: Vec<_> = uids
            .iter()
            .filter_map(|uid| Some((uid, record.pods.get(uid)?.name.clone())))
            .map(|(uid, name)| async move {
                (
                    uid,
                    calls
                        .delete(&format!("{collection}/{name}"), uid, None)
                        .await,
                )
            })
            .collect();
        let results: Vec<_> = futures::stream::iter(work)
            .buffer_unordered(IN_FLIGHT)
            .collect()
            .await;
        let mut failed = false;
        for (uid, result) in results {
            if warn(result) {
                failed = true;
            } else if let Some(pod) = record.pods.get_mut(uid) {
                pod.deleting = true;
                pod.removed_by_us = true;
            }
        }
        failed
    }

    /// Whether a create failed.
    async fn create_pods(&mut self, job_uid: &str, job: &Job, indexes: &[Option<i64>]) -> bool {
        let Some(record) = self.records.get_mut(job_uid) else {
            return false;
        };
        let (calls, clock) = (&self.calls, self.clock);
        let first = record.attempts;
        record.attempts += indexes.len() as u64;
        let namespace = &job.metadata.namespace;
        let collection = &path::pods(namespace);
        let work: Vec<_> = indexes
            .iter()
            .zip(first..)
            .map(|(index, attempt)| async move {
                let body = pod_of(job, clock, *index, attempt);
                (*index, calls.post::<CreatedPod>(collection, &body).await)
            })
            .collect();
        let results: Vec<_> = futures::stream::iter(work)
            .buffer_unordered(IN_FLIGHT)
            .collect()
            .await;
        let mut failed = false;
        for (index, result) in results {
            match result {
                Ok(CreatedPod { metadata }) => {
                    let pod = Pod {
                        metadata,
                        ..Pod::default()
                    };
                    let uid = pod.metadata.uid.clone();
                    let mut fresh = JobPod::new(&pod);
                    fresh.index = index;
                    record.pods.insert(uid.clone(), fresh);
                    record.unseen.insert(uid.clone(), Instant::now());
                    self.owners.insert(uid, job_uid.to_owned());
                    self.agenda
                        .at_latest(job_uid, Instant::now() + UNSEEN + RETRY);
                }
                // The name belongs to an earlier pod: the next attempt has another.
                Err(error) => failed |= error.is_already_exists() || warn(Err(error)),
            }
        }
        failed
    }
}

#[derive(Deserialize)]
struct CreatedPod {
    metadata: Meta,
}

fn end_note(job: &Job, (well, reason, message): (bool, &str, &str)) -> Note {
    Note {
        api_version: "batch/v1",
        kind: "Job",
        namespace: job.metadata.namespace.clone(),
        name: job.metadata.name.clone(),
        uid: job.metadata.uid.clone(),
        component: "job-controller",
        host: String::new(),
        warning: !well,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// A pod that the feed never showed has come and gone between two lists.
fn forget_unseen(record: &mut Record) {
    let overdue: Vec<String> = record
        .unseen
        .iter()
        .filter(|(_, since)| since.elapsed() > UNSEEN)
        .map(|(uid, _)| uid.clone())
        .collect();
    for uid in overdue {
        record.unseen.remove(&uid);
        record.pods.remove(&uid);
    }
}

/// Notes a failure; says whether it was one.
fn warn(result: Result<(), CallError>) -> bool {
    match result {
        Ok(()) => false,
        Err(error) => {
            tracing::debug!(%error, "Job controller write failed");
            true
        }
    }
}

fn pod_of(job: &Job, clock: Clock, index: Option<i64>, attempt: u64) -> Value {
    let Meta {
        name,
        namespace,
        uid,
        ..
    } = &job.metadata;
    let base = index.map_or_else(|| name.clone(), |index| format!("{name}-{index}"));
    let pod_name = children::name(clock, namespace, &base, attempt);
    let mut labels: Vec<(&str, &str)> = vec![
        ("batch.kubernetes.io/job-name", name),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("controller-uid", uid),
    ];
    let index_text = index.map(|index| index.to_string());
    let mut annotations = Vec::new();
    if let Some(index) = &index_text {
        labels.push((INDEX, index));
        annotations.push((INDEX, index.as_str()));
    }
    let controller = Controller {
        api_version: "batch/v1",
        kind: "Job",
        name,
        uid,
    };
    let template = &job.spec.template;
    let mut pod = children::pod(
        template,
        namespace,
        &pod_name,
        controller,
        &labels,
        &annotations,
    );
    // A host name has at most 63 characters; a longer one is left to the default.
    if index.is_some()
        && base.len() <= 63
        && let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("hostname".to_owned(), json!(base));
    }
    pod
}
