//! Objects of other systems in the picture: queues, what waits in them, submitted jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use ahash::AHashMap;

use super::super::delta::Gone;
use super::super::foreign::{
    Admitter, Foreign, ForeignBody, ForeignId, ForeignJob, ForeignKind, QueueEntry, QueueKey,
    QueueTally,
};
use super::super::meta::Uid;
use super::super::pod::Pod;
use super::super::published::Published;
use super::super::queue::Queue;
use super::super::text::Str;
use super::super::workload::WorkloadKey;
use super::super::workload_entry::earliest;
use super::Cluster;

/// Owners above a workload that are followed; a longer chain is no chain of sound objects.
const DEPTH: usize = 8;

/// What is known of other systems.
#[derive(Default)]
pub(super) struct ForeignState {
    /// By kind too: that no two kinds share a UID is the server's promise, not ours.
    objects: AHashMap<ForeignId, Arc<Foreign>>,
    queues: BTreeMap<QueueKey, Arc<Foreign>>,
    tallies: BTreeMap<QueueKey, QueueTally>,
    /// Pieces of work by the workload that they stand for.
    entries: BTreeMap<WorkloadKey, BTreeSet<ForeignId>>,
    /// Queues below each queue that is named as a parent.
    children: BTreeMap<QueueKey, BTreeSet<QueueKey>>,
    /// Our queues by the namespaces that they name.
    by_namespace: BTreeMap<Str, BTreeSet<QueueKey>>,
    /// ResourceSlices by their nodes.
    slices: AHashMap<Str, BTreeSet<ForeignId>>,
    /// Workloads that are part of another one.
    parents: BTreeMap<WorkloadKey, WorkloadKey>,
    /// Version of the last change of a queue or of a piece of work.
    changed: u64,
}

impl Cluster {
    /// The workload that a person submitted, of which this one may be a part.
    pub(super) fn top(&self, mut key: WorkloadKey) -> WorkloadKey {
        for _ in 0..DEPTH {
            match self.foreign.parents.get(&key) {
                Some(parent) if *parent != key => key = parent.clone(),
                _ => break,
            }
        }
        key
    }

    /// Objects of a kind of another system.
    pub(super) fn foreign_objects(&self, kind: ForeignKind) -> impl Iterator<Item = &Arc<Foreign>> {
        let objects = self.foreign.objects.iter();
        objects.filter_map(move |((k, _), object)| (*k == kind).then_some(object))
    }

    pub(super) fn set_foreign(&mut self, kind: ForeignKind, object: &Arc<Foreign>) {
        let id = (kind, object.meta.uid.clone());
        let known = self.foreign.objects.get(&id);
        let same_place = match (known.and_then(|k| k.job()), object.job()) {
            (Some(old), Some(new)) => old.workload == new.workload && old.part_of == new.part_of,
            _ => false,
        };
        if !same_place {
            self.remove_foreign(kind, &id.1);
        }
        match &object.body {
            ForeignBody::Queue(queue) => {
                if let Some(parent) = &queue.parent {
                    let below = self.foreign.children.entry(parent.clone()).or_default();
                    below.insert(queue.key.clone());
                }
                self.foreign
                    .queues
                    .insert(queue.key.clone(), object.clone());
                self.foreign.changed = self.version;
            }
            ForeignBody::Entry(entry) => {
                let tally = self.foreign.tallies.entry(entry.queue.clone()).or_default();
                tally.add(&id, entry);
                let of = self
                    .foreign
                    .entries
                    .entry(entry.workload.clone())
                    .or_default();
                of.insert(id.clone());
                self.foreign.changed = self.version;
                self.entry_changed(&entry.workload);
            }
            ForeignBody::Job(job) => self.add_job_object(object, job),
            ForeignBody::Devices(slice) => {
                let node = slice.node.clone();
                let on_it = self.foreign.slices.entry(node.clone()).or_default();
                on_it.insert(id.clone());
                self.foreign.objects.insert(id, object.clone());
                self.published_changed(&node);
                return;
            }
        }
        self.foreign.objects.insert(id, object.clone());
    }

