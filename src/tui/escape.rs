//! Escape sequences that a slow link tore after their first byte.
//!
//! A lone ESC at the end of what was read is either the escape key or the head of a longer sequence
//! of which the rest is still under way; read as a key, the rest would be typed as text. Over SSH
//! the escape key therefore waits a little for a `[` or `O` (terminal-ui.md 2.2 has the faults that
//! this caused elsewhere).

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// How long a sequence may take to arrive over SSH.
pub(super) const SSH_PATIENCE: Duration = Duration::from_millis(100);
/// No sequence of a key is longer, without its ESC.
const LONGEST: usize = 8;

/// Puts torn sequences together again. Without patience it passes everything on.
#[derive(Debug)]
pub(super) struct Joiner {
    patience: Duration,
    /// An ESC and what came behind it; never empty while `since` is set.
    held: Vec<KeyEvent>,
    since: Option<Instant>,
}

impl Joiner {
    /// Waits that long for the rest of a sequence, from its ESC on.
    pub(super) fn new(patience: Duration) -> Self {
        Joiner {
            patience,
            held: Vec::new(),
            since: None,
        }
    }

    /// When [`Joiner::expire`] is to be called, if something is held.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.map(|s| s + self.patience)
    }

    /// Takes an event; returns those that are complete, in order.
    pub(super) fn take(&mut self, event: Event, now: Instant) -> Vec<Event> {
        let mut out = self.expire(now);
        let key = match event {
            Event::Key(key) if key.kind == KeyEventKind::Press && !self.patience.is_zero() => key,
            // A paste or a new size cannot stand inside a sequence.
            other => {
                out.append(&mut self.give_up());
                out.push(other);
                return out;
            }
        };
        if is_escape(key) {
            out.append(&mut self.give_up());
            self.held.push(key);
            self.since = Some(now);
        } else if self.since.is_some() {
            self.held.push(key);
            match read(self.held.get(1..).unwrap_or_default()) {
                Reading::Key(code, modifiers) => {
                    self.held.clear();
                    self.since = None;
                    out.push(Event::Key(KeyEvent::new(code, modifiers)));
                }
                Reading::Incomplete => {}
                Reading::Nothing => out.append(&mut self.give_up()),
            }
        } else {
            out.push(Event::Key(key));
        }
        out
    }

    /// Returns what was held, if its time is over: it was the escape key after all.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Event> {
        match self.deadline() {
            Some(deadline) if now >= deadline => self.give_up(),
            _ => Vec::new(),
        }
    }

    fn give_up(&mut self) -> Vec<Event> {
        self.since = None;
        self.held.drain(..).map(Event::Key).collect()
    }
}

fn is_escape(key: KeyEvent) -> bool {
    key.code == KeyCode::Esc && key.modifiers.is_empty()
}

enum Reading {
    Key(KeyCode, KeyModifiers),
    Incomplete,
    Nothing,
}

/// Reads what followed an ESC: `[A`, `[5~`, `[1;5C`, `OP` (xterm's control sequences).
fn read(keys: &[KeyEvent]) -> Reading {
    let text: Option<String> = keys
        .iter()
        .map(|k| match k.code {
            KeyCode::Char(c) if c.is_ascii() => Some(c),
            _ => None,
        })
        .collect();
    let Some(text) = text.filter(|t| t.len() <= LONGEST) else {
        return Reading::Nothing;
    };
    let (rest, numbered) = match (text.strip_prefix('['), text.strip_prefix('O')) {
        (Some(rest), _) => (rest, true),
        (_, Some(rest)) => (rest, false),
        _ => return Reading::Nothing,
    };
    let Some(last) = rest.chars().last() else {
        return Reading::Incomplete;
    };
    if numbered && (last.is_ascii_digit() || last == ';') {
        return Reading::Incomplete;
    }
    let parameters = rest.get(..rest.len() - 1).unwrap_or_default();
    let mut numbers = parameters.split(';').map(|n| n.parse::<u8>().ok());
    let first = numbers.next().flatten();
    let modifiers = modifiers(numbers.next().flatten());
    let code = match (last, first) {
        ('~', Some(n)) => numbered_key(n),
        (last, _) => lettered_key(last),
    };
    code.map_or(Reading::Nothing, |code| Reading::Key(code, modifiers))
}

