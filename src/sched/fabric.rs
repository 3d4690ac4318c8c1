//! Where nodes stand in the network: domains of any depth, from the labels of the nodes.
//!
//! Labels are those of topograph (old and new), AWS, GKE, OCI and CoreWeave, or the operator's own
//! levels; `nvidia.com/gpu.clique` is the NVLink domain across nodes, which need not lie inside
//! one leaf.

use std::collections::BTreeMap;

use super::filters::Row;
use super::view::RowId;
use crate::model::{Node, Str};

/// A level, the closest lowest: 0 is the node itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Level(u16);

impl Level {
    /// One node.
    pub(super) const NODE: Level = Level(0);
    /// An NVLink domain across nodes.
    pub(super) const CLIQUE: Level = Level(1);
    /// The closest switch.
    pub(super) const LEAF: Level = Level(2);
    const ZONE: Level = Level(1_000);
    const REGION: Level = Level(1_001);
    /// The cluster.
    pub(super) const CLUSTER: Level = Level(u16::MAX);

    /// Switches so many steps above the closest.
    pub(super) fn tier(steps: usize) -> Level {
        Level(u16::try_from(steps).unwrap_or(900).min(900) + Level::LEAF.0)
    }

    /// Steps that traffic climbs above the closest switch; 0 inside it.
    pub(super) fn steps_above_leaf(self) -> u16 {
        self.0.min(Level::ZONE.0).saturating_sub(Level::LEAF.0)
    }

    /// As a person names it.
    pub(super) fn name(self) -> String {
        match self {
            Level::NODE => "node".into(),
            Level::CLIQUE => "clique".into(),
            Level::LEAF => "leaf".into(),
            Level(3) => "spine".into(),
            Level(4) => "core".into(),
            Level::ZONE => "zone".into(),
            Level::REGION => "region".into(),
            Level::CLUSTER => "cluster".into(),
            Level(n) => format!("tier-{}", n - Level::LEAF.0),
        }
    }

    /// Reads a name, or a label key that stands for a level; `own` are the operator's levels, the
    /// widest first.
    pub(super) fn from_name(text: &str, own: &[Str]) -> Option<Level> {
        if let Some(at) = own.iter().rev().position(|key| **key == *text) {
            return Some(Level::tier(at));
        }
        Some(match text {
            "node" | "host" | "kubernetes.io/hostname" => Level::NODE,
            "clique"
            | "nvlink"
            | CLIQUE
            | "accelerator.topograph.run/domain"
            | "network.topology.nvidia.com/accelerator" => Level::CLIQUE,
            "leaf" | "rack" => Level::LEAF,
            "spine" | "block" => Level::tier(1),
            "core" => Level::tier(2),
            "zone" | "topology.kubernetes.io/zone" => Level::ZONE,
            "region" | "topology.kubernetes.io/region" => Level::REGION,
            _ => {
                if let Some(n) = text
                    .strip_prefix("tier-")
                    .or_else(|| text.strip_prefix(TOPOGRAPH_TIER))
                {
                    return n.parse().ok().filter(|n| *n <= MAX_TIERS).map(Level::tier);
                }
                let family = FAMILIES.iter().find(|f| f.contains(&text))?;
                Level::tier(family.iter().position(|key| *key == text)?)
            }
        })
    }
}

const CLIQUE: &str = "nvidia.com/gpu.clique";
/// topograph 1.0 and later: `tier-0` is the closest.
const TOPOGRAPH_TIER: &str = "fabric.topograph.run/tier-";
/// Deeper fabrics do not exist.
const MAX_TIERS: usize = 16;

/// Label families, each from the closest switch upwards.
const FAMILIES: [&[&str]; 6] = [
    &[
        "network.topology.nvidia.com/leaf",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/core",
    ],
    &[
        "topology.k8s.aws/network-node-layer-4",
        "topology.k8s.aws/network-node-layer-3",
        "topology.k8s.aws/network-node-layer-2",
        "topology.k8s.aws/network-node-layer-1",
    ],
    &[
        "cloud.google.com/gce-topology-subblock",
        "cloud.google.com/gce-topology-block",
    ],
    &[
        "oci.oraclecloud.com/rdma.local_block_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.hpc_island_id",
    ],
    &[
        "oci.oraclecloud.com/host.rack_id",
        "oci.oraclecloud.com/host.network_block_id",
    ],
    &[
        "backend.coreweave.cloud/leafgroup",
        "backend.coreweave.cloud/superpod",
        "backend.coreweave.cloud/fabric",
    ],
];

