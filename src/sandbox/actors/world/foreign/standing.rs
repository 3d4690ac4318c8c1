//! What the objects of a foreign scheduler tell of its groups.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A group as its status tells it.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Pods bound, by whether they run; and ended ones.
    pub bound: usize,
    pub running: usize,
    pub succeeded: usize,
    pub failed: usize,
    pub waiting: usize,
    /// Least pods at a time.
    pub min: usize,
    /// What is asked for and what is held, in thousandths.
    pub requested: BTreeMap<String, i128>,
    pub allocated: BTreeMap<String, i128>,
    /// Why it waits.
    pub held_back: Option<HeldBack>,
}

/// Why a group waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeldBack {
    /// Not all of its least pods are there.
    TooFewPods,
    /// Its queue may not hold more: limit, allocated and requested GPUs.
    OverLimit {
        limit: i128,
        allocated: i128,
        requested: i128,
    },
    /// It fits nowhere: nodes looked at, and reasons.
    NoRoom { nodes: usize, reasons: Vec<String> },
}

/// A text member; empty when there is none.
pub(super) fn text(value: &Value, field: &str) -> String {
    let found = value.get(field).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

/// An amount in thousandths as a quantity: whole units where it is.
pub(super) fn quantity(milli: i128) -> String {
    if milli % 1000 == 0 {
        (milli / 1000).to_string()
    } else {
        format!("{milli}m")
    }
}

/// Amounts as quantities.
pub(super) fn quantities(amounts: &BTreeMap<String, i128>) -> Value {
    let pairs = amounts.iter().filter(|(_, amount)| **amount > 0);
    Value::Object(
        pairs
            .map(|(name, milli)| (name.clone(), json!(quantity(*milli))))
            .collect(),
    )
}

/// The time of a condition that was there before just so; else `now`.
pub(super) fn since(old: &Value, list: &str, like: &Value, now: String) -> String {
    let same = |other: &&Value| {
        ["type", "status", "reason", "message"]
            .iter()
            .all(|field| other.get(field) == like.get(field))
    };
    let list = old.get(list).and_then(Value::as_array);
    let found = list.into_iter().flatten().find(same);
    let at = found
        .and_then(|other| other.get("lastTransitionTime"))
        .and_then(Value::as_str);
    at.map_or(now, str::to_owned)
}
