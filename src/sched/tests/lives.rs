//! What long random lives have found, each by itself.

use super::build::*;
use crate::model::{Change, Delta, Owner, Pod, Uid};
use crate::plan::Plan;
use crate::sched::{SchedConfig, State, decide};

const ESTIMATE: &str = "gpudeck.dev/runtime-estimate";

fn live(world: impl IntoIterator<Item = Delta>) -> State {
    state_with(SchedConfig::default(), world)
}

fn urgent(mut pod: Pod, priority: i32) -> Pod {
    pod.priority = priority;
    pod
}

/// One that comes back by itself.
fn controlled(mut pod: Pod) -> Pod {
    pod.meta.owners = [Owner {
        kind: "ReplicaSet".into(),
        name: pod.meta.name.clone(),
        uid: Uid(format!("owner-{}", pod.meta.name).into()),
        controller: true,
    }]
    .into();
    pod
}

/// On its way out.
fn leaving(mut pod: Pod) -> Pod {
    pod.meta.deleting = Some(at(990));
    pod
}

fn gone_pod(pod: &Pod) -> Delta {
    Delta::Pod(Change::Gone(gone(&pod.meta)))
}

fn queue(name: &str, guaranteed: i64) -> Delta {
    queue_with(name, guaranteed, |_| {})
}

fn held(plan: &Plan) -> Vec<&str> {
    plan.holds.iter().map(|h| &*h.owner).collect()
}

/// The first starts on one node of four and says how long it runs, the second has to wait for its
/// end and leaves so many GPUs of the other node.
fn reserved(left: i64) -> Vec<Delta> {
    let first = annotated(urgent(pod("a", 4), 30), &[(ESTIMATE, "600")]);
    let second = |i: i64, gpus: i64| {
        let name = format!("b{i}");
        set_pod(in_group(urgent(pod(&name, gpus), 20), "b", 2))
    };
    vec![
        set_node(node("n0", 4)),
        set_node(node("n1", 4)),
        set_pod(first),
        second(0, 4),
        second(1, 4 - left),
    ]
}

#[test]
fn a_gang_beside_a_reserved_place_is_placed_as_one_at_the_first_look_too() {
    let mut world = reserved(2);
    world.extend((0..2).map(|i| set_pod(in_group(pod(&format!("c{i}"), 1), "c", 2))));
    let state = live(world);
    let plan = decide(&state, at(1_000));
    assert_eq!(binds(&plan), "a>n0 | c0>n1 c1>n1");
    assert_eq!(told(&plan, "c0"), "n1: gang of 2 on one node");
    assert_eq!(decide(&state, at(1_000)), plan);
}

#[test]
fn pods_that_only_together_stand_in_a_reserved_place_do_not_start() {
    let mut world = reserved(1);
    world.extend((0..2).map(|i| set_pod(in_group(urgent(pod(&format!("c{i}"), 1), 10), "c", 2))));
    let plan = decide(&live(world.clone()), at(1_000));
    assert_eq!(binds(&plan), "a>n0");
    assert_eq!(held(&plan), [""; 0]);
    world.push(set_pod(pod("d", 1)));
    assert_eq!(binds(&decide(&live(world), at(1_000))), "a>n0 | d>n1");
}

#[test]
fn a_reserved_place_is_not_held_for_somebody_else() {
    for others_leave in [false, true] {
        let mut world = reserved(1);
        world.push(set_pod(pod("c", 2)));
        if others_leave {
            world.push(set_node(node("n2", 1)));
            world.push(set_pod(leaving(bound(pod("gone", 1), "n2"))));
        }
        let plan = decide(&live(world), at(1_000));
        assert_eq!(binds(&plan), "a>n0", "{others_leave}");
        assert_eq!(held(&plan), [""; 0], "{others_leave}");
    }
}

