//! Where victims may be found at all: looked at before any node is.

use super::claim::Claimant;
use crate::model::ReclaimFrom;
use crate::sched::queue::{Parts, QueueId};
use crate::sched::turn::World;

/// Queues of which some running job may be taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Prospects {
    pub(super) queues: Vec<QueueId>,
    /// Some of them only when others have paid before.
    pub(super) grow: bool,
}

impl World<'_> {
    /// Queues of which some running job may be taken by the claimant, as far as their use tells.
    pub(super) fn prospects(&self, claimant: &Claimant<'_>) -> Prospects {
        let mut queues = self.may_give(claimant, 0);
        let strict = queues.len();
        // What leaves on the claimant's own side makes room for its right to the other side.
        loop {
            let own = |q: &&QueueId| **q != claimant.queue;
            let beside: Parts = queues
                .iter()
                .filter(own)
                .map(|q| self.used(claimant.pool, *q))
                .sum();
            let own = queues.contains(&claimant.queue);
            let own = if own {
                self.used(claimant.pool, claimant.queue)
            } else {
                0
            };
            let more = match queues.is_empty() {
                true => Vec::new(),
                false => self.may_give(claimant, beside + own),
            };
            if more.len() <= queues.len() {
                break;
            }
            queues = more;
        }
        Prospects {
            grow: queues.len() > strict,
            queues,
        }
    }

    /// The same when so much may have left on the claimant's own side.
    fn may_give(&self, claimant: &Claimant<'_>, left: Parts) -> Vec<QueueId> {
        (0..self.tree.len())
            .map(QueueId)
            .filter(|queue| self.gives(claimant, *queue, left))
            .collect()
    }

    fn gives(&self, claimant: &Claimant<'_>, queue: QueueId, left: Parts) -> bool {
        let Some(lowest) = self.lowest_priority(queue) else {
            return false;
        };
        let lower = lowest < claimant.priority;
        let preemption = self.tree.node(claimant.queue).preemption;
        if queue == claimant.queue {
            return preemption.within_queue && lower;
        }
        let Some((mine, theirs)) = self.tree.part(claimant.queue, queue) else {
            return false;
        };
        let pool = claimant.pool;
        let due = |q: QueueId| self.tree.node(q).due(pool).guaranteed;
        let used = self.started(pool, theirs);
        if used <= due(theirs) {
            return false;
        }
        let allowed = match preemption.reclaim {
            ReclaimFrom::Never => false,
            ReclaimFrom::LowerPriority => lower,
            ReclaimFrom::Any => true,
        };
        let missing = self.missing(claimant.unit);
        let stays = (self.used(pool, mine) - left).max(0);
        let after = stays.saturating_add(missing);
        let share = |q: QueueId| {
            let shares = claimant.shares.unwrap_or_default();
            shares.get(q.0).copied().unwrap_or(0)
        };
        let fair = claimant.shares.is_some() && after <= share(mine) && used > share(theirs);
        let bound = preemption.borrow_up_to_priority;
        allowed && (after <= due(mine) || fair) || lower && bound.is_some_and(|b| lowest <= b)
    }

    /// Rows with a pod of some job that may be taken; by row.
    pub(super) fn rows_to_clear(
        &self,
        claimant: &Claimant<'_>,
        prospects: &Prospects,
    ) -> Vec<bool> {
        let mut rows = vec![false; self.rows().count()];
        for queue in &prospects.queues {
            // Jobs of one queue and priority are all taken by the same right, or none.
            let mut last = None;
            for id in self.running(*queue) {
                let Some(job) = self.job(*id).filter(|j| j.preemptible) else {
                    continue;
                };
                let may = match last {
                    Some((priority, may)) if priority == job.priority => may,
                    _ => prospects.grow || self.right(claimant, *id, 0).is_some(),
                };
                last = (*id != claimant.unit.job).then_some((job.priority, may));
                if !may {
                    continue;
                }
                for spot in job.pods.iter().filter_map(|p| self.pod(*p)?.spot) {
                    if let Some(flag) = rows.get_mut(spot.row.0) {
                        *flag = true;
                    }
                }
            }
        }
        rows
    }
}
