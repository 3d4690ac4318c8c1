//! Node selectors and tolerations as Kubernetes evaluates them.
//!
//! Source: k8s.io/component-helpers/scheduling/corev1 (nodeaffinity, ToleratesTaint) and
//! k8s.io/apimachinery labels.Requirement.

use crate::model::{MatchExpression, Node, Operator, Selector, SelectorTerm, Taint, Toleration};

/// Whether an expression is one that Kubernetes can parse; a term with another one never matches.
fn is_valid(e: &MatchExpression) -> bool {
    match e.operator {
        Operator::In | Operator::NotIn => !e.values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => e.values.is_empty(),
        Operator::Gt | Operator::Lt => matches!(&*e.values, [one] if integer(one).is_some()),
    }
}

fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn label_matches(e: &MatchExpression, label: Option<&str>) -> bool {
    let among = |v: &str| e.values.iter().any(|x| **x == *v);
    let compare = |wanted: std::cmp::Ordering| {
        let bound = e.values.first().and_then(|v| integer(v));
        match (label.and_then(integer), bound) {
            (Some(value), Some(bound)) => value.cmp(&bound) == wanted,
            _ => false,
        }
    };
    match e.operator {
        Operator::In => label.is_some_and(among),
        Operator::NotIn => label.is_none_or(|v| !among(v)),
        Operator::Exists => label.is_some(),
        Operator::DoesNotExist => label.is_none(),
        Operator::Gt => compare(std::cmp::Ordering::Greater),
        Operator::Lt => compare(std::cmp::Ordering::Less),
    }
}

/// Only `metadata.name` with `In` or `NotIn` of exactly one value exists among fields.
fn field_matches(e: &MatchExpression, node: &Node) -> bool {
    let [value] = &*e.values else {
        return false;
    };
    if &*e.key != "metadata.name" {
        return false;
    }
    match e.operator {
        Operator::In => *value == node.meta.name,
        Operator::NotIn => *value != node.meta.name,
        _ => false,
    }
}

/// Whether an expression on a label holds; one that Kubernetes cannot parse never does.
pub(super) fn expression_matches(e: &MatchExpression, label: Option<&str>) -> bool {
    is_valid(e) && label_matches(e, label)
}

fn term_matches(term: &SelectorTerm, node: &Node) -> bool {
    if term.labels.is_empty() && term.fields.is_empty() {
        return false;
    }
    term.labels
        .iter()
        .all(|e| expression_matches(e, node.meta.label(&e.key)))
        && term.fields.iter().all(|e| field_matches(e, node))
}

/// Whether one of the terms matches; no terms match nothing, an empty term matches nothing.
pub(super) fn selects(selector: &Selector, node: &Node) -> bool {
    selector.terms.iter().any(|t| term_matches(t, node))
}

