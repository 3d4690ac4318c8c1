//! Brings the picture up to date with the state: nodes and pods that changed are looked at again,
//! the rest stays as it was.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::guard::{Spared, spent};
use super::shape::{Shape, ShapeId, parts_of};
use super::tables::{JobId, JobRow, Order, PodId, PodRow, Seen, Spot, Tables};
use super::world::World;
use crate::model::{Pod, Reason, Uid};
use crate::sched::class::Class;
use crate::sched::filters::Volumes;
use crate::sched::gang::GangKey;
use crate::sched::holds::owner_of;
use crate::sched::jobs::gather;
use crate::sched::problem;
use crate::sched::queue::QueueId;
use crate::sched::state::{State, Tracked};
use crate::sched::topology::Wish;

/// Whether a job may be evicted; absent means yes.
pub(super) const PREEMPTIBLE: &str = "gpudeck.dev/preemptible";
/// The last checkpoint, as the trainer writes it.
const CHECKPOINT_LAST: &str = "gpudeck.dev/checkpoint-last";
/// Shapes that no pod has any more are kept up to so many beside those that some have.
const IDLE_SHAPES: usize = 512;
/// Holes between jobs that are left, beside a quarter of all.
const MOST_HOLES: usize = 1_024;

/// A job as it was gathered.
#[derive(Default)]
pub(in crate::sched) struct NewJob<'a> {
    pub(in crate::sched) gang: Option<&'a GangKey>,
    pub(in crate::sched) min: u32,
    pub(in crate::sched) wish: Wish,
    /// Pods that wait for us and are able to start.
    pub(in crate::sched) waiting: Vec<&'a Tracked>,
    /// Pods with a node, written or seen.
    pub(in crate::sched) placed: Vec<&'a Tracked>,
    /// Pods that wait whatever the nodes look like, and why.
    pub(in crate::sched) told: Vec<(&'a Tracked, Reason)>,
    /// Pods of which nothing is to be said yet: time tells.
    pub(in crate::sched) silent: Vec<&'a Tracked>,
    /// Time alone may change what was gathered.
    pub(in crate::sched) recheck: bool,
}

fn order_of(pod: &Pod) -> (Timestamp, &str, &str, &str) {
    (
        pod.meta.created.unwrap_or(Timestamp::MAX),
        &pod.meta.namespace,
        &pod.meta.name,
        &pod.meta.uid.0,
    )
}

fn compare(a: &Order, b: &Order) -> Ordering {
    (a.0, &*a.1, &*a.2, &*a.3.0).cmp(&(b.0, &*b.1, &*b.2, &*b.3.0))
}

/// A job and its pods before they have numbers.
struct Draft {
    job: JobRow,
    pods: Vec<(PodRow, Option<Spot>)>,
}

impl<'a> World<'a> {
    /// The picture of a state, with those gone who leave and the held places given.
    pub(in crate::sched) fn open(state: &'a State, now: Timestamp) -> Self {
        let mut kept = state.kept.take();
        kept = kept.filter(|t| is_recent(t, state));
        if let Some(tables) = &mut kept
            && !are_in_use(tables)
        {
            kept = None;
        }
        let mut world = World {
            state,
            now,
            tree: state.queues().clone(),
            missing: Cell::new(None),
            priced: 0,
            exhausted: false,
            cleared: 0,
            piled: BTreeMap::new(),
            spared: Spared::default(),
            given_up: Vec::new(),
            served: BTreeSet::new(),
            spent: spent(state),
            t: kept.unwrap_or_default(),
        };
        world.widen();
        world.follow_rows();
        world.follow_pods();
        world.t.seen = Seen {
            rows: Some(state.rows.version()),
            pods: state.changed.end(),
            volumes: state.volume_version,
        };
        world.let_leave();
        world.give_held();
        world
    }

    /// Takes back all that was tried, and keeps the tables for the next round.
    pub(in crate::sched) fn close(mut self) {
        self.undo(0);
        self.t.journal.clear();
        for shape in &mut self.t.shapes {
            shape.open_at = None;
        }
        self.state.kept.keep(self.t);
    }

