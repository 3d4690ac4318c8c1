//! Nodes that fail and return. The clock stands still while anything works, so minutes take
//! milliseconds and the same seed gives the same moments.

use std::time::Duration;

use gpudeck::sandbox::actors::Options;
use gpudeck::sandbox::actors::world::Settings as World;
use gpudeck::sandbox::actors::world::failures::{Failure, Loss, Settings};
use gpudeck::sandbox::actors::world::pick::NodePick;
use gpudeck::sandbox::actors::world::shutdown::Grace;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::{Cluster, bind, eventually_within};

/// Longer than any of the times below.
const LONG: Duration = Duration::from_secs(3_600);

fn failing(failure: Failure) -> Options {
    Options {
        world: World {
            failures: Some(Settings {
                failures: vec![failure],
                chance: None,
            }),
            ..World::default()
        },
        ..Options::default()
    }
}

async fn running_pod(cluster: &Cluster, name: &str, spec: &Value) {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "train"}]},
    });
    let fields = object["spec"].as_object_mut().unwrap();
    fields.extend(spec.as_object().unwrap().clone());
    let pod: Pod = cluster.create("default", object).await;
    assert!(bind(&cluster.client, &pod, "n1").await);
    until_pod(cluster, name, "runs", |pod| phase(pod) == "Running").await;
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|c| c.type_ == kind)?;
    Some((&found.status, found.reason.as_deref().unwrap_or_default()))
}

async fn until_pod(cluster: &Cluster, name: &str, what: &str, check: impl Fn(&Pod) -> bool) -> Pod {
    let api: Api<Pod> = cluster.api("default");
    eventually_within(LONG, &format!("{name} {what}"), || async {
        api.get_opt(name).await.unwrap().filter(&check)
    })
    .await
}

async fn until_node(cluster: &Cluster, what: &str, check: impl Fn(&Node) -> bool) -> Node {
    let api: Api<Node> = Api::all(cluster.client.clone());
    eventually_within(LONG, what, || async {
        api.get_opt("n1").await.unwrap().filter(&check)
    })
    .await
}

fn ready(node: &Node) -> (&str, &str) {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let found = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    (&found.status, found.reason.as_deref().unwrap_or_default())
}

fn taints(node: &Node) -> Vec<(String, String)> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
    let taints = taints.unwrap_or_default().into_iter();
    taints.map(|taint| (taint.key, taint.effect)).collect()
}

