//! The table that all list views share: typed rows, columns as functions of a row, a cursor that
//! follows the row's key, and drawing of the visible rows only.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::Hash;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::glyphs::Glyph;
use super::theme::Meaning;
use super::view::{Ctx, Motion, Sort};
use crate::model::truncate_middle;

/// A row of a table.
pub trait Row {
    /// What tells it from all others and outlives every refresh.
    type Key: Clone + Eq + Hash + Send;

    /// Its key.
    fn key(&self) -> Self::Key;
}

/// Where a cell's text stands in its column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// How wide a column is, in terminal columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// Always this.
    Fixed(u16),
    /// At least this, at most that; what is left over is given by weight.
    Flex {
        /// At least.
        min: u16,
        /// At most.
        max: u16,
        /// Share of what is left over.
        weight: u16,
    },
}

impl Width {
    fn min(self) -> u16 {
        match self {
            Width::Fixed(n) | Width::Flex { min: n, .. } => n,
        }
    }
}

/// What stands in one cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// A text or number, cut in its middle when too long (give numbers columns that hold them).
    Text(String, Style),
    /// Ready spans, cut at the end: bars, cells of GPUs.
    Spans(Line<'static>),
}

/// A column: a function of a row.
pub struct Column<R> {
    /// As the header shows it.
    pub header: &'static str,
    /// As sorting and filters name it.
    pub name: &'static str,
    /// Width.
    pub width: Width,
    /// Alignment.
    pub align: Align,
    /// When it gets narrow, the column with the largest number goes first; 0 never goes.
    pub drop: u8,
    /// What stands in its cell, given the columns there are.
    pub cell: fn(&R, &Ctx<'_>, u16) -> Cell,
    /// Rising order by this column; `None`: not sortable. An unknown value is to come last.
    pub order: Option<fn(&R, &R) -> Ordering>,
}

/// Blank columns between two.
const GAP: u16 = 1;

/// Cursor, scroll position and marks over a list of keys. Also for views that are no table.
#[derive(Clone, Debug)]
pub struct Cursor<K> {
    key: Option<K>,
    index: usize,
    offset: usize,
    marks: HashSet<K>,
    last_mark: Option<K>,
}

impl<K> Default for Cursor<K> {
    fn default() -> Self {
        Cursor {
            key: None,
            index: 0,
            offset: 0,
            marks: HashSet::new(),
            last_mark: None,
        }
    }
}

impl<K: Clone + Eq + Hash> Cursor<K> {
    /// Position of the row under the cursor; meaningless without rows.
    pub fn index(&self) -> usize {
        self.index
    }

    /// First visible row.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Key of the row under the cursor.
    pub fn key(&self) -> Option<&K> {
        self.key.as_ref()
    }

    /// Whether a row is marked.
    pub fn is_marked(&self, key: &K) -> bool {
        self.marks.contains(key)
    }

    /// Number of marks.
    pub fn mark_count(&self) -> usize {
        self.marks.len()
    }

    /// Takes all marks away.
    pub fn clear_marks(&mut self) {
        self.marks.clear();
        self.last_mark = None;
    }

    /// After the rows have changed: finds the row of the cursor's key again. If it is gone, the
    /// cursor stays at its place in the list. Marks of rows that are gone go too.
    pub fn follow(&mut self, keys: impl Iterator<Item = K>) {
        let mut len = 0;
        let mut found = None;
        let mut kept = HashSet::new();
        for key in keys {
            if self.key.as_ref() == Some(&key) {
                found = Some(len);
            }
            if !self.marks.is_empty() && self.marks.contains(&key) {
                kept.insert(key);
            }
            len += 1;
        }
        self.marks = kept;
        self.index = found.unwrap_or(self.index).min(len.saturating_sub(1));
    }

    /// Sets the cursor to a position.
    pub fn set(&mut self, index: usize, key: Option<K>) {
        self.index = index;
        self.key = key;
    }

    /// Scrolls so that the cursor is within `height` rows of a list of `len`.
    pub fn scroll(&mut self, len: usize, height: usize) {
        if self.index < self.offset {
            self.offset = self.index;
        } else if height > 0 && self.index >= self.offset + height {
            self.offset = self.index + 1 - height;
        }
        self.offset = self.offset.min(len.saturating_sub(height));
    }
}

/// Where a motion leads in a list of `len` rows of which `page` are visible.
pub fn moved(index: usize, motion: Motion, len: usize, page: usize) -> usize {
    let last = len.saturating_sub(1);
    let page = page.max(1);
    let half = (page / 2).max(1);
    match motion {
        Motion::Up => index.saturating_sub(1),
        Motion::Down => index.saturating_add(1),
        Motion::PageUp => index.saturating_sub(page),
        Motion::PageDown => index.saturating_add(page),
        Motion::HalfUp => index.saturating_sub(half),
        Motion::HalfDown => index.saturating_add(half),
        Motion::First => 0,
        Motion::Last => last,
        Motion::Left | Motion::Right => index,
    }
    .min(last)
}

/// The rows, their order and the cursor. Columns are given to each call: they are constants of the
/// view.
pub struct Table<R: Row> {
    rows: Vec<R>,
    cursor: Cursor<R::Key>,
    sort: Option<Sort>,
    page: usize,
    side: usize,
}

impl<R: Row> Default for Table<R> {
    fn default() -> Self {
        Table {
            rows: Vec::new(),
            cursor: Cursor::default(),
            sort: None,
            page: 1,
            side: 0,
        }
    }
}

impl<R: Row> Table<R> {
    /// The rows in their order.
    pub fn rows(&self) -> &[R] {
        &self.rows
    }

