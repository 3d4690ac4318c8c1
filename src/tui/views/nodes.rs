//! Nodes: a row a node, its GPUs drawn.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::list::{List, Pace, Spec, list_view};
use super::node_row::{self, NodeRow, Severity};
use super::{describe, gpu_look};
use crate::model::{Kind, Str};
use crate::tui::format;
use crate::tui::glyphs::Glyph;
use crate::tui::sort_key::SortKey;
use crate::tui::table::{Align, Cell, Column, Width};
use crate::tui::theme::Meaning;
use crate::tui::view::{Ctx, FilterError, Motion, Sort, Target, View, ViewId};

/// A text that may not be known.
pub(super) fn text_or_unknown(text: Option<&str>, ctx: &Ctx<'_>) -> Cell {
    match text {
        Some(text) => Cell::Text(text.to_owned(), ctx.style(Meaning::Text)),
        None => unknown(ctx),
    }
}

/// What stands for a value that is not known.
pub(super) fn unknown(ctx: &Ctx<'_>) -> Cell {
    Cell::Text(format::UNKNOWN.to_owned(), ctx.style(Meaning::Unknown))
}

/// A number that may not be known.
pub(super) fn number<N: Into<i64>>(n: Option<N>, ctx: &Ctx<'_>) -> Cell {
    match n {
        Some(n) => Cell::Text(format::count(n.into()), ctx.style(Meaning::Text)),
        None => unknown(ctx),
    }
}

/// An age, in the style of what matters little.
pub(super) fn age(since: Option<jiff::Timestamp>, ctx: &Ctx<'_>) -> Cell {
    match since {
        Some(_) => Cell::Text(format::age(since, ctx.now), ctx.style(Meaning::Muted)),
        None => unknown(ctx),
    }
}

fn used(row: &NodeRow, ctx: &Ctx<'_>) -> Cell {
    if row.cells.is_empty() && row.node.is_some() {
        let no_gpus = Cell::Text(String::new(), ctx.style(Meaning::Muted));
        return if row.has_gpus() {
            unknown(ctx)
        } else {
            no_gpus
        };
    }
    let of = format::count_or_unknown(row.gpus());
    let style = ctx.style(Meaning::Text);
    Cell::Text(
        format!("{}/{of}", format::amount_or_unknown(row.used_gpus)),
        style,
    )
}

/// A share in percent; dimmed when it is old, `—` where nobody tells it.
fn measured(row: &NodeRow, share: Option<f64>, ctx: &Ctx<'_>) -> Cell {
    let (Some(share), Some(telemetry)) = (share, &row.telemetry) else {
        let has_gpus = row.has_gpus() && row.node.is_some();
        let none = Cell::Text(String::new(), ctx.style(Meaning::Muted));
        return if has_gpus { unknown(ctx) } else { none };
    };
    let age = format::secs_since(telemetry.at, ctx.now);
    let meaning = if age > OLD_SECS {
        Meaning::Dim
    } else {
        Meaning::Text
    };
    let percent = (share * 100.0).round();
    Cell::Text(format!("{percent:.0}"), ctx.style(meaning))
}

/// Seconds after which a measure is old.
pub(super) const OLD_SECS: i64 = 300;

/// Activity of the last readings, the newest to the right.
fn sparkline(row: &NodeRow, ctx: &Ctx<'_>, width: u16) -> Cell {
    let Some(log) = ctx.cluster.telemetry(&row.name) else {
        return Cell::Text(String::new(), ctx.style(Meaning::Muted));
    };
    let skip = log.history.len().saturating_sub(usize::from(width));
    let signs = log.history.iter().skip(skip).map(|percent| match percent {
        None => ctx.glyph(Glyph::Unknown),
        Some(percent) => ctx.glyph(gpu_look::level(f64::from(*percent) / 100.0)),
    });
    let pad = usize::from(width).saturating_sub(log.history.len());
    let text = format!("{}{}", " ".repeat(pad), signs.collect::<String>());
    Cell::Text(text, ctx.style(Meaning::Used))
}

/// State in at most `columns` columns: in full, else the worst of it and how much more there is.
fn state_within(state: &str, columns: usize) -> String {
    if state.width() <= columns {
        return state.to_owned();
    }
    let more = state.split(", ").count() - 1;
    let first = state.split(", ").next().unwrap_or(state);
    if more == 0 {
        return format::sentence_within(first, columns).into_owned();
    }
    let more = format!(" +{more}");
    let room = columns.saturating_sub(more.len());
    format!("{}{more}", format::sentence_within(first, room))
}

type Node = NodeRow;

