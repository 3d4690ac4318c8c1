//! Our policy: prices of the gaps that a pod breaks, and the scarcity of the room that it takes.
//!
//! Two modes. While the fleet only fills, the gap decides first and scarcity among equals. Where
//! pods leave as fast as they come, fragments heal, and the two are weighed together.

use super::chooser::{Chooser, Policy, Scored, Scorer};
use super::demand::Demand;
use super::fleet::{Fleet, NodeRow};
use super::gaps::GapPrices;
use super::scarcity::Weights;
use super::shape::Shape;

/// Weight of a class by its size in GPUs: its power while filling, and in the steady mode.
const BY_SIZE_FILL: f64 = 0.25;
const BY_SIZE_STEADY: f64 = 3.0;
/// While filling, weights are renewed when this share of the free GPUs at the last time is left.
const REFRESH_AT: f64 = 0.9;
/// Share of the demand that is given to sizes that may come although none has.
const PSEUDO_FILL: f64 = 0.01;
const PSEUDO_STEADY: f64 = 0.05;
/// Departures per placement from which on the mode is steady.
const STEADY_FROM: f64 = 0.5;
/// Half-life of what is learnt, in arrivals per node, and at least.
const HALF_LIFE_PER_NODE: f64 = 16.0;
const HALF_LIFE_LEAST: f64 = 500.0;
/// Arrivals at the first renewal; the next comes at twice as many, and so on.
const FIRST_LEARNT: u64 = 50;
/// Room for the second part of a score of the fill mode.
const SECOND_BITS: u32 = 48;

/// How a placement is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Fill,
    Steady,
}

/// Our policy.
pub struct GapPrice {
    demand: Demand,
    learns: bool,
    prices: GapPrices,
    weights: Weights,
    mode: Mode,
    arrivals: u64,
    /// Arrivals at which what was learnt is used next.
    learn_at: u64,
    /// Events since the last renewal.
    events: usize,
    /// Free thousandths of a GPU at the last renewal; `None` before the first.
    free_then: Option<i64>,
    /// Placements and departures, decayed like the demand.
    placed: f64,
    left: f64,
    decay: f64,
    /// Worth of each row's room with the version of the row that it is for.
    rooms: Vec<(u64, f64)>,
}

impl GapPrice {
    /// The demand is known, for a fleet of this many nodes.
    #[must_use]
    pub fn known(demand: Demand, nodes: usize) -> impl Policy {
        Chooser::new(Self::scorer(demand, nodes))
    }

    /// [`Self::known`] without the memory of scores.
    pub(super) fn scorer(demand: Demand, nodes: usize) -> Self {
        Self::new(demand, false, half_life(nodes))
    }

    /// The demand is learnt from the arrivals, for a fleet of this many nodes.
    #[must_use]
    pub fn learning(nodes: usize) -> impl Policy {
        let half_life = half_life(nodes);
        Chooser::new(Self::new(Demand::learning(half_life), true, half_life))
    }

    fn new(demand: Demand, learns: bool, half_life: f64) -> Self {
        Self {
            prices: GapPrices::new(&demand.shared()),
            demand,
            learns,
            weights: Weights::default(),
            mode: Mode::Fill,
            arrivals: 0,
            learn_at: FIRST_LEARNT,
            events: 0,
            free_then: None,
            placed: 0.0,
            left: 0.0,
            decay: (-std::f64::consts::LN_2 / half_life).exp(),
            rooms: Vec::new(),
        }
    }

    /// Prices and weights have to be renewed; learns on the way.
    fn is_due(&mut self, fleet: &Fleet) -> bool {
        if self.learns && self.arrivals >= self.learn_at {
            self.learn_at = self.learn_at.saturating_mul(2);
            return true;
        }
        if self.learns && self.arrivals < FIRST_LEARNT {
            return false;
        }
        let Some(then) = self.free_then else {
            return true;
        };
        match self.mode {
            Mode::Fill => (fleet.free_milli_gpu() as f64) < REFRESH_AT * then as f64,
            Mode::Steady => self.events >= fleet.rows().len(),
        }
    }

