//! Gangs and the fabric: as close together as they fit, all or nothing, and told so.

use super::build::*;
use crate::model::{Change, DecisionKind, Delta, Node, NodeGpus, Pod};
use crate::plan::Plan;
use crate::sched::{SchedConfig, State, decide};

/// A node of 8 H100 below a leaf and a spine.
fn at_leaf(name: &str, spine: &str, leaf: &str) -> Node {
    let mut n = node(name, 8);
    n.meta.labels = pairs(&[
        ("fabric.topograph.run/tier-0", leaf),
        ("fabric.topograph.run/tier-1", spine),
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
    ]);
    n.gpus = NodeGpus::from_labels(&n.meta, &n.capacity);
    n
}

/// Two spines of two leaves of three nodes.
fn fabric() -> Vec<Delta> {
    let mut nodes = Vec::new();
    for s in 0..2 {
        for l in 0..2 {
            for n in 0..3 {
                let (spine, leaf) = (format!("s{s}"), format!("l{s}{l}"));
                let name = format!("n{s}{l}{n}");
                nodes.push(set_node(at_leaf(&name, &spine, &leaf)));
            }
        }
    }
    nodes
}

fn member(name: &str, gpus: i64, min: u32, topology: Option<&str>) -> Pod {
    let p = in_group(pod(name, gpus), "g", min);
    match topology {
        Some(text) => annotated(p, &[("gpudeck.dev/topology", text)]),
        None => p,
    }
}

fn gang(pods: usize, gpus: i64, topology: Option<&str>) -> Vec<Delta> {
    let min = u32::try_from(pods).unwrap();
    (0..pods)
        .map(|i| set_pod(member(&format!("g{i:02}"), gpus, min, topology)))
        .collect()
}

/// Takes so many GPUs of a node.
fn taken(name: &str, node: &str, gpus: i64) -> Delta {
    set_pod(bound(pod(name, gpus), node))
}

