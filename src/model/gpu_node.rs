//! GpuNodes: what an agent on a node says of the node's GPUs (`gpudeck.dev/v1alpha1`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::devices::KnownDevice;
use super::fabric::TopoTable;
use super::meta::Meta;

/// By how much an exporter may have looked later than the agent and the agent still be believed.
const BEHIND: SignedDuration = SignedDuration::from_secs(120);

/// A GpuNode; it has the name of its node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GpuNode {
    /// Identity.
    pub meta: Meta,
    /// When the agent looked; `None`: it does not say.
    pub observed: Option<Timestamp>,
    /// Whole GPUs, and the instances of those that are cut, each with who holds it.
    pub devices: Box<[KnownDevice]>,
    /// The node's own table of links.
    pub topology: Option<Arc<TopoTable>>,
}

impl GpuNode {
    /// Whether it tells more than somebody who looked then: an agent that has stopped does not hide
    /// what others see.
    pub(super) fn holds_beside(&self, other: Option<Timestamp>) -> bool {
        match (self.observed, other) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(other)) => other.duration_since(own) <= BEHIND,
        }
    }
}
