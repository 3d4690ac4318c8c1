//! Whose turn it is: a picture of the cluster on which starts and evictions are tried, and the
//! round that goes through the queues in their order.

mod build;
mod displace;
mod gang;
mod guard;
mod leave;
mod nodes;
mod open;
mod openings;
mod order;
mod round;
mod settle;
mod shape;
mod tables;
mod world;

pub(super) use build::NewJob;
pub(super) use gang::Search;
pub(super) use guard::Spared;
pub(super) use openings::Openings;
pub(super) use order::{Lines, Ratio, Unit};
pub(super) use round::{Failed, Hopeless};
pub(super) use shape::{ShapeId, parts_of};
#[cfg(test)]
pub(super) use tables::kept_unlike;
pub(super) use tables::{Kept, Verdicts};
pub(super) use world::{JobId, PodId, PodRow, Spot, World};
