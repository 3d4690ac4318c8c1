//! Which device of its node a pod holds, as far as anything tells it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::gpu::{GpuModel, GpuResource, MigProfile};
use super::meta::Uid;
use super::mig_layout::lay_out;
use super::node::Node;
use super::node_use::{GpuCell, MigInstance, NodeUse};
use super::pod::Pod;
use super::published::{DeviceTaint, Published};
use super::telemetry::{NodeTelemetry, PodName};
use super::text::Str;
use super::workload::WorkloadKey;

/// Who tells which device a pod holds, the most trusted first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceSource {
    /// The allocation of a ResourceClaim.
    Claim,
    /// What an agent on the node says in its GpuNode.
    GpuNode,
    /// The pod labels of dcgm-exporter.
    Exporter,
}

impl DeviceSource {
    /// As the screen writes it.
    pub fn name(self) -> &'static str {
        match self {
            DeviceSource::Claim => "ResourceClaim",
            DeviceSource::GpuNode => "GpuNode",
            DeviceSource::Exporter => "dcgm-exporter",
        }
    }
}

/// A device of a node with who holds it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KnownDevice {
    /// Index of its GPU on the node.
    pub gpu: u32,
    /// The instance of a cut GPU.
    pub instance: Option<KnownInstance>,
    /// Who holds it; `None`: nobody.
    pub pod: Option<PodName>,
    /// Who tells it.
    pub source: DeviceSource,
}

/// A MIG instance.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KnownInstance {
    /// The memory slice that it starts at.
    pub start: Option<u8>,
    /// Id of the GPU instance.
    pub gi: Option<u32>,
    /// Profile.
    pub profile: MigProfile,
}

/// The devices that an exporter's labels tell of, by GPU and instance. Nothing, where it names no
/// pod at all: then its labels do not say who holds what.
pub(super) fn of_exporter(telemetry: &NodeTelemetry) -> Vec<KnownDevice> {
    let Ok(gpus) = &telemetry.gpus else {
        return Vec::new();
    };
    if !gpus.iter().any(super::telemetry::GpuReading::tells_pods) {
        return Vec::new();
    }
    let mut devices = Vec::new();
    for gpu in gpus {
        let mut put = |instance, pod| {
            devices.push(KnownDevice {
                gpu: gpu.index,
                instance,
                pod,
                source: DeviceSource::Exporter,
            });
        };
        for instance in &gpu.instances {
            let Some(profile) = &instance.profile else {
                continue;
            };
            let known = KnownInstance {
                start: None,
                gi: Some(instance.gi),
                profile: profile.clone(),
            };
            put(Some(known), instance.holder.clone());
        }
        if gpu.instances.is_empty() {
            for pod in &gpu.holders {
                put(None, Some(pod.clone()));
            }
            if gpu.holders.is_empty() {
                put(None, None);
            }
        }
    }
    devices
}

/// The cells of a node whose GPUs no count of the kubelet's tells of, as with a DRA driver.
fn by_claims(node: &Node, devices: &[KnownDevice], published: &Published) -> Vec<GpuCell> {
    let most = devices.iter().map(|d| d.gpu + 1).max().unwrap_or(0);
    let count = node.gpus.count.unwrap_or(0).max(most).min(256);
    let model = node.gpus.model.as_ref();
    let cell = |gpu: u32| {
        let own: Vec<&KnownDevice> = devices.iter().filter(|d| d.gpu == gpu).collect();
        let parts = own.iter().filter_map(|d| Some((d, d.instance.as_ref()?)));
        let parts: Vec<_> = parts.collect();
        let (Some(model), false) = (model, parts.is_empty()) else {
            let held = own.iter().any(|d| d.pod.is_some());
            return match held {
                true => GpuCell::Used,
                false if published.taints(gpu).any(DeviceTaint::bars) => GpuCell::Unhealthy,
                false => GpuCell::Free,
            };
        };
        let mut instances: Vec<MigInstance> = parts
            .into_iter()
            .map(|(device, instance)| MigInstance {
                width: instance.profile.memory_slices(model, node.gpus.memory_mib),
                profile: instance.profile.clone(),
                used: device.pod.is_some(),
                sick: device.pod.is_none() && published.taints(gpu).any(DeviceTaint::bars),
                start: instance.start.unwrap_or(0),
                told: instance.start.is_some(),
                gi: None,
            })
            .collect();
        lay_out(&mut instances, model);
        GpuCell::Mig {
            instances,
            slices: model.memory_slices(),
        }
    };
    (0..count).map(cell).collect()
}

