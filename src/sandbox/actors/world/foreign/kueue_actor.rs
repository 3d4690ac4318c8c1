//! The actor that plays Kueue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ensure_all;
use super::kueue::{
    API_VERSION, CLUSTER_QUEUES, GATE, PRIORITY_CLASSES, PRIORITY_LABEL, Priority, QUEUE_LABEL,
    Settings, namespaced, workload, workload_key,
};
use super::kueue_status as status;
use super::kueue_topology::{self, Seats};
use super::standing::text;
use crate::sandbox::actors::bound::pod_path;
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::events::Note;
use crate::sandbox::actors::objects::{Custom, Job, Meta, Node, Pod};
use crate::sandbox::actors::watch::Change;
use crate::sandbox::calls::{Calls, PatchKind, path};

/// Time between two rounds, in seconds of the actors' time, and the shortest real one.
const ROUND_SECS: f64 = 1.0;
const MIN_ROUND: Duration = Duration::from_millis(100);

/// What Kueue watches.
pub(super) struct Inputs {
    pub nodes: mpsc::Receiver<Change<Node>>,
    pub jobs: mpsc::Receiver<Change<Job>>,
    pub pods: mpsc::Receiver<Change<Pod>>,
    pub cluster_queues: mpsc::Receiver<Change<Custom>>,
    pub local_queues: mpsc::Receiver<Change<Custom>>,
    pub workloads: mpsc::Receiver<Change<Custom>>,
}

pub(super) struct Kueue {
    pub(super) calls: Calls,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    pub(super) seats: Seats,
    /// Jobs and gated pods with a queue name, by UID.
    pub(super) jobs: BTreeMap<String, Arc<Job>>,
    pods: BTreeMap<String, Arc<Pod>>,
    pub(super) cluster_queues: BTreeMap<String, Arc<Custom>>,
    /// By `namespace/name`, as the workloads.
    pub(super) local_queues: BTreeMap<String, Arc<Custom>>,
    pub(super) workloads: BTreeMap<String, Arc<Custom>>,
    pub(super) dirty: bool,
}

/// Works until `cancel` or the end of a feed.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    settings: Settings,
    mut inputs: Inputs,
    cancel: CancellationToken,
) {
    tokio::select! {
        biased;
        () = cancel.cancelled() => return,
        () = ensure_all(&calls, settings.objects()) => {}
    }
    let mut round = tokio::time::interval(clock.real(ROUND_SECS).max(MIN_ROUND));
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut kueue = Kueue {
        calls,
        clock,
        settings,
        seats: Seats::default(),
        jobs: BTreeMap::new(),
        pods: BTreeMap::new(),
        cluster_queues: BTreeMap::new(),
        local_queues: BTreeMap::new(),
        workloads: BTreeMap::new(),
        dirty: true,
    };
    // Jobs, pods, workloads.
    let (mut jobs, mut pods, mut workloads) = (false, false, false);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = inputs.cluster_queues.recv() => match change {
                Some(change) => fold(&mut kueue.cluster_queues, change, &mut kueue.dirty),
                None => return,
            },
            change = inputs.local_queues.recv() => match change {
                Some(change) => fold(&mut kueue.local_queues, change, &mut kueue.dirty),
                None => return,
            },
            change = inputs.workloads.recv() => match change {
                Some(Change::Synced) => workloads = true,
                Some(change) => fold(&mut kueue.workloads, change, &mut kueue.dirty),
                None => return,
            },
            change = inputs.nodes.recv() => match change {
                Some(change) => {
                    kueue.seats.node_changed(change);
                    kueue.dirty |= kueue.seats.wanted;
                }
                None => return,
            },
            change = inputs.jobs.recv() => match change {
                Some(Change::Synced) => jobs = true,
                Some(change) => kueue.job_changed(change),
                None => return,
            },
            change = inputs.pods.recv() => match change {
                Some(Change::Synced) => pods = true,
                Some(change) => kueue.pod_changed(change),
                None => return,
            },
            _ = round.tick(), if jobs && pods && workloads => {
                if std::mem::take(&mut kueue.dirty) {
                    tokio::select! {
                        biased;
                        () = cancel.cancelled() => return,
                        () = kueue.round() => {}
                    }
                }
            }
        }
    }
}

