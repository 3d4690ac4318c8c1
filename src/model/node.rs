//! Nodes: what their labels, taints and conditions say.
//!
//! Sources: NVIDIA GPU Feature Discovery and mig-manager (labels), Karpenter, EKS, GKE, AKS and
//! OCI documentation (capacity types).

use jiff::Timestamp;

use super::gpu::{GpuModel, GpuResource, MigProfile};
use super::meta::Meta;
use super::resources::Resources;
use super::text::Str;

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

/// A condition of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Type, e.g. `Ready`.
    pub kind: Str,
    /// `Some(true)` for True, `Some(false)` for False, `None` for Unknown or anything else.
    pub status: Option<bool>,
    /// Reason.
    pub reason: Str,
    /// Message.
    pub message: Str,
    /// When it last changed.
    pub changed: Option<Timestamp>,
}

impl Condition {
    /// Whether this condition tells of a fault, by the polarity of its type: types that end in
    /// `Ready`, `Health` or `Healthy` are good when True, all others are bad when True
    /// (NVSentinel, AKS, node-problem-detector: True = fault; EKS agent: False = fault).
    /// `None`: it is informational, or its status is not known.
    pub fn is_fault(&self) -> Option<bool> {
        // Phases and schedules that agents write as conditions, neither good nor bad.
        const INFORMATIONAL: [&str; 6] = [
            "PhaseState",
            "PendingPhaseState",
            "CWActive",
            "DrainScheduled",
            "VMEventScheduled",
            "NodeUpgrade",
        ];
        if INFORMATIONAL.contains(&&*self.kind) {
            return None;
        }
        let good_when_true = ["Ready", "Health", "Healthy"]
            .iter()
            .any(|end| self.kind.ends_with(end));
        self.status.map(|status| status != good_when_true)
    }
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

/// What a node costs and how it can be lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// Own hardware.
    Owned,
    /// Reserved capacity.
    Reserved,
    /// On-demand.
    OnDemand,
    /// Spot or preemptible.
    Spot,
    /// Ends at a date: capacity blocks, flex-start.
    Calendar,
}

impl Tier {
    /// As screens and filters write it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Owned => "owned",
            Tier::Reserved => "reserved",
            Tier::OnDemand => "on-demand",
            Tier::Spot => "spot",
            Tier::Calendar => "calendar",
        }
    }

    /// Reads a tier name as [`Tier::name`] writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Tier::Owned,
            Tier::Reserved,
            Tier::OnDemand,
            Tier::Spot,
            Tier::Calendar,
        ]
        .into_iter()
        .find(|t| t.name() == name)
    }
}

/// The label that told the tier.
pub type TierSource = &'static str;

