//! What the Job controller does next with one Job: a function of the Job, its pods and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::clock::{Clock, rfc3339, secs_since};
use super::objects::{Job, Pod};

/// Label and annotation with the completion index of an Indexed Job's pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Failures allowed when the Job says nothing.
const DEFAULT_BACKOFF_LIMIT: i64 = 6;
/// First wait after a failure; doubles with each one.
const BACKOFF_SECS: f64 = 10.0;
/// The longest such wait.
const MAX_BACKOFF_SECS: f64 = 360.0;
/// Pods created in one go; the rest follow at once.
const MAX_CREATES: usize = 256;

/// What a Job's pod has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Pending or running.
    Active,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

/// A pod of a Job.
#[derive(Debug, Clone)]
pub(super) struct JobPod {
    /// Name.
    pub name: String,
    /// Completion index, of an Indexed Job.
    pub index: Option<i64>,
    /// What it has come to.
    pub outcome: Outcome,
    /// Its Ready condition is True.
    pub ready: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// The controller itself deleted it, which is no failure.
    pub removed_by_us: bool,
    /// Types of its True conditions, once it has failed or is being deleted.
    pub marks: Vec<String>,
}

impl JobPod {
    /// The pod as its Job sees it.
    pub(super) fn new(pod: &Pod) -> Self {
        let index = pod.metadata.annotations.get(INDEX);
        let ends = pod.metadata.deletion_timestamp.is_some() || pod.status.phase == "Failed";
        let conditions = pod.status.conditions.iter();
        Self {
            name: pod.metadata.name.clone(),
            index: index.and_then(|text| text.parse().ok()),
            outcome: match pod.status.phase.as_str() {
                "Succeeded" => Outcome::Succeeded,
                "Failed" => Outcome::Failed,
                _ => Outcome::Active,
            },
            ready: pod.is_ready(),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            removed_by_us: false,
            marks: conditions
                .filter(|condition| ends && condition.status == "True")
                .map(|condition| condition.kind.clone())
                .collect(),
        }
    }

    fn is_active(&self) -> bool {
        self.outcome == Outcome::Active && !self.deleting
    }

    fn is_terminating(&self) -> bool {
        self.outcome == Outcome::Active && self.deleting
    }
}

/// The first rule of the podFailurePolicy that matches says Ignore. Rules on exit codes are not
/// looked at: their pods count as failed.
fn ignores(job: &Job, pod: &JobPod) -> bool {
    let rules = &job.spec.pod_failure_policy.rules;
    let matched = rules.iter().find(|rule| {
        let mut patterns = rule.on_pod_conditions.iter();
        patterns.any(|pattern| pattern.status != "False" && pod.marks.contains(&pattern.kind))
    });
    matched.is_some_and(|rule| rule.action == "Ignore")
}

/// What has been counted of a Job's ended pods, so that a pod that vanishes stays counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    started: bool,
    succeeded_before: i64,
    failed_before: i64,
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
    completed: BTreeSet<i64>,
    last_failure: Option<Timestamp>,
}

impl Tally {
    /// Counts what has ended; the first time, what the Job's status tells beyond the pods present.
    fn count(&mut self, job: &Job, pods: &BTreeMap<String, JobPod>, now: Timestamp) {
        let first = !std::mem::replace(&mut self.started, true);
        for (uid, pod) in pods {
            if pod.outcome == Outcome::Succeeded {
                self.succeeded.insert(uid.clone());
                self.completed.extend(pod.index);
            } else if (pod.outcome == Outcome::Failed || pod.deleting)
                && !pod.removed_by_us
                && !ignores(job, pod)
                && self.failed.insert(uid.clone())
            {
                self.last_failure = Some(now);
            }
        }
        if first {
            let told = |field: &str| job.status.get(field).and_then(Value::as_i64).unwrap_or(0);
            self.succeeded_before = (told("succeeded") - size(self.succeeded.len())).max(0);
            self.failed_before = (told("failed") - size(self.failed.len())).max(0);
            let indexes = job.status.get("completedIndexes").and_then(Value::as_str);
            self.completed
                .extend(parse_indexes(indexes.unwrap_or_default()));
        }
    }

