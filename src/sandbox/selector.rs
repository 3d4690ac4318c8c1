//! Label and field selectors, in the grammar of `k8s.io/apimachinery`.

mod fields;

use serde_json::Value;

pub(super) use self::fields::{FieldMatcher, FieldSelector};
use super::object::Object;
use super::status::{ApiError, clip};

/// One condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Greater(String, i64),
    Less(String, i64),
}

impl Requirement {
    fn matches<'v>(&self, get: &impl Fn(&str) -> Option<&'v str>) -> bool {
        let number = |label: &str| get(label).and_then(|v| v.parse::<i64>().ok());
        match self {
            Requirement::In(label, set) => get(label).is_some_and(|v| set.iter().any(|s| s == v)),
            // An absent label satisfies `!=` and `notin`.
            Requirement::NotIn(label, set) => {
                get(label).is_none_or(|v| !set.iter().any(|s| s == v))
            }
            Requirement::Exists(label) => get(label).is_some(),
            Requirement::Absent(label) => get(label).is_none(),
            Requirement::Greater(label, bound) => number(label).is_some_and(|n| n > *bound),
            Requirement::Less(label, bound) => number(label).is_some_and(|n| n < *bound),
        }
    }
}

/// All conditions must hold; the empty selector selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Reads `a=b,c in (d,e),!f`.
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let fail = |why: &str| ApiError::bad_request(format!("unable to parse requirement: {why}"));
        let tokens = tokens(text);
        let mut rest = tokens.as_slice();
        let mut requirements = Vec::new();
        while !rest.is_empty() {
            let (requirement, after) = requirement(rest).map_err(|why| fail(&why))?;
            requirements.push(requirement);
            rest = match after {
                [] => after,
                [Token::Comma] => return Err(fail("found ',', expected: identifier after ','")),
                [Token::Comma, more @ ..] => more,
                [other, ..] => {
                    return Err(ApiError::bad_request(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.text()
                    )));
                }
            };
        }
        Ok(LabelSelector(requirements))
    }

    /// From a `metav1.LabelSelector` (matchLabels, matchExpressions). `None` when it is malformed.
    pub(super) fn from_object(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (label, value) in labels {
                requirements.push(Requirement::In(
                    label.clone(),
                    vec![value.as_str()?.to_owned()],
                ));
            }
        }
        if let Some(expressions) = selector.get("matchExpressions").and_then(Value::as_array) {
            for expression in expressions {
                let label = expression.get("key")?.as_str()?.to_owned();
                let values: Vec<String> = expression
                    .get("values")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(|v| v.as_str().map(str::to_owned))
                    .collect();
                requirements.push(match expression.get("operator")?.as_str()? {
                    "In" => Requirement::In(label, values),
                    "NotIn" => Requirement::NotIn(label, values),
                    "Exists" => Requirement::Exists(label),
                    "DoesNotExist" => Requirement::Absent(label),
                    _ => return None,
                });
            }
        }
        Some(LabelSelector(requirements))
    }

    /// Whether the object's labels satisfy it.
    pub(super) fn matches(&self, object: &Object) -> bool {
        self.0
            .iter()
            .all(|r| r.matches(&|label| object.label(label)))
    }

    /// Whether labels of a JSON object satisfy it.
    pub(super) fn matches_labels(&self, labels: Option<&Value>) -> bool {
        let label = |name: &str| labels?.get(name)?.as_str();
        self.0.iter().all(|r| r.matches(&label))
    }

    /// Whether it selects everything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token<'t> {
    Word(&'t str),
    Comma,
    Open,
    Close,
    Bang,
    Equal,
    NotEqual,
    Greater,
    Less,
}

impl Token<'_> {
    /// As it was written, cut to a size that fits a message.
    fn text(&self) -> String {
        match self {
            Token::Word(word) => clip(word),
            Token::Comma => ",".into(),
            Token::Open => "(".into(),
            Token::Close => ")".into(),
            Token::Bang => "!".into(),
            Token::Equal => "=".into(),
            Token::NotEqual => "!=".into(),
            Token::Greater => ">".into(),
            Token::Less => "<".into(),
        }
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return found;
        };
        let (token, used) = match first {
            ',' => (Token::Comma, 1),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '>' => (Token::Greater, 1),
            '<' => (Token::Less, 1),
            '!' if rest.starts_with("!=") => (Token::NotEqual, 2),
            '!' => (Token::Bang, 1),
            '=' if rest.starts_with("==") => (Token::Equal, 2),
            '=' => (Token::Equal, 1),
            _ => {
                let end = rest
                    .find(|c: char| c.is_whitespace() || ",()!=<>".contains(c))
                    .unwrap_or(rest.len());
                (Token::Word(rest.get(..end).unwrap_or_default()), end)
            }
        };
        found.push(token);
        rest = rest.get(used..).unwrap_or_default();
    }
}

