//! Moves that are proposed for jobs that fit nowhere.

use std::collections::{BTreeMap, BTreeSet};

use super::build::*;
use super::cast::Dice;
use crate::model::{Change, Delta, Node, NodeGpus, Pod, Uid};
use crate::sched::{
    MoveLimits, MoveProposal, RecutLimits, State, decide, propose_moves, propose_recuts,
};

/// A pod that runs on a node and says that it can go on elsewhere.
fn movable(name: &str, gpus: i64, node: &str) -> Pod {
    let pod = in_job(pod(name, gpus), &format!("job-{name}"));
    let notes = [
        ("gpudeck.dev/checkpoint-mode", "app"),
        // A Job of one pod is no gang.
        ("gpudeck.dev/gang-min", "1"),
    ];
    bound(annotated(pod, &notes), node)
}

fn on_leaf(name: &str, gpus: i64, leaf: &str) -> Node {
    let mut n = node(name, gpus);
    n.meta.labels = pairs(&[("fabric.topograph.run/tier-0", leaf)]);
    n
}

fn propose(state: &State) -> Vec<MoveProposal> {
    propose_moves(state, at(0), &MoveLimits::default())
}

/// `pod:from>to` of a proposal's moves, sorted.
fn told(proposal: &MoveProposal) -> String {
    let moves = proposal.moves.iter();
    let mut all: Vec<String> = moves
        .map(|m| format!("{}:{}>{}", m.name, m.from, m.to))
        .collect();
    all.sort();
    all.join(" ")
}

/// Two nodes of 4 GPUs, one with a pod of 1, one with a pod of 2, and a job that wants 4.
fn halves(change: impl Fn(Pod) -> Pod) -> Vec<Delta> {
    vec![
        set_node(node("a", 4)),
        set_node(node("b", 4)),
        set_pod(change(movable("one", 1, "a"))),
        set_pod(change(movable("two", 2, "b"))),
        set_pod(pod("job", 4)),
    ]
}

#[test]
fn the_cheapest_hole_is_opened_and_everybody_has_a_place() {
    let s = state(halves(|p| p));
    let before = decide(&s, at(0));
    assert!(before.groups.is_empty());
    let proposals = propose(&s);
    assert_eq!(proposals.len(), 1);
    let only = &proposals[0];
    assert_eq!(told(only), "one:a>b");
    assert_eq!(&*only.starts[0].1, "a");
    assert!((only.lost_gpu_secs - 60.0).abs() < 1e-9);
    assert_eq!(
        &*only.why,
        "a job of 4 GPUs fit nowhere; moving 1 pod(s), 60 GPU-seconds of work, opens a"
    );
    assert_eq!(decide(&s, at(0)), before, "a proposal changes nothing");
    assert_eq!(propose(&s), proposals, "the same, twice");
}

#[test]
fn only_work_that_says_so_is_moved() {
    let not = |change: &dyn Fn(Pod) -> Pod| {
        let s = state(halves(change));
        assert_eq!(propose(&s), Vec::new());
    };
    not(&|p| annotated(p, &[]));
    not(&|p| annotated(p, &[("gpudeck.dev/preemptible", "false")]));
    not(&|mut p| {
        p.meta.owners = [].into();
        p
    });
    not(&|mut p| {
        p.scheduler = "default-scheduler".into();
        p
    });
    not(&|mut p| {
        p.meta.deleting = Some(at(0));
        p
    });
    not(&|p| in_group(p, "g", 2));
    let s = state(halves(|p| {
        annotated(
            p,
            &[
                ("gpudeck.dev/preemptible", "true"),
                ("gpudeck.dev/gang-min", "1"),
            ],
        )
    }));
    assert_eq!(told(&propose(&s)[0]), "one:a>b");
}

#[test]
fn limits_hold() {
    let s = state(halves(|p| p));
    let with = |change: &dyn Fn(&mut MoveLimits)| {
        let mut limits = MoveLimits::default();
        change(&mut limits);
        propose_moves(&s, at(0), &limits).len()
    };
    assert_eq!(with(&|_| {}), 1);
    assert_eq!(with(&|l| l.moves = 0), 0);
    assert_eq!(with(&|l| l.for_one_job = 0), 0);
    assert_eq!(with(&|l| l.from_gpus = 5), 0);
    assert_eq!(with(&|l| l.jobs = 0), 0);
    assert_eq!(
        with(&|l| l.worth_secs = 10),
        0,
        "60 s of 1 GPU for 10 s of 4"
    );
}

