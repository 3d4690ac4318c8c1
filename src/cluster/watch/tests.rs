//! The loop against a scripted server, in paused time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::super::fake::{Fake, Mode, status};
use super::super::source::ClientSource;
use super::*;
use crate::model::{Change, SourceReport, SourceState};

struct Rig {
    fake: Fake,
    rx: mpsc::Receiver<Vec<Delta>>,
    pending: std::collections::VecDeque<Delta>,
    _watcher: Watcher,
}

fn rig_of(fake: &Fake, source: &ClientSource, kinds: &[Kind], scope: &Scope) -> Rig {
    let (tx, rx) = mpsc::channel(4);
    let watcher = Watcher::start(source, scope, kinds, &tx, &CancellationToken::new());
    Rig {
        fake: fake.clone(),
        rx,
        pending: std::collections::VecDeque::new(),
        _watcher: watcher,
    }
}

fn rig() -> Rig {
    let fake = Fake::new();
    let source = ClientSource::fixed(fake.client(), "https://fake");
    rig_of(&fake, &source, &[Kind::Pod], &Scope::default())
}

impl Rig {
    async fn next(&mut self) -> Delta {
        loop {
            if let Some(delta) = self.pending.pop_front() {
                return delta;
            }
            let batch = timeout(Duration::from_secs(300), self.rx.recv())
                .await
                .expect("a delta within five minutes")
                .expect("the watcher lives");
            self.pending.extend(batch);
        }
    }

    /// Reads on until a report passes `wanted`; pods seen on the way as `+name` and `-name`.
    async fn until(
        &mut self,
        wanted: impl Fn(&SourceState) -> bool,
    ) -> (SourceReport, Vec<String>) {
        let mut pods = Vec::new();
        loop {
            match self.next().await {
                Delta::Source(report) if wanted(&report.state) => return (report, pods),
                Delta::Pod(Change::Set(pod)) => pods.push(format!("+{}", pod.meta.name)),
                Delta::Pod(Change::Gone(gone)) => pods.push(format!("-{}", gone.name)),
                _ => {}
            }
        }
    }

    async fn live(&mut self) -> Vec<String> {
        self.until(|s| *s == SourceState::Live).await.1
    }

    async fn pod(&mut self) -> String {
        loop {
            match self.next().await {
                Delta::Pod(Change::Set(pod)) => return format!("+{}", pod.meta.name),
                Delta::Pod(Change::Gone(gone)) => return format!("-{}", gone.name),
                _ => {}
            }
        }
    }

    fn lists(&self) -> usize {
        self.fake
            .log()
            .iter()
            .filter(|u| !u.contains("watch=true"))
            .count()
    }
}

fn is_stale(state: &SourceState) -> bool {
    matches!(state, SourceState::Stale { .. })
}

#[tokio::test(start_paused = true)]
async fn pages_then_changes() {
    let fake = Fake::new();
    for i in 0..1_203 {
        fake.put(&format!("p-{i:04}"));
    }
    let source = ClientSource::fixed(fake.client(), "https://fake");
    let mut rig = rig_of(&fake, &source, &[Kind::Pod], &Scope::default());
    let pods = rig.live().await;
    assert_eq!(pods.len(), 1_203);
    assert_eq!(rig.lists(), 3);
    fake.put("late");
    assert_eq!(rig.pod().await, "+late");
    fake.delete("p-0007");
    assert_eq!(rig.pod().await, "-p-0007");
    // Ten minutes of nothing: watches come and go, no list is needed, nothing is told.
    tokio::time::sleep(Duration::from_secs(600)).await;
    fake.put("after");
    assert_eq!(rig.pod().await, "+after");
    assert_eq!(rig.lists(), 3);
}

