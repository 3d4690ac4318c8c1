//! ResourceSlices of NVIDIA's DRA driver.
//!
//! Names: resource.k8s.io v1, v1beta2 and v1beta1 (where attributes stand under `basic`), NVIDIA's
//! DRA driver 0.4 and 25.x (which still told `index`).

use super::read::Part;
use crate::model::{
    DeviceTaint, DeviceTaintEffect, KnownInstance, PublishedDevice, PublishedSlice, Str, clean,
    known_device,
};

/// The driver whose devices are GPUs.
const DRIVER: &str = "gpu.nvidia.com";

/// An attribute by the names under which it may stand: its driver's domain may be written out.
fn attribute<'a>(attributes: Part<'a>, names: &[&str]) -> Part<'a> {
    let mut all = names.iter().flat_map(|name| {
        let full = format!("{DRIVER}/{name}");
        [attributes.key(name), attributes.key(&full)]
    });
    all.find(|p| p.exists()).unwrap_or(Part::nothing())
}

fn text(part: Part<'_>) -> Option<Str> {
    part.key("string").raw().map(|t| clean(t, 100).into())
}

fn taint(part: Part<'_>) -> Option<DeviceTaint> {
    Some(DeviceTaint {
        key: part.key("key").name()?,
        value: part.key("value").name().unwrap_or_default(),
        effect: match part.key("effect").raw() {
            Some("None") => DeviceTaintEffect::None,
            Some("NoExecute") => DeviceTaintEffect::NoExecute,
            _ => DeviceTaintEffect::NoSchedule,
        },
    })
}

/// A GPU or an instance; `None` for what is neither, such as a channel or a device for virtual
/// machines.
fn device(part: Part<'_>) -> Option<PublishedDevice> {
    let own = part.key("basic");
    let own = if own.exists() { own } else { part };
    let attributes = own.key("attributes");
    let get = |names: &[&str]| attribute(attributes, names);
    let kind = text(get(&["type"]));
    if kind.as_deref().is_some_and(|k| k != "gpu" && k != "mig") {
        return None;
    }
    let name = part.key("name").raw()?;
    let index = get(&["index", "minor"]).key("int").count();
    let (gpu, named) = match known_device(name) {
        Some((gpu, instance)) => (index.unwrap_or(gpu), instance),
        None => (index?, None),
    };
    let is_mig = kind.as_deref() == Some("mig");
    let told = text(get(&["profile"])).and_then(|p| p.parse().ok());
    let start = get(&["placementStart", "start"]).key("int").count();
    let instance = match (named, told) {
        (Some(named), Some(profile)) => Some(KnownInstance { profile, ..named }),
        (Some(named), None) => Some(named),
        (None, Some(profile)) if is_mig => Some(KnownInstance {
            start: start.and_then(|s| u8::try_from(s).ok()),
            gi: None,
            profile,
        }),
        (None, _) if is_mig => return None,
        (None, _) => None,
    };
    let uuid = match &instance {
        Some(_) => text(get(&["parentUUID"])),
        None => text(get(&["uuid"])),
    };
    let memory = own.at("capacity.memory");
    let value = memory.key("value");
    let memory = if value.exists() { value } else { memory };
    let mib = memory.milli().map(|milli| milli / 1_000 / (1 << 20));
    let numa = get(&["resource.kubernetes.io/numaNode", "numaNode", "numa"]);
    let root = get(&["resource.kubernetes.io/pcieRoot", "pcieRoot"]);
    Some(PublishedDevice {
        gpu: Some(gpu).filter(|gpu| *gpu < 256)?,
        // What is cut only when somebody asks draws on counters that it shares with others.
        possible: instance.is_some() && own.key("consumesCounters").list().next().is_some(),
        instance,
        product: text(get(&["productName", "product"])),
        memory_mib: mib.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
        uuid,
        numa: numa.key("int").count(),
        pcie_root: text(root),
        taints: own.key("taints").list().filter_map(taint).collect(),
    })
}

pub(super) fn slice(part: &Part<'_>) -> PublishedSlice {
    let spec = part.at("spec");
    let of_gpus = spec.key("driver").raw() == Some(DRIVER);
    let devices = spec.key("devices").list().filter(|_| of_gpus);
    PublishedSlice {
        node: spec.key("nodeName").name().unwrap_or_default(),
        pool: spec.at("pool.name").name().unwrap_or_default(),
        generation: spec.at("pool.generation").int().unwrap_or(0),
        of: spec.at("pool.resourceSliceCount").count().unwrap_or(1),
        devices: devices.filter_map(device).collect(),
    }
}
