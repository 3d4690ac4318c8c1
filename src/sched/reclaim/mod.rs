//! Who has to leave: whom a newcomer may displace, the smallest set whose leaving lets it start,
//! and moves that let it start without anybody losing its place.

mod claim;
mod evict;
mod moves;
mod victim;

pub(super) use claim::{Claimant, Denied, Grade};
pub(super) use moves::Moves;
pub(super) use victim::Victim;
