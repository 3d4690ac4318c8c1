//! Small random cases beside exhaustive search: how far the quick way is from the best.

use super::build::*;
use crate::model::{Node, Pod};
use crate::plan::Action;
use crate::sched::mig::{A100_80, Device, Mask, Prices, Profile, choose, scarcity};
use crate::sched::{State, decide};

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % n).unwrap()
    }
}

/// Leaf and spine of each node, and pods that it has room for.
type Site = (usize, usize, u32);

/// What a placement costs, the wider level first: level reached, leaves, nodes. Leaves count at
/// the widest level too, where spines come first for us.
type Price = (u8, u32, u32);

fn price(sites: &[Site], put: &[u32]) -> Price {
    let used: Vec<&Site> = sites
        .iter()
        .zip(put)
        .filter(|(_, n)| **n > 0)
        .map(|(s, _)| s)
        .collect();
    let count = |of: &dyn Fn(&Site) -> usize| {
        let mut all: Vec<usize> = used.iter().map(|s| of(s)).collect();
        all.sort_unstable();
        all.dedup();
        u32::try_from(all.len()).unwrap()
    };
    let (leaves, spines) = (count(&|s| s.0), count(&|s| s.1));
    let nodes = u32::try_from(used.len()).unwrap();
    let level = match (nodes, leaves, spines) {
        (..=1, ..) => 0,
        (_, 1, _) => 1,
        (.., 1) => 2,
        _ => 3,
    };
    (level, leaves, nodes)
}

/// The best of all ways to deal `left` pods to the nodes from `at` on.
fn search(sites: &[Site], put: &mut Vec<u32>, left: u32, best: &mut Option<Price>) {
    if put.len() == sites.len() {
        if left == 0 {
            let price = price(sites, put);
            if best.is_none_or(|b| price < b) {
                *best = Some(price);
            }
        }
        return;
    }
    let room = sites[put.len()].2.min(left);
    for n in 0..=room {
        put.push(n);
        search(sites, put, left - n, best);
        put.pop();
    }
}

fn site(index: usize, leaf: usize, spine: usize) -> Node {
    let mut n = node(&format!("n{index}"), 4);
    n.meta.labels = pairs(&[
        ("fabric.topograph.run/tier-0", &format!("l{leaf}")),
        ("fabric.topograph.run/tier-1", &format!("s{spine}")),
    ]);
    n
}

fn member(index: usize, gpus: i64, of: u32) -> Pod {
    in_group(pod(&format!("g{index}"), gpus), "g", of)
}

#[test]
fn gangs_lie_as_close_as_exhaustive_search_finds() {
    let mut dice = Dice(11);
    let (mut leaves, mut nodes) = ([0_u32; 4], [0_u32; 4]);
    for case in 0..2_000 {
        let mut sites: Vec<Site> = Vec::new();
        let mut world: Vec<crate::model::Delta> = Vec::new();
        let size = 1 + i64::try_from(dice.below(2)).unwrap();
        for i in 0..5 + dice.below(3) {
            let leaf = dice.below(4);
            let used = i64::try_from(dice.below(5)).unwrap();
            world.push(set_node(site(i, leaf, leaf / 2)));
            if used > 0 {
                world.push(set_pod(bound(
                    pod(&format!("x{i}"), used),
                    &format!("n{i}"),
                )));
            }
            sites.push((leaf, leaf / 2, u32::try_from((4 - used) / size).unwrap()));
        }
        let pods = 2 + dice.below(6);
        let need = u32::try_from(pods).unwrap();
        world.extend((0..pods).map(|i| set_pod(member(i, size, need))));
        let plan = decide(&state(world), at(0));
        let mut put = vec![0; sites.len()];
        for action in plan.actions() {
            let Action::Bind { node, .. } = action else {
                panic!("nobody may be evicted here");
            };
            put[node[1..].parse::<usize>().unwrap()] += 1;
        }
        let mut best = None;
        search(&sites, &mut Vec::new(), need, &mut best);
        let Some(best) = best else {
            assert_eq!(plan.actions().count(), 0, "case {case}");
            continue;
        };
        assert_eq!(plan.actions().count(), pods, "case {case}: it fits");
        let got = price(&sites, &put);
        assert_eq!(got.0, best.0, "case {case}: a wider level than needed");
        let gap = |got: u32, best: u32| usize::try_from(got - best).unwrap().min(3);
        leaves[gap(got.1, best.1)] += 1;
        // A leaf more can save a node.
        nodes[gap(got.2.max(best.2), best.2)] += 1;
    }
    println!(
        "gangs: more than the best, cases by 0, 1, 2, more: leaves {leaves:?} nodes {nodes:?}"
    );
    let all: u32 = leaves.iter().sum();
    assert!(
        leaves[0] * 100 >= all * 97 && leaves[2] + leaves[3] == 0,
        "{leaves:?}"
    );
    assert!(nodes[0] * 100 >= all * 91 && nodes[3] == 0, "{nodes:?}");
}

/// The most compute of the arrivals that any dealing to the devices can run.
fn most_compute(devices: &mut [Mask], arrivals: &[&'static Profile]) -> u32 {
    let Some((first, rest)) = arrivals.split_first() else {
        return 0;
    };
    let mut best = most_compute(devices, rest);
    for at in 0..devices.len() {
        let before = devices[at];
        // Devices alike before it have been tried.
        if devices[..at].contains(&before) {
            continue;
        }
        for (_, window) in first.free_starts(before) {
            devices[at] = before | window;
            let found = u32::from(first.compute) + most_compute(devices, rest);
            best = best.max(found);
            devices[at] = before;
        }
    }
    best
}

#[test]
fn slices_run_nearly_as_much_as_exhaustive_search_finds() {
    let mut dice = Dice(5);
    let share = [0.35, 0.08, 0.22, 0.15, 0.08, 0.12];
    let prices = Prices::new(&A100_80, &share);
    let profiles: Vec<&'static Profile> = A100_80.plain().collect();
    let mut gaps = [0_u32; 15];
    let (mut ours, mut offline) = (0, 0);
    for _ in 0..2_000 {
        let arrivals: Vec<&'static Profile> = (0..5 + dice.below(2))
            .map(|_| match dice.below(100) {
                0..=34 => profiles[0],
                35..=42 => profiles[1],
                43..=64 => profiles[2],
                65..=79 => profiles[3],
                80..=87 => profiles[4],
                _ => profiles[5],
            })
            .collect();
        let mut devices = [Device::default(); 2];
        let mut ran = 0;
        for profile in &arrivals {
            let weights = scarcity(&prices, &share, &devices);
            if let Some(slot) = choose(&prices, &weights, &devices, profile) {
                let device = &mut devices[slot.device];
                let window = profile.window(slot.start).unwrap();
                assert_eq!(device.mask & window, 0, "two instances on one slice");
                device.mask |= window;
                device.running += 1;
                device.compute += profile.compute;
                ran += u32::from(profile.compute);
            }
        }
        let best = most_compute(&mut [0; 2], &arrivals);
        gaps[usize::try_from(best - ran).unwrap()] += 1;
        ours += ran;
        offline += best;
    }
    println!("slices: compute less than the best offline, cases: {gaps:?}; {ours} of {offline}");
    assert!(
        f64::from(ours) >= 0.9 * f64::from(offline),
        "{ours} of {offline}"
    );
}

#[test]
fn a_state_of_nothing_decides_nothing() {
    assert!(decide(&State::default(), at(0)).is_empty());
}
