//! Many waiting pods at once, in rounds as the engine makes them, and folding what is there.

use gpudeck::model::{Delta, Pod};
use gpudeck::sched::{State, decide};

use crate::report::{line, rate, timed};
use crate::site::{Pods, come, empty, now};

/// 5,000 nodes, with few and with more pods than they hold.
pub fn run() {
    println!("\n5,000 empty nodes of 8 GPUs, all pods waiting from the start");
    for count in [10_000, 20_000, 40_000] {
        let mut pods = Pods::new(3);
        let all: Vec<Pod> = (0..count).map(|_| pods.single()).collect();
        let deltas: Vec<Delta> = all.iter().map(come).collect();
        let mut state = empty(5_000);
        let ((), folded) = timed(|| deltas.iter().for_each(|delta| state.apply(delta)));
        let (placed, took) = timed(|| drain(&mut state));
        line(
            &format!("  {count} pods, {placed} placed: decided, folded"),
            &format!("{}, {}", rate(count, took), rate(count, folded)),
            "",
        );
    }
}

/// Rounds until no more can be placed.
fn drain(state: &mut State) -> usize {
    let mut placed = 0;
    loop {
        state.expire(now());
        let plan = decide(state, now());
        for action in plan.actions() {
            state.assume(action);
            placed += 1;
        }
        for decision in &plan.decisions {
            state.apply(&Delta::Decision(decision.clone()));
        }
        if !plan.more {
            return placed;
        }
    }
}
