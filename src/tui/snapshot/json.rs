//! A snapshot as JSON: figures, sources and typed rows. `null` stands for what is not known.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Request;
use crate::model::{Figures, GpuCell, GpuResource, SourceReport, SourceState};
use crate::tui::view::{FilterError, ViewId};
use crate::tui::views::fleet::{self, GroupBy};
use crate::tui::views::jobs::{self, JobRow};
use crate::tui::views::list;
use crate::tui::views::node_row::{self, NodeRow};
use crate::tui::views::nodes;
use crate::tui::views::queue_rows::{self, QueueRow};
use crate::tui::views::queues;
use crate::tui::views::tiers::{self, TierRow};
use crate::tui::views::timeline::{self, Happening};
use crate::tui::views::topology::{self, BranchRow};

/// The snapshot as JSON.
///
/// # Errors
/// What is wrong with the filter.
pub fn json(request: &Request<'_>) -> Result<Value, FilterError> {
    let cluster = request.cluster;
    let rows: Vec<Value> = match request.view {
        ViewId::Fleet => groups(request)?,
        ViewId::Nodes => {
            let rows = request.passing(&nodes::SPEC, node_row::all(cluster))?;
            rows.iter().map(node).collect()
        }
        ViewId::Topology => {
            let rows = request.passing(&nodes::SPEC, node_row::all(cluster))?;
            let branches = topology::branches(rows, cluster);
            branches.iter().map(branch).collect()
        }
        ViewId::Jobs => {
            let rows = jobs::all(cluster, |ns| request.in_scope(ns));
            let rows = request.passing(&jobs::SPEC, rows)?;
            rows.iter().map(job).collect()
        }
        ViewId::Timeline => {
            let rows = timeline::all(cluster, |ns| request.in_scope(ns));
            let rows = request.passing(&timeline::SPEC, rows)?;
            rows.iter().map(happening).collect()
        }
        ViewId::Queues => {
            let rows = queue_rows::of(cluster, request.namespace);
            let rows = list::in_order(request.passing(&queues::SPEC, rows)?);
            rows.iter().map(queue).collect()
        }
        ViewId::Tiers => {
            let rows = tiers::rows(&Figures::of(cluster).tiers);
            let rows = list::in_order(request.passing(&tiers::SPEC, rows)?);
            rows.iter().map(tier).collect()
        }
        ViewId::Browse => Vec::new(),
    };
    Ok(json!({
        "view": request.view.name(),
        "at": request.now.to_string(),
        "namespace": request.namespace.map(|n| &**n),
        "figures": figures(&Figures::of(cluster)),
        "sources": cluster.sources().map(source).collect::<Vec<_>>(),
        "rows": rows,
    }))
}

fn figures(f: &Figures) -> Value {
    json!({
        "nodes": f.nodes,
        "nodes_ready": f.nodes_ready,
        "nodes_cordoned": f.nodes_cordoned,
        "nodes_of_unknown_size": f.nodes_of_unknown_size,
        "gpus": f.gpus,
        "used_gpus": f.used_gpus,
        "free_gpus": f.free_gpus,
        "sick_gpus": f.sick_gpus,
        "cordoned_gpus": f.cordoned_gpus,
        "stranded_gpus": f.stranded_gpus,
        "allocated_devices": f.allocated_devices,
        "waiting_pods": f.waiting_pods,
        "waiting_gpus": f.waiting_gpus,
        "models": f.models.iter().map(|m| json!({
            "model": if m.model.is_empty() { Value::Null } else { json!(&*m.model) },
            "nodes": m.nodes,
            "gpus": m.gpus,
            "used_gpus": m.used_gpus,
            "free_gpus": m.free_gpus,
        })).collect::<Vec<_>>(),
        "mig": f.mig.iter().map(|m| json!({
            "profile": &*m.profile,
            "instances": m.instances,
            "used": m.used,
        })).collect::<Vec<_>>(),
        "namespaces": f.namespaces.iter().map(|n| json!({
            "namespace": &*n.namespace,
            "pods": n.pods,
            "gpus": n.gpus,
            "mig_instances": n.mig_instances,
            "waiting_pods": n.waiting_pods,
            "waiting_gpus": n.waiting_gpus,
        })).collect::<Vec<_>>(),
    })
}

