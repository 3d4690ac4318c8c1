//! Topology: the network as a tree, from the widest switch down to MIG instances.
//!
//! Each line tells what is free below it, the largest hole, and which gangs have pods there and
//! elsewhere. Only the rows on the screen are made into items of the widget.

mod better;
mod domain;
mod figures;
mod gangs;
mod job;
mod paint;
mod rows;
mod tree;

use std::collections::HashSet;
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use self::gangs::Tally;
use self::job::Lit;
use self::rows::{Flatten, Id, Shown, What};
use self::tree::{Step, Tree};
use super::arrears::{Arrears, PART};
use super::describe;
use super::node_row::{self, NodeRow};
use crate::model::{Cluster, Kind, Str, WorkloadKey};
use crate::tui::filter::Filter;
use crate::tui::state::{DataState, Placeholder};
use crate::tui::table::moved;
use crate::tui::view::{Act, Ctx, FilterError, Motion, Stamp, Target, View, ViewId};

/// What the tree was last made from.
#[derive(PartialEq)]
struct Made {
    stamp: Stamp,
    at: Option<i64>,
}

/// The view.
#[derive(Default)]
pub struct TopologyView {
    tree: Tree,
    rows: Vec<Shown>,
    /// What is open, also of what is not there now.
    open: HashSet<Id>,
    /// Whether a person has opened or closed something: until then as much is open as fits.
    chosen: bool,
    /// The height that was opened for.
    opened_for: usize,
    filter: Filter<NodeRow>,
    filter_text: String,
    made: Option<Made>,
    arrears: Arrears<Str>,
    /// The tree has had all nodes once.
    complete: bool,
    /// The filter has changed.
    unfiltered: bool,
    /// Rows have to be put together anew.
    dirty: bool,
    at: usize,
    offset: usize,
    page: usize,
    key: Option<Id>,
    /// A node that the cursor is to be put on when its row is there.
    wanted: Option<Id>,
    /// Marked nodes.
    marks: HashSet<Str>,
    last_mark: Option<Str>,
    lit: Option<Lit>,
    /// The job that was asked for, lit or not.
    lit_job: Option<WorkloadKey>,
    /// The switch that all zones hang below: it is told once.
    common: Option<Step>,
}

impl TopologyView {
    /// Brings so many nodes of the tree up to date with the cluster and the filter.
    fn take(&mut self, ctx: &Ctx<'_>, at_most: usize) {
        let made = Made {
            stamp: ctx.stamp(),
            at: self.filter.by_time().then(|| ctx.now.as_second()),
        };
        let cluster = ctx.cluster;
        let filter = &self.filter;
        let passes =
            |row: &NodeRow| filter.is_empty() || filter.matches(row, ctx.now, NodeRow::search);
        let stamp_is_old = self.made.as_ref().is_none_or(|m| m.stamp != made.stamp);
        if stamp_is_old {
            let since = self.made.as_ref().and_then(|m| m.stamp.since(&made.stamp));
            let changed = since
                .filter(|_| !self.tree.gangs.is_worn())
                .and_then(|version| cluster.nodes_changed_since(version));
            match changed {
                Some(names) => self.arrears.note(names),
                None => {
                    self.complete = false;
                    self.tree = Tree::over(filter.is_empty());
                    self.arrears.clear();
                    self.arrears.note(node_row::names(cluster));
                    self.dirty = true;
                }
            }
        }
        if !self.arrears.is_empty() {
            let names = self.arrears.next(at_most).into_iter();
            let changes = names.map(|name| {
                let row = node_row::one(cluster, &name);
                (name, row)
            });
            let changes = changes.collect();
            self.tree.take(changes, cluster, passes);
            self.dirty = true;
        }
        let time_has_passed = self.made.as_ref().is_some_and(|m| m.at != made.at);
        if self.unfiltered || time_has_passed {
            self.tree.filter(filter.is_empty(), passes);
            self.unfiltered = false;
            self.dirty = true;
        }
        self.made = Some(made);
        self.complete |= self.arrears.is_empty();
    }

