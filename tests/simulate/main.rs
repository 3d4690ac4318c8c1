//! `gpudeck simulate` from outside: the published experiment, and what is said about bad input.
//!
//! With `GPUDECK_SHARED` a release build compares all published lists and seeds:
//! `GPUDECK_SHARED=DIR cargo test --release --test simulate`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod jobs;
mod published;
mod small;
