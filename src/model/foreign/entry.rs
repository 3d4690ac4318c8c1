//! A piece of work in a queue: Kueue's Workload, Volcano's and KAI's PodGroup.

use jiff::Timestamp;

use super::super::gpu::GpuResource;
use super::super::meta::Meta;
use super::super::text::Str;
use super::super::workload::WorkloadKey;
use super::queue::QueueKey;

/// Where a piece of work stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryState {
    /// It waits for its queue.
    Waiting,
    /// It has its quota, and waits for something else: a check, pods that are displaced.
    Reserved,
    /// It may run.
    Admitted,
    /// Somebody holds it.
    Held,
    /// It ended.
    Finished,
}

impl EntryState {
    /// As screens and filters write it.
    pub fn name(self) -> &'static str {
        match self {
            EntryState::Waiting => "waiting",
            EntryState::Reserved => "reserved",
            EntryState::Admitted => "admitted",
            EntryState::Held => "held",
            EntryState::Finished => "finished",
        }
    }

    /// Whether it is in line.
    pub fn waits(self) -> bool {
        matches!(self, EntryState::Waiting | EntryState::Held)
    }
}

/// A piece of work in a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueEntry {
    /// The queue it is in.
    pub queue: QueueKey,
    /// The workload that it stands for.
    pub workload: WorkloadKey,
    /// Its priority, with what was added to it.
    pub priority: i32,
    /// Name of its priority class, may be empty; tells the priority where that is not stated.
    pub priority_class: Str,
    /// Devices that it asks for, in thousandths.
    pub asked_milli: Box<[(GpuResource, i64)]>,
    /// Pods that it needs together.
    pub pods: u32,
    /// Where it stands.
    pub state: EntryState,
    /// Why it stands there, in one clause.
    pub reason: Option<Str>,
    /// Since when it is in line: its creation, or its last return.
    pub queued: Option<Timestamp>,
    /// How often it was sent back.
    pub evictions: u32,
    /// Who displaced it last, and why, in its system's words.
    pub displaced: Option<Str>,
}

impl QueueEntry {
    /// Its place in line: who comes before whom in a queue that orders by priority and then time,
    /// as all these systems do.
    pub fn order(&self, meta: &Meta) -> (i64, Timestamp, Str, Str) {
        (
            -i64::from(self.priority),
            self.queued.or(meta.created).unwrap_or(Timestamp::MAX),
            meta.namespace.clone(),
            meta.name.clone(),
        )
    }
}
