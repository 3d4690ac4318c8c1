//! What is wrong with nodes right now, kept so that a list of it needs no look at all nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::node::{Node, Readiness};
use super::text::Str;

/// A condition of a node that tells of a fault, or of something planned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFault {
    /// The node.
    pub node: Str,
    /// Type of the condition.
    pub kind: Str,
    /// Reason.
    pub reason: Str,
    /// Message.
    pub message: Str,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Something planned or under way that is no fault: a drain, maintenance.
    pub planned: bool,
}

/// The faults by node.
#[derive(Default)]
pub(super) struct NodeFaults(BTreeMap<Str, Vec<NodeFault>>);

impl NodeFaults {
    /// Takes a node; whether anything has changed.
    pub(super) fn set(&mut self, node: &Node) -> bool {
        let of = |condition: &super::condition::Condition, planned| NodeFault {
            node: node.meta.name.clone(),
            kind: condition.kind.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: condition.changed,
            planned,
        };
        let ready = node.conditions.iter().find(|c| &*c.kind == "Ready");
        let not_ready = ready.filter(|_| node.readiness() != Readiness::Ready);
        let all: Vec<NodeFault> = not_ready
            .map(|c| of(c, false))
            .into_iter()
            .chain(node.faults().map(|c| of(c, false)))
            .chain(node.notices().map(|c| of(c, true)))
            .collect();
        if all.is_empty() {
            return self.0.remove(&node.meta.name).is_some();
        }
        if self.0.get(&node.meta.name) == Some(&all) {
            return false;
        }
        self.0.insert(node.meta.name.clone(), all);
        true
    }

    /// Forgets a node; whether anything was known of it.
    pub(super) fn remove(&mut self, node: &str) -> bool {
        self.0.remove(node).is_some()
    }

    /// All of them, by node.
    pub(super) fn all(&self) -> impl Iterator<Item = &NodeFault> {
        self.0.values().flatten()
    }
}
