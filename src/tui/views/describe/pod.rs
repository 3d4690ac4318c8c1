//! A pod.

use ratatui::text::{Line, Span};

use super::sheet::Sheet;
use crate::model::{DecisionKind, GpuResource, Operator, Pod, TaintEffect, Uid};
use crate::tui::format;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::pods::PodRow;

pub(super) fn describe(uid: &Uid, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let pod = ctx.cluster.pod(uid)?;
    let row = PodRow::of(pod, ctx.cluster);
    let name = format!("{}/{}", pod.meta.namespace, pod.meta.name);
    let mut sheet = Sheet::new("Pod", &name, ctx);
    sheet.styled("phase", row.phase(), row.meaning());
    if let Some(reason) = &row.reason {
        sheet.field("reason", &**reason);
    }
    if let Some(key) = ctx.cluster.workload_of(uid) {
        sheet.field("workload", format!("{} {key}", key.kind));
    }
    place(&mut sheet, pod, ctx);
    let asked: Vec<(GpuResource, i64)> = pod.gpu_requests().collect();
    let ask = if asked.is_empty() {
        "no GPUs".to_owned()
    } else {
        format::ask(&asked)
    };
    sheet.field("asks", ask);
    if let Some(milli) = pod.milli_gpu() {
        sheet.field("GPU share", format!("{milli} thousandths of one GPU"));
    }
    sheet.meta(&pod.meta);
    if let Some(at) = pod.started {
        sheet.field("started", format::timestamp(at));
    }
    if let Some(at) = pod.finished {
        sheet.field("ended", format::timestamp(at));
    }
    sheet.field("restarts", format::count(pod.restarts.into()));
    scheduling(&mut sheet, pod);
    decision(&mut sheet, uid, ctx);
    sheet.happenings(|h| {
        h.kind() == "Pod" && h.name() == &*pod.meta.name && h.namespace() == &*pod.meta.namespace
    });
    sheet.labels(&pod.meta);
    Some(sheet.finish())
}

fn place(sheet: &mut Sheet<'_>, pod: &Pod, ctx: &Ctx<'_>) {
    let Some(name) = &pod.node else {
        sheet.styled("node", "none yet", Meaning::Waiting);
        return;
    };
    let mut text = name.to_string();
    if let Some((node, _)) = ctx.cluster.node(name) {
        let places = [
            node.gpus.model.as_ref().map(|m| m.short().to_owned()),
            ctx.cluster.place(node).leaf().map(|l| format!("leaf {l}")),
            node.zone().map(|z| format!("zone {z}")),
        ];
        for place in places.into_iter().flatten() {
            text.push_str(", ");
            text.push_str(&place);
        }
    }
    sheet.field("node", text);
    if pod.gpu_requests().next().is_some() && !pod.is_terminal() {
        sheet.styled(
            "device",
            "not known: neither the pod nor the node states it",
            Meaning::Unknown,
        );
    }
}

