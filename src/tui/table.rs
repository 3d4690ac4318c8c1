//! The table that all list views share: typed rows, columns as functions of a row, a cursor that
//! follows the row's key. Only the rows that are visible are put in order and drawn.

use std::collections::HashSet;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::glyphs::Glyph;
use super::order::Order;
use super::rows::Rows;
pub use super::rows::{Changed, Row};
use super::sort_key::SortKey;
use super::theme::Meaning;
use super::view::{Ctx, Motion, Sort};
use crate::model::truncate_middle;

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
    /// What rows are put in rising order by; `None`: not sortable. An unknown value is to come last.
    pub order: Option<fn(&R) -> SortKey>,
}

/// Blank columns between two.
const GAP: u16 = 1;

/// The row under the cursor, the scroll position and the marks.
struct Cursor<K> {
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

/// The rows, their order and the cursor. Columns are given to each call that needs them: they are
/// constants of the view.
pub struct Table<R: Row> {
    rows: Rows<R>,
    order: Order,
    cursor: Cursor<R::Key>,
    sort: Option<Sort>,
    page: usize,
    side: usize,
}

impl<R: Row> Default for Table<R> {
    fn default() -> Self {
        Table {
            rows: Rows::default(),
            order: Order::default(),
            cursor: Cursor::default(),
            sort: None,
            page: 1,
            side: 0,
        }
    }
}

impl<R: Row> Table<R> {
    /// Number of rows that pass the filter.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no row passes the filter.
    pub fn is_empty(&self) -> bool {
        self.order.len() == 0
    }

    /// Number of rows, also of those that the filter hides.
    pub fn all_len(&self) -> usize {
        self.rows.len()
    }

    /// All rows, also those that the filter hides, in no order.
    pub fn all(&self) -> impl Iterator<Item = &R> {
        self.rows.iter()
    }

    /// A row by its key, also one that the filter hides.
    pub fn get(&self, key: &R::Key) -> Option<&R> {
        self.rows.get(self.rows.number(key)?)
    }

    /// The row under the cursor.
    pub fn selected(&self) -> Option<&R> {
        self.at(self.cursor.index)
    }

    /// Position of the row under the cursor; meaningless without rows.
    pub fn index(&self) -> usize {
        self.cursor.index
    }

    /// First visible row.
    pub fn offset(&self) -> usize {
        self.cursor.offset
    }

    /// The row at a position that has been put in order.
    fn at(&self, index: usize) -> Option<&R> {
        self.rows.get(self.order.get(index)?)
    }

    /// The visible rows, from above.
    pub fn visible(&self) -> impl Iterator<Item = &R> {
        let offset = self.cursor.offset;
        (offset..offset.saturating_add(self.page)).map_while(|index| self.at(index))
    }

    /// The order in force.
    pub fn sort(&self) -> Option<Sort> {
        self.sort
    }

    /// Sets the order of the rows, now and from now on: by a column, rows alike in the order of
    /// their places.
    pub fn set_sort(&mut self, sort: Option<Sort>, columns: &[Column<R>]) {
        self.sort = sort;
        let column = sort.and_then(|sort| {
            let column = columns.iter().find(|c| c.name == sort.column)?;
            column.order
        });
        self.rows.order_by(column, sort.is_some_and(|s| s.falling));
        self.order.forget();
        self.follow();
    }

    /// Takes rows in the place of all there were. `passes` is the filter.
    pub fn replace(&mut self, rows: impl IntoIterator<Item = R>, passes: impl Fn(&R) -> bool) {
        self.rows.clear();
        for row in rows {
            self.rows.set(row, false);
        }
        self.filter(passes);
    }

    /// Takes changes of single rows. `passes` is the filter.
    pub fn change(
        &mut self,
        changes: impl IntoIterator<Item = Changed<R>>,
        passes: impl Fn(&R) -> bool,
    ) {
        let mut touched = HashSet::new();
        for change in changes {
            match change {
                Changed::Set(row) => {
                    let shown = passes(&row);
                    touched.insert(self.rows.set(row, shown));
                }
                Changed::Gone(key) => touched.extend(self.rows.remove(&key)),
            }
        }
        if touched.is_empty() {
            return;
        }
        let mut flags = vec![false; self.rows.numbers_end()];
        for number in &touched {
            if let Some(flag) = flags.get_mut(*number as usize) {
                *flag = true;
            }
        }
        let is_touched = |number: u32| flags.get(number as usize).copied().unwrap_or_default();
        let rows = &self.rows;
        let shown = touched.into_iter().filter(|n| rows.is_shown(*n));
        self.order
            .change(is_touched, shown.collect(), |a, b| rows.compare(a, b));
        self.follow();
    }

    /// Asks again which rows pass.
    pub fn filter(&mut self, passes: impl Fn(&R) -> bool) {
        self.order.replace(self.rows.pass(passes));
        self.follow();
    }

    /// After the rows have changed: finds the row of the cursor's key again. If it is gone, the
    /// cursor stays at its place in the list. Marks of rows that are gone go too.
    fn follow(&mut self) {
        let Table {
            rows,
            order,
            cursor,
            ..
        } = self;
        let shown = |key: &R::Key| rows.number(key).filter(|n| rows.is_shown(*n));
        cursor.marks.retain(|key| shown(key).is_some());
        if let Some(number) = cursor.key.as_ref().and_then(shown) {
            cursor.index = order.place_of(number, |a, b| rows.compare(a, b));
        }
        self.go_to(self.cursor.index);
    }

