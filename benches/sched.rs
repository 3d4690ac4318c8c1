//! How many pods a second the scheduler places, one thread, no writing.
//!
//! The elements of the throughput are waiting pods: with their decisions, placed or not.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gpudeck::model::{
    Change, Constraints, Delta, Gone, GroupName, Meta, Node, NodeGpus, Phase, Pod, Resources, Str,
    Taint, TaintEffect, Toleration, Uid,
};
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

/// A node of 8 H100 in a fabric of leaves of 100 nodes and spines of 1,000, with a taint.
fn site(index: usize) -> Delta {
    let mut allocatable = amounts(128, 2_048, 8);
    allocatable.pods = 110;
    let mut meta = meta(format!("node-{index:05}"), index);
    let (leaf, spine) = (
        format!("leaf-{}", index / 100),
        format!("spine-{}", index / 1_000),
    );
    meta.labels = [
        ("fabric.topograph.run/tier-0", &*leaf),
        ("fabric.topograph.run/tier-1", &spine),
        ("nvidia.com/gpu.memory", "81559"),
        ("nvidia.com/gpu.product", H100),
    ]
    .map(|(key, value)| (Str::from(key), Str::from(value)))
    .into();
    let taint = Taint {
        key: "nvidia.com/gpu".into(),
        value: "present".into(),
        effect: TaintEffect::NoSchedule,
    };
    Delta::Node(Change::Set(Arc::new(Node {
        gpus: NodeGpus::from_labels(&meta, &allocatable),
        meta,
        taints: [taint].into(),
        capacity: allocatable.clone(),
        allocatable,
        ..Node::default()
    })))
}

const H100: &str = "NVIDIA-H100-80GB-HBM3";

/// Pods with a toleration, a node selector and a memory profile: every filter has work.
struct Pods {
    rng: fastrand::Rng,
    made: usize,
    constraints: Arc<Constraints>,
}

impl Pods {
    fn new() -> Self {
        let toleration = Toleration {
            key: Some("nvidia.com/gpu".into()),
            value: None,
            effect: None,
        };
        Self {
            rng: fastrand::Rng::with_seed(7),
            made: 0,
            constraints: Arc::new(Constraints {
                tolerations: [toleration].into(),
                node_selector: [("nvidia.com/gpu.product".into(), H100.into())].into(),
                ..Constraints::default()
            }),
        }
    }

    fn make(&mut self, cores: i64, gpus: i64, annotation: (&str, &str)) -> Pod {
        self.made += 1;
        let mut meta = meta(format!("pod-{:07}", self.made), self.made);
        meta.annotations = [(Str::from(annotation.0), Str::from(annotation.1))].into();
        Pod {
            meta,
            phase: Phase::Pending,
            scheduler: "gpudeck".into(),
            requests: amounts(cores, cores * 4, gpus),
            constraints: self.constraints.clone(),
            ..Pod::default()
        }
    }

    /// A share, or 1 to 8 devices.
    fn single(&mut self) -> Pod {
        const MEMORY: (&str, &str) = ("gpudeck.dev/memory-profile", "20Gi");
        let cores = i64::from(self.rng.u8(1..4)) * 4;
        match self.rng.u8(0..100) {
            0..=47 => self.make(cores, 1, MEMORY),
            48..=85 => {
                let milli = ["230", "350", "470", "590", "810"];
                let milli = milli[self.rng.usize(0..milli.len())];
                self.make(cores, 0, ("gpudeck.dev/milli-gpu", milli))
            }
            86..=92 => self.make(cores * 2, 2, MEMORY),
            93..=97 => self.make(cores * 4, 4, MEMORY),
            _ => self.make(96, 8, MEMORY),
        }
    }

    fn gang(&mut self) -> Vec<Pod> {
        let pods = 1_u32 << self.rng.u8(0..6);
        let gpus = 1_i64 << self.rng.u8(0..4);
        let name: Str = format!("gang-{}", self.made).into();
        (0..pods)
            .map(|_| {
                let wish = ("gpudeck.dev/topology", "required=spine,preferred=leaf");
                let mut pod = self.make(gpus * 8, gpus, wish);
                pod.group = Some(GroupName {
                    kind: "PodGroup".into(),
                    name: name.clone(),
                    min_members: Some(pods),
                });
                pod
            })
            .collect()
    }
}

