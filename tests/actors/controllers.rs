//! Jobs and Deployments through to their end.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, first_fit};

fn template(run_secs: &str, exit_code: &str) -> Value {
    json!({
        "metadata": {
            "labels": {"team": "a"},
            "annotations": {
                "sandbox.gpudeck.dev/run-secs": run_secs,
                "sandbox.gpudeck.dev/exit-code": exit_code,
            },
        },
        "spec": {
            "schedulerName": "gpudeck",
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": "train",
                "resources": {
                    "requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"},
                },
            }],
        },
    })
}

fn is_true(job: &Job, kind: &str) -> bool {
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone());
    let mut conditions = conditions.unwrap_or_default().into_iter();
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

async fn started() -> Cluster {
    let mut cluster = Cluster::start();
    cluster.node("n1", 8).await;
    cluster.spawn(first_fit);
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_indexed_job_runs_to_complete() {
    let cluster = started().await;
    let job: Job = cluster
        .create(
            "default",
            json!({
                "metadata": {"name": "gang"},
                "spec": {
                    "parallelism": 2, "completions": 4, "completionMode": "Indexed",
                    "template": template("20", "0"),
                },
            }),
        )
        .await;
    let jobs: Api<Job> = cluster.api("default");
    let done = eventually("gang is complete", || async {
        jobs.get("gang")
            .await
            .ok()
            .filter(|job| is_true(job, "Complete"))
    })
    .await;
    assert!(is_true(&done, "SuccessCriteriaMet"));
    let status = done.status.unwrap();
    assert_eq!((status.succeeded, status.failed.unwrap_or(0)), (Some(4), 0));
    assert_eq!(status.completed_indexes.as_deref(), Some("0-3"));
    assert!(status.start_time.is_some() && status.completion_time.is_some());
    let uid = job.metadata.uid.unwrap();
    let mut indexes = Vec::new();
    for pod in cluster.pods("default").await {
        let labels = pod.metadata.labels.unwrap();
        assert_eq!(labels["batch.kubernetes.io/job-name"], "gang");
        assert_eq!(labels["job-name"], "gang");
        assert_eq!(labels["batch.kubernetes.io/controller-uid"], uid);
        assert_eq!(labels["controller-uid"], uid);
        assert_eq!(labels["team"], "a");
        let owner = &pod.metadata.owner_references.unwrap()[0];
        assert_eq!(
            (owner.kind.as_str(), &owner.uid, owner.controller),
            ("Job", &uid, Some(true))
        );
        let annotations = pod.metadata.annotations.unwrap();
        let index = annotations["batch.kubernetes.io/job-completion-index"].clone();
        assert_eq!(labels["batch.kubernetes.io/job-completion-index"], index);
        assert_eq!(pod.spec.unwrap().hostname, Some(format!("gang-{index}")));
        indexes.push(index);
    }
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2", "3"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_fails_too_often_ends_failed() {
    let cluster = started().await;
    let spec = json!({"backoffLimit": 1, "template": template("1", "1")});
    let _: Job = cluster
        .create(
            "default",
            json!({"metadata": {"name": "bad"}, "spec": spec}),
        )
        .await;
    let jobs: Api<Job> = cluster.api("default");
    let done = eventually("bad has failed", || async {
        jobs.get("bad")
            .await
            .ok()
            .filter(|job| is_true(job, "Failed"))
    })
    .await;
    assert_eq!(done.status.unwrap().failed, Some(2));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspending_a_job_takes_its_pods_and_resuming_brings_them_back() {
    let cluster = started().await;
    let spec = json!({
        "suspend": true, "parallelism": 3, "completions": 3, "template": template("36000", "0"),
    });
    let _: Job = cluster
        .create(
            "default",
            json!({"metadata": {"name": "held"}, "spec": spec}),
        )
        .await;
    let jobs: Api<Job> = cluster.api("default");
    eventually("held is suspended", || async {
        jobs.get("held")
            .await
            .ok()
            .filter(|job| is_true(job, "Suspended"))
    })
    .await;
    assert!(cluster.pods("default").await.is_empty());

    let suspend = |on: bool| Patch::Merge(json!({"spec": {"suspend": on}}));
    jobs.patch("held", &PatchParams::default(), &suspend(false))
        .await
        .unwrap();
    eventually("three pods are ready", || async {
        let status = jobs.get("held").await.unwrap().status.unwrap_or_default();
        (status.ready == Some(3) && status.start_time.is_some()).then_some(())
    })
    .await;
    jobs.patch("held", &PatchParams::default(), &suspend(true))
        .await
        .unwrap();
    eventually("no pods are left", || async {
        cluster.pods("default").await.is_empty().then_some(())
    })
    .await;
    let status = eventually("the status says so", || async {
        let job = jobs.get("held").await.unwrap();
        is_true(&job, "Suspended").then_some(job.status?)
    })
    .await;
    assert_eq!(status.failed.unwrap_or(0), 0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_job_takes_its_pods_along() {
    let cluster = started().await;
    let spec = json!({"parallelism": 2, "completions": 2, "template": template("36000", "0")});
    let _: Job = cluster
        .create(
            "default",
            json!({"metadata": {"name": "gone"}, "spec": spec}),
        )
        .await;
    let jobs: Api<Job> = cluster.api("default");
    eventually("two pods run", || async {
        let status = jobs.get("gone").await.unwrap().status.unwrap_or_default();
        (status.ready == Some(2)).then_some(())
    })
    .await;
    jobs.delete("gone", &DeleteParams::background())
        .await
        .unwrap();
    eventually("no pods are left", || async {
        cluster.pods("default").await.is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_job_is_deleted_after_its_time() {
    let cluster = started().await;
    let spec = json!({"ttlSecondsAfterFinished": 60, "template": template("1", "0")});
    let _: Job = cluster
        .create(
            "default",
            json!({"metadata": {"name": "brief"}, "spec": spec}),
        )
        .await;
    let jobs: Api<Job> = cluster.api("default");
    eventually("brief is gone", || async {
        jobs.get_opt("brief").await.unwrap().is_none().then_some(())
    })
    .await;
    eventually("its pod, too", || async {
        cluster.pods("default").await.is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_scales_rolls_and_goes() {
    let cluster = started().await;
    let labelled = |image: &str| {
        json!({
            "metadata": {"labels": {"app": "chat"}},
            "spec": {
                "schedulerName": "gpudeck",
                "containers": [{"name": "main", "image": image}],
            },
        })
    };
    let _: Deployment = cluster
        .create(
            "default",
            json!({
                "metadata": {"name": "chat"},
                "spec": {
                    "replicas": 3,
                    "selector": {"matchLabels": {"app": "chat"}},
                    "template": labelled("v1"),
                },
            }),
        )
        .await;
    let deployments: Api<Deployment> = cluster.api("default");
    let ready = |wanted: i32| {
        let deployments = deployments.clone();
        async move {
            eventually(&format!("{wanted} replicas are ready"), || async {
                let status = deployments
                    .get("chat")
                    .await
                    .unwrap()
                    .status
                    .unwrap_or_default();
                (status.ready_replicas.unwrap_or(0) == wanted
                    && status.replicas.unwrap_or(0) == wanted)
                    .then_some(())
            })
            .await;
        }
    };
    ready(3).await;
    let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
    deployments
        .patch("chat", &PatchParams::default(), &scale)
        .await
        .unwrap();
    ready(1).await;

    let image = Patch::Merge(json!({"spec": {"template": labelled("v2")}}));
    deployments
        .patch("chat", &PatchParams::default(), &image)
        .await
        .unwrap();
    eventually("the one pod runs v2", || async {
        let pods: Vec<Pod> = cluster.pods("default").await;
        let images = pods
            .iter()
            .map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone());
        (images.collect::<Vec<_>>() == [Some("v2".to_owned())]).then_some(())
    })
    .await;
    ready(1).await;

    deployments
        .delete("chat", &DeleteParams::background())
        .await
        .unwrap();
    let sets: Api<ReplicaSet> = cluster.api("default");
    eventually("nothing is left", || async {
        let sets = sets.list(&ListParams::default()).await.unwrap().items;
        (sets.is_empty() && cluster.pods("default").await.is_empty()).then_some(())
    })
    .await;
    cluster.stop().await;
}
