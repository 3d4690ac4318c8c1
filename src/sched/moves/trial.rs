//! The proof: on a fork, the pods leave, the job is placed, and each that left is placed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::holes::{self, Hole, Movable};
use super::{Move, MoveLimits, MoveProposal};
use crate::model::{Change, Delta, Gone, Phase, Pod, Str, Uid};
use crate::plan::{Action, Plan};
use crate::sched::amounts::Ask;
use crate::sched::class::Class;
use crate::sched::decide::decide;
use crate::sched::fabric::Level;
use crate::sched::gang::GangKey;
use crate::sched::needs::{Needs, Share};
use crate::sched::state::{State, Tracked};
use crate::sched::topology::{TOPOLOGY, Wish};
use crate::sched::view::RowId;

/// `true` on a pod: it may be ended at any time and goes on elsewhere.
const PREEMPTIBLE: &str = "gpudeck.dev/preemptible";
const DEVICE: &str = "gpudeck.dev/device";

/// The pods of a job that wait.
pub(super) struct Blocked {
    pods: Vec<Arc<Pod>>,
    gpus: f64,
}

/// A fork without waiting pods, on which one job after the other is tried.
pub(super) struct Trial {
    base: State,
    now: Timestamp,
    limits: MoveLimits,
}

impl Trial {
    pub(super) fn new(state: &State, now: Timestamp, limits: MoveLimits) -> Self {
        let mut base = state.fork();
        let waiting: Vec<Arc<Pod>> = state
            .queue
            .values()
            .filter_map(|uid| Some(state.tracked(uid)?.pod.clone()))
            .collect();
        for pod in &waiting {
            base.apply(&gone(pod));
        }
        base.config.max_placements = u32::MAX;
        Self { base, now, limits }
    }

    /// Jobs that ask for enough GPUs, in the order of the queue.
    pub(super) fn jobs(&self, state: &State) -> Vec<Blocked> {
        let mut seen: BTreeSet<&GangKey> = BTreeSet::new();
        let mut jobs = Vec::new();
        for uid in state.queue.values() {
            if jobs.len() >= self.limits.jobs {
                break;
            }
            let Some(tracked) = state.tracked(uid) else {
                continue;
            };
            if tracked.problem.is_some() {
                continue;
            }
            let pods: Vec<Arc<Pod>> = match &tracked.gang {
                Some(gang) if !seen.insert(gang) => continue,
                Some(gang) => state
                    .members(gang)
                    .filter(|member| member.waiting.is_some())
                    .map(|member| member.pod.clone())
                    .collect(),
                None => vec![tracked.pod.clone()],
            };
            let gpus = pods.iter().map(|pod| gpus_of(pod)).sum::<f64>();
            if gpus >= f64::from(self.limits.from_gpus) {
                jobs.push(Blocked { pods, gpus });
            }
        }
        jobs
    }

    /// Moves for a job that fits nowhere, of which the base has taken account when it comes back.
    /// One that fits is placed on the base.
    pub(super) fn make_room(&mut self, job: &Blocked, most: usize) -> Option<MoveProposal> {
        let (fork, starts) = self.start(self.base.fork(), &job.pods);
        if !starts.is_empty() {
            self.base = fork;
            return None;
        }
        for leave in self.openings(job, most) {
            if let Some((fork, proposal)) = self.prove(job, &leave) {
                self.base = fork;
                return Some(proposal);
            }
        }
        None
    }

