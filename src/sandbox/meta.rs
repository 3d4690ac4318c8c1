//! `ObjectMeta`: what is well formed, what the server sets.

use serde_json::{Map, Value};

use super::resources::Resource;
use super::status::{ApiError, Cause, clip};

pub(super) const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const LABEL_KEY_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Longest base of a generated name: 63 less the five characters of the suffix.
const LONGEST_BASE: usize = 58;
/// All annotations of an object together.
const ANNOTATIONS_LIMIT_BYTES: usize = 256 * 1024;

fn is_label(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= 63
        && edge(text.chars().next())
        && edge(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Whether `text` is a DNS-1123 subdomain.
pub(super) fn is_subdomain(text: &str) -> bool {
    let part = |p: &str| {
        let edge =
            |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(p.chars().next())
            && edge(p.chars().next_back())
            && p.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn is_qualified_part(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    (1..=63).contains(&text.len())
        && edge(text.chars().next())
        && edge(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Whether `text` is `[prefix/]name`, the form of label and annotation keys.
pub(super) fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        None => is_qualified_part(text),
        Some((prefix, name)) => is_subdomain(prefix) && is_qualified_part(name),
    }
}

/// Why `name` cannot be one segment of a URL; `None` when it can.
pub(super) fn path_segment_problem(name: &str) -> Option<String> {
    match name {
        "." | ".." => Some(format!("may not be '{name}'")),
        _ => name
            .chars()
            .find(|c| matches!(c, '/' | '%'))
            .map(|c| format!("may not contain '{c}'")),
    }
}

/// Why `name` cannot name an object of this kind; `None` when it can.
fn name_problem(res: &Resource, name: &str) -> Option<String> {
    if res.group == "rbac.authorization.k8s.io" {
        // RBAC names may be anything that fits one path segment.
        return path_segment_problem(name);
    }
    let label = res.is("", "namespaces") || res.is("", "services");
    let limit = if label { 63 } else { 253 };
    if name.len() > limit {
        return Some(format!("must be no more than {limit} characters"));
    }
    if res.is("", "namespaces") && name.contains('.') {
        return Some("must not contain dots".to_owned());
    }
    match label {
        true if !is_label(name) => Some(LABEL_RULE.to_owned()),
        false if !is_subdomain(name) => Some(SUBDOMAIN_RULE.to_owned()),
        _ => None,
    }
}

/// Checks `metadata`'s shape; a wrong type is a 400, as the real decoder answers.
pub(super) fn check_shape(res: &Resource, object: &Value) -> Result<(), ApiError> {
    let fail = |got: &Value, field: &str, wanted: &str| {
        Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: json: cannot unmarshal {} into Go struct field ObjectMeta.{field} of type {wanted}",
            res.kind,
            res.version,
            res.kind,
            json_type(got)
        )))
    };
    let meta = match object.get("metadata") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(meta)) => meta,
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: json: cannot unmarshal {2} into Go struct field {0}.metadata of type v1.ObjectMeta",
                res.kind,
                res.version,
                json_type(other)
            )));
        }
    };
    for field in [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "selfLink",
    ] {
        match meta.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => return fail(other, &format!("metadata.{field}"), "string"),
        }
    }
    for field in ["labels", "annotations"] {
        match meta.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                if let Some(other) = map.values().find(|v| !v.is_string() && !v.is_null()) {
                    return fail(other, &format!("metadata.{field}"), "string");
                }
            }
            Some(other) => {
                return fail(other, &format!("metadata.{field}"), "map[string]string");
            }
        }
    }
    for (field, wanted) in [
        ("finalizers", "[]string"),
        ("ownerReferences", "[]v1.OwnerReference"),
    ] {
        match meta.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                let good = |v: &&Value| {
                    if field == "finalizers" {
                        v.is_string()
                    } else {
                        v.is_object()
                    }
                };
                if let Some(other) = items.iter().find(|v| !good(v)) {
                    return fail(other, &format!("metadata.{field}"), wanted);
                }
            }
            Some(other) => return fail(other, &format!("metadata.{field}"), wanted),
        }
    }
    for field in ["generation", "deletionGracePeriodSeconds"] {
        match meta.get(field) {
            None | Some(Value::Null) => {}
            Some(value) if value.is_i64() => {}
            Some(other) => return fail(other, &format!("metadata.{field}"), "int64"),
        }
    }
    Ok(())
}

