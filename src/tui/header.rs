//! The three lines at the top: where you are and how fresh it is; the views; the figures.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::app::App;
use super::format;
use super::glyphs::Glyph;
use super::session::Leader;
use super::state::DataState;
use super::theme::Meaning;
use super::view::{Ctx, ViewId};
use crate::model::{Figures, Kind, NamespaceFigure, truncate_middle};

/// The kinds that the console shows, the most important first.
const SHOWN: [Kind; 6] = [
    Kind::Node,
    Kind::Pod,
    Kind::Job,
    Kind::Event,
    Kind::Namespace,
    Kind::PriorityClass,
];

/// Whether the first line tells an age that grows by the second.
pub(super) fn ages(ctx: &Ctx<'_>) -> bool {
    matches!(freshness(ctx), DataState::Stale(since, _)
        if format::secs_since(since, ctx.now) < 3_600)
}

/// The worst state of all shown kinds, denied ones aside; of several stale ones the oldest.
fn freshness(ctx: &Ctx<'_>) -> DataState {
    let mut worst = DataState::Live;
    for kind in SHOWN {
        let state = DataState::of(ctx.cluster, kind);
        let rank = |s: &DataState| match s {
            DataState::Live | DataState::Denied(..) => 0,
            DataState::Loading(..) => 1,
            DataState::Failed(..) => 2,
            DataState::Stale(..) => 3,
        };
        let older = matches!((&state, &worst),
            (DataState::Stale(a, _), DataState::Stale(b, _)) if a < b);
        if rank(&state) > rank(&worst) || older {
            worst = state;
        }
    }
    worst
}

fn denied(ctx: &Ctx<'_>) -> Vec<Kind> {
    let states = SHOWN.map(|kind| (kind, DataState::of(ctx.cluster, kind)));
    let denied = states
        .into_iter()
        .filter(|(_, s)| matches!(s, DataState::Denied(..)));
    denied.map(|(kind, _)| kind).collect()
}

