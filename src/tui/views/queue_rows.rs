//! Queues of all systems as rows of one table: a row a queue and kind of device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::{
    Admitter, Cluster, Foreign, GpuResource, Kind, NamespaceFigure, OUR_SCHEDULER, QueueKey,
    QueueState, SourceState, Str, WorkloadRow, WorkloadState,
};
use crate::tui::filter::contains;
use crate::tui::sort_key::SortKey;
use crate::tui::table::Row;
use crate::tui::view::Ctx;

/// Kind of the row that tells how well a system's queues are known.
pub(super) const SYSTEM: &str = "System";

/// Name of the row of all systems that the server does not have.
const ABSENT: &str = "not installed";

/// Our queues, as kubectl names them beyond doubt.
const OUR_KIND: &str = "gpuqueues.gpudeck.dev";

/// What a row stands for.
pub type RowKey = (QueueKey, GpuResource);

/// A queue, of one kind of device.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueRow {
    /// The queue.
    pub key: QueueKey,
    /// The device that the amounts are of.
    pub resource: GpuResource,
    /// Whether it is the queue's first row.
    pub first: bool,
    /// Queues above it that are shown.
    pub depth: u16,
    /// Whether queues are shown below it.
    pub has_below: bool,
    /// What it gets whenever it asks, in thousandths of a device.
    pub guaranteed_milli: Option<i64>,
    /// What it never exceeds.
    pub limit_milli: Option<i64>,
    /// What its work holds; `None`: not known.
    pub used_milli: Option<i64>,
    /// Pieces of work that wait (pods, for quotas); `None`: not known.
    pub waiting: Option<u32>,
    /// Devices that those ask for, in thousandths.
    pub waiting_milli: Option<i64>,
    /// Pieces of work that run.
    pub running: Option<u32>,
    /// Whether it takes work; `None` for a row about a system.
    pub state: Option<QueueState>,
    /// Why it does not, or what is to be said of the system.
    pub why: Option<Str>,
    /// Whether `why` is about a right that is missing.
    pub denied: bool,
    /// The object; `None` for queues that only others name.
    pub object: Option<Arc<Foreign>>,
    /// Where it stands.
    path: String,
}

impl Row for QueueRow {
    type Key = RowKey;

    fn key(&self) -> RowKey {
        (self.key.clone(), self.resource.clone())
    }

    fn place(&self) -> SortKey {
        SortKey::str(&self.path)
    }
}

impl QueueRow {
    /// Use in parts of what it is due, else of its limit; `None` where neither is stated.
    pub fn share(&self) -> Option<f64> {
        let of = self
            .guaranteed_milli
            .or(self.limit_milli)
            .filter(|n| *n > 0)?;
        #[allow(clippy::cast_precision_loss)]
        Some(self.used_milli? as f64 / of as f64)
    }

    /// What it uses beyond its due.
    pub fn burst_milli(&self) -> Option<i64> {
        let over = self.used_milli?.saturating_sub(self.guaranteed_milli?);
        Some(over.max(0))
    }

    /// When its object was created.
    pub fn created(&self) -> Option<Timestamp> {
        self.object.as_ref().and_then(|o| o.meta.created)
    }

    /// Whether it tells of a system and not of a queue.
    pub fn is_system(&self) -> bool {
        &*self.key.kind == SYSTEM
    }

    /// Whether it names the systems that the server does not have.
    pub fn is_absent(&self) -> bool {
        self.is_system() && &*self.key.name == ABSENT
    }

    /// Whether one of its texts contains a word.
    pub fn search(&self, word: &str) -> bool {
        let texts = [
            &*self.key.name,
            &*self.key.namespace,
            &*self.key.kind,
            self.key.admitter.name(),
            self.state.map_or("", QueueState::name),
            self.why.as_deref().unwrap_or_default(),
        ];
        texts.into_iter().any(|t| contains(t, word))
    }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    guaranteed: Option<i64>,
    limit: Option<i64>,
    unlimited: bool,
    used: Option<i64>,
    terms: u32,
}

