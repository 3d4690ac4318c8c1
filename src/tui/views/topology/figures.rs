//! What the figures of a row are: of a branch, a node, and those GPUs of a node that share a PCIe
//! switch, root or NUMA node.

use super::tree::{Leaf, Sum};
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
pub(super) fn of_part(part: &NodeRow) -> Values {
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

/// The values of the figures; `None`: not known, which is not zero.
pub(super) struct Values {
    pub(super) gpus: Option<u32>,
    pub(super) used: Option<f64>,
    pub(super) free: Option<f64>,
    pub(super) hole: Option<(u32, u32)>,
    /// `None`: not counted.
    pub(super) gangs: Option<(u32, u32)>,
    pub(super) sick: f64,
}

/// Those of a branch.
pub(super) fn branch_figures(sum: &Sum, gangs: (u32, u32)) -> Values {
    let known = sum.unknown < sum.nodes;
    Values {
        gpus: (sum.gpus > 0 || known).then_some(sum.gpus),
        used: known.then_some(sum.used),
        free: known.then_some(sum.free),
        hole: known.then_some(sum.hole),
        gangs: Some(gangs),
        sick: sum.sick,
    }
}

/// Those of a node.
pub(super) fn node_figures(leaf: &Leaf, gangs: (u32, u32)) -> Values {
    let row = &leaf.row;
    Values {
        gpus: row.gpus(),
        used: row.used_gpus,
        free: row.free_gpus,
        hole: leaf.hole.map(|n| (n, 1)),
        gangs: Some(gangs),
        sick: row.sick_gpus,
    }
}
