//! What our scheduler decided about a pod or gang, and why, with numbers.

use std::fmt;

use jiff::Timestamp;

use super::meta::Uid;
use super::text::Str;

/// A reason that a filter gives, with how many nodes it took out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterCount {
    /// Nodes refused by this filter.
    pub nodes: u32,
    /// Why, in the words that kube-scheduler uses for the same (`Insufficient nvidia.com/gpu`).
    pub why: Str,
}

/// Why a pod waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No node passed the filters.
    NoNodeFits {
        /// Nodes looked at.
        nodes: u32,
        /// Counts by what refuses, largest first: the first failing filter, or each resource that
        /// is too little.
        filters: Box<[FilterCount]>,
    },
    /// The gang has fewer pods than its minimum.
    GangIncomplete {
        /// Pods that exist.
        have: u32,
        /// Pods needed.
        need: u32,
    },
    /// Only a part of the gang would fit, so none is placed.
    GangDoesNotFit {
        /// Pods that would fit now.
        fits: u32,
        /// Pods needed.
        need: u32,
        /// What stopped the next one.
        filters: Box<[FilterCount]>,
    },
    /// Its queue, or one above it, would exceed its limit.
    OverLimit {
        /// The queue.
        queue: Str,
        /// What it uses, in thousandths of a GPU.
        used_milli_gpu: i64,
        /// What it may use.
        limit_milli_gpu: i64,
        /// What is asked for.
        asks_milli_gpu: i64,
    },
    /// Work that cannot be preempted starts only inside its queue's guarantee.
    OverGuarantee {
        /// The queue.
        queue: Str,
        /// What of its work cannot be preempted, in thousandths of a GPU.
        used_milli_gpu: i64,
        /// What it is guaranteed.
        guaranteed_milli_gpu: i64,
        /// What is asked for.
        asks_milli_gpu: i64,
    },
    /// No domain of the required level has room for all of them.
    NoDomainFits {
        /// The level.
        level: Str,
        /// Pods that the best domain takes.
        fits: u32,
        /// Pods that have to be together.
        need: u32,
    },
    /// A place is held for it and becomes free.
    PlaceHeld {
        /// Where.
        nodes: Box<[Str]>,
    },
    /// Scheduling gates are still there.
    Gated {
        /// Their names.
        gates: Box<[Str]>,
    },
    /// It asks for something that this version does not place.
    Unsupported {
        /// What, in words.
        what: Str,
    },
    /// The server refused the write.
    Refused {
        /// The server's words.
        message: Str,
    },
    /// The server refused a part of a gang's writes after it had done the others.
    GangCut {
        /// Writes that were done.
        bound: u32,
        /// Writes that were meant.
        of: u32,
        /// What came of the first that was not done.
        message: Str,
    },
    /// Whether the write was done is not known; its place is held until the watch tells.
    Unanswered {
        /// What went wrong.
        message: Str,
    },
}

fn write_filters(f: &mut fmt::Formatter<'_>, filters: &[FilterCount]) -> fmt::Result {
    for (i, c) in filters.iter().enumerate() {
        write!(
            f,
            "{}{} {}",
            if i == 0 { " " } else { ", " },
            c.nodes,
            c.why
        )?;
    }
    Ok(())
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoNodeFits { nodes, filters } => {
                write!(f, "0/{nodes} nodes fit:")?;
                write_filters(f, filters)
            }
            Reason::GangIncomplete { have, need } => {
                write!(f, "gang has {have} of {need} pods")
            }
            Reason::GangDoesNotFit {
                fits,
                need,
                filters,
            } => {
                write!(f, "only {fits} of {need} pods of the gang fit:")?;
                write_filters(f, filters)
            }
            Reason::OverLimit {
                queue,
                used_milli_gpu,
                limit_milli_gpu,
                asks_milli_gpu,
            } => write!(
                f,
                "queue {queue} uses {} of its limit of {} GPUs; {} more would exceed it",
                gpus(*used_milli_gpu),
                gpus(*limit_milli_gpu),
                gpus(*asks_milli_gpu)
            ),
            Reason::OverGuarantee {
                queue,
                used_milli_gpu,
                guaranteed_milli_gpu,
                asks_milli_gpu,
            } => write!(
                f,
                "it cannot be preempted, so it starts only inside the guarantee of queue {queue}: \
                 {} of {} GPUs are used by such work, {} are asked",
                gpus(*used_milli_gpu),
                gpus(*guaranteed_milli_gpu),
                gpus(*asks_milli_gpu)
            ),
            Reason::NoDomainFits { level, fits, need } => {
                write!(
                    f,
                    "no {level} has room for all: the best takes {fits} of {need} pods"
                )
            }
            Reason::PlaceHeld { nodes } => {
                write!(
                    f,
                    "a place is held on {} and becomes free",
                    nodes.join(", ")
                )
            }
            Reason::Gated { gates } => write!(f, "held by scheduling gate {}", gates.join(", ")),
            Reason::Unsupported { what } => f.write_str(what),
            Reason::Refused { message } => write!(f, "refused by the server: {message}"),
            Reason::GangCut { bound, of, message } => write!(
                f,
                "only {bound} of {of} pods of the gang were bound, the others are tried again at \
                 once: {message}"
            ),
            Reason::Unanswered { message } => {
                write!(f, "whether it was bound is not known yet: {message}")
            }
        }
    }
}

/// Thousandths of a GPU as GPUs: `2`, `0.5`.
pub(super) fn gpus(milli: i64) -> String {
    let (whole, rest) = (milli / 1_000, (milli % 1_000).abs());
    if rest == 0 {
        return whole.to_string();
    }
    let digits = format!("{rest:03}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// What was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DecisionKind {
    /// Placed on a node.
    Placed {
        /// The node.
        node: Str,
        /// Why there, in words.
        why: Str,
    },
    /// Left waiting.
    Waiting(Reason),
    /// Evicted for another pod that has a right to its place.
    Leaves {
        /// The node that it leaves.
        node: Str,
        /// Namespace and name of the pod it leaves for.
        preemptor: (Str, Str),
        /// By which right, and what it costs, in words.
        why: Str,
    },
}

/// One decision about one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The pod.
    pub pod: Uid,
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// What.
    pub kind: DecisionKind,
    /// When, by the clock handed to the scheduler.
    pub at: Timestamp,
}
