//! Answers, freed of what no two servers share: times, UIDs, resourceVersions.

use serde_json::{Map, Value, json};

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// Method and path of the call.
    pub(crate) call: String,
    pub(crate) status: u16,
    content_type: Option<String>,
    retry_after: Option<String>,
    /// The JSON; an array of events for a watch, a string for text.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn new(
        call: &str,
        status: u16,
        content_type: Option<String>,
        retry_after: Option<String>,
        bytes: &[u8],
    ) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let events = || -> Option<Value> {
            let lines = text.lines().map(serde_json::from_str);
            let events = lines.collect::<Result<Vec<Value>, _>>().ok()?;
            events
                .iter()
                .all(|e| e.get("object").is_some())
                .then(|| events.into())
        };
        let body = serde_json::from_slice(bytes)
            .ok()
            .filter(|_| !call.contains("watch=true") || status != 200)
            .or_else(events)
            .unwrap_or_else(|| text.into_owned().into());
        Answer {
            call: call.to_owned(),
            status,
            content_type,
            retry_after,
            body,
        }
    }

    pub(crate) fn normalised(mut self) -> Self {
        normalise(&mut self.body);
        self
    }

    fn to_value(&self) -> Value {
        json!({
            "call": self.call,
            "status": self.status,
            "type": self.content_type,
            "retry": self.retry_after,
            "body": self.body,
        })
    }

    #[cfg(feature = "real-cluster")]
    pub(crate) fn to_line(&self) -> String {
        self.to_value().to_string()
    }

    pub(crate) fn from_line(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Answer {
            call: text("call").unwrap(),
            status: value["status"].as_u64().unwrap() as u16,
            content_type: text("type"),
            retry_after: text("retry"),
            body: value["body"].clone(),
        }
    }

    /// What `found` has otherwise, except at the places that are known to differ. Those must
    /// differ if `embedded`; in another run of a real server they may.
    pub(crate) fn faults(
        &self,
        found: &Answer,
        differing: &[String],
        embedded: bool,
    ) -> Vec<String> {
        let mut places = Vec::new();
        let (golden, found) = (self.to_value(), found.to_value());
        differences("", &golden, &found, &mut places);
        // `/` is the whole answer.
        let lies_in = |place: &str, known: &String| {
            let place = place.strip_prefix("/body").unwrap_or(place);
            known == "/" || place.starts_with(known.as_str())
        };
        let known = |place: &str| differing.iter().any(|known| lies_in(place, known));
        let idle = differing
            .iter()
            .filter(|known| embedded && !places.iter().any(|(place, _)| lies_in(place, known)));
        let idle: Vec<String> = idle
            .map(|known| format!("{known} no longer differs"))
            .collect();
        let unknown = places.iter().filter(|(place, _)| !known(place));
        unknown
            .map(|(place, text)| format!("{place}: {text}"))
            .chain(idle)
            .collect()
    }
}

/// Every place where two values differ.
fn differences(at: &str, golden: &Value, found: &Value, places: &mut Vec<(String, String)>) {
    match (golden, found) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let at = format!("{at}/{name}");
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => differences(&at, a, b, places),
                    (a, b) => places.push((at, told(a, b))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}/{index}"), a, b, places);
            }
        }
        (a, b) if a == b => {}
        (a, b) => places.push((at.to_owned(), told(Some(a), Some(b)))),
    }
}

fn told(golden: Option<&Value>, found: Option<&Value>) -> String {
    let cut = |value: Option<&Value>| {
        let text = value.map_or("nothing".to_owned(), Value::to_string);
        text.chars().take(600).collect::<String>()
    };
    format!("\n      real  {}\n      found {}", cut(golden), cut(found))
}

/// Puts `<uid>`, `<rv>`, `<time>` for what every server has of its own.
fn normalise(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            if let Some(Value::Array(entries)) = map.remove("managedFields") {
                let managers = managers(&entries);
                if !managers.is_empty() {
                    map.insert("managedFields".into(), managers.into());
                }
            }
            for (name, value) in map.iter_mut() {
                match (name.as_str(), &*value) {
                    ("resourceVersion", Value::String(_)) => *value = "<rv>".into(),
                    ("continue", Value::String(_)) => *value = "<token>".into(),
                    ("managedFields", _) => {}
                    _ => normalise(value),
                }
            }
            if map.get("kind").is_some_and(|kind| kind == "Table") {
                hide_ages(map);
            }
            let generated = map.get("generateName").and_then(Value::as_str);
            if let Some(name) = generated.map(|base| format!("{base}<suffix>"))
                && map.contains_key("name")
            {
                map.insert("name".into(), name.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::String(text) => *text = normalised_text(text),
        _ => {}
    }
}

/// Who manages what: only server-side apply's entries, which are told by clients; the others name
/// the client's program.
fn managers(entries: &[Value]) -> Vec<Value> {
    let applied = entries.iter().filter(|e| e["operation"] == "Apply");
    let short = |entry: &Value| {
        let mut kept = Map::new();
        for name in [
            "manager",
            "operation",
            "apiVersion",
            "fieldsV1",
            "subresource",
        ] {
            if let Some(value) = entry.get(name) {
                kept.insert(name.into(), value.clone());
            }
        }
        Value::from(kept)
    };
    let mut managers: Vec<Value> = applied.map(short).collect();
    // A server sorts them by time, in seconds.
    managers.sort_by_key(|entry| entry["manager"].to_string());
    managers
}

/// Puts `<age>` into the columns of a table that tell how long ago something was.
fn hide_ages(table: &mut Map<String, Value>) {
    // A watch names the columns only once; there the cells in question are told by their form.
    let is_age = |cell: &Value| {
        cell.as_str().is_some_and(|text| {
            text.ends_with(['s', 'm', 'h', 'd'])
                && text.starts_with(|c: char| c.is_ascii_digit())
                && text
                    .chars()
                    .all(|c| c.is_ascii_digit() || "smhd".contains(c))
        })
    };
    let rows = table.get_mut("rows").and_then(Value::as_array_mut);
    for row in rows.into_iter().flatten() {
        let cells = row.get_mut("cells").and_then(Value::as_array_mut);
        for cell in cells.into_iter().flatten().filter(|cell| is_age(cell)) {
            *cell = "<age>".into();
        }
    }
}

pub(crate) fn normalised_text(text: &str) -> String {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return "<time>".into();
    }
    let bytes = text.as_bytes();
    let is_uid = |at: usize| {
        text.is_char_boundary(at)
            && bytes.len() >= at + 36
            && (at..at + 36).all(|i| match i - at {
                8 | 13 | 18 | 23 => bytes[i] == b'-',
                _ => bytes[i].is_ascii_hexdigit(),
            })
    };
    let mut out = String::new();
    let mut at = 0;
    while at < text.len() {
        if is_uid(at) {
            out.push_str("<uid>");
            at += 36;
        } else {
            let next = text[at..].chars().next().unwrap();
            out.push(next);
            at += next.len_utf8();
        }
    }
    // What a call made long is told short.
    for letter in ["x", "y", "["] {
        if out.contains(&letter.repeat(40)) {
            let parts: Vec<&str> = out.split(letter).filter(|p| !p.is_empty()).collect();
            out = parts.join(&format!("<{letter}...>"));
        }
    }
    out
}
