//! Our policy over a fleet: [`Pricing`] with the memory of what each row's room is worth.

use super::chooser::{Chooser, Policy, Scored, Scorer};
use super::demand::Demand;
use super::fleet::{Fleet, NodeRow};
use super::pricing::Pricing;
use super::shape::Shape;

/// Our policy.
pub struct GapPrice {
    pricing: Pricing,
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
        Self::new(Pricing::known(demand, nodes))
    }

    /// The demand is learnt from the arrivals, for a fleet of this many nodes.
    #[must_use]
    pub fn learning(nodes: usize) -> impl Policy {
        Chooser::new(Self::new(Pricing::learning(nodes)))
    }

    fn new(pricing: Pricing) -> Self {
        Self {
            pricing,
            rooms: Vec::new(),
        }
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
                *slot = (version, self.pricing.worth(row));
                slot.1
            }
            None => self.pricing.worth(row),
        }
    }
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
        self.pricing.best(row, before, shape)
    }

    fn arrived(&mut self, fleet: &Fleet, shape: &Shape) -> bool {
        self.pricing.arrived(shape);
        let (rows, free) = (fleet.rows(), fleet.free_milli_gpu());
        let due = self.pricing.is_due(rows.len(), free);
        if due {
            self.pricing.renew(rows.iter(), free);
            self.rooms.clear();
        }
        due
    }

    fn changed(&mut self, _node: usize, _shape: &Shape, sign: i64) {
        self.pricing.moved(sign);
    }
}
