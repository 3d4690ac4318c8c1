//! Volcano's HyperNodes: which nodes are below which switch, as objects and not as labels.
//!
//! Source: topology.volcano.sh/v1alpha1 of Volcano 1.15.

use std::collections::BTreeSet;

use ahash::AHashMap;
use regex::{Regex, RegexBuilder};

use super::super::meta::Meta;
use super::super::text::Str;
use super::{Switch, switch, tier_name};

/// Deeper trees do not exist; a longer chain is a loop.
const DEPTH: usize = 16;
/// Largest compiled pattern, in bytes.
const PATTERN_LIMIT: usize = 1 << 20;

/// Which members of a HyperNode are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Members {
    /// The one of this name.
    Named(Str),
    /// Those whose name a regular expression matches somewhere.
    Pattern(Str),
    /// Those that carry all these labels; never none.
    Labelled(Box<[(Str, Str)]>),
}

/// A HyperNode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HyperNode {
    /// Its name.
    pub name: Str,
    /// Its level; 1 is the closest to the nodes.
    pub tier: u32,
    /// What the level is called, if it is said.
    pub tier_name: Option<Str>,
    /// Nodes below it.
    pub nodes: Box<[Members]>,
    /// HyperNodes below it.
    pub parts: Box<[Members]>,
}

/// What picks members, ready for use.
#[derive(Clone, Debug)]
enum Picks {
    Pattern(Regex),
    Labelled(Box<[(Str, Str)]>),
}

/// All HyperNodes.
#[derive(Clone, Debug, Default)]
pub struct HyperNodes {
    all: Vec<HyperNode>,
    /// By the name of a node, the HyperNodes that name it.
    named: AHashMap<Str, Vec<usize>>,
    /// The other ways in which nodes are picked, with the HyperNode.
    picks: Vec<(Picks, usize)>,
    /// By HyperNode, the one right above it.
    above: Vec<Option<usize>>,
}

