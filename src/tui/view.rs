//! What a view is.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::browse::Browse;
use super::glyphs::{Glyph, Glyphs};
use super::object::ObjectRef;
use super::theme::{Meaning, Theme};
use crate::model::{Cluster, Figures, Kind, QueueKey, Str, Uid, WorkloadKey};

/// Which view. The digit that opens it is fixed for good, also for views that come later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ViewId {
    /// Every GPU on one screen.
    Fleet,
    /// A row a node.
    Nodes,
    /// The network as a tree.
    Topology,
    /// A row a queue of any system.
    Queues,
    /// A row a workload.
    Jobs,
    /// What happened, newest last.
    Timeline,
    /// A row a tier of capacity, with its price.
    Tiers,
    /// Any collection of the API. It has no digit: the palette leads to it.
    Browse,
}

impl ViewId {
    /// Those with a digit, in its order.
    pub const ALL: [ViewId; 7] = [
        ViewId::Fleet,
        ViewId::Nodes,
        ViewId::Topology,
        ViewId::Queues,
        ViewId::Jobs,
        ViewId::Timeline,
        ViewId::Tiers,
    ];

    /// As the views line shows it.
    pub fn title(self) -> &'static str {
        match self {
            ViewId::Fleet => "Fleet",
            ViewId::Nodes => "Nodes",
            ViewId::Topology => "Topology",
            ViewId::Queues => "Queues",
            ViewId::Jobs => "Jobs",
            ViewId::Timeline => "Timeline",
            ViewId::Tiers => "Tiers",
            ViewId::Browse => "Browse",
        }
    }

    /// As the command line and the palette name it.
    pub fn name(self) -> &'static str {
        match self {
            ViewId::Fleet => "fleet",
            ViewId::Nodes => "nodes",
            ViewId::Topology => "topology",
            ViewId::Queues => "queues",
            ViewId::Jobs => "jobs",
            ViewId::Timeline => "timeline",
            ViewId::Tiers => "tiers",
            ViewId::Browse => "browse",
        }
    }

    /// Its digit, if it has one.
    pub fn digit(self) -> Option<char> {
        match self {
            ViewId::Fleet => Some('1'),
            ViewId::Nodes => Some('2'),
            ViewId::Topology => Some('3'),
            ViewId::Queues => Some('4'),
            ViewId::Jobs => Some('5'),
            ViewId::Timeline => Some('6'),
            ViewId::Tiers => Some('7'),
            ViewId::Browse => None,
        }
    }
}

/// A thing that a row or cell stands for. Selection, marks, history and commands name things by
/// this, never by a position.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// A node by name.
    Node(Str),
    /// One GPU of a node, by its index on it.
    Gpu(Str, u32),
    /// A workload.
    Workload(WorkloadKey),
    /// A pod.
    Pod(Uid),
    /// A Kubernetes Event.
    Event(Uid),
    /// A decision of our scheduler: when and about which pod.
    Decision(Timestamp, Uid),
    /// A condition of a node, by the node and its type.
    Fault(Str, Str),
    /// A namespace.
    Namespace(Str),
    /// A part of the network, by the way to it from the top: `core core-1/leaf leaf-2`.
    Domain(Str),
    /// A queue of any system.
    Queue(QueueKey),
    /// A tier of capacity by name; empty: nodes whose tier nothing tells.
    Tier(Str),
    /// An object of a list that was fetched.
    Object(ObjectRef),
}

/// A movement of the cursor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Motion {
    /// One up.
    Up,
    /// One down.
    Down,
    /// One to the left.
    Left,
    /// One to the right.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// Half a page up.
    HalfUp,
    /// Half a page down.
    HalfDown,
    /// To the first.
    First,
    /// To the last.
    Last,
}

/// What only some views can do; asked by [`View::can`], done by [`View::act`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// Draw larger.
    ZoomIn,
    /// Draw smaller.
    ZoomOut,
    /// Group rows by the next key.
    GroupNext,
    /// Look through the next lens.
    LensNext,
}

/// Why a filter is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct FilterError {
    /// Where in the text, in characters from its start.
    pub at: usize,
    /// What is wrong and what would be right, in one sentence.
    pub message: String,
}

/// Order of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sort {
    /// Name of the column.
    pub column: &'static str,
    /// Largest first.
    pub falling: bool,
}

/// What Enter leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opens {
    /// The description of the thing under the cursor.
    Description,
    /// The object as the server has it.
    Yaml,
    /// Another view, with the cursor on this thing.
    Place(ViewId, Target),
    /// Another view, with this filter.
    Filtered(ViewId, String),
}

/// Which picture rows were made from: equal stamps, equal rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    place: Looked,
    version: u64,
}

/// What of a picture is looked at. Rows of another one have nothing in common with these.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Looked {
    generation: u64,
    namespace: Option<Str>,
    browse: u64,
    nodes_known: bool,
    pods_known: bool,
}

impl Stamp {
    /// The version of the picture after which changes are news for rows made from this one;
    /// `None`: all rows are to be made anew.
    pub fn since(&self, now: &Stamp) -> Option<u64> {
        (self.place == now.place).then_some(self.version)
    }
}

/// What a view is drawn from. Nothing else may be looked at while drawing.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    /// The picture of the cluster.
    pub cluster: &'a Cluster,
    /// The version of the picture that rows are to show; behind the picture's own while frames that
    /// answer keys are not to wait for rows to be made anew.
    pub version: u64,
    /// Grows with each switch of context: nothing made under another one may be shown.
    pub generation: u64,
    /// Its numbers.
    pub figures: &'a Figures,
    /// The time of this frame.
    pub now: Timestamp,
    /// Styles.
    pub theme: &'a Theme,
    /// Signs.
    pub glyphs: Glyphs,
    /// Only this namespace is asked for; `None`: all.
    pub namespace: Option<&'a Str>,
    /// The list that is browsed.
    pub browse: &'a Browse,
    /// The job that the cursor was on last, in whatever view.
    pub job: Option<&'a WorkloadKey>,
}