fn lettered_key(letter: char) -> Option<KeyCode> {
    Some(match letter {
        'A' => KeyCode::Up,
        'B' => KeyCode::Down,
        'C' => KeyCode::Right,
        'D' => KeyCode::Left,
        'H' => KeyCode::Home,
        'F' => KeyCode::End,
        'Z' => KeyCode::BackTab,
        'P' => KeyCode::F(1),
        'Q' => KeyCode::F(2),
        'R' => KeyCode::F(3),
        'S' => KeyCode::F(4),
        _ => return None,
    })
}

fn numbered_key(number: u8) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11..=15 => KeyCode::F(number - 10),
        17..=21 => KeyCode::F(number - 11),
        23 | 24 => KeyCode::F(number - 12),
        _ => return None,
    })
}

/// xterm adds one to a sum of 1 for shift, 2 for alt, 4 for control.
fn modifiers(parameter: Option<u8>) -> KeyModifiers {
    let bits = parameter.unwrap_or(1).saturating_sub(1);
    let mut modifiers = KeyModifiers::empty();
    for (bit, modifier) in [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
    ] {
        modifiers.set(modifier, bits & bit != 0);
    }
    modifiers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<Event> {
        text.chars()
            .map(|c| {
                let code = match c {
                    '\u{1b}' => KeyCode::Esc,
                    c => KeyCode::Char(c),
                };
                Event::Key(KeyEvent::new(code, KeyModifiers::empty()))
            })
            .collect()
    }

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::empty()))
    }

    /// All events of a text that comes at once, and what is left when time is over.
    fn joined(text: &str) -> Vec<Event> {
        let (mut joiner, now) = (Joiner::new(SSH_PATIENCE), Instant::now());
        let mut out: Vec<Event> = keys(text)
            .into_iter()
            .flat_map(|e| joiner.take(e, now))
            .collect();
        out.append(&mut joiner.expire(now + SSH_PATIENCE));
        out
    }

    #[test]
    fn torn_sequences_are_one_key() {
        let cases = [
            ("\u{1b}[A", KeyCode::Up),
            ("\u{1b}OB", KeyCode::Down),
            ("\u{1b}[5~", KeyCode::PageUp),
            ("\u{1b}[24~", KeyCode::F(12)),
            ("\u{1b}[Z", KeyCode::BackTab),
            ("\u{1b}OS", KeyCode::F(4)),
        ];
        for (text, code) in cases {
            assert_eq!(joined(text), [key(code)], "{text:?}");
        }
        assert_eq!(
            joined("\u{1b}[1;5C"),
            [Event::Key(KeyEvent::new(
                KeyCode::Right,
                KeyModifiers::CONTROL
            ))]
        );
    }

    #[test]
    fn what_is_no_sequence_stays_what_was_typed() {
        for text in [
            "\u{1b}",
            "\u{1b}j",
            "\u{1b}\u{1b}",
            "\u{1b}[",
            "\u{1b}[x",
            "\u{1b}[999999999A",
            "\u{1b}[99~",
            "jk",
        ] {
            assert_eq!(joined(text), keys(text), "{text:?}");
        }
        assert_eq!(
            joined("\u{1b}\u{1b}[A"),
            [key(KeyCode::Esc), key(KeyCode::Up)]
        );
    }

    #[test]
    fn the_escape_key_waits_no_longer_than_its_time() {
        let (mut joiner, now) = (Joiner::new(SSH_PATIENCE), Instant::now());
        let escape = key(KeyCode::Esc);
        assert_eq!(joiner.take(escape.clone(), now), []);
        assert_eq!(joiner.deadline(), Some(now + SSH_PATIENCE));
        assert_eq!(joiner.expire(now + SSH_PATIENCE / 2), []);
        let late = joiner.take(key(KeyCode::Char('[')), now + SSH_PATIENCE);
        assert_eq!(late, [escape.clone(), key(KeyCode::Char('['))]);
        assert_eq!(joiner.deadline(), None);
        // Without patience nothing is ever held.
        let mut joiner = Joiner::new(Duration::ZERO);
        assert_eq!(joiner.take(escape.clone(), now), [escape]);
    }

    #[test]
    fn a_paste_or_a_new_size_ends_the_wait() {
        let (mut joiner, now) = (Joiner::new(SSH_PATIENCE), Instant::now());
        joiner.take(key(KeyCode::Esc), now);
        assert_eq!(
            joiner.take(Event::Resize(1, 1), now),
            [key(KeyCode::Esc), Event::Resize(1, 1)]
        );
    }
}
