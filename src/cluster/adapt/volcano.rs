//! Volcano: Queues and PodGroups of `scheduling.volcano.sh/v1beta1`.

use std::collections::BTreeSet;

use super::read::{Part, owner};
use crate::model::{
    Admitter, AdmitterQueue, EntryState, GpuResource, Meta, QueueEntry, QueueKey, QueueState,
    QueueTerm, Str, WorkloadKey,
};

fn key(name: &str) -> QueueKey {
    QueueKey {
        admitter: Admitter::Volcano,
        kind: "Queue".into(),
        namespace: Str::default(),
        name: name.into(),
    }
}

pub(super) fn queue(meta: &Meta, part: &Part<'_>) -> AdmitterQueue {
    let spec = |name: &str| part.at(&format!("spec.{name}"));
    let guarantee = spec("guarantee.resource").devices().0;
    let deserved = spec("deserved").devices().0;
    let limit = spec("capability").devices().0;
    let allocated = part.at("status.allocated");
    let used = allocated.devices().0;
    let named: BTreeSet<&GpuResource> = guarantee
        .keys()
        .chain(deserved.keys())
        .chain(limit.keys())
        .chain(used.keys())
        .chain([&GpuResource::Whole])
        .collect();
    let terms = named.into_iter().map(|resource| QueueTerm {
        flavor: None,
        resource: resource.clone(),
        guaranteed_milli: deserved.get(resource).max(guarantee.get(resource)).copied(),
        kept_milli: guarantee.get(resource).copied(),
        limit_milli: limit.get(resource).copied(),
        used_milli: allocated
            .exists()
            .then(|| used.get(resource).copied().unwrap_or(0)),
    });
    let (state, why): (_, Option<Str>) = match part.at("status.state").raw() {
        Some("Open") => (QueueState::Open, None),
        Some("Closed") => (QueueState::Closed, Some("closed".into())),
        Some("Closing") => (
            QueueState::Draining,
            Some("closing: what runs may end".into()),
        ),
        _ => (
            QueueState::Broken,
            Some("Volcano tells no state of it".into()),
        ),
    };
    let mut notes: Vec<Str> = Vec::new();
    if spec("reclaimable").truth() == Some(false) {
        notes.push("what it uses beyond its due is not taken back".into());
    }
    if spec("affinity").exists() {
        notes.push("its work is tied to groups of nodes".into());
    }
    let count = |name: &str| part.at(&format!("status.{name}")).count();
    let waiting = [count("pending"), count("inqueue")];
    AdmitterQueue {
        terms: terms.collect(),
        parent: spec("parent")
            .name()
            .filter(|p| *p != meta.name)
            .map(|name| key(&name)),
        weight_milli: spec("weight").milli(),
        priority: spec("priority").int().and_then(|n| i32::try_from(n).ok()),
        state,
        why,
        pending: waiting.into_iter().flatten().reduce(u32::saturating_add),
        running: count("running"),
        notes: notes.into(),
        ..AdmitterQueue::new(key(&meta.name))
    }
}

/// The clause that tells most: the scheduler's own reason where the gang's message quotes it.
fn clause(message: &str) -> Str {
    let (_, origin) = message.rsplit_once("Origin reason is ").unwrap_or(("", ""));
    if !origin.is_empty() {
        // `worker-3: 0/31 nodes are unavailable: …`: the pod's name tells nothing here.
        let rest = origin.split_once(": ").map(|(_, rest)| rest);
        let nodes = rest.filter(|r| r.contains("nodes are unavailable"));
        return nodes.unwrap_or(origin).trim_end_matches('.').into();
    }
    let (_, tail) = message
        .split_once("pod group is not ready, ")
        .unwrap_or(("", message));
    tail.split(';')
        .next()
        .unwrap_or(tail)
        .trim_end_matches('.')
        .into()
}

pub(super) fn pod_group(meta: &Meta, part: &Part<'_>) -> QueueEntry {
    let unschedulable = part.holds("Unschedulable");
    let words = || {
        unschedulable
            .as_ref()
            .map(|u| (&*u.reason, clause(&u.words())))
    };
    let told = || match words() {
        Some(("NotEnoughTasks", text)) => Some(format!("pods are missing: {text}").into()),
        Some((_, text)) => Some(text),
        None => None,
    };
    let (state, reason) = match part.at("status.phase").raw() {
        Some("Running") => (EntryState::Admitted, None),
        Some("Completed") => (EntryState::Finished, None),
        Some("Unknown") => (
            EntryState::Admitted,
            told().or_else(|| Some("only a part of its pods runs".into())),
        ),
        Some("Inqueue") => (EntryState::Reserved, told()),
        _ => (
            EntryState::Waiting,
            told().or_else(|| Some("not let into its queue yet".into())),
        ),
    };
    // Past the gate of its queue it still waits for nodes.
    let state = match state {
        EntryState::Reserved => EntryState::Waiting,
        state => state,
    };
    let evicted = part.condition("Evicted");
    QueueEntry {
        queue: key(&part
            .at("spec.queue")
            .name()
            .unwrap_or_else(|| "default".into())),
        workload: owner(meta, *part).unwrap_or_else(|| WorkloadKey {
            namespace: meta.namespace.clone(),
            kind: "PodGroup".into(),
            name: meta.name.clone(),
        }),
        priority: 0,
        priority_class: part.at("spec.priorityClassName").name().unwrap_or_default(),
        asked_milli: part.at("spec.minResources").devices().into_milli(),
        pods: part.at("spec.minMember").count().unwrap_or(1),
        state,
        reason,
        queued: meta.created,
        evictions: u32::from(evicted.is_some()),
        displaced: evicted.map(|e| e.words()),
    }
}
