//! A floating list that is narrowed by typing: the palette, namespaces, contexts, sort columns.

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use tui_input::Input;
use unicode_width::UnicodeWidthStr;

use super::actions::RunAsk;
use super::browse::ResourceRef;
use super::command::CommandId;
use super::entry::edit;
use super::glyphs::Glyph;
use super::key::{Code, Key, Named};
use super::prompt::entry_line;
use super::table::moved;
use super::theme::Meaning;
use super::view::{Ctx, Motion, Target};
use crate::model::{Str, truncate_middle};

/// What choosing an item does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// Gives a command.
    Command(CommandId),
    /// Shows one namespace, or all.
    Namespace(Option<Str>),
    /// Looks at another context.
    Context(Str),
    /// Goes to a thing.
    Go(Target),
    /// Lists a collection of the API.
    Browse(ResourceRef),
    /// Sorts by a column.
    SortBy(&'static str),
    /// Look through a lens.
    Lens(&'static str),
    /// Draws with another built-in theme.
    Theme(&'static str),
    /// Draws with ASCII only, or with all signs.
    Signs(bool),
    /// Runs a program.
    Run(RunAsk),
    /// Leaves things as they are.
    Nothing,
}

/// A text of an item. A large cluster has many items, so what exists already is not copied.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Fixed(&'static str),
    Shared(Str),
    Own(String),
}

impl std::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Fixed(text) => text,
            Text::Shared(text) => text,
            Text::Own(text) => text,
        }
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Text::Fixed(text)
    }
}

impl From<&Str> for Text {
    fn from(text: &Str) -> Self {
        Text::Shared(text.clone())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::Own(text)
    }
}

/// An item.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// What is matched and shown.
    pub(super) label: Text,
    /// What it is, after the label.
    pub(super) note: Text,
    /// At the right end: the key that does the same.
    pub(super) key: String,
    /// Why it cannot be chosen now.
    pub(super) disabled: Option<&'static str>,
    /// Whether it is there before anything is typed.
    pub(super) at_once: bool,
    /// What it does.
    pub(super) choice: Choice,
}

/// What a key did to the picker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Picked {
    /// It stays open.
    Open,
    /// It is to close and nothing else.
    Closed,
    /// It is to close and this is to be done.
    Chosen(Choice),
    /// This cannot be done now, and why; it stays open.
    Refused(&'static str),
}

/// The picker.
#[derive(Clone, Debug)]
pub(super) struct Picker {
    title: &'static str,
    input: Input,
    items: Vec<Item>,
    /// Items that match, best first, each with the characters that matched.
    shown: Vec<(usize, Vec<u32>)>,
    at: usize,
    offset: usize,
    height: usize,
    /// Makes an item of a typed text that is no label, if it can be one.
    offer: Option<fn(&str) -> Option<Item>>,
    /// Items before the offered one.
    fixed: usize,
    /// What was looked for last, and all items that matched.
    found: Option<(String, Vec<usize>)>,
}

/// Columns that labels are lined up to.
const LABEL_WIDTH: usize = 16;

/// Items that are listed at most; who looks for more types more.
const SHOWN_LIMIT: usize = 500;

impl Picker {
    /// A picker over items.
    pub(super) fn new(title: &'static str, items: Vec<Item>) -> Self {
        let mut picker = Picker {
            offer: None,
            fixed: items.len(),
            found: None,
            title,
            input: Input::default(),
            items,
            shown: Vec::new(),
            at: 0,
            offset: 0,
            height: 1,
        };
        picker.search();
        picker
    }

    /// Takes texts that are no label too.
    pub(super) fn offering(mut self, offer: fn(&str) -> Option<Item>) -> Self {
        self.offer = Some(offer);
        self
    }

    /// Takes more items in; what is typed stays.
    pub(super) fn add(&mut self, items: Vec<Item>) {
        self.items.truncate(self.fixed);
        self.items.extend(items);
        self.fixed = self.items.len();
        self.found = None;
        let (at, offset) = (self.at, self.offset);
        self.search();
        self.at = at.min(self.shown.len().saturating_sub(1));
        self.offset = offset.min(self.at);
    }

    /// Takes in items that are not there before something is typed. Those that match are shown once
    /// the `last` of them have come.
    pub(super) fn add_unseen(&mut self, items: Vec<Item>, last: bool) {
        if last && !self.input.value().trim().is_empty() {
            self.add(items);
            return;
        }
        self.items.truncate(self.fixed);
        self.items.extend(items);
        self.fixed = self.items.len();
        self.found = None;
    }

    /// Whether it is the list of commands.
    pub(super) fn is_palette(&self) -> bool {
        self.title == super::palette::TITLE
    }

