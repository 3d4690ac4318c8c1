//! Candidates on a scripted API, under a clock of their own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::sync::Mutex;

use super::super::fake;
use super::*;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Api {
    Works,
    Hangs,
    /// Stores, but the answer never comes.
    Swallows,
    Fails,
    Conflicts,
}

struct Server {
    lease: Option<Value>,
    version: u64,
    api: Api,
}

#[derive(Clone)]
struct Leases(Arc<Mutex<Server>>);

impl Leases {
    fn new() -> Self {
        Leases(Arc::new(Mutex::new(Server {
            lease: None,
            version: 1,
            api: Api::Works,
        })))
    }

    fn set(&self, api: Api) {
        self.0.lock().unwrap().api = api;
    }

    fn lease(&self) -> Value {
        self.0.lock().unwrap().lease.clone().unwrap_or(Value::Null)
    }

    fn source(&self) -> ClientSource {
        let this = self.clone();
        let client = fake::client(move |request| {
            let this = this.clone();
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect_bytes().await.unwrap();
                let api = this.0.lock().unwrap().api;
                let answer = match api {
                    Api::Hangs => std::future::pending().await,
                    Api::Fails => (500, fake::status(500, "InternalError", "no etcd")),
                    Api::Conflicts if method != Method::GET => {
                        (409, fake::status(409, "Conflict", "changed"))
                    }
                    _ => this.answer(&method, &body),
                };
                if api == Api::Swallows {
                    std::future::pending::<()>().await;
                }
                Ok(fake::reply(answer.0, answer.1))
            }
        });
        ClientSource::fixed(client, "https://fake")
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (u16, String) {
        let mut s = self.0.lock().unwrap();
        if method == Method::GET {
            return match &s.lease {
                Some(lease) => (200, lease.to_string()),
                None => (404, fake::status(404, "NotFound", "no lease")),
            };
        }
        let mut new: Value = serde_json::from_slice(body).unwrap();
        let version = |v: &Value| v.pointer("/metadata/resourceVersion").cloned();
        let stale = match (&s.lease, method == Method::POST) {
            (Some(_), true) => true,
            (None, true) => false,
            (Some(old), false) => version(old) != version(&new),
            (None, false) => return (404, fake::status(404, "NotFound", "no lease")),
        };
        if stale {
            return (409, fake::status(409, "Conflict", "changed"));
        }
        s.version += 1;
        new["metadata"]["resourceVersion"] = s.version.to_string().into();
        s.lease = Some(new.clone());
        (200, new.to_string())
    }
}

struct Candidate {
    leadership: Leadership,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn candidate(leases: &Leases, identity: &str) -> Candidate {
    let stop = CancellationToken::new();
    let mode = WriteMode::unless_read_only(false).unwrap();
    let election = Election::new("gpudeck", "scheduler", identity);
    let (leadership, task) = start(&mode, leases.source(), election, stop.clone());
    Candidate {
        leadership,
        stop,
        task,
    }
}

async fn secs(n: f64) {
    tokio::time::sleep(Duration::from_secs_f64(n)).await;
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_takes_over_when_it_is_gone() {
    let leases = Leases::new();
    let a = candidate(&leases, "a");
    secs(1.0).await;
    assert_eq!(a.leadership.term(), Some(1));
    let b = candidate(&leases, "b");
    secs(60.0).await;
    assert_eq!(a.leadership.term(), Some(1), "renewals keep the term");
    assert_eq!(
        b.leadership.role(),
        Role::Standby {
            holder: Some("a".into()),
            trouble: None
        }
    );
    a.task.abort();
    secs(12.0).await;
    assert_eq!(
        (a.leadership.term(), b.leadership.term()),
        (None, None),
        "between deadline and lease nobody leads"
    );
    secs(8.0).await;
    assert_eq!(b.leadership.term(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_lease_given_back_is_taken_at_once() {
    let leases = Leases::new();
    let a = candidate(&leases, "a");
    secs(1.0).await;
    let b = candidate(&leases, "b");
    secs(5.0).await;
    a.stop.cancel();
    a.task.await.unwrap();
    assert_eq!(a.leadership.term(), None);
    secs(3.0).await;
    assert_eq!(b.leadership.term(), Some(2));
    assert_eq!(spec_text(&leases.lease(), "holderIdentity"), "b");
}

#[tokio::test(start_paused = true)]
async fn whatever_the_api_does_leadership_ends_with_its_deadline() {
    for api in [Api::Hangs, Api::Swallows, Api::Fails, Api::Conflicts] {
        let leases = Leases::new();
        let mut a = candidate(&leases, "a");
        secs(1.0).await;
        leases.set(api);
        secs(7.0).await;
        assert_eq!(
            a.leadership.term(),
            Some(1),
            "{api:?}: a hiccup is survived"
        );
        secs(3.5).await;
        assert_eq!(a.leadership.term(), None, "{api:?}");
        a.leadership.changed().await;
        secs(30.0).await;
        assert_eq!(a.leadership.term(), None, "{api:?}");
        leases.set(Api::Works);
        secs(20.0).await;
        let term = a.leadership.term().expect("leads again");
        assert!(term > 1, "{api:?}: a new leadership is a new term");
    }
}

#[tokio::test(start_paused = true)]
async fn another_machines_clock_does_not_matter() {
    let leases = Leases::new();
    leases.0.lock().unwrap().lease = Some(json!({
        "metadata": {"name": "scheduler", "resourceVersion": "1"},
        "spec": {"holderIdentity": "other", "renewTime": "1999-01-01T00:00:00.000000Z",
            "leaseDurationSeconds": 15, "leaseTransitions": 41}}));
    let a = candidate(&leases, "a");
    secs(14.0).await;
    assert_eq!(
        a.leadership.term(),
        None,
        "it may be alive: we saw it only now"
    );
    secs(4.0).await;
    assert_eq!(a.leadership.term(), Some(42));
}

/// Three candidates on an API that fails at random: never two leaders, terms only grow.
#[tokio::test(start_paused = true)]
async fn there_are_never_two_leaders() {
    for seed in 0..5 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let leases = Leases::new();
        let all: Vec<Candidate> = ["a", "b", "c"]
            .iter()
            .map(|id| candidate(&leases, id))
            .collect();
        let mut highest = 0;
        let mut led = 0;
        for step in 0..1_500 {
            if step % 40 == 0 {
                let modes = [
                    Api::Works,
                    Api::Works,
                    Api::Hangs,
                    Api::Swallows,
                    Api::Fails,
                    Api::Conflicts,
                ];
                leases.set(*rng.choice(modes.iter()).unwrap());
            }
            secs(0.1).await;
            let terms: Vec<u64> = all.iter().filter_map(|c| c.leadership.term()).collect();
            assert!(terms.len() <= 1, "seed {seed}, step {step}: {terms:?}");
            if let Some(term) = terms.first() {
                assert!(*term >= highest, "seed {seed}: {term} after {highest}");
                highest = *term;
                led += 1;
            }
        }
        assert!(
            led > 150,
            "seed {seed}: somebody must lead most of the time"
        );
    }
}
