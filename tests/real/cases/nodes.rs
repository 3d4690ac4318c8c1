//! What the API server itself does to nodes.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::servers::{Server, object};

pub(crate) async fn new_node_is_tainted_not_ready(server: &Server) {
    let api: Api<Node> = Api::all(server.admin().await);
    let node: Node = object(json!({
        "metadata": {"name": "tainted"},
        "status": {
            "capacity": {"nvidia.com/gpu": "8", "cpu": "96"},
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "95500m"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }));
    let created = api.create(&PostParams::default(), &node).await.unwrap();
    let taints = created.spec.as_ref().unwrap().taints.as_ref().unwrap();
    let taints: Vec<_> = taints
        .iter()
        .map(|t| (t.key.as_str(), t.effect.as_str()))
        .collect();
    assert_eq!(taints, [("node.kubernetes.io/not-ready", "NoSchedule")]);
    let allocatable = created
        .status
        .as_ref()
        .unwrap()
        .allocatable
        .as_ref()
        .unwrap();
    assert_eq!(allocatable["nvidia.com/gpu"].0, "8");

    let untaint = Patch::Merge(json!({"spec": {"taints": null}}));
    api.patch("tainted", &PatchParams::default(), &untaint)
        .await
        .unwrap();
    let read = api.get("tainted").await.unwrap();
    assert_eq!(read.spec.and_then(|spec| spec.taints), None);
    assert_eq!(read.status.unwrap().conditions.unwrap().len(), 1);
}

pub(crate) async fn status_is_written_apart(server: &Server) {
    let api: Api<Node> = Api::all(server.admin().await);
    let node: Node = object(json!({"metadata": {"name": "apart"}}));
    api.create(&PostParams::default(), &node).await.unwrap();
    let both = |cordoned: bool, gpus: &str| {
        Patch::Merge(json!({"spec": {"unschedulable": cordoned},
                            "status": {"capacity": {"nvidia.com/gpu": gpus}}}))
    };
    let shown = |node: &Node| {
        let spec = node.spec.as_ref().unwrap();
        let capacity = node
            .status
            .as_ref()
            .and_then(|status| status.capacity.as_ref());
        (
            spec.unschedulable,
            capacity.map(|capacity| capacity["nvidia.com/gpu"].0.clone()),
        )
    };
    let params = PatchParams::default();
    let through_status = api
        .patch_status("apart", &params, &both(true, "8"))
        .await
        .unwrap();
    assert_eq!(shown(&through_status), (None, Some("8".into())));
    let through_node = api.patch("apart", &params, &both(true, "4")).await.unwrap();
    assert_eq!(shown(&through_node), (Some(true), Some("8".into())));
}

pub(crate) async fn strategic_patch_merges_conditions_by_type(server: &Server) {
    let api: Api<Node> = Api::all(server.admin().await);
    let node: Node = object(json!({
        "metadata": {"name": "strategic", "labels": {"keep": "yes", "drop": "yes"}},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            {"type": "GpuHealthy", "status": "True", "reason": "NoXid"},
        ]},
    }));
    api.create(&PostParams::default(), &node).await.unwrap();
    let params = PatchParams::default();
    let sick = json!({"status": {"conditions": [
        {"type": "GpuHealthy", "status": "False", "reason": "Xid79"}]}});
    let patched = api
        .patch_status("strategic", &params, &Patch::Strategic(sick))
        .await
        .unwrap();
    let conditions = patched.status.unwrap().conditions.unwrap();
    let mut conditions: Vec<_> = conditions
        .iter()
        .map(|c| format!("{}={} {}", c.type_, c.status, c.reason.as_deref().unwrap()))
        .collect();
    conditions.sort();
    assert_eq!(
        conditions,
        ["GpuHealthy=False Xid79", "Ready=True KubeletReady"]
    );

    let labels = json!({"metadata": {"labels": {"drop": null, "new": "yes"}}});
    let patched = api
        .patch("strategic", &params, &Patch::Strategic(labels))
        .await
        .unwrap();
    let labels: Vec<_> = patched.metadata.labels.unwrap().into_keys().collect();
    assert_eq!(labels, ["keep", "new"]);
}