    /// Puts the rows together, and finds the cursor's again.
    fn flatten(&mut self) {
        if !self.chosen {
            self.open = rows::opening(&self.tree.top, self.opened_for);
        }
        let mut flatten = Flatten {
            open: &self.open,
            // What a filter leaves is to be seen, if it is not too much.
            all_branches: !self.filter.is_empty()
                && self.tree.top.sum.nodes as usize <= self.opened_for.saturating_mul(4),
            folds: true,
            gangs: &self.tree.gangs,
            tally: Tally::default(),
            lit: self.lit.as_ref().map(|lit| lit.gang),
            rows: Vec::with_capacity(self.rows.len()),
        };
        flatten.tree(&self.tree.top);
        self.rows = flatten.rows;
        self.common = rows::common(&self.tree.top);
        let key = self.wanted.take().or(self.key);
        let is = |row: &Shown, key: Id| row.id == key || row.shares.contains(&key);
        if let Some(at) = key.and_then(|key| self.rows.iter().position(|r| is(r, key))) {
            self.at = at;
        }
        self.go_to(self.at);
        if !self.marks.is_empty() {
            let tree = &self.tree;
            self.marks.retain(|name| tree.leaf(name).is_some());
        }
    }

    fn go_to(&mut self, at: usize) {
        self.at = at.min(self.rows.len().saturating_sub(1));
        self.key = self.rows.get(self.at).map(|r| r.id);
    }

    fn row(&self) -> Option<&Shown> {
        self.rows.get(self.at)
    }

    /// Opens or closes the row under the cursor; false if nothing is below it.
    fn set_open(&mut self, open: bool) -> bool {
        let Some(row) = self.row().filter(|r| r.parts && r.open != open) else {
            return false;
        };
        let id = row.id;
        if open {
            // Groups are few, and nobody opens a node to see their names alone.
            if let What::Node { leaf, .. } = &row.what {
                let groups = 0..leaf.groups.len();
                let ids: Vec<Id> = groups
                    .map(|at| rows::group_id(&leaf.row.name, at))
                    .collect();
                self.open.extend(ids);
            }
            self.open.insert(id);
        } else {
            self.open.remove(&id);
        }
        self.chosen = true;
        self.dirty = true;
        true
    }

    /// The row that the one under the cursor is a part of.
    fn above(&self) -> Option<usize> {
        let depth = self.row()?.depth;
        let before = self.rows.get(..self.at)?;
        before.iter().rposition(|r| r.depth < depth)
    }

    /// Opens all rows of the closest level that has closed ones, or closes all of the deepest open.
    fn level(&mut self, open: bool) {
        let depths = self.rows.iter().filter(|r| r.parts && r.open != open);
        let depths = depths.map(|r| r.depth);
        let Some(depth) = (if open { depths.min() } else { depths.max() }) else {
            return;
        };
        let rows = self.rows.iter().filter(|r| r.parts && r.depth == depth);
        for id in rows.map(|r| r.id).collect::<Vec<_>>() {
            if open {
                self.open.insert(id);
            } else {
                self.open.remove(&id);
            }
        }
        self.chosen = true;
        self.dirty = true;
    }

    fn placeholder(&self, state: DataState) -> Placeholder<'_> {
        Placeholder {
            state,
            filter: &self.filter_text,
            hidden: self.tree.len(),
            awaits: "nodes that have GPUs, by the switches above them",
        }
    }

    /// Puts the cursor on a branch, given the way to it in words.
    fn select_domain(&mut self, way: &str) -> bool {
        let mut ids = Vec::new();
        let mut at = &self.tree.top;
        let mut rest = way;
        while !rest.is_empty() {
            let Some((step, part, after)) = at.below(rest) else {
                return false;
            };
            ids.push(rows::branch_id(
                ids.last().copied().unwrap_or(rows::TOP),
                step,
            ));
            at = part;
            rest = after;
        }
        let Some(id) = ids.pop() else { return false };
        if ids.iter().any(|id| !self.open.contains(id)) {
            self.open.extend(ids);
            self.chosen = true;
        }
        self.wanted = Some(id);
        self.dirty = true;
        true
    }

    fn mark(&mut self, at: usize) {
        if let Some(leaf) = self.rows.get(at).and_then(Shown::leaf) {
            self.marks.insert(leaf.row.name.clone());
        }
    }
}

