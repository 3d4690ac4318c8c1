//! The object store: one global resourceVersion, one ordered table and one change history a kind.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::history::{History, Recorder};
use super::object::{Field, Object};
use super::signal::{Listening, Signal};

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// The object came to be.
    Added,
    /// It changed.
    Modified,
    /// It is gone; the change holds its last state.
    Deleted,
}

/// One entry of a table's history.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// What happened.
    pub(super) kind: ChangeKind,
    /// The state after it, or the last one of a deleted object.
    pub(super) object: Arc<Object>,
    /// The state before it.
    pub(super) previous: Option<Arc<Object>>,
}

/// The history that a reader asked for is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired {
    /// The oldest resourceVersion that can still be asked for.
    pub(super) oldest: u64,
}

/// Why a commit was refused.
#[derive(Debug)]
pub(super) enum Refused {
    /// The key exists already.
    Exists,
    /// The key is gone, or never was.
    Missing,
    /// Its resourceVersion is another than the writer read.
    Changed,
    /// The object cannot be written as JSON.
    Json(serde_json::Error),
}

/// How much history a table keeps for watches and for consistent pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct HistoryLimits {
    /// Changes kept a table.
    pub(super) changes: usize,
    /// Bytes of object JSON kept a table.
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    history: VecDeque<Change>,
    history_bytes: usize,
    // The resourceVersion of the newest change that was dropped from the history.
    floor: u64,
    fields: &'static [Field],
    changed: Signal,
}

impl Table {
    fn new(fields: &'static [Field]) -> Self {
        Table {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            floor: 0,
            fields,
            changed: Signal::default(),
        }
    }

    fn record(&mut self, change: Change, limits: HistoryLimits) {
        let rv = change.object.rv;
        self.remember(change, limits);
        self.changed.raise(rv);
    }

    /// Takes a change into the history without a word to those who wait.
    fn remember(&mut self, change: Change, limits: HistoryLimits) {
        self.history_bytes += change.object.size_bytes();
        self.history.push_back(change);
        while self.history.len() > limits.changes || self.history_bytes > limits.bytes {
            let Some(dropped) = self.history.pop_front() else {
                break;
            };
            self.history_bytes = self
                .history_bytes
                .saturating_sub(dropped.object.size_bytes());
            self.floor = dropped.object.rv;
        }
    }

    /// Changes newer than `rv`.
    fn since(&self, rv: u64) -> Result<impl Iterator<Item = &Change>, Expired> {
        if rv < self.floor {
            return Err(Expired { oldest: self.floor });
        }
        let first = self
            .history
            .partition_point(|change| change.object.rv <= rv);
        Ok(self.history.range(first..))
    }
}

#[derive(Debug)]
struct State {
    rv: u64,
    tables: HashMap<Arc<str>, Table>,
    recorder: Option<Recorder>,
}

