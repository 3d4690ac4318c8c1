//! The link matrix of a node: how each of its GPUs reaches each other one.

use ratatui::text::{Line, Span};

use super::app::{App, Cmd, Layer};
use super::messages::Level;
use super::text_pane::{Body, TextPane};
use super::theme::Meaning;
use super::view::{Ctx, Target};
use crate::model::{GpuCell, GpuPort, Link, LinkMatrix, NodeLinks, Str, TopoTable};

/// What is known of the places of a node's GPUs.
pub(super) enum Places<'a> {
    /// The server is being asked.
    Asked,
    /// What it told.
    Told(&'a [GpuPort]),
    /// Why it told nothing.
    Failed(&'a str),
}

impl App {
    /// The node whose links can be shown.
    pub(super) fn linked_node(&self) -> Option<Str> {
        let target = self.target()?;
        let cluster = &self.world.cluster;
        let name = match target {
            Target::Node(name) => name,
            target => match super::jump::node(&target, cluster) {
                Some(Target::Node(name)) => name,
                _ => return None,
            },
        };
        let (node, _) = cluster.node(&name)?;
        let may_have = node.gpus.count.is_none_or(|n| n > 0) && node.gpus.model.is_some();
        may_have.then_some(name)
    }

    /// Shows the links, by the model at once and by the server's word when that comes.
    pub(super) fn show_links(&mut self) -> Vec<Cmd> {
        let Some(node) = self.linked_node() else {
            return Vec::new();
        };
        let lines = lines(&node, &Places::Asked, &self.world.ctx());
        let title = format!("links of {node}");
        self.push_text(TextPane::new(Body::Links(node.clone()), title, lines));
        vec![Cmd::FetchLinks {
            generation: self.world.session.generation,
            node,
        }]
    }

    /// Takes the server's word of where GPUs are.
    pub(super) fn links(&mut self, node: &Str, result: &Result<Vec<GpuPort>, String>) {
        let places = match result {
            Ok(ports) => Places::Told(ports),
            Err(why) => Places::Failed(why),
        };
        let lines = lines(node, &places, &self.world.ctx());
        if let Places::Failed(why) = places {
            let text = format!("places of GPUs are not told: {why}");
            self.note(Level::Warn, crate::model::clean(&text, 1_000));
        }
        for layer in &mut self.layers {
            if let Layer::Text(pane) = layer
                && pane.body == Body::Links(node.clone())
            {
                pane.set_lines(lines.clone());
            }
        }
    }
}

/// The matrix with what it is from.
pub(super) fn lines(name: &Str, places: &Places<'_>, ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let muted = |text: String| Line::styled(text, ctx.style(Meaning::Muted));
    let Some((node, held)) = ctx.cluster.node(name) else {
        return vec![muted("the node is gone".to_owned())];
    };
    let count = u32::try_from(ctx.cluster.cells(node, held).len()).unwrap_or(0);
    let model = node.gpus.model.as_ref();
    let (published, table) = ctx.cluster.board(name);
    let ports = match places {
        Places::Told(ports) if !ports.is_empty() => ports,
        Places::Told(_) | Places::Asked | Places::Failed(_) => &published[..],
    };
    let matrix = match table {
        Some(table) => LinkMatrix::told_by(table, model, ports),
        None => LinkMatrix::of(model, count, ports),
    };
    let short = model.map_or("model not known", |m| m.short());
    let board = match matrix.by_model {
        Some(links) => format!("{count} × {short}, {}", links.name()),
        None => format!("{count} × {short}"),
    };
    let mut lines = vec![
        Line::styled(board, ctx.style(Meaning::Text)),
        Line::default(),
    ];
    lines.extend(matrix_lines(&matrix, ctx));
    lines.push(Line::default());
    if let Some(table) = &matrix.table {
        lines.extend(weak(table, ctx));
        lines.extend(nics(table, ctx));
    }
    lines.push(muted(from(&matrix, places)));
    let cut = ctx
        .cluster
        .cells(node, held)
        .iter()
        .any(|c| matches!(c, GpuCell::Mig { .. }));
    if cut {
        let text = "Instances of a GPU that is cut by MIG reach no other GPU directly.";
        lines.push(muted(text.to_owned()));
    }
    lines.push(Line::default());
    let mut seen: Vec<Link> = Vec::new();
    for link in matrix.links.iter().flatten() {
        if !seen.contains(link) {
            seen.push(*link);
        }
    }
    for link in seen {
        lines.push(Line::from(vec![
            Span::styled(format!("{:<5}", link.name()), ctx.style(meaning(link))),
            Span::styled(link.about(), ctx.style(Meaning::Muted)),
        ]));
    }
    lines
}

/// Where the matrix is from, and what is missing for more.
fn from(matrix: &LinkMatrix, places: &Places<'_>) -> String {
    if matrix.table.is_some() {
        return "As the node's own driver tells (topology of its GpuNode).".to_owned();
    }
    let nvlink = matches!(
        matrix.by_model,
        Some(NodeLinks::NvSwitch(_) | NodeLinks::RackNvSwitch | NodeLinks::NvLink)
    );
    let links = if nvlink {
        "NVLinks by the model: no API tells them, nor that one is down."
    } else {
        "No NVLinks by the model."
    };
    let places = match places {
        _ if matrix.told => "NUMA and PCIe by the ResourceSlices of the node.".to_owned(),
        Places::Asked => "NUMA and PCIe: asking the server for its ResourceSlices.".to_owned(),
        Places::Failed(why) => format!("NUMA and PCIe are not known: {why}"),
        Places::Told(_) => {
            "NUMA and PCIe are not known: no ResourceSlice of NVIDIA's DRA driver tells \
                            them for this node."
                .to_owned()
        }
    };
    format!("{links} {places}")
}

/// Pairs of GPUs with an NVLink less than the others.
fn weak(table: &TopoTable, ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let words = table.weak.iter().map(|(a, b, n)| {
        let text =
            format!("GPU{a} and GPU{b} have {n} NVLinks, fewer than the others: links are down");
        Line::styled(text, ctx.style(Meaning::Warn))
    });
    words.collect()
}

/// The NICs of each GPU that are the closest to it.
fn nics(table: &TopoTable, ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let rank = |link: &Link| match link {
        Link::Bridge => 0,
        Link::Bridges => 1,
        Link::Root => 2,
        Link::Numa => 3,
        Link::System => 4,
        _ => 5,
    };
    if table.nics.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::styled("closest NICs", ctx.style(Meaning::Header))];
    for (gpu, links) in table.gpus.iter().zip(&table.to_nics) {
        let best = links.iter().map(rank).min().unwrap_or(5);
        let near = table.nics.iter().zip(links);
        let near: Vec<&str> = near
            .filter(|(_, l)| rank(l) == best)
            .map(|(n, _)| &**n)
            .collect();
        let how = links
            .iter()
            .find(|l| rank(l) == best)
            .copied()
            .unwrap_or(Link::Unknown);
        // Where none is near, all are alike.
        let names = if near.len() == table.nics.len() && near.len() > 1 {
            "all alike".to_owned()
        } else {
            near.join(", ")
        };
        lines.push(Line::from(vec![
            Span::styled(
                format!("{:<6}", format!("GPU{}", gpu.index)),
                ctx.style(Meaning::Header),
            ),
            Span::styled(format!("{:>6}  ", how.name()), ctx.style(meaning(how))),
            Span::styled(names, ctx.style(Meaning::Text)),
        ]));
    }
    lines.push(Line::default());
    lines
}