/// Values that stand where there is none: they must not join unrelated nodes.
const PLACEHOLDERS: [&str; 6] = ["", "none", "null", "unknown", "no-imds-data", "n/a"];

/// Where one node stands: level and whole path, the closest first.
pub(super) type Place = Box<[(Level, Str)]>;

/// Reads a node's place; `own` are the operator's levels (label keys), the widest first.
pub(super) fn place_of(node: &Node, own: &[Str]) -> Place {
    let value = |key: &str| {
        node.meta.label(key).filter(|v| {
            !PLACEHOLDERS
                .iter()
                .any(|p| p.eq_ignore_ascii_case(v.trim()))
        })
    };
    let tiers: Vec<&str> = if own.is_empty() {
        tiers(value)
    } else {
        own.iter().rev().map_while(|key| value(key)).collect()
    };
    let outer = [
        (Level::REGION, value("topology.kubernetes.io/region")),
        (Level::ZONE, value("topology.kubernetes.io/zone")),
    ];
    let mut place = Vec::new();
    let mut path = String::new();
    let inner = tiers
        .iter()
        .enumerate()
        .rev()
        .map(|(steps, name)| (Level::tier(steps), Some(*name)));
    for (level, name) in outer.into_iter().chain(inner) {
        let Some(name) = name else { continue };
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(name);
        place.push((level, Str::from(&*path)));
    }
    if let Some(clique) = value(CLIQUE) {
        place.push((Level::CLIQUE, clique.into()));
    }
    place.reverse();
    place.into()
}

/// The switches above a node by the first family that names one, the closest first. A gap ends
/// the list: what is above it cannot be told from what it joins.
fn tiers<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Vec<&'a str> {
    let topograph: Vec<&str> = (0..MAX_TIERS)
        .map_while(|n| value(&format!("{TOPOGRAPH_TIER}{n}")))
        .collect();
    if !topograph.is_empty() {
        return topograph;
    }
    let read = |family: &[&str]| -> Vec<&'a str> {
        family
            .iter()
            .map(|key| value(key))
            // The closest levels of a family need not exist.
            .skip_while(Option::is_none)
            .map_while(|v| v)
            .collect()
    };
    let mut families = FAMILIES.iter().map(|family| read(family));
    families.find(|names| !names.is_empty()).unwrap_or_default()
}

/// A domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct DomainId(pub(super) u32);

/// A set of nodes below one switch, or in one NVLink domain.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub(super) level: Level,
    /// Its name, with what it lies in.
    pub(super) path: Str,
    /// All its nodes.
    pub(super) rows: Vec<RowId>,
    /// The next smaller domains in it.
    pub(super) children: Vec<DomainId>,
    /// Nodes that are in none of these.
    pub(super) loose: Vec<RowId>,
    /// Larger domains that it wholly lies in.
    within: Vec<DomainId>,
}

impl Domain {
    /// The last part of its name.
    pub(super) fn name(&self) -> &str {
        let path = &*self.path;
        match self.level {
            Level::CLIQUE => path,
            _ => path.rsplit('/').next().unwrap_or(path),
        }
    }
}

/// All domains.
#[derive(Clone, Debug, Default)]
pub(super) struct Fabric {
    domains: Vec<Domain>,
    /// By row, the closest first.
    of_row: Vec<Box<[DomainId]>>,
    /// Levels that exist, the closest first, with their domains.
    levels: Vec<(Level, Vec<DomainId>)>,
    /// The cluster as the outermost domain.
    top: Vec<DomainId>,
    loose: Vec<RowId>,
}

