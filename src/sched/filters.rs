//! May a pod of this class run on this node? The filters of kube-scheduler, in its order: the
//! first that says no is the reason. The one that looks at amounts names all that is too little.
//!
//! Source: kubernetes 1.37 pkg/scheduler/framework/plugins, order of its default profile
//! (NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit, VolumeBinding,
//! VolumeZone) and the words of its messages.

use std::sync::Arc;

use super::amounts::{Ask, Room};
use super::class::Class;
use super::fabric::Place;
use super::gpus::{Cut, NodeGpus};
use super::needs::Share;
use super::selector::{selects, tolerates};
use super::slot::Slot;
use crate::model::{Constraints, GpuResource, Node, Str, Taint, TaintEffect, VolumeTopology};

/// What the filters say of one node, in the order in which they are asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Verdict {
    /// It may run here.
    Fits,
    /// There is no such node: it does not count.
    Absent,
    /// The node is cordoned.
    Unschedulable,
    /// A taint is not tolerated.
    Taints,
    /// Node selector or required affinity.
    Affinity,
    /// Another GPU model is asked for.
    Model,
    /// The tier is not one for this pod.
    Tier,
    /// Devices are given out in parts, and it needs one of its own.
    Parts,
    /// The device or slice has too little memory.
    GpuMemory,
    /// How much memory the device has is not known, and the pod states what it needs.
    GpuMemoryUnknown,
    /// A host port is in use.
    Ports,
    /// Too little of at least one resource.
    Lacks(Lacks),
    /// As many pods as the kubelet allows.
    Pods,
    /// CPU.
    Cpu,
    /// Memory.
    Memory,
    /// Ephemeral storage.
    Ephemeral,
    /// The class's extended resource at this place of its list.
    Extended(u8),
    /// No device has so much left, or too few are wholly free.
    Devices,
    /// A bound PersistentVolume's node affinity.
    VolumeAffinity,
    /// A bound PersistentVolume does not exist.
    VolumeMissing,
    /// A bound PersistentVolume is in another zone.
    VolumeZone,
}

impl Verdict {
    /// kube-scheduler's words, to be read after a number of nodes.
    pub(super) fn words(self, class: &Class) -> Str {
        match self {
            // The last is counted as its parts, see `Lacks::parts`.
            Verdict::Fits | Verdict::Absent | Verdict::Lacks(_) => "".into(),
            Verdict::Unschedulable => "node(s) were unschedulable".into(),
            Verdict::Taints => "node(s) had untolerated taint(s)".into(),
            Verdict::Affinity => "node(s) didn't match Pod's node affinity/selector".into(),
            Verdict::Ports => "node(s) didn't have free ports for the requested pod ports".into(),
            Verdict::Pods => "Too many pods".into(),
            Verdict::Cpu => "Insufficient cpu".into(),
            Verdict::Memory => "Insufficient memory".into(),
            Verdict::Ephemeral => "Insufficient ephemeral-storage".into(),
            Verdict::Extended(at) => {
                let key = class.ask.extended.get(usize::from(at));
                format!("Insufficient {}", key.map_or("resources", |(k, _)| k)).into()
            }
            Verdict::Model => format!(
                "node(s) had no GPU of model {}",
                class.needs.models.join(" or ")
            )
            .into(),
            Verdict::Tier => self::tier_words(class),
            Verdict::Parts => "node(s) share their GPUs, and it needs one of its own".into(),
            Verdict::GpuMemory => format!(
                "node(s) had too little GPU memory for {}",
                mib(class.needs.memory_mib)
            )
            .into(),
            Verdict::GpuMemoryUnknown => format!(
                "node(s) do not tell their GPU memory, and {} are needed",
                mib(class.needs.memory_mib)
            )
            .into(),
            Verdict::Devices => match class.ask.share {
                Share::None => "node(s) had too few wholly free GPUs".into(),
                Share::Milli(milli) => {
                    format!("node(s) had no GPU with {milli} thousandths free").into()
                }
                Share::MemoryMib(wanted) => {
                    format!("node(s) had no GPU with {} free", mib(Some(wanted))).into()
                }
            },
            Verdict::VolumeAffinity => "node(s) had volume node affinity conflict".into(),
            Verdict::VolumeMissing => {
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".into()
            }
            Verdict::VolumeZone => "node(s) had no available volume zone".into(),
        }
    }
}

/// What a node has too little of, a bit each: pods, CPU, memory, ephemeral storage, then the
/// class's extended resources in their order; the last bit is for all those beyond the bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Lacks(u16);

impl Lacks {
    /// Bits before those of extended resources.
    const NAMED: u8 = 4;
    const LAST: u8 = 15;

