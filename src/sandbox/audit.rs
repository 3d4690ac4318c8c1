//! The server's own record of who asked what, in the field names of Kubernetes' audit log.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::SandboxError;

/// One request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Who asked.
    pub user: String,
    /// API group of the resource; empty for core and for paths that are no resource.
    pub group: String,
    /// API version of the resource.
    pub version: String,
    /// Plural name of the resource; empty for paths that are no resource.
    pub resource: String,
    /// Namespace, where the URL has one.
    pub namespace: String,
    /// Object name, where the URL has one.
    pub name: String,
    /// Subresource, where the URL has one.
    pub subresource: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// Path and query.
    pub uri: String,
    /// When it was answered, as `metav1.MicroTime`.
    pub at: String,
}

impl AuditEntry {
    /// The entry as one object of `audit.k8s.io/v1`.
    pub fn to_json(&self) -> Value {
        let mut event = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            // A watch is logged when it starts, as the real server's ResponseStarted.
            "stage": if self.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" },
            "requestURI": self.uri,
            "verb": self.verb,
            "user": {"username": self.user},
            "responseStatus": {"metadata": {}, "code": self.code},
            "stageTimestamp": self.at,
        });
        if !self.resource.is_empty() {
            let mut reference = json!({"resource": self.resource, "apiVersion": self.version});
            if let Some(map) = reference.as_object_mut() {
                for (field, value) in [
                    ("apiGroup", &self.group),
                    ("namespace", &self.namespace),
                    ("name", &self.name),
                    ("subresource", &self.subresource),
                ] {
                    if !value.is_empty() {
                        map.insert(field.into(), value.clone().into());
                    }
                }
            }
            if let Some(map) = event.as_object_mut() {
                map.insert("objectRef".into(), reference);
            }
        }
        event
    }
}

/// The record: a bounded queue in memory and, on request, a file.
#[derive(Debug)]
pub(super) struct Audit {
    most: usize,
    kept: Mutex<VecDeque<AuditEntry>>,
    file: Option<Mutex<File>>,
}

impl Audit {
    /// A record of at most `most` entries in memory, and all of them in `file`.
    pub(super) fn open(most: usize, file: Option<&Path>) -> Result<Self, SandboxError> {
        let file = match file {
            None => None,
            Some(path) => {
                let opened = OpenOptions::new().create(true).append(true).open(path);
                Some(Mutex::new(opened.map_err(|source| {
                    SandboxError::Write {
                        path: path.to_owned(),
                        source,
                    }
                })?))
            }
        };
        Ok(Audit {
            most,
            kept: Mutex::default(),
            file,
        })
    }

    /// Adds one entry.
    pub(super) fn record(&self, entry: AuditEntry) {
        if let Some(file) = &self.file {
            let line = format!("{}\n", entry.to_json());
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = file.write_all(line.as_bytes()) {
                tracing::warn!(%error, "the audit log cannot be written");
            }
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(entry);
        while kept.len() > self.most {
            kept.pop_front();
        }
    }

    /// What is remembered, oldest first.
    pub(super) fn entries(&self) -> Vec<AuditEntry> {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }
}