#[test]
fn a_job_that_fits_or_that_nobody_can_help_moves_nobody() {
    let mut fits = halves(|p| p);
    fits.push(set_node(node("c", 4)));
    assert_eq!(propose(&state(fits)), Vec::new());
    // Full but for one device: whoever leaves has nowhere to go.
    let mut full = halves(|p| p);
    full.push(set_pod(bound(pod("x", 2), "b")));
    full.push(set_pod(bound(pod("y", 1), "a")));
    assert_eq!(propose(&state(full)), Vec::new());
    let unknown = {
        let mut all = halves(|p| p);
        all.push(set_pod(with(pod("picky", 4), |c| {
            c.node_selector = pairs(&[("zone", "moon")]);
        })));
        all.retain(|d| !matches!(d, Delta::Pod(Change::Set(p)) if &*p.meta.name == "job"));
        state(all)
    };
    assert_eq!(propose(&unknown), Vec::new());
}

#[test]
fn a_leaf_is_cleared_for_a_gang_that_has_to_share_one() {
    let mut world = Vec::new();
    for (name, leaf) in [
        ("a", "l0"),
        ("b", "l0"),
        ("c", "l1"),
        ("d", "l1"),
        ("e", "l2"),
    ] {
        world.push(set_node(on_leaf(name, 8, leaf)));
    }
    // Leaf l0 has two pods in the way, l1 three; there is room on e, which alone is too small.
    for (name, gpus, node) in [
        ("p", 1, "a"),
        ("q", 2, "b"),
        ("r", 2, "c"),
        ("s", 1, "c"),
        ("t", 2, "d"),
        ("u", 1, "e"),
    ] {
        world.push(set_pod(movable(name, gpus, node)));
    }
    for i in 0..2 {
        let member = in_group(pod(&format!("g{i}"), 8), "g", 2);
        let wish = [("gpudeck.dev/topology", "required=leaf")];
        world.push(set_pod(annotated(member, &wish)));
    }
    let s = state(world);
    assert!(decide(&s, at(0)).groups.is_empty());
    let proposals = propose(&s);
    assert_eq!(proposals.len(), 1);
    let nodes: BTreeSet<&str> = proposals[0].starts.iter().map(|(_, n)| &**n).collect();
    assert_eq!(nodes, BTreeSet::from(["a", "b"]));
    let moved: BTreeSet<&str> = proposals[0].moves.iter().map(|m| &*m.name).collect();
    assert_eq!(moved, BTreeSet::from(["p", "q"]));
}

#[test]
fn who_is_placed_first_is_counted_by_those_after() {
    // Two jobs of 4 and room for one hole only.
    let mut world = halves(|p| p);
    world.push(set_pod(pod("later", 4)));
    let proposals = propose(&state(world));
    assert_eq!(proposals.len(), 1);
    assert_eq!(proposals[0].starts[0].0, Uid("uid-job".into()));
}

/// An H100 node with two GPUs in MIG mode, cut alike.
fn sliced(name: &str, offers: &[(&str, i64)]) -> Node {
    let mut n = node(name, 0);
    n.meta.labels = pairs(&[
        ("nvidia.com/gpu.count", "2"),
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ("nvidia.com/mig.strategy", "mixed"),
    ]);
    for (profile, count) in offers {
        let key = format!("nvidia.com/mig-{profile}").into();
        n.allocatable.set_extended(&key, *count);
    }
    n.capacity = n.allocatable.clone();
    n.gpus = NodeGpus::from_labels(&n.meta, &n.capacity);
    n
}

fn slice(name: &str, profile: &str) -> Pod {
    let mut p = pod(name, 0);
    let key = format!("nvidia.com/mig-{profile}").into();
    p.requests.set_extended(&key, 1);
    p
}

#[test]
fn an_idle_gpu_is_cut_for_those_who_wait() {
    let mut world = vec![
        set_node(sliced("a", &[("1g.10gb", 14)])),
        set_pod(bound(slice("small", "1g.10gb"), "a")),
    ];
    let recuts = |world: &[Delta]| {
        let state = state(world.iter().cloned());
        propose_recuts(&state, &RecutLimits::default())
    };
    assert_eq!(recuts(&world), Vec::new(), "nobody waits");
    world.extend((0..2).map(|i| set_pod(slice(&format!("big{i}"), "3g.40gb"))));
    let all = recuts(&world);
    assert_eq!(all.len(), 1, "the other GPU runs something: {all:?}");
    assert_eq!(
        (&*all[0].node, &*all[0].to[0].0, all[0].to[0].1),
        ("a", "3g.40gb", 2)
    );
    assert_eq!(all[0].from, vec![("1g.10gb".into(), 7)]);
    assert!(all[0].cost_slice_secs > 0.0 && all[0].gain_slices > 0.0);
    assert!(
        all[0]
            .why
            .contains("is idle: 2 of 3g.40gb instead of 7 of 1g.10gb"),
        "{}",
        all[0].why
    );
    world.push(set_pod(bound(slice("x", "1g.10gb"), "a")));
    world.extend((0..7).map(|i| set_pod(bound(slice(&format!("y{i}"), "1g.10gb"), "a"))));
    assert_eq!(recuts(&world), Vec::new(), "no GPU is idle");
}