fn freshness_spans(ctx: &Ctx<'_>) -> Vec<Span<'static>> {
    match freshness(ctx) {
        DataState::Live | DataState::Denied(..) => vec![Span::styled(
            format!("{} live", ctx.glyph(Glyph::Live)),
            ctx.style(Meaning::Ok),
        )],
        DataState::Loading(kind, 0) => vec![Span::styled(
            format!("{} {kind}", ctx.glyph(Glyph::Ellipsis)),
            ctx.style(Meaning::Loading),
        )],
        DataState::Loading(kind, read) => vec![Span::styled(
            format!(
                "{} {kind} {}",
                ctx.glyph(Glyph::Ellipsis),
                format::count(i64::try_from(read).unwrap_or(i64::MAX))
            ),
            ctx.style(Meaning::Loading),
        )],
        DataState::Stale(since, _) => vec![Span::styled(
            format!(
                "{} stale {}",
                ctx.glyph(Glyph::NotLive),
                format::age(Some(since), ctx.now)
            ),
            ctx.style(Meaning::Stale),
        )],
        DataState::Failed(kind, _) => vec![Span::styled(
            format!("{} no answer: {kind}", ctx.glyph(Glyph::NotLive)),
            ctx.style(Meaning::Danger),
        )],
    }
}

fn denied_span(ctx: &Ctx<'_>) -> Option<Span<'static>> {
    let denied = denied(ctx);
    let first = denied.first()?;
    let more = match denied.len() - 1 {
        0 => String::new(),
        n => format!(" +{n}"),
    };
    Some(Span::styled(
        format!("denied: list {first}{more}"),
        ctx.style(Meaning::Denied),
    ))
}

fn leader_text(leader: &Leader) -> Option<String> {
    match leader {
        Leader::Unknown => None,
        Leader::None => Some("no leader".to_owned()),
        Leader::Here => Some("leader here".to_owned()),
        Leader::Other { holder, standby } => Some(format!(
            "leader {}{}",
            truncate_middle(holder, 24),
            if *standby { " (standby here)" } else { "" }
        )),
    }
}

/// Draws up to three lines, as many as `area` has.
pub(super) fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let ctx = app.world().ctx();
    for (n, y) in (area.top()..area.bottom()).enumerate() {
        let strip = Rect::new(area.x, y, area.width, 1);
        match n {
            0 => where_line(app, strip, buf, &ctx),
            1 => views_line(app, strip, buf, &ctx),
            2 => figures_line(strip, buf, &ctx),
            _ => {}
        }
    }
}

/// A part of the right end of a line; the one with the largest rank goes first when there is no
/// room, those of rank 0 never go.
struct Part {
    rank: u8,
    spans: Vec<Span<'static>>,
}

impl Part {
    fn new(rank: u8, spans: Vec<Span<'static>>) -> Self {
        Part { rank, spans }
    }

    fn width(&self) -> usize {
        self.spans.iter().map(Span::width).sum()
    }
}

/// Between two parts of the right end.
const PART_GAP: usize = 3;

/// `left` from the left, the parts against the right end. When it gets narrow parts go, then
/// `left` is cut.
fn two_ends(
    left: &Line<'static>,
    mut parts: Vec<Part>,
    strip: Rect,
    buf: &mut Buffer,
    ctx: &Ctx<'_>,
) {
    let width = usize::from(strip.width);
    let total = |parts: &[Part]| {
        let gaps = PART_GAP * parts.len().saturating_sub(1);
        parts.iter().map(Part::width).sum::<usize>() + gaps
    };
    while left.width() + PART_GAP + total(&parts) + 1 > width {
        let worst = parts.iter().map(|p| p.rank).max().filter(|r| *r > 0);
        let Some(at) = worst.and_then(|w| parts.iter().rposition(|p| p.rank == w)) else {
            break;
        };
        parts.remove(at);
    }
    let mut right = Line::default();
    for part in parts {
        if !right.spans.is_empty() {
            right.push_span(Span::raw(" ".repeat(PART_GAP)));
        }
        right.spans.extend(part.spans);
    }
    if right.spans.is_empty() {
        buf.set_line(strip.x, strip.y, left, strip.width);
        return;
    }
    // One blank before the right end, one between the two.
    let taken = u16::try_from(right.width() + 1)
        .unwrap_or(u16::MAX)
        .min(strip.width);
    let room = (strip.width - taken).saturating_sub(1);
    buf.set_line(strip.x, strip.y, left, room);
    if left.width() > usize::from(room) && room > 0 {
        let cut = ctx.glyph(Glyph::Ellipsis);
        buf.set_string(strip.x + room - 1, strip.y, cut, ctx.style(Meaning::Muted));
    }
    let x = strip.right() - taken;
    buf.set_line(x, strip.y, &right, taken);
}

fn where_line(app: &App, strip: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
    let world = app.world();
    let session = &world.session;
    let namespace = session.namespace.as_ref().map_or("all namespaces", |n| n);
    let left = Line::from(vec![
        Span::styled(" gpudeck  ", ctx.style(Meaning::Muted)),
        Span::styled(
            truncate_middle(&session.context, 40).into_owned(),
            ctx.style(Meaning::Title),
        ),
        Span::styled(
            format!(" {} ", ctx.glyph(Glyph::Into)),
            ctx.style(Meaning::Muted),
        ),
        Span::styled(
            truncate_middle(namespace, 40).into_owned(),
            ctx.style(Meaning::Text),
        ),
    ]);
    let mut right = vec![Part::new(0, freshness_spans(ctx))];
    if let Some(to) = &world.connecting {
        let text = format!(
            "{} connecting to {}",
            ctx.glyph(Glyph::Ellipsis),
            truncate_middle(to, 30)
        );
        let span = Span::styled(text, ctx.style(Meaning::Loading));
        right.push(Part::new(1, vec![span]));
    }
    if let Some(span) = denied_span(ctx) {
        right.push(Part::new(1, vec![span]));
    }
    let unreadable = ctx.cluster.unreadable_count();
    if unreadable > 0 {
        let text = format!("{} unreadable", format::count_of(unreadable));
        right.push(Part::new(
            2,
            vec![Span::styled(text, ctx.style(Meaning::Warn))],
        ));
    }
    if let Some(text) = leader_text(&world.leader) {
        let span = Span::styled(text, ctx.style(Meaning::Muted));
        right.push(Part::new(2, vec![span]));
    }
    if session.read_only {
        let span = Span::styled("READ-ONLY", ctx.style(Meaning::Accent));
        right.push(Part::new(0, vec![span]));
    }
    two_ends(&left, right, strip, buf, ctx);
}

fn views_line(app: &App, strip: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
    let mut left = Line::default();
    for view in &app.views {
        // The list of some collection is a place only while one is there.
        if view.id() == ViewId::Browse && app.view().is_none_or(|v| v.id() != ViewId::Browse) {
            continue;
        }
        let here = app.view().is_some_and(|v| v.id() == view.id());
        let style = ctx.style(if here { Meaning::Title } else { Meaning::Muted });
        let key = app
            .world()
            .keymap
            .key_of(super::command::CommandId::View(view.id()));
        let key = key.map_or(String::new(), |k| format!("{k} "));
        left.push_span(Span::styled(format!(" {key}"), ctx.style(Meaning::Key)));
        let title = match app.world().browse.resource() {
            Some(resource) if view.id() == ViewId::Browse => &*resource.plural,
            _ => view.id().title(),
        };
        left.push_span(Span::styled(
            format!("{} ", truncate_middle(title, 24)),
            style,
        ));
    }
    let mut right = Vec::new();
    if let Some(view) = app.view() {
        if !view.filter().is_empty() {
            let (shown, all) = view.count();
            let spans = vec![
                Span::styled(
                    format!("/{}", truncate_middle(view.filter(), 40)),
                    ctx.style(Meaning::Accent),
                ),
                Span::styled(
                    format!(" {} of {}", figure(shown), figure(all)),
                    ctx.style(Meaning::Muted),
                ),
            ];
            right.push(Part::new(0, spans));
        }
        if let Some(mode) = view.mode() {
            let span = Span::styled(mode, ctx.style(Meaning::Muted));
            right.push(Part::new(1, vec![span]));
        }
    }
    two_ends(&left, right, strip, buf, ctx);
}

fn figure(n: usize) -> String {
    format::count(i64::try_from(n).unwrap_or(i64::MAX))
}

fn figures_line(strip: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
    let mut line = Line::default();
    let mut width = 0;
    for figure in figures(ctx) {
        width += figure.iter().map(Span::width).sum::<usize>();
        if width > usize::from(strip.width) {
            break;
        }
        line.spans.extend(figure);
    }
    buf.set_line(strip.x, strip.y, &line, strip.width);
}

/// The figures an on-call person asks first, most important first: those that do not fit go.
fn figures(ctx: &Ctx<'_>) -> Vec<[Span<'static>; 3]> {
    let f: &Figures = ctx.figures;
    let mut figures = Vec::new();
    let mut add = |label: &str, value: String, meaning: Meaning| {
        let known = value != format::UNKNOWN;
        let label = Span::styled(format!(" {label} "), ctx.style(Meaning::Muted));
        let (text, meaning) = if known {
            (value, meaning)
        } else {
            (ctx.glyph(Glyph::Unknown).to_owned(), Meaning::Unknown)
        };
        figures.push([
            label,
            Span::styled(text, ctx.style(meaning)),
            Span::raw(" "),
        ]);
    };
    let gpus = match (f.gpus, f.nodes_of_unknown_size) {
        (Some(n), 0) => format::count(n.into()),
        // Some nodes do not tell how many they have: it is more than this.
        (Some(n), _) => format!("{}+?", format::count(n.into())),
        (None, _) => format::UNKNOWN.to_owned(),
    };
    let alarming = |n: Option<f64>, meaning| match n {
        Some(n) if n > 0.0 => meaning,
        _ => Meaning::Muted,
    };
    let waiting = |pods: Option<u32>, gpus: Option<i64>| match (pods, gpus) {
        (Some(pods), Some(gpus)) => format!(
            "{} pods {} GPUs",
            format::count(pods.into()),
            format::count(gpus)
        ),
        _ => format::UNKNOWN.to_owned(),
    };
    // What belongs to the chosen namespace comes first; GPUs belong to the cluster, and say so.
    if let Some(name) = ctx.namespace {
        let part = f.namespaces.iter().find(|n| n.namespace == *name);
        let known = f.allocated_devices.is_some();
        let of = |n: fn(&NamespaceFigure) -> i64| known.then(|| part.map_or(0, n));
        let mut holds = format::count_or_unknown(of(|n| n.gpus));
        if let Some(mig) = of(|n| n.mig_instances).filter(|n| *n > 0) {
            holds = format!("{holds} + {} MIG", format::count(mig));
        }
        let label = format!("{} holds", truncate_middle(name, 20));
        add(&label, holds, Meaning::Text);
        let pods = known.then(|| part.map_or(0, |n| n.waiting_pods));
        let meaning = alarming(pods.map(f64::from), Meaning::Waiting);
        add("waiting", waiting(pods, of(|n| n.waiting_gpus)), meaning);
    }
    let label = if ctx.namespace.is_some() {
        "cluster: GPUs"
    } else {
        "GPUs"
    };
    add(label, gpus, Meaning::Text);
    let share = match (f.used_gpus, f.gpus) {
        (Some(used), Some(all)) if all > 0 => {
            format!(" {}", format::percent(used / f64::from(all)))
        }
        _ => String::new(),
    };
    let used = match f.used_gpus {
        Some(n) => format!("{}{share}", format::amount(n)),
        None => format::UNKNOWN.to_owned(),
    };
    add("used", used, Meaning::Text);
    if let (None, None, Some(held)) = (ctx.namespace, f.used_gpus, f.allocated_devices) {
        // Without nodes the pods still tell how many devices they hold.
        add("held by pods", format::count(held), Meaning::Text);
    }
    add(
        "free",
        format::amount_or_unknown(f.free_gpus),
        Meaning::Text,
    );
    add(
        "sick",
        format::amount_or_unknown(f.sick_gpus),
        alarming(f.sick_gpus, Meaning::Sick),
    );
    if ctx.namespace.is_none() {
        add(
            "waiting",
            waiting(f.waiting_pods, f.waiting_gpus),
            alarming(f.waiting_pods.map(f64::from), Meaning::Waiting),
        );
    }
    let money = &f.money;
    if money.priced_gpus > 0 {
        let currency = &ctx.cluster.pricing().currency;
        let unpriced = if money.unpriced_gpus > 0 { "+?" } else { "" };
        let all = format::money(money.per_hour, currency);
        add("cost", format!("{all}{unpriced}/h"), Meaning::Text);
        if f.free_gpus.is_some() {
            let idle = format::money(money.idle_per_hour, currency);
            add(
                "idle",
                format!("{idle}{unpriced}/h"),
                alarming(Some(money.idle_per_hour), Meaning::Warn),
            );
        }
    }
    add(
        "cordoned",
        format::amount_or_unknown(f.cordoned_gpus),
        alarming(f.cordoned_gpus, Meaning::Warn),
    );
    if f.stranded_gpus.is_some_and(|n| n > 0.0) {
        add(
            "stranded",
            format::amount_or_unknown(f.stranded_gpus),
            Meaning::Muted,
        );
    }
    add("nodes", format::count_or_unknown(f.nodes), Meaning::Text);
    for model in f.models.iter().filter(|m| !m.model.is_empty()).take(6) {
        let text = format!(
            "{}/{}",
            format::amount(model.free_gpus),
            format::count(model.gpus.into())
        );
        add(&format!("{} free", model.model), text, Meaning::Text);
    }
    figures
}
