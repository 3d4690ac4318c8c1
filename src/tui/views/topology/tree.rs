//! The tree of the network: branches by what nodes say of the switches above them, each with the
//! sum of its nodes. A change of a node touches the branches above it and nothing else.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ahash::AHashMap;

use super::gangs::{Gangs, Held};
use crate::model::{BoardGroup, Cluster, GpuCell, Str, board_groups, natural_key};
use crate::tui::views::node_row::NodeRow;

/// What a branch stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Level {
    /// A switch, by what its level is called.
    Switch(Str),
    /// An NVLink domain over several nodes.
    Nvlink,
    /// Nodes of which no label tells where they hang.
    Unknown,
    /// Among those: a zone.
    Zone,
    /// Among those: a GPU model.
    Model,
    /// Among those: nodes that are gone or may not be seen.
    State,
}

impl Level {
    /// As the screen writes it before the name.
    pub(super) fn name(&self) -> &str {
        match self {
            Level::Switch(level) => level,
            Level::Nvlink => "NVLink domain",
            Level::Unknown => "fabric unknown",
            Level::Zone => "zone",
            Level::Model => "model",
            Level::State => "nodes",
        }
    }
}

/// A step of the way from the top to a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Step {
    /// Puts those that say something before those that do not, and `leaf-2` before `leaf-10`.
    order: (bool, String),
    pub(super) level: Level,
    pub(super) name: Str,
}

impl Step {
    fn new(level: Level, name: &str) -> Self {
        Step {
            order: (level == Level::Unknown, natural_key(name)),
            level,
            name: name.into(),
        }
    }
}

impl Step {
    /// Level and name, as in `leaf leaf-2`.
    pub(super) fn in_words(&self) -> String {
        match self.level {
            Level::Unknown => self.level.name().to_owned(),
            Level::State => self.name.to_string(),
            // `no zone`, `no model`: the name says it all.
            Level::Zone | Level::Model if self.name.starts_with("no ") => self.name.to_string(),
            _ => format!("{} {}", self.level.name(), self.name),
        }
    }
}

impl Step {
    /// The name alone where it says its level by itself, as `leaf-2` does, else both.
    pub(super) fn in_short(&self) -> String {
        let level = self.level.name();
        let rest = self.name.strip_prefix(level);
        let says = rest.is_some_and(|r| r.starts_with(|c: char| !c.is_alphabetic()));
        if says {
            self.name.to_string()
        } else {
            self.in_words()
        }
    }
}

/// A node in the tree.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The node.
    pub(super) row: Arc<NodeRow>,
    /// The way to it, from the top.
    pub(super) path: Box<[Step]>,
    /// Whole GPUs that one pod could have now; `None` when pods may not be seen.
    pub(super) hole: Option<u32>,
    /// Pods with GPUs on it, by the gang that they belong to.
    pub(super) held: Held,
    /// Its GPUs by what they share on the board.
    pub(super) groups: Box<[BoardGroup]>,
    order: String,
}

impl Leaf {
    fn of(row: NodeRow, cluster: &Cluster, gangs: &mut Gangs) -> Self {
        let held = gangs.on_node(&row.name, cluster);
        let takes_pods = row.is_ready() && !row.is_cordoned();
        let free = row.cells.iter().filter(|c| **c == GpuCell::Free).count();
        let free = if takes_pods { free } else { 0 };
        Leaf {
            path: path(&row),
            hole: row
                .free_gpus
                .map(|_| u32::try_from(free).unwrap_or(u32::MAX)),
            held,
            groups: {
                let (ports, table) = cluster.board(&row.name);
                board_groups(&ports, table.map(|t| &**t)).into()
            },
            order: natural_key(&row.name),
            row: Arc::new(row),
        }
    }
}