/// Columns, and in which order they go when it gets narrow: activity of the last minutes, pods, age,
/// memory and CPU of the host, GPU memory, SM, tier, model.
static COLUMNS: &[Column<Node>] = &[
    Column {
        header: "NODE",
        name: "name",
        width: Width::Flex {
            min: 14,
            max: 40,
            weight: 3,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| Cell::Text(r.name.to_string(), ctx.style(Meaning::Text)),
        order: Some(|r| SortKey::text(&r.name)),
    },
    Column {
        header: "MODEL",
        name: "model",
        width: Width::Flex {
            min: 8,
            max: 12,
            weight: 1,
        },
        align: Align::Left,
        drop: 1,
        cell: |r, ctx, _| text_or_unknown(r.model(), ctx),
        order: Some(|r| SortKey::known(r.model(), SortKey::str)),
    },
    Column {
        header: "TIER",
        name: "tier",
        width: Width::Fixed(9),
        align: Align::Left,
        drop: 2,
        cell: |r, ctx, _| text_or_unknown(r.tier(), ctx),
        order: Some(|r| SortKey::known(r.tier(), SortKey::str)),
    },
    Column {
        header: "GPUS",
        name: "gpus",
        width: Width::Flex {
            min: 20,
            max: 80,
            weight: 6,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, width| Cell::Spans(gpu_look::row(r, width, ctx)),
        order: Some(|r| SortKey::known(r.gpus(), SortKey::number)),
    },
    Column {
        header: "USED",
        name: "used",
        width: Width::Fixed(7),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| used(r, ctx),
        order: Some(|r| SortKey::known(r.used_gpus, SortKey::fraction)),
    },
    Column {
        header: "CPU%",
        name: "cpu",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 5,
        cell: |r, ctx, _| number(r.cpu_percent, ctx),
        order: Some(|r| SortKey::known(r.cpu_percent, SortKey::number)),
    },
    Column {
        header: "SM%",
        name: "sm",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 3,
        cell: |r, ctx, _| measured(r, r.activity(), ctx),
        order: Some(|r| SortKey::known(r.activity(), SortKey::fraction)),
    },
    Column {
        header: "MEM%",
        name: "vram",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 4,
        cell: |r, ctx, _| measured(r, r.memory_share(), ctx),
        order: Some(|r| SortKey::known(r.memory_share(), SortKey::fraction)),
    },
    Column {
        header: "ACTIVITY",
        name: "activity",
        width: Width::Fixed(12),
        align: Align::Left,
        drop: 9,
        cell: |r, ctx, width| sparkline(r, ctx, width),
        order: None,
    },
    Column {
        header: "RAM%",
        name: "ram",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 6,
        cell: |r, ctx, _| number(r.mem_percent, ctx),
        order: Some(|r| SortKey::known(r.mem_percent, SortKey::number)),
    },
    Column {
        header: "PODS",
        name: "pods",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 8,
        cell: |r, ctx, _| number(r.pods, ctx),
        order: Some(|r| SortKey::known(r.pods, SortKey::number)),
    },
    Column {
        header: "AGE",
        name: "age",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 7,
        cell: |r, ctx, _| age(r.created(), ctx),
        // The youngest first.
        order: Some(|r| SortKey::known(r.created(), SortKey::latest)),
    },
    Column {
        header: "STATE",
        name: "state",
        width: Width::Flex {
            min: 12,
            max: 40,
            weight: 3,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, width| {
            let shown = state_within(&r.state, usize::from(width));
            Cell::Text(shown, ctx.style(r.severity.meaning()))
        },
        // The worst first.
        order: Some(|r| {
            let badness = Severity::Down as u32 - r.severity as u32;
            SortKey::number_and_text(badness, &r.state)
        }),
    },
];

/// What the list of nodes is made of.
pub(crate) static SPEC: Spec<NodeRow> = Spec {
    columns: COLUMNS,
    sortable: &[
        "name", "model", "tier", "gpus", "used", "cpu", "sm", "vram", "ram", "pods", "age", "state",
    ],
    filter: node_row::FILTER,
    search: NodeRow::search,
    since: NodeRow::created,
    kind: Kind::Node,
    awaits: "nodes",
};

/// The view.
pub struct NodesView {
    list: List<NodeRow>,
}

impl Default for NodesView {
    fn default() -> Self {
        NodesView {
            list: List::new(&SPEC),
        }
    }
}

impl View for NodesView {
    fn id(&self) -> ViewId {
        ViewId::Nodes
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Node, Kind::Pod]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.list.catch_up(area, ctx, Pace::AtOnce, ctx.cluster);
    }

    fn prepare(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.list.catch_up(area, ctx, Pace::InParts, ctx.cluster);
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.list.draw(area, buf, ctx);
    }

    fn motion(&mut self, motion: Motion) {
        self.list.motion(motion, false);
    }

    fn select(&mut self, target: &Target) -> bool {
        match target {
            Target::Node(name) | Target::Gpu(name, _) => self.list.select(name),
            _ => false,
        }
    }

    fn visible_nodes(&self) -> Vec<Str> {
        self.list.visible().map(|r| r.name.clone()).collect()
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        describe::target(target, ctx)
    }

    list_view!(list, |r: &Node| Target::Node(r.name.clone()));
}
