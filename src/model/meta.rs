//! Identity of an object.

use std::fmt;

use jiff::Timestamp;

use super::text::Str;

/// The `metadata.uid` of an object: the only identity that survives a re-creation under one name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Uid(pub Str);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The opaque `metadata.resourceVersion`, sent back as a precondition and never compared by size.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ResourceVersion(pub Str);

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Kind, e.g. `Job`.
    pub kind: Str,
    /// Name in the owned object's namespace.
    pub name: Str,
    /// Its UID.
    pub uid: Uid,
    /// Whether it is the managing controller (at most one is).
    pub controller: bool,
}

/// What every object has. All texts are cleaned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// UID; empty for objects that no server has stored.
    pub uid: Uid,
    /// Name as cleaned for display; equals the real one for each name a server accepts.
    pub name: Str,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Version for preconditions.
    pub resource_version: ResourceVersion,
    /// Labels, sorted by key.
    pub labels: Box<[(Str, Str)]>,
    /// The annotations that gpudeck reads (not all of them), sorted by key.
    pub annotations: Box<[(Str, Str)]>,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Set while the object is being deleted.
    pub deleting: Option<Timestamp>,
    /// Owners.
    pub owners: Box<[Owner]>,
    /// What of this object could not be read, in words (`requests nvidia.com/gpu "x": not a quantity`).
    pub unreadable: Box<[Str]>,
}

/// Finds `key` in a list sorted by key.
fn find<'a>(pairs: &'a [(Str, Str)], key: &str) -> Option<&'a str> {
    let at = pairs.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
    pairs.get(at).map(|(_, v)| &**v)
}

impl Meta {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        find(&self.labels, key)
    }

    /// The value of an annotation, if it is one that is kept.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        find(&self.annotations, key)
    }

    /// The managing controller, if any. An object that claims to own itself has none.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners
            .iter()
            .find(|o| o.controller && o.uid != self.uid)
    }
}
