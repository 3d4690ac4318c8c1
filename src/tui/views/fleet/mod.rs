//! Fleet: every GPU on one screen.
//!
//! One cell a GPU with a gap between nodes, rows by leaf, zone, model or namespace. Shape carries
//! the state and colour the lens. When it does not fit: one cell a node, then one a group.

mod group;
mod layout;
mod paint;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

pub use group::{Group, GroupBy, groups};
pub use layout::Zoom;
pub(crate) use paint::{LEGEND, looks};

use self::group::Owners;
use self::layout::{Item, Layout};
use super::arrears::{Arrears, PART};
use super::describe;
use super::lens::{Glass, Lens, NodeSeen, Owners as HoldingNamespaces, Seen};
use super::node_row::{self, NodeRow, natural_order};
use crate::model::{Cluster, Kind, Str};
use crate::tui::filter::Filter;
use crate::tui::state::{DataState, Placeholder};
use crate::tui::table::moved;
use crate::tui::view::{Act, Ctx, FilterError, Motion, Stamp, Target, View, ViewId};

/// What the layout was last made from, besides the rows.
#[derive(PartialEq)]
struct Made {
    width: u16,
    height: u16,
    at: Option<i64>,
}

/// The view.
#[derive(Default)]
pub struct FleetView {
    lens: Lens,
    /// What the lens shows of each row, in the rows' order; nothing under the lens of allocation.
    seen: Vec<NodeSeen>,
    /// What it shows of each group.
    seen_groups: Vec<Seen>,
    holding: HoldingNamespaces,
    /// What `seen` was made through.
    seen_through: Option<(Lens, i64, usize)>,
    /// All nodes that have GPUs, also those that the filter hides.
    all: Vec<Arc<NodeRow>>,
    rows: Vec<Arc<NodeRow>>,
    /// Nodes that are left out because they have no GPUs.
    without_gpus: HashSet<Str>,
    groups: Vec<Group>,
    owners: Owners,
    layout: Layout,
    /// The zoom in force.
    zoom: Option<Zoom>,
    /// The zoom that was asked for; until then the nearest one that fits.
    asked_zoom: Option<Zoom>,
    group_by: Option<GroupBy>,
    /// A person chose it, so it stays.
    group_picked: bool,
    filter: Filter<NodeRow>,
    filter_text: String,
    /// What the rows were last made from.
    stamp: Option<Stamp>,
    arrears: Arrears<Str>,
    made: Option<Made>,
    /// The layout is to be made anew.
    dirty: bool,
    /// Rows are other ones than those that were looked at through the lens.
    unseen: bool,
    at: usize,
    key: Option<(Str, u32)>,
    /// Marked nodes.
    marks: HashSet<Str>,
    last_mark: Option<Str>,
}

/// Where a node stands among the rows, or where it would.
fn position(rows: &[Arc<NodeRow>], unknown: bool, name: &str) -> Result<usize, usize> {
    rows.binary_search_by(|row| {
        let known_first = row.node.is_none().cmp(&unknown);
        known_first.then_with(|| natural_order(&row.name, name))
    })
}

fn insert(rows: &mut Vec<Arc<NodeRow>>, row: Arc<NodeRow>) {
    let (Ok(at) | Err(at)) = position(rows, row.node.is_none(), &row.name);
    rows.insert(at, row);
}

impl FleetView {
    /// Takes all nodes anew.
    fn take_all(&mut self, cluster: &Cluster) {
        let (rows, without): (Vec<_>, Vec<_>) = node_row::all(cluster)
            .into_iter()
            .partition(NodeRow::has_gpus);
        self.all = rows.into_iter().map(Arc::new).collect();
        self.without_gpus = without.into_iter().map(|r| r.name).collect();
        self.owners.clear();
        self.dirty = true;
    }

