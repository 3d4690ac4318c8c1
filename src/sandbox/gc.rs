//! Garbage collection by ownerReferences, as kube-controller-manager does it, at once.
//!
//! A deletion in the background takes the dependents after the owner, one in the foreground before
//! it, and an orphaning one leaves them without their reference.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::object::text;
use super::resources::Resource;
use super::serve::Call;
use super::store::Refused;
use super::verbs::{DeleteOptions, Propagation};
use super::{Inner, meta};

/// The finalizer of an owner that waits for its dependents to be gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner that waits for its dependents to be set free.
pub(super) const ORPHAN: &str = "orphan";

/// (table, key) of an object.
type Place = (Arc<str>, String);

/// Dependents by the UID of each owner they name. An entry may be stale: the object decides.
#[derive(Debug, Default)]
pub(super) struct Dependents(Mutex<HashMap<String, BTreeSet<Place>>>);

impl Dependents {
    /// Notes that the object at `place` names `owner`.
    pub(super) fn add(&self, owner: &str, place: Place) {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.entry(owner.to_owned()).or_default().insert(place);
    }

    fn remove(&self, owner: &str, place: &Place) {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = owners.get_mut(owner) {
            places.remove(place);
            if places.is_empty() {
                owners.remove(owner);
            }
        }
    }

    /// What may depend on `owner`.
    pub(super) fn of(&self, owner: &str) -> Vec<Place> {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(owner).into_iter().flatten().cloned().collect()
    }
}

/// The ownerReferences of an object.
pub(super) fn owners(object: &Value) -> &[Value] {
    let list = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn has_finalizer(object: &Value, wanted: &str) -> bool {
    let list = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .any(|f| f.as_str() == Some(wanted))
}

/// What a deletion that asks for nothing does: the first API versions orphaned.
fn default_of(res: &Resource) -> Propagation {
    if res.is("batch", "jobs") || res.is("", "replicationcontrollers") {
        Propagation::Orphan
    } else {
        Propagation::Background
    }
}

/// Writes the finalizer that the deletion asks for, or takes away what it does not.
pub(super) fn mark(res: &Resource, asked: Option<Propagation>, object: &mut Value) {
    let wanted = asked.unwrap_or_else(|| {
        if has_finalizer(object, ORPHAN) {
            Propagation::Orphan
        } else if has_finalizer(object, FOREGROUND) {
            Propagation::Foreground
        } else {
            default_of(res)
        }
    });
    let finalizer = match wanted {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let Some(meta) = meta::of(object) else {
        return;
    };
    let mut list: Vec<Value> = meta
        .get("finalizers")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    list.retain(|f| !matches!(f.as_str(), Some(FOREGROUND | ORPHAN)));
    list.extend(finalizer.map(Value::from));
    if list.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), list.into());
    }
}

impl Inner {
    /// Remembers whose dependent a written object is.
    pub(super) fn note_owners(&self, res: &Resource, object: &Value) {
        for owner in owners(object) {
            let key = res.key(
                text(object, "/metadata/namespace"),
                text(object, "/metadata/name"),
            );
            self.dependents
                .add(text(owner, "/uid"), (res.table.clone(), key));
        }
    }

    /// Goes on with a deletion that waits for its dependents.
    pub(super) fn collect_waiting(&self, call: &Call, object: &Value) {
        let uid = text(object, "/metadata/uid");
        if has_finalizer(object, ORPHAN) {
            for place in self.dependents.of(uid) {
                self.release_from(&place, uid);
            }
            self.drop_finalizer(call, object, ORPHAN);
        } else if has_finalizer(object, FOREGROUND) {
            for place in self.dependents.of(uid) {
                self.delete_dependent(call, &place, uid);
            }
            self.finish_foreground(call, object);
        }
    }

    /// Follows up on a removal: its dependents go, and an owner that waited for it may go too.
    pub(super) fn collect_removed(&self, call: &Call, last: &Value) {
        let uid = text(last, "/metadata/uid");
        let key = call.res.key(
            text(last, "/metadata/namespace"),
            text(last, "/metadata/name"),
        );
        let place = (call.res.table.clone(), key);
        for owner in owners(last) {
            self.dependents.remove(text(owner, "/uid"), &place);
            self.resume_owner(call, last, owner);
        }
        for place in self.dependents.of(uid) {
            self.delete_dependent(call, &place, uid);
        }
    }

    /// The kind of a table, in the version it is stored in.
    fn kind_of(&self, table: &str) -> Option<Arc<Resource>> {
        self.registry()
            .all()
            .find(|r| {
                *r.table == *table && r.version == r.stored_version && r.group != "events.k8s.io"
            })
            .cloned()
    }

