//! A cluster made in code: every kind of node, workload and event that the views tell apart.

use std::sync::Arc;

use gpudeck::model::{
    Change, Cluster, DecisionKind, Delta, FilterCount, Job, Kind, Meta, Namespace, Phase, Reason,
    Severity, SourceState, Uid,
};

pub(crate) use crate::objects::*;

const H100: (&str, &str) = ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3");
const EIGHT: (&str, &str) = ("nvidia.com/gpu.count", "8");
const RESERVED: (&str, &str) = ("karpenter.sh/capacity-type", "reserved");
const ON_DEMAND: (&str, &str) = ("karpenter.sh/capacity-type", "on-demand");
const SPOT: (&str, &str) = ("karpenter.sh/capacity-type", "spot");
const LEAF: &str = "fabric.topograph.run/tier-0";
const ZONE: &str = "topology.kubernetes.io/zone";

/// About thirty nodes of all kinds.
fn nodes() -> Vec<Delta> {
    let mut all = Vec::new();
    for i in 1..=12 {
        let name = format!("h100-{i:02}");
        let leaf = format!("l{:02}", (i - 1) / 4 + 1);
        all.push(node(&NodeSpec {
            name: &name,
            labels: &[
                H100,
                EIGHT,
                ("nvidia.com/gpu.memory", "81559"),
                RESERVED,
                (LEAF, &leaf),
                (ZONE, "eu1-a"),
            ],
            devices: &[("gpu", 8)],
            sick: i64::from(i == 7),
            cordoned: i == 11,
            ready: (i != 12).then_some(true),
            fault: (i == 7).then_some("GpuXidError"),
            ..NodeSpec::default()
        }));
    }
    let a100_mixed: &[(&str, &str)] = &[
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"),
        EIGHT,
        ("nvidia.com/gpu.memory", "81920"),
        ("nvidia.com/mig.strategy", "mixed"),
        ("nvidia.com/mig.config", "inference"),
        ("nvidia.com/mig.config.state", "success"),
        ON_DEMAND,
        (LEAF, "l04"),
        (ZONE, "eu1-a"),
    ];
    for i in 1..=3 {
        all.push(node(&NodeSpec {
            name: &format!("a100-mix-{i:02}"),
            labels: a100_mixed,
            devices: &[
                ("gpu", 4),
                ("mig-1g.10gb", 8),
                ("mig-2g.20gb", 4),
                ("mig-3g.40gb", 4),
            ],
            ..NodeSpec::default()
        }));
    }
    all.push(node(&NodeSpec {
        name: "a100-single-01",
        labels: &[
            ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
            ("nvidia.com/gpu.count", "56"),
            ("nvidia.com/mig.strategy", "single"),
            ("nvidia.com/mig.config", "all-1g.5gb"),
            ("nvidia.com/mig.config.state", "pending"),
            ON_DEMAND,
            (LEAF, "l04"),
            (ZONE, "eu1-a"),
        ],
        devices: &[("gpu", 56)],
        ..NodeSpec::default()
    }));
    for i in 1..=4 {
        all.push(node(&NodeSpec {
            name: &format!("h200-{i:02}"),
            labels: &[
                ("nvidia.com/gpu.product", "NVIDIA-H200"),
                EIGHT,
                ("nvidia.com/gpu.memory", "143771"),
                ("gpudeck.dev/tier", "owned"),
                (LEAF, "l05"),
                (ZONE, "eu1-b"),
            ],
            devices: &[("gpu", 8)],
            ..NodeSpec::default()
        }));
    }
    for i in 1..=4 {
        all.push(node(&NodeSpec {
            name: &format!("ip-10-0-{i}-17.eu-central-1.compute.internal"),
            labels: &[
                ("nvidia.com/gpu.product", "NVIDIA-L40S"),
                ("nvidia.com/gpu.count", "4"),
                ("nvidia.com/gpu.memory", "46068"),
                SPOT,
                (ZONE, "eu1-b"),
            ],
            devices: &[("gpu", 4)],
            age: 37 * MINUTE,
            ..NodeSpec::default()
        }));
    }
    all.push(node(&NodeSpec {
        name: "t4-shared-01",
        labels: &[
            ("nvidia.com/gpu.product", "Tesla-T4-SHARED"),
            ("nvidia.com/gpu.count", "4"),
            ("nvidia.com/gpu.sharing-strategy", "time-slicing"),
            ("nvidia.com/gpu.replicas", "4"),
            (ZONE, "eu1-b"),
        ],
        devices: &[("gpu", 16)],
        ..NodeSpec::default()
    }));
    all.push(node(&NodeSpec {
        name: "bare-01",
        devices: &[],
        labels: &[("accelerator", "nvidia-v100"), (ZONE, "eu1-b")],
        ..NodeSpec::default()
    }));
    all.push(node(&NodeSpec {
        name: "no-labels-01",
        devices: &[("gpu", 2)],
        age: 20,
        ..NodeSpec::default()
    }));
    for i in 1..=3 {
        all.push(node(&NodeSpec {
            name: &format!("cpu-{i:02}"),
            labels: &[(ZONE, "eu1-a")],
            ..NodeSpec::default()
        }));
    }
    all
}

