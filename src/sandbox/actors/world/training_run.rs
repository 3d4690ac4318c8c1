//! The life of one training: a state machine over time, without any call.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::training::annotation;
use crate::sandbox::actors::clock::Clock;

/// How a training behaves; seconds of the actors' time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spec {
    train_secs: f64,
    step_secs: f64,
    interval_secs: Option<f64>,
    save_secs: f64,
    failure_rate: f64,
    restore_secs: f64,
    crash_secs: Option<f64>,
    on_demand: bool,
}

impl Spec {
    /// From a pod's annotations; `None` for a pod that does not train.
    pub(super) fn read(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let number = |key: &str| {
            let value = annotations.get(key).and_then(|text| seconds(text));
            value.filter(|secs| secs.is_finite() && *secs >= 0.0)
        };
        let mode = annotations
            .get(annotation::MODE)
            .map_or("both", String::as_str);
        let periodic = matches!(mode, "periodic" | "both");
        Some(Self {
            train_secs: number(annotation::TRAIN_SECS)?,
            step_secs: number(annotation::STEP_SECS)
                .filter(|secs| *secs > 0.0)
                .unwrap_or(1.0),
            interval_secs: number(annotation::INTERVAL).filter(|secs| periodic && *secs > 0.0),
            save_secs: number(annotation::SAVE_SECS).unwrap_or(30.0),
            failure_rate: number(annotation::FAILURE_RATE).unwrap_or(0.0).min(1.0),
            restore_secs: number(annotation::RESTORE_SECS).unwrap_or(20.0),
            crash_secs: number(annotation::CRASH_SECS).filter(|secs| *secs > 0.0),
            on_demand: matches!(mode, "on-demand" | "both"),
        })
    }
}

/// Seconds of `900`, `900s`, `15m`, `1h30m` or `250ms`.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(plain) = text.parse::<f64>() {
        return Some(plain);
    }
    let mut rest = text.trim();
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(end)?;
        let scale = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    Some(total)
}

/// What a training is at.
#[derive(Debug, Clone, PartialEq)]
enum Phase {
    /// Not all of its pods run.
    Waiting,
    /// It loads a checkpoint until then.
    Restoring { until: Instant },
    /// It has worked since then.
    Working { since: Instant },
    /// It saves; the request it does so for.
    Saving {
        since: Instant,
        until: Instant,
        request: Option<String>,
    },
    /// It is done.
    Done,
}

/// What the world has to do for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    /// All pods end well.
    Finish,
    /// One pod ends badly.
    Crash,
}

/// A checkpoint that can be gone on from.
#[derive(Debug, Clone, PartialEq)]
struct Durable {
    id: u64,
    step: u64,
    started: Instant,
    durable: Instant,
    request: Option<String>,
}

/// What is to be written about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    state: &'static str,
    last: Option<Durable>,
    failures: u64,
    restarts: u64,
    lost_gpu_secs: f64,
    resumed: Option<u64>,
    name: String,
}

impl Report {
    /// Annotations to merge; `stamp` writes a moment.
    pub(super) fn annotations(&self, stamp: impl Fn(Instant) -> String) -> Value {
        let mut all = Map::new();
        let mut set = |key: &str, value: String| all.insert(key.to_owned(), json!(value));
        set(annotation::STATE, self.state.to_owned());
        set(annotation::FAILURES, self.failures.to_string());
        set(annotation::RESTARTS, self.restarts.to_string());
        set(annotation::LOST, format!("{:.0}", self.lost_gpu_secs));
        if let Some(step) = self.resumed {
            set(annotation::RESUMED, step.to_string());
        }
        if let Some(last) = &self.last {
            let mut value = json!({
                "id": last.id,
                "step": last.step,
                "started_at": stamp(last.started),
                "durable_at": stamp(last.durable),
                "location": format!("s3://checkpoints/{}/step-{}", self.name, last.step),
                "verified": true,
            });
            if let (Some(request), Some(map)) = (&last.request, value.as_object_mut()) {
                map.insert("request".to_owned(), json!(request));
            }
            set(annotation::LAST, value.to_string());
        }
        Value::Object(all)
    }
}