    fn succeeded(&self, indexed: bool) -> i64 {
        if indexed {
            size(self.completed.len())
        } else {
            self.succeeded_before + size(self.succeeded.len())
        }
    }

    fn failed(&self) -> i64 {
        self.failed_before + size(self.failed.len())
    }
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Decision {
    /// Pods to create, with their completion index if the Job is Indexed.
    pub create: Vec<Option<i64>>,
    /// UIDs of pods to delete.
    pub delete: Vec<String>,
    /// Merge patch of the status; `None` when it is right.
    pub status: Option<Value>,
    /// The Job itself is to be deleted: its time after the end is over.
    pub expired: bool,
    /// The Job has just ended: whether well, and the reason and message of its Event.
    pub ended: Option<(bool, &'static str, &'static str)>,
    /// When to look again without a change.
    pub again: Option<Duration>,
}

/// Decides about one Job.
pub(super) fn decide(
    job: &Job,
    pods: &BTreeMap<String, JobPod>,
    tally: &mut Tally,
    now: Timestamp,
    clock: Clock,
) -> Decision {
    let mut decision = Decision::default();
    if job.metadata.deletion_timestamp.is_some() {
        return decision;
    }
    tally.count(job, pods, now);
    let mut status = Status::of(job, now);
    let active: Vec<(&String, &JobPod)> = pods.iter().filter(|(_, pod)| pod.is_active()).collect();
    let terminating = pods.values().filter(|pod| pod.is_terminating()).count();

    if let Some(ended) = status.finished_at() {
        decision.delete = active.iter().map(|(uid, _)| (*uid).clone()).collect();
        if let Some(ttl) = job.spec.ttl_seconds_after_finished {
            let since = secs_since(&ended, now).unwrap_or(0.0);
            let left = clock.real(ttl as f64).as_secs_f64() - since;
            decision.expired = left <= 0.0;
            decision.again = Duration::try_from_secs_f64(left.max(0.0)).ok();
        }
        return decision;
    }

    let indexed = job.spec.completion_mode.as_deref() == Some("Indexed");
    let succeeded = tally.succeeded(indexed);
    let failed = tally.failed();
    if !job.spec.suspend {
        status.start();
    }
    let verdict = verdict(
        job,
        &status,
        succeeded,
        failed,
        active.len() + terminating,
        now,
        clock,
    );
    match verdict {
        Some(Verdict {
            met,
            end,
            reason,
            message,
        }) => {
            decision.delete = active.iter().map(|(uid, _)| (*uid).clone()).collect();
            status.condition(met, "True", reason, message);
            // The end itself is only told once no pod is left: the server refuses it earlier.
            if active.is_empty() && terminating == 0 {
                status.condition(end, "True", reason, message);
                let well = end == "Complete";
                if well {
                    status.set("completionTime", json!(rfc3339(now)));
                }
                let said = (
                    well,
                    if well { "Completed" } else { reason },
                    if well { "Job completed" } else { message },
                );
                decision.ended = Some(said);
            }
        }
        None if job.spec.suspend => {
            decision.delete = active.iter().map(|(uid, _)| (*uid).clone()).collect();
            status.set("startTime", Value::Null);
            status.condition("Suspended", "True", "JobSuspended", "Job suspended");
        }
        None => {
            if status.has_condition("Suspended") {
                status.condition("Suspended", "False", "JobResumed", "Job resumed");
            }
            scale(job, pods, tally, &active, now, clock, &mut decision);
            if let Some(left) = deadline_left(job, &status, now, clock) {
                decision.again = Some(decision.again.map_or(left, |again| again.min(left)));
            }
        }
    }

    let deleted = decision.delete.len();
    let remaining = active.len() - deleted.min(active.len());
    let ready = active
        .iter()
        .filter(|(uid, pod)| pod.ready && !decision.delete.contains(*uid))
        .count();
    status.set("active", json!(remaining));
    status.set("ready", json!(ready));
    status.set("terminating", json!(terminating + deleted));
    status.set("succeeded", json!(succeeded));
    status.set("failed", json!(failed));
    status.set("uncountedTerminatedPods", json!({}));
    if indexed {
        status.set("completedIndexes", json!(format_indexes(&tally.completed)));
    }
    decision.status = status.patch();
    decision
}

struct Verdict {
    met: &'static str,
    end: &'static str,
    reason: &'static str,
    message: &'static str,
}

/// Whether the Job is over, and how.
fn verdict(
    job: &Job,
    status: &Status<'_>,
    succeeded: i64,
    failed: i64,
    living: usize,
    now: Timestamp,
    clock: Clock,
) -> Option<Verdict> {
    let failure = |reason, message| Verdict {
        met: "FailureTarget",
        end: "Failed",
        reason,
        message,
    };
    let limit = job.spec.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT);
    // A verdict once given stands.
    let given = status.reason("FailureTarget");
    if failed > limit || given.as_deref() == Some("BackoffLimitExceeded") {
        return Some(failure(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ));
    }
    let over = !job.spec.suspend
        && deadline_left(job, status, now, clock).is_some_and(|left| left.is_zero());
    if over || given.is_some() {
        return Some(failure(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        ));
    }
    let complete = match job.spec.completions {
        Some(completions) => succeeded >= completions,
        None => succeeded > 0 && living == 0,
    };
    complete.then_some(Verdict {
        met: "SuccessCriteriaMet",
        end: "Complete",
        reason: "CompletionsReached",
        message: "Reached expected number of succeeded pods",
    })
}

