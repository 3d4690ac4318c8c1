//! The parts that the figures are made of, as time distributions.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput};
use gpudeck::cluster::decode::Decoder;
use gpudeck::model::{Change, Cluster, Delta, Figures, Kind, Pod};
use gpudeck::sandbox::calls::Calls;
use gpudeck::tui::views::jobs;
use serde_json::value::RawValue;
use tokio::runtime::Runtime;

use crate::report::{line, time};
use crate::world::{PODS, World};

#[derive(serde::Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
}

/// Decoding, folding, counting and listing.
pub fn run(runtime: &Runtime, world: &mut World) {
    let deltas = world.deltas(runtime).to_vec();
    let (texts, list) = runtime.block_on(async {
        let calls = Calls::new(world_client(world));
        let begun = Instant::now();
        let all: Page = calls.get("/api/v1/pods").await.expect("pods are listed");
        let list = begun.elapsed();
        assert_eq!(all.items.len(), PODS, "pods that are listed");
        let texts: Vec<Box<RawValue>> = all.items.into_iter().take(5_000).collect();
        (texts, list)
    });
    line(
        "server: list of all pods, in process",
        &time(list),
        "100,000 pods in one answer",
    );

    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    let mut group = criterion.benchmark_group("parts");
    group.throughput(Throughput::Elements(texts.len() as u64));
    group.bench_function("decode pods", |b| {
        b.iter_batched(
            Decoder::new,
            |mut decoder| {
                for text in &texts {
                    black_box(decoder.decode(Kind::Pod, text.get())).ok();
                }
                decoder
            },
            BatchSize::PerIteration,
        );
    });
    group.throughput(Throughput::Elements(deltas.len() as u64));
    group.bench_function("fold all deltas", |b| {
        b.iter_batched(
            Cluster::new,
            |mut cluster| {
                deltas.iter().for_each(|d| cluster.apply(d));
                cluster
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();

    let mut group = criterion.benchmark_group("after 50 changed pods");
    let mut cluster = Cluster::new();
    deltas.iter().for_each(|d| cluster.apply(d));
    let pods: Vec<&Arc<Pod>> = deltas
        .iter()
        .filter_map(|d| match d {
            Delta::Pod(Change::Set(pod)) => Some(pod),
            _ => None,
        })
        .collect();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut round = 0;
    let mut changes = move || -> Vec<Delta> {
        round += 1;
        (0..50)
            .filter_map(|_| rng.choice(&pods))
            .map(|pod| {
                let mut pod = Pod::clone(pod);
                pod.restarts = round;
                Delta::Pod(Change::Set(Arc::new(pod)))
            })
            .collect()
    };
    let mut apply = |cluster: &mut Cluster| changes().iter().for_each(|d| cluster.apply(d));
    group.bench_function("figures", |b| {
        b.iter_custom(|rounds| {
            let mut took = Duration::ZERO;
            for _ in 0..rounds {
                apply(&mut cluster);
                let begun = Instant::now();
                black_box(Figures::of(&cluster));
                took += begun.elapsed();
            }
            took
        });
    });
    group.bench_function("rows of Jobs", |b| {
        b.iter_custom(|rounds| {
            let mut took = Duration::ZERO;
            for _ in 0..rounds {
                apply(&mut cluster);
                let begun = Instant::now();
                black_box(jobs::all(&cluster, |_| true));
                took += begun.elapsed();
            }
            took
        });
    });
    group.finish();
}

fn world_client(world: &World) -> kube::Client {
    world.served().server.client()
}
