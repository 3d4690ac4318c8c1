//! The picture of a state: its nodes, the jobs that wait and the jobs that run.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::shape::{Shape, ShapeId, parts_of};
use super::world::{JobId, JobRow, PodId, PodRow, Spot, World};
use crate::model::{GpuModel, GpuResource, Pod, Resources, Str};
use crate::sched::class::Class;
use crate::sched::filters::Volumes;
use crate::sched::gang::GangKey;
use crate::sched::holds::{Held, owner_of};
use crate::sched::problem;
use crate::sched::queue::{GPU, MOST_PARTS, QueueId};
use crate::sched::state::{State, Tracked};
use crate::sched::topology::Wish;

/// Whether a job may be evicted; absent means yes.
const PREEMPTIBLE: &str = "gpudeck.dev/preemptible";
/// The last checkpoint, as the trainer writes it.
const CHECKPOINT_LAST: &str = "gpudeck.dev/checkpoint-last";

/// A job that is to be known to the picture.
pub(in crate::sched) struct NewJob<'a> {
    pub(in crate::sched) gang: Option<GangKey>,
    pub(in crate::sched) queue: QueueId,
    pub(in crate::sched) priority: i32,
    pub(in crate::sched) min: u32,
    pub(in crate::sched) wish: Wish,
    /// Pods that wait for us and are able to start.
    pub(in crate::sched) waiting: Vec<&'a Tracked>,
    /// Pods with a node, written or seen.
    pub(in crate::sched) placed: Vec<&'a Tracked>,
}

/// Makes the picture step by step.
pub(in crate::sched) struct Builder<'a> {
    state: &'a State,
    now: Timestamp,
    pub(in crate::sched) world: World<'a>,
    shapes: BTreeMap<Arc<Class>, ShapeId>,
    least_mem_mib: Option<u32>,
}

impl<'a> Builder<'a> {
    /// The nodes of a state, with the room that its bound pods leave.
    pub(in crate::sched) fn new(state: &'a State, now: Timestamp) -> Self {
        let mut this = Self {
            state,
            now,
            world: World::empty(state),
            shapes: BTreeMap::new(),
            least_mem_mib: None,
        };
        this.count_capacity();
        this
    }

