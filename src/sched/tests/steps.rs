//! A long random life with fixed seeds: what may never happen is looked for at every step.
//!
//! `GPUDECK_STEPS` sets how many steps are made.

use std::collections::{BTreeMap, BTreeSet};

use super::build::*;
use crate::model::{Change, Delta, Node, Pod};
use crate::plan::Action;
use crate::sched::{SchedConfig, State, decide};

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What each pod holds, kept apart from the scheduler.
#[derive(Default)]
struct Books {
    nodes: BTreeMap<String, i64>,
    waiting: BTreeMap<String, Pod>,
    /// Pod, node and device.
    running: BTreeMap<String, (Pod, String, Option<u8>)>,
}

impl Books {
    /// Devices are enough on each node: sums, and each device by itself where shares are.
    fn check(&self) {
        let mut whole: BTreeMap<&str, i64> = BTreeMap::new();
        let mut cpu: BTreeMap<&str, i64> = BTreeMap::new();
        let mut shares: BTreeMap<(&str, u8), u32> = BTreeMap::new();
        for (pod, node, device) in self.running.values() {
            *whole.entry(node).or_default() += pod.requests.extended("nvidia.com/gpu");
            *cpu.entry(node).or_default() += pod.requests.cpu_milli;
            if let Some(milli) = pod.milli_gpu() {
                let device = device.expect("a share has a device");
                *shares.entry((node, device)).or_default() += milli;
            }
        }
        for (node, gpus) in &self.nodes {
            let shared = shares.keys().filter(|(n, _)| n == node).count();
            let used = whole.get(&**node).copied().unwrap_or(0) + i64::try_from(shared).unwrap();
            assert!(used <= *gpus, "{node}: {used} of {gpus} devices");
            let cores = cpu.get(&**node).copied().unwrap_or(0);
            assert!(cores <= 64_000, "{node}: {cores}");
        }
        for ((node, device), milli) in shares {
            assert!(milli <= 1000, "{node} device {device}: {milli}");
            assert!(
                i64::from(device) < self.nodes[node],
                "{node} has no {device}"
            );
        }
    }
}

fn some_node(dice: &mut Dice, i: u64) -> Node {
    let mut n = node(&format!("n{i}"), 4);
    n.meta.labels = pairs(&[
        ("fabric.topograph.run/tier-0", &format!("l{}", i / 3)),
        ("fabric.topograph.run/tier-1", &format!("s{}", i / 6)),
    ]);
    n.unschedulable = dice.below(12) == 0;
    n
}

/// One pod, or the pods of a gang.
fn some_pods(dice: &mut Dice, number: u64) -> Vec<Pod> {
    let name = format!("p{number}");
    let cpu = |mut p: Pod, milli: i64| {
        p.requests.cpu_milli = milli;
        p
    };
    match dice.below(6) {
        0 | 1 => {
            let milli = (1 + dice.below(9)) * 100;
            vec![annotated(
                cpu(pod(&name, 0), 2_000),
                &[("gpudeck.dev/milli-gpu", &milli.to_string())],
            )]
        }
        2 | 3 => vec![cpu(pod(&name, 1 << dice.below(3)), 8_000)],
        4 => vec![cpu(pod(&name, 0), 4_000)],
        _ => {
            let size = 2 + dice.below(5);
            let gpus = 1 << dice.below(3);
            let wish = ["required=leaf", "required=spine", "preferred=leaf"]
                [usize::try_from(dice.below(3)).unwrap()];
            (0..size)
                .map(|i| {
                    let p = pod(&format!("{name}-{i}"), gpus);
                    let p = in_group(p, &name, u32::try_from(size).unwrap());
                    annotated(p, &[("gpudeck.dev/topology", wish)])
                })
                .collect()
        }
    }
}

fn leaf_of(node: &str) -> u64 {
    node[1..].parse::<u64>().unwrap() / 3
}

