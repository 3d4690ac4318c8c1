//! What the user may do: asked from the server, so that a disabled key can say why.

use std::time::Duration;

use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};

use super::http::{Api, ApiError};
use super::source::ClientSource;
use crate::model::{Str, clean};
use crate::plan::Verb;

/// Longest that one review may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Reviews under way at once.
const CONCURRENCY: usize = 8;

/// Whether something is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Right {
    /// Yes.
    Allowed,
    /// No.
    Denied {
        /// A sentence that names the missing right and its place.
        why: Str,
    },
    /// The server could not be asked or did not say.
    Unknown {
        /// Why not.
        why: Str,
    },
}

impl Right {
    /// Why a key is disabled; `None` when it is not.
    pub fn obstacle(&self) -> Option<&Str> {
        match self {
            Right::Allowed => None,
            Right::Denied { why } | Right::Unknown { why } => Some(why),
        }
    }
}

fn place(namespace: Option<&str>) -> String {
    match namespace {
        Some(ns) => format!("in namespace {ns}"),
        None => "in all namespaces".to_owned(),
    }
}

fn split(resource: &str) -> (&str, &str) {
    resource.split_once('/').unwrap_or((resource, ""))
}

/// Asks for each right with a SelfSubjectAccessReview: exact for every kind of authoriser.
/// `namespace: None` asks for all namespaces at once. The order of the answer is that of `verbs`.
pub async fn check(
    source: &ClientSource,
    verbs: &[Verb],
    namespace: Option<&str>,
) -> Vec<(Verb, Right)> {
    futures::stream::iter(verbs.iter().copied())
        .map(|verb| async move { (verb, check_one(source, verb, namespace).await) })
        .buffered(CONCURRENCY)
        .collect()
        .await
}

async fn check_one(source: &ClientSource, verb: Verb, namespace: Option<&str>) -> Right {
    let (resource, subresource) = split(verb.resource);
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"group": verb.group, "resource": resource,
            "subresource": subresource, "verb": verb.verb, "namespace": namespace.unwrap_or("")}},
    });
    let (api, _) = source.current();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    match api.send(Method::POST, path, &body, LIMIT).await {
        Err(e) => Right::Unknown {
            why: clean(&format!("cannot tell whether you may {verb}: {e}"), 400).into(),
        },
        Ok(answer) => {
            let status = |key: &str| answer.pointer(&format!("/status/{key}"));
            if status("allowed") == Some(&Value::Bool(true)) {
                return Right::Allowed;
            }
            let reason = status("reason").and_then(Value::as_str).unwrap_or("");
            let mut why = format!("you may not {verb} {}", place(namespace));
            if !reason.is_empty() {
                why.push_str(": ");
                why.push_str(reason);
            }
            Right::Denied {
                why: clean(&why, 400).into(),
            }
        }
    }
}

/// All rights of the user in one namespace, from one request.
#[derive(Clone, Debug)]
pub struct Rules {
    namespace: Str,
    rules: Vec<Rule>,
    incomplete: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    /// Limited to named objects: says nothing about the others.
    named: bool,
}

/// Asks for all rights in a namespace (SelfSubjectRulesReview).
///
/// # Errors
/// The server could not be asked.
pub async fn rules(source: &ClientSource, namespace: &str) -> Result<Rules, ApiError> {
    let (api, _) = source.current();
    rules_from(&api, namespace).await
}

async fn rules_from(api: &Api, namespace: &str) -> Result<Rules, ApiError> {
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = api.send(Method::POST, path, &body, LIMIT).await?;
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        rule.get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    let listed = answer
        .pointer("/status/resourceRules")
        .and_then(Value::as_array);
    Ok(Rules {
        namespace: clean(namespace, 253).into(),
        rules: listed
            .into_iter()
            .flatten()
            .map(|rule| Rule {
                groups: texts(rule, "apiGroups"),
                resources: texts(rule, "resources"),
                verbs: texts(rule, "verbs"),
                named: !texts(rule, "resourceNames").is_empty(),
            })
            .collect(),
        incomplete: answer.pointer("/status/incomplete") == Some(&Value::Bool(true)),
    })
}

