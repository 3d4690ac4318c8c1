//! Writes JSON as YAML for reading: every text cleaned, line breaks kept as block texts.

use serde_json::Value;

use crate::model::clean;

/// The longest line of a text that is shown whole.
const MAX_LINE: usize = 4_096;
/// Deeper levels are left out.
const MAX_DEPTH: usize = 100;

/// The value as YAML text. No control or bidi character is in it but the line ends.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(list) if !list.is_empty() => block(value, 0, &mut out),
        scalar => {
            inline(scalar, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn block(value: &Value, depth: usize, out: &mut String) {
    if depth > MAX_DEPTH {
        indent(depth, out);
        out.push_str("# deeper levels are not shown\n");
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                indent(depth, out);
                entry(key, value, depth, out);
            }
        }
        Value::Array(list) => {
            for value in list {
                indent(depth, out);
                item(value, depth, out);
            }
        }
        _ => {}
    }
}

/// `key: value`; the indentation is already written.
fn entry(key: &str, value: &Value, depth: usize, out: &mut String) {
    out.push_str(&scalar_text(key));
    out.push(':');
    if is_block(value) {
        out.push('\n');
        // Lists are written at the level of their key, as kubectl does.
        let depth = depth + usize::from(value.is_object());
        block(value, depth, out);
    } else {
        out.push(' ');
        inline(value, depth + 1, out);
        out.push('\n');
    }
}

/// `- value`; the indentation is already written.
fn item(value: &Value, depth: usize, out: &mut String) {
    out.push('-');
    match value {
        Value::Object(map) if !map.is_empty() && depth < MAX_DEPTH => {
            out.push(' ');
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 {
                    indent(depth + 1, out);
                }
                entry(key, value, depth + 1, out);
            }
        }
        _ if is_block(value) => {
            out.push('\n');
            block(value, depth + 1, out);
        }
        scalar => {
            out.push(' ');
            inline(scalar, depth + 1, out);
            out.push('\n');
        }
    }
}

fn inline(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&n.to_string()),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(text) if text.contains('\n') => {
            out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
            for line in text.trim_end_matches('\n').split('\n') {
                out.push('\n');
                indent(depth, out);
                out.push_str(&clean(line.trim_end_matches('\r'), MAX_LINE));
            }
        }
        Value::String(text) => out.push_str(&scalar_text(text)),
    }
}

/// A text on one line, quoted where YAML would read something else.
fn scalar_text(raw: &str) -> String {
    let text = clean(raw, MAX_LINE);
    let plain_start = text
        .chars()
        .next()
        .is_some_and(|c| c.is_alphanumeric() || matches!(c, '/' | '_' | '.' | '(' | '<' | '^'));
    let means_something = matches!(
        text.to_ascii_lowercase().as_str(),
        "" | "~"
            | "null"
            | "true"
            | "false"
            | "yes"
            | "no"
            | "on"
            | "off"
            | "y"
            | "n"
            | ".nan"
            | ".inf"
    ) || text.parse::<f64>().is_ok()
        || text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let plain = plain_start
        && !means_something
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with(':')
        && !text.ends_with(' ');
    if plain {
        return text.into_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn as_kubectl_writes_it() {
        let value = json!({
            "a": {"b": [1, {"c": "x", "d": []}, [2]], "e": {}},
            "multi": "one\ntwo\n", "num": "007", "bool": "yes", "colon": "a: b", "empty": "",
            "url": "https://x/y#z", "bad": "\u{1b}[31m\u{202e}", "q": "say \"hi\"",
        });
        let expected = r#"a:
  b:
  - 1
  - c: x
    d: []
  -
    - 2
  e: {}
bad: "�[31m�"
bool: "yes"
colon: "a: b"
empty: ""
multi: |
  one
  two
num: "007"
q: say "hi"
url: https://x/y#z
"#;
        assert_eq!(to_yaml(&value), expected);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z0-9:#\\-\\.\"\\\\ '{}\\[\\]&*!|>%@`,?=~]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-zA-Z0-9./\\- :#]{1,8}", inner, 0..5)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_back(value in any_value()) {
            let text = to_yaml(&value);
            let back: Value = serde_saphyr::from_str(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
            prop_assert_eq!(back, value, "{}", text);
        }
    }
}
