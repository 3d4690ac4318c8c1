//! watch: a stream of changes read from the history, each watcher at its own pace.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::convert;
use super::faults::WatchFault;
use super::object::{Object, set_resource_version};
use super::query::ListOptions;
use super::resources::Resource;
use super::selector::{FieldMatcher, LabelSelector};
use super::serve::{Answer, Call, Cut};
use super::signal::Listening;
use super::status::ApiError;
use super::store::{Change, ChangeKind, Range};
use super::{Inner, verbs};

/// Changes read from the history at a time, and objects sent at a time at the start.
const BATCH: usize = 512;
/// How long a watch lives that asks for no time (the real server picks 30 to 60 minutes).
const DEFAULT_TIMEOUT_SECS: u64 = 45 * 60;

struct Watcher {
    inner: Arc<Inner>,
    res: Arc<Resource>,
    // `namespace/`, or empty.
    prefix: String,
    labels: LabelSelector,
    fields: FieldMatcher,
    changed: Listening,
    cursor: u64,
    // Objects of the starting state still to be sent, in reverse.
    initial: Vec<Arc<Object>>,
    // The bookmark that ends the starting state of a streaming list is still to be sent.
    initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    done: bool,
    faults: Listening,
    // The faults that came before this one are not its own.
    since: u64,
    silent: bool,
}

impl Inner {
    /// Starts a watch. What lies between the client's list and this moment comes first.
    pub(super) fn watch(self: &Arc<Self>, call: &Call) -> Result<Answer, ApiError> {
        let options = ListOptions::parse(&call.query)?;
        let fields = verbs::matcher(&call.res, &options)?;
        let table = &call.res.table;
        let changed = self
            .store
            .subscribe(table)
            .ok_or_else(ApiError::no_such_path)?;
        let from_now = matches!(options.rv, None | Some(0));
        let send_state = match options.send_initial_events {
            None => from_now,
            Some(wanted) => wanted,
        };
        let mut initial = Vec::new();
        let mut cursor = options.rv.unwrap_or(0);
        if send_state || from_now {
            let range = Range {
                namespace: &call.path.namespace,
                after: None,
                at: None,
                limit: 0,
                remaining: Some(0),
            };
            let page = self
                .store
                .page(table, range, |o| {
                    send_state && options.labels.matches(o) && fields.matches(o)
                })
                .map_err(|expired| ApiError::expired(cursor, expired.oldest))?;
            if cursor > page.rv {
                return Err(ApiError::rv_too_large(cursor, page.rv));
            }
            cursor = page.rv;
            initial = page.objects;
            initial.reverse();
        } else if self.options.expired_watch_as_status
            && let Err(expired) = self.store.changes(table, cursor, 0)
        {
            return Err(ApiError::expired(cursor, expired.oldest));
        }
        let now = Instant::now();
        let timeout = options
            .timeout_secs
            .unwrap_or(DEFAULT_TIMEOUT_SECS)
            .min(24 * 3600);
        let watcher = Watcher {
            inner: self.clone(),
            res: call.res.clone(),
            prefix: if call.path.namespace.is_empty() {
                String::new()
            } else {
                format!("{}/", call.path.namespace)
            },
            labels: options.labels,
            fields,
            changed,
            cursor,
            initial,
            initial_end: options.send_initial_events == Some(true) && options.bookmarks,
            bookmarks: options.bookmarks,
            next_bookmark: now + self.options.bookmark_interval,
            deadline: now + Duration::from_secs(timeout),
            done: false,
            faults: self.faults.listen(),
            since: self.faults.newest(),
            silent: false,
        };
        let frames = stream::unfold(watcher, |mut watcher| async move {
            let frame = watcher.next().await?;
            Some((frame.map(Frame::data), watcher))
        });
        Ok(Answer::Stream(StreamBody::new(frames).boxed_unsync()))
    }
}

