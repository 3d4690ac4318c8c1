//! A queue: what it is due and uses by flavor, its line, what holds it up.

use ratatui::text::Line;

use super::sheet::{LIST_LIMIT, Sheet};
use crate::model::{AdmitterQueue, QueueKey, QueueState};
use crate::tui::format;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::queue_line::{self, LineRow};
use crate::tui::views::queue_rows;
use crate::tui::views::queues::{device_name, devices, state_meaning};

/// Places of the line that are written out.
const LINE_LIMIT: usize = 30;

pub(super) fn describe(key: &QueueKey, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let rows = queue_rows::of(ctx.cluster, None);
    let own: Vec<_> = rows.iter().filter(|r| r.key == *key).collect();
    let first = own.first()?;
    let mut sheet = Sheet::new(&key.kind, &key.to_string(), ctx);
    sheet.field("admitter", key.admitter.name());
    if let Some(state) = first.state {
        sheet.styled("state", state.name(), state_meaning(state));
    }
    if let Some(why) = &first.why {
        let meaning = match first.state {
            _ if first.denied => Meaning::Denied,
            Some(QueueState::Broken) => Meaning::Danger,
            _ => Meaning::Text,
        };
        sheet.styled("why", why.to_string(), meaning);
    }
    if first.is_system() {
        return Some(sheet.finish());
    }
    let queue = first.object.as_ref().and_then(|o| o.queue());
    if let Some(queue) = queue {
        about(&mut sheet, queue);
    }
    sheet.section("Due and use");
    for row in &own {
        let mut parts = Vec::new();
        let mut part = |name: &str, n: Option<i64>| {
            if let Some(n) = n {
                parts.push(format!("{name} {}", devices(n)));
            }
        };
        part("due", row.guaranteed_milli);
        part("used", row.used_milli);
        part("limit", row.limit_milli);
        part("waiting for", row.waiting_milli.filter(|n| *n > 0));
        if parts.is_empty() {
            parts.push("nothing is stated".to_owned());
        }
        sheet.field(&device_name(&row.resource), parts.join(", "));
    }
    flavors(&mut sheet, queue);
    line(&mut sheet, key, ctx);
    if let Some(object) = &first.object {
        sheet.section("Object");
        sheet.field("version", object.version.to_string());
        sheet.meta(&object.meta);
        sheet.labels(&object.meta);
    }
    sheet.happenings(|h| {
        h.kind() == &*key.kind && h.name() == &*key.name && h.namespace() == &*key.namespace
    });
    Some(sheet.finish())
}

fn about(sheet: &mut Sheet<'_>, queue: &AdmitterQueue) {
    if let Some(parent) = &queue.parent {
        sheet.field("below", format!("{} {parent}", parent.kind));
    }
    if let Some(weight) = queue.weight_milli {
        sheet.field("weight", devices(weight));
    }
    if let Some(priority) = queue.priority {
        sheet.field("priority", format::count(priority.into()));
    }
    if let Some(share) = queue.share_milli {
        let text = format!("{share} of 1,000 of what is lent, for its weight");
        sheet.field("borrowed share", text);
    }
    if queue.strict {
        sheet.field("order", "strict: the first in line holds back all others");
    }
    for note in &queue.notes {
        sheet.field("note", note.to_string());
    }
}

fn flavors(sheet: &mut Sheet<'_>, queue: Option<&AdmitterQueue>) {
    let terms = queue.into_iter().flat_map(|q| &q.terms);
    let named: Vec<_> = terms.filter(|t| t.flavor.is_some()).collect();
    if named.is_empty() {
        return;
    }
    sheet.section("By flavor");
    for term in named {
        let mut parts = Vec::new();
        let mut part = |name: &str, n: Option<i64>| {
            if let Some(n) = n {
                parts.push(format!("{name} {}", devices(n)));
            }
        };
        part("due", term.guaranteed_milli);
        part("of that never lent", term.kept_milli.filter(|n| *n > 0));
        part("used", term.used_milli);
        part("limit", term.limit_milli);
        let flavor = term.flavor.as_deref().unwrap_or_default();
        let device = device_name(&term.resource);
        sheet.text(
            format!("{flavor}  {device}  {}", parts.join(", ")),
            Meaning::Text,
        );
    }
}

fn line(sheet: &mut Sheet<'_>, key: &QueueKey, ctx: &Ctx<'_>) {
    let mut rows = queue_line::rows(ctx.cluster, key, ctx.now, |ns| ctx.in_scope(ns));
    rows.sort_by_key(crate::tui::table::Row::place);
    let (line, rest): (Vec<&LineRow>, Vec<&LineRow>) = rows.iter().partition(|r| r.state.waits());
    sheet.section("In line");
    if line.is_empty() {
        sheet.text("nothing waits", Meaning::Muted);
    }
    for row in line.iter().take(LINE_LIMIT) {
        let place = row.position.map_or(String::new(), |n| format!("{n}."));
        let why = row.reason.as_deref().unwrap_or("no reason is told");
        let age = format::age(row.queued, ctx.now);
        sheet.text(
            format!("{place:>4} {}  {age}  {why}", row.workload),
            Meaning::Text,
        );
    }
    if let Some(more) = line.len().checked_sub(LINE_LIMIT).filter(|n| *n > 0) {
        sheet.text(
            format!("and {} more", format::count_of(more)),
            Meaning::Muted,
        );
    }
    let runs = rest
        .iter()
        .filter(|r| r.state != crate::model::EntryState::Finished);
    let runs: Vec<_> = runs.collect();
    if !runs.is_empty() {
        sheet.section("Runs");
    }
    for row in runs.iter().take(LIST_LIMIT) {
        let why = row.reason.as_deref().unwrap_or_default();
        sheet.text(
            format!("{}  {}  {why}", row.workload, row.state.name()),
            Meaning::Text,
        );
    }
}

/// A piece of work of which only what stands for it in the queue is known.
pub(in crate::tui::views) fn work(row: &LineRow, ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let mut sheet = Sheet::new(&row.workload.kind, &row.workload.to_string(), ctx);
    sheet.field("state", row.state.name());
    if let Some(place) = row.position {
        sheet.field("place in line", format::count_of(place));
    }
    sheet.field("asks", row.ask());
    sheet.field("pods", format::count(row.pods.into()));
    sheet.field("priority", format::count(row.priority.into()));
    sheet.maybe("in line since", row.queued.map(format::timestamp));
    if let Some(reason) = &row.reason {
        sheet.field("reason", reason.to_string());
    }
    sheet.text("the job itself is not known", Meaning::Unknown);
    sheet.finish()
}
