//! Bad input gives a reason, never a panic: absurd amounts, unknown words, gangs beyond the
//! cluster, labels that contradict each other.

use super::build::*;
use super::cast::Dice;
use crate::model::{Change, DecisionKind, Delta, Node, NodeGpus, Pod};
use crate::sched::{SchedConfig, State, decide};

pub(super) const KEYS: &[&str] = &[
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/mig-3g.40gb",
    "nvidia.com/mig-7g.80gb.me",
    "nvidia.com/mig-99g.1gb",
    "nvidia.com/mig-",
    "rdma/ib",
];

pub(super) const LABELS: &[&str] = &[
    "fabric.topograph.run/tier-0",
    "fabric.topograph.run/tier-1",
    "fabric.topograph.run/tier-15",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/spine",
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-3",
    "topology.kubernetes.io/zone",
    "nvidia.com/gpu.clique",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/mig.strategy",
    "gpudeck.dev/tier",
];

pub(super) const VALUES: &[&str] = &[
    "",
    "a",
    "b",
    "none",
    "0",
    "1",
    "8",
    "4294967295",
    "-1",
    "81559",
    "mixed",
    "single",
    "NVIDIA-H100-80GB-HBM3",
    "NVIDIA-A30",
    "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
    "time-slicing",
    "spot",
    "\u{202e}x",
];

pub(super) const ANNOTATIONS: &[&str] = &[
    "gpudeck.dev/device",
    "gpudeck.dev/gang-min",
    "gpudeck.dev/gpu-model",
    "gpudeck.dev/latency-sensitive",
    "gpudeck.dev/memory-profile",
    "gpudeck.dev/milli-gpu",
    "gpudeck.dev/subgroup",
    "gpudeck.dev/subgroup-topology",
    "gpudeck.dev/tier",
    "gpudeck.dev/topology",
    "gpudeck.dev/workload-type",
];

pub(super) const WORDS: &[&str] = &[
    "",
    "0",
    "1",
    "3",
    "500",
    "999",
    "65536",
    "-5",
    "18Gi",
    "9e99",
    "required=leaf",
    "preferred=clique",
    "required=tier-16,preferred=",
    "required=node",
    "leaf",
    "=",
    "a",
    "b",
    "inference",
    "training",
    "true",
    "spot,owned",
    "H100",
    "\u{7}",
];

fn amount(dice: &mut Dice) -> i64 {
    dice.of(&[0, 1, -1, 8, 16, 17, 400, i64::MAX, i64::MIN])
}

fn pick(dice: &mut Dice, keys: &[&str], values: &[&str], most: u64) -> Vec<(String, String)> {
    let mut list: Vec<(String, String)> = (0..dice.below(most))
        .map(|_| (dice.of(keys).to_owned(), dice.of(values).to_owned()))
        .collect();
    list.sort();
    list.dedup_by(|a, b| a.0 == b.0);
    list
}

fn borrowed(list: &[(String, String)]) -> Vec<(&str, &str)> {
    list.iter().map(|(k, v)| (&**k, &**v)).collect()
}

fn some_node(dice: &mut Dice) -> Node {
    let mut n = node(&format!("n{}", dice.below(6)), 0);
    n.meta.labels = pairs(&borrowed(&pick(dice, LABELS, VALUES, 9)));
    for _ in 0..dice.below(4) {
        let key = dice.of(KEYS).into();
        n.allocatable.set_extended(&key, amount(dice));
        n.capacity.set_extended(&key, amount(dice));
    }
    if dice.below(4) == 0 {
        n.allocatable.cpu_milli = amount(dice);
        n.allocatable.mem_bytes = amount(dice);
        n.allocatable.pods = amount(dice);
    }
    n.gpus = NodeGpus::from_labels(&n.meta, &n.capacity);
    n
}

