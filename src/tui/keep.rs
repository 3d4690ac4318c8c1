//! What is kept from one session to the next: for each context the view, its filters and orders,
//! and the namespace. A file that cannot be read is told and not used; it never stops the start.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::app::{App, Cmd};
use super::view::{Sort, View, ViewId};

/// Contexts that are remembered; the rest is forgotten.
const CONTEXTS: usize = 100;
/// Largest file that is read, in bytes.
const FILE_LIMIT: u64 = 1 << 20;

/// What is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// Whether the tour was shown.
    pub toured: bool,
    /// By context.
    pub contexts: BTreeMap<String, KeptPlace>,
}

/// What is kept of one context.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptPlace {
    /// Name of the view.
    pub view: String,
    /// The namespace that was shown.
    pub namespace: Option<String>,
    /// By name of the view.
    pub views: BTreeMap<String, KeptView>,
}

/// What is kept of one view.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptView {
    /// Its filter.
    pub filter: String,
    /// Its order: the column.
    pub sort: Option<String>,
    /// Largest first.
    pub falling: bool,
    /// The lens that it is looked at through, unless it is the first one.
    pub lens: Option<String>,
}

impl Kept {
    /// Reads the file; what is wrong with it comes back as a sentence.
    pub fn load(path: &Path) -> (Self, Option<String>) {
        let refuse = |why: String| {
            let shown = path.display();
            (Kept::default(), Some(format!("{shown} is not used: {why}")))
        };
        match std::fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return (Kept::default(), None),
            Err(e) => return refuse(e.to_string()),
            Ok(meta) if !meta.is_file() => return refuse("it is no file".to_owned()),
            Ok(meta) if meta.len() > FILE_LIMIT => return refuse("it is too large".to_owned()),
            Ok(_) => {}
        }
        match std::fs::read(path) {
            Err(e) => refuse(e.to_string()),
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(kept) => (kept, None),
                Err(e) => refuse(format!("it is not what gpudeck writes there: {e}")),
            },
        }
    }

    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// The system's.
    pub fn store(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // Two consoles that leave at once must not write into one file.
        let draft = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut file = std::fs::File::create(&draft)?;
        file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
        drop(file);
        std::fs::rename(&draft, path)
    }

    /// Takes in what another console has kept meanwhile of other contexts.
    #[must_use]
    pub fn over(mut self, before: Kept) -> Self {
        self.toured |= before.toured;
        for (context, place) in before.contexts {
            self.contexts.entry(context).or_insert(place);
        }
        while self.contexts.len() > CONTEXTS {
            self.contexts.pop_first();
        }
        self
    }
}

impl App {
    /// Keeps what a person does from now on, beside what was kept before, and brings that back.
    /// `remembers`: also views and filters of contexts. Who is here for the first time gets the
    /// tour.
    pub fn remember(&mut self, kept: Kept, remembers: bool) {
        let first = !kept.toured;
        self.remembers = remembers;
        let here = kept.contexts.get(&*self.world.session.context).cloned();
        self.kept = Some(kept);
        if let Some(here) = here.filter(|_| remembers) {
            self.restore(&here);
        }
        if first {
            self.open_tour();
        }
    }

    /// What is to be written now, if anything is kept.
    pub(super) fn what_to_keep(&mut self) -> Option<Cmd> {
        let place = self.kept_place();
        let context = self.world.session.context.to_string();
        let kept = self.kept.as_mut()?;
        kept.toured = true;
        if self.remembers {
            kept.contexts.insert(context, place);
        }
        Some(Cmd::Keep(kept.clone()))
    }

    /// Brings back what was kept of the place that is looked at now.
    pub(super) fn restore_here(&mut self) {
        let context = self.world.session.context.to_string();
        let kept = self.kept.as_ref().filter(|_| self.remembers);
        if let Some(place) = kept.and_then(|k| k.contexts.get(&context)).cloned() {
            self.restore(&place);
        }
    }

    /// What is to be kept of the place that is looked at.
    pub(super) fn kept_place(&self) -> KeptPlace {
        let view = |v: &dyn View| {
            let sort = v.sort();
            KeptView {
                filter: v.filter().to_owned(),
                sort: sort.map(|s| s.column.to_owned()),
                falling: sort.is_some_and(|s| s.falling),
                lens: v.lens().filter(|l| !is_first(v, l)).map(str::to_owned),
            }
        };
        // Filters inside a thing that was entered are that thing's.
        let views = self
            .views
            .iter()
            .filter(|v| !v.is_inside() && v.id() != ViewId::Browse);
        let views = views.map(|v| (v.id().name().to_owned(), view(&**v)));
        let here = self.view().map_or(ViewId::Fleet, View::id);
        KeptPlace {
            view: here.name().to_owned(),
            namespace: self
                .world
                .session
                .namespace
                .as_ref()
                .map(ToString::to_string),
            views: views.filter(|(_, v)| *v != KeptView::default()).collect(),
        }
    }

    /// Brings back what was kept of a place. What does not fit any more is left out.
    pub fn restore(&mut self, kept: &KeptPlace) {
        for view in &mut self.views {
            let Some(was) = kept.views.get(view.id().name()) else {
                continue;
            };
            // A filter of an older version may name a column that is gone.
            let _ = view.set_filter(&was.filter);
            if let Some(lens) = &was.lens {
                view.set_lens(lens);
            }
            let columns = view.sort_columns().iter();
            let column = columns.copied().find(|c| was.sort.as_deref() == Some(*c));
            if let Some(column) = column {
                view.set_sort(Sort {
                    column,
                    falling: was.falling,
                });
            }
        }
        if self.world.session.namespace.is_none() {
            let namespace = kept.namespace.as_ref();
            self.world.session.namespace = namespace.map(|n| crate::model::clean(n, 253).into());
        }
        if let Some(id) = ViewId::ALL.into_iter().find(|id| id.name() == kept.view) {
            self.open_view(id);
        }
    }
}

/// Whether a view looks through this lens before anybody chose one.
fn is_first(view: &dyn View, lens: &str) -> bool {
    view.lenses()
        .first()
        .is_some_and(|(first, _)| *first == lens)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_kept_is_read_back_and_a_bad_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/session.json");
        assert_eq!(Kept::load(&path), (Kept::default(), None));
        let mut kept = Kept::default();
        let place = KeptPlace {
            view: "jobs".to_owned(),
            namespace: Some("team-a".to_owned()),
            ..KeptPlace::default()
        };
        kept.contexts.insert("prod".to_owned(), place.clone());
        kept.store(&path).unwrap();
        assert_eq!(Kept::load(&path), (kept.clone(), None));
        let mut other = Kept::default();
        other.contexts.insert("lab".to_owned(), place);
        assert_eq!(other.over(kept).contexts.len(), 2);
        for bad in ["", "{\"contexts\": 7}", "\u{0}\u{1}", "[7]"] {
            std::fs::write(&path, bad).unwrap();
            let (kept, note) = Kept::load(&path);
            assert_eq!(kept, Kept::default());
            assert!(
                note.unwrap()
                    .contains("session.json is not used: it is not what")
            );
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(Kept::load(&path).1.unwrap().contains("it is no file"));
    }
}
