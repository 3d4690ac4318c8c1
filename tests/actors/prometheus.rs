//! A real Prometheus scrapes the exporters of the embedded cluster, through the API server's
//! `pods/proxy`, and tells the console what they told it. CONTRIBUTING.md says how to run it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gpudeck::cluster::client::install_crypto;
use gpudeck::model::{GpuReading, NodeTelemetry};
use gpudeck::telemetry::prometheus::Nodes;
use gpudeck::telemetry::{Prometheus, PrometheusSettings, page};
use jiff::Timestamp;
use serde_json::json;
use tempfile::TempDir;

use crate::cluster::eventually;
use crate::gpu_world::World;

const NODES: [&str; 2] = ["n1", "n2"];

/// A Prometheus that ends with the test.
struct Running {
    child: Child,
    url: String,
    _dir: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn binary() -> PathBuf {
    let path = std::env::var_os("GPUDECK_PROMETHEUS");
    PathBuf::from(path.expect("GPUDECK_PROMETHEUS names a Prometheus; .ci/run fetches one"))
}

/// Starts it on a free port, to scrape these pages of the API server with this token.
fn start(api: &str, token: &str, pages: &[(String, String)]) -> Running {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let targets: Vec<String> = pages
        .iter()
        .map(|(pod, path)| {
            // Labels as a scrape of pods has them: what the exporter calls `pod` becomes `exported_pod`.
            format!(
                "      - targets: ['{api}']\n        labels: {{__metrics_path__: '{path}', namespace: gpu-operator, pod: '{pod}', container: exporter}}\n"
            )
        })
        .collect();
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: dcgm\n    \
         scheme: https\n    tls_config: {{insecure_skip_verify: true}}\n    \
         authorization: {{credentials: '{token}'}}\n    static_configs:\n{}",
        targets.concat()
    );
    let file = dir.path().join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let child = Command::new(binary())
        .arg(flag("config.file", &file))
        .arg(flag("storage.tsdb.path", &dir.path().join("data")))
        .arg(format!("--web.listen-address={address}"))
        .arg("--log.level=warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    Running {
        child,
        url: format!("http://{address}"),
        _dir: dir,
    }
}

/// What of a GPU does not change from one scrape to the next.
fn lasting(gpu: &GpuReading) -> String {
    let m = &gpu.measured;
    format!(
        "{} {} {:?} total {:?} power {} heat {} busy {} instances {:?}",
        gpu.index,
        gpu.uuid,
        gpu.holders,
        m.memory_total_mib,
        gpu.power_watts.is_some(),
        gpu.temperature_c.is_some(),
        m.activity.is_some(),
        gpu.instances
            .iter()
            .map(|i| (i.gi, &i.holder))
            .collect::<Vec<_>>()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_tells_what_the_exporters_tell() {
    install_crypto();
    let world = World::start(|_| ());
    for node in NODES {
        world
            .node(node, "NVIDIA-H100-80GB-HBM3", 8, json!({}))
            .await;
    }
    world.pod("a", "n1", "nvidia.com/gpu", 3).await;
    world.until_phase("a", "Running").await;
    let client = world.server.client();
    let exporters = "/api/v1/namespaces/gpu-operator/pods?labelSelector=app%3Dnvidia-dcgm-exporter";
    let get = async |path: &str| -> Option<String> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request_text(request).await.ok()
    };
    let pages = eventually("both exporters answer", || async {
        let list: serde_json::Value = serde_json::from_str(&get(exporters).await?).ok()?;
        let mut pages = Vec::new();
        for pod in list["items"].as_array()? {
            let name = pod["metadata"]["name"].as_str()?.to_owned();
            let path = format!("/api/v1/namespaces/gpu-operator/pods/{name}:9400/proxy/metrics");
            // The pods that hold devices are told once the exporter has looked at the kubelet.
            let text = get(&path).await?;
            let on_n1 = pod["spec"]["nodeName"] == "n1";
            let told = page(&text).iter().filter(|g| !g.holders.is_empty()).count();
            if told != if on_n1 { 3 } else { 0 } {
                return None;
            }
            pages.push((name, path, text));
        }
        (pages.len() == NODES.len()).then_some(pages)
    })
    .await;
    let listener = world
        .server
        .listen("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let targets: Vec<(String, String)> = pages
        .iter()
        .map(|(n, p, _)| (n.clone(), p.clone()))
        .collect();
    let running = start(
        &listener.addr().to_string(),
        &world.server.admin_token(),
        &targets,
    );
    let prometheus = Prometheus::new(&PrometheusSettings::at(&running.url)).unwrap();
    let nodes = Nodes::new(NODES.map(Into::into));
    let begun = Timestamp::now();
    let told: Vec<NodeTelemetry> = eventually("Prometheus has scraped both", || async {
        let told = prometheus.read(&nodes, Timestamp::now()).await.ok()?;
        // A read asks several times; a scrape may come between.
        let whole = |t: &NodeTelemetry| {
            let gpus = t.gpus.as_deref().unwrap_or_default();
            let known = |g: &GpuReading| {
                let m = &g.measured;
                let memory = m.memory_total_mib.is_some();
                memory
                    && m.activity.is_some()
                    && g.power_watts.is_some()
                    && g.temperature_c.is_some()
            };
            gpus.iter().all(known)
        };
        (told.len() == NODES.len() && told.iter().all(whole)).then_some(told)
    })
    .await;
    for reading in told {
        let gpus = reading.gpus.as_ref().unwrap();
        let of_node = |text: &&(String, String, String)| {
            page(&text.2).first().map(|g| g.uuid.clone()) == gpus.first().map(|g| g.uuid.clone())
        };
        let (_, _, text) = pages
            .iter()
            .find(of_node)
            .expect("an exporter has these GPUs");
        let lines = |gpus: &[GpuReading]| gpus.iter().map(lasting).collect::<Vec<_>>();
        assert_eq!(lines(gpus), lines(&page(text)), "{}", reading.node);
        let age = reading.at.duration_since(begun).as_secs();
        assert!(
            (-5..60).contains(&age),
            "the time of the scrape: {}",
            reading.at
        );
    }
    drop(running);
    listener.stop().await;
    world.cluster.stop().await;
}
