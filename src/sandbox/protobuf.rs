//! Kubernetes protobuf bodies, decoded to JSON for the few kinds that kubectl posts that way.
//!
//! Field numbers are those of the `generated.proto` files of `k8s.io/api` 1.37.

mod kinds;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::clock;
use super::status::ApiError;

/// The media type.
pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What a field holds.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    /// A number that Go holds by value: zero is left out.
    Int,
    /// A number that Go holds by pointer: zero means something.
    IntPtr,
    Bool,
    /// A truth that Go holds by value: false is left out.
    Flag,
    Texts,
    /// Quantities by name.
    Amounts,
    /// Read over.
    Skip,
    /// `map<string, string>`.
    TextMap,
    /// `metav1.Time`.
    Time,
    /// `metav1.MicroTime`.
    MicroTime,
    Message(&'static [Field]),
    Messages(&'static [Field]),
}

type Field = (u64, &'static str, Kind);

use Kind::{Bool, Int, IntPtr, Message, Messages, MicroTime, Skip, Text, TextMap, Texts, Time};

const OWNER: &[Field] = &[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", Bool),
    (7, "blockOwnerDeletion", Bool),
];
const META: &[Field] = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Skip),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Int),
    (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time),
    (10, "deletionGracePeriodSeconds", IntPtr),
    (11, "labels", TextMap),
    (12, "annotations", TextMap),
    (13, "ownerReferences", Messages(OWNER)),
    (14, "finalizers", Texts),
    (17, "managedFields", Skip),
];
const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", IntPtr),
    (
        2,
        "preconditions",
        Message(&[(1, "uid", Text), (2, "resourceVersion", Text)]),
    ),
    (3, "orphanDependents", Bool),
    (4, "propagationPolicy", Text),
    (5, "dryRun", Texts),
];
const REFERENCE: &[Field] = &[
    (1, "kind", Text),
    (2, "namespace", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "resourceVersion", Text),
    (7, "fieldPath", Text),
];
const RESOURCE: &[Field] = &[
    (1, "namespace", Text),
    (2, "verb", Text),
    (3, "group", Text),
    (4, "version", Text),
    (5, "resource", Text),
    (6, "subresource", Text),
    (7, "name", Text),
];
const PATH: &[Field] = &[(1, "path", Text), (2, "verb", Text)];
const SUBJECT: &[Field] = &[
    (1, "resourceAttributes", Message(RESOURCE)),
    (2, "nonResourceAttributes", Message(PATH)),
    (3, "user", Text),
    (4, "groups", Texts),
    (6, "uid", Text),
];
const SOURCE: &[Field] = &[(1, "component", Text), (2, "host", Text)];
const SERIES: &[Field] = &[(1, "count", Int), (2, "lastObservedTime", MicroTime)];
const LEASE: &[Field] = &[
    (1, "holderIdentity", Text),
    (2, "leaseDurationSeconds", IntPtr),
    (3, "acquireTime", MicroTime),
    (4, "renewTime", MicroTime),
    (5, "leaseTransitions", IntPtr),
];
const CORE_EVENT: &[Field] = &[
    (1, "metadata", Message(META)),
    (2, "involvedObject", Message(REFERENCE)),
    (3, "reason", Text),
    (4, "message", Text),
    (5, "source", Message(SOURCE)),
    (6, "firstTimestamp", Time),
    (7, "lastTimestamp", Time),
    (8, "count", Int),
    (9, "type", Text),
    (10, "eventTime", MicroTime),
    (11, "series", Message(SERIES)),
    (12, "action", Text),
    (13, "related", Message(REFERENCE)),
    (14, "reportingComponent", Text),
    (15, "reportingInstance", Text),
];
const EVENT: &[Field] = &[
    (1, "metadata", Message(META)),
    (2, "eventTime", MicroTime),
    (3, "series", Message(SERIES)),
    (4, "reportingController", Text),
    (5, "reportingInstance", Text),
    (6, "action", Text),
    (7, "reason", Text),
    (8, "regarding", Message(REFERENCE)),
    (9, "related", Message(REFERENCE)),
    (10, "note", Text),
    (11, "type", Text),
    (12, "deprecatedSource", Message(SOURCE)),
    (13, "deprecatedFirstTimestamp", Time),
    (14, "deprecatedLastTimestamp", Time),
    (15, "deprecatedCount", Int),
];

