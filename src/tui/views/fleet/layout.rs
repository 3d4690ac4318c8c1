//! Where each cell of the map stands, so that everything fits one screen if it can.

use std::ops::Range;
use std::sync::Arc;

use unicode_width::UnicodeWidthStr;

use super::group::Group;
use crate::tui::views::node_row::NodeRow;

/// What one cell is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Zoom {
    /// A GPU.
    Gpu,
    /// A node.
    Node,
    /// A group: a leaf, a zone, …
    Group,
}

impl Zoom {
    /// One step nearer.
    pub fn nearer(self) -> Option<Self> {
        match self {
            Zoom::Gpu => None,
            Zoom::Node => Some(Zoom::Gpu),
            Zoom::Group => Some(Zoom::Node),
        }
    }

    /// One step farther.
    pub fn farther(self) -> Option<Self> {
        match self {
            Zoom::Gpu => Some(Zoom::Node),
            Zoom::Node => Some(Zoom::Group),
            Zoom::Group => None,
        }
    }
}

/// A cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    /// Its group.
    pub group: usize,
    /// Its node (the group's first one at the farthest zoom).
    pub node: usize,
    /// Its GPU (0 at farther zooms).
    pub gpu: u32,
    /// Columns from the left edge of its screen column.
    pub x: u16,
}

/// A line of the map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MapLine {
    /// The group that it shows; `None` where each cell is a group.
    pub group: Option<usize>,
    /// It is the group's first.
    pub begins: bool,
    /// Its cells.
    pub items: Range<usize>,
}

/// Longest drawn label.
const LABEL_LIMIT: usize = 14;

/// Blank columns between two screen columns.
const GUTTER: u16 = 3;

/// Cells of a node that are drawn; a hostile count must not fill the map.
const CELL_LIMIT: usize = 32;

/// The finished layout.
#[derive(Clone, Default, Debug)]
pub(super) struct Layout {
    /// All cells, line by line.
    pub items: Vec<Item>,
    /// All lines. They fill a screen column from above, then the next one.
    pub lines: Vec<MapLine>,
    /// Width of the labels.
    pub label_width: u16,
    /// Screen columns side by side.
    pub columns: u16,
    /// Width of one, without the gutter.
    pub column_width: u16,
    /// Lines of one.
    pub column_height: u16,
}

/// Cells that a node takes at the nearest zoom.
pub(super) fn cells_of(row: &NodeRow) -> usize {
    let known = if row.node.is_none() {
        // What is held, and one for what is not known.
        row.used_gpus.map_or(0, |n| n.max(0.0) as usize) + 1
    } else {
        row.cells.len()
    };
    known.clamp(1, CELL_LIMIT)
}

impl Layout {
    /// Lines that one screen shows.
    pub(super) fn page_lines(&self) -> usize {
        (usize::from(self.columns) * usize::from(self.column_height)).max(1)
    }

    /// Screens that it takes.
    pub(super) fn pages(&self) -> usize {
        self.lines.len().div_ceil(self.page_lines()).max(1)
    }

    /// The line that holds a cell.
    pub(super) fn line_of(&self, item: usize) -> usize {
        self.lines
            .partition_point(|l| l.items.end <= item)
            .min(self.lines.len().saturating_sub(1))
    }

    /// The cell of a line that is nearest to a column.
    pub(super) fn nearest(&self, line: usize, x: u16) -> Option<usize> {
        let range = self.lines.get(line)?.items.clone();
        range.min_by_key(|i| {
            self.items
                .get(*i)
                .map_or(u16::MAX, |item| item.x.abs_diff(x))
        })
    }

    /// Lays out at a zoom for a map of `width` by `height`: in as few screen columns as make it
    /// fit, or the number that takes the fewest screens.
    pub(super) fn of(
        groups: &[Group],
        rows: &[Arc<NodeRow>],
        zoom: Zoom,
        width: u16,
        height: u16,
    ) -> Layout {
        if zoom == Zoom::Group {
            return Self::of_groups(groups, width, height);
        }
        let label_width = label_width(groups);
        let widest = match zoom {
            Zoom::Gpu => rows.iter().map(|r| cells_of(r)).max().unwrap_or(1),
            _ => 4,
        };
        let narrowest = label_width
            .saturating_add(1)
            .saturating_add(u16::try_from(widest).unwrap_or(u16::MAX));
        let height = height.max(1);
        let mut best: Option<(usize, u16, u16)> = None;
        for columns in 1..=12u16 {
            let column_width = width.saturating_sub((columns - 1) * GUTTER) / columns;
            if columns > 1 && column_width < narrowest {
                break;
            }
            // Counting first: laying out every cell of a large fleet for each try takes too long.
            let lines = count_lines(groups, rows, zoom, label_width, column_width);
            let pages = lines.div_ceil(usize::from(columns) * usize::from(height));
            if best.is_none_or(|(fewest, ..)| pages < fewest) {
                best = Some((pages, columns, column_width));
            }
            if pages <= 1 {
                break;
            }
        }
        let (_, columns, column_width) = best.unwrap_or((1, 1, width));
        let mut layout = Layout {
            label_width,
            columns,
            column_width,
            column_height: height,
            ..Layout::default()
        };
        layout.flow(groups, rows, zoom);
        layout.balance();
        layout
    }

