//! The loop of one kind: list, watch, recover.

use std::sync::Arc;
use std::time::Duration;

use ahash::AHashSet;
use http::Method;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::super::decode::Decoder;
use super::super::http::ApiError;
use super::super::source::ClientSource;
use super::Scope;
use super::health::{Counters, HealthLog, count};
use super::lines::Lines;
use super::page::{Decoded, Line, Page, status_of, version_of};
use super::paths::{collection, is_namespaced, query_value};
use super::stop::{Asked, Closed, End, Next, Stop};
use super::store::{Relist, Store};
use crate::model::{Delta, ForeignKind, Kind, SourceReport, SourceState, Str, clean};

/// Objects in a list page.
const PAGE: usize = 500;
/// Seconds that the server is asked to keep a watch open, at least and at most.
const WATCH_SECS: std::ops::RangeInclusive<u64> = 16..=20;
/// How much longer we wait for the end of a watch before it counts as dead.
const WATCH_GRACE: Duration = Duration::from_secs(4);
/// Longest until a watch begins to answer.
const WATCH_OPEN: Duration = Duration::from_secs(5);
/// Longest until a list page begins to answer: a large cluster's server may be busy.
const LIST_OPEN: Duration = Duration::from_secs(20);
/// A watch that lived this long was sound; its end is no sign of trouble.
const SOUND_WATCH: Duration = Duration::from_secs(3);
/// Pauses between tries.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(3);
/// How often a missing right or API is asked for again.
const RECHECK: Duration = Duration::from_secs(60);
/// When a system that is not installed is looked for again: soon at first, it may be on its way.
const FIRST_ABSENT: Duration = Duration::from_secs(5);
const MAX_ABSENT: Duration = Duration::from_secs(300);
/// Longest until the versions of an API group are told.
const DISCOVER: Duration = Duration::from_secs(10);
/// Refusals in a row, over some 9 s, after which a right or API that was there counts as taken away.
const MAX_REFUSALS: u32 = 5;
/// Unreadable objects told; more of one kind say nothing new.
const MAX_TOLD: usize = 1_000;

pub(super) struct KindTask {
    kind: Kind,
    source: ClientSource,
    scope: Scope,
    /// The namespace that is really watched.
    namespace: Option<Str>,
    tx: mpsc::Sender<Vec<Delta>>,
    decoder: Decoder,
    store: Store,
    told: AHashSet<Str>,
    reported: Option<(Option<Str>, SourceState)>,
    /// Whether a whole list was ever read.
    known: bool,
    heard: Timestamp,
    pause: Duration,
    /// Watches that ended at once with nothing in them.
    empty_watches: u32,
    /// Refusals in a row of what was granted before.
    refusals: u32,
    /// The client that was refused was replaced: the next try may be made at once.
    logged_in: bool,
    counters: Arc<Counters>,
    /// The version of another system's kind that this server has.
    version: Option<&'static str>,
    absent_pause: Duration,
}

impl KindTask {
    pub(super) fn new(
        kind: Kind,
        source: ClientSource,
        scope: Scope,
        tx: mpsc::Sender<Vec<Delta>>,
        health: &HealthLog,
    ) -> Self {
        let heard = source.now();
        KindTask {
            kind,
            source,
            namespace: scope.namespace.clone().filter(|_| is_namespaced(kind)),
            scope,
            tx,
            decoder: Decoder::new(),
            store: Store::new(kind),
            told: AHashSet::new(),
            reported: None,
            known: false,
            heard,
            pause: FIRST_PAUSE,
            empty_watches: 0,
            refusals: 0,
            logged_in: false,
            counters: health.counters(kind),
            version: None,
            absent_pause: FIRST_ABSENT,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = self.forever() => {}
        }
    }

