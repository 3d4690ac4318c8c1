//! Events, decisions, namespaces.

use std::sync::Arc;

use jiff::Timestamp;
use ratatui::text::Line;

use super::sheet::Sheet;
use crate::model::{
    Decision, DecisionKind, FilterCount, Reason, Severity, Str, Uid, Xid, XidClass,
};
use crate::tui::browse::BrowseRow;
use crate::tui::format;
use crate::tui::object::ObjectRef;
use crate::tui::table::Row;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::happening;
use crate::tui::views::series::Series;
use crate::tui::views::timeline::{self, Happening};

pub(super) fn event(uid: &Uid, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let event = ctx.cluster.event(uid)?;
    let mut sheet = Sheet::new("Event", &event.reason, ctx);
    let (kind, meaning) = match event.severity {
        Severity::Warning => ("Warning", Meaning::Warn),
        Severity::Normal => ("Normal", Meaning::Text),
    };
    sheet.styled("type", kind, meaning);
    let namespace = if event.subject_namespace.is_empty() {
        String::new()
    } else {
        format!("{}/", event.subject_namespace)
    };
    let subject = format!("{} {namespace}{}", event.subject_kind, event.subject_name);
    sheet.field("about", subject);
    sheet.field("message", &*event.message);
    sheet.maybe(
        "from",
        (!event.reporter.is_empty()).then_some(&*event.reporter),
    );
    sheet.maybe("last seen", event.last_seen.map(format::timestamp));
    sheet.field(
        "seen",
        format!("{} times", format::count(event.count.max(1).into())),
    );
    if let Some(xid) = crate::tui::views::happening::xid(event) {
        code(&mut sheet, &xid);
    }
    sheet.meta(&event.meta);
    chain(&mut sheet, &Happening::Event(event.clone()), ctx);
    Some(sheet.finish())
}

/// A series of happenings: each of them, then what the first belongs together with.
pub(in crate::tui::views) fn series(series: &Series, ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let mut sheet = Sheet::new("Series", &series.subject(), ctx);
    sheet.field("told", series.sentence());
    sheet.section("One by one");
    for happening in series.all() {
        sheet.happening(happening, false);
    }
    if let Some(first) = series.first() {
        chain(&mut sheet, first, ctx);
    }
    sheet.finish()
}

/// A condition of a node.
pub(super) fn fault(node: &Str, kind: &Str, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let mut faults = ctx.cluster.node_faults();
    let fault = faults.find(|f| f.node == *node && f.kind == *kind)?;
    let mut sheet = Sheet::new("Condition", &format!("{kind} of node {node}"), ctx);
    if fault.planned {
        sheet.styled("is", "planned or under way, no fault", Meaning::Warn);
    } else {
        sheet.styled("is", "a fault", Meaning::Danger);
    }
    sheet.field("reason", &*fault.reason);
    sheet.field("message", &*fault.message);
    sheet.maybe("since", fault.since.map(format::timestamp));
    if let Some(xid) = Xid::in_condition(&fault.kind, &fault.reason, &fault.message) {
        code(&mut sheet, &xid);
    }
    chain(&mut sheet, &Happening::Fault(Arc::new(fault.clone())), ctx);
    Some(sheet.finish())
}

fn code(sheet: &mut Sheet<'_>, xid: &Xid) {
    let name = if xid.switch { "SXid" } else { "Xid" };
    sheet.section(&format!("{name} {}", xid.code));
    sheet.field("means", xid.meaning);
    sheet.styled("do", xid.action, Meaning::Warn);
    let class = match xid.class {
        XidClass::Ignore => "nothing has to be done",
        XidClass::App => "the program is at fault, or only it is hit",
        XidClass::Reset => "the GPU has to be reset",
        XidClass::Drain => "work has to leave first",
        XidClass::Reboot => "the node has to be restarted",
        XidClass::Hardware => "hardware, or the vendor",
        XidClass::Unknown => "NVIDIA publishes no action for it",
    };
    sheet.field("class", class);
}

