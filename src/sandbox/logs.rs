//! pods/log: what a container of the embedded cluster wrote, made up from how long it has run.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::object::text;
use super::resources::Resource;
use super::serve::{Answer, Call};
use super::status::{ApiError, Cause};
use super::{Inner, clock};

/// A container writes a line this often.
const LINE_EVERY_SECS: i64 = 10;
/// The most lines that are kept of one container, as a kubelet rotates its files.
const KEPT_LINES: i64 = 10_000;

/// What a client wants of the log.
struct Wanted {
    follow: bool,
    timestamps: bool,
    tail: Option<i64>,
    limit_bytes: Option<i64>,
    since: Option<Timestamp>,
}

/// When a container wrote: from its start to its end, or until now.
struct Span {
    begun: Timestamp,
    ended: Option<Timestamp>,
    /// What a training said of its checkpoints, and when.
    said: Vec<(Timestamp, String)>,
}

/// Annotations of a training pod that its log tells, too.
const LAST_CHECKPOINT: &str = "gpudeck.dev/checkpoint-last";
const RESUMED_FROM: &str = "gpudeck.dev/resumed-from-step";

impl Inner {
    /// Answers with the log of a container.
    pub(super) fn pod_log(self: &Arc<Self>, call: &Call) -> Result<Answer, ApiError> {
        let stored = self
            .store
            .get(&call.res.table, &call.key())
            .ok_or_else(|| ApiError::not_found(&call.res, &call.path.name))?;
        let wanted = self.wanted(call)?;
        let pod = stored.value();
        let container = container_of(&pod, call.query.get("container"))?;
        if text(&pod, "/spec/nodeName").is_empty() {
            return Ok(Answer::NoContent);
        }
        if call.query.flag("previous") {
            return Err(ApiError::bad_request(format!(
                "previous terminated container \"{container}\" in pod \"{}\" not found",
                call.path.name
            )));
        }
        let Some(span) = span_of(&pod, &container) else {
            return Err(ApiError::bad_request(format!(
                "container \"{container}\" in pod \"{}\" is waiting to start: {}",
                call.path.name,
                waiting_for(&pod, &container)
            )));
        };
        let uid = text(&pod, "/metadata/uid").to_owned();
        if let Some((next, lines)) = self.written.since(&uid, 0) {
            let since =
                |(at, _): &&(Timestamp, String)| wanted.since.is_none_or(|since| *at >= since);
            let lines = lines.iter().filter(since);
            let text: String = lines.map(|line| told(line, wanted.timestamps)).collect();
            let first = cut(text, &wanted);
            if !wanted.follow || span.ended.is_some() {
                return Ok(Answer::Log(stream_of(first)));
            }
            return Ok(Answer::Log(self.followed_program(
                call,
                uid,
                container,
                wanted.timestamps,
                (first, next),
            )));
        }
        let now = self.options.clock.now();
        let first = written(&span, &wanted, now);
        let next = lines_until(&span, now);
        if !wanted.follow || span.ended.is_some() {
            return Ok(Answer::Log(stream_of(first)));
        }
        Ok(Answer::Log(
            self.followed(call, container, wanted, first, next),
        ))
    }

    fn wanted(&self, call: &Call) -> Result<Wanted, ApiError> {
        let mut causes = Vec::new();
        let mut count = |name: &str, least: i64| -> Result<Option<i64>, ApiError> {
            let value = call.query.int(name)?;
            if let Some(value) = value.filter(|value| *value < least) {
                let why = if least == 0 {
                    "must be greater than or equal to 0"
                } else {
                    "must be greater than 0"
                };
                causes.push(Cause::invalid(name, &value.into(), why));
            }
            Ok(value)
        };
        let (tail, limit_bytes) = (count("tailLines", 0)?, count("limitBytes", 1)?);
        let since_secs = count("sinceSeconds", 1)?;
        if !causes.is_empty() {
            let kind = Resource {
                kind: "PodLogOptions".into(),
                ..(*call.res).clone()
            };
            return Err(ApiError::invalid(&kind, &call.path.name, causes));
        }
        let ago = since_secs.map(|secs| self.options.clock.now() - SignedDuration::from_secs(secs));
        let at = call
            .query
            .get("sinceTime")
            .and_then(|time| time.parse().ok());
        Ok(Wanted {
            follow: call.query.flag("follow"),
            timestamps: call.query.flag("timestamps"),
            tail,
            limit_bytes,
            since: ago.or(at),
        })
    }