/// One training.
#[derive(Debug)]
pub(super) struct Run {
    /// Pods that must run together.
    pub size: usize,
    /// What is to be written, oldest first.
    pub reports: Vec<Report>,
    key: String,
    name: String,
    spec: Spec,
    phase: Phase,
    /// Work done and work that a durable checkpoint holds, in seconds.
    done_secs: f64,
    durable_secs: f64,
    /// Work at which the last periodic save began, or the life did.
    saved_at_secs: f64,
    last_id: u64,
    failures: u64,
    restarts: u64,
    lost_gpu_secs: f64,
    gpus: f64,
    /// A request that waits, and the last one seen.
    wanted: Option<String>,
    seen_request: Option<String>,
}

impl Run {
    /// A training that goes on from what was written about it before.
    pub(super) fn new(
        key: &str,
        name: String,
        spec: Spec,
        written: &BTreeMap<String, String>,
    ) -> Self {
        let mut run = Self {
            size: 1,
            reports: Vec::new(),
            key: key.to_owned(),
            name,
            spec,
            phase: Phase::Waiting,
            done_secs: 0.0,
            durable_secs: 0.0,
            saved_at_secs: 0.0,
            last_id: 0,
            failures: 0,
            restarts: 0,
            lost_gpu_secs: 0.0,
            gpus: 0.0,
            wanted: None,
            seen_request: None,
        };
        run.recall(written);
        run
    }

