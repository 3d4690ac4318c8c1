//! Whom Kueue stops for a workload that finds no quota: as few as possible, the least important and
//! the newest first (pkg/scheduler/preemption).

use std::collections::BTreeMap;

use serde_json::Value;

use super::kueue_quota::{Amounts, Assignment, Quotas, Usage};
use super::standing::text;

/// A ClusterQueue's `spec.preemption`, as far as it is played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Policy {
    /// `withinClusterQueue`.
    within: Within,
    /// `reclaimWithinCohort`.
    reclaim: Reclaim,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Never,
    LowerPriority,
    LowerOrNewerEqualPriority,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reclaim {
    #[default]
    Never,
    LowerPriority,
    Any,
}

impl Policy {
    pub(super) fn read(spec: &Value) -> Self {
        let preemption = spec.get("preemption").cloned().unwrap_or_default();
        Self {
            within: match text(&preemption, "withinClusterQueue").as_str() {
                "LowerPriority" => Within::LowerPriority,
                "LowerOrNewerEqualPriority" => Within::LowerOrNewerEqualPriority,
                _ => Within::Never,
            },
            reclaim: match text(&preemption, "reclaimWithinCohort").as_str() {
                "LowerPriority" => Reclaim::LowerPriority,
                "Any" => Reclaim::Any,
                _ => Reclaim::Never,
            },
        }
    }
}

/// A workload that wants quota.
#[derive(Debug)]
pub(super) struct Asker<'a> {
    pub queue: &'a str,
    pub priority: i64,
    /// When it was created.
    pub created: &'a str,
    pub asks: &'a Amounts,
    pub policy: Policy,
}

/// A workload that has quota.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub key: String,
    pub queue: String,
    pub priority: i64,
    pub created: String,
    /// When it got its quota.
    pub since: String,
    /// It is being stopped already.
    pub evicted: bool,
    pub holds: Usage,
}

/// Why a workload is preempted, as its condition `Preempted` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    InClusterQueue,
    InCohortReclamation,
}

impl Cause {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::InClusterQueue => "prioritization in the ClusterQueue",
            Self::InCohortReclamation => "reclamation within the cohort",
        }
    }
}

/// Whom to stop, and the flavors that the asker has then; `None` when that would not help.
pub(super) fn victims(
    asker: &Asker<'_>,
    quotas: &BTreeMap<String, Quotas>,
    usage: &Usage,
    holders: &[Holder],
) -> Option<(Assignment, Vec<(String, Cause)>)> {
    let own = quotas.get(asker.queue)?;
    let mut candidates: Vec<(&Holder, Cause)> = holders
        .iter()
        .filter_map(|holder| Some((holder, cause(asker, own, quotas, holder)?)))
        .collect();
    candidates.sort_by(|(a, of_a), (b, of_b)| {
        let inside = |cause: &Cause| *cause == Cause::InClusterQueue;
        // Who is stopped already first, then other queues', the least important, the newest.
        (b.evicted.cmp(&a.evicted))
            .then(inside(of_a).cmp(&inside(of_b)))
            .then(a.priority.cmp(&b.priority))
            .then(b.since.cmp(&a.since))
            .then(a.key.cmp(&b.key))
    });
    let mut left = usage.clone();
    let mut chosen: Vec<(&Holder, Cause)> = Vec::new();
    let mut found = None;
    for (holder, cause) in candidates {
        // A queue that holds no more than its own keeps it.
        if cause == Cause::InCohortReclamation && !borrows(holder, quotas, &left) {
            continue;
        }
        take(&mut left, &holder.holds, -1);
        chosen.push((holder, cause));
        found = fits(asker, own, quotas, &left, &chosen);
        if found.is_some() {
            break;
        }
    }
    let mut found = found?;
    // Whoever turns out not to be needed stays; the last one is.
    let mut at = chosen.len().saturating_sub(1);
    while at > 0 {
        at -= 1;
        let mut fewer = chosen.clone();
        let (spared, _) = fewer.remove(at);
        take(&mut left, &spared.holds, 1);
        match fits(asker, own, quotas, &left, &fewer) {
            Some(assignment) => {
                found = assignment;
                chosen = fewer;
            }
            None => take(&mut left, &spared.holds, -1),
        }
    }
    let chosen = chosen.into_iter();
    let chosen = chosen.map(|(holder, cause)| (holder.key.clone(), cause));
    Some((found, chosen.collect()))
}

/// Why the holder may be stopped for the asker; `None` when it may not.
fn cause(
    asker: &Asker<'_>,
    own: &Quotas,
    quotas: &BTreeMap<String, Quotas>,
    holder: &Holder,
) -> Option<Cause> {
    let lower = holder.priority < asker.priority;
    if holder.queue == asker.queue {
        let newer = holder.priority == asker.priority && holder.created.as_str() > asker.created;
        let may = match asker.policy.within {
            Within::Never => false,
            Within::LowerPriority => lower,
            Within::LowerOrNewerEqualPriority => lower || newer,
        };
        return may.then_some(Cause::InClusterQueue);
    }
    let theirs = quotas.get(&holder.queue)?;
    let together = !own.cohort.is_empty() && own.cohort == theirs.cohort;
    let may = match asker.policy.reclaim {
        Reclaim::Never => false,
        Reclaim::LowerPriority => lower,
        Reclaim::Any => true,
    };
    (together && may).then_some(Cause::InCohortReclamation)
}

