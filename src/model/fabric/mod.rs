//! Where a node hangs in the network, by its labels or by what the operator states.

mod board;
mod family;
mod hyper;
mod inside;
mod matrix;
mod topo_text;

pub use board::{BoardGroup, groups};
pub use hyper::{HyperNode, HyperNodes, Members};
pub use inside::NodeLinks;
pub use matrix::{GpuPort, Link, LinkMatrix};
pub use topo_text::TopoTable;

use super::meta::Meta;
use super::node::Node;
use super::text::Str;
use family::{
    FAMILIES, Family, MAX_TIERS, NVLINK_DOMAIN, PLACEHOLDERS, TIER_NAMES, TOPOGRAPH, TOPOGRAPH_TIER,
};

/// Label keys that the operator, or a scheduler's Topology object, states as the levels of the
/// fabric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelLevels {
    /// Who states it, as the screen writes it: `config`, `Kueue Topology default`.
    pub name: Str,
    /// Label keys, the widest first.
    pub keys: Box<[Str]>,
}

/// Where nodes are that no label tells of, by a pattern of their names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedPlace {
    /// A node name in which `*` stands for any text.
    pub nodes: Str,
    /// Names of the switches above them, the widest first, the closest last.
    pub path: Box<[Str]>,
}

/// What is stated of the fabric besides the labels of known families.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FabricRules {
    /// Places by name, the first whose pattern matches wins; they win over every label.
    pub places: Vec<NamedPlace>,
    /// Levels by the operator's word, then those of Topology objects; they win over the families.
    pub levels: Vec<LabelLevels>,
    /// Volcano's HyperNodes, for nodes that no label tells of.
    pub hyper_nodes: HyperNodes,
}

/// A switch, or another domain of the network, above a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Switch {
    /// What the level is called: `spine`, `leaf`, `sub-block`, …
    pub level: Str,
    /// Its name.
    pub name: Str,
}

/// Where a node hangs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The family of labels, or the rule, that told the switches; `None`: nothing does.
    pub told_by: Option<Str>,
    /// Switches above it, the widest first.
    pub switches: Box<[Switch]>,
    /// Whether the family has a closer level than the last of `switches`, of which this node says
    /// nothing, and how it is called.
    pub lacks: Option<Str>,
    /// NVLink domain across nodes.
    pub nvlink_domain: Option<Str>,
}

impl Place {
    /// The closest switch.
    pub fn closest(&self) -> Option<&Switch> {
        self.switches.last()
    }

    /// The name of the closest switch, unless the family has a closer one that the node does not
    /// tell.
    pub fn leaf(&self) -> Option<&Str> {
        let told = self.lacks.is_none();
        self.closest().filter(|_| told).map(|s| &s.name)
    }
}

/// The value of a label, unless it only stands where there is none.
fn value<'a>(meta: &'a Meta, key: &str) -> Option<&'a str> {
    meta.label(key).filter(|v| {
        let v = v.trim();
        !PLACEHOLDERS.iter().any(|p| p.eq_ignore_ascii_case(v))
    })
}

fn switch(level: &str, name: &str) -> Switch {
    Switch {
        level: level.into(),
        name: name.into(),
    }
}

/// What one family tells of a node.
struct Told {
    /// The widest first.
    switches: Vec<Switch>,
    /// The closest level, if the node says nothing of it.
    lacks: Option<Str>,
}

/// A level as it is asked of a node.
struct Asked<'a> {
    level: Str,
    name: Option<&'a str>,
    optional: bool,
}

/// Puts the levels together, given the widest first. One in the middle may be missing: what is known
/// of the others stands.
fn told<'a>(levels: impl Iterator<Item = Asked<'a>>) -> Option<Told> {
    let mut told = Told {
        switches: Vec::new(),
        lacks: None,
    };
    for asked in levels {
        match asked.name {
            Some(name) => {
                told.switches.push(switch(&asked.level, name));
                told.lacks = None;
            }
            None if asked.optional => {}
            None => told.lacks = Some(asked.level),
        }
    }
    (!told.switches.is_empty()).then_some(told)
}

