//! The history of all objects as one digest, to tell whether two runs wrote the same.

use std::fmt;

use ring::digest::{Context, SHA256, digest};

use super::object::Object;
use super::store::ChangeKind;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The resourceVersion that it made.
    pub rv: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub change: &'static str,
    /// The collection, `group/plural`.
    pub table: String,
    /// `namespace/name`, or `name`.
    pub key: String,
    /// The first eight bytes of the SHA-256 of the object's JSON, in hexadecimal digits.
    pub digest: String,
}

/// Every change of a server's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// SHA-256 over all of them in order, in hexadecimal digits.
    pub digest: String,
    /// They, oldest first.
    pub entries: Vec<Entry>,
}

/// Takes them in.
#[derive(Clone)]
pub(super) struct Recorder {
    context: Context,
    entries: Vec<Entry>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({} changes)", self.entries.len())
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            context: Context::new(&SHA256),
            entries: Vec::new(),
        }
    }
}

impl Recorder {
    /// The next change: the state after it, or the last one of a deleted object.
    pub(super) fn add(&mut self, table: &str, kind: ChangeKind, object: &Object) {
        let own = digest(&SHA256, &object.json);
        let change = match kind {
            ChangeKind::Added => "ADDED",
            ChangeKind::Modified => "MODIFIED",
            ChangeKind::Deleted => "DELETED",
        };
        // NUL is in none of the parts and keeps them apart.
        for part in [change, "\0", table, "\0", &object.key, "\0"] {
            self.context.update(part.as_bytes());
        }
        self.context.update(own.as_ref());
        self.entries.push(Entry {
            rv: object.rv,
            change,
            table: table.to_owned(),
            key: object.key.to_string(),
            digest: hex(own.as_ref().get(..8).unwrap_or_default()),
        });
    }

    /// What was taken in so far.
    pub(super) fn history(&self) -> History {
        History {
            digest: hex(self.context.clone().finish().as_ref()),
            entries: self.entries.clone(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
