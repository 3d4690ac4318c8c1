//! Who is left alone though a newcomer has the right to its place: young work and what a disruption
//! budget holds; what limits a namespace without a queue; what
//! queues are told.

use std::sync::Arc;

use super::build::*;
use crate::model::{
    Admitter, AdmitterQueue, Change, Delta, DisruptionBudget, Foreign, ForeignBody, ForeignKind,
    GpuResource, MatchExpression, Meta, Operator, Pod, QueueKey, QueueStatus, QueueTerm, Uid,
};
use crate::plan::{Action, Plan};
use crate::sched::{Change as What, SchedConfig, State, decide, explain, tell_queues};

/// Two GPUs, both held by queue a, which is due none; a pod of queue b, which is due two, waits.
fn busy(a: Delta) -> State {
    state_with(
        SchedConfig::default(),
        [
            a,
            queue_with("b", 2, |_| {}),
            set_node(node("n", 2)),
            set_pod(of("a", ready(bound(labelled(pod("a0", 1), "0"), "n")))),
            set_pod(of("a", ready(bound(labelled(pod("a1", 1), "1"), "n")))),
            set_pod(of("b", pod("b0", 1))),
        ],
    )
}

fn ready(pod: Pod) -> Pod {
    Pod { ready: true, ..pod }
}

fn labelled(mut pod: Pod, number: &str) -> Pod {
    pod.meta.labels = pairs(&[("app", "web"), ("number", number)]);
    pod
}

fn budget(name: &str, labels: &[(&str, &str)], allowed: i64) -> Delta {
    let expression = |(key, value): &(&str, &str)| MatchExpression {
        key: (*key).into(),
        operator: Operator::In,
        values: [(*value).into()].into(),
    };
    Delta::Budget(Change::Set(Arc::new(DisruptionBudget {
        meta: Meta {
            namespace: "a".into(),
            ..meta(name)
        },
        selector: Some(labels.iter().map(expression).collect()),
        allowed,
        ..DisruptionBudget::default()
    })))
}

fn carry(state: &mut State, plan: &Plan) {
    state.hold(plan);
    carry_out(state, plan);
}

fn decided(state: &mut State, second: i64) -> String {
    state.expire(at(second));
    binds(&decide(state, at(second)))
}

fn misses(state: &State, second: i64, pod: &str) -> Vec<(What, String)> {
    let why = explain(state, at(second), &Uid(format!("uid-{pod}").into())).unwrap();
    let misses = why.near_misses.into_iter();
    misses.map(|m| (m.change, m.text.to_string())).collect()
}

#[test]
fn work_is_left_alone_for_as_long_as_its_queue_says() {
    for (stated, spared, taken) in [
        (None, 59, 61),
        (Some(600), 599, 601),
        (Some(0), -1, 0),
        (Some(-5), -1, 0),
    ] {
        let mut s = busy(queue_with("a", 0, |q| q.min_runtime_secs = stated));
        if spared >= 0 {
            assert_eq!(decided(&mut s, spared), "", "{stated:?}");
        }
        assert_eq!(decided(&mut s, taken), "a1<n", "{stated:?}");
    }
}

#[test]
fn a_queue_that_says_nothing_does_as_the_one_above() {
    let mut s = busy(queue_with("a", 0, |q| q.parent = Some("top".into())));
    s.apply(&queue_with("top", 0, |q| {
        q.namespaces = Box::default();
        q.min_runtime_secs = Some(300);
    }));
    assert_eq!(decided(&mut s, 299), "");
    assert_eq!(decided(&mut s, 301), "a1<n");
}

#[test]
fn the_time_that_work_is_left_alone_is_told_with_numbers() {
    let s = busy(queue_with("a", 0, |q| q.min_runtime_secs = Some(600)));
    let told = misses(&s, 360, "b0");
    let expected = "1 of 1 pod(s) that would leave for it are protected for another 4m: work of \
                    queue a is left alone for 10m after its start";
    assert!(
        told.contains(&(What::MinRuntime, expected.to_owned())),
        "{told:?}"
    );
    let later = misses(&s, 601, "b0");
    assert!(
        !later.iter().any(|(w, _)| *w == What::MinRuntime),
        "{later:?}"
    );
}

