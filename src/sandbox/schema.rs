//! Custom objects under their CRD's structural schema: pruning, defaults, validation.

use serde_json::{Map, Value};

use super::object::text;
use super::status::{Cause, clip};

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool) == Some(true)
}

fn property<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let own = schema.get("properties").and_then(|p| p.get(name));
    own.or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|more| more.is_object())
    })
}

fn keeps_unknown(schema: &Value) -> bool {
    let any = schema.get("additionalProperties").and_then(Value::as_bool) == Some(true);
    any || flag(schema, "x-kubernetes-preserve-unknown-fields")
}

/// Drops what the schema does not name, and nulls where it takes none; then fills in defaults.
pub(super) fn complete(schema: &Value, object: &mut Value) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    // Every object has these, whatever its schema says of them.
    let typed = ["apiVersion", "kind", "metadata"];
    let kept: Vec<(&str, Value)> = typed
        .iter()
        .filter_map(|name| Some((*name, map.remove(*name)?)))
        .collect();
    prune(schema, map);
    add_defaults(schema, object);
    if let Some(map) = object.as_object_mut() {
        map.extend(
            kept.into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
    }
}

fn prune(schema: &Value, map: &mut Map<String, Value>) {
    let keeps = keeps_unknown(schema);
    map.retain(|name, value| match property(schema, name) {
        Some(schema) if value.is_null() => flag(schema, "nullable"),
        Some(_) => true,
        None => keeps,
    });
    for (name, value) in map.iter_mut() {
        if let Some(schema) = property(schema, name) {
            prune_value(schema, value);
        }
    }
}

/// Paths of what pruning takes from an object's own members.
pub(super) fn unknown(schema: &Value, object: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    if let Some(map) = object.as_object() {
        for (name, value) in map {
            if matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            unknown_member(schema, name, value, name, &mut paths);
        }
    }
    paths
}

fn unknown_member(schema: &Value, name: &str, value: &Value, path: &str, paths: &mut Vec<String>) {
    match property(schema, name) {
        Some(schema) => unknown_below(schema, value, path, paths),
        None if keeps_unknown(schema) || value.is_null() => {}
        None => paths.push(path.to_owned()),
    }
}

fn unknown_below(schema: &Value, value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Object(_) if flag(schema, "x-kubernetes-embedded-resource") => {}
        Value::Object(map) => {
            for (name, value) in map {
                unknown_member(schema, name, value, &format!("{path}.{name}"), paths);
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    unknown_below(schema, item, &format!("{path}[{index}]"), paths);
                }
            }
        }
        _ => {}
    }
}

fn prune_value(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(_) if flag(schema, "x-kubernetes-embedded-resource") => {}
        Value::Object(map) => prune(schema, map),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| prune_value(schema, item));
            }
        }
        _ => {}
    }
}

fn add_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, schema) in properties.into_iter().flatten() {
                if let Some(default) = schema.get("default")
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(schema) = property(schema, name) {
                    add_defaults(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| add_defaults(schema, item));
            }
        }
        _ => {}
    }
}

/// What in `object` breaks the schema. `hidden` is cut from the front of paths inside messages.
pub(super) fn faults(schema: &Value, object: &Value, hidden: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut checker = Checker {
        hidden,
        causes: &mut causes,
    };
    let mut schema = schema.clone();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove("metadata");
    }
    checker.check(&schema, object, "");
    causes
}

struct Checker<'c> {
    hidden: &'c str,
    causes: &'c mut Vec<Cause>,
}

