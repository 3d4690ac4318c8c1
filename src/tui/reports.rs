//! Texts about what the console reads: the state of each source, and what could not be read.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::format;
use super::theme::Meaning;
use super::view::Ctx;
use crate::model::{Kind, SourceReport, SourceState};

/// Columns of a kind's name.
const KIND_WIDTH: usize = 24;

fn pad(text: &str, width: usize) -> String {
    format!("{text}{} ", " ".repeat(width.saturating_sub(text.width())))
}

fn muted(text: impl Into<String>, ctx: &Ctx<'_>) -> Line<'static> {
    Line::styled(text.into(), ctx.style(Meaning::Muted))
}

/// Kind, state, since when, and why, of each list that is watched.
pub(super) fn sources(ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let mut lines = vec![
        muted(
            "What is read from the API server, and how well it is known.",
            ctx,
        ),
        Line::default(),
    ];
    for kind in Kind::ALL.into_iter().chain(Kind::foreign()) {
        let mut any = false;
        for report in ctx.cluster.sources().filter(|r| r.kind == kind) {
            any = true;
            lines.extend(source(report, ctx));
        }
        if !any {
            lines.push(Line::from(vec![
                Span::styled(pad(kind.resource(), KIND_WIDTH), ctx.style(Meaning::Text)),
                Span::styled("not asked for yet", ctx.style(Meaning::Loading)),
            ]));
        }
    }
    lines
}

fn source(report: &SourceReport, ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let name = match &report.namespace {
        Some(namespace) => format!("{} in {namespace}", report.kind.resource()),
        None => report.kind.resource().to_owned(),
    };
    let (word, meaning, why) = match &report.state {
        SourceState::Loading { read } => {
            let read = format::count_of(*read);
            (format!("loading, {read} read"), Meaning::Loading, None)
        }
        SourceState::Live => ("live".to_owned(), Meaning::Ok, None),
        SourceState::Stale { since, why } => {
            let age = format::age(Some(*since), ctx.now);
            (
                format!("stale, last heard {age} ago"),
                Meaning::Stale,
                Some(why),
            )
        }
        SourceState::Denied { why } => ("denied".to_owned(), Meaning::Denied, Some(why)),
        SourceState::Absent { why } => ("not there".to_owned(), Meaning::Muted, Some(why)),
        SourceState::Failed { why } => ("no answer".to_owned(), Meaning::Danger, Some(why)),
    };
    let since = format!("  for {}", format::age(Some(report.at), ctx.now));
    let mut lines = vec![Line::from(vec![
        Span::styled(pad(&name, KIND_WIDTH), ctx.style(Meaning::Text)),
        Span::styled(word, ctx.style(meaning)),
        Span::styled(since, ctx.style(Meaning::Muted)),
    ])];
    if let Some(why) = why {
        lines.push(muted(format!("  {why}"), ctx));
    }
    lines
}

/// What could not be read: objects as a whole, and parts of those that are shown.
pub(super) fn unreadable(ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let whole = ctx.cluster.unreadable().rev();
    let whole: Vec<Line<'static>> = whole
        .map(|(_, what)| Line::raw(format!("  {what}")))
        .collect();
    let parts: Vec<Line<'static>> = ctx
        .cluster
        .partly_read()
        .flat_map(|(kind, name, what)| {
            let name = format!("  {} {name}: ", kind.resource());
            what.iter().map(move |w| Line::raw(format!("{name}{w}")))
        })
        .collect();
    if whole.is_empty() && parts.is_empty() {
        return vec![muted("Every object so far could be read.", ctx)];
    }
    let mut section = |title: &str, rows: Vec<Line<'static>>| {
        if rows.is_empty() {
            return;
        }
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(title.to_owned(), ctx.style(Meaning::Header)));
        lines.extend(rows);
    };
    section("Objects that are not shown, the latest first", whole);
    section(
        "Objects that are shown without what could not be read",
        parts,
    );
    lines
}
