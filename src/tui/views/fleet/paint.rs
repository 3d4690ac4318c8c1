//! Drawing of the map, its legend and the line that tells the cell under the cursor.

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::group::Group;
use super::layout::{Item, MapLine, Zoom};
use super::{FleetView, Lens, Seen, layout};
use crate::model::truncate_middle;
use crate::tui::format;
use crate::tui::glyphs::Glyph;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::describe::gpu_in_words;
use crate::tui::views::gpu_look::{self, Look};
use crate::tui::views::lens;
use crate::tui::views::node_row::NodeRow;

/// The signs of GPUs, what they mean and their names.
pub(crate) const LEGEND: [(Glyph, Meaning, &str); 8] = [
    (Glyph::GpuUsed, Meaning::Used, "whole"),
    (Glyph::GpuMig, Meaning::Mig, "sliced"),
    (Glyph::GpuMigAlt, Meaning::Free, "sliced, free"),
    (Glyph::GpuShared, Meaning::Shared, "shared"),
    (Glyph::GpuFree, Meaning::Free, "free"),
    (Glyph::GpuSick, Meaning::Sick, "sick"),
    (Glyph::GpuCordoned, Meaning::Cordoned, "cordoned"),
    (Glyph::GpuUnknown, Meaning::Unknown, "unknown"),
];

/// Screens narrower than this say the lens below the map.
const NAMES_ITS_LENS: u16 = 112;

/// Lines below the map: legend and description, as far as there is room.
fn lines_below(height: u16) -> u16 {
    match height {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    }
}

/// The part of the view that the map gets. A column on each side is left free.
pub(super) fn map_area(area: Rect) -> Rect {
    Rect {
        x: area.x.saturating_add(1).min(area.right()),
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(lines_below(area.height)),
        ..area
    }
}

/// The sign of a GPU of a node: its state.
fn gpu(row: &NodeRow, index: u32) -> Look {
    match row.cells.get(index as usize) {
        Some(cell) => gpu_look::one(cell, row),
        // Of a node that may not be seen, what is held is known.
        None if row.node.is_none() && f64::from(index) < row.used_gpus.unwrap_or(0.0) => {
            (Glyph::GpuUsed, Meaning::Used)
        }
        None => (Glyph::GpuUnknown, Meaning::Unknown),
    }
}

/// A node's GPUs as the lens of allocation shows them.
pub(crate) fn looks(row: &NodeRow) -> impl Iterator<Item = Look> {
    let cells = u32::try_from(layout::cells_of(row)).unwrap_or(1);
    (0..cells).map(|index| gpu(row, index))
}

fn group(group: &Group) -> Look {
    if group.gpus == 0 {
        return (Glyph::GpuUnknown, Meaning::Unknown);
    }
    gpu_look::filled(gpu_look::share(group.used_gpus, group.gpus))
}

pub(super) fn draw(view: &FleetView, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>, dim: bool) {
    if area.is_empty() {
        return;
    }
    let map = map_area(area);
    let layout = &view.layout;
    let page_lines = layout.page_lines();
    let first = layout.line_of(view.at) / page_lines * page_lines;
    let height = usize::from(layout.column_height).max(1);
    let lines = layout.lines.iter().skip(first).take(page_lines);
    for (place, line) in lines.enumerate() {
        let column = u16::try_from(place / height).unwrap_or(u16::MAX);
        let y = u16::try_from(place % height).unwrap_or(u16::MAX);
        let step = layout.column_width.saturating_add(3);
        let x = map.x.saturating_add(column.saturating_mul(step));
        let y = map.y.saturating_add(y);
        if y < map.bottom() && x < map.right() {
            let strip = Rect::new(x, y, layout.column_width.min(map.right() - x), 1);
            draw_line(view, line, place % height == 0, strip, buf, ctx);
        }
    }
    if dim {
        buf.set_style(map, ctx.style(Meaning::Dim));
    }
    draw_cursor(view, first, map, buf, ctx);
    draw_below(view, area, buf, ctx);
}