    pub(super) fn remove_foreign(&mut self, kind: ForeignKind, uid: &Uid) {
        let id = (kind, uid.clone());
        let Some(object) = self.foreign.objects.remove(&id) else {
            return;
        };
        match &object.body {
            ForeignBody::Queue(queue) => {
                let known = self.foreign.queues.get(&queue.key);
                if known.is_some_and(|q| q.meta.uid == *uid) {
                    self.foreign.queues.remove(&queue.key);
                    if let Some(parent) = &queue.parent
                        && let Some(below) = self.foreign.children.get_mut(parent)
                    {
                        below.remove(&queue.key);
                        if below.is_empty() {
                            self.foreign.children.remove(parent);
                        }
                    }
                }
                self.foreign.changed = self.version;
            }
            ForeignBody::Entry(entry) => {
                if let Some(tally) = self.foreign.tallies.get_mut(&entry.queue) {
                    tally.remove(&id, entry);
                    if tally.entries.is_empty() {
                        self.foreign.tallies.remove(&entry.queue);
                    }
                }
                if let Some(of) = self.foreign.entries.get_mut(&entry.workload) {
                    of.remove(&id);
                    if of.is_empty() {
                        self.foreign.entries.remove(&entry.workload);
                    }
                }
                self.foreign.changed = self.version;
                self.entry_changed(&entry.workload);
            }
            ForeignBody::Job(job) => self.remove_job_object(uid, job),
            ForeignBody::Devices(slice) => {
                if let Some(on_it) = self.foreign.slices.get_mut(&slice.node) {
                    on_it.remove(&id);
                    if on_it.is_empty() {
                        self.foreign.slices.remove(&slice.node);
                    }
                }
                self.published_changed(&slice.node);
            }
        }
    }

    /// GPUs that drivers publish of a node.
    pub fn published(&self, node: &str) -> Published {
        let ids = self.foreign.slices.get(node).into_iter().flatten();
        let objects = ids.filter_map(|id| self.foreign.objects.get(id));
        Published::of(objects.filter_map(|o| o.devices()))
    }

    /// Reads a node anew with what is published of it.
    fn published_changed(&mut self, name: &Str) {
        let known = self.nodes.get(name).and_then(|e| e.node.clone());
        let plain = self.plain_nodes.get(name).cloned().or(known);
        if let Some(node) = plain {
            self.set_node(&node);
        }
    }

    /// One of our own queues, beside those of others.
    pub(super) fn set_queue(&mut self, queue: &Arc<Queue>) {
        let row = Arc::new(Foreign {
            meta: queue.meta.clone(),
            version: "v1alpha1".into(),
            body: ForeignBody::Queue(queue.as_admitter_queue()),
        });
        self.forget_queue(&Queue::key(&queue.meta.name));
        let Some(shown) = row.queue() else { return };
        if let Some(parent) = &shown.parent {
            let below = self.foreign.children.entry(parent.clone()).or_default();
            below.insert(shown.key.clone());
        }
        for namespace in &shown.namespaces {
            let queues = self.foreign.by_namespace.entry(namespace.clone());
            queues.or_default().insert(shown.key.clone());
        }
        self.foreign.queues.insert(shown.key.clone(), row.clone());
        self.foreign.changed = self.version;
    }

    pub(super) fn remove_queue(&mut self, gone: &Gone) {
        let key = Queue::key(&gone.name);
        let known = self.foreign.queues.get(&key);
        if known.is_some_and(|q| q.meta.uid == gone.uid) {
            self.forget_queue(&key);
            self.foreign.changed = self.version;
        }
    }

    fn forget_queue(&mut self, key: &QueueKey) {
        let Some(old) = self.foreign.queues.remove(key) else {
            return;
        };
        let Some(old) = old.queue() else { return };
        if let Some(parent) = &old.parent {
            take_out(&mut self.foreign.children, parent, key);
        }
        for namespace in &old.namespaces {
            take_out(&mut self.foreign.by_namespace, namespace, key);
        }
    }

    /// Our queue for the work of a namespace; of several, which is a fault, the first by name.
    pub fn queue_of_namespace(&self, namespace: &str) -> Option<&QueueKey> {
        self.foreign.by_namespace.get(namespace)?.first()
    }

