//! Who leaves, who waits for whom, and what is said of it.

use std::sync::Arc;

use super::build::*;
use crate::model::{Change, Delta, Gone, Queue, QueuePreemption, ReclaimFrom, Uid};
use crate::plan::{Action, Plan};
use crate::sched::{Change as What, SchedConfig, State, decide, explain};

fn queue(name: &str, guaranteed: i64, limit: Option<i64>) -> Delta {
    queue_with(name, guaranteed, |queue| {
        for terms in &mut queue.terms {
            terms.limit_milli_gpu = limit.map(|l| l * 1_000);
        }
    })
}

fn busy() -> State {
    state_with(
        SchedConfig::default(),
        [
            queue("a", 0, None),
            queue("b", 2, None),
            set_node(node("n", 2)),
            set_pod(of("a", bound(pod("a0", 1), "n"))),
            set_pod(of("a", bound(pod("a1", 1), "n"))),
            set_pod(of("b", pod("b0", 1))),
        ],
    )
}

/// A round as the engine makes it.
fn carry(state: &mut State, plan: &Plan) {
    state.hold(plan);
    carry_out(state, plan);
}

fn go(state: &mut State, name: &str) {
    state.apply(&Delta::Pod(Change::Gone(Gone {
        uid: Uid(format!("uid-{name}").into()),
        namespace: "a".into(),
        name: name.into(),
    })));
}

#[test]
fn a_victim_leaves_only_for_a_place_that_is_held_until_it_is_bound() {
    let mut s = busy();
    s.expire(at(1_000));
    let plan = decide(&s, at(1_000));
    assert_eq!(binds(&plan), "a1<n", "the latest of equals");
    assert_eq!(plan.holds.len(), 1);
    assert_eq!(told(&plan, "b0"), "a place is held on n and becomes free");
    let Some(Action::Evict { preemptor, why, .. }) = plan.actions().next() else {
        panic!("nobody leaves");
    };
    assert_eq!(&*preemptor.1, "b0");
    assert_eq!(
        &**why,
        "queue b is below its guarantee, queue a above its own; about 1060 GPU-seconds of work \
         are lost"
    );
    carry(&mut s, &plan);
    assert_eq!(binds(&decide(&s, at(1_001))), "", "nobody leaves twice");
    // Someone else does not get the place that was freed.
    s.apply(&set_pod(of("c", pod("c0", 1))));
    go(&mut s, "a1");
    let plan = decide(&s, at(1_002));
    assert_eq!(binds(&plan), "b0>n");
    carry(&mut s, &plan);
    assert_eq!(binds(&decide(&s, at(1_003))), "", "and nothing flips back");
}

#[test]
fn a_hold_ends_when_time_is_up() {
    let mut s = busy();
    s.expire(at(1_000));
    let plan = decide(&s, at(1_000));
    carry(&mut s, &plan);
    s.apply(&Delta::Pod(Change::Gone(gone(&of("b", pod("b0", 1)).meta))));
    go(&mut s, "a1");
    s.apply(&set_pod(of("c", pod("c0", 1))));
    s.expire(at(1_010));
    assert_eq!(
        binds(&decide(&s, at(1_010))),
        "",
        "held for who may come back"
    );
    s.expire(at(1_121));
    assert_eq!(binds(&decide(&s, at(1_121))), "c0>n");
}

#[test]
fn a_refused_victim_is_left_alone_and_another_one_asked() {
    let mut s = busy();
    s.expire(at(1_000));
    let plan = decide(&s, at(1_000));
    carry(&mut s, &plan);
    for action in plan.actions() {
        s.forget(action);
    }
    s.expire(at(1_121));
    let plan = decide(&s, at(1_121));
    assert_eq!(binds(&plan), "a1<n", "its time is over");
    carry(&mut s, &plan);
    for action in plan.actions() {
        s.forget(action);
    }
    s.expire(at(1_150));
    // The place is still held on the node, by whoever leaves.
    let plan = decide(&s, at(1_150));
    assert!(!binds(&plan).contains("a1<n"), "{}", binds(&plan));
}

#[test]
fn running_work_is_left_alone_for_its_minimum_time() {
    let mut s = busy();
    s.expire(at(30));
    assert_eq!(binds(&decide(&s, at(30))), "", "it has run for 30 s of 60");
    s.expire(at(61));
    assert_eq!(binds(&decide(&s, at(61))), "a1<n");
}