fn draw_line(
    view: &FleetView,
    line: &MapLine,
    at_top: bool,
    strip: Rect,
    buf: &mut Buffer,
    ctx: &Ctx<'_>,
) {
    let label_width = usize::from(view.layout.label_width);
    // A group that goes on in the next screen column is named again there.
    if let Some(group) = line.group.and_then(|g| view.groups.get(g))
        && (line.begins || at_top)
    {
        let label = truncate_middle(&group.label, label_width);
        buf.set_stringn(
            strip.x,
            strip.y,
            &label,
            usize::from(strip.width),
            ctx.style(Meaning::Muted),
        );
    }
    for item in view
        .layout
        .items
        .get(line.items.clone())
        .unwrap_or_default()
    {
        let x = strip.x.saturating_add(item.x);
        if x >= strip.right() {
            break;
        }
        if line.group.is_none() && label_width > 0 {
            let label = view.groups.get(item.group).map_or("", |g| &g.label);
            let from = x.saturating_sub(view.layout.label_width + 1);
            let label = truncate_middle(label, label_width);
            buf.set_string(from, strip.y, &label, ctx.style(Meaning::Muted));
        }
        let (symbol, style) = drawn(view, item, ctx);
        if let Some(cell) = buf.cell_mut((x, strip.y)) {
            cell.set_symbol(symbol);
            cell.set_style(style);
        }
        draw_mark(view, item, (x, strip.y), buf, ctx);
    }
}

/// A marked node: a bar in the gap before it, or underlined where there is no gap.
fn draw_mark(view: &FleetView, item: &Item, at: (u16, u16), buf: &mut Buffer, ctx: &Ctx<'_>) {
    let marked = view
        .rows
        .get(item.node)
        .is_some_and(|row| view.marks.contains(&row.name));
    if !marked || view.zoom == Some(Zoom::Group) {
        return;
    }
    let style = ctx.style(Meaning::Mark);
    if view.zoom == Some(Zoom::Node) {
        if let Some(cell) = buf.cell_mut(at) {
            cell.set_style(style.add_modifier(Modifier::UNDERLINED));
        }
    } else if item.gpu == 0
        && let Some(cell) = buf.cell_mut((at.0.saturating_sub(1), at.1))
    {
        cell.set_symbol(ctx.glyph(Glyph::Mark));
        cell.set_style(style);
    }
}

fn look(view: &FleetView, item: &Item) -> Look {
    let unknown = (Glyph::GpuUnknown, Meaning::Unknown);
    match view.zoom {
        Some(Zoom::Group) => view.groups.get(item.group).map_or(unknown, group),
        Some(Zoom::Node) => {
            let row = view.rows.get(item.node);
            row.map_or(unknown, |row| gpu_look::of_node(row))
        }
        _ => {
            let row = view.rows.get(item.node);
            row.map_or(unknown, |row| gpu(row, item.gpu))
        }
    }
}

/// What the lens shows of a cell; nothing under the lens of allocation.
fn seen<'v>(view: &'v FleetView, item: &Item) -> Option<&'v Seen> {
    match view.zoom {
        Some(Zoom::Group) => view.seen_groups.get(item.group),
        Some(Zoom::Node) => view.seen.get(item.node).map(|n| &n.whole),
        _ => view.seen.get(item.node)?.gpus.get(item.gpu as usize),
    }
}

/// A cell as it is drawn: its state by its shape, what the lens tells by its colour. Where there are
/// no colours the lens' sign takes the place of what is well: what is not keeps its shape.
fn drawn(view: &FleetView, item: &Item, ctx: &Ctx<'_>) -> (&'static str, Style) {
    let (glyph, meaning) = look(view, item);
    let Some(seen) = seen(view, item) else {
        return (ctx.glyph(glyph), ctx.style(meaning));
    };
    let mono = lens::is_mono(ctx.theme);
    let ill = matches!(
        glyph,
        Glyph::GpuSick | Glyph::GpuCordoned | Glyph::GpuUnknown
    );
    match seen {
        Seen::Value(tint, _) if mono && !ill => (tint.sign, ctx.style(meaning)),
        Seen::Value(tint, _) => (ctx.glyph(glyph), ctx.style(tint.meaning)),
        Seen::Nothing(_) => (ctx.glyph(glyph), ctx.style(Meaning::Free)),
        Seen::Unknown(_) if ill => (ctx.glyph(glyph), ctx.style(Meaning::Unknown)),
        Seen::Unknown(_) => (ctx.glyph(Glyph::Unknown), ctx.style(Meaning::Unknown)),
    }
}

