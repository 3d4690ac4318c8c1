//! Objects from an earlier life of the cluster: they are there, with their status, when the first
//! client comes. For scenarios that start full; a hundred thousand requests would take a minute.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Notify;

use super::object::text;
use super::path::ResourcePath;
use super::query::Query;
use super::resources::Resource;
use super::serve::Call;
use super::verbs::Birth;
use super::{ApiServer, Inner, User, meta};

/// Threads that make objects, at most.
const MAKERS: usize = 8;
/// Parts that each of them has ready before they are stored.
const AHEAD: usize = 4;

/// An object that cannot be one of this server.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name} cannot be loaded: {why}")]
pub struct PreloadError {
    /// Its kind as given.
    pub kind: String,
    /// Its name as given.
    pub name: String,
    /// Why.
    pub why: String,
}

/// Lists and watches wait while it exists: a cluster that is being filled is not read yet.
#[derive(Debug)]
pub struct Hold(Arc<Inner>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.release();
    }
}

/// How many hold the readers up.
#[derive(Debug, Default)]
pub(super) struct Holds {
    count: AtomicUsize,
    released: Notify,
}

impl Holds {
    fn release(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.released.notify_waiters();
    }

    /// Ends when nobody holds the readers up.
    pub(super) async fn over(&self) {
        loop {
            let mut released = pin!(self.released.notified());
            // In line before the look: a release after it wakes this one.
            released.as_mut().enable();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            released.await;
        }
    }
}

impl ApiServer {
    /// Has lists and watches that begin from now on wait until the answer is dropped.
    pub fn hold(&self) -> Hold {
        self.inner.holds.count.fetch_add(1, Ordering::AcqRel);
        Hold(self.inner.clone())
    }

    /// Stores objects with their status, defaulted and checked as created ones. One whose name is
    /// taken is left out.
    ///
    /// `make` makes the `parts` parts, several at a time on threads of their own; they are stored
    /// in their order. Blocks until all are.
    ///
    /// # Errors
    /// A kind that is not served, or an object that admission refuses. The parts before it are
    /// stored.
    pub fn preload(
        &self,
        parts: usize,
        make: impl Fn(usize) -> Vec<Value> + Sync,
    ) -> Result<(), PreloadError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let makers = cores.min(MAKERS).min(parts);
        let (inner, make) = (&*self.inner, &make);
        // Here and once: the clock of a stepped run stands still on its own thread only.
        let now = &inner.options.clock.time();
        thread::scope(|scope| {
            let made: Vec<_> = (0..makers)
                .map(|first| {
                    let (send, made) = sync_channel(AHEAD);
                    scope.spawn(move || {
                        for part in (first..parts).step_by(makers) {
                            // Nobody takes it when a part before it was refused.
                            if send.send(inner.admit_part(make(part), now)).is_err() {
                                return;
                            }
                        }
                    });
                    made
                })
                .collect();
            // Part after part, whichever thread is faster: the same order in every run.
            let parts = made.iter().cycle().take(parts);
            // A maker that panics is the scope's panic.
            for part in parts.map_while(|made| made.recv().ok()) {
                for run in part? {
                    inner.store_run(run)?;
                }
            }
            Ok(())
        })
    }
}

/// An admitted object.
pub(super) struct Admitted {
    pub(super) call: Call,
    pub(super) key: String,
    pub(super) object: Value,
}

impl Inner {
    /// Admits one object.
    pub(super) fn admit_one(&self, object: Value, now: &str) -> Result<Admitted, PreloadError> {
        let nothing = || PreloadError {
            kind: String::new(),
            name: String::new(),
            why: "there is no object".to_owned(),
        };
        let runs = self.admit_part(vec![object], now)?;
        runs.into_iter().flatten().next().ok_or_else(nothing)
    }

    /// Admits objects, in runs of one kind. Those that do not say when they were created are new
    /// `now`.
    fn admit_part(
        &self,
        objects: Vec<Value>,
        now: &str,
    ) -> Result<Vec<Vec<Admitted>>, PreloadError> {
        let mut runs: Vec<Vec<Admitted>> = Vec::new();
        let mut kind: Option<Arc<Resource>> = None;
        for mut object in objects {
            let refused = |object: &Value, why: String| PreloadError {
                kind: text(object, "/kind").to_owned(),
                name: text(object, "/metadata/name").to_owned(),
                why,
            };
            let same = kind.take().filter(|res| is_of(res, &object));
            let new = same.is_none();
            let res = match same.or_else(|| self.resource_for(&object)) {
                Some(res) => res,
                None => {
                    let why = format!(
                        "{} {} is not served",
                        text(&object, "/apiVersion"),
                        text(&object, "/kind")
                    );
                    return Err(refused(&object, why));
                }
            };
            let call = call_on(res.clone(), text(&object, "/metadata/namespace"));
            kind = Some(res);
            let name = text(&object, "/metadata/name").to_owned();
            if let Some(meta) = meta::of(&mut object) {
                meta.entry("creationTimestamp")
                    .or_insert_with(|| now.into());
            }
            let key = self
                .complete_new(&call, &mut object, &name, Birth::Earlier)
                .map_err(|error| refused(&object, error.message))?;
            let admitted = Admitted { call, key, object };
            match runs.last_mut().filter(|_| !new) {
                Some(run) => run.push(admitted),
                None => runs.push(vec![admitted]),
            }
        }
        Ok(runs)
    }

