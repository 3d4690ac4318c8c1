//! Whatever nodes and pods state, the scheduler gives a plan that holds, or a reason.
//!
//! Words that mean something are cut, spliced and salted, amounts are drawn from the edges of their
//! type. A case is a short life. Each target runs for as long as `GPUDECK_FUZZ_SECS` says (CI: 60 s
//! each), a number of cases without it; `GPUDECK_FUZZ_SEED` goes another way.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::books::bind;
use super::build::*;
use super::cast::Dice;
use super::hostile::{ANNOTATIONS, KEYS, LABELS, VALUES, WORDS};
use crate::model::{Change, DecisionKind, Delta, Node, NodeGpus, Pod, Resources, Str};
use crate::plan::Plan;
use crate::sched::{
    MoveLimits, RecutLimits, SchedConfig, State, decide, propose_moves, propose_recuts,
};

mod queues;

/// Steps of one case.
const STEPS: u64 = 60;
const NODES: u64 = 8;
const PODS: u64 = 24;

fn fuzz(target: &str, mut step: impl FnMut(&mut State, &mut Dice)) {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let budget = number("GPUDECK_FUZZ_SECS").map(Duration::from_secs);
    let seed = number("GPUDECK_FUZZ_SEED").unwrap_or(1);
    let began = Instant::now();
    let mut cases = 0_u64;
    // Without a budget a number of cases: no test depends on how fast the machine is.
    while budget.map_or(cases < 40, |budget| began.elapsed() < budget) {
        cases += 1;
        let case = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ cases;
        let mut life = || {
            let mut dice = Dice(case);
            let mut state = State::new(SchedConfig::default());
            for _ in 0..STEPS {
                step(&mut state, &mut dice);
            }
            empty_again(state);
        };
        let done = catch_unwind(AssertUnwindSafe(&mut life));
        assert!(done.is_ok(), "{target}: case {cases} of seed {seed}");
    }
}

/// Cut, spliced or salted; or as it was.
fn mutated(dice: &mut Dice, words: &[&str]) -> String {
    let (word, other) = (dice.of(words), dice.of(words));
    let chars = word.chars().count();
    match dice.below(8) {
        0 => word.chars().take(dice.index(chars + 1)).collect(),
        1 => format!("{word}{other}"),
        2 => format!("{word},{other}"),
        3 => {
            let salt = dice.of(&['\0', '\u{202e}', 'é', '-', '.', '=', '/', ' ', '9', '\n']);
            let at = dice.index(chars + 1);
            let head = word.chars().take(at);
            head.chain([salt]).chain(word.chars().skip(at)).collect()
        }
        4 => word.repeat(1 + dice.index(40)),
        5 => dice.below(u64::MAX).to_string(),
        _ => word.to_owned(),
    }
}

/// From the edges of the type, or a little around a sensible amount.
fn amount(dice: &mut Dice) -> i64 {
    let edge = dice.of(&[0, 1, -1, 7, 8, 16, 1 << 20, 1 << 40, i64::MAX, i64::MIN]);
    match dice.below(4) {
        0 => edge.wrapping_add(i64::try_from(dice.below(5)).unwrap() - 2),
        1 => edge,
        _ => i64::try_from(dice.below(9)).unwrap(),
    }
}

fn notes(dice: &mut Dice, keys: &[&str], words: &[&str], most: u64) -> Box<[(Str, Str)]> {
    let mut list: Vec<(Str, Str)> = (0..dice.below(most))
        .map(|_| (dice.of(keys).into(), mutated(dice, words).into()))
        .collect();
    list.sort();
    list.dedup_by(|a, b| a.0 == b.0);
    list.into()
}

fn resources(dice: &mut Dice, cpu_milli: i64) -> Resources {
    let mut r = amounts(cpu_milli, 1 << 40, 0);
    for _ in 0..dice.below(4) {
        let key: Str = if dice.below(4) == 0 {
            mutated(dice, KEYS).into()
        } else {
            dice.of(KEYS).into()
        };
        r.set_extended(&key, amount(dice));
    }
    if dice.below(5) == 0 {
        r.cpu_milli = amount(dice);
        r.mem_bytes = amount(dice);
        r.ephemeral_bytes = amount(dice);
    }
    r
}

fn set_some_node(state: &mut State, dice: &mut Dice) {
    let mut n = node(&format!("n{}", dice.below(NODES)), 0);
    n.meta.labels = notes(dice, LABELS, VALUES, 9);
    n.allocatable = resources(dice, 64_000);
    n.allocatable.pods = dice.of(&[0, 1, 3, 110, -1, i64::MAX]);
    n.capacity = match dice.below(3) {
        0 => resources(dice, 64_000),
        _ => n.allocatable.clone(),
    };
    n.gpus = NodeGpus::from_labels(&n.meta, &n.capacity);
    state.apply(&set_node(n));
}

fn some_pod(dice: &mut Dice) -> Pod {
    let mut p = pod(&format!("p{}", dice.below(PODS)), 0);
    p.meta.annotations = notes(dice, ANNOTATIONS, WORDS, 5);
    p.requests = resources(dice, 1_000);
    p.requests.mem_bytes = amount(dice);
    p.priority = dice.of(&[0, 1, i32::MIN, i32::MAX]);
    if dice.below(3) == 0 {
        let size = dice.of(&[0, 1, 2, 3, 7, 1_000_000, u32::MAX]);
        p = in_group(p, dice.of(&["g", "h"]), size);
    }
    if dice.below(4) == 0 {
        p = bound(p, &format!("n{}", dice.below(NODES + 2)));
    }
    p
}

