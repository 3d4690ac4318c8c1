//! The embedded cluster: an in-memory Kubernetes API server.
//!
//! It serves what gpudeck and an operator's kubectl use, in process (no socket) and on loopback,
//! and answers the rest with the real server's errors. Actors (kubelets, controllers, load) are
//! ordinary clients of it and no part of this server.

mod access;
mod admission;
mod audit;
mod body;
mod budgets;
mod clock;
mod convert;
mod crd;
mod discovery;
mod exec;
mod expiry;
pub mod faults;
mod fields;
#[cfg(test)]
mod fuzz;
mod gc;
mod history;
mod ids;
mod jobs;
mod kubeconfig;
mod logs;
mod members;
mod meta;
mod nodes;
mod object;
mod patch;
mod path;
mod people;
mod pods;
mod preload;
mod protobuf;
mod proxy;
mod quantity;
mod query;
mod resources;
mod reviews;
mod schema;
mod selector;
mod serve;
mod shapes;
mod signal;
pub mod span;
mod stamp;
mod status;
mod store;
mod strategic;
mod strict;
mod tables;
mod verbs;
mod watch;
mod websocket;
mod written;

pub mod actors;
pub mod bulk;
pub mod calls;
pub mod inventory;
pub mod listen;
pub mod openb;
pub mod scenario;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};

pub use access::User;
pub use audit::AuditEntry;
pub use clock::{Clock, Time};
pub use history::{Entry, History, Seen, Witness};
pub use kubeconfig::CONTEXT;
pub use preload::{Hold, PreloadError};
pub use proxy::{PortAnswer, Responder};
pub use stamp::{Stamp, hole};

use access::Tokens;
use audit::Audit;
use history::Recorder;
use ids::Ids;
use resources::{Registry, Resource};
use store::{HistoryLimits, Store};

/// How an embedded cluster is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides every UID and generated name.
    pub seed: u64,
    /// Where time stamps come from.
    pub clock: Clock,
    /// Changes kept a kind for watches and consistent pages; older ones answer 410.
    pub history_changes: usize,
    /// Bytes of object JSON kept a kind in that history.
    pub history_bytes: usize,
    /// How often a watch with `allowWatchBookmarks` gets a bookmark.
    pub bookmark_interval: Duration,
    /// How long an Event lives after its last write.
    pub event_ttl: Duration,
    /// Requests kept in memory for [`ApiServer::audit`].
    pub audit_entries: usize,
    /// File that every request is appended to as one line of Kubernetes audit JSON.
    pub audit_log: Option<PathBuf>,
    /// Answer a watch from before the kept history with HTTP status 410, as proxies and older
    /// servers do, instead of the ERROR event that kube-apiserver sends on a 200.
    pub expired_watch_as_status: bool,
    /// Keep a digest of all changes of objects, see [`ApiServer::history`].
    pub record_history: bool,
    /// With `record_history`: who is told of each of them.
    pub witness: Option<Witness>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 0,
            clock: Clock::system(),
            history_changes: 65_536,
            history_bytes: 48 << 20,
            bookmark_interval: Duration::from_secs(60),
            event_ttl: Duration::from_secs(3600),
            audit_entries: 65_536,
            audit_log: None,
            expired_watch_as_status: false,
            record_history: false,
            witness: None,
        }
    }
}

/// Why an embedded cluster could not be started or reached.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The address to listen on is open to other machines.
    #[error("cannot listen on {0}: the embedded cluster serves loopback only, as 127.0.0.1:0")]
    NotLoopback(std::net::SocketAddr),
    /// The port cannot be had.
    #[error("cannot listen on {addr}: {source}; choose another port, or 0 for a free one")]
    Bind {
        /// The address asked for.
        addr: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make the server's certificate: {0}")]
    Certificate(String),
}

/// A running embedded API server. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

/// What all requests share.
#[derive(Debug)]
struct Inner {
    options: Options,
    store: Store,
    registry: RwLock<Arc<Registry>>,
    ids: Ids,
    tokens: RwLock<Tokens>,
    rules: access::RulesCache,
    audit: Audit,
    own_budgets: verbs::OwnBudgets,
    dependents: gc::Dependents,
    ports: proxy::Ports,
    expiry: expiry::Expiry,
    identity: listen::Identity,
    faults: Arc<faults::Board>,
    holds: preload::Holds,
    written: written::Written,
}

