//! Devices: which a pod got, as the exporter tells, and what becomes of them.

use gpudeck::sandbox::actors::gpu_config::{LabelGeneration, Sharing};
use serde_json::json;

use crate::cluster::eventually;
use crate::gpu_world::{Row, World, devices_of, rows as rows_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pod_gets_devices_of_its_own_and_the_exporter_tells_which() {
    let world = World::start(|_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 8, json!({}))
        .await;
    let pod = world.pod("a", "n1", "nvidia.com/gpu", 3).await;
    world.until_phase("a", "Running").await;
    world.pod("b", "n1", "nvidia.com/gpu", 5).await;
    world.until_phase("b", "Running").await;
    let rows = world
        .until_rows("n1", "both pods are in the metrics", |rows| {
            !devices_of(rows, "b").is_empty()
        })
        .await;
    let (a, b) = (devices_of(&rows, "a"), devices_of(&rows, "b"));
    assert_eq!((a.len(), b.len()), (3, 5));
    assert!(a.iter().all(|device| !b.contains(device)), "{a:?} {b:?}");
    let row = rows
        .iter()
        .find(|row| row.label("pod") == Some("a"))
        .unwrap();
    for (label, value) in [
        ("hostname", "n1"),
        ("modelName", "NVIDIA H100 80GB HBM3"),
        ("namespace", "default"),
        ("container", "train"),
        ("pod_uid", pod.metadata.uid.as_deref().unwrap()),
    ] {
        assert_eq!(row.label(label), Some(value), "{label}");
    }
    assert_eq!(row.label("Hostname"), None, "one generation of labels");
    // What runs shows, and what is idle too.
    let of = |metric: &'static str| rows.iter().filter(move |row| row.metric == metric);
    for row in of("DCGM_FI_DEV_POWER_USAGE") {
        assert!((60.0..=700.0).contains(&row.value), "{row:?}");
    }
    for row in of("DCGM_FI_PROF_SM_ACTIVE") {
        assert!(row.value > 0.0 && row.value < 1.0, "{row:?}");
    }
    assert_eq!(of("DCGM_FI_DEV_GPU_UTIL").count(), 8);
    // Nothing is left: the next is refused in the kubelet's words.
    world.pod("c", "n1", "nvidia.com/gpu", 1).await;
    let status = world.until_phase("c", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let message = status.message.unwrap();
    assert!(message.contains("Requested: 1, Available: 0"), "{message}");
    // What a pod gives back is given again.
    world.delete("a").await;
    world.pod("d", "n1", "nvidia.com/gpu", 3).await;
    world.until_phase("d", "Running").await;
    let rows = world
        .until_rows("n1", "d is in the metrics", |rows| {
            !devices_of(rows, "d").is_empty()
        })
        .await;
    assert_eq!(devices_of(&rows, "d"), a);
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xid_takes_a_device_away_until_the_plugin_starts_again() {
    let world = World::start(|_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 8, json!({}))
        .await;
    world.pod("a", "n1", "nvidia.com/gpu", 1).await;
    world.until_phase("a", "Running").await;
    let xids = |list: &str| json!({"sandbox.gpudeck.dev/xids": list});
    // An Xid of an application is shown and changes nothing else.
    world.annotate("n1", xids("3:45")).await;
    world
        .until_rows("n1", "the Xid is shown", |rows| last_xid(rows, "3") == 45.0)
        .await;
    // A double-bit error ends the pod on GPU 0; the device is unhealthy: capacity stays.
    world.annotate("n1", xids("3:45,0:48")).await;
    world.until_phase("a", "Failed").await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("8", "7"))
        .await;
    let rows = world
        .until_rows("n1", "the Xid is shown", |rows| last_xid(rows, "0") == 48.0)
        .await;
    let row = rows
        .iter()
        .find(|row| row.metric == "DCGM_FI_DEV_XID_ERRORS" && row.label("gpu") == Some("0"));
    let row = row.unwrap();
    assert_eq!(row.label("err_msg"), Some("Double Bit ECC Error"));
    let counts = rows.iter().filter(|row| row.label("xid").is_some());
    let counts: Vec<_> = counts
        .map(|row| {
            (
                row.label("gpu").unwrap(),
                row.label("xid").unwrap(),
                row.value,
            )
        })
        .collect();
    assert_eq!(counts, [("0", "48", 1.0), ("3", "45", 1.0)]);
    // The sick device is given to nobody.
    world.pod("b", "n1", "nvidia.com/gpu", 8).await;
    let status = world.until_phase("b", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    // A plugin that starts again has forgotten; the exporter has not.
    world.restart("n1", "nvidia-device-plugin-daemonset").await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("8", "8"))
        .await;
    let text = world.scrape("n1").await.unwrap();
    assert_eq!(last_xid(&rows_of(&text), "0"), 48.0);
    // A GPU that has fallen off the bus is not found again.
    world.annotate("n1", xids("3:45,0:48,5:79")).await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("8", "7"))
        .await;
    world.restart("n1", "nvidia-device-plugin-daemonset").await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("7", "7"))
        .await;
    world.cluster.stop().await;
}

