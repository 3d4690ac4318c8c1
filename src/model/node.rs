//! Nodes: what their labels, taints and conditions say.
//!
//! Sources: NVIDIA GPU Feature Discovery and mig-manager, GKE, Karpenter and CoreWeave (labels).

use jiff::Timestamp;

use super::condition::Condition;
use super::gpu::{GpuModel, GpuResource, MigProfile};
use super::gpu_name;
use super::meta::Meta;
use super::resources::Resources;
use super::text::Str;
use super::tier::{self, Tier, TierSource};

/// Effect of a taint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away if they can.
    PreferNoSchedule,
    /// Running pods leave too.
    NoExecute,
}

/// A taint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taint {
    /// Key.
    pub key: Str,
    /// Value, may be empty.
    pub value: Str,
    /// Effect.
    pub effect: TaintEffect,
}

/// Whether a node can take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Condition Ready is True.
    Ready,
    /// Condition Ready is False.
    NotReady,
    /// Condition Ready is Unknown or missing.
    Unknown,
}

/// MIG strategy of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigStrategy {
    /// All MIG devices are alike and shown as `nvidia.com/gpu`.
    Single,
    /// Each profile is a resource of its own.
    Mixed,
}

/// `nvidia.com/mig.config.state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigConfigState {
    /// mig-manager works on it.
    Pending,
    /// The node restarts for it.
    Rebooting,
    /// Applied.
    Success,
    /// Not applied.
    Failed,
}

impl MigConfigState {
    /// The label value.
    pub fn name(self) -> &'static str {
        match self {
            MigConfigState::Pending => "pending",
            MigConfigState::Rebooting => "rebooting",
            MigConfigState::Success => "success",
            MigConfigState::Failed => "failed",
        }
    }
}

/// How a node shares its GPUs among pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// One pod a device.
    #[default]
    None,
    /// Time-slicing.
    TimeSlicing,
    /// CUDA MPS.
    Mps,
}

/// What a node says of its GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeGpus {
    /// Model, when a label names it.
    pub model: Option<GpuModel>,
    /// Memory of one GPU in MiB.
    pub memory_mib: Option<u32>,
    /// Physical GPUs; `None` when neither a label nor a resource tells.
    pub count: Option<u32>,
    /// MIG strategy, when stated.
    pub strategy: Option<MigStrategy>,
    /// Under strategy `single`: the one profile that `nvidia.com/gpu` stands for.
    pub single_profile: Option<MigProfile>,
    /// The wanted layout's name (`nvidia.com/mig.config`).
    pub mig_config: Option<Str>,
    /// Its state.
    pub mig_state: Option<MigConfigState>,
    /// Sharing.
    pub sharing: Sharing,
    /// Replicas of a shared device, 1 when not shared.
    pub replicas: u32,
    /// `nvidia.com/gpu.clique`: NVLink domain across nodes.
    pub clique: Option<Str>,
}