/// The way from the top to a node.
fn path(row: &NodeRow) -> Box<[Step]> {
    let place = row.place();
    let switches = place.switches.iter();
    let switches = switches.map(|s| Step::new(Level::Switch(s.level.clone()), &s.name));
    let mut path: Vec<Step> = switches.collect();
    let domain = place.nvlink_domain.iter();
    path.extend(domain.map(|domain| Step::new(Level::Nvlink, domain)));
    if !path.is_empty() {
        // Switches of one name in two zones are two.
        let zone = row.zone().unwrap_or("no zone");
        path.insert(0, Step::new(Level::Zone, zone));
        return path.into();
    }
    path.push(Step::new(Level::Unknown, ""));
    if row.node.is_none() {
        path.push(Step::new(Level::State, &row.state));
    } else {
        path.push(Step::new(Level::Zone, row.zone().unwrap_or("no zone")));
        path.push(Step::new(Level::Model, row.model().unwrap_or("no model")));
    }
    path.into()
}

/// The sum of a branch's nodes.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sum {
    /// Nodes.
    pub(super) nodes: u32,
    /// Physical GPUs that are stated.
    pub(super) gpus: u32,
    /// Held by pods, in whole-GPU equivalents.
    pub(super) used: f64,
    /// To be had, in whole-GPU equivalents.
    pub(super) free: f64,
    /// On nodes that are down, or not given out.
    pub(super) sick: f64,
    /// Nodes of which free and used are not known.
    pub(super) unknown: u32,
    /// The most whole GPUs that are free on one node, and on how many nodes.
    pub(super) hole: (u32, u32),
    /// Nodes that take no new pods, or are down.
    pub(super) closed: u32,
}

impl Sum {
    fn add_hole(&mut self, (size, nodes): (u32, u32)) {
        match size.cmp(&self.hole.0) {
            std::cmp::Ordering::Greater => self.hole = (size, nodes),
            std::cmp::Ordering::Equal => self.hole.1 += nodes,
            std::cmp::Ordering::Less => {}
        }
    }

    fn add_node(&mut self, leaf: &Leaf) {
        let row = &leaf.row;
        self.nodes += 1;
        self.gpus += u32::try_from(row.cells.len()).unwrap_or(0);
        self.used += row.used_gpus.unwrap_or(0.0);
        self.free += row.free_gpus.unwrap_or(0.0);
        let down = row.node.is_some() && !row.is_ready();
        self.sick += row.sick_gpus;
        self.unknown += u32::from(leaf.hole.is_none());
        self.closed += u32::from(down || row.is_cordoned());
        if let Some(hole) = leaf.hole.filter(|n| *n > 0) {
            self.add_hole((hole, 1));
        }
    }

    fn add(&mut self, other: &Sum) {
        self.nodes += other.nodes;
        self.gpus += other.gpus;
        self.used += other.used;
        self.free += other.free;
        self.sick += other.sick;
        self.unknown += other.unknown;
        self.closed += other.closed;
        if other.hole.0 > 0 {
            self.add_hole(other.hole);
        }
    }
}

/// A node among its neighbours, in the natural order of their names.
#[derive(Clone, Debug)]
struct InOrder(Arc<Leaf>);

impl Ord for InOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        let by_name = || a.row.name.cmp(&b.row.name);
        a.order.cmp(&b.order).then_with(by_name)
    }
}

impl PartialOrd for InOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InOrder {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for InOrder {}

/// A part of the network with what is below it.
#[derive(Debug, Default)]
pub(super) struct Branch {
    /// Parts of it.
    pub(super) branches: BTreeMap<Step, Branch>,
    /// Nodes right below it.
    nodes: BTreeSet<InOrder>,
    /// As of the last [`Branch::settle`].
    pub(super) sum: Sum,
    stale: bool,
}

impl Branch {
    /// Nodes right below it, in their natural order.
    pub(super) fn nodes(&self) -> impl ExactSizeIterator<Item = &Arc<Leaf>> {
        self.nodes.iter().map(|node| &node.0)
    }

    /// Whether nothing is below it.
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.branches.is_empty()
    }