impl Rules {
    /// Whether they allow `verb`. When the server's list is incomplete (a webhook authoriser), a
    /// right that is not in it is unknown, not denied.
    pub fn right(&self, verb: &Verb) -> Right {
        let has = |list: &[String], wanted: &str| list.iter().any(|x| x == "*" || x == wanted);
        let (resource, subresource) = split(verb.resource);
        let covers = |r: &str| {
            r == "*"
                || r == verb.resource
                || (!subresource.is_empty()
                    && (r == format!("*/{subresource}") || r == format!("{resource}/*")))
        };
        let allowed = self.rules.iter().any(|rule| {
            !rule.named
                && has(&rule.groups, verb.group)
                && has(&rule.verbs, verb.verb)
                && rule.resources.iter().any(|r| covers(r))
        });
        if allowed {
            Right::Allowed
        } else if self.incomplete {
            Right::Unknown {
                why: format!(
                    "the server does not list all rights, and {verb} in namespace {} is not among them",
                    self.namespace
                )
                .into(),
            }
        } else {
            Right::Denied {
                why: format!("you may not {verb} in namespace {}", self.namespace).into(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use super::super::fake;
    use super::*;

    const BIND: Verb = Verb {
        group: "",
        resource: "pods/binding",
        verb: "create",
    };
    const LIST: Verb = Verb {
        group: "batch",
        resource: "jobs",
        verb: "list",
    };

    fn source(code: u16, status: Value) -> ClientSource {
        let client = fake::client(move |request| {
            let status = status.clone();
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut body: Value = serde_json::from_slice(&body).unwrap();
                // The reviewer answers by resource when the status is a map of resources.
                let resource = body
                    .pointer("/spec/resourceAttributes/resource")
                    .and_then(Value::as_str)
                    .unwrap_or("");
                let answer = status.get(resource).unwrap_or(&status).clone();
                body["status"] = answer;
                Ok(fake::reply(code, body.to_string()))
            }
        });
        ClientSource::fixed(client, "https://fake")
    }

    #[tokio::test]
    async fn a_denied_right_is_named_with_its_place() {
        let source = source(
            201,
            json!({"pods": {"allowed": false, "reason": "no RBAC policy matched"}, "jobs": {"allowed": true}}),
        );
        let rights = check(&source, &[BIND, LIST], Some("team-a")).await;
        assert_eq!(
            rights.first().unwrap().1,
            Right::Denied {
                why: "you may not create pods/binding in namespace team-a: no RBAC policy matched"
                    .into()
            }
        );
        assert_eq!(rights.last().unwrap(), &(LIST, Right::Allowed));
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_asked_denies_nothing() {
        let source = source(503, json!({}));
        let rights = check(&source, &[BIND], None).await;
        assert!(matches!(rights.first().unwrap().1, Right::Unknown { .. }));
    }

    #[tokio::test]
    async fn rules_with_wildcards_and_names() {
        let rules = |rule: Value, incomplete: bool| async move {
            let s = source(
                201,
                json!({"resourceRules": [rule], "incomplete": incomplete}),
            );
            super::rules(&s, "ns").await.unwrap()
        };
        for (resources, allowed) in [
            ("*", true),
            ("pods", false),
            ("pods/binding", true),
            ("pods/*", true),
            ("*/binding", true),
        ] {
            let rule = json!({"apiGroups": [""], "resources": [resources], "verbs": ["create"]});
            let right = rules(rule, false).await.right(&BIND);
            assert_eq!(right == Right::Allowed, allowed, "{resources}");
        }
        let named =
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["x"]});
        assert!(matches!(
            rules(named.clone(), false).await.right(&BIND),
            Right::Denied { .. }
        ));
        assert!(matches!(
            rules(named, true).await.right(&BIND),
            Right::Unknown { .. }
        ));
    }
}
