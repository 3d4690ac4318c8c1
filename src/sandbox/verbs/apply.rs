//! Server-side apply: a manager states the fields it wants and owns them from then on.
//!
//! `managedFields` begin with an object's first apply. What it held before then belongs to
//! `before-first-apply`, as the real server does with objects that come without them.

use serde_json::{Map, Value, json};

use crate::sandbox::fields::{self, Lists};
use crate::sandbox::object::text;
use crate::sandbox::serve::{Answer, Call};
use crate::sandbox::status::{ApiError, Cause};
use crate::sandbox::{Inner, body, convert, meta, shapes};

use super::update::{Part, misnamed};

/// Members of an object that nobody manages.
const UNMANAGED: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
];

/// The media type of an apply.
pub(in crate::sandbox) const MEDIA_TYPE: &str = "application/apply-patch+yaml";

impl Inner {
    /// Applies the body to the addressed object; makes it if it is not there.
    pub(in crate::sandbox) fn apply(&self, call: &Call, part: Part) -> Result<Answer, ApiError> {
        let manager = call
            .query
            .get("fieldManager")
            .unwrap_or_default()
            .to_owned();
        if manager.is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid_options("PatchOptions", vec![cause]));
        }
        let force = call.query.flag("force");
        let mut sent = body::yaml(&call.body)
            .map_err(|why| ApiError::bad_request(format!("error encoding patch: yaml: {why}")))?;
        let (version, kind) = (text(&sent, "/apiVersion"), text(&sent, "/kind"));
        if version.is_empty() || kind.is_empty() {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            return Err(ApiError::bad_request(format!(
                "invalid object type: {group}/{version}, Kind={kind}"
            )));
        }
        meta::check_type(&call.res, &mut sent)?;
        meta::check_shape(&call.res, &sent)?;
        shapes::check(&call.res, &sent)?;
        if sent
            .pointer("/metadata/managedFields")
            .is_some_and(|m| !m.is_null())
        {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let name = text(&sent, "/metadata/name");
        if !name.is_empty() && name != call.path.name {
            return Err(misnamed(call, name));
        }
        if let Some(meta) = meta::of(&mut sent) {
            meta.insert("name".into(), call.path.name.clone().into());
        }
        if !call.res.custom {
            meta::drop_nulls(&mut sent);
        }
        self.check_body_namespace(call, &mut sent)?;
        let applied = Applied {
            entry: Entry {
                manager,
                operation: "Apply",
                version: call.res.api_version(),
                part,
            },
            lists: Lists(call.res.schema.as_deref()),
            now: self.options.clock.time(),
            force,
        };
        if part == Part::Main && !self.store.contains(&call.res.table, &call.key()) {
            let mut object = sent.clone();
            applied.own(&mut object, &managed(&sent, part), Vec::new());
            return self.create_applied(call, object);
        }
        self.change(call, part, |old| {
            let mut live = old.clone();
            convert::to_served(&call.res, &mut live);
            let mut new = applied.over(&live, &sent)?;
            convert::to_stored(&call.res, &mut new);
            Ok(new)
        })
    }
}

/// Whose an entry of `managedFields` is.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    manager: String,
    operation: &'static str,
    version: String,
    part: Part,
}

impl Entry {
    fn subresource(&self) -> &'static str {
        match self.part {
            Part::Main => "",
            Part::Status => "status",
        }
    }

    fn is(&self, entry: &Value) -> bool {
        text(entry, "/manager") == self.manager
            && text(entry, "/operation") == self.operation
            && text(entry, "/subresource") == self.subresource()
    }

    fn written(&self, set: &Value, now: &str) -> Value {
        let mut entry = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": set,
        });
        if self.part == Part::Status
            && let Some(map) = entry.as_object_mut()
        {
            map.insert("subresource".into(), "status".into());
        }
        entry
    }
}

struct Applied<'a> {
    entry: Entry,
    lists: Lists<'a>,
    now: String,
    force: bool,
}

/// What of an object is managed through a part of it.
fn managed(object: &Value, part: Part) -> Value {
    let mut kept = Map::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match (name.as_str(), part) {
            ("apiVersion" | "kind", _) | ("status", Part::Main) => {}
            ("metadata", Part::Main) => {
                let mut meta = value.clone();
                if let Some(map) = meta.as_object_mut() {
                    map.retain(|name, _| !UNMANAGED.contains(&name.as_str()));
                }
                if meta.as_object().is_some_and(|map| !map.is_empty()) {
                    kept.insert(name.clone(), meta);
                }
            }
            (_, Part::Main) | ("status", Part::Status) => {
                kept.insert(name.clone(), value.clone());
            }
            (_, Part::Status) => {}
        }
    }
    kept.into()
}

fn entries(object: &Value) -> Vec<Value> {
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    entries.cloned().unwrap_or_default()
}

fn set_entries(object: &mut Value, mut entries: Vec<Value>) {
    entries.retain(|entry| {
        entry
            .get("fieldsV1")
            .and_then(Value::as_object)
            .is_some_and(|set| !set.is_empty())
    });
    if let Some(meta) = meta::of(object) {
        if entries.is_empty() {
            meta.remove("managedFields");
        } else {
            meta.insert("managedFields".into(), entries.into());
        }
    }
}