    fn count_capacity(&mut self) {
        for row in self.world.rows() {
            let Some(known) = self.world.row(row) else {
                continue;
            };
            let Some(node) = &known.node else { continue };
            let model = node.gpus.model.as_ref().map(GpuModel::short);
            let pool = self.world.tree.pool_of(model, known.gpus.tier);
            self.world.set_pool(row, pool);
            if known.gpus.devices > 0 {
                self.least_mem_mib = match (self.least_mem_mib, known.gpus.memory_mib) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
            if let Some(sum) = self.world.capacity.get_mut(pool) {
                *sum += parts_of_node(&node.allocatable);
            }
        }
    }

    fn shape(&mut self, tracked: &Tracked) -> ShapeId {
        let pod = &tracked.pod;
        let waiting = tracked.waiting.as_ref().map(|(_, id)| *id);
        let class = match waiting.and_then(|id| self.state.classes.get(id)) {
            Some(class) => class.clone(),
            None => Arc::new(Class::of_pod(pod, &self.state.config)),
        };
        if let Some(id) = self.shapes.get(&class) {
            if let Some(shape) = self.world.shapes.get_mut(id.0) {
                shape.waiting = shape.waiting.or(waiting);
            }
            return *id;
        }
        let id = ShapeId(self.world.shapes.len());
        let volumes = if class.constraints.claims.is_empty() {
            Ok(Volumes::default())
        } else {
            problem::volumes(self.state, &class.namespace, &class.constraints)
        };
        self.world.shapes.push(Shape {
            parts: parts_of(&class, self.least_mem_mib),
            class: class.clone(),
            waiting,
            volumes,
            fixed: Vec::new(),
        });
        self.shapes.insert(class, id);
        id
    }

    /// Adds a job with its pods; jobs come in submit order.
    pub(in crate::sched) fn add(&mut self, new: NewJob<'_>) -> JobId {
        let id = JobId(self.world.jobs.len());
        let pods = || new.waiting.iter().chain(&new.placed).map(|t| &t.pod);
        let since = pods().filter_map(|p| p.meta.created).min();
        let points = if new.waiting.is_empty() {
            0
        } else {
            self.state.config.ageing.points(since, self.now)
        };
        self.world.jobs.push(JobRow {
            queue: new.queue,
            priority: new.priority,
            turn_priority: new.priority.saturating_add(points),
            preemptible: pods().all(|p| p.meta.annotation(PREEMPTIBLE) != Some("false")),
            may_preempt: !pods().any(|p| p.never_preempts),
            comes_back: new.gang.is_some() || pods().any(|p| p.meta.controller().is_some()),
            min: new.min.max(1),
            wish: new.wish,
            pods: Vec::with_capacity(new.waiting.len() + new.placed.len()),
            placed: 0,
            gang: new.gang,
        });
        self.world.widen();
        for tracked in new.waiting.iter().chain(&new.placed) {
            self.add_pod(tracked, id);
        }
        id
    }

    fn add_pod(&mut self, tracked: &Tracked, job: JobId) {
        let shape = self.shape(tracked);
        let pod = &tracked.pod;
        let id = PodId(self.world.pods.len());
        let spot = self.spot_of(tracked);
        let min_runtime = self
            .world
            .job(job)
            .map_or(0, |j| self.world.tree.node(j.queue).min_runtime_secs)
            .max(self.state.config.min_runtime_secs);
        let ran = pod
            .started
            .or(pod.meta.created)
            .map_or(0, |t| self.now.duration_since(t).as_secs().max(0));
        let left_alone = self.state.holds.is_left_alone(&pod.meta.uid);
        self.world.pods.push(PodRow {
            pod: pod.clone(),
            job,
            shape,
            spot: None,
            waiting: spot.is_none(),
            loss_secs: self.loss_secs(pod, ran),
            protected: spot.is_some() && (ran < min_runtime || left_alone),
        });
        if let Some(row) = self.world.jobs.get_mut(job.0) {
            row.pods.push(id);
        }
        if let Some(spot) = spot {
            self.world.settle_in(id, spot);
        }
    }

    fn spot_of(&self, tracked: &Tracked) -> Option<Spot> {
        let node = tracked.place.as_ref()?;
        let row = self.state.rows.id(node)?;
        let held = self.state.rows.held(node, &tracked.pod.meta.uid)?;
        Some(Spot { row, held })
    }

    /// A pod that is on its way out: later its room is free.
    pub(in crate::sched) fn leaves(&mut self, tracked: &Tracked) {
        let Some(spot) = self.spot_of(tracked) else {
            return;
        };
        let ask = crate::sched::amounts::Ask::of_pod(&tracked.pod);
        if let Some(slot) = self.world.slot_mut(spot.row) {
            slot.give(&ask, spot.held);
        }
    }

    /// Gives the held places to the waiting pods of their jobs; those whose pods are not there
    /// (yet) are kept free. Tells how many places there are.
    pub(in crate::sched) fn hold_places(&mut self, waiting: &[JobId]) -> usize {
        let mut by_owner: BTreeMap<Str, Vec<JobId>> = BTreeMap::new();
        for id in waiting {
            let Some(job) = self.world.job(*id) else {
                continue;
            };
            let first = job.pods.first().and_then(|p| self.world.pod(*p));
            if let Some(first) = first {
                let owner = owner_of(&first.pod, job.gang.as_ref());
                by_owner.entry(owner).or_default().push(*id);
            }
        }
        let state = self.state;
        let mut held = 0;
        for (owner, places) in state.holds.all() {
            let jobs = by_owner.get(owner).map_or(&[][..], |j| j);
            for place in places {
                held += usize::from(self.hold(jobs, place).is_some());
            }
        }
        self.world.settle();
        held
    }

    fn hold(&mut self, jobs: &[JobId], held: &Held) -> Option<()> {
        let row = self.state.rows.id(&held.place.node)?;
        let class = Arc::new(Class::of_pod(&held.pod, &self.state.config));
        let shape = *self.shapes.get(&class).unwrap_or(&ShapeId(usize::MAX));
        let taker = jobs.iter().find_map(|job| {
            let pods = &self.world.job(*job)?.pods;
            pods.iter().copied().find(|pod| {
                let row = self.world.pod(*pod);
                row.is_some_and(|p| p.shape == shape && p.waiting && p.spot.is_none())
            })
        });
        if let Some(pod) = taker {
            self.world.look(shape);
            let spot = self.world.spot_on(pod, row)?;
            self.world.put(pod, spot);
            return Some(());
        }
        // Whoever it is held for has not come back yet.
        let known = self.world.row(row)?;
        let slot = self.world.slot_mut(row)?;
        let prices = self.state.rules().slices;
        let devices = slot.assign(&class.ask, &known.gpus, held.place.device, prices);
        slot.take(&class.ask, devices);
        let parts = parts_of(&class, known.gpus.memory_mib);
        let pool = self.world.pool(row);
        let queue = self
            .world
            .tree
            .of_namespace(&held.pod.meta.namespace)
            .ok()?;
        self.world.widen();
        self.world.reserve(queue, pool, parts, false);
        Some(())
    }

    /// Work that is lost when the pod ends now, with the time until it runs again.
    fn loss_secs(&self, pod: &Pod, ran: i64) -> i64 {
        let saved = pod
            .meta
            .annotation(CHECKPOINT_LAST)
            .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
            .and_then(|v| v.get("durable_at")?.as_str()?.parse::<Timestamp>().ok())
            .map(|t| self.now.duration_since(t).as_secs().max(0));
        let lost = saved.map_or(ran, |s| s.min(ran));
        lost.saturating_add(self.state.config.restart_secs)
    }
}

/// All GPUs of a node: whole ones and slices. Replicas of a device count by the device.
fn parts_of_node(allocatable: &Resources) -> i64 {
    allocatable
        .extended
        .iter()
        .filter(|(_, n)| *n > 0)
        .filter_map(|(key, n)| {
            let one = match GpuResource::from_key(key)? {
                GpuResource::Whole | GpuResource::Shared => GPU,
                GpuResource::Mig(profile) => GPU / 7 * i64::from(profile.compute_slices).min(7),
            };
            Some(n.saturating_mul(one))
        })
        .fold(0, i64::saturating_add)
        .min(MOST_PARTS)
}
