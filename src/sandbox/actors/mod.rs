//! The actors that make a cluster live: kubelets, controllers and load, all of them ordinary
//! Kubernetes clients that also work against a real API server.

mod admission;
mod agenda;
mod bound;
mod children;
pub mod clock;
mod daemon_sets;
mod deployments;
mod events;
mod gpu;
mod health;
mod job_plan;
mod jobs;
mod kubelet;
mod leases;
pub mod load;
mod load_plan;
mod nodes;
mod objects;
mod on_nodes;
mod pod_gc;
mod pod_status;
mod quantity;
mod taint_eviction;
mod watch;
pub mod world;

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::clock::Clock;
use self::objects::{DaemonSet, Deployment, Event, Job, Lease, Node, Pod, ReplicaSet};
use self::watch::Feed;
use super::calls::{Calls, path};
use super::{ApiServer, Time};

pub(super) use self::leases::kubelet_conditions;

pub use self::gpu::config as gpu_config;

/// Annotations that tell the actors what to do with an object.
pub mod annotation {
    /// On a pod: seconds from running to its end. Without it a Job's pod gets a seeded time and
    /// any other pod runs until it is deleted.
    pub const RUN_SECS: &str = "sandbox.gpudeck.dev/run-secs";
    /// On a pod: the exit code of its containers; 0 when absent.
    pub const EXIT_CODE: &str = "sandbox.gpudeck.dev/exit-code";
    /// On a node: `simulated` when its kubelet is one of the actors, `stopped` when it is, but has
    /// ended: no Lease is renewed and no pod of the node changes until it is `simulated` again.
    pub const KUBELET: &str = "sandbox.gpudeck.dev/kubelet";
    /// On a node: Xids of its GPUs, as `5:79,0:31` (index and code). What is appended happens.
    pub const XIDS: &str = "sandbox.gpudeck.dev/xids";
    /// On a node: what goes wrong when mig-manager works on it. `wedge`: it gives up without a
    /// word and the node stays `pending`. `client`: a host process has the GPUs open, so that
    /// nothing can be destroyed.
    pub const MIG_FAULT: &str = "sandbox.gpudeck.dev/mig-fault";
}

/// Which nodes the kubelets here speak for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manage {
    /// All of them: the embedded cluster has no others.
    All,
    /// Those annotated `sandbox.gpudeck.dev/kubelet: simulated`: a real cluster may have real ones.
    Marked,
}

impl Manage {
    fn includes(self, node: &Node) -> bool {
        let mark = node.metadata.annotations.get(annotation::KUBELET);
        match mark.map(String::as_str) {
            Some("stopped") => false,
            Some("simulated") => true,
            _ => self == Self::All,
        }
    }
}

/// Which actors to start, and how they live.
#[derive(Debug, Clone)]
pub struct Options {
    /// Divides every delay; timestamps in objects are those of `time`.
    pub speed: f64,
    /// Everything the actors choose follows from it.
    pub seed: u64,
    /// Kubelets, for these nodes; `None` starts none.
    pub kubelets: Option<Manage>,
    /// The Job, Deployment, ReplicaSet, DaemonSet and node lifecycle controllers, and the end of old Events:
    /// not beside a real kube-controller-manager.
    pub controllers: bool,
    /// The load generator.
    pub load: Option<load::Settings>,
    /// Where time stamps come from; the server's should come from the same.
    pub time: Time,
    /// The GPU operator, device plugins, feature discovery, mig-manager and exporters.
    pub gpu: Option<gpu_config::Config>,
    /// Where the ports of pods are served for `pods/proxy`, when the cluster is the embedded one.
    pub ports: Option<ApiServer>,
    /// What happens to the cluster: failures, spot reclaims, an autoscaler, foreign schedulers.
    pub world: world::Settings,
}

impl Default for Options {
    /// Kubelets for all nodes and the controllers, at normal speed, without load.
    fn default() -> Self {
        Self {
            speed: 1.0,
            seed: 1,
            kubelets: Some(Manage::All),
            controllers: true,
            load: None,
            time: Time::System,
            gpu: None,
            ports: None,
            world: world::Settings::default(),
        }
    }
}

