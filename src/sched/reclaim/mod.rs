//! Who has to leave: by which right a newcomer may displace, and the smallest proven set of
//! victims.

mod claim;
mod clear;
mod evict;
mod moves;
mod piles;
mod prospect;
mod victim;

pub(super) use claim::{Claimant, Denied, Grade};
pub(super) use moves::Moves;
pub(super) use piles::{PileKey, Piled};
pub(super) use victim::Victim;
