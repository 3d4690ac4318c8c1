//! What a GPU-hour costs on each node, as an annotation that follows the market.
//!
//! No cloud writes prices into the cluster; real ones come from a rate card. The annotation stands
//! for that card, so that a console can be tried against prices that move.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::pick::NodePick;
use crate::sandbox::actors::clock::Clock;
use crate::sandbox::actors::objects::Node;
use crate::sandbox::actors::watch::Change;
use crate::sandbox::calls::{Calls, PatchKind, path};

/// On a node: US dollars for an hour of one of its whole GPUs, such as `2.41`.
pub const ANNOTATION: &str = "sandbox.gpudeck.dev/usd-per-gpu-hour";

/// The shortest real time between two looks at the market.
const MIN_PERIOD: Duration = Duration::from_millis(200);

/// The price of some nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// Which nodes; the count is not used.
    pub nodes: NodePick,
    /// US dollars for a GPU-hour.
    pub usd_per_gpu_hour: f64,
    /// How far it moves around that, as a share of it: 0.3 is up to 30 % up and down. 0 for a
    /// price that stands.
    pub moves: f64,
}

/// The rate card.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Rates; the first that fits a node is its own, and a node that none fits gets no price.
    pub rates: Vec<Rate>,
    /// Seconds of the actors' time between two moves.
    pub period_secs: f64,
}

impl Default for Settings {
    /// AWS prices per GPU-hour of June 2025 to March 2026 (on demand; capacity blocks for
    /// reserved; the middle of the seen range for spot).
    fn default() -> Self {
        let row = |product: &str, [reserved, on_demand, spot]: [f64; 3]| {
            let rate = move |tier: &str, usd_per_gpu_hour: f64, moves: f64| Rate {
                nodes: NodePick {
                    names: Vec::new(),
                    labels: BTreeMap::from([
                        ("nvidia.com/gpu.product".to_owned(), product.to_owned()),
                        ("karpenter.sh/capacity-type".to_owned(), tier.to_owned()),
                    ]),
                    count: None,
                },
                usd_per_gpu_hour,
                moves,
            };
            [
                rate("reserved", reserved, 0.0),
                rate("on-demand", on_demand, 0.0),
                rate("spot", spot, 0.4),
            ]
        };
        let rates = [
            row("NVIDIA-H100*", [4.92, 6.88, 2.25]),
            row("NVIDIA-H200*", [5.41, 8.47, 1.61]),
            row("NVIDIA-A100-SXM4-80GB*", [2.90, 4.29, 1.10]),
            row("NVIDIA-A100*", [1.84, 2.74, 0.76]),
            row("NVIDIA-L40S*", [1.20, 1.86, 0.70]),
        ];
        Self {
            rates: rates.into_iter().flatten().collect(),
            period_secs: 300.0,
        }
    }
}

impl Settings {
    /// The node's price after `moved` periods; `None` when no rate fits it.
    fn price(&self, node: &Node, clock: Clock, moved: u64) -> Option<String> {
        let (number, rate) = self
            .rates
            .iter()
            .enumerate()
            .find(|(_, rate)| rate.nodes.matches(node))?;
        let zone = node.metadata.labels.get("topology.kubernetes.io/zone");
        let key = format!("price/{number}/{}", zone.map_or("", String::as_str));
        // Two waves of different length: prices drift, and do not jump each period.
        let draw = |span: u64| {
            let (at, part) = (moved / span, (moved % span) as f64 / span as f64);
            let from = clock.unit(&format!("{key}/{span}/{at}"));
            let to = clock.unit(&format!("{key}/{span}/{}", at + 1));
            (from + (to - from) * part) * 2.0 - 1.0
        };
        let swing = if rate.moves > 0.0 {
            rate.moves * (0.7 * draw(12) + 0.3 * draw(2))
        } else {
            0.0
        };
        let usd = (rate.usd_per_gpu_hour * (1.0 + swing)).max(0.0);
        Some(format!("{usd:.2}"))
    }
}

/// Works until `cancel` or the end of the feed.
pub(super) async fn run(
    calls: Calls,
    clock: Clock,
    settings: Settings,
    mut nodes: mpsc::Receiver<Change<Node>>,
    cancel: CancellationToken,
) {
    let mut known: BTreeMap<String, Arc<Node>> = BTreeMap::new();
    let period = clock.real(settings.period_secs).max(MIN_PERIOD);
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut moved = 0;
    let mut synced = false;
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            change = nodes.recv() => match change {
                Some(Change::Set(node)) => {
                    if synced {
                        write(&calls, clock, &settings, &node, moved).await;
                    }
                    known.insert(node.metadata.uid.clone(), node);
                }
                Some(Change::Gone(uid)) => {
                    known.remove(&uid);
                }
                Some(Change::Synced) if !synced => {
                    synced = true;
                    tick.reset_immediately();
                }
                Some(Change::Synced) => {}
                None => return,
            },
            _ = tick.tick(), if synced => {
                for node in known.values() {
                    if cancel.is_cancelled() {
                        return;
                    }
                    write(&calls, clock, &settings, node, moved).await;
                }
                moved += 1;
            }
        }
    }
}

/// Writes the node's price unless it has it.
async fn write(calls: &Calls, clock: Clock, settings: &Settings, node: &Node, moved: u64) {
    let Some(price) = settings.price(node, clock, moved) else {
        return;
    };
    if node.metadata.annotations.get(ANNOTATION) == Some(&price) {
        return;
    }
    let patch = json!({"metadata": {"annotations": {ANNOTATION: price}}});
    let at = format!("{}/{}", path::NODES, node.metadata.name);
    if let Err(error) = calls
        .patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)
        .await
    {
        tracing::debug!(%error, "price not written");
    }
}
