//! One run: a stream under a policy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::Model;
use super::stream::{Arrival, Stream};
use super::tally::{Losses, Outcome, WaitTally};
use crate::sched::place::{Choice, Fleet, Policy, Resident, Shape, make_room};
use crate::sim::openb::PolicyName;

/// Arrivals after the start that are not measured, as a share of those that are.
const WARM_UP: f64 = 0.25;

/// Work that a moved pod loses, in seconds.
const MOVE_SECS: f64 = 60.0;

/// How far others may be moved for a pod that fits nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moving {
    /// The most pods moved for one; 0 moves none.
    pub most: usize,
    /// GPUs that a pod has to ask for.
    pub from_gpus: u8,
}

/// What is tried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experiment {
    /// The policy.
    pub policy: PolicyName,
    /// What becomes of a pod that fits nowhere.
    pub model: Model,
    /// How far others are moved for it.
    pub moving: Moving,
    /// Pods that are measured, after a warm-up.
    pub measured: u64,
}

/// A departure: when, and which pod; ordered by time.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    at_secs: f64,
    number: u64,
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
    moving: Moving,
    moves: u64,
    running: BinaryHeap<Reverse<Leaving>>,
    /// Where each running pod is.
    places: BTreeMap<u64, Choice>,
    /// Who runs on each node.
    residents: Vec<Vec<Resident>>,
    waiting: BTreeMap<Shape, VecDeque<Waiting>>,
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

/// Lets the pods of the stream arrive on an empty fleet under `policy`, which is the experiment's,
/// newly built. `each` hears of every arrival's number.
pub fn run(
    fleet: Fleet,
    mut stream: Stream,
    policy: Box<dyn Policy>,
    experiment: &Experiment,
    each: &mut dyn FnMut(u64),
) -> Outcome {
    let measured = experiment.measured;
    let capacity = fleet.free_milli_gpu() as f64;
    let warm_up = stream.starting() + (measured as f64 * WARM_UP) as u64;
    let residents = vec![Vec::new(); fleet.rows().len()];
    let mut engine = Engine {
        fleet,
        policy,
        name: experiment.policy,
        model: experiment.model,
        moving: experiment.moving,
        moves: 0,
        running: BinaryHeap::new(),
        places: BTreeMap::new(),
        residents,
        waiting: BTreeMap::new(),
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
            let Some(place) = self.places.remove(&next.number) else {
                continue;
            };
            let takes = self.name.takes(&next.shape);
            self.fleet.remove(place.node, &takes, place.devices);
            self.policy.changed(place.node, &takes, -1);
            self.depart_from(place.node, next.number);
            self.allocated -= next.shape.total_milli_gpu();
            self.wake(place.node);
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
        let chosen = self.policy.choose(&self.fleet, &takes);
        let choice = if let Some(choice) = chosen {
            self.fleet.place(choice.node, &takes, choice.devices);
            self.policy.changed(choice.node, &takes, 1);
            choice
        } else if let Some(choice) = self.move_others(&takes) {
            choice
        } else {
            return false;
        };
        self.settle(choice, number, takes);
        self.allocated += arrival.shape.total_milli_gpu();
        self.running.push(Reverse(Leaving {
            at_secs: self.now_secs + arrival.life_secs,
            number,
            shape: arrival.shape,
        }));
        true
    }

    /// A pod is on a node from now on.
    fn settle(&mut self, choice: Choice, id: u64, shape: Shape) {
        self.places.insert(id, choice);
        if let Some(residents) = self.residents.get_mut(choice.node) {
            residents.push(Resident {
                id,
                shape,
                devices: choice.devices,
            });
        }
    }

    fn depart_from(&mut self, node: usize, id: u64) {
        if let Some(residents) = self.residents.get_mut(node) {
            residents.retain(|pod| pod.id != id);
        }
    }

    /// Makes room by moving others, if that is allowed for such a pod.
    fn move_others(&mut self, shape: &Shape) -> Option<Choice> {
        if self.moving.most == 0 || shape.gpus < self.moving.from_gpus {
            return None;
        }
        let (fleet, policy) = (&mut self.fleet, self.policy.as_mut());
        let (choice, moves) = make_room(fleet, policy, &self.residents, shape, self.moving.most)?;
        for step in moves {
            self.depart_from(step.from, step.pod.id);
            self.settle(step.to, step.pod.id, step.pod.shape);
            if self.measuring {
                self.moves += 1;
                self.milli_gpu_secs -= MOVE_SECS * step.pod.shape.total_milli_gpu() as f64;
            }
        }
        Some(choice)
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
            moves: self.moves,
            arrivals,
        }
    }
}
