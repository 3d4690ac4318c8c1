//! The open part of the tree as rows, from above.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::gangs::{Gangs, Tally};
use super::tree::{Branch, Leaf, Level, Step, Sum};
use crate::model::{GpuCell, Str};

/// Tells a row apart from all others, also from those of another frame.
pub(super) type Id = u64;

/// What is right above the top.
pub(super) const TOP: Id = 0;

/// The id of a part of the thing with another id.
pub(super) fn below(above: Id, part: impl Hash) -> Id {
    let mut hasher = DefaultHasher::new();
    above.hash(&mut hasher);
    part.hash(&mut hasher);
    hasher.finish()
}

/// The id of a branch below another one.
pub(super) fn branch_id(above: Id, step: &Step) -> Id {
    below(above, step)
}

/// The id of a node, wherever it hangs.
pub(super) fn node_id(name: &str) -> Id {
    below(TOP, ("node", name))
}

/// The id of a group of a node's GPUs.
pub(super) fn group_id(name: &str, group: usize) -> Id {
    below(node_id(name), ("group", group))
}

/// The id of a GPU.
pub(super) fn gpu_id(name: &str, index: u32) -> Id {
    below(node_id(name), ("gpu", index))
}

/// What a row shows.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A switch, an NVLink domain, or a group of nodes whose fabric is not known.
    Branch {
        /// What it is.
        step: Step,
        /// What it is the only part of, and what that is, from the outermost; they share its row.
        within: Vec<Step>,
        /// The way to it from the top, in words.
        way: Str,
        /// Its nodes' sum.
        sum: Box<Sum>,
        /// Gangs that have a pod in it, and those of them that also have one elsewhere.
        gangs: (u32, u32),
        /// The job that is looked at has pods in it.
        lit: bool,
    },
    /// A node.
    Node {
        /// The node.
        leaf: Arc<Leaf>,
        /// As above.
        gangs: (u32, u32),
    },
    /// GPUs of a node that share something on its board, by their place among the groups.
    Group(Arc<Leaf>, usize),
    /// A GPU of a node.
    Gpu(Arc<Leaf>, u32),
    /// A MIG instance of a GPU.
    Instance(Arc<Leaf>, u32, usize),
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// Which one.
    pub(super) id: Id,
    /// The branches that share its row.
    pub(super) shares: Vec<Id>,
    /// How many things are above it in the tree.
    pub(super) depth: u16,
    /// Whether something is below it.
    pub(super) parts: bool,
    /// Whether that is shown.
    pub(super) open: bool,
    /// What it shows.
    pub(super) what: What,
}

impl Shown {
    /// The node that it is, or is a part of.
    pub(super) fn leaf(&self) -> Option<&Arc<Leaf>> {
        match &self.what {
            What::Branch { .. } => None,
            What::Node { leaf, .. }
            | What::Group(leaf, _)
            | What::Gpu(leaf, _)
            | What::Instance(leaf, ..) => Some(leaf),
        }
    }
}

/// Puts the open rows of a tree together.
pub(super) struct Flatten<'a> {
    /// Ids of what is open.
    pub(super) open: &'a HashSet<Id>,
    /// Branches are open whatever `open` says.
    pub(super) all_branches: bool,
    /// A branch that is the only part of another one shares its row.
    pub(super) folds: bool,
    /// Who the pods belong to.
    pub(super) gangs: &'a Gangs,
    /// Sums of what branches hold.
    pub(super) tally: Tally,
    /// The job that is looked at.
    pub(super) lit: Option<u32>,
    /// The rows so far.
    pub(super) rows: Vec<Shown>,
}

