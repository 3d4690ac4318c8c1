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
mod tests;
