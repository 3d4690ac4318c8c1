//! Without gangs: each GPU of a job is a pod that is placed when one is free, and holds it while the
//! rest of the job waits.
//!
//! Pods come one by one within half a minute of their job, and are tried in the order in which they
//! came. Where incomplete jobs hold all GPUs nothing can ever go on; that is counted, and the
//! youngest of them gives way, as an operator would have it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::job::Trace;
use super::progress::Progress;
use super::run::Setting;
use super::tally::{Outcome, Tally};

/// Pods of a job come within so many seconds.
const SPREAD_S: f64 = 30.0;

/// A job that gave way tries again after so many milliseconds, kube-scheduler's longest back-off.
const BACK_OFF: Ms = 10_000;

/// A time in milliseconds: equal ones are equal.
type Ms = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    End,
    Pod,
}

/// Runs a trace to its end.
#[allow(clippy::cast_precision_loss)]
pub(super) fn run(trace: &Trace, setting: Setting) -> Outcome {
    let gpus = setting.nodes * setting.gpus_per_node;
    let mut rng = fastrand::Rng::with_seed(setting.seed);
    let mut due: BinaryHeap<Reverse<(Ms, What, usize)>> = BinaryHeap::new();
    for (at, job) in trace.jobs.iter().enumerate() {
        for pod in 0..job.gpus {
            let late = if pod == 0 { 0.0 } else { rng.f64() * SPREAD_S };
            due.push(Reverse((ms(job.submit_s + late), What::Pod, at)));
        }
    }
    let mut world = World {
        trace,
        free: gpus,
        waiting: BTreeMap::new(),
        held: vec![0; trace.jobs.len()],
        incomplete: BTreeMap::new(),
        progress: vec![Progress::default(); trace.jobs.len()],
        working: 0,
        holding: 0,
        pods: 0,
        tally: Tally::new(gpus, trace),
    };
    let mut last = 0;
    while let Some(Reverse((now, what, at))) = due.pop() {
        let now_s = now as f64 / 1_000.0;
        world.tally.until(now_s, world.working);
        world
            .tally
            .held(f64::from(world.holding) * (now - last) as f64 / 1_000.0);
        last = now;
        match what {
            What::Pod => {
                world.pods += 1;
                world.waiting.insert((now, world.pods), at);
            }
            What::End => world.end(at, now_s),
        }
        // All of one moment, then the scheduler.
        if due.peek().is_some_and(|Reverse((next, ..))| *next == now) {
            continue;
        }
        loop {
            world.place(now, &mut due);
            if world.free > 0 || world.working > 0 || world.incomplete.is_empty() {
                break;
            }
            world.give_way(now, &mut due);
        }
    }
    world.tally.outcome(trace, &world.progress)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ms(seconds: f64) -> Ms {
    (seconds * 1_000.0).round() as Ms
}

struct World<'a> {
    trace: &'a Trace,
    free: u32,
    /// Pods by the time at which they came.
    waiting: BTreeMap<(Ms, u64), usize>,
    /// GPUs that each incomplete job holds.
    held: Vec<u32>,
    /// Jobs that hold some GPUs and wait for more; the later they began the larger the key.
    incomplete: BTreeMap<usize, ()>,
    progress: Vec<Progress>,
    working: u32,
    holding: u32,
    pods: u64,
    tally: Tally,
}

impl World<'_> {
    fn end(&mut self, at: usize, now_s: f64) {
        let Some(job) = self.trace.jobs.get(at) else {
            return;
        };
        if let Some(progress) = self.progress.get_mut(at) {
            progress.end_s = Some(now_s);
        }
        self.free += job.gpus;
        self.working -= job.gpus;
    }

    fn place(&mut self, now: Ms, due: &mut BinaryHeap<Reverse<(Ms, What, usize)>>) {
        while self.free > 0
            && let Some((_, at)) = self.waiting.pop_first()
        {
            let Some((job, held)) = self.trace.jobs.get(at).zip(self.held.get_mut(at)) else {
                continue;
            };
            self.free -= 1;
            self.holding += 1;
            *held += 1;
            if *held == job.gpus {
                self.incomplete.remove(&at);
                self.holding -= job.gpus;
                self.working += job.gpus;
                due.push(Reverse((now + ms(job.duration_s), What::End, at)));
            } else {
                self.incomplete.insert(at, ());
            }
        }
    }

    /// The youngest incomplete job lets go of its GPUs, and its pods come anew.
    fn give_way(&mut self, now: Ms, due: &mut BinaryHeap<Reverse<(Ms, What, usize)>>) {
        self.tally.deadlock();
        let Some((at, ())) = self.incomplete.pop_last() else {
            return;
        };
        let held = self.held.get_mut(at).map(std::mem::take);
        let held = held.unwrap_or_default();
        self.free += held;
        self.holding -= held;
        for _ in 0..held {
            due.push(Reverse((now + BACK_OFF, What::Pod, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::jobs::{Job, Policy};

    #[test]
    fn two_gangs_that_each_hold_half_are_a_deadlock_and_both_end() {
        let job = Job {
            submit_s: 0.0,
            gpus: 8,
            duration_s: 60.0,
            tenant: 0,
        };
        let trace = Trace {
            jobs: vec![job.clone(), job],
            tenants: vec!["all".to_owned()],
        };
        let setting = Setting {
            nodes: 1,
            gpus_per_node: 8,
            policy: Policy::Gangless,
            restart_s: 0.0,
            seed: 1,
        };
        let outcome = run(&trace, setting);
        assert!(outcome.deadlocks > 0);
        assert!(outcome.held_gpu_h > 0.0);
        assert!(outcome.jcts_s.iter().all(|jct| *jct < 240.0));
    }
}