const L40S_1: &str = "ip-10-0-1-17.eu-central-1.compute.internal";

/// Pods that run.
fn running() -> Vec<Delta> {
    let mut all = Vec::new();
    for rank in 0..6 {
        all.push(pod(&PodSpec {
            ns: "train",
            name: &format!("llm-7b-{rank}"),
            node: Some(&format!("h100-{:02}", rank + 1)),
            devices: &[("gpu", 8)],
            cpu: 64,
            owner: Some(("PyTorchJob", "llm-7b")),
            gang: Some(("llm-7b", 6)),
            priority: 60,
            restarts: u32::from(rank == 3),
            ..PodSpec::default()
        }));
    }
    for (i, gpus) in [(7, 5), (8, 6), (9, 8), (10, 3), (11, 4), (12, 8)] {
        all.push(pod(&PodSpec {
            ns: "research",
            name: &format!("sweep-9-{i}"),
            node: Some(&format!("h100-{i:02}")),
            devices: &[("gpu", gpus)],
            cpu: 24,
            owner: Some(("Job", "sweep-9")),
            priority: 20,
            age: 3 * DAY,
            ..PodSpec::default()
        }));
    }
    let slices: [(&str, &[(&str, i64)]); 3] = [
        (
            "a100-mix-01",
            &[("mig-1g.10gb", 6), ("mig-3g.40gb", 4), ("gpu", 3)],
        ),
        (
            "a100-mix-02",
            &[("mig-1g.10gb", 3), ("mig-2g.20gb", 1), ("gpu", 4)],
        ),
        ("a100-single-01", &[("gpu", 17)]),
    ];
    for (node, devices) in slices {
        for (key, n) in devices {
            for i in 0..*n {
                all.push(pod(&PodSpec {
                    ns: "prod-infer",
                    name: &format!("chat-{node}-{key}-{i}"),
                    node: Some(node),
                    devices: &[(key, 1)],
                    cpu: 2,
                    owner: Some(("ReplicaSet", "chat-57946f6c67")),
                    priority: 1000,
                    scheduler: "default-scheduler",
                    age: 9 * DAY,
                    ..PodSpec::default()
                }));
            }
        }
    }
    for i in 0..9 {
        all.push(pod(&PodSpec {
            ns: "notebooks",
            name: &format!("jupyter-{i}"),
            node: Some("t4-shared-01"),
            devices: &[("gpu", 1)],
            cpu: 1,
            scheduler: "default-scheduler",
            age: 5 * HOUR,
            ..PodSpec::default()
        }));
    }
    all.push(pod(&PodSpec {
        ns: "team-a",
        name: "eval-1",
        node: Some(L40S_1),
        devices: &[("gpu", 3)],
        owner: Some(("Job", "eval")),
        age: 12 * MINUTE,
        ..PodSpec::default()
    }));
    all.push(pod(&PodSpec {
        ns: "team-a",
        name: "render-0",
        node: Some("h200-01"),
        phase: Phase::Pending,
        devices: &[("gpu", 2)],
        owner: Some(("Job", "render")),
        reason: Some("ImagePullBackOff"),
        age: 4 * MINUTE,
        ..PodSpec::default()
    }));
    all
}

