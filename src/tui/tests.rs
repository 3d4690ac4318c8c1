//! The console driven from outside: messages in, screens and side effects out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod bad_config;
mod browse;
mod explaining;
mod following;
mod keeping;
mod keys;
mod links;
mod loop_;
mod own_actions;
mod pictures;
mod sample;
mod sizes;
