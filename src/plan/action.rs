//! Actions and the Plan that holds them.

use std::fmt;
use std::sync::Arc;

use crate::model::{Decision, QueueStatus, ResourceVersion, Str, Uid};

/// An RBAC right that an action needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Verb {
    /// API group, empty for core.
    pub group: &'static str,
    /// Resource, with subresource (`pods/binding`).
    pub resource: &'static str,
    /// Verb (`create`, `patch`, …).
    pub verb: &'static str,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.group.is_empty() {
            Ok(())
        } else {
            write!(f, ".{}", self.group)
        }
    }
}

/// How much an action can hurt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Danger {
    /// Starts something; nothing running is touched.
    Safe,
    /// Changes what new pods may do.
    Reversible,
    /// Ends something that runs.
    Disruptive,
}

/// One write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Binds a waiting pod to a node.
    Bind {
        /// The pod's UID: the binding names it, so that a re-created pod of the same name is
        /// refused by the server.
        pod: Uid,
        /// Its namespace.
        namespace: Str,
        /// Its name.
        name: Str,
        /// The node.
        node: Str,
        /// The device that a share of a GPU goes to; the binding writes it on the pod.
        device: Option<u8>,
    },
    /// Ends a running pod through the Eviction API, so that its disruption budget is respected.
    Evict {
        /// The pod's UID: a re-created pod of the same name is refused by the server.
        pod: Uid,
        /// Its namespace.
        namespace: Str,
        /// Its name.
        name: Str,
        /// The node that it leaves.
        node: Str,
        /// Namespace and name of the pod it leaves for.
        preemptor: (Str, Str),
        /// By which right, and what it costs, in words.
        why: Str,
    },
    /// Writes what a GpuQueue uses and is due into its status.
    TellQueue {
        /// The queue's UID.
        queue: Uid,
        /// Its name.
        name: Str,
        /// The version that it was counted for: a queue that has changed since is refused.
        version: ResourceVersion,
        /// What is told.
        status: Arc<QueueStatus>,
    },
}

/// Places that are kept for a job until its pods are bound or time is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// What the job is known by: it stays the same when its pods are made anew.
    pub owner: Str,
    /// The places, each for one pod.
    pub places: Vec<HeldPlace>,
}

/// A place for one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldPlace {
    /// The pod that it was proven with; another one of its job that asks for the same may take it.
    pub pod: Uid,
    /// The node.
    pub node: Str,
    /// The device of a share.
    pub device: Option<u8>,
}

impl Action {
    /// The right that it needs.
    pub fn verb(&self) -> Verb {
        match self {
            Action::Bind { .. } => Verb {
                group: "",
                resource: "pods/binding",
                verb: "create",
            },
            Action::Evict { .. } => Verb {
                group: "",
                resource: "pods/eviction",
                verb: "create",
            },
            Action::TellQueue { .. } => Verb {
                group: "gpudeck.dev",
                resource: "gpuqueues/status",
                verb: "patch",
            },
        }
    }

    /// Its danger class.
    pub fn danger(&self) -> Danger {
        match self {
            Action::Bind { .. } | Action::TellQueue { .. } => Danger::Safe,
            Action::Evict { .. } => Danger::Disruptive,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Bind {
                namespace,
                name,
                node,
                ..
            } => {
                write!(f, "bind {namespace}/{name} to {node}")
            }
            Action::Evict {
                namespace,
                name,
                node,
                preemptor: (for_namespace, for_name),
                why,
                ..
            } => write!(
                f,
                "evict {namespace}/{name} from {node} for {for_namespace}/{for_name}: {why}"
            ),
            Action::TellQueue { name, .. } => write!(f, "tell queue {name} what it uses"),
        }
    }
}

/// What shall be written, and every decision behind it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Groups of actions in order. All actions of a group belong together (a gang); if one is
    /// refused, the rest of its group is not begun.
    pub groups: Vec<Vec<Action>>,
    /// Decisions that are new or differ from the last ones: placed and waiting pods alike.
    pub decisions: Vec<Arc<Decision>>,
    /// Places that are kept from now on; nobody is evicted without one. They are held before the
    /// actions are carried out.
    pub holds: Vec<Hold>,
    /// Jobs whose held places will not become free any more, say because who was to leave stays:
    /// all of their places are given up before others are held.
    pub given_up: Vec<Str>,
    /// More could be decided now: the work of one call is bounded, so decide again once these
    /// actions are assumed.
    pub more: bool,
}

impl Plan {
    /// Nothing to write and nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.decisions.is_empty()
    }

    /// All actions in order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.groups.iter().flatten()
    }
}