impl NodeGpus {
    /// Reads the labels, with capacity as the fallback for the count.
    pub fn from_labels(meta: &Meta, capacity: &Resources) -> Self {
        let label = |key: &str| meta.label(key);
        let number = |key: &str| label(key).and_then(|v| v.parse::<u32>().ok());
        let machine = || label("node.kubernetes.io/instance-type").and_then(gpu_name::of_machine);
        let by_nvidia = label("karpenter.k8s.aws/instance-gpu-manufacturer")
            .is_none_or(|m| m.eq_ignore_ascii_case("nvidia"));
        let product: Option<Str> = PRODUCT_LABELS
            .iter()
            .filter(|key| **key != KARPENTER_NAME || by_nvidia)
            .find_map(|key| label(key).filter(|v| !is_vendor(v)))
            .map(Into::into)
            .or_else(|| machine().map(Into::into));
        let product = product.as_deref();
        // Under strategy single the label tells the memory of a MIG device, not of the GPU.
        let memory_mib = number("nvidia.com/gpu.memory")
            .filter(|m| *m > 0 && !product.is_some_and(|p| p.contains("-MIG-")));
        let hint = memory_mib.or_else(|| number("karpenter.k8s.aws/instance-gpu-memory"));
        // GKE cuts all GPUs of a node alike and shows the parts as `nvidia.com/gpu`.
        let partition = label("cloud.google.com/gke-gpu-partition-size");
        let mut gpus = NodeGpus {
            model: product.map(|p| GpuModel::new(p, hint)),
            memory_mib,
            strategy: match label("nvidia.com/mig.strategy") {
                Some("single") => Some(MigStrategy::Single),
                Some("mixed") => Some(MigStrategy::Mixed),
                _ => partition.map(|_| MigStrategy::Single),
            },
            single_profile: product
                .and_then(|p| p.split_once("-MIG-"))
                .map(|(_, profile)| profile)
                .or(partition)
                .and_then(|profile| profile.parse().ok()),
            mig_config: label("nvidia.com/mig.config").map(Into::into),
            mig_state: match label("nvidia.com/mig.config.state") {
                Some("pending") => Some(MigConfigState::Pending),
                Some("rebooting") => Some(MigConfigState::Rebooting),
                Some("success") => Some(MigConfigState::Success),
                Some("failed") => Some(MigConfigState::Failed),
                _ => None,
            },
            sharing: match label("nvidia.com/gpu.sharing-strategy")
                .or_else(|| label("cloud.google.com/gke-gpu-sharing-strategy"))
            {
                Some("time-slicing" | "time-sharing") => Sharing::TimeSlicing,
                Some("mps") => Sharing::Mps,
                _ => Sharing::None,
            },
            replicas: number("nvidia.com/gpu.replicas")
                .or_else(|| number("cloud.google.com/gke-max-shared-clients-per-gpu"))
                .unwrap_or(1)
                .max(1),
            clique: label("nvidia.com/gpu.clique").map(Into::into),
            count: None,
        };
        let physical = number("cloud.google.com/gke-accelerator-count")
            .or_else(|| number("karpenter.k8s.aws/instance-gpu-count").filter(|n| *n > 0))
            .or_else(|| number("gpu.nvidia.com/count"));
        // With a broken layout the label says 0, which is not the number of GPUs.
        let broken = product.is_some_and(|p| p.ends_with("-MIG-INVALID"));
        let by_gfd = number("nvidia.com/gpu.count").filter(|_| !broken);
        gpus.count = gpus.physical_count(by_gfd, physical, capacity);
        gpus
    }

    /// Physical GPUs. Under strategy `single` GPU Feature Discovery and the kubelet count MIG
    /// devices, and shared resources count replicas; both are divided back.
    fn physical_count(
        &self,
        by_gfd: Option<u32>,
        physical: Option<u32>,
        capacity: &Resources,
    ) -> Option<u32> {
        let whole = capacity.extended_if_stated("nvidia.com/gpu");
        let shared = capacity.extended_if_stated("nvidia.com/gpu.shared");
        let devices = whole
            .or(shared)
            .map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX));
        if let (Some(profile), Some(model)) = (&self.single_profile, &self.model) {
            let per_gpu = u32::from(profile.max_per_gpu(model, self.memory_mib));
            let cut = by_gfd.map(|n| n.div_ceil(per_gpu)).or(physical);
            return cut.or(devices.map(|n| n.div_ceil(per_gpu)));
        }
        if let Some(stated) = by_gfd.or(physical) {
            return Some(stated);
        }
        let shares = self.sharing != Sharing::None || shared.is_some();
        devices.map(|n| if shares { n.div_ceil(self.replicas) } else { n })
    }
}

/// Labels that name the GPU, the most exact first.
const PRODUCT_LABELS: [&str; 6] = [
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    KARPENTER_NAME,
    "gpu.nvidia.com/model",
    "gpu.nvidia.com/class",
    "accelerator",
];

const KARPENTER_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";

/// A label that names the maker only.
fn is_vendor(value: &str) -> bool {
    value.is_empty() || ["nvidia", "true", "gpu"].contains(&value)
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    /// Identity.
    pub meta: Meta,
    /// `spec.unschedulable` (cordoned).
    pub unschedulable: bool,
    /// Taints.
    pub taints: Box<[Taint]>,
    /// Capacity.
    pub capacity: Resources,
    /// Allocatable: what may be given to pods.
    pub allocatable: Resources,
    /// Conditions.
    pub conditions: Box<[Condition]>,
    /// GPUs by labels.
    pub gpus: NodeGpus,
    /// Kubelet version.
    pub kubelet_version: Str,
}

