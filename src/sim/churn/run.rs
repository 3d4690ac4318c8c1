//! One run: a stream under a policy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::Model;
use super::stream::{Arrival, Stream};
use super::tally::{Losses, Outcome, WaitTally};
use crate::sched::place::{Choice, Fleet, Policy, Shape};
use crate::sim::openb::PolicyName;

/// Arrivals after the start that are not measured, as a share of those that are.
const WARM_UP: f64 = 0.25;

/// A departure: when, and which pod; ordered by time.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    at_secs: f64,
    number: u64,
    choice: Choice,
    shape: Shape,
}

impl PartialEq for Leaving {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Leaving {}

impl PartialOrd for Leaving {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Leaving {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_time = self.at_secs.total_cmp(&other.at_secs);
        by_time.then(self.number.cmp(&other.number))
    }
}

/// A pod that waits, and whether it is measured.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    number: u64,
    arrival: Arrival,
    measured: bool,
}

struct Engine<'a> {
    fleet: Fleet,
    policy: Box<dyn Policy>,
    name: PolicyName,
    model: Model,
    running: BinaryHeap<Reverse<Leaving>>,
    waiting: BTreeMap<Shape, VecDeque<Waiting>>,
    started: u64,
    now_secs: f64,
    /// Thousandths of a GPU that running pods ask for.
    allocated: i64,
    /// Since when and how much has been measured.
    measuring: bool,
    milli_gpu_secs: f64,
    measured_secs: f64,
    losses: Losses,
    waits: WaitTally,
    each: &'a mut dyn FnMut(u64),
}

/// Lets `measured` pods of the stream arrive after a warm-up, on an empty fleet. `each` hears of
/// every arrival's number.
pub fn run(
    fleet: Fleet,
    mut stream: Stream,
    name: PolicyName,
    policy: Box<dyn Policy>,
    model: Model,
    measured: u64,
    each: &mut dyn FnMut(u64),
) -> Outcome {
    let capacity = fleet.free_milli_gpu() as f64;
    let warm_up = stream.starting() + (measured as f64 * WARM_UP) as u64;
    let mut engine = Engine {
        fleet,
        policy,
        name,
        model,
        running: BinaryHeap::new(),
        waiting: BTreeMap::new(),
        started: 0,
        now_secs: 0.0,
        allocated: 0,
        measuring: false,
        milli_gpu_secs: 0.0,
        measured_secs: 0.0,
        losses: Losses::default(),
        waits: WaitTally::default(),
        each,
    };
    let arrivals = warm_up + measured;
    for number in 0..arrivals {
        let Some(arrival) = stream.next_arrival() else {
            break;
        };
        engine.depart_until(arrival.at_secs);
        engine.measuring = number >= warm_up;
        engine.arrive(number, arrival);
        (engine.each)(number + 1);
    }
    engine.end(capacity, arrivals)
}

impl Engine<'_> {
    fn pass_to(&mut self, at_secs: f64) {
        if self.measuring {
            let passed = at_secs - self.now_secs;
            self.milli_gpu_secs += passed * self.allocated as f64;
            self.measured_secs += passed;
        }
        self.now_secs = at_secs;
    }

    fn depart_until(&mut self, at_secs: f64) {
        while let Some(Reverse(next)) = self.running.peek().copied() {
            if next.at_secs > at_secs {
                break;
            }
            self.running.pop();
            self.pass_to(next.at_secs);
            let takes = self.name.takes(&next.shape);
            self.fleet
                .remove(next.choice.node, &takes, next.choice.devices);
            self.policy.changed(next.choice.node, &takes, -1);
            self.allocated -= next.shape.total_milli_gpu();
            self.wake(next.choice.node);
        }
        self.pass_to(at_secs);
    }

    fn arrive(&mut self, number: u64, arrival: Arrival) {
        let takes = self.name.takes(&arrival.shape);
        self.policy.arrived(&self.fleet, &takes);
        let placed = self.place(number, &arrival);
        let waiting = Waiting {
            number,
            arrival,
            measured: self.measuring,
        };
        match self.model {
            Model::Loss if self.measuring => self.losses.add(&arrival.shape, !placed),
            Model::Queue if placed && self.measuring => self.waits.add(&arrival.shape, 0.0),
            Model::Queue if !placed => {
                let queue = self.waiting.entry(arrival.shape).or_default();
                queue.push_back(waiting);
            }
            Model::Loss | Model::Queue => {}
        }
    }

    fn place(&mut self, number: u64, arrival: &Arrival) -> bool {
        let takes = self.name.takes(&arrival.shape);
        let Some(choice) = self.policy.choose(&self.fleet, &takes) else {
            return false;
        };
        self.fleet.place(choice.node, &takes, choice.devices);
        self.policy.changed(choice.node, &takes, 1);
        self.allocated += arrival.shape.total_milli_gpu();
        self.started += 1;
        self.running.push(Reverse(Leaving {
            at_secs: self.now_secs + arrival.life_secs,
            number,
            choice,
            shape: arrival.shape,
        }));
        true
    }

    /// Starts those who wait and now fit: only the node that was left can have made room.
    fn wake(&mut self, node: usize) {
        loop {
            let Some(row) = self.fleet.rows().get(node) else {
                return;
            };
            let fits = |shape: &&Shape| row.fits(&self.name.takes(shape));
            let first = self
                .waiting
                .iter()
                .filter(|(shape, _)| fits(shape))
                .filter_map(|(shape, queue)| Some((queue.front()?.number, *shape)))
                .min();
            let Some((_, shape)) = first else {
                return;
            };
            let Some(queue) = self.waiting.get_mut(&shape) else {
                return;
            };
            let Some(next) = queue.pop_front() else {
                return;
            };
            if queue.is_empty() {
                self.waiting.remove(&shape);
            }
            if !self.place(next.number, &next.arrival) {
                // The policy passed a node that fits by; nobody else is asked about it.
                self.waiting.entry(shape).or_default().push_front(next);
                return;
            }
            if next.measured {
                let waited = self.now_secs - next.arrival.at_secs;
                self.waits.add(&shape, waited);
            }
        }
    }

    fn end(mut self, capacity: f64, arrivals: u64) -> Outcome {
        // Who waits at the end has waited at least so long.
        for (shape, queue) in &self.waiting {
            for pod in queue.iter().filter(|pod| pod.measured) {
                let waited = self.now_secs - pod.arrival.at_secs;
                self.waits.add(shape, waited);
            }
        }
        let possible = (self.measured_secs * capacity).max(1e-9);
        Outcome {
            alloc_pct: 100.0 * self.milli_gpu_secs / possible,
            rejected_pct: self.losses.pct(),
            wait_s: self.waits.secs(),
            moves: 0,
            arrivals,
        }
    }
}