/// The cell under the cursor: in the selection's colours, turned round where the page would show
/// through, so that a dot in a large map is seen. A selection with both colours of its own shows
/// the second one: the first is there to be read on it, and may be the page's.
fn draw_cursor(view: &FleetView, first: usize, map: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
    let layout = &view.layout;
    let Some(item) = layout.items.get(view.at) else {
        return;
    };
    let place = layout.line_of(view.at).saturating_sub(first);
    let height = usize::from(layout.column_height).max(1);
    let column = u16::try_from(place / height).unwrap_or(u16::MAX);
    let step = layout.column_width.saturating_add(3);
    let x = map
        .x
        .saturating_add(column.saturating_mul(step))
        .saturating_add(item.x);
    let y = map
        .y
        .saturating_add(u16::try_from(place % height).unwrap_or(u16::MAX));
    if x >= map.right() || y >= map.bottom() {
        return;
    }
    let (symbol, _) = drawn(view, item, ctx);
    let mut style = Style::reset().patch(ctx.style(Meaning::Selection));
    let is_full = symbol == ctx.glyph(Glyph::GpuUsed);
    if is_full == (style.fg != Style::reset().fg && style.bg != Style::reset().bg) {
        style = style.add_modifier(Modifier::REVERSED);
    }
    if let Some(cell) = buf.cell_mut((x, y)) {
        cell.set_style(style);
    }
}

fn draw_below(view: &FleetView, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
    let lines = lines_below(area.height);
    if lines == 0 {
        return;
    }
    let width = area.width.saturating_sub(2);
    let x = area.x.saturating_add(1).min(area.right());
    if lines > 1 {
        let y = area.bottom() - 2;
        let wide = legend(view, ctx, "  ", usize::MAX);
        let legend = if wide.width() > usize::from(width) {
            legend(view, ctx, " ", usize::from(width))
        } else {
            wide
        };
        let pages = pages(view);
        let left_out = left_out(view);
        // What is left out is said where there is room; the page is said always.
        let room = usize::from(width).saturating_sub(legend.width() + pages.width() + 2);
        let notes = if left_out.is_empty() || left_out.width() + 2 > room {
            pages
        } else if pages.is_empty() {
            left_out
        } else {
            format!("{left_out}, {pages}")
        };
        buf.set_line(x, y, &legend, width);
        let own = u16::try_from(notes.width()).unwrap_or(width).min(width);
        let at = x + width - own;
        if own > 0 {
            buf.set_string(at.saturating_sub(1), y, " ", ctx.style(Meaning::Text));
            buf.set_stringn(at, y, &notes, usize::from(own), ctx.style(Meaning::Muted));
        }
    }
    let y = area.bottom() - 1;
    let lens = format!("lens {}", view.lens.name());
    let own = u16::try_from(lens.width() + 2).unwrap_or(width);
    // A narrow header has no room for it.
    let own = if area.width < NAMES_ITS_LENS && own * 2 < width {
        own
    } else {
        0
    };
    let line = description(view, ctx, usize::from(width - own));
    buf.set_line(x, y, &line, width - own);
    if own > 0 {
        let at = x + width - own + 2;
        buf.set_string(at, y, &lens, ctx.style(Meaning::Muted));
    }
}

/// What the colours of the lens mean, and how much of it is not known.
fn lens_legend(view: &FleetView, ctx: &Ctx<'_>, gap: &'static str, width: usize) -> Line<'static> {
    let mono = lens::is_mono(ctx.theme);
    let mut spans = vec![Span::styled(view.lens.name(), ctx.style(Meaning::Text))];
    let entries = lens::legend(view.lens, &view.holding);
    for (tint, words) in entries {
        let (sign, meaning) = match mono {
            true => (tint.sign, Meaning::Text),
            false => (ctx.glyph(Glyph::GpuUsed), tint.meaning),
        };
        spans.push(Span::raw(gap));
        spans.push(Span::styled(sign, ctx.style(meaning)));
        spans.push(Span::styled(format!(" {words}"), ctx.style(Meaning::Muted)));
    }
    let cells = view.layout.items.iter().filter_map(|item| seen(view, item));
    let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
    for seen in cells {
        if let Seen::Unknown(why) = seen {
            *causes.entry(why.as_str()).or_default() += 1;
        }
    }
    let unknown: usize = causes.values().sum();
    if let Some((why, _)) = causes.iter().max_by_key(|(_, n)| **n) {
        let sign = ctx.glyph(Glyph::Unknown);
        spans.push(Span::raw(gap));
        spans.push(Span::styled(sign, ctx.style(Meaning::Unknown)));
        let taken: usize = spans.iter().map(Span::width).sum();
        let words = format!("{} unknown: {why}", format::count_of(unknown));
        let words = format::sentence_within(&words, width.saturating_sub(taken + 1));
        let words = format!(" {words}");
        spans.push(Span::styled(words, ctx.style(Meaning::Muted)));
    }
    Line::from(spans)
}