fn nodes_of(plan: &Plan) -> Vec<String> {
    let mut nodes: Vec<String> = plan
        .decisions
        .iter()
        .filter_map(|d| match &d.kind {
            DecisionKind::Placed { node, .. } => Some(node.to_string()),
            DecisionKind::Waiting(_) | DecisionKind::Leaves { .. } => None,
        })
        .collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

fn run(parts: impl IntoIterator<Item = Vec<Delta>>) -> (Plan, State) {
    let s = state(parts.into_iter().flatten());
    (decide(&s, at(0)), s)
}

#[test]
fn a_gang_takes_the_smallest_domain_that_it_fits() {
    // On one node if it can, the one that it leaves fullest.
    let full = vec![taken("x", "n001", 4)];
    let (plan, _) = run([fabric(), full, gang(4, 1, None)]);
    assert_eq!(nodes_of(&plan), ["n001"]);
    assert!(told(&plan, "g00").starts_with("n001: gang of 4 on one node; by the model"));
    // Then in one leaf: the one that has just enough.
    let full = vec![taken("x", "n010", 8)];
    let (plan, _) = run([fabric(), full, gang(2, 8, None)]);
    assert_eq!(nodes_of(&plan), ["n011", "n012"]);
    let told = told(&plan, "g01");
    assert!(told.contains("gang of 2 in leaf l01 on 2 nodes"), "{told}");
    assert!(told.contains("ms across a spine"), "{told}");
    // Then under one spine, over as few leaves as can be: a leaf wholly, and one node more.
    let (plan, _) = run([fabric(), gang(4, 8, None)]);
    let nodes = nodes_of(&plan);
    assert_eq!(nodes.len(), 4);
    assert!(nodes.iter().all(|n| n.starts_with("n0")), "{nodes:?}");
    // Then anywhere.
    let (plan, _) = run([fabric(), gang(8, 8, None)]);
    assert_eq!(nodes_of(&plan).len(), 8);
}

#[test]
fn a_required_level_is_kept_or_the_gang_waits_and_says_what_came_nearest() {
    let full = || {
        vec![
            taken("a", "n000", 8),
            taken("b", "n010", 8),
            taken("c", "n100", 8),
            taken("d", "n110", 1),
        ]
    };
    let (plan, mut s) = run([fabric(), full(), gang(3, 8, Some("required=leaf"))]);
    assert!(nodes_of(&plan).is_empty());
    assert_eq!(
        told(&plan, "g00"),
        "only 2 of 3 pods of the gang fit: 4 leaf domain(s) had too little room: most has l00, for 2"
    );
    // The same with a preference goes wider and says so.
    let (plan, _) = run([fabric(), full(), gang(3, 8, Some("preferred=leaf"))]);
    assert_eq!(nodes_of(&plan).len(), 3);
    let told = told(&plan, "g00");
    assert!(told.contains("no leaf has room for all"), "{told}");
    // Once a node is free it starts, all on that leaf.
    s.apply(&Delta::Pod(Change::Gone(gone(&pod("d", 1).meta))));
    assert_eq!(nodes_of(&decide(&s, at(0))), ["n110", "n111", "n112"]);
}

#[test]
fn a_level_that_no_node_tells_cannot_be_required() {
    let nodes = (0..3)
        .map(|i| set_node(node(&format!("n{i}"), 8)))
        .collect();
    let (plan, _) = run([nodes, gang(2, 8, Some("required=leaf"))]);
    assert_eq!(
        told(&plan, "g00"),
        "only 0 of 2 pods of the gang fit: 0 leaf known: no node has a label that tells it"
    );
    let nodes = (0..3)
        .map(|i| set_node(node(&format!("n{i}"), 8)))
        .collect();
    let (plan, _) = run([nodes, gang(2, 8, Some("required=moon"))]);
    assert!(told(&plan, "g00").contains("is not like required=leaf"));
}

#[test]
fn an_nvlink_domain_may_cross_leaves() {
    let tray = |i: usize, clique: &str, leaf: &str| {
        let mut n = node(&format!("t{i}"), 4);
        n.meta.labels = pairs(&[
            ("fabric.topograph.run/tier-0", leaf),
            ("nvidia.com/gpu.clique", clique),
            ("nvidia.com/gpu.product", "NVIDIA-GB200"),
        ]);
        n.gpus = NodeGpus::from_labels(&n.meta, &n.capacity);
        set_node(n)
    };
    let rack = || {
        (0..8)
            .map(|i| tray(i, ["c.1", "c.2"][i / 4], ["g1", "g2"][i % 2]))
            .collect::<Vec<_>>()
    };
    let (plan, _) = run([rack(), gang(4, 4, Some("required=clique"))]);
    assert_eq!(nodes_of(&plan), ["t0", "t1", "t2", "t3"]);
    assert!(told(&plan, "g00").contains("in clique c.1 on 4 nodes"));
    let (plan, _) = run([rack(), gang(4, 4, Some("required=leaf"))]);
    assert_eq!(nodes_of(&plan).len(), 4, "a leaf reaches over both racks");
    let (plan, _) = run([rack(), gang(5, 4, Some("required=clique"))]);
    assert!(nodes_of(&plan).is_empty());
    let (plan, _) = run([rack(), gang(8, 4, None)]);
    assert_eq!(nodes_of(&plan).len(), 8);
}

#[test]
fn surplus_and_replacements_stay_where_the_gang_is() {
    let wish = Some("required=leaf");
    let mut deltas = fabric();
    for (i, node) in ["n010", "n011"].iter().enumerate() {
        deltas.push(set_pod(bound(member(&format!("g{i}"), 8, 2, wish), node)));
    }
    // n012 is full: the leaf has no room, though others have.
    deltas.push(taken("x", "n012", 1));
    deltas.push(set_pod(member("g2", 8, 2, wish)));
    let mut s = state(deltas);
    assert_eq!(
        told(&decide(&s, at(0)), "g2"),
        "0/12 nodes fit: 3 Insufficient nvidia.com/gpu, 9 node(s) with room were outside l01, \
         where the rest of the gang is"
    );
    s.apply(&Delta::Pod(Change::Gone(gone(&pod("x", 1).meta))));
    assert_eq!(nodes_of(&decide(&s, at(0))), ["n012"]);
    // Elastic: three of four fit the best leaf, two are enough.
    let pods = (0..4).map(|i| set_pod(member(&format!("g{i}"), 8, 2, wish)));
    let (plan, _) = run([fabric(), pods.collect()]);
    assert_eq!(nodes_of(&plan).len(), 3);
    assert_eq!(plan.groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn roles_of_different_size_share_a_domain() {
    let mut deltas = fabric();
    // Every leaf but l11 lacks a node.
    deltas.extend([
        taken("a", "n000", 8),
        taken("b", "n010", 8),
        taken("c", "n100", 8),
    ]);
    let wish = Some("required=leaf");
    let mut launcher = member("launcher", 0, 3, wish);
    launcher.requests.cpu_milli = 4_000;
    deltas.push(set_pod(launcher));
    deltas.push(set_pod(member("small", 4, 3, wish)));
    deltas.push(set_pod(member("w0", 8, 3, wish)));
    deltas.push(set_pod(member("w1", 8, 3, wish)));
    let (plan, _) = run([deltas]);
    let nodes = nodes_of(&plan);
    assert!(nodes.iter().all(|n| n.starts_with("n11")), "{nodes:?}");
    assert_eq!(plan.actions().count(), 4);
}

#[test]
fn subgroups_lie_closer_than_their_gang() {
    let one = |i: usize, sub: &str| {
        let p = in_group(pod(&format!("{sub}{i}"), 8), "g", 4);
        set_pod(annotated(
            p,
            &[
                ("gpudeck.dev/subgroup", sub),
                ("gpudeck.dev/subgroup-topology", "required=leaf"),
                ("gpudeck.dev/topology", "required=spine"),
            ],
        ))
    };
    let pods = || {
        ["a", "b"]
            .into_iter()
            .flat_map(|sub| (0..2).map(move |i| one(i, sub)))
    };
    let (plan, _) = run([fabric(), pods().collect()]);
    assert_eq!(plan.actions().count(), 4);
    for sub in ["a", "b"] {
        let leaf = |i: usize| told(&plan, &format!("{sub}{i}"))[..3].to_owned();
        assert_eq!(leaf(0), leaf(1), "{sub}");
    }
    // With one free node in each leaf no sub-group fits.
    let full: Vec<Delta> = [
        "n000", "n001", "n010", "n011", "n100", "n101", "n110", "n111",
    ]
    .iter()
    .map(|n| taken(&format!("x{n}"), n, 8))
    .collect();
    let (plan, _) = run([fabric(), full, pods().collect()]);
    assert_eq!(plan.actions().count(), 0);
}

#[test]
fn cpu_and_taints_count_in_the_choice_of_a_leaf() {
    let mut deltas = fabric();
    // l00 has the GPUs but not the cores.
    for n in ["n000", "n001", "n002"] {
        let mut hog = bound(pod(&format!("hog-{n}"), 0), n);
        hog.requests.cpu_milli = 40_000;
        deltas.push(set_pod(hog));
    }
    let pods = (0..6).map(|i| {
        let mut p = member(&format!("g{i}"), 4, 6, Some("required=leaf"));
        p.requests.cpu_milli = 16_000;
        set_pod(p)
    });
    let (plan, _) = run([deltas, pods.collect()]);
    let nodes = nodes_of(&plan);
    assert_eq!(nodes.len(), 3);
    assert!(!nodes[0].starts_with("n00"), "{nodes:?}");
}

#[test]
fn the_operators_levels_win() {
    let config = SchedConfig {
        topology_levels: ["x/block".into(), "x/rack".into()].into(),
        ..SchedConfig::default()
    };
    let nodes = (0..4).map(|i| {
        let mut n = node(&format!("n{i}"), 8);
        n.meta.labels = pairs(&[("x/block", "b"), ("x/rack", ["r1", "r2"][i % 2])]);
        set_node(n)
    });
    let s = state_with(config, nodes.chain(gang(2, 8, Some("required=x/rack"))));
    assert_eq!(nodes_of(&decide(&s, at(0))), ["n0", "n2"]);
}

#[test]
fn different_wishes_in_one_gang_are_told() {
    let (plan, _) = run([
        fabric(),
        vec![
            set_pod(member("g0", 8, 2, Some("required=leaf"))),
            set_pod(member("g1", 8, 2, Some("required=spine"))),
        ],
    ]);
    assert!(told(&plan, "g0").contains("pods of one gang state different"));
}
