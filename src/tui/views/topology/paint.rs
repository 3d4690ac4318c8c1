//! Drawing: what the labels leave open, the figures' headers, and the rows on the screen as items of
//! the tree widget.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::StatefulWidget;
use tui_tree_widget::{Tree as Widget, TreeItem, TreeState};
use unicode_width::UnicodeWidthStr;

use super::TopologyView;
use super::figures::{self, Values, branch_figures, node_figures};
use super::rows::{Id, Shown, What};
use super::tree::{Gaps, Leaf, Step, Sum};
use crate::model::{GpuCell, MigInstance, NodeLinks, truncate_middle};
use crate::tui::format;
use crate::tui::glyphs::Glyph;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::describe::{gpu_in_words, holders_of};
use crate::tui::views::gpu_look;
use crate::tui::views::node_row::NodeRow;

/// Columns of the figures behind the names; those with the largest `drop` go first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    Gpus,
    Free,
    Hole,
    Gangs,
    Crossing,
    Sick,
    Used,
}

/// Header, width, and the order in which they go.
const FIGURES: [(Figure, &str, u16, u8); 7] = [
    (Figure::Gpus, "GPUS", 7, 0),
    (Figure::Used, "USED", 7, 4),
    (Figure::Free, "FREE", 6, 0),
    (Figure::Hole, "BEST HOLE", 9, 1),
    (Figure::Gangs, "GANGS", 5, 2),
    (Figure::Crossing, "CROSS", 5, 3),
    (Figure::Sick, "SICK", 5, 5),
];

/// Columns kept for what is behind the figures: drawings, states, pods.
const NOTES: u16 = 14;
/// Columns of the tree itself at least and at most.
const NAME: (u16, u16) = (26, 64);

