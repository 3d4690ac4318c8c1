//! The GPU side of the nodes: what the kubelet's device manager, NVIDIA's device plugin, feature
//! discovery, mig-manager, dcgm-exporter and the GPU operator do, as ordinary clients.
//!
//! What stands in the machine itself (GPUs, their instances, who holds which device) is shared by
//! the actors in memory, as it would be by processes of one host; all else goes through the API.

mod agents;
pub mod config;
mod counters;
mod discovery_labels;
mod exporter;
mod geometry;
mod hardware;
mod mig;
mod mig_file;
mod mig_manager;
mod models;
mod operands;
mod operator;
mod plugin;
mod scrape_port;
mod series;

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::agents::{Agents, Feeds, Shared};
use self::config::Config;
use self::exporter::{Exporter, Ports};
use self::scrape_port::ScrapePort;
use super::clock::Clock;
use super::objects::{ClusterPolicy, ConfigMap, DaemonSet, Node, Pod};
use super::watch::Feed;
use crate::sandbox::ApiServer;
use crate::sandbox::calls::{Calls, path};
use crate::sandbox::signal::Signal;

pub(super) use self::hardware::Hardware;
pub(super) use self::plugin::Asks;

/// What the GPU actors are started with.
pub(super) struct Start<'a> {
    pub calls: &'a Calls,
    pub clock: Clock,
    pub hardware: Hardware,
    pub config: &'a Config,
    /// Where the pods' ports are, when that is the embedded cluster.
    pub server: Option<ApiServer>,
    /// Pods that an Xid has ended.
    pub crashes: mpsc::UnboundedSender<String>,
    pub cancel: &'a CancellationToken,
}

/// Starts the GPU actors in `tasks`.
pub(super) fn start(
    start: Start<'_>,
    nodes: &mut Feed<Node>,
    pods: &mut Feed<Pod>,
    sets: &mut Feed<DaemonSet>,
    tasks: &mut JoinSet<()>,
) {
    let Start {
        calls,
        clock,
        hardware,
        config,
        server,
        crashes,
        cancel,
    } = start;
    let mut maps: Feed<ConfigMap> = Feed::new(path::CONFIG_MAPS);
    let mut policies: Feed<ClusterPolicy> = Feed::new(path::CLUSTER_POLICIES);
    let exporter = config
        .exporter
        .clone()
        .map(|exporter| Exporter::new(hardware.clone(), clock, exporter));
    let listen = config.exporter.as_ref().and_then(|config| config.listen);
    if let (Some(addr), Some(exporter)) = (listen, exporter.clone()) {
        let cancel = cancel.clone();
        tasks.spawn(async move {
            match ScrapePort::bind(addr).await {
                Ok(port) => port.serve(exporter, cancel).await,
                Err(error) => tracing::warn!(%error, "the exporters have no loopback port"),
            }
        });
    }
    let shared = Arc::new(Shared {
        calls: calls.clone(),
        clock,
        config: config.clone(),
        hardware,
        operands: Mutex::default(),
        logs: server.clone(),
        changed: Signal::default(),
        faults: Mutex::default(),
        cancel: cancel.clone(),
    });
    if let Some(operator) = &config.operator {
        tasks.spawn(operator::run(
            Arc::clone(&shared),
            operator.clone(),
            nodes.subscribe(),
            sets.subscribe(),
            policies.subscribe(),
        ));
    }
    let feeds = Feeds {
        nodes: nodes.subscribe(),
        pods: pods.subscribe(),
        maps: maps.subscribe(),
        policies: policies.subscribe(),
    };
    let agents = Agents::new(shared, Ports::new(server, exporter), crashes);
    tasks.spawn(agents.run(feeds));
    tasks.spawn(maps.run(calls.clone(), cancel.clone()));
    tasks.spawn(policies.run(calls.clone(), cancel.clone()));
}