    /// Brings rows up to date with the picture, or some of them if many have changed.
    fn catch_up(&mut self, ctx: &Ctx<'_>) {
        let stamp = ctx.stamp();
        if self.stamp.as_ref() != Some(&stamp) {
            let since = self.stamp.as_ref().and_then(|s| s.since(&stamp));
            match since.and_then(|version| ctx.cluster.nodes_changed_since(version)) {
                Some(names) => self.arrears.note(names),
                None => {
                    self.arrears.clear();
                    self.take_all(ctx.cluster);
                }
            }
            self.stamp = Some(stamp);
            self.unseen = true;
        }
        if !self.arrears.is_empty() {
            let names = self.arrears.next(PART);
            self.take(&names, ctx.cluster);
            self.unseen = true;
        }
    }

    /// Takes the nodes that have changed. As long as each stays at its place, so does the map.
    fn take(&mut self, names: &[Str], cluster: &Cluster) {
        let mut in_place = !self.dirty
            && self.filter.is_empty()
            && self.group_by.is_some_and(|by| by != GroupBy::Namespace);
        let mut changed = false;
        for name in names {
            changed = true;
            self.owners.remove(name);
            self.without_gpus.remove(name);
            // Whether the node itself was known is part of the order.
            let old = [false, true]
                .into_iter()
                .find_map(|unknown| position(&self.all, unknown, name).ok());
            let row = node_row::one(cluster, name);
            let (row, without) = match row {
                Some(row) if row.has_gpus() => (Some(Arc::new(row)), false),
                Some(_) => (None, true),
                None => (None, false),
            };
            if without {
                self.without_gpus.insert(name.clone());
            }
            match (old, row) {
                (None, None) => {}
                (Some(at), None) => {
                    self.all.remove(at);
                    in_place = false;
                }
                (None, Some(row)) => {
                    insert(&mut self.all, row);
                    in_place = false;
                }
                (Some(at), Some(row)) => {
                    let same = |old: &Arc<NodeRow>| {
                        layout::cells_of(old) == layout::cells_of(&row) && old.stands_as(&row)
                    };
                    if !self.all.get(at).is_some_and(same) {
                        self.all.remove(at);
                        insert(&mut self.all, row);
                        in_place = false;
                        continue;
                    }
                    // Without a filter both have the same rows.
                    for rows in [Some(&mut self.all), in_place.then_some(&mut self.rows)] {
                        if let Some(place) = rows.and_then(|rows| rows.get_mut(at)) {
                            *place = Arc::clone(&row);
                        }
                    }
                }
            }
        }
        self.dirty |= changed && !in_place;
        if changed && in_place {
            for group in &mut self.groups {
                group.recount(&self.rows);
            }
        }
    }

    fn rebuild(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.rows = if self.filter.is_empty() {
            self.all.clone()
        } else {
            let passes = |r: &&Arc<NodeRow>| self.filter.matches(r, ctx.now, NodeRow::search);
            self.all.iter().filter(passes).cloned().collect()
        };
        // The first nodes may not tell what most of all do.
        let settled = self.group_picked || self.group_by == Some(GroupBy::Leaf);
        if !settled && !self.all.is_empty() {
            self.group_by = Some(GroupBy::choose(&self.all));
        }
        let by = self.group_by.unwrap_or(GroupBy::Model);
        self.groups = group::groups_of(&self.rows, by, &mut self.owners, ctx.cluster);
        let map = paint::map_area(area);
        let lay = |zoom| Layout::of(&self.groups, &self.rows, zoom, map.width, map.height);
        let (zoom, layout) = match self.asked_zoom {
            Some(zoom) => (zoom, lay(zoom)),
            None => {
                let mut zoom = Zoom::Gpu;
                let hopeless = |zoom| Layout::cannot_fit(&self.rows, zoom, map.width, map.height);
                while let (true, Some(farther)) = (hopeless(zoom), zoom.farther()) {
                    zoom = farther;
                }
                let mut layout = lay(zoom);
                while let (false, Some(farther)) = (layout.fits(), zoom.farther()) {
                    zoom = farther;
                    layout = lay(zoom);
                }
                (zoom, layout)
            }
        };
        self.zoom = Some(zoom);
        self.layout = layout;
        self.follow();
        self.keep_marks();
    }

