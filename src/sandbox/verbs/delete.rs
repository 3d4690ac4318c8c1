//! delete and deletecollection.

use serde_json::{Value, json};

use crate::sandbox::object::{self, Object};
use crate::sandbox::query::ListOptions;
use crate::sandbox::resources::tables;
use crate::sandbox::serve::{Answer, Call};
use crate::sandbox::status::{self, ApiError, Cause};
use crate::sandbox::store::{Range, Refused};
use crate::sandbox::{Inner, convert, gc, meta};

use super::read::{matcher, selected};
use super::update::released;
use super::{TRIES, refused, served};

/// `meta/v1` DeleteOptions, from body and query.
#[derive(Debug, Default, Clone)]
pub(in crate::sandbox) struct DeleteOptions {
    /// Seconds a pod gets; `None` for its own value.
    pub(super) grace_secs: Option<i64>,
    /// Must be the object's UID.
    pub(in crate::sandbox) uid: Option<String>,
    /// Must be the object's resourceVersion.
    pub(super) resource_version: Option<String>,
    /// Only try.
    pub(super) dry: bool,
    /// What becomes of dependents; `None` for the kind's own way.
    pub(in crate::sandbox) propagation: Option<Propagation>,
}

/// What a deletion does with the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay, without it.
    Orphan,
}

/// What a deletion left.
pub(in crate::sandbox) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Value),
    /// It waits for its grace time or finalizers.
    Waiting(Value),
}

impl DeleteOptions {
    pub(super) fn from_object(body: &Value) -> Result<Self, ApiError> {
        let text = |pointer: &str| {
            body.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let grace_secs = match body.get("gracePeriodSeconds") {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_i64().ok_or_else(|| {
                ApiError::bad_request(format!(
                    "json: cannot unmarshal {} into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
                    meta::json_type(value)
                ))
            })?),
        };
        let policy = text("/propagationPolicy").unwrap_or_default();
        let mut propagation = policy_of(&policy)?;
        if let Some(orphan) = body.get("orphanDependents").and_then(Value::as_bool) {
            if propagation.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                let cause = Cause::invalid("propagationPolicy", &policy.into(), why);
                return Err(ApiError::invalid_options("DeleteOptions", vec![cause]));
            }
            propagation = Some(if orphan {
                Propagation::Orphan
            } else {
                Propagation::Background
            });
        }
        let dry = match body
            .get("dryRun")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
        {
            None | Some([]) => false,
            Some(all) if all.iter().all(|v| v.as_str() == Some("All")) => true,
            Some(_) => {
                return Err(ApiError::invalid_options(
                    "DeleteOptions",
                    vec![Cause {
                        reason: "FieldValueNotSupported",
                        message: "Unsupported value: supported values: \"All\"".into(),
                        field: "dryRun".into(),
                    }],
                ));
            }
        };
        Ok(DeleteOptions {
            grace_secs,
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            dry,
            propagation,
        })
    }

    fn of_call(call: &Call) -> Result<Self, ApiError> {
        let mut options = if call.body.is_empty() {
            DeleteOptions::default()
        } else {
            let body = call.json()?;
            DeleteOptions::from_object(&body)?
        };
        if let Some(secs) = call.query.int("gracePeriodSeconds")? {
            options.grace_secs = Some(secs);
        }
        let policy = policy_of(call.query.get("propagationPolicy").unwrap_or_default())?;
        options.propagation = policy.or(options.propagation);
        options.dry |= call.dry_run("DeleteOptions")?;
        Ok(options)
    }
}

fn policy_of(policy: &str) -> Result<Option<Propagation>, ApiError> {
    match policy {
        "" => Ok(None),
        "Background" => Ok(Some(Propagation::Background)),
        "Foreground" => Ok(Some(Propagation::Foreground)),
        "Orphan" => Ok(Some(Propagation::Orphan)),
        other => Err(ApiError::invalid_options(
            "DeleteOptions",
            vec![Cause {
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: {:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                    status::clip(other)
                ),
                field: "propagationPolicy".into(),
            }],
        )),
    }
}