    /// The row of a workload reads differently because its place in a queue does.
    fn entry_changed(&mut self, key: &WorkloadKey) {
        let key = self.top(key.clone());
        if let Some(entry) = self.workloads.get_mut(&key) {
            entry.row = OnceLock::new();
            self.note_workload(&key);
        }
    }

    fn add_job_object(&mut self, object: &Arc<Foreign>, job: &ForeignJob) {
        if let Some(parent) = job.part_of.as_ref().filter(|p| **p != job.workload) {
            let known = self
                .foreign
                .parents
                .insert(job.workload.clone(), parent.clone());
            if known.as_ref() != Some(parent) {
                self.move_over(&job.workload);
            }
        }
        let key = self.top(job.workload.clone());
        self.note_workload(&key);
        let entry = self.workloads.entry(key).or_default();
        entry.created = earliest(entry.created, object.meta.created);
        entry
            .foreign
            .insert(object.meta.uid.clone(), object.clone());
        entry.row = OnceLock::new();
    }

    fn remove_job_object(&mut self, uid: &Uid, job: &ForeignJob) {
        let key = self.top(job.workload.clone());
        self.note_workload(&key);
        if let Some(entry) = self.workloads.get_mut(&key) {
            entry.foreign.remove(uid);
            entry.row = OnceLock::new();
            if entry.is_empty() {
                self.workloads.remove(&key);
            }
        }
        if job.part_of.is_some() && self.foreign.parents.remove(&job.workload).is_some() {
            // What is left of it may stand for itself again.
            self.move_over(&key);
        }
    }

    /// Counts what stands under a workload anew, after it has come to be part of another one or
    /// has ceased to be.
    fn move_over(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.workloads.get(key) else {
            return;
        };
        let pods: Vec<Arc<Pod>> = entry
            .pods
            .iter()
            .filter_map(|u| self.pod(u))
            .cloned()
            .collect();
        let jobs: Vec<_> = entry.jobs.values().cloned().collect();
        let objects: Vec<_> = entry.foreign.values().cloned().collect();
        self.note_workload(key);
        if let Some(entry) = self.workloads.get_mut(key) {
            entry.jobs.clear();
            entry.foreign.clear();
            entry.row = OnceLock::new();
            if entry.is_empty() {
                self.workloads.remove(key);
            }
        }
        for object in &objects {
            if let ForeignBody::Job(job) = &object.body {
                let to = self.top(job.workload.clone());
                self.note_workload(&to);
                let entry = self.workloads.entry(to).or_default();
                entry.created = earliest(entry.created, object.meta.created);
                entry
                    .foreign
                    .insert(object.meta.uid.clone(), object.clone());
                entry.row = OnceLock::new();
            }
        }
        for job in &jobs {
            self.set_job(job);
        }
        for pod in &pods {
            self.set_pod(pod);
        }
    }

    /// The version in which a queue, or a piece of work in one, changed last.
    pub fn queues_changed(&self) -> u64 {
        self.foreign.changed
    }

    /// Queues of other systems, by system, kind and name.
    pub fn queues(&self) -> impl Iterator<Item = &Arc<Foreign>> {
        self.foreign.queues.values()
    }

    /// One queue.
    pub fn queue(&self, key: &QueueKey) -> Option<&Arc<Foreign>> {
        self.foreign.queues.get(key)
    }

    /// What waits and runs in a queue itself, without the queues below it.
    pub fn queue_tally(&self, key: &QueueKey) -> Option<&QueueTally> {
        self.foreign.tallies.get(key)
    }

    /// Queues that work names, also those of which no object is known.
    pub fn named_queues(&self) -> impl Iterator<Item = (&QueueKey, &QueueTally)> {
        self.foreign.tallies.iter()
    }

    /// An object of another system.
    pub fn foreign(&self, kind: ForeignKind, uid: &Uid) -> Option<&Arc<Foreign>> {
        self.foreign.objects.get(&(kind, uid.clone()))
    }

    /// The pieces of work of a queue, without those of queues below it, in no order.
    pub fn queue_entries(
        &self,
        key: &QueueKey,
    ) -> impl Iterator<Item = (&Arc<Foreign>, &QueueEntry)> {
        let tally = self.foreign.tallies.get(key);
        let uids = tally.into_iter().flat_map(|t| &t.entries);
        uids.filter_map(|uid| {
            let object = self.foreign.objects.get(uid)?;
            Some((object, object.entry()?))
        })
    }

