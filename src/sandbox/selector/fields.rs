//! Field selectors: on names and on the few fields that a kind offers.

use super::super::object::{Field, Object};
use super::super::status::{ApiError, clip};

/// All terms must hold.
#[derive(Debug, Clone, Default)]
pub(in crate::sandbox) struct FieldSelector(Vec<Term>);

#[derive(Debug, Clone)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads `spec.nodeName=a,status.phase!=Failed`.
    pub(in crate::sandbox) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            // The first operator decides, as in `fields.splitTerm`.
            let Some((field, equal, value)) = split_operator(&part) else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{}'; can't understand '{}'",
                    clip(text),
                    clip(&part)
                )));
            };
            terms.push(Term {
                field: field.to_owned(),
                equal,
                value: unescape(value),
            });
        }
        Ok(FieldSelector(terms))
    }

    /// Whether it selects everything.
    pub(in crate::sandbox) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Resolves field names against what a kind supports; an unknown one is a 400.
    pub(in crate::sandbox) fn resolve(
        &self,
        fields: &'static [Field],
        events_view: bool,
    ) -> Result<FieldMatcher, ApiError> {
        let mut terms = Vec::new();
        for term in &self.0 {
            let which = match term.field.as_str() {
                "metadata.name" => Which::Name,
                "metadata.namespace" => Which::Namespace,
                name => {
                    let name = if events_view {
                        core_event_field(name)
                    } else {
                        name.to_owned()
                    };
                    let Some(index) = fields.iter().position(|f| f.name == name) else {
                        let field = clip(&term.field);
                        return Err(ApiError::bad_request(if fields.is_empty() {
                            format!(
                                "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                            )
                        } else {
                            format!("field label not supported: {field}")
                        }));
                    };
                    Which::Index(index)
                }
            };
            terms.push((which, term.equal, term.value.clone()));
        }
        Ok(FieldMatcher(terms))
    }
}

/// The core name of an `events.k8s.io` field.
fn core_event_field(name: &str) -> String {
    match name {
        "reportingController" => "reportingComponent".to_owned(),
        _ => match name.strip_prefix("regarding.") {
            Some(rest) => format!("involvedObject.{rest}"),
            None => name.to_owned(),
        },
    }
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Name,
    Namespace,
    Index(usize),
}

/// A field selector bound to one kind.
#[derive(Debug, Clone, Default)]
pub(in crate::sandbox) struct FieldMatcher(Vec<(Which, bool, String)>);

impl FieldMatcher {
    /// Whether the object satisfies every term.
    pub(in crate::sandbox) fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|(which, equal, value)| {
            let actual = match which {
                Which::Name => object.name(),
                Which::Namespace => object.namespace(),
                Which::Index(index) => object.field(*index),
            };
            (actual == value) == *equal
        })
    }
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(part);
    parts.retain(|p| !p.is_empty());
    parts
}

fn split_operator(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        let (field, rest) = term.split_at_checked(at)?;
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((field, equal, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next()),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::super::tests::object;
    use super::*;

    #[test]
    fn field_selectors_match_and_refuse_unknown_fields() {
        const FIELDS: &[Field] = &[
            Field {
                name: "spec.nodeName",
                pointer: "/spec/nodeName",
                absent: "",
            },
            Field {
                name: "status.phase",
                pointer: "/status/phase",
                absent: "",
            },
        ];
        let object = object(json!({}));
        let selects = |text: &str| {
            FieldSelector::parse(text)
                .unwrap()
                .resolve(FIELDS, false)
                .unwrap()
                .matches(&object)
        };
        assert!(selects(
            "spec.nodeName=n1,status.phase!=Failed,metadata.namespace=team-a"
        ));
        assert!(selects("metadata.name==p"));
        assert!(!selects("spec.nodeName="));
        let unknown = FieldSelector::parse("spec.x=1")
            .unwrap()
            .resolve(FIELDS, false);
        assert_eq!(unknown.unwrap_err().code, 400);
        assert_eq!(FieldSelector::parse("nonsense").unwrap_err().code, 400);
    }
}
