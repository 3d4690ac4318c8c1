//! The numbers that an on-call person asks first; the console and `gpudeck snapshot` print these.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::delta::Kind;
use super::gpu::{GpuResource, MigProfile};
use super::node::{Node, Readiness};
use super::node_use::{GpuCell, MigCount, NodeUse};
use super::pricing::Pricing;
use super::text::Str;
use super::tier::Tier;
use super::tier_figure::{Money, TierFigure};

/// One GPU model's part.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ModelFigure {
    /// Short model name; empty for GPUs whose model no label names.
    pub model: Str,
    /// Nodes that have it.
    pub nodes: u32,
    /// Physical GPUs.
    pub gpus: u32,
    /// Held by pods, in whole-GPU equivalents.
    pub used_gpus: f64,
    /// Free on nodes that take pods, in whole-GPU equivalents.
    pub free_gpus: f64,
}

/// One MIG profile's part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigFigure {
    /// Profile, as text.
    pub profile: Str,
    /// Instances that exist.
    pub instances: u32,
    /// Instances that pods hold.
    pub used: u32,
}

/// One namespace's part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamespaceFigure {
    /// Namespace.
    pub namespace: Str,
    /// Live pods that are bound.
    pub pods: u32,
    /// `nvidia.com/gpu` held.
    pub gpus: i64,
    /// MIG instances held.
    pub mig_instances: i64,
    /// Pods that wait for a node.
    pub waiting_pods: u32,
    /// `nvidia.com/gpu` that they ask.
    pub waiting_gpus: i64,
}

/// The whole cluster in numbers. `None`: not known (the user may not list what it takes, or the
/// list is not there yet), which is not zero.
///
/// Each GPU, or part of one, counts in exactly one of five figures, so that
/// `used + free + sick + cordoned + stranded = gpus`. The first that holds decides:
/// 1. *sick*: on a node that is not Ready, whoever holds it, or unhealthy and held by nobody;
/// 2. *used*: a pod holds it, also on a cordoned node;
/// 3. *stranded*: memory slices of a cut GPU that belong to no MIG instance;
/// 4. *cordoned*: on a node that takes no new pods;
/// 5. *free*: the rest.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figures {
    /// Nodes.
    pub nodes: Option<u32>,
    /// Nodes that are Ready.
    pub nodes_ready: Option<u32>,
    /// Nodes that are cordoned.
    pub nodes_cordoned: Option<u32>,
    /// Physical GPUs.
    pub gpus: Option<u32>,
    /// Held by pods on nodes that are Ready, in whole-GPU equivalents.
    pub used_gpus: Option<f64>,
    /// Free on nodes that take pods.
    pub free_gpus: Option<f64>,
    /// On nodes that are not Ready, or unhealthy and not held. Pods unknown: all unhealthy ones.
    pub sick_gpus: Option<f64>,
    /// On cordoned nodes that are Ready, and not held.
    pub cordoned_gpus: Option<f64>,
    /// Cut GPUs' memory slices that belong to no MIG instance.
    pub stranded_gpus: Option<f64>,
    /// Nodes that have GPUs but do not tell how many.
    pub nodes_of_unknown_size: u32,
    /// `nvidia.com/gpu` requested by bound live pods, as `kubectl get pods` sums it.
    pub allocated_devices: Option<i64>,
    /// Pods that wait for a node.
    pub waiting_pods: Option<u32>,
    /// Whole GPUs that they ask.
    pub waiting_gpus: Option<i64>,
    /// By model, largest first.
    pub models: Vec<ModelFigure>,
    /// By MIG profile.
    pub mig: Vec<MigFigure>,
    /// By namespace, those with pods.
    pub namespaces: Vec<NamespaceFigure>,
    /// By tier and model, in the order of tiers, those without a tier last.
    pub tiers: Vec<TierFigure>,
    /// What all GPUs cost.
    pub money: Money,
}

impl Figures {
    /// Counts everything. Cost: one pass over the nodes; what a node adds is kept until it changes.
    pub fn of(cluster: &Cluster) -> Self {
        let mut figures = Figures {
            namespaces: cluster.namespace_figures(),
            ..Figures::default()
        };
        if cluster.is_known(Kind::Pod) {
            let sum = |part: fn(&NamespaceFigure) -> i64| {
                let parts = figures.namespaces.iter().map(part);
                parts.fold(0, i64::saturating_add)
            };
            figures.allocated_devices = Some(sum(|n| n.gpus));
            figures.waiting_gpus = Some(sum(|n| n.waiting_gpus));
            figures.waiting_pods = Some(figures.namespaces.iter().map(|n| n.waiting_pods).sum());
        }
        if cluster.is_known(Kind::Node) {
            figures.count_nodes(cluster);
        }
        figures
    }