fn last_xid(rows: &[Row], gpu: &str) -> f64 {
    let row = rows
        .iter()
        .find(|row| row.metric == "DCGM_FI_DEV_XID_ERRORS" && row.label("gpu") == Some(gpu));
    row.map_or(0.0, |row| row.value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_gpus_are_given_to_the_least_shared_first() {
    let world = World::start(|config| {
        config.plugin.sharing = Sharing {
            fail_above_one: true,
            ..Sharing::NONE
        };
    });
    let labels = json!({
        "nvidia.com/gpu.product": "Tesla-T4-SHARED",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/mig.capable": "false",
    });
    world.node("n1", "Tesla-T4-SHARED", 8, labels).await;
    let mut given = Vec::new();
    for name in ["a", "b", "c"] {
        world.pod(name, "n1", "nvidia.com/gpu", 1).await;
        world.until_phase(name, "Running").await;
    }
    let rows = world
        .until_rows("n1", "pods share GPUs", |rows| {
            !devices_of(rows, "c").is_empty()
        })
        .await;
    for name in ["b", "c"] {
        given.extend(devices_of(&rows, name));
    }
    // The first and the third share a GPU, so the metrics name only the last of them.
    assert_eq!(given.len(), 2);
    assert_ne!(given[0], given[1]);
    assert!(devices_of(&rows, "a").is_empty());
    assert!(
        rows.iter().all(|row| !row.metric.contains("_PROF_")),
        "a T4 has no profiling counters"
    );
    // Two replicas may be one GPU: refused when so configured.
    world.pod("two", "n1", "nvidia.com/gpu", 2).await;
    let status = world.until_phase("two", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let message = status.message.unwrap();
    assert!(
        message.contains("maximum request size for shared resources is 1; found 2"),
        "{message}"
    );
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_without_its_plugin_is_kept_and_then_zero() {
    let world = World::start(|_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 8, json!({}))
        .await;
    world
        .label(
            "n1",
            json!({"nvidia.com/gpu.deploy.device-plugin": "false"}),
        )
        .await;
    // The kubelet waits five minutes for it to come back, in the actors' time.
    world
        .until_amounts("n1", "nvidia.com/gpu", ("8", "0"))
        .await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("0", "0"))
        .await;
    world.pod("a", "n1", "nvidia.com/gpu", 1).await;
    let status = world.until_phase("a", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("OutOfnvidia.com/gpu"));
    world
        .label("n1", json!({"nvidia.com/gpu.deploy.device-plugin": "true"}))
        .await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("8", "8"))
        .await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_generations_of_labels_are_written() {
    let world = World::start(|config| {
        let exporter = config.exporter.as_mut().unwrap();
        exporter.labels = Some(LabelGeneration::Hostname);
    });
    world
        .node("n1", "NVIDIA-A100-SXM4-80GB", 2, json!({}))
        .await;
    world.pod("a", "n1", "nvidia.com/gpu", 2).await;
    world.until_phase("a", "Running").await;
    let rows = world
        .until_rows("n1", "the pod is in the metrics", |rows| {
            !devices_of(rows, "a").is_empty()
        })
        .await;
    for row in &rows {
        assert_eq!(row.label("Hostname"), Some("n1"));
        assert_eq!(row.label("hostname"), None);
        assert_eq!(row.label("pod_uid"), None);
        assert_eq!(row.label("modelName"), Some("NVIDIA A100-SXM4-80GB"));
    }
    // No exporter, no port.
    world
        .label(
            "n1",
            json!({"nvidia.com/gpu.deploy.dcgm-exporter": "false"}),
        )
        .await;
    world.until_operands("n1", 3).await;
    eventually("the port is closed", || async {
        world.scrape("n1").await.is_none().then_some(())
    })
    .await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_seed_measures_the_same_twice_also_on_the_loopback_port() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap();
    drop(taken);
    let mut texts = Vec::new();
    for listen in [None, Some(port)] {
        let world = World::start(|config| {
            let exporter = config.exporter.as_mut().unwrap();
            exporter.listen = listen;
            // One collection for as long as the test lives.
            exporter.collect_secs = 1e9;
        });
        world
            .node("n1", "NVIDIA-H100-80GB-HBM3", 4, json!({}))
            .await;
        world.pod("a", "n1", "nvidia.com/gpu", 3).await;
        world.until_phase("a", "Running").await;
        let text = match listen {
            None => world.scrape("n1").await.unwrap(),
            Some(addr) => {
                assert!(get(addr, "/metrics").await.starts_with("HTTP/1.1 400 "));
                let answer = get(addr, "/metrics?node=n1").await;
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                let (_, body) = answer.split_once("\r\n\r\n").unwrap();
                body.to_owned()
            }
        };
        assert_eq!(devices_of(&rows_of(&text), "a").len(), 3);
        texts.push(text);
        world.cluster.stop().await;
    }
    assert_eq!(texts[0], texts[1]);
}

/// The answer to a GET, whole.
async fn get(addr: std::net::SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
