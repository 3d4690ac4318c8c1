//! A snapshot as text: the figures, what is not known, then all rows.

use std::fmt::Write as _;
use std::sync::Arc;

use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::Request;
use crate::model::{Figures, SourceState};
use crate::tui::browse;
use crate::tui::format;
use crate::tui::glyphs::{Glyph, Glyphs};
use crate::tui::table::{Align, Cell, Row};
use crate::tui::theme::{Depth, Theme};
use crate::tui::view::{Ctx, FilterError, ViewId};
use crate::tui::views::fleet::{self, GroupBy};
use crate::tui::views::list::Spec;
use crate::tui::views::node_row::NodeRow;
use crate::tui::views::topology::{self, BranchRow};
use crate::tui::views::{jobs, list, node_row, nodes, queue_rows, queues, tiers, timeline};

/// Columns that a drawn cell may take.
const CELL: u16 = 400;

/// The snapshot as text.
///
/// # Errors
/// What is wrong with the filter.
pub fn text(request: &Request<'_>) -> Result<String, FilterError> {
    let figures = Figures::of(request.cluster);
    let theme = Theme::default_for(Depth::Mono);
    let glyphs = Glyphs {
        ascii: request.ascii,
    };
    let ctx = Ctx {
        version: request.cluster.version(),
        cluster: request.cluster,
        generation: 0,
        figures: &figures,
        now: request.now,
        theme: &theme,
        glyphs,
        namespace: request.namespace,
        browse: &browse::NOTHING,
        job: None,
    };
    let mut out = String::new();
    write_figures(&mut out, &figures);
    write_sources(&mut out, request);
    out.push('\n');
    let cluster = request.cluster;
    match request.view {
        ViewId::Fleet => map(&mut out, request, &ctx)?,
        ViewId::Nodes => {
            let rows = request.passing(&nodes::SPEC, node_row::all(cluster))?;
            table(&mut out, &nodes::SPEC, rows, &ctx);
        }
        ViewId::Topology => {
            let rows = request.passing(&nodes::SPEC, node_row::all(cluster))?;
            network(&mut out, &topology::branches(rows, cluster));
        }
        ViewId::Jobs => {
            let rows = jobs::all(cluster, |ns| request.in_scope(ns));
            let rows = request.passing(&jobs::SPEC, rows)?;
            table(&mut out, &jobs::SPEC, rows, &ctx);
        }
        ViewId::Timeline => {
            let rows = timeline::all(cluster, |ns| request.in_scope(ns));
            let rows = request.passing(&timeline::SPEC, rows)?;
            table(&mut out, &timeline::SPEC, rows, &ctx);
        }
        ViewId::Queues => {
            let rows = queue_rows::of(cluster, request.namespace);
            let rows = list::in_order(request.passing(&queues::SPEC, rows)?);
            table(&mut out, &queues::SPEC, rows, &ctx);
        }
        ViewId::Tiers => {
            let rows = request.passing(&tiers::SPEC, tiers::rows(&figures.tiers))?;
            table(&mut out, &tiers::SPEC, list::in_order(rows), &ctx);
        }
        // A list is fetched on demand; a snapshot is of what is watched.
        ViewId::Browse => {}
    }
    Ok(glyphs.plain(&out))
}

fn write_figures(out: &mut String, f: &Figures) {
    let mut line = |label: &str, parts: &[(&str, String)]| {
        let parts: Vec<String> = parts
            .iter()
            .map(|(name, value)| match &**value {
                "" => format!("{name:<12}"),
                value => format!("{name} {value}"),
            })
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{label:<8} {}", parts.join("  "));
    };
    line(
        "nodes",
        &[
            ("all", format::count_or_unknown(f.nodes)),
            ("ready", format::count_or_unknown(f.nodes_ready)),
            ("cordoned", format::count_or_unknown(f.nodes_cordoned)),
        ],
    );
    line(
        "GPUs",
        &[
            ("all", format::count_or_unknown(f.gpus)),
            ("used", format::amount_or_unknown(f.used_gpus)),
            ("free", format::amount_or_unknown(f.free_gpus)),
            ("sick", format::amount_or_unknown(f.sick_gpus)),
            ("cordoned", format::amount_or_unknown(f.cordoned_gpus)),
            ("stranded", format::amount_or_unknown(f.stranded_gpus)),
        ],
    );
    line(
        "devices",
        &[("allocated", format::count_or_unknown(f.allocated_devices))],
    );
    line(
        "waiting",
        &[
            ("pods", format::count_or_unknown(f.waiting_pods)),
            ("GPUs", format::count_or_unknown(f.waiting_gpus)),
        ],
    );
    for m in &f.models {
        let name = if m.model.is_empty() {
            format::UNKNOWN
        } else {
            &m.model
        };
        line(
            "model",
            &[
                (name, String::new()),
                ("nodes", format::count(m.nodes.into())),
                ("GPUs", format::count(m.gpus.into())),
                ("used", format::amount(m.used_gpus)),
                ("free", format::amount(m.free_gpus)),
            ],
        );
    }
    for m in &f.mig {
        line(
            "MIG",
            &[
                (&m.profile, String::new()),
                ("instances", format::count(m.instances.into())),
                ("used", format::count(m.used.into())),
            ],
        );
    }
    if f.nodes_of_unknown_size > 0 {
        let n = format::count(f.nodes_of_unknown_size.into());
        line("unknown", &[("nodes that do not state their GPUs", n)]);
    }
}