/// Checks a plan against the books and carries it out.
fn carry(books: &mut Books, state: &mut State, dice: &mut Dice) {
    let plan = decide(state, at(0));
    for group in &plan.groups {
        let mut gang: Option<(String, usize, Vec<u64>)> = None;
        for action in group {
            let Action::Bind {
                name, node, device, ..
            } = action;
            let pod = books.waiting.remove(&**name).expect("it waits");
            if let Some(g) = &pod.group {
                let gang = gang.get_or_insert_with(|| {
                    let wish = pod.meta.annotation("gpudeck.dev/topology");
                    (
                        wish.unwrap_or("").to_owned(),
                        g.min_members.unwrap() as usize,
                        vec![],
                    )
                });
                gang.2.push(leaf_of(node));
            }
            books
                .running
                .insert(name.to_string(), (pod, node.to_string(), *device));
        }
        if let Some((wish, size, leaves)) = gang {
            assert_eq!(leaves.len(), size, "a part of a gang");
            let domains: BTreeSet<u64> = match &*wish {
                "required=leaf" => leaves.into_iter().collect(),
                "required=spine" => leaves.into_iter().map(|l| l / 2).collect(),
                _ => BTreeSet::new(),
            };
            assert!(domains.len() <= 1, "{wish}: {domains:?}");
        }
    }
    books.check();
    for action in plan.actions() {
        state.assume(action);
    }
    for decision in &plan.decisions {
        state.apply(&Delta::Decision(decision.clone()));
    }
    // Most bindings are seen; some are refused, each gang as a whole.
    for group in &plan.groups {
        let refused = dice.below(10) == 0;
        for action in group {
            let Action::Bind { name, device, .. } = action;
            if refused {
                let (pod, ..) = books.running.remove(&**name).unwrap();
                books.waiting.insert(name.to_string(), pod);
                state.forget(action);
                continue;
            }
            let (pod, node, _) = &books.running[&**name];
            let mut seen = bound(pod.clone(), node);
            if let Some(device) = device {
                let mut list = seen.meta.annotations.to_vec();
                list.push(("gpudeck.dev/device".into(), device.to_string().into()));
                list.sort();
                seen.meta.annotations = list.into();
            }
            state.apply(&set_pod(seen));
        }
    }
}

fn live(seed: u64, steps: u64) -> (State, u64) {
    let mut dice = Dice(seed);
    let mut books = Books::default();
    let mut state = State::new(SchedConfig::default());
    for i in 0..12 {
        state.apply(&set_node(some_node(&mut dice, i)));
        books.nodes.insert(format!("n{i}"), 4);
    }
    let mut placed = 0;
    for step in 0..steps {
        match dice.below(16) {
            0..=4 => {
                for p in some_pods(&mut dice, step) {
                    books.waiting.insert(p.meta.name.to_string(), p.clone());
                    state.apply(&set_pod(p));
                }
            }
            5..=9 => {
                let at = usize::try_from(dice.below(books.running.len() as u64 + 1)).unwrap();
                if let Some(name) = books.running.keys().nth(at).cloned() {
                    let (pod, ..) = books.running.remove(&name).unwrap();
                    state.apply(&Delta::Pod(Change::Gone(gone(&pod.meta))));
                }
            }
            10 => {
                let i = dice.below(12);
                state.apply(&set_node(some_node(&mut dice, i)));
            }
            11 if books.waiting.len() > 24 => {
                // Who waits for long gives up.
                for (_, pod) in std::mem::take(&mut books.waiting) {
                    state.apply(&Delta::Pod(Change::Gone(gone(&pod.meta))));
                }
            }
            12 if dice.below(20) == 0 => {
                // A fork goes its own way and leaves no trace.
                let before = decide(&state, at(0));
                let mut fork = state.fork();
                for action in before.actions() {
                    fork.assume(action);
                }
                for (pod, ..) in books.running.values() {
                    fork.apply(&Delta::Pod(Change::Gone(gone(&pod.meta))));
                }
                decide(&fork, at(0));
                assert_eq!(decide(&state, at(0)), before, "the same, twice");
            }
            _ => {
                let before = books.running.len();
                carry(&mut books, &mut state, &mut dice);
                placed += u64::try_from(books.running.len() - before).unwrap();
            }
        }
    }
    // What is left of each node once all are gone is what there was at first.
    for (pod, ..) in books.running.values() {
        state.apply(&Delta::Pod(Change::Gone(gone(&pod.meta))));
    }
    for slot in &state.rows.slots {
        assert_eq!(slot.gpu.free_milli_gpu(), 4_000);
        assert_eq!((slot.room.cpu_milli, slot.room.pods), (64_000, 110));
    }
    (state, placed)
}

#[test]
fn a_long_life_breaks_no_promise() {
    // Read when it is built: this room has no environment.
    let steps = option_env!("GPUDECK_STEPS")
        .and_then(|n| n.parse().ok())
        .unwrap_or(60_000);
    let (_, placed) = live(3, steps);
    assert!(placed > steps / 8, "{placed} placed in {steps} steps");
}

#[test]
fn the_same_life_twice_ends_the_same() {
    let (one, two) = (live(9, 3_000), live(9, 3_000));
    assert_eq!(one.1, two.1);
    assert_eq!(one.0.rows.slots, two.0.rows.slots);
}
