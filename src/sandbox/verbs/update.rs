//! update and patch, on the object and on its status.

use serde_json::{Map, Value};

use crate::sandbox::object::{self, Object};
use crate::sandbox::patch::Patch;
use crate::sandbox::resources::{Resource, StatusRule};
use crate::sandbox::serve::{Answer, Call};
use crate::sandbox::status::{ApiError, Cause, clip};
use crate::sandbox::store::Refused;
use crate::sandbox::{Inner, convert, members, meta, shapes};

use super::{TRIES, refused, served};

/// Which part of the object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Part {
    /// Everything but the status.
    Main,
    /// The status.
    Status,
}

/// What a write comes to.
enum Outcome {
    /// Nothing changed: no new resourceVersion.
    Same,
    /// A new state.
    Replace(Value),
    /// The last finalizer of a deleted object is gone.
    Remove(Value),
}

impl Inner {
    pub(in crate::sandbox) fn update(&self, call: &Call, part: Part) -> Result<Answer, ApiError> {
        let mut body = call.json()?;
        members::check(call, "UpdateOptions", &mut body)?;
        meta::check_type(&call.res, &mut body)?;
        meta::check_shape(&call.res, &body)?;
        shapes::check(&call.res, &body)?;
        let name = object::text(&body, "/metadata/name").to_owned();
        if name != call.path.name {
            return Err(if name.is_empty() {
                nameless(call)
            } else {
                misnamed(call, &name)
            });
        }
        if !call.res.unconditional_update()
            && object::text(&body, "/metadata/resourceVersion").is_empty()
        {
            if !self.store.contains(&call.res.table, &call.key()) {
                return Err(ApiError::not_found(&call.res, &name));
            }
            // The real server names the resource here, not the kind.
            let mut res = (*call.res).clone();
            res.kind.clone_from(&res.plural);
            let why = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), why);
            return Err(ApiError::invalid(&res, &name, vec![cause]));
        }
        self.check_body_namespace(call, &mut body)?;
        convert::to_stored(&call.res, &mut body);
        self.change(call, part, |_| Ok(body.clone()))
    }

    pub(in crate::sandbox) fn patch(&self, call: &Call, part: Part) -> Result<Answer, ApiError> {
        let patch = Patch::parse(&call.content_type, &call.body, &call.res)?;
        self.change(call, part, |old| {
            let mut new = old.clone();
            convert::to_served(&call.res, &mut new);
            patch.apply(&mut new)?;
            if !new.is_object() {
                return Err(ApiError::unpatchable());
            }
            // What would be a 400 in a body is a 422 as the result of a patch.
            members::check(call, "PatchOptions", &mut new)
                .and_then(|()| meta::check_type(&call.res, &mut new))
                .and_then(|()| meta::check_shape(&call.res, &new))
                .and_then(|()| shapes::check(&call.res, &new))
                .map_err(|error| {
                    ApiError::unprocessable(format!(" \"\" is invalid: patch: {}", error.message))
                })?;
            let name = object::text(&new, "/metadata/name");
            if name.is_empty() {
                return Err(nameless(call));
            }
            if name != call.path.name {
                return Err(misnamed(call, name));
            }
            self.check_body_namespace(call, &mut new)?;
            convert::to_stored(&call.res, &mut new);
            Ok(new)
        })
    }

    /// Reads, changes by `make` (stored form in and out) and commits; again if another write came
    /// between and the client did not insist on a resourceVersion.
    pub(super) fn change(
        &self,
        call: &Call,
        part: Part,
        make: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Answer, ApiError> {
        let dry = call.dry_run("UpdateOptions")?;
        let (res, name, key) = (&call.res, call.path.name.as_str(), call.key());
        for _ in 0..TRIES {
            let stored: std::sync::Arc<Object> = self
                .store
                .get(&res.table, &key)
                .ok_or_else(|| ApiError::not_found(res, name))?;
            let old = stored.value();
            let new = make(&old)?;
            let asked = object::text(&new, "/metadata/resourceVersion").to_owned();
            if !asked.is_empty() && asked != stored.rv.to_string() {
                if asked.parse::<u64>().is_err() {
                    return Err(ApiError::unclassified(format!(
                        "strconv.ParseUint: parsing {:?}: invalid syntax",
                        clip(&asked)
                    )));
                }
                return Err(ApiError::modified(res, name));
            }
            let committed = match self.finish(call, part, &old, new)? {
                Outcome::Same => return Ok(served(200, call, old)),
                Outcome::Replace(new) | Outcome::Remove(new) if dry => {
                    return Ok(served(200, call, new));
                }
                Outcome::Replace(mut new) => self
                    .store
                    .replace(&res.table, &key, stored.rv, &mut new)
                    .map(|object| (object, new, false)),
                Outcome::Remove(mut last) => self
                    .store
                    .remove(&res.table, &key, stored.rv, &mut last)
                    .map(|object| (object, last, true)),
            };
            match committed {
                Ok((object, new, removed)) => {
                    if removed {
                        self.after_remove(call, &new);
                    } else {
                        self.after_write(call, &new);
                    }
                    return Ok(Answer::Bytes(200, convert::render(res, &object)));
                }
                // A PUT that named the version read above must not be repeated on a newer one:
                // the next round finds the mismatch itself.
                Err(Refused::Changed) => {}
                Err(other) => return Err(refused(res, name, &other)),
            }
        }
        Err(ApiError::modified(res, name))
    }

    /// Carries over what a write may not touch, validates, counts the generation.
    fn finish(
        &self,
        call: &Call,
        part: Part,
        old: &Value,
        mut new: Value,
    ) -> Result<Outcome, ApiError> {
        let (res, name) = (&call.res, call.path.name.as_str());
        if !res.custom {
            meta::drop_nulls(&mut new);
        }
        let uid = object::text(&new, "/metadata/uid");
        let old_uid = object::text(old, "/metadata/uid");
        if !uid.is_empty() && uid != old_uid {
            return Err(ApiError::conflict(
                res,
                name,
                &crate::sandbox::status::wrong_uid(res, &call.key(), uid, old_uid),
            ));
        }
        if part == Part::Status {
            new = with_status(res.custom, old, new);
        }
        let old_meta = old.get("metadata").and_then(Value::as_object);
        let Some(meta) = meta::of(&mut new) else {
            return Err(ApiError::bad_request("metadata must be an object"));
        };
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
            "generateName",
        ] {
            match old_meta.and_then(|m| m.get(field)) {
                Some(value) => meta.insert(field.into(), value.clone()),
                None => meta.remove(field),
            };
        }
        if call.content_type != super::apply::MEDIA_TYPE {
            meta.remove("managedFields");
        }
        meta.remove("selfLink");
        meta::drop_empty(meta);
        meta::check_values(res, meta)?;
        check_finalizers(res, name, old_meta, meta)?;
        if part == Part::Main && res.status != StatusRule::None {
            let Some(map) = new.as_object_mut() else {
                return Err(ApiError::bad_request("the object must be a JSON object"));
            };
            match old.get("status") {
                Some(status) => map.insert("status".into(), status.clone()),
                None => map.remove("status"),
            };
        }
        self.admit_update(call, part, old, &mut new)?;
        if res.generation && part == Part::Main && spec_differs(res.custom, old, &new) {
            let generation = old
                .pointer("/metadata/generation")
                .and_then(Value::as_i64)
                .unwrap_or(0)
                + 1;
            if let Some(meta) = meta::of(&mut new) {
                meta.insert("generation".into(), generation.into());
            }
        }
        if call.content_type != super::apply::MEDIA_TYPE {
            super::apply::after_update(call, part, old, &mut new, &self.options.clock.time());
        }
        if new == *old {
            return Ok(Outcome::Same);
        }
        Ok(if released(&new) {
            Outcome::Remove(new)
        } else {
            Outcome::Replace(new)
        })
    }
}

