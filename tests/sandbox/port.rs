use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gpudeck::sandbox::listen::{self, RunOptions};
use gpudeck::sandbox::{CONTEXT, User};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::*;

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn client_of(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options)
        .await
        .unwrap();
    gpudeck::cluster::client::from_config(config).unwrap()
}

#[tokio::test]
async fn the_kubeconfig_leads_to_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let options = RunOptions {
        kubeconfig: Some(path.clone()),
        ..RunOptions::default()
    };
    let running = listen::run(options).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        Kubeconfig::read_from(&path)
            .unwrap()
            .current_context
            .as_deref(),
        Some(CONTEXT)
    );
    let client = client_of(&path).await;
    create::<ConfigMap>(&client, config_map("a")).await;
    let (_, seen) = send(
        &running.server.client(),
        "GET",
        "/api/v1/namespaces/default/configmaps/a",
        Value::Null,
    )
    .await;
    assert_eq!(name_of(&seen), "a");
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        1,
        "no temporary file stays"
    );
}

#[tokio::test]
async fn tokens_decide_who_asks() {
    let directory = tempfile::tempdir().unwrap();
    let server = server();
    let listener = server.listen(any_port()).await.unwrap();
    server.register_token("ann-token", User::new("ann", &[]));
    for (token, wanted, message) in [
        ("ann-token", 403, "User \\\"ann\\\" cannot list"),
        ("wrong", 401, "Unauthorized"),
    ] {
        let path = directory.path().join(token);
        server
            .write_kubeconfig_for(&path, listener.addr(), "someone", token)
            .unwrap();
        let (code, status) =
            send(&client_of(&path).await, "GET", "/api/v1/nodes", Value::Null).await;
        assert_eq!(code, wanted);
        assert!(status.to_string().contains(message), "{status}");
    }
}

#[tokio::test]
async fn a_stopped_port_drops_its_watches_and_comes_back_with_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let server = server();
    let listener = server.listen(any_port()).await.unwrap();
    let addr = listener.addr();
    server.write_kubeconfig(&path, addr).unwrap();
    let client = client_of(&path).await;
    create::<ConfigMap>(&client, config_map("a")).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let rv = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let mut events = std::pin::pin!(api.watch(&WatchParams::default(), &rv).await.unwrap());
    listener.stop().await;
    let broken = tokio::time::timeout(DEADLINE, futures::StreamExt::next(&mut events))
        .await
        .unwrap();
    assert!(!matches!(broken, Some(Ok(_))), "{broken:?}");
    assert!(api.list(&ListParams::default()).await.is_err());
    // The store lives on: in process it still answers.
    create::<ConfigMap>(&server.client(), config_map("b")).await;
    let again = server.listen(addr).await.unwrap();
    assert_eq!(again.addr(), addr);
    let mut events = std::pin::pin!(api.watch(&WatchParams::default(), &rv).await.unwrap());
    let event = tokio::time::timeout(DEADLINE, futures::StreamExt::next(&mut events))
        .await
        .unwrap();
    assert!(
        matches!(event, Some(Ok(kube::api::WatchEvent::Added(map))) if map.metadata.name.as_deref() == Some("b"))
    );
}

#[tokio::test]
async fn other_machines_and_taken_ports_are_refused_in_one_sentence() {
    let server = server();
    let open = server
        .listen("0.0.0.0:0".parse().unwrap())
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        open,
        "cannot listen on 0.0.0.0:0: the embedded cluster serves loopback only, as 127.0.0.1:0"
    );
    let listener = server.listen(any_port()).await.unwrap();
    let taken = server
        .listen(listener.addr())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        taken.starts_with(&format!("cannot listen on {}", listener.addr())),
        "{taken}"
    );
    assert!(
        taken.contains("choose another port") && !taken.contains('\n'),
        "{taken}"
    );
}