const NODES: usize = 4;
const DEVICES: i64 = 4;

/// Pods of these sizes can all be dealt to nodes with so much free.
fn can_be_dealt(free: &mut [i64], sizes: &[i64]) -> bool {
    let Some((first, rest)) = sizes.split_first() else {
        return true;
    };
    for at in 0..free.len() {
        if free[at] < *first || free[..at].contains(&free[at]) {
            continue;
        }
        free[at] -= first;
        let done = can_be_dealt(free, rest);
        free[at] += first;
        if done {
            return true;
        }
    }
    false
}

/// The fewest GPUs that have to move for a job of `wanted`; `None` when nothing helps.
fn fewest_moved(pods: &[(usize, i64, bool)], wanted: i64) -> Option<i64> {
    let mut best: Option<i64> = None;
    for chosen in 0_u32..1 << pods.len() {
        let is_in = |i: usize| chosen >> i & 1 == 1;
        let all = pods.iter().enumerate();
        if all.clone().any(|(i, p)| is_in(i) && !p.2) {
            continue;
        }
        let moved: Vec<i64> = all
            .clone()
            .filter(|(i, _)| is_in(*i))
            .map(|(_, p)| p.1)
            .collect();
        let cost = moved.iter().sum();
        if best.is_some_and(|b| b <= cost) {
            continue;
        }
        let mut free = [DEVICES; NODES];
        all.filter(|(i, _)| !is_in(*i))
            .for_each(|(_, p)| free[p.0] -= p.1);
        let helps = (0..NODES).any(|at| {
            let mut rest = free;
            rest[at] -= wanted;
            let mut largest = moved.clone();
            largest.sort_unstable_by(|a, b| b.cmp(a));
            rest[at] >= 0 && can_be_dealt(&mut rest, &largest)
        });
        if helps {
            best = Some(cost);
        }
    }
    best
}

#[test]
fn moves_are_nearly_as_few_as_exhaustive_search_finds() {
    let mut dice = Dice(23);
    let (mut gaps, mut missed, mut none) = ([0_u32; 5], 0_u32, 0_u32);
    let mut by_node: BTreeMap<usize, i64>;
    for case in 0..2_000 {
        let mut world: Vec<Delta> = (0..NODES)
            .map(|i| set_node(node(&format!("n{i}"), DEVICES)))
            .collect();
        let mut pods: Vec<(usize, i64, bool)> = Vec::new();
        by_node = BTreeMap::new();
        for i in 0..6 + dice.index(6) {
            let (at, gpus) = (dice.index(NODES), 1 + i64::from(dice.below(3) == 0));
            let used = by_node.entry(at).or_default();
            if *used + gpus > DEVICES {
                continue;
            }
            *used += gpus;
            let can = dice.below(5) > 0;
            let mut p = movable(&format!("x{i}"), gpus, &format!("n{at}"));
            if !can {
                p.meta.annotations = pairs(&[("gpudeck.dev/gang-min", "1")]);
            }
            world.push(set_pod(p));
            pods.push((at, gpus, can));
        }
        let wanted = 2 + i64::try_from(dice.below(3)).unwrap();
        world.push(set_pod(pod("job", wanted)));
        let best = fewest_moved(&pods, wanted);
        let proposals = propose(&state(world));
        let moved = |p: &MoveProposal| p.lost_gpu_secs as i64 / 60;
        match (best, proposals.first()) {
            (None, None) => none += 1,
            (None, Some(p)) => panic!("case {case}: {} cannot be", p.why),
            // It fits as it is.
            (Some(0), first) => assert_eq!(first, None, "case {case}"),
            (Some(_), None) => missed += 1,
            (Some(best), Some(p)) => {
                let gap = usize::try_from(moved(p) - best).expect("none is better");
                gaps[gap.min(4)] += 1;
            }
        }
    }
    println!(
        "moves: GPUs more than the fewest, cases by 0, 1, 2, 3, more: {gaps:?}; not found: \
         {missed}, nothing helps: {none}"
    );
    let found: u32 = gaps.iter().sum();
    assert!(found > 200, "{found}");
    assert!(missed * 20 <= found, "{missed} of {found} not found");
    assert!(gaps[0] * 100 >= found * 90, "{gaps:?}");
}
