//! Shares of a GPU, and what a pod needs of its device beside the count.

use super::build::*;
use crate::model::{Change, Delta, Node, NodeGpus, Pod, Resources};
use crate::plan::Action;
use crate::sched::{SchedConfig, decide};

fn share(name: &str, milli: u32) -> Pod {
    annotated(
        pod(name, 0),
        &[("gpudeck.dev/milli-gpu", &milli.to_string())],
    )
}

/// A node whose labels are read as the decoder reads them.
fn labelled(name: &str, gpus: i64, labels: &[(&str, &str)]) -> Node {
    let mut n = node(name, gpus);
    n.meta.labels = pairs(labels);
    n.gpus = NodeGpus::from_labels(&n.meta, &n.capacity);
    n
}

const H100: &[(&str, &str)] = &[
    ("nvidia.com/gpu.memory", "81559"),
    ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
];
const A100_40: &[(&str, &str)] = &[
    ("nvidia.com/gpu.memory", "40960"),
    ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB"),
];

/// `pod>node/device` for each binding.
fn spots(plan: &crate::plan::Plan) -> String {
    let spots: Vec<String> = plan
        .actions()
        .map(|action| match action {
            Action::Bind {
                name,
                node,
                device: Some(device),
                ..
            } => format!("{name}>{node}/{device}"),
            Action::Bind { name, node, .. } => format!("{name}>{node}"),
            Action::Evict { name, node, .. } => format!("{name}<{node}"),
            Action::TellQueue { name, .. } => format!("{name}?"),
        })
        .collect();
    spots.join(" ")
}

#[test]
fn shares_fill_devices_and_never_more() {
    let shares = (0..5).map(|i| set_pod(share(&format!("s{i}"), 400)));
    let mut s = state(shares.chain([set_node(node("n", 2))]));
    let plan = decide(&s, at(0));
    assert_eq!(spots(&plan), "s0>n/0 s1>n/0 s2>n/1 s3>n/1");
    assert_eq!(
        told(&plan, "s4"),
        "0/1 nodes fit: 1 node(s) had no GPU with 400 thousandths free"
    );
    assert_eq!(
        told(&plan, "s1"),
        "n: the only node that fits; 600 of 1000 thousandths of GPU 0 free before"
    );
    carry_out(&mut s, &plan);
    // The count of whole devices is the kubelet's; a device with a share on it is not whole.
    s.apply(&set_pod(pod("whole", 1)));
    assert_eq!(
        told(&decide(&s, at(0)), "whole"),
        "0/1 nodes fit: 1 node(s) had too few wholly free GPUs"
    );
    for name in ["s2", "s3"] {
        let gone = gone(&share(name, 400).meta);
        s.apply(&Delta::Pod(Change::Gone(gone)));
    }
    assert_eq!(spots(&decide(&s, at(0))), "s4>n/1");
}

#[test]
fn a_bound_share_is_on_the_device_that_it_names() {
    let on = |name: &str, milli: u32, device: &str| {
        let milli = milli.to_string();
        let list = [
            ("gpudeck.dev/device", device),
            ("gpudeck.dev/milli-gpu", &*milli),
        ];
        set_pod(bound(annotated(pod(name, 0), &list), "n"))
    };
    let s = state([
        on("a", 700, "1"),
        on("b", 500, "0"),
        set_node(node("n", 2)),
        set_pod(share("p", 400)),
    ]);
    assert_eq!(spots(&decide(&s, at(0))), "p>n/0");
    // A device that the node does not have, or has no room, is not believed.
    let s = state([
        set_node(node("n", 2)),
        on("a", 700, "1"),
        on("b", 500, "1"),
        on("c", 300, "9"),
        set_pod(share("p", 400)),
    ]);
    assert_eq!(spots(&decide(&s, at(0))), "p>n/0");
}

#[test]
fn a_share_goes_where_it_closes_a_gap() {
    // Enough is known of the demand: 600 and 400 go together, 300 goes with nothing.
    let mut s = state([
        set_node(node("a", 1)),
        set_node(node("b", 1)),
        set_node(node("c", 1)),
    ]);
    for i in 0..60 {
        let p = share(&format!("seen{i}"), [600, 400][i % 2]);
        s.apply(&set_pod(p.clone()));
        s.apply(&Delta::Pod(Change::Gone(gone(&p.meta))));
    }
    s.apply(&set_pod(bound(share("r", 700), "a")));
    s.apply(&set_pod(bound(share("t", 600), "b")));
    s.apply(&set_pod(share("p", 300)));
    let plan = decide(&s, at(0));
    assert_eq!(spots(&plan), "p>a/0");
    let told = told(&plan, "p");
    assert!(told.contains("on b it would cost others"), "{told}");
}

