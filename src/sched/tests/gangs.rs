//! All or nothing.

use super::build::*;
use crate::model::{Change, Delta, Node, Phase, Pod};
use crate::sched::{SchedConfig, decide};

fn group(count: usize, min: u32, gpus: i64) -> Vec<Delta> {
    (0..count)
        .map(|i| set_pod(in_group(pod(&format!("g{i}"), gpus), "g", min)))
        .collect()
}

#[test]
fn a_gang_is_one_group_or_nothing() {
    let s = state(group(3, 3, 8).into_iter().chain([
        set_node(node("n1", 8)),
        set_node(node("n2", 8)),
        set_pod(pod("single", 8)),
    ]));
    let plan = decide(&s, at(0));
    assert_eq!(
        binds(&plan),
        "single>n1",
        "what the gang tried is free again"
    );
    for i in 0..3 {
        assert_eq!(
            told(&plan, &format!("g{i}")),
            "only 2 of 3 pods of the gang fit: 2 Insufficient nvidia.com/gpu"
        );
    }
    let mut s = s;
    s.apply(&set_node(node("n3", 8)));
    assert_eq!(
        binds(&decide(&s, at(0))),
        "g0>n1 g1>n2 g2>n3",
        "the gang is first by name and takes all"
    );
}

#[test]
fn an_incomplete_gang_waits_for_its_pods() {
    let mut s = state(group(2, 3, 1).into_iter().chain([set_node(node("n", 8))]));
    let gated = Pod {
        gates: ["x".into()].into(),
        ..in_group(pod("g2", 1), "g", 3)
    };
    s.apply(&set_pod(gated));
    let plan = decide(&s, at(0));
    assert_eq!(binds(&plan), "");
    assert_eq!(told(&plan, "g0"), "gang has 2 of 3 pods");
    assert_eq!(told(&plan, "g2"), "held by scheduling gate x");
    s.apply(&set_pod(in_group(pod("g2", 1), "g", 3)));
    assert_eq!(binds(&decide(&s, at(0))), "g0>n g1>n g2>n");
}

#[test]
fn a_member_that_cannot_be_placed_is_named() {
    let shares = annotated(
        in_group(pod("g2", 1), "g", 3),
        &[("gpudeck.dev/milli-gpu", "500")],
    );
    let s = state(
        group(2, 3, 1)
            .into_iter()
            .chain([set_node(node("n", 8)), set_pod(shares)]),
    );
    let plan = decide(&s, at(0));
    assert_eq!(binds(&plan), "");
    assert!(
        told(&plan, "g0")
            .starts_with("only 2 of 3 pods of the gang fit: 1 it asks for whole devices"),
        "{}",
        told(&plan, "g0")
    );
}

#[test]
fn pods_beyond_the_minimum_are_for_themselves() {
    let s = state(
        group(5, 2, 4)
            .into_iter()
            .chain([set_node(node("n1", 8)), set_node(node("n2", 4))]),
    );
    let plan = decide(&s, at(0));
    assert_eq!(binds(&plan), "g0>n1 g1>n1 | g2>n2");
    assert_eq!(
        told(&plan, "g3"),
        "0/2 nodes fit: 2 Insufficient nvidia.com/gpu"
    );
}

#[test]
fn members_with_a_place_count_and_a_replacement_comes_alone() {
    let member = |i: usize| in_group(pod(&format!("g{i}"), 4), "g", 3);
    let mut s = state([
        set_node(node("n1", 8)),
        set_node(node("n2", 4)),
        set_pod(bound(member(0), "n1")),
        set_pod(bound(member(1), "n1")),
        set_pod(member(2)),
    ]);
    let plan = decide(&s, at(0));
    assert_eq!(binds(&plan), "g2>n2");
    // Assumed members count as well.
    carry_out(&mut s, &plan);
    s.apply(&set_pod(member(3)));
    assert_eq!(
        told(&decide(&s, at(0)), "g3"),
        "0/2 nodes fit: 2 Insufficient nvidia.com/gpu"
    );
    // A leaving member does not count, yet holds its place.
    let mut leaving = bound(member(0), "n1");
    leaving.meta.deleting = Some(at(0));
    s.apply(&set_pod(leaving));
    let plan = decide(&s, at(0));
    assert_eq!(told(&plan, "g3"), "a place is held on n1 and becomes free");
    s.apply(&Delta::Pod(Change::Gone(gone(&member(0).meta))));
    assert_eq!(binds(&decide(&s, at(0))), "g3>n1");
}

#[test]
fn mixed_members_are_tried_the_largest_first_as_well() {
    // By name the small one would take the first node, and the large one would find none.
    let s = state([
        set_node(node("n1", 8)),
        set_node(node("n2", 2)),
        set_pod(in_group(pod("a-small", 2), "g", 2)),
        set_pod(in_group(pod("b-large", 8), "g", 2)),
    ]);
    assert_eq!(binds(&decide(&s, at(0))), "a-small>n2 b-large>n1");
}

#[test]
fn groups_of_two_namespaces_or_without_a_size_are_not_one_gang() {
    let mut other = in_group(pod("o0", 1), "g", 2);
    other.meta.namespace = "other".into();
    let mut loose = in_group(pod("loose", 1), "l", 2);
    loose.group.as_mut().unwrap().min_members = None;
    let s = state(group(1, 2, 1).into_iter().chain([
        set_node(node("n", 8)),
        set_pod(other),
        set_pod(loose),
    ]));
    let plan = decide(&s, at(0));
    assert_eq!(binds(&plan), "loose>n");
    assert_eq!(told(&plan, "g0"), "gang has 1 of 2 pods");
    assert_eq!(told(&plan, "o0"), "gang has 1 of 2 pods");
}

