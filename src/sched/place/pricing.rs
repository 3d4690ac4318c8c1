//! What a placement costs: prices of the gaps that a pod breaks, and the scarcity of the room that
//! it takes, both by the demand of the moment.
//!
//! Two modes. While the fleet only fills, the gap decides first and scarcity among equals. Where
//! pods leave as fast as they come, fragments heal, and the two are weighed together.

use super::chooser::Scored;
use super::demand::Demand;
use super::fleet::NodeRow;
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
/// The same before anything is learnt, with a prior.
const PSEUDO_PRIOR: f64 = 0.5;
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
    /// Pods come and few leave.
    Fill,
    /// Pods leave about as fast as they come.
    Steady,
}

/// Prices and weights, and what they are made from.
#[derive(Debug, Clone)]
pub(in crate::sched) struct Pricing {
    demand: Demand,
    learns: bool,
    /// There are prices before anything is learnt: those of the pseudo-pods.
    has_prior: bool,
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
    /// Grows with each renewal.
    version: u64,
    switched: bool,
}

/// What a placement costs, in GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::sched) struct Cost {
    /// What the devices that it takes were worth as gaps.
    pub(in crate::sched) gap: f64,
    /// What the node's room loses for those who may come.
    pub(in crate::sched) room: f64,
}

impl Pricing {
    /// The demand is known.
    pub(super) fn known(demand: Demand, nodes: usize) -> Self {
        Self::new(demand, false, half_life(nodes))
    }

    /// The demand is learnt from the arrivals.
    pub(super) fn learning(nodes: usize) -> Self {
        let half_life = half_life(nodes);
        Self::new(Demand::learning(half_life), true, half_life)
    }

    /// The demand is learnt; until enough is known, 1-, 2-, 4- and 8-GPU pods are expected alike.
    pub(in crate::sched) fn with_prior() -> Self {
        Self {
            has_prior: true,
            ..Self::learning(0)
        }
    }

    fn new(demand: Demand, learns: bool, half_life: f64) -> Self {
        Self {
            prices: GapPrices::new(&demand.shared()),
            demand,
            learns,
            has_prior: false,
            weights: Weights::default(),
            mode: Mode::Fill,
            arrivals: 0,
            learn_at: FIRST_LEARNT,
            events: 0,
            free_then: None,
            placed: 0.0,
            left: 0.0,
            decay: decay(half_life),
            version: 0,
            switched: false,
        }
    }

    /// The fleet has this many nodes now.
    pub(in crate::sched) fn resize(&mut self, nodes: usize) {
        let half_life = half_life(nodes);
        self.decay = decay(half_life);
        self.demand.set_half_life(half_life);
        // What was known of the scarcity of nodes is of another fleet.
        self.free_then = None;
    }

    /// A pod of this shape has arrived.
    pub(in crate::sched) fn arrived(&mut self, shape: &Shape) {
        self.arrivals += 1;
        if self.learns {
            self.demand.add(shape);
        }
        self.placed *= self.decay;
        self.left *= self.decay;
        let steady = self.left >= STEADY_FROM * self.placed && self.left > 0.0;
        let mode = if steady { Mode::Steady } else { Mode::Fill };
        self.switched |= mode != self.mode;
        self.mode = mode;
    }

    /// A pod has gone to a node (`sign` 1) or left it (-1).
    pub(in crate::sched) fn moved(&mut self, sign: i64) {
        self.events += 1;
        if sign > 0 {
            self.placed += 1.0;
        } else {
            self.left += 1.0;
        }
    }

    /// Prices and weights have to be renewed; learns on the way.
    pub(in crate::sched) fn is_due(&mut self, nodes: usize, free_milli_gpu: i64) -> bool {
        let switched = std::mem::take(&mut self.switched);
        self.is_out_of_date(nodes, free_milli_gpu) || switched
    }