impl Node {
    /// Ready, NotReady or not known.
    pub fn readiness(&self) -> Readiness {
        match self
            .conditions
            .iter()
            .find(|c| &*c.kind == "Ready")
            .map(|c| c.status)
        {
            Some(Some(true)) => Readiness::Ready,
            Some(Some(false)) => Readiness::NotReady,
            _ => Readiness::Unknown,
        }
    }

    /// Conditions that tell of a fault, Ready aside.
    pub fn faults(&self) -> impl Iterator<Item = &Condition> {
        self.conditions
            .iter()
            .filter(|c| &*c.kind != "Ready" && c.is_fault() == Some(true))
    }

    /// Conditions that tell what is planned or under way: drains, maintenance.
    pub fn notices(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.iter().filter(|c| c.is_notice())
    }

    /// Tier and the label or taint that told it; `None` when none does.
    pub fn tier(&self) -> Option<(Tier, TierSource)> {
        tier::of(&self.meta, &self.taints)
    }

    /// When it ends or is taken away, as far as that is known, and what told it: Karpenter's and
    /// GKE's annotations, GKE's label of planned maintenance, and the longest time that GKE lets a
    /// machine run.
    pub fn end(&self) -> Option<(Timestamp, &'static str)> {
        const NOTES: [&str; 2] = [
            "karpenter.sh/nodeclaim-termination-timestamp",
            "node.gke.io/machine-termination-datetime",
        ];
        const MAINTENANCE: &str = "cloud.google.com/scheduled-maintenance-time";
        const LONGEST: &str = "cloud.google.com/gke-max-run-duration-seconds";
        let noted = NOTES.iter().find_map(|key| {
            let at = self.meta.annotation(key)?.parse().ok()?;
            Some((at, *key))
        });
        let seconds = |key: &str| self.meta.label(key)?.parse::<i64>().ok().filter(|n| *n > 0);
        let planned = || {
            let at = Timestamp::from_second(seconds(MAINTENANCE)?).ok()?;
            Some((at, MAINTENANCE))
        };
        let longest = || {
            let span = jiff::SignedDuration::from_secs(seconds(LONGEST)?);
            let at = self.meta.created?.checked_add(span).ok()?;
            Some((at, LONGEST))
        };
        noted.or_else(planned).or_else(longest)
    }

    /// Zone label.
    pub fn zone(&self) -> Option<&str> {
        self.meta.label("topology.kubernetes.io/zone")
    }

    /// Devices that the kubelet knows but does not give out (capacity above allocatable), by
    /// resource: the device plugin marked them unhealthy.
    pub fn unhealthy_gpus(&self) -> i64 {
        self.capacity
            .extended
            .iter()
            .filter(|(key, _)| GpuResource::from_key(key).is_some())
            .map(|(key, n)| n.saturating_sub(self.allocatable.extended(key)).max(0))
            .fold(0, i64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)], capacity: &[(&str, i64)]) -> Node {
        let mut labels: Vec<(Str, Str)> = labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        labels.sort();
        let meta = Meta {
            labels: labels.into(),
            ..Meta::default()
        };
        let mut resources = Resources::default();
        for (key, n) in capacity {
            resources.set_extended(&(*key).into(), *n);
        }
        Node {
            gpus: NodeGpus::from_labels(&meta, &resources),
            meta,
            capacity: resources,
            ..Node::default()
        }
    }

    #[test]
    fn single_strategy_counts_mig_devices_so_they_are_divided_back() {
        let n = node(
            &[
                ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
                ("nvidia.com/gpu.count", "56"),
                ("nvidia.com/mig.strategy", "single"),
                ("nvidia.com/gpu.memory", "4864"),
            ],
            &[("nvidia.com/gpu", 56)],
        );
        assert_eq!(n.gpus.model.as_ref().map(GpuModel::short), Some("A100-40"));
        assert_eq!(n.gpus.count, Some(8));
    }

    #[test]
    fn shared_resources_count_replicas() {
        let n = node(
            &[
                ("nvidia.com/gpu.sharing-strategy", "time-slicing"),
                ("nvidia.com/gpu.replicas", "4"),
            ],
            &[("nvidia.com/gpu", 8)],
        );
        assert_eq!(n.gpus.count, Some(2));
        assert_eq!(node(&[], &[]).gpus.count, None, "unknown is not zero");
        assert_eq!(
            node(&[("accelerator", "nvidia")], &[("nvidia.com/gpu", 4)])
                .gpus
                .count,
            Some(4)
        );
    }
}