/// Puts a node's cells, which come from counts, at the places that its devices tell. Counts stay what
/// they are: a pod that the exporter does not know yet is drawn where there is room.
fn arrange(cells: Vec<GpuCell>, devices: &[KnownDevice], model: Option<&GpuModel>) -> Vec<GpuCell> {
    if devices.is_empty() {
        return cells;
    }
    let cells = match model {
        Some(model) => with_instances(cells, devices, model),
        None => cells,
    };
    let count = cells.len();
    let mut left: Vec<Option<GpuCell>> = cells.into_iter().map(Some).collect();
    let mut placed: Vec<Option<GpuCell>> = vec![None; count];
    let mut take = |fits: &dyn Fn(&GpuCell) -> bool| -> Option<GpuCell> {
        left.iter_mut()
            .find(|c| c.as_ref().is_some_and(fits))
            .and_then(Option::take)
    };
    let mut by_gpu: BTreeMap<u32, Vec<&KnownDevice>> = BTreeMap::new();
    for device in devices {
        by_gpu.entry(device.gpu).or_default().push(device);
    }
    for (gpu, on_it) in &by_gpu {
        let Some(place) = placed.get_mut(*gpu as usize) else {
            continue;
        };
        let mut profiles: Vec<&MigProfile> = on_it
            .iter()
            .filter_map(|d| d.instance.as_ref().map(|i| &i.profile))
            .collect();
        profiles.sort();
        let held = on_it.iter().any(|d| d.pod.is_some());
        *place = if profiles.is_empty() {
            match held {
                true => take(&|c| matches!(c, GpuCell::Used))
                    .or_else(|| take(&|c| matches!(c, GpuCell::Shared { used, .. } if *used > 0))),
                false => take(&|c| matches!(c, GpuCell::Free))
                    .or_else(|| take(&|c| matches!(c, GpuCell::Shared { used: 0, .. }))),
            }
        } else {
            take(&|c| {
                let GpuCell::Mig { instances, .. } = c else {
                    return false;
                };
                let mut own: Vec<&MigProfile> = instances.iter().map(|i| &i.profile).collect();
                own.sort();
                own == profiles && instances.iter().any(|i| i.used) == held
            })
        };
    }
    let mut rest = left.into_iter().flatten();
    let placed = placed.into_iter();
    placed.filter_map(|c| c.or_else(|| rest.next())).collect()
}