/// What belongs together with it, in the order of time.
fn chain(sheet: &mut Sheet<'_>, start: &Happening, ctx: &Ctx<'_>) {
    let all = timeline::all(ctx.cluster, |_| true);
    let links = happening::chain(start, &all, ctx.cluster);
    if links.len() < 2 {
        return;
    }
    sheet.section("Chain");
    for link in &links {
        let here = link.key() == start.key();
        sheet.happening(link, here);
    }
}

/// An object of a list that was fetched: no more than the list tells.
pub(in crate::tui::views) fn listed(
    object: &ObjectRef,
    row: &BrowseRow,
    ctx: &Ctx<'_>,
) -> Vec<Line<'static>> {
    let mut sheet = Sheet::new(&object.kind, &object.name, ctx);
    if let Some(resource) = &object.resource {
        sheet.field("apiVersion", resource.group_version());
    }
    if !row.namespace.is_empty() {
        sheet.field("namespace", &*row.namespace);
    }
    sheet.maybe("created", row.created.map(format::timestamp));
    if !row.unreadable.is_empty() {
        sheet.styled("unreadable", &*row.unreadable, Meaning::Warn);
    }
    sheet.text("y fetches the whole object", Meaning::Muted);
    sheet.finish()
}

pub(super) fn decision(at: Timestamp, pod: &Uid, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let found = ctx
        .cluster
        .decision_log()
        .rev()
        .find(|d| d.at == at && d.pod == *pod)?;
    let name = format!("about pod {}/{}", found.namespace, found.name);
    let mut sheet = Sheet::new("Decision", &name, ctx);
    sheet.field("when", format::timestamp(found.at));
    if let Some(key) = ctx.cluster.workload_of(pod) {
        sheet.field("workload", format!("{} {key}", key.kind));
    } else {
        sheet.styled("pod", "does not exist any more", Meaning::Muted);
    }
    write(&mut sheet, found);
    chain(&mut sheet, &Happening::Decision(found.clone(), 0), ctx);
    Some(sheet.finish())
}

fn write(sheet: &mut Sheet<'_>, decision: &Decision) {
    let reason = match &decision.kind {
        DecisionKind::Placed { node, why } => {
            sheet.styled("placed on", node.to_string(), Meaning::Ok);
            sheet.field("why", &**why);
            return;
        }
        DecisionKind::Leaves {
            node,
            preemptor: (namespace, name),
            why,
        } => {
            sheet.styled("leaves", node.to_string(), Meaning::Warn);
            sheet.field("for", format!("{namespace}/{name}"));
            sheet.field("why", &**why);
            return;
        }
        DecisionKind::Waiting(reason) => reason,
    };
    sheet.styled("waits", reason.to_string(), Meaning::Waiting);
    let filters: &[FilterCount] = match reason {
        Reason::NoNodeFits { filters, .. } | Reason::GangDoesNotFit { filters, .. } => filters,
        _ => return,
    };
    sheet.section("Nodes by what refuses them");
    for f in filters {
        sheet.text(
            format!("{:>7}  {}", format::count(f.nodes.into()), f.why),
            Meaning::Text,
        );
    }
}

pub(super) fn namespace(name: &Str, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    if !ctx.cluster.namespace_names().contains(name) {
        return None;
    }
    let mut sheet = Sheet::new("Namespace", name, ctx);
    match ctx.cluster.namespaces().find(|n| n.meta.name == *name) {
        Some(ns) if ns.terminating => sheet.styled("state", "terminating", Meaning::Warn),
        Some(_) => sheet.field("state", "active"),
        None => sheet.styled("state", format::UNKNOWN, Meaning::Unknown),
    }
    let figures = ctx.cluster.namespace_figures();
    match figures.iter().find(|f| f.namespace == *name) {
        Some(f) => {
            sheet.field("pods", format::count(f.pods.into()));
            sheet.field("GPUs held", format::count(f.gpus));
            sheet.field(
                "MIG held",
                format!("{} instances", format::count(f.mig_instances)),
            );
            sheet.field(
                "waiting",
                format!(
                    "{} pods that ask {} GPUs",
                    format::count(f.waiting_pods.into()),
                    format::count(f.waiting_gpus)
                ),
            );
        }
        None => sheet.styled("pods", "none that hold or wait", Meaning::Muted),
    }
    Some(sheet.finish())
}