impl State {
    /// Adds an object that must not exist; `make` makes it of its key, its resourceVersion and the
    /// fields that its table selects by.
    fn add(
        &mut self,
        id: &str,
        key: &str,
        make: impl FnOnce(Arc<str>, u64, &'static [Field]) -> Result<Object, serde_json::Error>,
        limits: HistoryLimits,
    ) -> Result<Arc<Object>, Refused> {
        let rv = self.rv + 1;
        let table = self.tables.get_mut(id).ok_or(Refused::Missing)?;
        if table.objects.contains_key(key) {
            return Err(Refused::Exists);
        }
        let key: Arc<str> = key.into();
        let object = Arc::new(make(key.clone(), rv, table.fields).map_err(Refused::Json)?);
        table.objects.insert(key, object.clone());
        let change = Change {
            kind: ChangeKind::Added,
            object: object.clone(),
            previous: None,
        };
        table.remember(change, limits);
        self.advance(id, ChangeKind::Added, &object);
        Ok(object)
    }

    /// Wakes who waits for changes of a table.
    fn raise(&self, id: &str, rv: u64) {
        if let Some(table) = self.tables.get(id) {
            table.changed.raise(rv);
        }
    }

    /// Makes a change the newest one.
    fn advance(&mut self, table: &str, kind: ChangeKind, object: &Object) {
        self.rv = object.rv;
        if let Some(recorder) = &mut self.recorder {
            recorder.add(table, kind, object);
        }
    }
}

/// The store. All of it is under one lock, held for map operations and one serialisation only, but
/// for objects that are loaded by the hundred.
#[derive(Debug)]
pub(super) struct Store {
    state: Mutex<State>,
    limits: HistoryLimits,
}

/// One page of a list.
#[derive(Debug)]
pub(super) struct Page {
    /// The objects, in key order.
    pub(super) objects: Vec<Arc<Object>>,
    /// The resourceVersion that the whole list shows.
    pub(super) rv: u64,
    /// The last key looked at, when there is more.
    pub(super) next: Option<Arc<str>>,
    /// How many keys are left behind `next`.
    pub(super) remaining: usize,
}

/// What one look at the history gave a watcher.
#[derive(Debug)]
pub(super) struct Batch {
    /// Changes in order.
    pub(super) changes: Vec<Change>,
    /// The resourceVersion up to which the watcher has now seen everything.
    pub(super) cursor: u64,
    /// Whether newer changes are waiting.
    pub(super) more: bool,
}

/// Which part of a table a list takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range<'a> {
    /// Only this namespace; empty for all.
    pub(super) namespace: &'a str,
    /// Only keys behind this one.
    pub(super) after: Option<&'a str>,
    /// The state as of this resourceVersion instead of now.
    pub(super) at: Option<u64>,
    /// At most this many; 0 for no limit.
    pub(super) limit: usize,
    /// How many keys are left from here on, where an earlier page counted them.
    pub(super) remaining: Option<usize>,
}