/// Pods that wait, failed or ended.
fn others() -> Vec<Delta> {
    let mut all = Vec::new();
    for rank in 0..8 {
        let name = format!("moe-{rank}");
        all.push(pod(&PodSpec {
            ns: "train",
            name: &name,
            phase: Phase::Pending,
            devices: &[("gpu", 8)],
            cpu: 64,
            owner: Some(("JobSet", "moe")),
            gang: Some(("moe", 8)),
            priority: 60,
            age: 47 * MINUTE,
            ..PodSpec::default()
        }));
        let why = Reason::GangDoesNotFit {
            fits: 5,
            need: 8,
            filters: Box::new([
                FilterCount {
                    nodes: 26,
                    why: "Insufficient nvidia.com/gpu".into(),
                },
                FilterCount {
                    nodes: 2,
                    why: "node(s) were unschedulable".into(),
                },
            ]),
        };
        all.push(decision(
            "train",
            &name,
            DecisionKind::Waiting(why),
            46 * MINUTE,
        ));
    }
    all.push(pod(&PodSpec {
        ns: "prod-infer",
        name: "embed-0",
        phase: Phase::Pending,
        devices: &[("mig-1g.10gb", 2)],
        cpu: 2,
        owner: Some(("ReplicaSet", "embed")),
        priority: 1000,
        scheduler: "default-scheduler",
        reason: Some("0/31 nodes are available: 31 Insufficient nvidia.com/mig-1g.10gb."),
        age: 11 * MINUTE,
        ..PodSpec::default()
    }));
    all.push(pod(&PodSpec {
        ns: "team-a",
        name: "crash-0",
        phase: Phase::Failed,
        node: Some("h100-10"),
        devices: &[("gpu", 1)],
        owner: Some(("Job", "crash")),
        restarts: 6,
        reason: Some("OOMKilled"),
        age: 26 * HOUR,
        ..PodSpec::default()
    }));
    all.push(pod(&PodSpec {
        ns: "team-a",
        name: "done-0",
        phase: Phase::Succeeded,
        node: Some("h100-10"),
        devices: &[("gpu", 1)],
        owner: Some(("Job", "done")),
        age: 2 * DAY,
        ..PodSpec::default()
    }));
    // Hostile and odd names.
    all.push(pod(&PodSpec {
        ns: "team-b",
        name: "ansi\u{1b}[31mRED\u{1b}[0m\u{202e}gpj.exe\u{200b}",
        phase: Phase::Pending,
        devices: &[("gpu", 1)],
        reason: Some("日本語の理由がここに書かれている"),
        age: 30,
        ..PodSpec::default()
    }));
    all.push(pod(&PodSpec {
        ns: "team-b",
        name: "trainings-lauf-für-das-große-sprachmodell-mit-sehr-langem-namen-und-noch-mehr-text-0",
        phase: Phase::Pending,
        devices: &[("gpu", 12_000)],
        priority: 2_000_000_000,
        age: 8 * DAY,
        ..PodSpec::default()
    }));
    let meta = |name: &str| Meta {
        uid: Uid(format!("uid-Job-{name}").into()),
        name: name.into(),
        namespace: "research".into(),
        created: Some(ago(90 * MINUTE)),
        ..Meta::default()
    };
    all.push(Delta::Job(Change::Set(Arc::new(Job {
        meta: meta("held"),
        parallelism: 4,
        suspended: true,
        ..Job::default()
    }))));
    all
}

