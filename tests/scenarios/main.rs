//! Scenarios from outside: they are read, they are the same under the same seed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation
)]

mod faults;
mod files;
mod peers;
mod port;
mod queues;
mod random;
mod same;
mod tour;
