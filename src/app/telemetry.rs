//! Keeps the model's figures of the GPUs fresh: asks exporters in their turn, or a Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bus::Batch;
use crate::cluster::fetch::pod_metrics;
use crate::cluster::http::ApiError;
use crate::cluster::source::ClientSource;
use crate::model::{Change, Cluster, Delta, Node, NodeTelemetry, Phase, Pod, Str, Uid, clean};
use crate::telemetry::prometheus::Nodes;
use crate::telemetry::{Prometheus, Settings, Turns, page};

/// How often it is looked whose turn it is.
const LOOK: Duration = Duration::from_millis(500);
/// The port of dcgm-exporter, and that of AKS' managed GPU pools.
const PORT: u16 = 9_400;
const AKS_PORT: u16 = 19_400;
/// First and longest wait after a Prometheus has failed.
const WAIT: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));

/// Who is asked, and what is on the screen.
pub struct Asked {
    /// Who.
    pub settings: Settings,
    /// Nodes on the screen.
    pub shown: watch::Receiver<Vec<Str>>,
}

/// What the task looks at and tells.
pub struct Feeds {
    /// Everything that is known, to find nodes and exporters by.
    pub batches: mpsc::Receiver<Batch>,
    /// Where readings go.
    pub intake: mpsc::Sender<Vec<Delta>>,
    /// Nodes on the screen.
    pub shown: watch::Receiver<Vec<Str>>,
}

/// An exporter's pod.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Exporter {
    uid: Uid,
    namespace: Str,
    name: Str,
    port: u16,
}

/// Nodes with their exporters.
#[derive(Default)]
struct Found {
    /// Nodes, and whether their exporters listen on AKS' port.
    nodes: BTreeMap<Str, bool>,
    exporters: BTreeMap<Str, Exporter>,
    /// The node of each exporter's pod.
    pods: BTreeMap<Uid, Str>,
}

/// Whether a pod is a dcgm-exporter, by the labels of the GPU operator, of its own chart and of AKS,
/// or by its name.
fn is_exporter(pod: &Pod) -> bool {
    let label = |key: &str, value: &str| pod.meta.label(key) == Some(value);
    label("app", "nvidia-dcgm-exporter")
        || label("app.kubernetes.io/name", "dcgm-exporter")
        || label("app", "dcgm-exporter")
        || label("k8s-app", "dcgm-exporter")
}

impl Found {
    fn take(&mut self, delta: &Delta, turns: &mut Turns) {
        match delta {
            Delta::Node(Change::Set(node)) => {
                self.nodes.insert(node.meta.name.clone(), is_aks(node));
            }
            Delta::Node(Change::Gone(gone)) => {
                self.nodes.remove(&gone.name);
            }
            Delta::Pod(Change::Set(pod)) if is_exporter(pod) => {
                let runs = pod.phase == Phase::Running && pod.meta.deleting.is_none();
                match pod.node.as_ref().filter(|_| runs) {
                    Some(node) => {
                        let aks = self.nodes.get(node).copied().unwrap_or(false);
                        let exporter = Exporter {
                            uid: pod.meta.uid.clone(),
                            namespace: pod.meta.namespace.clone(),
                            name: pod.meta.name.clone(),
                            port: if aks { AKS_PORT } else { PORT },
                        };
                        self.pods.insert(exporter.uid.clone(), node.clone());
                        self.exporters.insert(node.clone(), exporter);
                        turns.set(node);
                    }
                    None => self.remove(&pod.meta.uid, turns),
                }
            }
            Delta::Pod(Change::Gone(gone)) => self.remove(&gone.uid, turns),
            _ => {}
        }
    }

    fn remove(&mut self, pod: &Uid, turns: &mut Turns) {
        let Some(node) = self.pods.remove(pod) else {
            return;
        };
        // A new exporter may already stand in its place.
        if self.exporters.get(&node).is_some_and(|e| e.uid == *pod) {
            self.exporters.remove(&node);
            turns.remove(&node);
        }
    }
}

fn is_aks(node: &Node) -> bool {
    node.meta.label("kubernetes.azure.com/dcgm-exporter") == Some("enabled")
}

/// Nodes of which it can be expected that somebody tells what their GPUs measure.
pub fn telling_nodes(settings: &Settings, cluster: &Cluster) -> BTreeSet<Str> {
    match settings {
        Settings::Off => BTreeSet::new(),
        Settings::Exporters => {
            let runs = |p: &&Arc<Pod>| p.phase == Phase::Running && p.meta.deleting.is_none();
            let exporters = cluster.pods().filter(|p| is_exporter(p)).filter(runs);
            exporters.filter_map(|p| p.node.clone()).collect()
        }
        Settings::Prometheus(_) => cluster.nodes().map(|(n, _)| n.meta.name.clone()).collect(),
    }
}

