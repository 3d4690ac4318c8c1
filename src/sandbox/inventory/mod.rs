//! The demo fleet: nodes as GPU feature discovery, the GPU operator, topograph and Karpenter label
//! them, namespaces and priority classes; the same under the same seed.

mod models;
mod node;

use futures::StreamExt;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

pub use self::models::{A100_40, A100_80, H100, H200, L40S, Model, Profile};
pub use self::node::{Fault, Layout, NodePlan};
use super::Time;
use super::actors::clock::hash;
use super::calls::{CallError, Calls, Created, path};

/// Nodes of the demo.
pub const DEMO_NODES: usize = 72;
/// The most nodes that addresses and names are made for.
pub const MAX_NODES: usize = 20_000;
/// Nodes at one leaf switch, and leaves at one spine.
const NODES_PER_LEAF: usize = 6;
const LEAVES_PER_SPINE: usize = 4;
/// Creates in flight at a time.
const IN_FLIGHT: usize = 32;
/// The moment that [`Fleet::nodes`] counts ages from: 2026-11-30T12:00:00Z.
const EPOCH_SECS: i64 = 1_796_040_000;

/// One profile each of three sizes on a GPU, mig-parted's `all-balanced`.
const H200_BALANCED: &[(&str, u32)] = &[("1g.18gb", 2), ("2g.35gb", 1), ("3g.71gb", 1)];
const A100_40_BALANCED: &[(&str, u32)] = &[("1g.5gb", 2), ("2g.10gb", 1), ("3g.20gb", 1)];

const TENS_BALANCED: &[(&str, u32)] = &[("1g.10gb", 2), ("2g.20gb", 1), ("3g.40gb", 1)];

/// Nodes of one kind.
#[derive(Debug, Clone)]
pub struct NodePool {
    /// Their GPUs; `None` for CPU nodes.
    pub model: Option<&'static Model>,
    /// How those are cut.
    pub layout: Layout,
    /// `reserved`, `on-demand` or `spot`.
    pub tier: &'static str,
    /// How many.
    pub nodes: usize,
    /// What is wrong with the first of them.
    pub faults: Vec<Fault>,
}

/// mig-parted's `all-balanced` for a model: one profile each of three sizes on a GPU.
pub fn balanced(model: &Model) -> Option<&'static [(&'static str, u32)]> {
    match model.slug {
        "h200" => Some(H200_BALANCED),
        "a100-40" => Some(A100_40_BALANCED),
        "h100" | "a100-80" => Some(TENS_BALANCED),
        _ => None,
    }
}

/// Nodes of one kind.
struct Group {
    model: Option<&'static Model>,
    layout: Layout,
    tier: &'static str,
    /// Its part of the fleet: nodes in a fleet of [`DEMO_NODES`].
    weight: usize,
}

const fn group(
    model: Option<&'static Model>,
    layout: Layout,
    tier: &'static str,
    weight: usize,
) -> Group {
    Group {
        model,
        layout,
        tier,
        weight,
    }
}

/// 72 nodes, 488 physical GPUs.
const GROUPS: [Group; 11] = [
    group(Some(&H100), Layout::Whole, "reserved", 16),
    group(Some(&H100), Layout::Whole, "on-demand", 6),
    group(Some(&H100), Layout::Whole, "spot", 4),
    group(Some(&A100_80), Layout::Whole, "reserved", 8),
    group(Some(&A100_80), Layout::Whole, "on-demand", 6),
    group(Some(&H200), Layout::Whole, "reserved", 3),
    group(Some(&H200), Layout::Single("1g.18gb"), "on-demand", 3),
    group(
        Some(&H200),
        Layout::Mixed {
            config: "all-balanced",
            cut: 8,
            profiles: H200_BALANCED,
        },
        "on-demand",
        4,
    ),
    group(
        Some(&A100_40),
        Layout::Mixed {
            config: "half-balanced",
            cut: 4,
            profiles: A100_40_BALANCED,
        },
        "on-demand",
        5,
    ),
    group(Some(&L40S), Layout::Whole, "spot", 12),
    group(None, Layout::Whole, "on-demand", 5),
];

/// A fleet to be written.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// Namespaces of the teams and of inference.
    pub namespaces: Vec<Value>,
    /// The priority classes `production`, `standard` and `batch`.
    pub priority_classes: Vec<Value>,
    plans: Vec<NodePlan>,
    seed: u64,
}

