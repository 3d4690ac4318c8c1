//! What scheduling knows of a node's GPUs beside what is free of them.

use std::sync::Arc;

use super::needs::{Needs, tier_bit};
use super::place::{MAX_GPUS, ModelId, ModelSet};
use super::selector;
use super::slices::Layout;
use crate::model::{
    Constraints, GpuModel, MatchExpression, MigProfile, MigStrategy, Node, Sharing, Str, Tier,
};

/// The resource that stands for whole devices.
pub(super) const WHOLE: &str = "nvidia.com/gpu";

/// How a node gives out its devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Cut {
    /// Whole, or in shares that we keep account of; MIG devices beside them by profile.
    #[default]
    Whole,
    /// As replicas by time-slicing or MPS, so many a device.
    Replicas(u32),
    /// As MIG devices that go by the name of a GPU.
    Single,
}

/// A node's GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct NodeGpus {
    /// Number of the model; 0 where it is not known.
    pub(super) model: ModelId,
    /// Its short name.
    pub(super) name: Option<Str>,
    /// Memory of one device.
    pub(super) memory_mib: Option<u32>,
    /// Devices whose free parts are kept account of.
    pub(super) devices: u8,
    /// How they are given out.
    pub(super) cut: Cut,
    /// Memory of a device under [`Cut::Single`].
    pub(super) single_mib: Option<u32>,
    /// What can happen to the node.
    pub(super) tier: Option<Tier>,
    /// The model, to look up its slices.
    product: Option<GpuModel>,
    /// Its MIG devices, where each has a place.
    pub(super) layout: Option<Arc<Layout>>,
}

impl NodeGpus {
    /// Reads a node; a model that is new gets the next number.
    pub(super) fn of(node: &Node, models: &mut Models) -> Self {
        let gpus = &node.gpus;
        let shared = node.allocatable.extended("nvidia.com/gpu.shared") > 0;
        let cut = match (&gpus.single_profile, gpus.strategy) {
            (Some(_), Some(MigStrategy::Single)) => Cut::Single,
            _ if gpus.sharing != Sharing::None || shared => Cut::Replicas(gpus.replicas.max(1)),
            _ => Cut::Whole,
        };
        let nominal = |m: &GpuModel| m.nominal_memory_gb().map(gb_as_mib);
        let memory_mib = gpus
            .memory_mib
            .or_else(|| gpus.model.as_ref().and_then(nominal));
        let devices = match cut {
            Cut::Whole => usize::try_from(node.allocatable.extended(WHOLE).max(0))
                .unwrap_or(MAX_GPUS)
                .min(MAX_GPUS),
            Cut::Replicas(_) | Cut::Single => 0,
        };
        Self {
            model: models.number(node),
            name: gpus.model.as_ref().map(|m| m.short().into()),
            memory_mib,
            devices: u8::try_from(devices).unwrap_or(0),
            cut,
            single_mib: gpus
                .single_profile
                .as_ref()
                .and_then(|p| slice_mib(p, gpus.model.as_ref(), memory_mib)),
            tier: node.tier().map(|(tier, _)| tier),
            product: gpus.model.clone(),
            layout: Layout::of(node).map(Arc::new),
        }
    }

    /// Memory of one of its MIG instances.
    pub(super) fn slice_mib(&self, profile: &MigProfile) -> Option<u32> {
        slice_mib(profile, self.product.as_ref(), self.memory_mib)
    }

    /// Thousandths of a device that hold so many MiB; `None` when the memory is not known or too
    /// small.
    pub(super) fn milli_for(&self, mib: u32) -> Option<u16> {
        let all = u64::from(self.memory_mib?);
        let milli = (u64::from(mib) * 1000).div_ceil(all.max(1));
        u16::try_from(milli).ok().filter(|m| (1..=1000).contains(m))
    }

    /// The tier is one that a pod with these needs may go to.
    pub(super) fn tier_suits(&self, needs: &Needs, spot_needs_checkpoint: bool) -> bool {
        if needs
            .tiers
            .is_some_and(|allowed| self.tier.is_none_or(|tier| allowed & tier_bit(tier) == 0))
        {
            return false;
        }
        match self.tier {
            Some(Tier::Spot) => {
                !needs.latency_sensitive && (needs.checkpointed || !spot_needs_checkpoint)
            }
            Some(Tier::Calendar) => !needs.latency_sensitive,
            _ => true,
        }
    }

    /// The model is one that will do.
    pub(super) fn model_suits(&self, needs: &Needs) -> bool {
        needs.models.is_empty()
            || self
                .name
                .as_ref()
                .is_some_and(|name| needs.models.iter().any(|m| is_model(m, name)))
    }
}

/// `H200` names every H200, `H100-80` only that size.
fn is_model(wanted: &str, name: &str) -> bool {
    name.get(..wanted.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(wanted))
        && matches!(name.as_bytes().get(wanted.len()), None | Some(b'-'))
}

