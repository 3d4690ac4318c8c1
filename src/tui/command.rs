//! The one table of commands: it drives keys, palette, footer and help.
//!
//! A key means the same everywhere. What a command can do here and now is told by its `when`; a
//! command that applies but cannot be given stays visible and says why.

use super::view::{Act, Motion, Sort, ViewId};
use crate::plan::{Danger, Verb};

/// Which command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommandId {
    /// Goes to a view.
    View(ViewId),
    /// Moves the cursor.
    Move(Motion),
    /// Opens what the cursor is on.
    Open,
    /// Closes what is on top, or takes the filter away.
    Back,
    /// To the place before this one.
    Earlier,
    /// To the place after this one.
    Later,
    /// Filters rows, or searches a text.
    Filter,
    /// Opens the palette.
    Palette,
    /// Opens the help.
    Help,
    /// Marks a row.
    Mark,
    /// Marks a range.
    MarkRange,
    /// Takes all marks away.
    ClearMarks,
    /// Shows what gpudeck knows of the thing.
    Describe,
    /// Shows the object as the server has it.
    Yaml,
    /// Tells why the thing is where it is.
    Why,
    /// Shows the logs of its pods.
    Logs,
    /// Goes to what it is a part of.
    Owner,
    /// Goes to its node.
    ItsNode,
    /// Shows how the GPUs of its node reach each other.
    Links,
    /// Copies names to the clipboard.
    Copy,
    /// Picks the order of rows.
    Sort,
    /// Turns the order of rows round.
    ReverseSort,
    /// Picks a namespace.
    Namespace,
    /// Picks a context.
    Context,
    /// Picks the lens that colours are looked through.
    Lens,
    /// Something that only some views can do.
    Act(Act),
    /// Shows the tour.
    Tour,
    /// Shows all messages.
    Messages,
    /// Shows the state of each source.
    Sources,
    /// Shows what could not be read.
    Unreadable,
    /// Asks the server again.
    Refresh,
    /// Draws the whole screen anew.
    Redraw,
    /// Gives the terminal back to the shell.
    Suspend,
    /// Leaves.
    Quit,
    /// A person's own action, by its place in the configuration; it has no row in the table.
    Own(u8),
}

/// The chapter of the help that a command stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    /// Views.
    Views,
    /// Moving.
    Move,
    /// Finding.
    Find,
    /// The thing under the cursor.
    Row,
    /// How the view is drawn.
    Draw,
    /// The console itself.
    Console,
}

impl Group {
    /// All of them in order.
    pub const ALL: [Group; 6] = [
        Group::Views,
        Group::Find,
        Group::Row,
        Group::Draw,
        Group::Move,
        Group::Console,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Views => "Views",
            Group::Move => "Moving",
            Group::Find => "Finding",
            Group::Row => "The row under the cursor",
            Group::Draw => "How it is drawn",
            Group::Console => "Console",
        }
    }
}

/// Whether a command can be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Yes.
    Yes,
    /// It applies, but not now; why.
    Disabled(&'static str),
    /// It has no meaning here.
    No,
}

/// What has the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The view.
    View,
    /// A text over the view: help, description, YAML, messages.
    Text,
    /// A line of input: filter, palette, pickers.
    Entry,
}

/// All that `when` conditions may look at.
#[derive(Clone, Copy, Debug)]
pub struct Where {
    /// What has the keys.
    pub place: Place,
    /// The view on the screen.
    pub view: ViewId,
    /// Whether the cursor is on something.
    pub has_row: bool,
    /// Whether that something is an object that the server can be asked for.
    pub has_object: bool,
    /// Whether it has pods whose logs can be shown.
    pub has_pods: bool,
    /// Whether it is a part of something else.
    pub has_owner: bool,
    /// Whether it is on a node.
    pub has_node: bool,
    /// Whether it is, or is on, a node with GPUs.
    pub has_links: bool,
    /// Whether it can be told why it is where it is.
    pub has_why: bool,
    /// Whether what is shown was fetched once and can be fetched again.
    pub refreshable: bool,
    /// Marked rows.
    pub marks: usize,
    /// Whether a filter is in force, or the text is searched.
    pub filtered: bool,
    /// Whether a switch of context is under way.
    pub connecting: bool,
    /// Whether rows can be sorted.
    pub sortable: bool,
    /// The order in force.
    pub sort: Option<Sort>,
    /// Bit per [`Act`] that the view can do: zoom in, zoom out, group, next lens.
    pub acts: [bool; 4],
    /// Whether there is a place before this one.
    pub has_earlier: bool,
    /// Whether there is a place after this one.
    pub has_later: bool,
    /// Contexts that can be switched to.
    pub contexts: usize,
    /// Views that exist.
    pub views: [bool; ViewId::ALL.len()],
}

