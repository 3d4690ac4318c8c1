//! Writes decisions as Kubernetes Events (events.k8s.io/v1), so that `kubectl describe pod` tells
//! what the console tells.
//!
//! Ten thousand waiting pods must not become ten thousand writes a round: writes are paced, only
//! the newest decision of a pod waits for its turn, placed pods go first, and what is said again
//! becomes a series of the first Event instead of a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::http::{Api, ApiError};
use super::source::ClientSource;
use super::write::WriteMode;
use crate::model::{Decision, DecisionKind, Reason, Str, Uid, clean};

/// Time between two writes, once the burst is used up.
const PACE: Duration = Duration::from_millis(100);
/// Writes that may be made at once after a quiet time.
const BURST: u32 = 50;
/// Decisions that wait for their turn; beyond it the newest waiting ones are not told.
const MAX_WAITING: usize = 20_000;
/// A pod that waits for the same reason says so again only after this long; Kubernetes ends a
/// series after six minutes.
const REPEAT: Duration = Duration::from_secs(300);
/// An Event that was not repeated for this long is not continued.
const FORGET: Duration = Duration::from_secs(900);
/// Longest note that the API takes, in bytes.
const MAX_NOTE: usize = 1_000;
const LIMIT: Duration = Duration::from_secs(5);

/// Takes decisions from the scheduler without ever slowing it.
#[derive(Clone)]
pub struct EventRecorder {
    tx: mpsc::Sender<Arc<Decision>>,
}

impl EventRecorder {
    /// Queues a decision; `false` when it was dropped because too many are queued.
    pub fn record(&self, decision: &Arc<Decision>) -> bool {
        self.tx.try_send(decision.clone()).is_ok()
    }
}

/// Starts the writing task; `instance` is the process-unique identity.
pub fn start(
    _mode: &WriteMode,
    source: ClientSource,
    instance: Str,
    stop: CancellationToken,
) -> (EventRecorder, JoinHandle<()>) {
    let (tx, rx) = mpsc::channel(MAX_WAITING);
    let scribe = Scribe {
        source,
        instance,
        queue: Queue::default(),
        told: AHashMap::new(),
        tokens: BURST,
        refilled: Instant::now(),
    };
    (EventRecorder { tx }, tokio::spawn(scribe.run(rx, stop)))
}

/// Which decisions are told before others: what is done to running work is what people ask after.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Displaces,
    Placed,
    Waits,
}

fn rank(decision: &Decision) -> Rank {
    match decision.kind {
        DecisionKind::Leaves { .. } | DecisionKind::Waiting(Reason::PlaceHeld { .. }) => {
            Rank::Displaces
        }
        DecisionKind::Placed { .. } => Rank::Placed,
        DecisionKind::Waiting(_) => Rank::Waits,
    }
}

/// What waits to be written: who leaves and for whom a place is held, then placed pods, then waiting
/// ones, each in the order of their coming.
#[derive(Default)]
struct Queue {
    next: u64,
    by_turn: BTreeSet<(Rank, u64, Uid)>,
    /// By pod, and whether it is told before all others: that is not replaced by what came of it.
    by_pod: BTreeMap<(Uid, bool), (Rank, u64, Arc<Decision>)>,
}

impl Queue {
    /// A newer decision of a pod takes the place of an older one that was not written yet.
    fn push(&mut self, decision: Arc<Decision>) {
        let uid = decision.pod.clone();
        let rank = rank(&decision);
        let mut turn = self.next;
        let key = (uid.clone(), rank == Rank::Displaces);
        if let Some((before, at, _)) = self.by_pod.remove(&key) {
            self.by_turn.remove(&(before, at, uid.clone()));
            turn = at;
        } else {
            self.next += 1;
        }
        if self.by_pod.len() >= MAX_WAITING {
            return;
        }
        self.by_turn.insert((rank, turn, uid.clone()));
        self.by_pod.insert(key, (rank, turn, decision));
    }

    fn pop(&mut self) -> Option<Arc<Decision>> {
        let (rank, _, uid) = self.by_turn.pop_first()?;
        let key = (uid, rank == Rank::Displaces);
        self.by_pod.remove(&key).map(|(_, _, d)| d)
    }
}

/// The last Event of a pod.
struct Told {
    reason: &'static str,
    note: String,
    name: String,
    count: u32,
    at: Instant,
}

struct Scribe {
    source: ClientSource,
    instance: Str,
    queue: Queue,
    told: AHashMap<Uid, Told>,
    tokens: u32,
    refilled: Instant,
}