#[test]
fn whom_a_budget_holds_stays_while_others_do() {
    let plain = || busy(queue_with("a", 0, |_| {}));
    let mut s = plain();
    s.apply(&budget("one", &[("number", "1")], 0));
    assert_eq!(decided(&mut s, 100), "a0<n");
    // Of another namespace, it is no matter.
    let mut s = plain();
    let Delta::Budget(Change::Set(b)) = budget("one", &[("app", "web")], 0) else {
        panic!()
    };
    let mut other = (*b).clone();
    other.meta.namespace = "b".into();
    s.apply(&Delta::Budget(Change::Set(Arc::new(other))));
    assert_eq!(decided(&mut s, 100), "a1<n");
}

#[test]
fn a_budget_that_lets_nobody_go_is_named() {
    let mut s = busy(queue_with("a", 0, |_| {}));
    s.apply(&budget("web", &[("app", "web")], 0));
    assert_eq!(decided(&mut s, 100), "");
    let told = misses(&s, 100, "b0");
    let expected =
        "disruption budget a/web lets 0 of the 1 pod(s) go that would have to leave for it";
    assert!(
        told.contains(&(What::Budget, expected.to_owned())),
        "{told:?}"
    );
    // It hears of the change, though nobody came or went.
    s.apply(&budget("web", &[("app", "web")], 1));
    assert_eq!(decided(&mut s, 101), "a1<n");
}

#[test]
fn a_budget_counts_all_who_leave() {
    let mut s = busy(queue_with("a", 0, |_| {}));
    s.apply(&budget("web", &[("app", "web")], 1));
    s.apply(&set_pod(of("b", pod("b1", 1))));
    s.expire(at(100));
    let plan = decide(&s, at(100));
    assert_eq!(binds(&plan), "a1<n", "two of one plan would be too many");
    carry(&mut s, &plan);
    assert_eq!(
        decided(&mut s, 101),
        "",
        "the server may not have counted it yet"
    );
    // It has: one more may go.
    let mut gone = of("a", ready(bound(labelled(pod("a1", 1), "1"), "n")));
    gone.meta.deleting = Some(at(102));
    s.apply(&set_pod(gone));
    assert_eq!(decided(&mut s, 103), "a0<n");
}

#[test]
fn a_gang_leaves_only_if_its_budget_lets_all_of_it_go() {
    let gang = |allowed| {
        let mut s = state_with(
            SchedConfig::default(),
            [
                queue_with("a", 0, |_| {}),
                queue_with("b", 2, |_| {}),
                set_node(node("n", 2)),
                set_pod(of("b", pod("b0", 1))),
                budget("web", &[("app", "web")], allowed),
            ],
        );
        for name in ["a0", "a1"] {
            let pod = in_group(bound(labelled(pod(name, 1), name), "n"), "g", 2);
            s.apply(&set_pod(of("a", ready(pod))));
        }
        decided(&mut s, 100)
    };
    assert_eq!(gang(1), "");
    assert_eq!(gang(2), "a0<n a1<n");
}

#[test]
fn nobody_in_two_budgets_is_chosen() {
    let mut s = busy(queue_with("a", 0, |_| {}));
    s.apply(&budget("one", &[("number", "1")], 5));
    s.apply(&budget("two", &[("number", "1")], 5));
    assert_eq!(decided(&mut s, 100), "a0<n");
    s.apply(&budget("two", &[("app", "web")], 5));
    s.apply(&budget("one", &[("app", "web")], 5));
    assert_eq!(decided(&mut s, 101), "");
    let told = misses(&s, 101, "b0");
    assert!(
        told.iter()
            .any(|(w, t)| *w == What::Budget && t.contains("more than one disruption budget")),
        "{told:?}"
    );
    s.apply(&Delta::Budget(Change::Gone(gone(&Meta {
        namespace: "a".into(),
        ..meta("two")
    }))));
    assert_eq!(decided(&mut s, 102), "a1<n", "the other is gone");
}