impl Where {
    fn act(&self, act: Act) -> bool {
        let [zoom_in, zoom_out, group, lens] = self.acts;
        match act {
            Act::ZoomIn => zoom_in,
            Act::ZoomOut => zoom_out,
            Act::GroupNext => group,
            Act::LensNext => lens,
        }
    }

    /// Whether a view exists.
    pub fn has_view(&self, view: ViewId) -> bool {
        ViewId::ALL
            .iter()
            .zip(self.views)
            .any(|(id, there)| *id == view && there)
    }
}

/// A row of the table.
pub struct Command {
    /// Which one.
    pub id: CommandId,
    /// Its name in keymap files and the palette.
    pub name: &'static str,
    /// A word or two for the footer.
    pub hint: &'static str,
    /// What it does, in one sentence.
    pub doc: &'static str,
    /// Its chapter.
    pub group: Group,
    /// Place in the footer, most useful first; 0: not there.
    pub rank: u8,
    /// How much it can hurt the cluster; `None`: it changes nothing there.
    pub danger: Option<Danger>,
    /// The right it needs to change the cluster.
    pub verb: Option<Verb>,
    /// Whether it can be given.
    pub when: fn(&Where) -> When,
}

fn yes_if(condition: bool, reason: &'static str) -> When {
    if condition {
        When::Yes
    } else {
        When::Disabled(reason)
    }
}

fn always(_: &Where) -> When {
    When::Yes
}

fn in_view(w: &Where) -> When {
    if w.place == Place::View {
        When::Yes
    } else {
        When::No
    }
}

fn on_row(w: &Where) -> When {
    match w.place {
        Place::View => yes_if(w.has_row, "there is no row under the cursor"),
        _ => When::No,
    }
}

fn on_object(w: &Where) -> When {
    match w.place {
        Place::View if !w.has_row => When::Disabled("there is no row under the cursor"),
        Place::View => yes_if(w.has_object, "the server has no single object for this"),
        Place::Text if w.has_object => When::Yes,
        Place::Text | Place::Entry => When::No,
    }
}

/// Shortens the rows below: nothing in this version changes the cluster from a key.
const fn reads(
    id: CommandId,
    name: &'static str,
    hint: &'static str,
    group: Group,
    rank: u8,
    when: fn(&Where) -> When,
    doc: &'static str,
) -> Command {
    Command {
        id,
        name,
        hint,
        doc,
        group,
        rank,
        danger: None,
        verb: None,
        when,
    }
}

macro_rules! view_row {
    ($id:ident, $name:literal, $doc:literal) => {
        reads(
            CommandId::View(ViewId::$id),
            $name,
            stringify!($id),
            Group::Views,
            0,
            |w| {
                if w.has_view(ViewId::$id) {
                    When::Yes
                } else {
                    When::No
                }
            },
            $doc,
        )
    };
}

macro_rules! move_row {
    ($id:ident, $name:literal, $doc:literal) => {
        reads(
            CommandId::Move(Motion::$id),
            $name,
            $name,
            Group::Move,
            0,
            always,
            $doc,
        )
    };
}