/// The fields of a kind that is taken as protobuf.
fn schema(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("policy/v1", "Eviction") => &[
            (1, "metadata", Message(META)),
            (2, "deleteOptions", Message(DELETE_OPTIONS)),
        ],
        ("v1", "Binding") => &[
            (1, "metadata", Message(META)),
            (2, "target", Message(REFERENCE)),
        ],
        ("v1", "Namespace") => &[(1, "metadata", Message(META))],
        ("v1" | "meta.k8s.io/v1" | "policy/v1" | "apps/v1" | "batch/v1", "DeleteOptions") => {
            DELETE_OPTIONS
        }
        ("v1", "Event") => CORE_EVENT,
        ("events.k8s.io/v1", "Event") => EVENT,
        ("coordination.k8s.io/v1", "Lease") => {
            &[(1, "metadata", Message(META)), (2, "spec", Message(LEASE))]
        }
        ("authentication.k8s.io/v1", "SelfSubjectReview") => &[(1, "metadata", Message(META))],
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => &[
            (1, "metadata", Message(META)),
            (2, "spec", Message(&[(1, "namespace", Text)])),
        ],
        (
            "authorization.k8s.io/v1",
            "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview",
        ) => &[
            (1, "metadata", Message(META)),
            (2, "spec", Message(SUBJECT)),
        ],
        _ => return None,
    })
}