/// How much was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Objects created.
    pub created: usize,
    /// Objects that were there already and were left as they are.
    pub existing: usize,
}

impl Fleet {
    /// The demo's fleet.
    pub fn demo(seed: u64) -> Self {
        Self::sized(DEMO_NODES, seed)
    }

    /// A fleet of `nodes` nodes (at most [`MAX_NODES`]) in the demo's proportions.
    pub fn sized(nodes: usize, seed: u64) -> Self {
        let load = super::actors::load::Settings::default();
        Self::sized_for(nodes, load.namespaces(), seed)
    }

    /// As [`Fleet::sized`], with these namespaces.
    pub fn sized_for<'a>(
        nodes: usize,
        namespaces: impl Iterator<Item = &'a str>,
        seed: u64,
    ) -> Self {
        let mut rng = fastrand::Rng::with_seed(hash(seed, "fleet"));
        let weights = GROUPS.each_ref().map(|group| group.weight);
        let parts = GROUPS.iter().zip(shares(nodes.min(MAX_NODES), &weights));
        let pools: Vec<NodePool> = parts
            .map(|(group, nodes)| NodePool {
                model: group.model,
                layout: group.layout,
                tier: group.tier,
                nodes,
                faults: Vec::new(),
            })
            .collect();
        let mut plans = plans(&pools, &mut rng);
        spoil(&mut plans, &mut rng);
        Self::planned(plans, namespaces, seed)
    }

    /// A fleet of `pools`, at most [`MAX_NODES`] nodes, with these namespaces.
    pub fn of_pools<'a>(
        pools: &[NodePool],
        namespaces: impl Iterator<Item = &'a str>,
        seed: u64,
    ) -> Self {
        let mut rng = fastrand::Rng::with_seed(hash(seed, "fleet"));
        Self::planned(plans(pools, &mut rng), namespaces, seed)
    }

    fn planned<'a>(
        plans: Vec<NodePlan>,
        namespaces: impl Iterator<Item = &'a str>,
        seed: u64,
    ) -> Self {
        Self {
            namespaces: namespaces.map(namespace).collect(),
            priority_classes: priority_classes(),
            plans,
            seed,
        }
    }

    /// The nodes to be.
    pub fn plans(&self) -> &[NodePlan] {
        &self.plans
    }

    /// The nodes, with ages counted from a fixed moment, so that the same seed gives the same
    /// objects.
    pub fn nodes(&self) -> Vec<Value> {
        let at = Timestamp::from_second(EPOCH_SECS).unwrap_or_default();
        self.nodes_at(0, self.plans.len(), at)
    }

    /// Physical GPUs, cut or whole.
    pub fn gpus(&self) -> u64 {
        let models = self.plans.iter().filter_map(|plan| plan.model);
        models.map(|model| u64::from(model.gpus)).sum()
    }

    /// Creates what is not there, with heartbeats of now.
    ///
    /// A real API server gives each new node the taint `node.kubernetes.io/not-ready`; the node
    /// lifecycle actor, or a controller-manager, takes it away.
    pub async fn write(&self, client: Client) -> Result<Written, CallError> {
        self.write_at(client, Time::System).await
    }

    /// As [`Fleet::write`], with the present as `time` has it.
    pub async fn write_at(&self, client: Client, time: Time) -> Result<Written, CallError> {
        let calls = Calls::new(client).with_time(time);
        let mut written = Written::default();
        // Each call owns its part: a stream of borrowing futures is not `Send` to the compiler,
        // and this future is spawned.
        let mut results = futures::stream::iter(self.objects(calls.now()))
            .map(|(collection, item)| {
                let calls = calls.clone();
                async move { calls.ensure(&collection, &item).await }
            })
            .buffer_unordered(IN_FLIGHT);
        while let Some(result) = results.next().await {
            match result? {
                Created::New => written.created += 1,
                Created::Existing => written.existing += 1,
            }
        }
        Ok(written)
    }

    /// Everything but the nodes.
    pub fn basics(&self) -> Vec<Value> {
        let all = self.namespaces.iter().chain(&self.priority_classes);
        all.cloned().collect()
    }

    /// `count` nodes from the `first` on, with ages counted from `now`.
    pub fn nodes_at(&self, first: usize, count: usize, now: Timestamp) -> Vec<Value> {
        let plans = self.plans.iter().skip(first).take(count);
        plans.map(|plan| plan.object(self.seed, now)).collect()
    }

    /// Everything to create, with its collection.
    fn objects(&self, now: Timestamp) -> Vec<(String, Value)> {
        let namespaces = self
            .namespaces
            .iter()
            .map(|item| (path::NAMESPACES.to_owned(), item.clone()));
        let classes = self
            .priority_classes
            .iter()
            .map(|item| (path::PRIORITY_CLASSES.to_owned(), item.clone()));
        let nodes = self
            .plans
            .iter()
            .map(|plan| (path::NODES.to_owned(), plan.object(self.seed, now)));
        namespaces.chain(classes).chain(nodes).collect()
    }
}