/// Tier rules in order; the first whose label (and value, ignoring case) is there wins.
const TIER_RULES: [(&str, Option<&str>, Tier); 18] = [
    ("gpudeck.dev/tier", Some("owned"), Tier::Owned),
    ("gpudeck.dev/tier", Some("reserved"), Tier::Reserved),
    ("gpudeck.dev/tier", Some("on-demand"), Tier::OnDemand),
    ("gpudeck.dev/tier", Some("spot"), Tier::Spot),
    ("gpudeck.dev/tier", Some("calendar"), Tier::Calendar),
    ("karpenter.sh/capacity-type", Some("spot"), Tier::Spot),
    ("eks.amazonaws.com/capacityType", Some("SPOT"), Tier::Spot),
    (
        "eks.amazonaws.com/capacityType",
        Some("CAPACITY_BLOCK"),
        Tier::Calendar,
    ),
    (
        "karpenter.k8s.aws/capacity-reservation-type",
        Some("capacity-block"),
        Tier::Calendar,
    ),
    ("cloud.google.com/gke-spot", Some("true"), Tier::Spot),
    ("cloud.google.com/gke-preemptible", Some("true"), Tier::Spot),
    (
        "cloud.google.com/gke-max-run-duration-seconds",
        None,
        Tier::Calendar,
    ),
    ("kubernetes.azure.com/priority", Some("spot"), Tier::Spot),
    (
        "kubernetes.azure.com/scalesetpriority",
        Some("spot"),
        Tier::Spot,
    ),
    (
        "karpenter.sh/capacity-type",
        Some("reserved"),
        Tier::Reserved,
    ),
    ("cloud.google.com/reservation-name", None, Tier::Reserved),
    (
        "oci.oraclecloud.com/host.capacity_reservation_id",
        None,
        Tier::Reserved,
    ),
    (
        "karpenter.sh/capacity-type",
        Some("on-demand"),
        Tier::OnDemand,
    ),
];

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
        let product = label("nvidia.com/gpu.product")
            .or_else(|| label("cloud.google.com/gke-accelerator"))
            .or_else(|| label("karpenter.k8s.aws/instance-gpu-name"))
            .or_else(|| label("accelerator").filter(|v| *v != "nvidia"));
        let mut gpus = NodeGpus {
            model: product.map(GpuModel::from_product),
            // Under strategy single the label tells the memory of a MIG device, not of the GPU.
            memory_mib: number("nvidia.com/gpu.memory")
                .filter(|m| *m > 0 && !product.is_some_and(|p| p.contains("-MIG-"))),
            strategy: match label("nvidia.com/mig.strategy") {
                Some("single") => Some(MigStrategy::Single),
                Some("mixed") => Some(MigStrategy::Mixed),
                _ => None,
            },
            single_profile: product
                .and_then(|p| p.split_once("-MIG-"))
                .and_then(|(_, profile)| profile.parse().ok()),
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
        let stated = number("nvidia.com/gpu.count")
            .or_else(|| number("cloud.google.com/gke-accelerator-count"))
            .or_else(|| number("karpenter.k8s.aws/instance-gpu-count"));
        gpus.count = gpus.physical_count(stated, capacity);
        gpus
    }

    /// Physical GPUs. Under strategy `single` the count label counts MIG devices, and shared
    /// resources count replicas; both are divided back.
    fn physical_count(&self, stated: Option<u32>, capacity: &Resources) -> Option<u32> {
        if let (Some(n), Some(profile), Some(model)) = (stated, &self.single_profile, &self.model) {
            return Some(n.div_ceil(u32::from(profile.max_per_gpu(model, self.memory_mib))));
        }
        if stated.is_some() {
            return stated;
        }
        let whole = capacity.extended_if_stated("nvidia.com/gpu");
        let shared = capacity.extended_if_stated("nvidia.com/gpu.shared");
        let devices = u32::try_from(whole.or(shared)?.max(0)).unwrap_or(u32::MAX);
        let shares = self.sharing != Sharing::None || shared.is_some();
        Some(if shares {
            devices.div_ceil(self.replicas)
        } else {
            devices
        })
    }
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

    /// Tier and the label that told it; `None` when no label does.
    pub fn tier(&self) -> Option<(Tier, TierSource)> {
        TIER_RULES.iter().find_map(|(key, value, tier)| {
            let found = self.meta.label(key)?;
            value
                .is_none_or(|v| v.eq_ignore_ascii_case(found))
                .then_some((*tier, *key))
        })
    }

    /// Zone label.
    pub fn zone(&self) -> Option<&str> {
        self.meta.label("topology.kubernetes.io/zone")
    }

    /// The closest switch above the node, by the label families that name one
    /// (topograph new and old, AWS layer 3, GKE sub-block, OCI rack).
    pub fn leaf(&self) -> Option<&str> {
        const KEYS: [&str; 6] = [
            "fabric.topograph.run/tier-0",
            "network.topology.nvidia.com/leaf",
            "network.topology.nvidia.com/block",
            "topology.k8s.aws/network-node-layer-3",
            "cloud.google.com/gce-topology-subblock",
            "oci.oraclecloud.com/host.rack_id",
        ];
        KEYS.iter()
            .find_map(|k| self.meta.label(k))
            .filter(|v| !v.is_empty() && *v != "no-imds-data")
    }

    /// Devices that the kubelet knows but does not give out (capacity above allocatable), by
    /// resource: the device plugin marked them unhealthy.
    pub fn unhealthy_gpus(&self) -> i64 {
        self.capacity
            .extended
            .iter()
            .filter(|(key, _)| GpuResource::from_key(key).is_some())
            .map(|(key, n)| (n - self.allocatable.extended(key)).max(0))
            .sum()
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

    #[test]
    fn tiers_by_label_of_each_provider() {
        for (labels, tier) in [
            (("karpenter.sh/capacity-type", "spot"), Some(Tier::Spot)),
            (
                ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK"),
                Some(Tier::Calendar),
            ),
            (
                ("kubernetes.azure.com/scalesetpriority", "spot"),
                Some(Tier::Spot),
            ),
            (("gpudeck.dev/tier", "owned"), Some(Tier::Owned)),
            (("gpudeck.dev/tier", "nonsense"), None),
        ] {
            assert_eq!(node(&[labels], &[]).tier().map(|t| t.0), tier, "{labels:?}");
        }
    }

    #[test]
    fn polarity_of_conditions() {
        let c = |kind: &str, status| Condition {
            kind: kind.into(),
            status,
            reason: "".into(),
            message: "".into(),
            changed: None,
        };
        assert_eq!(
            c("AcceleratedHardwareReady", Some(false)).is_fault(),
            Some(true)
        );
        assert_eq!(c("GpuXidError", Some(true)).is_fault(), Some(true));
        assert_eq!(c("MemoryPressure", Some(false)).is_fault(), Some(false));
        assert_eq!(c("XIDErrors", None).is_fault(), None);
        assert_eq!(c("PhaseState", Some(true)).is_fault(), None);
    }
}
