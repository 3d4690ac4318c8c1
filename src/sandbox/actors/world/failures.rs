//! Nodes that fail and return: at set times, and by chance under the seed.
//!
//! A failed kubelet renews no Lease. What follows is the node lifecycle controller's: conditions
//! Unknown, taints, and after their toleration the end of the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::pick::NodePick;
use super::shutdown::{Grace, shut_down, start_kubelet, stop_kubelet};
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::objects::Node;
use crate::sandbox::actors::on_nodes::{Actor, Plans};
use crate::sandbox::calls::{CallError, Calls, path};

/// How a node is lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// From one moment to the next: power, network, a kernel that hangs.
    Silent,
    /// The machine shuts down in order.
    Shutdown(Grace),
    /// The machine and its Node object are gone.
    Deleted,
}

/// A failure at a set time.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Seconds of the actors' time after the first list of nodes.
    pub at_secs: f64,
    /// Which nodes.
    pub nodes: NodePick,
    /// How.
    pub loss: Loss,
    /// Seconds until they return; never when absent. A deleted node never returns.
    pub down_secs: Option<f64>,
}

/// Failures by chance.
#[derive(Debug, Clone, PartialEq)]
pub struct Chance {
    /// Which nodes; the count is not used.
    pub nodes: NodePick,
    /// Mean time between two failures of one node, in hours of the actors' time.
    pub mean_hours: f64,
    /// Shortest and longest time until it returns, in seconds of the actors' time.
    pub down_secs: (f64, f64),
}

/// What fails.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// At set times.
    pub failures: Vec<Failure>,
    /// By chance.
    pub chance: Option<Chance>,
}

/// What is to be done with a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Lose(Loss),
    Return,
}

/// Loses nodes and has them return.
pub(super) struct Failures {
    calls: Calls,
    clock: Clock,
    settings: Settings,
    /// Nodes down by this actor.
    down: BTreeSet<String>,
    /// How often each node has failed by chance.
    rounds: BTreeMap<String, u64>,
}

/// A node that was lost or returned, and what became of that.
pub(super) type Done = (String, Step, Result<(), CallError>);

impl Actor for Failures {
    type Done = Done;

    fn begun(&mut self, plans: &mut Plans<Done>) {
        let now = Instant::now();
        for (number, failure) in self.settings.failures.iter().enumerate() {
            let at = now + self.clock.real(failure.at_secs);
            plans.agenda.set(&format!("plan/{number}"), at);
        }
        let names: Vec<String> = plans.nodes.keys().cloned().collect();
        for name in names {
            self.plan_chance(&name, plans);
        }
    }

    fn came(&mut self, name: &str, plans: &mut Plans<Done>) {
        self.plan_chance(name, plans);
    }

    fn due(&mut self, key: &str, plans: &mut Plans<Done>) {
        match key.split_once('/') {
            Some(("plan", number)) => {
                let number = number.parse::<usize>().ok();
                let Some(failure) = number.and_then(|n| self.settings.failures.get(n).cloned())
                else {
                    return;
                };
                let nodes = plans.nodes.values().map(Arc::as_ref);
                let names = failure.nodes.choose(nodes, self.clock, key);
                for name in names {
                    self.lose(&name, failure.loss, failure.down_secs, plans);
                }
            }
            Some(("chance", name)) => {
                let Some(chance) = self.settings.chance.clone() else {
                    return;
                };
                let round = self.rounds.entry(name.to_owned()).or_default();
                *round += 1;
                let (low, high) = chance.down_secs;
                let down = self
                    .clock
                    .between(low, high, &format!("down/{name}/{round}"));
                self.lose(name, Loss::Silent, Some(down), plans);
                self.plan_chance(name, plans);
            }
            Some(("return", name)) => self.begin(name, Step::Return, plans),
            _ => {}
        }
    }

    fn done(&mut self, (name, step, result): Done, _: &mut Plans<Done>) {
        if let Err(error) = result {
            tracing::debug!(%error, "a node's failure or return was not written");
        }
        if matches!(step, Step::Return | Step::Lose(Loss::Deleted)) {
            self.down.remove(&name);
        }
    }
}

impl Failures {
    pub(super) fn new(calls: Calls, clock: Clock, settings: Settings) -> Self {
        Self {
            calls,
            clock,
            settings,
            down: BTreeSet::new(),
            rounds: BTreeMap::new(),
        }
    }

    fn plan_chance(&self, name: &str, plans: &mut Plans<Done>) {
        let Some(chance) = &self.settings.chance else {
            return;
        };
        let matches = |node: &Arc<Node>| chance.nodes.matches(node);
        if !plans.nodes.get(name).is_some_and(matches) {
            return;
        }
        let round = self.rounds.get(name).copied().unwrap_or(0);
        let key = format!("failure/{name}/{round}");
        let secs = self
            .clock
            .exponential(chance.mean_hours.max(0.001) * 3600.0, &key);
        let at = Instant::now() + self.clock.real(secs);
        plans.agenda.set(&format!("chance/{name}"), at);
    }

    fn lose(&mut self, name: &str, loss: Loss, down_secs: Option<f64>, plans: &mut Plans<Done>) {
        if !plans.nodes.contains_key(name) || !self.down.insert(name.to_owned()) {
            return;
        }
        self.begin(name, Step::Lose(loss), plans);
        if let Some(secs) = down_secs.filter(|_| loss != Loss::Deleted) {
            let at = Instant::now() + self.clock.real(secs);
            plans.agenda.set(&format!("return/{name}"), at);
        }
    }

    fn begin(&mut self, name: &str, step: Step, plans: &mut Plans<Done>) {
        let Some(node) = plans.nodes.get(name) else {
            self.down.remove(name);
            return;
        };
        let (calls, clock) = (self.calls.clone(), self.clock);
        let (name, uid) = (name.to_owned(), node.metadata.uid.clone());
        plans.begin(async move {
            let result = match step {
                Step::Lose(Loss::Silent) => stop_kubelet(&calls, &name).await,
                Step::Lose(Loss::Shutdown(grace)) => {
                    shut_down(&calls, clock, (&name, &uid), grace).await
                }
                Step::Lose(Loss::Deleted) => {
                    let at = format!("{}/{name}", path::NODES);
                    calls.delete(&at, &uid, None).await
                }
                Step::Return => start_kubelet(&calls, &name).await,
            };
            (name, step, result)
        });
    }
}
