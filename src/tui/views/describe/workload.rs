//! A workload: where its GPUs are, why it waits, its pods.

use std::collections::BTreeMap;

use ratatui::text::Line;

use super::sheet::{LIST_LIMIT, Sheet};
use crate::model::{GpuModel, GpuResource, Str, WorkloadKey};
use crate::tui::format;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::jobs::state_meaning;
use crate::tui::views::pods::{self, PodRow, Scope};

pub(super) fn describe(key: &WorkloadKey, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let row = ctx.cluster.workload(key)?;
    let mut sheet = Sheet::new(&key.kind, &key.to_string(), ctx);
    sheet.styled("state", row.state.name(), state_meaning(row.state));
    if let Some(reason) = &row.reason {
        sheet.field("reason", &**reason);
    }
    let ask = if row.asked.is_empty() {
        "no GPUs".to_owned()
    } else {
        format::ask(&row.asked)
    };
    sheet.field("asks", ask);
    let counts = [
        (row.running, "running"),
        (row.waiting, "waiting"),
        (row.failed, "failed"),
        (row.done, "done"),
    ];
    let mut text = format!("{} exist", format::count(row.pods.into()));
    for (n, what) in counts.into_iter().filter(|(n, _)| *n > 0) {
        text.push_str(&format!(", {} {what}", format::count(n.into())));
    }
    sheet.field("pods", text);
    sheet.field("priority", format::count(row.priority.into()));
    let scheduler = (!row.scheduler.is_empty()).then_some(&*row.scheduler);
    sheet.maybe("scheduler", scheduler);
    match row.created {
        Some(at) => sheet.field(
            "created",
            format!(
                "{} ago, {}",
                format::age(Some(at), ctx.now),
                format::timestamp(at)
            ),
        ),
        None => sheet.styled("created", format::UNKNOWN, Meaning::Unknown),
    }
    jobs(&mut sheet, key, ctx);
    let pods = pods::all(ctx.cluster, &Scope::Workload(key.clone()));
    places(&mut sheet, &pods, ctx);
    sheet.section("Pods");
    if pods.is_empty() {
        sheet.text("none", Meaning::Muted);
    }
    for pod in pods.iter().take(LIST_LIMIT) {
        sheet.line(super::pod::one_line(pod, row.reason.as_deref(), ctx));
    }
    if let Some(more) = pods.len().checked_sub(LIST_LIMIT).filter(|n| *n > 0) {
        sheet.text(
            format!("and {} more", format::count_of(more)),
            Meaning::Muted,
        );
    }
    sheet.happenings(|h| {
        h.namespace() == &*key.namespace
            && ((h.kind() == &*key.kind && h.name() == &*key.name)
                || (h.kind() == "Pod" && pods.iter().any(|p| *p.pod.meta.name == *h.name())))
    });
    Some(sheet.finish())
}

fn jobs(sheet: &mut Sheet<'_>, key: &WorkloadKey, ctx: &Ctx<'_>) {
    for job in ctx.cluster.workload_jobs(key).take(LIST_LIMIT) {
        sheet.section(&format!("Job {}", job.meta.name));
        sheet.field("parallelism", format::count(job.parallelism.into()));
        let completions = job.completions.map(|n| format::count(n.into()));
        sheet.maybe("completions", completions);
        if job.suspended {
            sheet.styled("suspended", "yes", Meaning::Warn);
        }
        sheet.field(
            "status",
            format!(
                "{} active, {} succeeded, {} failed",
                job.active, job.succeeded, job.failed
            ),
        );
        if let Some(failure) = &job.failure {
            sheet.styled("failure", failure.to_string(), Meaning::Danger);
        }
        for (label, at) in [("started", job.started), ("ended", job.finished)] {
            if let Some(at) = at {
                sheet.field(label, format::timestamp(at));
            }
        }
        for what in &job.meta.unreadable {
            sheet.styled("not readable", what.to_string(), Meaning::Warn);
        }
    }
}

/// Devices by node.
fn places(sheet: &mut Sheet<'_>, pods: &[PodRow], ctx: &Ctx<'_>) {
    let mut by_node: BTreeMap<&Str, BTreeMap<GpuResource, i64>> = BTreeMap::new();
    for row in pods {
        let Some(node) = row.pod.holds_node() else {
            continue;
        };
        for (resource, n) in row.pod.gpu_requests() {
            let sum = by_node
                .entry(node)
                .or_default()
                .entry(resource)
                .or_insert(0);
            *sum = sum.saturating_add(n);
        }
    }
    if by_node.is_empty() {
        return;
    }
    sheet.section("Where its GPUs are");
    for (name, devices) in by_node.iter().take(LIST_LIMIT) {
        let devices: Vec<(GpuResource, i64)> =
            devices.iter().map(|(r, n)| (r.clone(), *n)).collect();
        let place = match ctx.cluster.node(name) {
            None => "node not known".to_owned(),
            Some((node, _)) => {
                let model = node
                    .gpus
                    .model
                    .as_ref()
                    .map_or(format::UNKNOWN, GpuModel::short);
                let place = ctx.cluster.place(node);
                let leaf = place
                    .leaf()
                    .map_or_else(String::new, |l| format!(", leaf {l}"));
                format!("{model}{leaf}")
            }
        };
        sheet.text(
            format!("{:>12}  {name}  {place}", format::ask(&devices)),
            Meaning::Text,
        );
    }
    if let Some(more) = by_node.len().checked_sub(LIST_LIMIT).filter(|n| *n > 0) {
        sheet.text(
            format!("and {} more nodes", format::count_of(more)),
            Meaning::Muted,
        );
    }
}