impl Watcher {
    /// The next lines of the stream; `None` at its end, an error where it breaks off.
    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        if self.done {
            return None;
        }
        match self.read().await {
            Ok(lines) => lines.map(Ok),
            Err(cut) => {
                self.done = true;
                Some(Err(cut))
            }
        }
    }

    async fn read(&mut self) -> Result<Option<Bytes>, Cut> {
        let mut out = BytesMut::new();
        loop {
            if self.done {
                return Ok(None);
            }
            self.faults.mark_unchanged();
            match self.inner.faults.on_watch(&self.res.plural, self.since) {
                None => {}
                Some(WatchFault::Cut) => return Err(Cut),
                // Once silent, only a break is noticed.
                Some(_) if self.silent => {}
                Some(WatchFault::Silent) => {
                    self.silent = true;
                    self.since = self.inner.faults.newest();
                }
                Some(WatchFault::Gone) => {
                    self.done = true;
                    let error = ApiError::gone_fault();
                    event(&mut out, "ERROR", error.to_value().to_string().as_bytes());
                    return Ok(Some(out.freeze()));
                }
            }
            if self.silent {
                self.faults.changed().await;
                continue;
            }
            if !self.initial.is_empty() {
                let keep = self.initial.len().saturating_sub(BATCH);
                for object in self.initial.drain(keep..).rev() {
                    event(&mut out, "ADDED", &convert::render(&self.res, &object));
                }
                return Ok(Some(out.freeze()));
            }
            if std::mem::take(&mut self.initial_end) {
                self.bookmark(&mut out, true);
                return Ok(Some(out.freeze()));
            }
            // Marked as seen before the look: a change after it wakes the wait below.
            self.changed.mark_unchanged();
            let more = match self
                .inner
                .store
                .changes(&self.res.table, self.cursor, BATCH)
            {
                Ok(batch) => {
                    for change in &batch.changes {
                        self.write(&mut out, change);
                    }
                    self.cursor = batch.cursor;
                    batch.more
                }
                Err(expired) => {
                    self.done = true;
                    let error = ApiError::expired(self.cursor, expired.oldest);
                    event(&mut out, "ERROR", error.to_value().to_string().as_bytes());
                    return Ok(Some(out.freeze()));
                }
            };
            if !out.is_empty() {
                return Ok(Some(out.freeze()));
            }
            if more {
                continue;
            }
            tokio::select! {
                biased;
                () = sleep_until(self.deadline) => {
                    self.done = true;
                    if self.bookmarks {
                        self.bookmark(&mut out, false);
                        return Ok(Some(out.freeze()));
                    }
                }
                () = self.faults.changed() => {}
                () = self.changed.changed() => {}
                () = sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.bookmark(&mut out, false);
                    return Ok(Some(out.freeze()));
                }
            }
        }
    }

    fn bookmark(&mut self, out: &mut BytesMut, initial_end: bool) {
        self.next_bookmark = Instant::now() + self.inner.options.bookmark_interval;
        let mut object = json!({
            "kind": self.res.kind,
            "apiVersion": self.res.api_version(),
            "metadata": {"resourceVersion": self.cursor.to_string()},
        });
        if initial_end && let Some(meta) = super::meta::of(&mut object) {
            meta.insert(
                "annotations".into(),
                json!({"k8s.io/initial-events-end": "true"}),
            );
        }
        event(out, "BOOKMARK", object.to_string().as_bytes());
    }

    /// Writes a change as this watcher's selector sees it: entering is ADDED, leaving is DELETED.
    fn write(&self, out: &mut BytesMut, change: &Change) {
        if !change.object.key.starts_with(&self.prefix) {
            return;
        }
        let selects = |object: &Object| self.labels.matches(object) && self.fields.matches(object);
        let before = change.previous.as_deref().is_some_and(selects);
        let after = change.kind != ChangeKind::Deleted && selects(&change.object);
        let word = match (before, after) {
            (false, false) => return,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        match &change.previous {
            // Left the selection: the state that was selected, under the new resourceVersion.
            Some(previous) if word == "DELETED" && change.kind != ChangeKind::Deleted => {
                let mut last = previous.value();
                set_resource_version(&mut last, change.object.rv);
                convert::to_served(&self.res, &mut last);
                event(out, word, last.to_string().as_bytes());
            }
            _ => event(out, word, &convert::render(&self.res, &change.object)),
        }
    }
}

fn event(out: &mut BytesMut, word: &str, object: &[u8]) {
    out.reserve(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(word.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
}