    fn search(&mut self) {
        (self.at, self.offset) = (0, 0);
        let wanted = self.input.value().trim();
        self.items.truncate(self.fixed);
        if let Some(item) = self.offer.and_then(|offer| offer(wanted))
            && !self.items.iter().any(|i| *i.label == *item.label)
        {
            self.items.push(item);
        }
        if wanted.is_empty() {
            let items = self.items.iter().enumerate().filter(|(_, i)| i.at_once);
            self.shown = items
                .map(|(i, _)| (i, Vec::new()))
                .take(SHOWN_LIMIT)
                .collect();
            return;
        }
        let pattern = Pattern::parse(wanted, CaseMatching::Ignore, Normalization::Smart);
        let mut matcher = Matcher::new(Config::DEFAULT);
        let mut chars = Vec::new();
        let items = &self.items;
        let mut score = |i: usize| {
            let text = Utf32Str::new(&items.get(i)?.label, &mut chars);
            Some((i, pattern.score(text, &mut matcher)?))
        };
        // What is typed on matches a part of what matched before.
        let before = self.found.take().filter(|_| self.offer.is_none());
        let before = before.filter(|(typed, _)| narrows(typed, wanted));
        let mut scored: Vec<(usize, u32)> = match before {
            Some((_, found)) => found.into_iter().filter_map(&mut score).collect(),
            None => (0..items.len()).filter_map(&mut score).collect(),
        };
        let found = scored.iter().map(|(i, _)| *i).collect();
        self.found = Some((wanted.to_owned(), found));
        // Of two that match alike the shorter is nearer to what was typed.
        let rank = |(i, score): &(usize, u32)| {
            let len = items.get(*i).map_or(0, |item| item.label.len());
            (*i >= self.fixed, std::cmp::Reverse(*score), len, *i)
        };
        if scored.len() > SHOWN_LIMIT {
            scored.select_nth_unstable_by_key(SHOWN_LIMIT, rank);
            scored.truncate(SHOWN_LIMIT);
        }
        scored.sort_unstable_by_key(rank);
        self.shown = scored
            .into_iter()
            .map(|(i, _)| {
                let mut hits = Vec::new();
                if let Some(item) = self.items.get(i) {
                    let text = Utf32Str::new(&item.label, &mut chars);
                    pattern.indices(text, &mut matcher, &mut hits);
                }
                (i, hits)
            })
            .collect();
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: Key) -> Picked {
        let motion = match (key.code, key.ctrl) {
            (Code::Named(Named::Esc), _) => return Picked::Closed,
            (Code::Named(Named::Enter), _) => return self.choose(),
            (Code::Named(Named::Up), _) | (Code::Char('p'), true) => Motion::Up,
            (Code::Named(Named::Down), _) | (Code::Char('n'), true) => Motion::Down,
            (Code::Named(Named::PageUp), _) => Motion::PageUp,
            (Code::Named(Named::PageDown), _) => Motion::PageDown,
            (Code::Named(Named::Tab), _) => {
                self.complete();
                return Picked::Open;
            }
            _ => {
                if edit(&mut self.input, key) {
                    self.search();
                }
                return Picked::Open;
            }
        };
        self.at = moved(self.at, motion, self.shown.len(), self.height);
        Picked::Open
    }

    /// Takes pasted text.
    pub(super) fn paste(&mut self, text: &str) {
        if super::entry::paste(&mut self.input, text) {
            self.search();
        }
    }

    fn current(&self) -> Option<&Item> {
        self.shown
            .get(self.at)
            .and_then(|(i, _)| self.items.get(*i))
    }

    fn choose(&self) -> Picked {
        match self.current() {
            None => Picked::Open,
            Some(item) => match item.disabled {
                Some(why) => Picked::Refused(why),
                None => Picked::Chosen(item.choice.clone()),
            },
        }
    }

    /// Types the label under the cursor.
    fn complete(&mut self) {
        if let Some(label) = self.current().map(|i| i.label.to_string()) {
            self.input = Input::new(label);
            self.search();
        }
    }

    /// Where it floats over `screen`.
    fn area(&self, screen: Rect) -> Rect {
        let width = screen.width.saturating_sub(4).min(90);
        // Two of border, one of input, and room for every item that is there at once.
        let wanted = u16::try_from(self.items.len().max(3)).unwrap_or(u16::MAX);
        let most = screen.height.saturating_sub(4);
        let height = wanted.saturating_add(3).min(most).min(18);
        Rect {
            x: screen.x + (screen.width - width) / 2,
            y: screen.y + most.saturating_sub(height) / 3 + 2.min(screen.height),
            width,
            height,
        }
        .intersection(screen)
    }

