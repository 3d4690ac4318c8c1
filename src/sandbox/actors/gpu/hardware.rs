//! The GPUs of a node: what would be in the machine, shared by the actors that would read it
//! there. Made from what the node's object says when it is first seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::super::clock::Clock;
use super::super::objects::Node;
use super::config::{PluginConfig, Sharing, Strategy};
use super::geometry::{Model, Profile};
use super::models;
use super::plugin::{Asks, Devices};

/// A MIG device: one GPU instance with its compute instances.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    /// Its profile.
    pub profile: &'static Profile,
    /// NVML's id of the GPU instance.
    pub gi: u32,
    /// UUID of the MIG device; another one each time it is made.
    pub uuid: String,
    /// Cut once more into compute instances: no device plugin offers those.
    pub split: bool,
}

/// A GPU.
#[derive(Debug, Clone)]
pub(super) struct Gpu {
    /// Index of NVML.
    pub index: u32,
    /// UUID.
    pub uuid: String,
    /// MIG mode.
    pub mig: bool,
    /// MIG mode after the next reset; differs from `mig` while a reset is needed.
    pub pending_mig: bool,
    /// Its instances, in order of their places.
    pub instances: Vec<Instance>,
    /// The last Xid; 0 when there was none.
    pub last_xid: u32,
    /// Xids with the moment of each, the last few.
    pub xids: Vec<(Instant, u32)>,
    /// Fallen off the bus: gone until a reboot.
    pub lost: bool,
    /// Instances made so far.
    pub made: u32,
}

impl Gpu {
    /// The bus id as DCGM writes it; the buses are those of an HGX board.
    pub(super) fn pci_bus_id(&self) -> String {
        const BUSES: [u32; 8] = [0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB];
        let at = usize::try_from(self.index).unwrap_or(0);
        let bus = BUSES.get(at).copied().unwrap_or(self.index + 1);
        format!("00000000:{bus:02X}:00.0")
    }

    /// The profiles of its instances by name, with how many there are of each.
    pub(super) fn layout(&self) -> BTreeMap<&'static str, u32> {
        let mut layout = BTreeMap::new();
        for instance in &self.instances {
            *layout.entry(instance.profile.name).or_default() += 1;
        }
        layout
    }
}

/// The GPUs of one node with their device plugin.
#[derive(Debug)]
pub(super) struct Machine {
    /// UID of the node.
    pub node_uid: String,
    /// `nvidia.com/gpu.product` of a whole GPU; empty when it was not told.
    pub product: String,
    /// The model.
    pub model: &'static Model,
    /// Memory of a whole GPU in MiB.
    pub memory_mib: u32,
    /// Driver version.
    pub driver: String,
    /// Instance type.
    pub instance_type: String,
    /// The plugin's strategy.
    pub strategy: Strategy,
    /// The plugin's sharing.
    pub sharing: Sharing,
    /// The GPUs in order of their index.
    pub gpus: Vec<Gpu>,
    /// What the plugin offers and who holds it.
    pub devices: Devices,
    /// Seed of the UUIDs.
    clock: Clock,
    /// Name of the node.
    name: String,
}

/// The machines of all nodes by node name. Clones are handles of the same ones.
#[derive(Debug, Clone)]
pub(in super::super) struct Hardware {
    machines: Arc<Mutex<BTreeMap<String, Machine>>>,
    plugin: Arc<PluginConfig>,
    clock: Clock,
}

impl Hardware {
    /// No machines yet; `plugin` says how devices are offered.
    pub(in super::super) fn new(clock: Clock, plugin: PluginConfig) -> Self {
        Self {
            machines: Arc::default(),
            plugin: Arc::new(plugin),
            clock,
        }
    }

    /// Settings of the device plugin.
    pub(super) fn plugin(&self) -> &PluginConfig {
        &self.plugin
    }

    /// Takes note of a node. Whichever actor sees it first makes its machine.
    pub(in super::super) fn see(&self, node: &Node) {
        let mut machines = self.lock();
        let name = &node.metadata.name;
        if machines
            .get(name)
            .is_some_and(|machine| machine.node_uid == node.metadata.uid)
        {
            return;
        }
        match Machine::of(node, self.clock, &self.plugin) {
            Some(machine) => machines.insert(name.clone(), machine),
            None => machines.remove(name),
        };
    }

    /// The machine of the node with this UID is gone.
    pub(in super::super) fn forget(&self, node_uid: &str) {
        self.lock()
            .retain(|_, machine| machine.node_uid != node_uid);
    }

    /// Works with the machine of `node`; `None` when it has no GPUs.
    pub(super) fn with<T>(&self, node: &str, work: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        self.lock().get_mut(node).map(work)
    }

    /// Gives a pod on `node` its devices; the error is the kubelet's message. A node without GPUs
    /// leaves devices to who counts them.
    pub(in super::super) fn allocate(
        &self,
        node: &str,
        uid: &str,
        pod: (&str, &str),
        asks: &Asks,
    ) -> Result<(), String> {
        let given = self.with(node, |machine| machine.allocate(uid, pod, asks));
        given.unwrap_or(Ok(()))
    }

