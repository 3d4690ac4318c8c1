//! Whose turn it is and who leaves: the bars on 5,000 full nodes of 8 GPUs, one thread.

use std::time::{Duration, Instant};

use gpudeck::plan::Plan;
use gpudeck::sched::{State, decide, explain};

use crate::queues::{LENDER, claim, leaving_gpus, lent, tree, waiting};
use crate::report::{line, quantile, time, under, verdict};
use crate::site::{Pods, come, leave, now};

const NODES: usize = 5_000;
const REPEATS: usize = 11;
const JOBS: usize = 10_000;
const CLAIMED: usize = 2_000;

/// Runs all of them.
pub fn run() {
    println!("\n{NODES} nodes of 8 GPUs, all in use, queues, one thread");
    for gpus in [8, 1] {
        reclaim(NODES, gpus, CLAIMED);
    }
    for queues in [1, 50] {
        pending(NODES, JOBS, queues);
    }
    explained(NODES);
    shares(NODES);
    println!("\ngrowth with nodes: reclaim of a tenth, 2 jobs a node looked at anew, explanation");
    for nodes in [500, 1_000, 2_000] {
        let reclaimed = reclaimed(nodes, 1, nodes * 8 / 10 / 8 * 8).0;
        let (mut state, running) = waiting(nodes, nodes * 2, 50, &mut Pods::new(3));
        let looked = looked_again(&mut state, &running);
        let explained = explanation(nodes, 3).0;
        let figure = [reclaimed, looked, explained].map(|mut t| time(quantile(&mut t, 500)));
        line(&format!("  {nodes} nodes"), &figure.join(", "), "");
    }
}

/// Times of a claim by the owner of a guarantee, and GPUs that leave for it.
fn reclaimed(nodes: usize, gpus: i64, claimed: usize) -> (Vec<Duration>, i64) {
    let mut pods = Pods::new(3);
    let full = lent(nodes, gpus, &mut pods);
    let claim = claim(claimed, &mut pods);
    let mut plan = Plan::default();
    let mut took = Vec::new();
    for _ in 0..REPEATS {
        let mut state = full.fork();
        claim.iter().for_each(|pod| state.apply(pod));
        let began = Instant::now();
        plan = decide(&state, now());
        took.push(began.elapsed());
    }
    (took, leaving_gpus(&plan, gpus))
}

fn reclaim(nodes: usize, gpus: i64, claimed: usize) {
    let (mut took, left) = reclaimed(nodes, gpus, claimed);
    let what = format!("reclaim of {claimed} GPUs from {gpus}-GPU pods");
    under(&what, &mut took, Duration::from_millis(50));
    let need = i64::try_from(claimed).expect("small");
    let met = left >= need && left * 10 <= need * 11;
    let figure = format!("{:.3} of the need", left as f64 / need as f64);
    line("  evicts", &figure, &verdict("1.1", met));
}

/// Times of a round in which all jobs that wait are looked at again: a pod has left and its place
/// is taken by the next.
fn looked_again(state: &mut State, running: &[gpudeck::model::Pod]) -> Vec<Duration> {
    decide(state, now());
    let mut took = Vec::new();
    for pod in running.iter().step_by(97).take(REPEATS) {
        state.apply(&leave(pod));
        let began = Instant::now();
        let plan = decide(state, now());
        took.push(began.elapsed());
        plan.actions().for_each(|action| state.assume(action));
    }
    took
}

fn pending(nodes: usize, jobs: usize, queues: usize) {
    let (mut state, running) = waiting(nodes, jobs, queues, &mut Pods::new(3));
    let began = Instant::now();
    decide(&state, now());
    let first = began.elapsed();
    let mut took = looked_again(&mut state, &running);
    let what = format!("{jobs} jobs that wait in {queues} queue(s), looked at anew");
    under(&what, &mut took, Duration::from_millis(100));
    line("  the first time, with the picture", &time(first), "");
}

/// Times of an explanation, and its near misses.
fn explanation(nodes: usize, sizes: u32) -> (Vec<Duration>, usize) {
    let mut pods = Pods::new(sizes);
    let mut state = lent(nodes, 1, &mut pods);
    let gang = pods.together(LENDER, 4, Some("required=leaf"));
    gang.iter().for_each(|pod| state.apply(&come(pod)));
    decide(&state, now());
    let Some(first) = gang.first() else {
        return (Vec::new(), 0);
    };
    let (mut took, mut found) = (Vec::new(), 0);
    for _ in 0..REPEATS {
        let began = Instant::now();
        let told = explain(&state, now(), &first.meta.uid);
        took.push(began.elapsed());
        found = told.map_or(0, |t| t.near_misses.len());
    }
    (took, found)
}

fn explained(nodes: usize) {
    let (mut took, found) = explanation(nodes, 3);
    let what = format!("explanation of a gang, {found} near misses");
    under(&what, &mut took, Duration::from_millis(50));
    // One that others of the queue with a guarantee wait beside.
    let mut pods = Pods::new(3);
    let (mut state, _) = waiting(nodes, JOBS, 50, &mut pods);
    let pod = pods.of("team-7", 8);
    state.apply(&come(&pod));
    decide(&state, now());
    let mut took = Vec::new();
    let mut found = 0;
    for _ in 0..REPEATS {
        let began = Instant::now();
        let told = explain(&state, now(), &pod.meta.uid);
        took.push(began.elapsed());
        found = told.map_or(0, |t| t.near_misses.len());
    }
    let what = format!("explanation of one of {JOBS} jobs, {found} near misses");
    under(&what, &mut took, Duration::from_millis(50));
}

fn shares(nodes: usize) {
    let mut pods = Pods::new(3);
    let mut state = tree(nodes, &mut pods);
    state.apply(&come(&pods.hopeless()));
    decide(&state, now());
    let mut took = Vec::new();
    for _ in 0..REPEATS {
        let began = Instant::now();
        decide(&state, now());
        took.push(began.elapsed());
    }
    let what = "a round with the shares of 210 queues in 3 levels";
    under(what, &mut took, Duration::from_millis(1));
}

/// What is counted in a process of its own: `what` so many times on so many nodes.
pub fn work(what: &str, nodes: usize, repeats: usize) {
    let mut pods = Pods::new(3);
    match what {
        "reclaim" => {
            let full = lent(nodes, 1, &mut pods);
            let claim = claim(nodes * 8 / 10 / 8 * 8, &mut pods);
            for _ in 0..repeats {
                let mut state = full.fork();
                claim.iter().for_each(|pod| state.apply(pod));
                std::hint::black_box(decide(&state, now()));
            }
        }
        "pending" => {
            let (mut state, running) = waiting(nodes, nodes * 2, 50, &mut pods);
            decide(&state, now());
            for pod in running.iter().step_by(97).take(repeats) {
                state.apply(&leave(pod));
                let plan = decide(&state, now());
                plan.actions().for_each(|action| state.assume(action));
            }
        }
        "explain" => {
            let mut state = lent(nodes, 1, &mut pods);
            let gang = pods.together(LENDER, 4, Some("required=leaf"));
            gang.iter().for_each(|pod| state.apply(&come(pod)));
            decide(&state, now());
            for _ in 0..repeats {
                let first = gang.first().map(|p| &p.meta.uid);
                std::hint::black_box(first.and_then(|uid| explain(&state, now(), uid)));
            }
        }
        _ => {}
    }
}