/// Reason, type and note of a decision.
fn words(decision: &Decision) -> (&'static str, &'static str, String) {
    let (reason, kind, note) = match &decision.kind {
        DecisionKind::Placed { node, why } => (
            "Scheduled",
            "Normal",
            format!(
                "assigned {}/{} to {node}: {why}",
                decision.namespace, decision.name
            ),
        ),
        DecisionKind::Waiting(reason) => ("FailedScheduling", "Warning", reason.to_string()),
        DecisionKind::Leaves {
            node,
            preemptor: (namespace, name),
            why,
        } => (
            "Preempted",
            "Normal",
            format!("evicted from {node} for {namespace}/{name}: {why}"),
        ),
    };
    let mut note = clean(&note, MAX_NOTE).into_owned();
    while note.len() > MAX_NOTE {
        note.pop();
    }
    (reason, kind, note)
}

impl Scribe {
    async fn run(mut self, mut rx: mpsc::Receiver<Arc<Decision>>, stop: CancellationToken) {
        loop {
            self.refill();
            let ready = !self.queue.by_turn.is_empty() && self.tokens > 0;
            let wake = self.refilled + PACE;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                decision = rx.recv() => match decision {
                    Some(decision) => self.queue.push(decision),
                    None if self.queue.by_turn.is_empty() => return,
                    None => sleep_until(wake).await,
                },
                () = std::future::ready(()), if ready => {}
                () = sleep_until(wake), if !ready && !self.queue.by_turn.is_empty() => continue,
            }
            // Whatever is ready is taken in before anything is written: newer words replace
            // older ones, and placed pods go first.
            while let Ok(decision) = rx.try_recv() {
                self.queue.push(decision);
            }
            if self.tokens > 0
                && let Some(decision) = self.queue.pop()
            {
                self.tell(&decision).await;
            }
        }
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let due = (now - self.refilled).as_millis() / PACE.as_millis();
        if due > 0 {
            let more = u32::try_from(due).unwrap_or(BURST);
            self.tokens = self.tokens.saturating_add(more).min(BURST);
            self.refilled = now;
        }
    }

    async fn tell(&mut self, decision: &Decision) {
        let (reason, kind, note) = words(decision);
        let now = Instant::now();
        self.told.retain(|_, t| now - t.at < FORGET);
        let (api, generation) = self.source.current();
        let events = format!(
            "/apis/events.k8s.io/v1/namespaces/{}/events",
            super::watch::query_value(&decision.namespace)
        );
        if let Some(told) = self.told.get_mut(&decision.pod)
            && told.reason == reason
            && told.note == note
        {
            if now - told.at < REPEAT {
                return;
            }
            told.at = now;
            told.count += 1;
            let series = json!({"series": {"count": told.count.max(2),
                "lastObservedTime": format!("{:.6}", self.source.now())}});
            self.tokens -= 1;
            let path = format!("{events}/{}", super::watch::query_value(&told.name));
            match api.send(Method::PATCH, &path, &series, LIMIT).await {
                Ok(_) => return,
                // It has expired on the server: told anew below.
                Err(e) if e.code() == Some(404) => {}
                Err(e) => return self.failed(&e, generation).await,
            }
        }
        let mut stem: String = decision.name.chars().take(200).collect();
        stem.truncate(stem.trim_end_matches(['-', '.']).len());
        let name = format!("{stem}.{:016x}", fastrand::u64(..));
        let event = self.event(decision, &name, (reason, kind, &note));
        self.tokens = self.tokens.saturating_sub(1);
        match self.create(&api, &events, &event).await {
            Ok(()) => {
                self.told.insert(
                    decision.pod.clone(),
                    Told {
                        reason,
                        note,
                        name,
                        count: 1,
                        at: now,
                    },
                );
            }
            Err(e) => self.failed(&e, generation).await,
        }
    }

    fn event(
        &self,
        decision: &Decision,
        name: &str,
        (reason, kind, note): (&str, &str, &str),
    ) -> Value {
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": &*decision.namespace},
            // When it was decided: the writing may have had to wait.
            "eventTime": format!("{:.6}", decision.at),
            "reportingController": "gpudeck",
            "reportingInstance": clean(&self.instance, 120),
            "action": match reason {
                "Scheduled" => "Binding",
                "Preempted" => "Preempting",
                _ => "Scheduling",
            },
            "reason": reason,
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": &*decision.namespace,
                "name": &*decision.name, "uid": &*decision.pod.0},
            "note": note,
            "type": kind,
        })
    }

    async fn create(&self, api: &Api, path: &str, event: &Value) -> Result<(), ApiError> {
        api.send(Method::POST, path, event, LIMIT).await.map(|_| ())
    }

    /// An Event is a courtesy: one that cannot be written is dropped.
    async fn failed(&self, error: &ApiError, generation: u64) {
        if matches!(error, ApiError::Unauthorized { .. }) {
            let _ = self.source.rebuild(generation).await;
        }
        tracing::debug!(%error, "an Event was not written");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

    use std::sync::Mutex;

    use super::super::fake;
    use jiff::Timestamp;

    use super::*;
    use crate::model::Reason;

    type Log = Arc<Mutex<Vec<(Method, String, Value)>>>;

    fn recorder() -> (EventRecorder, Log, CancellationToken) {
        let log: Log = Arc::default();
        let seen = log.clone();
        let client = fake::client(move |request| {
            let seen = seen.clone();
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let body = request.into_body().collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap();
                seen.lock().unwrap().push((method, path, body));
                Ok(fake::reply(201, "{}"))
            }
        });
        let stop = CancellationToken::new();
        let mode = WriteMode::unless_read_only(false).unwrap();
        let source = ClientSource::fixed(client, "https://fake");
        let (recorder, _) = start(&mode, source, "host_1".into(), stop.clone());
        (recorder, log, stop)
    }

    fn decision(pod: usize, kind: DecisionKind) -> Arc<Decision> {
        Arc::new(Decision {
            pod: Uid(format!("uid-{pod}").into()),
            namespace: "ns".into(),
            name: format!("p-{pod}").into(),
            kind,
            at: Timestamp::UNIX_EPOCH,
        })
    }

    fn waits(have: u32) -> DecisionKind {
        DecisionKind::Waiting(Reason::GangIncomplete { have, need: 4 })
    }

    fn placed() -> DecisionKind {
        DecisionKind::Placed {
            node: "n1".into(),
            why: "the only one".into(),
        }
    }

    async fn secs(n: u64) {
        tokio::time::sleep(Duration::from_secs(n)).await;
    }

    #[test]
    fn a_held_place_is_told_first_though_its_pod_is_placed_meanwhile() {
        let mut queue = Queue::default();
        let held = || {
            DecisionKind::Waiting(Reason::PlaceHeld {
                nodes: ["n1".into()].into(),
            })
        };
        let leaves = DecisionKind::Leaves {
            node: "n1".into(),
            preemptor: ("ns".into(), "p-1".into()),
            why: "it may".into(),
        };
        let all = [
            decision(0, waits(1)),
            decision(3, placed()),
            decision(1, held()),
            decision(2, leaves),
            decision(1, placed()),
            decision(0, placed()),
        ];
        for decision in all {
            queue.push(decision);
        }
        let mut told = Vec::new();
        while let Some(decision) = queue.pop() {
            told.push((decision.name.to_string(), words(&decision).0));
        }
        let told: Vec<(&str, &str)> = told.iter().map(|(name, r)| (&**name, *r)).collect();
        assert_eq!(
            told,
            [
                ("p-1", "FailedScheduling"),
                ("p-2", "Preempted"),
                ("p-0", "Scheduled"),
                ("p-3", "Scheduled"),
                ("p-1", "Scheduled"),
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_says_what_was_decided() {
        let (recorder, log, _stop) = recorder();
        recorder.record(&decision(1, placed()));
        recorder.record(&decision(2, waits(3)));
        secs(1).await;
        let log = log.lock().unwrap();
        assert_eq!(log.len(), 2);
        let (method, path, event) = &log[0];
        assert_eq!(
            (method, &**path),
            (&Method::POST, "/apis/events.k8s.io/v1/namespaces/ns/events")
        );
        assert_eq!(event["reason"], "Scheduled");
        assert_eq!(event["note"], "assigned ns/p-1 to n1: the only one");
        assert_eq!(event["regarding"]["uid"], "uid-1");
        assert_eq!(log[1].2["reason"], "FailedScheduling");
        assert_eq!(log[1].2["note"], "gang has 3 of 4 pods");
        assert_eq!(log[1].2["type"], "Warning");
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_waiting_pods_make_no_storm() {
        let (recorder, log, _stop) = recorder();
        for round in 0..10 {
            for pod in 0..10_000 {
                assert!(recorder.record(&decision(pod, waits(round))));
            }
            secs(6).await;
        }
        recorder.record(&decision(20_000, placed()));
        secs(1).await;
        let log = log.lock().unwrap();
        assert!(
            log.len() <= 50 + 61 * 10 + 1,
            "{} writes in a minute",
            log.len()
        );
        assert!(log.len() > 300, "{} writes in a minute", log.len());
        assert!(
            log.iter().any(|(_, _, e)| e["reason"] == "Scheduled"),
            "a placed pod does not wait behind them"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_words_again_become_a_series() {
        let (recorder, log, _stop) = recorder();
        for _ in 0..12 {
            recorder.record(&decision(1, waits(3)));
            secs(60).await;
        }
        {
            let log = log.lock().unwrap();
            let methods: Vec<&Method> = log.iter().map(|(m, _, _)| m).collect();
            assert_eq!(methods, [Method::POST, Method::PATCH, Method::PATCH]);
            assert!(
                log[1]
                    .1
                    .starts_with("/apis/events.k8s.io/v1/namespaces/ns/events/p-1.")
            );
            assert_eq!(log[2].2["series"]["count"], 3);
        }
        recorder.record(&decision(1, waits(2)));
        secs(1).await;
        assert_eq!(log.lock().unwrap().last().unwrap().0, Method::POST);
    }
}
