//! Training pods that save, lose and resume.

use std::time::Duration;

use gpudeck::sandbox::actors::Options;
use gpudeck::sandbox::actors::world::Settings as World;
use gpudeck::sandbox::actors::world::failures;
use gpudeck::sandbox::actors::world::pick::NodePick;
use gpudeck::sandbox::actors::world::training::Settings;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually_within, first_fit_at_leisure};

const LONG: Duration = Duration::from_secs(7_200);

async fn training(annotations: &Value, pods: u32) -> Cluster {
    training_with(World::default(), annotations, pods).await
}

async fn training_with(world: World, annotations: &Value, pods: u32) -> Cluster {
    let mut cluster = Cluster::with(&Options {
        world: World {
            training: Some(Settings),
            ..world
        },
        ..Options::default()
    });
    cluster.node("n1", 8).await;
    cluster.spawn(first_fit_at_leisure);
    let asks = json!({"nvidia.com/gpu": "2"});
    let _: Job = cluster
        .create(
            "default",
            json!({
                "metadata": {"name": "llm"},
                "spec": {
                    "parallelism": pods, "completions": pods, "completionMode": "Indexed",
                    "template": {
                        "metadata": {"annotations": annotations},
                        "spec": {
                            "schedulerName": "gpudeck",
                            "restartPolicy": "Never",
                            "containers": [{
                                "name": "main", "image": "train",
                                "resources": {"requests": asks, "limits": asks},
                            }],
                        },
                    },
                },
            }),
        )
        .await;
    cluster
}

fn written(job: &Job, key: &str) -> Option<String> {
    let key = format!("gpudeck.dev/{key}");
    job.metadata.annotations.as_ref()?.get(&key).cloned()
}

fn last(job: &Job) -> Option<Value> {
    serde_json::from_str(&written(job, "checkpoint-last")?).ok()
}