    /// Looks at all rows through the lens. What ages is looked at again each minute.
    fn look(&mut self, ctx: &Ctx<'_>) {
        if self.lens == Lens::Allocation {
            self.seen.clear();
            self.seen_groups.clear();
            self.seen_through = None;
            return;
        }
        self.holding = HoldingNamespaces::of(ctx.figures);
        let glass = Glass {
            lens: self.lens,
            cluster: ctx.cluster,
            owners: &self.holding,
            now: ctx.now,
        };
        self.seen = if self.zoom == Some(Zoom::Gpu) {
            // GPU by GPU takes long on a large fleet: what is not on the screen is not looked at.
            let page = self.page();
            let look = |(at, row): (usize, &Arc<NodeRow>)| match page.contains(&at) {
                true => glass.node(row, layout::cells_of(row)),
                false => NodeSeen::default(),
            };
            self.rows.iter().enumerate().map(look).collect()
        } else {
            let look = |row: &Arc<NodeRow>| glass.whole(row, layout::cells_of(row));
            self.rows.iter().map(look).collect()
        };
        let of_group = |group: &Group| {
            let nodes = group.nodes.iter().filter_map(|n| self.seen.get(*n));
            glass.group(nodes)
        };
        self.seen_groups = if self.zoom == Some(Zoom::Group) {
            self.groups.iter().map(of_group).collect()
        } else {
            Vec::new()
        };
        self.seen_through = Some(self.through(ctx));
    }

    /// What the picture through the lens depends on besides the rows: the lens, the minute for what
    /// ages, and the page.
    fn through(&self, ctx: &Ctx<'_>) -> (Lens, i64, usize) {
        (self.lens, ctx.now.as_second() / 60, self.first_line())
    }

    /// The first line of the page that the cursor is on.
    fn first_line(&self) -> usize {
        let page_lines = self.layout.page_lines();
        self.layout.line_of(self.at) / page_lines * page_lines
    }

    /// The rows on the page that the cursor is on.
    fn page(&self) -> BTreeSet<usize> {
        let lines = self.layout.lines.iter().skip(self.first_line());
        let lines = lines.take(self.layout.page_lines());
        let items = lines.filter_map(|l| self.layout.items.get(l.items.clone()));
        items.flatten().map(|item| item.node).collect()
    }

    /// Whether cells stand for nodes that can be marked.
    fn marks_nodes(&self) -> bool {
        self.zoom.is_some_and(|z| z != Zoom::Group)
    }

    /// Takes away the marks of nodes that are not on the map any more.
    fn keep_marks(&mut self) {
        if !self.marks.is_empty() {
            let there: HashSet<&Str> = self.rows.iter().map(|r| &r.name).collect();
            self.marks.retain(|name| there.contains(name));
        }
    }

    /// Finds the cell of the cursor's key again; if it is gone the cursor stays at its place.
    fn follow(&mut self) {
        let found = self
            .key
            .as_ref()
            .and_then(|(name, gpu)| self.position(name, *gpu));
        let last = self.layout.items.len().saturating_sub(1);
        self.at = found.unwrap_or(self.at).min(last);
        self.remember();
    }

    /// The cell that shows a GPU of a node at the zoom in force.
    fn position(&self, name: &str, gpu: u32) -> Option<usize> {
        let node = self.rows.iter().position(|r| *r.name == *name)?;
        let mut items = self.layout.items.iter();
        match self.zoom {
            Some(Zoom::Group) => {
                let group = self.groups.iter().position(|g| g.nodes.contains(&node))?;
                items.position(|i| i.group == group)
            }
            Some(Zoom::Gpu) => items
                .position(|i| i.node == node && i.gpu == gpu)
                .or_else(|| self.layout.items.iter().position(|i| i.node == node)),
            _ => items.position(|i| i.node == node),
        }
    }

