//! The autoscaler: pods that fit nowhere bring machines minutes later; empty ones go.

use std::time::Duration;

use gpudeck::sandbox::actors::Options;
use gpudeck::sandbox::actors::world::Settings as World;
use gpudeck::sandbox::actors::world::autoscaler::{GROUP_LABEL, NodeGroup, Settings};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::{Cluster, eventually_within, first_fit_at_leisure};

const LONG: Duration = Duration::from_secs(7_200);

fn pod(name: &str, gpus: &str, selector: &Value) -> Value {
    let asks = json!({"nvidia.com/gpu": gpus});
    json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "gpudeck",
            "nodeSelector": selector,
            "containers": [{
                "name": "main", "image": "train", "resources": {"requests": asks, "limits": asks},
            }],
        },
    })
}

async fn message(cluster: &Cluster, reason: &str, of: &str) -> String {
    let events: Api<Event> = cluster.api("default");
    eventually_within(LONG, reason, || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        let found = all.into_iter().find(|event| {
            let name = event.involved_object.name.as_deref();
            event.reason.as_deref() == Some(reason) && name == Some(of)
        });
        found.and_then(|event| event.message)
    })
    .await
}

async fn claims(cluster: &Cluster) -> Vec<Value> {
    let request = http::Request::get("/apis/karpenter.sh/v1/nodeclaims");
    let request = request.body(Vec::new()).unwrap();
    let list = cluster.client.request::<Value>(request).await.unwrap();
    list["items"].as_array().unwrap().clone()
}

fn condition<'a>(object: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|c| c["type"] == kind).unwrap();
    (
        found["status"].as_str().unwrap(),
        found["reason"].as_str().unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn machines_come_for_pods_and_go_when_empty() {
    let mut cluster = Cluster::with(&Options {
        world: World {
            autoscaler: Some(Settings {
                groups: vec![NodeGroup {
                    name: "burst".to_owned(),
                    max: 2,
                    ..NodeGroup::default()
                }],
                claims: true,
                ..Settings::default()
            }),
            node_claims: true,
            ..World::default()
        },
        ..Options::default()
    });
    cluster.spawn(first_fit_at_leisure);
    let began = Instant::now();
    for (name, gpus, selector) in [
        ("a", "8", json!({})),
        (
            "b",
            "4",
            json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
        ),
        ("c", "4", json!({})),
        ("too-large", "9", json!({})),
        ("elsewhere", "1", json!({"zone": "moon"})),
    ] {
        let _: Pod = cluster.create("default", pod(name, gpus, &selector)).await;
    }
    let told = message(&cluster, "TriggeredScaleUp", "c").await;
    assert_eq!(told, "pod triggered scale-up: [{burst 0->2 (max: 2)}]");
    for (name, why) in [
        ("too-large", "1 Insufficient nvidia.com/gpu"),
        (
            "elsewhere",
            "1 node(s) didn't match Pod's node affinity/selector",
        ),
    ] {
        let told = message(&cluster, "NotTriggerScaleUp", name).await;
        assert_eq!(told, format!("pod didn't trigger scale-up: {why}"));
    }
    // Each has its NodeClaim long before its node is there.
    let asked = claims(&cluster).await;
    assert_eq!(asked.len(), 2);
    for claim in &asked {
        let meta = &claim["metadata"];
        assert_eq!(meta["labels"]["karpenter.sh/nodepool"], "h100-on-demand");
        assert_eq!(meta["finalizers"], json!(["karpenter.sh/termination"]));
        assert_eq!(condition(claim, "Launched"), ("True", "Launched"));
        assert_eq!(
            condition(claim, "Registered"),
            ("Unknown", "NodeNotRegistered")
        );
        assert_eq!(claim["status"]["capacity"]["nvidia.com/gpu"], "8");
        assert!(claim["status"]["nodeName"].is_null());
    }
    let pods: Api<Pod> = cluster.api("default");
    for name in ["a", "b", "c"] {
        eventually_within(LONG, "the pod runs", || async {
            let status = pods.get(name).await.unwrap().status.unwrap();
            (status.phase.as_deref() == Some("Running")).then_some(())
        })
        .await;
    }
    // A minute of patience and three to six of booting.
    let took = began.elapsed().as_secs();
    assert!((240..=480).contains(&took), "{took} s");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let group = ListParams::default().labels(&format!("{GROUP_LABEL}=burst"));
    assert_eq!(nodes.list(&group).await.unwrap().items.len(), 2);

    let ready = eventually_within(LONG, "the claims are ready", || async {
        let all = claims(&cluster).await;
        let ready = |claim: &Value| condition(claim, "Ready") == ("True", "Ready");
        all.iter().all(ready).then_some(all)
    })
    .await;
    let mut named: Vec<&str> = ready
        .iter()
        .map(|claim| claim["status"]["nodeName"].as_str().unwrap())
        .collect();
    named.sort_unstable();
    let there = nodes.list(&group).await.unwrap();
    let there: Vec<&str> = there
        .iter()
        .map(|node| node.metadata.name.as_deref().unwrap())
        .collect();
    assert_eq!(named, there);

    pods.delete("a", &DeleteParams::default()).await.unwrap();
    let began = Instant::now();
    eventually_within(LONG, "one machine is gone", || async {
        let left = nodes.list(&group).await.unwrap().items;
        let marks = left
            .iter()
            .filter_map(|node| node.spec.as_ref()?.taints.clone())
            .flatten();
        let marked = marks
            .filter(|taint| taint.key.ends_with("ClusterAutoscaler"))
            .count();
        assert!(marked <= 2, "{marked} marks");
        (left.len() == 1).then_some(())
    })
    .await;
    let took = began.elapsed().as_secs();
    assert!((620..=680).contains(&took), "{took} s");
    eventually_within(LONG, "its claim is gone, too", || async {
        (claims(&cluster).await.len() == 1).then_some(())
    })
    .await;
    // The other one is in use.
    let node = nodes.list(&group).await.unwrap().items.remove(0);
    assert!(node.spec.unwrap().taints.unwrap_or_default().is_empty());
    cluster.stop().await;
}
