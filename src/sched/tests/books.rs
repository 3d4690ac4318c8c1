//! Accounts kept apart from the scheduler: who waits, who runs where, and what a node offers.

use std::collections::{BTreeMap, BTreeSet};

use super::cast::{Dice, GPU_MIB, REPLICAS, leaf_of};
use crate::model::{Node, Pod};
use crate::plan::{Action, Plan};
use crate::sched::State;

/// A pod that runs, the node, and the device of a share.
pub(super) type Running = (Pod, String, Option<u8>);

/// What each pod holds.
#[derive(Default)]
pub(super) struct Books {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) waiting: BTreeMap<String, Pod>,
    pub(super) running: BTreeMap<String, Running>,
}

/// Pod, node and device of an action; every action here is a binding.
pub(super) fn bind(action: &Action) -> (&str, &str, Option<u8>) {
    let Action::Bind {
        name, node, device, ..
    } = action
    else {
        panic!("nobody may be evicted here");
    };
    (name, node, *device)
}

/// Starts and size in memory slices of an H100's profiles, and compute slices, from NVIDIA's table.
const H100_PROFILES: [(&str, &[u8], u8, u8); 6] = [
    ("1g.10gb", &[0, 1, 2, 3, 4, 5, 6], 1, 1),
    ("1g.20gb", &[0, 2, 4, 6], 2, 1),
    ("2g.20gb", &[0, 2, 4], 2, 2),
    ("3g.40gb", &[0, 4], 4, 3),
    ("4g.40gb", &[0], 4, 4),
    ("7g.80gb", &[0], 8, 7),
];

impl Books {
    /// Some pod that runs.
    pub(super) fn any_running(&self, dice: &mut Dice) -> Option<String> {
        let at = dice.index(self.running.len() + 1);
        self.running.keys().nth(at).cloned()
    }

    /// Takes a plan in: gangs are whole and where they may be.
    pub(super) fn enter(&mut self, plan: &Plan) {
        for group in &plan.groups {
            let mut gang: Option<(String, u32)> = None;
            let mut leaves = Vec::new();
            for action in group {
                let (name, node, device) = bind(action);
                let pod = self.waiting.remove(name).expect("it waits");
                if let Some(g) = &pod.group {
                    let wish = pod.meta.annotation("gpudeck.dev/topology").unwrap();
                    gang.get_or_insert((wish.to_owned(), g.min_members.unwrap()));
                    leaves.push(leaf_of(node));
                }
                let place = (pod, node.to_owned(), device);
                self.running.insert(name.to_owned(), place);
            }
            let Some((wish, size)) = gang else { continue };
            assert_eq!(leaves.len(), size as usize, "a part of a gang");
            let domains: BTreeSet<u64> = match &*wish {
                "required=leaf" => leaves.into_iter().collect(),
                "required=spine" => leaves.into_iter().map(|l| l / 2).collect(),
                _ => BTreeSet::new(),
            };
            assert!(domains.len() <= 1, "{wish}: {domains:?}");
        }
    }

    /// No node that the plan went to is over-committed, and nobody is where it may not be.
    pub(super) fn check(&self, state: &State, plan: &Plan) {
        let touched: BTreeSet<&str> = plan.actions().map(|a| bind(a).1).collect();
        for name in touched {
            let node = &self.nodes[name];
            let running = self.running.values();
            let pods: Vec<&Running> = running.filter(|r| r.1 == name).collect();
            sums(node, &pods);
            devices(node, &pods);
            for (pod, ..) in &pods {
                suits(node, pod);
            }
            slices(state, name, &pods);
        }
    }
}

/// CPU, memory, storage, pods, ports and every extended resource.
fn sums(node: &Node, pods: &[&Running]) {
    let (name, has) = (&node.meta.name, &node.allocatable);
    let sum = |of: fn(&Pod) -> i64| pods.iter().map(|(pod, ..)| of(pod)).sum::<i64>();
    assert!(
        sum(|p| p.requests.cpu_milli) <= has.cpu_milli,
        "{name}: CPU"
    );
    assert!(
        sum(|p| p.requests.mem_bytes) <= has.mem_bytes,
        "{name}: memory"
    );
    assert!(
        sum(|p| p.requests.ephemeral_bytes) <= has.ephemeral_bytes,
        "{name}: storage"
    );
    assert!(sum(|_| 1) <= has.pods, "{name}: pods");
    let mut asked: BTreeMap<&str, i64> = BTreeMap::new();
    let mut ports = BTreeSet::new();
    for (pod, ..) in pods {
        for (key, n) in &pod.requests.extended {
            *asked.entry(key).or_default() += n;
        }
        for port in &pod.constraints.host_ports {
            assert!(ports.insert(port.port), "{name}: port {} twice", port.port);
        }
    }
    for (key, n) in asked {
        assert!(n <= has.extended(key), "{name}: {n} {key}");
    }
}

