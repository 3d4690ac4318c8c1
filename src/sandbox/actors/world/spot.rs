//! The spot market: machines are taken back with the notice of their provider, by chance and in
//! storms, and others may come in their place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::machine;
use super::node_claims;
use super::notice::{Provider, Reclaim};
use super::pick::NodePick;
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::objects::Node;
use crate::sandbox::actors::on_nodes::{Actor, Plans};
use crate::sandbox::calls::{CallError, Calls};

/// How spot capacity comes and goes. Times are seconds of the actors' time.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Spot nodes of the market; nodes that no provider sells as spot are left alone unless
    /// `provider` is set.
    pub nodes: NodePick,
    /// The shape of every notice; `None` goes by each node's labels.
    pub provider: Option<Provider>,
    /// Seconds of notice; `None` is the provider's.
    pub lead_secs: Option<f64>,
    /// Mean hours between two reclaims of one node by chance; `None`: only storms.
    pub mean_hours: Option<f64>,
    /// Of the other nodes in the zone of one reclaimed by chance, the share that goes with it.
    pub together_share: f64,
    /// The share of reclaims by chance that turn out to be false alarms.
    pub false_alarm_share: f64,
    /// Reclaims at set times.
    pub storms: Vec<Storm>,
    /// Shortest and longest time until a like machine comes in place of a lost one; `None`: never.
    pub replace_secs: Option<(f64, f64)>,
}

/// Many reclaims at a set time.
#[derive(Debug, Clone, PartialEq)]
pub struct Storm {
    /// Seconds after the first list of nodes.
    pub at_secs: f64,
    /// Which of the market's nodes.
    pub nodes: NodePick,
    /// Over how many seconds they are spread.
    pub spread_secs: f64,
}

impl Default for Settings {
    /// Every spot node, a reclaim each 12 hours by chance, replaced after 4 to 15 minutes.
    fn default() -> Self {
        Self {
            nodes: NodePick::default(),
            provider: None,
            lead_secs: None,
            mean_hours: Some(12.0),
            together_share: 0.2,
            false_alarm_share: 0.1,
            storms: Vec::new(),
            replace_secs: Some((240.0, 900.0)),
        }
    }
}

/// Takes spot nodes back.
pub(super) struct Market {
    calls: Calls,
    clock: Clock,
    settings: Settings,
    /// Nodes with a notice.
    going: BTreeSet<String>,
    /// Chance reclaims of each node so far, and machines in its place.
    rounds: BTreeMap<String, u64>,
}

/// A node that was reclaimed, and what became of that.
pub(super) type Done = (String, Result<(), CallError>);

impl Actor for Market {
    type Done = Done;

    fn begun(&mut self, plans: &mut Plans<Done>) {
        let now = Instant::now();
        for (number, storm) in self.settings.storms.iter().enumerate() {
            let at = now + self.clock.real(storm.at_secs);
            plans.agenda.set(&format!("storm/{number}"), at);
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
            Some(("storm", number)) => {
                let number = number.parse::<usize>().ok();
                let Some(storm) = number.and_then(|n| self.settings.storms.get(n).cloned()) else {
                    return;
                };
                let market = plans.nodes.values().map(Arc::as_ref);
                let market = market.filter(|node| self.provider(node).is_some());
                let names = storm.nodes.choose(market, self.clock, key);
                let now = Instant::now();
                for name in names {
                    let delay = storm.spread_secs.max(0.0);
                    let delay = delay * self.clock.unit(&format!("{key}/{name}"));
                    let at = now + self.clock.real(delay);
                    plans.agenda.set(&format!("take/{name}"), at);
                }
            }
            Some(("chance", name)) => self.by_chance(name, plans),
            Some(("take", name)) => self.take(name, false, plans),
            _ => {}
        }
    }

    fn done(&mut self, (name, result): Done, _: &mut Plans<Done>) {
        if let Err(error) = result {
            tracing::debug!(%error, "a reclaim was not written");
        }
        self.going.remove(&name);
    }
}

impl Market {
    pub(super) fn new(calls: Calls, clock: Clock, settings: Settings) -> Self {
        Self {
            calls,
            clock,
            settings,
            going: BTreeSet::new(),
            rounds: BTreeMap::new(),
        }
    }