#[test]
fn a_queue_gives_nothing_for_what_is_only_held_for_it() {
    let runs = |name: &str| set_pod(of("a", bound(pod(name, 1), "n")));
    let mut state = live([
        queue("a", 2),
        queue("b", 3),
        set_node(node("n", 3)),
        runs("a0"),
        runs("a1"),
        set_pod(leaving(bound(pod("gone", 1), "n"))),
        set_pod(of("a", pod("a2", 1))),
    ]);
    let plan = decide(&state, at(1_000));
    assert_eq!(held(&plan), ["pod/uid-a2"]);
    state.hold(&plan);
    state.apply(&set_pod(of("b", pod("b0", 1))));
    assert_eq!(binds(&decide(&state, at(1_001))), "");
    // With its start the queue has more than it is due.
    state.apply(&gone_pod(&pod("gone", 1)));
    let plan = decide(&state, at(1_002));
    assert_eq!(binds(&plan), "a2>n | a1<n");
    assert_eq!(held(&plan), ["pod/uid-b0"]);
}

#[test]
fn a_gang_that_has_lost_pods_is_not_moved() {
    for (min, moves) in [(1, "g0<n0"), (2, "")] {
        let state = live([
            set_node(node("n0", 4)),
            set_node(node("n1", 4)),
            set_pod(in_group(bound(pod("g0", 1), "n0"), "g", min)),
            set_pod(bound(pod("x", 1), "n1")),
            set_pod(pod("c", 4)),
        ]);
        assert_eq!(binds(&decide(&state, at(1_000))), moves, "{min}");
    }
}

/// A gang of two runs, and a place is held for a third.
fn with_surplus_held() -> (State, [Pod; 2]) {
    let runs = |name: &str| in_group(bound(pod(name, 1), "n0"), "g", 2);
    let two = [runs("g0"), runs("g1")];
    let mut state = live([
        set_node(node("n0", 2)),
        set_node(node("n1", 1)),
        set_pod(two[0].clone()),
        set_pod(two[1].clone()),
        set_pod(in_group(pod("g2", 1), "g", 2)),
        set_pod(leaving(bound(pod("gone", 1), "n1"))),
    ]);
    let plan = decide(&state, at(1_000));
    assert_eq!(held(&plan), ["group/team/PodGroup/g"]);
    state.hold(&plan);
    (state, two)
}

#[test]
fn a_place_for_more_of_a_gang_is_given_up_with_the_gang() {
    let (mut state, two) = with_surplus_held();
    // One less is enough with the place that is held.
    state.apply(&gone_pod(&two[0]));
    assert!(decide(&state, at(1_001)).given_up.is_empty());
    state.apply(&gone_pod(&two[1]));
    let plan = decide(&state, at(1_002));
    assert_eq!(*plan.given_up, ["group/team/PodGroup/g".into()]);
}

#[test]
fn a_place_for_more_of_a_gang_that_leaves_is_given_up_at_once() {
    let (mut state, _) = with_surplus_held();
    state.apply(&set_pod(urgent(pod("c", 2), 100)));
    let plan = decide(&state, at(1_001));
    assert_eq!(plan.groups.iter().map(Vec::len).sum::<usize>(), 2);
    assert_eq!(*plan.given_up, ["group/team/PodGroup/g".into()]);
    assert_eq!(held(&plan), ["pod/uid-c"]);
}

#[test]
fn one_pod_more_that_waits_keeps_no_like_one_from_moves() {
    let state = live([
        set_node(node("n0", 4)),
        set_node(node("n1", 4)),
        set_node(node("n2", 4)),
        set_pod(controlled(bound(pod("m0", 1), "n0"))),
        set_pod(controlled(bound(pod("m1", 1), "n1"))),
        set_pod(in_group(urgent(bound(pod("g0", 4), "n2"), 10), "g", 1)),
        set_pod(in_group(urgent(pod("g1", 4), 10), "g", 1)),
        set_pod(urgent(pod("s", 4), 0)),
    ]);
    let plan = decide(&state, at(1_000));
    assert_eq!(held(&plan).len(), 2, "{plan:?}");
    assert!(held(&plan).contains(&"pod/uid-s"), "{plan:?}");
}
