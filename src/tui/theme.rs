//! Themes: meanings, not places, have colours.
//!
//! A theme is a TOML file: `name`, `inherits`, a `[palette]` of named colours and a `[meanings]`
//! table. A meaning without an entry takes the style of its fallback.

use ratatui::style::{Color, Modifier, Style};
use toml::de::{DeTable, DeValue};

use super::config_file::{ConfigFault, Source};

macro_rules! meanings {
    ($( #[doc = $doc:literal] $name:ident = $key:literal, $fallback:ident; )*) => {
        /// What a text or cell means; a theme gives each its style.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Meaning { $( #[doc = $doc] $name, )* }

        impl Meaning {
            /// All of them, in the order of their definition.
            pub const ALL: &'static [Meaning] = &[ $( Meaning::$name, )* ];

            /// As theme files write it.
            pub fn name(self) -> &'static str {
                match self { $( Meaning::$name => $key, )* }
            }

            /// What it is for, in one sentence.
            pub fn about(self) -> &'static str {
                match self { $( Meaning::$name => $doc.trim_ascii(), )* }
            }

            /// Whose style it takes when a theme says nothing of it.
            pub fn fallback(self) -> Meaning {
                match self { $( Meaning::$name => Meaning::$fallback, )* }
            }
        }
    };
}

meanings! {
    /// Ordinary text.
    Text = "text", Text;
    /// Text of less weight: labels, units, hints.
    Muted = "muted", Text;
    /// Rules and separators.
    Rule = "rule", Muted;
    /// The one accent.
    Accent = "accent", Text;
    /// The row or cell under the cursor.
    Selection = "selection", Accent;
    /// Column headers.
    Header = "header", Muted;
    /// The name of the view or pane that is open.
    Title = "title", Accent;
    /// A key in the footer or help.
    Key = "key", Accent;
    /// A command that cannot be given now.
    Disabled = "disabled", Muted;
    /// A marked row.
    Mark = "mark", Accent;
    /// The part of a text that a search matched.
    Match = "match", Accent;
    /// A GPU that a pod holds.
    Used = "used", Text;
    /// A free GPU.
    Free = "free", Muted;
    /// A MIG instance that a pod holds.
    Mig = "mig", Used;
    /// A shared GPU.
    Shared = "shared", Used;
    /// Free but of no use to any ask.
    Stranded = "stranded", Free;
    /// Sick hardware.
    Sick = "sick", Danger;
    /// On a cordoned node.
    Cordoned = "cordoned", Muted;
    /// The lowest of the five steps of a lens.
    Heat1 = "heat-1", Used;
    /// The second step of a lens.
    Heat2 = "heat-2", Used;
    /// The third step of a lens.
    Heat3 = "heat-3", Used;
    /// The fourth step of a lens.
    Heat4 = "heat-4", Used;
    /// The highest step of a lens.
    Heat5 = "heat-5", Used;
    /// The first of eight colours that tell owners and tiers apart.
    Team1 = "team-1", Used;
    /// The second of them.
    Team2 = "team-2", Used;
    /// The third of them.
    Team3 = "team-3", Used;
    /// The fourth of them.
    Team4 = "team-4", Used;
    /// The fifth of them.
    Team5 = "team-5", Used;
    /// The sixth of them.
    Team6 = "team-6", Used;
    /// The seventh of them.
    Team7 = "team-7", Used;
    /// The eighth of them.
    Team8 = "team-8", Used;
    /// All is well.
    Ok = "ok", Text;
    /// A person should look.
    Warn = "warn", Accent;
    /// A person must act.
    Danger = "danger", Warn;
    /// The age of data that is not fresh.
    Stale = "stale", Warn;
    /// Data that is not fresh.
    Dim = "dim", Muted;
    /// A right that is missing.
    Denied = "denied", Warn;
    /// Data that is awaited.
    Loading = "loading", Muted;
    /// A value that is not known.
    Unknown = "unknown", Muted;
    /// A workload that runs.
    Running = "running", Ok;
    /// A workload that waits.
    Waiting = "waiting", Warn;
    /// A workload that ended well.
    Done = "done", Muted;
}

/// How many colours a terminal has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Depth {
    /// None: bold, dim, underline and reverse only.
    Mono,
    /// The sixteen of ANSI.
    Ansi16,
    /// The palette of 256.
    Ansi256,
    /// 24 bits.
    True,
}