#[tokio::test(start_paused = true)]
async fn both_forms_of_410_lead_to_a_list_told_as_a_difference() {
    let gone = status(410, "Expired", "too old resource version: 1 (9)");
    for in_stream in [false, true] {
        let mut rig = rig();
        for name in ["a", "b", "c"] {
            rig.fake.put(name);
        }
        rig.live().await;
        if in_stream {
            rig.fake
                .tell(&format!("{{\"type\":\"ERROR\",\"object\":{gone}}}"));
            // While nobody watches:
            rig.fake.drop_watches();
            rig.fake.delete("b");
            rig.fake.put("d");
        } else {
            rig.fake.modes(Mode::Normal, Mode::Says(410, gone.clone()));
            rig.fake.drop_watches();
            rig.fake.delete("b");
            rig.fake.put("d");
            tokio::time::sleep(Duration::from_secs(2)).await;
            rig.fake.modes(Mode::Normal, Mode::Normal);
        }
        let first = rig.pod().await;
        let second = rig.pod().await;
        assert_eq!((&*first, &*second), ("-b", "+d"), "in stream: {in_stream}");
        rig.fake.put("e");
        assert_eq!(rig.pod().await, "+e", "a and c are not told again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_noticed_within_30_s() {
    let mut rig = rig();
    rig.fake.put("a");
    rig.fake.modes(Mode::Normal, Mode::Silent);
    rig.live().await;
    let begun = Instant::now();
    rig.fake.put("b");
    let (report, _) = rig.until(is_stale).await;
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    let SourceState::Stale { why, .. } = report.state else {
        panic!("stale");
    };
    assert!(why.contains("fell silent for"), "{why}");
    rig.fake.modes(Mode::Normal, Mode::Normal);
    let back = Instant::now();
    while rig.pod().await != "+b" {}
    assert!(back.elapsed() < Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_returns_is_believed_within_10_s() {
    for mode in [
        Mode::Refused,
        Mode::Hangs,
        Mode::Says(503, "<html>gateway</html>".into()),
    ] {
        let mut rig = rig();
        rig.fake.put("a");
        rig.live().await;
        rig.fake.modes(mode.clone(), mode.clone());
        rig.fake.drop_watches();
        let (report, _) = rig.until(is_stale).await;
        let SourceState::Stale { why, .. } = &report.state else {
            panic!("stale");
        };
        let expected = match mode {
            Mode::Refused => "cannot reach the API server https://fake: connection refused",
            Mode::Hangs => "the API server https://fake did not answer within 5 s",
            _ => "the API server answered 503: <html>gateway</html>",
        };
        assert_eq!(&**why, expected);
        tokio::time::sleep(Duration::from_secs(20)).await;
        rig.fake.put("b");
        rig.fake.modes(Mode::Normal, Mode::Normal);
        let back = Instant::now();
        while rig.pod().await != "+b" {}
        assert!(
            back.elapsed() < Duration::from_secs(10),
            "{mode:?}: {:?}",
            back.elapsed()
        );
        assert_eq!(rig.lists(), 1, "the version was still good");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_at_once_leads_to_a_list() {
    let mut rig = rig();
    rig.fake.put("a");
    rig.live().await;
    rig.fake.modes(Mode::Normal, Mode::Says(200, String::new()));
    rig.fake.drop_watches();
    rig.fake.put("b");
    assert_eq!(rig.pod().await, "+b");
    let asked = rig.fake.log().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(rig.fake.log().len() - asked < 60, "no storm of requests");
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_and_asked_for_again() {
    let fake = Fake::new();
    fake.put("a");
    let words = "pods is forbidden: User \"ada\" cannot list resource \"pods\"";
    fake.modes(
        Mode::Says(403, status(403, "Forbidden", words)),
        Mode::Normal,
    );
    let source = ClientSource::fixed(fake.client(), "https://fake");
    let mut rig = rig_of(&fake, &source, &[Kind::Pod], &Scope::default());
    let (report, _) = rig.until(|s| matches!(s, SourceState::Denied { .. })).await;
    let SourceState::Denied { why } = report.state else {
        panic!("denied");
    };
    assert_eq!(
        &*why,
        "you may not list and watch pods in all namespaces: forbidden (403): pods is forbidden: User \"ada\" cannot list resource \"pods\""
    );
    fake.modes(Mode::Normal, Mode::Normal);
    assert_eq!(rig.live().await, ["+a"]);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_was_there_is_asked_for_soon_before_it_counts_as_taken_away() {
    let mut rig = rig();
    rig.fake.put("a");
    rig.live().await;
    let refused = || Mode::Says(403, status(403, "Forbidden", "RBAC: role not found"));
    rig.fake.modes(refused(), refused());
    let (report, _) = rig.until(is_stale).await;
    let SourceState::Stale { why, .. } = report.state else {
        panic!("stale");
    };
    assert_eq!(&*why, "forbidden (403): RBAC: role not found");
    rig.fake.modes(Mode::Normal, Mode::Normal);
    let begun = Instant::now();
    rig.live().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "asked again soon");
    rig.fake.modes(refused(), refused());
    rig.until(is_stale).await;
    let begun = Instant::now();
    rig.until(|s| matches!(s, SourceState::Denied { .. })).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_user_of_one_namespace_sees_that_namespace() {
    let fake = Fake::new();
    fake.put("a");
    let narrow = fake.clone();
    let client = super::super::fake::client(move |request| {
        let fake = narrow.clone();
        async move {
            let uri = request.uri().to_string();
            if uri.starts_with("/api/v1/pods") {
                return Ok(super::super::fake::reply(
                    403,
                    status(403, "Forbidden", "no"),
                ));
            }
            fake.serve(&uri).await
        }
    });
    let source = ClientSource::fixed(client, "https://fake");
    let scope = Scope {
        namespace: None,
        fallback: Some("ns".into()),
    };
    let mut rig = rig_of(&fake, &source, &[Kind::Pod], &scope);
    let (report, pods) = rig.until(|s| *s == SourceState::Live).await;
    assert_eq!(report.namespace.as_deref(), Some("ns"));
    assert_eq!(pods, ["+a"]);
    assert!(
        fake.log()
            .iter()
            .all(|u| u.starts_with("/api/v1/namespaces/ns/pods"))
    );
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_lead_to_one_login() {
    let fake = Fake::new();
    fake.put("a");
    let expired = Fake::new();
    let words = status(401, "Unauthorized", "Unauthorized");
    expired.modes(Mode::Says(401, words.clone()), Mode::Says(401, words));
    let logins = Arc::new(AtomicUsize::new(0));
    let (counted, good) = (logins.clone(), fake.client());
    let source = ClientSource::new(expired.client(), "https://fake", move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(good.clone())
    });
    let mut rig = rig_of(
        &fake,
        &source,
        &[Kind::Pod, Kind::Node, Kind::Job],
        &Scope::default(),
    );
    let mut live = 0;
    while live < 3 {
        if let Delta::Source(SourceReport { state, .. }) = rig.next().await {
            // The new credentials are used at once, so there is nothing to tell.
            assert!(!matches!(state, SourceState::Failed { .. }), "{state:?}");
            live += usize::from(state == SourceState::Live);
        }
    }
    assert_eq!(logins.load(Ordering::SeqCst), 1);
    assert!(!source.login_is_in_vain());
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_refused_make_no_login_storm() {
    let fake = Fake::new();
    let words = status(401, "Unauthorized", "Unauthorized");
    fake.modes(Mode::Says(401, words.clone()), Mode::Says(401, words));
    let logins = Arc::new(AtomicUsize::new(0));
    let (counted, same) = (logins.clone(), fake.client());
    let source = ClientSource::new(fake.client(), "https://fake", move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(same.clone())
    });
    let mut rig = rig_of(&fake, &source, &Kind::ALL, &Scope::default());
    let (report, _) = rig.until(|s| matches!(s, SourceState::Failed { .. })).await;
    let SourceState::Failed { why } = report.state else {
        panic!("failed");
    };
    assert_eq!(
        &*why,
        "the API server https://fake refuses the credentials, which may have expired (401 Unauthorized): log in again"
    );
    assert!(source.login_is_in_vain());
    let drain = async { while rig.rx.recv().await.is_some() {} };
    let _ = timeout(Duration::from_secs(600), drain).await;
    let n = logins.load(Ordering::SeqCst);
    assert!((2..=8).contains(&n), "{n} logins in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn garbage_is_named() {
    for (body, expected) in [
        ("<html>login</html>", "expected value at line 1"),
        (
            r#"{"kind":"Table","rows":[]}"#,
            "expected a list, found a Table",
        ),
        (r#"{"items":"x"}"#, "invalid type"),
        ("", "EOF"),
    ] {
        let fake = Fake::new();
        fake.modes(Mode::Says(200, body.into()), Mode::Normal);
        let source = ClientSource::fixed(fake.client(), "https://fake");
        let mut rig = rig_of(&fake, &source, &[Kind::Pod], &Scope::default());
        let (report, _) = rig.until(|s| matches!(s, SourceState::Failed { .. })).await;
        let SourceState::Failed { why } = report.state else {
            panic!("failed");
        };
        assert!(
            why.starts_with("the API server https://fake gave an answer that cannot be read:")
                && why.contains(expected),
            "{why}"
        );
    }
    let mut rig = rig();
    rig.fake.put("a");
    rig.live().await;
    rig.fake.tell("{\"type\":\"ADDED\",\"obj");
    rig.fake.put("b");
    assert_eq!(rig.pod().await, "+b", "a broken line is survived");
}

#[tokio::test(start_paused = true)]
async fn a_list_with_odd_items_tells_them() {
    let fake = Fake::new();
    let body = json!({"kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": [
        {"metadata": {"name": "without-uid"}}, null, 7, "x",
        {"metadata": {"name": "good", "uid": "u"}, "spec": {}, "status": {}}]});
    fake.modes(Mode::Says(200, body.to_string()), Mode::Normal);
    let source = ClientSource::fixed(fake.client(), "https://fake");
    let mut rig = rig_of(&fake, &source, &[Kind::Pod], &Scope::default());
    let mut unreadable = Vec::new();
    loop {
        match rig.next().await {
            Delta::Unreadable { what, .. } => unreadable.push(what.to_string()),
            Delta::Pod(Change::Set(pod)) => {
                assert_eq!(&*pod.meta.name, "good");
                break;
            }
            _ => {}
        }
    }
    assert_eq!(
        unreadable,
        ["pods: without-uid has no UID", "pods: expected an object"]
    );
}

#[tokio::test(start_paused = true)]
async fn of_many_events_the_newest_are_kept() {
    let fake = Fake::new();
    let at = jiff::Timestamp::UNIX_EPOCH;
    let items: Vec<_> = (0..12_000_i64)
        .map(|i| {
            let time = (at + jiff::SignedDuration::from_secs((i * 7_919) % 12_000)).to_string();
            json!({"metadata": {"name": format!("e{i}"), "uid": format!("e{i}"), "resourceVersion": "1"}, "lastTimestamp": time})
        })
        .collect();
    let body = json!({"kind": "EventList", "metadata": {"resourceVersion": "5"}, "items": items});
    fake.modes(Mode::Says(200, body.to_string()), Mode::Normal);
    let source = ClientSource::fixed(fake.client(), "https://fake");
    let mut rig = rig_of(&fake, &source, &[Kind::Event], &Scope::default());
    let mut times = Vec::new();
    loop {
        match rig.next().await {
            Delta::Event(Change::Set(e)) => times.push(e.last_seen.unwrap().as_second()),
            Delta::Source(SourceReport {
                state: SourceState::Live,
                ..
            }) => break,
            _ => {}
        }
    }
    times.sort_unstable();
    assert_eq!(times.len(), store::MAX_EVENTS);
    assert_eq!(times[0], 7_000);
}