    /// The part of it whose nodes pass, summed up.
    fn passing(&self, passes: &impl Fn(&NodeRow) -> bool) -> Branch {
        let branches = self.branches.iter();
        let branches = branches.map(|(step, branch)| (step, branch.passing(passes)));
        let branches = branches.filter(|(_, branch)| !branch.is_empty());
        let nodes = self.nodes.iter().filter(|node| passes(&node.0.row));
        let mut part = Branch {
            branches: branches.map(|(s, b)| (s.clone(), b)).collect(),
            nodes: nodes.cloned().collect(),
            sum: Sum::default(),
            stale: true,
        };
        part.settle();
        part
    }

    fn insert(&mut self, leaf: &Arc<Leaf>) {
        let mut at = self;
        at.stale = true;
        for step in &leaf.path {
            at = at.branches.entry(step.clone()).or_default();
            at.stale = true;
        }
        at.nodes.insert(InOrder(Arc::clone(leaf)));
    }

    /// Takes a node out, and each branch that has nothing left.
    fn remove(&mut self, leaf: &InOrder, path: &[Step]) {
        self.stale = true;
        let Some((step, rest)) = path.split_first() else {
            self.nodes.remove(leaf);
            return;
        };
        if let Some(branch) = self.branches.get_mut(step) {
            branch.remove(leaf, rest);
            if branch.is_empty() {
                self.branches.remove(step);
            }
        }
    }

    /// The one zone that there is at the top: it is not worth a level of its own.
    pub(super) fn only_zone(&self) -> Option<&Step> {
        let mut zones = self.branches.keys().filter(|s| s.level == Level::Zone);
        let only = zones.next()?;
        zones.next().is_none().then_some(only)
    }

    /// The branches right below, with the parts of the one zone in its place.
    pub(super) fn shown(&self) -> Vec<(Option<&Step>, &Step, &Branch)> {
        let only = self.only_zone();
        let mut all = Vec::new();
        for (step, part) in &self.branches {
            if only == Some(step) {
                all.extend(part.branches.iter().map(|(s, p)| (only, s, p)));
            } else {
                all.push((None, step, part));
            }
        }
        all
    }

    /// The part that a way in words leads to first, and what is left of the way.
    pub(super) fn below<'a>(&self, way: &'a str) -> Option<(&Step, &Branch, &'a str)> {
        self.branches.iter().find_map(|(step, part)| {
            let rest = way.strip_prefix(&*step.in_words())?;
            let rest = match rest {
                "" => "",
                rest => rest.strip_prefix('/')?,
            };
            Some((step, part, rest))
        })
    }

    /// The branch that a way in words leads to.
    pub(super) fn find(&self, way: &str) -> Option<(&Branch, &Step)> {
        let (step, part, rest) = self.below(way)?;
        match rest {
            "" => Some((part, step)),
            rest => part.find(rest),
        }
    }

    /// All nodes below, in their order.
    pub(super) fn leaves(&self) -> Vec<&Arc<Leaf>> {
        fn add<'a>(branch: &'a Branch, all: &mut Vec<&'a Arc<Leaf>>) {
            all.extend(branch.nodes());
            for part in branch.branches.values() {
                add(part, all);
            }
        }
        let mut all = Vec::with_capacity(self.sum.nodes as usize);
        add(self, &mut all);
        all
    }

    /// What the nodes below hold, node by node.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.leaves().into_iter().map(|leaf| &leaf.held)
    }

    /// Whether a node below has pods of a gang.
    pub(super) fn holds(&self, gang: u32) -> bool {
        let mut branches = self.branches.values();
        self.nodes().any(|leaf| leaf.held.of(gang) > 0) || branches.any(|b| b.holds(gang))
    }

    /// Sums up anew what has changed.
    fn settle(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        let mut sum = Sum::default();
        for branch in self.branches.values_mut() {
            branch.settle();
            sum.add(&branch.sum);
        }
        for leaf in self.nodes() {
            sum.add_node(leaf);
        }
        self.sum = sum;
    }
}

/// How well the labels tell the fabric.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Gaps {
    /// Nodes with GPUs that may be seen.
    pub(super) nodes: u32,
    /// By family of labels, nodes that it tells of.
    pub(super) families: BTreeMap<Str, u32>,
    /// By level, nodes of which it is the closest that is told.
    pub(super) closest: BTreeMap<Str, u32>,
    /// By level, nodes that carry its family but say nothing of it.
    pub(super) lacking: BTreeMap<Str, u32>,
    /// Nodes that no label tells anything of.
    pub(super) untold: u32,
}