    fn count_nodes(&mut self, cluster: &Cluster) {
        let (mut nodes, mut ready, mut cordoned) = (0, 0, 0);
        let mut sum = NodePart::default();
        let mut models: BTreeMap<&str, ModelFigure> = BTreeMap::new();
        let mut mig: BTreeMap<&MigProfile, MigFigure> = BTreeMap::new();
        let mut tiers: BTreeMap<(bool, Option<Tier>, &str), TierFigure> = BTreeMap::new();
        for facts in cluster.node_facts() {
            nodes += 1;
            ready += u32::from(facts.ready);
            cordoned += u32::from(facts.cordoned);
            self.nodes_of_unknown_size += u32::from(facts.of_unknown_size);
            for row in &facts.mig {
                let entry = mig.entry(&row.profile).or_insert_with(|| MigFigure {
                    profile: row.profile.to_string().into(),
                    instances: 0,
                    used: 0,
                });
                entry.instances = entry.instances.saturating_add(row.capacity);
                entry.used = entry.used.saturating_add(row.used);
            }
            let part = &facts.part;
            if part.gpus == 0 {
                continue;
            }
            sum.add(part);
            let model = models.entry(&*facts.model).or_insert_with(|| ModelFigure {
                model: facts.model.clone(),
                ..ModelFigure::default()
            });
            model.nodes += 1;
            model.gpus += part.gpus;
            model.used_gpus += part.used;
            model.free_gpus += part.free;
            let money = Money::of(part, facts.price);
            self.money.add(&money);
            let place = (facts.tier.is_none(), facts.tier, &*facts.model);
            let tier = tiers.entry(place).or_insert_with(|| TierFigure {
                tier: facts.tier,
                model: facts.model.clone(),
                ..TierFigure::default()
            });
            tier.add(&TierFigure {
                nodes: 1,
                part: *part,
                money,
                next_end: facts.end,
                ending: u32::from(facts.end.is_some()),
                ..TierFigure::default()
            });
        }
        self.nodes = Some(nodes);
        self.nodes_ready = Some(ready);
        self.nodes_cordoned = Some(cordoned);
        let pods_known = cluster.is_known(Kind::Pod);
        self.gpus = Some(sum.gpus);
        self.sick_gpus = Some(sum.sick);
        self.stranded_gpus = Some(sum.stranded);
        self.used_gpus = pods_known.then_some(sum.used);
        self.free_gpus = pods_known.then_some(sum.free);
        self.cordoned_gpus = pods_known.then_some(sum.cordoned);
        self.models = models.into_values().collect();
        self.models
            .sort_by(|a, b| b.gpus.cmp(&a.gpus).then_with(|| a.model.cmp(&b.model)));
        self.tiers = tiers.into_values().collect();
        self.mig = mig.into_values().collect();
        self.mig.sort_by(|a, b| a.profile.cmp(&b.profile));
    }
}

/// Labels of a GPU node even where no count is stated.
fn has_gpu_signs(node: &Node) -> bool {
    node.meta.label("nvidia.com/gpu.present") == Some("true")
        || node
            .meta
            .label("feature.node.kubernetes.io/pci-10de.present")
            == Some("true")
        || node.gpus.model.is_some()
        || node
            .capacity
            .extended
            .iter()
            .any(|(key, n)| *n > 0 && GpuResource::from_key(key).is_some())
}

/// What one node adds to the figures.
pub(super) struct NodeFacts {
    ready: bool,
    cordoned: bool,
    of_unknown_size: bool,
    model: Str,
    part: NodePart,
    mig: Vec<MigCount>,
    tier: Option<Tier>,
    price: Option<f64>,
    end: Option<Timestamp>,
}

impl NodeFacts {
    pub(super) fn of(node: &Node, held: &NodeUse, pricing: &Pricing) -> Self {
        NodeFacts {
            tier: pricing.tier(node).map(|(tier, _)| tier),
            price: pricing.price(node).map(|p| p.per_gpu_hour),
            end: node.end().map(|(at, _)| at),
            ready: node.readiness() == Readiness::Ready,
            cordoned: node.unschedulable,
            of_unknown_size: node.gpus.count.is_none() && has_gpu_signs(node),
            model: node.gpus.model.as_ref().map_or("", |m| m.short()).into(),
            part: NodePart::of(node, &held.cells(node)),
            mig: held.mig(node),
        }
    }
}