/// Whether one toleration covers the taint.
pub(super) fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|t| {
        t.effect.is_none_or(|e| e == taint.effect)
            && t.key
                .as_ref()
                .is_none_or(|k| k.is_empty() || *k == taint.key)
            && t.value.as_ref().is_none_or(|v| *v == taint.value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Meta, Str, TaintEffect};

    fn node() -> Node {
        Node {
            meta: Meta {
                name: "n1".into(),
                labels: [("big", "99x"), ("gpus", "8"), ("model", "h100")]
                    .map(|(k, v)| (Str::from(k), Str::from(v)))
                    .into(),
                ..Meta::default()
            },
            ..Node::default()
        }
    }

    fn expr(key: &str, operator: Operator, values: &[&str]) -> MatchExpression {
        MatchExpression {
            key: key.into(),
            operator,
            values: values.iter().map(|v| Str::from(*v)).collect(),
        }
    }

    fn label_term(e: MatchExpression) -> SelectorTerm {
        SelectorTerm {
            labels: [e].into(),
            ..SelectorTerm::default()
        }
    }

    #[test]
    fn operators_on_labels() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        for (key, operator, values, expected) in [
            ("model", In, vec!["a100", "h100"], true),
            ("model", In, vec!["a100"], false),
            ("absent", In, vec![""], false),
            ("model", In, vec![], false),
            ("model", NotIn, vec!["h100"], false),
            ("absent", NotIn, vec!["h100"], true),
            ("model", NotIn, vec![], false),
            ("model", Exists, vec![], true),
            ("model", Exists, vec!["h100"], false),
            ("absent", Exists, vec![], false),
            ("absent", DoesNotExist, vec![], true),
            ("model", DoesNotExist, vec![], false),
            ("gpus", Gt, vec!["7"], true),
            ("gpus", Gt, vec!["8"], false),
            ("gpus", Gt, vec!["-1"], true),
            ("gpus", Lt, vec!["9"], true),
            ("gpus", Lt, vec!["9", "10"], false),
            ("gpus", Gt, vec!["7.5"], false),
            ("gpus", Gt, vec![], false),
            ("model", Gt, vec!["1"], false),
            ("big", Lt, vec!["100"], false),
            ("absent", Lt, vec!["100"], false),
            ("gpus", Lt, vec!["99999999999999999999"], false),
        ] {
            let s = Selector {
                terms: [label_term(expr(key, operator, &values))].into(),
            };
            assert_eq!(
                selects(&s, &node()),
                expected,
                "{key} {operator:?} {values:?}"
            );
        }
    }

    #[test]
    fn fields_know_only_the_name() {
        use Operator::{Exists, In, NotIn};
        for (key, operator, values, expected) in [
            ("metadata.name", In, vec!["n1"], true),
            ("metadata.name", In, vec!["n2"], false),
            ("metadata.name", NotIn, vec!["n2"], true),
            ("metadata.name", NotIn, vec!["n1"], false),
            ("metadata.name", In, vec!["n1", "n2"], false),
            ("metadata.name", Exists, vec![], false),
            ("metadata.namespace", NotIn, vec!["x"], false),
        ] {
            let s = Selector {
                terms: [SelectorTerm {
                    fields: [expr(key, operator, &values)].into(),
                    ..SelectorTerm::default()
                }]
                .into(),
            };
            assert_eq!(
                selects(&s, &node()),
                expected,
                "{key} {operator:?} {values:?}"
            );
        }
    }

    #[test]
    fn terms_are_alternatives_and_empty_ones_match_nothing() {
        let hit = label_term(expr("model", Operator::Exists, &[]));
        let miss = label_term(expr("model", Operator::DoesNotExist, &[]));
        let broken = label_term(expr("model", Operator::Gt, &["x"]));
        let both = SelectorTerm {
            labels: hit.labels.clone(),
            fields: [expr("metadata.name", Operator::In, &["n2"])].into(),
        };
        for (terms, expected) in [
            (vec![], false),
            (vec![SelectorTerm::default()], false),
            (vec![miss.clone(), hit.clone()], true),
            (vec![broken, hit], true),
            (vec![SelectorTerm::default(), miss], false),
            (vec![both], false),
        ] {
            let s = Selector {
                terms: terms.clone().into(),
            };
            assert_eq!(selects(&s, &node()), expected, "{terms:?}");
        }
    }

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint = Taint {
            key: "k".into(),
            value: "v".into(),
            effect: TaintEffect::NoExecute,
        };
        let t = |key: Option<&str>, value: Option<&str>, effect| Toleration {
            key: key.map(Into::into),
            value: value.map(Into::into),
            effect,
        };
        for (toleration, expected) in [
            (t(Some("k"), Some("v"), None), true),
            (t(Some("k"), None, None), true),
            (t(None, None, None), true),
            (t(Some("k"), Some("w"), None), false),
            (t(Some("k"), Some(""), None), false),
            (t(Some("j"), None, None), false),
            (t(Some("k"), None, Some(TaintEffect::NoSchedule)), false),
            (t(Some("k"), None, Some(TaintEffect::NoExecute)), true),
        ] {
            assert_eq!(
                tolerates(std::slice::from_ref(&toleration), &taint),
                expected,
                "{toleration:?}"
            );
        }
        assert!(!tolerates(&[], &taint));
    }
}