impl Store {
    /// An empty store.
    pub(super) fn new(limits: HistoryLimits, recorder: Option<Recorder>) -> Self {
        // Like a fresh etcd, revision 1 exists before the first object.
        Store {
            state: Mutex::new(State {
                rv: 1,
                tables: HashMap::new(),
                recorder,
            }),
            limits,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held cannot leave a map half changed: every commit is one insert.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the table `id` unless it is there.
    pub(super) fn ensure_table(&self, id: &Arc<str>, fields: &'static [Field]) {
        self.lock()
            .tables
            .entry(id.clone())
            .or_insert_with(|| Table::new(fields));
    }

    /// All changes so far, if they are recorded.
    pub(super) fn history(&self) -> Option<History> {
        self.lock().recorder.as_ref().map(Recorder::history)
    }

    /// The current resourceVersion.
    pub(super) fn rv(&self) -> u64 {
        self.lock().rv
    }

    /// The object under `key`.
    pub(super) fn get(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        self.lock().tables.get(table)?.objects.get(key).cloned()
    }

    /// Whether `key` exists.
    pub(super) fn contains(&self, table: &str, key: &str) -> bool {
        self.lock()
            .tables
            .get(table)
            .is_some_and(|t| t.objects.contains_key(key))
    }

    /// All objects of a table (or of one namespace in it) now.
    pub(super) fn all(&self, table: &str, namespace: &str) -> Vec<Arc<Object>> {
        let state = self.lock();
        let Some(table) = state.tables.get(table) else {
            return Vec::new();
        };
        let (low, high) = bounds(namespace, None);
        table
            .objects
            .range::<str, _>((
                low.as_ref().map(String::as_str),
                high.as_ref().map(String::as_str),
            ))
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// The resourceVersion of the last change of a table; 0 before the first.
    pub(super) fn table_rv(&self, table: &str) -> u64 {
        self.lock()
            .tables
            .get(table)
            .map_or(0, |t| t.changed.newest())
    }

    /// Adds an object that must not exist. `value` comes back with its resourceVersion in it.
    pub(super) fn create(
        &self,
        id: &str,
        key: &str,
        value: &mut Value,
    ) -> Result<Arc<Object>, Refused> {
        let mut state = self.lock();
        let make = |key, rv, fields: &[Field]| Object::new(key, rv, value, fields);
        let object = state.add(id, key, make, self.limits)?;
        state.raise(id, object.rv);
        Ok(object)
    }

    /// Adds those that do not exist, all of them under one lock and with one word to those who
    /// wait; tells of each whether it was added.
    pub(super) fn create_all<'a>(
        &self,
        id: &str,
        news: impl Iterator<Item = (&'a str, &'a mut Value)>,
    ) -> Result<Vec<bool>, Refused> {
        self.add_all(id, news, |key, rv, fields, value| {
            Object::new(key, rv, value, fields)
        })
    }

    /// As [`Store::create_all`]; `make` makes each of its key, its resourceVersion, the fields that
    /// the table selects by and what comes with the key.
    pub(super) fn add_all<K: AsRef<str>, N>(
        &self,
        id: &str,
        news: impl IntoIterator<Item = (K, N)>,
        mut make: impl FnMut(Arc<str>, u64, &'static [Field], N) -> Result<Object, serde_json::Error>,
    ) -> Result<Vec<bool>, Refused> {
        let mut state = self.lock();
        let before = state.rv;
        let news = news.into_iter();
        let added = news.map(|(key, new)| {
            let make = |key, rv, fields| make(key, rv, fields, new);
            match state.add(id, key.as_ref(), make, self.limits) {
                Ok(_) => Ok(true),
                Err(Refused::Exists) => Ok(false),
                Err(error) => Err(error),
            }
        });
        let added = added.collect();
        if state.rv > before {
            state.raise(id, state.rv);
        }
        added
    }

    /// Replaces an object that must still have the resourceVersion `read`.
    pub(super) fn replace(
        &self,
        id: &str,
        key: &str,
        read: u64,
        value: &mut Value,
    ) -> Result<Arc<Object>, Refused> {
        let mut state = self.lock();
        let rv = state.rv + 1;
        let table = state.tables.get_mut(id).ok_or(Refused::Missing)?;
        let slot = table.objects.get_mut(key).ok_or(Refused::Missing)?;
        if slot.rv != read {
            return Err(Refused::Changed);
        }
        let object = Arc::new(
            Object::new(slot.key.clone(), rv, value, table.fields).map_err(Refused::Json)?,
        );
        let previous = std::mem::replace(slot, object.clone());
        let change = Change {
            kind: ChangeKind::Modified,
            object: object.clone(),
            previous: Some(previous),
        };
        table.record(change, self.limits);
        state.advance(id, ChangeKind::Modified, &object);
        Ok(object)
    }

    /// Removes an object that must still have the resourceVersion `read`; `last` is its last state.
    pub(super) fn remove(
        &self,
        id: &str,
        key: &str,
        read: u64,
        last: &mut Value,
    ) -> Result<Arc<Object>, Refused> {
        let mut state = self.lock();
        let rv = state.rv + 1;
        let table = state.tables.get_mut(id).ok_or(Refused::Missing)?;
        let previous = table.objects.get(key).ok_or(Refused::Missing)?;
        if previous.rv != read {
            return Err(Refused::Changed);
        }
        let object = Arc::new(
            Object::new(previous.key.clone(), rv, last, table.fields).map_err(Refused::Json)?,
        );
        let previous = table.objects.remove(key);
        let change = Change {
            kind: ChangeKind::Deleted,
            object: object.clone(),
            previous,
        };
        table.record(change, self.limits);
        state.advance(id, ChangeKind::Deleted, &object);
        Ok(object)
    }

    /// Objects of `range` that `matches`, now or as they were at an earlier resourceVersion.
    pub(super) fn page(
        &self,
        table: &str,
        range: Range<'_>,
        matches: impl Fn(&Object) -> bool,
    ) -> Result<Page, Expired> {
        let state = self.lock();
        let now = state.rv;
        let empty = Page {
            objects: Vec::new(),
            rv: range.at.unwrap_or(now),
            next: None,
            remaining: 0,
        };
        let Some(table) = state.tables.get(table) else {
            return Ok(empty);
        };
        let (low, high) = bounds(range.namespace, range.after);
        let span = (
            low.as_ref().map(String::as_str),
            high.as_ref().map(String::as_str),
        );

        // Rewinds the keys that changed since `at` to what they held then.
        let mut rewound: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        if let Some(at) = range.at {
            for change in table.since(at)? {
                let key: &str = &change.object.key;
                if std::ops::RangeBounds::<str>::contains(&span, key) {
                    rewound.entry(key).or_insert(change.previous.as_ref());
                }
            }
        }

        let mut live = table
            .objects
            .range::<str, _>(span)
            .filter(|(key, _)| rewound.is_empty() || !rewound.contains_key(&***key))
            .map(|(_, object)| object)
            .peekable();
        let mut past = rewound.values().filter_map(|object| *object).peekable();
        let mut page = empty;
        loop {
            let object = match (live.peek(), past.peek()) {
                (None, None) => return Ok(page),
                (Some(a), Some(b)) if b.key < a.key => past.next(),
                (None, Some(_)) => past.next(),
                _ => live.next(),
            };
            let Some(object) = object else {
                return Ok(page);
            };
            if !matches(object) {
                continue;
            }
            page.objects.push(object.clone());
            if range.limit > 0 && page.objects.len() == range.limit {
                if live.peek().is_some() || past.peek().is_some() {
                    page.next = Some(object.key.clone());
                    // Counting walks the table, so it is done once a list and handed on.
                    page.remaining = match range.remaining {
                        Some(before) => before.saturating_sub(range.limit),
                        None if range.namespace.is_empty() && rewound.is_empty() => {
                            table.objects.len().saturating_sub(range.limit)
                        }
                        None => live.count() + past.count(),
                    };
                }
                return Ok(page);
            }
        }
    }

    /// Up to `most` changes of a table newer than `cursor`.
    pub(super) fn changes(&self, table: &str, cursor: u64, most: usize) -> Result<Batch, Expired> {
        let state = self.lock();
        let now = state.rv;
        let Some(table) = state.tables.get(table) else {
            return Ok(Batch {
                changes: Vec::new(),
                cursor: cursor.max(now),
                more: false,
            });
        };
        let mut newer = table.since(cursor)?;
        let changes: Vec<Change> = newer.by_ref().take(most).cloned().collect();
        let more = newer.next().is_some();
        let cursor = match changes.last() {
            Some(last) if more => last.object.rv,
            _ if more => cursor,
            _ => cursor.max(now),
        };
        Ok(Batch {
            changes,
            cursor,
            more,
        })
    }

    /// Wakes on each change of a table; `None` for an unknown table.
    pub(super) fn subscribe(&self, table: &str) -> Option<Listening> {
        self.lock().tables.get(table).map(|t| t.changed.listen())
    }

    /// Forgets all history, as etcd's compaction does: watches and pages from before answer 410.
    pub(super) fn compact(&self) {
        let mut state = self.lock();
        let rv = state.rv;
        for table in state.tables.values_mut() {
            table.history.clear();
            table.history_bytes = 0;
            table.floor = rv;
        }
    }
}

fn bounds(namespace: &str, after: Option<&str>) -> (Bound<String>, Bound<String>) {
    // '0' is the byte behind '/': the end of all keys of this namespace.
    let (first, end) = if namespace.is_empty() {
        (Bound::Unbounded, Bound::Unbounded)
    } else {
        (
            Bound::Included(format!("{namespace}/")),
            Bound::Excluded(format!("{namespace}0")),
        )
    };
    match after {
        None => (first, end),
        // A key outside the namespace would make the range inside out.
        Some(key) if !namespace.is_empty() && !key.starts_with(&format!("{namespace}/")) => {
            (first, end)
        }
        Some(key) => (Bound::Excluded(key.to_owned()), end),
    }
}