/// GPUs of one node, or of many, by what becomes of them; see [`Figures`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct NodePart {
    /// Physical GPUs.
    pub gpus: u32,
    /// Held by pods.
    pub used: f64,
    /// On a node that is not Ready, or unhealthy and not held.
    pub sick: f64,
    /// In no MIG instance.
    pub stranded: f64,
    /// Not held, on a cordoned node.
    pub cordoned: f64,
    /// The rest.
    pub free: f64,
}

impl NodePart {
    /// Counts the cells of a node.
    pub fn of(node: &Node, cells: &[GpuCell]) -> Self {
        let gpus = u32::try_from(cells.len()).unwrap_or(u32::MAX);
        let sum = |share: fn(&GpuCell) -> f64| cells.iter().map(share).sum::<f64>();
        let mut part = NodePart {
            gpus,
            ..NodePart::default()
        };
        if node.readiness() != Readiness::Ready {
            part.sick = f64::from(gpus);
            return part;
        }
        part.used = sum(GpuCell::used_share);
        part.sick = sum(GpuCell::sick_share);
        part.stranded = sum(GpuCell::stranded_share);
        let rest = (f64::from(gpus) - part.used - part.sick - part.stranded).max(0.0);
        if node.unschedulable {
            part.cordoned = rest;
        } else {
            part.free = rest;
        }
        part
    }

    pub(super) fn add(&mut self, other: &NodePart) {
        self.gpus = self.gpus.saturating_add(other.gpus);
        self.used += other.used;
        self.sick += other.sick;
        self.stranded += other.stranded;
        self.cordoned += other.cordoned;
        self.free += other.free;
    }
}

#[cfg(test)]
mod tests {
    use super::super::condition::Condition;
    use super::super::meta::Meta;
    use super::super::node::NodeGpus;
    use super::super::node_use::NodeUse;
    use super::super::pod::Pod;
    use super::super::resources::Resources;
    use super::*;
    use proptest::prelude::*;

    const KEYS: [&str; 4] = [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-3g.40gb",
    ];
    const PRODUCTS: [&str; 4] = [
        "",
        "NVIDIA-H100-80GB-HBM3",
        "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "Tesla-T4-SHARED",
    ];

    fn amounts(counts: &[u8; 4]) -> Resources {
        let mut resources = Resources::default();
        for (key, n) in KEYS.iter().zip(counts) {
            if *n > 0 {
                resources.set_extended(&(*key).into(), i64::from(*n));
            }
        }
        resources
    }

    proptest! {
        /// Whatever a node says of itself, no GPU counts twice and none is lost.
        #[test]
        fn each_gpu_counts_once(
            capacity in any::<[u8; 4]>(),
            lost in any::<[u8; 4]>(),
            asked in any::<[u8; 4]>(),
            product in 0..4_usize,
            count in proptest::option::of(0..20_u8),
            strategy in 0..3_usize,
            replicas in 0..5_u8,
            ready in proptest::option::of(any::<bool>()),
            cordoned: bool,
        ) {
            let mut labels: Vec<(Str, Str)> = Vec::new();
            let mut label = |key: &str, value: String| labels.push((key.into(), value.into()));
            label("nvidia.com/gpu.product", PRODUCTS.get(product).copied().unwrap_or("").to_owned());
            if let Some(n) = count {
                label("nvidia.com/gpu.count", n.to_string());
            }
            if let Some(name) = ["single", "mixed"].get(strategy) {
                label("nvidia.com/mig.strategy", (*name).to_owned());
            }
            if replicas > 0 {
                label("nvidia.com/gpu.replicas", replicas.to_string());
                label("nvidia.com/gpu.sharing-strategy", "time-slicing".to_owned());
            }
            labels.sort();
            let meta = Meta { labels: labels.into(), ..Meta::default() };
            let mut left = capacity;
            for (n, lost) in left.iter_mut().zip(lost) {
                *n = n.saturating_sub(lost);
            }
            let capacity = amounts(&capacity);
            let ready = Condition {
                kind: "Ready".into(),
                status: ready,
                reason: "".into(),
                message: "".into(),
                changed: None,
            };
            let node = Node {
                gpus: NodeGpus::from_labels(&meta, &capacity),
                meta,
                capacity,
                allocatable: amounts(&left),
                unschedulable: cordoned,
                conditions: Box::new([ready]),
                ..Node::default()
            };
            let mut held = NodeUse::default();
            held.add(&Pod { requests: amounts(&asked), ..Pod::default() });
            let part = NodePart::of(&node, &held.cells(&node));
            let parts = [part.used, part.sick, part.stranded, part.cordoned, part.free];
            for share in parts {
                prop_assert!(share >= 0.0, "{part:?}");
            }
            let sum: f64 = parts.iter().sum();
            prop_assert!((sum - f64::from(part.gpus)).abs() < 1e-6, "{part:?}");
        }
    }
}