    /// The row under the cursor.
    pub fn selected(&self) -> Option<&R> {
        self.rows.get(self.cursor.index())
    }

    /// The cursor.
    pub fn cursor(&self) -> &Cursor<R::Key> {
        &self.cursor
    }

    /// The order in force.
    pub fn sort(&self) -> Option<Sort> {
        self.sort
    }

    /// Sets the order of the rows that are there; [`Table::set_rows`] keeps it.
    pub fn set_sort(&mut self, sort: Option<Sort>, columns: &[Column<R>]) {
        self.sort = sort;
        let rows = std::mem::take(&mut self.rows);
        self.set_rows(rows, columns);
    }

    /// Takes new rows. They are sorted by the chosen column, rows alike staying in the order
    /// given; the cursor follows its row.
    pub fn set_rows(&mut self, mut rows: Vec<R>, columns: &[Column<R>]) {
        if let Some(sort) = self.sort
            && let Some(order) = columns
                .iter()
                .find(|c| c.name == sort.column)
                .and_then(|c| c.order)
        {
            rows.sort_by(|a, b| {
                let rising = order(a, b);
                if sort.falling {
                    rising.reverse()
                } else {
                    rising
                }
            });
        }
        self.rows = rows;
        self.cursor.follow(self.rows.iter().map(Row::key));
        self.remember();
    }

    fn remember(&mut self) {
        let index = self.cursor.index();
        let key = self.rows.get(index).map(Row::key);
        self.cursor.set(index, key);
    }

    /// Moves the cursor; left and right move the columns under a narrow screen.
    pub fn motion(&mut self, motion: Motion) {
        match motion {
            Motion::Left => self.side = self.side.saturating_sub(1),
            Motion::Right => self.side = self.side.saturating_add(1),
            _ => {}
        }
        let to = moved(self.cursor.index(), motion, self.rows.len(), self.page);
        self.cursor.set(to, self.rows.get(to).map(Row::key));
    }

    /// Puts the cursor on a row by its key.
    pub fn select(&mut self, key: &R::Key) -> bool {
        let Some(at) = self.rows.iter().position(|r| r.key() == *key) else {
            return false;
        };
        self.cursor.set(at, Some(key.clone()));
        true
    }

    /// Marks the row under the cursor or takes its mark away, and moves on.
    pub fn toggle_mark(&mut self) {
        let Some(key) = self.selected().map(Row::key) else {
            return;
        };
        if !self.cursor.marks.remove(&key) {
            self.cursor.marks.insert(key.clone());
        }
        self.cursor.last_mark = Some(key);
        self.motion(Motion::Down);
    }

    /// Marks all rows between the last marked one and the cursor.
    pub fn mark_range(&mut self) {
        let here = self.cursor.index();
        let from = self
            .cursor
            .last_mark
            .as_ref()
            .and_then(|k| self.rows.iter().position(|r| r.key() == *k))
            .unwrap_or(here);
        let (low, high) = (from.min(here), from.max(here));
        for row in self.rows.iter().take(high + 1).skip(low) {
            self.cursor.marks.insert(row.key());
        }
        self.cursor.last_mark = self.selected().map(Row::key);
    }

    /// Takes all marks away.
    pub fn clear_marks(&mut self) {
        self.cursor.clear_marks();
    }

    /// Marked rows in their order.
    pub fn marked(&self) -> impl Iterator<Item = &R> {
        // Mostly nothing is marked, and then no row needs to be looked at.
        let candidates = if self.cursor.mark_count() == 0 {
            0
        } else {
            self.rows.len()
        };
        self.rows
            .iter()
            .take(candidates)
            .filter(|r| self.cursor.is_marked(&r.key()))
    }

    /// Rows that were visible at the last [`Table::fit`].
    pub fn page(&self) -> usize {
        self.page
    }

    /// Rows that `area` shows, below the header.
    pub fn visible_rows(area: Rect) -> usize {
        usize::from(area.height.saturating_sub(1))
    }

    /// Fits page and scroll position to the area to come.
    pub fn fit(&mut self, area: Rect) {
        let height = Self::visible_rows(area);
        self.page = height.max(1);
        self.cursor.scroll(self.rows.len(), height);
    }

