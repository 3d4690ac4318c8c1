//! Volcano's picture of the network: HyperNodes of topology.volcano.sh/v1alpha1, made from labels
//! of the nodes as its label discoverer makes them.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::sandbox::actors::objects::{Custom, Node};
use crate::sandbox::calls::{CallError, Calls, PatchKind};

const HYPER_NODES: &str = "/apis/topology.volcano.sh/v1alpha1/hypernodes";

/// What a HyperNode is to be.
#[derive(Debug, Clone, PartialEq)]
struct HyperNode {
    spec: Value,
    /// Nodes below it.
    nodes: usize,
}

/// The HyperNodes that were written, by name, with their UIDs.
#[derive(Debug, Default)]
pub(super) struct HyperNodes(BTreeMap<String, (String, HyperNode)>);

impl HyperNodes {
    /// Writes what differs from what `nodes` say at `levels`, which are labels, the widest first.
    pub(super) async fn follow<'a>(
        &mut self,
        calls: &Calls,
        levels: &[String],
        nodes: impl Iterator<Item = &'a Node>,
    ) -> Result<(), CallError> {
        let wanted = hyper_nodes(levels, nodes);
        for (name, hyper_node) in &wanted {
            let known = self.0.get(name);
            if known.is_some_and(|(_, written)| written == hyper_node) {
                continue;
            }
            let uid = write(calls, name, hyper_node).await?;
            self.0.insert(name.clone(), (uid, hyper_node.clone()));
        }
        let gone: Vec<(String, String)> = self
            .0
            .iter()
            .filter(|(name, _)| !wanted.contains_key(*name))
            .map(|(name, (uid, _))| (name.clone(), uid.clone()))
            .collect();
        for (name, uid) in gone {
            calls
                .delete(&format!("{HYPER_NODES}/{name}"), &uid, None)
                .await?;
            self.0.remove(&name);
        }
        Ok(())
    }
}

/// Writes one and returns its UID.
async fn write(calls: &Calls, name: &str, wanted: &HyperNode) -> Result<String, CallError> {
    let at = format!("{HYPER_NODES}/{name}");
    let object = json!({
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {
            "name": name,
            "labels": {"volcano.sh/network-topology-source": "label"},
        },
        "spec": wanted.spec,
    });
    let written = match calls.post::<Custom>(HYPER_NODES, &object).await {
        Err(error) if error.is_already_exists() => {
            let body = json!({"spec": wanted.spec});
            calls.patch::<Custom>(&at, PatchKind::Merge, &body).await?
        }
        result => result?,
    };
    let status = json!({"status": {"conditions": [], "nodeCount": wanted.nodes}});
    let at = format!("{at}/status");
    calls
        .patch::<IgnoredAny>(&at, PatchKind::Merge, &status)
        .await?;
    Ok(written.metadata.uid)
}

fn hyper_nodes<'a>(
    levels: &[String],
    nodes: impl Iterator<Item = &'a Node>,
) -> BTreeMap<String, HyperNode> {
    // Of each tier, the narrowest first: members and the number of nodes by value.
    let mut tiers: Vec<BTreeMap<String, (BTreeSet<String>, usize)>> =
        vec![BTreeMap::new(); levels.len()];
    for node in nodes {
        let mut below = Some(node.metadata.name.clone());
        for (tier, label) in tiers.iter_mut().zip(levels.iter().rev()) {
            let Some(value) = node.metadata.labels.get(label) else {
                // What is above hangs on nothing here.
                below = None;
                continue;
            };
            let (members, count) = tier.entry(value.clone()).or_default();
            *count += 1;
            members.extend(below.take());
            below = Some(value.clone());
        }
    }
    let mut all = BTreeMap::new();
    for ((number, tier), label) in tiers.into_iter().enumerate().zip(levels.iter().rev()) {
        let kind = if number == 0 { "Node" } else { "HyperNode" };
        let named = label.rsplit('/').next().unwrap_or(label);
        for (name, (members, nodes)) in tier {
            let members: Vec<Value> = members
                .iter()
                .map(|member| json!({"type": kind, "selector": {"exactMatch": {"name": member}}}))
                .collect();
            let spec = json!({"tier": number + 1, "tierName": named, "members": members});
            all.insert(name, HyperNode { spec, nodes });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn leaves_hold_nodes_and_spines_hold_leaves() {
        let node = |name: &str, labels: Value| {
            let object = json!({"metadata": {"name": name, "labels": labels}});
            serde_json::from_value::<Node>(object).unwrap()
        };
        let nodes = [
            node("a", json!({"net/leaf": "l1", "net/spine": "s1"})),
            node("b", json!({"net/leaf": "l1", "net/spine": "s1"})),
            node("c", json!({"net/leaf": "l2", "net/spine": "s1"})),
            node("d", json!({"net/spine": "s1"})),
            node("e", json!({})),
        ];
        let levels = ["net/spine", "net/leaf"].map(str::to_owned);
        let all = hyper_nodes(&levels, nodes.iter());
        assert_eq!(all.len(), 3);
        let exact = |kind: &str, name: &str| json!({"type": kind, "selector": {"exactMatch": {"name": name}}});
        assert_eq!(
            all["l1"].spec,
            json!({
                "tier": 1, "tierName": "leaf",
                "members": [exact("Node", "a"), exact("Node", "b")],
            })
        );
        assert_eq!(
            all["s1"].spec["members"],
            json!([exact("HyperNode", "l1"), exact("HyperNode", "l2")])
        );
        assert_eq!((all["l1"].nodes, all["s1"].nodes), (2, 4));
    }
}