impl Applied<'_> {
    /// `live` with `sent` applied to it.
    fn over(&self, live: &Value, sent: &Value) -> Result<Value, ApiError> {
        let (have, want) = (managed(live, Part::Main), managed(sent, self.entry.part));
        let mut entries = entries(live);
        if entries.is_empty() {
            let before = Entry {
                manager: "before-first-apply".into(),
                operation: "Update",
                version: self.entry.version.clone(),
                part: Part::Main,
            };
            entries.push(before.written(&fields::of(self.lists, &have), &self.now));
        }
        let set = fields::of(self.lists, &want);
        self.settle(&mut entries, &set, live, sent)?;

        let mut new = live.clone();
        fields::merge(self.lists, &mut new, &want);
        let own = entries.iter().find(|entry| self.entry.is(entry));
        if let Some(before) = own.and_then(|entry| entry.get("fieldsV1")) {
            let others: Vec<&Value> = entries
                .iter()
                .filter(|entry| !self.entry.is(entry))
                .filter_map(|entry| entry.get("fieldsV1"))
                .collect();
            fields::prune(&mut new, before, Some(&set), &others);
        }
        if let Some(meta) = meta::of(&mut new) {
            meta.remove("resourceVersion");
            let version = sent.pointer("/metadata/resourceVersion");
            if let Some(version) = version {
                meta.insert("resourceVersion".into(), version.clone());
            }
        }
        self.own(&mut new, &want, entries);
        Ok(new)
    }

    /// Refuses what others hold otherwise, or takes it from them.
    fn settle(
        &self,
        entries: &mut [Value],
        set: &Value,
        live: &Value,
        sent: &Value,
    ) -> Result<(), ApiError> {
        let mut conflicts = Vec::new();
        for entry in entries.iter_mut().filter(|entry| !self.entry.is(entry)) {
            let held = entry.get("fieldsV1").cloned().unwrap_or_default();
            for path in fields::clashes(&held, set, Some(live), Some(sent)) {
                if self.force {
                    if let Some(held) = entry.get_mut("fieldsV1") {
                        fields::remove(held, &path);
                    }
                } else {
                    conflicts.push((holder(entry), fields::path_text(&path)));
                }
            }
        }
        if conflicts.is_empty() {
            Ok(())
        } else {
            Err(ApiError::apply_conflict(&conflicts))
        }
    }

    /// Writes who manages what: this manager holds `want`.
    fn own(&self, object: &mut Value, want: &Value, mut entries: Vec<Value>) {
        let set = fields::of(self.lists, want);
        match entries.iter_mut().find(|entry| self.entry.is(entry)) {
            // An entry that does not change keeps its time.
            Some(entry) if entry.get("fieldsV1") == Some(&set) => {}
            Some(entry) => *entry = self.entry.written(&set, &self.now),
            None => {
                // Applies stand before updates.
                let at = entries
                    .iter()
                    .take_while(|e| text(e, "/operation") == "Apply")
                    .count();
                entries.insert(at, self.entry.written(&set, &self.now));
            }
        }
        set_entries(object, entries);
    }
}

/// Who holds a field, in a conflict's words.
fn holder(entry: &Value) -> String {
    let mut words = format!("conflict with {:?}", text(entry, "/manager"));
    let subresource = text(entry, "/subresource");
    if !subresource.is_empty() {
        words.push_str(&format!(" with subresource {subresource:?}"));
    }
    if text(entry, "/operation") == "Update" {
        words.push_str(&format!(" using {}", text(entry, "/apiVersion")));
    }
    words
}

/// Carries `managedFields` over a write that was no apply: what it changed is the writer's now.
pub(super) fn after_update(call: &Call, part: Part, old: &Value, new: &mut Value, now: &str) {
    let mut entries = entries(old);
    if entries.is_empty() {
        return;
    }
    let lists = Lists(call.res.schema.as_deref());
    let mut taken = json!({});
    for entry in &mut entries {
        if let Some(set) = entry.get_mut("fieldsV1") {
            for path in fields::changed(set, Some(old), Some(new)) {
                fields::remove(set, &path);
            }
        }
    }
    let written = Entry {
        manager: call
            .query
            .get("fieldManager")
            .unwrap_or("unknown")
            .to_owned(),
        operation: "Update",
        version: call.res.api_version(),
        part,
    };
    // What the write set: the fields that are new or have another value.
    let set = fields::of(lists, &managed(new, part));
    for path in fields::changed(&set, Some(old), Some(new)) {
        fields::insert(&mut taken, path);
    }
    if taken.as_object().is_some_and(|set| !set.is_empty()) {
        match entries.iter_mut().find(|entry| written.is(entry)) {
            Some(entry) => {
                let mut all = entry.get("fieldsV1").cloned().unwrap_or_default();
                fields::merge(Lists(None), &mut all, &taken);
                *entry = written.written(&all, now);
            }
            None => entries.push(written.written(&taken, now)),
        }
    }
    set_entries(new, entries);
}
