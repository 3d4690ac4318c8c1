//! The spot market: notices in each provider's shape and time, then the machine goes. The clock
//! stands still while anything works.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use gpudeck::sandbox::actors::Options;
use gpudeck::sandbox::actors::world::Settings as World;
use gpudeck::sandbox::actors::world::notice::Provider;
use gpudeck::sandbox::actors::world::pick::NodePick;
use gpudeck::sandbox::actors::world::prices;
use gpudeck::sandbox::actors::world::spot::{Settings, Storm};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::{Cluster, bind, eventually_within};

const LONG: Duration = Duration::from_secs(7_200);

/// One reclaim a minute after the start, and nothing by chance.
fn storm(replace_secs: Option<(f64, f64)>) -> Options {
    Options {
        world: World {
            spot: Some(Settings {
                mean_hours: None,
                storms: vec![Storm {
                    at_secs: 60.0,
                    nodes: NodePick::named(["spot-*"]),
                    spread_secs: 0.0,
                }],
                replace_secs,
                ..Settings::default()
            }),
            ..World::default()
        },
        ..Options::default()
    }
}

async fn label(cluster: &Cluster, node: &str, labels: &[(&str, &str)]) {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    let api: Api<Node> = Api::all(cluster.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    api.patch(node, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn until_node(
    cluster: &Cluster,
    name: &str,
    what: &str,
    check: impl Fn(&Node) -> bool,
) -> Node {
    let api: Api<Node> = Api::all(cluster.client.clone());
    eventually_within(LONG, what, || async {
        api.get_opt(name).await.unwrap().filter(&check)
    })
    .await
}

async fn until_gone(cluster: &Cluster, name: &str) {
    let api: Api<Node> = Api::all(cluster.client.clone());
    eventually_within(LONG, &format!("{name} is gone"), || async {
        api.get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}

async fn events_of(cluster: &Cluster, name: &str) -> Vec<(String, String)> {
    let events: Api<Event> = cluster.api("default");
    let all = events.list(&ListParams::default()).await.unwrap();
    let about = all
        .into_iter()
        .filter(|event| event.involved_object.name.as_deref() == Some(name));
    about
        .map(|event| {
            (
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default(),
            )
        })
        .collect()
}

fn taint_keys(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
    taints
        .unwrap_or_default()
        .into_iter()
        .map(|taint| taint.key)
        .collect()
}

fn cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

async fn pod_on(cluster: &Cluster, node: &str) {
    let pod: Pod = cluster
        .create(
            "default",
            json!({
                "metadata": {"name": format!("on-{node}")},
                "spec": {"containers": [{"name": "main", "image": "train"}]},
            }),
        )
        .await;
    assert!(bind(&cluster.client, &pod, node).await);
    let api: Api<Pod> = cluster.api("default");
    eventually_within(LONG, "the pod runs", || async {
        let pod = api.get_opt(&format!("on-{node}")).await.unwrap()?;
        let phase = pod.status.as_ref()?.phase.clone()?;
        (phase == "Running").then_some(())
    })
    .await;
}

/// A spot node with one pod under the reclaim; what it looks like once `noticed`, and how long it
/// then has.
async fn reclaimed(labels: &[(&str, &str)], noticed: impl Fn(&Node) -> bool) -> (Node, u64) {
    let cluster = Cluster::with(&storm(None));
    cluster.node("spot-1", 8).await;
    label(&cluster, "spot-1", labels).await;
    pod_on(&cluster, "spot-1").await;
    let node = until_node(&cluster, "spot-1", "spot-1 has its notice", noticed).await;
    let began = Instant::now();
    until_gone(&cluster, "spot-1").await;
    let lasted = began.elapsed().as_secs();
    let pods: Api<Pod> = cluster.api("default");
    eventually_within(LONG, "its pod is gone", || async {
        pods.get_opt("on-spot-1")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    cluster.stop().await;
    (node, lasted)
}

#[tokio::test(start_paused = true)]
async fn karpenter_taints_names_the_deadline_and_replaces() {
    let cluster = Cluster::with(&storm(Some((300.0, 300.0))));
    cluster.node("spot-1", 8).await;
    cluster.node("kept", 8).await;
    let labels = [
        ("karpenter.sh/capacity-type", "spot"),
        ("karpenter.sh/nodepool", "gpu-spot"),
    ];
    label(&cluster, "spot-1", &labels).await;
    label(
        &cluster,
        "kept",
        &[("karpenter.sh/capacity-type", "on-demand")],
    )
    .await;
    pod_on(&cluster, "spot-1").await;
    const DEADLINE: &str = "karpenter.sh/nodeclaim-termination-timestamp";
    let node = until_node(&cluster, "spot-1", "the notice", |node| {
        node.metadata
            .annotations
            .as_ref()
            .is_some_and(|all| all.contains_key(DEADLINE))
    })
    .await;
    let began = Instant::now();
    assert!(taint_keys(&node).contains(&"karpenter.sh/disrupted".to_owned()));
    let labels = node.metadata.labels.unwrap();
    assert_eq!(
        labels["node.kubernetes.io/exclude-from-external-load-balancers"],
        "karpenter"
    );
    until_gone(&cluster, "spot-1").await;
    let lasted = began.elapsed().as_secs();
    assert!((118..=121).contains(&lasted), "{lasted} s");

    let told = events_of(&cluster, "spot-1").await;
    let reasons: Vec<&str> = told.iter().map(|(reason, _)| reason.as_str()).collect();
    assert!(reasons.contains(&"SpotInterrupted"), "{reasons:?}");
    let api: Api<Node> = Api::all(cluster.client.clone());
    assert!(taint_keys(&api.get("kept").await.unwrap()).is_empty());
    let new = eventually_within(LONG, "a like machine", || async {
        let all = api.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let conditions = node
                .status
                .as_ref()
                .and_then(|status| status.conditions.clone());
            let ready = |c: &k8s_openapi::api::core::v1::NodeCondition| {
                c.type_ == "Ready" && c.status == "True"
            };
            name.starts_with("spot-1-") && conditions.is_some_and(|all| all.iter().any(ready))
        })
    })
    .await;
    let took = began.elapsed().as_secs();
    assert!((415..=450).contains(&took), "{took} s");
    assert!(!taint_keys(&new).contains(&"karpenter.sh/disrupted".to_owned()));
    let annotations = new.metadata.annotations.unwrap();
    assert!(!annotations.contains_key(DEADLINE));
    let labels = new.metadata.labels.unwrap();
    assert_eq!(labels["karpenter.sh/capacity-type"], "spot");
    assert_eq!(labels["kubernetes.io/hostname"], new.metadata.name.unwrap());
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_termination_handler_cordons_and_gives_two_minutes() {
    let labels = [("eks.amazonaws.com/capacityType", "SPOT")];
    let (node, lasted) = reclaimed(&labels, cordoned).await;
    let key = "aws-node-termination-handler/spot-itn".to_owned();
    assert!(taint_keys(&node).contains(&key), "{:?}", taint_keys(&node));
    let labels = node.metadata.labels.unwrap();
    assert!(labels["aws-node-termination-handler/event-id"].starts_with("spot-itn-"));
    assert!((118..=121).contains(&lasted), "{lasted} s");
}

#[tokio::test(start_paused = true)]
async fn gke_shuts_the_node_down_in_half_a_minute() {
    let labels = [("cloud.google.com/gke-spot", "true")];
    let (node, lasted) = reclaimed(&labels, |node| {
        let conditions = node
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone());
        let mut conditions = conditions.unwrap_or_default().into_iter();
        conditions
            .any(|c| c.type_ == "Ready" && c.message.as_deref() == Some("node is shutting down"))
    })
    .await;
    assert!(!cordoned(&node));
    let key = "cloud.google.com/impending-node-termination".to_owned();
    assert!(taint_keys(&node).contains(&key));
    assert!((28..=31).contains(&lasted), "{lasted} s");
}

#[tokio::test(start_paused = true)]
async fn aks_schedules_the_preemption_as_a_condition() {
    let labels = [("kubernetes.azure.com/scalesetpriority", "spot")];
    let (node, lasted) = reclaimed(&labels, cordoned).await;
    let conditions = node.status.unwrap().conditions.unwrap();
    let scheduled = conditions
        .iter()
        .find(|c| c.type_ == "VMEventScheduled")
        .unwrap();
    assert_eq!(scheduled.status, "True");
    let message = scheduled.message.clone().unwrap();
    assert!(message.starts_with("Preempt Scheduled: "), "{message}");
    assert!(
        message.contains(" GMT. DurationInSeconds: -1."),
        "{message}"
    );
    assert!((28..=31).contains(&lasted), "{lasted} s");
}

#[tokio::test(start_paused = true)]
async fn coreweave_gives_seven_minutes() {
    let labels = [("compute.coreweave.com/compute-class", "spot")];
    let (node, lasted) = reclaimed(&labels, cordoned).await;
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels["qos.coreweave.cloud/pending-preemption"], "true");
    assert!((418..=421).contains(&lasted), "{lasted} s");
}

/// When each node went, in seconds, under chance alone.
async fn losses(seed: u64) -> Vec<(String, u64)> {
    let cluster = Cluster::with(&Options {
        seed,
        world: World {
            spot: Some(Settings {
                provider: Some(Provider::Nth),
                mean_hours: Some(0.5),
                false_alarm_share: 0.0,
                replace_secs: None,
                ..Settings::default()
            }),
            ..World::default()
        },
        ..Options::default()
    });
    for number in 0..6 {
        cluster.node(&format!("spot-{number}"), 8).await;
    }
    let began = Instant::now();
    let api: Api<Node> = Api::all(cluster.client.clone());
    let gone: Mutex<Vec<(String, u64)>> = Mutex::new(Vec::new());
    eventually_within(LONG * 10, "all are gone", || async {
        let there: Vec<String> = {
            let all = api.list(&ListParams::default()).await.unwrap().items;
            all.into_iter()
                .map(|node| node.metadata.name.unwrap())
                .collect()
        };
        let mut gone = gone.lock().unwrap();
        for name in (0..6).map(|number| format!("spot-{number}")) {
            if !there.contains(&name) && gone.iter().all(|(other, _)| *other != name) {
                gone.push((name, began.elapsed().as_secs()));
            }
        }
        there.is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
    gone.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn chance_follows_the_seed() {
    let first = losses(7).await;
    let again = losses(7).await;
    for ((name, at), (other, then)) in first.iter().zip(&again) {
        assert_eq!(name, other);
        // They are looked at twice a second.
        assert!(at.abs_diff(*then) <= 1, "{name}: {at} and {then} s");
    }
    assert_ne!(first, losses(8).await);
}

#[tokio::test(start_paused = true)]
async fn prices_stand_on_the_nodes_and_spot_ones_move() {
    let cluster = Cluster::with(&Options {
        world: World {
            prices: Some(prices::Settings::default()),
            ..World::default()
        },
        ..Options::default()
    });
    for (name, tier) in [("firm", "reserved"), ("spot-1", "spot")] {
        cluster.node(name, 8).await;
        let product = ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3");
        label(
            &cluster,
            name,
            &[("karpenter.sh/capacity-type", tier), product],
        )
        .await;
    }
    let price = |node: &Node| {
        let annotations = node.metadata.annotations.as_ref()?;
        annotations.get(prices::ANNOTATION)?.parse::<f64>().ok()
    };
    let first = until_node(&cluster, "spot-1", "a price", |node| price(node).is_some()).await;
    let first = price(&first).unwrap();
    assert!((1.35..=3.15).contains(&first), "{first}");
    until_node(&cluster, "spot-1", "another price", |node| {
        price(node) != Some(first)
    })
    .await;
    let firm = until_node(&cluster, "firm", "a price", |node| price(node).is_some()).await;
    assert_eq!(price(&firm), Some(4.92));
    cluster.stop().await;
}
