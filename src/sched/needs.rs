//! What a pod states of the GPU it needs beyond the resources that it requests.

use super::config::SchedConfig;
use crate::model::{Pod, Quantity, Reason, Str, Tier};

/// A share of one GPU in thousandths.
pub(super) const MILLI_GPU: &str = "gpudeck.dev/milli-gpu";
/// GPU memory that the pod needs, a quantity (`18Gi`).
pub(super) const MEMORY: &str = "gpudeck.dev/memory-profile";
/// GPU models that will do, short names parted by commas (`H100-80,H200`).
pub(super) const MODELS: &str = "gpudeck.dev/gpu-model";
/// A workload type of the configuration, which stands for further needs.
pub(super) const TYPE: &str = "gpudeck.dev/workload-type";
/// `true` keeps the pod off nodes that can be taken away.
pub(super) const LATENCY: &str = "gpudeck.dev/latency-sensitive";
/// Tiers that will do, parted by commas (`reserved,on-demand`).
pub(super) const TIERS: &str = "gpudeck.dev/tier";
/// How its state is saved; any of these but `none` is a checkpoint contract.
const CHECKPOINT_MODE: &str = "gpudeck.dev/checkpoint-mode";
const CHECKPOINT_INTERVAL: &str = "gpudeck.dev/checkpoint-interval";
const CHECKPOINT_TRIGGER: &str = "gpudeck.dev/checkpoint-trigger";

/// A part of one device that a pod takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Share {
    /// None: whole devices, slices, replicas, or no GPU at all.
    #[default]
    None,
    /// Thousandths, 1 to 999.
    Milli(u16),
    /// As much of a device as holds so many MiB.
    MemoryMib(u32),
}

impl Share {
    /// The share that a pod's annotations ask for; a wrong annotation asks for none.
    pub(super) fn of_pod(pod: &Pod) -> Self {
        if pod.meta.annotation(MILLI_GPU).is_some() {
            let milli = pod.milli_gpu().and_then(|m| u16::try_from(m).ok());
            return milli.map_or(Share::None, Share::Milli);
        }
        if pod.gpu_requests().next().is_some() {
            return Share::None;
        }
        match pod.meta.annotation(MEMORY).map(memory_mib) {
            Some(Some(mib)) => Share::MemoryMib(mib),
            _ => Share::None,
        }
    }
}

/// What of a class of pods its GPUs have to be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Needs {
    /// It asks for some GPU, or a part of one.
    pub(super) gpu: bool,
    /// Memory of the device, slice or share.
    pub(super) memory_mib: Option<u32>,
    /// Short names of the models that will do; empty for any.
    pub(super) models: Box<[Str]>,
    /// Tiers that will do, bit by [`Tier::ALL`]; `None` for any.
    pub(super) tiers: Option<u8>,
    /// It must not be taken away.
    pub(super) latency_sensitive: bool,
    /// It can go on where it was: spot nodes will do.
    pub(super) checkpointed: bool,
    /// No replica of a shared device will do.
    pub(super) own_device: bool,
    /// A replica or slice is as welcome as a whole device.
    pub(super) welcomes_parts: bool,
    /// Replicas of one owner are kept apart.
    pub(super) spread: bool,
}

/// A quantity of memory in MiB, rounded up; `None` unless it is above zero and below a petabyte.
fn memory_mib(text: &str) -> Option<u32> {
    let bytes = text.parse::<Quantity>().ok()?.units();
    let mib = u64::try_from(bytes).ok()?.div_ceil(1 << 20);
    u32::try_from(mib)
        .ok()
        .filter(|mib| (1..1 << 30).contains(mib))
}

fn wrong(key: &str, text: &str, right: &str) -> Reason {
    Reason::Unsupported {
        what: format!("annotation {key}: {text:?} is not {right}").into(),
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|t| !t.is_empty())
}

