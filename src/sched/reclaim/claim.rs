//! Whom a newcomer may displace.
//!
//! Queues are compared below their common ancestor: a guarantee on an inner queue serves its
//! leaves. Each right is one that the victim does not have in return, so that no two can displace
//! each other for ever:
//! - inside its guarantee, work that others hold above theirs, which leaves them at theirs;
//! - with fair reclaim the same by the weighted shares;
//! - in its own queue, strictly lower priority;
//! - above its guarantee, strictly lower priority up to a bound, where the queue says so;
//! - inside its guarantee and if nothing else serves: a job that straddles its queue's guarantee.
//!
//! What a queue has above its guarantee is what has started: a place that is held may come to
//! nothing, and then the queue would be left with less than it is due.

use crate::model::ReclaimFrom;
use crate::sched::queue::{Parts, QueueId};
use crate::sched::turn::{JobId, Ratio, Unit, World};

/// By which right, in the order in which they are used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::sched) enum Grade {
    /// The newcomer is inside its guarantee, the victim above.
    Guarantee,
    /// The newcomer is inside its weighted share, the victim above.
    Share,
    /// Strictly lower priority of the same queue.
    Priority,
    /// Strictly lower priority elsewhere, up to the queue's bound.
    Borrowed,
    /// The victim's queue is above its guarantee but falls below it.
    Straddles,
}

/// Why a job may not start whatever is free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sched) enum Denied {
    /// A queue would exceed its limit.
    Limit {
        queue: QueueId,
        used: Parts,
        limit: Parts,
        asks: Parts,
    },
    /// Work that cannot be preempted would exceed its queue's guarantee.
    Guarantee {
        queue: QueueId,
        used: Parts,
        guaranteed: Parts,
        asks: Parts,
    },
}

/// A newcomer and its rights.
#[derive(Clone, Debug)]
pub(in crate::sched) struct Claimant<'a> {
    pub(in crate::sched) unit: &'a Unit,
    pub(in crate::sched) queue: QueueId,
    pub(in crate::sched) priority: i32,
    pub(in crate::sched) pool: usize,
    /// What each queue is due by weight; `None` without fair reclaim.
    pub(in crate::sched) shares: Option<&'a [Parts]>,
    /// Jobs that straddle their guarantee may be taken.
    pub(in crate::sched) straddling: bool,
}

impl World<'_> {
    /// Whether limits and guarantees let a unit start.
    pub(in crate::sched) fn admits(&self, unit: &Unit, pool: usize) -> Result<(), Denied> {
        let Some(job) = self.job(unit.job) else {
            return Ok(());
        };
        if unit.parts == 0 {
            return Ok(());
        }
        if !job.preemptible
            && let Some(denied) = self.firm_denied(unit, job.queue, pool)
        {
            return Err(denied);
        }
        for queue in self.tree.up(job.queue) {
            let used = self.used(pool, queue);
            if let Some(limit) = self.tree.node(queue).due(pool).limit
                && used.saturating_add(unit.parts) > limit
            {
                return Err(Denied::Limit {
                    queue,
                    used,
                    limit,
                    asks: unit.parts,
                });
            }
        }
        Ok(())
    }

    /// What cannot be preempted stays inside the guarantee of its queue, or of one above it that
    /// serves queues without a guarantee.
    fn firm_denied(&self, unit: &Unit, queue: QueueId, pool: usize) -> Option<Denied> {
        let mut last = None;
        for at in self.tree.up(queue) {
            let guaranteed = self.tree.node(at).due(pool).guaranteed;
            let used = self.firm(pool, at);
            last = (used.saturating_add(unit.parts) > guaranteed).then_some(Denied::Guarantee {
                queue: at,
                used,
                guaranteed,
                asks: unit.parts,
            });
            if guaranteed > 0 {
                return last;
            }
        }
        last
    }

    /// What a unit will count beyond its pods that have a place already.
    pub(super) fn missing(&self, unit: &Unit) -> Parts {
        let when = (self.journal.len(), unit.job);
        if let Some((at, missing)) = self.missing.get()
            && at == when
        {
            return missing;
        }
        let started: Parts = unit
            .pods
            .iter()
            .filter(|p| self.pod(**p).is_some_and(|p| p.spot.is_some()))
            .map(|p| self.parts(*p))
            .sum();
        let missing = (unit.parts - started).max(0);
        self.missing.set(Some((when, missing)));
        missing
    }

    /// By which right the claimant may take `parts` of a job; `None` when by none.
    pub(in crate::sched) fn right(
        &self,
        claimant: &Claimant<'_>,
        victim: JobId,
        parts: Parts,
    ) -> Option<Grade> {
        let job = self.job(victim)?;
        if !job.preemptible || victim == claimant.unit.job || self.served.contains(&victim) {
            return None;
        }
        let preemption = self.tree.node(claimant.queue).preemption;
        let lower = job.priority < claimant.priority;
        if job.queue == claimant.queue {
            return (preemption.within_queue && lower).then_some(Grade::Priority);
        }
        let (mine, theirs) = self.tree.part(claimant.queue, job.queue)?;
        let pool = claimant.pool;
        let after = self
            .used(pool, mine)
            .saturating_add(self.missing(claimant.unit));
        let due = |q: QueueId| self.tree.node(q).due(pool).guaranteed;
        let allowed = match preemption.reclaim {
            ReclaimFrom::Never => false,
            ReclaimFrom::LowerPriority => lower,
            ReclaimFrom::Any => true,
        };
        // What is only held for them may come to nothing.
        let theirs_now = self.started(pool, theirs);
        let above = theirs_now > due(theirs);
        if !above {
            return None;
        }
        let stays = self.stays_within(job.queue, theirs, pool, parts);
        let inside = after <= due(mine);
        if allowed && inside && stays {
            return Some(Grade::Guarantee);
        }
        if allowed && let Some(shares) = claimant.shares {
            let share = |q: QueueId| shares.get(q.0).copied().unwrap_or(0);
            if after <= share(mine) && stays && theirs_now - parts >= share(theirs) {
                return Some(Grade::Share);
            }
        }
        let bound = preemption.borrow_up_to_priority;
        if lower && stays && bound.is_some_and(|b| job.priority <= b) {
            return Some(Grade::Borrowed);
        }
        (claimant.straddling && allowed && inside).then_some(Grade::Straddles)
    }

    /// No queue from the victim's up to the one below the common ancestor falls below its
    /// guarantee; a guarantee beyond that of the queue above counts only as far as that one.
    fn stays_within(&self, from: QueueId, to: QueueId, pool: usize, parts: Parts) -> bool {
        let mut at = from;
        loop {
            let node = self.tree.node(at);
            let mut due = node.due(pool).guaranteed;
            if at != to {
                due = due.min(self.tree.node(node.parent).due(pool).guaranteed);
            }
            if self.started(pool, at) - parts < due && due > 0 {
                return false;
            }
            if at == to {
                return true;
            }
            at = node.parent;
        }
    }

    /// How far the victim's queue is above its share, below the common ancestor: the one that is
    /// furthest above pays first.
    pub(in crate::sched) fn excess(
        &self,
        claimant: &Claimant<'_>,
        victim: JobId,
        shares: &[Parts],
    ) -> Ratio {
        let Some(job) = self.job(victim) else {
            return Ratio::new(0, 1);
        };
        let queue = self
            .tree
            .part(claimant.queue, job.queue)
            .map_or(job.queue, |(_, theirs)| theirs);
        let share = shares.get(queue.0).copied().unwrap_or(0);
        Ratio::new(self.used(claimant.pool, queue), share)
    }
}
