//! Messages: each appears once in the footer and stays in the log.

use std::collections::VecDeque;

use jiff::Timestamp;

use super::theme::Meaning;

/// Messages kept in the log.
const LIMIT: usize = 500;

/// How much a message matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Something was done.
    Info,
    /// Something should be looked at.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// How it is drawn.
    pub fn meaning(self) -> Meaning {
        match self {
            Level::Info => Meaning::Text,
            Level::Warn => Meaning::Warn,
            Level::Error => Meaning::Danger,
        }
    }
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// When.
    pub at: Timestamp,
    /// How much it matters.
    pub level: Level,
    /// One sentence.
    pub text: String,
    /// How often in a row.
    pub times: u32,
}

impl Message {
    /// ` ×3` for what was said three times in a row.
    pub fn repeats(&self) -> String {
        match self.times {
            0 | 1 => String::new(),
            n => format!(" ×{n}"),
        }
    }
}

/// The log.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    log: VecDeque<Message>,
    shown: bool,
}

impl Messages {
    /// Adds a message and shows it in the footer until the next key.
    pub fn add(&mut self, at: Timestamp, level: Level, text: impl Into<String>) {
        let text = text.into();
        self.shown = true;
        // What keeps happening is told once, with the time of the latest.
        if let Some(last) = self.log.back_mut()
            && last.text == text
            && last.level == level
        {
            last.at = at;
            last.times = last.times.saturating_add(1);
            return;
        }
        if self.log.len() == LIMIT {
            self.log.pop_front();
        }
        self.log.push_back(Message {
            at,
            level,
            text,
            times: 1,
        });
    }

    /// The message that the footer shows.
    pub fn current(&self) -> Option<&Message> {
        self.log.back().filter(|_| self.shown)
    }

    /// Takes the message out of the footer.
    pub fn seen(&mut self) {
        self.shown = false;
    }

    /// All of them, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Message> {
        self.log.iter()
    }
}
