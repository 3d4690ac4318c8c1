//! Reading a user's file so that a fault in it is told with file, line and what was expected.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use crate::model::clean;

/// Longest part of a message that comes from a file.
const FOUND_LIMIT: usize = 120;

/// A file's name and text.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    file: String,
    text: &'a str,
}

/// A fault in a keymap, theme or config file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file} line {line}: {found}; expected {expected}")]
pub struct ConfigFault {
    /// The file as the user knows it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is there.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

impl<'a> Source<'a> {
    /// A text under the name of its file.
    pub fn new(file: impl Into<String>, text: &'a str) -> Self {
        Source {
            file: file.into(),
            text,
        }
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text as a TOML table.
    ///
    /// # Errors
    /// When it is not TOML.
    pub fn table(&self) -> Result<Spanned<DeTable<'a>>, ConfigFault> {
        DeTable::parse(self.text).map_err(|e| {
            let message = e.message().trim().replace('\n', ", ");
            self.fault(e.span().unwrap_or(0..0), &message, "TOML")
        })
    }

    /// The line of a byte position, from 1.
    pub fn line(&self, at: usize) -> usize {
        let upto = self.text.as_bytes().iter().take(at);
        1 + upto.filter(|b| **b == b'\n').count()
    }

    /// A fault at a place of the text.
    pub fn fault(&self, span: Range<usize>, found: &str, expected: &str) -> ConfigFault {
        ConfigFault {
            file: self.file.clone(),
            line: self.line(span.start),
            found: clean(found, FOUND_LIMIT).into_owned(),
            expected: expected.to_owned(),
        }
    }
}
