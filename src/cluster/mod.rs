//! The only room that talks to Kubernetes: list/watch, slim decoding, writes, election, access.

pub mod client;
pub mod decode;
pub mod elect;
#[cfg(test)]
mod fake;
pub mod http;
pub mod source;
pub mod watch;
pub mod write;
