//! The closed table of glyphs, each with an ASCII twin.
//!
//! Only ASCII, Latin-1, box drawing, block elements and a few arrows that fonts of terminals have:
//! no emoji, no braille, nothing whose width terminals disagree on.

use ratatui::buffer::Buffer;

macro_rules! glyphs {
    ($( $(#[$doc:meta])* $name:ident = $fancy:literal, $ascii:literal; )*) => {
        /// A drawn sign.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Glyph { $( $(#[$doc])* $name, )* }

        impl Glyph {
            /// All of them.
            pub const ALL: &'static [Glyph] = &[ $( Glyph::$name, )* ];

            /// The sign and its ASCII twin.
            pub fn pair(self) -> (&'static str, &'static str) {
                match self { $( Glyph::$name => ($fancy, $ascii), )* }
            }
        }
    };
}

glyphs! {
    /// A whole GPU that a pod holds.
    GpuUsed = "█", "#";
    /// A free GPU or a free slice.
    GpuFree = "·", ".";
    /// A GPU cut by MIG.
    GpuMig = "▚", "%";
    /// The neighbour of a MIG GPU, so that two in a row can be told apart.
    GpuMigAlt = "▞", "&";
    /// A GPU shared by time-slicing, MPS or share of a device.
    GpuShared = "▒", "=";
    /// Free but of no use to any ask.
    GpuStranded = "░", ":";
    /// A GPU or node that is not healthy.
    GpuSick = "!", "!";
    /// On a cordoned node.
    GpuCordoned = "×", "x";
    /// Nothing is known of it.
    GpuUnknown = "?", "?";
    /// Left edge of a drawn device.
    EdgeLeft = "▕", "|";
    /// Right edge of a drawn device.
    EdgeRight = "▏", "|";
    /// Between parts of a line.
    Bar = "│", "|";
    /// Between parts of a screen.
    Rule = "─", "-";
    /// Corner of what floats.
    TopLeft = "┌", "+";
    /// Corner of what floats.
    TopRight = "┐", "+";
    /// Corner of what floats.
    BottomLeft = "└", "+";
    /// Corner of what floats.
    BottomRight = "┘", "+";
    /// An eighth of a cell, from below.
    Eighth1 = "▁", "_";
    /// Two eighths, from below.
    Eighth2 = "▂", "_";
    /// Three eighths, from below.
    Eighth3 = "▃", "-";
    /// Four eighths, from below.
    Eighth4 = "▄", "-";
    /// Five eighths, from below.
    Eighth5 = "▅", "=";
    /// Six eighths, from below.
    Eighth6 = "▆", "=";
    /// Seven eighths, from below.
    Eighth7 = "▇", "#";
    /// An eighth of a cell, from the left.
    Left1 = "▏", ".";
    /// Two eighths, from the left.
    Left2 = "▎", ".";
    /// Three eighths, from the left.
    Left3 = "▍", "-";
    /// Four eighths, from the left.
    Left4 = "▌", "-";
    /// Five eighths, from the left.
    Left5 = "▋", "=";
    /// Six eighths, from the left.
    Left6 = "▊", "=";
    /// Seven eighths, from the left.
    Left7 = "▉", "#";
    /// What a screen shows is fresh.
    Live = "●", "*";
    /// What a screen shows is old, or is being loaded.
    NotLive = "○", "o";
    /// From the wider to the narrower place; a closed branch.
    Into = "▸", ">";
    /// An open branch, or a column that is sorted falling.
    Down = "▾", "v";
    /// A column that is sorted rising.
    Up = "▴", "^";
    /// Leads to.
    Arrow = "→", ">";
    /// Takes the place of.
    Takes = "⇢", ">";
    /// A marked row.
    Mark = "▌", "*";
    /// A number or text that is not known.
    Unknown = "—", "-";
    /// What a text was cut at; what is awaited.
    Ellipsis = "…", "~";
    /// The thumb of a scroll bar.
    Thumb = "┃", "#";
    /// Between clauses of one line.
    Dot = "·", ".";
    /// The text cursor of a prompt.
    Caret = "▏", "_";
}

/// Which of the two sets is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Glyphs {
    /// Draw nothing but ASCII.
    pub ascii: bool,
}

impl Glyphs {
    /// The sign to draw.
    pub fn get(self, glyph: Glyph) -> &'static str {
        let (fancy, ascii) = glyph.pair();
        if self.ascii { ascii } else { fancy }
    }

    /// Chooses by the locale: UTF-8 in the first of LC_ALL, LC_CTYPE, LANG that is set and not
    /// empty. Without any of them a terminal is assumed to be ASCII, as the C locale says.
    pub fn from_locale(env: impl Fn(&str) -> Option<String>) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| env(name).filter(|v| !v.is_empty()))
            .unwrap_or_default()
            .to_ascii_lowercase();
        Glyphs {
            ascii: !(locale.contains("utf-8") || locale.contains("utf8")),
        }
    }

    /// The text with the ASCII twin (or `?`) in place of every character that is not ASCII, when
    /// ASCII is asked.
    pub fn plain(self, text: &str) -> String {
        if !self.ascii || text.is_ascii() {
            return text.to_owned();
        }
        let twin = |c: char| {
            let mut bytes = [0; 4];
            let symbol: &str = c.encode_utf8(&mut bytes);
            let pair = Glyph::ALL.iter().map(|g| g.pair());
            let found = pair.into_iter().find(|(fancy, _)| *fancy == symbol);
            found.map_or("?", |(_, ascii)| ascii)
        };
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                out.push_str(twin(c));
            }
        }
        out
    }

    /// Puts the ASCII twin (or `?`) in place of everything in `buf` that is not ASCII, when ASCII
    /// is asked: whatever a text from the cluster holds, such a terminal gets ASCII only.
    pub fn enforce(self, buf: &mut Buffer) {
        if !self.ascii {
            return;
        }
        for cell in &mut buf.content {
            let symbol = cell.symbol();
            if symbol.is_ascii() {
                continue;
            }
            let twin = Glyph::ALL
                .iter()
                .map(|g| g.pair())
                .find(|(fancy, _)| *fancy == symbol)
                .map_or("?", |(_, ascii)| ascii);
            cell.set_symbol(twin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn every_glyph_takes_one_cell_and_has_an_ascii_twin_of_one_cell() {
        for glyph in Glyph::ALL {
            let (fancy, ascii) = glyph.pair();
            assert_eq!(fancy.width(), 1, "{glyph:?}");
            assert!(ascii.is_ascii() && ascii.len() == 1, "{glyph:?}");
        }
    }

    #[test]
    fn locale_decides_and_the_strongest_variable_wins() {
        let env = |pairs: &'static [(&'static str, &'static str)]| {
            move |name: &str| {
                pairs
                    .iter()
                    .find(|(k, _)| *k == name)
                    .map(|(_, v)| (*v).to_owned())
            }
        };
        for (pairs, ascii) in [
            (&[("LANG", "en_US.UTF-8")][..], false),
            (&[("LANG", "C.utf8")], false),
            (&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")], true),
            (&[("LC_ALL", ""), ("LANG", "de_DE.UTF-8")], false),
            (&[], true),
            (&[("LANG", "POSIX")], true),
        ] {
            assert_eq!(Glyphs::from_locale(env(pairs)).ascii, ascii, "{pairs:?}");
        }
    }
}
