//! Slices that come and go.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;

use super::policy::MigPolicy;
use super::run::{Fleet, Mix};
use crate::sched::mig::{Geometry, Prices, Profile};

/// Arrivals that are not measured, per GPU, and those that are.
const WARM_UP_PER_GPU: u64 = 20;
const MEASURED_PER_GPU: u64 = 200;
/// Time is kept in these parts of the mean duration, so that it is ordered.
const TICKS: f64 = 1e9;
/// Mean durations after which a mix that drifts turns around.
const TURNS_EVERY: f64 = 6.0;
/// Mean durations after which what was learnt weighs half, and between two prices.
const HALF_LIFE: f64 = 1.0;
const RENEW_EVERY: f64 = 0.25;
/// What of each profile is expected before any has come.
const PSEUDO: f64 = 1.0;

/// What becomes of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// What fits nowhere waits.
    pub(super) waits: bool,
    /// The mix changes, and nobody tells.
    pub(super) drifts: bool,
}

/// What came of a run.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Compute slices in use: at each load of a fill, or the mean over time.
    pub(super) compute: Vec<f64>,
    pub(super) came: u64,
    pub(super) lost: u64,
    pub(super) wait: Option<f64>,
    pub(super) wait_whole: Option<f64>,
}

/// An arrival: its number, when it came, which profile, and how long it runs, in ticks.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    number: u64,
    at: u64,
    profile: usize,
    life: u64,
}

/// A mean under way.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn get(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// One run.
pub(super) struct Life {
    geometry: &'static Geometry,
    profiles: Vec<&'static Profile>,
    gpus: usize,
    mix: Mix,
    policy: MigPolicy,
    prices: Prices,
    /// Shares of the arrivals as the policy knows them.
    share: Vec<f64>,
    fleet: Fleet,
    /// The stream does not depend on what the policy draws.
    times: Rng,
    drawn: Rng,
    dice: Rng,
    /// End, device, profile and start.
    leaving: BinaryHeap<Reverse<(u64, usize, usize, u8)>>,
    /// By profile, the oldest first.
    waiting: Vec<VecDeque<Arrival>>,
    now: u64,
    used: f64,
    warm_up: u64,
    waits: (Mean, Mean),
}

impl Life {
    pub(super) fn new(
        geometry: &'static Geometry,
        gpus: usize,
        mix: &Mix,
        policy: MigPolicy,
        seed: u64,
    ) -> Self {
        let profiles: Vec<&'static Profile> = geometry.plain().collect();
        Self {
            geometry,
            gpus,
            mix: mix.clone(),
            policy,
            prices: Prices::new(geometry, mix.shares()),
            share: mix.shares().to_vec(),
            fleet: Fleet::empty(gpus),
            times: Rng::with_seed(seed),
            drawn: Rng::with_seed(seed.wrapping_add(1 << 32)),
            dice: Rng::with_seed(!seed),
            leaving: BinaryHeap::new(),
            waiting: vec![VecDeque::new(); profiles.len()],
            profiles,
            now: 0,
            used: 0.0,
            warm_up: WARM_UP_PER_GPU * gpus as u64,
            waits: (Mean::default(), Mean::default()),
        }
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        (-(1.0 - self.times.f64()).ln() * mean * TICKS) as u64
    }

    /// Arrivals per mean duration at a load, with the mix of the moment.
    fn rate(&self, load: f64) -> f64 {
        load * self.gpus as f64 / Prices::gpus_needed(self.geometry, self.mix.shares()).max(1e-9)
    }

    pub(super) fn run(mut self, kind: Kind, load: f64) -> Figures {
        let total = self.warm_up + MEASURED_PER_GPU * self.gpus as u64;
        let capacity = self.gpus as u64 * u64::from(self.geometry.compute);
        let mut rate = self.rate(load);
        let mut turns_at = (TURNS_EVERY * TICKS) as u64;
        let mut learnt = kind.drifts.then(|| Learnt::new(self.profiles.len()));
        let mut figures = Figures::default();
        let mut since = 0;
        for number in 0..total {
            let at = self.now + self.exponential(1.0 / rate);
            if kind.drifts && at >= turns_at {
                turns_at += (TURNS_EVERY * TICKS) as u64;
                self.mix = self.mix.turned();
                rate = self.rate(load);
            }
            let profile = self.mix.draw(&mut self.drawn);
            let life = self.exponential(1.0);
            self.depart_until(at);
            if number == self.warm_up {
                (self.used, since) = (0.0, at);
                figures = Figures::default();
            }
            if let Some(learnt) = &mut learnt
                && let Some(share) = learnt.add(profile, at)
            {
                self.prices = Prices::new(self.geometry, &share);
                self.share = share;
            }
            let arrival = Arrival {
                number,
                at,
                profile,
                life,
            };
            figures.came += 1;
            if !self.start(&arrival) {
                match self.waiting.get_mut(profile) {
                    Some(queue) if kind.waits => queue.push_back(arrival),
                    _ => figures.lost += 1,
                }
            }
        }
        // Who waits at the end has waited at least so long.
        for arrival in std::mem::take(&mut self.waiting).into_iter().flatten() {
            self.waited(&arrival);
        }
        let passed = (self.now - since) as f64;
        let most = passed * capacity as f64;
        figures.compute = vec![capacity as f64 * self.used / most.max(1e-9)];
        if kind.waits {
            figures.wait = self.waits.0.get();
            figures.wait_whole = self.waits.1.get();
        }
        figures
    }

