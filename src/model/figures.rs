//! The numbers that an on-call person asks first; the console and `gpudeck snapshot` print these.

use std::collections::BTreeMap;

use super::cluster::Cluster;
use super::delta::Kind;
use super::gpu::GpuResource;
use super::node::{Node, Readiness};
use super::node_use::GpuCell;
use super::text::Str;

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
    /// Held by pods, in whole-GPU equivalents.
    pub used_gpus: Option<f64>,
    /// Free on nodes that take pods.
    pub free_gpus: Option<f64>,
    /// Not given out: unhealthy, or on nodes that are not Ready.
    pub sick_gpus: Option<u32>,
    /// On cordoned nodes and not held.
    pub cordoned_gpus: Option<f64>,
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
}

impl Figures {
    /// Counts everything. Cost: one pass over the nodes.
    pub fn of(cluster: &Cluster) -> Self {
        let mut figures = Figures {
            namespaces: cluster.namespace_figures(),
            ..Figures::default()
        };
        if cluster.is_known(Kind::Pod) {
            figures.allocated_devices = Some(figures.namespaces.iter().map(|n| n.gpus).sum());
            figures.waiting_pods = Some(figures.namespaces.iter().map(|n| n.waiting_pods).sum());
            figures.waiting_gpus = Some(figures.namespaces.iter().map(|n| n.waiting_gpus).sum());
        }
        if cluster.is_known(Kind::Node) {
            figures.count_nodes(cluster);
        }
        figures
    }

    fn count_nodes(&mut self, cluster: &Cluster) {
        let (mut nodes, mut ready, mut cordoned, mut gpus, mut sick) = (0, 0, 0, 0, 0);
        let (mut used, mut free, mut cordoned_free) = (0.0, 0.0, 0.0);
        let mut models: BTreeMap<Str, ModelFigure> = BTreeMap::new();
        let mut mig: BTreeMap<String, MigFigure> = BTreeMap::new();
        for (node, held) in cluster.nodes() {
            nodes += 1;
            ready += u32::from(node.readiness() == Readiness::Ready);
            cordoned += u32::from(node.unschedulable);
            self.nodes_of_unknown_size +=
                u32::from(node.gpus.count.is_none() && has_gpu_signs(node));
            for row in held.mig(node) {
                let name = row.profile.to_string();
                let entry = mig.entry(name.clone()).or_insert(MigFigure {
                    profile: name.into(),
                    instances: 0,
                    used: 0,
                });
                entry.instances += row.capacity;
                entry.used += row.used;
            }
            let cells = held.cells(node);
            if cells.is_empty() {
                continue;
            }
            let part = NodePart::of(node, &cells);
            gpus += part.gpus;
            used += part.used;
            sick += part.sick;
            free += part.free;
            cordoned_free += part.cordoned_free;
            let name: Str = node.gpus.model.as_ref().map_or("", |m| m.short()).into();
            let model = models.entry(name.clone()).or_insert_with(|| ModelFigure {
                model: name,
                ..ModelFigure::default()
            });
            model.nodes += 1;
            model.gpus += part.gpus;
            model.used_gpus += part.used;
            model.free_gpus += part.free;
        }
        self.nodes = Some(nodes);
        self.nodes_ready = Some(ready);
        self.nodes_cordoned = Some(cordoned);
        self.gpus = Some(gpus);
        self.sick_gpus = Some(sick);
        self.used_gpus = cluster.is_known(Kind::Pod).then_some(used);
        self.free_gpus = cluster.is_known(Kind::Pod).then_some(free);
        self.cordoned_gpus = Some(cordoned_free);
        self.models = models.into_values().collect();
        self.models
            .sort_by(|a, b| b.gpus.cmp(&a.gpus).then_with(|| a.model.cmp(&b.model)));
        self.mig = mig.into_values().collect();
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

/// One node's contribution.
struct NodePart {
    gpus: u32,
    used: f64,
    free: f64,
    sick: u32,
    cordoned_free: f64,
}

impl NodePart {
    fn of(node: &Node, cells: &[GpuCell]) -> Self {
        let gpus = u32::try_from(cells.len()).unwrap_or(u32::MAX);
        let used: f64 = cells.iter().map(GpuCell::used_share).sum();
        let unhealthy = cells.iter().filter(|c| **c == GpuCell::Unhealthy).count();
        let unhealthy = u32::try_from(unhealthy).unwrap_or(u32::MAX);
        let rest = f64::from(gpus - unhealthy) - used;
        let down = node.readiness() != Readiness::Ready;
        NodePart {
            gpus,
            used,
            sick: if down { gpus } else { unhealthy },
            free: if down || node.unschedulable {
                0.0
            } else {
                rest
            },
            cordoned_free: if node.unschedulable && !down {
                rest
            } else {
                0.0
            },
        }
    }
}