async fn event(cluster: &Cluster, reason: &str) -> Event {
    let events: Api<Event> = cluster.api("default");
    eventually_within(LONG, reason, || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter()
            .find(|e| e.reason.as_deref() == Some(reason))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_becomes_unknown_loses_its_pods_and_returns() {
    let cluster = Cluster::with(&failing(Failure {
        at_secs: 60.0,
        nodes: NodePick::named(["n*"]),
        loss: Loss::Silent,
        down_secs: Some(1_200.0),
    }));
    cluster.node("n1", 8).await;
    running_pod(&cluster, "stays", &json!({})).await;
    let forever = json!({"tolerations": [{"operator": "Exists"}]});
    running_pod(&cluster, "bears-it", &forever).await;
    let began = tokio::time::Instant::now();

    let node = until_node(&cluster, "n1 is Unknown", |node| ready(node).0 == "Unknown").await;
    assert_eq!(ready(&node).1, "NodeStatusUnknown");
    // A minute, and the controller's patience of 40 s after the last renewal.
    let silent = began.elapsed().as_secs();
    assert!((80..=110).contains(&silent), "{silent} s");
    let key = "node.kubernetes.io/unreachable".to_owned();
    let wanted = ["NoSchedule", "NoExecute"].map(|effect| (key.clone(), effect.to_owned()));
    until_node(&cluster, "n1 is tainted", |node| taints(node) == wanted).await;
    assert_eq!(
        event(&cluster, "NodeNotReady").await.message.as_deref(),
        Some("Node n1 status is now: NodeNotReady")
    );
    until_pod(&cluster, "stays", "is not ready", |pod| {
        condition(pod, "Ready").is_some_and(|(status, _)| status == "False")
    })
    .await;

    // After five minutes of toleration it is marked and deleted, but nobody is there to end it.
    let leaving = until_pod(&cluster, "stays", "is deleted", |pod| {
        pod.metadata.deletion_timestamp.is_some()
    })
    .await;
    let evicted = began.elapsed().as_secs() - silent;
    assert!((295..=340).contains(&evicted), "{evicted} s");
    let target = condition(&leaving, "DisruptionTarget");
    assert_eq!(target, Some(("True", "DeletionByTaintManager")));
    assert_eq!(phase(&leaving), "Running");
    let told = event(&cluster, "TaintManagerEviction").await;
    assert_eq!(
        told.message.as_deref(),
        Some("Marking for deletion Pod default/stays")
    );

    let node = until_node(&cluster, "n1 is back", |node| {
        ready(node).0 == "True" && taints(node).is_empty()
    })
    .await;
    assert_eq!(ready(&node).1, "KubeletReady");
    let pods: Api<Pod> = cluster.api("default");
    eventually_within(LONG, "the evicted pod is gone", || async {
        pods.get_opt("stays").await.unwrap().is_none().then_some(())
    })
    .await;
    until_pod(&cluster, "bears-it", "is ready again", |pod| {
        phase(pod) == "Running" && condition(pod, "Ready").is_some_and(|(s, _)| s == "True")
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_ends_pods_in_order() {
    let cluster = Cluster::with(&failing(Failure {
        at_secs: 30.0,
        nodes: NodePick::named(["n1"]),
        loss: Loss::Shutdown(Grace::GKE),
        down_secs: None,
    }));
    cluster.node("n1", 8).await;
    running_pod(&cluster, "user", &json!({})).await;
    let critical = json!({"priorityClassName": "system-node-critical"});
    running_pod(&cluster, "critical", &critical).await;

    let node = until_node(&cluster, "n1 shuts down", |node| ready(node).0 == "False").await;
    assert_eq!(ready(&node).1, "KubeletNotReady");
    let noticed = tokio::time::Instant::now();
    event(&cluster, "NodeShutdown").await;
    let user = until_pod(&cluster, "user", "has failed", |pod| phase(pod) == "Failed").await;
    assert!(
        noticed.elapsed() <= Duration::from_secs(16),
        "{:?}",
        noticed.elapsed()
    );
    let status = user.status.as_ref().unwrap();
    assert_eq!(status.reason.as_deref(), Some("Terminated"));
    assert_eq!(
        condition(&user, "DisruptionTarget"),
        Some(("True", "TerminationByKubelet"))
    );
    let api: Api<Pod> = cluster.api("default");
    assert_eq!(phase(&api.get("critical").await.unwrap()), "Running");
    until_pod(&cluster, "critical", "has failed", |pod| {
        phase(pod) == "Failed"
    })
    .await;
    assert!(
        noticed.elapsed() <= Duration::from_secs(31),
        "{:?}",
        noticed.elapsed()
    );
    // Nobody posts any more.
    until_node(&cluster, "n1 is Unknown", |node| ready(node).0 == "Unknown").await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_node_are_collected() {
    let cluster = Cluster::with(&failing(Failure {
        at_secs: 30.0,
        nodes: NodePick::default(),
        loss: Loss::Deleted,
        down_secs: None,
    }));
    cluster.node("n1", 8).await;
    running_pod(&cluster, "p1", &json!({})).await;
    let pods: Api<Pod> = cluster.api("default");
    eventually_within(LONG, "p1 is gone", || async {
        pods.get_opt("p1").await.unwrap().is_none().then_some(())
    })
    .await;
    cluster.stop().await;
}