    /// Makes room for the counts of queues that were added to the tree.
    fn widen(&mut self) {
        let (pools, queues) = (self.tree.pools(), self.tree.len());
        self.t.capacity.resize(pools, 0);
        self.t.running.resize(queues, Arc::default());
        self.t.priorities.resize(queues, BTreeMap::new());
        for lists in [&mut self.t.used, &mut self.t.firm, &mut self.t.held] {
            lists.resize(pools, Vec::new());
            for list in lists {
                list.resize(queues, 0);
            }
        }
    }

    /// Pods that changed since the tables were kept, and all that are in one job with them.
    fn follow_pods(&mut self) {
        let state = self.state;
        let volumes = self.t.seen.volumes != state.volume_version;
        if volumes {
            for shape in &mut self.t.shapes {
                let class = &shape.class;
                if !class.constraints.claims.is_empty() {
                    shape.volumes = problem::volumes(state, &class.namespace, &class.constraints);
                    shape.is_looked_at = false;
                }
            }
        }
        let mut open: Vec<Uid> = match self.t.seen.rows {
            None => state
                .pods
                .values()
                .map(|t| t.pod.meta.uid.clone())
                .collect(),
            Some(_) => state.changed.since(self.t.seen.pods),
        };
        open.extend(self.on_changed_nodes());
        open.extend(self.to_recheck());
        if open.is_empty() {
            return;
        }
        let mut alone: BTreeSet<&'a Uid> = BTreeSet::new();
        let mut gangs: BTreeSet<&'a GangKey> = BTreeSet::new();
        let mut settled: BTreeSet<JobId> = BTreeSet::new();
        while let Some(uid) = open.pop() {
            if self.settle(&uid, &mut settled) {
                continue;
            }
            self.drop_job_of(&uid, &mut open);
            let Some(tracked) = state.tracked(&uid) else {
                continue;
            };
            match &tracked.gang {
                None => {
                    alone.insert(&tracked.pod.meta.uid);
                }
                Some(key) if gangs.insert(key) => {
                    open.extend(state.members(key).map(|t| t.pod.meta.uid.clone()));
                }
                Some(_) => {}
            }
        }
        let mut drafts: Vec<Draft> = Vec::new();
        for job in gather(state, self.now, &alone, &gangs) {
            drafts.extend(self.draft(job));
        }
        drafts.sort_by(|a, b| compare(&a.job.order, &b.job.order));
        let mut drafts = drafts.into_iter();
        while let Some(draft) = drafts.next() {
            if let Some(draft) = self.put_in(draft) {
                self.merge(std::iter::once(draft).chain(drafts).collect());
                return;
            }
        }
        if self.t.holes > MOST_HOLES + self.t.jobs.len() / 4 {
            self.merge(Vec::new());
        }
    }

    /// Puts a job where one of the same order was, or behind all others; comes back when there is
    /// no such place.
    fn put_in(&mut self, draft: Draft) -> Option<Draft> {
        let order = &draft.job.order;
        let at = (self.t.jobs).partition_point(|j| compare(&j.order, order) == Ordering::Less);
        let Some(old) = self.t.jobs.get(at) else {
            let id = self.add(draft);
            self.t.enlist(id);
            return None;
        };
        if !old.gone || compare(&old.order, order) != Ordering::Equal {
            return Some(draft);
        }
        if at + 1 == self.t.jobs.len() {
            // The last one may have more pods or less.
            let pods = self.t.pods.len() - old.pods.len();
            self.t.pods.truncate(pods);
            self.t.jobs.pop();
            self.t.holes -= 1;
            let id = self.add(draft);
            self.t.enlist(id);
            return None;
        }
        if old.pods.len() != draft.pods.len() {
            return Some(draft);
        }
        let id = JobId(at);
        let Draft { mut job, pods } = draft;
        job.pods.clone_from(&old.pods);
        let numbers = job.pods.clone();
        if let Some(slot) = self.t.jobs.get_mut(at) {
            *slot = job;
        }
        self.t.holes -= 1;
        for (number, (mut row, spot)) in numbers.into_iter().zip(pods) {
            row.job = id;
            if let Some(slot) = self.t.pods.get_mut(number.0) {
                *slot = row;
            }
            if let Some(spot) = spot {
                self.settle_in(number, spot);
            }
        }
        self.t.enlist(id);
        None
    }

