//! How often each shape is asked for: given, or learnt from the arrivals.

use std::collections::BTreeMap;

use super::shape::{ModelSet, Shape};

/// Weights past this are brought back to 1.
const LARGEST: f64 = 1e12;
/// Shapes rarer than this beside the whole are forgotten.
const FORGOTTEN: f64 = 1e-6;
/// Pods that may come although none has: their GPUs.
const PSEUDO_GPUS: [u8; 4] = [1, 2, 4, 8];
/// Their CPU per GPU in thousandths of a core.
const PSEUDO_CPU_MILLI: i64 = 8_000;

/// Counts by shape; memory plays no part.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    counts: BTreeMap<Shape, f64>,
    total: f64,
    /// Weight of the next arrival, and by how much it grows with each.
    next: f64,
    growth: f64,
}

impl Demand {
    /// No arrival yet; each one's weight halves with every `half_life` that follow it.
    #[must_use]
    pub fn learning(half_life: f64) -> Self {
        Self {
            counts: BTreeMap::new(),
            total: 0.0,
            next: 1.0,
            growth: growth(half_life),
        }
    }

    /// What is learnt from now on halves with every so many arrivals.
    pub(super) fn set_half_life(&mut self, half_life: f64) {
        self.growth = growth(half_life);
    }

    /// Exactly these pods.
    #[must_use]
    pub fn of<'a>(shapes: impl IntoIterator<Item = &'a Shape>) -> Self {
        let mut demand = Self {
            growth: 1.0,
            ..Self::learning(1.0)
        };
        shapes.into_iter().for_each(|shape| demand.add(shape));
        demand
    }

    /// One more pod.
    pub fn add(&mut self, shape: &Shape) {
        *self.counts.entry(class(shape)).or_insert(0.0) += self.next;
        self.total += self.next;
        self.next *= self.growth;
        if self.next > LARGEST {
            let (by, least) = (1.0 / self.next, self.total * FORGOTTEN);
            self.counts.retain(|_, count| *count >= least);
            self.counts.values_mut().for_each(|count| *count *= by);
            self.total = self.counts.values().sum();
            self.next = 1.0;
        }
    }

    /// Share of each shape in all arrivals, in the order of shapes; `pseudo` of it goes to 1-, 2-,
    /// 4- and 8-GPU pods that may come although none has.
    #[must_use]
    pub fn shares(&self, pseudo: f64) -> Vec<(Shape, f64)> {
        let pseudo = match self.total <= 0.0 {
            true if pseudo > 0.0 => 1.0,
            true => return Vec::new(),
            false => pseudo,
        };
        let mut shares: BTreeMap<Shape, f64> = self
            .counts
            .iter()
            .map(|(shape, count)| (*shape, count / self.total * (1.0 - pseudo)))
            .collect();
        if pseudo > 0.0 {
            for gpus in PSEUDO_GPUS {
                let shape = Shape {
                    cpu_milli: PSEUDO_CPU_MILLI * i64::from(gpus),
                    mem_mib: 0,
                    gpus,
                    milli_gpu: 1000,
                    models: ModelSet::ANY,
                };
                *shares.entry(shape).or_insert(0.0) += pseudo / PSEUDO_GPUS.len() as f64;
            }
        }
        shares.into_iter().collect()
    }

    /// How often each share of a device is asked for, by its thousandths.
    #[must_use]
    pub fn shared(&self) -> BTreeMap<u16, f64> {
        let mut sizes = BTreeMap::new();
        for (shape, count) in self.counts.iter().filter(|(shape, _)| shape.is_shared()) {
            *sizes.entry(shape.milli_gpu).or_insert(0.0) += count;
        }
        sizes
    }
}

fn growth(half_life: f64) -> f64 {
    (std::f64::consts::LN_2 / half_life.max(1.0)).exp()
}

fn class(shape: &Shape) -> Shape {
    Shape {
        mem_mib: 0,
        ..*shape
    }
}
