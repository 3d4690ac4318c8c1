//! Victims and backfill in small random cases beside exhaustive search: how far the quick way is
//! from the best.

use super::build::*;
use super::cast::Dice;
use crate::model::{Delta, Pod};
use crate::plan::Action;
use crate::sched::{SchedConfig, decide};

const NODES: usize = 3;
const GPUS: i64 = 4;
const NOW: i64 = 100_000;
/// What a restart costs beside the work that is lost.
const RESTART_SECS: i64 = 60;

/// A running pod: node, GPUs, seconds that it has run.
type Running = (usize, i64, i64);

/// Whether pods of these sizes have room on nodes with so much free.
fn fit(free: &mut [i64; NODES], pods: &[i64]) -> bool {
    let Some((first, rest)) = pods.split_first() else {
        return true;
    };
    for at in 0..NODES {
        if free[at] < *first {
            continue;
        }
        free[at] -= first;
        let fits = fit(free, rest);
        free[at] += first;
        if fits {
            return true;
        }
    }
    false
}

fn free_without(running: &[Running], gone: impl Fn(usize) -> bool) -> [i64; NODES] {
    let mut free = [GPUS; NODES];
    for (i, (node, gpus, _)) in running.iter().enumerate() {
        if !gone(i) {
            free[*node] -= gpus;
        }
    }
    free
}

/// GPU-seconds that are lost when these leave.
fn loss(running: &[Running], gone: impl Fn(usize) -> bool) -> i64 {
    let all = running.iter().enumerate().filter(|(i, _)| gone(*i));
    all.map(|(_, (_, gpus, ran))| gpus * (ran + RESTART_SECS))
        .sum()
}

/// The least that can be lost for pods of these sizes to start.
fn least_lost(running: &[Running], asked: &[i64]) -> Option<i64> {
    let mut best = None;
    for set in 0_u32..1 << running.len() {
        let gone = |i: usize| set >> i & 1 == 1;
        let lost = loss(running, gone);
        // Whether they fit takes longer to find out.
        if best.is_none_or(|best| lost < best) && fit(&mut free_without(running, gone), asked) {
            best = Some(lost);
        }
    }
    best
}

/// Random pods that run on a cluster.
fn some_running(dice: &mut Dice, most: u64) -> Vec<Running> {
    let mut running: Vec<Running> = Vec::new();
    let mut free = [GPUS; NODES];
    for _ in 0..most {
        let (node, gpus) = (dice.index(NODES), 1 + i64::from(dice.below(3) == 0));
        if free[node] >= gpus {
            free[node] -= gpus;
            let ran = 100 + 100 * i64::try_from(dice.below(50)).unwrap();
            running.push((node, gpus, ran));
        }
    }
    running
}

