//! A scenario on a server: fleet, actors, pods that run from the start, and the director.

use std::time::Instant;

use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::director::Director;
use super::queues;
use super::schema::{Load, Pool, Scenario};
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::gpu_config::Config;
use crate::sandbox::actors::{self, load};
use crate::sandbox::bulk;
use crate::sandbox::calls::{CallError, Calls};
use crate::sandbox::inventory::{self, DEMO_NODES, Fault, Fleet, NodePool, namespace};
use crate::sandbox::{ApiServer, PreloadError, Time};

/// How a scenario is played.
#[derive(Debug, Clone, Copy)]
pub struct Play {
    /// Seed of everything random.
    pub seed: u64,
    /// How much faster than real time it runs; `None`: as the scenario says.
    pub speed: Option<f64>,
    /// Nodes of the fleet, in the scenario's proportions; `None`: as the scenario says.
    pub nodes: Option<usize>,
    /// Where time stamps come from; the server's should come from the same.
    pub time: Time,
}

/// Why a scenario could not be started.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The server refused an object of the fleet.
    #[error(transparent)]
    Call(#[from] CallError),
    /// An object of the filled cluster makes no sense.
    #[error(transparent)]
    Preload(#[from] PreloadError),
}

/// The speed of a scenario that says none.
const SPEED: f64 = 20.0;

impl Scenario {
    /// The demo's fleet with the demo's load, and nothing else.
    pub fn plain() -> Self {
        Scenario {
            about: "The demo's fleet under load.".to_owned(),
            speed: None,
            pool: Vec::new(),
            team: Vec::new(),
            queue: Vec::new(),
            load: Some(Load::default()),
            fill: None,
            spot: None,
            failure: Vec::new(),
            fabric: None,
            price: Vec::new(),
            scale: Vec::new(),
            foreign: None,
            training: false,
            event: Vec::new(),
            fault: Vec::new(),
        }
    }

    /// The speed at which it is played.
    fn speed(&self, play: &Play) -> f64 {
        let own = self.speed.map_or(SPEED, |speed| speed.get());
        play.speed.unwrap_or(own)
    }

    /// The nodes it is played on.
    pub fn node_count(&self, play: &Play) -> usize {
        let own: usize = self.pool.iter().map(|pool| pool.nodes.count()).sum();
        let own = if self.pool.is_empty() {
            DEMO_NODES
        } else {
            own
        };
        play.nodes.unwrap_or(own)
    }

    /// Pods that run from the start, as many on each node as the scenario has it.
    pub fn fill_count(&self, play: &Play) -> usize {
        let Some(fill) = &self.fill else { return 0 };
        let own = Play {
            nodes: None,
            ..*play
        };
        let all = self.node_count(&own).max(1);
        fill.pods.count() * self.node_count(play) / all
    }

    fn load_settings(&self) -> Option<load::Settings> {
        let spec = self.load.as_ref()?;
        let mut settings = load::Settings {
            mix: self.mix(spec),
            ..load::Settings::default()
        };
        if let Some(demand) = spec.demand {
            settings.demand_ratio = demand.get();
        }
        if let Some(kept) = spec.finished_jobs {
            settings.finished_jobs = kept.count();
        }
        Some(settings)
    }

    fn mix(&self, spec: &Load) -> load::Mix {
        let mut mix = load::Mix::default();
        if !self.team.is_empty() {
            let teams = self.team.iter().map(|team| load::Team {
                name: team.name.get_ref().clone(),
                queue: team
                    .queue
                    .clone()
                    .unwrap_or_else(|| team.name.get_ref().clone()),
                weight: team.weight.map_or(1, |weight| weight.get()),
                priority: team.priority.name().to_owned(),
            });
            mix.teams = teams.collect();
        }
        if !spec.gangs.is_empty() {
            let gangs = spec.gangs.iter().map(|gang| load::Gang {
                pods: i64::from(gang.pods.get()),
                gpus: i64::from(gang.gpus.get()),
                weight: gang.weight.map_or(1, |weight| weight.get()),
            });
            mix.gangs = gangs.collect();
        }
        if let Some(percent) = spec.notebook_percent {
            mix.notebook_percent = percent.get();
        }
        if let Some(percent) = spec.fail_percent {
            mix.fail_percent = percent.get();
        }
        if let Some(services) = spec.services {
            mix.services = services;
        }
        mix
    }

    /// The namespaces of the teams.
    fn teams(&self) -> Vec<String> {
        let teams = self.mix(&Load::default()).teams;
        teams.into_iter().map(|team| team.name).collect()
    }

    fn fleet(&self, play: &Play) -> Fleet {
        let wanted = self.node_count(play);
        if self.pool.is_empty() && self.team.is_empty() {
            return Fleet::sized(wanted, play.seed);
        }
        let load = self.load_settings().unwrap_or_else(|| load::Settings {
            mix: self.mix(&Load::default()),
            ..load::Settings::default()
        });
        if self.pool.is_empty() {
            return Fleet::sized_for(wanted, load.namespaces(), play.seed);
        }
        let weights: Vec<usize> = self.pool.iter().map(|pool| pool.nodes.count()).collect();
        let parts = self.pool.iter().zip(inventory::shares(wanted, &weights));
        let pools: Vec<NodePool> = parts.map(|(pool, nodes)| node_pool(pool, nodes)).collect();
        Fleet::of_pools(&pools, load.namespaces(), play.seed)
    }

    /// Writes the fleet, starts the actors and what happens; all of them end with `stop`.
    ///
    /// # Errors
    /// The server refused an object of the fleet.
    pub async fn start(
        &self,
        server: &ApiServer,
        play: &Play,
        stop: &CancellationToken,
    ) -> Result<JoinSet<()>, PlayError> {
        // Before the fleet is planned, which takes a second when it is large: who lists earlier has
        // to follow every change.
        let pods = self.fill_count(play);
        let _hold = (pods > 0).then(|| server.hold());
        let speed = self.speed(play);
        let nodes = self.node_count(play);
        let options = actors::Options {
            speed,
            seed: play.seed,
            load: self.load_settings(),
            world: self.world(&self.teams()),
            time: play.time,
            gpu: (nodes > 0).then(|| Config::for_fleet(nodes)),
            ports: Some(server.clone()),
            ..actors::Options::default()
        };
        let fleet = self.fleet(play);
        let mut tasks;
        if pods > 0 {
            // It has run for a while when we come.
            aside(|| fill(server, &fleet, pods, play))?;
            tasks = actors::start(server.client(), &options, stop);
        } else {
            // The actors come first: a fleet without kubelets would be NotReady for a moment.
            tasks = actors::start(server.client(), &options, stop);
            fleet.write_at(server.client(), play.time).await?;
        }
        queues::write(&self.queue, &Calls::new(server.client())).await?;
        let clock = Clock::new(speed, play.seed).with_time(play.time);
        let director = Director::new(self, server.clone(), clock);
        tasks.spawn(director.run(stop.clone()));
        Ok(tasks)
    }
}

/// Nodes that are made together.
const NODES_A_PART: usize = 64;

/// Puts fleet and running pods where they would be after a while. Nobody reads the cluster before
/// it is whole: a hundred thousand changes one by one are several times the work of one list.
fn fill(server: &ApiServer, fleet: &Fleet, pods: usize, play: &Play) -> Result<(), PreloadError> {
    let began = Instant::now();
    let now = play.time.now();
    let teams = bulk::namespaces().map(namespace);
    let basics: Vec<Value> = fleet.basics().into_iter().chain(teams).collect();
    server.preload(1, |_| basics.clone())?;
    let parts = fleet.plans().len().div_ceil(NODES_A_PART);
    server.preload(parts, |part| {
        fleet.nodes_at(part * NODES_A_PART, NODES_A_PART, now)
    })?;
    let nodes_in = began.elapsed();
    bulk::Crowd::new(fleet, pods, play.seed, now).store(server)?;
    tracing::info!(?nodes_in, all_in = ?began.elapsed(), "filled");
    Ok(())
}

/// Does what takes long where it holds up no other task, if there is such a place: the one thread
/// of a stepped run does one thing after the other.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn node_pool(pool: &Pool, nodes: usize) -> NodePool {
    let several = |count: Option<usize>, fault| std::iter::repeat_n(fault, count.unwrap_or(0));
    let faults = several(pool.cordoned.map(|n| n.count()), Fault::Cordoned)
        .chain(several(pool.not_ready.map(|n| n.count()), Fault::NotReady))
        .chain(several(
            pool.sick_device.map(|n| n.count()),
            Fault::SickDevice,
        ));
    NodePool {
        model: pool.model.model(),
        // What cannot be cut so was refused when the file was read.
        layout: pool
            .layout()
            .unwrap_or(crate::sandbox::inventory::Layout::Whole),
        tier: pool.tier.name(),
        nodes,
        faults: faults.collect(),
    }
}