    async fn forever(&mut self) -> Result<(), Closed> {
        if self.fallback().is_none() {
            self.report(SourceState::Loading { read: 0 }).await?;
        }
        let mut restarts = 0;
        loop {
            let mut version = match self.list().await {
                Ok(version) => version,
                Err(Stop::Closed) => return Err(Closed),
                Err(Stop::Restart) => {
                    restarts += 1;
                    if restarts > 3 {
                        self.wait().await;
                    }
                    continue;
                }
                Err(Stop::Trouble(e)) => {
                    self.trouble(e).await?;
                    continue;
                }
                Err(Stop::Absent(why)) => {
                    self.absent(why).await?;
                    continue;
                }
            };
            restarts = 0;
            self.known = true;
            self.refusals = 0;
            self.report(SourceState::Live).await?;
            loop {
                match self.watch(&mut version).await {
                    Ok(End::Resume) => {}
                    Ok(End::Relist) | Err(Stop::Restart) => {
                        self.wait().await;
                        break;
                    }
                    Err(Stop::Closed) => return Err(Closed),
                    Err(Stop::Absent(why)) => {
                        self.absent(why).await?;
                        break;
                    }
                    Err(Stop::Trouble(e)) => {
                        if self.trouble(e).await? == Next::Relist {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// The namespace to try next when the user may not list all.
    fn fallback(&self) -> Option<Str> {
        if self.namespace.is_some() || !is_namespaced(self.kind) {
            return None;
        }
        self.scope.fallback.clone()
    }

    /// Pauses before the next try, longer each time, never in step with other tasks.
    async fn wait(&mut self) {
        let jitter = 0.75 + fastrand::f64() * 0.5;
        sleep(self.pause.mul_f64(jitter)).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    /// Sends a report unless it says what the last one said.
    async fn report(&mut self, state: SourceState) -> Result<(), Closed> {
        let key = (self.namespace.clone(), state);
        if self.reported.as_ref() == Some(&key) {
            return Ok(());
        }
        let report = Delta::Source(SourceReport {
            kind: self.kind,
            namespace: key.0.clone(),
            state: key.1.clone(),
            at: self.source.now(),
        });
        self.reported = Some(key);
        self.send(vec![report]).await
    }

    async fn send(&self, batch: Vec<Delta>) -> Result<(), Closed> {
        if batch.is_empty() {
            return Ok(());
        }
        self.tx.send(batch).await.map_err(|_| Closed)
    }

    /// Reads all pages; the version to watch from.
    async fn list(&mut self) -> Result<String, Stop> {
        count(&self.counters.lists, 1);
        if let Kind::Foreign(kind) = self.kind {
            self.version = Some(self.find_version(kind).await?);
        }
        // Events are bounded over the whole list, so they too wait for its end.
        let mut relist = (self.store.len() > 0 || self.kind == Kind::Event).then(Relist::default);
        let path = collection(self.kind, self.namespace.as_deref(), self.version);
        let mut coming = self.ask(&path, None);
        let mut read = 0;
        loop {
            let asked = match coming.await {
                Ok(asked) => asked,
                // The task was not stopped, so it has panicked, and the hook has told of it.
                Err(_) => return Err(Stop::Closed),
            };
            let Asked {
                api,
                generation,
                result,
            } = asked;
            let text = match result {
                Ok(text) => text,
                Err(e) if e.code() == Some(410) => return Err(Stop::Restart),
                Err(e) => return Err(self.refused(e, generation).await.into()),
            };
            // The next page is on its way while this one is decoded.
            let ahead = Page::peek_next(&text).map(|token| self.ask(&path, Some(&token)));
            self.heard = self.source.now();
            count(&self.counters.bytes, text.len());
            let page = Decoded::read(&text, self.kind, &mut self.decoder);
            drop(text);
            let page = page.map_err(|why| api.garbage(why))?;
            count(&self.counters.objects, page.items.len());
            let mut batch = Vec::with_capacity(page.items.len());
            for item in page.items {
                read += 1;
                match item {
                    Ok(object) => match &mut relist {
                        Some(relist) => relist.add(object, &self.store),
                        None => self.store.set(object, &mut batch),
                    },
                    Err(what) => self.unreadable(what, &mut batch),
                }
            }
            let ahead = match ahead {
                Some(ahead) => Some(ahead),
                None => page.next.map(|token| self.ask(&path, Some(&token))),
            };
            self.send(batch).await?;
            if !self.known {
                self.report(SourceState::Loading { read }).await?;
            }
            let Some(ahead) = ahead else {
                if let Some(relist) = relist {
                    let mut batch = Vec::new();
                    relist.finish(&mut self.store, &mut batch);
                    self.send(batch).await?;
                }
                return Ok(page.version);
            };
            coming = ahead;
        }
    }

    /// The version that this server has of another system's kind.
    async fn find_version(&mut self, kind: ForeignKind) -> Result<&'static str, Stop> {
        let wanted = kind.api();
        let preferred = wanted.versions.first().copied().unwrap_or("v1");
        if wanted.group.is_empty() {
            return Ok(preferred);
        }
        let (api, generation) = self.source.current();
        let group = match api.get(&format!("/apis/{}", wanted.group), DISCOVER).await {
            Ok(group) => group,
            Err(e) if e.code() == Some(404) => {
                let why = format!("not installed: the server has no {}", wanted.group);
                return Err(Stop::Absent(why.into()));
            }
            // Who may not look around may still be let in at the right door.
            Err(e) if e.code() == Some(403) => return Ok(preferred),
            Err(e) => return Err(self.refused(e, generation).await.into()),
        };
        let versions = group.get("versions").and_then(Value::as_array);
        let served: Vec<&str> = versions
            .into_iter()
            .flatten()
            .filter_map(|v| v.get("version")?.as_str())
            .collect();
        for version in wanted.versions {
            if !served.contains(version) {
                continue;
            }
            // A group may serve a version without each of its kinds.
            let path = format!("/apis/{}/{version}", wanted.group);
            let list = api.get(&path, DISCOVER).await;
            let kinds = list
                .as_ref()
                .ok()
                .and_then(|l| l.get("resources")?.as_array());
            let named = |r: &Value| r.get("name").and_then(Value::as_str) == Some(wanted.plural);
            if list.is_err() || kinds.is_some_and(|k| k.iter().any(named)) {
                return Ok(version);
            }
        }
        let known = wanted.versions.iter().any(|v| served.contains(v));
        let why = if known {
            format!("not installed: the server has no {}", wanted.full_name)
        } else {
            format!(
                "other version: the server has {} {}, and {} can be read",
                wanted.group,
                clean(&served.join(", "), 100),
                wanted.versions.join(", ")
            )
        };
        Err(Stop::Absent(why.into()))
    }

    /// Forgets what was known of a system that is gone, tells it, and looks again in a while.
    async fn absent(&mut self, why: Str) -> Result<(), Closed> {
        let mut batch = Vec::new();
        Relist::default().finish(&mut self.store, &mut batch);
        self.send(batch).await?;
        self.known = false;
        self.report(SourceState::Absent { why }).await?;
        sleep(self.absent_pause).await;
        self.absent_pause = (self.absent_pause * 2).min(MAX_ABSENT);
        Ok(())
    }

    /// Asks for a page; the answer comes in while other things are done.
    fn ask(&self, path: &str, token: Option<&str>) -> AbortOnDropHandle<Asked> {
        let mut url = format!("{path}?limit={PAGE}");
        if let Some(token) = token {
            url.push_str("&continue=");
            url.push_str(&query_value(token));
        }
        let (api, generation) = self.source.current();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let result = api.get_text(&url, LIST_OPEN).await;
            Asked {
                api,
                generation,
                result,
            }
        }))
    }

    fn unreadable(&mut self, what: Str, batch: &mut Vec<Delta>) {
        if self.told.len() < MAX_TOLD && self.told.insert(what.clone()) {
            batch.push(Delta::Unreadable {
                kind: self.kind,
                what,
            });
        }
    }

    /// After a 401 the client is rebuilt; what is left is why that did not help.
    async fn refused(&mut self, error: ApiError, generation: u64) -> ApiError {
        if !matches!(error, ApiError::Unauthorized { .. }) {
            return error;
        }
        match self.source.rebuild(generation).await {
            Ok(()) => {
                self.logged_in = self.source.current().1 != generation;
                error
            }
            Err(login) => login,
        }
    }

    /// Follows changes from `version` on, which moves along.
    async fn watch(&mut self, version: &mut String) -> Result<End, Stop> {
        let secs = fastrand::u64(WATCH_SECS);
        let mut url = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={secs}",
            collection(self.kind, self.namespace.as_deref(), self.version)
        );
        if !version.is_empty() {
            url.push_str("&resourceVersion=");
            url.push_str(&query_value(version));
        }
        let (api, generation) = self.source.current();
        let begun = Instant::now();
        let opened = api.open(Method::GET, &url, None, WATCH_OPEN).await;
        let mut body = match opened {
            Ok(response) => response.into_body(),
            // The version is too old, from the future, or of a form that this server refuses.
            Err(e) if matches!(e.code(), Some(400 | 404 | 410 | 422 | 504)) => {
                count(&self.counters.troubles, 1);
                return Ok(End::Relist);
            }
            Err(e) => return Err(self.refused(e, generation).await.into()),
        };
        count(&self.counters.watches, 1);
        self.refusals = 0;
        self.heard = self.source.now();
        self.report(SourceState::Live).await?;
        let deadline = begun + Duration::from_secs(secs) + WATCH_GRACE;
        let mut lines = Lines::default();
        let mut any = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let piece = match api.piece(&mut body, left).await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(_) if begun.elapsed() > SOUND_WATCH && !left.is_zero() && any => {
                    // A sound watch whose connection broke: whether the server is gone shows at
                    // the next try.
                    break;
                }
                Err(ApiError::Silent { server, .. }) => {
                    let secs = begun.elapsed().as_secs();
                    return Err(ApiError::Silent { server, secs }.into());
                }
                Err(e) => return Err(e.into()),
            };
            any = true;
            self.heard = self.source.now();
            count(&self.counters.bytes, piece.len());
            let mut batch = Vec::new();
            let mut lost = false;
            let whole = lines.push(&piece, |line| {
                lost |= self.line(line, version, &mut batch);
            });
            self.send(batch).await?;
            if whole.is_err() {
                return Err(api.garbage("a watch event without an end").into());
            }
            if lost {
                return Ok(End::Relist);
            }
            if begun.elapsed() > SOUND_WATCH {
                self.pause = FIRST_PAUSE;
            }
        }
        // The last line may lack its end; half a line is told again by the next watch.
        if serde_json::from_slice::<Line<'_>>(lines.rest()).is_ok() {
            let mut batch = Vec::new();
            let rest = lines.rest().to_vec();
            let lost = self.line(&rest, version, &mut batch);
            self.send(batch).await?;
            if lost {
                return Ok(End::Relist);
            }
        }
        if begun.elapsed() > SOUND_WATCH {
            self.empty_watches = 0;
            self.pause = FIRST_PAUSE;
            return Ok(End::Resume);
        }
        self.empty_watches = if any { 0 } else { self.empty_watches + 1 };
        // Some servers answer a version that is too old with an empty 200.
        if self.empty_watches >= 2 {
            self.empty_watches = 0;
            return Ok(End::Relist);
        }
        self.wait().await;
        Ok(End::Resume)
    }

    /// Folds one line of a watch; whether the place in the stream is lost.
    fn line(&mut self, line: &[u8], version: &mut String, batch: &mut Vec<Delta>) -> bool {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        if text.is_empty() {
            return false;
        }
        let Ok(event) = serde_json::from_str::<Line<'_>>(text) else {
            // Half a line at a broken connection's end, or garbage: the next watch tells it again
            // from the last version, a relist if that is gone.
            let what = clean(text, 120);
            self.unreadable(
                format!("{}: a watch event that is no JSON: {what}", self.kind).into(),
                batch,
            );
            return true;
        };
        let json = event.object.get();
        match &*event.kind {
            "BOOKMARK" => {
                if let Some(v) = version_of(json) {
                    *version = v;
                }
                false
            }
            "ERROR" => {
                count(&self.counters.troubles, 1);
                let (code, message) = status_of(json);
                tracing::debug!(kind = %self.kind, code, message, "the watch ended in an error");
                true
            }
            kind @ ("ADDED" | "MODIFIED" | "DELETED") => {
                count(&self.counters.objects, 1);
                match self.decoder.decode(self.kind, json) {
                    Ok(object) => {
                        let stated = &object.meta().resource_version.0;
                        if !stated.is_empty() {
                            *version = stated.to_string();
                        }
                        if kind == "DELETED" {
                            let uid = object.meta().uid.clone();
                            self.store.remove(&uid, batch);
                        } else {
                            self.store.set(object, batch);
                        }
                    }
                    Err(what) => {
                        if let Some(v) = version_of(json) {
                            *version = v;
                        }
                        self.unreadable(what, batch);
                    }
                }
                false
            }
            other => {
                let other = clean(other, 40);
                self.unreadable(
                    format!("{}: a watch event of type {other:?}", self.kind).into(),
                    batch,
                );
                false
            }
        }
    }

    /// Tells what went wrong and waits as long as that makes sense.
    async fn trouble(&mut self, error: ApiError) -> Result<Next, Closed> {
        count(&self.counters.troubles, 1);
        if std::mem::take(&mut self.logged_in) {
            return Ok(Next::Again);
        }
        let why: Str = clean(&error.to_string(), 500).into();
        match error.code() {
            // A server that has just started does not know the roles yet, or not its own APIs.
            Some(403 | 404) if self.known && self.refusals < MAX_REFUSALS => {
                self.refusals += 1;
                self.lost(why).await?;
                self.wait().await;
                Ok(Next::Again)
            }
            Some(403) => {
                if let Some(namespace) = self.fallback() {
                    self.namespace = Some(namespace);
                    return Ok(Next::Relist);
                }
                let place = match &self.namespace {
                    Some(ns) => format!("in namespace {ns}"),
                    None => "in all namespaces".to_owned(),
                };
                let place = if is_namespaced(self.kind) {
                    place
                } else {
                    "in the cluster".to_owned()
                };
                let why = format!("you may not list and watch {} {place}: {why}", self.kind);
                self.report(SourceState::Denied { why: why.into() }).await?;
                sleep(RECHECK).await;
                Ok(Next::Relist)
            }
            // Queues are an offer: without the kind there are none.
            Some(404) if self.kind == Kind::GpuQueue => {
                let why = "not installed: the server has no gpuqueues.gpudeck.dev, so each \
                           namespace is a queue of its own";
                self.absent(why.into()).await?;
                Ok(Next::Relist)
            }
            Some(404) if self.kind == Kind::GpuNode => {
                let why = "not installed: the server has no gpunodes.gpudeck.dev, so no agent \
                           tells which pod holds which GPU";
                self.absent(why.into()).await?;
                Ok(Next::Relist)
            }
            Some(404) => {
                let why = format!("this server has no {}: {why}", self.kind);
                self.lost(why.into()).await?;
                sleep(RECHECK).await;
                Ok(Next::Relist)
            }
            _ => {
                self.lost(why).await?;
                let more = match error {
                    ApiError::Status {
                        retry_after_secs: Some(secs),
                        ..
                    } => secs.min(5),
                    // Bad credentials shown too often can lock an account.
                    ApiError::Unauthorized { .. } | ApiError::Login { .. } => 5,
                    _ => 0,
                };
                sleep(Duration::from_secs(more)).await;
                self.wait().await;
                Ok(Next::Again)
            }
        }
    }

    /// Stale if it was known before, else failed.
    async fn lost(&mut self, why: Str) -> Result<(), Closed> {
        let state = if self.known {
            SourceState::Stale {
                since: self.heard,
                why,
            }
        } else {
            SourceState::Failed { why }
        };
        self.report(state).await
    }
}
