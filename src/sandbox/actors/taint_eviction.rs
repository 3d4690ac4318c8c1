//! The taint eviction controller: pods leave a node with a NoExecute taint once they no longer
//! tolerate it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::bound::{disrupt, pod_note, pods_on};
use super::clock::Clock;
use super::objects::{Node, Pod};
use super::on_nodes::{Actor, Plans};
use crate::sandbox::calls::{CallError, Calls};

/// Who says it.
const COMPONENT: &str = "taint-eviction-controller";
/// How often a tainted node is looked at again: a pod may have been bound to it meanwhile.
const AGAIN_SECS: f64 = 30.0;
/// How long after a failed call it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A node with NoExecute taints.
#[derive(Clone)]
struct Tainted {
    uid: String,
    taints: Vec<Value>,
    /// When each taint, by key and value, was first seen.
    since: BTreeMap<String, Instant>,
}

/// Evicts from the nodes of the feed.
pub(super) struct TaintEviction {
    calls: Calls,
    clock: Clock,
    tainted: BTreeMap<String, Tainted>,
    /// Nodes whose pods are being looked at.
    looking: BTreeSet<String>,
}

impl TaintEviction {
    pub(super) fn new(calls: Calls, clock: Clock) -> Self {
        Self {
            calls,
            clock,
            tainted: BTreeMap::new(),
            looking: BTreeSet::new(),
        }
    }
}

impl Actor for TaintEviction {
    type Done = (String, Result<Instant, CallError>);

    fn seen(&mut self, node: &Arc<Node>, plans: &mut Plans<Self::Done>) {
        let (name, agenda) = (&node.metadata.name, &mut plans.agenda);
        let taints = node.spec.taints.iter();
        let taints = taints.filter(|taint| text(taint, "effect") == "NoExecute");
        let taints: Vec<Value> = taints.cloned().collect();
        if taints.is_empty() {
            self.tainted.remove(name);
            agenda.remove(name);
            return;
        }
        let known = self.tainted.get(name);
        let known = known.filter(|known| known.uid == node.metadata.uid);
        if known.is_some_and(|known| known.taints == taints) {
            return;
        }
        let since = taints.iter().map(|taint| {
            let before = known.and_then(|known| known.since.get(&key_of(taint)).copied());
            (key_of(taint), before.unwrap_or_else(Instant::now))
        });
        let since = since.collect();
        let uid = node.metadata.uid.clone();
        self.tainted
            .insert(name.clone(), Tainted { uid, taints, since });
        agenda.set(name, Instant::now());
    }

    fn gone(&mut self, node: &Node, plans: &mut Plans<Self::Done>) {
        self.tainted.remove(&node.metadata.name);
        plans.agenda.remove(&node.metadata.name);
    }

    fn due(&mut self, name: &str, plans: &mut Plans<Self::Done>) {
        let Some(node) = self.tainted.get(name).cloned() else {
            return;
        };
        if !self.looking.insert(name.to_owned()) {
            // Its taints changed in the middle of a look: once more when that has ended.
            plans.agenda.set(name, Instant::now() + RETRY);
            return;
        }
        let (calls, clock, name) = (self.calls.clone(), self.clock, name.to_owned());
        plans.begin(async move {
            let result = look(&calls, clock, &name, &node).await;
            (name, result)
        });
    }

    fn done(&mut self, (name, result): Self::Done, plans: &mut Plans<Self::Done>) {
        self.looking.remove(&name);
        let next = result.unwrap_or_else(|error| {
            tracing::debug!(%error, "pods of a tainted node not evicted");
            Instant::now() + RETRY
        });
        if self.tainted.contains_key(&name) {
            plans.agenda.at_latest(&name, next);
        }
    }
}

fn text<'a>(taint: &'a Value, field: &str) -> &'a str {
    taint.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn key_of(taint: &Value) -> String {
    format!("{}={}", text(taint, "key"), text(taint, "value"))
}

/// Evicts whose time is up; returns when to look again.
async fn look(
    calls: &Calls,
    clock: Clock,
    name: &str,
    node: &Tainted,
) -> Result<Instant, CallError> {
    let now = Instant::now();
    let mut next = now + clock.real(AGAIN_SECS).max(RETRY);
    for pod in pods_on(calls, name).await? {
        if pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match leaves_at(&pod, node, clock) {
            Some(at) if at <= now => evict(calls, clock, &pod).await?,
            Some(at) => next = next.min(at),
            None => {}
        }
    }
    Ok(next)
}

/// When the pod must go; never, if it tolerates all taints for ever.
fn leaves_at(pod: &Pod, node: &Tainted, clock: Clock) -> Option<Instant> {
    let ends = node.taints.iter().filter_map(|taint| {
        let since = node.since.get(&key_of(taint)).copied();
        let since = since.unwrap_or_else(Instant::now);
        let bearing = pod.spec.tolerations.iter().filter(|t| t.bears(taint));
        let bearing: Vec<Option<i64>> = bearing.map(|t| t.toleration_seconds).collect();
        if bearing.is_empty() {
            return Some(since);
        }
        // The shortest of those that are bounded, as the controller takes it.
        let secs = bearing.into_iter().flatten().min()?;
        Some(since + clock.real(secs.max(0) as f64))
    });
    ends.min()
}

async fn evict(calls: &Calls, clock: Clock, pod: &Pod) -> Result<(), CallError> {
    let meta = &pod.metadata;
    let message = format!("Marking for deletion Pod {}/{}", meta.namespace, meta.name);
    pod_note(pod, COMPONENT, (false, "TaintManagerEviction"), message)
        .write(calls)
        .await;
    let why = (
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
    );
    disrupt(calls, pod, why, None, clock.now()).await
}