fn key_of(meta: &Meta) -> String {
    if meta.namespace.is_empty() {
        meta.name.clone()
    } else {
        format!("{}/{}", meta.namespace, meta.name)
    }
}

fn fold(all: &mut BTreeMap<String, Arc<Custom>>, change: Change<Custom>, dirty: &mut bool) {
    match change {
        Change::Set(object) => {
            let key = key_of(&object.metadata);
            if all
                .get(&key)
                .is_some_and(|known| newer(&known.metadata, &object.metadata))
            {
                return;
            }
            all.insert(key, object);
        }
        Change::Gone(uid) => all.retain(|_, object| object.metadata.uid != uid),
        Change::Synced => return,
    }
    *dirty = true;
}

/// Whether `a` is a later state than `b` of the same object: the feed lags behind our own writes.
fn newer(a: &Meta, b: &Meta) -> bool {
    let version = |meta: &Meta| meta.resource_version.parse::<u64>().unwrap_or(0);
    a.uid == b.uid && version(a) > version(b)
}

impl Kueue {
    fn job_changed(&mut self, change: Change<Job>) {
        match change {
            Change::Set(job) => {
                let meta = &job.metadata;
                if !meta.labels.contains_key(QUEUE_LABEL) {
                    return;
                }
                if self
                    .jobs
                    .get(&meta.uid)
                    .is_some_and(|known| newer(&known.metadata, meta))
                {
                    return;
                }
                self.jobs.insert(meta.uid.clone(), job);
            }
            Change::Gone(uid) => {
                self.jobs.remove(&uid);
            }
            Change::Synced => return,
        }
        self.dirty = true;
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        self.dirty |= self.seats.pod_changed(&change);
        match change {
            Change::Set(pod) => {
                let meta = &pod.metadata;
                if !meta.labels.contains_key(QUEUE_LABEL) || meta.controller().is_some() {
                    return;
                }
                self.pods.insert(meta.uid.clone(), pod);
            }
            Change::Gone(uid) => {
                if self.pods.remove(&uid).is_none() {
                    return;
                }
            }
            Change::Synced => return,
        }
        self.dirty = true;
    }

    async fn round(&mut self) {
        self.make_workloads().await;
        self.finish().await;
        self.evict().await;
        self.admit().await;
        self.release().await;
        self.seat().await;
        self.tell_queues().await;
    }

    /// A Workload for each Job and gated pod that has none; a Job that runs unasked is suspended.
    async fn make_workloads(&mut self) {
        for job in self.jobs.values().cloned().collect::<Vec<_>>() {
            let key = workload_key("job", &job.metadata);
            if status::job_end(&job).is_some() || self.workloads.contains_key(&key) {
                continue;
            }
            let priority = self.priority(&job.metadata, &job.spec.template).await;
            let object = workload(
                "job",
                &job.metadata,
                ("batch/v1", "Job"),
                job.spec.parallelism.unwrap_or(1).max(1),
                &job.spec.template,
                priority,
            );
            self.create(&key, &job.metadata.namespace, object).await;
        }
        for pod in self.pods.values().cloned().collect::<Vec<_>>() {
            let key = workload_key("pod", &pod.metadata);
            if !is_gated(&pod) || self.workloads.contains_key(&key) {
                continue;
            }
            let at = pod_path(&pod);
            let Ok(whole) = self.calls.get::<Value>(&at).await else {
                continue;
            };
            let template = json!({"metadata": {}, "spec": whole.get("spec")});
            let priority = self.priority(&pod.metadata, &template).await;
            let owner = ("v1", "Pod");
            let object = workload("pod", &pod.metadata, owner, 1, &template, priority);
            self.create(&key, &pod.metadata.namespace, object).await;
        }
        for job in self.jobs.values().cloned().collect::<Vec<_>>() {
            let key = workload_key("job", &job.metadata);
            let admitted = self
                .workloads
                .get(&key)
                .is_some_and(|w| status::is_true(w, "Admitted"));
            if !job.spec.suspend && !admitted && status::job_end(&job).is_none() {
                self.patch_job(&job, &json!({"spec": {"suspend": true}}))
                    .await;
            }
        }
    }

