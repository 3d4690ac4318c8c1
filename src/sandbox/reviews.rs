//! Kinds that are only posted: access reviews, and bindings posted to the collection.

use serde_json::{Value, json};

use super::access::{Attributes, User};
use super::object::text;
use super::serve::{Answer, Call};
use super::status::{ApiError, Cause};
use super::{Inner, meta};

impl Inner {
    /// Answers a review by filling in its status.
    pub(super) fn create_review(&self, call: &Call) -> Result<Answer, ApiError> {
        let mut review = call.json()?;
        meta::check_type(&call.res, &mut review)?;
        meta::check_shape(&call.res, &review)?;
        let user = call.user.clone();
        let status = match call.res.kind.as_str() {
            "Binding" => return self.bind_from_collection(call, &review),
            "SelfSubjectReview" => json!({
                "userInfo": {"username": user.name, "groups": user.all_groups()}
            }),
            "SelfSubjectRulesReview" => {
                let namespace = text(&review, "/spec/namespace");
                if namespace.is_empty() {
                    return Err(ApiError::bad_request("no namespace on request"));
                }
                self.rules_of(&user, namespace)
            }
            "SelfSubjectAccessReview" => self.access(call, &review, &user)?,
            _ => {
                let groups: Vec<&str> = review
                    .pointer("/spec/groups")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                let name = text(&review, "/spec/user");
                if name.is_empty() && groups.is_empty() {
                    let why = "at least one of user or group must be specified";
                    let cause = Cause::invalid("spec.user", &"".into(), why);
                    return Err(ApiError::invalid(&call.res, "", vec![cause]));
                }
                self.access(call, &review, &User::new(name, &groups))?
            }
        };
        if let Some(map) = review.as_object_mut() {
            map.insert("status".into(), status);
            map.entry("metadata").or_insert_with(|| json!({}));
        }
        Ok(Answer::Value(201, review))
    }

    fn access(&self, call: &Call, review: &Value, user: &User) -> Result<Value, ApiError> {
        let (resource, path) = (
            review.pointer("/spec/resourceAttributes"),
            review.pointer("/spec/nonResourceAttributes"),
        );
        let allowed = match (resource, path) {
            (Some(wanted), None) => {
                let namespace = text(wanted, "/namespace");
                self.allows(
                    user,
                    Attributes {
                        verb: text(wanted, "/verb"),
                        group: text(wanted, "/group"),
                        resource: text(wanted, "/resource"),
                        subresource: text(wanted, "/subresource"),
                        namespace: if call.res.namespaced && namespace.is_empty() {
                            &call.path.namespace
                        } else {
                            namespace
                        },
                        name: text(wanted, "/name"),
                    },
                )
            }
            (None, Some(wanted)) => {
                self.allows_path(user, text(wanted, "/verb"), text(wanted, "/path"))
            }
            _ => {
                let why =
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                let cause = Cause::invalid("spec", &Value::Null, why);
                return Err(ApiError::invalid(&call.res, "", vec![cause]));
            }
        };
        Ok(json!({"allowed": allowed}))
    }

    /// `POST …/namespaces/NS/bindings`: the pod is the one that the Binding is named after.
    fn bind_from_collection(&self, call: &Call, binding: &Value) -> Result<Answer, ApiError> {
        let Some(pods) = self.resource_of("", "pods") else {
            return Err(ApiError::no_such_path());
        };
        let mut path = call.path.clone();
        path.plural = "pods".into();
        path.name = text(binding, "/metadata/name").to_owned();
        path.subresource = "binding".into();
        self.bind(&Call {
            res: pods,
            path,
            query: call.query.clone(),
            user: call.user.clone(),
            content_type: call.content_type.clone(),
            body: call.body.clone(),
        })
    }
}
