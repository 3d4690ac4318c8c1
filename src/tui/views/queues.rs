//! Queues: those of our scheduler, Kueue, Volcano, KAI and plain quotas in one table.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::describe;
use super::list::{List, News, Spec, list_view};
use super::nodes::unknown;
use super::queue_rows::{self, QueueRow};
use crate::model::{ForeignKind, GpuResource, Kind, QueueState};
use crate::tui::filter::{FilterColumn, Unit, Value};
use crate::tui::format;
use crate::tui::glyphs::Glyph;
use crate::tui::sort_key::SortKey;
use crate::tui::table::{Align, Cell, Column, Width};
use crate::tui::theme::Meaning;
use crate::tui::view::{Ctx, FilterError, Motion, Sort, Target, View, ViewId};

type Queue = QueueRow;

fn text(text: impl Into<String>, meaning: Meaning, ctx: &Ctx<'_>) -> Cell {
    Cell::Text(text.into(), ctx.style(meaning))
}

/// Thousandths of a device as devices.
pub(super) fn devices(milli: i64) -> String {
    #[allow(clippy::cast_precision_loss)]
    format::amount(milli as f64 / 1_000.0)
}

/// The style of a queue's state.
pub(super) fn state_meaning(state: QueueState) -> Meaning {
    match state {
        QueueState::Open => Meaning::Ok,
        QueueState::Held | QueueState::Closed => Meaning::Muted,
        QueueState::Draining => Meaning::Warn,
        QueueState::Broken => Meaning::Danger,
    }
}

/// What devices that are no whole GPUs are called.
pub(crate) fn device_name(resource: &GpuResource) -> String {
    match resource {
        GpuResource::Whole => "gpu".to_owned(),
        GpuResource::Shared => "shared gpu".to_owned(),
        GpuResource::Mig(profile) => profile.to_string(),
    }
}

fn name(row: &QueueRow, ctx: &Ctx<'_>, width: u16) -> Cell {
    let indent = "  ".repeat(usize::from(row.depth.min(8)));
    if row.is_system() {
        let name = format!("  {}", row.key.name);
        let name = format::sentence_within(&name, usize::from(width));
        return text(name, Meaning::Muted, ctx);
    }
    let sign = if row.has_below {
        ctx.glyph(Glyph::Down)
    } else {
        " "
    };
    let room = usize::from(width).saturating_sub(indent.len() + 2);
    let (label, meaning) = if row.first {
        (row.key.to_string(), Meaning::Text)
    } else {
        (format!("  {}", device_name(&row.resource)), Meaning::Muted)
    };
    let mut label = crate::model::truncate_middle(&label, room).into_owned();
    if row.first && row.resource != GpuResource::Whole {
        let with = format!("{label} {}", device_name(&row.resource));
        label = crate::model::truncate_middle(&with, room).into_owned();
    }
    Cell::Spans(Line::from(vec![
        Span::styled(format!("{indent}{sign} "), ctx.style(Meaning::Muted)),
        Span::styled(label, ctx.style(meaning)),
    ]))
}

/// Columns of the number after a bar.
const NUMBER: usize = 13;

/// Use against what it is due, drawn; what goes beyond in another shade and sign.
fn used(row: &QueueRow, ctx: &Ctx<'_>, width: u16) -> Cell {
    if row.is_system() {
        return text("", Meaning::Muted, ctx);
    }
    let Some(used) = row.used_milli else {
        return unknown(ctx);
    };
    let share = row.share();
    let number = match share {
        Some(share) if share.is_finite() => {
            #[allow(clippy::cast_possible_truncation)]
            let percent = (share * 100.0).round() as i64;
            format!("{} ({}%)", devices(used), format::count_within(percent, 5))
        }
        _ => devices(used),
    };
    let bar = usize::from(width).saturating_sub(NUMBER + 1).min(40);
    let mut spans = Vec::new();
    match (share, bar) {
        (Some(share), 3..) => {
            let cells = |n: usize| u32::try_from(n).map_or(0.0, f64::from);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let filled = |share: f64| (share.clamp(0.0, 1.0) * cells(bar)).round() as usize;
            let due = if share > 1.0 {
                filled(1.0 / share).clamp(1, bar - 1)
            } else if share > 0.0 {
                filled(share).max(1)
            } else {
                0
            };
            let over = if share > 1.0 { bar - due } else { 0 };
            let mut part = |glyph: &str, n: usize, meaning| {
                spans.push(Span::styled(glyph.repeat(n), ctx.style(meaning)));
            };
            part(ctx.glyph(Glyph::GpuUsed), due, Meaning::Used);
            part("+", over, Meaning::Accent);
            part(ctx.glyph(Glyph::GpuFree), bar - due - over, Meaning::Free);
        }
        (_, bar) => spans.push(Span::raw(" ".repeat(bar))),
    }
    spans.push(Span::styled(format!(" {number}"), ctx.style(Meaning::Text)));
    Cell::Spans(Line::from(spans))
}

