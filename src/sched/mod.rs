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
mod backfill;
mod budgets;
mod changes;
mod chunks;
mod class;
mod config;
mod copies;
mod decide;
mod explain;
mod explain_gang;
mod explain_job;
mod fabric;
mod filters;
mod gang;
mod gang_place;
mod gangs;
mod gpus;
mod holds;
mod jobs;
mod memo;
pub mod mig;
mod moves;
mod needs;
pub mod odds;
mod overlay;
pub mod place;
mod problem;
mod queue;
mod queue_status;
mod reclaim;
mod rows;
mod score;
mod scratch;
mod selector;
mod shape;
mod simplex;
mod slices;
mod slot;
mod state;
#[cfg(test)]
mod tests;
mod topology;
mod track;
mod traffic;
mod turn;
mod uid_map;
mod view;

pub use config::{SchedConfig, TypeProfile};
pub use decide::decide;
pub use explain_job::{Change, Explanation, NearMiss, explain};
pub use moves::{
    Move, MoveBudget, MoveLimits, MoveProposal, RecutLimits, RecutProposal, propose_moves,
    propose_recuts,
};
pub use queue::Ageing;
pub use queue_status::tell_queues;
pub use state::State;
pub use traffic::{Reach, all_reduce_of};
