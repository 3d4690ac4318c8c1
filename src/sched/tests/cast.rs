//! Nodes and pods of the long random lives: whole GPUs, replicas, MIG devices, shares, gangs.

use super::build::*;
use crate::model::{HostPort, Node, NodeGpus, Pod};

/// Numbers from a seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }

    pub(super) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }

    pub(super) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())]
    }
}

/// Nodes of a life.
pub(super) const NODES: u64 = 12;
/// The node that gives its devices out as replicas.
pub(super) const REPLICAS: u64 = 9;
/// From here on nodes have MIG devices.
const FIRST_MIG: u64 = 10;
/// Memory of one device.
pub(super) const GPU_MIB: u64 = 81_559;
const H100: &str = "NVIDIA-H100-80GB-HBM3";

/// Legal layouts of one device, which a node has on each of its two.
const LAYOUTS: [&[(&str, i64)]; 5] = [
    &[("1g.10gb", 7)],
    &[("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 2)],
    &[("4g.40gb", 1), ("3g.40gb", 1)],
    &[("2g.20gb", 3), ("1g.20gb", 1)],
    &[("7g.80gb", 1)],
];

/// Node `i` with as much room as makes every resource bind now and then.
pub(super) fn some_node(dice: &mut Dice, i: u64) -> Node {
    let mig = i >= FIRST_MIG;
    let mut n = node(&format!("n{i}"), if mig { 0 } else { 4 });
    let amounts = &mut n.allocatable;
    amounts.mem_bytes = 256 << 30;
    amounts.ephemeral_bytes = 100 << 30;
    amounts.pods = 14;
    amounts.set_extended(&"rdma/ib".into(), 4);
    if i == REPLICAS {
        amounts.set_extended(&"nvidia.com/gpu".into(), 8);
    }
    if mig {
        for (profile, count) in dice.of(&LAYOUTS) {
            amounts.set_extended(&format!("nvidia.com/mig-{profile}").into(), count * 2);
        }
    }
    n.capacity = n.allocatable.clone();
    let (leaf, spine) = (format!("l{}", i / 3), format!("s{}", i / 6));
    let memory = GPU_MIB.to_string();
    let mut labels = vec![
        ("fabric.topograph.run/tier-0", &*leaf),
        ("fabric.topograph.run/tier-1", &*spine),
        ("nvidia.com/gpu.memory", &*memory),
        ("nvidia.com/gpu.product", H100),
    ];
    if mig {
        labels.extend([
            ("nvidia.com/gpu.count", "2"),
            ("nvidia.com/mig.strategy", "mixed"),
        ]);
    }
    if i == REPLICAS {
        labels.extend([
            ("nvidia.com/gpu.count", "2"),
            ("nvidia.com/gpu.replicas", "4"),
            ("nvidia.com/gpu.sharing-strategy", "time-slicing"),
        ]);
    }
    n.meta.labels = pairs(&labels);
    n.gpus = NodeGpus::from_labels(&n.meta, &n.capacity);
    n.unschedulable = dice.below(12) == 0;
    n
}

/// One pod, or the pods of a gang.
pub(super) fn some_pods(dice: &mut Dice, number: u64) -> Vec<Pod> {
    let name = format!("p{number}");
    let sized = |mut p: Pod, cores: i64, mem_gib: i64| {
        p.requests.cpu_milli = cores * 1_000;
        p.requests.mem_bytes = mem_gib << 30;
        p
    };
    let mem = dice.of(&[4, 16, 48]);
    match dice.below(10) {
        0 | 1 => {
            let milli = (1 + dice.below(9)) * 100;
            let p = sized(pod(&name, 0), 2, mem);
            vec![annotated(
                p,
                &[("gpudeck.dev/milli-gpu", &milli.to_string())],
            )]
        }
        2 => {
            let p = sized(pod(&name, 0), 2, mem);
            let gib = dice.of(&["8Gi", "20Gi", "45Gi"]);
            vec![annotated(p, &[("gpudeck.dev/memory-profile", gib)])]
        }
        3 | 4 => {
            let mut p = sized(pod(&name, 1 << dice.below(3)), 8, mem);
            if dice.below(3) == 0 {
                p.requests.set_extended(&"rdma/ib".into(), 1);
            }
            match dice.below(4) {
                0 => p = annotated(p, &[("gpudeck.dev/workload-type", "training")]),
                1 => p = annotated(p, &[("gpudeck.dev/memory-profile", "40Gi")]),
                _ => {}
            }
            vec![p]
        }
        5 => {
            let mut p = sized(pod(&name, 0), 4, mem);
            p.requests.ephemeral_bytes = 12 << 30;
            vec![p]
        }
        6 | 7 => {
            let profile = dice.of(&["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb"]);
            let mut p = sized(pod(&name, 0), 2, 4);
            let key = format!("nvidia.com/mig-{profile}").into();
            let count = 1 + i64::from(dice.below(5) == 0);
            p.requests.set_extended(&key, count);
            if dice.below(4) == 0 {
                p = annotated(p, &[("gpudeck.dev/memory-profile", "18Gi")]);
            }
            vec![p]
        }
        8 => {
            let p = sized(pod(&name, 1), 2, mem);
            let port = 8_000 + u16::try_from(dice.below(2)).unwrap();
            vec![with(p, |c| {
                c.host_ports = [HostPort {
                    ip: "0.0.0.0".into(),
                    protocol: "TCP".into(),
                    port,
                }]
                .into();
            })]
        }
        _ => {
            let size = u32::try_from(2 + dice.below(5)).unwrap();
            let gpus = 1 << dice.below(3);
            let wish = dice.of(&["required=leaf", "required=spine", "preferred=leaf"]);
            (0..size)
                .map(|i| {
                    let p = pod(&format!("{name}-{i}"), gpus);
                    let p = in_group(p, &name, size);
                    annotated(p, &[("gpudeck.dev/topology", wish)])
                })
                .collect()
        }
    }
}

/// The closest switch of a node.
pub(super) fn leaf_of(node: &str) -> u64 {
    node[1..].parse::<u64>().unwrap() / 3
}
