//! create.

use serde_json::Value;

use crate::sandbox::resources::StatusRule;
use crate::sandbox::serve::{Answer, Call};
use crate::sandbox::status::ApiError;
use crate::sandbox::{Inner, convert, members, meta, object, shapes};

use super::{refused, served};

/// How many generated names are tried before the server gives up, as in the real one.
const NAME_TRIES: usize = 8;

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
        let key = call.res.key(&call.path.namespace, name);
        {
            let Some(meta) = meta::of(&mut object) else {
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
            if !applied {
                meta.remove("managedFields");
            }
            meta::drop_empty(meta);
            meta::check_values(&call.res, meta)?;
        }
        let existing = self.store.get(&call.res.table, &key);
        let taken = existing.is_some();
        if let Some(meta) = meta::of(&mut object) {
            meta.insert(
                "uid".into(),
                self.ids.uid(&call.res.table, &key, !dry && !taken).into(),
            );
            meta.insert("creationTimestamp".into(), self.options.clock.time().into());
            if call.res.generation {
                meta.insert("generation".into(), 1.into());
            }
        }
        if call.res.status == StatusRule::Reset
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        self.admit_create(call, &mut object)?;
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
