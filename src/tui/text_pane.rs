//! A scrolled, wrapped, searchable text over the view: description, YAML, help, messages.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::glyphs::Glyph;
use super::object::ObjectRef;
use super::table::moved;
use super::theme::Meaning;
use super::view::{Ctx, Motion, Target, ViewId};
use super::wrap::wrap;
use crate::model::Str;

/// Where the text comes from, and so when it is made anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Body {
    /// A view's description of a thing; made anew when the cluster changes.
    Description(ViewId, Target),
    /// An object as the server has it.
    Yaml(ObjectRef),
    /// The keys.
    Help,
    /// The message log.
    Messages,
    /// The state of each source.
    Sources,
    /// What could not be read.
    Unreadable,
    /// The tour.
    Tour,
    /// Why a thing is where it is; made anew when the cluster changes.
    Why(Target),
    /// Logs of pods, by the turn of the question; lines are added.
    Logs(u64),
    /// The link matrix of a node.
    Links(Str),
    /// What a program writes, by its turn; lines are added.
    Output(u64),
}

/// The lines that stand below a title: a first line that says the same again is left out.
pub(super) fn below(title: &str, mut lines: Vec<Line<'static>>) -> Vec<Line<'static>> {
    if lines.first().is_some_and(|l| l.to_string() == title) {
        lines.remove(0);
    }
    lines
}

/// The pane.
#[derive(Clone, Debug)]
pub(super) struct TextPane {
    /// Where the text comes from.
    pub(super) body: Body,
    /// What stands above it.
    pub(super) title: String,
    lines: Vec<Line<'static>>,
    rows: Vec<Line<'static>>,
    width: u16,
    height: usize,
    offset: usize,
    search: String,
    /// Rows that match the search.
    hits: Vec<usize>,
}

impl TextPane {
    /// A pane with its first text.
    pub(super) fn new(body: Body, title: impl Into<String>, lines: Vec<Line<'static>>) -> Self {
        TextPane {
            body,
            title: title.into(),
            lines,
            rows: Vec::new(),
            width: 0,
            height: 1,
            offset: 0,
            search: String::new(),
            hits: Vec::new(),
        }
    }

    /// Another text for the same place; position and search stay.
    pub(super) fn set_lines(&mut self, lines: Vec<Line<'static>>) {
        if lines != self.lines {
            self.lines = lines;
            self.rewrap();
        }
    }

    /// Adds lines at the end and lets the oldest go beyond `keep`. Who looks at the end keeps
    /// looking at it.
    pub(super) fn append(&mut self, more: Vec<Line<'static>>, keep: usize) {
        let at_end = self.offset >= self.last_offset();
        let width = usize::from(self.width);
        if self.width > 0 {
            let before = self.rows.len();
            self.rows.extend(more.iter().flat_map(|l| wrap(l, width)));
            let wanted = self.search.to_lowercase();
            if !wanted.is_empty() {
                let new = self.rows.iter().enumerate().skip(before);
                let found = new.filter(|(_, r)| r.to_string().to_lowercase().contains(&wanted));
                self.hits.extend(found.map(|(i, _)| i));
            }
        }
        self.lines.extend(more);
        let excess = self.lines.len().saturating_sub(keep);
        if excess > 0 {
            let gone: usize = if self.width > 0 {
                let old = self.lines.iter().take(excess);
                old.map(|l| wrap(l, width).len()).sum()
            } else {
                0
            };
            self.lines.drain(..excess);
            self.rows.drain(..gone.min(self.rows.len()));
            self.hits.retain(|h| *h >= gone);
            self.hits.iter_mut().for_each(|h| *h -= gone);
            self.offset = self.offset.saturating_sub(gone);
        }
        if at_end {
            self.offset = self.last_offset();
        }
    }

    /// Goes to the end.
    pub(super) fn show_end(&mut self) {
        self.offset = usize::MAX;
    }

    /// The text without styles.
    pub(super) fn text(&self) -> String {
        let lines: Vec<String> = self.lines.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

    /// Fits the text to the area to come.
    pub(super) fn fit(&mut self, area: Rect) {
        let inner = body_area(area);
        self.height = usize::from(inner.height).max(1);
        // One column is the scroll bar's.
        let width = inner.width.saturating_sub(1);
        if width != self.width || self.rows.is_empty() {
            self.width = width;
            self.rewrap();
        }
        self.offset = self.offset.min(self.last_offset());
    }

    fn rewrap(&mut self) {
        let width = usize::from(self.width);
        self.rows = self.lines.iter().flat_map(|l| wrap(l, width)).collect();
        self.find();
    }

    fn find(&mut self) {
        let wanted = self.search.to_lowercase();
        self.hits = if wanted.is_empty() {
            Vec::new()
        } else {
            let matches = |row: &Line<'_>| row.to_string().to_lowercase().contains(&wanted);
            let rows = self.rows.iter().enumerate();
            rows.filter(|(_, r)| matches(r)).map(|(i, _)| i).collect()
        };
    }

    fn last_offset(&self) -> usize {
        self.rows.len().saturating_sub(self.height)
    }

    /// Scrolls.
    pub(super) fn motion(&mut self, motion: Motion) {
        let len = self.last_offset() + 1;
        self.offset = moved(self.offset, motion, len, self.height);
    }

    /// The text searched for.
    pub(super) fn search(&self) -> &str {
        &self.search
    }

    /// Searches, and goes to the first match at or below the top row. Rows that match are counted
    /// in the title.
    pub(super) fn set_search(&mut self, text: &str) {
        text.clone_into(&mut self.search);
        self.find();
        let here = self.offset;
        if let Some(to) = self.hits.iter().find(|h| **h >= here).or(self.hits.first()) {
            self.offset = (*to).min(self.last_offset());
        }
    }

    /// Goes to the next match, from the last one on to the first.
    pub(super) fn next_hit(&mut self) {
        let here = self.offset;
        let last = self.last_offset();
        if let Some(to) = self
            .hits
            .iter()
            .find(|h| **h > here && here < last)
            .or(self.hits.first())
        {
            self.offset = (*to).min(last);
        }
    }

    /// Goes to the match before, from the first one on to the last.
    pub(super) fn previous_hit(&mut self) {
        let here = self.offset;
        if let Some(to) = self.hits.iter().rfind(|h| **h < here).or(self.hits.last()) {
            self.offset = (*to).min(self.last_offset());
        }
    }

    /// Draws title and visible rows.
    pub(super) fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        if area.is_empty() {
            return;
        }
        buf.set_style(area, Style::reset());
        for y in area.top()..area.bottom() {
            for x in area.left()..area.right() {
                if let Some(cell) = buf.cell_mut((x, y)) {
                    cell.reset();
                }
            }
        }
        self.draw_title(area, buf, ctx);
        let inner = body_area(area);
        let rows = self.rows.iter().skip(self.offset);
        for (y, row) in (inner.top()..inner.bottom()).zip(rows) {
            let shown = self.highlighted(row, ctx);
            buf.set_line(inner.x, y, &shown, inner.width.saturating_sub(1));
        }
        self.draw_thumb(inner, buf, ctx);
    }

    fn draw_title(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        let mut title = Line::from(vec![
            Span::raw(" "),
            Span::styled(self.title.clone(), ctx.style(Meaning::Title)),
        ]);
        if !self.search.is_empty() {
            let found = format!("   /{}: {} rows", self.search, self.hits.len());
            title.push_span(Span::styled(found, ctx.style(Meaning::Muted)));
        }
        buf.set_line(area.x, area.y, &title, area.width);
    }

    fn highlighted(&self, row: &Line<'static>, ctx: &Ctx<'_>) -> Line<'static> {
        let wanted = self.search.to_lowercase();
        let text = row.to_string();
        // Positions in the lower-case text hold for the text itself only when both are ASCII.
        if wanted.is_empty() || !text.is_ascii() {
            return row.clone();
        }
        let lower = text.to_lowercase();
        let mut spans = Vec::new();
        let mut at = 0;
        for span in &row.spans {
            let end = at + span.content.len();
            let mut from = at;
            for (hit, _) in lower.match_indices(&wanted) {
                let (low, high) = (hit.max(from), (hit + wanted.len()).min(end));
                if low >= high {
                    continue;
                }
                let part = |a, b| text.get(a..b).unwrap_or_default().to_owned();
                spans.push(Span::styled(part(from, low), span.style));
                let style = span.style.patch(ctx.style(Meaning::Match));
                spans.push(Span::styled(part(low, high), style));
                from = high;
            }
            let tail = text.get(from..end).unwrap_or_default().to_owned();
            spans.push(Span::styled(tail, span.style));
            at = end;
        }
        Line::from(spans).style(row.style)
    }

    fn draw_thumb(&self, inner: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        let (len, height) = (self.rows.len(), usize::from(inner.height));
        if len <= height || inner.is_empty() {
            return;
        }
        let thumb = (height * height / len).max(1);
        let top = self.offset * (height - thumb) / self.last_offset().max(1);
        for line in top..(top + thumb).min(height) {
            let y = inner.y + u16::try_from(line).unwrap_or(0);
            let x = inner.right() - 1;
            buf.set_string(x, y, ctx.glyph(Glyph::Thumb), ctx.style(Meaning::Muted));
        }
    }
}

/// The text's part of the pane's area: below the title, one column in.
fn body_area(area: Rect) -> Rect {
    let indent = u16::from(area.width > 20);
    Rect {
        x: area.x + indent,
        y: area.y.saturating_add(1).min(area.bottom()),
        width: area.width - indent.min(area.width),
        height: area.height.saturating_sub(1),
    }
}