    /// The same of a program that an actor plays.
    fn followed_program(
        self: &Arc<Self>,
        call: &Call,
        uid: String,
        container: String,
        timestamps: bool,
        (first, next): (String, usize),
    ) -> super::serve::Body {
        let (inner, table, key) = (self.clone(), call.res.table.clone(), call.key());
        let follower = Arc::new((uid, container));
        let frames = stream::unfold((Some(first), next), move |(first, mut next)| {
            let (inner, table, key) = (inner.clone(), table.clone(), key.clone());
            let follower = follower.clone();
            async move {
                if let Some(first) = first {
                    return Some((frame(first), (None, next)));
                }
                let (uid, container) = &*follower;
                loop {
                    // Before the look at the lines: the last of them come before the end.
                    let pod = inner.store.get(&table, &key)?.value();
                    let ended = span_of(&pod, container)?.ended.is_some();
                    let (until, lines) = inner.written.since(uid, next)?;
                    if until > next {
                        next = until;
                        let lines = lines.iter().map(|line| told(line, timestamps)).collect();
                        return Some((frame(lines), (None, next)));
                    }
                    if ended {
                        return None;
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// The log so far and then each line as it comes, until the container ends.
    fn followed(
        self: &Arc<Self>,
        call: &Call,
        container: String,
        wanted: Wanted,
        first: String,
        next: i64,
    ) -> super::serve::Body {
        let (inner, table, key) = (self.clone(), call.res.table.clone(), call.key());
        let state = (Some(first), next);
        let frames = stream::unfold(state, move |(first, mut next)| {
            let (inner, table, key) = (inner.clone(), table.clone(), key.clone());
            let (container, timestamps) = (container.clone(), wanted.timestamps);
            async move {
                if let Some(first) = first {
                    return Some((frame(first), (None, next)));
                }
                loop {
                    let pod = inner.store.get(&table, &key)?.value();
                    let span = span_of(&pod, &container)?;
                    let until = lines_until(&span, inner.options.clock.now());
                    if until > next {
                        let lines: String =
                            (next..until).map(|n| line(&span, n, timestamps)).collect();
                        next = until;
                        return Some((frame(lines), (None, next)));
                    }
                    if span.ended.is_some() {
                        return None;
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

fn frame(text: String) -> Result<Frame<Bytes>, super::serve::Cut> {
    Ok(Frame::data(Bytes::from(text)))
}

fn stream_of(text: String) -> super::serve::Body {
    StreamBody::new(stream::iter([frame(text)])).boxed_unsync()
}

/// The container asked for, or the pod's only one.
pub(super) fn container_of(pod: &Value, asked: Option<&str>) -> Result<String, ApiError> {
    let name = text(pod, "/metadata/name");
    let names: Vec<&str> = ["/spec/containers", "/spec/initContainers"]
        .iter()
        .filter_map(|pointer| pod.pointer(pointer)?.as_array())
        .flatten()
        .map(|container| text(container, "/name"))
        .collect();
    let main = pod.pointer("/spec/containers").and_then(Value::as_array);
    match (asked, main.map(Vec::as_slice)) {
        (Some(asked), _) if names.contains(&asked) => Ok(asked.to_owned()),
        (Some(asked), _) => Err(ApiError::bad_request(format!(
            "container {} is not valid for pod {name}",
            super::status::clip(asked)
        ))),
        (None, Some([only])) => Ok(text(only, "/name").to_owned()),
        (None, many) => {
            let choices: Vec<&str> = many
                .unwrap_or_default()
                .iter()
                .map(|container| text(container, "/name"))
                .collect();
            Err(ApiError::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                choices.join(" ")
            )))
        }
    }
}

fn status_of<'p>(pod: &'p Value, container: &str) -> Option<&'p Value> {
    ["/status/containerStatuses", "/status/initContainerStatuses"]
        .iter()
        .filter_map(|pointer| pod.pointer(pointer)?.as_array())
        .flatten()
        .find(|status| text(status, "/name") == container)
}

fn span_of(pod: &Value, container: &str) -> Option<Span> {
    let status = status_of(pod, container)?;
    let time = |pointer: &str| text(status, pointer).parse::<Timestamp>().ok();
    let (begun, ended) = match time("/state/running/startedAt") {
        Some(begun) => (begun, None),
        None => {
            let begun = time("/state/terminated/startedAt")?;
            (begun, time("/state/terminated/finishedAt").or(Some(begun)))
        }
    };
    let said = said(pod, begun);
    Some(Span { begun, ended, said })
}

/// What the pod's training said, oldest first.
fn said(pod: &Value, begun: Timestamp) -> Vec<(Timestamp, String)> {
    let annotations = pod.pointer("/metadata/annotations");
    let note = |key: &str| {
        annotations
            .and_then(|all| all.get(key))
            .and_then(Value::as_str)
    };
    let mut said = Vec::new();
    if let Some(step) = note(RESUMED_FROM) {
        let step = super::status::clip(step);
        said.push((begun, format!("resumed from checkpoint step={step}")));
    }
    let last: Option<Value> =
        note(LAST_CHECKPOINT).and_then(|text| serde_json::from_str(text).ok());
    if let Some(last) = last {
        let step = last.get("step").and_then(Value::as_u64);
        let at = text(&last, "/durable_at").parse::<Timestamp>().ok();
        if let (Some(step), Some(at)) = (step, at.filter(|at| *at >= begun)) {
            let place = super::status::clip(text(&last, "/location"));
            said.push((
                at,
                format!("checkpoint durable step={step} location={place}"),
            ));
        }
    }
    said
}

fn waiting_for(pod: &Value, container: &str) -> String {
    let reason = status_of(pod, container).map_or("", |s| text(s, "/state/waiting/reason"));
    if reason.is_empty() {
        "ContainerCreating"
    } else {
        reason
    }
    .to_owned()
}

/// How many lines there are by `now`.
fn lines_until(span: &Span, now: Timestamp) -> i64 {
    let end = span.ended.unwrap_or(now).min(now.max(span.begun));
    (end.as_second() - span.begun.as_second()).max(0) / LINE_EVERY_SECS + 1
}

fn line(span: &Span, number: i64, timestamps: bool) -> String {
    let at = span.begun + SignedDuration::from_secs(number * LINE_EVERY_SECS);
    let stamp = if timestamps {
        format!("{} ", clock::time(at))
    } else {
        String::new()
    };
    // A loss that falls and flattens, for something to look at.
    let loss = 10.0 / (1.0 + 0.05 * number as f64) + 1.2;
    // Before each line what was said since the one before: a follower has seen none of it.
    let before = at - SignedDuration::from_secs(LINE_EVERY_SECS);
    let mut lines = String::new();
    for (when, what) in &span.said {
        if *when > before && *when <= at {
            let stamp = if timestamps {
                format!("{} ", clock::time(*when))
            } else {
                String::new()
            };
            lines.push_str(&format!("{stamp}{what}\n"));
        }
    }
    lines.push_str(&format!("{stamp}step={} loss={loss:.4}\n", number * 100));
    lines
}

fn told((at, line): &(Timestamp, String), timestamps: bool) -> String {
    if timestamps {
        format!("{} {line}\n", clock::time(*at))
    } else {
        format!("{line}\n")
    }
}

fn written(span: &Span, wanted: &Wanted, now: Timestamp) -> String {
    let count = lines_until(span, now);
    let mut from = (count - KEPT_LINES).max(0);
    if let Some(since) = wanted.since {
        let secs = since.as_second() - span.begun.as_second();
        from = from.max((secs + LINE_EVERY_SECS - 1).div_euclid(LINE_EVERY_SECS));
    }
    if let Some(tail) = wanted.tail {
        from = from.max(count - tail);
    }
    let log: String = (from..count)
        .map(|n| line(span, n, wanted.timestamps))
        .collect();
    cut(log, wanted)
}

/// As many of the last lines and of the bytes as are wanted.
fn cut(mut log: String, wanted: &Wanted) -> String {
    if let Some(tail) = wanted.tail.and_then(|tail| usize::try_from(tail).ok()) {
        let surplus = log.lines().count().saturating_sub(tail);
        log = log.split_inclusive('\n').skip(surplus).collect();
    }
    if let Some(limit) = wanted
        .limit_bytes
        .and_then(|limit| usize::try_from(limit).ok())
    {
        let mut end = limit.min(log.len());
        while !log.is_char_boundary(end) {
            end -= 1;
        }
        log.truncate(end);
    }
    log
}
