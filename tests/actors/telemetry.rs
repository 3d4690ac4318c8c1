//! What the console learns of the GPUs: from the exporters through `pods/proxy`, and from a
//! Prometheus that has scraped them.

use std::sync::Arc;
use std::time::Duration;

use gpudeck::app::engine::{Engine, Feed, Options};
use gpudeck::app::telemetry::Asked;
use gpudeck::cluster::client::install_crypto;
use gpudeck::cluster::source::ClientSource;
use gpudeck::cluster::watch::Scope;
use gpudeck::model::{Cluster, DeviceSource, FabricRules, GpuCell};
use gpudeck::sandbox::User;
use gpudeck::telemetry::exposition::samples;
use gpudeck::telemetry::prometheus::Nodes;
use gpudeck::telemetry::{Auth, Prometheus, PrometheusSettings, Settings, page};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::gpu_world::World;

const H100: &str = "NVIDIA-H100-80GB-HBM3";

fn engine(client: Client) -> (Engine, Feed) {
    let (_, shown) = watch::channel(Vec::new());
    Engine::start(Options {
        source: ClientSource::fixed(client, "the embedded cluster"),
        scope: Scope::default(),
        scheduling: None,
        telemetry: Some(Asked {
            settings: Settings::Exporters,
            shown,
        }),
        fabric: FabricRules::default(),
    })
}

/// Folds what comes in until `done`.
async fn until(feed: &mut Feed, cluster: &mut Cluster, done: impl Fn(&Cluster) -> bool) {
    let folded = async {
        while !done(cluster) {
            let batch = feed.deltas.recv().await.expect("the engine runs");
            batch.iter().for_each(|delta| cluster.apply(delta));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), folded)
        .await
        .expect("it is told in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exporters_tell_which_devices_a_pod_holds_and_what_they_measure() {
    let world = World::start(|_| ());
    world.node("n1", H100, 8, json!({})).await;
    world.pod("a", "n1", "nvidia.com/gpu", 3).await;
    world.until_phase("a", "Running").await;
    let (engine, mut feed) = engine(world.server.client());
    let mut cluster = Cluster::new();
    until(&mut feed, &mut cluster, |cluster| {
        let devices = cluster.known_devices("n1");
        let held = devices.iter().filter(|d| d.pod.is_some()).count();
        held == 3 && devices.len() == 8
    })
    .await;
    let (node, held) = cluster.node("n1").unwrap();
    let cells = cluster.cells(node, held);
    let holders = cluster.holders("n1", &cells);
    for (cell, holders) in cells.iter().zip(&holders) {
        assert_eq!(*cell == GpuCell::Used, holders.len() == 1, "{holders:?}");
        let told = holders
            .iter()
            .all(|h| h.told_by == Some(DeviceSource::Exporter));
        assert!(told, "{holders:?}");
    }
    let log = cluster.telemetry("n1").unwrap();
    assert!(log.latest.power_watts().is_some_and(|w| w > 8.0 * 50.0));
    assert!(log.latest.activity().is_some());
    engine.stop().await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_use_the_proxy_is_told_which_right_is_missing_and_asks_once() {
    let world = World::start(|_| ());
    world.node("n1", H100, 8, json!({})).await;
    let client = world.server.client();
    for (path, object) in [
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": "reader"}, "rules": [
                {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}]}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({"metadata": {"name": "reader"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]}),
        ),
    ] {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        client.request::<Value>(request).await.unwrap();
    }
    let (engine, mut feed) = engine(world.server.client_for(User::new("reader", &[])));
    let mut cluster = Cluster::new();
    until(&mut feed, &mut cluster, |cluster| {
        cluster.telemetry("n1").is_some()
    })
    .await;
    let why = cluster
        .telemetry("n1")
        .unwrap()
        .latest
        .gpus
        .clone()
        .unwrap_err();
    assert!(why.starts_with("you may not get pods/proxy: "), "{why}");
    engine.stop().await;
    let asked = world.server.audit().into_iter().filter(|entry| {
        let text = format!("{entry:?}");
        text.contains("reader") && text.contains("proxy")
    });
    assert_eq!(asked.count(), 1);
    world.cluster.stop().await;
}