fn amount(milli: Option<i64>, row: &QueueRow, ctx: &Ctx<'_>) -> Cell {
    match milli {
        Some(n) => text(devices(n), Meaning::Text, ctx),
        // Nothing is stated, which is no amount that is not known.
        None if row.object.is_some() || row.is_system() => text("", Meaning::Muted, ctx),
        None => unknown(ctx),
    }
}

fn waiting(row: &QueueRow, ctx: &Ctx<'_>, width: u16) -> Cell {
    if row.is_system() {
        return text("", Meaning::Muted, ctx);
    }
    let Some(waiting) = row.waiting else {
        return unknown(ctx);
    };
    let asked = row.waiting_milli.filter(|n| *n > 0).map(devices);
    let shown = match (row.first, asked) {
        (true, Some(asked)) => {
            let full = format!("{} for {asked}", format::count(waiting.into()));
            // A number is never cut: where it is narrow both get shorter.
            if full.len() <= usize::from(width) {
                full
            } else {
                let (n, of) = (waiting.into(), row.waiting_milli.unwrap_or(0) / 1_000);
                let (n, of) = (format::count_within(n, 4), format::count_within(of, 4));
                format!("{n}/{of}")
            }
        }
        (false, Some(asked)) => format!("for {asked}"),
        (true, None) => format::count(waiting.into()),
        (false, None) => String::new(),
    };
    let meaning = if waiting > 0 {
        Meaning::Waiting
    } else {
        Meaning::Muted
    };
    text(shown, meaning, ctx)
}

fn state(row: &QueueRow, ctx: &Ctx<'_>, width: u16) -> Cell {
    if !row.first {
        return text("", Meaning::Muted, ctx);
    }
    let why = row.why.as_deref().unwrap_or_default();
    let (shown, meaning) = match row.state {
        _ if row.denied => (why.to_owned(), Meaning::Denied),
        None => (why.to_owned(), Meaning::Muted),
        Some(state) if why.is_empty() => (state.name().to_owned(), state_meaning(state)),
        Some(state) => (format!("{}: {why}", state.name()), state_meaning(state)),
    };
    text(
        format::sentence_within(&shown, usize::from(width)),
        meaning,
        ctx,
    )
}

fn milli_key(n: Option<i64>) -> SortKey {
    SortKey::known(n, SortKey::number)
}