    fn load(&self, place: &Place) -> Option<(Value, u64)> {
        let stored = self.store.get(&place.0, &place.1)?;
        Some((stored.value(), stored.rv))
    }

    /// Deletes a dependent of `owner` unless it has another owner, which then keeps it.
    fn delete_dependent(&self, call: &Call, place: &Place, owner: &str) {
        let (Some((object, _)), Some(res)) = (self.load(place), self.kind_of(&place.0)) else {
            let place = place.clone();
            return self.dependents.remove(owner, &place);
        };
        let named = owners(&object).iter().any(|o| text(o, "/uid") == owner);
        if !named {
            return self.dependents.remove(owner, place);
        }
        if owners(&object).len() > 1 {
            return self.release_from(place, owner);
        }
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            return;
        }
        let inside = call.inside(res, text(&object, "/metadata/namespace"));
        let mut options = DeleteOptions::default();
        options.uid = Some(text(&object, "/metadata/uid").to_owned());
        options.propagation = Some(Propagation::Background);
        // Gone already is what was wanted; anything else leaves it as the real collector's retry.
        let _ = self.delete_one(&inside, text(&object, "/metadata/name"), &options);
    }

    /// Takes the reference to `owner` from a dependent.
    fn release_from(&self, place: &Place, owner: &str) {
        while let Some((mut object, rv)) = self.load(place) {
            if let Some(meta) = meta::of(&mut object) {
                if let Some(list) = meta
                    .get_mut("ownerReferences")
                    .and_then(Value::as_array_mut)
                {
                    list.retain(|o| text(o, "/uid") != owner);
                }
                meta::drop_empty(meta);
            }
            match self.store.replace(&place.0, &place.1, rv, &mut object) {
                Err(Refused::Changed) => {}
                _ => break,
            }
        }
        self.dependents.remove(owner, place);
    }

    /// Lets an owner in foreground deletion go once no dependent blocks it.
    fn finish_foreground(&self, call: &Call, owner: &Value) {
        let uid = text(owner, "/metadata/uid");
        let blocked = self.dependents.of(uid).iter().any(|place| {
            self.load(place).is_some_and(|(object, _)| {
                owners(&object).iter().any(|o| {
                    let blocks = o.get("blockOwnerDeletion").and_then(Value::as_bool);
                    text(o, "/uid") == uid && blocks == Some(true)
                })
            })
        });
        if !blocked {
            self.drop_finalizer(call, owner, FOREGROUND);
        }
    }

    /// A dependent of `owner` is gone: the owner may have waited for it.
    fn resume_owner(&self, call: &Call, dependent: &Value, owner: &Value) {
        let (group, version) = match text(owner, "/apiVersion").split_once('/') {
            Some(parts) => parts,
            None => ("", text(owner, "/apiVersion")),
        };
        let registry = self.registry();
        let Some(res) = registry.all().find(|r| {
            r.group == group && r.version == version && r.kind == text(owner, "/kind") && !r.review
        }) else {
            return;
        };
        let namespace = if res.namespaced {
            text(dependent, "/metadata/namespace")
        } else {
            ""
        };
        let key = res.key(namespace, text(owner, "/name"));
        let Some((object, _)) = self.load(&(res.table.clone(), key)) else {
            return;
        };
        let waits = object.pointer("/metadata/deletionTimestamp").is_some()
            && has_finalizer(&object, FOREGROUND)
            && text(&object, "/metadata/uid") == text(owner, "/uid");
        if waits {
            self.finish_foreground(&call.inside(res.clone(), namespace), &object);
        }
    }

    /// Takes a finalizer off an object in deletion; the last one lets it go.
    fn drop_finalizer(&self, call: &Call, object: &Value, finalizer: &str) {
        let name = text(object, "/metadata/name");
        let key = call.res.key(text(object, "/metadata/namespace"), name);
        let place = (call.res.table.clone(), key);
        while let Some((mut object, rv)) = self.load(&place) {
            if let Some(meta) = meta::of(&mut object) {
                if let Some(list) = meta.get_mut("finalizers").and_then(Value::as_array_mut) {
                    list.retain(|f| f.as_str() != Some(finalizer));
                }
                meta::drop_empty(meta);
            }
            let gone = super::verbs::released(&object);
            let written = if gone {
                self.store.remove(&place.0, &place.1, rv, &mut object)
            } else {
                self.store.replace(&place.0, &place.1, rv, &mut object)
            };
            match written {
                Err(Refused::Changed) => {}
                Ok(_) if gone => return self.after_remove(call, &object),
                _ => return,
            }
        }
    }
}
