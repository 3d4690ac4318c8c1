//! The help: made from the table of commands and the keymap.

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::actions::{self, UserAction};
use super::command::{COMMANDS, Group, When, Where};
use super::keymap::Keymap;
use super::theme::{Meaning, Theme};
use super::view::ViewId;

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
    let examples = examples(place.view);
    if !examples.is_empty() {
        lines.push(Line::default());
        lines.push(Line::styled(
            format!("Filters of {}", place.view.title()),
            theme.style(Meaning::Header),
        ));
        lines.extend(examples.iter().map(|row| pair(*row, theme)));
    }
    if !columns.is_empty() {
        lines.push(Line::default());
        let title = "Columns that filters of this view can name";
        lines.push(Line::styled(title, theme.style(Meaning::Header)));
        lines.extend(columns.iter().map(|row| pair(*row, theme)));
    }
    lines
}

/// The person's own actions, each with whether it can be given.
pub(super) fn own<'a>(
    actions: impl Iterator<Item = (&'a UserAction, When)>,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (action, when) in actions.filter(|(_, when)| *when != When::No) {
        if lines.is_empty() {
            lines.push(Line::default());
            let title = "Your own actions on the row";
            lines.push(Line::styled(title, theme.style(Meaning::Header)));
        }
        let key = action.key.map(|k| k.to_string()).unwrap_or_default();
        let mut line = Line::from(vec![
            Span::styled(format!("  {key:<KEYS_WIDTH$} "), theme.style(Meaning::Key)),
            Span::styled(
                format!("{:<NAME_WIDTH$} ", action.name),
                theme.style(Meaning::Muted),
            ),
            Span::styled(actions::about(action), theme.style(Meaning::Text)),
        ]);
        if let When::Disabled(why) = when {
            line.push_span(Span::styled(
                format!(" (now: {why})"),
                theme.style(Meaning::Disabled),
            ));
        }
        lines.push(line);
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

/// Filters that are good for something in a view; a test holds each to its view.
pub(super) fn examples(view: ViewId) -> &'static [(&'static str, &'static str)] {
    match view {
        ViewId::Fleet | ViewId::Nodes | ViewId::Topology => &[
            ("model=h100 free>0", "H100 nodes with a free GPU"),
            ("tier=spot used>0", "spot nodes that are in use"),
            ("!ready", "nodes that are not well"),
        ],
        ViewId::Queues => &[
            (
                "waiting>0 share<1",
                "queues below their due with work that waits",
            ),
            ("burst>0", "queues that use more than their due"),
            ("admitter=kueue !open", "Kueue's queues that take no work"),
        ],
        ViewId::Jobs => &[
            ("state=waiting gpus>=8", "jobs of 8 GPUs and more that wait"),
            (
                "kind=jobset ns:team age>1d",
                "JobSets of teams, older than a day",
            ),
            ("failed>0", "jobs with pods that failed"),
        ],
        ViewId::Timeline => &[
            ("what=preempted", "who was displaced"),
            ("what=fault age<1h", "faults of the last hour"),
            ("xid=79", "GPUs that fell off the bus"),
        ],
        ViewId::Tiers => &[
            ("idle>10", "tiers with more than 10 an hour idle"),
            ("price=\"\"", "what has no price"),
        ],
        ViewId::Browse => &[],
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::views;

    #[test]
    fn each_example_is_a_filter_of_its_view() {
        for mut view in views::all() {
            for (filter, _) in examples(view.id()) {
                assert_eq!(
                    view.set_filter(filter),
                    Ok(()),
                    "{} {filter}",
                    view.id().name()
                );
            }
        }
    }
}