#[test]
fn pods_that_are_not_ready_leave_where_their_budget_says_so() {
    let mut s = busy(queue_with("a", 0, |_| {}));
    let unready = of("a", bound(labelled(pod("a1", 1), "1"), "n"));
    s.apply(&set_pod(unready));
    let with = |allowed, healthy, desired, always| {
        let Delta::Budget(Change::Set(b)) = budget("web", &[("app", "web")], allowed) else {
            panic!()
        };
        Delta::Budget(Change::Set(Arc::new(DisruptionBudget {
            healthy,
            desired,
            unready_always_leave: always,
            ..(*b).clone()
        })))
    };
    for (healthy, desired, always, expected) in [
        (1, 2, false, ""),
        (2, 2, false, "a1<n"),
        (1, 2, true, "a1<n"),
        (0, 0, false, ""),
    ] {
        s.apply(&with(0, healthy, desired, always));
        let found = decided(&mut s, 100);
        assert_eq!(found, expected, "{healthy} {desired} {always}");
    }
}

fn quota(namespace: &str, name: &str, limit: i64, scope: Option<&str>) -> Foreign {
    let term = QueueTerm {
        flavor: scope.map(Into::into),
        resource: GpuResource::Whole,
        guaranteed_milli: None,
        kept_milli: None,
        limit_milli: Some(limit * 1_000),
        used_milli: None,
    };
    let key = QueueKey {
        admitter: Admitter::Quota,
        kind: "ResourceQuota".into(),
        namespace: namespace.into(),
        name: name.into(),
    };
    Foreign {
        meta: Meta {
            namespace: namespace.into(),
            ..meta(name)
        },
        version: "v1".into(),
        body: ForeignBody::Queue(AdmitterQueue {
            terms: [term].into(),
            ..AdmitterQueue::new(key)
        }),
    }
}

#[test]
fn a_quota_limits_a_namespace_that_no_queue_names() {
    let set = |q: Foreign| Delta::Foreign(ForeignKind::ResourceQuota, Change::Set(Arc::new(q)));
    let mut s = state_with(
        SchedConfig::default(),
        [
            queue_with("b", 0, |_| {}),
            set(quota("a", "gpus", 3, None)),
            set(quota("a", "less", 1, None)),
            set(quota("a", "best-effort", 0, Some("BestEffort"))),
            set(quota("b", "gpus", 1, None)),
            set_node(node("n", 8)),
        ],
    );
    for name in ["p0", "p1", "p2"] {
        s.apply(&set_pod(of("a", pod(name, 1))));
    }
    s.apply(&set_pod(of("b", pod("q0", 2))));
    let plan = decide(&s, at(0));
    assert_eq!(
        binds(&plan),
        "p0>n | q0>n",
        "a queue of b says its own limit"
    );
    assert_eq!(
        told(&plan, "p1"),
        "queue a uses 1 of its limit of 1 GPUs; 1 more would exceed it"
    );
    carry(&mut s, &plan);
    let gone = gone(&quota("a", "less", 1, None).meta);
    s.apply(&Delta::Foreign(
        ForeignKind::ResourceQuota,
        Change::Gone(gone),
    ));
    assert_eq!(binds(&decide(&s, at(1))), "p1>n | p2>n");
}

fn statuses(state: &State, second: i64) -> Vec<(String, QueueStatus)> {
    tell_queues(state, at(second))
        .into_iter()
        .map(|action| match action {
            Action::TellQueue { name, status, .. } => (name.to_string(), (*status).clone()),
            other => panic!("{other}"),
        })
        .collect()
}