    /// What gives the workload of an owner its priority: Kueue's class, else that of its pods.
    async fn priority(&self, owner: &Meta, template: &Value) -> Option<Priority> {
        let of_pods = template.pointer("/spec/priorityClassName");
        let of_pods = of_pods
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let (collection, group, kind, name) = match owner.labels.get(PRIORITY_LABEL) {
            Some(name) => (
                PRIORITY_CLASSES,
                "kueue.x-k8s.io",
                "WorkloadPriorityClass",
                name.as_str(),
            ),
            None => (
                path::PRIORITY_CLASSES,
                "scheduling.k8s.io",
                "PriorityClass",
                of_pods?,
            ),
        };
        let class: Value = self.calls.get(&format!("{collection}/{name}")).await.ok()?;
        Some(Priority {
            value: class.get("value").and_then(Value::as_i64).unwrap_or(0),
            class: json!({"group": group, "kind": kind, "name": name}),
        })
    }

    async fn create(&mut self, key: &str, namespace: &str, object: Value) {
        let collection = namespaced("workloads", namespace);
        match self.calls.post::<Custom>(&collection, &object).await {
            Ok(made) => {
                self.workloads.insert(key.to_owned(), Arc::new(made));
            }
            Err(error) if error.is_already_exists() => {}
            Err(error) => {
                tracing::debug!(%error, "workload not created");
                self.dirty = true;
            }
        }
    }

    async fn patch_job(&mut self, job: &Job, patch: &Value) -> bool {
        let meta = &job.metadata;
        let at = format!("{}/{}", path::jobs(&meta.namespace), meta.name);
        match self.calls.patch::<Job>(&at, PatchKind::Merge, patch).await {
            Ok(job) => {
                self.jobs.insert(job.metadata.uid.clone(), Arc::new(job));
                true
            }
            Err(error) => {
                tracing::debug!(%error, "job of a queue not written");
                self.dirty = true;
                false
            }
        }
    }

    /// Writes a workload's status, if it differs.
    pub(super) async fn write(&mut self, key: &str, wanted: &Value) {
        let Some(object) = self.workloads.get(key) else {
            return;
        };
        if object.status == *wanted {
            return;
        }
        let meta = &object.metadata;
        let at = format!(
            "{}/{}/status",
            namespaced("workloads", &meta.namespace),
            meta.name
        );
        let mut merged = wanted.clone();
        if let (Some(new), Some(old)) = (merged.as_object_mut(), object.status.as_object()) {
            for member in old.keys() {
                new.entry(member.clone()).or_insert(Value::Null);
            }
        }
        let body = json!({"metadata": {"uid": meta.uid}, "status": merged});
        match self
            .calls
            .patch::<Custom>(&at, PatchKind::Merge, &body)
            .await
        {
            Ok(written) => {
                self.workloads.insert(key.to_owned(), Arc::new(written));
            }
            Err(error) => {
                tracing::debug!(%error, "status of a workload not written");
                self.dirty = true;
            }
        }
    }

    /// Workloads whose Job or pod has ended are finished; those that run say so.
    async fn finish(&mut self) {
        let now = self.clock.now();
        for (key, object) in self.workloads.clone() {
            if status::is_true(&object, "Finished") {
                continue;
            }
            let owner = object.metadata.controller();
            let mut wanted = object.status.clone();
            match owner {
                Some(owner) if owner.kind == "Job" => {
                    let Some(job) = self.jobs.get(&owner.uid) else {
                        continue;
                    };
                    if let Some(end) = status::job_end(job) {
                        status::set(&mut wanted, &object, "Finished", true, end, now);
                    } else if status::is_true(&object, "Admitted") {
                        let size = job.spec.parallelism.unwrap_or(1);
                        let ready = status::job_ready(job) >= size;
                        status::set_ready(&mut wanted, &object, ready, now);
                    }
                }
                Some(owner) if owner.kind == "Pod" => {
                    let Some(pod) = self.pods.get(&owner.uid) else {
                        continue;
                    };
                    if pod.is_terminal() {
                        let end = if pod.status.phase == "Succeeded" {
                            ("Succeeded", "Pods succeeded")
                        } else {
                            ("Failed", "Pods failed")
                        };
                        status::set(&mut wanted, &object, "Finished", true, end, now);
                    } else if status::is_true(&object, "Admitted") {
                        status::set_ready(&mut wanted, &object, pod.is_ready(), now);
                    }
                }
                _ => continue,
            }
            self.write(&key, &wanted).await;
        }
    }