fn plus(sum: Option<i64>, more: Option<i64>) -> Option<i64> {
    match (sum, more) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

/// Work of our scheduler in one namespace: what waits, what runs, and what the former asks for.
#[derive(Clone, Default)]
struct OurWork {
    waiting: u32,
    running: u32,
    asked: BTreeMap<GpuResource, i64>,
}

impl OurWork {
    fn of(cluster: &Cluster, namespace: &Str) -> Self {
        let mut work = OurWork::default();
        let ours = |w: &Arc<WorkloadRow>| &*w.scheduler == OUR_SCHEDULER;
        for row in cluster.workloads_of(namespace).filter(ours) {
            match row.state {
                WorkloadState::Waiting => work.waiting = work.waiting.saturating_add(1),
                WorkloadState::Starting | WorkloadState::Running => {
                    work.running = work.running.saturating_add(1);
                }
                WorkloadState::Suspended | WorkloadState::Failed | WorkloadState::Done => {}
            }
            if row.waiting == 0 {
                continue;
            }
            let pods = cluster.workload_pods(&row.key).into_iter();
            for (resource, n) in pods
                .filter(|p| p.is_waiting())
                .flat_map(|p| p.gpu_requests())
            {
                let sum = work.asked.entry(resource).or_default();
                *sum = sum.saturating_add(n.saturating_mul(1_000));
            }
        }
        work
    }
}

/// Builds the rows of one picture.
struct Builder<'a> {
    cluster: &'a Cluster,
    namespaces: BTreeMap<Str, NamespaceFigure>,
    /// By namespaces that our queues name.
    ours: BTreeMap<Str, OurWork>,
    rows: Vec<QueueRow>,
    done: BTreeSet<QueueKey>,
    /// Systems that the server does not have.
    absent: Vec<Admitter>,
}

/// All rows in scope.
pub fn all(ctx: &Ctx<'_>) -> Vec<QueueRow> {
    of(ctx.cluster, ctx.namespace)
}

/// All rows of a namespace, or of all.
pub fn of(cluster: &Cluster, namespace: Option<&Str>) -> Vec<QueueRow> {
    let figures = cluster.namespace_figures().into_iter();
    let mut builder = Builder {
        cluster,
        namespaces: figures.map(|f| (f.namespace.clone(), f)).collect(),
        ours: BTreeMap::new(),
        rows: Vec::new(),
        done: BTreeSet::new(),
        absent: Vec::new(),
    };
    let queues = cluster.queues().filter_map(|q| q.queue());
    for namespace in queues.flat_map(|q| &q.namespaces) {
        let entry = builder.ours.entry(namespace.clone());
        entry.or_insert_with(|| OurWork::of(cluster, namespace));
    }
    let known: BTreeSet<&QueueKey> = cluster
        .queues()
        .filter_map(|q| q.queue())
        .map(|q| &q.key)
        .chain(cluster.named_queues().map(|(key, _)| key))
        .chain(cluster.parent_queues())
        .collect();
    let shown = namespace.map(|namespace| builder.in_scope(&known, namespace));
    let parent = |key: &QueueKey| cluster.queue(key).and_then(|q| q.queue()?.parent.clone());
    let is_shown = |key: &QueueKey| shown.as_ref().is_none_or(|s| s.contains(key));
    let roots: Vec<&QueueKey> = known
        .iter()
        .copied()
        .filter(|key| parent(key).is_none_or(|above| !is_shown(&above)))
        .collect();
    for key in roots.into_iter().filter(|k| is_shown(k)) {
        builder.add(key, "", 0, &is_shown);
    }
    // Queues that name each other in a ring have no root.
    for key in known.iter().filter(|k| is_shown(k)) {
        builder.add(key, "", 0, &is_shown);
    }
    for admitter in Admitter::ALL {
        builder.system(admitter);
    }
    builder.systems_absent();
    builder.rows
}