impl Fabric {
    /// Reads the places of all nodes that exist, given in their order.
    pub(super) fn new(rows: &[Row], order: impl Iterator<Item = RowId>) -> Self {
        let mut fabric = Self {
            of_row: vec![Box::default(); rows.len()],
            ..Self::default()
        };
        let mut by_path: BTreeMap<(Level, Str), DomainId> = BTreeMap::new();
        for id in order {
            let Some(row) = rows.get(id.0) else { continue };
            let mut mine = Vec::with_capacity(row.place.len());
            for (level, path) in &row.place {
                let next = DomainId(u32::try_from(fabric.domains.len()).unwrap_or(u32::MAX));
                let domain = *by_path.entry((*level, path.clone())).or_insert(next);
                if domain == next {
                    fabric.domains.push(Domain {
                        level: *level,
                        path: path.clone(),
                        rows: Vec::new(),
                        children: Vec::new(),
                        loose: Vec::new(),
                        within: Vec::new(),
                    });
                }
                if let Some(d) = fabric.domains.get_mut(domain.0 as usize) {
                    d.rows.push(id);
                }
                mine.push(domain);
            }
            match mine.first() {
                None => fabric.loose.push(id),
                Some(closest) => {
                    if let Some(d) = fabric.domains.get_mut(closest.0 as usize) {
                        d.loose.push(id);
                    }
                }
            }
            if let Some(slot) = fabric.of_row.get_mut(id.0) {
                *slot = mine.into();
            }
        }
        fabric.nest();
        for ((level, _), id) in by_path {
            match fabric.levels.last_mut() {
                Some((last, ids)) if *last == level => ids.push(id),
                _ => fabric.levels.push((level, vec![id])),
            }
        }
        fabric.levels.iter_mut().for_each(|(_, ids)| ids.sort());
        fabric
    }

    /// Finds for each domain those that it lies in. One that lies in several next larger ones (a
    /// clique over two leaves) is nobody's child: its nodes are loose in what is above it.
    fn nest(&mut self) {
        let mut within: Vec<Vec<DomainId>> = Vec::with_capacity(self.domains.len());
        for domain in &self.domains {
            let larger = |id: &DomainId| {
                self.domains
                    .get(id.0 as usize)
                    .is_some_and(|d| d.level > domain.level)
            };
            let mut all: Option<Vec<DomainId>> = None;
            for row in &domain.rows {
                let theirs = self.of_row.get(row.0).map_or(&[][..], |ids| ids);
                match &mut all {
                    None => all = Some(theirs.iter().copied().filter(larger).collect()),
                    Some(all) => all.retain(|id| theirs.contains(id)),
                }
            }
            within.push(all.unwrap_or_default());
        }
        for (i, within) in within.into_iter().enumerate() {
            let id = DomainId(u32::try_from(i).unwrap_or(u32::MAX));
            let Some(domain) = self.domains.get_mut(i) else {
                continue;
            };
            domain.within = within;
            let rows = domain.rows.clone();
            let mut above = rows.iter().map(|row| self.next(*row, id));
            let parent = above.next().flatten();
            if above.all(|other| other == parent) {
                match parent.and_then(|p| self.domains.get_mut(p.0 as usize)) {
                    Some(parent) => parent.children.push(id),
                    None => self.top.push(id),
                }
                continue;
            }
            for row in rows {
                let above = self.next(row, id);
                match above.and_then(|up| self.domains.get_mut(up.0 as usize)) {
                    Some(up) => up.loose.push(row),
                    None => self.loose.push(row),
                }
            }
        }
    }

    /// The domain that comes after this one on the way up from a row.
    fn next(&self, row: RowId, after: DomainId) -> Option<DomainId> {
        let ids = self.of_row(row);
        let at = ids.iter().position(|id| *id == after)?;
        ids.get(at + 1).copied()
    }

    /// Domains.
    pub(super) fn count(&self) -> usize {
        self.domains.len()
    }

    /// A domain.
    pub(super) fn domain(&self, id: DomainId) -> Option<&Domain> {
        self.domains.get(id.0 as usize)
    }

    /// The domains of a row, the closest first.
    pub(super) fn of_row(&self, row: RowId) -> &[DomainId] {
        self.of_row.get(row.0).map_or(&[], |ids| ids)
    }