/// `nodes` in parts that are to each other as `weights`: rounded down, and what is left goes to the
/// largest remainders.
pub fn shares(nodes: usize, weights: &[usize]) -> Vec<usize> {
    let total = weights.iter().sum::<usize>().max(1);
    let mut counts: Vec<usize> = weights.iter().map(|w| nodes * w / total).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|at| {
        let weight = weights.get(*at).copied().unwrap_or(0);
        std::cmp::Reverse(nodes * weight % total)
    });
    let mut left = nodes.saturating_sub(counts.iter().sum::<usize>());
    for at in order {
        if let Some(count) = counts.get_mut(at).filter(|_| left > 0) {
            *count += 1;
            left -= 1;
        }
    }
    counts
}

fn plans(pools: &[NodePool], rng: &mut fastrand::Rng) -> Vec<NodePlan> {
    let mut plans = Vec::new();
    let mut in_fabric = 0;
    let mut numbers = std::collections::BTreeMap::new();
    for group in pools {
        for at in 0..group.nodes {
            if plans.len() >= MAX_NODES {
                return plans;
            }
            let slug = group.model.map_or("cpu", |model| model.slug);
            let number = numbers.entry(slug).or_insert(0usize);
            *number += 1;
            let switches = group.model.map(|_| {
                let leaf = in_fabric / NODES_PER_LEAF;
                in_fabric += 1;
                (leaf + 1, leaf / LEAVES_PER_SPINE + 1)
            });
            // A spine stands in one zone.
            let zone = switches.map_or_else(|| rng.usize(0..3), |(_, spine)| spine % 3);
            plans.push(NodePlan {
                name: format!("{slug}-{number:03}"),
                model: group.model,
                layout: group.layout,
                tier: group.tier,
                zone: ['a', 'b', 'c'].get(zone).copied().unwrap_or('a'),
                switches,
                index: plans.len(),
                fault: group.faults.get(at).copied().unwrap_or(Fault::None),
            });
        }
    }
    plans
}

/// About one node in forty has a fault, and a fleet of at least twenty has each kind once.
fn spoil(plans: &mut [NodePlan], rng: &mut fastrand::Rng) {
    let whole: Vec<usize> = plans
        .iter()
        .filter(|plan| plan.model.is_some() && plan.layout == Layout::Whole)
        .map(|plan| plan.index)
        .collect();
    if plans.len() < 20 || whole.len() < 8 {
        return;
    }
    let faults = [
        Fault::Cordoned,
        Fault::NotReady,
        Fault::SickDevice,
        Fault::Cordoned,
    ];
    let wanted = (plans.len() / 40).max(faults.len());
    let mut order = whole;
    rng.shuffle(&mut order);
    for (at, fault) in order
        .into_iter()
        .take(wanted)
        .zip(faults.into_iter().cycle())
    {
        if let Some(plan) = plans.get_mut(at) {
            plan.fault = fault;
        }
    }
}

/// A namespace object.
pub fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
    })
}

/// The priority classes of the demo: `production`, `standard` and `batch`.
pub fn priority_classes() -> Vec<Value> {
    let class = |name: &str, value: i64, policy: &str, description: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "globalDefault": false,
            "preemptionPolicy": policy,
            "description": description,
        })
    };
    vec![
        class(
            "production",
            100_000,
            "PreemptLowerPriority",
            "Inference that users wait for.",
        ),
        class(
            "standard",
            1_000,
            "PreemptLowerPriority",
            "Training and notebooks of the teams.",
        ),
        class("batch", 100, "Never", "What can wait."),
    ]
}