/// Starts the actors; they end with `cancel`. The returned set ends when all of them have.
pub fn start(client: Client, options: &Options, cancel: &CancellationToken) -> JoinSet<()> {
    let calls = Calls::new(client).with_time(options.time);
    let clock = Clock::new(options.speed, options.seed).with_time(options.time);
    let mut nodes: Feed<Node> = Feed::new(path::NODES);
    let mut pods: Feed<Pod> = Feed::new(path::PODS);
    let mut jobs: Feed<Job> = Feed::new(path::JOBS);
    let mut deployments: Feed<Deployment> = Feed::new(path::DEPLOYMENTS);
    let mut sets: Feed<ReplicaSet> = Feed::new(path::REPLICA_SETS);
    let mut daemon_sets: Feed<DaemonSet> = Feed::new(path::DAEMON_SETS);
    let mut events: Feed<Event> = Feed::new(path::EVENTS);
    let mut leases: Feed<Lease> = Feed::new(path::NODE_LEASES);
    let mut tasks = JoinSet::new();
    let gpu = options.gpu.clone();
    let plugin = gpu.as_ref().map(|gpu| gpu.plugin.clone());
    let hardware = gpu::Hardware::new(clock, plugin.unwrap_or_default());
    let (crashes, crashed) = mpsc::unbounded_channel();
    if let Some(config) = &gpu {
        let start = gpu::Start {
            calls: &calls,
            clock,
            hardware: hardware.clone(),
            config,
            server: options.ports.clone(),
            crashes,
            cancel,
        };
        gpu::start(start, &mut nodes, &mut pods, &mut daemon_sets, &mut tasks);
    }
    if let Some(manage) = options.kubelets {
        let kubelet = kubelet::Kubelet::new(calls.clone(), clock, manage, hardware);
        tasks.spawn(kubelet.run(nodes.subscribe(), pods.subscribe(), crashed, cancel.clone()));
        let renewals = leases::run(
            calls.clone(),
            clock,
            manage,
            nodes.subscribe(),
            cancel.clone(),
        );
        tasks.spawn(renewals);
    }
    if options.controllers {
        tasks.spawn(nodes::run(
            calls.clone(),
            clock,
            nodes.subscribe(),
            cancel.clone(),
        ));
        tasks.spawn(health::run(
            calls.clone(),
            clock,
            nodes.subscribe(),
            leases.subscribe(),
            cancel.clone(),
        ));
        let evicts = taint_eviction::TaintEviction::new(calls.clone(), clock);
        tasks.spawn(on_nodes::run(evicts, nodes.subscribe(), cancel.clone()));
        let collects = pod_gc::PodGc::new(calls.clone(), clock);
        tasks.spawn(on_nodes::run(collects, nodes.subscribe(), cancel.clone()));
        tasks.spawn(events::expire(
            calls.clone(),
            events.subscribe(),
            cancel.clone(),
        ));
        let controller = jobs::Jobs::new(calls.clone(), clock);
        tasks.spawn(controller.run(jobs.subscribe(), pods.subscribe(), cancel.clone()));
        let controller = daemon_sets::DaemonSets::new(calls.clone(), clock);
        tasks.spawn(controller.run(
            daemon_sets.subscribe(),
            nodes.subscribe(),
            pods.subscribe(),
            cancel.clone(),
        ));
        let controller = deployments::Deployments::new(calls.clone(), clock);
        tasks.spawn(controller.run(
            deployments.subscribe(),
            sets.subscribe(),
            pods.subscribe(),
            cancel.clone(),
        ));
    }
    if let Some(settings) = &options.load {
        let load = load::Load::new(calls.clone(), clock, settings.clone());
        tasks.spawn(load.run(nodes.subscribe(), jobs.subscribe(), cancel.clone()));
    }
    let mut feeds = world::Feeds {
        manage: options.kubelets.unwrap_or(Manage::Marked),
        nodes: &mut nodes,
        pods: &mut pods,
        jobs: &mut jobs,
    };
    world::start(
        &calls,
        clock,
        &options.world,
        &mut feeds,
        cancel,
        &mut tasks,
    );
    tasks.spawn(nodes.run(calls.clone(), cancel.clone()));
    tasks.spawn(leases.run(calls.clone(), cancel.clone()));
    tasks.spawn(pods.run(calls.clone(), cancel.clone()));
    tasks.spawn(jobs.run(calls.clone(), cancel.clone()));
    tasks.spawn(deployments.run(calls.clone(), cancel.clone()));
    tasks.spawn(sets.run(calls.clone(), cancel.clone()));
    tasks.spawn(daemon_sets.run(calls.clone(), cancel.clone()));
    tasks.spawn(events.run(calls, cancel.clone()));
    tasks
}