#[test]
fn queues_are_told_what_they_use_and_are_due() {
    let mut s = busy(queue_with("a", 0, |q| q.parent = Some("top".into())));
    s.apply(&queue_with("top", 0, |q| q.namespaces = Box::default()));
    let told = statuses(&s, 10);
    let numbers: Vec<(&str, i64, i64, i64, u32, u32)> = told
        .iter()
        .map(|(name, s)| {
            let u = &s.gpus[0];
            (
                &**name,
                u.used_milli_gpu,
                u.waiting_milli_gpu,
                u.share_milli_gpu,
                s.running_jobs,
                s.waiting_jobs,
            )
        })
        .collect();
    assert_eq!(
        numbers,
        [
            ("a", 2_000, 0, 1_000, 2, 0),
            ("b", 0, 1_000, 1_000, 0, 1),
            ("top", 2_000, 0, 1_000, 2, 0),
        ]
    );
    // What is on its way is not told again at once, and what the queue says already not at all.
    for action in tell_queues(&s, at(10)) {
        s.expire(at(10));
        s.assume(&action);
    }
    assert_eq!(statuses(&s, 20), []);
    assert_eq!(statuses(&s, 80).len(), 3, "nobody has seen them");
    let of_b = told.iter().find(|(name, _)| name == "b").unwrap().1.clone();
    let freed = s.freed;
    s.apply(&queue_with("b", 2, |q| q.status = Some(of_b)));
    assert_eq!(s.freed, freed, "a status decides nothing");
    assert_eq!(statuses(&s, 80).len(), 2);
}

#[test]
fn queues_that_make_no_sense_are_told_why() {
    let s = state([
        queue_with("a", 0, |q| q.parent = Some("b".into())),
        queue_with("b", 0, |q| q.parent = Some("a".into())),
        queue_with("c", 0, |q| q.namespaces = ["ns".into()].into()),
        queue_with("d", 0, |q| q.namespaces = ["ns".into()].into()),
        set_node(node("n", 1)),
    ]);
    let told = statuses(&s, 0);
    let faults: Vec<(&str, &str)> = told
        .iter()
        .map(|(name, s)| (&**name, s.fault.as_deref().unwrap()))
        .collect();
    let twice = "namespace ns is in queues c and d: it can be in one only";
    assert_eq!(
        faults,
        [
            ("a", "it is below itself (a > b > a); a tree has no cycles"),
            ("b", "it is below itself (b > a > b); a tree has no cycles"),
            ("c", twice),
            ("d", twice),
        ]
    );
    let empty = |s: &QueueStatus| s.gpus.is_empty() && s.since == Some(at(0));
    assert!(told.iter().all(|(_, s)| empty(s)));
}

#[test]
fn the_first_minutes_of_a_history_do_not_turn_the_shares_over() {
    let mut s = state_with(
        SchedConfig::default(),
        [
            queue_with("a", 0, |_| {}),
            queue_with("b", 0, |_| {}),
            set_node(node("n", 4)),
            set_pod(of("a", bound(pod("a0", 3), "n"))),
            set_pod(of("b", bound(pod("b0", 1), "n"))),
            set_pod(of("a", pod("a1", 4))),
            set_pod(of("b", pod("b1", 4))),
        ],
    );
    let share = |s: &mut State, second| -> i64 {
        s.expire(at(second));
        let told = statuses(s, second);
        let of_b = told.iter().find(|(name, _)| name == "b").unwrap();
        of_b.1.gpus[0].share_milli_gpu
    };
    share(&mut s, 0);
    let soon = share(&mut s, 60);
    assert!((2_000..2_050).contains(&soon), "{soon}");
    let mut late = soon;
    for day in 1..30 {
        late = share(&mut s, day * 86_400);
    }
    assert!(
        late > 2_250,
        "who has used less for weeks is due more: {late}"
    );
}