    /// Fits the list to the screen to come.
    pub(super) fn fit(&mut self, screen: Rect) {
        self.height = usize::from(self.area(screen).height.saturating_sub(3)).max(1);
        if self.at < self.offset {
            self.offset = self.at;
        } else if self.at >= self.offset + self.height {
            self.offset = self.at + 1 - self.height;
        }
    }

    /// Draws it.
    pub(super) fn draw(&self, screen: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        let area = self.area(screen);
        if area.width < 3 || area.height < 3 {
            return;
        }
        frame(area, self.title, buf, ctx);
        let inner = Rect {
            x: area.x + 1,
            y: area.y + 1,
            width: area.width - 2,
            height: area.height - 2,
        };
        let line = entry_line(" :", &self.input, inner.width, ctx);
        buf.set_line(inner.x, inner.y, &line, inner.width);
        if self.shown.is_empty() && inner.height > 1 {
            let text = "  nothing is called that";
            let room = usize::from(inner.width);
            buf.set_stringn(inner.x, inner.y + 1, text, room, ctx.style(Meaning::Muted));
        }
        let visible = self.shown.iter().enumerate().skip(self.offset);
        for (y, (n, (i, hits))) in (inner.y + 1..inner.bottom()).zip(visible) {
            if let Some(item) = self.items.get(*i) {
                let strip = Rect::new(inner.x, y, inner.width, 1);
                draw_item(item, hits, strip, buf, ctx);
                if n == self.at {
                    buf.set_style(strip, ctx.style(Meaning::Selection));
                }
            }
        }
    }
}

/// Whether all that matches `typed` is among what matches `before`: letters were added to a single
/// word without the signs that mean something.
fn narrows(before: &str, typed: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/' | '_');
    !before.is_empty() && typed.starts_with(before) && typed.chars().all(plain)
}

fn draw_item(item: &Item, hits: &[u32], strip: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
    let base = if item.disabled.is_some() {
        ctx.style(Meaning::Disabled)
    } else {
        ctx.style(Meaning::Text)
    };
    let hit = base.patch(ctx.style(Meaning::Match));
    let room = usize::from(strip.width).saturating_sub(4);
    let mut line = Line::from(vec![Span::raw("  ")]);
    if item.label.width() <= room {
        for (n, c) in item.label.chars().enumerate() {
            let found = u32::try_from(n).is_ok_and(|n| hits.contains(&n));
            line.push_span(Span::styled(c.to_string(), if found { hit } else { base }));
        }
    } else {
        line.push_span(Span::styled(
            truncate_middle(&item.label, room).into_owned(),
            base,
        ));
    }
    let lined_up = " ".repeat(LABEL_WIDTH.saturating_sub(item.label.width()));
    line.push_span(Span::raw(lined_up));
    let note = item.disabled.unwrap_or(&*item.note);
    line.push_span(Span::styled(format!("  {note}"), ctx.style(Meaning::Muted)));
    let key = u16::try_from(item.key.width()).unwrap_or(u16::MAX);
    let room = strip.width.saturating_sub(key.saturating_add(2));
    let shown = room.saturating_sub(1);
    buf.set_line(strip.x, strip.y, &line, shown);
    if line.width() > usize::from(shown) && shown > 0 {
        let cut = ctx.glyph(Glyph::Ellipsis);
        buf.set_string(strip.x + shown - 1, strip.y, cut, ctx.style(Meaning::Muted));
    }
    if room > 0 {
        buf.set_stringn(
            strip.x + room,
            strip.y,
            &item.key,
            usize::from(key),
            ctx.style(Meaning::Key),
        );
    }
}

/// Clears `area` and draws the border of a thing that floats.
pub(super) fn frame(area: Rect, title: &str, buf: &mut Buffer, ctx: &Ctx<'_>) {
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            let Some(cell) = buf.cell_mut((x, y)) else {
                continue;
            };
            cell.reset();
            let (left, right) = (x == area.left(), x + 1 == area.right());
            let glyph = if y == area.top() {
                match (left, right) {
                    (true, _) => Glyph::TopLeft,
                    (_, true) => Glyph::TopRight,
                    _ => Glyph::Rule,
                }
            } else if y + 1 == area.bottom() {
                match (left, right) {
                    (true, _) => Glyph::BottomLeft,
                    (_, true) => Glyph::BottomRight,
                    _ => Glyph::Rule,
                }
            } else if left || right {
                Glyph::Bar
            } else {
                continue;
            };
            cell.set_symbol(ctx.glyph(glyph));
            cell.set_style(ctx.style(Meaning::Rule));
        }
    }
    let room = usize::from(area.width.saturating_sub(4));
    let title = format!(" {title} ");
    buf.set_stringn(area.x + 2, area.y, title, room, ctx.style(Meaning::Title));
}
