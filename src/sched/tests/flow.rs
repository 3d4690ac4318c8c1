//! The life of a pod in the scheduler: queue, placement, assumption, refusal, wake-up.

use std::sync::Arc;

use super::build::*;
use crate::model::{
    Change, Delta, Kind, Node, Phase, Pod, PriorityClass, SourceReport, SourceState, Str,
};
use crate::plan::Plan;
use crate::sched::{SchedConfig, State, decide};

fn report(kind: Kind, state: SourceState) -> Delta {
    Delta::Source(SourceReport {
        kind,
        namespace: None,
        state,
        at: at(0),
    })
}

#[test]
fn only_our_waiting_pods_are_decided() {
    let foreign = Pod {
        scheduler: "default-scheduler".into(),
        ..pod("foreign", 1)
    };
    let mut leaving = pod("leaving", 1);
    leaving.meta.deleting = Some(at(0));
    let ended = Pod {
        phase: Phase::Failed,
        ..pod("ended", 1)
    };
    let gated = Pod {
        gates: ["kueue.x-k8s.io/admission".into()].into(),
        ..pod("gated", 1)
    };
    let plan = decide(
        &state([
            set_node(node("n", 8)),
            set_pod(foreign),
            set_pod(leaving),
            set_pod(ended),
            set_pod(gated),
            set_pod(pod("p", 1)),
        ]),
        at(0),
    );
    assert_eq!(binds(&plan), "p>n");
    assert_eq!(
        told(&plan, "gated"),
        "held by scheduling gate kueue.x-k8s.io/admission"
    );
    assert_eq!(plan.decisions.len(), 2);
    assert!(!plan.more);
}

#[test]
fn the_scheduler_name_is_a_setting() {
    let config = SchedConfig {
        scheduler_name: "mine".into(),
        ..SchedConfig::default()
    };
    let mine = Pod {
        scheduler: "mine".into(),
        ..pod("mine", 1)
    };
    let s = state_with(
        config,
        [set_node(node("n", 8)), set_pod(pod("p", 1)), set_pod(mine)],
    );
    assert_eq!(binds(&decide(&s, at(0))), "mine>n");
}

#[test]
fn unsupported_asks_wait_with_what_they_are() {
    let case = |p: Pod| reason([set_node(node("n", 8)), set_pod(p)]).to_string();
    assert_eq!(
        case(annotated(pod("p", 1), &[("gpudeck.dev/milli-gpu", "500")])),
        "it asks for whole devices and for a share of one (gpudeck.dev/milli-gpu 500): only one \
         of the two can be"
    );
    assert_eq!(
        case(annotated(pod("p", 1), &[("gpudeck.dev/milli-gpu", "half")])),
        "annotation gpudeck.dev/milli-gpu: \"half\" is not a whole number from 1 to 999"
    );
    assert_eq!(
        case(with(pod("p", 1), |c| {
            c.unsupported = ["pod affinity".into(), "DRA claims".into()].into();
        })),
        "pod affinity, DRA claims: are not placed by this version"
    );
    let mut unreadable = pod("p", 1);
    unreadable.meta.unreadable = ["requests nvidia.com/gpu \"x\": not a quantity".into()].into();
    assert_eq!(
        case(unreadable),
        "not all of the pod could be read: requests nvidia.com/gpu \"x\": not a quantity"
    );
}

#[test]
fn priority_then_age_then_name() {
    let p = |name: &str, priority: i32, second: i64| {
        let mut p = pod(name, 1);
        p.priority = priority;
        p.meta.created = Some(at(second));
        set_pod(p)
    };
    let pods = [
        p("b", 0, 5),
        p("a", 0, 5),
        p("old", 0, 1),
        p("low", -7, 0),
        p("high", 100, 9),
    ];
    let s = state(pods.into_iter().chain([set_node(node("n", 8))]));
    assert_eq!(
        binds(&decide(&s, at(0))),
        "high>n | old>n | a>n | b>n | low>n"
    );
}

