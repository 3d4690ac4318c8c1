//! The actors on a server that is not theirs: a node with GPUs, its device plugin and mig-manager.

use gpudeck::sandbox::actors::gpu_config::Config;
use gpudeck::sandbox::actors::{self, Options};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::eventually;
use crate::servers::{Server, object};

pub(crate) async fn a_node_is_cut_by_its_label(server: &Server) {
    let client = server.admin().await;
    let options = Options {
        speed: 60.0,
        gpu: Some(Config::default()),
        ..Options::default()
    };
    let stop = CancellationToken::new();
    let mut tasks = actors::start(client.clone(), &options, &stop);
    let nodes: Api<Node> = Api::all(client.clone());
    let resources = json!({"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "2"});
    let node: Node = object(json!({
        "metadata": {"name": "cut", "labels": {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count": "2",
            "nvidia.com/mig.capable": "true",
        }},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    // The operator labels the node and starts its operands.
    until_label(&nodes, "nvidia.com/mig.config", "all-disabled").await;
    let operands: Api<Pod> = Api::namespaced(client.clone(), "gpu-operator");
    eventually("four operands run", async || {
        let pods = operands.list(&ListParams::default()).await.ok()?;
        let running = pods.iter().filter(|pod| phase(pod) == "Running");
        (running.count() == 4).then_some(())
    })
    .await;
    let config = json!({"metadata": {"labels": {"nvidia.com/mig.config": "all-balanced"}}});
    nodes
        .patch("cut", &PatchParams::default(), &Patch::Merge(config))
        .await
        .unwrap();
    eventually("the node offers slices", async || {
        let status = nodes.get("cut").await.ok()?.status?;
        let offered = status.allocatable?;
        let is = |name: &str, count: &str| offered.get(name).is_some_and(|q| q.0 == count);
        (is("nvidia.com/mig-1g.10gb", "4") && is("nvidia.com/gpu", "0")).then_some(())
    })
    .await;
    until_label(&nodes, "nvidia.com/mig.config.state", "success").await;
    until_label(&nodes, "nvidia.com/mig-3g.40gb.count", "2").await;

    // A pod holds a slice, so that the next change fails.
    let namespace = server.namespace("cut").await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let asks = json!({"nvidia.com/mig-3g.40gb": "1"});
    let pod: Pod = object(json!({
        "metadata": {"name": "holder"},
        "spec": {
            "nodeName": "cut",
            "containers": [{"name": "main", "image": "x",
                            "resources": {"requests": asks, "limits": asks}}],
        },
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    eventually("the pod runs", async || {
        let pod = pods.get("holder").await.ok()?;
        (phase(&pod) == "Running").then_some(())
    })
    .await;
    let config = json!({"metadata": {"labels": {"nvidia.com/mig.config": "all-disabled"}}});
    nodes
        .patch("cut", &PatchParams::default(), &Patch::Merge(config))
        .await
        .unwrap();
    until_label(&nodes, "nvidia.com/mig.config.state", "failed").await;
    let policy = http::Request::get("/apis/nvidia.com/v1/clusterpolicies/cluster-policy");
    let policy: Value = client
        .request(policy.body(Vec::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(policy["spec"]["mig"]["strategy"], "mixed");
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

async fn until_label(nodes: &Api<Node>, name: &str, value: &str) {
    eventually(&format!("{name}={value}"), async || {
        let labels = nodes.get("cut").await.ok()?.metadata.labels?;
        (labels.get(name)? == value).then_some(())
    })
    .await;
}