    /// Takes over what was written about it before.
    pub(super) fn recall(&mut self, written: &BTreeMap<String, String>) {
        let last = written.get(annotation::LAST);
        let last: Value = last
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let number = |field: &str| last.get(field).and_then(Value::as_u64).unwrap_or(0);
        let count = |key: &str| {
            written
                .get(key)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        self.durable_secs = number("step") as f64 * self.spec.step_secs;
        self.done_secs = self.durable_secs;
        self.saved_at_secs = self.durable_secs;
        self.last_id = number("id");
        self.failures = count(annotation::FAILURES);
        self.restarts = count(annotation::RESTARTS);
        self.lost_gpu_secs = count(annotation::LOST) as f64;
        let request = last.get("request").and_then(Value::as_str);
        self.seen_request = request.map(str::to_owned);
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Somebody wants a checkpoint: JSON with an id, each of which is served once.
    pub(super) fn request(&mut self, text: &str) {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let id = match value.get("id") {
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => return,
        };
        if self.spec.on_demand && self.seen_request.as_ref() != Some(&id) {
            self.seen_request = Some(id.clone());
            self.wanted = Some(id);
        }
    }

    fn step_of(&self, secs: f64) -> u64 {
        // Work is never negative and a step never 0.
        (secs / self.spec.step_secs + 1e-6) as u64
    }

    /// Work at which something happens next, and what.
    fn next_work(&self, clock: Clock) -> (f64, Next) {
        let mut next = (self.spec.train_secs, Next::Finish);
        if let Some(interval) = self.spec.interval_secs {
            // Jitter, so that gangs do not all save at once.
            let key = format!("interval/{}/{}", self.key, self.last_id + self.failures);
            let at = self.saved_at_secs + interval * clock.between(0.9, 1.1, &key);
            if at < next.0 {
                next = (at, Next::Save);
            }
        }
        if let Some(mean) = self.spec.crash_secs {
            let key = format!("crash/{}/{}", self.key, self.restarts);
            let at = self.durable_at_start() + clock.exponential(mean, &key);
            if at < next.0 {
                next = (at.max(self.done_secs), Next::Crash);
            }
        }
        next
    }

    /// Where this life began; crashes are counted from there.
    fn durable_at_start(&self) -> f64 {
        self.durable_secs.min(self.done_secs)
    }

    /// When to look again by itself.
    pub(super) fn due(&self, clock: Clock) -> Option<Instant> {
        match &self.phase {
            Phase::Waiting | Phase::Done => None,
            Phase::Restoring { until } | Phase::Saving { until, .. } => Some(*until),
            Phase::Working { since } => {
                let (at, _) = self.next_work(clock);
                Some(*since + clock.real((at - self.done_secs).max(0.0)))
            }
        }
    }

    /// Brings it to `now`. `together`: all of its pods run; `gpus`: how many they hold.
    pub(super) fn advance(&mut self, now: Instant, together: bool, gpus: f64, clock: Clock) -> Act {
        if self.is_done() {
            return if together { Act::Finish } else { Act::Nothing };
        }
        if !together {
            self.fall_back(now, clock);
            return Act::Nothing;
        }
        self.gpus = gpus;
        if self.phase == Phase::Waiting {
            let restore = if self.durable_secs > 0.0 {
                self.spec.restore_secs
            } else {
                0.0
            };
            self.phase = Phase::Restoring {
                until: now + clock.real(restore),
            };
        }
        loop {
            match self.phase.clone() {
                Phase::Restoring { until } if until <= now => {
                    self.phase = Phase::Working { since: now };
                    if self.durable_secs > 0.0 {
                        let step = self.step_of(self.durable_secs);
                        self.report("Idle", None, Some(step));
                    }
                }
                Phase::Saving {
                    since,
                    until,
                    request,
                } if until <= now => {
                    self.end_save(since, until, request, clock);
                    self.phase = Phase::Working { since: until };
                }
                Phase::Working { since } => {
                    let (at, next) = self.next_work(clock);
                    let ready = since + clock.real((at - self.done_secs).max(0.0));
                    if let Some(request) = self.wanted.take() {
                        self.work_until(since, now.min(ready), clock);
                        self.report("Acked", None, None);
                        self.begin_save(now, Some(request), clock);
                    } else if ready <= now {
                        self.done_secs = at.min(self.spec.train_secs);
                        match next {
                            Next::Finish => {
                                self.phase = Phase::Done;
                                self.report("Idle", None, None);
                                return Act::Finish;
                            }
                            Next::Save => self.begin_save(ready, None, clock),
                            Next::Crash => {
                                self.phase = Phase::Working { since: ready };
                                self.fall_back(ready, clock);
                                return Act::Crash;
                            }
                        }
                    } else {
                        return Act::Nothing;
                    }
                }
                _ => return Act::Nothing,
            }
        }
    }

    fn work_until(&mut self, since: Instant, until: Instant, clock: Clock) {
        let real = until.saturating_duration_since(since).as_secs_f64();
        let secs = real / clock.real(1.0).as_secs_f64().max(1e-9);
        self.done_secs = (self.done_secs + secs).min(self.spec.train_secs);
    }

    fn begin_save(&mut self, at: Instant, request: Option<String>, clock: Clock) {
        self.saved_at_secs = self.done_secs;
        self.report("Saving", None, None);
        let until = at + clock.real(self.spec.save_secs);
        self.phase = Phase::Saving {
            since: at,
            until,
            request,
        };
    }

    fn end_save(&mut self, since: Instant, until: Instant, request: Option<String>, clock: Clock) {
        let id = self.last_id + self.failures + 1;
        if clock.unit(&format!("save/{}/{id}", self.key)) < self.spec.failure_rate {
            self.failures += 1;
            self.report("Failed", None, None);
            return;
        }
        self.last_id += 1;
        self.durable_secs = self.done_secs;
        let last = Durable {
            id: self.last_id,
            step: self.step_of(self.durable_secs),
            started: since,
            durable: until,
            request,
        };
        self.report("Durable", Some(last), None);
    }

    /// A pod is missing: what is not durable is lost.
    fn fall_back(&mut self, now: Instant, clock: Clock) {
        match self.phase.clone() {
            Phase::Waiting | Phase::Done => return,
            Phase::Restoring { .. } => {}
            Phase::Working { since } => {
                self.work_until(since, now, clock);
                self.lose();
            }
            Phase::Saving { .. } => {
                self.failures += 1;
                self.lose();
            }
        }
        self.phase = Phase::Waiting;
        self.report("Idle", None, None);
    }

    fn lose(&mut self) {
        self.lost_gpu_secs += (self.done_secs - self.durable_secs).max(0.0) * self.gpus;
        self.done_secs = self.durable_secs;
        self.saved_at_secs = self.durable_secs;
        self.restarts += 1;
    }

    fn report(&mut self, state: &'static str, last: Option<Durable>, resumed: Option<u64>) {
        self.reports.push(Report {
            state,
            last,
            failures: self.failures,
            restarts: self.restarts,
            lost_gpu_secs: self.lost_gpu_secs,
            resumed,
            name: self.name.clone(),
        });
    }
}

/// What comes next while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Finish,
    Save,
    Crash,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::time::Duration;

    use super::*;

    fn run(extra: &[(&str, &str)]) -> Run {
        let mut all = BTreeMap::from([(annotation::TRAIN_SECS.to_owned(), "1000".to_owned())]);
        all.extend(
            extra
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        );
        let spec = Spec::read(&all).unwrap();
        Run::new("job", "ns/job".to_owned(), spec, &BTreeMap::new())
    }

    #[test]
    fn durations_are_read_in_both_forms() {
        for (text, wanted) in [
            ("900", Some(900.0)),
            ("15m", Some(900.0)),
            ("1h30m", Some(5_400.0)),
            ("250ms", Some(0.25)),
            ("soon", None),
            ("5", Some(5.0)),
            ("5x", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_not_saved_is_lost_and_what_is_saved_stays() {
        let clock = Clock::new(1.0, 1);
        let begin = Instant::now();
        let at = |secs: u64| begin + Duration::from_secs(secs);
        let mut run = run(&[(annotation::INTERVAL, "5m"), (annotation::SAVE_SECS, "10")]);
        assert_eq!(run.advance(begin, true, 8.0, clock), Act::Nothing);
        // Two saves come after 270 to 330 s of work each.
        run.advance(at(690), true, 8.0, clock);
        let states: Vec<&str> = run.reports.iter().map(|report| report.state).collect();
        assert_eq!(states, ["Saving", "Durable", "Saving", "Durable"]);
        let saved = run.durable_secs;
        assert!((540.0..=660.0).contains(&saved), "{saved}");

        run.advance(at(700), false, 8.0, clock);
        assert_eq!(run.restarts, 1);
        let worked = 700.0 - 20.0 - saved;
        assert!(
            (run.lost_gpu_secs - worked * 8.0).abs() < 0.1,
            "{}",
            run.lost_gpu_secs
        );
        assert_eq!(run.due(clock), None);

        // It loads for 20 s, and is done after what was left.
        run.advance(at(800), true, 8.0, clock);
        assert_eq!(run.due(clock), Some(at(820)));
        run.advance(at(820), true, 8.0, clock);
        assert_eq!(run.reports.last().unwrap().resumed, Some(saved as u64));
        assert_eq!(run.advance(at(2_000), true, 8.0, clock), Act::Finish);
        assert!(run.is_done());
    }

    #[test]
    fn a_request_is_served_once() {
        let clock = Clock::new(1.0, 1);
        let begin = Instant::now();
        let mut run = run(&[(annotation::SAVE_SECS, "10")]);
        run.advance(begin, true, 1.0, clock);
        for _ in 0..2 {
            run.request(r#"{"id": "r1", "reason": "drain"}"#);
            run.advance(begin + Duration::from_secs(100), true, 1.0, clock);
        }
        run.advance(begin + Duration::from_secs(110), true, 1.0, clock);
        let states: Vec<&str> = run.reports.iter().map(|report| report.state).collect();
        assert_eq!(states, ["Acked", "Saving", "Durable"]);
        let written = run
            .reports
            .last()
            .unwrap()
            .annotations(|_| "then".to_owned());
        let last: Value =
            serde_json::from_str(written[annotation::LAST].as_str().unwrap()).unwrap();
        assert_eq!(
            (&last["request"], &last["step"]),
            (&json!("r1"), &json!(100))
        );
    }
}