fn meaning(link: Link) -> Meaning {
    match link {
        Link::Own | Link::Unknown => Meaning::Muted,
        Link::NvLinks(_) | Link::SomeNvLink => Meaning::Ok,
        Link::Bridge | Link::Bridges | Link::Root | Link::Numa => Meaning::Text,
        Link::System => Meaning::Warn,
    }
}

fn matrix_lines(matrix: &LinkMatrix, ctx: &Ctx<'_>) -> Vec<Line<'static>> {
    let header = ctx.style(Meaning::Header);
    let mut head = format!("{:<6}", "");
    for gpu in &matrix.gpus {
        head.push_str(&format!("{:>6}", format!("GPU{}", gpu.index)));
    }
    if matrix.told {
        head.push_str("  NUMA  PCIE ROOT");
    }
    let mut lines = vec![Line::styled(head, header)];
    for (gpu, links) in matrix.gpus.iter().zip(&matrix.links) {
        let mut spans = vec![Span::styled(
            format!("{:<6}", format!("GPU{}", gpu.index)),
            header,
        )];
        for link in links {
            spans.push(Span::styled(
                format!("{:>6}", link.name()),
                ctx.style(meaning(*link)),
            ));
        }
        if matrix.told {
            let numa = gpu.numa.map_or_else(|| "—".to_owned(), |n| n.to_string());
            let root = gpu.pcie_root.as_deref().unwrap_or("—");
            let text = format!("  {numa:>4}  {root}");
            spans.push(Span::styled(text, ctx.style(Meaning::Text)));
        }
        lines.push(Line::from(spans));
    }
    lines
}
