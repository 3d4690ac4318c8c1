//! The API server dies for 20 s under load and comes back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gpudeck::model::{Kind, SourceState};
use gpudeck::tui::snapshot::{self, Request};
use gpudeck::tui::view::ViewId;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::fixture::{grant, pod, reading, ready_node};
use super::session::{LOOKING, SCHEDULING, Session, fresh_versions, items};
use crate::servers::{Server, object};

const OUTAGE: Duration = Duration::from_secs(20);
/// Within this time of the server's return everything shown is right again.
const RIGHT_AGAIN: Duration = Duration::from_secs(10);
/// 320 GPUs: more than the load asks for.
const NODES: u32 = 40;
const PODS_BEFORE: u32 = 60;
const PODS_IN_ALL: u32 = 120;

pub(crate) async fn everything_is_right_again_after_an_outage(server: &Server) {
    let client = server.admin().await;
    let namespace = server.namespace("outage").await;
    grant(&client, "viewer", reading()).await;
    for n in 0..NODES {
        ready_node(&client, &format!("outage-{n:02}"), 8).await;
    }
    let mut scheduler = Session::open(server, "admin", None, SCHEDULING).await;
    // Her rights are known to the server by lists of its own, which a new one has to read first.
    let mut viewer = Session::open(server, "viewer", None, LOOKING).await;
    let load = Load::start(client.clone(), &namespace);
    load.may_make(PODS_BEFORE);
    let bound =
        |seen: &super::session::Seen| seen.cluster.pods().filter(|p| p.node.is_some()).count();
    scheduler
        .until("pods are bound", |seen| bound(seen) >= 30)
        .await;
    viewer
        .until("she sees all of it", |seen| {
            seen.is_synced() && bound(seen) >= 30
        })
        .await;

    // Bindings and creations are under way.
    let killed = Timestamp::now();
    let outage = Instant::now();
    server.kill();
    for session in [&mut scheduler, &mut viewer] {
        let before = session.see(|seen| seen.versions());
        session
            .until("it says that its data is stale", |seen| {
                Kind::ALL.into_iter().all(|kind| {
                    let report = seen.cluster.source(kind).unwrap();
                    matches!(report.state, SourceState::Stale { .. })
                })
            })
            .await;
        session.see(|seen| {
            for kind in Kind::ALL {
                let report = seen.cluster.source(kind).unwrap();
                let SourceState::Stale { since, why } = &report.state else {
                    panic!("{report:?}");
                };
                // A quiet source was last heard when its watch began, at most 20 s ago.
                let age = killed.duration_since(*since).as_secs();
                assert!((-25..=25).contains(&age), "{report:?}, killed at {killed}");
                assert!(
                    why.starts_with("cannot reach the API server https://127.0.0.1:"),
                    "{why}"
                );
            }
            assert!(seen.cluster.pod_count() >= before.len() - usize::try_from(NODES).unwrap());
            let now = Timestamp::now();
            let screen = text(&seen.cluster, ViewId::Nodes, now);
            assert!(screen.contains("stale"), "{screen}");
            assert!(screen.contains("outage-00"), "the rows are still there");
        });
    }
    sleep_until(outage + OUTAGE).await;
    let kept = viewer.see(|seen| seen.cluster.pod_count());
    assert!(kept >= 30, "{kept} pods are left of the picture");
    server.resume();
    let back = Instant::now();

    load.may_make(PODS_IN_ALL);
    let gone = delete_some(&client, &namespace).await;
    load.finish().await;
    loop {
        let fresh = fresh_versions(&client).await;
        let same =
            |session: &Session| session.see(|seen| seen.is_synced() && seen.versions() == fresh);
        if same(&scheduler) && same(&viewer) {
            break;
        }
        assert!(
            back.elapsed() < RIGHT_AGAIN,
            "{:?} after its return: {} and {} of {} objects are right; the viewer's sources are {:#?}",
            back.elapsed(),
            scheduler.see(|seen| right(&seen.versions(), &fresh)),
            viewer.see(|seen| right(&seen.versions(), &fresh)),
            fresh.len(),
            viewer.see(|seen| seen.cluster.sources().cloned().collect::<Vec<_>>()),
        );
        sleep(Duration::from_millis(100)).await;
    }
    println!(
        "right again {:.1} s after the return",
        back.elapsed().as_secs_f64()
    );

    scheduler
        .until("every pod is bound", |seen| {
            let all = usize::try_from(PODS_IN_ALL / 2).unwrap();
            seen.cluster.pod_count() >= all && bound(seen) == seen.cluster.pod_count()
        })
        .await;
    let seen_bound = scheduler.see(bound);
    scheduler.stop().await;
    viewer.stop().await;
    no_binding_was_made_twice(server, &client, &namespace).await;
    let refused = server.audit().into_iter();
    let refused = refused.filter(|r| r.user == "viewer" && matches!(r.status, 401 | 403));
    println!(
        "{seen_bound} pods bound, {gone} deleted; {} requests of a known user were refused",
        refused.count()
    );
}