fn some_pod(dice: &mut Dice) -> Pod {
    let mut p = pod(&format!("p{}", dice.below(30)), 0);
    p.meta.annotations = pairs(&borrowed(&pick(dice, ANNOTATIONS, WORDS, 4)));
    for _ in 0..dice.below(3) {
        p.requests.set_extended(&dice.of(KEYS).into(), amount(dice));
    }
    if dice.below(4) == 0 {
        p.requests.cpu_milli = amount(dice);
        p.requests.ephemeral_bytes = amount(dice);
    }
    if dice.below(3) == 0 {
        let size = dice.of(&[1, 2, 5, 1_000_000, u32::MAX]);
        p = in_group(p, dice.of(&["g", "h"]), size);
    }
    if dice.below(3) == 0 {
        p = bound(p, &format!("n{}", dice.below(8)));
    }
    p
}

#[test]
fn absurd_input_gives_reasons() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let own = match seed % 3 {
            0 => Box::default(),
            _ => ["topology.kubernetes.io/zone".into(), "".into(), "x".into()].into(),
        };
        let mut s = State::new(SchedConfig {
            topology_levels: own,
            ..SchedConfig::default()
        });
        for step in 0..300 {
            match dice.below(7) {
                0 | 1 => s.apply(&set_node(some_node(&mut dice))),
                2 => {
                    let n = node(&format!("n{}", dice.below(6)), 0);
                    s.apply(&Delta::Node(Change::Gone(gone(&n.meta))));
                }
                3 => {
                    let p = pod(&format!("p{}", dice.below(30)), 0);
                    s.apply(&Delta::Pod(Change::Gone(gone(&p.meta))));
                }
                4 | 5 => s.apply(&set_pod(some_pod(&mut dice))),
                _ => {
                    let plan = decide(&s, at(step));
                    for decision in &plan.decisions {
                        if let DecisionKind::Waiting(reason) = &decision.kind {
                            assert!(!reason.to_string().is_empty());
                        }
                    }
                    carry_out(&mut s, &plan);
                }
            }
        }
        // All gone, nothing is left behind.
        for i in 0..30 {
            let p = pod(&format!("p{i}"), 0);
            s.apply(&Delta::Pod(Change::Gone(gone(&p.meta))));
        }
        assert_eq!((s.waiting_pods(), s.assumed_pods()), (0, 0));
        for i in 0..6 {
            let n = node(&format!("n{i}"), 0);
            s.apply(&Delta::Node(Change::Gone(gone(&n.meta))));
        }
        assert_eq!(s.rows.node_count(), 0);
    }
}

#[test]
fn labels_that_contradict_each_other_keep_domains_apart() {
    // One leaf's name under two spines: a gang that has to share a leaf must not trust the name.
    let site = |name: &str, spine: &str| {
        let mut n = node(name, 8);
        n.meta.labels = pairs(&[
            ("fabric.topograph.run/tier-0", "leaf"),
            ("fabric.topograph.run/tier-1", spine),
        ]);
        set_node(n)
    };
    let gang = (0..2).map(|i| {
        let p = in_group(pod(&format!("g{i}"), 8), "g", 2);
        set_pod(annotated(p, &[("gpudeck.dev/topology", "required=leaf")]))
    });
    let s = state([site("a", "s1"), site("b", "s2")].into_iter().chain(gang));
    assert_eq!(
        told(&decide(&s, at(0)), "g0"),
        "only 1 of 2 pods of the gang fit: 2 leaf domain(s) had too little room: most has leaf, \
         for 1"
    );
}

#[test]
fn a_gang_larger_than_the_cluster_waits_with_what_fits() {
    let gang = (0..20).map(|i| set_pod(in_group(pod(&format!("g{i:02}"), 8), "g", 20)));
    let nodes = (0..3).map(|i| set_node(node(&format!("n{i}"), 8)));
    let plan = decide(&state(nodes.chain(gang)), at(0));
    assert_eq!(
        told(&plan, "g00"),
        "only 3 of 20 pods of the gang fit: 3 Insufficient nvidia.com/gpu"
    );
}
