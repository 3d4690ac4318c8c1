//! How many object changes a second the embedded cluster takes while three watchers read them all.
//!
//! `cargo bench --bench sandbox` prints a table. Writers, server and watchers share the machine.
//! A change is a merge patch of a running pod's status, as a kubelet sends it; a watcher reads
//! every line of the stream as bytes.

#![allow(missing_docs, clippy::expect_used, clippy::print_stdout)]

use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt, StreamExt};
use gpudeck::sandbox::bulk::fill;
use gpudeck::sandbox::{ApiServer, Options};
use http::Request;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 1_000;
const PODS: usize = 8_000;
const WATCHERS: usize = 3;
const WRITERS: usize = 16;
const SECONDS: u64 = 10;
const PODS_PATH: &str = "/api/v1/pods";

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let server = ApiServer::new(Options::default()).expect("a server");
    let client = server.client();
    let filled = fill(client.clone(), NODES, PODS, 1).await.expect("filled");
    println!(
        "filled {} nodes and {} pods in {:.1} s ({:.0} changes/s)",
        filled.nodes,
        filled.pods,
        filled.took.as_secs_f64(),
        (filled.nodes + 2 * filled.pods) as f64 / filled.took.as_secs_f64()
    );
    let paths = pod_paths(&client).await;
    let from = server.resource_version();

    let until = Instant::now() + Duration::from_secs(SECONDS);
    let (stop, stopped) = tokio::sync::watch::channel(0_u64);
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|_| tokio::spawn(watch(client.clone(), from, stopped.clone())))
        .collect();
    let began = Instant::now();
    let cpu = cpu_time();
    let writers: Vec<_> = (0..WRITERS)
        .map(|at| {
            let paths: Vec<String> = paths.iter().skip(at).step_by(WRITERS).cloned().collect();
            tokio::spawn(write(client.clone(), paths, until))
        })
        .collect();
    let mut written = 0;
    for writer in writers {
        written += writer.await.expect("a writer");
    }
    let took = began.elapsed();
    stop.send_replace(server.resource_version());
    let mut least = u64::MAX;
    let mut bytes = 0;
    for watcher in watchers {
        let (events, read) = watcher.await.expect("a watcher");
        least = least.min(events);
        bytes += read;
    }
    let drained = began.elapsed();
    let cpu = cpu_time().saturating_sub(cpu);
    println!(
        "{written} changes in {:.1} s: {:.0} a second; each of {WATCHERS} watchers read {least} events \
         ({:.0} MB in all), the last {:.0} ms after the last write; {:.0} µs of processor time a change",
        took.as_secs_f64(),
        written as f64 / took.as_secs_f64(),
        bytes as f64 / 1e6,
        (drained - took).as_secs_f64() * 1e3,
        cpu.as_secs_f64() * 1e6 / written as f64,
    );
    assert_eq!(least, written, "a watcher missed a change");
}

async fn pod_paths(client: &kube::Client) -> Vec<String> {
    let request = Request::get(PODS_PATH).body(Vec::new()).expect("a request");
    let list: serde_json::Value = client.request(request).await.expect("the pods");
    list.get("items")
        .and_then(serde_json::Value::as_array)
        .expect("items")
        .iter()
        .map(|pod| {
            let text = |field: &str| {
                let value = pod.get("metadata").and_then(|meta| meta.get(field));
                value.and_then(|value| value.as_str()).expect("text")
            };
            format!(
                "/api/v1/namespaces/{}/pods/{}/status",
                text("namespace"),
                text("name")
            )
        })
        .collect()
}

/// Patches its pods round and round, one call at a time.
async fn write(client: kube::Client, paths: Vec<String>, until: Instant) -> u64 {
    let mut written = 0;
    for round in 0_u64.. {
        for path in &paths {
            if Instant::now() >= until {
                return written;
            }
            let ip = format!("10.0.{}.{}", round / 250 % 250, round % 250);
            let body = format!(r#"{{"status":{{"hostIP":"{ip}"}}}}"#);
            let request = Request::patch(path)
                .header("content-type", "application/merge-patch+json")
                .body(body.into_bytes())
                .expect("a request");
            client.request_text(request).await.expect("a change");
            written += 1;
        }
    }
    written
}

/// Reads until the event of the last resourceVersion; how many events and bytes.
async fn watch(
    client: kube::Client,
    from: u64,
    mut stopped: tokio::sync::watch::Receiver<u64>,
) -> (u64, u64) {
    let path = format!("{PODS_PATH}?watch=true&resourceVersion={from}");
    let request = Request::get(path).body(Vec::new()).expect("a request");
    let mut lines = client
        .request_stream(request)
        .await
        .expect("a watch")
        .lines();
    let (mut events, mut bytes) = (0, 0);
    let mut last = 0;
    loop {
        if last > 0 && events >= last {
            return (events, bytes);
        }
        tokio::select! {
            line = lines.next() => {
                let Some(Ok(line)) = line else { return (events, bytes) };
                events += 1;
                bytes += line.len() as u64;
            }
            _ = stopped.changed(), if last == 0 => last = *stopped.borrow() - from,
        }
    }
}

/// Processor time of this process so far, all threads (`/proc/self/stat`, in ticks of 10 ms).
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a Linux system");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().expect("ticks"))
        .sum();
    Duration::from_millis(ticks * 10)
}