/// A deleted object takes no more finalizers.
fn check_finalizers(
    res: &Resource,
    name: &str,
    old: Option<&Map<String, Value>>,
    new: &Map<String, Value>,
) -> Result<(), ApiError> {
    let Some(old) = old.filter(|old| old.contains_key("deletionTimestamp")) else {
        return Ok(());
    };
    let list = |meta: &Map<String, Value>| {
        meta.get("finalizers")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let had = list(old);
    let added: Vec<String> = list(new)
        .iter()
        .filter(|f| !had.contains(f))
        .map(|f| clip(&f.to_string()))
        .collect();
    if added.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    Err(ApiError::invalid(
        res,
        name,
        vec![Cause::forbidden("metadata.finalizers", &why)],
    ))
}

fn nameless(call: &Call) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({} based on URL) was undeterminable: name must be provided",
        clip(&call.path.name)
    ))
}

pub(super) fn misnamed(call: &Call, name: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({}) does not match the name on the URL ({})",
        clip(name),
        clip(&call.path.name)
    ))
}

/// Whether a deleted object has nothing left to wait for.
pub(in crate::sandbox) fn released(object: &Value) -> bool {
    let meta = |field: &str| object.get("metadata").and_then(|m| m.get(field));
    meta("deletionTimestamp").is_some()
        && meta("finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty)
        && meta("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) == 0
        // A namespace also waits for what is in it.
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty)
}

/// `new` with all but its status as it was; built-in kinds take labels and annotations too.
fn with_status(custom: bool, old: &Value, mut new: Value) -> Value {
    keep(&mut new, old, |field| {
        matches!(field, "status" | "metadata")
    });
    let nothing = Value::Null;
    let old_meta = old.get("metadata").unwrap_or(&nothing);
    if let Some(meta) = new.get_mut("metadata") {
        keep(meta, old_meta, |field| {
            field == "managedFields"
                || (!custom && matches!(field, "labels" | "annotations" | "finalizers"))
        });
    }
    new
}

/// Puts the members of `old` back into `new`, those aside that it may change. Comparing costs less
/// than copying, and they hardly ever differ.
fn keep(new: &mut Value, old: &Value, may_change: impl Fn(&str) -> bool) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else {
        return;
    };
    new.retain(|field, _| may_change(field) || old.contains_key(field));
    for (field, value) in old {
        if !may_change(field) && new.get(field) != Some(value) {
            new.insert(field.clone(), value.clone());
        }
    }
}

fn spec_differs(custom: bool, old: &Value, new: &Value) -> bool {
    if !custom && (old.get("spec").is_some() || new.get("spec").is_some()) {
        return old.get("spec") != new.get("spec");
    }
    let rest = |object: &Value| {
        object.as_object().map(|map| {
            map.iter()
                .filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status"))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect::<Vec<_>>()
        })
    };
    rest(old) != rest(new)
}
