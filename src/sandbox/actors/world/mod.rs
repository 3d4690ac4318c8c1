//! What happens to a cluster: nodes fail, spot capacity is reclaimed, an autoscaler adds nodes,
//! foreign schedulers admit their own work. Each part is off until its settings are given.

pub mod autoscaler;
mod drain;
pub mod failures;
pub mod foreign;
mod machine;
pub mod network;
mod node_claims;
pub mod notice;
pub mod pick;
pub mod prices;
mod scale_up;
pub mod shutdown;
pub mod spot;
pub mod training;
mod training_run;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::objects::{Job, Node, Pod};
use super::on_nodes;
use super::watch::{Change, Feed};
use super::{Manage, annotation};
use crate::sandbox::calls::Calls;

/// Which of these actors live, and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Nodes that fail and return.
    pub failures: Option<failures::Settings>,
    /// Spot machines that are taken back.
    pub spot: Option<spot::Settings>,
    /// Prices of GPU-hours on the nodes.
    pub prices: Option<prices::Settings>,
    /// Labels of the network.
    pub network: Option<network::Settings>,
    /// Training pods that save and resume; without it their pods run for ever.
    pub training: Option<training::Settings>,
    /// Kueue, Volcano and KAI beside our own scheduler.
    pub foreign: foreign::Settings,
    /// Machines that come and go with demand.
    pub autoscaler: Option<autoscaler::Settings>,
    /// Karpenter's NodeClaims and NodePools beside the nodes of its pools.
    pub node_claims: bool,
}

/// The watched collections that the actors may subscribe to.
pub(super) struct Feeds<'a> {
    /// Whose nodes may fail, be reclaimed or labelled: never those of a real kubelet.
    pub manage: Manage,
    /// Nodes.
    pub nodes: &'a mut Feed<Node>,
    /// Pods.
    pub pods: &'a mut Feed<Pod>,
    /// Jobs.
    pub jobs: &'a mut Feed<Job>,
}

impl Feeds<'_> {
    /// The simulated nodes only.
    fn own_nodes(
        &mut self,
        tasks: &mut JoinSet<()>,
        cancel: &CancellationToken,
    ) -> mpsc::Receiver<Change<Node>> {
        let mut all = self.nodes.subscribe();
        if self.manage == Manage::All {
            return all;
        }
        let (sender, receiver) = mpsc::channel(1024);
        let cancel = cancel.clone();
        tasks.spawn(async move {
            loop {
                let change = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    change = all.recv() => change,
                };
                let ours = match &change {
                    Some(Change::Set(node)) => {
                        node.metadata.annotations.contains_key(annotation::KUBELET)
                    }
                    Some(_) => true,
                    None => return,
                };
                if let Some(change) = change.filter(|_| ours)
                    && sender.send(change).await.is_err()
                {
                    return;
                }
            }
        });
        receiver
    }
}

/// Starts what `settings` ask for.
pub(super) fn start(
    calls: &Calls,
    clock: Clock,
    settings: &Settings,
    feeds: &mut Feeds<'_>,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<()>,
) {
    if let Some(settings) = &settings.failures {
        let nodes = feeds.own_nodes(tasks, cancel);
        let fails = failures::Failures::new(calls.clone(), clock, settings.clone());
        tasks.spawn(on_nodes::run(fails, nodes, cancel.clone()));
    }
    if let Some(settings) = &settings.spot {
        let nodes = feeds.own_nodes(tasks, cancel);
        let market = spot::Market::new(calls.clone(), clock, settings.clone());
        tasks.spawn(on_nodes::run(market, nodes, cancel.clone()));
    }
    if settings.node_claims {
        let nodes = feeds.own_nodes(tasks, cancel);
        let claims = node_claims::NodeClaims::new(calls.clone(), clock);
        tasks.spawn(on_nodes::run(claims, nodes, cancel.clone()));
    }
    if let Some(settings) = &settings.prices {
        let nodes = feeds.own_nodes(tasks, cancel);
        tasks.spawn(prices::run(
            calls.clone(),
            clock,
            settings.clone(),
            nodes,
            cancel.clone(),
        ));
    }
    if let Some(settings) = &settings.autoscaler {
        let nodes = feeds.own_nodes(tasks, cancel);
        tasks.spawn(autoscaler::run(
            calls.clone(),
            clock,
            settings.clone(),
            nodes,
            feeds.pods.subscribe(),
            cancel.clone(),
        ));
    }
    foreign::start(calls, clock, &settings.foreign, feeds, cancel, tasks);
    if settings.training.is_some() {
        tasks.spawn(training::run(
            calls.clone(),
            clock,
            feeds.nodes.subscribe(),
            feeds.pods.subscribe(),
            feeds.jobs.subscribe(),
            cancel.clone(),
        ));
    }
    if let Some(settings) = &settings.network {
        let nodes = feeds.own_nodes(tasks, cancel);
        tasks.spawn(network::run(
            calls.clone(),
            clock,
            settings.clone(),
            nodes,
            cancel.clone(),
        ));
    }
}