    /// Who may leave, for each part of the fabric that the job could have: the cheapest first.
    fn openings(&self, job: &Blocked, most: usize) -> Vec<Vec<Movable>> {
        let Some(largest) = job.pods.iter().max_by(|a, b| {
            let by_gpus = gpus_of(a).total_cmp(&gpus_of(b));
            by_gpus.then(a.requests.cpu_milli.cmp(&b.requests.cpu_milli))
        }) else {
            return Vec::new();
        };
        let class = Class::of_pod(largest, &self.base.config);
        let wanted = self.needed(job);
        let movable = self.movable();
        let rows = &self.base.rows;
        let spot = self.base.config.spot_needs_checkpoint;
        let holes: BTreeMap<RowId, Hole> = rows
            .rows
            .iter()
            .zip(&rows.slots)
            .enumerate()
            .filter_map(|(at, (row, slot))| {
                let id = RowId(at);
                let here = movable.get(&row.name).map_or(&[][..], |pods| pods);
                let hole = holes::of_node(&class, (id, row, slot), here, spot, (wanted, most))?;
                Some((id, hole))
            })
            .collect();
        let own = rows.levels();
        let wish = Wish::of_meta(&largest.meta, TOPOLOGY, own).unwrap_or_default();
        let (fabric, _) = rows.fabric();
        let mut parts: Vec<(i64, usize, Vec<Movable>)> = Vec::new();
        let mut add = |opening: Option<holes::Opening>| {
            if let Some(o) = opening.filter(|o| !o.leave.is_empty()) {
                parts.push((o.milli_gpu, o.leave.len(), o.leave));
            }
        };
        for level in [wish.required, wish.preferred].into_iter().flatten() {
            let named = fabric.levels().iter().find(|(known, _)| *known == level);
            for id in named.map_or(&[][..], |(_, ids)| ids) {
                let inside = fabric.domain(*id).map_or(&[][..], |domain| &domain.rows);
                let here = inside.iter().filter_map(|row| holes.get(row));
                add(holes::cheapest(here, wanted, most));
            }
        }
        if wish.required.is_none() {
            add(holes::cheapest(holes.values(), wanted, most));
        }
        // Single nodes too: the cheapest may have nowhere to move its pods to.
        if wanted == 1 || wish.required == Some(Level::NODE) {
            for hole in holes.values() {
                add(holes::cheapest(std::iter::once(hole), wanted, most));
            }
        }
        parts.sort_by_key(|part| (part.0, part.1));
        let mut tried: Vec<Vec<Movable>> = Vec::new();
        for (_, _, leave) in parts {
            let same = |other: &Vec<Movable>| {
                other.len() == leave.len() && other.iter().zip(&leave).all(|(a, b)| a.uid == b.uid)
            };
            if !tried.iter().any(same) {
                tried.push(leave);
            }
            if tried.len() >= self.limits.tried {
                break;
            }
        }
        tried
    }

    /// Pods that have to have a place at once: all that wait, unless fewer will do.
    fn needed(&self, job: &Blocked) -> usize {
        let least = job
            .pods
            .iter()
            .filter_map(|pod| pod.group.as_ref()?.min_members);
        let least = least.max().and_then(|n| usize::try_from(n).ok());
        least.map_or(job.pods.len(), |n| n.clamp(1, job.pods.len()))
    }

    /// By node, the pods that can be moved.
    fn movable(&self) -> BTreeMap<Str, Vec<Movable>> {
        let mut movable: BTreeMap<Str, Vec<Movable>> = BTreeMap::new();
        for tracked in self.base.pods.values() {
            if let Some((node, pod)) = self.as_movable(tracked) {
                movable.entry(node).or_default().push(pod);
            }
        }
        movable
    }

    fn as_movable(&self, tracked: &Tracked) -> Option<(Str, Movable)> {
        let pod = &tracked.pod;
        // A binding that is only assumed is none yet.
        let node = pod.holds_node()?;
        let says_so = match pod.meta.annotation(PREEMPTIBLE) {
            Some(text) => text == "true",
            None => Needs::of_pod(pod, &self.base.config).is_ok_and(|needs| needs.checkpointed),
        };
        let alone = tracked
            .gang
            .as_ref()
            .is_none_or(|gang| self.base.members(gang).count() == 1);
        let can = says_so
            && alone
            && pod.meta.deleting.is_none()
            && pod.meta.controller().is_some()
            && pod.scheduler == self.base.config.scheduler_name
            && pod.constraints.claims.is_empty();
        let held = self.base.rows.held(node, &pod.meta.uid)?;
        can.then(|| {
            let movable = Movable {
                uid: pod.meta.uid.clone(),
                ask: Ask::of_pod(pod),
                held,
                milli_gpu: (gpus_of(pod) * 1000.0) as i64,
            };
            (node.clone(), movable)
        })
    }

