//! CustomResourceDefinitions: an installed one is served at once.

use serde_json::{Value, json};

use super::Inner;
use super::object::text;
use super::resources::{Resource, StatusRule, table_id};
use super::status::{ApiError, Cause};

/// Checks what the server needs of a definition; all problems in one 422.
pub(super) fn validate(res: &Resource, crd: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let name = text(crd, "/metadata/name");
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    for (field, value) in [
        ("spec.group", group),
        ("spec.names.plural", plural),
        ("spec.names.kind", text(crd, "/spec/names/kind")),
    ] {
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    let expected = format!("{plural}.{group}");
    if name != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &name.into(), why));
    }
    let scope = text(crd, "/spec/scope");
    if !matches!(scope, "Namespaced" | "Cluster") {
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: {:?}: supported values: \"Cluster\", \"Namespaced\"",
                super::status::clip(scope)
            ),
            field: "spec.scope".into(),
        });
    }
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let versions = versions.map(Vec::as_slice).unwrap_or_default();
    let stored = versions
        .iter()
        .filter(|v| v.get("storage").and_then(Value::as_bool) == Some(true))
        .count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        let value = crd
            .pointer("/spec/versions")
            .cloned()
            .unwrap_or(Value::Null);
        causes.push(Cause::invalid("spec.versions", &value, why));
    }
    for (index, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(Cause::required(&field, "schemas are required"));
        }
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(res, name, causes))
    }
}

/// Fills in the names that follow from others.
pub(super) fn set_defaults(crd: &mut Value) {
    let kind = text(crd, "/spec/names/kind").to_owned();
    if let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("conversion")
            .or_insert_with(|| json!({"strategy": "None"}));
        if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
            names
                .entry("singular")
                .or_insert_with(|| kind.to_lowercase().into());
            names
                .entry("listKind")
                .or_insert_with(|| format!("{kind}List").into());
        }
    }
}

/// The status of a definition that is served.
pub(super) fn established(crd: &Value, now: &str) -> Value {
    let stored: Vec<&str> = versions(crd)
        .filter(|v| v.get("storage").and_then(Value::as_bool) == Some(true))
        .map(|v| text(v, "/name"))
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
               "lastTransitionTime": now})
    };
    json!({
        "acceptedNames": crd.pointer("/spec/names"),
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    })
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn texts(crd: &Value, pointer: &str) -> Vec<String> {
    let list = crd.pointer(pointer).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect()
}

impl Inner {
    /// Serves the kinds of a definition, in place of what it defined before.
    pub(super) fn install_crd(&self, crd: &Value) {
        let (group, plural) = (
            text(crd, "/spec/group").to_owned(),
            text(crd, "/spec/names/plural").to_owned(),
        );
        let stored_version = versions(crd)
            .find(|v| v.get("storage").and_then(Value::as_bool) == Some(true))
            .map(|v| text(v, "/name").to_owned())
            .unwrap_or_default();
        self.update_registry(|registry| {
            registry.remove_custom(&group, &plural);
            for version in versions(crd) {
                if version.get("served").and_then(Value::as_bool) == Some(false) {
                    continue;
                }
                let has_status = version.pointer("/subresources/status").is_some();
                registry.insert(Resource {
                    group: group.clone(),
                    version: text(version, "/name").to_owned(),
                    kind: text(crd, "/spec/names/kind").to_owned(),
                    list_kind: text(crd, "/spec/names/listKind").to_owned(),
                    plural: plural.clone(),
                    singular: text(crd, "/spec/names/singular").to_owned(),
                    short_names: texts(crd, "/spec/names/shortNames"),
                    categories: texts(crd, "/spec/names/categories"),
                    namespaced: text(crd, "/spec/scope") == "Namespaced",
                    status: if has_status {
                        StatusRule::Reset
                    } else {
                        StatusRule::None
                    },
                    generation: true,
                    table: table_id(&group, &plural),
                    stored_version: stored_version.clone(),
                    fields: &[],
                    custom: true,
                    columns: version
                        .get("additionalPrinterColumns")
                        .and_then(Value::as_array)
                        .map(|columns| columns.as_slice().into())
                        .unwrap_or_default(),
                    schema: version
                        .pointer("/schema/openAPIV3Schema")
                        .map(|schema| std::sync::Arc::new(schema.clone())),
                    review: false,
                });
            }
        });
    }

    /// Stops serving a definition's kinds and drops their objects.
    pub(super) fn remove_crd(&self, crd: &Value) {
        let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
        let table = table_id(group, plural);
        for stored in self.store.all(&table, "") {
            // Another writer may be faster; the table goes either way.
            let _ = self
                .store
                .remove(&table, &stored.key, stored.rv, &mut stored.value());
        }
        self.update_registry(|registry| registry.remove_custom(group, plural));
    }
}
