//! The console's views drawn without a terminal.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod demo;
mod docs;
mod fixture;
mod foreign;
mod lenses;
mod objects;
mod screen;
mod series;
mod snapshots;
mod themes;
mod topology;
mod walks;
mod whole;
