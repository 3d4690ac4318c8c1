//! Kubelets: life, grace, admission and Leases.

use gpudeck::sandbox::actors::{Manage, Options};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, bind, eventually};

fn pod(name: &str, gpus: u32, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "gpudeck",
            "containers": [{
                "name": "main",
                "image": "registry.example:5000/train",
                "resources": {
                    "requests": {"nvidia.com/gpu": gpus.to_string(), "cpu": "1"},
                    "limits": {"nvidia.com/gpu": gpus.to_string()},
                },
            }],
        },
    })
}

fn phase(pod: &Pod) -> String {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.clone())
        .unwrap_or_default()
}

async fn until_phase(cluster: &Cluster, name: &str, wanted: &str) -> Pod {
    let api: Api<Pod> = cluster.api("default");
    eventually(&format!("{name} is {wanted}"), || async {
        api.get(name).await.ok().filter(|pod| phase(pod) == wanted)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_pod_runs_and_ends_after_its_time() {
    let cluster = Cluster::start();
    cluster.node("n1", 8).await;
    let made: Pod = cluster
        .create(
            "default",
            pod("p1", 2, &json!({"sandbox.gpudeck.dev/run-secs": "60"})),
        )
        .await;
    assert!(bind(&cluster.client, &made, "n1").await);
    let running = until_phase(&cluster, "p1", "Running").await;
    let status = running.status.unwrap();
    assert!(status.pod_ip.is_some() && status.start_time.is_some());
    let conditions = status.conditions.unwrap();
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "Ready"] {
        let condition = conditions.iter().find(|condition| condition.type_ == kind);
        assert_eq!(
            condition.map(|condition| condition.status.as_str()),
            Some("True"),
            "{kind}"
        );
    }
    assert!(status.container_statuses.unwrap()[0].ready);

    let ended = until_phase(&cluster, "p1", "Succeeded")
        .await
        .status
        .unwrap();
    let state = ended.container_statuses.unwrap()[0].state.clone().unwrap();
    let terminated = state.terminated.unwrap();
    assert_eq!(
        (terminated.exit_code, terminated.reason.as_deref()),
        (0, Some("Completed"))
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_code_makes_the_pod_fail() {
    let cluster = Cluster::start();
    cluster.node("n1", 8).await;
    let asks = json!({
        "sandbox.gpudeck.dev/run-secs": "1", "sandbox.gpudeck.dev/exit-code": "137",
    });
    let made: Pod = cluster.create("default", pod("p1", 1, &asks)).await;
    bind(&cluster.client, &made, "n1").await;
    let failed = until_phase(&cluster, "p1", "Failed").await.status.unwrap();
    let state = failed.container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 137);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_is_graceful() {
    // At normal speed the two seconds of grace are long enough to be seen.
    let cluster = Cluster::with(&Options::default());
    cluster.node("n1", 8).await;
    let made: Pod = cluster.create("default", pod("p1", 1, &json!({}))).await;
    bind(&cluster.client, &made, "n1").await;
    until_phase(&cluster, "p1", "Running").await;
    let api: Api<Pod> = cluster.api("default");
    api.delete("p1", &DeleteParams::default()).await.unwrap();
    let leaving = api.get("p1").await.unwrap();
    assert!(leaving.metadata.deletion_timestamp.is_some());
    assert_eq!(phase(&leaving), "Running");
    eventually("p1 is gone", || async {
        api.get_opt("p1").await.unwrap().is_none().then_some(())
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_does_not_fit_is_rejected_as_a_kubelet_does() {
    let cluster = Cluster::start();
    cluster.node("n1", 8).await;
    let first: Pod = cluster.create("default", pod("first", 6, &json!({}))).await;
    bind(&cluster.client, &first, "n1").await;
    until_phase(&cluster, "first", "Running").await;
    let second: Pod = cluster
        .create("default", pod("second", 4, &json!({})))
        .await;
    bind(&cluster.client, &second, "n1").await;
    let rejected = until_phase(&cluster, "second", "Failed")
        .await
        .status
        .unwrap();
    assert_eq!(rejected.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(
        rejected.message.as_deref(),
        Some(
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for \
             nvidia.com/gpu. Requested: 4, Available: 2, which is unexpected"
        )
    );
    let events: Api<Event> = cluster.api("default");
    let event = eventually("the rejection's Event", || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter()
            .find(|event| event.reason.as_deref() == Some("UnexpectedAdmissionError"))
    })
    .await;
    assert_eq!(event.involved_object.name.as_deref(), Some("second"));

    // What ends gives its devices back.
    let api: Api<Pod> = cluster.api("default");
    api.delete("first", &DeleteParams::default()).await.unwrap();
    eventually("first is gone", || async {
        api.get_opt("first").await.unwrap().is_none().then_some(())
    })
    .await;
    let third: Pod = cluster.create("default", pod("third", 8, &json!({}))).await;
    bind(&cluster.client, &third, "n1").await;
    until_phase(&cluster, "third", "Running").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taints_follow_the_cordon_and_kubelets_renew_their_leases() {
    let cluster = Cluster::start();
    cluster.node("n1", 8).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let taints = |node: Node| -> Vec<String> {
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        taints.into_iter().map(|taint| taint.key).collect()
    };
    eventually("a Ready node has no taint", || async {
        taints(nodes.get("n1").await.unwrap())
            .is_empty()
            .then_some(())
    })
    .await;
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes
        .patch("n1", &PatchParams::default(), &cordon(true))
        .await
        .unwrap();
    eventually("the cordon's taint", || async {
        let keys = taints(nodes.get("n1").await.unwrap());
        (keys == ["node.kubernetes.io/unschedulable"]).then_some(())
    })
    .await;
    nodes
        .patch("n1", &PatchParams::default(), &cordon(false))
        .await
        .unwrap();
    eventually("no taint again", || async {
        taints(nodes.get("n1").await.unwrap())
            .is_empty()
            .then_some(())
    })
    .await;

    let leases: Api<Lease> = cluster.api("kube-node-lease");
    let lease = eventually("a Lease of n1", || async {
        leases.get_opt("n1").await.unwrap()
    })
    .await;
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("n1"));
    assert_eq!(spec.lease_duration_seconds, Some(40));
    assert!(spec.renew_time.is_some());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_marked_nodes_are_simulated_when_asked() {
    let options = Options {
        speed: 60.0,
        kubelets: Some(Manage::Marked),
        ..Options::default()
    };
    let cluster = Cluster::with(&options);
    cluster.node("real", 8).await;
    cluster.node("simulated", 8).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let mark = json!({"metadata": {"annotations": {"sandbox.gpudeck.dev/kubelet": "simulated"}}});
    nodes
        .patch("simulated", &PatchParams::default(), &Patch::Merge(mark))
        .await
        .unwrap();
    for (name, node) in [("p1", "real"), ("p2", "simulated")] {
        let made: Pod = cluster.create("default", pod(name, 1, &json!({}))).await;
        assert!(bind(&cluster.client, &made, node).await);
    }
    until_phase(&cluster, "p2", "Running").await;
    let api: Api<Pod> = cluster.api("default");
    assert_eq!(phase(&api.get("p1").await.unwrap()), "Pending");
    cluster.stop().await;
}