impl PartialEq for HyperNodes {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Eq for HyperNodes {}

/// A pattern as Volcano reads it; one that is none picks nothing.
fn regex(pattern: &str) -> Option<Regex> {
    let built = RegexBuilder::new(pattern).size_limit(PATTERN_LIMIT).build();
    built.ok()
}

impl HyperNodes {
    /// Puts HyperNodes together.
    pub fn new(mut all: Vec<HyperNode>) -> Self {
        all.sort_by(|a, b| (a.tier, &a.name).cmp(&(b.tier, &b.name)));
        let mut named: AHashMap<Str, Vec<usize>> = AHashMap::new();
        let mut picks = Vec::new();
        for (at, hyper) in all.iter().enumerate() {
            for members in &hyper.nodes {
                match members {
                    Members::Named(name) => named.entry(name.clone()).or_default().push(at),
                    Members::Pattern(text) => {
                        picks.extend(regex(text).map(|regex| (Picks::Pattern(regex), at)));
                    }
                    Members::Labelled(labels) => picks.push((Picks::Labelled(labels.clone()), at)),
                }
            }
        }
        let above = above(&all);
        HyperNodes {
            all,
            named,
            picks,
            above,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The switches above a node, the widest first; nothing if none holds it.
    pub(super) fn switches(&self, node: &Meta) -> Vec<Switch> {
        let picked = self.picks.iter().filter(|(picks, _)| match picks {
            Picks::Pattern(regex) => regex.is_match(&node.name),
            Picks::Labelled(labels) => labels.iter().all(|(k, v)| node.label(k) == Some(&**v)),
        });
        let named = self.named.get(&node.name).into_iter().flatten().copied();
        // They are in the order of their tiers: the closest is the first.
        let closest = named.chain(picked.map(|(_, at)| *at)).min();
        let mut switches = Vec::new();
        let mut at = closest;
        while let Some(hyper) = at.and_then(|at| self.all.get(at))
            && switches.len() < DEPTH
        {
            let level = match &hyper.tier_name {
                Some(name) => name.clone(),
                None => tier_name(usize::try_from(hyper.tier).map_or(0, |t| t.saturating_sub(1))),
            };
            switches.push(switch(&level, &hyper.name));
            at = at.and_then(|at| self.above.get(at).copied().flatten());
        }
        switches.reverse();
        switches
    }
}

/// For each HyperNode the closest of a higher tier that has it as a part.
fn above(all: &[HyperNode]) -> Vec<Option<usize>> {
    let mut above: Vec<Option<usize>> = vec![None; all.len()];
    let by_name: AHashMap<&Str, usize> =
        all.iter().enumerate().map(|(i, h)| (&h.name, i)).collect();
    // From the widest down, so that the closest is what stays.
    for (at, hyper) in all.iter().enumerate().rev() {
        let mut parts: BTreeSet<usize> = BTreeSet::new();
        for members in &hyper.parts {
            match members {
                Members::Named(name) => parts.extend(by_name.get(name)),
                Members::Pattern(text) => {
                    let Some(regex) = regex(text) else { continue };
                    let fits = all
                        .iter()
                        .enumerate()
                        .filter(|(_, h)| regex.is_match(&h.name));
                    parts.extend(fits.map(|(i, _)| i));
                }
                // HyperNodes are not picked by labels.
                Members::Labelled(_) => {}
            }
        }
        for part in parts {
            let lower = all.get(part).is_some_and(|p| p.tier < hyper.tier);
            if let Some(slot) = above.get_mut(part).filter(|_| lower) {
                *slot = Some(at);
            }
        }
    }
    above
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn hyper(name: &str, tier: u32, nodes: Vec<Members>, parts: &[&str]) -> HyperNode {
        HyperNode {
            name: name.into(),
            tier,
            tier_name: None,
            nodes: nodes.into(),
            parts: parts.iter().map(|p| Members::Named((*p).into())).collect(),
        }
    }

    fn way(all: &HyperNodes, name: &str, labels: &[(&str, &str)]) -> String {
        let mut labels: Vec<(Str, Str)> = labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        labels.sort();
        let meta = Meta {
            name: name.into(),
            labels: labels.into(),
            ..Meta::default()
        };
        let switches = all.switches(&meta);
        let words: Vec<String> = switches
            .iter()
            .map(|s| format!("{}={}", s.level, s.name))
            .collect();
        words.join(" ")
    }

    #[test]
    fn nodes_hang_below_the_closest_and_those_above_it() {
        let named = Members::Named("n1".into());
        let pattern = Members::Pattern("^gpu-[0-3]$".into());
        let labelled = Members::Labelled(Box::new([("rack".into(), "7".into())]));
        let broken = Members::Pattern("(".into());
        let mut all = vec![
            hyper("top", 3, vec![], &["mid", "low-c"]),
            hyper("mid", 2, vec![], &["low-a", "low-b", "top"]),
            hyper("low-a", 1, vec![named], &[]),
            hyper("low-b", 1, vec![pattern, broken], &[]),
            hyper("low-c", 1, vec![labelled], &[]),
            hyper("wide", 2, vec![Members::Named("n1".into())], &[]),
        ];
        all[4].tier_name = Some("nvl-rack".into());
        let all = HyperNodes::new(all);
        assert_eq!(way(&all, "n1", &[]), "core=top spine=mid leaf=low-a");
        assert_eq!(way(&all, "gpu-2", &[]), "core=top spine=mid leaf=low-b");
        assert_eq!(
            way(&all, "gpu-9", &[("rack", "7")]),
            "core=top nvl-rack=low-c"
        );
        assert_eq!(way(&all, "gpu-9", &[("rack", "8")]), "");
    }

    /// A part of a higher or the same tier is no part: nothing goes round.
    #[test]
    fn loops_end() {
        let all = HyperNodes::new(vec![
            hyper("a", 1, vec![Members::Named("n".into())], &["b", "a"]),
            hyper("b", 1, vec![], &["a"]),
        ]);
        assert_eq!(way(&all, "n", &[]), "leaf=a");
    }
}
