//! pods/proxy and pods/log of a pod that runs.

use std::sync::Arc;

use gpudeck::sandbox::PortAnswer;
use serde_json::{Value, json};

use crate::{pod, send, send_as, server};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn running(client: &kube::Client) {
    let mut object = pod("p");
    object["spec"]["nodeName"] = "n".into();
    assert_eq!(send(client, "POST", PODS, object).await.0, 201);
    let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.9", "containerStatuses": [
        {"name": "main", "ready": true, "restartCount": 0, "image": "i", "imageID": "",
         "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}});
    let media = "application/merge-patch+json";
    let path = format!("{PODS}/p/status");
    let body = status.to_string().into_bytes();
    assert_eq!(send_as(client, "PATCH", &path, media, body).await.0, 200);
}

#[tokio::test]
async fn a_registered_port_answers_through_the_proxy_and_another_refuses() {
    let server = server();
    let client = server.client();
    running(&client).await;
    let answer = |path: &str| PortAnswer {
        code: 200,
        content_type: "text/plain",
        body: format!("asked for {path}"),
    };
    server.serve_port("default", "p", 9400, Arc::new(answer));
    let path = format!("{PODS}/p:9400/proxy/metrics");
    let (code, text) = send(&client, "GET", &path, Value::Null).await;
    assert_eq!((code, text.as_str()), (200, Some("asked for /metrics")));
    server.close_port("default", "p", 9400);
    assert_eq!(send(&client, "GET", &path, Value::Null).await.0, 503);
}

#[tokio::test]
async fn a_log_has_its_tail_and_its_times() {
    let client = server().client();
    running(&client).await;
    let path = format!("{PODS}/p/log?tailLines=3&timestamps=true");
    let (code, log) = send(&client, "GET", &path, Value::Null).await;
    let lines: Vec<&str> = log.as_str().unwrap().lines().collect();
    assert_eq!((code, lines.len()), (200, 3));
    assert!(
        lines.iter().all(|line| line.contains(" step=")),
        "{lines:?}"
    );
    let (code, log) = send(
        &client,
        "GET",
        &format!("{PODS}/p/log?limitBytes=5"),
        Value::Null,
    )
    .await;
    assert_eq!((code, log.as_str().unwrap().len()), (200, 5));
}
