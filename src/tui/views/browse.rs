//! Browse: the objects of any collection of the API.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::list::{List, News, Spec, list_view};
use super::nodes::age;
use crate::model::{Kind, Str};
use crate::tui::browse::{Answer, BrowseRow, NoListing};
use crate::tui::filter::{FilterColumn, Unit, Value, contains};
use crate::tui::format;
use crate::tui::glyphs::Glyph;
use crate::tui::object::ObjectRef;
use crate::tui::sort_key::SortKey;
use crate::tui::state::{DataState, Placeholder};
use crate::tui::table::{Align, Cell, Column, Row, Width};
use crate::tui::theme::Meaning;
use crate::tui::view::{Ctx, FilterError, Motion, Opens, Sort, Target, View, ViewId};

/// An object of the list.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Position in the server's list.
    at: usize,
    object: ObjectRef,
    row: BrowseRow,
}

impl Row for Entry {
    type Key = ObjectRef;

    fn key(&self) -> ObjectRef {
        self.object.clone()
    }

    fn place(&self) -> SortKey {
        SortKey::number(i64::try_from(self.at).unwrap_or(i64::MAX))
    }
}

type Item = Entry;

static COLUMNS: &[Column<Item>] = &[
    Column {
        header: "NAME",
        name: "name",
        width: Width::Flex {
            min: 20,
            max: 64,
            weight: 3,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| Cell::Text(r.row.name.to_string(), ctx.style(Meaning::Text)),
        order: Some(|r| SortKey::text(&r.row.name)),
    },
    Column {
        header: "NAMESPACE",
        name: "ns",
        width: Width::Flex {
            min: 12,
            max: 32,
            weight: 1,
        },
        align: Align::Left,
        drop: 2,
        cell: |r, ctx, _| Cell::Text(r.row.namespace.to_string(), ctx.style(Meaning::Muted)),
        order: Some(|r| SortKey::text(&r.row.namespace)),
    },
    Column {
        header: "AGE",
        name: "age",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| age(r.row.created, ctx),
        order: Some(|r| SortKey::known(r.row.created, SortKey::latest)),
    },
    Column {
        header: "CANNOT BE READ",
        name: "unreadable",
        width: Width::Flex {
            min: 16,
            max: 200,
            weight: 4,
        },
        align: Align::Left,
        drop: 1,
        cell: |r, ctx, width| {
            let text = format::sentence_within(&r.row.unreadable, usize::from(width));
            Cell::Text(text.into_owned(), ctx.style(Meaning::Warn))
        },
        order: None,
    },
];

static FILTER: &[FilterColumn<Entry>] = &[
    FilterColumn {
        name: "name",
        aliases: &[],
        unit: Unit::Text,
        about: "name of the object",
        value: |r, _| Value::text(&r.row.name),
    },
    FilterColumn {
        name: "ns",
        aliases: &["namespace"],
        unit: Unit::Text,
        about: "namespace",
        value: |r, _| Value::text(&r.row.namespace),
    },
    FilterColumn {
        name: "age",
        aliases: &[],
        unit: Unit::Secs,
        about: "time since it was created",
        value: |r, now| match r.row.created {
            #[allow(clippy::cast_precision_loss)]
            Some(at) => Value::Number(format::secs_since(at, now) as f64),
            None => Value::Unknown,
        },
    },
];

static SPEC: Spec<Entry> = Spec {
    columns: COLUMNS,
    sortable: &["name", "ns", "age"],
    filter: FILTER,
    search: |r, word| contains(&r.row.name, word) || contains(&r.row.namespace, word),
    since: |r| r.row.created,
    // The list is fetched, not watched; its state is drawn here.
    kind: Kind::Namespace,
    awaits: "",
};

/// The view.
pub struct BrowseView {
    list: List<Entry>,
    mode: Option<String>,
}

impl Default for BrowseView {
    fn default() -> Self {
        BrowseView {
            list: List::new(&SPEC),
            mode: None,
        }
    }
}

fn entries(ctx: &Ctx<'_>) -> Vec<Entry> {
    let (Some(resource), Answer::Listed(listing, _)) = (ctx.browse.resource(), &ctx.browse.answer)
    else {
        return Vec::new();
    };
    let entry = |(at, row): (usize, &BrowseRow)| Entry {
        at,
        object: ObjectRef {
            kind: resource.kind.clone(),
            namespace: row.namespace.clone(),
            name: row.name.clone(),
            resource: Some(resource.clone()),
        },
        row: row.clone(),
    };
    listing.rows.iter().enumerate().map(entry).collect()
}

/// What stands in the place of a list that is not there.
fn absent(ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let Some(resource) = ctx.browse.resource() else {
        let text = "no list is chosen: type : and the name of a resource, such as resourceslices";
        return Some(vec![Line::styled(text, ctx.style(Meaning::Muted))]);
    };
    let name = resource.full_name();
    let two = |word: &'static str, meaning, why: &str| {
        vec![
            Line::from(vec![
                Span::styled(word, ctx.style(meaning)),
                Span::styled(format!("list {name}"), ctx.style(Meaning::Text)),
            ]),
            Line::styled(why.to_owned(), ctx.style(Meaning::Muted)),
        ]
    };
    match &ctx.browse.answer {
        Answer::Awaited => Some(vec![Line::styled(
            format!("{} waiting for {name}", ctx.glyph(Glyph::Ellipsis)),
            ctx.style(Meaning::Loading),
        )]),
        Answer::Refused(NoListing::Denied(why)) => Some(two("denied: ", Meaning::Denied, why)),
        Answer::Refused(NoListing::Failed(why)) => Some(two("no answer: ", Meaning::Danger, why)),
        Answer::Listed(..) => None,
    }
}