#[test]
fn a_priority_class_known_later_moves_its_pods() {
    let urgent = Pod {
        priority_class: "urgent".into(),
        ..pod("z", 1)
    };
    let mut s = state([
        set_node(node("n", 8)),
        set_pod(pod("a", 1)),
        set_pod(urgent),
    ]);
    assert_eq!(binds(&decide(&s, at(0))), "a>n | z>n");
    s.apply(&Delta::PriorityClass(Change::Set(Arc::new(
        PriorityClass {
            meta: meta("urgent"),
            value: 10,
            ..PriorityClass::default()
        },
    ))));
    assert_eq!(binds(&decide(&s, at(0))), "z>n | a>n");
    s.apply(&Delta::PriorityClass(Change::Gone(gone(&meta("urgent")))));
    assert_eq!(binds(&decide(&s, at(0))), "a>n | z>n");
}

#[test]
fn placed_pods_say_why_there() {
    let mut s = state([
        set_node(node("cpu-1", 0)),
        set_node(node("a-gpu", 8)),
        set_node(node("b-gpu", 8)),
        set_pod(pod("p1", 6)),
        set_pod(pod("p2", 4)),
        set_pod(pod("p3", 2)),
        set_pod(pod("q", 0)),
    ]);
    let plan = decide(&s, at(0));
    assert_eq!(
        binds(&plan),
        "p1>a-gpu | p2>b-gpu | p3>a-gpu | q>cpu-1",
        "a pod without GPUs keeps off the GPU nodes"
    );
    assert_eq!(
        told(&plan, "p1"),
        "a-gpu: first of 2 nodes that fit; 8 of 8 GPUs free before"
    );
    assert_eq!(
        told(&plan, "p2"),
        "b-gpu: the only node that fits; 8 of 8 GPUs free before"
    );
    assert_eq!(
        told(&plan, "p3"),
        "a-gpu: best of 2 nodes that fit; 2 of 8 GPUs free before; on b-gpu it would cost others \
         0.44 GPU more, mostly room for 4-GPU pods"
    );
    assert_eq!(
        told(&plan, "q"),
        "cpu-1: first of 3 nodes that fit; 64 of 64 cores free before"
    );
    s.apply(&set_node(Node {
        unschedulable: true,
        ..node("cpu-1", 0)
    }));
    assert_eq!(
        told(&decide(&s, at(0)), "q"),
        "a-gpu: first of 2 nodes that fit, none of them without GPUs; 62 of 64 cores free before"
    );
}

#[test]
fn an_assumed_binding_counts_until_seen_forgotten_or_expired() {
    let start = || {
        let mut s = state([
            set_node(node("n", 8)),
            set_pod(pod("p", 8)),
            set_pod(pod("q", 8)),
        ]);
        s.expire(at(0));
        let plan = decide(&s, at(0));
        assert_eq!(binds(&plan), "p>n");
        carry_out(&mut s, &plan);
        (s, plan)
    };
    // Assumed: the place is taken, the pod is not decided again.
    let (mut s, plan) = start();
    assert_eq!((s.assumed_pods(), s.waiting_pods()), (1, 1));
    assert!(decide(&s, at(1)).is_empty(), "q's reason has been told");
    // Seen: the real use replaces the assumed one.
    s.apply(&set_pod(bound(pod("p", 8), "n")));
    assert_eq!(s.assumed_pods(), 0);
    assert!(decide(&s, at(1)).is_empty());
    s.apply(&Delta::Pod(Change::Gone(gone(&pod("p", 8).meta))));
    assert_eq!(binds(&decide(&s, at(1))), "q>n", "freed exactly once");
    // Forgetting a binding that is seen by now changes nothing.
    s.apply(&set_pod(bound(pod("p", 8), "n")));
    for action in plan.actions() {
        s.forget(action);
        s.assume(action);
    }
    assert_eq!(binds(&decide(&s, at(1))), "");

    // Forgotten.
    let (mut s, plan) = start();
    for action in plan.actions() {
        s.forget(action);
        s.forget(action);
    }
    assert_eq!((s.assumed_pods(), s.waiting_pods()), (0, 2));
    assert_eq!(binds(&decide(&s, at(1))), "p>n");

    // However late the answer and the watch are, the place is not given away twice.
    let (mut s, _) = start();
    s.expire(at(100_000));
    assert_eq!(s.assumed_pods(), 1);
    assert_eq!(binds(&decide(&s, at(100_000))), "");

    // Without a certain answer it is given up after 30 s, not before; a clock that was set back
    // does not hold it for ever.
    let doubt = |s: &mut State, plan: &Plan| plan.actions().for_each(|a| s.doubt(a));
    let (mut s, plan) = start();
    doubt(&mut s, &plan);
    s.expire(at(29));
    assert_eq!(s.assumed_pods(), 1);
    s.expire(at(30));
    assert_eq!(s.assumed_pods(), 0);
    assert_eq!(binds(&decide(&s, at(30))), "p>n");
    let (mut s, plan) = start();
    doubt(&mut s, &plan);
    s.expire(at(-1_000));
    s.expire(at(-970));
    assert_eq!(s.assumed_pods(), 0);

    // While pods are not watched nothing expires: the binding may have happened unseen.
    let (mut s, plan) = start();
    doubt(&mut s, &plan);
    let pods_are = |state: SourceState| {
        Delta::Source(SourceReport {
            kind: Kind::Pod,
            namespace: None,
            state,
            at: at(0),
        })
    };
    s.apply(&pods_are(SourceState::Stale {
        since: at(0),
        why: "gone".into(),
    }));
    s.expire(at(40));
    s.expire(at(100));
    assert_eq!(s.assumed_pods(), 1);
    s.apply(&pods_are(SourceState::Live));
    s.expire(at(129));
    assert_eq!(s.assumed_pods(), 1, "the watch has its time again");
    s.expire(at(130));
    assert_eq!(s.assumed_pods(), 0);

    // A status update of the unbound pod does not end the assumption, its deletion does.
    let (mut s, _) = start();
    s.apply(&set_pod(Pod {
        reason: Some("Unschedulable".into()),
        ..pod("p", 8)
    }));
    assert_eq!((s.assumed_pods(), s.waiting_pods()), (1, 1));
    s.apply(&Delta::Pod(Change::Gone(gone(&pod("p", 8).meta))));
    assert_eq!(binds(&decide(&s, at(1))), "q>n");
}