    fn pass_to(&mut self, at: u64) {
        self.used += (at - self.now) as f64 * self.fleet.compute as f64;
        self.now = at;
    }

    fn depart_until(&mut self, at: u64) {
        while let Some(Reverse((ends, device, q, start))) = self.leaving.peek().copied() {
            if ends > at {
                break;
            }
            self.leaving.pop();
            self.pass_to(ends);
            if let Some(profile) = self.profiles.get(q) {
                self.fleet.change(device, profile, start, false);
            }
            self.wake();
        }
        self.pass_to(at);
    }

    /// Starts whoever waits and fits, the oldest first.
    fn wake(&mut self) {
        let mut heads: Vec<Arrival> = self
            .waiting
            .iter()
            .filter_map(|queue| queue.front().copied())
            .collect();
        heads.sort_by_key(|arrival| arrival.number);
        let mut at = 0;
        while let Some(arrival) = heads.get(at).copied() {
            if !self.start(&arrival) {
                // The next of its profile does not fit either.
                at += 1;
                continue;
            }
            let queue = self.waiting.get_mut(arrival.profile);
            let next = queue.and_then(|queue| {
                queue.pop_front();
                queue.front().copied()
            });
            heads.remove(at);
            if let Some(next) = next {
                let place = heads.partition_point(|head| head.number < next.number);
                // Those before it have been tried: it comes behind them.
                heads.insert(place.max(at), next);
            }
        }
    }

    fn start(&mut self, arrival: &Arrival) -> bool {
        let Some(profile) = self.profiles.get(arrival.profile).copied() else {
            return false;
        };
        let devices = &self.fleet.devices;
        let (prices, share) = (&self.prices, &self.share);
        let slot = self
            .policy
            .place(prices, share, devices, profile, &mut self.dice);
        let Some(slot) = slot else {
            return false;
        };
        self.fleet.change(slot.device, profile, slot.start, true);
        let ends = self.now + arrival.life;
        self.leaving
            .push(Reverse((ends, slot.device, arrival.profile, slot.start)));
        self.waited(arrival);
        true
    }

    fn waited(&mut self, arrival: &Arrival) {
        if arrival.number < self.warm_up {
            return;
        }
        let waited = (self.now - arrival.at) as f64 / TICKS;
        self.waits.0.add(waited);
        let whole = self.profiles.get(arrival.profile);
        if whole.is_some_and(|profile| profile.compute == self.geometry.compute) {
            self.waits.1.add(waited);
        }
    }
}

/// The mix as the arrivals of the last while tell it.
struct Learnt {
    counts: Vec<f64>,
    at: u64,
    renewed: u64,
}

impl Learnt {
    fn new(profiles: usize) -> Self {
        Self {
            counts: vec![0.0; profiles],
            at: 0,
            renewed: 0,
        }
    }

    /// One more; shares come back when prices are due.
    fn add(&mut self, profile: usize, at: u64) -> Option<Vec<f64>> {
        let passed = (at - self.at) as f64 / TICKS;
        let decay = (-std::f64::consts::LN_2 * passed / HALF_LIFE).exp();
        self.counts.iter_mut().for_each(|count| *count *= decay);
        self.at = at;
        if let Some(count) = self.counts.get_mut(profile) {
            *count += 1.0;
        }
        if ((at - self.renewed) as f64) < RENEW_EVERY * TICKS {
            return None;
        }
        self.renewed = at;
        let all: f64 = self.counts.iter().map(|count| count + PSEUDO).sum();
        let share = self.counts.iter().map(|count| (count + PSEUDO) / all);
        Some(share.collect())
    }
}