    /// Lets pods wait on a fork, decides, and tells where they went.
    fn start(&self, mut fork: State, pods: &[Arc<Pod>]) -> (State, Vec<(Uid, Str)>) {
        for pod in pods {
            fork.apply(&Delta::Pod(Change::Set(pod.clone())));
        }
        // It is to be shown that nobody has to lose a place.
        fork.config.preemption = false;
        fork.config.moves = false;
        let plan: Plan = decide(&fork, self.now);
        let mut starts = Vec::new();
        for action in plan.actions() {
            fork.assume(action);
            let Action::Bind { pod, node, .. } = action else {
                continue;
            };
            starts.push((pod.clone(), node.clone()));
        }
        // Who found no place waits no more here.
        let left: Vec<Arc<Pod>> = fork
            .queue
            .values()
            .filter_map(|uid| Some(fork.tracked(uid)?.pod.clone()))
            .collect();
        left.iter().for_each(|pod| fork.apply(&gone(pod)));
        (fork, starts)
    }

    /// The job starts and everybody who left has a place again, or nothing.
    fn prove(&self, job: &Blocked, leave: &[Movable]) -> Option<(State, MoveProposal)> {
        let pods: Vec<Arc<Pod>> = leave
            .iter()
            .filter_map(|movable| Some(self.base.tracked(&movable.uid)?.pod.clone()))
            .collect();
        let gpus: f64 = pods.iter().map(|pod| gpus_of(pod)).sum();
        let lost = gpus * f64::from(self.limits.restart_secs);
        if lost > job.gpus * f64::from(self.limits.worth_secs) {
            return None;
        }
        let mut fork = self.base.fork();
        pods.iter().for_each(|pod| fork.apply(&gone(pod)));
        let (fork, starts) = self.start(fork, &job.pods);
        if starts.is_empty() {
            return None;
        }
        let again: Vec<Arc<Pod>> = pods.iter().map(|pod| waiting(pod)).collect();
        let (fork, places) = self.start(fork, &again);
        if places.len() != pods.len() {
            return None;
        }
        let places: BTreeMap<Uid, Str> = places.into_iter().collect();
        let moves: Vec<Move> = pods
            .iter()
            .filter_map(|pod| {
                Some(Move {
                    pod: pod.meta.uid.clone(),
                    namespace: pod.meta.namespace.clone(),
                    name: pod.meta.name.clone(),
                    from: pod.node.clone()?,
                    to: places.get(&pod.meta.uid)?.clone(),
                })
            })
            .collect();
        let nodes: BTreeSet<&Str> = starts.iter().map(|(_, node)| node).collect();
        let why = format!(
            "{} of {} GPUs fit nowhere; moving {} pod(s), {:.0} GPU-seconds of work, opens {}",
            if job.pods.len() == 1 {
                "a job"
            } else {
                "a gang"
            },
            job.gpus,
            moves.len(),
            lost,
            match nodes.len() {
                1 => nodes.first().map_or(String::new(), |node| node.to_string()),
                n => format!("{n} nodes"),
            }
        );
        let proposal = MoveProposal {
            starts,
            moves,
            lost_gpu_secs: lost,
            gpus: job.gpus,
            why: why.into(),
        };
        Some((fork, proposal))
    }
}

/// GPUs that a pod asks for: devices, a part of one, or instances as one each.
fn gpus_of(pod: &Pod) -> f64 {
    let whole: i64 = pod.gpu_requests().map(|(_, n)| n.clamp(0, 1 << 20)).sum();
    match Share::of_pod(pod) {
        Share::None => whole as f64,
        Share::Milli(milli) => f64::from(milli) / 1000.0,
        Share::MemoryMib(_) => 0.5,
    }
}

fn gone(pod: &Pod) -> Delta {
    Delta::Pod(Change::Gone(Gone {
        uid: pod.meta.uid.clone(),
        namespace: pod.meta.namespace.clone(),
        name: pod.meta.name.clone(),
    }))
}

/// The pod as its owner makes it anew.
fn waiting(pod: &Pod) -> Arc<Pod> {
    let mut again = pod.clone();
    again.node = None;
    again.phase = Phase::Pending;
    let notes = again.meta.annotations.iter();
    again.meta.annotations = notes.filter(|(key, _)| **key != *DEVICE).cloned().collect();
    Arc::new(again)
}