impl Gaps {
    fn count(&mut self, row: &NodeRow, up: bool) {
        if row.node.is_none() {
            return;
        }
        let step = |n: &mut u32| *n = if up { *n + 1 } else { n.saturating_sub(1) };
        let place = row.place();
        step(&mut self.nodes);
        match &place.told_by {
            Some(family) => step(self.families.entry(family.clone()).or_default()),
            None => step(&mut self.untold),
        }
        if let (Some(switch), None) = (place.closest(), &place.lacks) {
            step(self.closest.entry(switch.level.clone()).or_default());
        }
        if let Some(level) = &place.lacks {
            step(self.lacking.entry(level.clone()).or_default());
        }
    }
}

/// All nodes that have GPUs, and the tree of those that pass the filter.
#[derive(Default)]
pub(super) struct Tree {
    by_name: AHashMap<Str, Arc<Leaf>>,
    /// The tree of those that pass.
    pub(super) top: Branch,
    /// The tree of all nodes, while a filter hides some: when it is taken away nothing is to be made.
    whole: Option<Branch>,
    /// Of all nodes, also those that the filter hides.
    pub(super) gaps: Gaps,
    /// Who the pods belong to.
    pub(super) gangs: Gangs,
}

impl Tree {
    /// An empty one, for nodes that all pass or are filtered.
    pub(super) fn over(all_pass: bool) -> Self {
        Tree {
            whole: (!all_pass).then(Branch::default),
            ..Tree::default()
        }
    }

    /// Takes the changes of single nodes: their rows as they are now, if they are there.
    pub(super) fn take(
        &mut self,
        changes: Vec<(Str, Option<NodeRow>)>,
        cluster: &Cluster,
        passes: impl Fn(&NodeRow) -> bool,
    ) {
        for (name, row) in changes {
            if let Some(old) = self.by_name.remove(&name) {
                self.gaps.count(&old.row, false);
                self.gangs.leave(&old.held);
                let old = InOrder(old);
                self.top.remove(&old, &old.0.path);
                if let Some(whole) = &mut self.whole {
                    whole.remove(&old, &old.0.path);
                }
            }
            if let Some(row) = row.filter(NodeRow::has_gpus) {
                self.put(row, cluster, &passes);
            }
        }
        self.settle();
    }

    fn put(&mut self, row: NodeRow, cluster: &Cluster, passes: impl Fn(&NodeRow) -> bool) {
        let leaf = Arc::new(Leaf::of(row, cluster, &mut self.gangs));
        self.gaps.count(&leaf.row, true);
        self.gangs.enter(&leaf.held);
        if passes(&leaf.row) {
            self.top.insert(&leaf);
        }
        if let Some(whole) = &mut self.whole {
            whole.insert(&leaf);
        }
        self.by_name.insert(leaf.row.name.clone(), leaf);
    }

    fn settle(&mut self) {
        self.top.settle();
        if let Some(whole) = &mut self.whole {
            whole.settle();
        }
    }

    /// Asks again which nodes pass.
    pub(super) fn filter(&mut self, all_pass: bool, passes: impl Fn(&NodeRow) -> bool) {
        if all_pass {
            if let Some(whole) = self.whole.take() {
                self.top = whole;
            }
            return;
        }
        let shown = std::mem::take(&mut self.top);
        self.top = self.whole.get_or_insert(shown).passing(&passes);
    }

    /// A node by its name, also one that the filter hides.
    pub(super) fn leaf(&self, name: &str) -> Option<&Arc<Leaf>> {
        self.by_name.get(name)
    }

    /// All nodes, also those that the filter hides, in no order.
    pub(super) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.by_name.values().map(|leaf| &**leaf)
    }

    /// The tree of all nodes, also those that the filter hides.
    pub(super) fn whole(&self) -> &Branch {
        self.whole.as_ref().unwrap_or(&self.top)
    }

    /// How many nodes there are, also those that the filter hides.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }
}
