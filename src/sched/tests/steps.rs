//! Long random lives with fixed seeds: what may never happen is looked for at every step.
//!
//! `GPUDECK_STEPS` sets how many steps all lives make together; `GPUDECK_SEED` makes them others.

use super::books::{Books, bind};
use super::build::*;
use super::cast::{Dice, NODES, some_node, some_pods};
use crate::model::{Change, Delta};
use crate::sched::scratch::Scratch;
use crate::sched::slot::Slot;
use crate::sched::{State, decide};

/// Lives that share the steps: a test each, so they run side by side.
const LIVES: u64 = 4;

/// Steps of one life.
fn steps() -> u64 {
    let all = std::env::var("GPUDECK_STEPS").ok();
    all.and_then(|n| n.parse().ok()).unwrap_or(40_000) / LIVES
}

fn seed() -> u64 {
    let seed = std::env::var("GPUDECK_SEED").ok();
    seed.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Everything of a slot, its worth to the last bit.
fn bits(slots: &[Slot]) -> Vec<(Slot, u64)> {
    let all = slots.iter();
    all.map(|slot| (slot.clone(), slot.worth.to_bits()))
        .collect()
}

/// Decides, checks the plan against the books and carries it out.
fn carry(books: &mut Books, state: &mut State, dice: &mut Dice) {
    let plan = decide(state, at(0));
    if dice.below(8) == 0 {
        assert_eq!(decide(&state.fork(), at(0)), plan, "the same, twice");
    }
    books.enter(&plan);
    for action in plan.actions() {
        state.assume(action);
    }
    books.check(state, &plan);
    for decision in &plan.decisions {
        state.apply(&Delta::Decision(decision.clone()));
    }
    // Most bindings are seen; some are refused, each gang as a whole.
    for group in &plan.groups {
        let refused = dice.below(10) == 0;
        for action in group {
            let (name, _, device) = bind(action);
            if refused {
                let (pod, ..) = books.running.remove(name).unwrap();
                books.waiting.insert(name.to_owned(), pod);
                state.forget(action);
                continue;
            }
            let (pod, node, _) = &books.running[name];
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

/// Placements are tried and taken back: nothing is left of them, to the last bit.
fn try_and_undo(state: &State, dice: &mut Dice) {
    let waiting = state.queue.values();
    let classes: Vec<_> = waiting
        .filter_map(|uid| Some(state.tracked(uid)?.waiting.as_ref()?.1))
        .collect();
    if classes.is_empty() {
        return;
    }
    let mut scratch = Scratch::new(state);
    let place = |scratch: &mut Scratch<'_>, dice: &mut Dice| {
        for _ in 0..dice.below(8) {
            scratch.place(classes[dice.index(classes.len())]);
        }
    };
    place(&mut scratch, dice);
    let (mark, kept) = (scratch.mark(), bits(&scratch.slots()));
    place(&mut scratch, dice);
    scratch.undo(mark);
    assert_eq!(bits(&scratch.slots()), kept);
    scratch.undo(0);
    assert_eq!(bits(&scratch.slots()), bits(&state.rows.slots));
    // What it remembers of the classes is used by the decisions that follow.
    scratch.finish();
}

/// Bindings are assumed and refused, pods leave a fork: the state is as it was.
fn fork_and_forget(books: &Books, state: &mut State) {
    let plan = decide(state, at(0));
    let mut fork = state.fork();
    for action in plan.actions() {
        fork.assume(action);
    }
    for (pod, ..) in books.running.values() {
        fork.apply(&Delta::Pod(Change::Gone(gone(&pod.meta))));
    }
    decide(&fork, at(0));
    assert_eq!(decide(state, at(0)), plan, "a fork leaves no trace");
    let before = bits(&state.rows.slots);
    plan.actions().for_each(|action| state.assume(action));
    plan.actions().for_each(|action| state.forget(action));
    assert_eq!(bits(&state.rows.slots), before);
}

fn live(seed: u64, steps: u64) -> (State, u64) {
    let mut dice = Dice(seed);
    let mut books = Books::default();
    let mut state = State::new(quiet());
    let renew = |books: &mut Books, state: &mut State, dice: &mut Dice, i: u64| {
        let node = some_node(dice, i);
        let name = node.meta.name.to_string();
        // Only an idle node is cut anew.
        let idle = !books.running.values().any(|(_, n, _)| *n == name);
        let keeps = books.nodes.get(&name).filter(|_| !idle);
        let mut next = keeps.cloned().unwrap_or_else(|| node.clone());
        next.unschedulable = node.unschedulable;
        state.apply(&set_node(next.clone()));
        books.nodes.insert(name, next);
    };
    for i in 0..NODES {
        renew(&mut books, &mut state, &mut dice, i);
    }
    let mut placed = 0;
    for step in 0..steps {
        match dice.below(32) {
            0..=9 => {
                for p in some_pods(&mut dice, step) {
                    books.waiting.insert(p.meta.name.to_string(), p.clone());
                    state.apply(&set_pod(p));
                }
            }
            10..=19 => {
                if let Some(name) = books.any_running(&mut dice) {
                    let (pod, ..) = books.running.remove(&name).unwrap();
                    state.apply(&Delta::Pod(Change::Gone(gone(&pod.meta))));
                }
            }
            20 | 21 => {
                let i = dice.below(NODES);
                renew(&mut books, &mut state, &mut dice, i);
            }
            22 | 23 if books.waiting.len() > 24 => {
                // Who waits for long gives up.
                for (_, pod) in std::mem::take(&mut books.waiting) {
                    state.apply(&Delta::Pod(Change::Gone(gone(&pod.meta))));
                }
            }
            24 => try_and_undo(&state, &mut dice),
            25 if dice.below(10) == 0 => fork_and_forget(&books, &mut state),
            _ => {
                let before = books.running.len();
                carry(&mut books, &mut state, &mut dice);
                placed += u64::try_from(books.running.len() - before).unwrap();
            }
        }
    }
    // What is left of each node once all are gone is what a new state starts with.
    for (pod, ..) in books.running.values() {
        state.apply(&Delta::Pod(Change::Gone(gone(&pod.meta))));
    }
    let mut fresh = State::new(quiet());
    for i in 0..NODES {
        fresh.apply(&set_node(books.nodes[&format!("n{i}")].clone()));
    }
    let left = |state: &State| -> Vec<_> {
        let slots = state.rows.slots.iter();
        slots
            .map(|s| (s.room.clone(), s.gpu.clone(), s.slices))
            .collect()
    };
    assert_eq!(left(&state), left(&fresh));
    (state, placed)
}

fn a_life(number: u64) {
    let steps = steps();
    let (_, placed) = live(seed() * LIVES + number, steps);
    assert!(placed > steps / 8, "{placed} placed in {steps} steps");
}

#[test]
fn a_long_life_breaks_no_promise_1() {
    a_life(0);
}

#[test]
fn a_long_life_breaks_no_promise_2() {
    a_life(1);
}

#[test]
fn a_long_life_breaks_no_promise_3() {
    a_life(2);
}

#[test]
fn a_long_life_breaks_no_promise_4() {
    a_life(3);
}

#[test]
fn the_same_life_twice_ends_the_same() {
    let (one, two) = (live(9, 3_000), live(9, 3_000));
    assert_eq!(one.1, two.1);
    assert_eq!(bits(&one.0.rows.slots), bits(&two.0.rows.slots));
}