    /// Whether the number of cells alone tells that not everything fits one screen at a zoom.
    pub(super) fn cannot_fit(rows: &[Arc<NodeRow>], zoom: Zoom, width: u16, height: u16) -> bool {
        let cells: usize = match zoom {
            Zoom::Gpu => rows.iter().map(|r| cells_of(r) + 1).sum(),
            Zoom::Node => rows.len(),
            Zoom::Group => 0,
        };
        // The last gap of each line may lie beyond the edge.
        cells > (usize::from(width) + 1) * usize::from(height)
    }

    /// Whether everything is on one screen.
    pub(super) fn fits(&self) -> bool {
        self.pages() == 1
    }

    fn balance(&mut self) {
        if self.pages() == 1 && self.columns > 1 {
            let even = self.lines.len().div_ceil(usize::from(self.columns));
            self.column_height = u16::try_from(even.max(1)).unwrap_or(self.column_height);
        }
    }

    fn flow(&mut self, groups: &[Group], rows: &[Arc<NodeRow>], zoom: Zoom) {
        for (index, group) in groups.iter().enumerate() {
            let mut flow = Flow::new(self.label_width, self.column_width);
            let mut from = self.items.len();
            let mut begins = true;
            for node in &group.nodes {
                let own = units(rows.get(*node), zoom);
                let (x, breaks) = flow.place(own, zoom);
                if breaks {
                    self.lines.push(MapLine {
                        group: Some(index),
                        begins,
                        items: from..self.items.len(),
                    });
                    from = self.items.len();
                    begins = false;
                }
                self.items.extend((0..own).map(|gpu| Item {
                    group: index,
                    node: *node,
                    gpu: u32::from(gpu),
                    x: x.saturating_add(gpu),
                }));
            }
            if from < self.items.len() {
                self.lines.push(MapLine {
                    group: Some(index),
                    begins,
                    items: from..self.items.len(),
                });
            }
        }
    }

    /// Each cell a group, with its label before it if all labels fit one screen.
    fn of_groups(groups: &[Group], width: u16, height: u16) -> Layout {
        let labelled = label_width(groups);
        let mut layout = Layout::default();
        for label_width in [labelled, 0] {
            let own = if label_width == 0 { 2 } else { label_width + 4 };
            let per_line = usize::from((width / own).max(1));
            layout = Layout {
                label_width,
                columns: 1,
                column_width: width,
                column_height: height.max(1),
                ..Layout::default()
            };
            for (index, group) in groups.iter().enumerate() {
                let place = u16::try_from(index % per_line).unwrap_or(0);
                let before = if label_width == 0 { 0 } else { label_width + 1 };
                layout.items.push(Item {
                    group: index,
                    node: group.nodes.first().copied().unwrap_or(0),
                    gpu: 0,
                    x: place * own + before,
                });
                if index % per_line == 0 {
                    layout.lines.push(MapLine {
                        group: None,
                        begins: false,
                        items: index..index,
                    });
                }
                if let Some(line) = layout.lines.last_mut() {
                    line.items.end = index + 1;
                }
            }
            if layout.fits() {
                break;
            }
        }
        layout
    }
}

/// Cells of a node at a zoom.
fn units(row: Option<&Arc<NodeRow>>, zoom: Zoom) -> u16 {
    match (zoom, row) {
        (Zoom::Gpu, Some(row)) => u16::try_from(cells_of(row)).unwrap_or(1),
        _ => 1,
    }
}

/// Nodes put side by side until a line is full.
struct Flow {
    start: u16,
    end: u16,
    x: u16,
    in_line: u16,
}

impl Flow {
    fn new(label_width: u16, column_width: u16) -> Self {
        Flow {
            start: label_width + 1,
            end: column_width,
            x: label_width + 1,
            in_line: 0,
        }
    }

    /// Where a node of `own` cells stands, and whether a new line begins with it.
    fn place(&mut self, own: u16, zoom: Zoom) -> (u16, bool) {
        let breaks = self.x > self.start && self.x.saturating_add(own) > self.end;
        if breaks {
            self.x = self.start;
            self.in_line = 0;
        }
        let at = self.x;
        self.in_line += 1;
        // A gap between nodes; where each cell is a node, one after every eight.
        let gap = zoom == Zoom::Gpu || self.in_line.is_multiple_of(8);
        self.x = at.saturating_add(own).saturating_add(u16::from(gap));
        (at, breaks)
    }
}

fn count_lines(
    groups: &[Group],
    rows: &[Arc<NodeRow>],
    zoom: Zoom,
    label_width: u16,
    column_width: u16,
) -> usize {
    let lines = groups.iter().map(|group| {
        let mut flow = Flow::new(label_width, column_width);
        let places = group.nodes.iter();
        let breaks = places.filter(|n| flow.place(units(rows.get(**n), zoom), zoom).1);
        breaks.count() + 1
    });
    lines.sum()
}

fn label_width(groups: &[Group]) -> u16 {
    let widest = groups.iter().map(|g| g.label.width()).max().unwrap_or(0);
    u16::try_from(widest.min(LABEL_LIMIT)).unwrap_or(0)
}
