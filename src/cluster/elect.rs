//! Leader election on a coordination.k8s.io Lease.
//!
//! The protocol of client-go's leaderelection, with its safety made explicit:
//! - A record of another holder counts as alive for its lease time from when *we* first saw it,
//!   by our monotonic clock; clocks of other machines are never compared.
//! - Every change is a PUT with the resourceVersion that was read: of two candidates one wins.
//! - Leadership ends [`Election::renew_deadline`] after the start of the last successful renewal
//!   whatever the API does: [`Leadership::check`] compares the clock itself, so a stalled task or
//!   a hanging API cannot prolong it, and the deadline is before others may take over.
//! - The term (`leaseTransitions`) grows with each change of leadership and fences writes.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::http::{Api, ApiError};
use super::source::ClientSource;
use super::write::{Fence, NotLeader, WriteMode};
use crate::model::{Str, clean};

/// How an election is held.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: Str,
    /// Name of the Lease.
    pub name: Str,
    /// Who we are: unique per process.
    pub identity: Str,
    /// How long a holder that is not heard of stays the holder.
    pub lease: Duration,
    /// How long we act on the last successful renewal; below `lease`.
    pub renew_deadline: Duration,
    /// Time between tries; above the time-out of one call.
    pub retry: Duration,
}

impl Election {
    /// The usual times: lease 15 s, deadline 10 s, retry 2 s.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Election {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Where we stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Another one leads, or nobody yet.
    Standby {
        /// The holder, where known.
        holder: Option<Str>,
        /// Why the election itself does not work, if so (no right, no answer).
        trouble: Option<Str>,
    },
    /// We lead.
    Leader {
        /// `leaseTransitions`.
        term: u64,
        /// Until when, unless renewed.
        until: Instant,
    },
}

/// Tells whether we lead, at any time, by the clock.
#[derive(Clone)]
pub struct Leadership {
    role: watch::Receiver<Role>,
}

impl Leadership {
    /// Where we stand now. A leader whose deadline has passed is on standby.
    pub fn role(&self) -> Role {
        let role = self.role.borrow().clone();
        match role {
            Role::Leader { until, .. } if Instant::now() >= until => Role::Standby {
                holder: None,
                trouble: Some("the lease could not be renewed in time".into()),
            },
            role => role,
        }
    }

    /// The term, if we lead right now.
    pub fn term(&self) -> Option<u64> {
        match self.role() {
            Role::Leader { term, .. } => Some(term),
            Role::Standby { .. } => None,
        }
    }

    /// Waits for news; `false` when the elector has ended.
    pub async fn changed(&mut self) -> bool {
        self.role.changed().await.is_ok()
    }
}

impl Fence for Leadership {
    fn check(&self) -> Result<Option<u64>, NotLeader> {
        self.term().map(Some).ok_or(NotLeader)
    }
}

/// Takes part in an election until `stop`, then gives the lease back. The token proves that
/// writing is allowed at all.
pub fn start(
    _mode: &WriteMode,
    source: ClientSource,
    election: Election,
    stop: CancellationToken,
) -> (Leadership, JoinHandle<()>) {
    let (tx, rx) = watch::channel(Role::Standby {
        holder: None,
        trouble: None,
    });
    let elector = Elector {
        source,
        election,
        tx,
        seen: None,
        lease: None,
    };
    (Leadership { role: rx }, tokio::spawn(elector.run(stop)))
}

/// A record as it was first seen.
struct Seen {
    /// What of the record changes when it is renewed.
    mark: (String, String),
    at: Instant,
}

struct Elector {
    source: ClientSource,
    election: Election,
    tx: watch::Sender<Role>,
    seen: Option<Seen>,
    /// The object as last read or written, while we lead.
    lease: Option<Value>,
}

fn spec_text<'a>(lease: &'a Value, key: &str) -> &'a str {
    lease
        .pointer(&format!("/spec/{key}"))
        .and_then(Value::as_str)
        .unwrap_or("")
}