fn job_pods(count: usize, gpus: i64) -> Vec<Delta> {
    (0..count)
        .map(|i| set_pod(in_job(pod(&format!("j{i}"), gpus), "j")))
        .collect()
}

#[test]
fn the_pods_of_a_parallel_job_start_together() {
    let mut s = state(
        job_pods(2, 8)
            .into_iter()
            .chain([set_node(node("n1", 8)), set_node(node("n2", 8))]),
    );
    assert!(
        decide(&s, at(4)).is_empty(),
        "the Job's watch may be a little behind"
    );
    let plan = decide(&s, at(5));
    assert_eq!(binds(&plan), "");
    assert_eq!(
        told(&plan, "j0"),
        "Job j is not known, so neither is how many of its pods must start together"
    );
    s.apply(&set_job(job("j", 3, Some(3))));
    assert_eq!(told(&decide(&s, at(0)), "j0"), "gang has 2 of 3 pods");
    s.apply(&set_job(job("j", 3, Some(2))));
    assert_eq!(binds(&decide(&s, at(0))), "j0>n1 j1>n2");
    s.apply(&set_job(job("j", 1, Some(2))));
    assert_eq!(binds(&decide(&s, at(0))), "j0>n1 | j1>n2");
}

#[test]
fn the_last_wave_of_a_job_needs_only_what_is_left() {
    let mut s = state(
        job_pods(2, 1)
            .into_iter()
            .chain([set_node(node("n", 8)), set_job(job("j", 4, Some(6)))]),
    );
    assert_eq!(told(&decide(&s, at(0)), "j0"), "gang has 2 of 4 pods");
    for i in 0..4 {
        s.apply(&set_pod(Pod {
            phase: Phase::Succeeded,
            ..bound(in_job(pod(&format!("done{i}"), 1), "j"), "n")
        }));
        // The pod's own phase is known before the Job's status.
        s.apply(&set_pod(Pod {
            phase: Phase::Succeeded,
            ..bound(in_job(pod(&format!("done{i}"), 1), "j"), "n")
        }));
    }
    assert_eq!(binds(&decide(&s, at(0))), "j0>n j1>n");
}

#[test]
fn gang_min_sets_the_size_and_one_opts_out() {
    let with_min = |value: &str| {
        let deltas = (0..2).map(|i| {
            set_pod(annotated(
                in_job(pod(&format!("j{i}"), 1), "j"),
                &[("gpudeck.dev/gang-min", value)],
            ))
        });
        state(
            deltas
                .collect::<Vec<_>>()
                .into_iter()
                .chain([set_node(node("n", 8)), set_job(job("j", 3, Some(3)))]),
        )
    };
    assert_eq!(binds(&decide(&with_min("1"), at(0))), "j0>n | j1>n");
    assert_eq!(binds(&decide(&with_min("2"), at(0))), "j0>n j1>n");
    assert_eq!(
        told(&decide(&with_min("4"), at(0)), "j0"),
        "gang has 2 of 4 pods"
    );
    let plan = decide(&with_min("all"), at(0));
    assert_eq!(binds(&plan), "");
    assert_eq!(
        told(&plan, "j1"),
        "annotation gpudeck.dev/gang-min: \"all\" is not a whole number of at least 1"
    );
    // On the Job it counts for pods that say nothing.
    let mut j = job("j", 3, Some(3));
    j.meta.annotations = pairs(&[("gpudeck.dev/gang-min", "1")]);
    let s = state(
        job_pods(2, 1)
            .into_iter()
            .chain([set_node(node("n", 8)), set_job(j)]),
    );
    assert_eq!(binds(&decide(&s, at(0))), "j0>n | j1>n");
}

#[test]
fn a_gang_is_not_cut_by_the_bound_of_a_round() {
    let config = SchedConfig {
        max_placements: 2,
        ..SchedConfig::default()
    };
    let s = state_with(
        config,
        group(5, 5, 1)
            .into_iter()
            .chain([set_node(node("n", 8)), set_pod(pod("z", 1))]),
    );
    let plan = decide(&s, at(0));
    assert_eq!(plan.groups.len(), 1);
    assert_eq!(plan.actions().count(), 5);
    assert!(plan.more);
}

#[test]
fn a_refused_member_holds_its_gang_for_a_while() {
    let mut s = state(group(2, 2, 1).into_iter().chain([set_node(node("n", 8))]));
    s.apply(&refused(&in_group(pod("g1", 1), "g", 2), 0));
    assert!(decide(&s, at(5)).is_empty());
    assert_eq!(binds(&decide(&s, at(10))), "g0>n g1>n");
}

#[test]
fn the_reason_of_a_gang_is_what_stops_the_next_pod_beside_the_others() {
    let s = state(group(3, 3, 4).into_iter().chain([
        set_node(node("n1", 8)),
        set_node(Node {
            unschedulable: true,
            ..node("n2", 8)
        }),
    ]));
    assert_eq!(
        told(&decide(&s, at(0)), "g2"),
        "only 2 of 3 pods of the gang fit: 1 node(s) were unschedulable, 1 Insufficient \
         nvidia.com/gpu"
    );
}