impl Flatten<'_> {
    /// Adds the whole tree.
    pub(super) fn tree(&mut self, top: &Branch) {
        for (zone, step, part) in top.shown() {
            let above = zone.map_or(TOP, |zone| branch_id(TOP, zone));
            let way = zone.map(Step::in_words).unwrap_or_default();
            self.part(step, part, above, &way, 0);
        }
    }

    /// Adds all that is below a branch.
    fn branch(&mut self, branch: &Branch, id: Id, way: &str, depth: u16) {
        for (step, part) in &branch.branches {
            self.part(step, part, id, way, depth);
        }
        for leaf in branch.nodes() {
            self.node(leaf, depth);
        }
    }

    /// Adds a branch and all that is below it.
    fn part(&mut self, step: &Step, part: &Branch, above: Id, way: &str, depth: u16) {
        let mut way = joined(way, step);
        let mut id = branch_id(above, step);
        let (mut step, mut part) = (step, part);
        let (mut within, mut shares) = (Vec::new(), Vec::new());
        while let Some((only, inner)) = only_part(part).filter(|_| self.folds) {
            within.push(step.clone());
            shares.push(id);
            way = joined(&way, only);
            id = branch_id(id, only);
            (step, part) = (only, inner);
        }
        let way: Str = way.into();
        let open = self.all_branches || self.open.contains(&id);
        self.rows.push(Shown {
            id,
            shares,
            depth,
            parts: true,
            open,
            what: What::Branch {
                step: step.clone(),
                within,
                way: way.clone(),
                gangs: self.gangs.count(self.tally.of(part.held())),
                lit: self.lit.is_some_and(|gang| part.holds(gang)),
                sum: Box::new(part.sum.clone()),
            },
        });
        if open {
            self.branch(part, id, &way, depth + 1);
        }
    }

    fn node(&mut self, leaf: &Arc<Leaf>, depth: u16) {
        let id = node_id(&leaf.row.name);
        let parts = !leaf.row.cells.is_empty();
        let open = parts && self.open.contains(&id);
        self.rows.push(Shown {
            id,
            shares: Vec::new(),
            depth,
            parts,
            open,
            what: What::Node {
                leaf: Arc::clone(leaf),
                gangs: self.gangs.count(leaf.held.gangs()),
            },
        });
        if !open {
            return;
        }
        let cells = u32::try_from(leaf.row.cells.len()).unwrap_or(0);
        for (at, group) in leaf.groups.iter().enumerate() {
            let id = group_id(&leaf.row.name, at);
            let open = self.open.contains(&id);
            self.rows.push(Shown {
                id,
                shares: Vec::new(),
                depth: depth + 1,
                parts: true,
                open,
                what: What::Group(Arc::clone(leaf), at),
            });
            let shown = group.gpus.iter().filter(|gpu| open && **gpu < cells);
            for gpu in shown {
                self.gpu(leaf, *gpu, depth + 2);
            }
        }
        let in_none = |gpu: &u32| !leaf.groups.iter().any(|g| g.gpus.contains(gpu));
        for gpu in (0..cells).filter(in_none) {
            self.gpu(leaf, gpu, depth + 1);
        }
    }

    /// Adds a GPU and its instances.
    fn gpu(&mut self, leaf: &Arc<Leaf>, index: u32, depth: u16) {
        let id = gpu_id(&leaf.row.name, index);
        let count = match leaf.row.cells.get(index as usize) {
            Some(GpuCell::Mig { instances, .. }) => instances.len(),
            _ => 0,
        };
        let open = count > 0 && self.open.contains(&id);
        self.rows.push(Shown {
            id,
            shares: Vec::new(),
            depth,
            parts: count > 0,
            open,
            what: What::Gpu(Arc::clone(leaf), index),
        });
        let parts = if open { count } else { 0 };
        self.rows.extend((0..parts).map(|part| Shown {
            id: below(id, part),
            shares: Vec::new(),
            depth: depth + 1,
            parts: false,
            open: false,
            what: What::Instance(Arc::clone(leaf), index, part),
        }));
    }
}

fn joined(way: &str, step: &Step) -> String {
    match way {
        "" => step.in_words(),
        way => format!("{way}/{}", step.in_words()),
    }
}

/// The one switch or NVLink domain that all of a branch hangs below.
fn only_part(branch: &Branch) -> Option<(&Step, &Branch)> {
    let mut parts = branch.branches.iter();
    let (step, part) = parts.next()?;
    let only = parts.next().is_none() && branch.nodes().len() == 0;
    let is_link = matches!(step.level, Level::Switch(_) | Level::Nvlink);
    (only && is_link).then_some((step, part))
}

/// The switch that all of several zones hang below, as far as its name tells.
pub(super) fn common(top: &Branch) -> Option<Step> {
    let mut found: Option<&Step> = None;
    let mut zones = 0;
    let all = top.branches.iter().filter(|(s, _)| s.level == Level::Zone);
    for (_, part) in all {
        let (only, _) = only_part(part)?;
        if found.is_some_and(|other| other != only) {
            return None;
        }
        found = Some(only);
        zones += 1;
    }
    found.filter(|_| zones > 1).cloned()
}

/// The id of the group that a GPU is in.
pub(super) fn group_of(leaf: &Leaf, gpu: u32) -> Option<Id> {
    let at = leaf.groups.iter().position(|g| g.gpus.contains(&gpu))?;
    Some(group_id(&leaf.row.name, at))
}

/// Ids of the branches on the way to a node.
pub(super) fn way_to(leaf: &Leaf) -> Vec<Id> {
    let mut ids = Vec::with_capacity(leaf.path.len());
    let mut at = TOP;
    for step in &leaf.path {
        at = branch_id(at, step);
        ids.push(at);
    }
    ids
}

/// The branches of the levels that can be open so that no more than so many rows are shown.
pub(super) fn opening(top: &Branch, most: usize) -> HashSet<Id> {
    let mut open = HashSet::new();
    let mut rows = 0;
    let mut level: Vec<(Id, &Branch)> = top
        .shown()
        .into_iter()
        .map(|(zone, step, part)| {
            let above = zone.map_or(TOP, |zone| branch_id(TOP, zone));
            innermost(branch_id(above, step), part)
        })
        .collect();
    rows += level.len() + top.nodes().len();
    while !level.is_empty() {
        let parts = |(_, b): &(Id, &Branch)| b.branches.len() + b.nodes().len();
        rows += level.iter().map(parts).sum::<usize>();
        if rows > most {
            break;
        }
        open.extend(level.iter().map(|(id, _)| *id));
        level = level
            .into_iter()
            .flat_map(|(id, b)| {
                let parts = b.branches.iter();
                parts.map(move |(step, part)| innermost(branch_id(id, step), part))
            })
            .collect();
    }
    open
}

/// The branch that shares its row with those around it, by its id.
fn innermost(mut id: Id, mut branch: &Branch) -> (Id, &Branch) {
    while let Some((step, part)) = only_part(branch) {
        id = branch_id(id, step);
        branch = part;
    }
    (id, branch)
}
