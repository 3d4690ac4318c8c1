//! What a list page and a watch line hold, with the objects still as raw JSON.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::decode::{Decoder, Object, Standing};
use crate::model::{Kind, Str};

/// Bytes of a page within which its metadata is looked for; a continue token is at most some KiB.
const PEEK: usize = 16 << 10;

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

    /// The token of the next page, read from the page's beginning alone: servers write metadata
    /// first, so the next page can be asked for before this one is decoded. `None` when it cannot
    /// be told so.
    pub(super) fn peek_next(text: &str) -> Option<String> {
        const ITEMS: &str = "\"items\":[";
        let mut end = text.len().min(PEEK);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let head = text.get(..end)?;
        let at = head.find(ITEMS)?;
        // Anything but a page's own list of items does not close into an object here.
        let head = format!("{}{ITEMS}]}}", head.get(..at)?);
        Page::read(&head).ok()?.next().map(str::to_owned)
    }

    pub(in crate::cluster) fn items(&self) -> &[&'a RawValue] {
        self.items.as_deref().unwrap_or(&[])
    }

    fn resource_version(&self) -> &str {
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

/// A list page with its objects decoded.
pub(super) struct Decoded {
    /// The objects, or why one is refused.
    pub(super) items: Vec<Result<Object, Str>>,
    /// The version to watch from; empty when the server states none.
    pub(super) version: String,
    /// The token of the next page.
    pub(super) next: Option<String>,
}

impl Decoded {
    /// Reads a page in one pass where all of it is sound, else object by object; `Err` says in
    /// words why it is none.
    pub(super) fn read(text: &str, kind: Kind, decoder: &mut Decoder) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_str(text);
        if let Ok(page) = WholePage(kind, decoder).deserialize(&mut json)
            && json.end().is_ok()
        {
            return Ok(page);
        }
        let page = Page::read(text)?;
        let decode = |item: &&RawValue| decoder.decode(kind, item.get());
        Ok(Decoded {
            items: page.items().iter().map(decode).collect(),
            version: page.resource_version().to_owned(),
            next: page.next().map(str::to_owned),
        })
    }
}

/// Reads a page and the objects in it; whatever is not as it should be is an error.
struct WholePage<'a>(Kind, &'a mut Decoder);

impl<'de> DeserializeSeed<'de> for WholePage<'_> {
    type Value = Decoded;
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Decoded, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WholePage<'_> {
    type Value = Decoded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Decoded, A::Error> {
        let WholePage(kind, decoder) = self;
        let (mut meta, mut items) = (None::<PageMeta>, None);
        while let Some(key) = access.next_key::<Cow<'_, str>>()? {
            match &*key {
                "metadata" if meta.is_none() => meta = Some(access.next_value()?),
                "items" if items.is_none() => {
                    items = Some(access.next_value_seed(Items(kind, &mut *decoder))?);
                }
                "metadata" | "items" => return Err(A::Error::custom("stated twice")),
                _ => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        let meta = meta.unwrap_or_default();
        Ok(Decoded {
            items: items.ok_or_else(|| A::Error::custom("no items"))?,
            version: meta.resource_version.unwrap_or_default(),
            next: meta.next.filter(|n| !n.is_empty()),
        })
    }
}

struct Items<'a>(Kind, &'a mut Decoder);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = Vec<Result<Object, Str>>;
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Vec<Result<Object, Str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let Items(kind, decoder) = self;
        let mut all = Vec::new();
        while let Some(item) = access.next_element_seed(Standing(kind, &mut *decoder))? {
            all.push(item);
        }
        Ok(all)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_one_broken_object_still_tells_the_others() {
        let pod = |name: &str, spec: &str| {
            format!(r#"{{"metadata":{{"name":"{name}","uid":"{name}"}},"spec":{spec}}}"#)
        };
        let page = |middle: &str| {
            let (a, c) = (pod("a", "{}"), pod("c", "{}"));
            let text = format!(
                r#"{{"kind":"PodList","metadata":{{"resourceVersion":"7"}},"items":[{a},{middle},{c}]}}"#
            );
            let page = Decoded::read(&text, Kind::Pod, &mut Decoder::new()).ok();
            page.map(|p| {
                let names = p
                    .items
                    .into_iter()
                    .map(|i| i.map(|o| o.meta().name.to_string()).ok());
                (names.collect::<Vec<_>>(), p.version)
            })
        };
        let named = |names: [Option<&str>; 3]| {
            Some((names.map(|n| n.map(str::to_owned)).to_vec(), "7".to_owned()))
        };
        let all = named([Some("a"), Some("b"), Some("c")]);
        assert_eq!(page(&pod("b", "{}")), all);
        // A number that no strict parser takes.
        assert_eq!(page(&pod("b", r#"{"priority":1e999}"#)), all);
        let two = named([Some("a"), None, Some("c")]);
        assert_eq!(page("null"), two);
        assert_eq!(page("{}"), two);
        assert_eq!(page(&pod("b", "{")), None);
    }

    #[test]
    fn the_next_page_is_known_from_the_beginning_of_this_one() {
        let first = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"abc"},"items":[{"a":"#;
        assert_eq!(Page::peek_next(first).as_deref(), Some("abc"));
        for unknown in [
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}"#,
            r#"{"kind":"PodList","items":[],"metadata":{"continue":"abc"}}"#,
            r#"{"metadata":{"continue":"abc","x":{"items":[]}},"items":[]}"#,
            r#"{"kind":"PodList","metadata":{"continue":"abc"}}"#,
            "",
        ] {
            assert_eq!(Page::peek_next(unknown), None, "{unknown}");
        }
    }
}
