//! The line at the bottom in which filters and searches are typed.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use tui_input::Input;
use unicode_width::UnicodeWidthStr;

use super::actions::RunAsk;
use super::theme::Meaning;
use super::view::{Ctx, FilterError};

/// What is typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// The filter of the view.
    Filter,
    /// A search in the open text.
    Search,
    /// The name of a thing, so that a program runs on it.
    Confirm,
}

/// The prompt.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    /// What is typed.
    pub(super) purpose: Purpose,
    /// The line.
    pub(super) input: Input,
    /// What was in force before, for esc.
    pub(super) before: String,
    /// Why the line is not in force as it stands.
    pub(super) error: Option<FilterError>,
    /// The word to be typed, and the program that it is typed for.
    pub(super) confirms: Option<(String, RunAsk)>,
}

impl Prompt {
    /// A prompt with a text to change.
    pub(super) fn new(purpose: Purpose, text: &str) -> Self {
        Prompt {
            purpose,
            input: Input::new(text.to_owned()),
            before: text.to_owned(),
            error: None,
            confirms: None,
        }
    }

    /// A prompt in which a word has to be typed before a program runs.
    pub(super) fn confirming(word: String, ask: RunAsk) -> Self {
        Prompt {
            confirms: Some((word, ask)),
            ..Prompt::new(Purpose::Confirm, "")
        }
    }

    /// The program to run, if the word is typed that was asked for.
    pub(super) fn confirmed(&self) -> Option<&RunAsk> {
        let (word, ask) = self.confirms.as_ref()?;
        (self.input.value() == word).then_some(ask)
    }

    /// Draws it into one line: the text with its cursor, then what is wrong with it.
    pub(super) fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        if area.is_empty() {
            return;
        }
        let line = match self.purpose {
            Purpose::Filter => entry_line(" filter /", &self.input, area.width, ctx),
            Purpose::Search => entry_line(" search /", &self.input, area.width, ctx),
            Purpose::Confirm => entry_line(" type its name: ", &self.input, area.width, ctx),
        };
        let used = u16::try_from(line.width()).unwrap_or(u16::MAX);
        buf.set_line(area.x, area.y, &line, area.width);
        let (note, meaning) = match &self.error {
            Some(error) => (error.message.clone(), Meaning::Danger),
            None if self.input.value().is_empty() && self.purpose == Purpose::Filter => (
                "as in  model=h100 free>0 ns:team-a".to_owned(),
                Meaning::Muted,
            ),
            None => match &self.confirms {
                Some((word, ask)) if self.confirmed().is_none() => (
                    format!("{word} runs {}, which may end work", ask.program),
                    Meaning::Warn,
                ),
                Some((_, ask)) => (format!("enter runs {}", ask.title), Meaning::Danger),
                None => return,
            },
        };
        let x = used.saturating_add(2);
        if x < area.width {
            let room = usize::from(area.width - x);
            buf.set_stringn(area.x + x, area.y, note, room, ctx.style(meaning));
        }
    }
}

/// A label and a typed text with its cursor drawn as a reversed cell, scrolled so that the cursor
/// shows.
pub(super) fn entry_line(
    label: &'static str,
    input: &Input,
    width: u16,
    ctx: &Ctx<'_>,
) -> Line<'static> {
    let room = usize::from(width).saturating_sub(label.width() + 1).max(1);
    let chars: Vec<char> = input.value().chars().collect();
    let at = input.cursor().min(chars.len());
    let text = |part: &[char]| part.iter().collect::<String>();
    let (head, tail) = chars.split_at(at);
    // From the left, characters go until the cursor fits.
    let mut from = 0;
    while text(head.get(from..).unwrap_or_default()).width() + 1 > room && from < head.len() {
        from += 1;
    }
    let head = text(head.get(from..).unwrap_or_default());
    let (under, tail) = match tail.split_first() {
        Some((c, rest)) => (c.to_string(), text(rest)),
        None => (" ".to_owned(), String::new()),
    };
    let plain = ctx.style(Meaning::Text);
    Line::from(vec![
        Span::styled(label, ctx.style(Meaning::Accent)),
        Span::styled(head, plain),
        Span::styled(under, Style::new().add_modifier(Modifier::REVERSED)),
        Span::styled(tail, plain),
    ])
}
