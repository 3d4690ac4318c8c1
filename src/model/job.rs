//! Small kinds: batch/v1 Jobs, namespaces, priority classes, volumes.

use jiff::Timestamp;

use super::meta::Meta;
use super::pod::Selector;
use super::text::Str;

/// A batch/v1 Job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// Identity.
    pub meta: Meta,
    /// `spec.parallelism`, 1 when absent.
    pub parallelism: u32,
    /// `spec.completions`.
    pub completions: Option<u32>,
    /// `spec.suspend`.
    pub suspended: bool,
    /// Active pods by status.
    pub active: u32,
    /// Succeeded pods by status.
    pub succeeded: u32,
    /// Failed pods by status.
    pub failed: u32,
    /// Start by status.
    pub started: Option<Timestamp>,
    /// End by status.
    pub finished: Option<Timestamp>,
    /// Condition Complete is True.
    pub complete: bool,
    /// Condition Failed is True, with its message.
    pub failure: Option<Str>,
}

/// A namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Namespace {
    /// Identity.
    pub meta: Meta,
    /// Phase Terminating.
    pub terminating: bool,
}

/// A PriorityClass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PriorityClass {
    /// Identity.
    pub meta: Meta,
    /// Its value.
    pub value: i32,
    /// Used by pods that name none.
    pub global_default: bool,
    /// `preemptionPolicy: Never`.
    pub never_preempts: bool,
}

/// A PersistentVolumeClaim, for the volume-zone filter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeClaim {
    /// Identity.
    pub meta: Meta,
    /// The bound PersistentVolume.
    pub volume: Option<Str>,
    /// Its storage class.
    pub storage_class: Option<Str>,
}

/// A PersistentVolume, for the volume-zone filter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeTopology {
    /// Identity; its zone labels bind the pods that mount it.
    pub meta: Meta,
    /// `spec.nodeAffinity.required`.
    pub affinity: Option<Selector>,
}