fn source(report: &SourceReport) -> Value {
    let (state, why) = match &report.state {
        SourceState::Loading { .. } => ("loading", None),
        SourceState::Live => ("live", None),
        SourceState::Stale { why, .. } => ("stale", Some(why)),
        SourceState::Denied { why } => ("denied", Some(why)),
        SourceState::Absent { why } => ("absent", Some(why)),
        SourceState::Failed { why } => ("failed", Some(why)),
    };
    let since = match &report.state {
        SourceState::Stale { since, .. } => Some(since.to_string()),
        _ => None,
    };
    json!({
        "kind": report.kind.resource(),
        "namespace": report.namespace.as_deref(),
        "state": state,
        "why": why.map(|w| &**w),
        "since": since,
    })
}

fn cell(cell: &GpuCell) -> Value {
    match cell {
        GpuCell::Free => json!({"state": "free"}),
        GpuCell::Used => json!({"state": "used"}),
        GpuCell::Unhealthy => json!({"state": "sick"}),
        GpuCell::Shared { used, of } => json!({"state": "shared", "used": used, "of": of}),
        GpuCell::Mig { instances, slices } => json!({
            "state": "mig",
            "slices": slices,
            "instances": instances.iter().map(|i| json!({
                "profile": i.profile.to_string(),
                "slices": i.width,
                "used": i.used,
            })).collect::<Vec<_>>(),
        }),
    }
}

fn node(row: &NodeRow) -> Value {
    json!({
        "name": &*row.name,
        "model": row.model(),
        "tier": row.tier(),
        "leaf": row.leaf(),
        "zone": row.zone(),
        "gpus": row.gpus(),
        "used_gpus": row.used_gpus,
        "free_gpus": row.free_gpus,
        "sick_gpus": row.node.as_ref().map(|_| row.sick_gpus),
        "cells": row.cells.iter().map(cell).collect::<Vec<_>>(),
        "mig": row.mig.iter().map(|m| json!({
            "profile": m.profile.to_string(),
            "capacity": m.capacity,
            "allocatable": m.allocatable,
            "used": m.used,
        })).collect::<Vec<_>>(),
        "pods": row.pods,
        "cpu_percent": row.cpu_percent,
        "mem_percent": row.mem_percent,
        "created": row.created().map(|t| t.to_string()),
        "cordoned": row.node.as_ref().map(|n| n.unschedulable),
        "ready": row.node.as_ref().map(|_| row.is_ready()),
        "state": row.state,
    })
}

fn branch(row: &BranchRow) -> Value {
    json!({
        "level": row.level,
        "name": &*row.name,
        "way": &*row.way,
        "nodes": row.nodes,
        "gpus": row.gpus,
        "used_gpus": row.used,
        "free_gpus": row.free,
        "best_hole": row.hole.map(|(size, _)| size),
        "nodes_with_best_hole": row.hole.map(|(_, nodes)| nodes),
        "gangs": row.gangs,
        "crossing": row.crossing,
    })
}

