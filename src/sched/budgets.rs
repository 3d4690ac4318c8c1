//! Disruption budgets: how many of which pods may leave.
//!
//! Source: Kubernetes 1.37, registry/core/pod/storage/eviction.go. The server refuses an eviction
//! that its budget does not allow, so such a pod is no victim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::selector::expression_matches;
use crate::model::{DisruptionBudget, Gone, Phase, Pod, Str};

/// Number of a budget.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct BudgetId(pub(super) usize);

/// The budgets that a pod is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Guard {
    /// None.
    #[default]
    None,
    /// One.
    One(BudgetId),
    /// Several, with which the server evicts nobody.
    Several,
}

/// What a change means for the pods of its namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// Nothing.
    None,
    /// More or fewer may leave.
    Allowance,
    /// It is of other pods than before.
    Pods,
}

/// All budgets that are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Budgets {
    list: Vec<Option<Arc<DisruptionBudget>>>,
    by_namespace: BTreeMap<Str, BTreeMap<Str, BudgetId>>,
    free: BTreeSet<BudgetId>,
}

impl Budgets {
    /// Numbers in use, and some that were.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    fn get(&self, id: BudgetId) -> Option<&Arc<DisruptionBudget>> {
        self.list.get(id.0)?.as_ref()
    }

    /// Takes a budget in.
    pub(super) fn set(&mut self, budget: &Arc<DisruptionBudget>) -> News {
        let (namespace, name) = (&budget.meta.namespace, &budget.meta.name);
        let known = self.by_namespace.get(namespace).and_then(|n| n.get(name));
        if let Some(id) = known.copied() {
            let slot = self.list.get_mut(id.0);
            let Some(before) = slot.and_then(|s| s.replace(budget.clone())) else {
                return News::Pods;
            };
            return match (
                before.selector == budget.selector,
                before.rules() == budget.rules(),
            ) {
                (false, _) => News::Pods,
                (true, false) => News::Allowance,
                (true, true) => News::None,
            };
        }
        let id = self.free.pop_first().unwrap_or_else(|| {
            self.list.push(None);
            BudgetId(self.list.len() - 1)
        });
        if let Some(slot) = self.list.get_mut(id.0) {
            *slot = Some(budget.clone());
        }
        let names = self.by_namespace.entry(namespace.clone()).or_default();
        names.insert(name.clone(), id);
        News::Pods
    }

    /// A budget is gone.
    pub(super) fn remove(&mut self, gone: &Gone) -> News {
        let Some(names) = self.by_namespace.get_mut(&gone.namespace) else {
            return News::None;
        };
        let Some(id) = names.get(&gone.name).copied() else {
            return News::None;
        };
        let slot = self.list.get_mut(id.0);
        let known = slot.filter(|s| s.as_ref().is_some_and(|b| b.meta.uid == gone.uid));
        let Some(slot) = known else {
            return News::None;
        };
        *slot = None;
        names.remove(&gone.name);
        if names.is_empty() {
            self.by_namespace.remove(&gone.namespace);
        }
        self.free.insert(id);
        News::Pods
    }

    /// The budgets that a pod is in.
    pub(super) fn guard_of(&self, pod: &Pod) -> Guard {
        let Some(names) = self.by_namespace.get(&pod.meta.namespace) else {
            return Guard::None;
        };
        let mut of_pod = names
            .values()
            .filter(|id| self.get(**id).is_some_and(|b| selects(b, pod)));
        match (of_pod.next(), of_pod.next()) {
            (None, _) => Guard::None,
            (Some(id), None) => Guard::One(*id),
            (Some(_), Some(_)) => Guard::Several,
        }
    }

    /// Whether the end of a pod counts in a budget: not before it runs, and not while it is not
    /// ready where the budget lets such pods go.
    pub(super) fn counts(&self, id: BudgetId, pod: &Pod) -> bool {
        let Some(budget) = self.get(id) else {
            return false;
        };
        if pod.phase == Phase::Pending {
            return false;
        }
        let enough = budget.desired > 0 && budget.healthy >= budget.desired;
        pod.ready || !(budget.unready_always_leave || enough)
    }

    /// How many may leave now.
    pub(super) fn allowed(&self, id: BudgetId) -> i64 {
        self.get(id).map_or(i64::MAX, |b| b.allowed.max(0))
    }

    /// Namespace and name.
    pub(super) fn name(&self, id: BudgetId) -> String {
        let budget = self.get(id);
        budget.map_or_else(String::new, |b| {
            format!("{}/{}", b.meta.namespace, b.meta.name)
        })
    }
}

fn selects(budget: &DisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.selector.as_deref();
    selector.is_some_and(|all| {
        all.iter()
            .all(|e| expression_matches(e, pod.meta.label(&e.key)))
    })
}
