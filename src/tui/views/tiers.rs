//! Tiers: what capacity there is, what it costs, and what of it is idle or stranded.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::list::{List, News, Spec, list_view};
use super::nodes::unknown;
use crate::model::{Kind, Str, Tier, TierFigure};
use crate::tui::filter::{FilterColumn, Unit, Value, contains};
use crate::tui::format;
use crate::tui::glyphs::Glyph;
use crate::tui::sort_key::SortKey;
use crate::tui::table::{Align, Cell, Column, Row, Width};
use crate::tui::theme::Meaning;
use crate::tui::view::{Ctx, FilterError, Motion, Opens, Sort, Target, View, ViewId};

/// A tier, or one model's part of it.
#[derive(Clone, PartialEq, Debug)]
pub struct TierRow {
    /// The model; `None`: the whole tier.
    pub model: Option<Str>,
    /// Its numbers.
    pub figure: TierFigure,
}

/// What a tier that nothing tells is called.
pub const UNTOLD: &str = "not told";

impl Row for TierRow {
    type Key = (Option<Tier>, Option<Str>);

    fn key(&self) -> Self::Key {
        (self.figure.tier, self.model.clone())
    }

    /// By tier, those that nothing tells last; the tier itself before its models, those with most
    /// GPUs first.
    fn place(&self) -> SortKey {
        let tier = self.figure.tier.map_or(i64::from(u8::MAX), |t| t as i64);
        let below = match &self.model {
            None => 0,
            Some(_) => 1 + i64::from(u32::MAX - self.figure.part.gpus),
        };
        SortKey::numbers(tier, below)
    }
}

impl TierRow {
    /// The tier's name.
    pub fn tier(&self) -> &'static str {
        self.figure.tier.map_or(UNTOLD, Tier::name)
    }

    fn search(&self, word: &str) -> bool {
        contains(self.tier(), word) || self.model.as_ref().is_some_and(|m| contains(m, word))
    }

    fn is_unpriced(&self) -> bool {
        self.figure.money.priced_gpus == 0
    }
}

/// The rows of all tiers: each, and below it its models.
pub fn rows(figures: &[TierFigure]) -> Vec<TierRow> {
    let mut rows: Vec<TierRow> = Vec::new();
    for figure in figures {
        match rows
            .iter_mut()
            .find(|r| r.model.is_none() && r.figure.tier == figure.tier)
        {
            Some(row) => row.figure.add(figure),
            None => rows.push(TierRow {
                model: None,
                figure: TierFigure {
                    model: Str::default(),
                    ..figure.clone()
                },
            }),
        }
        rows.push(TierRow {
            model: Some(figure.model.clone()),
            figure: figure.clone(),
        });
    }
    rows
}

type Entry = TierRow;

fn text(text: impl Into<String>, meaning: Meaning, ctx: &Ctx<'_>) -> Cell {
    Cell::Text(text.into(), ctx.style(meaning))
}

/// Money, `?` where nothing has a price, with `+?` where a part has none.
fn money(row: &TierRow, amount: f64, meaning: Meaning, ctx: &Ctx<'_>) -> Cell {
    if row.is_unpriced() {
        return text("?", Meaning::Unknown, ctx);
    }
    let unpriced = if row.figure.money.unpriced_gpus > 0 {
        "+?"
    } else {
        ""
    };
    let shown = format::money(amount, &ctx.cluster.pricing().currency);
    let meaning = if amount > 0.0 {
        meaning
    } else {
        Meaning::Muted
    };
    text(format!("{shown}{unpriced}"), meaning, ctx)
}

fn amount(n: f64, known: bool, ctx: &Ctx<'_>) -> Cell {
    if known {
        text(
            format::amount(n),
            if n > 0.0 {
                Meaning::Text
            } else {
                Meaning::Muted
            },
            ctx,
        )
    } else {
        unknown(ctx)
    }
}

fn pods_known(ctx: &Ctx<'_>) -> bool {
    ctx.cluster.is_known(Kind::Pod)
}

fn used(row: &TierRow, ctx: &Ctx<'_>, width: u16) -> Cell {
    if !pods_known(ctx) {
        return unknown(ctx);
    }
    let part = &row.figure.part;
    let share = part.used / f64::from(part.gpus.max(1));
    let number = format!("{} ({:.0}%)", format::amount(part.used), share * 100.0);
    let bar = usize::from(width).saturating_sub(14).min(40);
    let mut spans = Vec::new();
    if bar >= 3 {
        let cells = u32::try_from(bar).map_or(0.0, f64::from);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let filled = ((share.clamp(0.0, 1.0) * cells).round() as usize).min(bar);
        let filled = if part.used > 0.0 {
            filled.max(1)
        } else {
            filled
        };
        let (used, free) = (ctx.glyph(Glyph::GpuUsed), ctx.glyph(Glyph::GpuFree));
        spans.push(Span::styled(used.repeat(filled), ctx.style(Meaning::Used)));
        spans.push(Span::styled(
            free.repeat(bar - filled),
            ctx.style(Meaning::Free),
        ));
        spans.push(Span::raw(" "));
    }
    spans.push(Span::styled(number, ctx.style(Meaning::Text)));
    Cell::Spans(Line::from(spans))
}