    /// The kind that the object says it is of.
    fn resource_for(&self, object: &Value) -> Option<Arc<Resource>> {
        let registry = self.registry();
        let found = registry.all().find(|res| !res.review && is_of(res, object));
        found.cloned()
    }

    /// Stores a run.
    fn store_run(&self, mut run: Vec<Admitted>) -> Result<(), PreloadError> {
        let Some(table) = run.first().map(|first| first.call.res.table.clone()) else {
            return Ok(());
        };
        let news = run
            .iter_mut()
            .map(|new| (new.key.as_str(), &mut new.object));
        let stored = self.store.create_all(&table, news);
        let stored = stored.map_err(|error| PreloadError {
            kind: table.to_string(),
            name: String::new(),
            why: format!("{error:?}"),
        })?;
        for (new, _) in run.iter().zip(stored).filter(|(_, stored)| *stored) {
            self.after_write(&new.call, &new.object);
        }
        Ok(())
    }
}

/// Whether the object says that it is of this kind.
fn is_of(res: &Resource, object: &Value) -> bool {
    let version = text(object, "/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    res.kind == text(object, "/kind") && res.group == group && res.version == version
}

/// The administrator's call that would create it.
fn call_on(res: Arc<Resource>, namespace: &str) -> Call {
    Call {
        path: ResourcePath {
            group: res.group.clone(),
            version: res.version.clone(),
            namespace: namespace.to_owned(),
            plural: res.plural.clone(),
            ..ResourcePath::default()
        },
        res,
        query: Query::default(),
        user: User::admin(),
        content_type: String::new(),
        body: Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;
    use crate::sandbox::Options;

    #[tokio::test]
    async fn what_is_loaded_has_its_status_and_the_defaults_of_a_created_one() {
        let server = ApiServer::new(Options::default()).unwrap();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        server.preload(1, |_| vec![node.clone()]).unwrap();
        server
            .preload(2, |_| vec![pod.clone(), pod.clone()])
            .unwrap();
        let get = |path: &'static str| {
            let client = server.client();
            async move {
                let request = http::Request::get(path).body(Vec::new()).unwrap();
                client.request::<Value>(request).await.unwrap()
            }
        };
        let pod = get("/api/v1/namespaces/default/pods/p").await;
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
        assert!(pod["metadata"]["uid"].is_string());
        assert!(get("/api/v1/nodes/n").await["spec"]["taints"].is_null());
        let error = server
            .preload(1, |_| vec![json!({"kind": "X", "apiVersion": "a/v1"})])
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "X  cannot be loaded: a/v1 X is not served"
        );
    }

    #[tokio::test]
    async fn parts_are_stored_in_their_order_whoever_makes_them_first() {
        let server = ApiServer::new(Options {
            record_history: true,
            ..Options::default()
        })
        .unwrap();
        let name = |part: usize, at: usize| format!("c-{part:02}-{at}");
        server
            .preload(20, |part| {
                let map = |at| {
                    json!({"apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": name(part, at), "namespace": "default"}})
                };
                (0..3).map(map).collect()
            })
            .unwrap();
        let history = server.history().unwrap();
        let written = history.entries.iter().filter(|e| e.table == "/configmaps");
        let written: Vec<&str> = written.map(|entry| entry.key.as_str()).collect();
        let wanted = (0..20).flat_map(|part| (0..3).map(move |at| name(part, at)));
        let wanted: Vec<String> = wanted.map(|name| format!("default/{name}")).collect();
        assert_eq!(written, wanted);
    }

    #[tokio::test]
    async fn a_list_waits_for_the_end_of_a_hold() {
        let server = ApiServer::new(Options::default()).unwrap();
        let hold = server.hold();
        let client = server.client();
        let list = tokio::spawn(async move {
            let request = http::Request::get("/api/v1/pods").body(Vec::new()).unwrap();
            client.request::<Value>(request).await.unwrap()
        });
        let request = http::Request::get("/api/v1/namespaces/default");
        let request = request.body(Vec::new()).unwrap();
        // What is no list is answered.
        server.client().request::<Value>(request).await.unwrap();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        server.preload(1, |_| vec![pod.clone()]).unwrap();
        assert!(!list.is_finished());
        drop(hold);
        assert_eq!(list.await.unwrap()["items"][0]["metadata"]["name"], "p");
    }
}