fn deadline_left(job: &Job, status: &Status<'_>, now: Timestamp, clock: Clock) -> Option<Duration> {
    let deadline = clock.real(job.spec.active_deadline_seconds? as f64);
    let started = status.text("startTime")?;
    let ran = Duration::try_from_secs_f64(secs_since(&started, now)?.max(0.0)).ok()?;
    Some(deadline.saturating_sub(ran))
}

/// Brings the number of active pods to what the Job wants.
fn scale(
    job: &Job,
    pods: &BTreeMap<String, JobPod>,
    tally: &Tally,
    active: &[(&String, &JobPod)],
    now: Timestamp,
    clock: Clock,
    decision: &mut Decision,
) {
    let indexed = job.spec.completion_mode.as_deref() == Some("Indexed");
    let parallelism = job.spec.parallelism.unwrap_or(1).max(0);
    let succeeded = tally.succeeded(indexed);
    let wanted = match job.spec.completions {
        Some(completions) => parallelism.min((completions - succeeded).max(0)),
        // Once one has succeeded the others are only waited for.
        None if succeeded > 0 => size(active.len()).min(parallelism),
        None => parallelism,
    };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if active.len() > wanted {
        let surplus = active.iter().rev().take(active.len() - wanted);
        decision.delete = surplus.map(|(uid, _)| (*uid).clone()).collect();
        return;
    }
    // With a podFailurePolicy a pod is replaced only when it has ended (podReplacementPolicy).
    let waits_for_end = !job.spec.pod_failure_policy.rules.is_empty();
    let holds_place = |pod: &JobPod| pod.is_active() || (waits_for_end && pod.is_terminating());
    let held = pods.values().filter(|pod| holds_place(pod)).count();
    let missing = wanted.saturating_sub(held).min(MAX_CREATES);
    if missing == 0 {
        return;
    }
    if let Some(failure) = tally.last_failure {
        let doublings = i32::try_from(tally.failed().clamp(1, 10) - 1).unwrap_or(0);
        let wait = (BACKOFF_SECS * 2f64.powi(doublings)).min(MAX_BACKOFF_SECS);
        let since = now.as_duration().as_secs_f64() - failure.as_duration().as_secs_f64();
        let left = clock.real(wait).as_secs_f64() - since;
        if left > 0.0 {
            decision.again = Duration::try_from_secs_f64(left).ok();
            return;
        }
    }
    decision.create = if indexed {
        let taken: BTreeSet<i64> = pods
            .values()
            .filter(|pod| holds_place(pod))
            .filter_map(|pod| pod.index)
            .chain(tally.completed.iter().copied())
            .collect();
        let completions = job.spec.completions.unwrap_or(0);
        (0..completions)
            .filter(|index| !taken.contains(index))
            .take(missing)
            .map(Some)
            .collect()
    } else {
        vec![None; missing]
    };
}