fn legend(view: &FleetView, ctx: &Ctx<'_>, gap: &'static str, width: usize) -> Line<'static> {
    if view.lens != Lens::Allocation {
        return lens_legend(view, ctx, gap, width);
    }
    let sums: &[(Glyph, Meaning, &str)] = &[
        (Glyph::GpuFree, Meaning::Free, "free"),
        (Glyph::Eighth2, Meaning::Used, "partly used"),
        (Glyph::GpuUsed, Meaning::Used, "full"),
        (Glyph::GpuSick, Meaning::Sick, "sick"),
        (Glyph::GpuCordoned, Meaning::Cordoned, "cordoned"),
        (Glyph::GpuUnknown, Meaning::Unknown, "unknown"),
    ];
    let signs = if view.zoom == Some(Zoom::Gpu) {
        &LEGEND
    } else {
        sums
    };
    let mut spans = Vec::new();
    for (glyph, meaning, name) in signs {
        if !spans.is_empty() {
            spans.push(Span::raw(gap));
        }
        spans.push(Span::styled(ctx.glyph(*glyph), ctx.style(*meaning)));
        spans.push(Span::styled(format!(" {name}"), ctx.style(Meaning::Muted)));
    }
    Line::from(spans)
}

/// How many nodes the map leaves out, in words.
fn left_out(view: &FleetView) -> String {
    match view.without_gpus.len() {
        0 => String::new(),
        1 => "1 node without GPUs left out".to_owned(),
        n => format!("{} nodes without GPUs left out", format::count_of(n)),
    }
}

/// Which page of how many, if there are several.
fn pages(view: &FleetView) -> String {
    let pages = view.layout.pages();
    if pages < 2 {
        return String::new();
    }
    let page = view.layout.line_of(view.at) / view.layout.page_lines() + 1;
    format!("page {page} of {pages}")
}

fn description(view: &FleetView, ctx: &Ctx<'_>, width: usize) -> Line<'static> {
    let Some(item) = view.item() else {
        return Line::default();
    };
    let (subject, facts) = match view.zoom {
        Some(Zoom::Group) => match view.groups.get(item.group) {
            Some(group) => (group.label.clone(), group_facts(group)),
            None => return Line::default(),
        },
        zoom => match view.rows.get(item.node) {
            Some(row) if zoom == Some(Zoom::Gpu) && row.node.is_some() && !row.cells.is_empty() => {
                let gpu = gpu_in_words(row, item.gpu);
                (format!("{} {gpu}", row.name), node_facts(row))
            }
            Some(row) => (row.name.to_string(), node_facts(row)),
            None => return Line::default(),
        },
    };
    let told = seen(view, item).map(|seen| {
        let words = format!("  {}: {}", view.lens.name(), seen.words());
        (words, matches!(seen, Seen::Unknown(_)))
    });
    let mut room = width.saturating_sub(subject.width() + 2);
    let mut spans = vec![Span::styled(subject, ctx.style(Meaning::Text))];
    if let Some((words, unknown)) = told {
        let meaning = if unknown {
            Meaning::Unknown
        } else {
            Meaning::Accent
        };
        room = room.saturating_sub(words.width());
        spans.push(Span::styled(words, ctx.style(meaning)));
    }
    let facts = format::sentence_within(&facts, room);
    spans.push(Span::styled(
        format!("  {facts}"),
        ctx.style(Meaning::Muted),
    ));
    Line::from(spans)
}

fn group_facts(group: &Group) -> String {
    let mut text = format!(
        "{} nodes, {} of {} GPUs used, {} free",
        format::count_of(group.nodes.len()),
        format::amount(group.used_gpus),
        format::count_of(group.gpus),
        format::amount(group.free_gpus),
    );
    if group.sick_nodes > 0 {
        text.push_str(&format!(
            ", {} nodes sick",
            format::count_of(group.sick_nodes)
        ));
    }
    text
}

fn node_facts(row: &NodeRow) -> String {
    let used = format!(
        "{}/{} used",
        format::amount_or_unknown(row.used_gpus),
        format::count_or_unknown(row.gpus())
    );
    let parts = [
        row.model().map(str::to_owned),
        row.tier().map(str::to_owned),
        row.leaf().map(|l| match l.starts_with("leaf") {
            true => l.to_owned(),
            false => format!("leaf {l}"),
        }),
        Some(used),
        Some(row.state.clone()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}