/// The table.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    view_row!(Fleet, "view-fleet", "Shows every GPU on one screen."),
    view_row!(Nodes, "view-nodes", "Shows a row a node with its GPUs drawn."),
    view_row!(Topology, "view-topology", "Shows the network as a tree, from spines down to MIG instances."),
    view_row!(Queues, "view-queues", "Shows a row a queue of any system: due, use, and what waits."),
    view_row!(Jobs, "view-jobs", "Shows a row a workload of any kind."),
    view_row!(Timeline, "view-timeline", "Shows what happened, newest last."),
    view_row!(Tiers, "view-tiers", "Shows a row a tier of capacity: price, use, and what is idle."),

    reads(CommandId::Open, "open", "open", Group::Row, 1, on_row,
        "Opens what the cursor is on."),
    reads(CommandId::Back, "back", "back", Group::Move, 2,
        |w| match w.place {
            Place::Text | Place::Entry => When::Yes,
            Place::View => yes_if(
                w.filtered || w.connecting,
                "nothing is open and no filter is set",
            ),
        },
        "Closes what is open; in a view, takes the filter away or leaves what was entered."),
    reads(CommandId::Mark, "mark", "mark", Group::Row, 3, on_row,
        "Marks the row, or takes its mark away."),
    reads(CommandId::Describe, "describe", "describe", Group::Row, 4, on_row,
        "Shows all that gpudeck knows of it."),
    reads(CommandId::Why, "why", "why", Group::Row, 4,
        |w| match w.place {
            Place::Entry => When::No,
            Place::View if !w.has_row => When::Disabled("there is no row under the cursor"),
            Place::View | Place::Text if w.has_why => When::Yes,
            Place::View => When::Disabled("only workloads and pods have a reason"),
            Place::Text => When::No,
        },
        "Explains why it waits or where it is: its place in line, and all that was tried."),
    reads(CommandId::Logs, "logs", "logs", Group::Row, 5,
        |w| match w.place {
            Place::Entry => When::No,
            Place::View if !w.has_row => When::Disabled("there is no row under the cursor"),
            Place::View | Place::Text if w.has_pods => When::Yes,
            Place::View => When::Disabled("it has no pods that were started"),
            Place::Text => When::No,
        },
        "Follows the log of the pod, or of all ranks of the workload; `/` searches it."),
    reads(CommandId::Owner, "owner", "owner", Group::Row, 0,
        |w| match w.place {
            Place::Entry => When::No,
            Place::View | Place::Text if w.has_owner => When::Yes,
            Place::View => When::Disabled("it is no part of anything"),
            Place::Text => When::No,
        },
        "Goes to what it is a part of: a pod's workload, a workload's queue."),
    reads(CommandId::ItsNode, "its-node", "node", Group::Row, 0,
        |w| match w.place {
            Place::Entry => When::No,
            Place::View | Place::Text if w.has_node => When::Yes,
            Place::View => When::Disabled("it is on no node"),
            Place::Text => When::No,
        },
        "Goes to the node that it is on; of a workload, to that of its first pod."),
    reads(CommandId::Links, "links", "links", Group::Row, 0,
        |w| match w.place {
            Place::Entry => When::No,
            Place::View | Place::Text if w.has_links => When::Yes,
            Place::View => When::Disabled("it is on no node with GPUs"),
            Place::Text => When::No,
        },
        "Shows how the GPUs of its node reach each other: NVLink, PCIe, NUMA."),
    reads(CommandId::Yaml, "yaml", "YAML", Group::Row, 5, on_object,
        "Fetches the object from the server and shows it as YAML."),
    reads(CommandId::Filter, "filter", "filter", Group::Find, 6,
        |w| if w.place == Place::Entry { When::No } else { When::Yes },
        "Filters the rows, as in `model=h100 free>0 ns:team-a`; in a text, searches it."),
    reads(CommandId::Palette, "palette", "command", Group::Find, 7,
        |w| if w.place == Place::Entry { When::No } else { When::Yes },
        "Finds commands, views, namespaces, contexts, nodes and workloads by name."),
    reads(CommandId::Help, "help", "keys", Group::Console, 8,
        |w| if w.place == Place::Entry { When::No } else { When::Yes },
        "Shows all keys."),
    reads(CommandId::Sort, "sort", "sort", Group::Draw, 9,
        |w| match w.place {
            Place::View => yes_if(w.sortable, "this view has one order only"),
            _ => When::No,
        },
        "Picks the column that rows are sorted by."),
    reads(CommandId::ReverseSort, "reverse-sort", "reverse", Group::Draw, 0,
        |w| match w.place {
            Place::View => yes_if(w.sort.is_some(), "rows are not sorted by a column"),
            _ => When::No,
        },
        "Turns the order of the rows round."),
    reads(CommandId::Act(Act::ZoomIn), "zoom-in", "zoom", Group::Draw, 10,
        |w| if w.place == Place::View && w.act(Act::ZoomIn) { When::Yes } else { When::No },
        "Draws larger: from racks to nodes to GPUs; in a tree, opens a level."),
    reads(CommandId::Act(Act::ZoomOut), "zoom-out", "zoom out", Group::Draw, 11,
        |w| if w.place == Place::View && w.act(Act::ZoomOut) { When::Yes } else { When::No },
        "Draws smaller: from GPUs to nodes to racks; in a tree, closes a level."),
    reads(CommandId::Act(Act::GroupNext), "group", "group by", Group::Draw, 12,
        |w| if w.place == Place::View && w.act(Act::GroupNext) { When::Yes } else { When::No },
        "Groups the rows of the map by the next thing: leaf, zone, model."),
    reads(CommandId::Act(Act::LensNext), "next-lens", "lens", Group::Draw, 10,
        |w| if w.place == Place::View && w.act(Act::LensNext) { When::Yes } else { When::No },
        "Looks through the next lens: allocation, owner, SM active, memory, temperature, power, health, tier, age."),
    reads(CommandId::Lens, "lens", "pick a lens", Group::Draw, 0,
        |w| if w.place == Place::View && w.act(Act::LensNext) { When::Yes } else { When::No },
        "Picks the lens that colours are looked through."),
    reads(CommandId::Namespace, "namespace", "namespace", Group::Find, 13, in_view,
        "Picks the namespace that is shown, or all."),
    reads(CommandId::Copy, "copy", "copy", Group::Row, 14,
        |w| match w.place {
            Place::View => yes_if(w.has_row || w.marks > 0, "there is no row under the cursor"),
            Place::Text => When::Yes,
            Place::Entry => When::No,
        },
        "Copies the names of the marked rows, or of this one, or the open text, to the clipboard."),
    reads(CommandId::MarkRange, "mark-range", "mark to here", Group::Row, 0, on_row,
        "Marks all rows from the last marked one to this one."),
    reads(CommandId::ClearMarks, "clear-marks", "clear marks", Group::Row, 0,
        |w| match w.place {
            Place::View => yes_if(w.marks > 0, "nothing is marked"),
            _ => When::No,
        },
        "Takes all marks away."),

    reads(CommandId::Context, "context", "context", Group::Find, 0,
        |w| match w.place {
            Place::View => yes_if(w.contexts > 1, "there is no other context in the kubeconfig"),
            _ => When::No,
        },
        "Picks the context of the kubeconfig to look at."),
    reads(CommandId::Earlier, "earlier", "earlier", Group::Move, 0,
        |w| match w.place {
            Place::View => yes_if(w.has_earlier, "this is the first place"),
            Place::Text => yes_if(w.filtered, "search first"),
            Place::Entry => When::No,
        },
        "Goes to the place before this one; in a text, to the match before."),
    reads(CommandId::Later, "later", "later", Group::Move, 0,
        |w| match w.place {
            Place::View => yes_if(w.has_later, "this is the last place"),
            Place::Text => yes_if(w.filtered, "search first"),
            Place::Entry => When::No,
        },
        "Goes to the place after this one; in a text, to the next match."),
    move_row!(Up, "up", "One up."),
    move_row!(Down, "down", "One down."),
    move_row!(Left, "left", "One to the left."),
    move_row!(Right, "right", "One to the right."),
    move_row!(First, "first", "To the first row."),
    move_row!(Last, "last", "To the last row."),
    move_row!(PageUp, "page-up", "A page up."),
    move_row!(PageDown, "page-down", "A page down."),
    move_row!(HalfUp, "half-page-up", "Half a page up."),
    move_row!(HalfDown, "half-page-down", "Half a page down."),

    reads(CommandId::Tour, "tour", "tour", Group::Console, 0,
        |w| if w.place == Place::Entry { When::No } else { When::Yes },
        "Shows on one screen what there is and the keys that lead everywhere."),
    reads(CommandId::Messages, "messages", "messages", Group::Console, 0,
        |w| if w.place == Place::Entry { When::No } else { When::Yes },
        "Shows all messages of this session."),
    reads(CommandId::Sources, "sources", "sources", Group::Console, 0,
        |w| if w.place == Place::Entry { When::No } else { When::Yes },
        "Shows what is read from the server: each kind, its state, since when, and why."),
    reads(CommandId::Unreadable, "unreadable", "unreadable", Group::Console, 0,
        |w| if w.place == Place::Entry { When::No } else { When::Yes },
        "Shows the objects that could not be read, and why."),
    reads(CommandId::Refresh, "refresh", "refresh", Group::Row, 8,
        |w| match w.place {
            Place::Entry => When::No,
            Place::View | Place::Text if w.refreshable => When::Yes,
            Place::View => When::Disabled("this is live: the server tells of each change"),
            Place::Text => When::No,
        },
        "Asks the server again for a list or object that was fetched."),
    reads(CommandId::Redraw, "redraw", "redraw", Group::Console, 0, always,
        "Draws the whole screen anew."),
    reads(CommandId::Suspend, "suspend", "suspend", Group::Console, 0, always,
        "Gives the terminal back to the shell; `fg` returns."),
    reads(CommandId::Quit, "quit", "quit", Group::Console, 15, always,
        "Leaves gpudeck. Nothing in the cluster changes by it."),
];

impl Command {
    /// The row of a command.
    pub fn of(id: CommandId) -> Option<&'static Command> {
        COMMANDS.iter().find(|c| c.id == id)
    }

    /// The row with this name.
    pub fn by_name(name: &str) -> Option<&'static Command> {
        COMMANDS.iter().find(|c| c.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_are_unique_and_docs_are_sentences() {
        for (i, a) in COMMANDS.iter().enumerate() {
            assert!(a.doc.ends_with('.'), "{}", a.name);
            assert!(
                a.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{}",
                a.name
            );
            for b in COMMANDS.iter().skip(i + 1) {
                assert_ne!(a.name, b.name);
                assert_ne!(a.id, b.id);
            }
        }
    }
}