/// Go's word for the type of a JSON value.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Checks name, labels and annotations; all problems in one 422.
pub(super) fn check_values(res: &Resource, meta: &Map<String, Value>) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let text = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default();
    let (name, base) = (text("name"), text("generateName"));
    if !base.is_empty() {
        // A trailing dash is fine in a base: the suffix follows it.
        if let Some(problem) = name_problem(res, &format!("{}a", base)) {
            causes.push(Cause::invalid(
                "metadata.generateName",
                &base.into(),
                &problem,
            ));
        }
    }
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if let Some(problem) = name_problem(res, name) {
        causes.push(Cause::invalid("metadata.name", &name.into(), &problem));
    }
    for (key, value) in meta
        .get("labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if !is_qualified_name(key) {
            causes.push(Cause::invalid(
                "metadata.labels",
                &key.as_str().into(),
                LABEL_KEY_RULE,
            ));
        }
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            causes.push(Cause::invalid(
                "metadata.labels",
                &value.into(),
                "must be no more than 63 bytes",
            ));
        } else if !value.is_empty() && !is_qualified_part(value) {
            causes.push(Cause::invalid(
                "metadata.labels",
                &value.into(),
                LABEL_VALUE_RULE,
            ));
        }
    }
    let mut annotation_bytes = 0;
    for (key, value) in meta
        .get("annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        annotation_bytes += key.len() + value.as_str().unwrap_or_default().len();
        if !is_qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid(
                "metadata.annotations",
                &key.as_str().into(),
                LABEL_KEY_RULE,
            ));
        }
    }
    if annotation_bytes > ANNOTATIONS_LIMIT_BYTES {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes"),
            field: "metadata.annotations".into(),
        });
    }
    let owners = meta.get("ownerReferences").and_then(Value::as_array);
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                causes.push(Cause::required(&path, "must not be empty"));
            }
        }
    }
    check_controllers(meta, &mut causes);
    let finalizers = meta.get("finalizers").and_then(Value::as_array);
    for (index, finalizer) in finalizers.into_iter().flatten().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        if !is_qualified_name(text) {
            causes.push(Cause::invalid(
                "metadata.finalizers",
                finalizer,
                LABEL_KEY_RULE,
            ));
        } else if !text.contains('/')
            && !matches!(text, "orphan" | "foregroundDeletion" | "kubernetes")
        {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(
                &format!("metadata.finalizers[{index}]"),
                finalizer,
                why,
            ));
        }
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(res, name, causes))
    }
}

/// At most one owner is the controller.
fn check_controllers(meta: &Map<String, Value>, causes: &mut Vec<Cause>) {
    let owners = meta.get("ownerReferences").and_then(Value::as_array);
    let owners = owners.map(Vec::as_slice).unwrap_or_default();
    let mut controllers = owners
        .iter()
        .filter(|o| o.get("controller").and_then(Value::as_bool) == Some(true));
    let (Some(first), Some(second)) = (controllers.next(), controllers.next()) else {
        return;
    };
    let text = |owner: &Value, field: &str| {
        let text = owner.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let named = |owner: &Value| format!("{}/{}", text(owner, "kind"), text(owner, "name"));
    // In the order of Go's struct.
    let shown: Vec<String> = owners
        .iter()
        .map(|owner| {
            let members = [
                "apiVersion",
                "kind",
                "name",
                "uid",
                "controller",
                "blockOwnerDeletion",
            ];
            let members = members
                .iter()
                .filter_map(|field| Some(format!("{field:?}:{}", owner.get(*field)?)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        })
        .collect();
    causes.push(Cause {
        reason: "FieldValueInvalid",
        message: format!(
            "Invalid value: [{}]: Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            clip(&shown.join(",")),
            named(first),
            named(second)
        ),
        field: "metadata.ownerReferences".into(),
    });
}

/// The base of a generated name, cut so that the suffix fits.
pub(super) fn generated(base: &str, suffix: &str) -> String {
    let cut = (0..=base.len().min(LONGEST_BASE))
        .rev()
        .find(|i| base.is_char_boundary(*i))
        .unwrap_or(0);
    format!("{}{suffix}", base.get(..cut).unwrap_or_default())
}

/// Drops what is empty in `metadata`, as Go leaves it out.
pub(super) fn drop_empty(meta: &mut Map<String, Value>) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match meta.get(field) {
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            _ => false,
        };
        if empty {
            meta.remove(field);
        }
    }
}

/// Drops every null member: Go's typed decoding leaves none.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let mut nulls = false;
            for value in map.values_mut() {
                nulls |= value.is_null();
                drop_nulls(value);
            }
            // Taking out walks the whole tree of the map, and hardly any has nulls.
            if nulls {
                map.retain(|_, v| !v.is_null());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// `metadata` of an object, made if missing. `None` only where the object is no JSON object.
pub(super) fn of(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object
        .as_object_mut()?
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

/// Checks `apiVersion` and `kind` against the endpoint and fills them in where they are missing.
pub(super) fn check_type(res: &Resource, object: &mut Value) -> Result<(), ApiError> {
    // Go reads null as an object without members.
    if object.is_null() {
        *object = Value::Object(Map::new());
    }
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            res.kind,
            json_type(object)
        )));
    };
    let wanted = res.api_version();
    let given = |field: &str| match map.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(ApiError::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of type string",
            json_type(other)
        ))),
    };
    let (version, kind) = (given("apiVersion")?, given("kind")?);
    if res.custom && kind.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing",
            res.kind
        )));
    }
    if !version.is_empty() && version != wanted {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({wanted})",
            clip(&version)
        )));
    }
    if !kind.is_empty() && kind != res.kind {
        return Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}",
            clip(&kind),
            res.version,
            res.kind
        )));
    }
    map.insert("apiVersion".into(), wanted.into());
    map.insert("kind".into(), res.kind.clone().into());
    Ok(())
}
