//! How many pods a second the scheduler places, one thread, no writing.
//!
//! The elements of the throughput are waiting pods: with their decisions, placed or not.

#![allow(missing_docs, clippy::expect_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gpudeck::model::{Change, Delta, Meta, Node, Phase, Pod, Resources, Str, Uid};
use gpudeck::sched::{SchedConfig, State, decide};
use jiff::Timestamp;

fn meta(name: String, index: usize) -> Meta {
    Meta {
        uid: Uid(format!("uid-{name}").into()),
        name: name.into(),
        namespace: "bench".into(),
        created: Timestamp::from_second(1_700_000_000 + i64::try_from(index).expect("small")).ok(),
        ..Meta::default()
    }
}

fn amounts(cores: i64, mem_gib: i64, gpus: i64) -> Resources {
    let mut r = Resources {
        cpu_milli: cores * 1_000,
        mem_bytes: mem_gib << 30,
        ..Resources::default()
    };
    if gpus > 0 {
        r.set_extended(&"nvidia.com/gpu".into(), gpus);
    }
    r
}

fn node(index: usize, cores: i64, mem_gib: i64, gpus: i64) -> Delta {
    let mut allocatable = amounts(cores, mem_gib, gpus);
    allocatable.pods = 110;
    Delta::Node(Change::Set(Arc::new(Node {
        meta: meta(format!("node-{index:05}"), index),
        capacity: allocatable.clone(),
        allocatable,
        ..Node::default()
    })))
}

fn pod(index: usize, cores: i64, gpus: i64, share: Option<u32>) -> Delta {
    let mut meta = meta(format!("pod-{index:05}"), index);
    if let Some(milli) = share {
        let key: Str = "gpudeck.dev/milli-gpu".into();
        meta.annotations = [(key, milli.to_string().into())].into();
    }
    Delta::Pod(Change::Set(Arc::new(Pod {
        meta,
        phase: Phase::Pending,
        scheduler: "gpudeck".into(),
        requests: amounts(cores, cores * 4, gpus),
        ..Pod::default()
    })))
}

/// Sizes and mix of the published inventory: 1,213 nodes with 6,212 GPUs, 8,152 pods of which
/// 48 % want one GPU, 38 % a share, 13 % none, the rest 2 to 8.
fn inventory() -> Vec<Delta> {
    let mut rng = fastrand::Rng::with_seed(1);
    let nodes = (0..1_213).map(|i| match i % 10 {
        0..=4 => node(i, 96, 384, 8),
        5..=6 => node(i, 96, 384, 4),
        7..=8 => node(i, 64, 256, 2),
        _ => node(i, 96, 512, 0),
    });
    let mut deltas: Vec<Delta> = nodes.collect();
    deltas.extend((0..8_152).map(|i| {
        let cores = i64::from(rng.u8(1..12));
        match rng.u8(0..100) {
            0..=47 => pod(i, cores, 1, None),
            48..=85 => pod(i, cores, 1, Some(u32::from(rng.u8(1..99)) * 10)),
            86..=98 => pod(i, cores, 0, None),
            _ => pod(i, cores * 4, i64::from(rng.u8(1..5)) * 2, None),
        }
    }));
    deltas
}

/// 5,000 nodes of 8 GPUs, filled by `pods` pods of 1, 2, 4 or 8.
fn large(pods: usize) -> Vec<Delta> {
    let mut deltas: Vec<Delta> = (0..5_000).map(|i| node(i, 128, 2_048, 8)).collect();
    deltas.extend((0..pods).map(|i| pod(i, 8, 1 << (i % 4), None)));
    deltas
}

fn state(deltas: &[Delta]) -> State {
    let mut state = State::new(SchedConfig::default());
    for delta in deltas {
        state.apply(delta);
    }
    state
}

/// Rounds as the engine makes them, until no more can be placed.
fn drain(mut state: State) -> usize {
    let now = Timestamp::from_second(1_700_100_000).expect("a valid time");
    let mut placed = 0;
    loop {
        state.expire(now);
        let plan = decide(&state, now);
        for action in plan.actions() {
            state.assume(action);
            placed += 1;
        }
        for decision in &plan.decisions {
            state.apply(&Delta::Decision(decision.clone()));
        }
        if !plan.more {
            return placed;
        }
    }
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("sched");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(4));
    for (name, deltas, pods) in [
        ("place/1213_nodes_8152_pods", inventory(), 8_152),
        ("place/5000x8_10000_pods", large(10_000), 10_000),
        ("place/5000x8_20000_pods_over_full", large(20_000), 20_000),
    ] {
        let start = state(&deltas);
        group.throughput(Throughput::Elements(pods));
        group.bench_function(name, |b| {
            b.iter_batched(
                || start.clone(),
                |s| black_box(drain(s)),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(format!("{name}/fold"), |b| {
            b.iter_with_large_drop(|| state(black_box(&deltas)));
        });
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
