//! The embedded cluster, driven from outside through `kube::Client`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]
#![allow(missing_docs)]

mod access;
mod budgets;
mod http;
mod objects;
mod owners;
mod pages;
mod people;
mod pods;
mod port;
mod ports;
mod watching;

use std::time::Duration;

use gpudeck::sandbox::{ApiServer, Options};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// Nothing in these tests takes longer unless it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

fn server() -> ApiServer {
    ApiServer::new(Options::default()).unwrap()
}

/// Sends a request and gives status and body, whatever they are.
async fn send(client: &Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let content_type = "application/json";
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    send_as(client, method, path, content_type, body).await
}

async fn send_as(
    client: &Client,
    method: &str,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> (u16, Value) {
    let request = ::http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(kube::client::Body::from(body))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap()
        .to_bytes();
    let value = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    (code, value)
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "train"}},
        "spec": {"containers": [{"name": "main", "image": "trainer:1",
            "resources": {"limits": {"nvidia.com/gpu": 8}}}]},
    })
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
           "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

async fn create<K>(client: &Client, object: Value) -> K
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
    K::DynamicType: Default,
{
    let api: Api<K> = Api::namespaced(client.clone(), "default");
    api.create(
        &PostParams::default(),
        &serde_json::from_value(object).unwrap(),
    )
    .await
    .unwrap()
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}