#[test]
fn a_refused_pod_is_left_alone_for_a_while() {
    let mut s = state([set_node(node("n", 8)), set_pod(pod("p", 1))]);
    s.apply(&refused(&pod("p", 1), 0));
    assert!(decide(&s, at(9)).is_empty());
    assert_eq!(binds(&decide(&s, at(10))), "p>n");
    assert_eq!(binds(&decide(&s, at(-5))), "p>n", "a clock that went back");
}

#[test]
fn a_blocked_pod_does_not_hold_back_what_fits_and_is_told_once() {
    let mut s = state([
        set_node(node("n", 4)),
        set_pod(pod("a-big", 8)),
        set_pod(pod("b", 1)),
    ]);
    let plan = decide(&s, at(0));
    assert_eq!(binds(&plan), "b>n");
    assert_eq!(
        told(&plan, "a-big"),
        "0/1 nodes fit: 1 Insufficient nvidia.com/gpu"
    );
    carry_out(&mut s, &plan);
    assert!(decide(&s, at(1)).is_empty());
    // Other counts of the same filters are told after a while, another filter at once.
    s.apply(&set_node(node("m", 2)));
    assert!(decide(&s, at(2)).is_empty());
    assert_eq!(
        told(&decide(&s, at(30)), "a-big"),
        "0/2 nodes fit: 2 Insufficient nvidia.com/gpu"
    );
    s.apply(&set_node(Node {
        unschedulable: true,
        ..node("m", 2)
    }));
    assert_eq!(
        told(&decide(&s, at(3)), "a-big"),
        "0/2 nodes fit: 1 node(s) were unschedulable, 1 Insufficient nvidia.com/gpu"
    );
    s.apply(&set_node(node("m", 8)));
    assert_eq!(binds(&decide(&s, at(3))), "a-big>m", "woken");
}

#[test]
fn pods_may_come_before_their_node_and_stay_after_it() {
    let mut s = state([
        set_pod(bound(pod("early", 3), "n")),
        set_pod(pod("p", 6)),
        set_node(node("n", 8)),
    ]);
    assert_eq!(
        told(&decide(&s, at(0)), "p"),
        "0/1 nodes fit: 1 Insufficient nvidia.com/gpu"
    );
    s.apply(&Delta::Node(Change::Gone(gone(&node("n", 8).meta))));
    assert_eq!(told(&decide(&s, at(0)), "p"), "0/0 nodes fit:");
    s.apply(&set_node(node("n", 9)));
    assert_eq!(binds(&decide(&s, at(0))), "p>n");
    // Late news of the old node of that name.
    let mut old = node("n", 8).meta;
    old.uid.0 = "older".into();
    s.apply(&Delta::Node(Change::Gone(gone(&old))));
    assert_eq!(binds(&decide(&s, at(0))), "p>n");
}

