//! The `meta.k8s.io/v1` Table that kubectl asks for: one row an object, its cells made here.

mod age;
mod cells;

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Map, Value, json};

use super::object::text;
use super::query::Query;
use super::resources::Resource;
use super::serve::{Answer, Body};
use super::status::{ApiError, Cause, clip};

/// The columns of the built-in kinds, by store table, as kube-apiserver 1.37 defines them.
static COLUMNS: LazyLock<HashMap<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("columns.json")).unwrap_or_default());

/// How a request wants its Table.
#[derive(Debug, Clone)]
pub(super) struct TableRequest {
    include: Include,
}

/// What a row holds besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Include {
    Nothing,
    Metadata,
    Object,
}

/// Whether the first thing the client accepts is a Table.
pub(super) fn wanted(headers: &HeaderMap, query: &Query) -> Result<Option<TableRequest>, ApiError> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let first = accept.split(',').next().unwrap_or_default();
    let mut parts = first.split(';').map(str::trim);
    let json = parts.next() == Some("application/json");
    let named = |wanted: &str| first.split(';').any(|part| part.trim() == wanted);
    if !json || !named("as=Table") || !named("v=v1") || !named("g=meta.k8s.io") {
        return Ok(None);
    }
    let include = match query.get("includeObject") {
        None | Some("Metadata") => Include::Metadata,
        Some("None") => Include::Nothing,
        Some("Object") => Include::Object,
        Some(other) => {
            return Err(ApiError::invalid_options(
                "TableOptions",
                vec![Cause {
                    reason: "FieldValueNotSupported",
                    message: format!(
                        "Unsupported value: {:?}: supported values: \"\", \"Metadata\", \"None\", \"Object\"",
                        clip(other)
                    ),
                    field: "includeObject".into(),
                }],
            ));
        }
    };
    Ok(Some(TableRequest { include }))
}

/// Turns the answer of a get, list or watch into a Table, or a stream of them.
pub(super) async fn tabled(
    request: TableRequest,
    res: &Resource,
    now: jiff::Timestamp,
    verb: &str,
    answer: Answer,
) -> Answer {
    let printer = Printer {
        request,
        columns: columns(res),
        cells: cells::of(res),
        now,
        api_version: res.api_version(),
        kind: res.kind.clone(),
    };
    match answer {
        Answer::Stream(body) if verb == "watch" => Answer::Stream(printer.stream(body)),
        Answer::Stream(body) => {
            // The body is made of memory and never fails.
            let bytes = body.collect().await.map(|all| all.to_bytes());
            printer.whole(200, &bytes.unwrap_or_default())
        }
        Answer::Bytes(code, bytes) => printer.whole(code, &bytes),
        Answer::Value(code, value) => Answer::Value(code, printer.table(&value, true)),
        other => other,
    }
}

struct Printer {
    request: TableRequest,
    columns: Value,
    cells: cells::Cells,
    now: jiff::Timestamp,
    api_version: String,
    kind: String,
}

impl Printer {
    fn whole(&self, code: u16, bytes: &[u8]) -> Answer {
        let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        Answer::Value(code, self.table(&value, true))
    }

    /// Turns each event of a watch; the first one names the columns.
    fn stream(self, body: Body) -> Body {
        let mut first = true;
        let frames = body.into_data_stream().map(move |frame| {
            let bytes = frame?;
            let mut out = BytesMut::new();
            for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
                out.put_slice(&self.event(line, &mut first));
                out.put_u8(b'\n');
            }
            Ok(http_body::Frame::data(out.freeze()))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    fn event(&self, line: &[u8], first: &mut bool) -> Bytes {
        let Ok(mut event) = serde_json::from_slice::<Value>(line) else {
            return Bytes::copy_from_slice(line);
        };
        let plain = text(&event, "/type") == "ERROR";
        if let (Some(object), false) = (event.get_mut("object"), plain) {
            *object = self.table(object, std::mem::take(first));
        }
        event.to_string().into()
    }

    fn table(&self, value: &Value, with_columns: bool) -> Value {
        let items = value.get("items").and_then(Value::as_array);
        let rows: Vec<Value> = match items {
            Some(items) => items.iter().map(|item| self.row(item)).collect(),
            None => vec![self.row(value)],
        };
        let mut metadata = Map::new();
        for field in ["resourceVersion", "continue", "remainingItemCount"] {
            let value = value.get("metadata").and_then(|m| m.get(field));
            if let Some(value) = value.filter(|value| *value != "") {
                metadata.insert(field.into(), value.clone());
            }
        }
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": if with_columns { self.columns.clone() } else { Value::Null },
            "rows": rows,
        })
    }

    fn row(&self, object: &Value) -> Value {
        let mut row = json!({"cells": self.cells.make(object, self.now)});
        let shown = match self.request.include {
            Include::Nothing => None,
            Include::Metadata => Some(json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object.get("metadata"),
            })),
            Include::Object => {
                let mut object = object.clone();
                if let Some(map) = object.as_object_mut() {
                    map.entry("apiVersion")
                        .or_insert_with(|| self.api_version.clone().into());
                    map.entry("kind")
                        .or_insert_with(|| self.kind.clone().into());
                }
                Some(object)
            }
        };
        if let Some(map) = row.as_object_mut() {
            if let Some(conditions) = self.cells.conditions(object) {
                map.insert("conditions".into(), conditions);
            }
            if let Some(shown) = shown {
                map.insert("object".into(), shown);
            }
        }
        row
    }
}

/// The column definitions of a kind.
fn columns(res: &Resource) -> Value {
    if let Some(columns) = COLUMNS.get(&*res.table).filter(|_| !res.custom) {
        return columns.clone();
    }
    let of_pods = COLUMNS.get("/pods");
    let name = of_pods.and_then(|c| c.get(0)).cloned();
    let mut columns = vec![name.unwrap_or_default()];
    if res.columns.is_empty() {
        let mut age = of_pods.and_then(|c| c.get(4)).cloned().unwrap_or_default();
        if res.custom
            && let Some(map) = age.as_object_mut()
        {
            map.insert("type".into(), "date".into());
        }
        columns.push(age);
    }
    for column in res.columns.iter() {
        let path = text(column, "/jsonPath");
        let description = match text(column, "/description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            own => own.to_owned(),
        };
        columns.push(json!({
            "name": text(column, "/name"),
            "type": text(column, "/type"),
            "format": text(column, "/format"),
            "description": description,
            "priority": column.get("priority").and_then(Value::as_i64).unwrap_or(0),
        }));
    }
    columns.into()
}
