//! The kubeconfigs of users with less than everything.

use std::path::Path;

use gpudeck::sandbox::listen::{self, RunOptions};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::{pod, send};

async fn client_of(path: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    gpudeck::cluster::client::from_config(config).unwrap()
}

#[tokio::test]
async fn each_may_do_what_it_is_for_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let main = dir.path().join("kubeconfig");
    let running = listen::run(RunOptions::default()).await.unwrap();
    let admin = running.server.client();
    let team = json!({"metadata": {"name": "team-a"}});
    assert_eq!(
        send(&admin, "POST", "/api/v1/namespaces", team).await.0,
        201
    );
    let addr = running.listener.addr();
    let written = running.server.write_people(&main, addr).unwrap();
    assert_eq!(written.len(), 3);

    let (own, other) = (
        "/api/v1/namespaces/team-a/pods",
        "/api/v1/namespaces/default/pods",
    );
    let (nodes, secrets) = ("/api/v1/nodes", "/api/v1/namespaces/team-a/secrets");
    for (user, path, method, wanted) in [
        ("operator", nodes, "GET", 200),
        ("operator", other, "POST", 201),
        ("team-lead", own, "POST", 201),
        ("team-lead", other, "GET", 403),
        ("team-lead", nodes, "GET", 403),
        ("viewer", own, "GET", 200),
        ("viewer", nodes, "GET", 200),
        ("viewer", secrets, "GET", 403),
        ("viewer", own, "POST", 403),
    ] {
        let file = dir.path().join(format!("kubeconfig.{user}"));
        let client = client_of(&file).await;
        let body = if method == "POST" {
            pod("p")
        } else {
            Value::Null
        };
        let (code, answer) = send(&client, method, path, body).await;
        assert_eq!(code, wanted, "{user} {method} {path}: {answer}");
    }
}
