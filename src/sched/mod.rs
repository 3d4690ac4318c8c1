//! The scheduler: which waiting pod goes to which node, and why.
//!
//! Pure: [`State`] folds the deltas, [`decide`] reads it and makes a [`crate::plan::Plan`]. No I/O,
//! no clock, no random or hash order: the same input gives the same plan.
//!
//! The engine's round is: fold deltas with [`State::apply`], move the clock with
//! [`State::expire`], call [`decide`], [`State::assume`] each binding that is written (and
//! [`State::forget`] each that is refused), hand the plan's decisions on as deltas, and go round
//! again at once while [`crate::plan::Plan::more`] is set.

mod amounts;
mod class;
mod config;
mod decide;
mod explain;
mod filters;
mod gang;
mod gpus;
mod memo;
pub mod mig;
mod needs;
mod overlay;
pub mod place;
mod problem;
mod rows;
mod score;
mod scratch;
mod selector;
mod shape;
mod simplex;
mod slot;
mod state;
#[cfg(test)]
mod tests;
mod track;
mod view;

pub use config::{SchedConfig, TypeProfile};
pub use decide::decide;
pub use state::State;