impl Ctx<'_> {
    /// The style of a meaning.
    pub fn style(&self, meaning: Meaning) -> Style {
        self.theme.style(meaning)
    }

    /// The sign for a meaning.
    pub fn glyph(&self, glyph: Glyph) -> &'static str {
        self.glyphs.get(glyph)
    }

    /// What rows made now are made from. Keep it beside cached rows and rebuild when it differs.
    pub fn stamp(&self) -> Stamp {
        Stamp {
            place: Looked {
                generation: self.generation,
                namespace: self.namespace.cloned(),
                browse: self.browse.version,
                nodes_known: self.cluster.is_known(Kind::Node),
                pods_known: self.cluster.is_known(Kind::Pod),
            },
            version: self.version,
        }
    }

    /// Whether objects of this namespace are shown.
    pub fn in_scope(&self, namespace: &str) -> bool {
        self.namespace.is_none_or(|n| **n == *namespace)
    }
}

/// A view: typed rows made from the cluster, a cursor over them, and how they are drawn.
///
/// The order of calls: any number of changes (`motion`, `set_filter`, `toggle_mark`, …), then
/// [`View::refresh`] with the area to come, then [`View::draw`] with the same area.
pub trait View: Send {
    /// Which view it is.
    fn id(&self) -> ViewId;

    /// The kinds that its rows are made from, the one it cannot do without first.
    fn kinds(&self) -> &'static [Kind];

    /// Brings cached rows, order, cursor and scroll position up to date. Rows are rebuilt only if
    /// [`Ctx::stamp`], the filter or the order have changed since.
    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>);

    /// The same while the view is not on the screen, so that it need not be complete at once.
    fn prepare(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.refresh(area, ctx);
    }

    /// Whether some rows are older than the picture that [`View::refresh`] was given: it makes only
    /// so many anew at once that a key does not wait for it.
    fn lags(&self) -> bool {
        false
    }

    /// Draws what [`View::refresh`] prepared.
    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>);

    /// Moves the cursor.
    fn motion(&mut self, motion: Motion);

    /// What the cursor is on.
    fn selected(&self) -> Option<Target>;

    /// Nodes that are on the screen, so that what they measure is asked for first.
    fn visible_nodes(&self) -> Vec<Str> {
        Vec::new()
    }

    /// Puts the cursor on a thing; false if the view has no such row.
    fn select(&mut self, target: &Target) -> bool;

    /// What Enter leads to, with the cursor on something.
    fn opens(&self, _ctx: &Ctx<'_>) -> Opens {
        Opens::Description
    }

    /// What the thing is, as text for the detail pane; `None` when it is gone or not the view's.
    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>>;

    /// The list of a thing's parts, such as the pods of a workload; `None` when it has none.
    fn open(&self, _target: &Target) -> Option<Box<dyn View>> {
        None
    }

    /// Goes into the thing under the cursor: from now on the view shows its parts. False if it has
    /// none; then Enter leads to what [`View::opens`] says.
    fn enter(&mut self) -> bool {
        false
    }

    /// Comes back from where [`View::enter`] went; false if it was not inside anything.
    fn leave(&mut self) -> bool {
        false
    }

    /// Whether the view shows the parts of a thing.
    fn is_inside(&self) -> bool {
        false
    }

    /// Rows shown and rows there are without the filter.
    fn count(&self) -> (usize, usize);

    /// The filter in force, as typed.
    fn filter(&self) -> &str;

    /// Sets the filter; on error the old one stays in force.
    fn set_filter(&mut self, text: &str) -> Result<(), FilterError>;

    /// Columns that filters can name, and what each holds, for the help.
    fn filter_columns(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Columns that rows can be sorted by.
    fn sort_columns(&self) -> &'static [&'static str] {
        &[]
    }

    /// The order in force.
    fn sort(&self) -> Option<Sort> {
        None
    }

    /// Sets the order.
    fn set_sort(&mut self, _sort: Sort) {}

    /// Goes back to the order that rows have while no column is chosen.
    fn reset_sort(&mut self) {}

    /// The marked things, in the order of the rows.
    fn marks(&self) -> Vec<Target> {
        Vec::new()
    }

    /// Marks the thing under the cursor, or takes its mark away; the cursor moves on.
    fn toggle_mark(&mut self) {}

    /// Marks everything between the last marked row and the cursor.
    fn mark_range(&mut self) {}

    /// Takes all marks away.
    fn clear_marks(&mut self) {}

    /// Whether this view can do this.
    fn can(&self, _act: Act) -> bool {
        false
    }

    /// Does it.
    fn act(&mut self, _act: Act) {}

    /// Lenses that colours can be looked through, each with what it tells.
    fn lenses(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// The name of the lens in force.
    fn lens(&self) -> Option<&'static str> {
        None
    }

    /// Looks through a lens, by its name.
    fn set_lens(&mut self, _name: &str) {}

    /// A word or two for the right end of the views line: the lens, the grouping.
    fn mode(&self) -> Option<String> {
        None
    }

    /// Whether texts on the screen change by time alone, and so a frame a second is wanted.
    fn ages_by_second(&self, _ctx: &Ctx<'_>) -> bool {
        false
    }
}
