//! The tour: one screen that tells a newcomer what there is and the few keys that lead everywhere.

use ratatui::text::{Line, Span};

use super::command::{Command, CommandId};
use super::keymap::Keymap;
use super::theme::{Meaning, Theme};
use super::view::ViewId;

/// The steps: a command and what it is good for.
const STEPS: [(CommandId, &str); 9] = [
    (
        CommandId::View(ViewId::Fleet),
        "every GPU of the cluster on one screen",
    ),
    (
        CommandId::View(ViewId::Queues),
        "who is due how much, and what waits for it",
    ),
    (
        CommandId::View(ViewId::Jobs),
        "what was submitted; Enter shows its ranks, the slowest first",
    ),
    (
        CommandId::View(ViewId::Timeline),
        "what happened: faults, evictions, placements",
    ),
    (
        CommandId::Why,
        "why a job waits: its place in line, and all that was tried",
    ),
    (
        CommandId::Logs,
        "the logs of all its ranks, searched with /",
    ),
    (
        CommandId::Filter,
        "narrows any list: model=h100 free>0 ns:team-a !cordoned",
    ),
    (
        CommandId::Palette,
        "finds views, commands, nodes, jobs, queues and settings by name",
    ),
    (
        CommandId::Help,
        "all keys, and what filters of the view can name",
    ),
];

/// Its text.
pub(super) fn lines(keymap: &Keymap, theme: &Theme, read_only: bool) -> Vec<Line<'static>> {
    let text = |t: &'static str, meaning| Line::styled(t, theme.style(meaning));
    let mut lines = vec![
        text(
            "gpudeck shows what a cluster does with its GPUs, and why.",
            Meaning::Text,
        ),
        Line::default(),
    ];
    for (id, what) in STEPS {
        let key = keymap.key_of(id).map_or(String::new(), |k| k.to_string());
        let name = match id {
            CommandId::View(view) => view.title(),
            _ => Command::of(id).map_or("", |c| c.hint),
        };
        lines.push(Line::from(vec![
            Span::styled(format!("  {key:<4}"), theme.style(Meaning::Key)),
            Span::styled(format!("{name:<10}"), theme.style(Meaning::Title)),
            Span::styled(what, theme.style(Meaning::Text)),
        ]));
    }
    lines.push(Line::default());
    lines.push(text(
        "Shape tells the state, colour repeats it:",
        Meaning::Text,
    ));
    lines.push(text(
        "  — not known   ? no price   denied: names the right that is missing   stale: how old",
        Meaning::Muted,
    ));
    lines.push(Line::default());
    let changes = if read_only {
        "Nothing you do here changes the cluster: no writer was even set up."
    } else {
        "No key in these views changes the cluster."
    };
    lines.push(text(changes, Meaning::Text));
    let back = keymap
        .key_of(CommandId::Back)
        .map_or(String::new(), |k| k.to_string());
    lines.push(Line::styled(
        format!("{back} closes this; `:tour` brings it back."),
        theme.style(Meaning::Muted),
    ));
    lines
}