impl Builder<'_> {
    /// Queues of a namespace, those with work of it, and all above those.
    fn in_scope(&self, known: &BTreeSet<&QueueKey>, namespace: &Str) -> BTreeSet<QueueKey> {
        let mut shown = BTreeSet::new();
        for key in known {
            let queue = self.cluster.queue(key).and_then(|q| q.queue());
            let names = queue.is_some_and(|q| q.namespaces.contains(namespace));
            let own = key.namespace == *namespace || names;
            let has_work = || {
                let mut entries = self.cluster.queue_entries(key);
                key.namespace.is_empty() && entries.any(|(_, e)| e.workload.namespace == *namespace)
            };
            if !own && !has_work() {
                continue;
            }
            let mut at = Some((*key).clone());
            while let Some(key) = at.filter(|k| !shown.contains(k)) {
                at = self
                    .cluster
                    .queue(&key)
                    .and_then(|q| q.queue()?.parent.clone());
                shown.insert(key);
            }
        }
        shown
    }

    /// Adds a queue and all below it.
    fn add(&mut self, key: &QueueKey, above: &str, depth: u16, shown: &dyn Fn(&QueueKey) -> bool) {
        if !self.done.insert(key.clone()) {
            return;
        }
        // The least sign before a name keeps what is below a queue together.
        let path = if above.is_empty() {
            format!("{}{}\u{1}{}", key.admitter as u8, key.name, key.namespace)
        } else {
            format!("{above}\u{2}{}\u{1}{}", key.name, key.namespace)
        };
        let below: Vec<QueueKey> = self
            .cluster
            .queues_below(key)
            .filter(|k| shown(k))
            .cloned()
            .collect();
        self.push(key, &path, depth, !below.is_empty());
        for key in &below {
            self.add(key, &path, depth.saturating_add(1), shown);
        }
    }

    /// The sums of a queue by device: its own terms, and for a cohort or a queue that is not known
    /// itself those of the queues below.
    fn sums(&self, key: &QueueKey, depth: usize) -> BTreeMap<GpuResource, Sums> {
        let mut sums: BTreeMap<GpuResource, Sums> = BTreeMap::new();
        let queue = self.cluster.queue(key).and_then(|q| q.queue());
        for term in queue.into_iter().flat_map(|q| &q.terms) {
            let sum = sums.entry(term.resource.clone()).or_default();
            sum.guaranteed = plus(sum.guaranteed, term.guaranteed_milli);
            sum.used = plus(sum.used, term.used_milli);
            sum.limit = plus(sum.limit, term.limit_milli);
            // What is used without being due any says nothing of the limit.
            let stated = term.guaranteed_milli.is_some() || key.admitter != Admitter::Gpudeck;
            sum.unlimited |= term.limit_milli.is_none() && stated;
            sum.terms += 1;
        }
        let gathers = &*key.kind == "Cohort" || queue.is_none();
        if gathers && depth < 8 {
            for below in self.cluster.queues_below(key) {
                for (resource, part) in self.sums(below, depth + 1) {
                    let sum = sums.entry(resource).or_default();
                    if &*key.kind == "Cohort" {
                        sum.guaranteed = plus(sum.guaranteed, part.guaranteed);
                    }
                    sum.used = plus(sum.used, part.used);
                    sum.unlimited = true;
                }
            }
        }
        sums
    }

    /// Work in line and running, in a queue and all below it, by device.
    fn waits(&self, key: &QueueKey) -> (u32, u32, BTreeMap<GpuResource, i64>) {
        let (mut waiting, mut running) = (0_u32, 0_u32);
        let mut asked: BTreeMap<GpuResource, i64> = BTreeMap::new();
        for queue in self.cluster.queue_tree(key) {
            let object = self.cluster.queue(&queue).and_then(|q| q.queue());
            let namespaces = object.into_iter().flat_map(|q| &q.namespaces);
            for work in namespaces.filter_map(|ns| self.ours.get(ns)) {
                waiting = waiting.saturating_add(work.waiting);
                running = running.saturating_add(work.running);
                for (resource, milli) in &work.asked {
                    let sum = asked.entry(resource.clone()).or_default();
                    *sum = sum.saturating_add(*milli);
                }
            }
            let Some(tally) = self.cluster.queue_tally(&queue) else {
                continue;
            };
            waiting = waiting.saturating_add(tally.waiting);
            running = running.saturating_add(tally.admitted);
            for resource in tally.waiting_for() {
                let sum = asked.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(tally.waiting_milli(resource));
            }
        }
        (waiting, running, asked)
    }

    fn push(&mut self, key: &QueueKey, path: &str, depth: u16, has_below: bool) {
        let object = self.cluster.queue(key).cloned();
        let queue = object.as_ref().and_then(|q| q.queue());
        let mut sums = self.sums(key, 0);
        let (mut waiting, mut running, mut asked) = self.waits(key);
        let work_kind = key.admitter.kinds().last().copied().map(Kind::Foreign);
        let work_kind = match key.admitter {
            Admitter::Gpudeck => Some(Kind::Pod),
            _ => work_kind,
        };
        let mut counted = work_kind.is_some_and(|k| self.cluster.is_known(k));
        if key.admitter == Admitter::Quota {
            if sums.is_empty() {
                return;
            }
            let figure = self.namespaces.get(&key.namespace);
            waiting = figure.map_or(0, |f| f.waiting_pods);
            running = figure.map_or(0, |f| f.pods);
            let gpus = figure.map_or(0, |f| f.waiting_gpus).saturating_mul(1_000);
            asked = BTreeMap::from([(GpuResource::Whole, gpus)]);
            counted = self.cluster.is_known(Kind::Pod);
        }
        for resource in asked.keys() {
            sums.entry(resource.clone()).or_default();
        }
        if sums.is_empty() {
            sums.insert(GpuResource::Whole, Sums::default());
        }
        let (state, why, denied) = match queue {
            Some(queue) => (queue.state, queue.why.clone(), false),
            None => self.of_unknown(key),
        };
        for (n, (resource, sum)) in sums.into_iter().enumerate() {
            self.rows.push(QueueRow {
                key: key.clone(),
                first: n == 0,
                depth,
                has_below: has_below && n == 0,
                guaranteed_milli: sum.guaranteed,
                limit_milli: sum.limit.filter(|_| !sum.unlimited),
                used_milli: sum.used,
                waiting: match counted {
                    true => Some(waiting),
                    false => queue.and_then(|q| q.pending),
                },
                waiting_milli: counted.then(|| asked.get(&resource).copied().unwrap_or(0)),
                running: match counted {
                    true => Some(running),
                    false => queue.and_then(|q| q.running),
                },
                state: Some(state),
                why: why.clone(),
                denied,
                object: object.clone(),
                path: format!("{path}\u{1}{n}"),
                resource,
            });
        }
    }

    /// What is to be said of a queue that only others name.
    fn of_unknown(&self, key: &QueueKey) -> (QueueState, Option<Str>, bool) {
        let mut kinds = key.admitter.kinds().iter().copied();
        let kind = kinds.find(|k| *k.api().kind == *key.kind);
        let source = match key.admitter {
            Admitter::Gpudeck => Some(Kind::GpuQueue),
            _ => kind.map(Kind::Foreign),
        };
        let state = source
            .and_then(|k| self.cluster.source(k))
            .map(|s| &s.state);
        match state {
            Some(SourceState::Denied { .. }) => {
                let right = kind.map_or(OUR_KIND, |k| k.api().full_name);
                (
                    QueueState::Open,
                    Some(format!("denied: list {right}").into()),
                    true,
                )
            }
            // Kueue's cohorts need no object of their own.
            _ if &*key.kind == "Cohort" => (QueueState::Open, None, false),
            Some(SourceState::Live | SourceState::Stale { .. }) => (
                QueueState::Broken,
                Some("there is no such queue".into()),
                false,
            ),
            _ => (QueueState::Open, None, false),
        }
    }

    /// A row about a system whose queues are not all known, or that has none.
    fn system(&mut self, admitter: Admitter) {
        let states = admitter.kinds().iter().map(|kind| {
            let report = self.cluster.source(Kind::Foreign(*kind));
            (kind.api().full_name, report.map(|r| &r.state))
        });
        let ours = || self.cluster.source(Kind::GpuQueue).map(|r| &r.state);
        let states: Vec<_> = match admitter {
            Admitter::Gpudeck => vec![(OUR_KIND, ours())],
            _ => states.collect(),
        };
        let named = |pick: fn(&SourceState) -> bool| -> Vec<&'static str> {
            let found = states.iter().filter(|(_, s)| s.is_some_and(pick));
            found.map(|(name, _)| *name).collect()
        };
        let denied = named(|s| matches!(s, SourceState::Denied { .. }));
        let failed = named(|s| matches!(s, SourceState::Failed { .. }));
        let absent = states.iter().find_map(|(_, s)| match s {
            Some(SourceState::Absent { why }) => Some(why.clone()),
            _ => None,
        });
        let has_rows = self.rows.iter().any(|r| r.key.admitter == admitter);
        let unasked = states.iter().any(|(_, s)| s.is_none());
        let loading = states.iter().find_map(|(_, s)| match s {
            Some(SourceState::Loading { read }) => Some(*read),
            _ => None,
        });
        let why: Str = if !denied.is_empty() {
            format!("denied: list {}", denied.join(", ")).into()
        } else if !failed.is_empty() {
            format!("no answer: list {}", failed.join(", ")).into()
        } else if let Some(why) = absent.filter(|_| !has_rows) {
            // What is to be said of our own queues is more than that they are not there.
            if why.starts_with(ABSENT) && admitter != Admitter::Gpudeck {
                self.absent.push(admitter);
                return;
            }
            why
        } else if has_rows {
            return;
        } else if let Some(read) = loading {
            format!("its queues are being read, {read} so far").into()
        } else if unasked {
            "not asked for yet".into()
        } else if admitter == Admitter::Quota {
            "no namespace has a quota on GPUs".into()
        } else if admitter == Admitter::Gpudeck {
            "no GpuQueue: each namespace is a queue of its own".into()
        } else {
            "installed, without a queue".into()
        };
        self.push_system(admitter, admitter.name(), why, !denied.is_empty());
    }

    /// One row for all systems that the server does not have: they are no news.
    fn systems_absent(&mut self) {
        let Some(first) = self.absent.first().copied() else {
            return;
        };
        let names: Vec<&str> = self.absent.iter().map(|a| a.name()).collect();
        self.push_system(first, ABSENT, names.join(", ").into(), false);
    }

    fn push_system(&mut self, admitter: Admitter, name: &str, why: Str, denied: bool) {
        let last = u8::from(name == ABSENT);
        let key = QueueKey {
            admitter,
            kind: SYSTEM.into(),
            namespace: Str::default(),
            name: name.into(),
        };
        self.rows.push(QueueRow {
            key,
            resource: GpuResource::Whole,
            first: true,
            depth: 0,
            has_below: false,
            guaranteed_milli: None,
            limit_milli: None,
            used_milli: None,
            waiting: None,
            waiting_milli: None,
            running: None,
            state: None,
            why: Some(why),
            denied,
            object: None,
            path: format!("\u{7f}{last}{}", admitter as u8),
        });
    }
}
