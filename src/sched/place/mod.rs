//! Where a pod goes: packing policies over compact rows of nodes.
//!
//! [`Fleet`] holds what each node has left, a [`Policy`] says where a pod of a [`Shape`] goes.
//! [`GapPrice`] is ours; the others are baselines, written from their published definitions.

mod baselines;
mod chooser;
mod demand;
mod fgd;
mod fleet;
mod gaps;
mod moves;
mod ours;
mod pricing;
mod random;
mod scarcity;
mod shape;
#[cfg(test)]
mod tests;

pub use baselines::Baseline;
pub use chooser::{Choice, Policy, Scored, Scorer};
pub use demand::Demand;
pub use fgd::Fgd;
pub use fleet::{Fleet, MAX_GPUS, NodeRow};
pub use gaps::GapPrices;
pub use moves::{Move, Resident, make_room};
pub use ours::GapPrice;
pub use random::Random;
pub use shape::{ModelId, ModelSet, Shape};

use chooser::Chooser;
pub(super) use pricing::{Cost, Pricing};

/// A policy that scores every node and keeps the scores of each shape until something changes.
#[must_use]
pub fn by_score<S: Scorer>(scorer: S) -> impl Policy {
    Chooser::new(scorer)
}