/// A nominal size in GB (10^9 bytes) in MiB, less what the driver keeps of each device.
fn gb_as_mib(gb: u16) -> u32 {
    let mib = u64::from(gb) * 1_000_000_000 / (1 << 20);
    u32::try_from(mib * 97 / 100).unwrap_or(u32::MAX)
}

/// Memory of a MIG instance: NVIDIA's figure, else a careful guess from its nominal size, below
/// which no instance is known to be.
pub(super) fn slice_mib(
    profile: &MigProfile,
    model: Option<&GpuModel>,
    gpu_mib: Option<u32>,
) -> Option<u32> {
    let geometry = model.and_then(|m| super::mig::of_product(m.product(), gpu_mib));
    let name = profile.to_string();
    geometry
        .and_then(|g| g.profile(&name))
        .and_then(|p| p.mem_mib)
        .or_else(|| {
            let bytes = u64::from(profile.memory_gb) * 1_000_000_000;
            u32::try_from(bytes / (1 << 20) * 92 / 100).ok()
        })
}

/// The GPU models of the cluster, numbered as they come.
#[derive(Clone, Debug, Default)]
pub(super) struct Models {
    /// By number from 1.
    known: Vec<KnownModel>,
}

/// A model, by the first node that has it.
#[derive(Clone, Debug)]
struct KnownModel {
    name: Str,
    /// Labels by which a pod may select it.
    labels: Box<[(Str, Str)]>,
    memory_mib: Option<u32>,
}

/// Labels that tell models apart.
const MODEL_LABELS: [&str; 9] = [
    "accelerator",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
    "karpenter.k8s.aws/instance-gpu-name",
    "node.kubernetes.io/instance-type",
    "nvidia.com/gpu.family",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.product",
];

impl Models {
    fn number(&mut self, node: &Node) -> ModelId {
        let Some(model) = &node.gpus.model else {
            return ModelId::default();
        };
        let at = self
            .known
            .iter()
            .position(|known| *known.name == *model.short());
        let at = at.unwrap_or_else(|| {
            let labels = MODEL_LABELS
                .iter()
                .filter_map(|key| Some((Str::from(*key), Str::from(node.meta.label(key)?))));
            self.known.push(KnownModel {
                name: model.short().into(),
                labels: labels.collect(),
                memory_mib: node
                    .gpus
                    .memory_mib
                    .or_else(|| model.nominal_memory_gb().map(gb_as_mib)),
            });
            self.known.len() - 1
        });
        // Models past the limit are taken as one.
        ModelId::new((at + 1).min(ModelId::LIMIT - 1)).unwrap_or_default()
    }

    /// Memory of the first model of a set whose memory is known.
    pub(super) fn memory_mib(&self, set: ModelSet) -> Option<u32> {
        self.known
            .iter()
            .enumerate()
            .filter(|(at, _)| ModelId::new(at + 1).is_some_and(|model| set.has(model)))
            .find_map(|(_, known)| known.memory_mib)
    }

    /// Models that a class of pods accepts, by what it says of the labels that tell models apart.
    pub(super) fn accepted(&self, constraints: &Constraints, needs: &Needs) -> ModelSet {
        let refused = |known: &KnownModel| {
            let label = |key: &str| {
                known
                    .labels
                    .iter()
                    .find(|(k, _)| **k == *key)
                    .map(|(_, v)| &**v)
            };
            let tells = |key: &Str| MODEL_LABELS.contains(&&**key);
            let selected = constraints
                .node_selector
                .iter()
                .all(|(key, value)| !tells(key) || label(key) == Some(value));
            let matches = |e: &MatchExpression| {
                !tells(&e.key) || selector::expression_matches(e, label(&e.key))
            };
            let affine = constraints
                .affinity
                .as_ref()
                .is_none_or(|a| a.terms.iter().any(|t| t.labels.iter().all(matches)));
            let named =
                needs.models.is_empty() || needs.models.iter().any(|m| is_model(m, &known.name));
            !(selected && affine && named)
        };
        let mut set = ModelSet::ANY;
        for (at, known) in self.known.iter().enumerate() {
            if refused(known)
                && let Some(model) = ModelId::new(at + 1)
            {
                set = set.without(model);
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_with_or_without_its_size() {
        for (wanted, name, is) in [
            ("H100-80", "H100-80", true),
            ("h100", "H100-80", true),
            ("H100", "H100", true),
            ("H10", "H100-80", false),
            ("H100-8", "H100-80", false),
            ("L40", "L40S", false),
        ] {
            assert_eq!(is_model(wanted, name), is, "{wanted} {name}");
        }
    }

    #[test]
    fn a_slice_has_the_memory_that_nvidia_states() {
        let h200 = GpuModel::from_product("NVIDIA-H200");
        let profile = "1g.18gb".parse().ok();
        let mib = profile.and_then(|p| slice_mib(&p, Some(&h200), Some(143_771)));
        assert_eq!(mib, Some(16_384), "18 GB in name, 16 GiB in fact");
    }
}