impl View for TopologyView {
    fn id(&self) -> ViewId {
        ViewId::Topology
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Node, Kind::Pod]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        // A part of the nodes is not shown for all of them.
        let at_most = if self.complete { PART } else { usize::MAX };
        self.take(ctx, at_most);
        let job: Option<&WorkloadKey> = ctx.job;
        if self.dirty || self.lit_job.as_ref() != job {
            let lit = job.and_then(|job| Lit::of(job, &self.tree, ctx.cluster));
            // Rows tell what has pods of it.
            self.dirty |= lit.as_ref().map(|l| l.gang) != self.lit.as_ref().map(|l| l.gang);
            self.lit = lit;
            self.lit_job = job.cloned();
        }
        let body = paint::body(self, area);
        let height = usize::from(body.height);
        if !self.chosen && self.opened_for != height {
            self.opened_for = height;
            self.dirty = true;
        }
        if self.dirty {
            self.flatten();
            self.dirty = false;
        }
        self.page = height.max(1);
        if self.at < self.offset {
            self.offset = self.at;
        } else if self.at >= self.offset + self.page {
            self.offset = self.at + 1 - self.page;
        }
        self.offset = self.offset.min(self.rows.len().saturating_sub(self.page));
    }

    fn prepare(&mut self, area: Rect, ctx: &Ctx<'_>) {
        if !self.complete {
            self.take(ctx, PART);
        }
        if self.complete {
            self.refresh(area, ctx);
        }
    }

    fn lags(&self) -> bool {
        !self.arrears.is_empty()
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        let state = DataState::of(ctx.cluster, Kind::Node);
        if self.rows.is_empty() {
            self.placeholder(state).draw(area, buf, ctx);
            return;
        }
        let dim = matches!(state, DataState::Stale(..));
        paint::draw(self, area, buf, ctx, dim);
    }

    fn motion(&mut self, motion: Motion) {
        match motion {
            Motion::Right => {
                if !self.set_open(true) && self.row().is_some_and(|r| r.parts) {
                    self.go_to(self.at + 1);
                }
            }
            Motion::Left => {
                if !self.set_open(false)
                    && let Some(above) = self.above()
                {
                    self.go_to(above);
                }
            }
            _ => self.go_to(moved(self.at, motion, self.rows.len(), self.page)),
        }
    }

    fn selected(&self) -> Option<Target> {
        match &self.row()?.what {
            What::Branch { way, .. } => Some(Target::Domain(way.clone())),
            What::Node { leaf, .. } | What::Group(leaf, _) => {
                Some(Target::Node(leaf.row.name.clone()))
            }
            What::Gpu(leaf, index) | What::Instance(leaf, index, _) => {
                Some(Target::Gpu(leaf.row.name.clone(), *index))
            }
        }
    }

    fn select(&mut self, target: &Target) -> bool {
        let (name, gpu) = match target {
            Target::Node(name) => (name, None),
            Target::Gpu(name, gpu) => (name, Some(*gpu)),
            Target::Domain(way) => return self.select_domain(way),
            _ => return false,
        };
        let Some(leaf) = self.tree.leaf(name).map(Arc::clone) else {
            return false;
        };
        let passes = |above: &tree::Branch| {
            let mut at = above;
            for step in &leaf.path {
                match at.branches.get(step) {
                    Some(next) => at = next,
                    None => return false,
                }
            }
            at.nodes().any(|l| l.row.name == leaf.row.name)
        };
        if !passes(&self.tree.top) {
            return false;
        }
        let mut way = rows::way_to(&leaf);
        way.extend(gpu.map(|_| rows::node_id(name)));
        way.extend(gpu.and_then(|gpu| rows::group_of(&leaf, gpu)));
        if way.iter().any(|id| !self.open.contains(id)) {
            self.open.extend(way);
            self.chosen = true;
        }
        let gpu = gpu.filter(|index| (*index as usize) < leaf.row.cells.len());
        self.wanted = Some(match gpu {
            Some(index) => rows::gpu_id(name, index),
            None => rows::node_id(name),
        });
        self.dirty = true;
        true
    }

    fn visible_nodes(&self) -> Vec<Str> {
        let window = self.rows.iter().skip(self.offset).take(self.page);
        let mut names: Vec<Str> = window
            .filter_map(|r| Some(r.leaf()?.row.name.clone()))
            .collect();
        names.dedup();
        names
    }

    fn enter(&mut self) -> bool {
        let Some(row) = self.row() else { return false };
        if !matches!(row.what, What::Branch { .. }) {
            return false;
        }
        let open = !row.open;
        self.set_open(open)
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        match target {
            Target::Domain(way) => {
                let (branch, step) = self.tree.top.find(way)?;
                Some(domain::describe(branch, step, way, &self.tree.gangs, ctx))
            }
            _ => describe::target(target, ctx),
        }
    }

    fn count(&self) -> (usize, usize) {
        (self.tree.top.sum.nodes as usize, self.tree.len())
    }

    fn filter(&self) -> &str {
        &self.filter_text
    }

    fn set_filter(&mut self, text: &str) -> Result<(), FilterError> {
        self.filter = Filter::parse(text, node_row::FILTER)?;
        text.trim().clone_into(&mut self.filter_text);
        self.unfiltered = true;
        Ok(())
    }

    fn filter_columns(&self) -> Vec<(&'static str, &'static str)> {
        crate::tui::filter::names(node_row::FILTER)
    }

    fn marks(&self) -> Vec<Target> {
        let mut names: Vec<&Str> = self.marks.iter().collect();
        names.sort_by(|a, b| node_row::natural_order(a, b));
        names.into_iter().map(|n| Target::Node(n.clone())).collect()
    }

    fn toggle_mark(&mut self) {
        let Some(name) = self.row().and_then(Shown::leaf).map(|l| l.row.name.clone()) else {
            return;
        };
        if !self.marks.remove(&name) {
            self.marks.insert(name.clone());
        }
        self.last_mark = Some(name);
        self.go_to(self.at + 1);
    }

    fn mark_range(&mut self) {
        let last = self.last_mark.as_ref().map(|name| rows::node_id(name));
        let from = last.and_then(|id| self.rows.iter().position(|r| r.id == id));
        let from = from.unwrap_or(self.at);
        for at in from.min(self.at)..=from.max(self.at) {
            self.mark(at);
        }
        let name = self.row().and_then(Shown::leaf).map(|l| l.row.name.clone());
        self.last_mark = name;
    }

    fn clear_marks(&mut self) {
        self.marks.clear();
        self.last_mark = None;
    }

    fn can(&self, act: Act) -> bool {
        let closed = |open: bool| self.rows.iter().any(|r| r.parts && r.open == open);
        match act {
            Act::ZoomIn => closed(false),
            Act::ZoomOut => closed(true),
            _ => false,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::ZoomIn => self.level(true),
            Act::ZoomOut => self.level(false),
            _ => {}
        }
    }

    fn mode(&self) -> Option<String> {
        let families: Vec<&str> = self.tree.gaps.families.keys().map(|f| &**f).collect();
        Some(match families.as_slice() {
            [] => "fabric unknown".to_owned(),
            [one] => format!("fabric by {one}"),
            many => format!("fabric by {} label families", many.len()),
        })
    }
}