    fn provider(&self, node: &Node) -> Option<Provider> {
        if !self.settings.nodes.matches(node) {
            return None;
        }
        self.settings.provider.or_else(|| Provider::of(node))
    }

    fn plan_chance(&self, name: &str, plans: &mut Plans<Done>) {
        let Some(mean_hours) = self.settings.mean_hours else {
            return;
        };
        let spot = plans
            .nodes
            .get(name)
            .is_some_and(|node| self.provider(node).is_some());
        if !spot {
            return;
        }
        let round = self.rounds.get(name).copied().unwrap_or(0);
        let mean = mean_hours.max(0.001) * 3600.0;
        let secs = self
            .clock
            .exponential(mean, &format!("spot/{name}/{round}"));
        let at = Instant::now() + self.clock.real(secs);
        plans.agenda.set(&format!("chance/{name}"), at);
    }

    fn by_chance(&mut self, name: &str, plans: &mut Plans<Done>) {
        let round = self.rounds.entry(name.to_owned()).or_default();
        *round += 1;
        let draw = format!("spot/{name}/{round}");
        let false_alarm =
            self.clock.unit(&format!("{draw}/false")) < self.settings.false_alarm_share;
        self.take(name, false_alarm, plans);
        self.plan_chance(name, plans);
        if false_alarm {
            return;
        }
        // Capacity is short in a zone, not on one machine.
        const ZONE: &str = "topology.kubernetes.io/zone";
        let zone = |node: &Node| node.metadata.labels.get(ZONE).cloned();
        let Some(here) = plans.nodes.get(name).and_then(|node| zone(node)) else {
            return;
        };
        let near: Vec<String> = plans
            .nodes
            .iter()
            .filter(|(other, node)| *other != name && zone(node).as_ref() == Some(&here))
            .filter(|(_, node)| self.provider(node).is_some())
            .map(|(other, _)| other.clone())
            .filter(|other| {
                self.clock.unit(&format!("{draw}/{other}")) < self.settings.together_share
            })
            .collect();
        for other in near {
            let wait = self
                .clock
                .between(0.0, 60.0, &format!("{draw}/{other}/wait"));
            let at = Instant::now() + self.clock.real(wait);
            plans.agenda.set(&format!("take/{other}"), at);
        }
    }

    fn take(&mut self, name: &str, false_alarm: bool, plans: &mut Plans<Done>) {
        let Some(node) = plans.nodes.get(name) else {
            return;
        };
        let Some(provider) = self.provider(node) else {
            return;
        };
        if !self.going.insert(name.to_owned()) {
            return;
        }
        let reclaim = Reclaim {
            provider,
            name: name.to_owned(),
            uid: node.metadata.uid.clone(),
            claim: node_claims::name(node, self.clock),
            lead_secs: self.settings.lead_secs.unwrap_or(provider.lead_secs()),
        };
        let replace = self.settings.replace_secs;
        let generation = self.rounds.entry(format!("generation/{name}")).or_default();
        *generation += 1;
        let (calls, clock, generation) = (self.calls.clone(), self.clock, *generation);
        plans.begin(async move {
            let name = reclaim.name.clone();
            let result = if false_alarm {
                reclaim.false_alarm(&calls, clock).await
            } else {
                lose_and_replace(&calls, clock, &reclaim, replace, generation).await
            };
            (name, result)
        });
    }
}

async fn lose_and_replace(
    calls: &Calls,
    clock: Clock,
    reclaim: &Reclaim,
    replace_secs: Option<(f64, f64)>,
    generation: u64,
) -> Result<(), CallError> {
    let old = machine::whole(calls, &reclaim.name).await?;
    reclaim.run(calls, clock).await?;
    let Some((low, high)) = replace_secs else {
        return Ok(());
    };
    let key = format!("replace/{}/{generation}", reclaim.name);
    tokio::time::sleep(clock.real(clock.between(low, high, &key))).await;
    let new = machine::successor(&old, clock, generation);
    machine::register(calls, &new).await.map(|_| ())
}