impl Inner {
    pub(in crate::sandbox) fn delete(&self, call: &Call) -> Result<Answer, ApiError> {
        let options = DeleteOptions::of_call(call)?;
        Ok(match self.delete_one(call, &call.path.name, &options)? {
            Deleted::Waiting(object) => served(200, call, object),
            // A pod is answered as the object it was, other kinds with a Status.
            Deleted::Gone(last) if call.res.is("", "pods") => served(200, call, last),
            Deleted::Gone(last) => Answer::Value(
                200,
                status::deleted(
                    &call.res,
                    &call.path.name,
                    object::text(&last, "/metadata/uid"),
                ),
            ),
        })
    }

    pub(in crate::sandbox) fn delete_collection(&self, call: &Call) -> Result<Answer, ApiError> {
        if call.res.namespaced && call.path.namespace.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        let options = DeleteOptions::of_call(call)?;
        let list = ListOptions::parse(&call.query)?;
        let fields = matcher(&call.res, &list)?;
        let range = Range {
            namespace: &call.path.namespace,
            after: None,
            at: None,
            limit: list.limit,
            remaining: Some(0),
        };
        let page = self
            .store
            .page(&call.res.table, range, |o| {
                selected(&list.labels, &fields, o)
            })
            .map_err(|expired| ApiError::expired(0, expired.oldest))?;
        let mut items = Vec::with_capacity(page.objects.len());
        for object in &page.objects {
            match self.delete_one(call, object.name(), &options) {
                Ok(Deleted::Gone(mut item) | Deleted::Waiting(mut item)) => {
                    // What goes at once is shown as it was.
                    if !call.res.is("", "pods")
                        && released(&item)
                        && let Some(meta) = meta::of(&mut item)
                    {
                        meta.remove("deletionTimestamp");
                        meta.remove("deletionGracePeriodSeconds");
                    }
                    convert::to_served(&call.res, &mut item);
                    if !call.res.custom
                        && let Some(map) = item.as_object_mut()
                    {
                        map.remove("kind");
                        map.remove("apiVersion");
                    }
                    items.push(item);
                }
                // Gone since the list: what was wanted.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Answer::Value(
            200,
            json!({
                "kind": call.res.list_kind,
                "apiVersion": call.res.api_version(),
                "metadata": {"resourceVersion": self.store.rv().to_string()},
                "items": items,
            }),
        ))
    }

    /// Deletes one object of the call's kind and namespace, gracefully where that applies.
    pub(in crate::sandbox) fn delete_one(
        &self,
        call: &Call,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let res = &call.res;
        let key = res.key(&call.path.namespace, name);
        for _ in 0..TRIES {
            let stored = self
                .store
                .get(&res.table, &key)
                .ok_or_else(|| ApiError::not_found(res, name))?;
            let old = stored.value();
            check_preconditions(call, name, options, &stored, &old)?;
            self.admit_delete(call, name)?;
            let Some(mut new) = self.mark_deleted(call, options, &old) else {
                return Ok(Deleted::Waiting(old));
            };
            let gone = released(&new);
            if options.dry {
                return Ok(if gone {
                    Deleted::Gone(old)
                } else {
                    Deleted::Waiting(new)
                });
            }
            let mut shown = Value::Null;
            let committed = if gone {
                // The answer shows the deletion, the watch only the state before it.
                let mut last = if old.pointer("/metadata/deletionTimestamp").is_some() {
                    new.clone()
                } else {
                    old.clone()
                };
                let removed = self.store.remove(&res.table, &key, stored.rv, &mut last);
                shown = std::mem::replace(&mut new, last);
                removed
            } else {
                self.store.replace(&res.table, &key, stored.rv, &mut new)
            };
            match committed {
                Ok(_) if gone => {
                    self.after_remove(call, &new);
                    return Ok(Deleted::Gone(shown));
                }
                Ok(_) => {
                    self.after_mark(call, name);
                    self.refresh_budgets(call, &new);
                    self.collect_waiting(call, &new);
                    return Ok(Deleted::Waiting(new));
                }
                Err(Refused::Changed) => {}
                Err(other) => return Err(refused(res, name, &other)),
            }
        }
        Err(ApiError::modified(res, name))
    }

