//! What a list page and a watch line hold, with the objects still as raw JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize, Default)]
struct PageMeta {
    #[serde(rename = "resourceVersion")]
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
/// A list page.
pub(in crate::cluster) struct Page<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    metadata: Option<PageMeta>,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

impl<'a> Page<'a> {
    /// Reads a page; `Err` says in words why it is none.
    pub(in crate::cluster) fn read(text: &'a str) -> Result<Self, String> {
        let page: Page<'a> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let kind = page.kind.as_deref().unwrap_or("");
        if page.items.is_none() && !kind.ends_with("List") {
            return Err(if kind.is_empty() {
                "it is no list of objects".to_owned()
            } else {
                format!("expected a list, found a {kind}")
            });
        }
        Ok(page)
    }

    pub(in crate::cluster) fn items(&self) -> &[&'a RawValue] {
        self.items.as_deref().unwrap_or(&[])
    }

    /// The version to watch from; empty when the server states none.
    pub(super) fn resource_version(&self) -> &str {
        self.metadata
            .as_ref()
            .and_then(|m| m.resource_version.as_deref())
            .unwrap_or("")
    }

    /// The token of the next page.
    pub(in crate::cluster) fn next(&self) -> Option<&str> {
        self.metadata
            .as_ref()
            .and_then(|m| m.next.as_deref())
            .filter(|n| !n.is_empty())
    }
}

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The version that an object or bookmark states.
pub(super) fn version_of(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Versioned {
        metadata: PageMeta,
    }
    serde_json::from_str::<Versioned>(json)
        .ok()?
        .metadata
        .resource_version
        .filter(|v| !v.is_empty())
}

/// Code and message of a Status object, whatever types a broken server gave them.
pub(super) fn status_of(json: &str) -> (u16, String) {
    let value: Value = serde_json::from_str(json).unwrap_or(Value::Null);
    let code = match value.get("code") {
        Some(Value::Number(n)) => n.as_u64().and_then(|n| u16::try_from(n).ok()),
        Some(Value::String(s)) => s.parse().ok(),
        _ => None,
    };
    let message = match value.get("message") {
        Some(Value::String(s)) => s.clone(),
        Some(other) => other.to_string(),
        None => "no reason given".to_owned(),
    };
    (code.unwrap_or(0), message)
}