    /// Pods whose node itself changed: their devices or what they count may differ.
    fn on_changed_nodes(&self) -> Vec<Uid> {
        let state = self.state;
        let changed = self.t.seen.rows.and_then(|v| state.rows.changed_since(v));
        let nodes = changed.into_iter().flatten().filter(|(_, node)| *node);
        nodes
            .flat_map(|(row, _)| self.residents(row))
            .filter_map(|id| Some(self.pod(*id)?.pod.meta.uid.clone()))
            .collect()
    }

    fn to_recheck(&self) -> Vec<Uid> {
        let seat = |j: &JobRow| j.seats.first().copied();
        self.t
            .rechecks
            .iter()
            .filter_map(|id| seat(self.job(*id)?))
            .filter_map(|seat| self.t.seated.get(seat as usize)?.as_ref())
            .map(|(uid, _)| uid.clone())
            .collect()
    }

    /// The job in which a pod was is gathered anew, with all its pods.
    fn drop_job_of(&mut self, uid: &Uid, open: &mut Vec<Uid>) {
        let Some(seat) = self.t.seats.get(uid).copied() else {
            return;
        };
        let Some(Some((_, job))) = self.t.seated.get(seat as usize) else {
            return;
        };
        let id = *job;
        self.t.delist(id);
        let Some(row) = self.t.jobs.get_mut(id.0) else {
            return;
        };
        let (seats, pods) = (std::mem::take(&mut row.seats), row.pods.clone());
        for pod in pods {
            self.count_out(pod);
            if let Some(row) = self.t.pods.get_mut(pod.0) {
                row.spot = None;
                row.waiting = false;
            }
        }
        if let Some(row) = self.t.jobs.get_mut(id.0) {
            row.gone = true;
            row.waits = false;
            row.placed = 0;
            row.told.clear();
        }
        self.t.holes += 1;
        for seat in seats {
            let slot = self.t.seated.get_mut(seat as usize);
            if let Some((other, _)) = slot.and_then(Option::take) {
                self.t.seats.remove(&other);
                self.t.free_seats.push(seat);
                if other != *uid {
                    open.push(other);
                }
            }
        }
    }

    fn draft(&mut self, new: NewJob<'a>) -> Option<Draft> {
        let state = self.state;
        let mut new = new;
        let first = [&new.waiting, &new.placed]
            .into_iter()
            .flatten()
            .min_by_key(|t| order_of(&t.pod))
            .or_else(|| new.told.first().map(|(t, _)| t))
            .or_else(|| new.silent.first())
            .copied()?;
        let meta = &first.pod.meta;
        let queue = match self.tree.known_namespace(&meta.namespace) {
            Ok(queue) => queue,
            Err(what) => {
                for tracked in std::mem::take(&mut new.waiting) {
                    let what = what.clone();
                    new.told.push((tracked, Reason::Unsupported { what }));
                }
                QueueId::default()
            }
        };
        let pods = || new.waiting.iter().chain(&new.placed).map(|t| &t.pod);
        let job = JobRow {
            order: (
                meta.created.unwrap_or(Timestamp::MAX),
                meta.namespace.clone(),
                meta.name.clone(),
                meta.uid.clone(),
            ),
            owner: owner_of(&first.pod, new.gang),
            queue,
            priority: pods()
                .map(|p| state.priority_of(p))
                .max()
                .unwrap_or_default(),
            since: pods().filter_map(|p| p.meta.created).min(),
            preemptible: pods().all(|p| p.meta.annotation(PREEMPTIBLE) != Some("false")),
            may_preempt: !pods().any(|p| p.never_preempts),
            comes_back: new.gang.is_some() || pods().any(|p| p.meta.controller().is_some()),
            gang: new.gang.cloned(),
            min: new.min.max(1),
            wish: new.wish,
            pods: Vec::new(),
            placed: 0,
            waits: !new.waiting.is_empty(),
            told: new
                .told
                .iter()
                .map(|(t, why)| (t.pod.clone(), why.clone()))
                .collect(),
            recheck: new.recheck,
            gone: false,
            seats: Vec::new(),
        };
        let mut rows = Vec::with_capacity(new.waiting.len() + new.placed.len());
        for tracked in new.waiting.iter().chain(&new.placed) {
            rows.push(self.row_of(tracked));
        }
        let mut draft = Draft { job, pods: rows };
        let told = new.told.iter().map(|(t, _)| *t);
        let all = new
            .waiting
            .iter()
            .chain(&new.placed)
            .chain(&new.silent)
            .copied();
        for tracked in all.chain(told) {
            let seat = self.seat(&tracked.pod.meta.uid);
            draft.job.seats.push(seat);
        }
        Some(draft)
    }