async fn until(cluster: &Cluster, what: &str, check: impl Fn(&Job) -> bool) -> Job {
    let api: Api<Job> = cluster.api("default");
    eventually_within(LONG, what, || async {
        api.get_opt("llm").await.unwrap().filter(&check)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_gang_saves_loses_its_rest_and_resumes() {
    let annotations = json!({
        "sandbox.gpudeck.dev/train-secs": "900",
        "sandbox.gpudeck.dev/step-secs": "2",
        "sandbox.gpudeck.dev/checkpoint-secs": "10",
        "gpudeck.dev/checkpoint-interval": "5m",
    });
    let cluster = training(&annotations, 2).await;
    let job = until(&cluster, "the first checkpoint", |job| last(job).is_some()).await;
    let first = last(&job).unwrap();
    let step = first["step"].as_u64().unwrap();
    assert!((134..=165).contains(&step), "{first}");
    assert_eq!(
        first["location"],
        format!("s3://checkpoints/default/llm/step-{step}")
    );
    assert_eq!(
        written(&job, "checkpoint-state").as_deref(),
        Some("Durable")
    );

    // The first pod shows it too.
    let pods: Api<Pod> = cluster.api("default");
    let all = || async { pods.list(&ListParams::default()).await.unwrap().items };
    let mut names: Vec<String> = all()
        .await
        .into_iter()
        .map(|p| p.metadata.name.unwrap())
        .collect();
    names.sort();
    let shown = pods
        .get(&names[0])
        .await
        .unwrap()
        .metadata
        .annotations
        .unwrap();
    assert_eq!(shown["gpudeck.dev/checkpoint-last"], first.to_string());

    // Half a minute later one pod is lost; the other waits.
    tokio::time::sleep(Duration::from_secs(30)).await;
    pods.delete(&names[1], &DeleteParams::default())
        .await
        .unwrap();
    let job = until(&cluster, "a restart", |job| {
        written(job, "restarts").as_deref() == Some("1")
    })
    .await;
    let lost: f64 = written(&job, "lost-gpu-seconds").unwrap().parse().unwrap();
    // 30 s on 4 GPUs, and the moment of its grace.
    assert!((100.0..=160.0).contains(&lost), "{lost}");
    eventually_within(LONG, "it resumes from there", || async {
        let resumed = all().await.into_iter().find_map(|pod| {
            pod.metadata
                .annotations?
                .get("gpudeck.dev/resumed-from-step")
                .cloned()
        });
        resumed.filter(|from| *from == step.to_string())
    })
    .await;
    let job = until(&cluster, "it is done", |job| {
        job.status
            .as_ref()
            .is_some_and(|status| status.succeeded == Some(2))
    })
    .await;
    assert!(last(&job).unwrap()["step"].as_u64().unwrap() > step);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_is_acknowledged_saved_and_named() {
    let annotations = json!({
        "sandbox.gpudeck.dev/train-secs": "3000",
        "sandbox.gpudeck.dev/checkpoint-secs": "20",
    });
    let cluster = training(&annotations, 1).await;
    let api: Api<Job> = cluster.api("default");
    let request = json!({"id": "drain-7", "reason": "drain"}).to_string();
    let patch = json!({"metadata": {"annotations": {"gpudeck.dev/checkpoint-request": request}}});
    api.patch("llm", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    until(&cluster, "it saves", |job| {
        written(job, "checkpoint-state").as_deref() == Some("Saving")
    })
    .await;
    let job = until(&cluster, "it is durable", |job| last(job).is_some()).await;
    assert_eq!(last(&job).unwrap()["request"], "drain-7");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn saves_that_fail_are_counted_and_leave_nothing() {
    let annotations = json!({
        "sandbox.gpudeck.dev/train-secs": "3000",
        "sandbox.gpudeck.dev/checkpoint-failure-rate": "1",
        "gpudeck.dev/checkpoint-interval": "300",
    });
    let cluster = training(&annotations, 1).await;
    let job = until(&cluster, "two failures", |job| {
        written(job, "checkpoint-failures").as_deref() == Some("2")
    })
    .await;
    assert_eq!(last(&job), None);
    assert_eq!(written(&job, "checkpoint-state").as_deref(), Some("Failed"));
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_works_on_a_machine_that_is_lost() {
    let world = World {
        failures: Some(failures::Settings {
            failures: vec![failures::Failure {
                at_secs: 100.0,
                nodes: NodePick::default(),
                loss: failures::Loss::Silent,
                down_secs: Some(60.0),
            }],
            chance: None,
        }),
        ..World::default()
    };
    let annotations = json!({"sandbox.gpudeck.dev/train-secs": "300"});
    let cluster = training_with(world, &annotations, 1).await;
    let began = tokio::time::Instant::now();
    let job = until(&cluster, "a restart", |job| {
        written(job, "restarts").as_deref() == Some("1")
    })
    .await;
    let lost: f64 = written(&job, "lost-gpu-seconds").unwrap().parse().unwrap();
    assert!((180.0..=200.0).contains(&lost), "{lost}");
    until(&cluster, "it is done", |job| {
        job.status
            .as_ref()
            .is_some_and(|status| status.succeeded == Some(1))
    })
    .await;
    // 100 s for nothing, a minute away, and all of it again.
    let took = began.elapsed().as_secs();
    assert!((455..=480).contains(&took), "{took} s");
    cluster.stop().await;
}

#[tokio::test]
async fn the_log_tells_the_checkpoint() {
    let client = crate::cluster::server().client();
    let ago =
        |secs: i64| (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(secs)).to_string();
    let last = json!({
        "id": 1, "step": 450, "durable_at": ago(40), "location": "s3://checkpoints/default/llm",
    });
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "annotations": {
            "gpudeck.dev/checkpoint-last": last.to_string(),
            "gpudeck.dev/resumed-from-step": "300",
        }},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "train"}]},
    }))
    .unwrap();
    pods.create(&Default::default(), &pod).await.unwrap();
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": "main", "image": "train", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {"startedAt": ago(90)}},
    }]}});
    pods.patch_status("p", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let log = pods.logs("p", &Default::default()).await.unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "resumed from checkpoint step=300");
    let told = "checkpoint durable step=450 location=s3://checkpoints/default/llm";
    assert_eq!(
        lines.iter().filter(|line| **line == told).count(),
        1,
        "{log}"
    );
    let tail = kube::api::LogParams {
        tail_lines: Some(3),
        ..Default::default()
    };
    assert_eq!(pods.logs("p", &tail).await.unwrap().lines().count(), 3);
}
