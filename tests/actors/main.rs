//! The actors, the demo fleet and the loaders from outside: against the embedded cluster through
//! an ordinary client.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod autoscaler;
mod cluster;
mod controllers;
mod failures;
mod foreign;
mod gpu;
mod gpu_world;
mod inventory;
mod load;
mod mig;
mod network;
mod openb;
mod outage;
mod pods;
#[cfg(feature = "real-cluster")]
mod prometheus;
mod spot;
mod telemetry;
mod training;
mod volcano_jobs;