/// What the list leaves out, as one line.
fn note(notes: &[Str]) -> Option<String> {
    let first = notes.first()?;
    Some(match notes.len() - 1 {
        0 => first.to_string(),
        more => format!("{first} (and {more} more)"),
    })
}

impl View for BrowseView {
    fn id(&self) -> ViewId {
        ViewId::Browse
    }

    fn kinds(&self) -> &'static [Kind] {
        &[]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.mode = ctx.browse.resource().map(|r| match &ctx.browse.answer {
            Answer::Listed(_, at) => {
                format!("{} as of {}", r.full_name(), format::timestamp(*at))
            }
            _ => r.full_name(),
        });
        // Another answer is another place; of the cluster nothing is shown.
        self.list.refresh(area, ctx, |since| {
            News::all_if(since.is_none(), || entries(ctx))
        });
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        if area.is_empty() {
            return;
        }
        if let Some(lines) = absent(ctx) {
            Paragraph::new(lines)
                .wrap(Wrap { trim: true })
                .render(area, buf);
            return;
        }
        let mut body = area;
        if let Answer::Listed(listing, _) = &ctx.browse.answer
            && let Some(text) = note(&listing.notes)
            && area.height > 2
        {
            body.height -= 1;
            let text = format::sentence_within(&text, usize::from(area.width));
            buf.set_stringn(
                area.x,
                body.bottom(),
                text,
                usize::from(area.width),
                ctx.style(Meaning::Warn),
            );
        }
        if self.list.count().0 == 0 {
            let plural = ctx.browse.resource().map_or("objects", |r| &*r.plural);
            Placeholder {
                state: DataState::Live,
                filter: self.list.filter(),
                hidden: self.list.count().1,
                awaits: plural,
            }
            .draw(body, buf, ctx);
        } else {
            self.list.draw_table(body, buf, ctx);
        }
    }

    fn motion(&mut self, motion: Motion) {
        self.list.motion(motion, false);
    }

    fn select(&mut self, target: &Target) -> bool {
        match target {
            Target::Object(object) => self.list.select(object),
            _ => false,
        }
    }

    fn opens(&self, _ctx: &Ctx<'_>) -> Opens {
        Opens::Yaml
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        let Target::Object(object) = target else {
            return None;
        };
        let entry = self.list.get(object)?;
        Some(super::describe::listed(&entry.object, &entry.row, ctx))
    }

    fn mode(&self) -> Option<String> {
        self.mode.clone()
    }

    list_view!(list, |r: &Item| Target::Object(r.object.clone()));
}
