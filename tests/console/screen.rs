//! Drawing a view into a buffer, and a buffer as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpudeck::model::{Cluster, Figures, Str, WorkloadKey};
use gpudeck::tui::glyphs::Glyphs;
use gpudeck::tui::theme::{Depth, Theme};
use gpudeck::tui::view::{Ctx, View, ViewId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::fixture;

/// How a terminal shows things.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) name: &'static str,
    pub(crate) depth: Depth,
    pub(crate) ascii: bool,
}

pub(crate) const TRUE: Look = Look {
    name: "true",
    depth: Depth::True,
    ascii: false,
};

pub(crate) const LOOKS: [Look; 4] = [
    TRUE,
    Look {
        name: "16",
        depth: Depth::Ansi16,
        ascii: false,
    },
    Look {
        name: "mono",
        depth: Depth::Mono,
        ascii: false,
    },
    Look {
        name: "ascii",
        depth: Depth::Mono,
        ascii: true,
    },
];

pub(crate) fn view(id: ViewId) -> Box<dyn View> {
    gpudeck::tui::views::all()
        .into_iter()
        .find(|v| v.id() == id)
        .unwrap()
}

/// Everything that a view is drawn from.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) figures: Figures,
    pub(crate) theme: Theme,
    pub(crate) glyphs: Glyphs,
    pub(crate) namespace: Option<Str>,
    pub(crate) job: Option<WorkloadKey>,
}

impl Stage {
    pub(crate) fn new(cluster: Cluster, look: Look) -> Self {
        Stage {
            figures: Figures::of(&cluster),
            cluster,
            theme: Theme::default_for(look.depth),
            glyphs: Glyphs { ascii: look.ascii },
            namespace: None,
            job: None,
        }
    }

    pub(crate) fn ctx(&self) -> Ctx<'_> {
        Ctx {
            cluster: &self.cluster,
            version: self.cluster.version(),
            generation: 0,
            figures: &self.figures,
            now: fixture::now(),
            theme: &self.theme,
            glyphs: self.glyphs,
            namespace: self.namespace.as_ref(),
            browse: &gpudeck::tui::browse::NOTHING,
            job: self.job.as_ref(),
        }
    }

    pub(crate) fn draw(&self, view: &mut dyn View, width: u16, height: u16) -> Buffer {
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        view.refresh(area, &self.ctx());
        view.draw(area, &mut buf, &self.ctx());
        self.glyphs.enforce(&mut buf);
        buf
    }
}

/// The text of a buffer, without blanks at the ends of lines.
pub(crate) fn text(buf: &Buffer) -> String {
    lines(buf, |out, cell, skip| {
        if !skip {
            out.push_str(cell.symbol());
        }
    })
}

fn lines(buf: &Buffer, mut put: impl FnMut(&mut String, &ratatui::buffer::Cell, bool)) -> String {
    let mut out = String::new();
    for y in buf.area.top()..buf.area.bottom() {
        let mut line = String::new();
        let mut covered = 0;
        for x in buf.area.left()..buf.area.right() {
            let cell = &buf[(x, y)];
            let skip = covered > 0;
            covered = if skip {
                covered - 1
            } else {
                unicode_width::UnicodeWidthStr::width(cell.symbol()).saturating_sub(1)
            };
            put(&mut line, cell, skip);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The text with runs of empty lines told by their number.
pub(crate) fn dense(buf: &Buffer) -> String {
    let mut out = String::new();
    let mut empty = 0;
    for line in text(buf).lines() {
        if line.is_empty() {
            empty += 1;
            continue;
        }
        if empty > 0 {
            writeln!(out, "({empty} empty)").unwrap();
            empty = 0;
        }
        writeln!(out, "{line}").unwrap();
    }
    out
}

/// A number that is another one when a style is, anywhere (FNV-1a).
pub(crate) fn styles_hash(buf: &Buffer) -> String {
    let hash = styles(buf)
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{hash:016x}")
}

/// Pictures of one size in each kind of terminal: the text once for those that show the same, and a
/// hash of the styles for each.
pub(crate) fn in_each_look(mut draw: impl FnMut(Look) -> Buffer) -> String {
    let mut out = String::new();
    let mut before = String::new();
    for look in LOOKS {
        let buf = draw(look);
        writeln!(out, "-- {}, styles {}", look.name, styles_hash(&buf)).unwrap();
        let shown = dense(&buf);
        if shown == before {
            writeln!(out, "(the same text)").unwrap();
        } else {
            out.push_str(&shown);
        }
        before = shown;
    }
    out
}

/// A letter for each style that occurs, and the letters in place of the text.
pub(crate) fn styles(buf: &Buffer) -> String {
    let mut letters: BTreeMap<String, char> = BTreeMap::new();
    let mut next = b'a';
    let map = lines(buf, |out, cell, _| {
        let style = cell.style();
        let plain =
            style == Style::reset() || cell.symbol() == " " && style.bg == Style::reset().bg;
        if plain && style.add_modifier.is_empty() {
            out.push(if cell.symbol() == " " { ' ' } else { '.' });
            return;
        }
        let mut name = format!(
            "{:?} on {:?}",
            style.fg.unwrap_or_default(),
            style.bg.unwrap_or_default()
        );
        if !style.add_modifier.is_empty() {
            write!(name, " {:?}", style.add_modifier).unwrap();
        }
        let letter = *letters.entry(name).or_insert_with(|| {
            let letter = char::from(next);
            next = if next == b'z' { b'A' } else { next + 1 };
            letter
        });
        out.push(letter);
    });
    let mut legend: Vec<(char, String)> = letters.into_iter().map(|(n, l)| (l, n)).collect();
    legend.sort();
    let mut out = map;
    for (letter, name) in legend {
        writeln!(out, "{letter} = {name}").unwrap();
    }
    out
}