/// Whatever is not live, so that what is missing is not taken for empty.
fn write_sources(out: &mut String, request: &Request<'_>) {
    for source in request.cluster.sources() {
        let place = source
            .namespace
            .as_ref()
            .map_or_else(String::new, |n| format!(" in {n}"));
        let kind = source.kind;
        let _ = match &source.state {
            // A system that is not installed is no trouble of this one.
            SourceState::Live | SourceState::Absent { .. } => Ok(()),
            SourceState::Loading { read } => writeln!(
                out,
                "loading  {kind}{place}, {} read",
                format::count_of(*read)
            ),
            SourceState::Stale { since, why } => writeln!(
                out,
                "stale    {kind}{place} for {}: {why}",
                format::age(Some(*since), request.now)
            ),
            SourceState::Denied { why } => {
                writeln!(out, "denied   list {kind}{place}: {why}")
            }
            SourceState::Failed { why } => {
                writeln!(out, "failed   list {kind}{place}: {why}")
            }
        };
    }
}

fn plain(line: &Line<'_>) -> String {
    line.spans.iter().map(|s| &*s.content).collect()
}

/// All rows under their headers, each column as wide as its widest cell.
fn table<R: Row>(out: &mut String, spec: &Spec<R>, rows: Vec<R>, ctx: &Ctx<'_>) {
    let rows: Vec<Arc<R>> = rows.into_iter().map(Arc::new).collect();
    let columns: Vec<(Align, Vec<String>)> = spec
        .columns
        .iter()
        .map(|column| {
            let cells = rows.iter().map(|row| match (column.cell)(row, ctx, CELL) {
                Cell::Text(text, _) => text,
                Cell::Spans(line) => plain(&line),
            });
            let header = std::iter::once(column.header.to_owned());
            (column.align, header.chain(cells).collect())
        })
        .collect();
    let mut lines = vec![String::new(); rows.len() + 1];
    for (align, cells) in columns {
        let widest = cells.iter().map(|c| c.width()).max().unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(cells) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let pad = " ".repeat(widest.saturating_sub(cell.width()));
            match align {
                Align::Left => {
                    line.push_str(&cell);
                    line.push_str(&pad);
                }
                Align::Right => {
                    line.push_str(&pad);
                    line.push_str(&cell);
                }
            }
        }
    }
    for line in lines {
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// The branches of the network with their figures.
fn network(out: &mut String, branches: &[BranchRow]) {
    let name = |b: &BranchRow| {
        let indent = "  ".repeat(usize::from(b.depth));
        let words = b.way.rsplit('/').next().unwrap_or(&b.way);
        format!("{indent}{words}")
    };
    let widest = branches.iter().map(|b| name(b).width()).max().unwrap_or(0);
    let widest = widest.max("NETWORK".len());
    let header = [
        "NODES",
        "GPUS",
        "USED",
        "FREE",
        "BEST HOLE",
        "GANGS",
        "CROSS",
    ];
    let mut line = |name: &str, cells: [String; 7]| {
        let pad = " ".repeat(widest.saturating_sub(name.width()));
        let cells = cells.iter().zip(header);
        let cells: Vec<String> = cells
            .map(|(cell, header)| format!("{cell:>w$}", w = header.len().max(6)))
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name}{pad}  {}", cells.join(" "));
    };
    line("NETWORK", header.map(str::to_owned));
    for b in branches {
        let hole = match b.hole {
            None => format::UNKNOWN.to_owned(),
            Some((0, _)) => "0".to_owned(),
            Some((size, nodes)) => format!("{size} ×{nodes}"),
        };
        line(
            &name(b),
            [
                format::count(b.nodes.into()),
                format::count(b.gpus.into()),
                format::amount_or_unknown(b.used),
                format::amount_or_unknown(b.free),
                hole,
                format::count(b.gangs.into()),
                format::count(b.crossing.into()),
            ],
        );
    }
}

/// The fleet map, a line a group and a cell a GPU.
fn map(out: &mut String, request: &Request<'_>, ctx: &Ctx<'_>) -> Result<(), FilterError> {
    let all = node_row::all(request.cluster);
    let rows: Vec<Arc<NodeRow>> = request
        .passing(&nodes::SPEC, all)?
        .into_iter()
        .filter(NodeRow::has_gpus)
        .map(Arc::new)
        .collect();
    let groups = fleet::groups(&rows, GroupBy::choose(&rows), request.cluster);
    let widest = groups.iter().map(|g| g.label.width()).max().unwrap_or(0);
    for group in &groups {
        out.push_str(&group.label);
        out.push_str(&" ".repeat(widest.saturating_sub(group.label.width())));
        for row in group.nodes.iter().filter_map(|n| rows.get(*n)) {
            out.push(' ');
            for (glyph, _) in fleet::looks(row) {
                out.push_str(ctx.glyph(glyph));
            }
        }
        out.push('\n');
    }
    out.push('\n');
    let legend =
        fleet::LEGEND.map(|(glyph, _, name): (Glyph, _, _)| format!("{} {name}", ctx.glyph(glyph)));
    out.push_str(&legend.join("  "));
    out.push('\n');
    Ok(())
}
