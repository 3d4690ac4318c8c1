//! KAI: Queues (`scheduling.run.ai/v2`) and PodGroups (`v2alpha2`). Amounts of −1 mean no bound.

use std::collections::BTreeSet;

use serde_json::Value;

use super::read::{Part, owner, workload};
use crate::model::{
    Admitter, AdmitterQueue, EntryState, GpuResource, Meta, QueueEntry, QueueKey, QueueTerm, Str,
    WorkloadKey,
};

fn key(name: &str) -> QueueKey {
    QueueKey {
        admitter: Admitter::Kai,
        kind: "Queue".into(),
        namespace: Str::default(),
        name: name.into(),
    }
}

pub(super) fn queue(meta: &Meta, part: &Part<'_>) -> AdmitterQueue {
    let gpu = part.at("spec.resources.gpu");
    let quota = gpu.key("quota").milli();
    let limit = gpu.key("limit").milli();
    let allocated = part.at("status.allocated");
    let used = allocated.devices().0;
    let requested = part.at("status.requested").devices().0;
    let named: BTreeSet<&GpuResource> = used.keys().chain([&GpuResource::Whole]).collect();
    let terms = named.into_iter().map(|resource| {
        // Its quota counts whole GPUs; a MIG instance has none of its own.
        let whole = *resource == GpuResource::Whole;
        QueueTerm {
            flavor: None,
            resource: resource.clone(),
            guaranteed_milli: quota.filter(|n| whole && *n >= 0),
            kept_milli: None,
            limit_milli: limit.filter(|n| whole && *n >= 0),
            used_milli: allocated
                .exists()
                .then(|| used.get(resource).copied().unwrap_or(0)),
        }
    });
    let mut notes: Vec<Str> = Vec::new();
    if quota.is_some_and(|n| n < 0) {
        notes.push("its quota has no bound".into());
    }
    for (field, text) in [
        ("preemptMinRuntime", "its work is not displaced within"),
        ("reclaimMinRuntime", "its work is not taken back within"),
    ] {
        if let Some(time) = part.at(&format!("spec.{field}")).name() {
            notes.push(format!("{text} {time}").into());
        }
    }
    if let Some(asked) = requested.get(&GpuResource::Whole) {
        notes.push(format!("{} GPUs are asked for in all", milli(*asked)).into());
    }
    AdmitterQueue {
        terms: terms.collect(),
        parent: part
            .at("spec.parentQueue")
            .name()
            .filter(|p| *p != meta.name)
            .map(|n| key(&n)),
        weight_milli: gpu.key("overQuotaWeight").milli(),
        priority: part
            .at("spec.priority")
            .int()
            .and_then(|n| i32::try_from(n).ok()),
        notes: notes.into(),
        ..AdmitterQueue::new(key(&meta.name))
    }
}

/// Thousandths as a plain number.
fn milli(n: i64) -> String {
    let text = format!("{}.{:03}", n / 1_000, (n % 1_000).abs());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The owner that a person knows, as KAI's pod grouper found it.
fn top_owner(meta: &Meta, part: &Part<'_>) -> Option<WorkloadKey> {
    let note = part
        .at("metadata.annotations")
        .key("kai.scheduler/top-owner-metadata")
        .raw()?;
    let value: Value = serde_json::from_str(note).ok()?;
    let text = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_str)
            .filter(|t| !t.is_empty())
    };
    let version = match (text("group"), text("version")) {
        (Some(group), Some(version)) => Some(format!("{group}/{version}")),
        _ => None,
    };
    Some(workload(
        &meta.namespace,
        version.as_deref(),
        text("kind")?,
        text("name")?,
    ))
}

/// The first clause of an explanation.
fn clause(text: &str) -> Str {
    let text = match text.split_once("no nodes with enough resources were found: ") {
        Some((_, rest)) => rest,
        None => text,
    };
    text.split(". ")
        .next()
        .unwrap_or(text)
        .trim_end_matches('.')
        .into()
}

pub(super) fn pod_group(meta: &Meta, part: &Part<'_>) -> QueueEntry {
    let allocated = part.at("status.resourcesStatus.allocated").devices();
    let requested = part.at("status.resourcesStatus.requested");
    let refused = part.at("status.schedulingConditions").list().last();
    let words = refused.and_then(|c| {
        let first = c
            .key("reasons")
            .list()
            .find_map(|r| r.key("message").sentence());
        first.or_else(|| c.key("message").sentence())
    });
    let holds = allocated.0.values().any(|n| *n > 0);
    let (state, reason) = if holds {
        (EntryState::Admitted, words.map(|w| clause(&w)))
    } else if let Some(words) = words {
        (EntryState::Waiting, Some(clause(&words)))
    } else if requested.exists() && requested.devices().0.values().all(|n| *n <= 0) {
        (EntryState::Finished, None)
    } else {
        (EntryState::Waiting, Some("not looked at yet".into()))
    };
    let members = part.at("spec.minMember").count().or_else(|| {
        let groups = part.at("spec.subGroups").list();
        groups
            .filter_map(|g| g.key("minMember").count())
            .reduce(u32::saturating_add)
    });
    let notes = part.at("metadata.annotations");
    let evicted = notes.key("kai.scheduler/last-eviction-timestamp").time();
    QueueEntry {
        queue: key(&part
            .at("spec.queue")
            .name()
            .or_else(|| meta.label("kai.scheduler/queue").map(Into::into))
            .unwrap_or_default()),
        workload: top_owner(meta, part)
            .or_else(|| owner(meta, *part))
            .unwrap_or_else(|| WorkloadKey {
                namespace: meta.namespace.clone(),
                kind: "PodGroup".into(),
                name: meta.name.clone(),
            }),
        priority: 0,
        priority_class: part.at("spec.priorityClassName").name().unwrap_or_default(),
        asked_milli: requested.devices().into_milli(),
        pods: members.unwrap_or(1),
        state,
        reason,
        queued: meta.created,
        evictions: u32::from(evicted.is_some()),
        displaced: evicted.map(|at| format!("displaced at {}", at.strftime("%H:%M")).into()),
    }
}