    /// Puts the rows of some positions in order.
    fn arrange(&mut self, places: std::ops::Range<usize>) {
        let rows = &self.rows;
        self.order.sort(places, |a, b| rows.compare(a, b));
    }

    /// Puts the cursor on a position, or the last one there is.
    fn go_to(&mut self, index: usize) {
        let index = index.min(self.len().saturating_sub(1));
        self.arrange(index..index + 1);
        self.cursor.index = index;
        self.cursor.key = self.at(index).map(Row::key);
    }

    /// Moves the cursor; left and right move the columns under a narrow screen.
    pub fn motion(&mut self, motion: Motion) {
        match motion {
            Motion::Left => self.side = self.side.saturating_sub(1),
            Motion::Right => self.side = self.side.saturating_add(1),
            _ => {}
        }
        self.go_to(moved(self.cursor.index, motion, self.len(), self.page));
    }

    /// Puts the cursor on a row by its key.
    pub fn select(&mut self, key: &R::Key) -> bool {
        let Some(place) = self.place_of(key) else {
            return false;
        };
        self.go_to(place);
        true
    }

    /// The position of a row, if it passes the filter.
    fn place_of(&self, key: &R::Key) -> Option<usize> {
        let rows = &self.rows;
        let number = rows.number(key).filter(|n| rows.is_shown(*n))?;
        Some(self.order.place_of(number, |a, b| rows.compare(a, b)))
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
        let here = self.cursor.index;
        let last = self.cursor.last_mark.as_ref();
        let from = last.and_then(|key| self.place_of(key)).unwrap_or(here);
        let range = from.min(here)..from.max(here) + 1;
        self.arrange(range.clone());
        let rows = &self.rows;
        let numbers = self.order.rows().get(range).unwrap_or_default();
        let keys = numbers.iter().filter_map(|n| rows.get(*n)).map(Row::key);
        self.cursor.marks.extend(keys);
        self.cursor.last_mark = self.selected().map(Row::key);
    }

    /// Takes all marks away.
    pub fn clear_marks(&mut self) {
        self.cursor.marks.clear();
        self.cursor.last_mark = None;
    }

    /// Number of marks.
    pub fn mark_count(&self) -> usize {
        self.cursor.marks.len()
    }

    /// Marked rows in their order.
    pub fn marked(&self) -> Vec<&R> {
        let marks = self.cursor.marks.iter();
        let mut numbers: Vec<u32> = marks.filter_map(|k| self.rows.number(k)).collect();
        numbers.sort_unstable_by(|a, b| self.rows.compare(*a, *b));
        numbers.iter().filter_map(|n| self.rows.get(*n)).collect()
    }

    /// Rows that `area` shows, below the header.
    pub fn visible_rows(area: Rect) -> usize {
        usize::from(area.height.saturating_sub(1))
    }

    /// Fits page and scroll position to the area to come, and puts in order what it shows.
    pub fn fit(&mut self, area: Rect) {
        let height = Self::visible_rows(area);
        self.page = height.max(1);
        let cursor = &mut self.cursor;
        if cursor.index < cursor.offset {
            cursor.offset = cursor.index;
        } else if height > 0 && cursor.index >= cursor.offset + height {
            cursor.offset = cursor.index + 1 - height;
        }
        cursor.offset = cursor.offset.min(self.order.len().saturating_sub(height));
        let offset = cursor.offset;
        self.arrange(offset..offset.saturating_add(self.page));
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
        let mut plan = layout(columns, area.width.saturating_sub(1));
        self.give_spare(&mut plan, Self::visible_rows(area), ctx);
        self.draw_header(area, buf, ctx, &plan);
        let offset = self.cursor.offset;
        for (line, row) in self.visible().take(Self::visible_rows(area)).enumerate() {
            let index = offset + line;
            let line = u16::try_from(line).unwrap_or(u16::MAX);
            let y = area.y.saturating_add(1).saturating_add(line);
            let strip = Rect::new(area.x, y, area.width, 1);
            let marked = !self.cursor.marks.is_empty() && self.cursor.marks.contains(&row.key());
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
            if index == self.cursor.index {
                buf.set_style(strip, ctx.style(Meaning::Selection));
            }
        }
    }

    /// Gives the columns that the texts of the last column do not need to those whose texts are cut.
    fn give_spare(&self, plan: &mut [Part<'_, R>], rows: usize, ctx: &Ctx<'_>) {
        let need = |column: &Column<R>, width: u16| -> Option<u16> {
            let mut most = column.header.width();
            for row in self.visible().take(rows) {
                match (column.cell)(row, ctx, width) {
                    Cell::Text(text, _) => most = most.max(text.width()),
                    // Drawings fill what they are given.
                    Cell::Spans(_) => return None,
                }
            }
            Some(u16::try_from(most).unwrap_or(u16::MAX))
        };
        let Some((last, others)) = plan.split_last_mut() else {
            return;
        };
        let Some(needed) = need(last.column, last.width) else {
            return;
        };
        let mut spare = last.width.saturating_sub(needed);
        let mut moved = 0;
        for part in others {
            part.x += moved;
            let Width::Flex { max, .. } = part.column.width else {
                continue;
            };
            if spare == 0 || part.width >= max {
                continue;
            }
            let wanted = need(part.column, max).unwrap_or(0).min(max);
            let more = wanted.saturating_sub(part.width).min(spare);
            part.width += more;
            moved += more;
            spare -= more;
        }
        last.x += moved;
        last.width -= moved;
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