fn requirement<'r, 't>(tokens: &'r [Token<'t>]) -> Result<(Requirement, &'r [Token<'t>]), String> {
    match tokens {
        [Token::Bang, Token::Word(label), rest @ ..] => {
            Ok((Requirement::Absent(label_key(label)?), rest))
        }
        [
            Token::Word(label),
            Token::Word(op @ ("in" | "notin")),
            Token::Open,
            rest @ ..,
        ] => {
            let (values, rest) = value_set(rest)?;
            let label = label_key(label)?;
            let requirement = if *op == "in" {
                Requirement::In(label, values)
            } else {
                Requirement::NotIn(label, values)
            };
            Ok((requirement, rest))
        }
        [Token::Word(label), Token::Equal, rest @ ..] => {
            let (value, rest) = value(rest)?;
            Ok((Requirement::In(label_key(label)?, vec![value]), rest))
        }
        [Token::Word(label), Token::NotEqual, rest @ ..] => {
            let (value, rest) = value(rest)?;
            Ok((Requirement::NotIn(label_key(label)?, vec![value]), rest))
        }
        [
            Token::Word(label),
            op @ (Token::Greater | Token::Less),
            Token::Word(bound),
            rest @ ..,
        ] => {
            let bound = bound
                .parse()
                .map_err(|_| "for 'Gt', 'Lt' operators, the value must be an integer".to_owned())?;
            let label = label_key(label)?;
            let requirement = if *op == Token::Greater {
                Requirement::Greater(label, bound)
            } else {
                Requirement::Less(label, bound)
            };
            Ok((requirement, rest))
        }
        [Token::Word(label), rest @ ..] if matches!(rest, [] | [Token::Comma, ..]) => {
            Ok((Requirement::Exists(label_key(label)?), rest))
        }
        [Token::Word(_), next, ..] => Err(format!(
            "found '{}', expected: in, notin, =, ==, !=, gt, lt",
            next.text()
        )),
        [first, ..] => Err(format!(
            "found '{}', expected: !, identifier, or 'end of string'",
            first.text()
        )),
        [] => Err("expected: identifier".to_owned()),
    }
}

/// The value behind `=`; nothing there is the empty value.
fn value<'r, 't>(tokens: &'r [Token<'t>]) -> Result<(String, &'r [Token<'t>]), String> {
    match tokens {
        [Token::Word(value), rest @ ..] => {
            label_value(value)?;
            Ok(((*value).to_owned(), rest))
        }
        [] | [Token::Comma, ..] => Ok((String::new(), tokens)),
        [other, ..] => Err(format!("found '{}', expected: identifier", other.text())),
    }
}

fn value_set<'r, 't>(mut rest: &'r [Token<'t>]) -> Result<(Vec<String>, &'r [Token<'t>]), String> {
    let mut values = Vec::new();
    loop {
        match rest {
            [Token::Word(value), more @ ..] => {
                label_value(value)?;
                values.push((*value).to_owned());
                rest = more;
            }
            _ => values.push(String::new()),
        }
        match rest {
            [Token::Comma, more @ ..] => rest = more,
            [Token::Close, more @ ..] => return Ok((values, more)),
            _ => return Err("expected: ',' or ')'".to_owned()),
        }
    }
}

fn label_key(label: &str) -> Result<String, String> {
    let name = label.rsplit('/').next().unwrap_or_default();
    let well_formed = !name.is_empty()
        && name.len() <= 63
        && label.len() <= 317
        && label.matches('/').count() <= 1
        && label
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    if well_formed {
        Ok(label.to_owned())
    } else {
        Err(format!("Invalid label key {:?}", clip(label)))
    }
}

fn label_value(value: &str) -> Result<(), String> {
    let well_formed = value.len() <= 63
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if well_formed {
        Ok(())
    } else {
        Err(format!("Invalid label value {:?}", clip(value)))
    }
}

/// A LabelSelector object (or a plain map of labels) as one line of text.
pub(super) fn to_text(selector: &serde_json::Value) -> String {
    let plain = selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let labels = if plain {
        Some(selector)
    } else {
        selector.get("matchLabels")
    };
    let mut parts = Vec::new();
    for (name, value) in labels
        .and_then(serde_json::Value::as_object)
        .into_iter()
        .flatten()
    {
        parts.push(format!("{name}={}", value.as_str().unwrap_or_default()));
    }
    let rules = selector
        .get("matchExpressions")
        .and_then(serde_json::Value::as_array);
    for rule in rules.into_iter().flatten() {
        let text = |name: &str| {
            rule.get(name)
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
        };
        let values = rule.get("values").and_then(serde_json::Value::as_array);
        let values: Vec<&str> = values
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_str())
            .collect();
        let (key, values) = (text("key"), values.join(","));
        parts.push(match text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::super::object::Field;
    use super::*;

    pub(super) fn object(labels: Value) -> Object {
        let mut value =
            json!({"metadata": {"name": "p", "labels": labels}, "spec": {"nodeName": "n1"}});
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
        Object::new("team-a/p".into(), 7, &mut value, FIELDS).unwrap()
    }

    fn selects(selector: &str) -> bool {
        let object = object(json!({"app": "train", "rank": "3", "empty": ""}));
        LabelSelector::parse(selector).unwrap().matches(&object)
    }

    #[test]
    fn label_selectors_follow_the_grammar() {
        for yes in [
            "",
            "app=train",
            "app==train",
            "app!=serve",
            "absent!=x",
            "app in (serve, train)",
            "app notin (serve)",
            "absent notin (a)",
            "app",
            "!absent",
            "empty=",
            "rank>2",
            "rank<4",
            "app=train,rank=3",
            "empty in (,a)",
            " app = train , rank ",
        ] {
            assert!(selects(yes), "{yes}");
        }
        for no in [
            "app=serve",
            "!app",
            "absent",
            "rank>3",
            "app in (a)",
            "absent>1",
            "app=train,!rank",
        ] {
            assert!(!selects(no), "{no}");
        }
        for bad in [
            "app in (a",
            "app in",
            "=x",
            "a=b=c",
            "app,",
            "a b",
            "(a)",
            "app>x",
            "a/b/c=d",
            "a=b/c",
        ] {
            let error = LabelSelector::parse(bad).unwrap_err();
            assert_eq!(error.code, 400, "{bad}");
        }
    }
}
