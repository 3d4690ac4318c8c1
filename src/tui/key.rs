//! One key press, as keymap files write it.

use std::fmt;
use std::str::FromStr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Which key, without modifiers. A letter with shift is the capital letter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Code {
    /// A character.
    Char(char),
    /// A function key.
    F(u8),
    /// Any other key.
    Named(Named),
}

macro_rules! named {
    ($( $name:ident = $text:literal; )*) => {
        /// Keys that have names.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs)]
        pub enum Named { $( $name, )* }

        impl Named {
            fn from_code(code: KeyCode) -> Option<Self> {
                match code { $( KeyCode::$name => Some(Named::$name), )* _ => None }
            }

            /// As keymap files write it.
            pub fn name(self) -> &'static str {
                match self { $( Named::$name => $text, )* }
            }

            fn from_name(name: &str) -> Option<Self> {
                match name { $( $text => Some(Named::$name), )* _ => None }
            }
        }
    };
}

named! {
    Enter = "enter";
    Esc = "esc";
    Tab = "tab";
    BackTab = "shift-tab";
    Backspace = "backspace";
    Delete = "delete";
    Insert = "insert";
    Up = "up";
    Down = "down";
    Left = "left";
    Right = "right";
    Home = "home";
    End = "end";
    PageUp = "pgup";
    PageDown = "pgdn";
}

/// A key with its modifiers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The key.
    pub code: Code,
    /// With ctrl.
    pub ctrl: bool,
    /// With alt.
    pub alt: bool,
}

impl Key {
    /// A key without modifiers.
    pub fn plain(code: Code) -> Self {
        Key {
            code,
            ctrl: false,
            alt: false,
        }
    }

    /// The character that this key writes into a line of text.
    pub fn typed(self) -> Option<char> {
        match self.code {
            Code::Char(c) if !self.ctrl && !self.alt => Some(c),
            _ => None,
        }
    }

    /// Reads what the terminal reports; `None` for keys that gpudeck gives no name.
    pub fn from_event(event: KeyEvent) -> Option<Self> {
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        let code = match event.code {
            KeyCode::Char(c) if ctrl => Code::Char(c.to_ascii_lowercase()),
            KeyCode::Char(c) if event.modifiers.contains(KeyModifiers::SHIFT) => {
                Code::Char(c.to_ascii_uppercase())
            }
            KeyCode::Char(c) => Code::Char(c),
            KeyCode::F(n) => Code::F(n),
            other => Code::Named(Named::from_code(other)?),
        };
        Some(Key {
            code,
            ctrl,
            alt: event.modifiers.contains(KeyModifiers::ALT),
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("ctrl-")?;
        }
        if self.alt {
            f.write_str("alt-")?;
        }
        match self.code {
            Code::Char(' ') => f.write_str("space"),
            Code::Char(c) => write!(f, "{c}"),
            Code::F(n) => write!(f, "f{n}"),
            Code::Named(named) => f.write_str(named.name()),
        }
    }
}

/// A text that is no key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not a key")]
pub struct KeyError(pub String);

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let refuse = || KeyError(text.to_owned());
        let mut rest = text;
        let (mut ctrl, mut alt) = (false, false);
        loop {
            if let Some(tail) = rest
                .strip_prefix("ctrl-")
                .filter(|t| !t.is_empty() && !ctrl)
            {
                (ctrl, rest) = (true, tail);
            } else if let Some(tail) = rest.strip_prefix("alt-").filter(|t| !t.is_empty() && !alt) {
                (alt, rest) = (true, tail);
            } else {
                break;
            }
        }
        let mut chars = rest.chars();
        let code = match (chars.next(), chars.next()) {
            (Some(c), None) if !c.is_control() && !c.is_whitespace() => Code::Char(c),
            _ if rest == "space" => Code::Char(' '),
            _ => match Named::from_name(rest) {
                Some(named) => Code::Named(named),
                None => Code::F(
                    rest.strip_prefix('f')
                        .and_then(|n| n.parse().ok())
                        .filter(|n| (1..=24).contains(n))
                        .ok_or_else(refuse)?,
                ),
            },
        };
        // Terminals do not tell ctrl-a from ctrl-A.
        let code = match code {
            Code::Char(c) if ctrl && c.is_ascii_uppercase() => {
                return Err(KeyError(text.to_owned()));
            }
            other => other,
        };
        Ok(Key { code, ctrl, alt })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_read_back_as_they_are_written() {
        for text in [
            "g",
            "G",
            "1",
            "?",
            "-",
            "space",
            "enter",
            "esc",
            "ctrl-d",
            "alt-x",
            "ctrl-alt-x",
            "f5",
            "pgdn",
            "shift-tab",
            "ctrl-space",
            "ctrl--",
            "é",
        ] {
            let key: Key = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "ctrl-",
            "gg",
            "Ctrl-d",
            "f0",
            "f99",
            " ",
            "ctrl-D",
            "ctrl-ctrl-d",
            "\u{1b}",
        ] {
            assert!(text.parse::<Key>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn shift_makes_capitals_and_ctrl_ignores_it() {
        let event = |c, m| Key::from_event(KeyEvent::new(KeyCode::Char(c), m)).unwrap();
        assert_eq!(event('g', KeyModifiers::SHIFT).to_string(), "G");
        assert_eq!(event('G', KeyModifiers::SHIFT).to_string(), "G");
        assert_eq!(event('G', KeyModifiers::NONE).to_string(), "G");
        assert_eq!(
            event('D', KeyModifiers::CONTROL | KeyModifiers::SHIFT).to_string(),
            "ctrl-d"
        );
    }
}
