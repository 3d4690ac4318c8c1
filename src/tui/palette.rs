//! What the palette and the pickers list.

use std::collections::BTreeMap;

use super::actions;
use super::app::{App, Layer};
use super::browse::ResourceRef;
use super::command::{COMMANDS, CommandId, When};
use super::picker::Choice;
pub(super) use super::picker::Item;
use super::picker::{Picker, Text};
use super::view::{Target, View};
use crate::model::{Str, WorkloadKey};

/// What stands above the palette.
pub(super) const TITLE: &str = "command";

fn item(label: impl Into<Text>, note: impl Into<Text>, choice: Choice) -> Item {
    Item {
        label: label.into(),
        note: note.into(),
        key: String::new(),
        disabled: None,
        at_once: true,
        choice,
    }
}

/// Items that are made in one part.
const PART: usize = 1_000;

/// How far the palette has got with the names of a large cluster. They are not shown before
/// something is typed, so they are put together after its first frame.
#[derive(Clone, Debug)]
pub(super) enum Filling {
    /// All nodes are to come, and all workloads.
    Nodes,
    /// Workloads are to come, those behind this one if it names one.
    Workloads(Option<WorkloadKey>),
}

impl Filling {
    /// The next names, and what is left after them.
    fn part(self, app: &App) -> (Vec<Item>, Option<Filling>) {
        let world = app.world();
        match self {
            Filling::Nodes => {
                let nodes = world.cluster.nodes().map(|(node, _)| &node.meta.name);
                let items = nodes.map(|name| Item {
                    at_once: false,
                    ..item(name, "node", Choice::Go(Target::Node(name.clone())))
                });
                (items.collect(), Some(Filling::Workloads(None)))
            }
            Filling::Workloads(last) => {
                let ctx = world.ctx();
                let keys = world.cluster.workload_keys_after(last.as_ref());
                let keys: Vec<&WorkloadKey> = keys.take(PART).collect();
                let left = keys.last().filter(|_| keys.len() == PART);
                let left = left.map(|key| Filling::Workloads(Some((*key).clone())));
                let keys = keys.into_iter().filter(|k| ctx.in_scope(&k.namespace));
                let items = keys.map(|key| Item {
                    at_once: false,
                    ..item(
                        [&*key.namespace, "/", &*key.name].concat(),
                        &key.kind,
                        Choice::Go(Target::Workload(key.clone())),
                    )
                });
                (items.collect(), left)
            }
        }
    }
}

impl App {
    /// Opens the palette; names of nodes and workloads follow.
    pub(super) fn open_palette(&mut self) {
        let items = items(self);
        self.push_picker(Picker::new(TITLE, items));
        self.filling = Some(Filling::Nodes);
    }

    /// Puts the next names into the palette; false if it has them all.
    pub fn fill_palette(&mut self) -> bool {
        let Some(filling) = self.filling.take() else {
            return false;
        };
        let (items, left) = filling.part(self);
        let palette = self.layers.iter_mut().find_map(|layer| match layer {
            Layer::Picker(picker) if picker.is_palette() => Some(picker),
            _ => None,
        });
        let Some(palette) = palette else {
            return false;
        };
        palette.add_unseen(items, left.is_none());
        self.filling = left;
        true
    }

    /// Puts all names into the palette that are not there yet: what is typed is looked for in all.
    pub(super) fn fill_whole_palette(&mut self) {
        while self.fill_palette() {}
    }
}

/// Commands that apply here, then what is named, but for nodes and workloads.
fn items(app: &App) -> Vec<Item> {
    let world = app.world();
    let place = app.place();
    let mut items = Vec::new();
    for command in COMMANDS {
        let disabled = match (command.when)(&place) {
            When::Yes => None,
            When::Disabled(why) => Some(why),
            When::No => continue,
        };
        if matches!(command.id, CommandId::Palette | CommandId::Move(_)) {
            continue;
        }
        items.push(Item {
            key: world
                .keymap
                .key_of(command.id)
                .map(|k| k.to_string())
                .unwrap_or_default(),
            disabled,
            ..item(command.name, command.doc, Choice::Command(command.id))
        });
    }
    for (at, action) in (0u8..).zip(app.actions()) {
        let disabled = match app.action_when(action, &place) {
            When::Yes => None,
            When::Disabled(why) => Some(why),
            When::No => continue,
        };
        let choice = Choice::Command(CommandId::Own(at));
        items.push(Item {
            key: action.key.map(|k| k.to_string()).unwrap_or_default(),
            disabled,
            ..item(action.name.clone(), actions::about(action), choice)
        });
    }
    let mut named = namespaces(app);
    named.extend(contexts(app));
    let ctx = world.ctx();
    let queues = world
        .cluster
        .queues()
        .filter_map(|q| q.queue())
        .map(|q| &q.key);
    named.extend(
        queues
            .filter(|k| k.namespace.is_empty() || ctx.in_scope(&k.namespace))
            .map(|key| {
                let note = format!("{} of {}", key.kind, key.admitter);
                item(
                    key.to_string(),
                    note,
                    Choice::Go(Target::Queue(key.clone())),
                )
            }),
    );
    named.extend(settings(app));
    named.extend(resources(&world.browse.resources));
    for item in &mut named {
        item.at_once = false;
    }
    items.extend(named);
    items
}