fn happenings() -> Vec<Delta> {
    vec![
        event(
            ("Node", "", "h100-07"),
            Severity::Warning,
            (
                "GpuXidError",
                "[79] GPU has fallen off the bus - RecommendedAction: RESTART_BM",
            ),
            5 * MINUTE,
            3,
        ),
        event(
            ("Node", "", "h100-11"),
            Severity::Normal,
            (
                "NodeNotSchedulable",
                "Node h100-11 status is now: NodeNotSchedulable",
            ),
            3 * HOUR,
            1,
        ),
        event(
            ("Pod", "team-a", "crash-0"),
            Severity::Warning,
            (
                "BackOff",
                "Back-off restarting failed container main in pod crash-0",
            ),
            26 * HOUR,
            1_204,
        ),
        event(
            ("Pod", "team-a", "eval-1"),
            Severity::Normal,
            ("Started", "Started container main"),
            11 * MINUTE,
            1,
        ),
        event(
            ("Pod", "team-b", "ansi\u{1b}[31mRED"),
            Severity::Warning,
            (
                "Failed",
                "\u{1b}]0;owned\u{7}exec: \u{202e}nur\u{2066}: not found",
            ),
            28,
            1,
        ),
        decision(
            "team-a",
            "eval-1",
            DecisionKind::Placed {
                node: L40S_1.into(),
                why: "first of 4 nodes that fit".into(),
            },
            12 * MINUTE,
        ),
    ]
}

/// All kinds live.
pub(crate) fn live() -> Vec<Delta> {
    Kind::ALL
        .iter()
        .map(|k| source(*k, SourceState::Live))
        .collect()
}

/// The cluster of the pictures.
pub(crate) fn cluster() -> Cluster {
    let mut cluster = Cluster::with_pricing(crate::foreign::pricing());
    for delta in deltas() {
        cluster.apply(&delta);
    }
    cluster
}

/// What it is made of.
pub(crate) fn deltas() -> Vec<Delta> {
    let namespaces = [
        "train",
        "research",
        "prod-infer",
        "notebooks",
        "team-a",
        "team-b",
    ];
    let namespaces = namespaces.map(|name| {
        let meta = Meta {
            uid: Uid(format!("uid-ns-{name}").into()),
            name: name.into(),
            ..Meta::default()
        };
        Delta::Namespace(Change::Set(Arc::new(Namespace {
            meta,
            terminating: false,
        })))
    });
    [
        namespaces.to_vec(),
        nodes(),
        running(),
        others(),
        happenings(),
        live(),
        crate::foreign::deltas(),
    ]
    .concat()
}

/// What a user sees who may list pods of a namespace and nothing else.
pub(crate) fn namespace_only() -> Cluster {
    let mut cluster = Cluster::new();
    for delta in running().into_iter().chain(others()) {
        if let Delta::Pod(Change::Set(pod)) = &delta
            && matches!(&*pod.meta.namespace, "train" | "team-a")
        {
            cluster.apply(&delta);
        }
    }
    for kind in Kind::ALL {
        let state = match kind {
            Kind::Pod | Kind::Event | Kind::Job => SourceState::Live,
            _ => SourceState::Denied {
                why: format!("{kind} is forbidden: User \"lead\" cannot list resource \"{kind}\" at the cluster scope").into(),
            },
        };
        cluster.apply(&source(kind, state));
    }
    cluster
}

/// `nodes` H100 nodes with eight GPUs in leaves of sixteen, most of them full.
pub(crate) fn large(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new();
    for i in 0..nodes {
        let name = format!("n{i:04}");
        let leaf = format!("l{:03}", i / 16);
        cluster.apply(&node(&NodeSpec {
            name: &name,
            labels: &[H100, EIGHT, (LEAF, &leaf)],
            devices: &[("gpu", 8)],
            sick: i64::from(i % 97 == 13),
            cordoned: i % 61 == 7,
            ready: (i % 211 != 5).then_some(true),
            ..NodeSpec::default()
        }));
        let gpus = match i % 7 {
            0 => 0,
            1 => 5,
            2 => 7,
            _ => 8,
        };
        if gpus > 0 && i % 97 != 13 {
            cluster.apply(&pod(&PodSpec {
                ns: "train",
                name: &format!("p{i}"),
                node: Some(&name),
                devices: &[("gpu", gpus)],
                owner: Some(("Job", &format!("job-{}", i / 4))),
                ..PodSpec::default()
            }));
        }
    }
    for delta in live() {
        cluster.apply(&delta);
    }
    cluster
}