/// The asker's flavors with this usage. What others borrow is taken back for its own quota only.
fn fits(
    asker: &Asker<'_>,
    own: &Quotas,
    quotas: &BTreeMap<String, Quotas>,
    usage: &Usage,
    chosen: &[(&Holder, Cause)],
) -> Option<Assignment> {
    let assignment = own.assign(asker.queue, asker.asks, usage, quotas).ok()?;
    let reclaims = chosen
        .iter()
        .any(|(_, cause)| *cause == Cause::InCohortReclamation);
    let within = || {
        assignment.iter().all(|(resource, flavor)| {
            let key = (asker.queue.to_owned(), flavor.clone(), resource.clone());
            let used = usage.get(&key).copied().unwrap_or(0);
            let asked = asker.asks.get(resource).copied().unwrap_or(0);
            used + asked <= own.nominal(flavor, resource)
        })
    };
    (!reclaims || within()).then_some(assignment)
}

/// Whether the holder's queue holds more than its own of something that the holder has.
fn borrows(holder: &Holder, quotas: &BTreeMap<String, Quotas>, usage: &Usage) -> bool {
    let Some(own) = quotas.get(&holder.queue) else {
        return false;
    };
    holder.holds.keys().any(|key| {
        let (_, flavor, resource) = key;
        usage.get(key).copied().unwrap_or(0) > own.nominal(flavor, resource)
    })
}

fn take(usage: &mut Usage, amounts: &Usage, sign: i128) {
    for (key, amount) in amounts {
        *usage.entry(key.clone()).or_default() += sign * amount;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;

    const GPU: &str = "nvidia.com/gpu";

    fn quotas() -> BTreeMap<String, Quotas> {
        let spec = json!({
            "cohortName": "all",
            "resourceGroups": [{"flavors": [{
                "name": "reserved", "resources": [{"name": GPU, "nominalQuota": "8"}],
            }]}],
        });
        ["a", "b"]
            .map(|name| (name.to_owned(), Quotas::read(&spec)))
            .into()
    }

    fn holder(key: &str, queue: &str, priority: i64, gpus: i128, since: &str) -> Holder {
        let at = (queue.to_owned(), "reserved".to_owned(), GPU.to_owned());
        Holder {
            key: key.to_owned(),
            queue: queue.to_owned(),
            priority,
            created: since.to_owned(),
            since: since.to_owned(),
            evicted: false,
            holds: [(at, gpus * 1000)].into(),
        }
    }

    fn chosen(
        priority: i64,
        gpus: i128,
        policy: &Value,
        holders: &[Holder],
    ) -> Option<Vec<(String, Cause)>> {
        let mut usage = Usage::new();
        for holder in holders {
            take(&mut usage, &holder.holds, 1);
        }
        let asker = Asker {
            queue: "a",
            priority,
            created: "5",
            asks: &[(GPU.to_owned(), gpus * 1000)].into(),
            policy: Policy::read(&json!({"preemption": policy})),
        };
        let found = victims(&asker, &quotas(), &usage, holders);
        found.map(|(_, victims)| victims)
    }

    #[test]
    fn the_fewest_of_the_least_important_and_newest_go() {
        let policy = json!({"withinClusterQueue": "LowerPriority"});
        let holders = [
            holder("small", "a", 0, 1, "3"),
            holder("big", "a", 0, 6, "2"),
            holder("high", "a", 9, 1, "1"),
            holder("other", "b", 0, 8, "1"),
        ];
        let names = |found: Option<Vec<(String, Cause)>>| {
            let found = found.unwrap_or_default().into_iter();
            found.map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(names(chosen(5, 1, &policy, &holders)), ["small"]);
        // The small one alone is too little, and with the big one gone it may stay.
        assert_eq!(names(chosen(5, 6, &policy, &holders)), ["big"]);
        assert_eq!(names(chosen(5, 7, &policy, &holders)), ["small", "big"]);
        assert_eq!(chosen(5, 8, &policy, &holders), None);
        assert_eq!(chosen(0, 1, &policy, &holders), None, "no lower priority");
        let newer = json!({"withinClusterQueue": "LowerOrNewerEqualPriority"});
        let late = [holder("late", "a", 0, 8, "6"), holder("b", "b", 0, 8, "1")];
        assert_eq!(names(chosen(0, 8, &newer, &late)), ["late"]);
    }

    #[test]
    fn what_is_borrowed_is_taken_back_for_own_quota_only() {
        let policy = json!({"reclaimWithinCohort": "Any"});
        let holders = [
            holder("own", "b", 5, 8, "1"),
            holder("more", "b", 5, 8, "2"),
        ];
        let all = Some(vec![("more".to_owned(), Cause::InCohortReclamation)]);
        assert_eq!(chosen(0, 8, &policy, &holders), all);
        assert_eq!(chosen(0, 9, &policy, &holders), None, "that would borrow");
        let lower = json!({"reclaimWithinCohort": "LowerPriority"});
        assert_eq!(chosen(0, 8, &lower, &holders), None);
        assert_eq!(chosen(6, 8, &lower, &holders), all);
    }
}
