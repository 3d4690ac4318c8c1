//! Who may not be evicted now: work that has not run for as long as its queue says, pods of which the
//! server has just refused the eviction, and those whose disruption budget lets nobody leave. Budgets
//! are counted over all who leave in a round.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::tables::{JobId, PodId, PodRow, Undo};
use super::world::World;
use crate::sched::budgets::{BudgetId, Guard};
use crate::sched::queue::QueueId;
use crate::sched::state::State;

/// What is heeded; a trial for an explanation leaves one out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sched) struct Spared {
    /// Minimum run times.
    pub(in crate::sched) runtime: bool,
    /// Disruption budgets.
    pub(in crate::sched) budgets: bool,
}

impl Default for Spared {
    fn default() -> Self {
        Self {
            runtime: true,
            budgets: true,
        }
    }
}

/// By budget: pods that are on their way out by our decision and that the server may not have
/// counted yet.
pub(super) fn spent(state: &State) -> Vec<i64> {
    let mut spent = vec![0; state.budgets.len()];
    let evicting = state.holds.all_evicting();
    for tracked in evicting.filter_map(|uid| state.tracked(uid)) {
        let counted = state.deleting.contains(&tracked.pod.meta.uid);
        if let Guard::One(budget) = state.budgets.guard_of(&tracked.pod)
            && !counted
            && state.budgets.counts(budget, &tracked.pod)
            && let Some(sum) = spent.get_mut(budget.0)
        {
            *sum += 1;
        }
    }
    spent
}

impl World<'_> {
    /// A job of this queue is left alone for so long after its start.
    pub(super) fn min_runtime_of(&self, queue: QueueId) -> i64 {
        let stated = self.tree.node(queue).min_runtime_secs;
        stated.unwrap_or(self.state.config.min_runtime_secs)
    }

    /// A job that has started is left alone for so long.
    pub(in crate::sched) fn min_runtime_secs(&self, job: JobId) -> i64 {
        let queue = self.job(job).map(|j| j.queue).unwrap_or_default();
        self.min_runtime_of(queue)
    }

    /// A pod that runs may not be evicted yet, whatever its job says.
    pub(in crate::sched) fn is_protected(&self, id: PodId) -> bool {
        self.pod(id).is_some_and(|pod| {
            let young =
                || self.spared.runtime && self.ran_secs(pod) < self.min_runtime_secs(pod.job);
            !pod.waiting && (pod.left_alone || young())
        })
    }

    /// Until when a pod that runs is left alone; `None` when it is not for its age.
    pub(in crate::sched) fn protected_until(&self, pod: &PodRow) -> Option<Timestamp> {
        let secs = SignedDuration::from_secs(self.min_runtime_secs(pod.job));
        let until = pod.began?.checked_add(secs).ok()?;
        (pod.spot.is_some() && !pod.waiting && until > self.now).then_some(until)
    }

    /// Whether the disruption budgets let all of these leave beside those who leave already.
    pub(in crate::sched) fn may_leave(&self, pods: &[PodId]) -> bool {
        if self.spent.is_empty() || !self.spared.budgets {
            return true;
        }
        let mut asked: BTreeMap<BudgetId, i64> = BTreeMap::new();
        for pod in pods {
            match self.guard(*pod) {
                Guard::None => {}
                // The server evicts nobody whom two budgets claim.
                Guard::Several => return false,
                Guard::One(budget) => *asked.entry(budget).or_default() += 1,
            }
        }
        asked
            .iter()
            .all(|(budget, pods)| *pods <= self.allowance(*budget))
    }

    /// How many more may leave that count in a budget.
    pub(in crate::sched) fn allowance(&self, budget: BudgetId) -> i64 {
        let spent = self.spent.get(budget.0).copied().unwrap_or(0);
        self.state.budgets.allowed(budget) - spent
    }

    /// The budget in which the end of a pod counts.
    pub(in crate::sched) fn guard(&self, id: PodId) -> Guard {
        let Some(row) = self.pod(id).filter(|row| !row.waiting) else {
            return Guard::None;
        };
        match row.guard {
            Guard::One(budget) if !self.state.budgets.counts(budget, &row.pod) => Guard::None,
            guard => guard,
        }
    }

    /// Some running pod is left alone for its age or for a budget.
    pub(in crate::sched) fn spares_some(&self) -> bool {
        !self.spent.is_empty()
            || self
                .t
                .pods
                .iter()
                .any(|p| self.protected_until(p).is_some())
    }

    /// A running pod leaves its place, and counts in its budget.
    pub(in crate::sched) fn send_off(&mut self, pod: PodId) {
        self.spend(pod, 1);
        self.lift(pod);
    }

    /// A pod that was sent off stays after all.
    pub(in crate::sched) fn stays(&mut self, pod: PodId) {
        self.spend(pod, -1);
    }

    fn spend(&mut self, pod: PodId, pods: i64) {
        if self.spent.is_empty() {
            return;
        }
        if let Guard::One(budget) = self.guard(pod) {
            self.t.log.push(Undo::Spent(budget, pods));
            self.count_spent(budget, pods);
        }
    }

    pub(super) fn count_spent(&mut self, budget: BudgetId, pods: i64) {
        if let Some(sum) = self.spent.get_mut(budget.0) {
            *sum += pods;
        }
    }
}
