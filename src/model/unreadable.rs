//! What could not be read: whole objects, and parts of those that are known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::delta::{Change, Delta, Kind};
use super::meta::{Meta, Uid};
use super::text::Str;

/// Objects that are kept in the log.
const LIMIT: usize = 5_000;

/// A known object of which something could not be read.
struct Partly {
    name: Str,
    what: Box<[Str]>,
}

/// The log, and what is known of known objects.
#[derive(Default)]
pub(super) struct Unreadable {
    log: VecDeque<(Kind, Str)>,
    known: BTreeSet<(Kind, Str)>,
    partly: BTreeMap<(Kind, Uid), Partly>,
}

impl Unreadable {
    /// Takes one delta.
    pub(super) fn apply(&mut self, delta: &Delta) {
        match delta {
            Delta::Node(change) => self.change(Kind::Node, change, |o| &o.meta),
            Delta::Pod(change) => self.change(Kind::Pod, change, |o| &o.meta),
            Delta::Namespace(change) => self.change(Kind::Namespace, change, |o| &o.meta),
            Delta::ResourceClaim(change) => {
                self.change(Kind::ResourceClaim, change, |o| &o.meta);
            }
            Delta::GpuNode(change) => self.change(Kind::GpuNode, change, |o| &o.meta),
            Delta::Job(change) => self.change(Kind::Job, change, |o| &o.meta),
            Delta::Event(change) => self.change(Kind::Event, change, |o| &o.meta),
            Delta::PriorityClass(change) => {
                self.change(Kind::PriorityClass, change, |o| &o.meta);
            }
            Delta::Foreign(kind, change) => self.change(Kind::Foreign(*kind), change, |o| &o.meta),
            Delta::Unreadable { kind, what } => self.add(*kind, what),
            Delta::VolumeClaim(_)
            | Delta::Volume(_)
            | Delta::Queue(_)
            | Delta::Budget(_)
            | Delta::Source(_)
            | Delta::Decision(_)
            | Delta::Fabric(_)
            | Delta::Telemetry(_) => {}
        }
    }

    /// Each list tells the same again: it is kept once.
    fn add(&mut self, kind: Kind, what: &Str) {
        if !self.known.insert((kind, what.clone())) {
            return;
        }
        if self.log.len() == LIMIT
            && let Some(oldest) = self.log.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.log.push_back((kind, what.clone()));
    }

    fn change<T>(&mut self, kind: Kind, change: &Change<T>, meta: fn(&T) -> &Meta) {
        let meta = match change {
            Change::Set(object) => meta(object),
            Change::Gone(gone) => return self.forget(kind, &gone.uid),
        };
        if meta.unreadable.is_empty() {
            return self.forget(kind, &meta.uid);
        }
        let name = if meta.namespace.is_empty() {
            meta.name.clone()
        } else {
            format!("{}/{}", meta.namespace, meta.name).into()
        };
        let what = meta.unreadable.clone();
        self.partly
            .insert((kind, meta.uid.clone()), Partly { name, what });
    }

    fn forget(&mut self, kind: Kind, uid: &Uid) {
        if !self.partly.is_empty() {
            self.partly.remove(&(kind, uid.clone()));
        }
    }

    /// Objects that could not be read at all, oldest first.
    pub(super) fn log(&self) -> impl DoubleEndedIterator<Item = &(Kind, Str)> {
        self.log.iter()
    }

    /// Known objects of which something could not be read.
    pub(super) fn partly(&self) -> impl Iterator<Item = (Kind, &Str, &[Str])> {
        self.partly
            .iter()
            .map(|((kind, _), partly)| (*kind, &partly.name, &*partly.what))
    }

    /// Both together.
    pub(super) fn count(&self) -> usize {
        self.log.len() + self.partly.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::delta::Gone;
    use super::super::pod::Pod;
    use super::*;

    fn pod(unreadable: &[&str]) -> Delta {
        let meta = Meta {
            uid: Uid("u".into()),
            name: "p".into(),
            namespace: "ns".into(),
            unreadable: unreadable.iter().map(|w| Str::from(*w)).collect(),
            ..Meta::default()
        };
        Delta::Pod(Change::Set(Arc::new(Pod {
            meta,
            ..Pod::default()
        })))
    }

    #[test]
    fn told_once_and_forgotten_with_its_object() {
        let mut unreadable = Unreadable::default();
        let whole = Delta::Unreadable {
            kind: Kind::Pod,
            what: "pods: no UID".into(),
        };
        unreadable.apply(&whole);
        unreadable.apply(&whole);
        unreadable.apply(&pod(&["requests: not a quantity"]));
        assert_eq!(unreadable.count(), 2);
        assert_eq!(unreadable.partly().count(), 1);
        unreadable.apply(&pod(&[]));
        assert_eq!(unreadable.partly().count(), 0, "it was mended");
        unreadable.apply(&pod(&["again"]));
        unreadable.apply(&Delta::Pod(Change::Gone(Gone {
            uid: Uid("u".into()),
            namespace: "ns".into(),
            name: "p".into(),
        })));
        assert_eq!(unreadable.count(), 1, "it is gone");
    }
}
