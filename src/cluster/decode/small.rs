//! Jobs, namespaces, priority classes, volumes, Events.

use jiff::Timestamp;

use super::constraints::SelectorRead;
use super::meta::MetaRead;
use super::read::{Ctx, Message, Word, object};
use crate::model::{Event, Job, Namespace, PriorityClass, Severity, VolumeClaim, VolumeTopology};

object! { ConditionRead {
    kind: Word = "type",
    status: Word = "status",
    reason: Word = "reason",
    message: Message = "message",
}}
object! { JobSpecRead {
    parallelism: Option<u32> = "parallelism",
    completions: Option<u32> = "completions",
    suspend: bool = "suspend",
}}
object! { JobStatusRead {
    active: u32 = "active",
    succeeded: u32 = "succeeded",
    failed: u32 = "failed",
    started: Option<Timestamp> = "startTime",
    finished: Option<Timestamp> = "completionTime",
    conditions: Vec<ConditionRead> = "conditions",
}}
object! { JobRead {
    meta: MetaRead = "metadata",
    spec: JobSpecRead = "spec",
    status: JobStatusRead = "status",
}}

impl JobRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<Job, String> {
        let holds = |kind: &str| {
            self.status
                .conditions
                .iter()
                .rfind(|c| &*c.kind.0 == kind)
                .filter(|c| &*c.status.0 == "True")
        };
        let failure = holds("Failed").map(|c| {
            if c.message.0.is_empty() {
                c.reason.0.clone()
            } else {
                c.message.0.clone()
            }
        });
        Ok(Job {
            complete: holds("Complete").is_some(),
            failure,
            meta: self.meta.finish(ctx)?,
            parallelism: self.spec.parallelism.unwrap_or(1),
            completions: self.spec.completions,
            suspended: self.spec.suspend,
            active: self.status.active,
            succeeded: self.status.succeeded,
            failed: self.status.failed,
            started: self.status.started,
            finished: self.status.finished,
        })
    }
}

object! { PhaseRead { phase: Word = "phase" }}
object! { NamespaceRead {
    meta: MetaRead = "metadata",
    status: PhaseRead = "status",
}}

impl NamespaceRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<Namespace, String> {
        Ok(Namespace {
            meta: self.meta.finish(ctx)?,
            terminating: &*self.status.phase.0 == "Terminating",
        })
    }
}

object! { PriorityClassRead {
    meta: MetaRead = "metadata",
    value: i32 = "value",
    global_default: bool = "globalDefault",
    preemption: Word = "preemptionPolicy",
}}

impl PriorityClassRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<PriorityClass, String> {
        Ok(PriorityClass {
            meta: self.meta.finish(ctx)?,
            value: self.value,
            global_default: self.global_default,
            never_preempts: &*self.preemption.0 == "Never",
        })
    }
}

object! { ClaimSpecRead {
    volume: Word = "volumeName",
    storage_class: Word = "storageClassName",
}}
object! { ClaimRead {
    meta: MetaRead = "metadata",
    spec: ClaimSpecRead = "spec",
}}

impl ClaimRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<VolumeClaim, String> {
        Ok(VolumeClaim {
            meta: self.meta.finish(ctx)?,
            volume: self.spec.volume.filled(),
            storage_class: self.spec.storage_class.filled(),
        })
    }
}

object! { VolumeAffinityRead { required: Option<SelectorRead> = "required" }}
object! { VolumeSpecRead { affinity: VolumeAffinityRead = "nodeAffinity" }}
object! { VolumeRead {
    meta: MetaRead = "metadata",
    spec: VolumeSpecRead = "spec",
}}

impl VolumeRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<VolumeTopology, String> {
        let affinity = self.spec.affinity.required.map(|s| s.finish(ctx));
        Ok(VolumeTopology {
            meta: self.meta.finish(ctx)?,
            affinity,
        })
    }
}

object! { SubjectRead {
    kind: Word = "kind",
    namespace: Word = "namespace",
    name: Word = "name",
}}
object! { SourceRead { component: Word = "component" }}
object! { SeriesRead {
    count: u32 = "count",
    last: Option<Timestamp> = "lastObservedTime",
}}
object! { EventRead {
    meta: MetaRead = "metadata",
    kind: Word = "type",
    reason: Word = "reason",
    message: Message = "message",
    note: Message = "note",
    involved: Option<SubjectRead> = "involvedObject",
    regarding: Option<SubjectRead> = "regarding",
    source: SourceRead = "source",
    deprecated_source: SourceRead = "deprecatedSource",
    component: Word = "reportingComponent",
    controller: Word = "reportingController",
    series: Option<SeriesRead> = "series",
    event_time: Option<Timestamp> = "eventTime",
    last: Option<Timestamp> = "lastTimestamp",
    deprecated_last: Option<Timestamp> = "deprecatedLastTimestamp",
    first: Option<Timestamp> = "firstTimestamp",
    count: Option<u32> = "count",
    deprecated_count: Option<u32> = "deprecatedCount",
}}

impl EventRead {
    /// Both forms have the same content under different names.
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<Event, String> {
        let subject = self.involved.or(self.regarding).unwrap_or_default();
        let message = if self.message.0.is_empty() {
            self.note.0
        } else {
            self.message.0
        };
        let reporter = [
            self.component,
            self.controller,
            self.source.component,
            self.deprecated_source.component,
        ]
        .into_iter()
        .find_map(Word::filled)
        .unwrap_or_default();
        let meta = self.meta.finish(ctx)?;
        let (series_last, series_count) = self
            .series
            .map_or((None, None), |s| (s.last, Some(s.count)));
        // The latest of all that is stated: emitters fill different ones.
        let last_seen = [
            series_last,
            self.event_time,
            self.last,
            self.deprecated_last,
        ]
        .into_iter()
        .flatten()
        .max()
        .or(self.first)
        .or(meta.created);
        Ok(Event {
            meta,
            severity: if &*self.kind.0 == "Warning" {
                Severity::Warning
            } else {
                Severity::Normal
            },
            reason: self.reason.0,
            message,
            subject_kind: subject.kind.0,
            subject_namespace: subject.namespace.0,
            subject_name: subject.name.0,
            reporter,
            last_seen,
            count: [series_count, self.count, self.deprecated_count]
                .into_iter()
                .flatten()
                .max()
                .unwrap_or(1)
                .max(1),
        })
    }
}