/// Columns, and in which order they go when it gets narrow: running, share, burst, limit,
/// admitter.
static COLUMNS: &[Column<Queue>] = &[
    Column {
        header: "  QUEUE",
        name: "queue",
        width: Width::Flex {
            min: 18,
            max: 48,
            weight: 3,
        },
        align: Align::Left,
        drop: 0,
        cell: name,
        order: Some(|r| SortKey::text(&r.key.name)),
    },
    Column {
        header: "ADMITTER",
        name: "admitter",
        width: Width::Fixed(8),
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| {
            let own = r.first && !r.is_absent();
            let shown = if own { r.key.admitter.name() } else { "" };
            text(shown, Meaning::Muted, ctx)
        },
        order: Some(|r| SortKey::str(r.key.admitter.name())),
    },
    Column {
        header: "DUE",
        name: "guaranteed",
        width: Width::Fixed(6),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| amount(r.guaranteed_milli, r, ctx),
        order: Some(|r| milli_key(r.guaranteed_milli)),
    },
    Column {
        header: "USED",
        name: "used",
        width: Width::Flex {
            min: 16,
            max: 54,
            weight: 4,
        },
        align: Align::Left,
        drop: 0,
        cell: used,
        order: Some(|r| milli_key(r.used_milli)),
    },
    Column {
        header: "BURST",
        name: "burst",
        width: Width::Fixed(6),
        align: Align::Right,
        drop: 3,
        cell: |r, ctx, _| match r.burst_milli() {
            Some(0) | None => text("", Meaning::Muted, ctx),
            Some(n) => text(format!("+{}", devices(n)), Meaning::Accent, ctx),
        },
        order: Some(|r| milli_key(r.burst_milli())),
    },
    Column {
        header: "LIMIT",
        name: "limit",
        width: Width::Fixed(7),
        align: Align::Right,
        drop: 2,
        cell: |r, ctx, _| match r.limit_milli {
            Some(n) => text(devices(n), Meaning::Text, ctx),
            None if r.object.is_some() => text("none", Meaning::Muted, ctx),
            None => text("", Meaning::Muted, ctx),
        },
        order: Some(|r| milli_key(r.limit_milli)),
    },
    Column {
        header: "SHARE",
        name: "share",
        width: Width::Fixed(6),
        align: Align::Right,
        drop: 4,
        cell: |r, ctx, _| match r.share() {
            Some(share) => text(format!("{share:.2}"), Meaning::Text, ctx),
            None => text("", Meaning::Muted, ctx),
        },
        order: Some(|r| SortKey::known(r.share(), SortKey::fraction)),
    },
    Column {
        header: "WAITING",
        name: "waiting",
        width: Width::Flex {
            min: 10,
            max: 16,
            weight: 1,
        },
        align: Align::Right,
        drop: 0,
        cell: waiting,
        order: Some(|r| SortKey::known(r.waiting, SortKey::number)),
    },
    Column {
        header: "RUN",
        name: "running",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 5,
        cell: |r, ctx, _| match r.running.filter(|_| r.first) {
            Some(n) => text(format::count(n.into()), Meaning::Text, ctx),
            None => text("", Meaning::Muted, ctx),
        },
        order: Some(|r| SortKey::known(r.running, SortKey::number)),
    },
    Column {
        header: "STATE",
        name: "state",
        width: Width::Flex {
            min: 16,
            max: 200,
            weight: 5,
        },
        align: Align::Left,
        drop: 0,
        cell: state,
        order: Some(|r| SortKey::known(r.state, |s| SortKey::number(s as i64))),
    },
];

fn gpus(milli: Option<i64>) -> Value<'static> {
    #[allow(clippy::cast_precision_loss)]
    Value::number(milli.map(|n| n as f64 / 1_000.0))
}