fn scheduling(sheet: &mut Sheet<'_>, pod: &Pod) {
    sheet.section("Scheduling");
    sheet.field("scheduler", &*pod.scheduler);
    let class = if pod.priority_class.is_empty() {
        String::new()
    } else {
        format!(" (class {})", pod.priority_class)
    };
    let never = if pod.never_preempts {
        ", never preempts"
    } else {
        ""
    };
    let priority = format!("{}{class}{never}", format::count(pod.priority.into()));
    sheet.field("priority", priority);
    if let Some(group) = &pod.group {
        let min = group
            .min_members
            .map_or_else(String::new, |n| format!(", at least {n} pods together"));
        sheet.field("gang", format!("{} {}{min}", group.kind, group.name));
    }
    for gate in &pod.gates {
        sheet.styled("held by gate", gate.to_string(), Meaning::Warn);
    }
    let asked = &pod.requests;
    sheet.field("CPU", format::cpu(asked.cpu_milli));
    sheet.field("memory", format::bytes(asked.mem_bytes));
    for (key, n) in &asked.extended {
        sheet.field(
            key.strip_prefix("nvidia.com/").unwrap_or(key),
            format::count(*n),
        );
    }
    let c = &pod.constraints;
    for (key, value) in &c.node_selector {
        sheet.field("node selector", format!("{key}={value}"));
    }
    for term in c.affinity.iter().flat_map(|a| &a.terms) {
        let words: Vec<String> = term
            .labels
            .iter()
            .chain(&term.fields)
            .map(|e| {
                let op = match e.operator {
                    Operator::In => "in",
                    Operator::NotIn => "not in",
                    Operator::Exists => "exists",
                    Operator::DoesNotExist => "does not exist",
                    Operator::Gt => "above",
                    Operator::Lt => "below",
                };
                let values = e.values.join(", ");
                if values.is_empty() {
                    format!("{} {op}", e.key)
                } else {
                    format!("{} {op} {values}", e.key)
                }
            })
            .collect();
        sheet.field("node affinity", words.join(" and "));
    }
    for t in &c.tolerations {
        let effect = match t.effect {
            None => "",
            Some(TaintEffect::NoSchedule) => " NoSchedule",
            Some(TaintEffect::PreferNoSchedule) => " PreferNoSchedule",
            Some(TaintEffect::NoExecute) => " NoExecute",
        };
        let text = match (&t.key, &t.value) {
            (None, _) => "every taint".to_owned(),
            (Some(key), None) => key.to_string(),
            (Some(key), Some(value)) => format!("{key}={value}"),
        };
        sheet.field("tolerates", format!("{text}{effect}"));
    }
    for claim in &c.claims {
        sheet.field("volume claim", &**claim);
    }
    for what in &c.unsupported {
        sheet.styled("beyond gpudeck", what.to_string(), Meaning::Warn);
    }
}

fn decision(sheet: &mut Sheet<'_>, uid: &Uid, ctx: &Ctx<'_>) {
    let Some(decision) = ctx.cluster.decision(uid) else {
        return;
    };
    sheet.section("Decision of gpudeck");
    let age = format::moment(Some(decision.at), ctx.now);
    match &decision.kind {
        DecisionKind::Placed { node, why } => {
            sheet.field("placed on", format!("{node} ({age})"));
            sheet.field("why", &**why);
        }
        DecisionKind::Waiting(reason) => {
            sheet.styled("waits", reason.to_string(), Meaning::Waiting);
            sheet.field("decided", age);
        }
        DecisionKind::Leaves {
            node,
            preemptor: (namespace, name),
            why,
        } => {
            sheet.styled("leaves", format!("{node} ({age})"), Meaning::Warn);
            sheet.field("for", format!("{namespace}/{name}"));
            sheet.field("why", &**why);
        }
    }
}

/// A pod as a line of another thing's description. `told`: a reason that stands there already.
pub(super) fn one_line(row: &PodRow, told: Option<&str>, ctx: &Ctx<'_>) -> Vec<Span<'static>> {
    let asked: Vec<(GpuResource, i64)> = row.pod.gpu_requests().collect();
    let name = format!("{}/{}", row.pod.meta.namespace, row.pod.meta.name);
    let place = row.pod.node.as_deref().unwrap_or(format::UNKNOWN);
    let mut spans = vec![
        Span::styled(format!("{:<12}", row.phase()), ctx.style(row.meaning())),
        Span::styled(
            format!("{:>12}  ", format::ask(&asked)),
            ctx.style(Meaning::Text),
        ),
        Span::styled(format!("{name}  "), ctx.style(Meaning::Text)),
        Span::styled(place.to_owned(), ctx.style(Meaning::Muted)),
    ];
    if let Some(reason) = row.reason.as_deref().filter(|r| told != Some(*r)) {
        spans.push(Span::styled(
            format!("  {reason}"),
            ctx.style(Meaning::Text),
        ));
    }
    spans
}