fn price(row: &TierRow, ctx: &Ctx<'_>) -> Cell {
    let currency = &ctx.cluster.pricing().currency;
    match (row.figure.money.lowest, row.figure.money.highest) {
        (Some(low), Some(high)) => {
            let (low, high) = (format::money(low, currency), format::money(high, ""));
            let shown = if low.ends_with(&high) {
                low
            } else {
                format!("{low}-{high}")
            };
            text(shown, Meaning::Text, ctx)
        }
        _ => text("?", Meaning::Unknown, ctx),
    }
}

fn ends(row: &TierRow, ctx: &Ctx<'_>) -> Cell {
    let Some(at) = row.figure.next_end else {
        return text("", Meaning::Muted, ctx);
    };
    let secs = format::secs_since(ctx.now, at);
    let when = if secs <= 0 {
        "now".to_owned()
    } else {
        format!("in {}", format::duration(secs))
    };
    let nodes = format::count(row.figure.ending.into());
    let meaning = if secs < 3_600 {
        Meaning::Danger
    } else {
        Meaning::Warn
    };
    text(format!("{nodes}, {when}"), meaning, ctx)
}

/// Columns, and in which order they go when it gets narrow: stranded GPUs, free GPUs, nodes, ends,
/// price, stranded money.
static COLUMNS: &[Column<Entry>] = &[
    Column {
        header: "TIER",
        name: "tier",
        width: Width::Flex {
            min: 11,
            max: 20,
            weight: 1,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| match &r.model {
            None if r.figure.tier.is_none() => text(UNTOLD, Meaning::Unknown, ctx),
            None => text(r.tier(), Meaning::Text, ctx),
            Some(model) if model.is_empty() => text("  no model", Meaning::Unknown, ctx),
            Some(model) => text(format!("  {model}"), Meaning::Muted, ctx),
        },
        order: Some(|r| SortKey::str(r.tier())),
    },
    Column {
        header: "NODES",
        name: "nodes",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 4,
        cell: |r, ctx, _| text(format::count(r.figure.nodes.into()), Meaning::Text, ctx),
        order: Some(|r| SortKey::number(r.figure.nodes)),
    },
    Column {
        header: "GPUS",
        name: "gpus",
        width: Width::Fixed(6),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| text(format::count(r.figure.part.gpus.into()), Meaning::Text, ctx),
        order: Some(|r| SortKey::number(r.figure.part.gpus)),
    },
    Column {
        header: "USED",
        name: "used",
        width: Width::Flex {
            min: 14,
            max: 44,
            weight: 4,
        },
        align: Align::Left,
        drop: 0,
        cell: used,
        order: Some(|r| SortKey::fraction(r.figure.part.used)),
    },
    Column {
        header: "FREE",
        name: "free",
        width: Width::Fixed(6),
        align: Align::Right,
        drop: 5,
        cell: |r, ctx, _| amount(r.figure.part.free, pods_known(ctx), ctx),
        order: Some(|r| SortKey::fraction(r.figure.part.free)),
    },
    Column {
        header: "STRANDED",
        name: "stranded",
        width: Width::Fixed(8),
        align: Align::Right,
        drop: 6,
        cell: |r, ctx, _| amount(r.figure.part.stranded, true, ctx),
        order: Some(|r| SortKey::fraction(r.figure.part.stranded)),
    },
    Column {
        header: "GPU-HOUR",
        name: "price",
        width: Width::Fixed(10),
        align: Align::Right,
        drop: 2,
        cell: |r, ctx, _| price(r, ctx),
        order: Some(|r| SortKey::known(r.figure.money.lowest, SortKey::fraction)),
    },
    Column {
        header: "AN HOUR",
        name: "cost",
        width: Width::Fixed(10),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| money(r, r.figure.money.per_hour, Meaning::Text, ctx),
        order: Some(|r| SortKey::fraction(r.figure.money.per_hour)),
    },
    Column {
        header: "IDLE/H",
        name: "idle",
        width: Width::Fixed(9),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| {
            if pods_known(ctx) {
                money(r, r.figure.money.idle_per_hour, Meaning::Warn, ctx)
            } else {
                unknown(ctx)
            }
        },
        order: Some(|r| SortKey::fraction(r.figure.money.idle_per_hour)),
    },
    Column {
        header: "STRANDED/H",
        name: "lost",
        width: Width::Fixed(10),
        align: Align::Right,
        drop: 1,
        cell: |r, ctx, _| money(r, r.figure.money.stranded_per_hour, Meaning::Warn, ctx),
        order: Some(|r| SortKey::fraction(r.figure.money.stranded_per_hour)),
    },
    Column {
        header: "ENDS",
        name: "ends",
        width: Width::Fixed(12),
        align: Align::Left,
        drop: 3,
        cell: |r, ctx, _| ends(r, ctx),
        order: Some(|r| SortKey::known(r.figure.next_end, SortKey::time)),
    },
];

/// Columns that filters can name.
static FILTER: &[FilterColumn<TierRow>] = &[
    FilterColumn {
        name: "tier",
        aliases: &[],
        unit: Unit::Text,
        about: "owned, reserved, on-demand, spot, calendar or \"not told\"",
        value: |r, _| Value::text(r.tier()),
    },
    FilterColumn {
        name: "model",
        aliases: &[],
        unit: Unit::Text,
        about: "GPU model; rows of whole tiers have none",
        value: |r, _| r.model.as_deref().map_or(Value::Unknown, Value::text),
    },
    FilterColumn {
        name: "gpus",
        aliases: &[],
        unit: Unit::Count,
        about: "GPUs",
        value: |r, _| Value::Number(f64::from(r.figure.part.gpus)),
    },
    FilterColumn {
        name: "used",
        aliases: &[],
        unit: Unit::Count,
        about: "GPUs that pods hold",
        value: |r, _| Value::Number(r.figure.part.used),
    },
    FilterColumn {
        name: "free",
        aliases: &[],
        unit: Unit::Count,
        about: "GPUs that are free",
        value: |r, _| Value::Number(r.figure.part.free),
    },
    FilterColumn {
        name: "price",
        aliases: &[],
        unit: Unit::Count,
        about: "lowest price of a GPU-hour; price=\"\" has none",
        value: |r, _| Value::number(r.figure.money.lowest),
    },
    FilterColumn {
        name: "idle",
        aliases: &[],
        unit: Unit::Count,
        about: "money an hour for GPUs that are free",
        value: |r, _| Value::number((!r.is_unpriced()).then_some(r.figure.money.idle_per_hour)),
    },
];

/// What the list of tiers is made of.
pub(crate) static SPEC: Spec<TierRow> = Spec {
    columns: COLUMNS,
    sortable: &[
        "tier", "nodes", "gpus", "used", "free", "stranded", "price", "cost", "idle", "lost",
        "ends",
    ],
    filter: FILTER,
    search: TierRow::search,
    since: |_| None,
    kind: Kind::Node,
    awaits: "nodes with GPUs, by their tier",
};

/// The view.
pub struct TiersView {
    list: List<TierRow>,
}

impl Default for TiersView {
    fn default() -> Self {
        TiersView {
            list: List::new(&SPEC),
        }
    }
}

impl View for TiersView {
    fn id(&self) -> ViewId {
        ViewId::Tiers
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Node]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.list
            .refresh(area, ctx, |_| News::All(rows(&ctx.figures.tiers)));
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.list.draw(area, buf, ctx);
        let (shown, _) = self.list.count();
        let free = usize::from(area.height).saturating_sub(shown + 2) > 0;
        if free && shown > 0 && self.list.rows().any(Entry::is_unpriced) {
            let note = " ? no price: `[prices]` of config.toml has none for these GPUs";
            let style = ctx.style(Meaning::Muted);
            buf.set_stringn(
                area.x,
                area.bottom() - 1,
                note,
                usize::from(area.width),
                style,
            );
        }
    }

    fn motion(&mut self, motion: Motion) {
        self.list.motion(motion, false);
    }

    fn select(&mut self, target: &Target) -> bool {
        let Target::Tier(name) = target else {
            return false;
        };
        let tier = Tier::from_name(name);
        (tier.is_some() || **name == *UNTOLD) && self.list.select(&(tier, None))
    }

    fn opens(&self, _ctx: &Ctx<'_>) -> Opens {
        let Some(row) = self.list.selected() else {
            return Opens::Description;
        };
        let mut filter = match row.figure.tier {
            Some(tier) => format!("tier={}", tier.name()),
            None => "tier=\"\"".to_owned(),
        };
        match &row.model {
            Some(model) if model.is_empty() => filter.push_str(" model=\"\""),
            Some(model) => filter.push_str(&format!(" model=\"{model}\"")),
            None => filter.push_str(" gpus>0"),
        }
        Opens::Filtered(ViewId::Nodes, filter)
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        super::describe::target(target, ctx)
    }

    list_view!(list, |r: &Entry| Target::Tier(r.tier().into()));
}