/// What each node has too little of already; no plan may add to that.
fn rooms(state: &State) -> BTreeMap<Str, Vec<i128>> {
    let rows = state.rows.rows.iter().zip(&state.rows.slots);
    let of = |slot: &crate::sched::slot::Slot| {
        let room = &slot.room;
        let mut all = vec![
            room.cpu_milli,
            room.mem_bytes,
            room.ephemeral_bytes,
            room.pods,
        ];
        all.extend(KEYS.iter().map(|key| room.extended(key)));
        all
    };
    rows.map(|(row, slot)| (row.name.clone(), of(slot)))
        .collect()
}

/// Decides twice, checks the plan and carries it out.
fn carry(state: &mut State) -> Plan {
    let plan = decide(state, at(0));
    assert_eq!(decide(&state.fork(), at(0)), plan, "the same, twice");
    for decision in &plan.decisions {
        if let DecisionKind::Waiting(reason) = &decision.kind {
            assert!(!reason.to_string().is_empty());
        }
    }
    let before = rooms(state);
    for action in plan.actions() {
        state.assume(action);
    }
    let after = rooms(state);
    for action in plan.actions() {
        let (name, node, _) = bind(action);
        for (had, has) in before[node].iter().zip(&after[node]) {
            assert!(has >= had || *has >= 0, "{name} on {node}: {had} to {has}");
        }
    }
    for decision in &plan.decisions {
        state.apply(&Delta::Decision(decision.clone()));
    }
    plan
}

/// All go, and nothing is left behind.
fn empty_again(mut state: State) {
    for i in 0..PODS {
        let p = pod(&format!("p{i}"), 0);
        state.apply(&Delta::Pod(Change::Gone(gone(&p.meta))));
    }
    assert_eq!((state.waiting_pods(), state.assumed_pods()), (0, 0));
    for i in 0..NODES {
        let n = node(&format!("n{i}"), 0);
        state.apply(&Delta::Node(Change::Gone(gone(&n.meta))));
    }
    assert_eq!(state.rows.node_count(), 0);
}

#[test]
fn amounts_and_words() {
    fuzz("amounts and words", |state, dice| match dice.below(8) {
        0 | 1 => set_some_node(state, dice),
        2 => {
            let n = node(&format!("n{}", dice.below(NODES)), 0);
            state.apply(&Delta::Node(Change::Gone(gone(&n.meta))));
        }
        3 => {
            let p = pod(&format!("p{}", dice.below(PODS)), 0);
            state.apply(&Delta::Pod(Change::Gone(gone(&p.meta))));
        }
        4..=6 => state.apply(&set_pod(some_pod(dice))),
        _ => {
            carry(state);
            if dice.below(4) == 0 {
                let limits = MoveLimits {
                    from_gpus: 1,
                    ..MoveLimits::default()
                };
                for proposal in propose_moves(state, at(0), &limits) {
                    assert!(!proposal.moves.is_empty() && !proposal.starts.is_empty());
                }
                for recut in propose_recuts(state, &RecutLimits::default()) {
                    assert!(recut.gain_slices > 0.0 && !recut.to.is_empty());
                }
            }
        }
    });
}

/// A node whose labels tell of a fabric that may contradict that of the others.
fn somewhere(dice: &mut Dice) -> Node {
    let mut n = node(&format!("n{}", dice.below(NODES)), 4);
    let mut labels = notes(dice, LABELS, VALUES, 3).to_vec();
    for key in [
        "fabric.topograph.run/tier-0",
        "fabric.topograph.run/tier-1",
        "nvidia.com/gpu.clique",
        "topology.kubernetes.io/zone",
    ] {
        if dice.below(3) > 0 {
            labels.push((key.into(), dice.of(&["a", "b", "c", "none"]).into()));
        }
    }
    labels.sort();
    labels.dedup_by(|a, b| a.0 == b.0);
    n.meta.labels = labels.into();
    n.gpus = NodeGpus::from_labels(&n.meta, &n.capacity);
    n
}

#[test]
fn gangs_on_fabrics_that_contradict_themselves() {
    const WISHES: [&str; 8] = [
        "required=leaf",
        "required=spine",
        "required=clique",
        "required=node",
        "preferred=leaf",
        "required=zone,preferred=leaf",
        "required=leaf,preferred=zone",
        "required=tier-16",
    ];
    fuzz("gangs", |state, dice| match dice.below(8) {
        0 | 1 => state.apply(&set_node(somewhere(dice))),
        2 => {
            let p = pod(&format!("p{}", dice.below(PODS)), 0);
            state.apply(&Delta::Pod(Change::Gone(gone(&p.meta))));
        }
        3..=5 => {
            let gang = dice.of(&["g", "h", "i"]);
            let size = dice.of(&[1, 2, 3, 5, 9, 1_000_000, u32::MAX]);
            for _ in 0..1 + dice.below(5) {
                let p = pod(&format!("p{}", dice.below(PODS)), dice.of(&[0, 1, 2, 4, 5]));
                let mut p = in_group(p, gang, size);
                let wish = match dice.below(4) {
                    0 => mutated(dice, &WISHES),
                    _ => dice.of(&WISHES).to_owned(),
                };
                let mut said = vec![("gpudeck.dev/topology", &*wish)];
                if dice.below(3) == 0 {
                    said.push(("gpudeck.dev/subgroup", dice.of(&["x", "y", ""])));
                    said.push(("gpudeck.dev/subgroup-topology", dice.of(&WISHES)));
                }
                p.meta.annotations = pairs(&said);
                state.apply(&set_pod(p));
            }
        }
        _ => {
            let plan = carry(state);
            // Whoever is bound keeps its place while the labels change below it.
            for action in plan.actions() {
                let (name, node, _) = bind(action);
                if dice.below(2) == 0 {
                    state.apply(&set_pod(bound(pod(name, 1), node)));
                }
            }
        }
    });
}