impl Depth {
    /// Reads a depth as the command line writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "mono" | "none" => Depth::Mono,
            "16" => Depth::Ansi16,
            "256" => Depth::Ansi256,
            "true" | "truecolor" | "24bit" => Depth::True,
            _ => return None,
        })
    }

    /// Chooses by the environment: `NO_COLOR` (set and not empty) → mono, `COLORTERM` truecolor or
    /// 24bit → true, `TERM` with `256color` → 256, `dumb` or without a `TERM` → mono, else 16.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Self {
        if env("NO_COLOR").is_some_and(|v| !v.is_empty()) {
            return Depth::Mono;
        }
        if env("COLORTERM").is_some_and(|v| v == "truecolor" || v == "24bit") {
            return Depth::True;
        }
        match env("TERM").unwrap_or_default().as_str() {
            "" | "dumb" | "vt100" | "vt220" => Depth::Mono,
            term if term.ends_with("-direct") => Depth::True,
            term if term.contains("256color") => Depth::Ansi256,
            _ => Depth::Ansi16,
        }
    }
}

/// The themes that are built in, by name.
const BUILT_IN: [(&str, &str); 5] = [
    ("dark", include_str!("../../themes/dark.toml")),
    ("light", include_str!("../../themes/light.toml")),
    (
        "high-contrast",
        include_str!("../../themes/high-contrast.toml"),
    ),
    ("ansi16", include_str!("../../themes/ansi16.toml")),
    ("mono", include_str!("../../themes/mono.toml")),
];

/// A theme, ready for one colour depth.
#[derive(Clone, PartialEq, Debug)]
pub struct Theme {
    name: String,
    styles: Vec<Style>,
}

impl Theme {
    /// Names of the built-in themes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A built-in theme.
    pub fn built_in(name: &str, depth: Depth) -> Option<Self> {
        let (name, text) = BUILT_IN.iter().find(|(n, _)| *n == name)?;
        Self::parse(&Source::new(format!("themes/{name}.toml"), text), depth).ok()
    }

    /// The theme for a terminal of this depth when none is chosen.
    pub fn default_for(depth: Depth) -> Self {
        let name = match depth {
            Depth::Mono => "mono",
            Depth::Ansi16 => "ansi16",
            Depth::Ansi256 | Depth::True => "dark",
        };
        Self::built_in(name, depth).unwrap_or(Theme {
            name: name.to_owned(),
            styles: Vec::new(),
        })
    }

    /// Reads a theme file.
    ///
    /// # Errors
    /// The first fault in it, with its line and what was expected.
    pub fn parse(source: &Source<'_>, depth: Depth) -> Result<Self, ConfigFault> {
        let mut raw = RawTheme::default();
        raw.read(source, 0)?;
        Ok(raw.resolve(depth))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The style of a meaning.
    pub fn style(&self, meaning: Meaning) -> Style {
        self.styles
            .get(meaning as usize)
            .copied()
            .unwrap_or_default()
    }
}

#[derive(Default)]
struct RawTheme {
    name: String,
    palette: Vec<(String, Color)>,
    styles: Vec<Option<Style>>,
}

impl RawTheme {
    fn read(&mut self, source: &Source<'_>, depth: usize) -> Result<(), ConfigFault> {
        let table = source.table()?;
        let table = table.get_ref();
        if let Some((key, value)) = table.iter().find(|(k, _)| k.get_ref() == "inherits") {
            let expected = "the name of a built-in theme: dark, light, high-contrast, ansi16, mono";
            let DeValue::String(parent) = value.get_ref() else {
                return Err(source.fault(value.span(), "inherits is not a text", expected));
            };
            let found = BUILT_IN.iter().find(|(n, _)| n == parent);
            let Some((name, text)) = found.filter(|_| depth < BUILT_IN.len()) else {
                return Err(source.fault(
                    key.span(),
                    &format!("no theme {parent:?} to inherit from"),
                    expected,
                ));
            };
            self.read(&Source::new(format!("themes/{name}.toml"), text), depth + 1)?;
        }
        for (key, value) in table {
            match (&**key.get_ref(), value.get_ref()) {
                ("inherits", _) => {}
                ("name", DeValue::String(name)) => self.name = name.to_string(),
                ("palette", DeValue::Table(colors)) => self.read_palette(source, colors)?,
                ("meanings", DeValue::Table(_)) => {}
                ("name", _) => {
                    return Err(source.fault(value.span(), "name is not a text", "a text"));
                }
                ("palette" | "meanings", _) => {
                    let what = format!("{} is not a table", key.get_ref());
                    return Err(source.fault(value.span(), &what, "a table like [meanings]"));
                }
                (other, _) => {
                    return Err(source.fault(
                        key.span(),
                        &format!("unknown key {other:?}"),
                        "name, inherits, [palette] or [meanings]",
                    ));
                }
            }
        }
        if let Some(DeValue::Table(meanings)) = table.get("meanings").map(|v| v.get_ref()) {
            self.read_meanings(source, meanings)?;
        }
        Ok(())
    }

