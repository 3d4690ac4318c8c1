//! The members that an object of a built-in kind has, and what becomes of others.

use std::collections::BTreeSet;

use serde_json::Value;

use super::resources::Resource;
use super::serve::Call;
use super::status::{ApiError, Cause, clip};
use super::strict;

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

/// Drops what the kind does not have at its top, as Go's decoder does; under
/// `fieldValidation=Strict` that is refused, at any depth, and so is what is named twice. `options`
/// is the request's kind of options, as `CreateOptions`.
pub(super) fn check(call: &Call, options: &str, object: &mut Value) -> Result<(), ApiError> {
    let res = &*call.res;
    let strict = match call.query.get("fieldValidation") {
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
    if strict {
        refuse_unknown(call, object)?;
    }
    let (Some(known), Some(map)) = (members(res), object.as_object_mut()) else {
        return Ok(());
    };
    let known =
        |name: &str| matches!(name, "apiVersion" | "kind" | "metadata") || known.contains(&name);
    map.retain(|name, _| known(name));
    Ok(())
}

fn refuse_unknown(call: &Call, object: &Value) -> Result<(), ApiError> {
    let res = &*call.res;
    let mut unknown: BTreeSet<String> = strict::unknown(res, object).into_iter().collect();
    if let (Some(known), Some(map)) = (members(res), object.as_object()) {
        let own = ["apiVersion", "kind", "metadata"];
        let others = map
            .keys()
            .filter(|name| !own.contains(&name.as_str()) && !known.contains(&name.as_str()));
        unknown.extend(others.cloned());
    }
    let unknown = unknown
        .iter()
        .map(|path| format!("unknown field {:?}", clip(path)));
    // Of a patch only the result is looked at.
    let twice = match call.content_type.as_str() {
        "" | "application/json" => strict::duplicates(&call.body),
        _ => Vec::new(),
    };
    let twice = twice
        .iter()
        .map(|path| format!("duplicate field {:?}", clip(path)));
    let faults: Vec<String> = unknown.chain(twice).collect();
    if faults.is_empty() {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "{0} in version {1:?} cannot be handled as a {0}: strict decoding error: {2}",
        res.kind,
        res.version,
        faults.join(", ")
    )))
}