#[test]
fn memory_is_needed_of_the_very_device() {
    let needs = |p: Pod, memory: &str| annotated(p, &[("gpudeck.dev/memory-profile", memory)]);
    let run = |p: Pod| {
        let nodes = [
            set_node(labelled("a100", 8, A100_40)),
            set_node(labelled("h100", 8, H100)),
        ];
        let plan = decide(&state(nodes.into_iter().chain([set_pod(p)])), at(0));
        match spots(&plan) {
            s if s.is_empty() => told(&plan, "p"),
            s => s,
        }
    };
    assert_eq!(run(needs(pod("p", 1), "60Gi")), "p>h100");
    assert_eq!(
        run(needs(pod("p", 1), "100Gi")),
        "0/2 nodes fit: 2 node(s) had too little GPU memory for 100 GiB"
    );
    // Alone it is a share by memory: half an A100, a quarter of an H100.
    let half = needs(pod("p", 0), "20Gi");
    assert!(run(half).starts_with("p>"), "a share by memory");
    assert_eq!(run(needs(pod("p", 0), "50Gi")), "p>h100/0");
    // Half of 40 GiB is not 30 GiB.
    let list = [
        ("gpudeck.dev/memory-profile", "30Gi"),
        ("gpudeck.dev/milli-gpu", "500"),
    ];
    assert_eq!(run(annotated(pod("p", 0), &list)), "p>h100/0");
    // A pod of 18 GiB never lands on a slice of 16 GiB, whatever its name says.
    let mut h200 = labelled(
        "h200",
        0,
        &[
            ("nvidia.com/gpu.count", "1"),
            ("nvidia.com/gpu.memory", "143771"),
            ("nvidia.com/gpu.product", "NVIDIA-H200"),
            ("nvidia.com/mig.strategy", "mixed"),
        ],
    );
    let offer = |r: &mut Resources| r.set_extended(&"nvidia.com/mig-1g.18gb".into(), 7);
    offer(&mut h200.allocatable);
    let mut slice = needs(pod("p", 0), "18Gi");
    slice
        .requests
        .set_extended(&"nvidia.com/mig-1g.18gb".into(), 1);
    let s = state([set_node(h200.clone()), set_pod(slice.clone())]);
    assert_eq!(
        told(&decide(&s, at(0)), "p"),
        "0/1 nodes fit: 1 node(s) had too little GPU memory for 18 GiB"
    );
    slice.meta.annotations = pairs(&[("gpudeck.dev/memory-profile", "16Gi")]);
    assert_eq!(
        spots(&decide(&state([set_node(h200), set_pod(slice)]), at(0))),
        "p>h200"
    );
    // What is not known does not count as enough.
    let s = state([set_node(node("n", 8)), set_pod(needs(pod("p", 1), "1Gi"))]);
    assert_eq!(
        told(&decide(&s, at(0)), "p"),
        "0/1 nodes fit: 1 node(s) do not tell their GPU memory, and 1 GiB are needed"
    );
}

#[test]
fn models_tiers_and_types_are_kept() {
    let tiered = |name: &str, tier: &str| {
        let mut labels = H100.to_vec();
        labels.push(("gpudeck.dev/tier", tier));
        set_node(labelled(name, 8, &labels))
    };
    let run = |list: &[(&str, &str)], nodes: &[Delta]| {
        let p = annotated(pod("p", 1), list);
        let plan = decide(&state(nodes.iter().cloned().chain([set_pod(p)])), at(0));
        match spots(&plan) {
            s if s.is_empty() => told(&plan, "p"),
            s => s,
        }
    };
    let spot = [tiered("n", "spot")];
    let calendar = [tiered("n", "calendar")];
    assert_eq!(
        run(&[], &spot),
        "0/1 nodes fit: 1 node(s) were spot, and it has no checkpoint contract \
         (gpudeck.dev/checkpoint-mode)"
    );
    assert_eq!(
        run(&[("gpudeck.dev/checkpoint-mode", "periodic")], &spot),
        "p>n"
    );
    let none = run(&[("gpudeck.dev/checkpoint-mode", "none")], &spot);
    assert!(none.contains("no checkpoint contract"), "{none}");
    let inference = [("gpudeck.dev/workload-type", "inference")];
    for nodes in [&spot, &calendar] {
        let told = run(&inference, nodes);
        assert!(told.contains("it is latency-sensitive"), "{told}");
    }
    assert_eq!(run(&inference, &[tiered("n", "reserved")]), "p>n");
    assert_eq!(run(&[], &calendar), "p>n");
    let owned = [("gpudeck.dev/tier", "owned, reserved")];
    assert_eq!(run(&owned, &[tiered("n", "reserved")]), "p>n");
    assert_eq!(
        run(&owned, &[tiered("n", "on-demand")]),
        "0/1 nodes fit: 1 node(s) were not of a tier that it allows"
    );
    assert_eq!(
        run(
            &[("gpudeck.dev/gpu-model", "H200,A100")],
            &[tiered("n", "owned")]
        ),
        "0/1 nodes fit: 1 node(s) had no GPU of model H200 or A100"
    );
    assert_eq!(
        run(
            &[("gpudeck.dev/gpu-model", "h100")],
            &[tiered("n", "owned")]
        ),
        "p>n"
    );
    // A setting lets spot be used without a contract.
    let config = SchedConfig {
        spot_needs_checkpoint: false,
        ..SchedConfig::default()
    };
    let s = state_with(config, spot.into_iter().chain([set_pod(pod("p", 1))]));
    assert_eq!(spots(&decide(&s, at(0))), "p>n");
}