struct Plan {
    name: u16,
    figures: Vec<(Figure, &'static str, u16)>,
    notes: u16,
}

fn plan(width: u16) -> Plan {
    let mut figures = FIGURES.to_vec();
    let used = |figures: &[(Figure, &str, u16, u8)]| -> u16 {
        figures.iter().map(|(_, _, width, _)| width + 1).sum()
    };
    while NAME.0 + used(&figures) + NOTES + 1 > width {
        let worst = figures.iter().map(|f| f.3).max().filter(|d| *d > 0);
        let Some(at) = worst.and_then(|w| figures.iter().position(|f| f.3 == w)) else {
            break;
        };
        figures.remove(at);
    }
    let figures_width = used(&figures);
    let rest = width.saturating_sub(figures_width + 1);
    let name = rest
        .saturating_sub(NOTES)
        .min(rest * 3 / 5)
        .clamp(NAME.0, NAME.1);
    let name = name.min(rest);
    Plan {
        name,
        figures: figures.into_iter().map(|(f, h, w, _)| (f, h, w)).collect(),
        notes: rest.saturating_sub(name + 2),
    }
}

/// Lines above the tree: what labels leave open, the job that is lit, the header.
fn lines_above(view: &TopologyView, height: u16) -> u16 {
    match height {
        0..=3 => 0,
        4..=6 => 1,
        _ => 1 + u16::try_from(notes(view).len()).unwrap_or(0),
    }
}

/// The part of the view that the rows get.
pub(super) fn body(view: &TopologyView, area: Rect) -> Rect {
    let above = lines_above(view, area.height);
    Rect {
        y: area.y + above,
        height: area.height - above,
        ..area
    }
}

/// What the labels leave open, in one sentence; nothing when every node says where it hangs.
fn gap_words(gaps: &Gaps) -> Option<String> {
    let of = |n: u32| {
        let (n, all) = (format::count(n.into()), format::count(gaps.nodes.into()));
        format!("{n} of {all} nodes")
    };
    if gaps.nodes == 0 {
        return None;
    }
    if gaps.families.values().all(|n| *n == 0) {
        return Some(
            "fabric unknown: no node has a network label that is known; grouped by zone and model"
                .to_owned(),
        );
    }
    let lacking = gaps.lacking.iter().filter(|(_, n)| **n > 0);
    let mut parts: Vec<String> = lacking
        .map(|(level, n)| format!("{} say no {level}", of(*n)))
        .collect();
    if gaps.untold > 0 {
        let closest = match gaps.closest.iter().filter(|(_, n)| **n > 0).count() {
            1 => gaps
                .closest
                .iter()
                .find(|(_, n)| **n > 0)
                .map_or("switch", |(l, _)| l),
            _ => "switch",
        };
        parts.push(format!("{} say no {closest}", of(gaps.untold)));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What stands above the tree: what all zones have in common, what labels leave open, where the job
/// is that is lit.
fn notes(view: &TopologyView) -> Vec<(String, Meaning)> {
    let mut lines = Vec::new();
    if let Some(step) = &view.common {
        lines.push((
            format!("all zones below {}", step.in_words()),
            Meaning::Muted,
        ));
    }
    lines.extend(gap_words(&view.tree.gaps).map(|words| (words, Meaning::Warn)));
    let lit = view.lit.iter();
    lines.extend(lit.flat_map(|lit| lit.sentences.iter().map(|s| (s.clone(), Meaning::Accent))));
    lines
}

pub(super) fn draw(view: &TopologyView, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>, dim: bool) {
    if area.is_empty() {
        return;
    }
    let body = body(view, area);
    let plan = plan(area.width);
    draw_above(view, area, body.y, &plan, buf, ctx);
    let window = view.rows.iter().enumerate().skip(view.offset);
    let window: Vec<(usize, &Shown)> = window.take(usize::from(body.height)).collect();
    draw_items(view, &window, body, &plan, buf, ctx);
    for (line, (index, row)) in (0u16..).zip(&window) {
        let strip = Rect::new(area.x, body.y + line, area.width, 1);
        let leaf = row.leaf();
        if leaf.is_some_and(|l| view.marks.contains(&l.row.name)) {
            let sign = ctx.glyph(Glyph::Mark);
            buf.set_string(strip.x, strip.y, sign, ctx.style(Meaning::Mark));
        }
        if dim {
            buf.set_style(strip, ctx.style(Meaning::Dim));
        }
        if *index == view.at {
            buf.set_style(strip, ctx.style(Meaning::Selection));
        }
    }
}

fn draw_above(
    view: &TopologyView,
    area: Rect,
    until: u16,
    plan: &Plan,
    buf: &mut Buffer,
    ctx: &Ctx<'_>,
) {
    let width = usize::from(area.width.saturating_sub(2));
    let mut y = area.y;
    for (words, meaning) in notes(view) {
        let words = match meaning {
            Meaning::Accent => format!("{} {words}", ctx.glyph(Glyph::Arrow)),
            _ => words,
        };
        if y + 1 < until {
            let words = format::sentence_within(&words, width);
            buf.set_stringn(area.x + 1, y, &words, width, ctx.style(meaning));
            y += 1;
        }
    }
    if y >= until {
        return;
    }
    let style = ctx.style(Meaning::Header);
    buf.set_stringn(area.x + 3, y, "NETWORK", width, style);
    let mut x = area.x + 1 + plan.name + 1;
    for (_, header, own) in &plan.figures {
        let text = format!("{header:>w$}", w = usize::from(*own));
        if x + own <= area.right() {
            buf.set_stringn(x, y, text, usize::from(*own), style);
        }
        x += own + 1;
    }
}

/// Shows the rows of the window by the widget: they and what is above them in the tree become its
/// items, and the items before the first row are scrolled away.
fn draw_items(
    view: &TopologyView,
    window: &[(usize, &Shown)],
    body: Rect,
    plan: &Plan,
    buf: &mut Buffer,
    ctx: &Ctx<'_>,
) {
    let Some((first, _)) = window.first() else {
        return;
    };
    let above = ancestors(&view.rows, *first);
    let mut builder = Builder {
        state: TreeState::default(),
        path: Vec::new(),
        stack: Vec::new(),
        roots: Vec::new(),
    };
    for row in &above {
        builder.put(row, Line::default());
    }
    for (_, row) in window {
        builder.put(row, line(view, row, plan, ctx));
    }
    builder.close_to(0);
    let Builder {
        mut state, roots, ..
    } = builder;
    state.scroll_down(above.len());
    let (closed, open) = (ctx.glyph(Glyph::Into), ctx.glyph(Glyph::Down));
    let (closed, open) = (format!("{closed} "), format!("{open} "));
    // Ids are hashes of the way to each thing: two alike are as good as impossible.
    let Ok(widget) = Widget::new(&roots) else {
        return;
    };
    let widget = widget
        .style(Style::new())
        .node_closed_symbol(&closed)
        .node_open_symbol(&open)
        .node_no_children_symbol("  ");
    let inner = Rect {
        x: body.x.saturating_add(1),
        width: body.width.saturating_sub(1),
        ..body
    };
    StatefulWidget::render(widget, inner, buf, &mut state);
}

/// The rows that a row is a part of, the outermost first.
fn ancestors(rows: &[Shown], of: usize) -> Vec<&Shown> {
    let mut found = Vec::new();
    let mut depth = rows.get(of).map_or(0, |r| r.depth);
    for row in rows.get(..of).unwrap_or_default().iter().rev() {
        if row.depth < depth {
            depth = row.depth;
            found.push(row);
        }
    }
    found.reverse();
    found
}

/// Makes nested items of rows that come in their order.
struct Builder {
    state: TreeState<Id>,
    path: Vec<Id>,
    /// What is being filled: id, text, items so far, whether it has parts that are not shown.
    stack: Vec<(Id, Line<'static>, Vec<TreeItem<'static, Id>>, bool)>,
    roots: Vec<TreeItem<'static, Id>>,
}

impl Builder {
    fn put(&mut self, row: &Shown, text: Line<'static>) {
        self.close_to(usize::from(row.depth));
        self.path.push(row.id);
        if row.open {
            self.state.open(self.path.clone());
        }
        self.stack.push((row.id, text, Vec::new(), row.parts));
    }

    fn close_to(&mut self, depth: usize) {
        while self.stack.len() > depth {
            let Some((id, text, mut items, parts)) = self.stack.pop() else {
                return;
            };
            self.path.pop();
            // The widget tells a closed branch by its parts: one that is never drawn stands for all.
            if items.is_empty() && parts {
                items.push(TreeItem::new_leaf(0, ""));
            }
            let Ok(item) = TreeItem::new(id, text, items) else {
                continue;
            };
            match self.stack.last_mut() {
                Some((_, _, items, _)) => items.push(item),
                None => self.roots.push(item),
            }
        }
    }
}

/// What a row says behind the sign that opens it.
fn line(view: &TopologyView, row: &Shown, plan: &Plan, ctx: &Ctx<'_>) -> Line<'static> {
    let room = usize::from(plan.name).saturating_sub(usize::from(row.depth) * 2 + 2);
    let mut pen = Pen {
        spans: Vec::new(),
        ctx,
    };
    match &row.what {
        What::Branch {
            step,
            within,
            sum,
            gangs,
            lit,
            ..
        } => {
            let name = branch_name(view, within, step);
            pen.name(&name, room, *lit, None);
            pen.figures(plan, &branch_figures(sum, *gangs));
            pen.note(branch_note(sum), plan.notes);
        }
        What::Node { leaf, gangs } => {
            let row = &leaf.row;
            let lit = lit_pods(view, leaf) > 0;
            pen.name(&row.name, room, lit, links(row));
            pen.figures(plan, &node_figures(leaf, *gangs));
            pen.node_note(view, leaf, plan.notes);
        }
        What::Group(leaf, at) => {
            if let Some(group) = leaf.groups.get(*at) {
                let part = figures::part(leaf, group);
                pen.name(&group.name, room, false, None);
                pen.figures(plan, &figures::of_part(&part));
                pen.text("  ", Meaning::Text);
                let drawn = gpu_look::row(&part, plan.notes.min(24), ctx);
                pen.spans.extend(drawn.spans);
            }
        }
        What::Gpu(leaf, index) => {
            let Some(cell) = leaf.row.cells.get(*index as usize) else {
                return Line::default();
            };
            let (glyph, meaning) = gpu_look::one(cell, &leaf.row);
            pen.signed(glyph, meaning);
            let words = gpu_in_words(&leaf.row, *index);
            let (name, words) = words.split_once(": ").unwrap_or((&words, ""));
            let text = format!("{name}  {words}");
            pen.text(&text, Meaning::Text);
            let pods = who_holds(leaf, *index, None, ctx);
            pen.text(&pods, Meaning::Muted);
        }
        What::Instance(leaf, index, part) => {
            let cell = leaf.row.cells.get(*index as usize);
            let Some(GpuCell::Mig { instances, .. }) = cell else {
                return Line::default();
            };
            let Some(instance) = instances.get(*part) else {
                return Line::default();
            };
            pen.instance(instance);
            let pods = who_holds(leaf, *index, Some(*part), ctx);
            pen.text(&pods, Meaning::Muted);
        }
    }
    Line::from(pen.spans)
}

/// A branch with those that share its row, but for the one that all zones hang below.
fn branch_name(view: &TopologyView, within: &[Step], step: &Step) -> String {
    let is_common = |step: &Step, depth: usize| depth == 1 && view.common.as_ref() == Some(step);
    let all = within.iter().chain([step]).enumerate();
    let told: Vec<&Step> = all
        .filter(|(depth, step)| !is_common(step, *depth))
        .map(|(_, step)| step)
        .collect();
    match told.as_slice() {
        [one] => one.in_words(),
        several => {
            let words: Vec<String> = several.iter().map(|step| step.in_short()).collect();
            words.join(" / ")
        }
    }
}

/// Whose pods hold a GPU, or an instance of it, and that the device is not known where nobody tells.
fn who_holds(leaf: &Leaf, index: u32, part: Option<usize>, ctx: &Ctx<'_>) -> String {
    let row = &leaf.row;
    let all = ctx.cluster.holders(&row.name, &row.cells);
    let Some(holders) = all.get(index as usize) else {
        return String::new();
    };
    let cut = matches!(row.cells.get(index as usize), Some(GpuCell::Mig { .. }));
    if cut && part.is_none() {
        return String::new();
    }
    let names = holders_of(row, index, part, holders);
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("  {one}"),
        [one, rest @ ..] => format!("  {one} and {} more", format::count_of(rest.len())),
    }
}

fn lit_pods(view: &TopologyView, leaf: &Leaf) -> u32 {
    view.lit.as_ref().map_or(0, |lit| leaf.held.of(lit.gang))
}

/// What links the node's GPUs, by their model.
fn links(row: &NodeRow) -> Option<String> {
    let model = row.node.as_ref()?.gpus.model.as_ref()?;
    NodeLinks::of(model, row.gpus()?).map(NodeLinks::name)
}

fn branch_note(sum: &Sum) -> String {
    let mut parts = vec![match sum.nodes {
        1 => "1 node".to_owned(),
        n => format!("{} nodes", format::count(n.into())),
    }];
    if sum.closed > 0 {
        parts.push(format!("{} closed", format::count(sum.closed.into())));
    }
    if sum.unknown > 0 && sum.unknown < sum.nodes {
        parts.push(format!("{} not known", format::count(sum.unknown.into())));
    }
    parts.join(", ")
}

/// Writes the parts of a line one behind the other.
struct Pen<'a> {
    spans: Vec<Span<'static>>,
    ctx: &'a Ctx<'a>,
}

impl Pen<'_> {
    fn put(&mut self, text: impl Into<String>, meaning: Meaning) {
        self.spans
            .push(Span::styled(text.into(), self.ctx.style(meaning)));
    }

    fn text(&mut self, text: &str, meaning: Meaning) {
        self.put(text, meaning);
    }

    fn signed(&mut self, glyph: Glyph, meaning: Meaning) {
        self.put(self.ctx.glyph(glyph), meaning);
        self.put(" ", Meaning::Text);
    }

    /// The name in exactly `room` columns, with what links its GPUs behind it if that fits.
    fn name(&mut self, name: &str, room: usize, lit: bool, links: Option<String>) {
        let shown = truncate_middle(name, room).into_owned();
        let mut left = room.saturating_sub(shown.width());
        let meaning = if lit { Meaning::Accent } else { Meaning::Text };
        self.put(shown, meaning);
        if let Some(links) = links.filter(|l| l.width() + 2 <= left) {
            left -= links.width() + 2;
            self.put(format!("  {links}"), Meaning::Muted);
        }
        self.put(" ".repeat(left), Meaning::Text);
    }

    fn figures(&mut self, plan: &Plan, values: &Values) {
        for (figure, _, width) in &plan.figures {
            let (text, meaning) = self.figure(*figure, values);
            let pad = usize::from(*width).saturating_sub(text.width());
            self.put(format!(" {}{text}", " ".repeat(pad)), meaning);
        }
    }

    fn figure(&self, figure: Figure, values: &Values) -> (String, Meaning) {
        let unknown = || (self.ctx.glyph(Glyph::Unknown).to_owned(), Meaning::Unknown);
        let blank = || (String::new(), Meaning::Muted);
        let nothing =
            |text: String, none: bool| (text, if none { Meaning::Muted } else { Meaning::Text });
        match figure {
            Figure::Gpus => values
                .gpus
                .map_or_else(unknown, |n| (format::count(n.into()), Meaning::Text)),
            Figure::Used => values
                .used
                .map_or_else(unknown, |n| nothing(format::amount(n), n <= 0.0)),
            Figure::Free => values
                .free
                .map_or_else(unknown, |n| nothing(format::amount(n), n <= 0.0)),
            Figure::Hole => values.hole.map_or_else(unknown, |(size, nodes)| {
                let text = match (size, nodes) {
                    (0, _) => "0".to_owned(),
                    (size, 0 | 1) => size.to_string(),
                    (size, nodes) => format!("{size} ×{}", format::count(nodes.into())),
                };
                nothing(text, size == 0)
            }),
            Figure::Gangs => values
                .gangs
                .map_or_else(blank, |(n, _)| nothing(format::count(n.into()), n == 0)),
            Figure::Crossing => values
                .gangs
                .map_or_else(blank, |(_, n)| nothing(format::count(n.into()), n == 0)),
            Figure::Sick if values.sick > 0.0 => (format::amount(values.sick), Meaning::Sick),
            Figure::Sick => blank(),
        }
    }

    fn note(&mut self, note: String, width: u16) {
        let note = format::sentence_within(&note, usize::from(width)).into_owned();
        self.put(format!("  {note}"), Meaning::Muted);
    }

    /// The GPUs drawn, the state if it is not the best, the pods of the job that is lit.
    fn node_note(&mut self, view: &TopologyView, leaf: &Leaf, width: u16) {
        let row = &leaf.row;
        self.put("  ", Meaning::Text);
        let drawn = gpu_look::row(row, width.min(24), self.ctx);
        let mut left = usize::from(width).saturating_sub(drawn.width());
        self.spans.extend(drawn.spans);
        let pods = lit_pods(view, leaf);
        let mut words = Vec::new();
        if pods > 0 {
            let arrow = if self.ctx.glyphs.ascii { "<-" } else { "←" };
            let key = view.lit.as_ref().and_then(|l| view.tree.gangs.key(l.gang));
            let name = key.map_or("", |k| &*k.name);
            words.push((format!("{arrow} {name} ×{pods}"), Meaning::Accent));
        }
        if row.severity != crate::tui::views::node_row::Severity::Ready {
            words.push((row.state.clone(), row.severity.meaning()));
        }
        for (text, meaning) in words {
            let shown = format::sentence_within(&text, left.saturating_sub(1)).into_owned();
            if shown.is_empty() || left < 4 {
                return;
            }
            left = left.saturating_sub(shown.width() + 1);
            self.put(format!(" {shown}"), meaning);
        }
    }

    fn instance(&mut self, instance: &MigInstance) {
        let (glyph, meaning, words) = if instance.used {
            (Glyph::GpuUsed, Meaning::Mig, "held")
        } else if instance.sick {
            (
                Glyph::GpuSick,
                Meaning::Sick,
                "sick: the node does not give it out",
            )
        } else {
            (Glyph::GpuFree, Meaning::Free, "free")
        };
        self.signed(glyph, meaning);
        let slices = match instance.width {
            1 => "1 memory slice".to_owned(),
            n => format!("{n} memory slices"),
        };
        let text = format!("{}  {slices}, {words}", instance.profile);
        self.text(&text, Meaning::Text);
    }
}