/// Each device by itself: shares by thousandths and by memory, and whole devices beside them.
fn devices(node: &Node, pods: &[&Running]) {
    let (name, has) = (&node.meta.name, node.allocatable.extended("nvidia.com/gpu"));
    let mut shares: BTreeMap<u8, u64> = BTreeMap::new();
    let mut whole = 0;
    for (pod, _, device) in pods {
        let asked = pod.requests.extended("nvidia.com/gpu");
        let memory = pod.meta.annotation("gpudeck.dev/memory-profile");
        let milli = match (pod.milli_gpu(), memory) {
            (Some(milli), _) => u64::from(milli),
            (None, Some(text)) if pod.requests.extended.is_empty() => {
                let gib: u64 = text.trim_end_matches("Gi").parse().unwrap();
                (gib * 1024 * 1000).div_ceil(GPU_MIB)
            }
            _ => {
                whole += asked;
                assert_eq!(*device, None, "{name}: a device for no share");
                continue;
            }
        };
        let device = device.expect("a share has a device");
        assert!(i64::from(device) < has, "{name} has no device {device}");
        *shares.entry(device).or_default() += milli;
    }
    let shared = i64::try_from(shares.len()).unwrap();
    assert!(
        whole + shared <= has,
        "{name}: {whole} and {shared} of {has}"
    );
    for (device, milli) in shares {
        assert!(milli <= 1000, "{name} device {device}: {milli}");
    }
}

/// Memory of what it gets is enough, and who needs a device of its own has one.
fn suits(node: &Node, pod: &Pod) {
    let name = &node.meta.name;
    let annotation = |key: &str| pod.meta.annotation(key);
    let replicas = **name == *format!("n{REPLICAS}");
    if replicas {
        assert_eq!(annotation("gpudeck.dev/workload-type"), None, "{name}");
        assert_eq!(pod.milli_gpu(), None, "{name}: a share of a replica");
        // A replica is a quarter of the device.
        assert_ne!(annotation("gpudeck.dev/memory-profile"), Some("40Gi"));
    }
    if annotation("gpudeck.dev/memory-profile") == Some("18Gi") {
        let small = pod.requests.extended("nvidia.com/mig-1g.10gb");
        assert_eq!(small, 0, "{name}: 18 GiB in a slice of 9.75");
    }
}

/// Instances lie where NVIDIA allows, none over another, and each pod has its own.
fn slices(state: &State, name: &str, pods: &[&Running]) {
    let id = state.rows.id(name).unwrap();
    let Some(layout) = &state.rows.rows[id.0].gpus.layout else {
        return;
    };
    let instances: Vec<_> = layout.instances().collect();
    let mut used: BTreeMap<u8, (u16, u8)> = BTreeMap::new();
    for (profile, device, window) in &instances {
        let known = H100_PROFILES.iter().find(|p| p.0 == *profile).unwrap();
        let (_, starts, size, compute) = known;
        let legal = starts.iter().any(|s| ((1_u16 << size) - 1) << s == *window);
        assert!(legal, "{name}: {profile} at {window:b}");
        let (mask, sum) = used.entry(*device).or_default();
        assert_eq!(*mask & window, 0, "{name}: {profile} over another");
        *mask |= window;
        *sum += compute;
        assert!(*sum <= 7 && *device < 2, "{name} device {device}");
    }
    let mut taken = 0_u128;
    for (pod, ..) in pods {
        let held = state.rows.held(name, &pod.meta.uid).unwrap().slices;
        assert_eq!(taken & held, 0, "{name}: one instance for two pods");
        taken |= held;
        for (key, n) in &pod.requests.extended {
            let Some(profile) = key.strip_prefix("nvidia.com/mig-") else {
                continue;
            };
            let has = instances
                .iter()
                .enumerate()
                .filter(|(i, (p, ..))| held >> i & 1 == 1 && *p == profile);
            assert_eq!(i64::try_from(has.count()), Ok(*n), "{name}: {key}");
        }
    }
    let free = state.rows.slots[id.0].slices;
    assert_eq!(free, layout.all() & !taken, "{name}: what is free");
}