#[test]
fn training_wants_devices_of_its_own_and_others_prefer_them() {
    let mut replicas = H100.to_vec();
    replicas.extend([
        ("nvidia.com/gpu.replicas", "4"),
        ("nvidia.com/gpu.sharing-strategy", "time-slicing"),
    ]);
    let shared = || set_node(labelled("a-shared", 8, &replicas));
    let whole = || set_node(labelled("b-whole", 1, H100));
    let typed = |kind: &str| {
        set_pod(annotated(
            pod("p", 1),
            &[("gpudeck.dev/workload-type", kind)],
        ))
    };
    let go = |deltas: Vec<Delta>| {
        let plan = decide(&state(deltas), at(0));
        match spots(&plan) {
            s if s.is_empty() => told(&plan, "p"),
            s => s,
        }
    };
    assert_eq!(go(vec![shared(), whole(), typed("training")]), "p>b-whole");
    assert_eq!(
        go(vec![shared(), typed("training")]),
        "0/1 nodes fit: 1 node(s) share their GPUs, and it needs one of its own"
    );
    assert_eq!(
        go(vec![shared(), whole(), typed("inference")]),
        "p>a-shared"
    );
    assert_eq!(
        go(vec![shared(), whole(), set_pod(pod("p", 1))]),
        "p>b-whole"
    );
    assert_eq!(go(vec![shared(), set_pod(pod("p", 1))]), "p>a-shared");
}

#[test]
fn what_is_stated_wrongly_is_told() {
    for (key, value, wanted) in [
        (
            "gpudeck.dev/milli-gpu",
            "1000",
            "a whole number from 1 to 999",
        ),
        (
            "gpudeck.dev/milli-gpu",
            "-5",
            "a whole number from 1 to 999",
        ),
        ("gpudeck.dev/memory-profile", "lots", "like 18Gi"),
        ("gpudeck.dev/memory-profile", "-18Gi", "like 18Gi"),
        ("gpudeck.dev/memory-profile", "1e30", "like 18Gi"),
        ("gpudeck.dev/gpu-model", " , ", "H100-80,H200"),
        (
            "gpudeck.dev/workload-type",
            "batch",
            "one of inference, training",
        ),
        ("gpudeck.dev/latency-sensitive", "yes", "true or false"),
        (
            "gpudeck.dev/tier",
            "cheap",
            "owned, reserved, on-demand, spot, calendar",
        ),
    ] {
        let told = reason([
            set_node(node("n", 8)),
            set_pod(annotated(pod("p", 0), &[(key, value)])),
        ])
        .to_string();
        assert!(
            told.contains(key) && told.contains(&format!("{value:?}")) && told.contains(wanted),
            "{key} {value}: {told}"
        );
    }
}

#[test]
fn a_node_that_loses_devices_keeps_its_books() {
    let mut s = state([
        set_node(node("n", 4)),
        set_pod(bound(share("a", 600), "n")),
        set_pod(bound(pod("w", 2), "n")),
        set_pod(share("p", 300)),
    ]);
    assert_eq!(spots(&decide(&s, at(0))), "p>n/0");
    for gpus in [1, 0, 3, 4] {
        s.apply(&set_node(node("n", gpus)));
    }
    s.apply(&Delta::Pod(Change::Gone(gone(&node("w", 0).meta))));
    s.apply(&set_pod(pod("q", 4)));
    let plan = decide(&s, at(0));
    assert_eq!(spots(&plan), "p>n/0");
    assert!(
        told(&plan, "q").contains("too few wholly free GPUs"),
        "{}",
        told(&plan, "q")
    );
    s.apply(&Delta::Pod(Change::Gone(gone(&node("a", 0).meta))));
    s.apply(&Delta::Pod(Change::Gone(gone(&node("p", 0).meta))));
    assert_eq!(spots(&decide(&s, at(0))), "q>n");
}

