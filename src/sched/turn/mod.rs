//! Whose turn it is: a picture of the cluster on which starts and evictions are tried, and the
//! round that goes through the queues in their order.

pub(super) mod build;
mod gang;
mod order;
mod round;
mod shape;
mod world;

pub(super) use gang::Search;
pub(super) use order::{Lines, Ratio, Unit};
pub(super) use round::{Failed, Hopeless};
pub(super) use shape::{ShapeId, parts_of};
pub(super) use world::{JobId, PodId, Spot, World};