fn come(pod: &Pod) -> Delta {
    Delta::Pod(Change::Set(Arc::new(pod.clone())))
}

fn leave(pod: &Pod) -> Delta {
    Delta::Pod(Change::Gone(Gone {
        uid: pod.meta.uid.clone(),
        namespace: pod.meta.namespace.clone(),
        name: pod.meta.name.clone(),
    }))
}

/// Folds pods in, decides and assumes; how many were placed.
fn round(state: &mut State, pods: &[Delta], now: Timestamp) -> usize {
    for pod in pods {
        state.apply(pod);
    }
    state.expire(now);
    let plan = decide(state, now);
    plan.actions().map(|action| state.assume(action)).count()
}

/// 5,000 nodes of 8 GPUs, nine tenths in use.
fn nearly_full(pods: &mut Pods, now: Timestamp) -> (State, Vec<Pod>) {
    let mut state = State::new(SchedConfig {
        assume_secs: i64::MAX,
        ..SchedConfig::default()
    });
    for i in 0..5_000 {
        state.apply(&site(i));
    }
    let (mut running, mut used) = (Vec::new(), 0);
    while used < 36_000_000 {
        let pod = pods.single();
        if round(&mut state, &[come(&pod)], now) == 0 {
            state.apply(&leave(&pod));
            continue;
        }
        let whole = pod.requests.extended("nvidia.com/gpu") * 1_000;
        used += whole + pod.milli_gpu().map_or(0, i64::from);
        running.push(pod);
    }
    (state, running)
}

/// One decision after the other on a nearly full cluster, each with a departure.
fn lively(c: &mut Criterion) {
    let now = Timestamp::from_second(1_700_100_000).expect("a valid time");
    let mut pods = Pods::new();
    let (full, running) = nearly_full(&mut pods, now);
    let mut group = c.benchmark_group("sched/5000x8_90_percent");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(4));

    let mut took: Vec<Duration> = Vec::new();
    let (mut state, mut here) = (full.fork(), running.clone());
    group.throughput(Throughput::Elements(1));
    group.bench_function("single", |b| {
        b.iter_custom(|rounds| {
            let mut all = Duration::ZERO;
            for _ in 0..rounds {
                let at = pods.rng.usize(0..here.len());
                let old = here.swap_remove(at);
                state.apply(&leave(&old));
                let pod = pods.single();
                let news = [come(&pod)];
                let began = Instant::now();
                let placed = round(&mut state, &news, now);
                let time = began.elapsed();
                all += time;
                took.push(time);
                match placed {
                    0 => state.apply(&leave(&pod)),
                    _ => here.push(pod),
                }
            }
            all
        });
    });
    took.sort_unstable();
    let at = |part: usize| took[(took.len() * part / 1_000).min(took.len() - 1)];
    println!(
        "single: p50 {:?} p99 {:?} p99.9 {:?}",
        at(500),
        at(990),
        at(999)
    );

    let gangs: Vec<Vec<Pod>> = (0..200).map(|_| pods.gang()).collect();
    let all: usize = gangs.iter().map(Vec::len).sum();
    let gangs: Vec<Vec<Delta>> = gangs.iter().map(|g| g.iter().map(come).collect()).collect();
    let mut half = full.fork();
    for pod in running.iter().step_by(2) {
        half.apply(&leave(pod));
    }
    group.throughput(Throughput::Elements(all as u64));
    group.bench_function("gangs_all_leaves", |b| {
        b.iter_batched_ref(
            || half.fork(),
            |state| gangs.iter().map(|g| round(state, g, now)).sum::<usize>(),
            BatchSize::LargeInput,
        );
    });

    let mut hopeless = pods.single();
    hopeless.requests.mem_bytes = 1 << 50;
    group.throughput(Throughput::Elements(1));
    // Each fork starts without what is known of the class.
    group.bench_function("cannot_be_placed", |b| {
        b.iter_batched_ref(
            || {
                let mut fresh = full.fork();
                fresh.apply(&come(&hopeless));
                fresh
            },
            |state| decide(state, now),
            BatchSize::LargeInput,
        );
    });
    group.bench_function("fork", |b| b.iter_with_large_drop(|| full.fork()));
    group.finish();
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

criterion_group!(all, benches, lively);
criterion_main!(all);
