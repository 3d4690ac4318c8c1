//! Every sample object goes through the decoder of its kind: nothing panics, no control or bidi
//! character comes out, and what comes out is what the object says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod boards;
mod nodes;
mod queues;
mod samples;
mod shown;
mod table;
mod telemetry;
