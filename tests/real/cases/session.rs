//! A running engine, as the console has one, and what it has told so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpudeck::app::cli::ClusterArgs;
use gpudeck::app::console::{Rights, engine_at};
use gpudeck::app::engine::{Engine, Feed};
use gpudeck::app::place::Place;
use gpudeck::model::{
    Cluster, Decision, DecisionKind, Delta, Kind, Pod, SourceReport, SourceState,
};
use gpudeck::tui::Leader;
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::servers::Server;

/// Looks and decides.
pub(crate) const SCHEDULING: Rights = Rights {
    read_only: false,
    schedule: true,
};
/// Only looks.
pub(crate) const LOOKING: Rights = Rights {
    read_only: true,
    schedule: false,
};

/// What an engine has told.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) cluster: Cluster,
    pub(crate) leader: Leader,
    /// Every report of a source, in order.
    pub(crate) reports: Vec<SourceReport>,
    /// Every decision, in order.
    pub(crate) decisions: Vec<Arc<Decision>>,
}

impl Seen {
    /// Every kind has been listed.
    pub(crate) fn is_synced(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| self.is_live(kind))
    }

    pub(crate) fn is_live(&self, kind: Kind) -> bool {
        self.cluster
            .source(kind)
            .is_some_and(|report| report.state == SourceState::Live)
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        let is_it = |pod: &&Arc<Pod>| *pod.meta.namespace == *namespace && *pod.meta.name == *name;
        self.cluster.pods().find(is_it)
    }

    pub(crate) fn node_of(&self, namespace: &str, name: &str) -> Option<String> {
        let node = self.pod(namespace, name)?.node.as_ref()?;
        Some(node.to_string())
    }

    /// Why a pod waits, by the latest decision about it.
    pub(crate) fn why_waiting(&self, namespace: &str, name: &str) -> Option<String> {
        let pod = self.pod(namespace, name)?;
        match &self.cluster.decision(&pod.meta.uid)?.kind {
            DecisionKind::Waiting(reason) => Some(reason.to_string()),
            DecisionKind::Placed { .. } | DecisionKind::Leaves { .. } => None,
        }
    }

    /// What is not live, and the last decisions: for messages of failed waits.
    fn account(&self) -> String {
        let reports = self.cluster.sources();
        let troubled: Vec<_> = reports.filter(|r| r.state != SourceState::Live).collect();
        let last: Vec<String> = self
            .decisions
            .iter()
            .rev()
            .take(5)
            .map(|d| format!("{}: {:?}", d.name, d.kind))
            .collect();
        format!("not live: {troubled:#?}; decided last: {last:#?}")
    }

    /// Version by UID of every node and pod.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        let nodes = self.cluster.nodes().map(|(node, _)| &node.meta);
        let pods = self.cluster.pods().map(|pod| &pod.meta);
        nodes
            .chain(pods)
            .map(|meta| (meta.uid.to_string(), meta.resource_version.0.to_string()))
            .collect()
    }
}

/// The engine; it is drained all the time, as the console drains it.
pub(crate) struct Session {
    pub(crate) place: Place,
    engine: Engine,
    seen: Arc<Mutex<Seen>>,
    news: watch::Receiver<()>,
    drain: JoinHandle<()>,
}

impl Session {
    /// Opens what `gpudeck --context USER --namespace NAMESPACE` opens.
    pub(crate) async fn open(
        server: &Server,
        user: &str,
        namespace: Option<&str>,
        rights: Rights,
    ) -> Self {
        let args = ClusterArgs {
            kubeconfig: Some(server.kubeconfig().to_owned()),
            context: Some(user.to_owned()),
            namespace: namespace.map(str::to_owned),
        };
        Self::at(Place::connect(&args, true).await.unwrap(), rights)
    }

    pub(crate) fn at(place: Place, rights: Rights) -> Self {
        let (engine, feed) = engine_at(&place, rights, None);
        let seen = Arc::<Mutex<Seen>>::default();
        let (told, news) = watch::channel(());
        let drain = tokio::spawn(drain(feed, seen.clone(), told));
        Self {
            place,
            engine,
            seen,
            news,
            drain,
        }
    }

    /// Looks at what has been told until now.
    pub(crate) fn see<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().unwrap())
    }

    /// Waits until `found` holds; fails when it does not within `limit`.
    pub(crate) async fn until_within(
        &mut self,
        limit: Duration,
        what: &str,
        found: impl Fn(&Seen) -> bool,
    ) {
        let deadline = Instant::now() + limit;
        while !self.see(&found) {
            let news = tokio::time::timeout_at(deadline, self.news.changed()).await;
            assert!(
                news.is_ok(),
                "waited {limit:?} in vain: {what}; {}",
                self.see(Seen::account)
            );
        }
    }

    /// The same, for what takes no long time.
    pub(crate) async fn until(&mut self, what: &str, found: impl Fn(&Seen) -> bool) {
        self.until_within(Duration::from_secs(40), what, found)
            .await;
    }

    /// Ends the engine as leaving the console does.
    pub(crate) async fn stop(self) {
        self.engine.stop().await;
        self.drain.await.unwrap();
    }
}

async fn drain(mut feed: Feed, seen: Arc<Mutex<Seen>>, told: watch::Sender<()>) {
    loop {
        tokio::select! {
            Some(batch) = feed.deltas.recv() => {
                let mut seen = seen.lock().unwrap();
                for delta in batch.iter() {
                    seen.cluster.apply(delta);
                    match delta {
                        Delta::Source(report) => seen.reports.push(report.clone()),
                        Delta::Decision(decision) => seen.decisions.push(decision.clone()),
                        _ => {}
                    }
                }
            }
            Some(leader) = feed.leader.recv() => seen.lock().unwrap().leader = leader,
            else => return,
        }
        told.send_replace(());
    }
}

/// One answer of the API as JSON.
pub(crate) async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

/// All objects of a collection as `kubectl get -o json` shows them.
pub(crate) async fn items(client: &Client, path: &str) -> Vec<Value> {
    match get(client, path).await["items"].take() {
        Value::Array(items) => items,
        other => panic!("{path} is no list: {other}"),
    }
}

/// Version by UID of every node and pod, by fresh lists.
pub(crate) async fn fresh_versions(client: &Client) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for path in ["/api/v1/nodes", "/api/v1/pods"] {
        for item in items(client, path).await {
            let text = |key: &str| item["metadata"][key].as_str().unwrap().to_owned();
            versions.insert(text("uid"), text("resourceVersion"));
        }
    }
    versions
}
