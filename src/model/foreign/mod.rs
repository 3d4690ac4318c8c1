//! Objects of other systems, read and never written: their queues, what waits in those, and the
//! objects that a person submits as a job.
//!
//! Kinds, groups and versions: Kueue 0.19, Volcano 1.15, KAI 0.17, JobSet, LeaderWorkerSet, Kubeflow
//! Trainer and Training Operator, MPI Operator and KubeRay of mid-2026.

mod entry;
mod job;
mod kinds;
mod queue;
mod tally;

use super::meta::{Meta, Uid};
use super::published::PublishedSlice;
use super::text::Str;

pub use entry::{EntryState, QueueEntry};
pub use job::ForeignJob;
pub use kinds::{Admitter, ForeignApi, ForeignKind};
pub use queue::{AdmitterQueue, QueueKey, QueueState, QueueTerm};
pub use tally::QueueTally;

/// Identity of an object of another system.
pub type ForeignId = (ForeignKind, Uid);

/// An object of another system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// Identity.
    pub meta: Meta,
    /// The version of its API group that it was read in (`v1beta2`).
    pub version: Str,
    /// What it is to us.
    pub body: ForeignBody,
}

/// What an object of another system is to us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForeignBody {
    /// A queue: a share of the cluster with what waits for it.
    Queue(AdmitterQueue),
    /// A piece of work in a queue.
    Entry(QueueEntry),
    /// What a person submitted.
    Job(ForeignJob),
    /// GPUs that a driver has on a node.
    Devices(PublishedSlice),
}

impl Foreign {
    /// The queue, if it is one.
    pub fn queue(&self) -> Option<&AdmitterQueue> {
        match &self.body {
            ForeignBody::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    /// The piece of work in a queue, if it is one.
    pub fn entry(&self) -> Option<&QueueEntry> {
        match &self.body {
            ForeignBody::Entry(entry) => Some(entry),
            _ => None,
        }
    }

    /// The GPUs of a driver, if it tells of those.
    pub fn devices(&self) -> Option<&PublishedSlice> {
        match &self.body {
            ForeignBody::Devices(slice) => Some(slice),
            _ => None,
        }
    }

    /// The submitted job, if it is one.
    pub fn job(&self) -> Option<&ForeignJob> {
        match &self.body {
            ForeignBody::Job(job) => Some(job),
            _ => None,
        }
    }
}
