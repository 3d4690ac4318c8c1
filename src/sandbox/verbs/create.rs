//! create.

use serde_json::Value;

use crate::sandbox::resources::StatusRule;
use crate::sandbox::serve::{Answer, Call};
use crate::sandbox::status::ApiError;
use crate::sandbox::{Inner, convert, members, meta, object, shapes};

use super::{refused, served};

/// How many generated names are tried before the server gives up, as in the real one.
const NAME_TRIES: usize = 8;

/// How an object comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Birth {
    /// A client asks for it.
    Request {
        /// By an apply, which brings its `managedFields`.
        applied: bool,
        /// It is going to be stored: its UID is used up.
        lasting: bool,
    },
    /// It is from an earlier life of the cluster: it has its status and says when it was created.
    Earlier,
}

impl Birth {
    fn lasts(self) -> bool {
        !matches!(self, Birth::Request { lasting: false, .. })
    }
}

impl Inner {
    pub(in crate::sandbox) fn create(&self, call: &Call) -> Result<Answer, ApiError> {
        if call.res.namespaced && call.path.namespace.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        let dry = call.dry_run("CreateOptions")?;
        let mut object = call.json()?;
        members::check(call, "CreateOptions", &mut object)?;
        meta::check_type(&call.res, &mut object)?;
        meta::check_shape(&call.res, &object)?;
        shapes::check(&call.res, &object)?;
        convert::to_stored(&call.res, &mut object);
        if !call.res.custom {
            meta::drop_nulls(&mut object);
        }
        self.check_body_namespace(call, &mut object)?;
        self.check_namespace(call, object::text(&object, "/metadata/name"))?;
        if !object::text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(ApiError::unclassified(
                "resourceVersion should not be set on objects to be created",
            ));
        }

        let base = object::text(&object, "/metadata/generateName").to_owned();
        let generate = object::text(&object, "/metadata/name").is_empty() && !base.is_empty();
        if !generate {
            let name = object::text(&object, "/metadata/name").to_owned();
            return self.create_named(call, object, &name, dry, false);
        }
        for _ in 0..NAME_TRIES {
            let mut attempt = object.clone();
            let scope = call.res.key(&call.path.namespace, &base);
            let suffix = self.ids.suffix(&call.res.table, &scope, !dry);
            let name = meta::generated(&base, &suffix);
            if self
                .store
                .contains(&call.res.table, &call.res.key(&call.path.namespace, &name))
            {
                continue;
            }
            if let Some(meta) = meta::of(&mut attempt) {
                meta.insert("name".into(), name.clone().into());
            }
            return self.create_named(call, attempt, &name, dry, false);
        }
        Err(ApiError::already_exists(&call.res, &base))
    }

    /// Creates what an apply found missing, with its `managedFields`.
    pub(super) fn create_applied(
        &self,
        call: &Call,
        mut object: Value,
    ) -> Result<Answer, ApiError> {
        let dry = call.dry_run("PatchOptions")?;
        convert::to_stored(&call.res, &mut object);
        self.check_namespace(call, &call.path.name)?;
        self.create_named(call, object, &call.path.name, dry, true)
    }

    fn create_named(
        &self,
        call: &Call,
        mut object: Value,
        name: &str,
        dry: bool,
        applied: bool,
    ) -> Result<Answer, ApiError> {
        let existing = self
            .store
            .get(&call.res.table, &call.res.key(&call.path.namespace, name));
        let birth = Birth::Request {
            applied,
            lasting: !dry && existing.is_none(),
        };
        let key = self.complete_new(call, &mut object, name, birth)?;
        if let Some(existing) = existing {
            let mut error = ApiError::already_exists(&call.res, name);
            if existing
                .value()
                .pointer("/metadata/deletionTimestamp")
                .is_some()
            {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        if dry {
            return Ok(served(201, call, object));
        }
        let stored = self
            .store
            .create(&call.res.table, &key, &mut object)
            .map_err(|error| refused(&call.res, name, &error))?;
        self.after_write(call, &object);
        Ok(Answer::Bytes(201, convert::render(&call.res, &stored)))
    }

    /// Does to an object (stored form) what the server does before it stores it under `name`, and
    /// returns its key.
    pub(in crate::sandbox) fn complete_new(
        &self,
        call: &Call,
        object: &mut Value,
        name: &str,
        birth: Birth,
    ) -> Result<String, ApiError> {
        let key = call.res.key(&call.path.namespace, name);
        let Some(meta) = meta::of(object) else {
            return Err(ApiError::bad_request("metadata must be an object"));
        };
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "generation",
            "resourceVersion",
        ] {
            meta.remove(field);
        }
        if !matches!(birth, Birth::Request { applied: true, .. }) {
            meta.remove("managedFields");
        }
        meta::drop_empty(meta);
        meta::check_values(&call.res, meta)?;
        let uid = self.ids.uid(&call.res.table, &key, birth.lasts());
        meta.insert("uid".into(), uid.into());
        if birth != Birth::Earlier {
            meta.insert("creationTimestamp".into(), self.options.clock.time().into());
        }
        if call.res.generation {
            meta.insert("generation".into(), 1.into());
        }
        if birth == Birth::Earlier {
            return self.admit_grown(call, object).map(|()| key);
        }
        if call.res.status == StatusRule::Reset
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        self.admit_create(call, object)?;
        Ok(key)
    }

    /// Admits an object that has lived for a while: its status is its own, and the taint of a new
    /// node is long gone.
    fn admit_grown(&self, call: &Call, object: &mut Value) -> Result<(), ApiError> {
        let status = object.get("status").cloned();
        let node = call.res.is("", "nodes");
        let taints = object.pointer("/spec/taints").filter(|_| node).cloned();
        self.admit_create(call, object)?;
        if let (Some(status), Some(map)) = (status, object.as_object_mut()) {
            map.insert("status".into(), status);
        }
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        if let Some(spec) = spec.filter(|_| node) {
            match taints {
                Some(taints) => spec.insert("taints".into(), taints),
                None => spec.remove("taints"),
            };
        }
        Ok(())
    }

    /// The body's namespace must be the URL's; an absent one is filled in.
    pub(super) fn check_body_namespace(
        &self,
        call: &Call,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let given = object::text(object, "/metadata/namespace").to_owned();
        let wanted = call.path.namespace.as_str();
        let Some(meta) = meta::of(object) else {
            return Err(ApiError::bad_request("metadata must be an object"));
        };
        if !call.res.namespaced {
            meta.remove("namespace");
            return Ok(());
        }
        if !given.is_empty() && given != wanted {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta.insert("namespace".into(), wanted.into());
        Ok(())
    }
}