#[test]
fn a_round_is_bounded_and_says_so() {
    let config = SchedConfig {
        max_placements: 3,
        ..SchedConfig::default()
    };
    let pods = (0..8).map(|i| set_pod(pod(&format!("p{i}"), 1)));
    let mut s = state_with(config, pods.chain([set_node(node("n", 8))]));
    let mut rounds = Vec::new();
    loop {
        let plan = decide(&s, at(0));
        rounds.push((plan.groups.len(), plan.more));
        carry_out(&mut s, &plan);
        if !plan.more {
            break;
        }
    }
    assert_eq!(rounds, [(3, true), (3, true), (2, false)]);
}

#[test]
fn nothing_is_placed_while_use_is_not_known() {
    let live = |kind| report(kind, SourceState::Live);
    let mut s = state([set_node(node("n", 8)), set_pod(pod("p", 1))]);
    assert_eq!(s.blocked(), None);
    s.apply(&live(Kind::Node));
    s.apply(&report(Kind::Pod, SourceState::Loading { read: 500 }));
    assert!(decide(&s, at(0)).is_empty());
    assert_eq!(
        s.blocked().as_deref(),
        Some("nothing is placed: pods are not known: still loading, 500 read")
    );
    s.apply(&live(Kind::Pod));
    assert_eq!(binds(&decide(&s, at(0))), "p>n");
    s.apply(&report(
        Kind::Node,
        SourceState::Stale {
            since: at(0),
            why: "connection lost".into(),
        },
    ));
    assert!(decide(&s, at(0)).is_empty());
    // Other kinds hold everything back only while they load.
    s.apply(&live(Kind::Node));
    s.apply(&report(Kind::Job, SourceState::Loading { read: 0 }));
    assert!(decide(&s, at(0)).is_empty());
    s.apply(&report(
        Kind::Job,
        SourceState::Denied {
            why: "no list".into(),
        },
    ));
    assert_eq!(binds(&decide(&s, at(0))), "p>n");

    let mut s = state([set_node(node("n", 8)), set_pod(pod("p", 1))]);
    s.apply(&Delta::Source(SourceReport {
        kind: Kind::Pod,
        namespace: Some("team".into()),
        state: SourceState::Live,
        at: at(0),
    }));
    assert_eq!(
        s.blocked().as_deref(),
        Some("nothing is placed: pods are not known: only namespace team may be listed")
    );
}

#[test]
fn denied_claims_are_not_missing_claims() {
    let p = with(pod("p", 1), |c| c.claims = ["data".into()].into());
    let why: Str = "persistentvolumeclaims is forbidden".into();
    let r = reason([
        set_node(node("n", 8)),
        set_pod(p),
        report(Kind::VolumeClaim, SourceState::Denied { why }),
    ]);
    assert_eq!(
        r.to_string(),
        "persistentvolumeclaims are not known: persistentvolumeclaims is forbidden"
    );
}

#[test]
fn a_fork_decides_the_same_and_leaves_the_original_alone() {
    // A state may be handed to another thread.
    fn may_move<T: Send + Sync>(_: &T) {}
    let s = state([set_node(node("n", 8)), set_pod(pod("p", 8))]);
    may_move(&s);
    let mut fork = s.clone();
    let plan = decide(&fork, at(0));
    carry_out(&mut fork, &plan);
    fork.apply(&Delta::Node(Change::Gone(gone(&node("n", 8).meta))));
    assert_eq!(decide(&s, at(0)), plan);
}

#[test]
fn more_changes_than_are_remembered_still_wake_the_pod() {
    let mut s = state([set_node(node("n", 4)), set_pod(pod("p", 8))]);
    assert_eq!(binds(&decide(&s, at(0))), "");
    for i in 0..10_000 {
        s.apply(&set_node(node("other", i % 7)));
    }
    assert_eq!(binds(&decide(&s, at(0))), "");
    s.apply(&set_node(node("other", 8)));
    for _ in 0..5_000 {
        s.apply(&set_node(node("third", 1)));
        s.apply(&Delta::Node(Change::Gone(gone(&node("third", 1).meta))));
    }
    assert_eq!(binds(&decide(&s, at(0))), "p>other");
}