    /// Draws header and visible rows. `dim`: the data is stale.
    pub fn draw(
        &self,
        area: Rect,
        buf: &mut Buffer,
        ctx: &Ctx<'_>,
        columns: &[Column<R>],
        dim: bool,
    ) {
        if area.is_empty() {
            return;
        }
        let plan = layout(columns, area.width.saturating_sub(1));
        self.draw_header(area, buf, ctx, &plan);
        let rows = self.rows.iter().enumerate().skip(self.cursor.offset());
        for (line, (index, row)) in (0..Self::visible_rows(area)).zip(rows) {
            let line = u16::try_from(line).unwrap_or(u16::MAX);
            let y = area.y.saturating_add(1).saturating_add(line);
            let strip = Rect::new(area.x, y, area.width, 1);
            let marked = self.cursor.is_marked(&row.key());
            if marked {
                buf.set_string(area.x, y, ctx.glyph(Glyph::Mark), ctx.style(Meaning::Mark));
            }
            for part in &plan {
                let cell = (part.column.cell)(row, ctx, part.width);
                put(
                    buf,
                    strip,
                    part,
                    cell,
                    marked.then(|| ctx.style(Meaning::Mark)),
                );
            }
            if dim {
                buf.set_style(strip, ctx.style(Meaning::Dim));
            }
            if index == self.cursor.index() {
                buf.set_style(strip, ctx.style(Meaning::Selection));
            }
        }
    }

    fn draw_header(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>, plan: &[Part<'_, R>]) {
        let strip = Rect::new(area.x, area.y, area.width, 1);
        for part in plan {
            let sign = match self.sort.filter(|s| s.column == part.column.name) {
                Some(sort) if sort.falling => ctx.glyph(Glyph::Down),
                Some(_) => ctx.glyph(Glyph::Up),
                None => "",
            };
            let text = format!("{}{sign}", part.column.header);
            let cell = Cell::Text(text, ctx.style(Meaning::Header));
            put(buf, strip, part, cell, None);
        }
    }
}

/// A column at its place.
struct Part<'a, R> {
    column: &'a Column<R>,
    x: u16,
    width: u16,
}

/// Chooses the columns that fit into `width` and gives each its place. Columns go in the order of
/// their `drop` numbers, largest first; what is left over goes to the flexible ones.
fn layout<R>(columns: &[Column<R>], width: u16) -> Vec<Part<'_, R>> {
    let mut kept: Vec<&Column<R>> = columns.iter().collect();
    let needed = |kept: &[&Column<R>]| {
        let gaps = u16::try_from(kept.len().saturating_sub(1)).unwrap_or(u16::MAX) * GAP;
        kept.iter()
            .map(|c| c.width.min())
            .fold(gaps, u16::saturating_add)
    };
    while needed(&kept) > width {
        let Some(worst) = kept.iter().map(|c| c.drop).max().filter(|d| *d > 0) else {
            break;
        };
        let Some(at) = kept.iter().rposition(|c| c.drop == worst) else {
            break;
        };
        kept.remove(at);
    }
    let mut spare = width.saturating_sub(needed(&kept));
    let mut weight: u16 = kept.iter().map(|c| weight_of(c)).sum();
    // The first column of the area is kept for the mark.
    let mut x = 1;
    let mut parts = Vec::with_capacity(kept.len());
    for column in kept {
        let mut own = column.width.min();
        if let Width::Flex { min, max, .. } = column.width {
            let share = u32::from(spare) * u32::from(weight_of(column)) / u32::from(weight.max(1));
            let extra = u16::try_from(share)
                .unwrap_or(0)
                .min(max.saturating_sub(min));
            own += extra;
            spare -= extra;
            weight -= weight_of(column);
        }
        parts.push(Part {
            column,
            x,
            width: own,
        });
        x = x.saturating_add(own).saturating_add(GAP);
    }
    parts
}

fn weight_of<R>(column: &Column<R>) -> u16 {
    match column.width {
        Width::Fixed(_) => 0,
        Width::Flex { weight, .. } => weight,
    }
}

/// Writes a cell, never outside its column or the strip.
fn put<R>(buf: &mut Buffer, strip: Rect, part: &Part<'_, R>, cell: Cell, style: Option<Style>) {
    let room = strip.width.saturating_sub(part.x).min(part.width);
    if room == 0 {
        return;
    }
    let x = strip.x + part.x;
    match cell {
        Cell::Text(text, own) => {
            let shown = truncate_middle(&text, usize::from(room));
            let pad = match part.column.align {
                Align::Left => 0,
                Align::Right => {
                    room.saturating_sub(u16::try_from(shown.width()).unwrap_or(u16::MAX))
                }
            };
            let style = style.map_or(own, |mark| own.patch(mark));
            buf.set_stringn(x + pad, strip.y, &shown, usize::from(room - pad), style);
        }
        Cell::Spans(line) => {
            let pad = match part.column.align {
                Align::Left => 0,
                Align::Right => {
                    room.saturating_sub(u16::try_from(line.width()).unwrap_or(u16::MAX))
                }
            };
            buf.set_line(x + pad, strip.y, &line, room - pad);
        }
    }
}