    /// The pod gives its devices back.
    pub(in super::super) fn free(&self, node: &str, uid: &str) {
        self.with(node, |machine| machine.devices.free(uid));
    }

    /// Whether the pod was given a GPU as a whole that is in MIG mode.
    pub(in super::super) fn holds_useless(&self, node: &str, uid: &str) -> bool {
        let useless = self.with(node, |machine| machine.holds_useless(uid));
        useless.unwrap_or(false)
    }

    /// The resources among `asks` that the node's device manager decides about.
    pub(in super::super) fn managed(&self, node: &str, asks: &Asks) -> BTreeSet<String> {
        let names = asks.iter().flat_map(|(_, devices)| devices);
        let managed = self.with(node, |machine| {
            let managed = names.filter(|(name, _)| machine.devices.manages(name));
            managed.map(|(name, _)| name.clone()).collect()
        });
        managed.unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Machine>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The resource of whole GPUs.
pub(super) const GPU: &str = "nvidia.com/gpu";
/// The resource of shared GPUs under `renameByDefault`.
pub(super) const SHARED_GPU: &str = "nvidia.com/gpu.shared";
/// The resources of profiles begin with this.
pub(super) const MIG: &str = "nvidia.com/mig-";

impl Machine {
    /// The machine that the node's labels and capacity tell of; `None` without GPUs.
    fn of(node: &Node, clock: Clock, plugin: &PluginConfig) -> Option<Self> {
        let label = |name: &str| node.metadata.labels.get(&format!("nvidia.com/{name}"));
        let number = |text: &String| text.parse::<u32>().ok();
        let capacity = |name: &str| {
            let text = node.status.capacity.get(name);
            text.and_then(number).unwrap_or(0)
        };
        let profiles: BTreeMap<String, u32> = node
            .status
            .capacity
            .iter()
            .filter_map(|(name, count)| Some((name.strip_prefix(MIG)?.to_owned(), number(count)?)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let labelled = label("gpu.product").map_or("", String::as_str);
        let labelled = labelled.strip_suffix("-SHARED").unwrap_or(labelled);
        let (product, single) = match labelled.split_once("-MIG-") {
            Some((product, profile)) => (product, Some(profile)),
            None => (labelled, None),
        };
        let sharing = sharing_of(node, plugin.sharing);
        let offered = capacity(GPU).max(capacity(SHARED_GPU)) / sharing.replicas.max(1);
        if product.is_empty() && offered == 0 && profiles.is_empty() {
            return None;
        }
        let model = models::model(product);
        let strategy = match label("mig.strategy").map(String::as_str) {
            Some("single") => Strategy::Single,
            Some("mixed") => Strategy::Mixed,
            Some(_) => Strategy::None,
            None if !profiles.is_empty() => Strategy::Mixed,
            None => plugin.strategy,
        };
        let one = single.and_then(|name| model.profile(name).or_else(|| with_plus(model, name)));
        let each = one.map_or(0, |profile| profile.max);
        let physical = match (one, label("gpu.count").and_then(number)) {
            (Some(_), _) => offered.checked_div(each).unwrap_or(0),
            (None, Some(count)) => count,
            (None, None) => offered + u32::from(!profiles.is_empty()),
        };
        let memory = label("gpu.memory").and_then(number);
        let memory_mib = memory
            .filter(|mib| one.is_none() && *mib > 0)
            .unwrap_or(model.memory_mib);
        let instance_type = node.metadata.labels.get("node.kubernetes.io/instance-type");
        let name = node.metadata.name.clone();
        let gpus = (0..physical).map(|index| Gpu {
            index,
            uuid: format!("GPU-{}", clock.uuid(&format!("{name}/gpu/{index}"))),
            mig: false,
            pending_mig: false,
            instances: Vec::new(),
            last_xid: 0,
            xids: Vec::new(),
            lost: false,
            made: 0,
        });
        let mut machine = Self {
            node_uid: node.metadata.uid.clone(),
            product: product.to_owned(),
            model,
            memory_mib,
            driver: label("cuda.driver-version.full")
                .cloned()
                .unwrap_or_else(|| "580.95.05".to_owned()),
            instance_type: instance_type.cloned().unwrap_or_default(),
            strategy,
            sharing,
            gpus: gpus.collect(),
            devices: Devices::default(),
            clock,
            name,
        };
        match one {
            Some(profile) => machine.cut_alike(profile),
            None if profiles.is_empty() => {}
            None => machine.cut_as_counted(&profiles, physical.saturating_sub(offered)),
        }
        machine.start_plugin();
        machine.spoil(node);
        Some(machine)
    }

    /// Strategy single: each GPU holds as many of the profile as fit.
    fn cut_alike(&mut self, profile: &'static Profile) {
        let wanted = vec![profile; usize::try_from(profile.max).unwrap_or(1)];
        for at in 0..self.gpus.len() {
            self.make(at, &wanted, &BTreeSet::new());
        }
    }

    /// Strategy mixed: the first `cut` GPUs hold what the capacity counts, spread evenly.
    fn cut_as_counted(&mut self, profiles: &BTreeMap<String, u32>, cut: u32) {
        let mut counted: Vec<(&'static Profile, u32)> = profiles
            .iter()
            .filter_map(|(name, count)| {
                let model = self.model;
                let profile = model.profile(name).or_else(|| with_plus(model, name))?;
                Some((profile, *count))
            })
            .collect();
        counted.sort_by_key(|(profile, _)| std::cmp::Reverse(profile.units));
        for at in 0..usize::try_from(cut).unwrap_or(0).min(self.gpus.len()) {
            let gpus_left = cut.saturating_sub(u32::try_from(at).unwrap_or(0)).max(1);
            let mut wanted = Vec::new();
            for (profile, left) in &mut counted {
                for _ in 0..left.div_ceil(gpus_left) {
                    wanted.push(*profile);
                    if self.model.place(&wanted).is_some() {
                        *left -= 1;
                    } else {
                        wanted.pop();
                    }
                }
            }
            self.make(at, &wanted, &BTreeSet::new());
        }
    }

    /// Turns MIG on for the GPU and fills it with `wanted`; false when they do not fit, which
    /// leaves it empty. Profiles in `split` are cut into compute instances.
    pub(super) fn make(
        &mut self,
        gpu: usize,
        wanted: &[&'static Profile],
        split: &BTreeSet<&'static str>,
    ) -> bool {
        let placed = self.model.place(wanted);
        let Some(gpu) = self.gpus.get_mut(gpu) else {
            return false;
        };
        (gpu.mig, gpu.pending_mig) = (true, true);
        gpu.instances.clear();
        let Some(mut placed) = placed else {
            return false;
        };
        placed.sort_by_key(|(_, start)| *start);
        let whole = self.model.profiles.iter().map(|profile| profile.units);
        let whole = whole.max().unwrap_or(8);
        for (profile, _) in placed {
            gpu.made += 1;
            let key = format!("{}/gpu/{}/mig/{}", self.name, gpu.index, gpu.made);
            // The driver numbers instances by size: one of the whole GPU, then halves, quarters.
            let first = (whole / profile.units).saturating_sub(1);
            let used: BTreeSet<u32> = gpu.instances.iter().map(|i| i.gi).collect();
            let gi = (first..).find(|gi| !used.contains(gi)).unwrap_or(first);
            gpu.instances.push(Instance {
                profile,
                gi,
                uuid: format!("MIG-{}", self.clock.uuid(&key)),
                split: split.contains(profile.name),
            });
        }
        true
    }

    /// What the node says is broken: a condition with an Xid, or fewer allocatable than there are.
    fn spoil(&mut self, node: &Node) {
        for condition in &node.status.conditions {
            let number = |before: &str| {
                let (_, rest) = condition.message.split_once(before)?;
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse::<u32>().ok()
            };
            let (Some(code), Some(index)) = (number("ErrorCode:"), number("gpu:")) else {
                continue;
            };
            let mut gpus = self.gpus.iter_mut();
            if let Some(gpu) = gpus.find(|gpu| gpu.index == index) {
                gpu.last_xid = code;
            }
        }
        let told: Vec<u32> = self
            .gpus
            .iter()
            .filter(|gpu| gpu.last_xid > 0)
            .map(|gpu| gpu.index)
            .collect();
        let allocatable = |name: &str| {
            let text = node.status.allocatable.get(name);
            text.and_then(|text| text.parse::<usize>().ok())
        };
        self.devices.spoil_down_to(allocatable, &told);
    }

    /// The GPU of this index.
    pub(super) fn gpu_mut(&mut self, index: u32) -> Option<&mut Gpu> {
        self.gpus.iter_mut().find(|gpu| gpu.index == index)
    }
}

/// The profile whose resource is named so: `+` is written `.`.
pub(super) fn with_plus(model: &'static Model, name: &str) -> Option<&'static Profile> {
    let mut profiles = model.profiles.iter();
    profiles.find(|profile| profile.name.replace('+', ".") == name)
}

fn sharing_of(node: &Node, usual: Sharing) -> Sharing {
    let label = |name: &str| node.metadata.labels.get(&format!("nvidia.com/{name}"));
    let shared = |name: &String| matches!(name.as_str(), "time-slicing" | "mps" | "time-sharing");
    let renamed = node.status.capacity.contains_key(SHARED_GPU);
    match label("gpu.sharing-strategy") {
        Some(strategy) if shared(strategy) => Sharing {
            replicas: label("gpu.replicas")
                .and_then(|text| text.parse().ok())
                .unwrap_or(1)
                .max(1),
            renamed,
            ..usual
        },
        Some(_) => Sharing::NONE,
        None => usual,
    }
}