/// Deals MIG instances to GPUs as the devices tell, if those are the very instances that the node
/// counts.
fn with_instances(cells: Vec<GpuCell>, devices: &[KnownDevice], model: &GpuModel) -> Vec<GpuCell> {
    let mut counted: Vec<&MigInstance> = Vec::new();
    let mut slices = 0;
    for cell in &cells {
        if let GpuCell::Mig {
            instances,
            slices: of,
        } = cell
        {
            counted.extend(instances);
            slices = *of;
        }
    }
    let mut own: Vec<&MigProfile> = counted.iter().map(|i| &i.profile).collect();
    let known = devices
        .iter()
        .filter_map(|d| Some((d, d.instance.as_ref()?)));
    let known: Vec<(&KnownDevice, &KnownInstance)> = known.collect();
    let mut told: Vec<&MigProfile> = known.iter().map(|(_, i)| &i.profile).collect();
    own.sort();
    told.sort();
    if own.is_empty() || own != told {
        return cells;
    }
    let mut pool: Vec<MigInstance> = counted.into_iter().cloned().collect();
    let mut by_gpu: BTreeMap<u32, Vec<MigInstance>> = BTreeMap::new();
    // Those that are held first, so that the held ones of a profile go where they are.
    let mut order: Vec<usize> = (0..known.len()).collect();
    order.sort_by_key(|at| known.get(*at).map(|(d, _)| d.pod.is_none()));
    for (device, instance) in order.into_iter().filter_map(|at| known.get(at)) {
        let fits = |i: &MigInstance| i.profile == instance.profile;
        let wanted = device.pod.is_some();
        let at = pool
            .iter()
            .position(|i| fits(i) && i.used == wanted)
            .or_else(|| pool.iter().position(fits));
        if let Some(at) = at {
            let mut taken = pool.swap_remove(at);
            taken.start = instance.start.unwrap_or(0);
            taken.told = instance.start.is_some();
            taken.gi = instance.gi;
            by_gpu.entry(device.gpu).or_default().push(taken);
        }
    }
    let mut dealt = by_gpu.into_values();
    let cells = cells.into_iter().map(|cell| match cell {
        GpuCell::Mig { .. } => match dealt.next() {
            Some(mut instances) => {
                lay_out(&mut instances, model);
                GpuCell::Mig { instances, slices }
            }
            None => cell,
        },
        other => other,
    });
    cells.collect()
}

/// A pod that holds a GPU or a part of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Holder {
    /// The pod.
    pub pod: Uid,
    /// Namespace.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// What it belongs to.
    pub workload: Option<WorkloadKey>,
    /// Since when it runs on its node.
    pub started: Option<Timestamp>,
    /// The profile that it holds; `None`: the GPU, or a share of it.
    pub profile: Option<MigProfile>,
    /// Who tells that it is this GPU; `None`: nobody, it is drawn where there is room.
    pub told_by: Option<DeviceSource>,
}

impl Cluster {
    /// What is known of a node's devices and who holds them: by the first of the sources that tells
    /// anything.
    pub fn known_devices(&self, node: &str) -> Vec<KnownDevice> {
        let claimed = self.claimed_devices(node);
        if !claimed.is_empty() {
            return claimed;
        }
        let read = self.telemetry(node).map(|log| &log.latest);
        let exported = read.map(|reading| of_exporter(reading)).unwrap_or_default();
        let looked = read.filter(|_| !exported.is_empty()).map(|r| r.at);
        match self.gpu_node(node) {
            Some(agent) if !agent.devices.is_empty() && agent.holds_beside(looked) => {
                let mut devices = agent.devices.to_vec();
                devices.sort();
                devices
            }
            _ => exported,
        }
    }

    /// A node's physical GPUs as cells, each at its place as far as its devices tell.
    pub fn cells(&self, node: &Node, held: &NodeUse) -> Vec<GpuCell> {
        let devices = self.known_devices(&node.meta.name);
        let by_plugin = node
            .capacity
            .extended
            .iter()
            .any(|(key, n)| *n > 0 && GpuResource::from_key(key).is_some());
        let told = devices
            .iter()
            .any(|d| matches!(d.source, DeviceSource::Claim | DeviceSource::GpuNode));
        let published = self.published(&node.meta.name);
        if !by_plugin && (told || !published.devices.is_empty()) {
            return by_claims(node, &published.beside(devices), &published);
        }
        let cells = held.cells(node);
        arrange(cells, &devices, node.gpus.model.as_ref())
    }