    pub(super) fn cluster_queue_of(
        &self,
        workload: &Custom,
    ) -> Option<(&Arc<Custom>, &Arc<Custom>)> {
        let name = text(&workload.spec, "queueName");
        let local = self
            .local_queues
            .get(&format!("{}/{name}", workload.metadata.namespace))?;
        let cluster = self
            .cluster_queues
            .get(&text(&local.spec, "clusterQueue"))?;
        Some((local, cluster))
    }

    /// Workloads that were made inactive, or whose queue drains, are told to stop; those that have
    /// been told do, and lose their quota once their pods are gone.
    async fn evict(&mut self) {
        let now = self.clock.now();
        for (key, object) in self.workloads.clone() {
            let holds = status::is_true(&object, "QuotaReserved");
            if !holds || status::is_true(&object, "Finished") {
                continue;
            }
            if status::is_true(&object, "Evicted") {
                if self.stopped(&object).await {
                    let mut wanted = object.status.clone();
                    status::unreserve(&mut wanted, &object, now);
                    self.write(&key, &wanted).await;
                }
                continue;
            }
            let inactive = object.spec.get("active").and_then(Value::as_bool) == Some(false);
            let drains = |queue: &Custom| text(&queue.spec, "stopPolicy") == "HoldAndDrain";
            let why = match self.cluster_queue_of(&object) {
                _ if inactive => ("Deactivated", "The workload is deactivated"),
                Some((_, cluster)) if drains(cluster) => {
                    ("ClusterQueueStopped", "The ClusterQueue is stopped")
                }
                Some((local, _)) if drains(local) => {
                    ("LocalQueueStopped", "The LocalQueue is stopped")
                }
                _ => continue,
            };
            let mut wanted = object.status.clone();
            status::evict(&mut wanted, &object, why, now);
            self.write(&key, &wanted).await;
        }
    }

    /// Stops what a workload stands for; true once none of its pods is left.
    async fn stopped(&mut self, object: &Custom) -> bool {
        let Some(owner) = object.metadata.controller().cloned() else {
            return true;
        };
        if let Some(job) = self.jobs.get(&owner.uid).cloned() {
            let asked = job.spec.suspend
                || self
                    .patch_job(&job, &json!({"spec": {"suspend": true}}))
                    .await;
            return asked && job.spec.suspend && status::job_active(&job) == 0;
        }
        if let Some(pod) = self.pods.get(&owner.uid).cloned() {
            // A plain pod cannot be suspended: it is deleted, and its workload goes with it.
            if pod.metadata.deletion_timestamp.is_none()
                && let Err(error) = self.calls.delete(&pod_path(&pod), &owner.uid, None).await
            {
                tracing::debug!(%error, "pod of an evicted workload not deleted");
                self.dirty = true;
            }
            return false;
        }
        true
    }

