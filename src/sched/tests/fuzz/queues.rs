//! Queues that make no sense, and clocks that jump.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::model::{Meta, Queue, QueuePreemption, QueueTerms, ReclaimFrom, Tier, Uid};
use crate::sched::explain;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const NOTES: &[&str] = &[
    "gpudeck.dev/preemptible",
    "gpudeck.dev/runtime-estimate",
    "gpudeck.dev/checkpoint-last",
    "gpudeck.dev/gang-min",
    "gpudeck.dev/topology",
];
const SAID: &[&str] = &[
    "false",
    "true",
    "1h30m",
    "600",
    "-1",
    "9223372036854775807",
    "{\"durable_at\": \"2023-11-14T22:13:20Z\"}",
    "{\"durable_at\": \"9999-12-31T23:59:59Z\"}",
    "required=leaf",
    "2",
];

fn name_of(dice: &mut Dice) -> Str {
    match dice.below(12) {
        0 => mutated(dice, &NAMES).into(),
        _ => dice.of(&NAMES).into(),
    }
}

fn some_terms(dice: &mut Dice) -> QueueTerms {
    QueueTerms {
        model: dice
            .of(&[None, None, Some("H100-80"), Some("a")])
            .map(Str::from),
        tier: dice.of(&[None, None, Some(Tier::Spot), Some(Tier::Reserved)]),
        guaranteed_milli_gpu: match dice.below(3) {
            0 => amount(dice),
            _ => i64::try_from(dice.below(9)).unwrap() * 1_000,
        },
        limit_milli_gpu: match dice.below(4) {
            0 => Some(amount(dice)),
            1 => Some(i64::try_from(dice.below(16)).unwrap() * 1_000),
            _ => None,
        },
    }
}

fn some_queue(dice: &mut Dice) -> Queue {
    let name = dice.of(&NAMES);
    let terms = (0..dice.below(3)).map(|_| some_terms(dice)).collect();
    let namespaces = (0..dice.below(3)).map(|_| name_of(dice)).collect();
    let small = i64::try_from(dice.below(4)).unwrap();
    Queue {
        meta: Meta {
            namespace: "".into(),
            created: Some(dice.of(&[at(0), at(5), Timestamp::MAX, Timestamp::MIN])),
            ..meta(name)
        },
        // Itself, one below it or none that exists among them.
        parent: (dice.below(2) == 0).then(|| name_of(dice)),
        namespaces,
        terms,
        weight: match dice.below(3) {
            0 => amount(dice),
            _ => small,
        },
        band: dice.of(&[0, 0, 1, i32::MIN, i32::MAX]),
        preemption: QueuePreemption {
            reclaim: dice.of(&[
                ReclaimFrom::Any,
                ReclaimFrom::LowerPriority,
                ReclaimFrom::Never,
            ]),
            within_queue: dice.below(2) == 0,
            borrow_up_to_priority: dice.of(&[None, Some(0), Some(i32::MIN), Some(i32::MAX)]),
        },
        min_runtime_secs: dice.of(&[
            None,
            Some(0),
            Some(60),
            Some(-1),
            Some(i64::MAX),
            Some(i64::MIN),
        ]),
        status: None,
    }
}

fn some_work(dice: &mut Dice, now: Timestamp) -> Pod {
    let mut p = pod(
        &format!("p{}", dice.below(PODS)),
        dice.of(&[0, 1, 1, 2, 4, 8]),
    );
    p.meta.namespace = name_of(dice);
    p.meta.annotations = notes(dice, NOTES, SAID, 3);
    p.meta.created = dice.of(&[Some(at(0)), Some(now), None, Some(Timestamp::MIN)]);
    p.priority = dice.of(&[0, 0, 1, 5, i32::MIN, i32::MAX]);
    if dice.below(4) == 0 {
        let size = dice.of(&[0, 1, 2, 3, u32::MAX]);
        p = in_group(p, dice.of(&["g", "h"]), size);
    }
    if dice.below(3) == 0 {
        p = bound(p, &format!("n{}", dice.below(NODES + 1)));
        p.started = dice.of(&[None, Some(at(0)), Some(now), Some(Timestamp::MAX)]);
    }
    p
}

/// Time goes on, back, or to the ends of what a clock can show.
fn another_time(dice: &mut Dice, now: Timestamp) -> Timestamp {
    let secs = dice.of(&[1, 60, 600, 86_400 * 400, -1, -3_600, -86_400 * 400]);
    match dice.below(12) {
        0 => dice.of(&[Timestamp::MIN, Timestamp::MAX, at(0)]),
        _ => now
            .checked_add(SignedDuration::from_secs(secs))
            .unwrap_or(at(0)),
    }
}

/// Decides twice, checks what may be checked, and carries it out with luck and without.
fn carry_queues(state: &mut State, dice: &mut Dice, now: Timestamp) {
    state.expire(now);
    let plan = decide(state, now);
    let fork = state.fork();
    fork.kept.forget();
    assert_eq!(decide(&fork, now), plan, "the same, made anew");
    for decision in &plan.decisions {
        if let DecisionKind::Waiting(reason) = &decision.kind {
            assert!(!reason.to_string().is_empty());
        }
    }
    state.hold(&plan);
    let before = rooms(state);
    for action in plan.actions() {
        state.assume(action);
    }
    let after = rooms(state);
    for action in plan.actions() {
        let (crate::plan::Action::Bind { name, node, .. }
        | crate::plan::Action::Evict { name, node, .. }) = action
        else {
            continue;
        };
        for (had, has) in before[node].iter().zip(&after[node]) {
            assert!(has >= had || *has >= 0, "{name} on {node}: {had} to {has}");
        }
        match dice.below(4) {
            0 => state.forget(action),
            1 => state.doubt(action),
            2 => state.take_back(action),
            _ => {}
        }
    }
    for decision in &plan.decisions {
        state.apply(&Delta::Decision(decision.clone()));
    }
    let uid = Uid(format!("uid-p{}", dice.below(PODS)).into());
    if let Some(told) = explain(state, now, &uid) {
        assert!(told.position >= 1 && told.position <= told.waiting);
        assert!(told.near_misses.iter().all(|miss| !miss.text.is_empty()));
    }
}

#[test]
fn queues_that_make_no_sense_and_clocks_that_jump() {
    let mut now = at(0);
    fuzz("queues", |state, dice| match dice.below(12) {
        0 => {
            let n = dice.below(NODES);
            let n = node(&format!("n{n}"), i64::try_from(dice.below(9)).unwrap());
            state.apply(&set_node(n));
        }
        1..=3 => {
            let queue = some_queue(dice);
            state.apply(&Delta::Queue(Change::Set(Arc::new(queue))));
        }
        4 => {
            let meta = meta(dice.of(&NAMES));
            state.apply(&Delta::Queue(Change::Gone(gone(&meta))));
        }
        5 => {
            let p = pod(&format!("p{}", dice.below(PODS)), 0);
            state.apply(&Delta::Pod(Change::Gone(gone(&p.meta))));
        }
        6..=8 => state.apply(&set_pod(some_work(dice, now))),
        9 => now = another_time(dice, now),
        _ => carry_queues(state, dice, now),
    });
}
