//! The load generator: teams submit training gangs and notebooks, inference services breathe, and
//! demand stays somewhat above what there is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::load_plan::{DEVICES, INFERENCE, MADE_BY, POOL, Plan, Pool, deployment, services};
pub use super::load_plan::{Gang, Mix, Team};
use super::objects::{Job, Meta, Node};
use super::watch::Change;
use crate::sandbox::calls::{Calls, PatchKind, path};
use crate::sandbox::inventory;

/// How much load there is.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Wanted demand for each device: 1.15 keeps about an eighth of it waiting.
    pub demand_ratio: f64,
    /// Finished Jobs kept for a look back; older ones are deleted.
    pub finished_jobs: usize,
    /// Who submits what.
    pub mix: Mix,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            demand_ratio: 1.15,
            finished_jobs: 40,
            mix: Mix::default(),
        }
    }
}

/// Time between submissions, in seconds of the actors' time.
const TICK_SECS: f64 = 1.0;
/// The shortest time between two ticks, however fast the actors live.
const MIN_TICK: Duration = Duration::from_millis(50);
/// Submissions in one tick while the cluster fills, and afterwards: at least so many, and one more
/// for each so many devices.
const BURST: (usize, usize) = (12, 2);
const DEVICES_PER_BURST: (i64, i64) = (200, 2_000);
/// Time between two changes of an inference service's replicas.
const BREATH_SECS: f64 = 15.0;
/// Pools of at least this many devices get their own load.
const MIN_POOL: i64 = 2;

impl Settings {
    /// The namespaces that the load uses.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        let teams = self.mix.teams.iter().map(|team| team.name.as_str());
        teams.chain([INFERENCE])
    }
}

struct Submitted {
    job: Meta,
    pool: String,
    devices: i64,
    finished: Option<String>,
}

struct Service {
    pool: Pool,
    name: String,
    usual: i64,
    replicas: i64,
}

/// The load generator.
pub struct Load {
    calls: Calls,
    clock: Clock,
    settings: Settings,
    plan: Plan,
    nodes: BTreeMap<String, Arc<Node>>,
    jobs: BTreeMap<String, Submitted>,
    services: BTreeMap<String, Service>,
    nodes_synced: bool,
    jobs_synced: bool,
    /// Demand has once reached what is wanted.
    filled: bool,
    next_breath: Instant,
}

impl Load {
    /// A generator that writes through `calls`.
    pub fn new(calls: Calls, clock: Clock, settings: Settings) -> Self {
        Self {
            plan: Plan::new(clock, settings.mix.clone()),
            calls,
            clock,
            settings,
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            services: BTreeMap::new(),
            nodes_synced: false,
            jobs_synced: false,
            filled: false,
            next_breath: Instant::now(),
        }
    }

