//! What GpuQueues are told of themselves: what each uses, waits for and is due, or why it cannot be
//! used.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::queue::{Parts, QueueId, to_milli_gpu};
use super::state::State;
use super::turn::World;
use crate::model::{Queue, QueueStatus, QueueUse};
use crate::plan::Action;

/// Seconds after which a status that the watch does not show is written again, though its queue has
/// not changed.
const AGAIN_SECS: i64 = 60;

/// What waits and runs, by queue with all below it.
struct Counts {
    /// By pool and queue.
    waiting: Vec<Vec<Parts>>,
    waiting_jobs: Vec<u32>,
    running_jobs: Vec<u32>,
}

/// Writes of those statuses that differ from what the queues say. Nothing while
/// [`State::blocked`] has a reason.
pub fn tell_queues(state: &State, now: Timestamp) -> Vec<Action> {
    if state.queues.is_empty() || state.blocked().is_some() {
        return Vec::new();
    }
    let mut world = World::open(state, now);
    let shares = world.all_shares();
    let counts = Counts::of(&world);
    let mut actions = Vec::new();
    for queue in state.queues.values() {
        let status = status_of(&world, queue, &shares, &counts);
        if queue.status.as_ref() == Some(&status) || is_told(state, queue, now) {
            continue;
        }
        actions.push(Action::TellQueue {
            queue: queue.meta.uid.clone(),
            name: queue.meta.name.clone(),
            version: queue.meta.resource_version.clone(),
            status: Arc::new(status),
        });
    }
    world.close();
    actions
}

/// A status of just this version is on its way, or was refused.
fn is_told(state: &State, queue: &Queue, now: Timestamp) -> bool {
    let told = state.told_queues.get(&queue.meta.name);
    told.is_some_and(|(version, at)| {
        let age = at.map(|at| now.duration_since(at));
        let is_fresh =
            |age: SignedDuration| !age.is_negative() && age < SignedDuration::from_secs(AGAIN_SECS);
        *version == queue.meta.resource_version && age.is_some_and(is_fresh)
    })
}

fn status_of(
    world: &World<'_>,
    queue: &Queue,
    shares: &[Vec<Parts>],
    counts: &Counts,
) -> QueueStatus {
    let tree = &world.tree;
    let name = &queue.meta.name;
    let fault = tree.fault(name).map(Into::into);
    let before = queue.status.as_ref();
    let since = before.filter(|b| b.fault == fault).and_then(|b| b.since);
    let mut status = QueueStatus {
        fault,
        since: since.or(Some(world.now)),
        ..QueueStatus::default()
    };
    let Some(id) = tree.named(name) else {
        return status;
    };
    let at = |list: &[Vec<Parts>], pool: usize| -> i64 {
        let parts = list.get(pool).and_then(|l| l.get(id.0));
        to_milli_gpu(parts.copied().unwrap_or(0))
    };
    let uses = (0..tree.pools()).filter_map(|pool| {
        let kind = tree.pool(pool)?;
        let told = QueueUse {
            model: kind.model.clone(),
            tier: kind.tier,
            used_milli_gpu: to_milli_gpu(world.used(pool, id)),
            waiting_milli_gpu: at(&counts.waiting, pool),
            share_milli_gpu: at(shares, pool),
        };
        let stated = queue
            .terms
            .iter()
            .any(|t| t.model == kind.model && t.tier == kind.tier);
        let some = told.used_milli_gpu > 0 || told.waiting_milli_gpu > 0;
        (stated || some).then_some(told)
    });
    status.gpus = uses.collect();
    status.waiting_jobs = counts.waiting_jobs.get(id.0).copied().unwrap_or(0);
    status.running_jobs = counts.running_jobs.get(id.0).copied().unwrap_or(0);
    status
}

impl Counts {
    fn of(world: &World<'_>) -> Self {
        let (pools, queues) = (world.tree.pools(), world.tree.len());
        let mut counts = Counts {
            waiting: vec![vec![0; queues]; pools],
            waiting_jobs: vec![0; queues],
            running_jobs: vec![0; queues],
        };
        for id in &world.waiting {
            let pool = world.pool_of_job(*id);
            let Some(job) = world.job(*id) else { continue };
            let open = job
                .pods
                .iter()
                .filter(|p| world.pod(**p).is_some_and(|p| p.waiting));
            let parts: Parts = open.map(|p| world.parts_anywhere(*p)).sum();
            for at in world.tree.up(job.queue) {
                let sum = counts.waiting.get_mut(pool).and_then(|l| l.get_mut(at.0));
                if let Some(sum) = sum {
                    *sum = sum.saturating_add(parts);
                }
                if let Some(jobs) = counts.waiting_jobs.get_mut(at.0) {
                    *jobs += 1;
                }
            }
        }
        for queue in (0..queues).map(QueueId) {
            let jobs = u32::try_from(world.running(queue).len()).unwrap_or(u32::MAX);
            for at in world.tree.up(queue) {
                if let Some(sum) = counts.running_jobs.get_mut(at.0) {
                    *sum = sum.saturating_add(jobs);
                }
            }
        }
        counts
    }
}