    /// Admitted Jobs are resumed and admitted pods let go, on nodes of their flavors.
    async fn release(&mut self) {
        for object in self.workloads.values().cloned().collect::<Vec<_>>() {
            let goes = |kind: &str| status::is_true(&object, kind);
            if !goes("Admitted") || goes("Finished") || goes("Evicted") {
                continue;
            }
            let Some(owner) = object.metadata.controller() else {
                continue;
            };
            let mut labels = self.settings.node_labels(&status::assignment(&object));
            if let Some(job) = self
                .jobs
                .get(&owner.uid)
                .filter(|job| job.spec.suspend)
                .cloned()
            {
                let mut gates = job.spec.template.pointer("/spec/schedulingGates").cloned();
                if kueue_topology::is_assigned(&object) {
                    let gate = json!({"name": kueue_topology::GATE});
                    let list = gates.get_or_insert_with(|| json!([]));
                    if let Some(list) = list.as_array_mut().filter(|list| !list.contains(&gate)) {
                        list.push(gate);
                    }
                }
                let patch = json!({"spec": {
                    "suspend": false,
                    "template": {
                        "metadata": {
                            "labels": {"kueue.x-k8s.io/podset": "main"},
                            "annotations": {"kueue.x-k8s.io/workload": object.metadata.name},
                        },
                        "spec": {"nodeSelector": labels, "schedulingGates": gates},
                    },
                }});
                self.patch_job(&job, &patch).await;
            }
            let pod = self.pods.get(&owner.uid).filter(|pod| is_gated(pod));
            let Some(pod) = pod.cloned() else {
                continue;
            };
            let seat = kueue_topology::only_node(&object);
            labels.extend(seat.clone());
            let gates: Vec<Value> = pod
                .spec
                .scheduling_gates
                .iter()
                .filter(|gate| gate.name != GATE)
                .map(|gate| json!({"name": gate.name}))
                .collect();
            let patch = json!({
                "metadata": {"uid": pod.metadata.uid},
                "spec": {"schedulingGates": gates, "nodeSelector": labels},
            });
            let at = pod_path(&pod);
            let written = self
                .calls
                .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch);
            match (written.await, seat) {
                (Ok(_), Some((_, node))) => {
                    self.seats.take(&key_of(&object.metadata), &node, &pod);
                }
                (Ok(_), None) => {}
                (Err(error), _) => {
                    tracing::debug!(%error, "gate not lifted");
                    self.dirty = true;
                }
            }
        }
    }

    async fn tell_queues(&mut self) {
        let usage = self.usage();
        let quotas = self.quotas();
        let now = self.clock.now();
        let workloads: Vec<Arc<Custom>> = self.workloads.values().cloned().collect();
        let mut writes = Vec::new();
        for (name, queue) in &self.cluster_queues {
            let own: Vec<&Arc<Custom>> = workloads
                .iter()
                .filter(|w| {
                    self.cluster_queue_of(w)
                        .is_some_and(|(_, c)| c.metadata.name == *name)
                })
                .collect();
            let wanted = status::cluster_queue(queue, quotas.get(name), &usage, &own, now);
            writes.push((format!("{CLUSTER_QUEUES}/{name}/status"), queue, wanted));
        }
        for queue in self.local_queues.values() {
            let meta = &queue.metadata;
            let own: Vec<&Arc<Custom>> = workloads
                .iter()
                .filter(|w| w.metadata.namespace == meta.namespace)
                .filter(|w| text(&w.spec, "queueName") == meta.name)
                .collect();
            let cluster = self.cluster_queues.get(&text(&queue.spec, "clusterQueue"));
            let wanted = status::local_queue(queue, cluster.map(Arc::as_ref), &own, now);
            let at = format!(
                "{}/{}/status",
                namespaced("localqueues", &meta.namespace),
                meta.name
            );
            writes.push((at, queue, wanted));
        }
        for (at, queue, wanted) in writes {
            if queue.status == wanted {
                continue;
            }
            let body = json!({"metadata": {"uid": queue.metadata.uid}, "status": wanted});
            if let Err(error) = self
                .calls
                .patch::<IgnoredAny>(&at, PatchKind::Merge, &body)
                .await
            {
                tracing::debug!(%error, "status of a queue not written");
            }
        }
    }

    pub(super) async fn say(&self, object: &Custom, reason: &str, warning: bool, message: String) {
        let meta = &object.metadata;
        let note = Note {
            api_version: API_VERSION,
            kind: "Workload",
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            component: "kueue-admission",
            host: String::new(),
            warning,
            reason: reason.to_owned(),
            message,
        };
        note.write(&self.calls).await;
    }
}

fn is_gated(pod: &Pod) -> bool {
    pod.spec
        .scheduling_gates
        .iter()
        .any(|gate| gate.name == GATE)
}