    fn remember(&mut self) {
        let Some(item) = self.layout.items.get(self.at) else {
            return;
        };
        let Some(row) = self.rows.get(item.node) else {
            return;
        };
        // At farther zooms the GPU is kept, so that zooming in again finds it.
        let same = self.key.as_ref().filter(|(name, _)| match self.zoom {
            Some(Zoom::Gpu) => false,
            Some(Zoom::Group) => self.groups.get(item.group).is_some_and(|g| {
                g.nodes
                    .iter()
                    .filter_map(|n| self.rows.get(*n))
                    .any(|r| r.name == *name)
            }),
            _ => *name == row.name,
        });
        if same.is_none() {
            self.key = Some((row.name.clone(), item.gpu));
        }
    }

    fn item(&self) -> Option<&Item> {
        self.layout.items.get(self.at)
    }

    /// The row of the node under the cursor.
    fn row(&self) -> Option<&Arc<NodeRow>> {
        self.item().and_then(|i| self.rows.get(i.node))
    }

    fn placeholder(&self, state: DataState) -> Placeholder<'_> {
        Placeholder {
            state,
            filter: &self.filter_text,
            hidden: self.all.len(),
            awaits: "nodes that have GPUs",
        }
    }
}

impl View for FleetView {
    fn id(&self) -> ViewId {
        ViewId::Fleet
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Node, Kind::Pod]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.catch_up(ctx);
        let made = Made {
            width: area.width,
            height: area.height,
            at: self.filter.by_time().then(|| ctx.now.as_second()),
        };
        let is_new = self.dirty || self.made.as_ref() != Some(&made);
        if is_new {
            self.rebuild(area, ctx);
            self.dirty = false;
        }
        self.made = Some(made);
        let changed = self.lens != Lens::Allocation && self.seen_through != Some(self.through(ctx));
        let left = self.lens == Lens::Allocation && self.seen_through.is_some();
        if is_new || self.unseen || changed || left {
            self.look(ctx);
        }
        self.unseen = false;
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
        let len = self.layout.items.len();
        let page = self.layout.page_lines();
        self.at = match motion {
            Motion::Left => self.at.saturating_sub(1),
            Motion::Right => (self.at + 1).min(len.saturating_sub(1)),
            Motion::First | Motion::Last => moved(self.at, motion, len, 1),
            _ => {
                let line = self.layout.line_of(self.at);
                let to = moved(line, motion, self.layout.lines.len(), page);
                let x = self.item().map_or(0, |i| i.x);
                if to == line {
                    self.at
                } else {
                    self.layout.nearest(to, x).unwrap_or(self.at)
                }
            }
        };
        self.remember();
    }

    fn selected(&self) -> Option<Target> {
        let name = self.row()?.name.clone();
        match self.zoom? {
            Zoom::Gpu => Some(Target::Gpu(name, self.item()?.gpu)),
            Zoom::Node => Some(Target::Node(name)),
            Zoom::Group => None,
        }
    }

    fn select(&mut self, target: &Target) -> bool {
        let (name, gpu) = match target {
            Target::Node(name) => (name, 0),
            Target::Gpu(name, gpu) => (name, *gpu),
            _ => return false,
        };
        let Some(at) = self.position(name, gpu) else {
            return false;
        };
        self.at = at;
        self.key = Some((name.clone(), gpu));
        true
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        describe::target(target, ctx)
    }

    fn count(&self) -> (usize, usize) {
        (self.rows.len(), self.all.len())
    }

    fn filter(&self) -> &str {
        &self.filter_text
    }

    fn set_filter(&mut self, text: &str) -> Result<(), FilterError> {
        self.filter = Filter::parse(text, node_row::FILTER)?;
        text.trim().clone_into(&mut self.filter_text);
        self.dirty = true;
        Ok(())
    }

    fn filter_columns(&self) -> Vec<(&'static str, &'static str)> {
        crate::tui::filter::names(node_row::FILTER)
    }

    fn marks(&self) -> Vec<Target> {
        let marked = self.rows.iter().filter(|r| self.marks.contains(&r.name));
        marked.map(|r| Target::Node(r.name.clone())).collect()
    }

    fn toggle_mark(&mut self) {
        if !self.marks_nodes() {
            return;
        }
        let Some(name) = self.row().map(|r| r.name.clone()) else {
            return;
        };
        if !self.marks.remove(&name) {
            self.marks.insert(name.clone());
        }
        self.last_mark = Some(name);
        let node = self.item().map(|i| i.node);
        let after = self.layout.items.iter().skip(self.at);
        let same = after.take_while(|i| Some(i.node) == node).count();
        if self.at + same < self.layout.items.len() {
            self.at += same;
            self.remember();
        }
    }

    fn mark_range(&mut self) {
        if !self.marks_nodes() {
            return;
        }
        let last = self.last_mark.clone();
        let from = last.and_then(|name| self.position(&name, 0));
        let from = from.unwrap_or(self.at);
        let (low, high) = (from.min(self.at), from.max(self.at));
        for item in self.layout.items.iter().take(high + 1).skip(low) {
            if let Some(row) = self.rows.get(item.node) {
                self.marks.insert(row.name.clone());
            }
        }
        self.last_mark = self.row().map(|r| r.name.clone());
    }

    fn clear_marks(&mut self) {
        self.marks.clear();
        self.last_mark = None;
    }

    fn can(&self, act: Act) -> bool {
        match act {
            Act::ZoomIn => self.zoom.and_then(Zoom::nearer).is_some(),
            Act::ZoomOut => self.zoom.and_then(Zoom::farther).is_some(),
            Act::GroupNext | Act::LensNext => !self.rows.is_empty(),
        }
    }

    fn act(&mut self, act: Act) {
        let Some(zoom) = self.zoom else { return };
        match act {
            Act::ZoomIn => self.asked_zoom = zoom.nearer().or(self.asked_zoom),
            Act::ZoomOut => self.asked_zoom = zoom.farther().or(self.asked_zoom),
            Act::GroupNext => {
                self.group_by = self.group_by.map(GroupBy::next);
                self.group_picked = true;
            }
            // The map stays as it is.
            Act::LensNext => {
                self.lens = self.lens.next();
                return;
            }
        }
        self.dirty = true;
    }

    fn lenses(&self) -> Vec<(&'static str, &'static str)> {
        Lens::ALL.map(|l| (l.name(), l.about())).to_vec()
    }

    fn lens(&self) -> Option<&'static str> {
        Some(self.lens.name())
    }

    fn set_lens(&mut self, name: &str) {
        let found = Lens::ALL.into_iter().find(|l| l.name() == name);
        self.lens = found.unwrap_or(self.lens);
    }

    fn visible_nodes(&self) -> Vec<Str> {
        // Farther away no node is looked at by itself.
        if self.zoom != Some(Zoom::Gpu) {
            return Vec::new();
        }
        let rows = self.page().into_iter().filter_map(|at| self.rows.get(at));
        rows.map(|row| row.name.clone()).collect()
    }

    fn mode(&self) -> Option<String> {
        let by = self.group_by.unwrap_or(GroupBy::Model).name();
        let cell = match self.zoom? {
            Zoom::Gpu => "a GPU",
            Zoom::Node => "a node",
            Zoom::Group => by,
        };
        let cell = if cell == by {
            format!("a cell a {by}")
        } else {
            format!("a cell {cell}, by {by}")
        };
        Some(format!("lens {}, {cell}", self.lens.name()))
    }
}
