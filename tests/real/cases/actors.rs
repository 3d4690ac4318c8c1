//! `gpudeck sandbox actors` against a server that is not ours: nodes appear, pods run, foreign
//! schedulers admit, and nodes of others are left alone.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use kube::Client;
use serde_json::{Value, json};

use super::fixture::{make_pod, pod, ready_node};
use super::session::items;
use crate::servers::Server;

/// Simulated nodes.
const NODES: usize = 12;

/// The actors as a process; killed when the case fails.
struct Playing(Child);

impl Playing {
    fn start(server: &Server) -> Self {
        let home = server.kubeconfig().parent().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_gpudeck"))
            .env_clear()
            .env("HOME", home)
            .env("LANG", "C.UTF-8")
            .arg("--kubeconfig")
            .arg(server.kubeconfig())
            .args(["sandbox", "actors", "--controllers", "--speed", "60"])
            .args(["--nodes", &NODES.to_string()])
            .args([
                "--with",
                "training,network,prices,kueue,volcano,kai,default-scheduler",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let last = lines.find(|line| line.as_ref().unwrap().contains("playing"));
        let playing = Self(child);
        assert!(last.is_some(), "the actors ended before they played");
        playing
    }

    /// Asks it to end, as Ctrl-C does, and says how it did.
    fn stop(mut self) -> Option<i32> {
        let pid = self.0.id().to_string();
        let asked = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(asked.success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        // Already ended, or the case has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) async fn a_world_is_played(server: &Server) {
    let client = server.admin().await;
    ready_node(&client, "bystander", 8).await;
    let playing = Playing::start(server);

    let ready = |node: &Value| {
        let conditions = node["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let ready = conditions
            .iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True");
        let taints = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let new = |taint: &Value| taint["key"] == "node.kubernetes.io/not-ready";
        ready && !taints.iter().any(new)
    };
    let nodes = super::eventually("the fleet is ready, labelled and priced", async || {
        let nodes = items(&client, "/api/v1/nodes").await;
        let ours = nodes
            .iter()
            .filter(|node| node["metadata"]["name"] != "bystander");
        let all = ours.clone().count() == NODES && ours.clone().all(&ready);
        let gpu = |node: &&Value| node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true";
        let place = "sandbox.gpudeck.dev/network-place";
        let price = "sandbox.gpudeck.dev/usd-per-gpu-hour";
        let told = ours.filter(gpu).all(|node| {
            let annotations = &node["metadata"]["annotations"];
            annotations[place].is_string() && annotations[price].is_string()
        });
        (all && told).then_some(nodes)
    })
    .await;
    let bystander = nodes
        .iter()
        .find(|node| node["metadata"]["name"] == "bystander")
        .unwrap();
    assert!(
        bystander["metadata"]["annotations"].is_null(),
        "{bystander}"
    );

    make_pod(&client, "team-a", pod("grouped", "volcano", "1")).await;
    make_pod(&client, "team-a", pod("fair", "kai-scheduler", "1")).await;
    create(
        &client,
        "/apis/batch/v1/namespaces/team-a/jobs",
        queued_job(),
    )
    .await;
    for name in ["grouped", "fair"] {
        let pod = super::eventually(&format!("{name} runs"), async || {
            let pods = items(&client, "/api/v1/namespaces/team-a/pods").await;
            let mut found = pods.into_iter();
            found.find(|pod| pod["metadata"]["name"] == name && pod["status"]["phase"] == "Running")
        })
        .await;
        assert_ne!(pod["spec"]["nodeName"], "bystander");
    }
    let workload = super::eventually("the queued Job has been admitted and is done", async || {
        let at = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads";
        let all = items(&client, at).await;
        let finished = |workload: &Value| {
            let conditions = workload["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|c| c["type"] == "Finished" && c["reason"] == "Succeeded")
        };
        all.into_iter().find(finished)
    })
    .await;
    assert_eq!(
        workload["status"]["admission"]["podSetAssignments"][0]["flavors"]["nvidia.com/gpu"],
        "reserved"
    );
    for at in [
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/team-a/podgroups",
        "/apis/scheduling.run.ai/v2alpha2/namespaces/team-a/podgroups",
    ] {
        assert_eq!(items(&client, at).await.len(), 1, "{at}");
    }
    assert_eq!(playing.stop(), Some(0));
}

/// Two pods of two GPUs that train for a minute, in the queue of their team.
fn queued_job() -> Value {
    let asks = json!({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"});
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "queued", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "suspend": true,
            "parallelism": 2, "completions": 2, "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": {
                    "sandbox.gpudeck.dev/train-secs": "60",
                    "gpudeck.dev/checkpoint-interval": "20s",
                    "sandbox.gpudeck.dev/checkpoint-secs": "5",
                }},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main", "image": "train",
                        "resources": {"requests": asks, "limits": asks},
                    }],
                },
            },
        },
    })
}

async fn create(client: &Client, path: &str, object: Value) {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&object).unwrap())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
}