/// The Job's status being made, compared with what is written.
struct Status<'a> {
    written: &'a Value,
    wanted: Map<String, Value>,
    conditions: Vec<Value>,
    now: String,
}

impl<'a> Status<'a> {
    fn of(job: &'a Job, now: Timestamp) -> Self {
        let conditions = job.status.get("conditions").and_then(Value::as_array);
        Self {
            written: &job.status,
            wanted: Map::new(),
            conditions: conditions.cloned().unwrap_or_default(),
            now: rfc3339(now),
        }
    }

    fn text(&self, field: &str) -> Option<String> {
        let value = self.wanted.get(field).or_else(|| self.written.get(field))?;
        value.as_str().map(str::to_owned)
    }

    fn set(&mut self, field: &str, value: Value) {
        self.wanted.insert(field.to_owned(), value);
    }

    fn start(&mut self) {
        if self.text("startTime").is_none() {
            let now = self.now.clone();
            self.set("startTime", json!(now));
        }
    }

    fn has_condition(&self, kind: &str) -> bool {
        self.reason(kind).is_some()
    }

    /// The reason of the condition, if it is True.
    fn reason(&self, kind: &str) -> Option<String> {
        let text = |condition: &Value, field: &str| {
            let value = condition.get(field).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let mut conditions = self.conditions.iter();
        let found = conditions.find(|condition| {
            text(condition, "type") == kind && text(condition, "status") == "True"
        })?;
        Some(text(found, "reason"))
    }

    /// When the Job ended, if it did.
    fn finished_at(&self) -> Option<String> {
        let of = |condition: &&Value| {
            let kind = condition.get("type").and_then(Value::as_str);
            matches!(kind, Some("Complete" | "Failed"))
                && condition.get("status").and_then(Value::as_str) == Some("True")
        };
        let condition = self.conditions.iter().find(of)?;
        let at = condition.get("lastTransitionTime").and_then(Value::as_str);
        Some(at.unwrap_or_default().to_owned())
    }

    fn condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let is_kind =
            |condition: &Value| condition.get("type").and_then(Value::as_str) == Some(kind);
        let is_status =
            |condition: &Value| condition.get("status").and_then(Value::as_str) == Some(status);
        let present = self
            .conditions
            .iter()
            .any(|condition| is_kind(condition) && is_status(condition));
        if present {
            return;
        }
        self.conditions.retain(|condition| !is_kind(condition));
        self.conditions.push(json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastProbeTime": self.now,
            "lastTransitionTime": self.now,
        }));
    }

    /// The fields that differ from what is written, absent and empty being equal.
    fn patch(mut self) -> Option<Value> {
        let conditions = Value::Array(std::mem::take(&mut self.conditions));
        self.wanted.insert("conditions".to_owned(), conditions);
        let mut patch = Map::new();
        for (field, value) in self.wanted {
            let before = self.written.get(&field).unwrap_or(&Value::Null);
            if is_empty(&value) && is_empty(before) || value == *before {
                continue;
            }
            let value = if is_empty(&value) { Value::Null } else { value };
            patch.insert(field, value);
        }
        (!patch.is_empty()).then(|| json!({"status": patch}))
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) => false,
    }
}

fn size(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Completed indexes as Kubernetes writes them: `0-3,5`.
fn format_indexes(indexes: &BTreeSet<i64>) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let parts: Vec<String> = runs
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    parts.join(",")
}

fn parse_indexes(text: &str) -> BTreeSet<i64> {
    let mut indexes = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
            // An Indexed Job has at most 100,000 completions.
            indexes.extend(first..=last.min(first.saturating_add(100_000)));
        }
    }
    indexes
}

#[cfg(test)]
mod tests;
