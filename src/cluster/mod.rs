//! The only room that talks to Kubernetes: list/watch, slim decoding, writes, election, access.

pub mod access;
mod adapt;
pub mod client;
pub mod context;
pub mod decode;
pub mod doctor;
pub mod elect;
pub mod events;
#[cfg(test)]
mod fake;
pub mod fetch;
pub mod http;
pub mod logs;
pub mod source;
pub mod watch;
pub mod write;