fn transitions(lease: &Value) -> u64 {
    lease
        .pointer("/spec/leaseTransitions")
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

impl Elector {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let next = Instant::now() + self.election.retry.mul_f64(0.9 + fastrand::f64() * 0.2);
            let until = match *self.tx.borrow() {
                Role::Leader { until, .. } => Some(until),
                Role::Standby { .. } => None,
            };
            let expiry = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = expiry => {
                    self.demote("the lease could not be renewed in time");
                    continue;
                }
                () = self.round() => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(next) => {}
            }
        }
        self.release().await;
    }

    /// The time that one call may take: two of them fit into a retry period.
    fn call_limit(&self) -> Duration {
        self.election.retry.mul_f64(0.45)
    }

    fn path(&self) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            self.election.namespace
        )
    }

    fn demote(&mut self, why: &str) {
        self.lease = None;
        self.standby(None, Some(clean(why, 300).into()));
    }

    fn standby(&self, holder: Option<Str>, trouble: Option<Str>) {
        let role = Role::Standby { holder, trouble };
        self.tx.send_if_modified(|old| {
            let changed = *old != role;
            *old = role;
            changed
        });
    }

    fn is_leader(&self) -> bool {
        matches!(*self.tx.borrow(), Role::Leader { until, .. } if Instant::now() < until)
    }

    /// One try to renew or to take over.
    async fn round(&mut self) {
        let (api, generation) = self.source.current();
        match self.attempt(&api).await {
            Ok(()) => {}
            Err(e @ ApiError::Unauthorized { .. }) => {
                // A login may outlast the deadline, which then passes as it must.
                if let Err(login) = self.source.rebuild(generation).await {
                    self.trouble(&login);
                } else {
                    self.trouble(&e);
                }
            }
            Err(e) => self.trouble(&e),
        }
    }

    /// A failed call does not end leadership: only the deadline does.
    fn trouble(&self, error: &ApiError) {
        if !self.is_leader() {
            self.standby(None, Some(clean(&error.to_string(), 300).into()));
        }
    }

    async fn attempt(&mut self, api: &Api) -> Result<(), ApiError> {
        if self.is_leader()
            && let Some(lease) = self.lease.take()
        {
            let term = transitions(&lease);
            match self.write(api, lease, term).await {
                // Somebody else wrote it, or it is gone: look.
                Err(e) if matches!(e.code(), Some(404 | 409)) => {}
                other => return other,
            }
        }
        let path = format!("{}/{}", self.path(), self.election.name);
        let lease = match api.get(&path, self.call_limit()).await {
            Ok(lease) => lease,
            Err(e) if e.code() == Some(404) => return self.create(api).await,
            Err(e) => return Err(e),
        };
        let holder: Str = clean(spec_text(&lease, "holderIdentity"), 253).into();
        if *holder == *self.election.identity {
            // Ours, by a renewal whose answer was lost or after a demotion: while we still lead
            // the term stays, else a new one begins.
            let term = transitions(&lease) + u64::from(!self.is_leader());
            return self.write(api, lease, term).await;
        }
        if self.is_leader() {
            self.demote(&format!("{holder} took the lease"));
        }
        if holder.is_empty() || self.has_expired(&lease) {
            let term = transitions(&lease) + 1;
            return match self.write(api, lease, term).await {
                Err(e) if e.code() == Some(409) => {
                    self.standby(None, None);
                    Ok(())
                }
                other => other,
            };
        }
        self.standby(Some(holder), None);
        Ok(())
    }

    /// Whether the record has stayed the same for its lease time, by our own clock.
    fn has_expired(&mut self, lease: &Value) -> bool {
        let mark = (
            spec_text(lease, "holderIdentity").to_owned(),
            spec_text(lease, "renewTime").to_owned(),
        );
        let now = Instant::now();
        let stated = lease
            .pointer("/spec/leaseDurationSeconds")
            .and_then(Value::as_u64)
            .map_or(self.election.lease, Duration::from_secs);
        match &self.seen {
            Some(seen) if seen.mark == mark => now >= seen.at + stated.max(self.election.lease),
            _ => {
                self.seen = Some(Seen { mark, at: now });
                false
            }
        }
    }

    async fn create(&mut self, api: &Api) -> Result<(), ApiError> {
        let now = format!("{:.6}", self.source.now());
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": &*self.election.name, "namespace": &*self.election.namespace},
            "spec": {"holderIdentity": &*self.election.identity, "acquireTime": now, "renewTime": now,
                "leaseDurationSeconds": self.election.lease.as_secs(), "leaseTransitions": 1},
        });
        let begun = Instant::now();
        let path = self.path();
        match api
            .send(Method::POST, &path, &lease, self.call_limit())
            .await
        {
            Ok(stored) => {
                self.lead(begun, stored);
                Ok(())
            }
            // Another candidate was faster.
            Err(e) if e.code() == Some(409) => {
                self.standby(None, None);
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Writes us into the record and leads if the server takes it.
    async fn write(&mut self, api: &Api, mut lease: Value, term: u64) -> Result<(), ApiError> {
        let now = format!("{:.6}", self.source.now());
        let renews = transitions(&lease) == term
            && spec_text(&lease, "holderIdentity") == &*self.election.identity;
        if !lease.get("spec").is_some_and(Value::is_object) {
            set(&mut lease, "spec", json!({}));
        }
        if let Some(spec) = lease.get_mut("spec") {
            if !renews {
                set(spec, "acquireTime", now.clone().into());
            }
            set(spec, "holderIdentity", (*self.election.identity).into());
            set(spec, "renewTime", now.into());
            set(
                spec,
                "leaseDurationSeconds",
                self.election.lease.as_secs().into(),
            );
            set(spec, "leaseTransitions", term.into());
        }
        // Leadership counts from before the write: the server may have stored it at once.
        let begun = Instant::now();
        let path = format!("{}/{}", self.path(), self.election.name);
        let stored = api
            .send(Method::PUT, &path, &lease, self.call_limit())
            .await?;
        self.lead(begun, stored);
        Ok(())
    }

    fn lead(&mut self, begun: Instant, stored: Value) {
        let role = Role::Leader {
            term: transitions(&stored),
            until: begun + self.election.renew_deadline,
        };
        self.lease = Some(stored);
        self.seen = None;
        self.tx.send_replace(role);
    }

    /// Gives the lease back, so that a standby need not wait for it to expire. We stop to lead
    /// before that is sent.
    async fn release(mut self) {
        let led = self.is_leader();
        let lease = self.lease.take();
        self.standby(None, None);
        let (true, Some(mut lease)) = (led, lease) else {
            return;
        };
        if let Some(spec) = lease.get_mut("spec") {
            set(spec, "holderIdentity", "".into());
            set(spec, "leaseDurationSeconds", 1.into());
            set(
                spec,
                "renewTime",
                format!("{:.6}", self.source.now()).into(),
            );
        }
        let (api, _) = self.source.current();
        let path = format!("{}/{}", self.path(), self.election.name);
        if let Err(e) = api
            .send(Method::PUT, &path, &lease, self.call_limit())
            .await
        {
            tracing::debug!(error = %e, "the lease was not given back");
        }
    }
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

/// A process-unique identity: host name (or `gpudeck`) and a random part.
pub fn identity(host: Option<&str>) -> Str {
    let host = host.filter(|h| !h.is_empty()).unwrap_or("gpudeck");
    Arc::from(format!("{host}_{:08x}", fastrand::u32(..)))
}

#[cfg(test)]
mod tests {
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
}
