//! What the labels of a node tell: its place in the network, tier and zone.

use std::sync::{Arc, OnceLock};

use super::fabric::{FabricRules, Place};
use super::node::Node;
use super::pricing::Pricing;
use super::text::Str;
use super::tier::Tier;

/// What the labels and taints of one node tell by the rules of its cluster, read when it is first
/// asked for: that takes longer than all else that a row is made of.
#[derive(Debug, Default)]
pub struct NodeLabels {
    /// The node and the rules; none for one that only its pods tell of.
    of: Option<(Arc<Node>, Arc<FabricRules>, Arc<Pricing>)>,
    tier: OnceLock<Option<Tier>>,
    place: OnceLock<Place>,
    zone: OnceLock<Option<Str>>,
}

impl NodeLabels {
    /// The labels of a node.
    pub(super) fn of(node: Arc<Node>, fabric: Arc<FabricRules>, pricing: Arc<Pricing>) -> Self {
        NodeLabels {
            of: Some((node, fabric, pricing)),
            ..NodeLabels::default()
        }
    }

    /// Its tier, if anything tells it.
    pub fn tier(&self) -> Option<Tier> {
        let told = || {
            let (node, _, pricing) = self.of.as_ref()?;
            Some(pricing.tier(node)?.0)
        };
        *self.tier.get_or_init(told)
    }

    /// Where it hangs in the network.
    pub fn place(&self) -> &Place {
        let told = || self.of.as_ref().map(|(node, fabric, _)| fabric.place(node));
        self.place.get_or_init(|| told().unwrap_or_default())
    }

    /// Its zone.
    pub fn zone(&self) -> &Option<Str> {
        let told = || Some(self.of.as_ref()?.0.zone()?.into());
        self.zone.get_or_init(told)
    }
}