impl Needs {
    /// What a pod states.
    ///
    /// # Errors
    /// The annotation that cannot be read, and what would be right.
    pub(super) fn of_pod(pod: &Pod, config: &SchedConfig) -> Result<Self, Reason> {
        let annotation = |key: &str| pod.meta.annotation(key);
        let asks_device = pod.gpu_requests().next().is_some();
        if let Some(text) = annotation(MILLI_GPU) {
            if pod.milli_gpu().is_none() {
                return Err(wrong(MILLI_GPU, text, "a whole number from 1 to 999"));
            }
            if asks_device {
                return Err(Reason::Unsupported {
                    what: format!(
                        "it asks for whole devices and for a share of one ({MILLI_GPU} {text}): \
                         only one of the two can be"
                    )
                    .into(),
                });
            }
        }
        let mut needs = Needs {
            gpu: asks_device || Share::of_pod(pod) != Share::None,
            checkpointed: is_checkpointed(pod),
            ..Needs::default()
        };
        if let Some(text) = annotation(TYPE) {
            let Some(profile) = config.types.get(text) else {
                let known: Vec<&str> = config.types.keys().map(|k| &**k).collect();
                return Err(wrong(TYPE, text, &format!("one of {}", known.join(", "))));
            };
            needs.latency_sensitive = profile.latency_sensitive;
            needs.own_device = profile.own_device;
            needs.welcomes_parts = !profile.own_device;
            needs.spread = profile.spread;
            // A pod that names its slice knows what it wants.
            let names_slice = pod
                .gpu_requests()
                .any(|(resource, _)| matches!(resource, crate::model::GpuResource::Mig(_)));
            if needs.gpu && !names_slice {
                needs.memory_mib = profile.memory_mib;
            }
        }
        if let Some(text) = annotation(MEMORY) {
            let right = "an amount of memory above zero, like 18Gi";
            let mib = memory_mib(text).ok_or_else(|| wrong(MEMORY, text, right))?;
            needs.memory_mib = Some(mib);
        }
        if let Some(text) = annotation(MODELS) {
            needs.models = list(text).map(Str::from).collect();
            if needs.models.is_empty() {
                return Err(wrong(MODELS, text, "a list of models like H100-80,H200"));
            }
        }
        if let Some(text) = annotation(LATENCY) {
            needs.latency_sensitive = match text {
                "true" => true,
                "false" => false,
                _ => return Err(wrong(LATENCY, text, "true or false")),
            };
        }
        if let Some(text) = annotation(TIERS) {
            let mut tiers = 0;
            for name in list(text) {
                let all: Vec<&str> = Tier::ALL.iter().map(|t| t.name()).collect();
                let right = format!("a list of {}", all.join(", "));
                let tier = Tier::from_name(name).ok_or_else(|| wrong(TIERS, text, &right))?;
                tiers |= tier_bit(tier);
            }
            needs.tiers = Some(tiers).filter(|t| *t != 0);
        }
        Ok(needs)
    }
}

/// A tier's bit in [`Needs::tiers`].
pub(super) fn tier_bit(tier: Tier) -> u8 {
    Tier::ALL
        .iter()
        .position(|t| *t == tier)
        .map_or(0, |at| 1 << at)
}

fn is_checkpointed(pod: &Pod) -> bool {
    let stated = |key| pod.meta.annotation(key);
    match stated(CHECKPOINT_MODE) {
        Some(mode) => mode != "none",
        None => [CHECKPOINT_INTERVAL, CHECKPOINT_TRIGGER]
            .into_iter()
            .any(|key| stated(key).is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_a_quantity_and_rounded_up() {
        for (text, mib) in [
            ("18Gi", Some(18 * 1024)),
            ("16G", Some(15_259)),
            ("1", Some(1)),
            ("0", None),
            ("-1Gi", None),
            ("9e30", None),
            ("many", None),
        ] {
            assert_eq!(memory_mib(text), mib, "{text}");
        }
    }
}