    /// A seat for a pod; whose job it is in is noted when that has a number.
    fn seat(&mut self, uid: &Uid) -> u32 {
        let t = &mut self.t;
        let entry = Some((uid.clone(), JobId(usize::MAX)));
        let seat = match t.free_seats.pop() {
            Some(seat) => {
                if let Some(slot) = t.seated.get_mut(seat as usize) {
                    *slot = entry;
                }
                seat
            }
            None => {
                t.seated.push(entry);
                u32::try_from(t.seated.len() - 1).unwrap_or(u32::MAX)
            }
        };
        t.seats.insert(uid.clone(), seat);
        seat
    }

    fn row_of(&mut self, tracked: &Tracked) -> (PodRow, Option<Spot>) {
        let shape = self.shape(tracked);
        let pod = &tracked.pod;
        let spot = self.spot_of(tracked);
        let row = PodRow {
            pod: pod.clone(),
            job: JobId(usize::MAX),
            shape,
            spot: None,
            counted: (0, 0),
            waiting: spot.is_none(),
            began: spot.and_then(|_| self.began(pod)),
            saved: saved_at(pod),
            runtime_secs: crate::sched::backfill::runtime_secs(pod),
            left_alone: self.state.holds.is_left_alone(&pod.meta.uid),
            guard: self.state.budgets.guard_of(pod),
        };
        (row, spot)
    }

    /// When a pod with a place began to run there.
    pub(super) fn began(&self, pod: &Pod) -> Option<Timestamp> {
        if self.state.assumed.contains_key(&pod.meta.uid) {
            return None;
        }
        pod.started.or(pod.meta.created)
    }

    fn shape(&mut self, tracked: &Tracked) -> ShapeId {
        let state = self.state;
        let waiting = tracked.waiting.as_ref().map(|(_, id)| *id);
        let class = match waiting.and_then(|id| state.classes.get(id)) {
            Some(class) => class.clone(),
            None => match &tracked.class {
                Some(class) => class.clone(),
                None => Arc::new(Class::of_pod(&tracked.pod, &state.config)),
            },
        };
        if let Some(id) = self.t.by_class.get(&class) {
            if let (Some(shape), Some(waiting)) = (self.t.shapes.get_mut(id.0), waiting) {
                shape.waiting = Some(waiting);
            }
            return *id;
        }
        let id = ShapeId(self.t.shapes.len());
        let volumes = if class.constraints.claims.is_empty() {
            Ok(Volumes::default())
        } else {
            problem::volumes(state, &class.namespace, &class.constraints)
        };
        let parts = parts_of(&class, self.least_mem_mib());
        self.t.shapes.push(Shape {
            parts,
            class: class.clone(),
            waiting,
            volumes,
            is_looked_at: false,
            lets_in: Vec::new(),
            open: Vec::new(),
            open_at: None,
            pools: Vec::new(),
        });
        self.t.by_class.insert(class, id);
        id
    }

