//! The actors outlive an API server that goes away, forgets its history and comes back.

use std::time::Duration;

use gpudeck::cluster::client::from_config;
use gpudeck::sandbox::actors::{self, Options};
use gpudeck::sandbox::listen::{RunOptions, run};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cluster::{eventually, first_fit};

async fn submit(client: &Client, name: &str) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let job = json!({
        "metadata": {"name": name},
        "spec": {
            "parallelism": 4,
            "completions": 8,
            "template": {
                "metadata": {"annotations": {"sandbox.gpudeck.dev/run-secs": "120"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main",
                        "image": "train",
                        "resources": {
                            "requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"},
                        },
                    }],
                },
            },
        },
    });
    let job: Job = serde_json::from_value(job).unwrap();
    jobs.create(&PostParams::default(), &job).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actors_go_on_when_the_server_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let options = RunOptions {
        kubeconfig: Some(kubeconfig.clone()),
        ..RunOptions::default()
    };
    let running = run(options).await.unwrap();
    let addr = running.listener.addr();
    let read = Kubeconfig::read_from(&kubeconfig).unwrap();
    let choice = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &choice).await.unwrap();
    let outside = from_config(config).unwrap();
    // The operator and the scheduler are in process: they go on during the outage.
    let inside = running.server.client();

    let resources = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
    let node = json!({
        "metadata": {"name": "n1"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let nodes: Api<Node> = Api::all(inside.clone());
    nodes
        .create(
            &PostParams::default(),
            &serde_json::from_value(node).unwrap(),
        )
        .await
        .unwrap();
    let cancel = CancellationToken::new();
    let options = Options {
        speed: 60.0,
        ..Options::default()
    };
    let mut tasks = actors::start(outside, &options, &cancel);
    tasks.spawn(first_fit(inside.clone(), cancel.clone()));

    submit(&inside, "before").await;
    let pods: Api<Pod> = Api::namespaced(inside.clone(), "default");
    eventually("four pods run", || async {
        let pods = pods.list(&ListParams::default()).await.unwrap();
        let running = pods.iter().filter(|pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.phase.as_deref())
                == Some("Running")
        });
        (running.count() == 4).then_some(())
    })
    .await;

    running.listener.stop().await;
    submit(&inside, "during").await;
    // Until the pods of the first Job have run for their two seconds and nobody could be told. Their
    // starts are written in whole seconds, rounded down.
    let all = pods.list(&ListParams::default()).await.unwrap();
    let starts = all
        .iter()
        .filter_map(|pod| pod.status.as_ref()?.start_time.as_ref());
    let last = starts.map(|start| start.0).max().unwrap();
    let end = last + Duration::from_secs(3);
    let left = end.duration_since(jiff::Timestamp::now());
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
    running.server.compact();
    let listener = running.server.listen(addr).await.unwrap();

    let jobs: Api<Job> = Api::namespaced(inside, "default");
    for name in ["before", "during"] {
        eventually(&format!("{name} is complete"), || async {
            let status = jobs.get(name).await.unwrap().status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let complete = conditions
                .iter()
                .any(|condition| condition.type_ == "Complete" && condition.status == "True");
            (complete && status.succeeded == Some(8)).then_some(())
        })
        .await;
    }
    // No pod was made twice.
    assert_eq!(
        pods.list(&ListParams::default()).await.unwrap().items.len(),
        16
    );
    cancel.cancel();
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    drop(listener);
}