/// Decodes a body meant as `wanted`: 415 for a kind that is not taken as protobuf, 400 for broken
/// bytes.
pub(super) fn decode(body: &[u8], wanted: &str) -> Result<Value, ApiError> {
    let fault = |why: &str| {
        let shown = super::body::told(body);
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {wanted}): {why} ({shown})"
        ))
    };
    let broken = || fault("the protobuf message cannot be decoded");
    let envelope = body.strip_prefix(b"k8s\0").ok_or_else(|| {
        fault("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    })?;
    if envelope.is_empty() {
        return Err(fault("empty body"));
    }
    // runtime.Unknown: the type, then the object's bytes.
    const TYPE: &[Field] = &[(1, "apiVersion", Text), (2, "kind", Text)];
    let (mut object_type, mut raw) = (Value::Null, &[][..]);
    for item in items(envelope) {
        match item.ok_or_else(broken)? {
            (1, Wire::Bytes(bytes)) => {
                object_type = message(bytes, TYPE, false).ok_or_else(broken)?
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let text = |field: &str| {
        object_type
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (version, kind) = (text("apiVersion"), text("kind"));
    let whole = kinds::schema(version, kind);
    let fields = whole
        .or_else(|| schema(version, kind))
        .ok_or_else(|| ApiError::unsupported_media_type("application/json"))?;
    let mut object = message(raw, fields, whole.is_some()).ok_or_else(broken)?;
    if let (Some(map), Some(more)) = (object.as_object_mut(), object_type.as_object()) {
        map.extend(
            more.iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    }
    Ok(object)
}

/// A field's value as it is on the wire.
enum Wire<'b> {
    Varint(u64),
    Bytes(&'b [u8]),
    Fixed,
}

/// Splits a message into its fields; one `None` where it is broken.
fn items(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u64, Wire<'_>)>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let item = item(&mut bytes);
        if item.is_none() {
            bytes = &[];
        }
        Some(item)
    })
}

fn item<'b>(bytes: &mut &'b [u8]) -> Option<(u64, Wire<'b>)> {
    let tag = varint(bytes)?;
    let mut take = |length: usize| {
        let (head, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        Some(head)
    };
    let wire = match tag & 7 {
        0 => Wire::Varint(varint(bytes)?),
        1 => take(8).map(|_| Wire::Fixed)?,
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (head, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Wire::Bytes(head)
        }
        5 => take(4).map(|_| Wire::Fixed)?,
        _ => return None,
    };
    Some((tag >> 3, wire))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn message(bytes: &[u8], fields: &[Field], whole: bool) -> Option<Value> {
    let mut map = Map::new();
    for item in items(bytes) {
        let (number, wire) = item?;
        let Some((_, name, kind)) = fields.iter().find(|(n, ..)| *n == number) else {
            if whole {
                return None;
            }
            continue;
        };
        match (kind, wire) {
            (Text, Wire::Bytes(bytes)) => {
                let text = std::str::from_utf8(bytes).ok()?;
                if !text.is_empty() {
                    map.insert((*name).into(), text.into());
                }
            }
            (Int | IntPtr, Wire::Varint(value)) => {
                // Negative numbers are sign-extended to 64 bits on the wire.
                let value = value.cast_signed();
                if value != 0 || matches!(kind, IntPtr) {
                    map.insert((*name).into(), value.into());
                }
            }
            (Bool, Wire::Varint(value)) => {
                map.insert((*name).into(), (value != 0).into());
            }
            (Kind::Flag, Wire::Varint(value)) => {
                if value != 0 {
                    map.insert((*name).into(), true.into());
                }
            }
            (Skip, _) => {}
            (Kind::Amounts, Wire::Bytes(bytes)) => {
                const ENTRY: &[Field] = &[
                    (1, "key", Text),
                    (2, "value", Message(&[(1, "text", Text)])),
                ];
                let entry = message(bytes, ENTRY, false)?;
                let key = entry.get("key")?.as_str()?.to_owned();
                let amount = entry.pointer("/value/text").cloned();
                let slot = map
                    .entry(*name)
                    .or_insert_with(|| Value::Object(Map::new()));
                let amount = amount.unwrap_or_else(|| "0".into());
                slot.as_object_mut()?.insert(key, amount);
            }
            (Texts, Wire::Bytes(bytes)) => {
                push(&mut map, name, std::str::from_utf8(bytes).ok()?.into());
            }
            (TextMap, Wire::Bytes(bytes)) => {
                let (key, value) = pair(bytes)?;
                let slot = map
                    .entry(*name)
                    .or_insert_with(|| Value::Object(Map::new()));
                slot.as_object_mut()?.insert(key, value.into());
            }
            (Time | MicroTime, Wire::Bytes(bytes)) => {
                if let Some(at) = time(bytes)? {
                    let text = match kind {
                        Time => clock::time(at),
                        _ => clock::micro_time(at),
                    };
                    map.insert((*name).into(), text.into());
                }
            }
            (Message(fields), Wire::Bytes(bytes)) => {
                map.insert((*name).into(), message(bytes, fields, whole)?);
            }
            (Messages(fields), Wire::Bytes(bytes)) => {
                let value = message(bytes, fields, whole)?;
                push(&mut map, name, value);
            }
            _ => return None,
        }
    }
    Some(map.into())
}

fn push(map: &mut Map<String, Value>, name: &str, value: Value) {
    let slot = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if let Some(list) = slot.as_array_mut() {
        list.push(value);
    }
}

fn pair(bytes: &[u8]) -> Option<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    for item in items(bytes) {
        match item? {
            (1, Wire::Bytes(bytes)) => key = std::str::from_utf8(bytes).ok()?.to_owned(),
            (2, Wire::Bytes(bytes)) => value = std::str::from_utf8(bytes).ok()?.to_owned(),
            _ => {}
        }
    }
    Some((key, value))
}

/// The inner `None` is Go's zero time, an empty message.
fn time(bytes: &[u8]) -> Option<Option<Timestamp>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    for item in items(bytes) {
        match item? {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(value)) => nanos = value.cast_signed(),
            _ => {}
        }
    }
    Some(Some(
        Timestamp::new(seconds, i32::try_from(nanos).ok()?).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut all = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        all.extend_from_slice(bytes);
        all
    }

    fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let names = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &names), field(2, raw)].concat()
    }

    #[test]
    fn an_eviction_decodes() {
        let meta = [
            field(1, b"p"),
            field(3, b"default"),
            field(11, &[field(1, b"a"), field(2, b"b")].concat()),
        ];
        // gracePeriodSeconds 0, present.
        let options = [vec![1 << 3, 0], field(5, b"All")].concat();
        let raw = [field(1, &meta.concat()), field(2, &options)].concat();
        assert_eq!(
            decode(&envelope("policy/v1", "Eviction", &raw), "Eviction").unwrap(),
            json!({"apiVersion": "policy/v1", "kind": "Eviction",
                   "metadata": {"name": "p", "namespace": "default", "labels": {"a": "b"}},
                   "deleteOptions": {"gracePeriodSeconds": 0, "dryRun": ["All"]}})
        );
    }

    #[test]
    fn other_kinds_and_broken_bytes_are_refused() {
        assert_eq!(
            decode(&envelope("v1", "Pod", b""), "Pod").unwrap_err().code,
            415
        );
        assert_eq!(decode(b"{}", "Pod").unwrap_err().code, 400);
        assert_eq!(
            decode(
                &envelope("policy/v1", "Eviction", &[0x0a, 0xff]),
                "Eviction"
            )
            .unwrap_err()
            .code,
            400
        );
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[b"k8s\0".as_slice(), &bytes].concat(), "Eviction");
            for (version, kind) in [("v1", "Event"), ("coordination.k8s.io/v1", "Lease")] {
                if bytes.len() < 120 {
                    let _ = decode(&envelope(version, kind, &bytes), kind);
                }
            }
        }
    }
}