fn told(running: &[Running], notes: impl Fn(usize) -> Vec<(&'static str, String)>) -> Vec<Delta> {
    let mut world: Vec<Delta> = (0..NODES)
        .map(|i| set_node(node(&format!("n{i}"), GPUS)))
        .collect();
    for (i, (at_node, gpus, ran)) in running.iter().enumerate() {
        let mut p = bound(pod(&format!("r{i:02}"), *gpus), &format!("n{at_node}"));
        p.started = Some(at(NOW - ran));
        let notes = notes(i);
        let notes: Vec<(&str, &str)> = notes.iter().map(|(k, v)| (*k, &**v)).collect();
        world.push(set_pod(annotated(p, &notes)));
    }
    world
}

/// A job of these pods, each of so many GPUs, that comes before all that run.
fn newcomer(pods: u32, gpus: i64) -> Vec<Pod> {
    let one = |i: u32| {
        let mut p = pod(&format!("new{i}"), gpus);
        p.priority = 10;
        if pods > 1 {
            in_group(p, "new", pods)
        } else {
            p
        }
    };
    (0..pods).map(one).collect()
}

#[test]
fn victims_lose_nearly_as_little_as_exhaustive_search_finds() {
    let mut dice = Dice(31);
    // By how much more is lost than has to be: nothing, up to 5, 10, 25, 50 %, more.
    let mut gaps = [0_u32; 6];
    let (mut ours, mut best_of_all, mut none) = (0, 0, 0);
    for case in 0..2_000 {
        let running = some_running(&mut dice, 11);
        let pods = u32::try_from(1 + dice.below(3)).unwrap();
        let gpus = 1 + i64::try_from(dice.below(4)).unwrap();
        let asked = vec![gpus; pods as usize];
        let best = least_lost(&running, &asked);
        let mut world = told(&running, |_| Vec::new());
        world.extend(newcomer(pods, gpus).into_iter().map(set_pod));
        let config = SchedConfig {
            moves: false,
            ..SchedConfig::default()
        };
        let plan = decide(&state_with(config, world), at(NOW));
        let leaves: Vec<usize> = plan
            .actions()
            .filter_map(|a| match a {
                Action::Evict { name, .. } => Some(name[1..].parse().unwrap()),
                Action::Bind { .. } | Action::TellQueue { .. } => None,
            })
            .collect();
        let gone = |i: usize| leaves.contains(&i);
        match best {
            None => {
                none += 1;
                assert!(plan.groups.is_empty(), "case {case}: it cannot be");
            }
            Some(best) => {
                let mut free = free_without(&running, gone);
                assert!(fit(&mut free, &asked), "case {case}: it starts");
                let got = loss(&running, gone);
                assert!(got >= best, "case {case}: {got} below the best {best}");
                let gap = match (got - best) * 100 {
                    0 => 0,
                    more => [5, 10, 25, 50]
                        .iter()
                        .position(|percent| more <= best * percent)
                        .map_or(5, |at| at + 1),
                };
                gaps[gap] += 1;
                ours += got;
                best_of_all += best;
            }
        }
    }
    let found: u32 = gaps.iter().sum();
    let more = (ours - best_of_all) as f64 * 100.0 / best_of_all as f64;
    println!(
        "victims: more lost than the least, cases by none, to 5, 10, 25, 50 %, more: {gaps:?}; \
         {more:.2} % in all; cannot be: {none}"
    );
    assert!(gaps[0] * 100 >= found * 80, "{gaps:?}");
    assert!(more <= 8.0, "{more}");
}

/// A small job: GPUs, and how long it runs.
type Small = (i64, i64);

/// Time left of each that runs.
fn ends_in(running: &[Running]) -> Vec<i64> {
    running.iter().map(|(_, _, ran)| 5_200 - ran).collect()
}

/// What is free of each node after so many seconds, with these small jobs started now.
fn free_after(
    running: &[Running],
    started: &[(usize, Small)],
    ends: &[i64],
    secs: i64,
) -> [i64; NODES] {
    let mut free = free_without(running, |i| ends[i] <= secs);
    for (node, (gpus, runs)) in started {
        if *runs > secs {
            free[*node] -= gpus;
        }
    }
    free
}

/// The most GPUs that can be started now without the large job starting later than at `secs`.
fn most_started(
    running: &[Running],
    smalls: &[Small],
    (wanted, secs): (i64, i64),
    started: &mut Vec<(usize, Small)>,
) -> i64 {
    let ends = ends_in(running);
    let Some((small, rest)) = smalls.split_first() else {
        let then = free_after(running, started, &ends, secs);
        let starts = then.iter().any(|free| *free >= wanted);
        return if starts {
            started.iter().map(|(_, (gpus, _))| gpus).sum()
        } else {
            i64::MIN
        };
    };
    let mut best = most_started(running, rest, (wanted, secs), started);
    for node in 0..NODES {
        started.push((node, *small));
        if free_after(running, started, &ends, 0)[node] >= 0 {
            best = best.max(most_started(running, rest, (wanted, secs), started));
        }
        started.pop();
    }
    best
}

#[test]
fn backfill_starts_nearly_as_much_as_exhaustive_search_finds() {
    let mut dice = Dice(47);
    let mut gaps = [0_u32; 6];
    let (mut ours, mut best_of_all, mut cases) = (0, 0, 0);
    while cases < 2_000 {
        let running = some_running(&mut dice, 10);
        let ends = ends_in(&running);
        let wanted = 3 + i64::try_from(dice.below(2)).unwrap();
        let starts_at = |secs: i64| {
            let then = free_after(&running, &[], &ends, secs);
            then.iter().any(|free| *free >= wanted)
        };
        // A large job that waits for others to end.
        let first = ends.iter().copied().filter(|s| starts_at(*s)).min();
        let Some(first) = first.filter(|_| !starts_at(0)) else {
            continue;
        };
        cases += 1;
        let smalls: Vec<Small> = (0..2 + dice.below(4))
            .map(|_| {
                let gpus = 1 + i64::try_from(dice.below(3)).unwrap();
                (gpus, 100 + 200 * i64::try_from(dice.below(30)).unwrap())
            })
            .collect();
        let best = most_started(&running, &smalls, (wanted, first), &mut Vec::new());
        let estimate = |secs: i64| ("gpudeck.dev/runtime-estimate", secs.to_string());
        let mut world = told(&running, |_| vec![estimate(5_200)]);
        world.extend(newcomer(1, wanted).into_iter().map(set_pod));
        for (i, (gpus, runs)) in smalls.iter().enumerate() {
            let (key, secs) = estimate(*runs);
            let p = annotated(pod(&format!("s{i}"), *gpus), &[(key, &secs)]);
            world.push(set_pod(p));
        }
        let plan = decide(&state(world), at(NOW));
        let started: Vec<(usize, Small)> = plan
            .actions()
            .map(|a| {
                let Action::Bind { name, node, .. } = a else {
                    panic!("nobody may be evicted here");
                };
                let small = smalls[name[1..].parse::<usize>().unwrap()];
                (node[1..].parse().unwrap(), small)
            })
            .collect();
        let then = free_after(&running, &started, &ends, first);
        assert!(
            then.iter().any(|free| *free >= wanted),
            "case {cases}: the large job starts later"
        );
        let got: i64 = started.iter().map(|(_, (gpus, _))| gpus).sum();
        gaps[usize::try_from(best - got).expect("none is better").min(5)] += 1;
        ours += got;
        best_of_all += best;
    }
    println!(
        "backfill: GPUs less than the most, cases by 0, 1, 2, 3, 4, more: {gaps:?}; {ours} of \
         {best_of_all}"
    );
    assert!(
        gaps[0] * 100 >= cases * 88 && gaps[3..] == [0; 3],
        "{gaps:?}"
    );
    assert!(ours * 100 >= best_of_all * 88, "{ours} of {best_of_all}");
}
