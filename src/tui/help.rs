//! The help: made from the table of commands and the keymap.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::command::{COMMANDS, Group, When, Where};
use super::keymap::Keymap;
use super::theme::{Meaning, Theme};

/// Columns of the widest list of keys that is lined up.
const KEYS_WIDTH: usize = 12;
/// Columns of the widest command name that is lined up.
const NAME_WIDTH: usize = 16;

/// All commands by chapter, with keys, names, what they do, and why one cannot be given now.
/// `columns`: what filters of the view can name.
pub(super) fn lines(
    keymap: &Keymap,
    place: &Where,
    theme: &Theme,
    columns: &[(&'static str, &'static str)],
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for group in Group::ALL {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(group.title(), theme.style(Meaning::Header)));
        for command in COMMANDS.iter().filter(|c| c.group == group) {
            let when = (command.when)(place);
            if when == When::No && matches!(group, Group::Views | Group::Draw) {
                continue;
            }
            let keys: Vec<String> = keymap
                .keys_of(command.id)
                .iter()
                .map(ToString::to_string)
                .collect();
            let keys = keys.join(" ");
            let pad = |text: &str, width: usize| " ".repeat(width.saturating_sub(text.width()));
            let mut line = Line::from(vec![
                Span::styled(format!("  {keys}"), theme.style(Meaning::Key)),
                Span::raw(pad(&keys, KEYS_WIDTH) + " "),
                Span::styled(command.name, theme.style(Meaning::Muted)),
                Span::raw(pad(command.name, NAME_WIDTH) + " "),
                Span::styled(command.doc, theme.style(Meaning::Text)),
            ]);
            if let When::Disabled(why) = when {
                line.push_span(Span::styled(
                    format!(" (now: {why})"),
                    theme.style(Meaning::Disabled),
                ));
            }
            lines.push(line);
        }
    }
    lines.push(Line::default());
    lines.push(Line::styled("Filters", theme.style(Meaning::Header)));
    lines.extend(FILTERS.iter().map(|row| pair(*row, theme)));
    if !columns.is_empty() {
        lines.push(Line::default());
        let title = "Columns that filters of this view can name";
        lines.push(Line::styled(title, theme.style(Meaning::Header)));
        lines.extend(columns.iter().map(|row| pair(*row, theme)));
    }
    lines
}

fn pair((word, doc): (&'static str, &'static str), theme: &Theme) -> Line<'static> {
    let pad = " ".repeat((KEYS_WIDTH + NAME_WIDTH + 1_usize).saturating_sub(word.width()));
    Line::from(vec![
        Span::styled(format!("  {word}"), theme.style(Meaning::Key)),
        Span::raw(pad + " "),
        Span::styled(doc, theme.style(Meaning::Text)),
    ])
}

const FILTERS: &[(&str, &str)] = &[
    ("llm", "rows that show this text somewhere"),
    (
        "model=h100",
        "a column that begins with this text; != for all others",
    ),
    ("ns:team-a", "a column that contains this text"),
    ("free>0", "a number, compared; ages as 2h, sizes as 80Gi"),
    (
        "!cordoned",
        "rows that the term does not hold for; also -cordoned",
    ),
    ("model=\"\"", "rows that do not tell it"),
    ("model=h100 free>0", "rows that meet all terms"),
];
