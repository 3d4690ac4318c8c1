//! Nodes that fail and return: at set times, and by chance under the seed.
//!
//! A failed kubelet renews no Lease. What follows is the node lifecycle controller's: conditions
//! Unknown, taints, and after their toleration the end of the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pick::NodePick;
use super::shutdown::{Grace, shut_down, start_kubelet, stop_kubelet};
use crate::sandbox::actors::agenda::Agenda;
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::objects::Node;
use crate::sandbox::actors::watch::Change;
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
enum Step {
    Lose(Loss),
    Return,
}

struct Actor {
    calls: Calls,
    clock: Clock,
    settings: Settings,
    nodes: BTreeMap<String, Arc<Node>>,
    /// Nodes down by this actor.
    down: BTreeSet<String>,
    /// How often each node has failed by chance.
    rounds: BTreeMap<String, u64>,
    agenda: Agenda,
    writes: JoinSet<(String, Step, Result<(), CallError>)>,
}

/// Works until `cancel` or the end of the feed.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    settings: Settings,
    mut nodes: mpsc::Receiver<Change<Node>>,
    cancel: CancellationToken,
) {
    let mut actor = Actor {
        calls,
        clock,
        settings,
        nodes: BTreeMap::new(),
        down: BTreeSet::new(),
        rounds: BTreeMap::new(),
        agenda: Agenda::default(),
        writes: JoinSet::new(),
    };
    let mut begun = false;
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(Change::Set(node)) => {
                    let name = node.metadata.name.clone();
                    if actor.nodes.insert(name.clone(), node).is_none() && begun {
                        actor.plan_chance(&name);
                    }
                }
                Some(Change::Gone(uid)) => {
                    actor.nodes.retain(|_, node| node.metadata.uid != uid);
                }
                Some(Change::Synced) if !begun => {
                    begun = true;
                    actor.plan();
                }
                Some(Change::Synced) => {}
                None => return,
            },
            Some(done) = actor.writes.join_next(), if !actor.writes.is_empty() => {
                if let Ok((name, step, result)) = done {
                    actor.written(&name, step, &result);
                }
            }
            () = actor.agenda.due() => {
                if let Some(key) = actor.agenda.pop(Instant::now()) {
                    actor.act(&key);
                }
            }
        }
    }
}

impl Actor {
    /// Sets the times of everything that is known from the start.
    fn plan(&mut self) {
        let now = Instant::now();
        for (number, failure) in self.settings.failures.iter().enumerate() {
            let at = now + self.clock.real(failure.at_secs);
            self.agenda.set(&format!("plan/{number}"), at);
        }
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            self.plan_chance(&name);
        }
    }

    fn plan_chance(&mut self, name: &str) {
        let Some(chance) = &self.settings.chance else {
            return;
        };
        let matches = |node: &Arc<Node>| chance.nodes.matches(node);
        if !self.nodes.get(name).is_some_and(matches) {
            return;
        }
        let round = self.rounds.get(name).copied().unwrap_or(0);
        let key = format!("failure/{name}/{round}");
        let secs = self
            .clock
            .exponential(chance.mean_hours.max(0.001) * 3600.0, &key);
        let at = Instant::now() + self.clock.real(secs);
        self.agenda.set(&format!("chance/{name}"), at);
    }

    fn act(&mut self, key: &str) {
        match key.split_once('/') {
            Some(("plan", number)) => {
                let number = number.parse::<usize>().ok();
                let Some(failure) = number.and_then(|n| self.settings.failures.get(n).cloned())
                else {
                    return;
                };
                let nodes = self.nodes.values().map(Arc::as_ref);
                let names = failure.nodes.choose(nodes, self.clock, key);
                for name in names {
                    self.lose(&name, failure.loss, failure.down_secs);
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
                self.lose(name, Loss::Silent, Some(down));
                self.plan_chance(name);
            }
            Some(("return", name)) => self.spawn(name, Step::Return),
            _ => {}
        }
    }

    fn lose(&mut self, name: &str, loss: Loss, down_secs: Option<f64>) {
        if !self.nodes.contains_key(name) || !self.down.insert(name.to_owned()) {
            return;
        }
        self.spawn(name, Step::Lose(loss));
        if let Some(secs) = down_secs.filter(|_| loss != Loss::Deleted) {
            let at = Instant::now() + self.clock.real(secs);
            self.agenda.set(&format!("return/{name}"), at);
        }
    }

    fn spawn(&mut self, name: &str, step: Step) {
        let Some(node) = self.nodes.get(name) else {
            self.down.remove(name);
            return;
        };
        let (calls, clock) = (self.calls.clone(), self.clock);
        let (name, uid) = (name.to_owned(), node.metadata.uid.clone());
        self.writes.spawn(async move {
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

    fn written(&mut self, name: &str, step: Step, result: &Result<(), CallError>) {
        if let Err(error) = result {
            tracing::debug!(%error, "a node's failure or return was not written");
        }
        if matches!(step, Step::Return | Step::Lose(Loss::Deleted)) {
            self.down.remove(name);
        }
    }
}
