//! A queue of any system in one form.

use std::fmt;

use super::super::gpu::GpuResource;
use super::super::text::Str;
use super::kinds::Admitter;

/// Identity of a queue in the table of all systems.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueKey {
    /// Whose queue it is.
    pub admitter: Admitter,
    /// Its kind as that system calls it: `ClusterQueue`, `LocalQueue`, `Cohort`, `Queue`, ….
    pub kind: Str,
    /// Namespace, empty for queues of the whole cluster.
    pub namespace: Str,
    /// Name.
    pub name: Str,
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// Whether a queue takes work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum QueueState {
    /// It takes and starts work.
    #[default]
    Open,
    /// It takes work but starts none.
    Held,
    /// It starts none, and what runs is sent away or runs out.
    Draining,
    /// It takes none.
    Closed,
    /// It is not sound: what it refers to is missing, or it is not known to its system yet.
    Broken,
}

impl QueueState {
    /// As screens and filters write it.
    pub fn name(self) -> &'static str {
        match self {
            QueueState::Open => "open",
            QueueState::Held => "held",
            QueueState::Draining => "draining",
            QueueState::Closed => "closed",
            QueueState::Broken => "broken",
        }
    }
}

/// What a queue is due and holds of one resource; all amounts in thousandths of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueTerm {
    /// Kueue's flavor, a quota's scope; `None`: of any.
    pub flavor: Option<Str>,
    /// Of what.
    pub resource: GpuResource,
    /// What it gets whenever it asks; `None`: nothing is stated.
    pub guaranteed_milli: Option<i64>,
    /// What of that is never lent to others; `None`: not stated.
    pub kept_milli: Option<i64>,
    /// What it never exceeds; `None`: no limit of its own.
    pub limit_milli: Option<i64>,
    /// What its work holds; `None`: not told yet.
    pub used_milli: Option<i64>,
}

/// A queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmitterQueue {
    /// Identity in the table.
    pub key: QueueKey,
    /// The queue above: a cohort, a parent queue, a LocalQueue's ClusterQueue.
    pub parent: Option<QueueKey>,
    /// What it is due, an entry a flavor and resource; only devices of GPUs.
    pub terms: Box<[QueueTerm]>,
    /// Share of what is left over, in thousandths.
    pub weight_milli: Option<i64>,
    /// Priority among queues.
    pub priority: Option<i32>,
    /// How much of what all lend it has borrowed for its weight, in thousandths, as its system
    /// counts it (Kueue's `weightedShare`).
    pub share_milli: Option<i64>,
    /// Whether it takes work.
    pub state: QueueState,
    /// Why it does not, in one clause.
    pub why: Option<Str>,
    /// Pieces of work that wait, as its system counts them.
    pub pending: Option<u32>,
    /// Pieces of work that run, as its system counts them.
    pub running: Option<u32>,
    /// The first in line holds back all others (StrictFIFO).
    pub strict: bool,
    /// Namespaces whose work is in it, for our queues; the work of others names its queue.
    pub namespaces: Box<[Str]>,
    /// What else is to be known: which pods a quota counts, what displaces what.
    pub notes: Box<[Str]>,
}

impl AdmitterQueue {
    /// A queue of which only the identity is known.
    pub fn new(key: QueueKey) -> Self {
        AdmitterQueue {
            key,
            parent: None,
            terms: Box::default(),
            weight_milli: None,
            priority: None,
            share_milli: None,
            state: QueueState::Open,
            why: None,
            pending: None,
            running: None,
            strict: false,
            namespaces: Box::default(),
            notes: Box::default(),
        }
    }
}