fn tier_name(tier: usize) -> Str {
    match TIER_NAMES.get(tier) {
        Some(name) => (*name).into(),
        None => format!("tier-{tier}").into(),
    }
}

/// What topograph's numbered tiers tell.
fn topograph(meta: &Meta) -> Option<Told> {
    told((0..MAX_TIERS).rev().map(|tier| Asked {
        level: tier_name(tier),
        name: value(meta, &format!("{TOPOGRAPH_TIER}{tier}")),
        // How many there are is the fabric's own business; the closest is always there.
        optional: tier > 0,
    }))
}

/// What a family with fixed keys tells.
fn fixed(meta: &Meta, family: &Family) -> Option<Told> {
    told(family.rungs.iter().map(|rung| {
        let found = rung.keys.iter().find_map(|(key, level)| {
            let name = value(meta, key)?;
            Some((*level, name))
        });
        let usual = rung.keys.first().map_or("", |(_, level)| *level);
        Asked {
            level: found.map_or(usual, |(level, _)| level).into(),
            name: found.map(|(_, name)| name),
            optional: rung.optional,
        }
    }))
}

impl FabricRules {
    /// Where a node hangs: by its name where the operator states that, else by the operator's
    /// levels, else by the first family of labels that it carries.
    pub fn place(&self, node: &Node) -> Place {
        let meta = &node.meta;
        let nvlink_domain = NVLINK_DOMAIN.iter().find_map(|key| value(meta, key));
        let place = |by: &str, told: Told| Place {
            told_by: Some(by.into()),
            switches: told.switches.into(),
            lacks: told.lacks,
            nvlink_domain: nvlink_domain.map(Into::into),
        };
        let named = self.places.iter().find(|p| matches(&p.nodes, &meta.name));
        if let Some(named) = named {
            let depth = named.path.len();
            let switches = named.path.iter().enumerate();
            let switches = switches.map(|(i, name)| switch(&tier_name(depth - 1 - i), name));
            let told = Told {
                switches: switches.collect(),
                lacks: None,
            };
            return place("config", told);
        }
        for levels in &self.levels {
            let keys = levels.keys.iter().filter(|key| !is_host(key));
            let asked = keys.map(|key| Asked {
                level: short(key),
                name: value(meta, key),
                optional: false,
            });
            if let Some(told) = told(asked) {
                return place(&levels.name, told);
            }
        }
        if let Some(told) = topograph(meta) {
            return place(TOPOGRAPH, told);
        }
        let told = FAMILIES
            .iter()
            .find_map(|family| Some((family.name, fixed(meta, family)?)));
        if let Some((name, told)) = told {
            return place(name, told);
        }
        let switches = self.hyper_nodes.switches(meta);
        if switches.is_empty() {
            return Place {
                nvlink_domain: nvlink_domain.map(Into::into),
                ..Place::default()
            };
        }
        let told = Told {
            switches,
            lacks: None,
        };
        place("Volcano HyperNodes", told)
    }
}

/// A level that is the node itself.
fn is_host(key: &str) -> bool {
    matches!(
        key,
        "kubernetes.io/hostname" | "cloud.google.com/gce-topology-host"
    )
}

/// What a level is called whose label is the operator's own: the key's last part; the usual name
/// where the key is one of a known family.
fn short(key: &str) -> Str {
    if let Some(tier) = key.strip_prefix(TOPOGRAPH_TIER) {
        return tier.parse().map_or_else(|_| key.into(), tier_name);
    }
    let known = FAMILIES.iter().flat_map(|f| f.rungs);
    let mut known = known.flat_map(|rung| rung.keys);
    let level = known.find(|(k, _)| *k == key).map(|(_, level)| *level);
    level
        .unwrap_or_else(|| key.rsplit('/').next().unwrap_or(key))
        .into()
}

/// Whether a name fits a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests;