    fn read_palette(
        &mut self,
        source: &Source<'_>,
        table: &DeTable<'_>,
    ) -> Result<(), ConfigFault> {
        for (key, value) in table {
            let color = match value.get_ref() {
                DeValue::String(text) => parse_color(text),
                _ => None,
            };
            let Some(color) = color else {
                return Err(source.fault(value.span(), "not a colour", COLOR_EXPECTED));
            };
            self.palette.retain(|(name, _)| name != key.get_ref());
            self.palette.push((key.get_ref().to_string(), color));
        }
        Ok(())
    }

    fn read_meanings(
        &mut self,
        source: &Source<'_>,
        table: &DeTable<'_>,
    ) -> Result<(), ConfigFault> {
        self.styles.resize(Meaning::ALL.len(), None);
        for (key, value) in table {
            let Some(meaning) = Meaning::ALL.iter().find(|m| m.name() == key.get_ref()) else {
                let names: Vec<&str> = Meaning::ALL.iter().map(|m| m.name()).collect();
                return Err(source.fault(
                    key.span(),
                    &format!("unknown meaning {:?}", key.get_ref()),
                    &format!("one of {}", names.join(", ")),
                ));
            };
            let style = self.read_style(source, value.span(), value.get_ref())?;
            if let Some(slot) = self.styles.get_mut(*meaning as usize) {
                *slot = Some(style);
            }
        }
        Ok(())
    }

    fn color(&self, text: &str) -> Option<Color> {
        self.palette
            .iter()
            .find(|(name, _)| name == text)
            .map(|(_, color)| *color)
            .or_else(|| parse_color(text))
    }

    fn read_style(
        &self,
        source: &Source<'_>,
        span: std::ops::Range<usize>,
        value: &DeValue<'_>,
    ) -> Result<Style, ConfigFault> {
        let color = |span, value: &DeValue<'_>| match value {
            DeValue::String(text) => self.color(text).ok_or_else(|| {
                source.fault(span, &format!("{text:?} is not a colour"), COLOR_EXPECTED)
            }),
            _ => Err(source.fault(span, "not a colour", COLOR_EXPECTED)),
        };
        let DeValue::Table(parts) = value else {
            return Ok(Style::new().fg(color(span, value)?));
        };
        let mut style = Style::new();
        for (key, value) in parts {
            let modifier = match &**key.get_ref() {
                "fg" => {
                    style = style.fg(color(value.span(), value.get_ref())?);
                    continue;
                }
                "bg" => {
                    style = style.bg(color(value.span(), value.get_ref())?);
                    continue;
                }
                "bold" => Modifier::BOLD,
                "dim" => Modifier::DIM,
                "italic" => Modifier::ITALIC,
                "underline" => Modifier::UNDERLINED,
                "reverse" => Modifier::REVERSED,
                other => {
                    return Err(source.fault(
                        key.span(),
                        &format!("unknown part {other:?} of a style"),
                        "fg, bg, bold, dim, italic, underline or reverse",
                    ));
                }
            };
            match value.get_ref() {
                DeValue::Boolean(true) => style = style.add_modifier(modifier),
                DeValue::Boolean(false) => style = style.remove_modifier(modifier),
                _ => {
                    let what = format!("{} is not true or false", key.get_ref());
                    return Err(source.fault(value.span(), &what, "true or false"));
                }
            }
        }
        Ok(style)
    }