fn groups(request: &Request<'_>) -> Result<Vec<Value>, FilterError> {
    let all = node_row::all(request.cluster);
    let rows: Vec<Arc<NodeRow>> = request
        .passing(&nodes::SPEC, all)?
        .into_iter()
        .filter(NodeRow::has_gpus)
        .map(Arc::new)
        .collect();
    let by = GroupBy::choose(&rows);
    let groups = fleet::groups(&rows, by, request.cluster);
    let shown = groups.iter().map(|group| {
        json!({
            "by": by.name(),
            "group": group.label,
            "gpus": group.gpus,
            "used_gpus": group.used_gpus,
            "free_gpus": group.free_gpus,
            "nodes": group.nodes.iter().filter_map(|n| rows.get(*n)).map(|row| json!({
                "name": &*row.name,
                "gpus": row.gpus(),
                "used_gpus": row.used_gpus,
                "state": row.state,
                "cells": row.cells.iter().map(cell).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    });
    Ok(shown.collect())
}

fn job(row: &JobRow) -> Value {
    let w = &row.0;
    let asked = w.asked.iter().map(|(resource, n)| {
        let name = match resource {
            GpuResource::Whole => "gpu".to_owned(),
            GpuResource::Shared => "gpu.shared".to_owned(),
            GpuResource::Mig(profile) => format!("mig-{profile}"),
        };
        json!({"resource": name, "amount": n})
    });
    json!({
        "namespace": &*w.key.namespace,
        "kind": &*w.key.kind,
        "name": &*w.key.name,
        "state": w.state.name(),
        "asked": asked.collect::<Vec<_>>(),
        "pods": w.pods,
        "running": w.running,
        "waiting": w.waiting,
        "failed": w.failed,
        "done": w.done,
        "priority": w.priority,
        "wanted": w.wanted,
        "queue": w.queue.as_deref(),
        "scheduler": &*w.scheduler,
        "created": w.created.map(|t| t.to_string()),
        "reason": w.reason.as_deref(),
    })
}

fn queue(row: &QueueRow) -> Value {
    #[allow(clippy::cast_precision_loss)]
    let gpus = |milli: Option<i64>| milli.map(|n| n as f64 / 1_000.0);
    json!({
        "admitter": row.key.admitter.name(),
        "kind": &*row.key.kind,
        "namespace": &*row.key.namespace,
        "name": &*row.key.name,
        "depth": row.depth,
        "device": queues::device_name(&row.resource),
        "guaranteed": gpus(row.guaranteed_milli),
        "used": gpus(row.used_milli),
        "burst": gpus(row.burst_milli()),
        "limit": gpus(row.limit_milli),
        "share": row.share(),
        "waiting": row.waiting,
        "waiting_devices": gpus(row.waiting_milli),
        "running": row.running,
        "state": row.state.map(|s| s.name()),
        "why": row.why.as_deref(),
    })
}

fn tier(row: &TierRow) -> Value {
    let figure = &row.figure;
    let money = &figure.money;
    let priced = |n: f64| (money.priced_gpus > 0).then_some(n);
    json!({
        "tier": figure.tier.map(crate::model::Tier::name),
        "model": row.model.as_deref(),
        "nodes": figure.nodes,
        "gpus": figure.part.gpus,
        "used_gpus": figure.part.used,
        "free_gpus": figure.part.free,
        "sick_gpus": figure.part.sick,
        "stranded_gpus": figure.part.stranded,
        "cordoned_gpus": figure.part.cordoned,
        "lowest_price": money.lowest,
        "highest_price": money.highest,
        "per_hour": priced(money.per_hour),
        "idle_per_hour": priced(money.idle_per_hour),
        "stranded_per_hour": priced(money.stranded_per_hour),
        "unpriced_gpus": money.unpriced_gpus,
        "next_end": figure.next_end.map(|t| t.to_string()),
        "ending_nodes": figure.ending,
    })
}

fn happening(h: &Happening) -> Value {
    let pods = match h {
        Happening::Event(_) | Happening::Fault(_) => None,
        Happening::Series(series) => Some(series.count()),
        Happening::Decision(_, more) => Some(more + 1),
    };
    json!({
        "at": h.at().map(|t| t.to_string()),
        "class": h.class(),
        "what": h.what().name(),
        "xid": h.xid().map(|x| x.code),
        "kind": h.kind(),
        "namespace": h.namespace(),
        "name": h.name(),
        "from": h.reporter(),
        "reason": h.reason(),
        "pods": pods,
        "text": h.sentence(),
    })
}
