//! One file a verb. Every write goes read → change → commit against the resourceVersion read.

mod apply;
mod binding;
mod create;
mod delete;
mod eviction;
mod read;
mod scale;
mod update;

pub(super) use apply::MEDIA_TYPE as APPLY;
pub(super) use create::Birth;
pub(super) use delete::{DeleteOptions, Propagation};
pub(super) use eviction::OwnBudgets;
pub(super) use read::matcher;
pub(super) use scale::has_scale;
pub(super) use update::{Part, released};

use serde_json::{Value, json};

use super::resources::Resource;
use super::serve::{Answer, Call};
use super::status::ApiError;
use super::store::Refused;
use super::{Inner, convert};

/// How often a write is tried again when another one came between.
const TRIES: usize = 64;

/// The error for a commit that was refused for another reason than a concurrent change.
fn refused(res: &Resource, name: &str, refused: &Refused) -> ApiError {
    match refused {
        Refused::Exists => ApiError::already_exists(res, name),
        Refused::Missing => ApiError::not_found(res, name),
        Refused::Changed => ApiError::modified(res, name),
        Refused::Json(error) => ApiError::internal(error.to_string()),
    }
}

/// An answer holding one object given in its stored form.
fn served(code: u16, call: &Call, mut stored: Value) -> Answer {
    convert::to_served(&call.res, &mut stored);
    Answer::Value(code, stored)
}

impl Inner {
    /// 404 unless the namespace of a namespaced call exists; 403 when it is going away.
    fn check_namespace(&self, call: &Call, name: &str) -> Result<(), ApiError> {
        if !call.res.namespaced {
            return Ok(());
        }
        let namespace = call.path.namespace.as_str();
        let Some(object) = self
            .store
            .get(super::resources::tables::NAMESPACES, namespace)
        else {
            let Some(res) = self.resource_of("", "namespaces") else {
                return Err(ApiError::no_such_path());
            };
            return Err(ApiError::not_found(&res, namespace));
        };
        if object.field(0) == "Terminating" {
            let mut error = ApiError::forbidden(
                &call.res.group,
                &call.res.plural,
                name,
                &format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                ),
            );
            if let Some(details) = error.details.as_mut().and_then(Value::as_object_mut) {
                let message = format!("namespace {namespace} is being terminated");
                details.insert(
                    "causes".into(),
                    json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]),
                );
            }
            return Err(error);
        }
        Ok(())
    }
}
