//! List and watch: one task per kind keeps the stream of deltas true to the server.
//!
//! - A list is paged (500) and consistent; `resourceVersion=0` is not sent, since servers then
//!   ignore the page size and answer with everything at once.
//! - A watch is short (16 to 20 s, the server sends a bookmark before it ends). One that does not
//!   end in time is dead, whatever else the server answers: so a silent connection is noticed
//!   within 24 s although servers send bookmarks only once a minute. The price is three requests
//!   a minute and kind, which need no list because the bookmark keeps the version fresh.
//! - A relist is compared by UID: what vanished is told, what did not change is not.

mod health;
mod lines;
mod page;
mod paths;
mod stop;
mod store;
mod task;
#[cfg(test)]
mod tests;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::health::{Health, HealthLog};
pub(super) use self::page::Page;
pub(super) use self::paths::query_value;
use super::source::ClientSource;
use crate::model::{Delta, Kind, Str};

/// Which part of the cluster is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only this namespace (cluster-scoped kinds are watched all the same).
    pub namespace: Option<Str>,
    /// The namespace to fall back to when the user may not list a kind in all namespaces.
    pub fallback: Option<Str>,
}

/// The running tasks. They end when the token is cancelled, the receiver is dropped, or this is.
pub struct Watcher {
    tasks: JoinSet<()>,
    health: HealthLog,
}

impl Watcher {
    /// Starts one task per kind; deltas come in batches over `tx`, which may be small: a slow
    /// receiver slows the reading.
    pub fn start(
        source: &ClientSource,
        scope: &Scope,
        kinds: &[Kind],
        tx: &mpsc::Sender<Vec<Delta>>,
        stop: &CancellationToken,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let health = HealthLog::new(kinds);
        for kind in kinds {
            let task =
                task::KindTask::new(*kind, source.clone(), scope.clone(), tx.clone(), &health);
            tasks.spawn(task.run(stop.clone()));
        }
        Watcher { tasks, health }
    }

    /// Counts of lists, reconnections and bytes per kind, for a health line.
    pub fn health(&self) -> &HealthLog {
        &self.health
    }

    /// Waits until all tasks have ended (after the token was cancelled).
    pub async fn join(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