    fn renew(&mut self, fleet: &Fleet) {
        let (by_size, pseudo) = match self.mode {
            Mode::Fill => (BY_SIZE_FILL, PSEUDO_FILL),
            Mode::Steady => (BY_SIZE_STEADY, PSEUDO_STEADY),
        };
        let shares = self.demand.shares(if self.learns { pseudo } else { 0.0 });
        let normal = self.mode == Mode::Steady;
        self.weights = Weights::new(&shares, fleet, by_size, normal);
        if self.learns {
            self.prices = GapPrices::new(&self.demand.shared());
        }
        self.free_then = Some(fleet.free_milli_gpu());
        self.events = 0;
        self.rooms.clear();
    }

    /// Worth of the room that a row has.
    fn room(&mut self, fleet: &Fleet, index: usize, row: &NodeRow) -> f64 {
        // Version 0 is a row that never changed.
        let version = fleet.changed_at(index) + 1;
        if self.rooms.len() != fleet.rows().len() {
            self.rooms = vec![(0, 0.0); fleet.rows().len()];
        }
        match self.rooms.get_mut(index) {
            Some((at, room)) if *at == version => *room,
            Some(slot) => {
                *slot = (version, self.weights.value(row));
                slot.1
            }
            None => self.weights.value(row),
        }
    }

    fn key(&self, gap: f64, room: f64) -> u64 {
        match self.mode {
            Mode::Fill => {
                let second = whole(room * 1e4).min((1 << SECOND_BITS) - 1);
                whole(gap * 100.0).min(0x7fff) << SECOND_BITS | second
            }
            Mode::Steady => whole((gap + room) * 1e4).min(u64::MAX - 1),
        }
    }
}

/// Arrivals after which what they taught weighs half, for a fleet of this many nodes.
fn half_life(nodes: usize) -> f64 {
    (HALF_LIFE_PER_NODE * nodes as f64).max(HALF_LIFE_LEAST)
}

/// Rounded, negative noise to 0.
fn whole(value: f64) -> u64 {
    // A float cast saturates; the value was limited to what is meant before.
    value.round().max(0.0) as u64
}

impl Scorer for GapPrice {
    fn score(
        &mut self,
        fleet: &Fleet,
        index: usize,
        row: &NodeRow,
        shape: &Shape,
    ) -> Option<Scored> {
        let before = self.room(fleet, index, row);
        if !shape.is_shared() {
            let devices = row.lowest_devices(shape);
            let after = self.weights.value(&row.after(shape, devices, 1));
            let key = self.key(f64::from(shape.gpus), before - after);
            return Some(Scored { key, devices });
        }
        let mut best: Option<Scored> = None;
        for (device, free) in row.free().iter().enumerate() {
            let rest = row.free().iter().take(device);
            if *free < shape.milli_gpu || rest.clone().any(|other| other == free) {
                continue;
            }
            let gap = self.prices.value(*free) - self.prices.value(free - shape.milli_gpu);
            let after = self.weights.value(&row.after(shape, 1 << device, 1));
            let key = self.key(gap, before - after);
            if best.is_none_or(|best| key < best.key) {
                let devices = 1 << device;
                best = Some(Scored { key, devices });
            }
        }
        best
    }

    fn arrived(&mut self, fleet: &Fleet, shape: &Shape) -> bool {
        self.arrivals += 1;
        if self.learns {
            self.demand.add(shape);
        }
        self.placed *= self.decay;
        self.left *= self.decay;
        let steady = self.left >= STEADY_FROM * self.placed && self.left > 0.0;
        let mode = if steady { Mode::Steady } else { Mode::Fill };
        let switched = mode != self.mode;
        self.mode = mode;
        let due = self.is_due(fleet) || switched;
        if due {
            self.renew(fleet);
        }
        due
    }

    fn changed(&mut self, _node: usize, _shape: &Shape, sign: i64) {
        self.events += 1;
        if sign > 0 {
            self.placed += 1.0;
        } else {
            self.left += 1.0;
        }
    }
}