/// Settings that can be changed while the console runs.
fn settings(app: &App) -> Vec<Item> {
    let world = app.world();
    let themes = super::theme::Theme::names().map(|name| Item {
        disabled: (name == world.theme.name()).then_some("this is the one in force"),
        ..item(format!("theme {name}"), "setting", Choice::Theme(name))
    });
    let signs = [("signs ascii", true), ("signs full", false)].map(|(label, ascii)| Item {
        disabled: (ascii == world.glyphs.ascii).then_some("so it is drawn now"),
        ..item(label, "setting", Choice::Signs(ascii))
    });
    themes.chain(signs).collect()
}

/// The collections of the API; one name of several groups is told apart by its group.
pub(super) fn resources(all: &[ResourceRef]) -> Vec<Item> {
    let mut seen = BTreeMap::new();
    for resource in all {
        *seen.entry(&resource.plural).or_insert(0) += 1;
    }
    let label = |r: &ResourceRef| match seen.get(&r.plural) {
        Some(1) => r.plural.to_string(),
        _ => r.full_name(),
    };
    all.iter()
        .map(|r| Item {
            disabled: (!r.listable).then_some("the API does not list it"),
            at_once: false,
            ..item(
                label(r),
                format!("list {} {}", r.group_version(), r.kind),
                Choice::Browse(r.clone()),
            )
        })
        .collect()
}

/// All namespaces, and each.
pub(super) fn namespaces(app: &App) -> Vec<Item> {
    let world = app.world();
    let shown = world.session.namespace.as_ref();
    let note = |ns: Option<&Str>| {
        if ns == shown {
            "namespace, shown now"
        } else {
            "namespace"
        }
    };
    let mut items = vec![item("all namespaces", note(None), Choice::Namespace(None))];
    for name in world.cluster.namespace_names() {
        items.push(item(
            &name,
            note(Some(&name)),
            Choice::Namespace(Some(name.clone())),
        ));
    }
    items
}

/// A namespace by its typed name: a user who may not list namespaces has no other way.
pub(super) fn typed_namespace(text: &str) -> Option<Item> {
    let valid = (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    valid.then(|| {
        item(
            text.to_owned(),
            "namespace, as typed",
            Choice::Namespace(Some(text.into())),
        )
    })
}

/// All contexts.
pub(super) fn contexts(app: &App) -> Vec<Item> {
    let session = &app.world().session;
    session
        .contexts
        .iter()
        .map(|name| Item {
            disabled: (*name == session.context).then_some("this is the one you look at"),
            ..item(name, "context", Choice::Context(name.clone()))
        })
        .collect()
}

/// Lenses of the view.
pub(super) fn lenses(view: &dyn View) -> Vec<Item> {
    let shown = view.lens();
    let lenses = view.lenses().into_iter();
    lenses
        .map(|(name, about)| Item {
            disabled: (shown == Some(name)).then_some("this is the one you look through"),
            ..item(name, about, Choice::Lens(name))
        })
        .collect()
}

/// Columns of the view.
pub(super) fn sort_columns(view: &dyn View) -> Vec<Item> {
    view.sort_columns()
        .iter()
        .map(|column| {
            let note = match view.sort().filter(|s| s.column == *column) {
                Some(sort) if sort.falling => "largest first now; picks smallest first",
                Some(_) => "smallest first now; picks largest first",
                None => "",
            };
            item(*column, note, Choice::SortBy(column))
        })
        .collect()
}
