//! `gpudeck sandbox fault` on a running sandbox, and what its clients feel on the port.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::StreamExt;
use gpudeck::cluster::client::from_config;
use gpudeck::sandbox::listen::{RunOptions, Running, run};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);

async fn sandbox(kubeconfig: &Path) -> Running {
    let options = RunOptions {
        kubeconfig: Some(kubeconfig.to_owned()),
        ..RunOptions::default()
    };
    run(options).await.unwrap()
}

async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options)
        .await
        .unwrap();
    from_config(config).unwrap()
}

/// Exit code and everything that is said.
async fn fault(kubeconfig: &Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpudeck"));
    command
        .args(["sandbox", "fault"])
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .env_clear()
        .env("HOME", kubeconfig.parent().unwrap());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

fn nodes() -> http::Request<Vec<u8>> {
    http::Request::get("/api/v1/nodes")
        .body(Vec::new())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_are_asked_for_listed_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let running = sandbox(&kubeconfig).await;
    let told = fault(&kubeconfig, &["list"]).await;
    assert_eq!(told, (0, "no fault is in force\n".into()));
    let args = [
        "too-many-requests",
        "--retry-after",
        "7s",
        "--resources",
        "nodes",
    ];
    let told = fault(&kubeconfig, &args).await;
    assert_eq!(told, (0, "fault 1 is in force: too-many-requests\n".into()));

    let client = client(&kubeconfig).await;
    let request = http::Request::get("/api/v1/nodes").body(Vec::new().into());
    let answer = client.send(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "7");
    let pods = http::Request::get("/api/v1/pods").body(Vec::new()).unwrap();
    client.request::<Value>(pods).await.unwrap();

    let told = fault(&kubeconfig, &["list"]).await;
    assert_eq!(told.1, "1  too-many-requests  until it is cleared\n");
    assert_eq!(fault(&kubeconfig, &["clear"]).await.1, "1 faults ended\n");
    client.request::<Value>(nodes()).await.unwrap();
    running.listener.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_breaks_connections_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let running = sandbox(&kubeconfig).await;
    let client = client(&kubeconfig).await;
    let watch = http::Request::get("/api/v1/nodes?watch=true&resourceVersion=1");
    let lines = client
        .send(watch.body(Vec::new().into()).unwrap())
        .await
        .unwrap();
    let mut lines = http_body_util::BodyStream::new(lines.into_body());
    let told = fault(&kubeconfig, &["restart", "--for", "500ms"]).await;
    assert_eq!(told, (0, "fault 1 is in force: restart\n".into()));
    // The stream breaks, it does not end.
    let broken = async {
        loop {
            match lines.next().await {
                Some(Ok(_)) => {}
                Some(Err(_)) => return true,
                None => return false,
            }
        }
    };
    assert!(tokio::time::timeout(DEADLINE, broken).await.unwrap());
    let back = async {
        while client.request::<Value>(nodes()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, back).await.unwrap();
    running.listener.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_or_is_not_allowed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let running = sandbox(&kubeconfig).await;
    let told = fault(&kubeconfig, &["restart", "--delay", "3s"]).await;
    assert_eq!(told.0, 1);
    assert_eq!(
        told.1,
        "gpudeck: delay: is no key of restart; allowed: for, keep-history\n"
    );
    let people = running
        .server
        .write_people(&kubeconfig, running.listener.addr())
        .unwrap();
    let viewer = people.iter().find(|p| p.ends_with("kubeconfig.viewer"));
    let told = fault(viewer.unwrap(), &["gone"]).await;
    assert_eq!(told.0, 1);
    assert!(told.1.contains("only the administrator"), "{}", told.1);
    assert!(running.server.faults().is_empty());
    running.listener.stop().await;
}
