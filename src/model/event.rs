//! Kubernetes Events, in core/v1 and events.k8s.io/v1 form alike.

use jiff::Timestamp;

use super::meta::Meta;
use super::text::Str;

/// `type` of an Event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Severity {
    /// Normal, or a type that some agent invented.
    #[default]
    Normal,
    /// Warning.
    Warning,
}

/// An Event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// Identity.
    pub meta: Meta,
    /// Normal or Warning.
    pub severity: Severity,
    /// Machine-readable reason.
    pub reason: Str,
    /// What happened, in words.
    pub message: Str,
    /// Kind of the object it is about.
    pub subject_kind: Str,
    /// Namespace of that object.
    pub subject_namespace: Str,
    /// Name of that object.
    pub subject_name: Str,
    /// Who reports it (`source.component` or `reportingComponent`).
    pub reporter: Str,
    /// Latest occurrence: series, eventTime, lastTimestamp, or creation.
    pub last_seen: Option<Timestamp>,
    /// How often it was seen.
    pub count: u32,
}