    /// The pods on each of a node's GPUs, drawn as these cells. Pods whose device nobody tells are
    /// dealt to cells of their kind in the order of their names.
    pub fn holders(&self, node: &str, cells: &[GpuCell]) -> Vec<Vec<Holder>> {
        let mut found: Vec<Vec<Holder>> = vec![Vec::new(); cells.len()];
        let held = self.node(node).map(|(_, held)| held);
        let Some(held) = held.or_else(|| self.unknown_node(node).map(|(_, held)| held)) else {
            return found;
        };
        let pods = held.pods.iter().filter_map(|uid| self.pod(uid));
        let devices = self.known_devices(node);
        let is_told = |pod: &Pod| {
            devices
                .iter()
                .any(|d| d.pod.as_ref().is_some_and(|p| p.is(pod)))
        };
        let mut pods: Vec<_> = pods
            .filter(|p| p.gpu_requests().next().is_some() || is_told(p))
            .collect();
        pods.sort_by(|a, b| {
            (&a.meta.namespace, &a.meta.name).cmp(&(&b.meta.namespace, &b.meta.name))
        });
        let mut rooms: Vec<Room> = cells.iter().map(Room::of).collect();
        // Under strategy `single` what is asked as a GPU is an instance.
        let all_cut = rooms.iter().all(|r| matches!(r, Room::Parts(_)));
        for known in [true, false] {
            for pod in &pods {
                let own = |d: &&KnownDevice| d.pod.as_ref().is_some_and(|p| p.is(pod));
                let own: Vec<&KnownDevice> = devices.iter().filter(own).collect();
                let holder = |profile: Option<MigProfile>, told_by| Holder {
                    pod: pod.meta.uid.clone(),
                    namespace: pod.meta.namespace.clone(),
                    name: pod.meta.name.clone(),
                    workload: self.workload_of(&pod.meta.uid).cloned(),
                    started: pod.started.or(pod.meta.created),
                    profile,
                    told_by,
                };
                if known {
                    for device in own {
                        let profile = device.instance.as_ref().map(|i| i.profile.clone());
                        let at = device.gpu as usize;
                        if let (Some(on_it), Some(room)) = (found.get_mut(at), rooms.get_mut(at)) {
                            room.take(profile.as_ref(), all_cut);
                            on_it.push(holder(profile, Some(device.source)));
                        }
                    }
                    continue;
                }
                // What is asked and not told of.
                let mut told = own.len();
                for (resource, count) in pod.gpu_requests() {
                    let profile = match resource {
                        GpuResource::Mig(profile) => Some(profile),
                        GpuResource::Whole | GpuResource::Shared => None,
                    };
                    // More cells than there are cannot be held.
                    let count = usize::try_from(count).unwrap_or(0).min(1_024);
                    let of_these = told.min(count);
                    told -= of_these;
                    for _ in of_these..count {
                        let at = rooms
                            .iter_mut()
                            .position(|r| r.take(profile.as_ref(), all_cut));
                        let Some(on_it) = at.and_then(|at| found.get_mut(at)) else {
                            break;
                        };
                        on_it.push(holder(profile.clone(), None));
                    }
                }
            }
        }
        found
    }
}

/// What of a cell is held and not yet given to a pod.
enum Room {
    Whole(u32),
    Parts(Vec<MigProfile>),
}

impl Room {
    fn of(cell: &GpuCell) -> Self {
        match cell {
            GpuCell::Used => Room::Whole(1),
            GpuCell::Shared { used, .. } => Room::Whole(*used),
            GpuCell::Free | GpuCell::Unhealthy => Room::Whole(0),
            GpuCell::Mig { instances, .. } => {
                let used = instances.iter().filter(|i| i.used);
                Room::Parts(used.map(|i| i.profile.clone()).collect())
            }
        }
    }

    /// Takes a part of this kind, if there is one; any instance for a GPU, if `any` says so.
    fn take(&mut self, profile: Option<&MigProfile>, any: bool) -> bool {
        match (self, profile) {
            (Room::Whole(left), None) if *left > 0 => {
                *left -= 1;
                true
            }
            (Room::Parts(left), profile) => {
                let at = left
                    .iter()
                    .position(|p| profile.map_or(any, |wanted| wanted == p));
                at.map(|at| left.swap_remove(at)).is_some()
            }
            _ => false,
        }
    }
}
