//! List and watch for the actors: a stream of changes that heals itself.
//!
//! kube's own watcher is not used because it never recovers from a 410 that comes as the HTTP
//! status of a watch. Here every refusal leads to a fresh list, every broken connection to a
//! watch from the last version seen, and a watch that stays silent is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::core::WatchEvent;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::objects::Tracked;
use crate::sandbox::calls::{CallError, Calls};

/// Objects asked for in one page of a list.
const PAGE: usize = 500;
/// Seconds after which the server ends a watch by itself.
const WATCH_SECS: u64 = 290;
/// A watch without an event or a bookmark for this long counts as dead; servers bookmark about
/// once a minute.
const SILENCE: Duration = Duration::from_secs(90);
/// The longest wait between attempts: a restarted server is found again within it.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// One change of the watched collection.
#[derive(Debug)]
pub enum Change<T> {
    /// The object is new or different.
    Set(Arc<T>),
    /// The object with this UID is gone.
    Gone(String),
    /// A full list has been delivered: what was not named is not there.
    Synced,
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Set(object) => Self::Set(Arc::clone(object)),
            Self::Gone(uid) => Self::Gone(uid.clone()),
            Self::Synced => Self::Synced,
        }
    }
}

/// A watched collection before it is started: subscribers first, so that nobody misses the list.
pub(super) struct Feed<T> {
    path: &'static str,
    subscribers: Vec<mpsc::Sender<Change<T>>>,
}