    pub(super) fn spot_of(&self, tracked: &Tracked) -> Option<Spot> {
        let node = tracked.place.as_ref()?;
        let row = self.state.rows.id(node)?;
        let held = self.state.rows.held(node, &tracked.pod.meta.uid)?;
        Some(Spot { row, held })
    }

    /// Puts new jobs among the old ones; those behind the first of them get new numbers. Without
    /// new ones all do, and no holes are left.
    fn merge(&mut self, drafts: Vec<Draft>) {
        let all = self.t.jobs.len();
        let before = |first: &Draft| {
            let order = &first.job.order;
            (self.t.jobs).partition_point(|j| compare(&j.order, order) == Ordering::Less)
        };
        let mut from = drafts.first().map_or(0, before);
        if (all - from) * 4 > all {
            // Of most it is cheaper to make the lists anew.
            from = 0;
            self.t.clear_lists();
        } else {
            for at in from..all {
                self.t.delist(JobId(at));
            }
        }
        let old_jobs = self.t.jobs.split_off(from);
        let first = old_jobs.iter().find_map(|j| j.pods.first());
        let first = first.map_or(self.t.pods.len(), |p| p.0);
        let old_pods = self.t.pods.split_off(first);
        self.t.holes -= old_jobs.iter().filter(|j| j.gone).count();
        let mut pods = old_pods.into_iter();
        let mut drafts = drafts.into_iter().peekable();
        for job in old_jobs {
            let count = job.pods.len();
            if job.gone {
                pods.by_ref().take(count).for_each(drop);
                continue;
            }
            while let Some(draft) =
                drafts.next_if(|d| compare(&d.job.order, &job.order) == Ordering::Less)
            {
                self.add(draft);
            }
            self.keep(job, pods.by_ref().take(count));
        }
        for draft in drafts {
            self.add(draft);
        }
        for at in from..self.t.jobs.len() {
            self.t.enlist(JobId(at));
        }
    }

    /// A job that stays as it is but for its numbers.
    fn keep(&mut self, mut job: JobRow, rows: impl Iterator<Item = PodRow>) {
        let id = JobId(self.t.jobs.len());
        for (number, mut row) in job.pods.iter_mut().zip(rows) {
            *number = PodId(self.t.pods.len());
            row.job = id;
            self.t.pods.push(row);
        }
        self.t.jobs.push(job);
    }

    /// A new job behind all others.
    fn add(&mut self, draft: Draft) -> JobId {
        let id = JobId(self.t.jobs.len());
        let Draft { mut job, pods } = draft;
        let first = self.t.pods.len();
        job.pods = (first..first + pods.len()).map(PodId).collect();
        self.t.jobs.push(job);
        let mut spots = Vec::with_capacity(pods.len());
        for (mut row, spot) in pods {
            row.job = id;
            self.t.pods.push(row);
            spots.push(spot);
        }
        for (at, spot) in (first..).zip(spots) {
            if let Some(spot) = spot {
                self.settle_in(PodId(at), spot);
            }
        }
        id
    }
}

/// The tables can be brought up to date: what happened since is still known.
fn is_recent(tables: &Tables, state: &State) -> bool {
    let rows = tables.seen.rows;
    state.changed.is_known_since(tables.seen.pods)
        && rows.is_some_and(|v| state.rows.changed_since(v).is_some())
}

/// They do not hold much that is of no use any more.
fn are_in_use(tables: &mut Tables) -> bool {
    if tables.shapes.len() <= tables.most_shapes.max(IDLE_SHAPES) {
        return true;
    }
    let used: BTreeSet<ShapeId> = tables.pods.iter().map(|p| p.shape).collect();
    tables.most_shapes = tables.shapes.len() + IDLE_SHAPES;
    tables.shapes.len() <= used.len() + IDLE_SHAPES
}

/// When the pod last saved its work for good.
pub(super) fn saved_at(pod: &Pod) -> Option<Timestamp> {
    let text = pod.meta.annotation(CHECKPOINT_LAST)?;
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get("durable_at")?.as_str()?.parse().ok()
}