/// JSON schema's word for a value's type.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Checker<'_> {
    fn fault(&mut self, at: &str, reason: &'static str, message: String) {
        self.causes.push(Cause {
            reason,
            message,
            field: at.to_owned(),
        });
    }

    fn invalid(&mut self, at: &str, value: &Value, why: &str) {
        let shown = at.strip_prefix(self.hidden).unwrap_or(at);
        let message = format!(
            "Invalid value: {}: {shown} in body {why}",
            clip(&value.to_string())
        );
        self.fault(at, "FieldValueInvalid", message);
    }

    fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        if value.is_null() && flag(schema, "nullable") {
            return;
        }
        let wanted = match text(schema, "/type") {
            "" if flag(schema, "x-kubernetes-int-or-string") => "integer,string",
            own => own,
        };
        let found = type_of(value);
        let fits = wanted.is_empty()
            || wanted
                .split(',')
                .any(|w| w == found || (w == "number" && found == "integer"));
        if !fits {
            let shown = at.strip_prefix(self.hidden).unwrap_or(at);
            let message = format!(
                "Invalid value: {found:?}: {shown} in body must be of type {wanted}: {found:?}"
            );
            return self.fault(at, "FieldValueTypeInvalid", message);
        }
        self.check_enum(schema, value, at);
        match value {
            Value::Object(map) => self.check_map(schema, map, at),
            Value::Array(items) => self.check_list(schema, items, at),
            Value::String(string) => self.check_text(schema, string, at),
            Value::Number(_) => self.check_number(schema, value, at),
            _ => {}
        }
    }

    fn check_enum(&mut self, schema: &Value, value: &Value, at: &str) {
        let Some(allowed) = schema.get("enum").and_then(Value::as_array) else {
            return;
        };
        if !allowed.contains(value) {
            let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
            let message = format!(
                "Unsupported value: {}: supported values: {}",
                clip(&value.to_string()),
                allowed.join(", ")
            );
            self.fault(at, "FieldValueNotSupported", message);
        }
    }

    fn check_map(&mut self, schema: &Value, map: &Map<String, Value>, at: &str) {
        let inside = |name: &str| match at {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        };
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !map.contains_key(name) {
                self.fault(&inside(name), "FieldValueRequired", "Required value".into());
            }
        }
        let most = schema.get("maxProperties").and_then(Value::as_u64);
        if let Some(most) = most.filter(|most| map.len() as u64 > *most) {
            let message = format!("Too many: {}: must have at most {most} items", map.len());
            self.fault(at, "FieldValueTooMany", message);
        }
        for (name, value) in map {
            if let Some(schema) = property(schema, name) {
                self.check(schema, value, &inside(name));
            }
        }
    }

    fn check_list(&mut self, schema: &Value, items: &[Value], at: &str) {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let count = items.len() as u64;
        if let Some(most) = bound("maxItems").filter(|most| count > *most) {
            let message = format!("Too many: {count}: must have at most {most} items");
            self.fault(at, "FieldValueTooMany", message);
        }
        if let Some(least) = bound("minItems").filter(|least| count < *least) {
            let why = format!("should have at least {least} items");
            self.invalid(at, &count.into(), &why);
        }
        if let Some(schema) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                self.check(schema, item, &format!("{at}[{index}]"));
            }
        }
    }

    fn check_text(&mut self, schema: &Value, string: &str, at: &str) {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let chars = string.chars().count() as u64;
        if let Some(most) = bound("maxLength").filter(|most| chars > *most) {
            let message = format!("Too long: may not be more than {most} bytes");
            return self.fault(at, "FieldValueTooLong", message);
        }
        if let Some(least) = bound("minLength").filter(|least| chars < *least) {
            let why = format!("should be at least {least} chars long");
            return self.invalid(at, &string.into(), &why);
        }
        // A pattern that this engine cannot read holds nothing back.
        let pattern = text(schema, "/pattern");
        let matches = pattern.is_empty()
            || regex::Regex::new(pattern).map_or(true, |pattern| pattern.is_match(string));
        if !matches {
            self.invalid(at, &string.into(), &format!("should match '{pattern}'"));
        }
    }

    fn check_number(&mut self, schema: &Value, value: &Value, at: &str) {
        let Some(number) = value.as_f64() else {
            return;
        };
        let bound = |name: &str| Some((schema.get(name)?.as_f64()?, schema.get(name)?.clone()));
        if let Some((least, shown)) = bound("minimum") {
            let open = flag(schema, "exclusiveMinimum");
            if number < least || (open && number <= least) {
                let equal = if open { "" } else { "or equal to " };
                self.invalid(at, value, &format!("should be greater than {equal}{shown}"));
            }
        }
        if let Some((most, shown)) = bound("maximum") {
            let open = flag(schema, "exclusiveMaximum");
            if number > most || (open && number >= most) {
                let equal = if open { "" } else { "or equal to " };
                self.invalid(at, value, &format!("should be less than {equal}{shown}"));
            }
        }
    }
}
