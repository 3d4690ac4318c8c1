//! The bars: 5,000 nodes of 8 GPUs, nine tenths in use, all filters on, one thread.

use std::hint::black_box;
use std::time::{Duration, Instant};

use gpudeck::model::{Delta, Pod};
use gpudeck::plan::Plan;
use gpudeck::sched::{State, decide};

use crate::report::{line, quantile, rate, reaches, time, timed, under, verdict};
use crate::site::{Pods, churn, come, leave, nearly_full, now, round, settle};

const NODES: usize = 5_000;
const SINGLES: usize = 60_000;
const GANGS: usize = 400;
const REPEATS: usize = 21;

/// Runs all of them.
pub fn run() {
    println!("\n{NODES} nodes of 8 GPUs, 90 % in use, all filters on, one thread");
    let mut pods = Pods::new(3);
    let (full, running) = nearly_full(NODES, &mut pods);
    singles(&full, &running, &mut pods);
    gangs(&full, &running, &mut pods);
    cannot_be_placed(&full, &mut pods);
    fork(&full);
}

fn singles(full: &State, running: &[Pod], pods: &mut Pods) {
    let (mut state, mut here) = (full.fork(), running.to_vec());
    let mut took = Vec::with_capacity(SINGLES);
    let ((), all) = timed(|| {
        churn(&mut state, &mut here, pods, SINGLES, |state, pod| {
            let began = Instant::now();
            let plan = round(state, pod);
            took.push(began.elapsed());
            plan
        });
    });
    // What is not the decision, by the same clock: making pods, departures, the watch's answers.
    let rest = {
        let (mut state, mut here) = (full.fork(), running.to_vec());
        let nothing = |state: &mut State, pod: &[Delta]| {
            pod.iter().for_each(|pod| state.apply(pod));
            Plan::default()
        };
        let ((), rest) = timed(|| churn(&mut state, &mut here, pods, SINGLES / 10, nothing));
        rest * 10
    };
    let decided = all.saturating_sub(rest);
    reaches("singles, one decision each", SINGLES, decided, 50_000);
    line(
        "  with departures and the watch's answers",
        &rate(SINGLES, all),
        "",
    );
    let at = |took: &mut Vec<Duration>, t| time(quantile(took, t));
    let p99 = quantile(&mut took, 990);
    let met = p99 < Duration::from_millis(1);
    line("  p99 of a decision", &time(p99), &verdict("1 ms", met));
    let (p50, most) = (at(&mut took, 500), at(&mut took, 1_000));
    let figure = format!("{p50}, {most}");
    line("  p50, slowest (prices made anew)", &figure, "");
}

fn gangs(full: &State, running: &[Pod], pods: &mut Pods) {
    let mut state = full.fork();
    for pod in running.iter().step_by(2) {
        state.apply(&leave(pod));
    }
    let gangs: Vec<Vec<Delta>> = (0..GANGS)
        .map(|_| pods.gang().iter().map(come).collect())
        .collect();
    let all: usize = gangs.iter().map(Vec::len).sum();
    let mut took = Vec::with_capacity(GANGS);
    let (mut placed, mut sum) = (0, Duration::ZERO);
    for gang in &gangs {
        let began = Instant::now();
        let (plan, used) = timed(|| round(&mut state, gang));
        took.push(began.elapsed());
        sum += used;
        placed += settle(&mut state, gang, &plan);
    }
    let what = "topology gangs, every leaf scored, pods";
    reaches(what, all, sum, 100_000);
    line("  p99 of a gang", &time(quantile(&mut took, 990)), "");
    line("  pods placed", &format!("{placed} of {all}"), "");
}

fn cannot_be_placed(full: &State, pods: &mut Pods) {
    let hopeless = pods.hopeless();
    let mut took = Vec::new();
    for _ in 0..REPEATS {
        // A fork begins without what is known of the class.
        let mut fresh = full.fork();
        fresh.apply(&come(&hopeless));
        let began = Instant::now();
        let plan = decide(&fresh, now());
        took.push(began.elapsed());
        assert!(plan.groups.is_empty(), "it cannot be placed");
    }
    let what = "cannot be placed, with its reason";
    under(what, &mut took, Duration::from_millis(10));
}

fn fork(full: &State) {
    let mut took = Vec::new();
    for _ in 0..REPEATS {
        let began = Instant::now();
        let fork = black_box(full.fork());
        took.push(began.elapsed());
        drop(fork);
    }
    under("fork", &mut took, Duration::from_millis(10));
}
