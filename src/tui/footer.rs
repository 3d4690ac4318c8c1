//! The last line: a message, or what works here and now, made from the table of commands.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::actions;
use super::app::App;
use super::command::{COMMANDS, Place, When, Where};
use super::glyphs::Glyph;
use super::key::Key;
use super::theme::Meaning;
use super::view::Ctx;

/// Draws it.
pub(super) fn draw(app: &App, strip: Rect, buf: &mut Buffer) {
    if strip.is_empty() {
        return;
    }
    let ctx = app.world().ctx();
    if let Some(message) = app.messages().current() {
        let line = Line::from(vec![
            Span::raw(" "),
            Span::styled(message.text.clone(), ctx.style(message.level.meaning())),
            Span::styled(message.repeats(), ctx.style(Meaning::Muted)),
        ]);
        let cut = line.width() > usize::from(strip.width);
        buf.set_line(strip.x, strip.y, &line, strip.width);
        if cut {
            let x = strip.right() - 1;
            buf.set_string(
                x,
                strip.y,
                ctx.glyph(Glyph::Ellipsis),
                ctx.style(Meaning::Muted),
            );
        }
        return;
    }
    let marks = app.view().map_or(0, |v| v.marks().len());
    let right = match marks {
        0 => String::new(),
        n => format!(" {n} marked "),
    };
    let right_width = u16::try_from(right.len()).unwrap_or(0).min(strip.width);
    let room = strip.width - right_width;
    buf.set_line(strip.x, strip.y, &hints(app, &ctx, room), room);
    let style = ctx.style(Meaning::Mark);
    buf.set_stringn(
        strip.x + room,
        strip.y,
        right,
        usize::from(right_width),
        style,
    );
}

/// Keys of a line of input, which keymaps do not change.
const ENTRY_KEYS: [(&str, &str); 5] = [
    ("enter", "take"),
    ("esc", "leave"),
    ("up down", "choose"),
    ("tab", "complete"),
    ("ctrl-u", "clear"),
];

/// Whole hints only, the most useful first, as many as fit.
fn hints(app: &App, ctx: &Ctx<'_>, room: u16) -> Line<'static> {
    let place = app.place();
    let mut line = Line::default();
    if place.place == Place::Entry {
        for (key, word) in ENTRY_KEYS {
            line.push_span(Span::styled(format!(" {key} "), ctx.style(Meaning::Key)));
            line.push_span(Span::styled(format!("{word} "), ctx.style(Meaning::Text)));
        }
        return line;
    }
    for (enabled, key, hint) in ranked(app, &place) {
        let meaning = |usual| if enabled { usual } else { Meaning::Disabled };
        let key = Span::styled(format!(" {key} "), ctx.style(meaning(Meaning::Key)));
        let word = Span::styled(format!("{hint} "), ctx.style(meaning(Meaning::Text)));
        if line.width() + key.width() + word.width() > usize::from(room) {
            break;
        }
        line.push_span(key);
        line.push_span(word);
    }
    line
}

/// What applies here, the most useful first: whether it can be given now, its key, its word. What
/// cannot be given now stays in sight, but behind what can.
fn ranked(app: &App, place: &Where) -> Vec<(bool, Key, String)> {
    let keymap = &app.world().keymap;
    let commands = COMMANDS.iter().filter(|c| c.rank > 0).filter_map(|c| {
        let hint = match (place.place, c.hint) {
            (Place::Text, "filter") => "search",
            (_, hint) => hint,
        };
        let key = keymap.key_of(c.id)?;
        Some(((c.when)(place), c.rank, key, hint.to_owned()))
    });
    let own = app.actions().iter().filter_map(|action| {
        let when = app.action_when(action, place);
        Some((when, actions::RANK, action.key?, action.name.clone()))
    });
    let mut all: Vec<(When, u8, Key, String)> = commands.chain(own).collect();
    all.retain(|(when, ..)| *when != When::No);
    all.sort_by_key(|(when, rank, ..)| (*when != When::Yes, *rank));
    let told = all.into_iter();
    told.map(|(when, _, key, hint)| (when == When::Yes, key, hint))
        .collect()
}