    /// Works until `cancel` or the end of a feed.
    pub async fn run(
        mut self,
        mut nodes: mpsc::Receiver<Change<Node>>,
        mut jobs: mpsc::Receiver<Change<Job>>,
        cancel: CancellationToken,
    ) {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = self.prepare() => {}
        }
        let mut tick = tokio::time::interval(self.clock.real(TICK_SECS).max(MIN_TICK));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                change = nodes.recv() => match change {
                    Some(Change::Set(node)) => {
                        self.nodes.insert(node.metadata.uid.clone(), node);
                    }
                    Some(Change::Gone(uid)) => {
                        self.nodes.remove(&uid);
                    }
                    Some(Change::Synced) => self.nodes_synced = true,
                    None => return,
                },
                change = jobs.recv() => match change {
                    Some(Change::Set(job)) => self.job_changed(&job),
                    Some(Change::Gone(uid)) => {
                        self.jobs.remove(&uid);
                    }
                    Some(Change::Synced) => self.jobs_synced = true,
                    None => return,
                },
                _ = tick.tick(), if self.nodes_synced && self.jobs_synced => {
                    tokio::select! {
                        biased;
                        () = cancel.cancelled() => return,
                        () = self.work() => {}
                    }
                }
            }
        }
    }

    /// Namespaces and priority classes that the load needs, unless they are there.
    async fn prepare(&self) {
        for name in self.settings.namespaces() {
            let namespace = inventory::namespace(name);
            if let Err(error) = self.calls.ensure(path::NAMESPACES, &namespace).await {
                tracing::debug!(%error, "namespace not created");
            }
        }
        for class in inventory::priority_classes() {
            if let Err(error) = self.calls.ensure(path::PRIORITY_CLASSES, &class).await {
                tracing::debug!(%error, "priority class not created");
            }
        }
    }

    fn job_changed(&mut self, job: &Job) {
        let meta = &job.metadata;
        if meta.labels.get(MADE_BY.0).map(String::as_str) != Some(MADE_BY.1) {
            return;
        }
        let devices = meta.annotations.get(DEVICES);
        let submitted = Submitted {
            job: meta.clone(),
            pool: meta.labels.get(POOL).cloned().unwrap_or_default(),
            devices: devices.and_then(|text| text.parse().ok()).unwrap_or(0),
            finished: finished_at(&job.status),
        };
        self.jobs.insert(meta.uid.clone(), submitted);
    }

    async fn work(&mut self) {
        let capacities = Pool::capacities(self.nodes.values().map(Arc::as_ref));
        self.start_services(&capacities).await;
        self.breathe().await;
        self.submit(&capacities).await;
        self.forget().await;
    }

    async fn submit(&mut self, capacities: &BTreeMap<Pool, i64>) {
        let mut demand = self.demand();
        let (least, per) = if self.filled {
            (BURST.1, DEVICES_PER_BURST.1)
        } else {
            (BURST.0, DEVICES_PER_BURST.0)
        };
        let devices: i64 = capacities.values().sum();
        let burst = least.max(usize::try_from(devices / per).unwrap_or(0));
        for _ in 0..burst {
            let fill = |pool: &Pool, capacity: i64| {
                let asked = demand.get(&pool.label()).copied().unwrap_or(0);
                asked as f64 / capacity as f64
            };
            // The emptiest pool first; names decide between equals.
            let emptiest = capacities
                .iter()
                .filter(|(_, capacity)| **capacity >= MIN_POOL)
                .map(|(pool, capacity)| (fill(pool, *capacity), pool, *capacity))
                .filter(|(fill, _, _)| *fill < self.settings.demand_ratio)
                .min_by(|(a, ..), (b, ..)| a.total_cmp(b));
            let Some((_, pool, capacity)) = emptiest else {
                self.filled = true;
                return;
            };
            let (job, devices) = self.plan.job(pool, capacity, !self.filled);
            let text = |field: &str| {
                let value = job.get("metadata").and_then(|meta| meta.get(field));
                value.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let label = pool.label();
            match self
                .calls
                .post::<CreatedJob>(&path::jobs(&text("namespace")), &job)
                .await
            {
                Ok(CreatedJob { metadata }) => {
                    let submitted = Submitted {
                        pool: label.clone(),
                        devices,
                        finished: None,
                        job: metadata,
                    };
                    self.jobs.insert(submitted.job.uid.clone(), submitted);
                    *demand.entry(label).or_default() += devices;
                }
                // Made by an earlier run under this seed; the next number is another.
                Err(error) if error.is_already_exists() => {}
                Err(error) => {
                    tracing::debug!(%error, "job not submitted");
                    return;
                }
            }
        }
    }

    /// Devices asked for in each pool by what has not ended.
    fn demand(&self) -> BTreeMap<String, i64> {
        let mut demand = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.finished.is_none()) {
            *demand.entry(job.pool.clone()).or_default() += job.devices;
        }
        for service in self.services.values() {
            *demand.entry(service.pool.label()).or_default() += service.replicas;
        }
        demand
    }

    async fn start_services(&mut self, capacities: &BTreeMap<Pool, i64>) {
        for (pool, capacity) in capacities.iter().filter(|_| self.settings.mix.services) {
            for (name, usual) in services(pool, *capacity) {
                if self.services.contains_key(&name) {
                    continue;
                }
                let body = deployment(pool, &name, usual);
                match self
                    .calls
                    .ensure(&path::deployments(INFERENCE), &body)
                    .await
                {
                    Ok(_) => {
                        let service = Service {
                            pool: pool.clone(),
                            name: name.clone(),
                            usual,
                            replicas: usual,
                        };
                        self.services.insert(name, service);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "service not started");
                        return;
                    }
                }
            }
        }
    }

    /// One service gets or gives a few replicas.
    async fn breathe(&mut self) {
        let now = Instant::now();
        if now < self.next_breath || self.services.is_empty() {
            return;
        }
        self.next_breath = now + self.clock.real(BREATH_SECS);
        let at = self.plan.below(self.services.len());
        let step = if self.plan.chance(50) { 1 } else { -1 };
        let size = i64::try_from(self.plan.below(3)).unwrap_or(0) + 1;
        let Some(service) = self.services.values_mut().nth(at) else {
            return;
        };
        // Between half and a quarter more than usual.
        let (least, most) = (
            (service.usual / 2).max(1),
            service.usual + (service.usual / 4).max(1),
        );
        let replicas = (service.replicas + step * size).clamp(least, most);
        let path = format!("{}/{}", path::deployments(INFERENCE), service.name);
        let patch = json!({"spec": {"replicas": replicas}});
        match self
            .calls
            .patch::<IgnoredAny>(&path, PatchKind::Merge, &patch)
            .await
        {
            Ok(_) => service.replicas = replicas,
            // Somebody deleted it: it is started again.
            Err(error) if error.is_not_found() => {
                let name = service.name.clone();
                self.services.remove(&name);
            }
            Err(error) => tracing::debug!(%error, "service not scaled"),
        }
    }

    /// Deletes the oldest finished Jobs beyond those kept.
    async fn forget(&mut self) {
        let finished = self.jobs.iter().filter_map(|(uid, job)| {
            let ended = job.finished.clone()?;
            Some((ended, job.job.name.clone(), uid.clone()))
        });
        let mut finished: Vec<_> = finished.collect();
        let surplus = finished.len().saturating_sub(self.settings.finished_jobs);
        finished.sort();
        for (_, _, uid) in finished.into_iter().take(surplus) {
            let Some(job) = self.jobs.get(&uid) else {
                continue;
            };
            let at = format!("{}/{}", path::jobs(&job.job.namespace), job.job.name);
            if let Err(error) = self.calls.delete(&at, &uid, None).await {
                tracing::debug!(%error, "finished job not deleted");
                return;
            }
            self.jobs.remove(&uid);
        }
    }
}

#[derive(Deserialize)]
struct CreatedJob {
    metadata: Meta,
}

/// When the Job ended; `None` while it has not.
fn finished_at(status: &Value) -> Option<String> {
    let conditions = status.get("conditions")?.as_array()?;
    let text = |condition: &Value, field: &str| {
        let value = condition.get(field).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let end = conditions.iter().find(|condition| {
        matches!(text(condition, "type").as_str(), "Complete" | "Failed")
            && text(condition, "status") == "True"
    })?;
    Some(text(end, "lastTransitionTime"))
}
