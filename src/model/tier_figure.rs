//! Capacity and money by tier and model.

use jiff::Timestamp;

use super::figures::NodePart;
use super::text::Str;
use super::tier::Tier;

/// Amounts of money an hour. GPUs without a price are counted, not guessed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Money {
    /// Of all GPUs that have a price.
    pub per_hour: f64,
    /// Of those that nobody uses although they could be.
    pub idle_per_hour: f64,
    /// Of parts that cannot be used as GPUs are cut.
    pub stranded_per_hour: f64,
    /// GPUs with a price.
    pub priced_gpus: u32,
    /// GPUs without one.
    pub unpriced_gpus: u32,
    /// The lowest price of a GPU-hour.
    pub lowest: Option<f64>,
    /// The highest.
    pub highest: Option<f64>,
}

impl Money {
    /// What the GPUs of a node cost at a price.
    pub fn of(part: &NodePart, per_gpu_hour: Option<f64>) -> Self {
        let Some(price) = per_gpu_hour else {
            return Money {
                unpriced_gpus: part.gpus,
                ..Money::default()
            };
        };
        Money {
            per_hour: f64::from(part.gpus) * price,
            idle_per_hour: part.free * price,
            stranded_per_hour: part.stranded * price,
            priced_gpus: part.gpus,
            unpriced_gpus: 0,
            lowest: Some(price),
            highest: Some(price),
        }
    }

    pub(super) fn add(&mut self, other: &Money) {
        self.per_hour += other.per_hour;
        self.idle_per_hour += other.idle_per_hour;
        self.stranded_per_hour += other.stranded_per_hour;
        self.priced_gpus = self.priced_gpus.saturating_add(other.priced_gpus);
        self.unpriced_gpus = self.unpriced_gpus.saturating_add(other.unpriced_gpus);
        let pick = |a: Option<f64>, b: Option<f64>, f: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(f(a, b)),
            (a, b) => a.or(b),
        };
        self.lowest = pick(self.lowest, other.lowest, f64::min);
        self.highest = pick(self.highest, other.highest, f64::max);
    }
}

/// One model's part of one tier.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TierFigure {
    /// `None`: nothing tells the tier.
    pub tier: Option<Tier>,
    /// Short model name, empty where no label names it.
    pub model: Str,
    /// Nodes.
    pub nodes: u32,
    /// Its GPUs by what becomes of them.
    pub part: NodePart,
    /// What they cost.
    pub money: Money,
    /// The first moment at which one of its nodes ends or is taken away, as far as it is known.
    pub next_end: Option<Timestamp>,
    /// Nodes with such a moment.
    pub ending: u32,
}

impl TierFigure {
    /// Adds another part.
    pub fn add(&mut self, other: &TierFigure) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.part.add(&other.part);
        self.money.add(&other.money);
        self.ending = self.ending.saturating_add(other.ending);
        self.next_end = match (self.next_end, other.next_end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}
