//! A minimal Deployment and ReplicaSet controller: replicas, a new ReplicaSet for a new template,
//! status, and the end of what belonged to a deleted owner.
//!
//! A changed template scales the old ReplicaSet to zero at once instead of rolling.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agenda::Agenda;
use super::children::{self, Controller};
use super::clock::{Clock, hash, name_suffix, rfc3339};
use super::objects::{Deployment, Meta, Pod, ReplicaSet};
use super::watch::Change;
use crate::sandbox::calls::{CallError, Calls, PatchKind, path};

/// How long after a failed write the object is looked at again.
const RETRY: Duration = Duration::from_secs(1);
/// A created object that the feed does not show for this long is taken to be gone again.
const UNSEEN: Duration = Duration::from_secs(30);
/// The label that tells the pods of one template from those of another.
const TEMPLATE_HASH: &str = "pod-template-hash";

#[derive(Debug, Clone, Default)]
struct ChildPod {
    name: String,
    ready: bool,
    ended: bool,
    deleting: bool,
    unseen: Option<Instant>,
}

#[derive(Default)]
struct SetRecord {
    set: Option<Arc<ReplicaSet>>,
    namespace: String,
    pods: BTreeMap<String, ChildPod>,
    attempts: u64,
}

/// The Deployment and ReplicaSet controllers in one task.
pub(super) struct Deployments {
    calls: Calls,
    clock: Clock,
    deployments: BTreeMap<String, Arc<Deployment>>,
    sets: BTreeMap<String, SetRecord>,
    /// ReplicaSet UID of each pod.
    owners: BTreeMap<String, String>,
    agenda: Agenda,
    synced: [bool; 3],
}

impl Deployments {
    /// Controllers that write through `calls`.
    pub(super) fn new(calls: Calls, clock: Clock) -> Self {
        Self {
            calls,
            clock,
            deployments: BTreeMap::new(),
            sets: BTreeMap::new(),
            owners: BTreeMap::new(),
            agenda: Agenda::default(),
            synced: [false; 3],
        }
    }