impl<T> Feed<T>
where
    T: Tracked + DeserializeOwned + Clone + Send + Sync + 'static,
{
    /// A feed of the collection at `path`.
    pub(super) fn new(path: &'static str) -> Self {
        Self {
            path,
            subscribers: Vec::new(),
        }
    }

    /// One more receiver of every change.
    pub(super) fn subscribe(&mut self) -> mpsc::Receiver<Change<T>> {
        let (sender, receiver) = mpsc::channel(1024);
        self.subscribers.push(sender);
        receiver
    }

    /// Follows the collection until `cancel`, or until nobody listens any more.
    pub(super) async fn run(self, calls: Calls, cancel: CancellationToken) {
        if self.subscribers.is_empty() {
            return;
        }
        let mut follower = Follower {
            calls,
            path: self.path,
            subscribers: self.subscribers,
            known: BTreeMap::new(),
            backoff: Duration::ZERO,
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = follower.follow() => {}
        }
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

impl<T: DeserializeOwned> Page<T> {
    /// An object that cannot be read does not hide the others.
    fn read(path: &str, text: &str) -> Result<Self, serde_json::Error> {
        // Nearly always all can be read, and then one pass is enough.
        if let Ok(page) = serde_json::from_str(text) {
            return Ok(page);
        }
        let page: Page<&RawValue> = serde_json::from_str(text)?;
        let items = page.items.into_iter().filter_map(|item| {
            let item = serde_json::from_str(item.get());
            if let Err(error) = &item {
                tracing::debug!(path, %error, "skipped an object that cannot be read");
            }
            item.ok()
        });
        Ok(Page {
            items: items.collect(),
            metadata: page.metadata,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Every subscriber has hung up.
struct NobodyListens;

struct Follower<T> {
    calls: Calls,
    path: &'static str,
    subscribers: Vec<mpsc::Sender<Change<T>>>,
    /// UID of every object delivered, with its resource version.
    known: BTreeMap<String, String>,
    backoff: Duration,
}

enum WatchEnd {
    /// Watch again from this version.
    Resume(String),
    /// The version is of no use any more.
    Relist,
}

impl<T> Follower<T>
where
    T: Tracked + DeserializeOwned + Clone + Send + Sync + 'static,
{
    async fn follow(&mut self) {
        loop {
            match self.list().await {
                Ok(Ok(version)) => {
                    let mut from = version;
                    loop {
                        match self.watch(from).await {
                            Ok(WatchEnd::Resume(version)) => from = version,
                            Ok(WatchEnd::Relist) => break,
                            Err(NobodyListens) => return,
                        }
                    }
                }
                Ok(Err(NobodyListens)) => return,
                Err(error) => tracing::debug!(%error, path = self.path, "list failed"),
            }
            self.pause().await;
        }
    }

    /// Delivers the whole collection and returns its version.
    async fn list(&mut self) -> Result<Result<String, NobodyListens>, CallError> {
        // The first list has nothing to be compared with.
        let mut seen = (!self.known.is_empty()).then(BTreeSet::new);
        let mut next: Option<String> = None;
        loop {
            let mut path = format!("{}?limit={PAGE}", self.path);
            if let Some(token) = &next {
                path.push_str("&continue=");
                path.push_str(&percent_encode(token));
            }
            let text = self.calls.get_text(&path).await?;
            let page: Page<T> =
                Page::read(&path, &text).map_err(|error| CallError::unreadable(&path, error))?;
            drop(text);
            for item in page.items {
                if let Some(seen) = &mut seen {
                    seen.insert(item.meta().uid.clone());
                }
                if self.set(item).await.is_err() {
                    return Ok(Err(NobodyListens));
                }
            }
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                let known = self.known.keys();
                let gone = seen.map(|seen| {
                    let gone = known.filter(|uid| !seen.contains(*uid));
                    gone.cloned().collect::<Vec<String>>()
                });
                for uid in gone.unwrap_or_default() {
                    self.known.remove(&uid);
                    if self.send(Change::Gone(uid)).await.is_err() {
                        return Ok(Err(NobodyListens));
                    }
                }
                self.backoff = Duration::ZERO;
                return Ok(self
                    .send(Change::Synced)
                    .await
                    .map(|()| page.metadata.resource_version));
            }
        }
    }

    async fn watch(&mut self, from: String) -> Result<WatchEnd, NobodyListens> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECS}&resourceVersion={}",
            self.path,
            percent_encode(&from),
        );
        let Ok(request) = http::Request::get(&uri).body(Vec::new()) else {
            return Ok(WatchEnd::Relist);
        };
        let client = self.calls.client().clone();
        let opened = tokio::time::timeout(SILENCE, client.request_events::<T>(request)).await;
        let events = match opened {
            Ok(Ok(events)) => events,
            // A refusal says that this version is of no use (410, or 400 and 504 of some servers).
            Ok(Err(kube::Error::Api(_))) => {
                self.pause().await;
                return Ok(WatchEnd::Relist);
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, path = self.path, "watch failed");
                self.pause().await;
                return Ok(WatchEnd::Resume(from));
            }
            Err(_) => return Ok(WatchEnd::Resume(from)),
        };
        pin_mut!(events);
        let mut version = from;
        let mut any = false;
        loop {
            let Ok(next) = tokio::time::timeout(SILENCE, events.next()).await else {
                return Ok(WatchEnd::Resume(version));
            };
            match next {
                Some(Ok(WatchEvent::Added(item) | WatchEvent::Modified(item))) => {
                    version.clone_from(&item.meta().resource_version);
                    self.set(item).await?;
                }
                Some(Ok(WatchEvent::Deleted(item))) => {
                    version.clone_from(&item.meta().resource_version);
                    let uid = item.meta().uid.clone();
                    self.known.remove(&uid);
                    self.send(Change::Gone(uid)).await?;
                }
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    version = bookmark.metadata.resource_version;
                }
                Some(Ok(WatchEvent::Error(_)) | Err(kube::Error::Api(_))) => {
                    return Ok(WatchEnd::Relist);
                }
                Some(Err(kube::Error::SerdeError(error))) => {
                    tracing::debug!(%error, path = self.path, "skipped an event that cannot be read");
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, path = self.path, "watch broke");
                    self.pause().await;
                    return Ok(WatchEnd::Resume(version));
                }
                None => {
                    // A watch that ends at once without a word is a refusal in disguise.
                    if any {
                        return Ok(WatchEnd::Resume(version));
                    }
                    self.pause().await;
                    return Ok(WatchEnd::Relist);
                }
            }
            any = true;
            self.backoff = Duration::ZERO;
        }
    }

    async fn set(&mut self, item: T) -> Result<(), NobodyListens> {
        let meta = item.meta();
        let before = self
            .known
            .insert(meta.uid.clone(), meta.resource_version.clone());
        if before.as_ref() == Some(&meta.resource_version) {
            return Ok(());
        }
        self.send(Change::Set(Arc::new(item))).await
    }

    async fn send(&mut self, change: Change<T>) -> Result<(), NobodyListens> {
        let mut closed = false;
        for subscriber in &self.subscribers {
            closed |= subscriber.send(change.clone()).await.is_err();
        }
        if closed {
            self.subscribers
                .retain(|subscriber| !subscriber.is_closed());
            if self.subscribers.is_empty() {
                return Err(NobodyListens);
            }
        }
        Ok(())
    }

    /// Waits before the next attempt, doubling up to the longest, with jitter.
    async fn pause(&mut self) {
        self.backoff = (self.backoff * 2).clamp(Duration::from_millis(100), MAX_BACKOFF);
        tokio::time::sleep(self.backoff.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
    }
}

fn percent_encode(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
