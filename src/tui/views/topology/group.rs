//! Figures of those GPUs of a node that share a PCIe switch, root or NUMA node.

use super::paint::Values;
use super::tree::Leaf;
use crate::model::{BoardGroup, GpuCell, NodePart};
use crate::tui::views::node_row::NodeRow;

/// The node with the GPUs of the group alone.
pub(super) fn part(leaf: &Leaf, group: &BoardGroup) -> NodeRow {
    let cells = group.gpus.iter();
    let cells = cells.filter_map(|gpu| leaf.row.cells.get(*gpu as usize));
    NodeRow {
        cells: cells.cloned().collect(),
        ..NodeRow::clone(&leaf.row)
    }
}

/// What is used and free of a part of a node.
pub(super) fn figures(part: &NodeRow) -> Values {
    let known = part.free_gpus.is_some();
    let takes = part.is_ready() && !part.is_cordoned();
    let whole = part.cells.iter().filter(|c| **c == GpuCell::Free && takes);
    let whole = u32::try_from(whole.count()).unwrap_or(u32::MAX);
    let figure = part.node.as_ref().map(|n| NodePart::of(n, &part.cells));
    let used = || part.cells.iter().map(GpuCell::used_share).sum();
    Values {
        gpus: u32::try_from(part.cells.len()).ok(),
        used: known.then(used),
        free: figure.as_ref().filter(|_| known).map(|f| f.free),
        hole: known.then_some((whole, 1)),
        gangs: None,
        sick: figure.map_or(0.0, |f| f.sick),
    }
}