    /// Works until `cancel` or the end of a feed.
    pub(super) async fn run(
        mut self,
        mut deployments: mpsc::Receiver<Change<Deployment>>,
        mut sets: mpsc::Receiver<Change<ReplicaSet>>,
        mut pods: mpsc::Receiver<Change<Pod>>,
        cancel: CancellationToken,
    ) {
        loop {
            let ready = self.synced.iter().all(|synced| *synced);
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                change = deployments.recv() => match change {
                    Some(change) => self.deployment_changed(change),
                    None => return,
                },
                change = sets.recv() => match change {
                    Some(change) => self.set_changed(change),
                    None => return,
                },
                change = pods.recv() => match change {
                    Some(change) => self.pod_changed(change),
                    None => return,
                },
                () = self.agenda.due(), if ready => {
                    if let Some(uid) = self.agenda.pop(Instant::now()) {
                        let result = tokio::select! {
                            biased;
                            () = cancel.cancelled() => return,
                            result = self.reconcile(&uid) => result,
                        };
                        if let Err(error) = result {
                            tracing::debug!(%error, "Deployment controller write failed");
                            self.agenda.at_latest(&uid, Instant::now() + RETRY);
                        }
                    }
                }
            }
        }
    }

    fn look(&mut self, uid: &str) {
        self.agenda.at_latest(uid, Instant::now());
    }

    fn deployment_changed(&mut self, change: Change<Deployment>) {
        let [synced, ..] = &mut self.synced;
        match change {
            Change::Set(deployment) => {
                let uid = deployment.metadata.uid.clone();
                self.deployments.insert(uid.clone(), deployment);
                self.look(&uid);
            }
            Change::Gone(uid) => {
                self.deployments.remove(&uid);
                let orphans: Vec<String> = self
                    .sets
                    .iter()
                    .filter(|(_, record)| owner_of(record) == Some(uid.as_str()))
                    .map(|(uid, _)| uid.clone())
                    .collect();
                for set in orphans {
                    self.look(&set);
                }
            }
            Change::Synced => *synced = true,
        }
    }

    fn set_changed(&mut self, change: Change<ReplicaSet>) {
        let [_, synced, _] = &mut self.synced;
        match change {
            Change::Set(set) => {
                let uid = set.metadata.uid.clone();
                let owner = set.metadata.controller().map(|owner| owner.uid.clone());
                let record = self.sets.entry(uid.clone()).or_default();
                record.namespace.clone_from(&set.metadata.namespace);
                record.set = Some(set);
                self.look(&uid);
                if let Some(owner) = owner {
                    self.look(&owner);
                }
            }
            Change::Gone(uid) => {
                let mut owner = None;
                if let Some(record) = self.sets.get_mut(&uid) {
                    owner = owner_of(record).map(str::to_owned);
                    record.set = None;
                }
                self.look(&uid);
                if let Some(owner) = owner {
                    self.look(&owner);
                }
            }
            Change::Synced => *synced = true,
        }
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        let [_, _, synced] = &mut self.synced;
        match change {
            Change::Set(pod) => {
                let controller = pod.metadata.controller();
                let Some(owner) = controller.filter(|owner| owner.kind == "ReplicaSet") else {
                    return;
                };
                let (set, uid) = (owner.uid.clone(), pod.metadata.uid.clone());
                let record = self.sets.entry(set.clone()).or_default();
                record.namespace.clone_from(&pod.metadata.namespace);
                let deleted = record.pods.get(&uid).is_some_and(|before| before.deleting);
                let child = ChildPod {
                    name: pod.metadata.name.clone(),
                    ready: pod.is_ready(),
                    ended: pod.is_terminal(),
                    deleting: deleted || pod.metadata.deletion_timestamp.is_some(),
                    unseen: None,
                };
                record.pods.insert(uid.clone(), child);
                self.owners.insert(uid, set.clone());
                self.look(&set);
            }
            Change::Gone(uid) => {
                if let Some(set) = self.owners.remove(&uid) {
                    if let Some(record) = self.sets.get_mut(&set) {
                        record.pods.remove(&uid);
                    }
                    self.look(&set);
                }
            }
            Change::Synced => *synced = true,
        }
    }

    async fn reconcile(&mut self, uid: &str) -> Result<(), CallError> {
        if let Some(deployment) = self.deployments.get(uid).cloned() {
            self.reconcile_deployment(&deployment).await
        } else {
            self.reconcile_set(uid).await
        }
    }

    async fn reconcile_deployment(&mut self, deployment: &Deployment) -> Result<(), CallError> {
        let meta = &deployment.metadata;
        if meta.deletion_timestamp.is_some() {
            return Ok(());
        }
        let replicas = deployment.spec.replicas.unwrap_or(1);
        let hash = template_hash(&deployment.spec.template);
        let collection = path::replica_sets(&meta.namespace);
        let mut counts = Counts::default();
        let mut current = false;
        for record in self.sets.values() {
            let Some(set) = record
                .set
                .as_ref()
                .filter(|_| owner_of(record) == Some(&meta.uid))
            else {
                continue;
            };
            let is_current = set.metadata.labels.get(TEMPLATE_HASH) == Some(&hash);
            current |= is_current;
            let wanted = if is_current { replicas } else { 0 };
            if set.spec.replicas.unwrap_or(1) != wanted {
                let at = format!("{collection}/{}", set.metadata.name);
                let patch = json!({"spec": {"replicas": wanted}});
                self.calls
                    .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
                    .await?;
            }
            counts.add(record, is_current);
        }
        if !current {
            let set = replica_set(deployment, &hash, replicas);
            match self.calls.post::<IgnoredAny>(&collection, &set).await {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => {}
            }
        }
        let status = counts.deployment_status(deployment, replicas, self.clock.now());
        if let Some(patch) = difference(&deployment.status, &status) {
            let at = format!(
                "{}/{}/status",
                path::deployments(&meta.namespace),
                meta.name
            );
            self.calls
                .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
                .await?;
        }
        Ok(())
    }

    async fn reconcile_set(&mut self, uid: &str) -> Result<(), CallError> {
        let Some(record) = self.sets.get_mut(uid) else {
            return Ok(());
        };
        record
            .pods
            .retain(|_, pod| pod.unseen.is_none_or(|since| since.elapsed() < UNSEEN));
        let pods_at = path::pods(&record.namespace);
        let owner_gone =
            owner_of(record).is_some_and(|owner| !self.deployments.contains_key(owner));
        if let Some(set) = record.set.clone().filter(|_| owner_gone) {
            let at = format!(
                "{}/{}",
                path::replica_sets(&record.namespace),
                set.metadata.name
            );
            return self.calls.delete(&at, uid, None).await;
        }
        let set = record.set.clone();
        let wanted = match &set {
            Some(set) if set.metadata.deletion_timestamp.is_some() => return Ok(()),
            Some(set) => usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0),
            None if record.pods.is_empty() => {
                self.sets.remove(uid);
                return Ok(());
            }
            None => 0,
        };
        // Ended pods go too once nobody owns them; else they stay to be looked at.
        let mut living: Vec<(String, String, bool)> = record
            .pods
            .iter()
            .filter(|(_, pod)| !pod.deleting && (!pod.ended || set.is_none()))
            .map(|(uid, pod)| (uid.clone(), pod.name.clone(), pod.ready))
            .collect();
        // Pods that are not ready go first.
        living.sort_by_key(|(_, name, ready)| (*ready, name.clone()));
        let surplus = living.len().saturating_sub(wanted);
        for (pod_uid, name, _) in living.iter().take(surplus) {
            self.calls
                .delete(&format!("{pods_at}/{name}"), pod_uid, None)
                .await?;
            if let Some(pod) = record.pods.get_mut(pod_uid) {
                pod.deleting = true;
            }
        }
        if let Some(set) = set {
            let missing = wanted.saturating_sub(living.len());
            if missing > 0 {
                self.agenda.at_latest(uid, Instant::now() + UNSEEN + RETRY);
            }
            for _ in 0..missing {
                create_pod(&self.calls, self.clock, &set, record, &mut self.owners).await?;
            }
            let status = set_status(&set, record);
            if let Some(patch) = difference(&set.status, &status) {
                let sets_at = path::replica_sets(&record.namespace);
                let at = format!("{sets_at}/{}/status", set.metadata.name);
                self.calls
                    .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
                    .await?;
            }
            let owner = owner_of(record).map(str::to_owned);
            if let Some(owner) = owner {
                self.look(&owner);
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct CreatedPod {
    metadata: Meta,
}

async fn create_pod(
    calls: &Calls,
    clock: Clock,
    set: &ReplicaSet,
    record: &mut SetRecord,
    owners: &mut BTreeMap<String, String>,
) -> Result<(), CallError> {
    let meta = &set.metadata;
    let name = children::name(clock, &meta.namespace, &meta.name, record.attempts);
    record.attempts += 1;
    let controller = Controller {
        api_version: "apps/v1",
        kind: "ReplicaSet",
        name: &meta.name,
        uid: &meta.uid,
    };
    let template = &set.spec.template;
    let body = children::pod(template, &meta.namespace, &name, controller, &[], &[]);
    let created: CreatedPod = calls.post(&path::pods(&meta.namespace), &body).await?;
    let child = ChildPod {
        name,
        unseen: Some(Instant::now()),
        ..ChildPod::default()
    };
    owners.insert(created.metadata.uid.clone(), meta.uid.clone());
    record.pods.insert(created.metadata.uid, child);
    Ok(())
}

fn owner_of(record: &SetRecord) -> Option<&str> {
    let owner = record.set.as_ref()?.metadata.controller()?;
    (owner.kind == "Deployment").then_some(owner.uid.as_str())
}

#[derive(Default)]
struct Counts {
    all: i64,
    updated: i64,
    ready: i64,
}

impl Counts {
    fn add(&mut self, record: &SetRecord, current: bool) {
        for pod in record
            .pods
            .values()
            .filter(|pod| !pod.ended && !pod.deleting)
        {
            self.all += 1;
            self.updated += i64::from(current);
            self.ready += i64::from(pod.ready);
        }
    }

    fn deployment_status(&self, deployment: &Deployment, replicas: i64, now: Timestamp) -> Value {
        let available = self.ready >= replicas;
        let (status, reason, message) = if available {
            (
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        };
        // The condition keeps its times unless its status changes.
        let written = deployment
            .status
            .get("conditions")
            .and_then(Value::as_array);
        let same = written.into_iter().flatten().find(|condition| {
            condition.get("type").and_then(Value::as_str) == Some("Available")
                && condition.get("status").and_then(Value::as_str) == Some(status)
        });
        let now = rfc3339(now);
        let condition = same.cloned().unwrap_or_else(|| {
            json!({
                "type": "Available",
                "status": status,
                "reason": reason,
                "message": message,
                "lastUpdateTime": now,
                "lastTransitionTime": now,
            })
        });
        json!({
            "observedGeneration": deployment.metadata.generation,
            "replicas": self.all,
            "updatedReplicas": self.updated,
            "readyReplicas": self.ready,
            "availableReplicas": self.ready,
            "unavailableReplicas": (replicas - self.ready).max(0),
            "conditions": [condition],
        })
    }
}

fn set_status(set: &ReplicaSet, record: &SetRecord) -> Value {
    let mut counts = Counts::default();
    counts.add(record, true);
    json!({
        "observedGeneration": set.metadata.generation,
        "replicas": counts.all,
        "fullyLabeledReplicas": counts.all,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.ready,
    })
}

/// A merge patch of the fields of `wanted` that differ; absent counts as zero.
fn difference(written: &Value, wanted: &Value) -> Option<Value> {
    let zero = json!(0);
    let patch: serde_json::Map<String, Value> = wanted
        .as_object()?
        .iter()
        .filter(|(field, value)| written.get(*field).unwrap_or(&zero) != *value)
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    (!patch.is_empty()).then(|| json!({"status": patch}))
}

/// The same text for the same template; the order of keys does not matter, serde_json sorts them.
fn template_hash(template: &Value) -> String {
    let bits = hash(0, &template.to_string());
    format!("{}{}", name_suffix(bits), name_suffix(bits >> 32))
}

fn replica_set(deployment: &Deployment, hash: &str, replicas: i64) -> Value {
    let meta = &deployment.metadata;
    let mut template = deployment.spec.template.clone();
    let mut selector = deployment.spec.selector.clone();
    let mut labels = json!({});
    if let Some(template_meta) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        let own = template_meta.entry("labels").or_insert_with(|| json!({}));
        set_hash(own, hash);
        labels = own.clone();
    }
    if let Some(selector) = selector.as_object_mut() {
        let own = selector.entry("matchLabels").or_insert_with(|| json!({}));
        set_hash(own, hash);
    }
    let controller = Controller {
        api_version: "apps/v1",
        kind: "Deployment",
        name: &meta.name,
        uid: &meta.uid,
    };
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", meta.name),
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": {
                "deployment.kubernetes.io/desired-replicas": replicas.to_string(),
                "deployment.kubernetes.io/revision": "1",
            },
            "ownerReferences": [controller.reference()],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}

fn set_hash(labels: &mut Value, hash: &str) {
    if let Some(map) = labels.as_object_mut() {
        map.insert(TEMPLATE_HASH.to_owned(), json!(hash));
    }
}