    fn add(&mut self, lacks: bool, bit: u8) {
        self.0 |= u16::from(lacks) << bit.min(Self::LAST);
    }

    /// Each as a verdict of its own.
    pub(super) fn parts(self) -> impl Iterator<Item = Verdict> {
        (0..=Self::LAST)
            .filter(move |bit| self.0 & (1 << bit) != 0)
            .map(|bit| match bit {
                0 => Verdict::Pods,
                1 => Verdict::Cpu,
                2 => Verdict::Memory,
                3 => Verdict::Ephemeral,
                at => Verdict::Extended(at - Self::NAMED),
            })
    }
}

fn tier_words(class: &Class) -> Str {
    let needs = &class.needs;
    if needs.tiers.is_some() {
        "node(s) were not of a tier that it allows".into()
    } else if needs.latency_sensitive {
        "node(s) can be taken away (spot or calendar-bound), and it is latency-sensitive".into()
    } else {
        "node(s) were spot, and it has no checkpoint contract (gpudeck.dev/checkpoint-mode)".into()
    }
}

/// MiB in the largest unit that shows them exactly.
fn mib(amount: Option<u32>) -> String {
    match amount {
        Some(mib) if mib % 1024 == 0 => format!("{} GiB", mib / 1024),
        Some(mib) => format!("{mib} MiB"),
        None => "its GPU memory".to_owned(),
    }
}

/// A node and what scheduling needs of it beside its room.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: Str,
    /// `None` while only pods that name it are known.
    pub(super) node: Option<Arc<Node>>,
    /// It offers some kind of NVIDIA device.
    pub(super) has_gpus: bool,
    /// Its GPUs.
    pub(super) gpus: NodeGpus,
    /// Where it stands in the network.
    pub(super) place: Place,
}

impl Row {
    pub(super) fn new(name: Str) -> Self {
        Self {
            name,
            node: None,
            has_gpus: false,
            gpus: NodeGpus::default(),
            place: Place::default(),
        }
    }

    pub(super) fn set_node(&mut self, node: Option<Arc<Node>>, gpus: NodeGpus) {
        self.has_gpus = node.as_ref().is_some_and(|n| offers_gpus(n));
        self.gpus = gpus;
        self.node = node;
    }
}

/// Capacity counts as well: a GPU node whose devices are all unhealthy stays a GPU node.
fn offers_gpus(node: &Node) -> bool {
    [&node.capacity, &node.allocatable]
        .into_iter()
        .flat_map(|r| r.extended.iter())
        .any(|(key, n)| *n > 0 && GpuResource::from_key(key).is_some())
}

/// The bound volumes of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Volumes {
    /// Those that are known.
    pub(super) bound: Vec<Arc<VolumeTopology>>,
    /// At least one that a claim names does not exist.
    pub(super) missing: bool,
}

/// What the filters say that look at the node only, in their order; `None` when all say yes.
/// Ports and room come after these in the order of messages, volumes last.
pub(super) fn judge_node(class: &Class, volumes: &Volumes, row: &Row, spot: bool) -> FixedVerdict {
    let Some(node) = &row.node else {
        return FixedVerdict::no(Verdict::Absent);
    };
    if let Some(no) = place_verdict(&class.constraints, node) {
        return FixedVerdict::no(no);
    }
    if let Some(no) = gpu_verdict(class, &row.gpus, spot) {
        return FixedVerdict::no(no);
    }
    FixedVerdict {
        first: None,
        last: volume_verdict(volumes, node),
    }
}

/// What does not change while the node does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FixedVerdict {
    /// Said before what is left is looked at.
    pub(super) first: Option<Verdict>,
    /// Said after.
    pub(super) last: Option<Verdict>,
}

impl FixedVerdict {
    /// A plain no.
    pub(super) const fn no(verdict: Verdict) -> Self {
        Self {
            first: Some(verdict),
            last: None,
        }
    }
}

/// Asks all filters, of which those that look at the node only have spoken.
pub(super) fn judge(class: &Class, fixed: FixedVerdict, row: &Row, slot: &Slot) -> Verdict {
    if let Some(no) = fixed.first {
        return no;
    }
    if slot.room.has_port_conflict(&class.ask.ports) {
        return Verdict::Ports;
    }
    room_verdict(&class.ask, &slot.room)
        .or_else(|| device_verdict(&class.ask, &row.gpus, slot))
        .or(fixed.last)
        .unwrap_or(Verdict::Fits)
}

