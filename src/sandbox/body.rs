//! Request bodies: JSON, YAML and protobuf into JSON values.

use serde_json::Value;

use super::protobuf;
use super::resources::Resource;
use super::status::{ApiError, clip};

/// The deepest JSON that the real server reads.
const DEEPEST: usize = 10_000;
/// What lies deeper than this is in no field that a kind has, and is left out: reading it would
/// take a stack that grows with what a client sends.
const KEPT_DEPTH: usize = 100;
/// How much of a body is told in an error.
const TOLD_BYTES: usize = 30;

/// Reads a body under its media type as an object of `kind`.
pub(super) fn decode(content_type: &str, body: &[u8], kind: &str) -> Result<Value, ApiError> {
    let unrecognized = |why: String| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why}"
        ))
    };
    match content_type {
        "" | "application/json" => json(body).and_then(object).map_err(|why| {
            unrecognized(format!(
                "couldn't get version/kind; json parse error: {why} ({})",
                told(body)
            ))
        }),
        "application/yaml" => {
            yaml(body).map_err(|why| unrecognized(format!("yaml: {why} ({})", told(body))))
        }
        protobuf::MEDIA_TYPE => protobuf::decode(body, kind),
        _ => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// An object, or null, which Go reads as one without members.
fn object(value: Value) -> Result<Value, String> {
    if value.is_object() || value.is_null() {
        return Ok(value);
    }
    Err(format!(
        "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        super::meta::json_type(&value)
    ))
}

/// Reads JSON. The error is told in the words of Go's decoder where those are known.
pub(super) fn json(body: &[u8]) -> Result<Value, String> {
    use serde_json::error::Category;
    let (text, deepest) = flattened(body);
    if deepest > DEEPEST {
        return Err("invalid character '[' exceeded max depth".into());
    }
    serde_json::from_slice(&text).map_err(|error| match error.classify() {
        Category::Eof => "unexpected end of JSON input".into(),
        _ => {
            let told = error.to_string();
            let at = text
                .split(|b| *b == b'\n')
                .nth(error.line().saturating_sub(1))
                .and_then(|line| line.get(error.column().saturating_sub(1)));
            match at {
                Some(byte) if told.starts_with("trailing characters") => {
                    format!(
                        "invalid character '{}' after top-level value",
                        char::from(*byte)
                    )
                }
                _ => told,
            }
        }
    })
}

/// Refuses what lies too deep where a kind may hold any JSON and it would be lost without a word;
/// other kinds have no field there, and what they do not have is dropped by the real server too.
pub(super) fn check_depth(res: &Resource, body: &[u8]) -> Result<(), ApiError> {
    let holds_any = res.custom
        || res.group == "resource.k8s.io"
        || matches!(
            res.plural.as_str(),
            "customresourcedefinitions" | "controllerrevisions"
        );
    if holds_any && matches!(flattened(body).0, std::borrow::Cow::Owned(_)) {
        return Err(ApiError::bad_request(format!(
            "the object is nested deeper than the {KEPT_DEPTH} levels that the embedded cluster keeps"
        )));
    }
    Ok(())
}

/// Reads YAML, of which JSON is a part.
pub(super) fn yaml(body: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(text).map_err(|error| clip(&error.to_string()))
}

/// The beginning of a body as errors show it: an object as text, anything else as bytes.
pub(super) fn told(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".into();
    }
    let head = body.get(..TOLD_BYTES).unwrap_or(body);
    let mut text = if body.trim_ascii_start().starts_with(b"{") {
        String::from_utf8_lossy(head).into_owned()
    } else {
        head.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    if head.len() < body.len() {
        text.push_str(" ...");
    }
    text
}

/// The text with `null` for what lies too deep, and how deep it went.
fn flattened(body: &[u8]) -> (std::borrow::Cow<'_, [u8]>, usize) {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    let mut kept: Option<Vec<u8>> = None;
    for (index, byte) in body.iter().enumerate() {
        let was_deep = depth > KEPT_DEPTH;
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => in_text = true,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        deepest = deepest.max(depth);
        let is_deep = depth > KEPT_DEPTH;
        match (was_deep, is_deep) {
            (false, true) => kept
                .get_or_insert_with(|| body.get(..index).unwrap_or_default().to_vec())
                .extend_from_slice(b"null"),
            (false, false) => {
                if let Some(kept) = &mut kept {
                    kept.push(*byte);
                }
            }
            (true, _) => {}
        }
    }
    // Brackets left open at the end must stay an error.
    match kept {
        Some(kept) if depth <= KEPT_DEPTH => (kept.into(), deepest),
        _ => (body.into(), deepest),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn nested(levels: usize) -> String {
        format!(
            "{{\"a\":1,\"z\":{}{}}}",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    }

    #[test]
    fn deep_json_is_read_without_its_depths() {
        let value = json(nested(9_000).as_bytes()).unwrap();
        assert_eq!(value["a"], 1);
        assert!(value["z"].is_array());
        assert!(json(nested(10_001).as_bytes()).is_err());
        assert!(json("[".repeat(5_000).as_bytes()).is_err());
        assert_eq!(json(b"{\"a\":\"[[[\"}").unwrap()["a"], "[[[");
    }

    #[test]
    fn what_would_be_lost_is_refused() {
        use crate::sandbox::resources::Registry;
        let registry = Registry::built_in();
        let of = |group, version, plural| registry.find(group, version, plural).unwrap();
        let deep = nested(200);
        let slices = of("resource.k8s.io", "v1", "resourceslices");
        let error = check_depth(&slices, deep.as_bytes()).unwrap_err();
        assert!(error.message.contains("100 levels"), "{}", error.message);
        assert!(check_depth(&slices, nested(90).as_bytes()).is_ok());
        assert!(check_depth(&of("", "v1", "configmaps"), deep.as_bytes()).is_ok());
    }

    #[test]
    fn errors_show_the_beginning_of_the_body() {
        assert_eq!(told(b""), "<empty>");
        assert_eq!(told(b"[]"), "5b5d");
        assert_eq!(told(b"{}"), "{}");
        assert!(told(&[b'7'; 99]).ends_with(" ..."));
    }
}