    fn is_out_of_date(&mut self, nodes: usize, free_milli_gpu: i64) -> bool {
        if self.learns && self.arrivals >= self.learn_at {
            self.learn_at = self.learn_at.saturating_mul(2);
            return true;
        }
        if self.learns && !self.has_prior && self.arrivals < FIRST_LEARNT {
            return false;
        }
        let Some(then) = self.free_then else {
            return true;
        };
        match self.mode {
            Mode::Fill => (free_milli_gpu as f64) < REFRESH_AT * then as f64,
            Mode::Steady => self.events >= nodes,
        }
    }

    /// Renews prices and weights for what the nodes have left now.
    pub(in crate::sched) fn renew<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a NodeRow> + Clone,
        free_milli_gpu: i64,
    ) {
        let (by_size, pseudo) = match self.mode {
            Mode::Fill => (BY_SIZE_FILL, PSEUDO_FILL),
            Mode::Steady => (BY_SIZE_STEADY, PSEUDO_STEADY),
        };
        let pseudo = if self.has_prior && self.arrivals < FIRST_LEARNT {
            PSEUDO_PRIOR
        } else {
            pseudo
        };
        let shares = self.demand.shares(if self.learns { pseudo } else { 0.0 });
        // Among equal gaps a scale changes nothing; with it, costs can be told in GPUs.
        let normal = self.mode == Mode::Steady || self.has_prior;
        self.weights = Weights::new(&shares, rows, free_milli_gpu, by_size, normal);
        if self.learns {
            self.prices = GapPrices::new(&self.demand.shared());
        }
        self.free_then = Some(free_milli_gpu);
        self.events = 0;
        self.version += 1;
    }

    /// Grows with each renewal: scores of another version are out of date.
    pub(in crate::sched) fn version(&self) -> u64 {
        self.version
    }

    /// What the weights are.
    pub(in crate::sched) fn weights(&self) -> &Weights {
        &self.weights
    }

    /// What the room of a row is worth.
    pub(in crate::sched) fn worth(&self, row: &NodeRow) -> f64 {
        self.weights.value(row)
    }

    /// One number for a cost: the lowest wins.
    pub(in crate::sched) fn key(&self, cost: Cost) -> u64 {
        match self.mode {
            Mode::Fill => {
                let second = whole(cost.room * 1e4).min((1 << SECOND_BITS) - 1);
                whole(cost.gap * 100.0).min(0x3fff) << SECOND_BITS | second
            }
            Mode::Steady => whole((cost.gap + cost.room) * 1e4).min(1 << 61),
        }
    }

    /// What it costs to put a pod on these devices of a row whose room is worth `before`.
    pub(in crate::sched) fn cost(
        &self,
        row: &NodeRow,
        before: f64,
        shape: &Shape,
        devices: u16,
    ) -> Cost {
        let gap = if shape.is_shared() {
            let free = row.free().get(devices.trailing_zeros() as usize);
            let free = free.copied().unwrap_or(0);
            self.prices.value(free) - self.prices.value(free.saturating_sub(shape.milli_gpu))
        } else {
            f64::from(shape.gpus)
        };
        let after = self.weights.value(&row.after(shape, devices, 1));
        Cost {
            gap,
            room: before - after,
        }
    }

    /// The best devices of a row that has room, and the key of what they cost.
    pub(in crate::sched) fn best(
        &self,
        row: &NodeRow,
        before: f64,
        shape: &Shape,
    ) -> Option<Scored> {
        if !shape.is_shared() {
            let devices = row.lowest_devices(shape);
            let key = self.key(self.cost(row, before, shape, devices));
            return Some(Scored { key, devices });
        }
        let mut best: Option<Scored> = None;
        for (device, free) in row.free().iter().enumerate() {
            let mut rest = row.free().iter().take(device);
            if *free < shape.milli_gpu || rest.any(|other| other == free) {
                continue;
            }
            let devices = 1 << device;
            let key = self.key(self.cost(row, before, shape, devices));
            if best.is_none_or(|best| key < best.key) {
                best = Some(Scored { key, devices });
            }
        }
        best
    }
}

fn decay(half_life: f64) -> f64 {
    (-std::f64::consts::LN_2 / half_life).exp()
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
