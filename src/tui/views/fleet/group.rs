//! Nodes in groups: the rows of the map.

use std::collections::BTreeMap;
use std::sync::Arc;

use ahash::AHashMap;

use crate::model::{Cluster, Str};
use crate::tui::views::node_row::{NodeRow, natural_order};

/// What the rows of the map are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// The closest switch.
    Leaf,
    /// The zone.
    Zone,
    /// The GPU model.
    Model,
    /// The namespace that holds most of the node's GPUs.
    Namespace,
}

impl GroupBy {
    /// As the screen writes it.
    pub fn name(self) -> &'static str {
        match self {
            GroupBy::Leaf => "leaf",
            GroupBy::Zone => "zone",
            GroupBy::Model => "model",
            GroupBy::Namespace => "namespace",
        }
    }

    /// The next in turn.
    pub fn next(self) -> Self {
        match self {
            GroupBy::Leaf => GroupBy::Zone,
            GroupBy::Zone => GroupBy::Model,
            GroupBy::Model => GroupBy::Namespace,
            GroupBy::Namespace => GroupBy::Leaf,
        }
    }

    /// The finest place that most nodes tell: leaf, else zone if there are several, else model.
    pub fn choose(rows: &[Arc<NodeRow>]) -> Self {
        let told = |f: fn(&NodeRow) -> Option<&str>| rows.iter().filter_map(|r| f(r)).count();
        if told(NodeRow::leaf) * 2 > rows.len() {
            return GroupBy::Leaf;
        }
        let first_zone = rows.iter().find_map(|r| r.zone());
        let several = rows
            .iter()
            .any(|r| r.zone().is_some() && r.zone() != first_zone);
        if several && told(NodeRow::zone) * 2 > rows.len() {
            return GroupBy::Zone;
        }
        GroupBy::Model
    }

    /// What stands for nodes that do not tell.
    fn untold(self) -> &'static str {
        match self {
            GroupBy::Leaf => "no leaf",
            GroupBy::Zone => "no zone",
            GroupBy::Model => "no model",
            GroupBy::Namespace => "no pods",
        }
    }

    fn key(self, row: &NodeRow, owners: &mut Owners, cluster: &Cluster) -> Option<Str> {
        match self {
            GroupBy::Leaf => row.shared_leaf().cloned(),
            GroupBy::Zone => row.shared_zone().clone(),
            GroupBy::Model => row.model().map(Into::into),
            GroupBy::Namespace => owners
                .entry(row.name.clone())
                .or_insert_with(|| owner(row, cluster))
                .clone(),
        }
    }
}

/// Nodes with the namespace that holds most of their GPUs, as far as it was asked for.
pub(super) type Owners = AHashMap<Str, Option<Str>>;

/// The namespace that holds most of a node's GPUs (by devices asked).
fn owner(row: &NodeRow, cluster: &Cluster) -> Option<Str> {
    let (_, held) = cluster.node(&row.name)?;
    let most = held.gpu_pods.devices().max_by_key(|(_, devices)| *devices);
    most.map(|(namespace, _)| namespace.clone())
}

/// A row of the map.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// As drawn at its beginning.
    pub label: String,
    /// Positions of its nodes.
    pub nodes: Vec<usize>,
    /// GPUs that are known.
    pub gpus: usize,
    /// GPUs held, in whole-GPU equivalents.
    pub used_gpus: f64,
    /// GPUs to be had, in whole-GPU equivalents.
    pub free_gpus: f64,
    /// Nodes that are down or have sick GPUs.
    pub sick_nodes: usize,
}

impl Group {
    /// Counts anew, after rows have changed in place.
    pub(super) fn recount(&mut self, rows: &[Arc<NodeRow>]) {
        let nodes = std::mem::take(&mut self.nodes);
        *self = Group {
            label: std::mem::take(&mut self.label),
            nodes: Vec::with_capacity(nodes.len()),
            ..Group::default()
        };
        for index in nodes {
            if let Some(row) = rows.get(index) {
                self.take(index, row);
            }
        }
    }

    fn take(&mut self, index: usize, row: &NodeRow) {
        self.nodes.push(index);
        self.gpus += row.cells.len();
        self.used_gpus += row.used_gpus.unwrap_or(0.0);
        self.free_gpus += row.free_gpus.unwrap_or(0.0);
        let sick = row.node.is_some() && (!row.is_ready() || row.sick_gpus > 0.0);
        self.sick_nodes += usize::from(sick);
    }
}

/// Groups in the order of their labels; nodes that do not tell come last.
pub fn groups(rows: &[Arc<NodeRow>], by: GroupBy, cluster: &Cluster) -> Vec<Group> {
    groups_of(rows, by, &mut Owners::default(), cluster)
}

/// The same, with what is known of owners.
pub(super) fn groups_of(
    rows: &[Arc<NodeRow>],
    by: GroupBy,
    owners: &mut Owners,
    cluster: &Cluster,
) -> Vec<Group> {
    let mut told: BTreeMap<Str, Group> = BTreeMap::new();
    let mut untold = Group {
        label: by.untold().to_owned(),
        ..Group::default()
    };
    let mut unknown = Group {
        label: "unknown".to_owned(),
        ..Group::default()
    };
    for (index, row) in rows.iter().enumerate() {
        if row.node.is_none() {
            unknown.label.clone_from(&row.state);
            unknown.take(index, row);
            continue;
        }
        match by.key(row, owners, cluster) {
            Some(key) => told
                .entry(key)
                .or_insert_with_key(|key| Group {
                    label: key.to_string(),
                    ..Group::default()
                })
                .take(index, row),
            None => untold.take(index, row),
        }
    }
    let mut groups: Vec<Group> = told.into_values().collect();
    groups.sort_by(|a, b| natural_order(&a.label, &b.label));
    groups.extend(
        [untold, unknown]
            .into_iter()
            .filter(|g| !g.nodes.is_empty()),
    );
    groups
}