#[test]
fn the_one_who_loses_least_leaves() {
    let mut s = busy();
    let saved = annotated(
        of("a", bound(pod("a0", 1), "n")),
        &[(
            "gpudeck.dev/checkpoint-last",
            &format!("{{\"durable_at\": \"{}\"}}", at(990)),
        )],
    );
    s.apply(&set_pod(saved));
    s.expire(at(1_000));
    let plan = decide(&s, at(1_000));
    assert_eq!(binds(&plan), "a0<n");
    assert!(
        plan.actions()
            .any(|a| a.to_string().contains("about 70 GPU-seconds"))
    );
}

#[test]
fn a_queue_that_makes_no_sense_keeps_its_pods_waiting_with_the_reason() {
    let mut bad = Queue {
        meta: meta("a"),
        namespaces: ["a".into()].into(),
        weight: -1,
        ..Queue::default()
    };
    let s = |queue: Queue| {
        state([
            Delta::Queue(Change::Set(Arc::new(queue))),
            set_node(node("n", 2)),
            set_pod(of("a", pod("p", 1))),
        ])
    };
    assert_eq!(
        told(&decide(&s(bad.clone()), at(0)), "p"),
        "queue a: weight -1 is negative; 0 or more is right"
    );
    bad.weight = 1;
    bad.preemption = QueuePreemption {
        reclaim: ReclaimFrom::Never,
        ..QueuePreemption::default()
    };
    assert_eq!(binds(&decide(&s(bad), at(0))), "p>n");
}

#[test]
fn a_small_job_starts_before_a_reservation_only_if_it_ends_in_time() {
    let runs = |name: &str, gpus: i64, secs: &str| {
        annotated(pod(name, gpus), &[("gpudeck.dev/runtime-estimate", secs)])
    };
    let mut running = bound(runs("r", 4, "1000"), "n");
    running.started = Some(at(0));
    let mut s = state([set_node(node("n", 8)), set_pod(running)]);
    let mut big = pod("big", 8);
    big.priority = 10;
    s.apply(&set_pod(big));
    s.apply(&set_pod(runs("short", 2, "500")));
    s.apply(&set_pod(runs("long", 2, "5000")));
    s.apply(&set_pod(pod("unknown", 2)));
    let plan = decide(&s, at(100));
    assert_eq!(binds(&plan), "short>n");
    let why = explain(&s, at(100), &Uid("uid-big".into())).unwrap();
    assert_eq!((why.position, why.waiting), (1, 4));
    assert_eq!(why.predicted_start, Some(at(1_000)));
    assert_eq!(
        &*why.start_by,
        "when team/r ends by its own estimate, unless somebody before it in line takes the place"
    );
    assert!(why.near_misses.iter().any(|m| m.change == What::Wait));
}

#[test]
fn an_explanation_names_single_changes_that_were_tried() {
    let found = |s: &State, name: &str| -> Vec<(What, String)> {
        let why = explain(s, at(1_000), &Uid(format!("uid-{name}").into())).unwrap();
        why.near_misses
            .into_iter()
            .map(|m| (m.change, m.text.to_string()))
            .collect()
    };
    let s = state([
        queue("a", 0, Some(1)),
        set_node(node("n", 2)),
        set_pod(of("a", bound(pod("a0", 1), "n"))),
        set_pod(of("a", pod("p", 1))),
    ]);
    assert_eq!(
        found(&s, "p"),
        [(
            What::Limit,
            "with a limit of 2 GPUs for queue a (now 1) it would start".to_owned()
        )]
    );
    let s = state([
        queue("a", 0, None),
        queue("b", 0, None),
        set_node(node("n", 2)),
        set_pod(of("a", bound(pod("a0", 2), "n"))),
        set_pod(of("a", pod("p", 1))),
        set_pod(of("b", pod("q", 1))),
    ]);
    let mine = found(&s, "p");
    assert!(
        mine.iter()
            .any(|(w, t)| *w == What::Priority && t.starts_with("with priority 1 (now 0)")),
        "{mine:?}"
    );
    let other = found(&s, "q");
    assert!(
        !other.iter().any(|(w, _)| *w == What::Priority),
        "{other:?}"
    );
    assert!(other.iter().any(|(w, _)| *w == What::Nodes), "{other:?}");
}
