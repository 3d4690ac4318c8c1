//! Tests of the whole room: through `State` and `decide`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod books;
mod build;
mod cast;
mod filters;
mod flow;
mod fuzz;
mod gangs;
mod guards;
mod history;
mod hostile;
mod lives;
mod moves;
mod naive;
mod optimal;
mod optimal_turns;
mod parts;
mod random;
mod realm;
mod share;
mod steps;
mod steps_queues;
mod topology;
