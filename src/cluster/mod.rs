//! The only room that talks to Kubernetes: list/watch, slim decoding, writes, election, access.

pub mod client;
pub mod decode;