fn right(versions: &BTreeMap<String, String>, fresh: &BTreeMap<String, String>) -> usize {
    fresh
        .iter()
        .filter(|(uid, version)| versions.get(*uid) == Some(version))
        .count()
}

fn text(cluster: &gpudeck::model::Cluster, view: ViewId, now: Timestamp) -> String {
    let request = Request {
        view,
        cluster,
        namespace: None,
        filter: "",
        ascii: false,
        now,
    };
    snapshot::text(&request).unwrap()
}

/// Deletes five bound pods, as soon as the server does that.
async fn delete_some(client: &Client, namespace: &str) -> usize {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let bound: Vec<String> = items(client, &path)
        .await
        .iter()
        .filter(|pod| pod["spec"]["nodeName"].is_string())
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .take(5)
        .collect();
    for name in &bound {
        pods.delete(name, &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
    }
    bound.len()
}

/// Neither the server nor the Events tell of two bindings of one pod.
async fn no_binding_was_made_twice(server: &Server, client: &Client, namespace: &str) {
    let mut bindings: BTreeMap<String, u32> = BTreeMap::new();
    for record in server.audit() {
        if record.resource == "pods/binding" && record.status == 201 {
            *bindings.entry(record.name).or_default() += 1;
        }
    }
    assert!(bindings.len() >= 60, "{} bindings", bindings.len());
    let twice: Vec<_> = bindings.iter().filter(|(_, n)| **n > 1).collect();
    assert!(twice.is_empty(), "bound more than once: {twice:?}");
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let mut told: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in items(client, &path).await {
        if event["reason"] == "Scheduled" {
            let uid = event["involvedObject"]["uid"].as_str().unwrap().to_owned();
            told.entry(uid).or_default().push(event["message"].clone());
        }
    }
    assert!(!told.is_empty());
    let twice: Vec<_> = told.values().filter(|notes| notes.len() > 1).collect();
    assert!(twice.is_empty(), "told twice: {twice:?}");
}

/// Pods that are made as fast as the server takes them, up to a number that can be raised.
struct Load {
    limit: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl Load {
    fn start(client: Client, namespace: &str) -> Self {
        let limit = Arc::new(AtomicU32::new(0));
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let task = tokio::spawn({
            let limit = limit.clone();
            async move {
                let mut next = 0;
                while next < PODS_IN_ALL {
                    if next >= limit.load(Ordering::SeqCst) {
                        sleep(Duration::from_millis(10)).await;
                        continue;
                    }
                    let new = object(pod(&format!("load-{next:03}"), "gpudeck", "1"));
                    // While the server is away the same pod is tried again; a creation whose
                    // answer was lost conflicts.
                    match pods.create(&PostParams::default(), &new).await {
                        Ok(_) | Err(kube::Error::Api(_)) => next += 1,
                        Err(_) => sleep(Duration::from_millis(20)).await,
                    }
                }
            }
        });
        Self { limit, task }
    }

    fn may_make(&self, pods: u32) {
        self.limit.store(pods, Ordering::SeqCst);
    }

    async fn finish(self) {
        self.task.await.unwrap();
    }
}