/// Columns that filters can name.
static FILTER: &[FilterColumn<QueueRow>] = &[
    FilterColumn {
        name: "queue",
        aliases: &["name"],
        unit: Unit::Text,
        about: "name of the queue",
        value: |r, _| Value::text(&r.key.name),
    },
    FilterColumn {
        name: "admitter",
        aliases: &["system"],
        unit: Unit::Text,
        about: "gpudeck, kueue, volcano, kai or quota",
        value: |r, _| Value::text(r.key.admitter.name()),
    },
    FilterColumn {
        name: "kind",
        aliases: &[],
        unit: Unit::Text,
        about: "kind as its system calls it, such as LocalQueue",
        value: |r, _| Value::text(&r.key.kind),
    },
    FilterColumn {
        name: "ns",
        aliases: &["namespace"],
        unit: Unit::Text,
        about: "namespace; queues of the whole cluster have none",
        value: |r, _| Value::text(&r.key.namespace),
    },
    FilterColumn {
        name: "device",
        aliases: &["resource"],
        unit: Unit::Text,
        about: "gpu, shared gpu or a MIG profile",
        value: |r, _| Value::Text(device_name(&r.resource).into()),
    },
    FilterColumn {
        name: "guaranteed",
        aliases: &["due"],
        unit: Unit::Count,
        about: "devices that it gets whenever it asks",
        value: |r, _| gpus(r.guaranteed_milli),
    },
    FilterColumn {
        name: "used",
        aliases: &[],
        unit: Unit::Count,
        about: "devices that its work holds",
        value: |r, _| gpus(r.used_milli),
    },
    FilterColumn {
        name: "burst",
        aliases: &[],
        unit: Unit::Count,
        about: "devices that it uses beyond its due",
        value: |r, _| gpus(r.burst_milli()),
    },
    FilterColumn {
        name: "limit",
        aliases: &[],
        unit: Unit::Count,
        about: "devices that it never exceeds",
        value: |r, _| gpus(r.limit_milli),
    },
    FilterColumn {
        name: "share",
        aliases: &[],
        unit: Unit::Count,
        about: "use in parts of its due, such as share>1",
        value: |r, _| Value::number(r.share()),
    },
    FilterColumn {
        name: "waiting",
        aliases: &[],
        unit: Unit::Count,
        about: "pieces of work that wait",
        value: |r, _| Value::number(r.waiting.map(f64::from)),
    },
    FilterColumn {
        name: "running",
        aliases: &[],
        unit: Unit::Count,
        about: "pieces of work that run",
        value: |r, _| Value::number(r.running.map(f64::from)),
    },
    FilterColumn {
        name: "state",
        aliases: &["status"],
        unit: Unit::Text,
        about: "open, held, draining, closed or broken",
        value: |r, _| r.state.map_or(Value::Unknown, |s| Value::text(s.name())),
    },
    FilterColumn {
        name: "why",
        aliases: &["reason"],
        unit: Unit::Text,
        about: "why it takes no work",
        value: |r, _| r.why.as_deref().map_or(Value::Unknown, Value::text),
    },
];

/// What the list of queues is made of.
pub(crate) static SPEC: Spec<QueueRow> = Spec {
    columns: COLUMNS,
    sortable: &[
        "queue",
        "admitter",
        "guaranteed",
        "used",
        "burst",
        "limit",
        "share",
        "waiting",
        "running",
        "state",
    ],
    filter: FILTER,
    search: QueueRow::search,
    since: |_| None,
    // Any system may be missing or denied: each says so in its own row.
    kind: Kind::Foreign(ForeignKind::ResourceQuota),
    awaits: "queues of gpudeck, Kueue, Volcano and KAI, and quotas",
};

/// The view.
pub struct QueuesView {
    list: List<QueueRow>,
}

impl Default for QueuesView {
    fn default() -> Self {
        QueuesView {
            list: List::new(&SPEC),
        }
    }
}

impl View for QueuesView {
    fn id(&self) -> ViewId {
        ViewId::Queues
    }

    fn kinds(&self) -> &'static [Kind] {
        const KINDS: &[Kind] = &[
            Kind::GpuQueue,
            Kind::Foreign(ForeignKind::ResourceQuota),
            Kind::Foreign(ForeignKind::KueueClusterQueue),
            Kind::Foreign(ForeignKind::VolcanoQueue),
            Kind::Foreign(ForeignKind::KaiQueue),
        ];
        KINDS
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        // Queues are few beside pods and nodes.
        self.list
            .refresh(area, ctx, |_| News::All(queue_rows::all(ctx)));
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.list.draw(area, buf, ctx);
    }

    fn motion(&mut self, motion: Motion) {
        self.list.motion(motion, false);
    }

    fn select(&mut self, target: &Target) -> bool {
        match target {
            Target::Queue(key) => {
                let resources = [GpuResource::Whole, GpuResource::Shared];
                resources
                    .into_iter()
                    .any(|r| self.list.select(&(key.clone(), r)))
            }
            _ => false,
        }
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        describe::target(target, ctx)
    }

    fn open(&self, target: &Target) -> Option<Box<dyn View>> {
        match target {
            Target::Queue(key) if &*key.kind == queue_rows::SYSTEM => None,
            _ => super::open(target),
        }
    }

    list_view!(list, |r: &Queue| Target::Queue(r.key.clone()));
}
