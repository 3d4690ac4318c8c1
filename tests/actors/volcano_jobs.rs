//! Volcano's own Jobs: pods and PodGroup as its controller makes them, policies, and Commands.

use std::time::Duration;

use gpudeck::sandbox::actors::Options;
use gpudeck::sandbox::actors::world::Settings as World;
use gpudeck::sandbox::actors::world::foreign::{Settings, volcano};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually_within};

const LONG: Duration = Duration::from_secs(3_600);
const JOB: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/sft";

async fn get(cluster: &Cluster, path: &str) -> Option<Value> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    cluster.client.request::<Value>(request).await.ok()
}

async fn post(cluster: &Cluster, path: &str, object: &Value) {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object).unwrap())
        .unwrap();
    cluster.client.request::<Value>(request).await.unwrap();
}

/// The object at `path` once `check` holds.
async fn until(cluster: &Cluster, path: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
    eventually_within(LONG, what, || async {
        get(cluster, path).await.filter(&check)
    })
    .await
}

async fn until_phase(cluster: &Cluster, phase: &str) -> Value {
    until(cluster, JOB, phase, |job| {
        job["status"]["state"]["phase"] == phase
    })
    .await
}

fn task(name: &str, replicas: u32, run_secs: u32, policies: &Value) -> Value {
    let asks = json!({"nvidia.com/gpu": "4"});
    json!({
        "name": name, "replicas": replicas, "policies": policies,
        "template": {
            "metadata": {"annotations": {"sandbox.gpudeck.dev/run-secs": run_secs.to_string()}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": "train",
                    "resources": {"requests": asks, "limits": asks},
                }],
            },
        },
    })
}

async fn command(cluster: &Cluster, name: &str, action: &str, target: &Value) {
    let object = json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
        "metadata": {"name": name, "namespace": "default"},
        "action": action, "target": target,
    });
    let commands = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands";
    post(cluster, commands, &object).await;
    let at = format!("{commands}/{name}");
    eventually_within(LONG, "the command is taken", || async {
        get(cluster, &at).await.is_none().then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_restarts_stops_resumes_and_completes() {
    let cluster = Cluster::with(&Options {
        world: World {
            foreign: Settings {
                volcano: Some(volcano::Settings::default()),
                ..Settings::default()
            },
            ..World::default()
        },
        ..Options::default()
    });
    cluster.node("n1", 8).await;
    cluster.node("n2", 8).await;
    let queue = "/apis/scheduling.volcano.sh/v1beta1/queues/default";
    until(&cluster, queue, "the queue is there", |_| true).await;
    let done = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
    let job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "sft", "namespace": "default"},
        "spec": {
            "schedulerName": "volcano", "queue": "default", "minAvailable": 3, "maxRetry": 3,
            "plugins": {"svc": []},
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "tasks": [task("master", 1, 900, &done), task("worker", 2, 100_000, &json!([]))],
        },
    });
    let jobs = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
    post(&cluster, jobs, &job).await;

    let job = until_phase(&cluster, "Running").await;
    let status = &job["status"];
    assert_eq!(status["running"], 3);
    assert_eq!(
        status["taskStatusCount"],
        json!({"master": {"phase": {"Running": 1}}, "worker": {"phase": {"Running": 2}}})
    );
    assert_eq!(status["controlledResources"], json!({"plugin-svc": "svc"}));
    let said = |job: &Value| {
        let all = job["status"]["conditions"].as_array().unwrap().iter();
        all.map(|c| c["status"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(said(&job), ["Pending", "Running"]);
    let uid = job["metadata"]["uid"].as_str().unwrap();
    let group = format!("sft-{uid}");
    let at = format!("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/{group}");
    let object = until(&cluster, &at, "its group runs", |group| {
        group["status"]["phase"] == "Running"
    })
    .await;
    assert_eq!(object["spec"]["minMember"], 3);
    assert_eq!(
        object["spec"]["minTaskMember"],
        json!({"master": 1, "worker": 2})
    );
    assert_eq!(
        object["spec"]["minResources"],
        json!({"nvidia.com/gpu": "12"})
    );
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], uid);
    let pods: Api<Pod> = cluster.api("default");
    let pod = pods.get("sft-worker-1").await.unwrap();
    let annotations = pod.metadata.annotations.clone().unwrap();
    for (key, value) in [
        ("scheduling.k8s.io/group-name", group.as_str()),
        ("volcano.sh/job-name", "sft"),
        ("volcano.sh/job-version", "0"),
        ("volcano.sh/job-retry-count", "0"),
        ("volcano.sh/queue-name", "default"),
        ("volcano.sh/task-index", "1"),
        ("volcano.sh/task-spec", "worker"),
        ("volcano.sh/template-uid", "sft-worker"),
    ] {
        assert_eq!(annotations[key], value, "{key}");
    }
    let labels = pod.metadata.labels.clone().unwrap();
    assert_eq!(labels["volcano.sh/job-namespace"], "default");
    assert_eq!(
        pod.metadata.owner_references.unwrap()[0].api_version,
        "batch.volcano.sh/v1alpha1"
    );

    // A pod that is taken away restarts all of them.
    pods.delete("sft-worker-1", &DeleteParams::default())
        .await
        .unwrap();
    until_phase(&cluster, "Restarting").await;
    let job = until_phase(&cluster, "Running").await;
    assert_eq!(job["status"]["retryCount"], 1);
    assert_eq!(job["status"]["version"], 1);
    assert_eq!(
        said(&job),
        ["Pending", "Running", "Restarting", "Pending", "Running"]
    );
    let again = pods
        .get("sft-master-0")
        .await
        .unwrap()
        .metadata
        .annotations
        .unwrap();
    assert_eq!(again["volcano.sh/job-version"], "1");

    // Commands stop and resume it.
    let target = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "sft", "uid": uid,
        "controller": true,
    });
    command(&cluster, "sft-abort-x7", "AbortJob", &target).await;
    until_phase(&cluster, "Aborted").await;
    assert_eq!(
        pods.list(&ListParams::default()).await.unwrap().items.len(),
        0
    );
    let events: Api<Event> = cluster.api("default");
    let told = events.list(&ListParams::default()).await.unwrap();
    let told = told.iter().filter_map(|event| event.message.as_deref());
    let words = "Start to execute command AbortJob, and clean it up to make sure executed not more \
                 than once.";
    assert!(told.into_iter().any(|message| message == words));
    command(&cluster, "sft-resume-x8", "ResumeJob", &target).await;
    until_phase(&cluster, "Running").await;

    // The master's end is the Job's.
    let job = until_phase(&cluster, "Completed").await;
    assert_eq!(job["status"]["succeeded"], 1);
    assert!(job["status"]["runningDuration"].is_string());

    // A queue that is closed says so.
    let target = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "default",
    });
    command(&cluster, "close-x9", "CloseQueue", &target).await;
    until(&cluster, queue, "it is closed", |queue| {
        queue["status"]["state"] == "Closed"
    })
    .await;
    cluster.stop().await;
}
