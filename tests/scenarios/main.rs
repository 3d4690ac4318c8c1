//! Scenarios from outside: they are read, they are the same under the same seed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod faults;
mod files;
mod port;
mod same;
mod tour;
