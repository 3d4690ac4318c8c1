//! `Status` errors in the shapes kube-apiserver 1.37 answers with.

use serde_json::{Map, Value, json};

use super::resources::Resource;

/// An error answer: becomes a `meta/v1` Status with this HTTP code.
#[derive(Debug, Clone)]
pub(super) struct ApiError {
    /// HTTP status and `code`.
    pub(super) code: u16,
    /// Machine-readable `reason`.
    pub(super) reason: &'static str,
    /// The sentence a client prints.
    pub(super) message: String,
    /// `details`, when the real server sends some.
    pub(super) details: Option<Value>,
    /// Seconds for the `Retry-After` header.
    pub(super) retry_after_secs: Option<u32>,
    /// Answer with the bare text the real server uses for unknown paths.
    pub(super) plain: bool,
}

/// One entry of `details.causes` of a 422.
#[derive(Debug, Clone)]
pub(super) struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldValueForbidden`, ...
    pub(super) reason: &'static str,
    /// What the cause says.
    pub(super) message: String,
    /// Path of the field, as `spec.nodeName`.
    pub(super) field: String,
}

impl Cause {
    /// `FIELD: Invalid value: VALUE: WHY`.
    pub(super) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {why}", clip(&value.to_string())),
            field: field.to_owned(),
        }
    }

    /// `FIELD: Required value: WHY`.
    pub(super) fn required(field: &str, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Cause {
            reason: "FieldValueRequired",
            message,
            field: field.to_owned(),
        }
    }

    /// `FIELD: Forbidden: WHY`.
    pub(super) fn forbidden(field: &str, why: &str) -> Self {
        Cause {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
            field: field.to_owned(),
        }
    }
}

/// Cuts what a client sent before it is sent back inside a message.
pub(super) fn clip(text: &str) -> String {
    const LONGEST: usize = 1024;
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let cut = (0..=LONGEST)
        .rev()
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(0);
    format!("{}…", text.get(..cut).unwrap_or_default())
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after_secs: None,
            plain: false,
        }
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// 409 of an apply: (who holds it, the field) of each conflict.
    pub(super) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(holder, field)| {
                json!({"reason": "FieldManagerConflict", "message": holder, "field": field})
            })
            .collect();
        let message = match conflicts {
            [(holder, field)] => format!("Apply failed with 1 conflict: {holder}: {field}"),
            many => {
                let mut text = format!("Apply failed with {} conflicts: ", many.len());
                let mut last = "";
                for (holder, field) in many {
                    if holder != last {
                        if !last.is_empty() {
                            text.push('\n');
                        }
                        text.push_str(&holder.replacen("conflict", "conflicts", 1));
                        text.push(':');
                        last = holder;
                    }
                    text.push_str(&format!("\n- {field}"));
                }
                text
            }
        };
        Self::new(409, "Conflict", message).with_details(json!({"causes": causes}))
    }

    /// 404 for one object.
    pub(super) fn not_found(res: &Resource, name: &str) -> Self {
        let name = clip(name);
        Self::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", res.qualified()),
        )
        .with_details(details(&res.group, &res.plural, &name))
    }

    /// 404 for a path that nothing serves: plain text, as the real server.
    pub(super) fn no_such_path() -> Self {
        let mut error = Self::new(404, "NotFound", "404 page not found\n");
        error.plain = true;
        error
    }

    /// 404 for a kind or subresource that a served group does not have.
    pub(super) fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(json!({}))
    }

    /// 409 on create.
    pub(super) fn already_exists(res: &Resource, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", res.qualified()),
        )
        .with_details(details(&res.group, &res.plural, name))
    }

    /// 409 with a reason of its own.
    pub(super) fn conflict(res: &Resource, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                res.qualified()
            ),
        )
        .with_details(details(&res.group, &res.plural, name))
    }

    /// 409 because the object changed since it was read.
    pub(super) fn modified(res: &Resource, name: &str) -> Self {
        Self::conflict(
            res,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422 with field causes.
    pub(super) fn invalid(res: &Resource, name: &str, causes: Vec<Cause>) -> Self {
        let listed: Vec<String> = causes
            .iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect();
        let text = match listed.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes = cause_list(causes);
        let name = clip(name);
        let kind = if res.group.is_empty() {
            res.kind.clone()
        } else {
            format!("{}.{}", res.kind, res.group)
        };
        let mut error = Self::new(
            422,
            "Invalid",
            format!("{kind} \"{name}\" is invalid: {text}"),
        );
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !res.group.is_empty() {
            details.insert("group".into(), res.group.clone().into());
        }
        details.insert("kind".into(), res.kind.clone().into());
        details.insert("causes".into(), causes.into());
        error.details = Some(details.into());
        error
    }

    /// 422 about the options of a request, as `ListOptions`.
    pub(super) fn invalid_options(options: &str, causes: Vec<Cause>) -> Self {
        let text: Vec<String> = causes
            .iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect();
        let message = format!("{options}.meta.k8s.io \"\" is invalid: {}", text.join(", "));
        Self::new(422, "Invalid", message).with_details(json!({
            "group": "meta.k8s.io",
            "kind": options,
            "causes": cause_list(causes),
        }))
    }

    /// 422 without a kind: a patch that does not apply, say.
    pub(super) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message).with_details(json!({}))
    }

    /// 400.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 about one object or collection; `why` is the text after `is forbidden: `.
    pub(super) fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let qualified = if group.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}.{group}")
        };
        let subject = if name.is_empty() {
            qualified
        } else {
            format!("{qualified} \"{}\"", clip(name))
        };
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}")).with_details(details(
            group,
            plural,
            &clip(name),
        ))
    }

    /// 403 about a path that is no resource.
    pub(super) fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        Self::new(
            403,
            "Forbidden",
            format!(
                "forbidden: User \"{user}\" cannot {verb} path \"{}\"",
                clip(path)
            ),
        )
        .with_details(json!({}))
    }

    /// 405.
    pub(super) fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(json!({}))
    }

    /// 406 for a client that accepts no JSON.
    pub(super) fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
        .with_details(json!({}))
    }

    /// 415; `accepted` lists what would do.
    pub(super) fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// 415 for a patch format; server-side apply is one that is not served.
    pub(super) fn unsupported_patch(custom: bool) -> Self {
        if custom {
            return Self::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            );
        }
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            .with_details(json!({}))
    }

    /// 422 for a JSON patch that is no patch or does not apply.
    pub(super) fn unpatchable() -> Self {
        Self::unprocessable("the server rejected our request due to an error in our request")
    }

    /// 413.
    pub(super) fn too_large(limit_bytes: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit_bytes}"),
        )
    }

    /// 410 for a watch or list from before the kept history.
    pub(super) fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    /// 410 for a continue token from before the kept history.
    pub(super) fn continue_expired() -> Self {
        Self::new(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        )
    }

    /// 504 for a resourceVersion that has not happened yet.
    pub(super) fn rv_too_large(asked: u64, current: u64) -> Self {
        let mut error = Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1
        }));
        error.retry_after_secs = Some(1);
        error
    }

    /// 429 from a disruption budget.
    pub(super) fn too_many_requests(message: &str, details: Value, retry_after_secs: u32) -> Self {
        let mut error = Self::new(429, "TooManyRequests", message).with_details(details);
        if retry_after_secs > 0 {
            error.retry_after_secs = Some(retry_after_secs);
        }
        error
    }

    /// 429 of a server with more requests than it wants: text, as priority and fairness has it.
    pub(super) fn overloaded(retry_after_secs: u32) -> Self {
        let mut error = Self::new(
            429,
            "TooManyRequests",
            "Too many requests, please try again later.\n",
        );
        error.plain = true;
        error.retry_after_secs = Some(retry_after_secs);
        error
    }

    /// 409 that has nothing to do with what was sent.
    pub(super) fn conflict_fault(resource: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {resource}: the object has been modified; please apply your changes to the latest version and try again"
            ),
        )
    }

    /// 410 that has nothing to do with what was sent.
    pub(super) fn gone_fault() -> Self {
        Self::new(
            410,
            "Expired",
            "The resourceVersion for the provided watch is too old.",
        )
    }

    /// 500 that has nothing to do with what was sent: etcd's leader is away.
    pub(super) fn internal_fault() -> Self {
        Self::new(
            500,
            "InternalError",
            "Internal error occurred: etcdserver: leader changed",
        )
    }

    /// 500.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// 500 without a reason: what the real server says for errors it has no class for.
    pub(super) fn unclassified(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 503.
    pub(super) fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 501 for a part of Kubernetes that the embedded cluster leaves out.
    pub(super) fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(501, "NotImplemented", message)
    }

    /// The Status object.
    pub(super) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if let Some(map) = status.as_object_mut() {
            if !self.reason.is_empty() {
                map.insert("reason".into(), self.reason.into());
            }
            if let Some(details) = &self.details {
                map.insert("details".into(), details.clone());
            }
        }
        status
    }
}

fn cause_list(causes: Vec<Cause>) -> Vec<Value> {
    causes
        .into_iter()
        .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
        .collect()
}

fn details(group: &str, plural: &str, name: &str) -> Value {
    let mut map = Map::new();
    if !name.is_empty() {
        map.insert("name".into(), name.into());
    }
    if !group.is_empty() {
        map.insert("group".into(), group.into());
    }
    map.insert("kind".into(), plural.into());
    map.into()
}

/// The real server's words for a UID that is not the stored object's.
pub(super) fn wrong_uid(res: &Resource, key: &str, wanted: &str, actual: &str) -> String {
    let table = if res.group.is_empty() {
        res.plural.clone()
    } else {
        res.qualified()
    };
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{table}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {}, UID in object meta: {actual}",
        clip(wanted)
    )
}

/// `Status` of a deletion that left no object.
pub(super) fn deleted(res: &Resource, name: &str, uid: &str) -> Value {
    let mut details = details(&res.group, &res.plural, name);
    if let Some(map) = details.as_object_mut() {
        map.insert("uid".into(), uid.into());
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}
