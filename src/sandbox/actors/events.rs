//! Events that the actors write, and their end: a real API server drops them after an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::clock::{rfc3339, secs_since};
use super::objects::Event;
use super::watch::Change;
use crate::sandbox::calls::{Calls, path};

/// kube-apiserver's `--event-ttl`, in real time.
const TTL_SECS: f64 = 3_600.0;
/// Events kept at most, however young: a fast cluster makes many.
const MAX_EVENTS: usize = 10_000;
/// How often it is looked for old ones.
const INTERVAL: Duration = Duration::from_secs(10);

/// An Event about an object of the actors.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    /// API version of the object.
    pub(crate) api_version: &'static str,
    /// Kind of the object.
    pub(crate) kind: &'static str,
    /// Namespace of the object; empty for one without, whose Events live in `default`.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
    /// UID of the object.
    pub(crate) uid: String,
    /// Who says it, such as `kubelet`.
    pub(crate) component: &'static str,
    /// The node that says it; empty for a controller.
    pub(crate) host: String,
    /// Whether it is a Warning.
    pub(crate) warning: bool,
    /// The reason, one word.
    pub(crate) reason: String,
    /// One sentence.
    pub(crate) message: String,
}

impl Note {
    /// Writes the Event; one that is lost is lost, as in a real cluster.
    pub(crate) async fn write(&self, calls: &Calls) {
        let collection = path::events(self.home());
        if let Err(error) = calls
            .post::<IgnoredAny>(&collection, &self.object(calls.now()))
            .await
        {
            tracing::debug!(%error, "event not written");
        }
    }

    fn home(&self) -> &str {
        if self.namespace.is_empty() {
            "default"
        } else {
            &self.namespace
        }
    }

    /// An Event about a node.
    pub(crate) fn node(
        name: &str,
        uid: &str,
        component: &'static str,
        (warning, reason): (bool, &str),
        message: String,
    ) -> Self {
        Self {
            api_version: "v1",
            kind: "Node",
            namespace: String::new(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            component,
            host: String::new(),
            warning,
            reason: reason.to_owned(),
            message,
        }
    }

    fn object(&self, now: Timestamp) -> Value {
        let at = rfc3339(now);
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": format!("{}.", self.name), "namespace": self.home()},
            "involvedObject": {
                "apiVersion": self.api_version,
                "kind": self.kind,
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
            },
            "type": if self.warning { "Warning" } else { "Normal" },
            "reason": self.reason,
            "message": self.message,
            "source": {"component": self.component, "host": self.host},
            "reportingComponent": self.component,
            "reportingInstance": self.host,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        })
    }
}

/// Deletes Events older than an hour, and the oldest of too many.
pub(crate) async fn expire(
    calls: Calls,
    mut events: mpsc::Receiver<Change<Event>>,
    cancel: CancellationToken,
) {
    // Ordered by age; the second index finds an Event by its UID.
    let mut by_age: BTreeSet<(String, String)> = BTreeSet::new();
    let mut by_uid: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = events.recv() => match change {
                Some(Change::Set(event)) => {
                    let meta = &event.metadata;
                    let created = meta.creation_timestamp.clone().unwrap_or_default();
                    let at = format!("{}/{}", path::events(&meta.namespace), meta.name);
                    by_age.insert((created.clone(), meta.uid.clone()));
                    by_uid.insert(meta.uid.clone(), (created, at));
                }
                Some(Change::Gone(uid)) => {
                    if let Some((created, _)) = by_uid.remove(&uid) {
                        by_age.remove(&(created, uid));
                    }
                }
                Some(Change::Synced) => {}
                None => return,
            },
            _ = tick.tick() => {
                let now = calls.now();
                while let Some((created, uid)) = by_age.first().cloned() {
                    let old = secs_since(&created, now).is_some_and(|age| age > TTL_SECS);
                    if !old && by_age.len() <= MAX_EVENTS {
                        break;
                    }
                    by_age.remove(&(created, uid.clone()));
                    let Some((_, at)) = by_uid.remove(&uid) else {
                        continue;
                    };
                    tokio::select! {
                        biased;
                        () = cancel.cancelled() => return,
                        result = calls.delete(&at, &uid, None) => if let Err(error) = result {
                            tracing::debug!(%error, "old event not deleted");
                            break;
                        },
                    }
                }
            }
        }
    }
}
