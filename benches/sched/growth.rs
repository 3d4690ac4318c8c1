//! How a decision's time grows with nodes and with classes of pods.

use std::time::{Duration, Instant};

use gpudeck::sched::decide;

use crate::report::{line, quantile, time, timed};
use crate::site::{Pods, churn, come, nearly_full, now, round, settle};

const SINGLES: usize = 20_000;
const GANGS: usize = 100;

/// With nodes, then with classes.
pub fn run() {
    println!(
        "\ngrowth with nodes (90 % in use): single with its departure, pod of a gang, no, fork"
    );
    for nodes in [500, 1_000, 2_000, 5_000] {
        of_nodes(nodes);
    }
    println!(
        "\ngrowth with classes (1,000 nodes, 90 % in use): single with its departure, p99 of a decision"
    );
    for sizes in [1, 3, 12, 60] {
        of_classes(sizes);
    }
}

fn per(all: Duration, count: usize) -> String {
    time(all / u32::try_from(count.max(1)).unwrap_or(u32::MAX))
}

fn of_nodes(nodes: usize) {
    let mut pods = Pods::new(3);
    let (mut state, mut running) = nearly_full(nodes, &mut pods);
    let mut single = Duration::ZERO;
    churn(
        &mut state,
        &mut running,
        &mut pods,
        SINGLES,
        |state, pod| {
            let began = Instant::now();
            let placed = round(state, pod);
            single += began.elapsed();
            placed
        },
    );
    let mut half = state.fork();
    for pod in running.iter().step_by(2) {
        half.apply(&crate::site::leave(pod));
    }
    let (mut gang, mut members) = (Duration::ZERO, 0);
    for _ in 0..GANGS {
        let all: Vec<_> = pods.gang().iter().map(come).collect();
        members += all.len();
        let (plan, used) = timed(|| round(&mut half, &all));
        gang += used;
        settle(&mut half, &all, &plan);
    }
    let hopeless = pods.hopeless();
    let (mut forked, mut no) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let began = Instant::now();
        let mut fork = state.fork();
        forked.push(began.elapsed());
        fork.apply(&come(&hopeless));
        let began = Instant::now();
        decide(&fork, now());
        no.push(began.elapsed());
    }
    let figure = format!(
        "{}, {}, {}, {}",
        per(single, SINGLES),
        per(gang, members),
        time(quantile(&mut no, 0)),
        time(quantile(&mut forked, 0))
    );
    line(&format!("  {nodes} nodes"), &figure, "");
}

fn of_classes(sizes: u32) {
    let mut pods = Pods::new(sizes);
    let (mut state, mut running) = nearly_full(1_000, &mut pods);
    let mut took = Vec::with_capacity(SINGLES);
    churn(
        &mut state,
        &mut running,
        &mut pods,
        SINGLES,
        |state, pod| {
            let began = Instant::now();
            let placed = round(state, pod);
            took.push(began.elapsed());
            placed
        },
    );
    let all: Duration = took.iter().sum();
    let p99 = time(quantile(&mut took, 990));
    let figure = format!("{}, {p99}", per(all, SINGLES));
    line(&format!("  {} classes", sizes * 8 + 1), &figure, "");
}
