//! What is wrong with queues: what makes no sense is a reason, not a queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Queue, Str};

/// What is wrong with each faulty queue, in words.
pub(super) fn faults(queues: &[Arc<Queue>]) -> BTreeMap<Str, Str> {
    let parents: BTreeMap<&Str, Option<&Str>> = queues
        .iter()
        .map(|q| (&q.meta.name, q.parent.as_ref()))
        .collect();
    let mut faults: BTreeMap<Str, Str> = BTreeMap::new();
    let mut owner: BTreeMap<&Str, &Str> = BTreeMap::new();
    for queue in queues {
        let name = &queue.meta.name;
        if let Some(why) = own_fault(queue).or_else(|| above(name, &parents)) {
            faults.insert(name.clone(), why.into());
        }
        for namespace in &queue.namespaces {
            if let Some(other) = owner.insert(namespace, name)
                && other != name
            {
                let why: Str = format!(
                    "namespace {namespace} is in queues {other} and {name}: it can be in one only"
                )
                .into();
                faults.entry(name.clone()).or_insert_with(|| why.clone());
                faults.entry(other.clone()).or_insert(why);
            }
        }
    }
    // What lies below a faulty queue has no place either.
    loop {
        let below: Vec<(Str, Str)> = queues
            .iter()
            .filter(|q| !faults.contains_key(&q.meta.name))
            .filter_map(|q| {
                let parent = q.parent.as_ref().filter(|p| faults.contains_key(*p))?;
                let why = format!("its parent {parent} cannot be used");
                Some((q.meta.name.clone(), why.into()))
            })
            .collect();
        if below.is_empty() {
            return faults;
        }
        faults.extend(below);
    }
}

fn own_fault(queue: &Queue) -> Option<String> {
    // What was told of it before decides nothing.
    let mut unread = queue.meta.unreadable.iter();
    if let Some(first) = unread.find(|note| !note.starts_with("status")) {
        return Some(format!("not all of it could be read: {first}"));
    }
    if queue.weight < 0 {
        return Some(format!(
            "weight {} is negative; 0 or more is right",
            queue.weight
        ));
    }
    for (at, terms) in queue.terms.iter().enumerate() {
        let kind = terms.model.as_deref().unwrap_or("all models");
        if terms.guaranteed_milli_gpu < 0 {
            return Some(format!("the guarantee for {kind} is negative"));
        }
        if let Some(limit) = terms.limit_milli_gpu {
            if limit < 0 {
                return Some(format!("the limit for {kind} is negative"));
            }
            if limit < terms.guaranteed_milli_gpu {
                return Some(format!(
                    "the limit for {kind} is below the guarantee; at least as much is right"
                ));
            }
        }
        let twice = queue
            .terms
            .iter()
            .take(at)
            .any(|t| t.model == terms.model && t.tier == terms.tier);
        if twice {
            return Some(format!("{kind} is named twice"));
        }
    }
    None
}

/// The parent does not exist, or the way up comes back.
fn above(name: &Str, parents: &BTreeMap<&Str, Option<&Str>>) -> Option<String> {
    let mut seen = vec![name];
    let mut at = name;
    while let Some(Some(parent)) = parents.get(at) {
        if !parents.contains_key(parent) {
            // Only the queue that names it is to blame; those below follow from it.
            return (at == name).then(|| format!("its parent {parent} does not exist"));
        }
        if seen.contains(parent) {
            let way: Vec<&str> = seen.iter().map(|s| &***s).collect();
            return Some(format!(
                "it is below itself ({} > {parent}); a tree has no cycles",
                way.join(" > ")
            ));
        }
        seen.push(parent);
        at = parent;
    }
    None
}