    /// The piece of work that stands for a workload in some queue: the one that did not end, where
    /// there are several.
    pub fn entry_of(&self, key: &WorkloadKey) -> Option<&QueueEntry> {
        let entries = self.foreign.entries.get(key).into_iter().flatten();
        entries
            .filter_map(|uid| self.foreign.objects.get(uid)?.entry())
            .min_by_key(|e| e.state)
    }

    /// The objects of other systems that a workload is, itself first.
    pub fn workload_objects(&self, key: &WorkloadKey) -> Vec<&Arc<Foreign>> {
        let entry = self.workloads.get(key);
        let mut all: Vec<_> = entry.into_iter().flat_map(|e| e.foreign.values()).collect();
        all.sort_by_key(|f| {
            (
                f.job().is_none_or(|j| j.workload != *key),
                f.meta.name.clone(),
            )
        });
        all
    }

    /// The priority of a piece of work: as stated, else its class's.
    pub fn entry_priority(&self, entry: &QueueEntry) -> i32 {
        if entry.priority != 0 || entry.priority_class.is_empty() {
            return entry.priority;
        }
        let class = self.priority_classes.get(&entry.priority_class);
        class.map_or(0, |c| c.value)
    }

    /// Queues directly below one.
    pub fn queues_below(&self, key: &QueueKey) -> impl Iterator<Item = &QueueKey> {
        self.foreign.children.get(key).into_iter().flatten()
    }

    /// Queues that others name as the one above them.
    pub fn parent_queues(&self) -> impl Iterator<Item = &QueueKey> {
        self.foreign.children.keys()
    }

    /// A queue and all below it, each once.
    pub fn queue_tree(&self, key: &QueueKey) -> Vec<QueueKey> {
        let mut seen = BTreeSet::from([key.clone()]);
        let mut all = vec![key.clone()];
        let mut at = 0;
        while let Some(next) = all.get(at).cloned() {
            at += 1;
            for below in self.queues_below(&next) {
                if seen.insert(below.clone()) {
                    all.push(below.clone());
                }
            }
        }
        all
    }

    /// The queue in whose line the work of a queue stands: Kueue's LocalQueues share the line of
    /// their ClusterQueue.
    pub fn line_of(&self, key: &QueueKey) -> QueueKey {
        if &*key.kind != "LocalQueue" {
            return key.clone();
        }
        let parent = self.queue(key).and_then(|q| q.queue()?.parent.clone());
        parent.unwrap_or_else(|| key.clone())
    }

    /// The place in line of the piece of work that stands for a workload, from 1, and how many are
    /// in line; `None` when it is not in line.
    pub fn position(&self, key: &WorkloadKey) -> Option<(usize, usize)> {
        let entry = self.entry_of(key).filter(|e| e.state.waits())?;
        let line = self.line(&self.line_of(&entry.queue));
        let at = line.iter().position(|(_, e)| e.workload == *key)?;
        Some((at + 1, line.len()))
    }

    /// What is in line in a queue (see [`Cluster::line_of`]), the next one first.
    pub fn line(&self, key: &QueueKey) -> Vec<(&Arc<Foreign>, &QueueEntry)> {
        let queues = match &*key.kind {
            "ClusterQueue" => self.queue_tree(key),
            _ => vec![key.clone()],
        };
        let entries = queues.iter().flat_map(|q| self.queue_entries(q));
        let mut line: Vec<_> = entries.filter(|(_, e)| e.state.waits()).collect();
        line.sort_by_cached_key(|(object, entry)| {
            let (_, at, namespace, name) = entry.order(&object.meta);
            (-i64::from(self.entry_priority(entry)), at, namespace, name)
        });
        line
    }

    /// Whether anything of a system was ever read.
    pub fn has_admitter(&self, admitter: Admitter) -> bool {
        self.foreign.queues.keys().any(|k| k.admitter == admitter)
            || self.foreign.tallies.keys().any(|k| k.admitter == admitter)
    }
}

/// Takes one out of the set of a key, and the key out when its set is empty.
fn take_out<K: Ord, T: Ord>(sets: &mut BTreeMap<K, BTreeSet<T>>, key: &K, one: &T) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(one);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