/// The branches of the network with the sums of those nodes that pass, each before its parts.
pub(crate) fn branches(rows: Vec<NodeRow>, cluster: &Cluster) -> Vec<BranchRow> {
    let mut tree = Tree::over(true);
    let rows = rows.into_iter().map(|row| (row.name.clone(), Some(row)));
    tree.take(rows.collect(), cluster, |_| true);
    let mut flatten = Flatten {
        open: &HashSet::new(),
        all_branches: true,
        folds: false,
        gangs: &tree.gangs,
        tally: Tally::default(),
        lit: None,
        rows: Vec::new(),
    };
    flatten.tree(&tree.top);
    let rows = flatten.rows.into_iter().filter_map(|row| match row.what {
        What::Branch {
            step,
            way,
            sum,
            gangs: (gangs, crossing),
            ..
        } => {
            let known = sum.unknown < sum.nodes;
            Some(BranchRow {
                depth: row.depth,
                level: step.level.name().to_owned(),
                name: step.name,
                way,
                nodes: sum.nodes,
                gpus: sum.gpus,
                used: known.then_some(sum.used),
                free: known.then_some(sum.free),
                hole: known.then_some(sum.hole),
                gangs,
                crossing,
            })
        }
        _ => None,
    });
    rows.collect()
}

/// A branch as `gpudeck snapshot` prints it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BranchRow {
    /// How many branches it is a part of.
    pub(crate) depth: u16,
    /// What it is.
    pub(crate) level: String,
    /// Its name.
    pub(crate) name: Str,
    /// The way to it from the top, in words.
    pub(crate) way: Str,
    /// Nodes with GPUs below it.
    pub(crate) nodes: u32,
    /// Their physical GPUs.
    pub(crate) gpus: u32,
    /// Held, in whole-GPU equivalents.
    pub(crate) used: Option<f64>,
    /// To be had, in whole-GPU equivalents.
    pub(crate) free: Option<f64>,
    /// The most whole GPUs that are free on one node, and on how many nodes.
    pub(crate) hole: Option<(u32, u32)>,
    /// Gangs with a pod in it.
    pub(crate) gangs: u32,
    /// Those of them that have another one elsewhere.
    pub(crate) crossing: u32,
}