#[test]
fn replicas_of_an_inference_service_are_kept_apart() {
    let site = |name: &str, leaf: &str| {
        let mut labels = H100.to_vec();
        labels.insert(0, ("fabric.topograph.run/tier-0", leaf));
        set_node(labelled(name, 8, &labels))
    };
    let replica = |i: usize| {
        let mut p = annotated(
            pod(&format!("r{i}"), 1),
            &[("gpudeck.dev/workload-type", "inference")],
        );
        p.meta.owners = [crate::model::Owner {
            kind: "ReplicaSet".into(),
            name: "serve".into(),
            uid: crate::model::Uid("uid-serve".into()),
            controller: true,
        }]
        .into();
        p
    };
    let mut s = state([site("a", "l1"), site("b", "l1"), site("c", "l2")]);
    s.apply(&set_pod(bound(replica(0), "a")));
    s.apply(&set_pod(replica(1)));
    s.apply(&set_pod(replica(2)));
    s.apply(&set_pod(replica(3)));
    let plan = decide(&s, at(0));
    // First the other leaf, then the other node, then the leaf with fewer.
    assert_eq!(spots(&plan), "r1>c r2>b r3>c");
    assert_eq!(
        told(&plan, "r2"),
        "b: kept apart from its siblings: 0 of them here, the others on 2 of 3 nodes; 8 of 8 GPUs \
         free before"
    );
    s.apply(&Delta::Pod(Change::Gone(gone(&replica(0).meta))));
    carry_out(&mut s, &plan);
    s.apply(&set_pod(replica(4)));
    assert_eq!(spots(&decide(&s, at(0))), "r4>a");
}

#[test]
fn slices_go_where_they_leave_most_for_others_and_the_node_wins() {
    let cut = |name: &str, offers: &[(&str, i64)]| {
        let mut labels = H100.to_vec();
        labels.insert(0, ("nvidia.com/gpu.count", "1"));
        labels.push(("nvidia.com/mig.strategy", "mixed"));
        let mut n = labelled(name, 0, &labels);
        for (profile, count) in offers {
            let key = format!("nvidia.com/mig-{profile}").into();
            n.capacity.set_extended(&key, *count);
            n.allocatable.set_extended(&key, *count);
        }
        n
    };
    let slice = |name: &str, profile: &str| {
        let mut p = pod(name, 0);
        p.requests
            .set_extended(&format!("nvidia.com/mig-{profile}").into(), 1);
        set_pod(p)
    };
    let ones: &[(&str, i64)] = &[("1g.10gb", 7)];
    let mixed: &[(&str, i64)] = &[("1g.10gb", 1), ("2g.20gb", 1), ("3g.40gb", 1)];
    let mut s = state([
        set_node(cut("a-idle", ones)),
        set_node(cut("b-busy", mixed)),
        slice("x", "3g.40gb"),
    ]);
    let plan = decide(&s, at(0));
    assert_eq!(spots(&plan), "x>b-busy");
    carry_out(&mut s, &plan);
    // The GPU that runs something already takes the next one; the idle one stays whole.
    s.apply(&slice("y", "1g.10gb"));
    let plan = decide(&s, at(0));
    assert_eq!(spots(&plan), "y>b-busy");
    assert!(
        told(&plan, "y").contains("on a-idle it would cost others"),
        "{}",
        told(&plan, "y")
    );
    carry_out(&mut s, &plan);
    s.apply(&slice("z", "1g.10gb"));
    assert_eq!(spots(&decide(&s, at(0))), "z>a-idle");
    // An offer that no layout holds is still what the node says it has.
    let odd = cut("odd", &[("1g.10gb", 9)]);
    let s = state(
        (0..10)
            .map(|i| slice(&format!("p{i}"), "1g.10gb"))
            .chain([set_node(odd)]),
    );
    let plan = decide(&s, at(0));
    assert_eq!(plan.actions().count(), 9);
    assert_eq!(
        told(&plan, "p9"),
        "0/1 nodes fit: 1 Insufficient nvidia.com/mig-1g.10gb"
    );
    // A profile that the model does not have is named.
    let s = state([set_node(cut("n", ones)), slice("p", "9g.90gb")]);
    assert_eq!(
        told(&decide(&s, at(0)), "p"),
        "0/1 nodes fit: 1 Insufficient nvidia.com/mig-9g.90gb"
    );
}
