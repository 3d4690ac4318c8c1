//! Kueue: ClusterQueues, LocalQueues, Cohorts and Workloads of `kueue.x-k8s.io`, v1beta2 and
//! v1beta1 (`cohort` for `cohortName`, conditions and amounts alike).

use std::collections::BTreeMap;

use super::read::{Devices, Part, Told, owner};
use crate::model::{
    Admitter, AdmitterQueue, EntryState, GpuResource, Meta, QueueEntry, QueueKey, QueueState,
    QueueTerm, Str, WorkloadKey,
};

fn key(kind: &str, namespace: &str, name: &str) -> QueueKey {
    QueueKey {
        admitter: Admitter::Kueue,
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

/// Amounts of devices by flavor and resource, as status lists them.
fn usage(list: Part<'_>) -> BTreeMap<(Str, GpuResource), i64> {
    let mut sums = BTreeMap::new();
    for flavor in list.list() {
        let name = flavor.key("name").name().unwrap_or_default();
        for resource in flavor.key("resources").list() {
            let device = resource.key("name").raw().and_then(GpuResource::from_key);
            if let (Some(device), Some(total)) = (device, resource.key("total").milli()) {
                *sums.entry((name.clone(), device)).or_insert(0) += total;
            }
        }
    }
    sums
}

/// What a queue uses: what is admitted, else what is reserved; `None` before its status is there.
fn used(part: &Part<'_>) -> Option<BTreeMap<(Str, GpuResource), i64>> {
    let admitted = part.at("status.flavorsUsage");
    let admitted = if admitted.exists() {
        admitted
    } else {
        part.at("status.flavorUsage")
    };
    let reserved = part.at("status.flavorsReservation");
    if admitted.exists() {
        Some(usage(admitted))
    } else if reserved.exists() {
        Some(usage(reserved))
    } else {
        part.at("status.conditions").exists().then(BTreeMap::new)
    }
}

/// The terms of a ClusterQueue or Cohort. `borrows`: it may use what others lend.
fn terms(part: &Part<'_>, borrows: bool) -> Vec<QueueTerm> {
    let mut used = used(part);
    let mut terms = Vec::new();
    for group in part.at("spec.resourceGroups").list() {
        for flavor in group.key("flavors").list() {
            let name = flavor.key("name").name();
            for quota in flavor.key("resources").list() {
                let Some(resource) = quota.key("name").raw().and_then(GpuResource::from_key) else {
                    continue;
                };
                let nominal = quota.key("nominalQuota").milli();
                let more = quota.key("borrowingLimit").milli();
                let lends = quota.key("lendingLimit").milli();
                let place = (name.clone().unwrap_or_default(), resource.clone());
                terms.push(QueueTerm {
                    used_milli: used.as_mut().map(|u| u.remove(&place).unwrap_or(0)),
                    flavor: name.clone(),
                    resource,
                    guaranteed_milli: nominal,
                    kept_milli: nominal.zip(lends).map(|(n, l)| (n - l).max(0)),
                    limit_milli: match (nominal, more) {
                        (Some(nominal), Some(more)) => Some(nominal.saturating_add(more)),
                        (nominal, None) if !borrows => nominal,
                        _ => None,
                    },
                });
            }
        }
    }
    // What it still holds of a flavor that it is not given any more.
    for ((flavor, resource), milli) in used.unwrap_or_default() {
        if milli != 0 {
            terms.push(QueueTerm {
                flavor: Some(flavor),
                resource,
                guaranteed_milli: None,
                kept_milli: None,
                limit_milli: None,
                used_milli: Some(milli),
            });
        }
    }
    terms
}

/// State by stop policy, then by the condition Active.
fn state(part: &Part<'_>) -> (QueueState, Option<Str>) {
    let active = part.condition("Active");
    let words = |active: Option<Told>| active.filter(|a| !a.holds).map(|a| clause(&a.words()));
    match part.at("spec.stopPolicy").raw() {
        Some("Hold") => (QueueState::Held, Some("held by its stopPolicy".into())),
        Some("HoldAndDrain") => (
            QueueState::Draining,
            Some("held and drained by its stopPolicy".into()),
        ),
        _ => match active {
            Some(active) if !active.holds && &*active.reason == "ClusterQueueIsInactive" => (
                QueueState::Held,
                Some("its ClusterQueue takes nothing".into()),
            ),
            Some(active) if !active.holds => (QueueState::Broken, words(Some(active))),
            _ => (QueueState::Open, None),
        },
    }
}

/// The part of a sentence that tells something.
fn clause(text: &str) -> Str {
    const OPENINGS: [&str; 3] = [
        "Can't admit new workloads: ",
        "Can't submit new workloads to clusterQueue",
        "The workload is ",
    ];
    let opening = OPENINGS.iter().find_map(|o| text.strip_prefix(o));
    opening
        .filter(|rest| !rest.is_empty())
        .unwrap_or(text)
        .trim_end_matches('.')
        .into()
}

fn weight(part: &Part<'_>) -> Option<i64> {
    part.at("spec.fairSharing.weight").milli()
}

pub(super) fn cluster_queue(meta: &Meta, part: &Part<'_>) -> AdmitterQueue {
    let cohort = part.at("spec.cohortName").name();
    let cohort = cohort.or_else(|| part.at("spec.cohort").name());
    let (state, why) = state(part);
    let mut notes: Vec<Str> = Vec::new();
    let policy = |name: &str| part.at(&format!("spec.preemption.{name}")).raw();
    for (field, text) in [
        ("reclaimWithinCohort", "takes back what its cohort borrowed"),
        ("withinClusterQueue", "displaces its own work"),
        (
            "borrowWithinCohort.policy",
            "displaces others' work while it borrows",
        ),
    ] {
        if let Some(policy) = policy(field).filter(|p| *p != "Never") {
            notes.push(format!("{text}: {}", crate::model::clean(policy, 40)).into());
        }
    }
    AdmitterQueue {
        terms: terms(part, cohort.is_some()).into(),
        parent: cohort.map(|name| key("Cohort", "", &name)),
        weight_milli: weight(part),
        share_milli: part.at("status.fairSharing.weightedShare").int(),
        state,
        why,
        pending: part.at("status.pendingWorkloads").count(),
        running: part.at("status.admittedWorkloads").count(),
        strict: part.at("spec.queueingStrategy").raw() == Some("StrictFIFO"),
        notes: notes.into(),
        ..AdmitterQueue::new(key("ClusterQueue", "", &meta.name))
    }
}

pub(super) fn local_queue(meta: &Meta, part: &Part<'_>) -> AdmitterQueue {
    let (state, why) = state(part);
    let terms = used(part).unwrap_or_default().into_iter();
    AdmitterQueue {
        terms: terms
            .map(|((flavor, resource), milli)| QueueTerm {
                flavor: Some(flavor),
                resource,
                guaranteed_milli: None,
                kept_milli: None,
                limit_milli: None,
                used_milli: Some(milli),
            })
            .collect(),
        parent: part
            .at("spec.clusterQueue")
            .name()
            .map(|name| key("ClusterQueue", "", &name)),
        weight_milli: weight(part),
        state,
        why,
        pending: part.at("status.pendingWorkloads").count(),
        running: part.at("status.admittedWorkloads").count(),
        ..AdmitterQueue::new(key("LocalQueue", &meta.namespace, &meta.name))
    }
}

pub(super) fn cohort(meta: &Meta, part: &Part<'_>) -> AdmitterQueue {
    let parent = part.at("spec.parentName").name();
    let parent = parent.or_else(|| part.at("spec.parent").name());
    let mut terms = terms(part, true);
    for term in &mut terms {
        // Its work is counted where it is admitted: in the ClusterQueues below.
        term.used_milli = None;
    }
    AdmitterQueue {
        terms: terms.into(),
        parent: parent.map(|name| key("Cohort", "", &name)),
        weight_milli: weight(part),
        share_milli: part.at("status.fairSharing.weightedShare").int(),
        ..AdmitterQueue::new(key("Cohort", "", &meta.name))
    }
}

/// What a Workload asks for: what was assigned to it, else what its pod sets say.
fn asked(part: &Part<'_>) -> (Devices, u32) {
    let mut devices = Devices::default();
    let mut pods = 0_u32;
    for set in part.at("spec.podSets").list() {
        let count = set.key("count").count().unwrap_or(1);
        pods = pods.saturating_add(count);
        devices.add_template(set.key("template"), count);
    }
    let assigned = part.at("status.admission.podSetAssignments");
    if assigned.exists() {
        let mut given = Devices::default();
        for set in assigned.list() {
            for (resource, milli) in set.key("resourceUsage").devices().0 {
                given.add(resource, milli);
            }
        }
        if !given.0.is_empty() {
            devices = given;
        }
    }
    (devices, pods)
}

/// Why it waits, in one clause, by the reasons of `QuotaReserved=False`.
fn why(quota: &Told, part: &Part<'_>) -> Str {
    if let Some(evicted) = part.holds("Evicted") {
        return sent_back(&evicted, part);
    }
    let text = quota.words();
    let text = match text.strip_prefix("couldn't assign flavors to pod set ") {
        Some(rest) => rest.split_once(": ").map_or(rest, |(_, rest)| rest),
        None => &text,
    };
    match &*quota.reason {
        "WaitingForQuota" => shortage(text).into(),
        "ExceedsMaxQuota" => format!("asks more than it can ever have: {text}").into(),
        "WaitingForPreemptedWorkloads" => "waits for those that it displaces to be gone".into(),
        "TopologyPlacementFailed" => text.split(". Total nodes").next().unwrap_or(text).into(),
        _ => clause(text),
    }
}

/// `insufficient unused quota for R in flavor F, N more needed, …` as `F lacks N R, …`.
fn shortage(text: &str) -> String {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("insufficient unused quota for ") {
        let Some((resource, after)) = after.split_once(" in flavor ") else {
            break;
        };
        let Some((flavor, after)) = after.split_once(", ") else {
            break;
        };
        let Some((amount, after)) = after.split_once(" more needed") else {
            break;
        };
        let resource = resource.rsplit('/').next().unwrap_or(resource);
        parts.push(format!("{flavor} lacks {amount} {resource}"));
        rest = after;
    }
    if parts.is_empty() {
        text.to_owned()
    } else {
        parts.join(", ")
    }
}

/// Why it was sent back to its queue.
fn sent_back(evicted: &Told, part: &Part<'_>) -> Str {
    let mut text = match &*evicted.reason {
        "Preempted" => match displacer(&evicted.message) {
            Some(path) => format!("displaced by work of {path}"),
            None => "displaced by other work".to_owned(),
        },
        "PodsReadyTimeout" => "its pods were not ready in time".to_owned(),
        _ => clause(&evicted.words()).to_string(),
    };
    if let Some(count) = part
        .at("status.requeueState.count")
        .count()
        .filter(|n| *n > 1)
    {
        text.push_str(&format!(", {count} times"));
    }
    if let Some(at) = part.at("status.requeueState.requeueAt").time() {
        text.push_str(&format!(", tries again at {}", at.strftime("%H:%M")));
    }
    text.into()
}

/// The queue whose work displaced this, by the message of an eviction.
fn displacer(message: &str) -> Option<&str> {
    let (_, path) = message.split_once("preemptor path: ")?;
    let path = path.split(';').next()?.trim();
    (!path.is_empty()).then_some(path)
}

pub(super) fn workload(meta: &Meta, part: &Part<'_>) -> QueueEntry {
    let quota = part.condition("QuotaReserved");
    let active = part.at("spec.active").truth() != Some(false);
    let evicted = part.condition("Evicted");
    let (state, reason) = if part.holds("Finished").is_some() {
        (EntryState::Finished, None)
    } else if !active {
        let words = evicted.as_ref().map(|e| clause(&e.words()));
        let words = words.unwrap_or_else(|| "switched off (active: false)".into());
        (EntryState::Held, Some(words))
    } else if part.holds("Admitted").is_some() {
        (EntryState::Admitted, None)
    } else if quota.as_ref().is_some_and(|q| q.holds) {
        let words = part.condition("Admitted").map(|a| clause(&a.words()));
        (EntryState::Reserved, words)
    } else {
        let held = quota.as_ref().is_some_and(|q| &*q.reason == "Suspended");
        let words = quota.as_ref().map(|q| why(q, part));
        let state = if held {
            EntryState::Held
        } else {
            EntryState::Waiting
        };
        (state, words.or_else(|| Some("not looked at yet".into())))
    };
    let boost = part
        .at("metadata.annotations")
        .key("kueue.x-k8s.io/priority-boost");
    let boost: i64 = boost.raw().and_then(|b| b.parse().ok()).unwrap_or(0);
    let priority = part
        .at("spec.priority")
        .int()
        .unwrap_or(0)
        .saturating_add(boost);
    let class = part.at("spec.priorityClassRef.name").name();
    let (asked, pods) = asked(part);
    // Who was sent back for no fault of its queue stands in line from then on.
    let back = evicted
        .as_ref()
        .filter(|e| e.holds && matches!(&*e.reason, "PodsReadyTimeout" | "AdmissionCheck"));
    let counts = part.at("status.schedulingStats.evictions").list();
    let evictions = counts
        .filter_map(|e| e.key("count").count())
        .fold(0, u32::saturating_add);
    let displaced = evicted.as_ref().and_then(|e| {
        let message = e.message.strip_prefix("Previously: ").unwrap_or(&e.message);
        message.starts_with("Preempted").then(|| message.into())
    });
    QueueEntry {
        queue: key(
            "LocalQueue",
            &meta.namespace,
            &part.at("spec.queueName").name().unwrap_or_default(),
        ),
        workload: owner(meta, *part).unwrap_or_else(|| WorkloadKey {
            namespace: meta.namespace.clone(),
            kind: "Workload".into(),
            name: meta.name.clone(),
        }),
        priority: i32::try_from(priority).unwrap_or(if priority > 0 { i32::MAX } else { i32::MIN }),
        priority_class: class
            .or_else(|| part.at("spec.priorityClassName").name())
            .unwrap_or_default(),
        asked_milli: asked.into_milli(),
        pods,
        state,
        reason,
        queued: back.and_then(|e| e.since).or(meta.created),
        evictions: evictions.max(u32::from(evicted.is_some())),
        displaced,
    }
}
