//! Loading, empty, denied, stale and unknown: told apart in one place, drawn by one widget.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::glyphs::Glyph;
use super::theme::Meaning;
use super::view::Ctx;
use crate::model::{Cluster, Kind, SourceState, Str};

/// How well something on the screen is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataState {
    /// The first list is under way, with the objects read so far.
    Loading(Kind, usize),
    /// Listed and watched.
    Live,
    /// Shown, but this old and for this reason.
    Stale(Timestamp, Str),
    /// The user may not read it.
    Denied(Kind, Str),
    /// The server does not answer.
    Failed(Kind, Str),
}

impl DataState {
    /// The state of one kind. A kind that nobody reported yet is being loaded.
    pub fn of(cluster: &Cluster, kind: Kind) -> Self {
        match cluster.source(kind).map(|s| &s.state) {
            None => DataState::Loading(kind, 0),
            Some(SourceState::Loading { read }) => DataState::Loading(kind, *read),
            Some(SourceState::Live) => DataState::Live,
            Some(SourceState::Stale { since, why }) => DataState::Stale(*since, why.clone()),
            Some(SourceState::Denied { why }) => DataState::Denied(kind, why.clone()),
            Some(SourceState::Absent { why }) => DataState::Failed(kind, why.clone()),
            Some(SourceState::Failed { why }) => DataState::Failed(kind, why.clone()),
        }
    }

    /// Whether rows may exist under this state.
    pub fn has_data(&self) -> bool {
        matches!(self, DataState::Live | DataState::Stale(..))
    }
}

/// What stands where rows would stand when there are none.
pub struct Placeholder<'a> {
    /// State of the kind that the rows are made from.
    pub state: DataState,
    /// The filter in force, if any.
    pub filter: &'a str,
    /// Rows that the filter hides.
    pub hidden: usize,
    /// What would fill the view, in words: `nodes that have GPUs`.
    pub awaits: &'a str,
}

impl Placeholder<'_> {
    /// Draws it into the top of `area`.
    pub fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        if area.is_empty() {
            return;
        }
        let mut lines = vec![self.headline(ctx)];
        if let Some(detail) = self.detail() {
            lines.push(Line::styled(detail, ctx.style(Meaning::Muted)));
        }
        // The first column is that of marks.
        let indent = u16::from(area.width > 1);
        let inner = Rect {
            x: area.x + indent,
            width: area.width - indent,
            ..area
        };
        Paragraph::new(lines)
            .wrap(Wrap { trim: true })
            .render(inner, buf);
    }

    fn headline(&self, ctx: &Ctx<'_>) -> Line<'static> {
        match &self.state {
            DataState::Loading(kind, 0) => Line::styled(
                format!("{} waiting for {kind}", ctx.glyph(Glyph::Ellipsis)),
                ctx.style(Meaning::Loading),
            ),
            DataState::Loading(kind, read) => Line::styled(
                format!("{} {kind}: {read} read", ctx.glyph(Glyph::Ellipsis)),
                ctx.style(Meaning::Loading),
            ),
            DataState::Denied(kind, _) => Line::from(vec![
                Span::styled("denied: ", ctx.style(Meaning::Denied)),
                Span::styled(format!("list {kind}"), ctx.style(Meaning::Text)),
            ]),
            DataState::Failed(kind, _) => Line::styled(
                format!("no answer: list {kind}"),
                ctx.style(Meaning::Danger),
            ),
            DataState::Live | DataState::Stale(..) if self.hidden > 0 => Line::styled(
                format!("nothing matches {}", self.filter),
                ctx.style(Meaning::Text),
            ),
            DataState::Live | DataState::Stale(..) => {
                Line::styled("empty".to_owned(), ctx.style(Meaning::Text))
            }
        }
    }

    fn detail(&self) -> Option<String> {
        match &self.state {
            DataState::Loading(..) => None,
            DataState::Denied(_, why) | DataState::Failed(_, why) => Some(why.to_string()),
            DataState::Live | DataState::Stale(..) if self.hidden > 0 => Some(format!(
                "{} hidden by the filter; clear it with / and an empty line",
                self.hidden
            )),
            DataState::Live | DataState::Stale(..) => Some(format!("would show {}", self.awaits)),
        }
    }
}
