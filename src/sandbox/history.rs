//! The history of all objects as one digest, to tell whether two runs wrote the same.

use std::fmt;
use std::sync::Arc;

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

/// A change as a [`Witness`] is told of it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub change: &'static str,
    /// The collection, `group/plural`.
    pub table: &'a str,
    /// `namespace/name`, or `name`.
    pub key: &'a str,
    /// The object after it, or as it was last; JSON.
    pub json: &'a [u8],
}

/// Is told of every change while it is made: what takes long holds up the server.
#[derive(Clone)]
pub struct Witness(Arc<dyn Fn(Seen<'_>) + Send + Sync>);

impl Witness {
    /// One that calls `told`.
    pub fn new(told: impl Fn(Seen<'_>) + Send + Sync + 'static) -> Self {
        Witness(Arc::new(told))
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

/// Takes them in.
#[derive(Clone)]
pub(super) struct Recorder {
    context: Context,
    entries: Vec<Entry>,
    witness: Option<Witness>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({} changes)", self.entries.len())
    }
}

impl Recorder {
    /// One that has taken in nothing, and tells `witness` of what comes.
    pub(super) fn new(witness: Option<Witness>) -> Self {
        Recorder {
            context: Context::new(&SHA256),
            entries: Vec::new(),
            witness,
        }
    }

    /// The next change: the state after it, or the last one of a deleted object.
    pub(super) fn add(&mut self, table: &str, kind: ChangeKind, object: &Object) {
        let own = digest(&SHA256, &object.json);
        let change = match kind {
            ChangeKind::Added => "ADDED",
            ChangeKind::Modified => "MODIFIED",
            ChangeKind::Deleted => "DELETED",
        };
        if let Some(Witness(told)) = &self.witness {
            told(Seen {
                change,
                table,
                key: &object.key,
                json: &object.json,
            });
        }
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
