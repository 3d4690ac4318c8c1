//! Between the version an object is stored in and the version a request speaks.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::object::{self, Object};
use super::resources::Resource;

/// Fields that core/v1 and events.k8s.io/v1 name differently: (core, events).
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn is_events_view(res: &Resource) -> bool {
    res.group == "events.k8s.io" && res.plural == "events"
}

/// Whether stored JSON can be sent as it is.
fn is_stored_form(res: &Resource) -> bool {
    !is_events_view(res) && res.version == res.stored_version
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

/// Turns an object of the request's version into the stored form.
pub(super) fn to_stored(res: &Resource, object: &mut Value) {
    if is_stored_form(res) {
        return;
    }
    let Some(map) = object.as_object_mut() else {
        return;
    };
    if is_events_view(res) {
        for (core, events) in EVENT_FIELDS {
            rename(map, events, core);
        }
        map.insert("apiVersion".into(), "v1".into());
    } else {
        map.insert(
            "apiVersion".into(),
            format!("{}/{}", res.group, res.stored_version).into(),
        );
    }
}

/// Turns a stored object into the request's version.
pub(super) fn to_served(res: &Resource, object: &mut Value) {
    if is_stored_form(res) {
        return;
    }
    let Some(map) = object.as_object_mut() else {
        return;
    };
    if is_events_view(res) {
        for (core, events) in EVENT_FIELDS {
            rename(map, core, events);
        }
    }
    map.insert("apiVersion".into(), res.api_version().into());
}

/// The JSON of a stored object as the request's version has it.
pub(super) fn render(res: &Resource, object: &Object) -> Bytes {
    if is_stored_form(res) {
        return object.json.clone();
    }
    let mut value = object.value();
    to_served(res, &mut value);
    // Serialising a JSON value into memory does not fail.
    Bytes::from(object::compact(&value).unwrap_or_default())
}