    fn resolve(&self, depth: Depth) -> Theme {
        let own = |meaning: Meaning| self.styles.get(meaning as usize).copied().flatten();
        let styles = Meaning::ALL
            .iter()
            .map(|meaning| {
                let mut at = *meaning;
                // The chain ends at `text`, which is its own fallback.
                while own(at).is_none() && at.fallback() != at {
                    at = at.fallback();
                }
                down_sample(own(at).unwrap_or_default(), depth)
            })
            .collect();
        Theme {
            name: self.name.clone(),
            styles,
        }
    }
}

const COLOR_EXPECTED: &str = "a colour like \"#5fd7af\", \"green\", \"bright-red\", \"default\", a number from 0 to 255 as text, or a name from [palette]";

/// The sixteen, with the values that xterm gives them (used to find the nearest).
const ANSI: [(&str, Color, (u8, u8, u8)); 16] = [
    ("black", Color::Black, (0, 0, 0)),
    ("red", Color::Red, (205, 0, 0)),
    ("green", Color::Green, (0, 205, 0)),
    ("yellow", Color::Yellow, (205, 205, 0)),
    ("blue", Color::Blue, (0, 0, 238)),
    ("magenta", Color::Magenta, (205, 0, 205)),
    ("cyan", Color::Cyan, (0, 205, 205)),
    ("white", Color::Gray, (229, 229, 229)),
    ("bright-black", Color::DarkGray, (127, 127, 127)),
    ("bright-red", Color::LightRed, (255, 0, 0)),
    ("bright-green", Color::LightGreen, (0, 255, 0)),
    ("bright-yellow", Color::LightYellow, (255, 255, 0)),
    ("bright-blue", Color::LightBlue, (92, 92, 255)),
    ("bright-magenta", Color::LightMagenta, (255, 0, 255)),
    ("bright-cyan", Color::LightCyan, (0, 255, 255)),
    ("bright-white", Color::White, (255, 255, 255)),
];

fn parse_color(text: &str) -> Option<Color> {
    if let Some(hex) = text.strip_prefix('#') {
        if hex.len() != 6 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let rgb = u32::from_str_radix(hex, 16).ok()?;
        let [_, r, g, b] = rgb.to_be_bytes();
        return Some(Color::Rgb(r, g, b));
    }
    if text == "default" {
        return Some(Color::Reset);
    }
    if let Ok(index) = text.parse::<u8>() {
        return Some(Color::Indexed(index));
    }
    ANSI.iter()
        .find(|(name, ..)| *name == text)
        .map(|(_, color, _)| *color)
}

fn down_sample(mut style: Style, depth: Depth) -> Style {
    style.fg = style.fg.and_then(|c| nearest(c, depth));
    style.bg = style.bg.and_then(|c| nearest(c, depth));
    style
}

/// The nearest colour that a terminal of this depth has; `None` where it has none.
fn nearest(color: Color, depth: Depth) -> Option<Color> {
    let rgb = |c: Color| match c {
        Color::Rgb(r, g, b) => Some((r, g, b)),
        Color::Indexed(i) if i >= 16 => Some(indexed_rgb(i)),
        _ => None,
    };
    match depth {
        Depth::Mono => None,
        Depth::True => Some(color),
        Depth::Ansi256 => Some(match color {
            Color::Rgb(r, g, b) => {
                let index = (16..=255u8)
                    .min_by_key(|i| distance((r, g, b), indexed_rgb(*i)))
                    .unwrap_or(15);
                Color::Indexed(index)
            }
            other => other,
        }),
        Depth::Ansi16 => Some(match rgb(color) {
            Some(wanted) => ANSI
                .iter()
                .min_by_key(|(_, _, have)| distance(wanted, *have))
                .map_or(color, |(_, c, _)| *c),
            None => color,
        }),
    }
}

/// The value of entries 16 to 255 of the xterm palette: a 6×6×6 cube, then 24 greys.
fn indexed_rgb(index: u8) -> (u8, u8, u8) {
    let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
    if index >= 232 {
        let grey = 8 + 10 * (index - 232);
        return (grey, grey, grey);
    }
    let i = index.saturating_sub(16);
    (level(i / 36), level(i / 6 % 6), level(i % 6))
}

fn distance(a: (u8, u8, u8), b: (u8, u8, u8)) -> i32 {
    let d = |x: u8, y: u8| i32::from(x) - i32::from(y);
    let (r, g, b) = (d(a.0, b.0), d(a.1, b.1), d(a.2, b.2));
    // The eye weighs green most and blue least.
    3 * r * r + 6 * g * g + b * b
}