/// Runs until `stop`, or until nobody listens any more.
pub async fn run(settings: Settings, source: ClientSource, feeds: Feeds, stop: CancellationToken) {
    let work = async {
        match settings {
            Settings::Off => drain(feeds).await,
            Settings::Exporters => exporters(source, feeds).await,
            Settings::Prometheus(settings) => match Prometheus::new(&settings) {
                Ok(prometheus) => ask_prometheus(prometheus, source, feeds).await,
                Err(e) => {
                    tracing::warn!(error = %e, "no figures of GPUs are read");
                    drain(feeds).await;
                }
            },
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
}

/// A consumer that does not listen would hold everybody up.
async fn drain(mut feeds: Feeds) {
    while feeds.batches.recv().await.is_some() {}
}

async fn exporters(source: ClientSource, mut feeds: Feeds) {
    let begun = Instant::now();
    let mut found = Found::default();
    let mut turns = Turns::default();
    let mut asked: JoinSet<(Str, Result<String, ApiError>)> = JoinSet::new();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            batch = feeds.batches.recv() => {
                let Some(batch) = batch else { return };
                for delta in batch.iter() {
                    found.take(delta, &mut turns);
                }
            }
            Some(answer) = asked.join_next() => {
                let Ok((node, result)) = answer else { continue };
                let refused = matches!(&result, Err(e) if matches!(e.code(), Some(401 | 403 | 404)));
                turns.answered(&node, refused);
                let delta = reading(node, result, &source);
                if feeds.intake.send(vec![delta]).await.is_err() {
                    return;
                }
            }
            _ = look.tick() => {
                if feeds.shown.has_changed().unwrap_or(false) {
                    turns.show(feeds.shown.borrow_and_update().iter().cloned());
                }
                for node in turns.next(begun.elapsed()) {
                    let Some(exporter) = found.exporters.get(&node).cloned() else {
                        turns.remove(&node);
                        continue;
                    };
                    let source = source.clone();
                    asked.spawn(async move {
                        let Exporter { namespace, name, port, .. } = exporter;
                        let text = pod_metrics(&source, &namespace, &name, port).await;
                        (node, text)
                    });
                }
            }
        }
    }
}

fn reading(node: Str, result: Result<String, ApiError>, source: &ClientSource) -> Delta {
    let gpus = match result {
        Ok(text) => match page(&text) {
            gpus if gpus.is_empty() => Err("the exporter tells of no GPU".into()),
            gpus => Ok(gpus.into()),
        },
        Err(e) => {
            let what = match e.code() {
                Some(403) => "you may not get pods/proxy: ",
                _ => "the exporter does not answer: ",
            };
            Err(Str::from(clean(&format!("{what}{e}"), 300)))
        }
    };
    Delta::Telemetry(Arc::new(NodeTelemetry {
        node,
        at: source.now(),
        gpus,
    }))
}

async fn ask_prometheus(prometheus: Prometheus, source: ClientSource, mut feeds: Feeds) {
    let mut found = Found::default();
    let mut turns = Turns::default();
    let mut wait = WAIT.0;
    let mut due = Instant::now() + Duration::from_secs(1);
    loop {
        tokio::select! {
            biased;
            batch = feeds.batches.recv() => {
                let Some(batch) = batch else { return };
                for delta in batch.iter() {
                    found.take(delta, &mut turns);
                }
            }
            () = tokio::time::sleep_until(due), if !found.nodes.is_empty() => {
                let nodes = Nodes::new(found.nodes.keys().cloned());
                let read = prometheus.read(&nodes, source.now());
                // While the answer comes in, what else is told is still taken.
                tokio::pin!(read);
                let result = loop {
                    tokio::select! {
                        biased;
                        result = &mut read => break result,
                        batch = feeds.batches.recv() => {
                            let Some(batch) = batch else { return };
                            for delta in batch.iter() {
                                found.take(delta, &mut turns);
                            }
                        }
                    }
                };
                let readings = match result {
                    Ok(readings) => {
                        wait = WAIT.0;
                        due = Instant::now() + prometheus.interval();
                        readings
                    }
                    Err(e) => {
                        let why: Str = clean(&e.to_string(), 300).into();
                        due = Instant::now() + wait;
                        wait = (wait * 2).min(WAIT.1);
                        let at = source.now();
                        let failed = found.nodes.keys().map(|node| NodeTelemetry {
                            node: node.clone(),
                            at,
                            gpus: Err(why.clone()),
                        });
                        failed.collect()
                    }
                };
                let deltas = readings.into_iter().map(|r| Delta::Telemetry(Arc::new(r)));
                if feeds.intake.send(deltas.collect()).await.is_err() {
                    return;
                }
            }
        }
    }
}
