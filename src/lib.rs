//! gpudeck: a terminal console and scheduler for GPU clusters on Kubernetes.
//!
//! The crate is divided into rooms, one folder each; ARCHITECTURE.md has the picture and
//! `tests/structure` holds the rooms to the table of who may use whom.

pub mod app;
pub mod cluster;
pub mod model;
pub mod plan;
pub mod sandbox;
pub mod sched;
pub mod sim;
pub mod telemetry;
pub mod tui;
