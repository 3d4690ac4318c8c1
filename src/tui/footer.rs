//! The last line: a message, or what works here and now, made from the table of commands.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::app::App;
use super::command::{COMMANDS, Command, Place, When};
use super::glyphs::Glyph;
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
    let mut ranked: Vec<&Command> = COMMANDS.iter().filter(|c| c.rank > 0).collect();
    // What cannot be given now stays in sight, but behind what can.
    ranked.sort_by_key(|c| ((c.when)(&place) != When::Yes, c.rank));
    let mut line = Line::default();
    if place.place == Place::Entry {
        for (key, word) in ENTRY_KEYS {
            line.push_span(Span::styled(format!(" {key} "), ctx.style(Meaning::Key)));
            line.push_span(Span::styled(format!("{word} "), ctx.style(Meaning::Text)));
        }
        return line;
    }
    for command in ranked {
        let when = (command.when)(&place);
        if when == When::No {
            continue;
        }
        let enabled = when == When::Yes;
        let Some(key) = app.world().keymap.key_of(command.id) else {
            continue;
        };
        let hint = match (place.place, command.hint) {
            (Place::Text, "filter") => "search",
            (_, hint) => hint,
        };
        let key = Span::styled(
            format!(" {key} "),
            ctx.style(if enabled {
                Meaning::Key
            } else {
                Meaning::Disabled
            }),
        );
        let word = Span::styled(
            format!("{hint} "),
            ctx.style(if enabled {
                Meaning::Text
            } else {
                Meaning::Disabled
            }),
        );
        if line.width() + key.width() + word.width() > usize::from(room) {
            break;
        }
        line.push_span(key);
        line.push_span(word);
    }
    line
}
