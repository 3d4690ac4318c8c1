//! Other schedulers side by side with ours: Kueue, Volcano and KAI with their custom kinds, each
//! played just well enough that its own work is admitted, runs, and is told of in its objects.

mod bind;
mod binder;
mod definitions;
pub mod kai;
mod kai_shares;
pub mod kueue;
mod kueue_actor;
mod kueue_admit;
mod kueue_preempt;
mod kueue_quota;
mod kueue_status;
mod kueue_topology;
mod placer;
mod standing;
pub mod usual;
pub mod volcano;
mod volcano_job_plan;
mod volcano_jobs;
mod volcano_nodes;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Feeds;
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::objects::{Custom, Tracked};
use crate::sandbox::actors::watch::{Change, Feed};
use crate::sandbox::calls::{CallError, Calls};

/// Which of them are there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Kueue.
    pub kueue: Option<kueue::Settings>,
    /// Volcano.
    pub volcano: Option<volcano::Settings>,
    /// KAI.
    pub kai: Option<kai::Settings>,
    /// Also bind the pods of `default-scheduler`, which Kueue leaves to it; never beside a real one.
    pub default_scheduler: bool,
}

/// Starts those that are asked for.
pub(super) fn start(
    calls: &Calls,
    clock: Clock,
    settings: &Settings,
    feeds: &mut Feeds<'_>,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<()>,
) {
    let follow = |path, tasks: &mut JoinSet<()>| followed::<Custom>(calls, path, cancel, tasks);
    if let Some(settings) = &settings.kueue {
        let [cluster_queues, local_queues, workloads] =
            [kueue::CLUSTER_QUEUES, kueue::LOCAL_QUEUES, kueue::WORKLOADS]
                .map(|path| follow(path, tasks));
        let feeds = kueue_actor::Inputs {
            nodes: feeds.own_nodes(tasks, cancel),
            jobs: feeds.jobs.subscribe(),
            pods: feeds.pods.subscribe(),
            cluster_queues,
            local_queues,
            workloads,
        };
        let kueue = kueue_actor::run(
            calls.clone(),
            clock,
            settings.clone(),
            feeds,
            cancel.clone(),
        );
        tasks.spawn(kueue);
    }
    let mut schedulers = Vec::new();
    if let Some(settings) = &settings.volcano {
        let inputs = volcano_jobs::Inputs {
            jobs: follow(volcano_jobs::JOBS, tasks),
            commands: followed(calls, volcano_jobs::COMMANDS, cancel, tasks),
            pods: feeds.pods.subscribe(),
        };
        let jobs = volcano_jobs::run(calls.clone(), clock, inputs, cancel.clone());
        tasks.spawn(jobs);
        schedulers.push(binder::System::Volcano(settings.clone()));
    }
    if let Some(settings) = &settings.kai {
        schedulers.push(binder::System::Kai(settings.clone()));
    }
    if settings.default_scheduler {
        schedulers.push(binder::System::Default);
    }
    for system in schedulers {
        let (groups, queues) = match system.paths() {
            Some((groups, queues)) => {
                let groups = follow(groups, tasks);
                (Some(groups), Some(follow(queues, tasks)))
            }
            None => (None, None),
        };
        let inputs = binder::Inputs {
            nodes: feeds.own_nodes(tasks, cancel),
            pods: feeds.pods.subscribe(),
            groups,
            queues,
        };
        tasks.spawn(binder::run(
            calls.clone(),
            clock,
            system,
            inputs,
            cancel.clone(),
        ));
    }
}

/// A collection that nobody else follows.
fn followed<T>(
    calls: &Calls,
    path: &'static str,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> mpsc::Receiver<Change<T>>
where
    T: Tracked + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let mut feed: Feed<T> = Feed::new(path);
    let receiver = feed.subscribe();
    tasks.spawn(feed.run(calls.clone(), cancel.clone()));
    receiver
}

/// Creates what is not there, in order; retries while the server is away or does not serve a new
/// kind yet.
async fn ensure_all(calls: &Calls, objects: Vec<(String, Value)>) {
    for (collection, object) in objects {
        for attempt in 0..40u32 {
            match calls.ensure(&collection, &object).await {
                Ok(_) => break,
                // A definition is served a moment after it is accepted.
                Err(error) if error.is_not_found() && attempt < 39 => {
                    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
                }
                Err(error) => {
                    say_refused(&error);
                    break;
                }
            }
        }
    }
}

fn say_refused(error: &CallError) {
    tracing::debug!(%error, "an object of a foreign scheduler was not created");
}