    /// The object with its deletion written in; `None` when it is marked already and nothing changes.
    fn mark_deleted(&self, call: &Call, options: &DeleteOptions, old: &Value) -> Option<Value> {
        let mut grace = 0;
        if call.res.is("", "pods") {
            grace = options
                .grace_secs
                .or_else(|| {
                    old.pointer("/spec/terminationGracePeriodSeconds")
                        .and_then(Value::as_i64)
                })
                .unwrap_or(30);
            if grace < 0 {
                grace = 1;
            }
            let unbound = object::text(old, "/spec/nodeName").is_empty();
            let over = matches!(object::text(old, "/status/phase"), "Succeeded" | "Failed");
            if unbound || over {
                grace = 0;
            }
        }
        let marked = old.pointer("/metadata/deletionTimestamp").is_some();
        let before = old
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64);
        // The grace time of a deletion under way can only become shorter.
        if marked && before.is_some_and(|before| grace >= before) && before != Some(0) {
            return None;
        }
        if marked && before == Some(0) && !released(old) {
            return None;
        }
        let mut new = old.clone();
        let now = self.options.clock.now();
        let at = now + jiff::SignedDuration::from_secs(grace);
        let generation = old.pointer("/metadata/generation").and_then(Value::as_i64);
        if let Some(meta) = meta::of(&mut new) {
            meta.insert(
                "deletionTimestamp".into(),
                crate::sandbox::clock::time(at).into(),
            );
            // A namespace's own deletion writes no grace time.
            if !call.res.is("", "namespaces") {
                meta.insert("deletionGracePeriodSeconds".into(), grace.into());
            }
            if let Some(generation) = generation.filter(|_| !marked) {
                meta.insert("generation".into(), (generation + 1).into());
            }
        }
        if !call.res.is("", "namespaces") {
            gc::mark(&call.res, options.propagation, &mut new);
        }
        if call.res.is("", "namespaces")
            && let Some(status) = new.pointer_mut("/status").and_then(Value::as_object_mut)
        {
            status.insert("phase".into(), "Terminating".into());
        }
        Some(new)
    }

    /// A namespace that was marked is emptied, as the namespace controller would.
    fn after_mark(&self, call: &Call, name: &str) {
        if !call.res.is("", "namespaces") {
            return;
        }
        let kinds: Vec<_> = self
            .registry()
            .all()
            .filter(|r| r.namespaced && !r.review && r.version == r.stored_version)
            .filter(|r| r.group != "events.k8s.io")
            .cloned()
            .collect();
        for res in kinds {
            for object in self.store.all(&res.table, name) {
                let inside = call.inside(res.clone(), name);
                // What cannot go now (finalizers, a kubelet to wait for) keeps the namespace.
                let _ = self.delete_one(&inside, object.name(), &DeleteOptions::default());
            }
        }
        self.finish_namespace(name);
    }

    /// Removes a terminating namespace once nothing is left in it.
    pub(in crate::sandbox) fn finish_namespace(&self, name: &str) {
        let Some(stored) = self.store.get(tables::NAMESPACES, name) else {
            return;
        };
        if stored.field(0) != "Terminating" {
            return;
        }
        let registry = self.registry();
        let busy = registry
            .all()
            .filter(|r| r.namespaced && !r.review)
            .any(|r| !self.store.all(&r.table, name).is_empty());
        if busy {
            return;
        }
        let mut last = stored.value();
        if let Some(spec) = last.pointer_mut("/spec").and_then(Value::as_object_mut) {
            spec.remove("finalizers");
        }
        if released(&last) {
            // Losing a race here means another request removed it.
            let _ = self
                .store
                .remove(tables::NAMESPACES, name, stored.rv, &mut last);
        }
    }
}

fn check_preconditions(
    call: &Call,
    name: &str,
    options: &DeleteOptions,
    stored: &Object,
    old: &Value,
) -> Result<(), ApiError> {
    // The real server names the kind here, not the resource.
    let conflict = |why: String| {
        let mut res = (*call.res).clone();
        res.plural.clone_from(&res.kind);
        Err(ApiError::conflict(&res, name, &why))
    };
    let uid = object::text(old, "/metadata/uid");
    if let Some(wanted) = options.uid.as_deref()
        && wanted != uid
    {
        return conflict(format!(
            "the UID in the precondition ({}) does not match the UID in record ({uid}). The object might have been deleted and then recreated",
            status::clip(wanted)
        ));
    }
    if let Some(wanted) = options.resource_version.as_deref()
        && wanted != stored.rv.to_string()
    {
        return conflict(format!(
            "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({}). The object might have been modified",
            status::clip(wanted),
            stored.rv
        ));
    }
    Ok(())
}