/// What a pod needs of its GPUs, as far as they do not change.
fn gpu_verdict(class: &Class, gpus: &NodeGpus, spot_needs_checkpoint: bool) -> Option<Verdict> {
    let needs = &class.needs;
    if !needs.gpu {
        return None;
    }
    if !gpus.model_suits(needs) {
        return Some(Verdict::Model);
    }
    if !gpus.tier_suits(needs, spot_needs_checkpoint) {
        return Some(Verdict::Tier);
    }
    let whole = class.ask.whole() > 0;
    if needs.own_device && whole && gpus.cut != Cut::Whole {
        return Some(Verdict::Parts);
    }
    let wanted = needs.memory_mib?;
    let has = class.smallest_part_mib(gpus);
    match has {
        Some(has) if has < wanted => Some(Verdict::GpuMemory),
        None if class.ask.share != Share::None || class.gpu().is_some() => {
            Some(Verdict::GpuMemoryUnknown)
        }
        _ => None,
    }
}

/// Devices have to be free as such, not only in sum: a share on one makes it less than whole.
fn device_verdict(ask: &Ask, gpus: &NodeGpus, slot: &Slot) -> Option<Verdict> {
    let fits = match ask.share {
        Share::None => {
            let counted = gpus.devices > 0 && usize::from(gpus.devices) < super::place::MAX_GPUS;
            let wanted = ask.whole();
            !counted
                || wanted == 0
                || usize::try_from(wanted).is_ok_and(|n| slot.gpu.devices_with(1000) >= n)
        }
        Share::Milli(milli) => slot.gpu.devices_with(milli) > 0,
        Share::MemoryMib(mib) => gpus
            .milli_for(mib)
            .is_some_and(|milli| slot.gpu.devices_with(milli) > 0),
    };
    (!fits).then_some(Verdict::Devices)
}

fn place_verdict(constraints: &Constraints, node: &Node) -> Option<Verdict> {
    if node.unschedulable {
        let cordon = Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            value: "".into(),
            effect: TaintEffect::NoSchedule,
        };
        if !tolerates(&constraints.tolerations, &cordon) {
            return Some(Verdict::Unschedulable);
        }
    }
    let keeps_away = |t: &&Taint| t.effect != TaintEffect::PreferNoSchedule;
    if node
        .taints
        .iter()
        .filter(keeps_away)
        .any(|t| !tolerates(&constraints.tolerations, t))
    {
        return Some(Verdict::Taints);
    }
    let selected = constraints
        .node_selector
        .iter()
        .all(|(key, value)| node.meta.label(key) == Some(value))
        && constraints
            .affinity
            .as_ref()
            .is_none_or(|a| selects(a, node));
    (!selected).then_some(Verdict::Affinity)
}

/// A resource that is not asked for never stands in the way, even on an over-committed node.
pub(super) fn room_verdict(ask: &Ask, room: &Room) -> Option<Verdict> {
    let lacks = |wanted: i64, left: i128| wanted > 0 && i128::from(wanted) > left;
    let mut all = Lacks::default();
    all.add(room.pods < 1, 0);
    all.add(lacks(ask.cpu_milli, room.cpu_milli), 1);
    all.add(lacks(ask.mem_bytes, room.mem_bytes), 2);
    all.add(lacks(ask.ephemeral_bytes, room.ephemeral_bytes), 3);
    for (bit, (key, n)) in (Lacks::NAMED..).zip(&ask.extended) {
        all.add(lacks(*n, room.extended(key)), bit);
    }
    (all != Lacks::default()).then_some(Verdict::Lacks(all))
}

fn volume_verdict(volumes: &Volumes, node: &Node) -> Option<Verdict> {
    let fits = |v: &Arc<VolumeTopology>| v.affinity.as_ref().is_none_or(|a| selects(a, node));
    if !volumes.bound.iter().all(fits) {
        return Some(Verdict::VolumeAffinity);
    }
    if volumes.missing {
        return Some(Verdict::VolumeMissing);
    }
    (!volumes.bound.iter().all(|v| is_in_zone(v, node))).then_some(Verdict::VolumeZone)
}

/// Zone and region labels, the old spelling first, with the one that stands in for it.
const ZONE_LABELS: [(&str, &str); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

/// A node without any zone label takes every volume; a volume's label may name several zones,
/// joined by `__`, and is ignored when one of them is empty.
fn is_in_zone(volume: &VolumeTopology, node: &Node) -> bool {
    if !ZONE_LABELS
        .iter()
        .any(|(key, _)| node.meta.label(key).is_some())
    {
        return true;
    }
    ZONE_LABELS.iter().all(|(key, stand_in)| {
        let Some(zones) = volume.meta.label(key) else {
            return true;
        };
        let zones: Vec<&str> = zones.split("__").map(str::trim).collect();
        if zones.iter().any(|z| z.is_empty()) {
            return true;
        }
        node.meta
            .label(key)
            .or_else(|| node.meta.label(stand_in))
            .is_some_and(|at| zones.contains(&at))
    })
}