    /// The domain of a row at a level.
    pub(super) fn at(&self, row: RowId, level: Level) -> Option<DomainId> {
        let mut ids = self.of_row(row).iter();
        ids.find(|id| self.domain(**id).is_some_and(|d| d.level == level))
            .copied()
    }

    /// Levels that exist, the closest first, with their domains.
    pub(super) fn levels(&self) -> &[(Level, Vec<DomainId>)] {
        &self.levels
    }

    /// Whether a domain lies in another one, or is it; `None` is the cluster.
    pub(super) fn lies_in(&self, id: DomainId, outer: Option<DomainId>) -> bool {
        outer.is_none_or(|outer| {
            id == outer || self.domain(id).is_some_and(|d| d.within.contains(&outer))
        })
    }

    /// The parts of a domain or of the cluster.
    pub(super) fn parts(&self, id: Option<DomainId>) -> (&[DomainId], &[RowId]) {
        match id {
            None => (&self.top, &self.loose),
            Some(id) => self
                .domain(id)
                .map_or((&[], &[]), |d| (&d.children, &d.loose)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Meta;

    fn place(labels: &[(&str, &str)], own: &[Str]) -> String {
        let mut labels: Vec<(Str, Str)> = labels
            .iter()
            .map(|(k, v)| (Str::from(*k), Str::from(*v)))
            .collect();
        labels.sort();
        let node = Node {
            meta: Meta {
                labels: labels.into(),
                ..Meta::default()
            },
            ..Node::default()
        };
        let place = place_of(&node, own);
        let words: Vec<String> = place
            .iter()
            .map(|(level, path)| format!("{}={path}", level.name()))
            .collect();
        words.join(" ")
    }

    #[test]
    fn labels_of_each_family_give_a_place() {
        let new = [
            ("fabric.topograph.run/tier-0", "l1"),
            ("fabric.topograph.run/tier-1", "s1"),
            ("nvidia.com/gpu.clique", "c.1"),
            ("topology.kubernetes.io/zone", "z"),
        ];
        assert_eq!(
            place(&new, &[]),
            "clique=c.1 leaf=z/s1/l1 spine=z/s1 zone=z"
        );
        let aws = [
            ("topology.k8s.aws/network-node-layer-1", "top"),
            ("topology.k8s.aws/network-node-layer-2", "mid"),
            ("topology.k8s.aws/network-node-layer-3", "low"),
        ];
        assert_eq!(place(&aws, &[]), "leaf=top/mid/low spine=top/mid core=top");
        let old = [
            ("network.topology.nvidia.com/leaf", "l"),
            ("network.topology.nvidia.com/spine", "s"),
        ];
        assert_eq!(place(&old, &[]), "leaf=s/l spine=s");
        let oci = [
            ("oci.oraclecloud.com/rdma.local_block_id", "no-imds-data"),
            ("oci.oraclecloud.com/rdma.network_block_id", "no-imds-data"),
        ];
        assert_eq!(place(&oci, &[]), "");
        let own = [Str::from("x/block"), Str::from("x/rack")];
        assert_eq!(
            place(&[("x/rack", "r"), ("x/block", "b")], &own),
            "leaf=b/r spine=b"
        );
        assert_eq!(place(&[("x/block", "b")], &own), "", "a gap joins nothing");
    }

    #[test]
    fn levels_have_names_and_label_keys() {
        for (text, level) in [
            ("leaf", Some(Level::LEAF)),
            ("tier-0", Some(Level::LEAF)),
            ("spine", Some(Level::tier(1))),
            ("fabric.topograph.run/tier-1", Some(Level::tier(1))),
            ("network.topology.nvidia.com/spine", Some(Level::tier(1))),
            ("tier-99", None),
            ("clique", Some(Level::CLIQUE)),
            ("x/rack", Some(Level::LEAF)),
            ("x/block", Some(Level::tier(1))),
            ("moon", None),
        ] {
            let own = [Str::from("x/block"), Str::from("x/rack")];
            assert_eq!(Level::from_name(text, &own), level, "{text}");
        }
    }
}
