//! The members that an object of a built-in kind has at its top, and what becomes of others.

use serde_json::Value;

use super::query::Query;
use super::resources::Resource;
use super::status::{ApiError, Cause, clip};

/// Members of a kind besides type and metadata; `None` where they are not told here.
fn members(res: &Resource) -> Option<&'static [&'static str]> {
    Some(match &*res.plural {
        _ if res.custom || res.review => return None,
        "events" => return None,
        "configmaps" => &["data", "binaryData", "immutable"],
        "secrets" => &["data", "stringData", "type", "immutable"],
        "serviceaccounts" => &[
            "secrets",
            "imagePullSecrets",
            "automountServiceAccountToken",
        ],
        "endpoints" => &["subsets"],
        "podtemplates" => &["template"],
        "controllerrevisions" => &["data", "revision"],
        "roles" => &["rules"],
        "clusterroles" => &["rules", "aggregationRule"],
        "rolebindings" | "clusterrolebindings" => &["subjects", "roleRef"],
        "priorityclasses" => &["value", "globalDefault", "description", "preemptionPolicy"],
        "limitranges"
        | "leases"
        | "resourceclaimtemplates"
        | "resourceslices"
        | "deviceclasses" => &["spec"],
        _ => &["spec", "status"],
    })
}

/// Drops what the kind does not have, as Go's decoder does; under `fieldValidation=Strict` it is
/// refused. `options` is the request's kind of options, as `CreateOptions`.
pub(super) fn check(
    res: &Resource,
    query: &Query,
    options: &str,
    object: &mut Value,
) -> Result<(), ApiError> {
    let strict = match query.get("fieldValidation") {
        None | Some("Ignore" | "Warn") => false,
        Some("Strict") => true,
        Some(other) => {
            let cause = Cause {
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: {:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
                    clip(other)
                ),
                field: "fieldValidation".into(),
            };
            return Err(ApiError::invalid_options(options, vec![cause]));
        }
    };
    let (Some(known), Some(map)) = (members(res), object.as_object_mut()) else {
        return Ok(());
    };
    let known =
        |name: &str| matches!(name, "apiVersion" | "kind" | "metadata") || known.contains(&name);
    if strict {
        let unknown: Vec<String> = map
            .keys()
            .filter(|name| !known(name))
            .map(|name| format!("unknown field {:?}", clip(name)))
            .collect();
        if !unknown.is_empty() {
            return Err(ApiError::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: strict decoding error: {2}",
                res.kind,
                res.version,
                unknown.join(", ")
            )));
        }
    }
    map.retain(|name, _| known(name));
    Ok(())
}
