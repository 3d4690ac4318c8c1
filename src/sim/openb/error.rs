//! What can be wrong with the input.

use std::path::PathBuf;

/// Why an experiment cannot run.
#[derive(Debug, thiserror::Error)]
pub enum OpenbError {
    /// A file cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file holds something that makes no sense.
    #[error("{}, line {line}: {what}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// The order file has no such seed.
    #[error("{}: no seed {seed}; it has {known}", file.display())]
    Seed {
        /// The file.
        file: PathBuf,
        /// The seed.
        seed: u64,
        /// Those it has.
        known: String,
    },
    /// The list is not there.
    #[error("list {list:?} is not among {known}{hint}")]
    List {
        /// The list.
        list: String,
        /// Those that are.
        known: String,
        /// What else could be done.
        hint: &'static str,
    },
}