impl ApiServer {
    /// Starts a server with the objects that every cluster has.
    pub fn new(options: Options) -> Result<Self, SandboxError> {
        let audit = Audit::open(options.audit_entries, options.audit_log.as_deref())?;
        let registry = Registry::built_in();
        let limits = HistoryLimits {
            changes: options.history_changes,
            bytes: options.history_bytes,
        };
        let recorder = options
            .record_history
            .then(|| Recorder::new(options.witness.clone()));
        let store = Store::new(limits, recorder);
        for resource in registry.all().filter(|r| !r.review) {
            store.ensure_table(&resource.table, resource.fields);
        }
        let ids = Ids::new(options.seed);
        let tokens = Tokens::new();
        let faults = Arc::new(faults::Board::new(options.seed));
        let (board, clock) = (faults.clone(), options.clock.clone());
        let options = Options {
            // A skewed clock is one of the faults that can be asked for.
            clock: Clock::from_fn(move || {
                let now = clock.now();
                now.checked_add(board.skew()).unwrap_or(now)
            }),
            ..options
        };
        let inner = Arc::new(Inner {
            faults,
            store,
            registry: RwLock::new(Arc::new(registry)),
            ids,
            tokens: RwLock::new(tokens),
            rules: access::RulesCache::default(),
            audit,
            own_budgets: verbs::OwnBudgets::default(),
            dependents: gc::Dependents::default(),
            ports: proxy::Ports::default(),
            expiry: expiry::Expiry::default(),
            identity: listen::Identity::default(),
            holds: preload::Holds::default(),
            written: written::Written::default(),
            options,
        });
        inner.seed_objects();
        Ok(ApiServer { inner })
    }

    /// A client in process that acts as the administrator.
    ///
    /// Must be called inside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.client_for(User::admin())
    }

    /// A client in process that acts as `user`.
    ///
    /// Must be called inside a tokio runtime.
    pub fn client_for(&self, user: User) -> kube::Client {
        serve::in_process(self.inner.clone(), user)
    }

    /// Makes `token` a bearer token of `user`.
    pub fn register_token(&self, token: impl Into<String>, user: User) {
        self.inner
            .tokens
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .add(token.into(), user);
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> String {
        self.inner
            .tokens
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .admin()
            .to_owned()
    }

    /// Every request still remembered, oldest first.
    pub fn audit(&self) -> Vec<AuditEntry> {
        self.inner.audit.entries()
    }

    /// Forgets all watch history, as etcd's compaction does: watches and list pages from before
    /// now answer 410.
    pub fn compact(&self) {
        self.inner.store.compact();
    }

    /// Every change of an object since the start, when [`Options::record_history`] asks for it.
    pub fn history(&self) -> Option<History> {
        self.inner.store.history()
    }

    /// The current resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.inner.store.rv()
    }
}

impl Inner {
    fn registry(&self) -> Arc<Registry> {
        self.registry
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Changes the set of served kinds.
    fn update_registry(&self, change: impl FnOnce(&mut Registry)) {
        let mut slot = self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut next = (**slot).clone();
        change(&mut next);
        for resource in next.all().filter(|r| !r.review) {
            self.store.ensure_table(&resource.table, resource.fields);
        }
        *slot = Arc::new(next);
    }

    /// A built-in kind by its table.
    fn resource_of(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.registry()
            .all()
            .find(|r| r.group == group && r.plural == plural)
            .cloned()
    }

    fn seed_objects(&self) {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            self.put_new(
                "",
                "namespaces",
                "",
                name,
                json!({
                    "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                }),
            );
        }
        for (name, value) in [
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ] {
            let description = format!(
                "Used for system critical pods that must {}",
                if value == 2_000_000_000 {
                    "run in the cluster, but can be moved to another node if necessary."
                } else {
                    "not be moved from their current node."
                }
            );
            self.put_new(
                "scheduling.k8s.io",
                "priorityclasses",
                "",
                name,
                json!({
                    "metadata": {"name": name, "generation": 1},
                    "value": value,
                    "description": description,
                    "preemptionPolicy": "PreemptLowerPriority",
                }),
            );
        }
        for (plural, name, object) in access::default_objects() {
            self.put_new("rbac.authorization.k8s.io", plural, "", name, object);
        }
    }

    /// Stores an object as the server itself, past admission.
    fn put_new(&self, group: &str, plural: &str, namespace: &str, name: &str, mut object: Value) {
        let Some(res) = self.resource_of(group, plural) else {
            return;
        };
        let key = res.key(namespace, name);
        let uid = self.ids.uid(&res.table, &key, true);
        let now = self.options.clock.time();
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), res.api_version().into());
            map.insert("kind".into(), res.kind.clone().into());
        }
        if let Some(meta) = meta::of(&mut object) {
            meta.insert("uid".into(), uid.into());
            meta.insert("creationTimestamp".into(), now.into());
        }
        // Only a taken key can fail here, and then the object is there, which is what is wanted.
        let _ = self.store.create(&res.table, &key, &mut object);
    }
}

/// A map from names to values, for the few registries that need no order.
type Names<V> = HashMap<String, V>;