/// A server that answers `/api/v1/query` with those series whose metric the question names, and that
/// wants a token.
async fn prometheus(series: Vec<(String, Value)>, token: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let series = Arc::new(series);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let series = Arc::clone(&series);
            tokio::spawn(async move {
                let mut head = Vec::new();
                let mut piece = [0; 4_096];
                while !head.windows(4).any(|w| w == b"\r\n\r\n") {
                    match stream.read(&mut piece).await {
                        Ok(n) if n > 0 => head.extend_from_slice(&piece[..n]),
                        _ => return,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let allowed = head
                    .to_lowercase()
                    .contains(&format!("authorization: bearer {token}"));
                let stamps = head.contains("timestamp");
                let chosen: Vec<Value> = series
                    .iter()
                    .filter(|(name, _)| head.lines().next().unwrap().contains(name.as_str()))
                    .map(|(_, series)| {
                        let mut series = series.clone();
                        if stamps {
                            series["value"] = json!([1_796_040_000.0, "1796039988"]);
                        }
                        series
                    })
                    .collect();
                let (code, body) = if allowed {
                    let data = json!({"resultType": "vector", "result": chosen});
                    ("200 OK", json!({"status": "success", "data": data}))
                } else {
                    let error = json!({"status": "error", "error": "who are you?"});
                    ("401 Unauthorized", error)
                };
                let body = body.to_string();
                let answer = format!(
                    "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    format!("http://{addr}/")
}

/// An exporter's page as a Prometheus without `honorLabels` has it: its own pod stands in `pod`.
fn scraped(text: &str) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    samples(text, |sample| {
        let mut labels = json!({"__name__": sample.name, "pod": "nvidia-dcgm-exporter-x2",
            "namespace": "gpu-operator", "instance": "10.0.0.7:9400"});
        for (key, value) in &sample.labels {
            let key = match *key {
                "pod" | "namespace" | "container" => format!("exported_{key}"),
                other => other.to_owned(),
            };
            labels[key] = json!(value);
        }
        let series =
            json!({"metric": labels, "value": [1_796_040_000.0, sample.value.to_string()]});
        all.push((sample.name.to_owned(), series));
    });
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prometheus_tells_what_the_exporters_told_it() {
    install_crypto();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/samples/dcgm");
    let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    for page_of in [
        "h100x8-hostname-3.x-pod-mapping.txt",
        "h100x4-hostname-4.9-pod-labels-uid.txt",
        "h100-mig-mixed-no-util.txt",
    ] {
        let text = std::fs::read_to_string(data.join(page_of)).unwrap();
        let url = prometheus(scraped(&text), "sesame").await;
        let settings = PrometheusSettings {
            auth: Auth::Bearer {
                token_file: file.clone(),
            },
            ..PrometheusSettings::at(&url)
        };
        let prometheus = Prometheus::new(&settings).unwrap();
        let names = ["hgx-h14.lab.example", "other.lab.example"];
        let nodes = Nodes::new(names.map(Into::into));
        std::fs::write(&file, "wrong\n").unwrap();
        let refused = prometheus.read(&nodes, now).await.unwrap_err().to_string();
        assert_eq!(
            refused,
            format!("the Prometheus {url} answered 401: who are you?")
        );
        // Files are read anew each time.
        std::fs::write(&file, "sesame\n").unwrap();
        let told = prometheus.read(&nodes, now).await.unwrap();
        let [reading] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert_eq!(&*reading.node, "hgx-h14.lab.example", "by its short name");
        assert_eq!(
            reading.gpus.as_ref().unwrap().to_vec(),
            page(&text),
            "{page_of}"
        );
        assert_eq!(reading.at.as_second(), 1_796_039_988, "when it was scraped");
    }
}

#[test]
fn a_prometheus_that_cannot_be_asked_says_what_is_wrong() {
    install_crypto();
    let wrong = |settings: PrometheusSettings| Prometheus::new(&settings).unwrap_err().to_string();
    assert!(
        wrong(PrometheusSettings::at("no address")).contains("like https://prometheus.example"),
    );
    let missing = PrometheusSettings {
        ca_file: Some("/nowhere/ca.pem".into()),
        ..PrometheusSettings::at("https://p")
    };
    assert!(wrong(missing).contains("/nowhere/ca.pem: "));
}

/// The definition that a person installs, and an object as an agent writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_node_tells_which_slice_a_pod_holds() {
    let world = World::start(|_| ());
    world.node("n1", H100, 8, json!({})).await;
    let client = world.server.client();
    let send = async |method: http::Method, path: &str, kind: &str, body: Value| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body.to_string().into_bytes())
            .unwrap();
        client.request::<Value>(request).await
    };
    let definition = include_str!("../../deploy/crds/gpunode.yaml");
    let definition: Value = serde_saphyr::from_str(definition).unwrap();
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let json = "application/json";
    send(http::Method::POST, crds, json, definition)
        .await
        .unwrap();
    let all = "/apis/gpudeck.dev/v1alpha1/gpunodes";
    let object = json!({"apiVersion": "gpudeck.dev/v1alpha1", "kind": "GpuNode",
        "metadata": {"name": "n1"}});
    while send(http::Method::POST, all, json, object.clone())
        .await
        .is_err()
    {
        tokio::task::yield_now().await;
    }
    let (engine, mut feed) = engine(client.clone());
    let mut cluster = Cluster::new();
    until(&mut feed, &mut cluster, |c| c.gpu_node("n1").is_some()).await;
    let status = json!({"status": {"observedAt": Timestamp::now().to_string(), "devices": [
        {"index": 0}, {"index": 5, "instances": [{"profile": "3g.40gb", "start": 4,
            "pod": {"namespace": "default", "name": "a"}}]}]}});
    let path = format!("{all}/n1/status");
    let merge = "application/merge-patch+json";
    send(http::Method::PATCH, &path, merge, status)
        .await
        .unwrap();
    until(&mut feed, &mut cluster, |c| {
        c.known_devices("n1").iter().any(|d| d.pod.is_some())
    })
    .await;
    let devices = cluster.known_devices("n1");
    let [whole, slice] = &devices[..] else {
        panic!("{devices:?}");
    };
    assert_eq!((whole.gpu, whole.pod.as_ref()), (0, None));
    assert_eq!((slice.gpu, slice.source), (5, DeviceSource::GpuNode));
    let instance = slice.instance.as_ref().unwrap();
    assert_eq!(instance.start, Some(4));
    engine.stop().await;
    world.cluster.stop().await;
}
