//! The NVIDIA device plugin and the kubelet's device manager: which devices a node offers, which
//! of them are healthy, and which pod holds which.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::config::Strategy;
use super::hardware::{GPU, Machine, SHARED_GPU};

/// A device as the plugin registers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// Index of its GPU.
    pub gpu: u32,
    /// Id of its GPU instance; `None` for a whole GPU.
    pub gi: Option<u32>,
    /// The UUID of the GPU or MIG device, with `::N` behind it for the replica N.
    pub id: String,
    /// False after an Xid, until the plugin starts again.
    pub healthy: bool,
}

/// The devices of one resource.
#[derive(Debug, Default)]
struct Registered {
    devices: Vec<Device>,
    /// Since when its plugin does not answer.
    stopped: Option<Instant>,
}

/// What a container was given, as the kubelet's podresources API tells it.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// The device.
    pub device: Device,
}

/// What a container asks for: its name, and how many of which resources.
pub(in super::super) type Asks = Vec<(String, Vec<(String, usize)>)>;

/// The device manager of one kubelet.
#[derive(Debug, Default)]
pub(super) struct Devices {
    registered: BTreeMap<String, Registered>,
    /// Resources that had devices once: the kubelet keeps them as zero.
    zero: BTreeSet<String>,
    /// Devices by UID of the pod, kept as the kubelet's checkpoint keeps them.
    held: BTreeMap<String, Vec<Held>>,
    /// Capacity and allocatable as they were last reported.
    reported: Option<BTreeMap<String, Amount>>,
}

/// Devices of a resource: all of them, and the healthy ones.
pub(super) type Amount = (usize, usize);

impl Devices {
    /// The plugin registers `offered`; what it offered before and does not now is stopped.
    fn register(&mut self, offered: BTreeMap<String, Vec<Device>>) {
        self.stop();
        for (resource, devices) in offered {
            self.zero.remove(&resource);
            let stopped = None;
            let registered = Registered { devices, stopped };
            self.registered.insert(resource, registered);
        }
    }

    /// The plugin is gone: its devices count as unhealthy until the grace ends.
    pub(super) fn stop(&mut self) {
        for registered in self.registered.values_mut() {
            registered.stopped.get_or_insert_with(Instant::now);
        }
    }

    /// When the grace of a stopped resource ends.
    pub(super) fn grace_end(&self, grace: Duration) -> Option<Instant> {
        let stopped = self.registered.values().filter_map(|r| r.stopped);
        stopped.min().map(|since| since + grace)
    }

    /// Capacity and allocatable of each resource; those whose grace is over become zero.
    fn amounts(&mut self, grace: Duration) -> BTreeMap<String, Amount> {
        let now = Instant::now();
        let zero = &mut self.zero;
        self.registered.retain(|resource, registered| {
            let over = registered.stopped.is_some_and(|since| since + grace <= now);
            if over {
                zero.insert(resource.clone());
            }
            !over
        });
        let mut amounts: BTreeMap<String, Amount> = self
            .registered
            .iter()
            .map(|(resource, registered)| {
                let healthy = registered.devices.iter().filter(|device| device.healthy);
                let healthy = match registered.stopped {
                    Some(_) => 0,
                    None => healthy.count(),
                };
                (resource.clone(), (registered.devices.len(), healthy))
            })
            .collect();
        for resource in &self.zero {
            amounts.entry(resource.clone()).or_insert((0, 0));
        }
        amounts
    }

    /// What is to be written to the node's status; `None` when it was reported before.
    pub(super) fn report(&mut self, grace: Duration) -> Option<BTreeMap<String, Amount>> {
        let amounts = self.amounts(grace);
        (self.reported.as_ref() != Some(&amounts)).then_some(amounts)
    }

    /// Remembers what was written.
    pub(super) fn reported(&mut self, amounts: BTreeMap<String, Amount>) {
        self.reported = Some(amounts);
    }

    /// Marks devices until no more are healthy than `allocatable` says, those of the `first` GPUs
    /// first.
    pub(super) fn spoil_down_to(
        &mut self,
        allocatable: impl Fn(&str) -> Option<usize>,
        first: &[u32],
    ) {
        for (resource, registered) in &mut self.registered {
            let Some(left) = allocatable(resource) else {
                continue;
            };
            let mut order: Vec<&mut Device> = registered.devices.iter_mut().rev().collect();
            order.sort_by_key(|device| !first.contains(&device.gpu));
            let too_many = order.len().saturating_sub(left);
            for device in order.into_iter().take(too_many) {
                device.healthy = false;
            }
        }
        self.reported = Some(self.amounts(Duration::MAX));
    }

    /// Whether the device manager decides about this resource.
    pub(super) fn manages(&self, resource: &str) -> bool {
        self.registered.contains_key(resource)
    }

    /// Gives the containers of a pod their devices, all or none.
    ///
    /// The error is the kubelet's own, the text behind `Allocate failed due to `.
    fn allocate(
        &mut self,
        uid: &str,
        (namespace, pod): (&str, &str),
        asks: &Asks,
        fail_above_one: bool,
    ) -> Result<(), String> {
        if self.held.contains_key(uid) {
            return Ok(());
        }
        let mut given: Vec<Held> = Vec::new();
        for (container, resources) in asks {
            for (resource, wanted) in resources {
                let Some(registered) = self.registered.get(resource).filter(|_| *wanted > 0) else {
                    continue;
                };
                let chosen = self.choose(resource, registered, *wanted, &given)?;
                let shared = chosen.iter().any(|device| device.id.contains("::"));
                if shared && fail_above_one && *wanted > 1 {
                    return Err(format!(
                        "rpc error: code = Unknown desc = invalid allocation request for \
                         '{resource}': invalid request: maximum request size for shared resources \
                         is 1; found {wanted}"
                    ));
                }
                given.extend(chosen.into_iter().map(|device| Held {
                    namespace: namespace.to_owned(),
                    pod: pod.to_owned(),
                    container: container.clone(),
                    device,
                }));
            }
        }
        if !given.is_empty() {
            self.held.insert(uid.to_owned(), given);
        }
        Ok(())
    }

    /// Free healthy devices: the least shared GPUs first, then in order.
    fn choose(
        &self,
        resource: &str,
        registered: &Registered,
        wanted: usize,
        given: &[Held],
    ) -> Result<Vec<Device>, String> {
        let healthy = |device: &&Device| device.healthy && registered.stopped.is_none();
        let mut healthy = registered.devices.iter().filter(healthy).peekable();
        if healthy.peek().is_none() {
            return Err(format!(
                "no healthy devices present; cannot allocate unhealthy devices {resource}"
            ));
        }
        let mut in_use: BTreeSet<&str> = BTreeSet::new();
        let mut sharers: BTreeMap<u32, usize> = BTreeMap::new();
        for held in self.held.values().flatten().chain(given) {
            in_use.insert(&held.device.id);
            *sharers.entry(held.device.gpu).or_default() += 1;
        }
        let mut free: Vec<&Device> = healthy
            .filter(|device| !in_use.contains(device.id.as_str()))
            .collect();
        if free.len() < wanted {
            return Err(format!(
                "requested number of devices unavailable for {resource}. Requested: {wanted}, \
                 Available: {}",
                free.len()
            ));
        }
        let mut chosen = Vec::with_capacity(wanted);
        for _ in 0..wanted {
            let shared = |device: &&Device| {
                let by = sharers.get(&device.gpu).copied().unwrap_or(0);
                if device.id.contains("::") { by } else { 0 }
            };
            let next = (0..free.len()).min_by_key(|at| free.get(*at).map(&shared));
            if let Some(at) = next {
                let device = free.remove(at);
                *sharers.entry(device.gpu).or_default() += 1;
                chosen.push(device.clone());
            }
        }
        Ok(chosen)
    }

    /// The pod holds nothing any more.
    pub(super) fn free(&mut self, uid: &str) {
        self.held.remove(uid);
    }

    /// Everything held, in order of the pods' UIDs.
    pub(super) fn held(&self) -> impl Iterator<Item = (&str, &Held)> {
        let pods = self.held.iter();
        pods.flat_map(|(uid, held)| held.iter().map(move |held| (uid.as_str(), held)))
    }

    /// UIDs of the pods that hold a device for which `wanted` is true.
    pub(super) fn holders(&self, wanted: impl Fn(&Device) -> bool) -> Vec<String> {
        let mut holders: Vec<String> = self
            .held()
            .filter(|(_, held)| wanted(&held.device))
            .map(|(uid, _)| uid.to_owned())
            .collect();
        holders.dedup();
        holders
    }

    /// Marks one device unhealthy: the last that the plugin enumerated on this GPU, which for a
    /// cut GPU may be the wrong slice; all of its replicas.
    fn mark(&mut self, gpu: u32) {
        for registered in self.registered.values_mut() {
            let of_gpu = |device: &&mut Device| device.gpu == gpu;
            let last = registered.devices.iter_mut().rfind(of_gpu);
            let Some(gi) = last.map(|device| device.gi) else {
                continue;
            };
            for device in &mut registered.devices {
                device.healthy &= device.gpu != gpu || device.gi != gi;
            }
        }
    }
}

impl Machine {
    /// The plugin starts: it enumerates the GPUs and registers them, healthy again. What it cannot
    /// offer makes it exit, so that nothing is registered.
    pub(super) fn start_plugin(&mut self) {
        match self.offered() {
            Some(offered) => self.devices.register(offered),
            None => self.devices.stop(),
        }
    }

    /// Devices by resource; `None` when the plugin exits: strategy single with a GPU in MIG mode
    /// that is empty, beside whole ones, or of several profiles.
    fn offered(&self) -> Option<BTreeMap<String, Vec<Device>>> {
        let seen = || self.gpus.iter().filter(|gpu| !gpu.lost);
        let cut = seen().any(|gpu| gpu.mig);
        let mut offered: BTreeMap<String, Vec<Device>> = BTreeMap::new();
        if self.strategy == Strategy::Single && cut {
            let mut profiles = BTreeSet::new();
            for gpu in seen() {
                let whole = gpu.instances.iter().filter(|instance| !instance.split);
                profiles.extend(whole.map(|instance| instance.profile.name));
                if !gpu.mig || gpu.instances.iter().all(|instance| instance.split) {
                    return None;
                }
            }
            if profiles.len() != 1 {
                return None;
            }
        }
        for gpu in seen() {
            if !gpu.mig || self.strategy == Strategy::None {
                let device = (gpu.index, None, gpu.uuid.clone());
                self.offer(&mut offered, GPU, device);
                continue;
            }
            for instance in gpu.instances.iter().filter(|instance| !instance.split) {
                let device = (gpu.index, Some(instance.gi), instance.uuid.clone());
                let resource = match self.strategy {
                    Strategy::Mixed => instance.profile.resource(),
                    Strategy::Single | Strategy::None => GPU.to_owned(),
                };
                self.offer(&mut offered, &resource, device);
            }
        }
        Some(offered)
    }

    fn offer(
        &self,
        offered: &mut BTreeMap<String, Vec<Device>>,
        resource: &str,
        (gpu, gi, uuid): (u32, Option<u32>, String),
    ) {
        let device = |id| Device {
            gpu,
            gi,
            id,
            healthy: true,
        };
        let shared = self.sharing.replicas > 1 && resource == GPU;
        if !shared {
            let devices = offered.entry(resource.to_owned()).or_default();
            devices.push(device(uuid));
            return;
        }
        let name = if self.sharing.renamed {
            SHARED_GPU
        } else {
            GPU
        };
        let devices = offered.entry(name.to_owned()).or_default();
        let replicas = 0..self.sharing.replicas;
        devices.extend(replicas.map(|number| device(format!("{uuid}::{number}"))));
    }

    /// Gives a pod its devices; the error is the kubelet's message.
    pub(super) fn allocate(
        &mut self,
        uid: &str,
        pod: (&str, &str),
        asks: &Asks,
    ) -> Result<(), String> {
        let fail_above_one = self.sharing.fail_above_one;
        let given = self.devices.allocate(uid, pod, asks, fail_above_one);
        given.map_err(|why| format!("Allocate failed due to {why}, which is unexpected"))
    }

    /// Whether the pod was given a GPU as a whole that is in MIG mode: nothing runs on it then.
    pub(super) fn holds_useless(&self, uid: &str) -> bool {
        let mut held = self.devices.held().filter(|(holder, _)| *holder == uid);
        held.any(|(_, held)| {
            let device = &held.device;
            let mut gpus = self.gpus.iter();
            device.gi.is_none() && gpus.any(|gpu| gpu.index == device.gpu && gpu.mig)
        })
    }

    /// An Xid of a GPU: remembered, and unless the plugin ignores it a device is unhealthy.
    /// Returns the pods that die of it.
    pub(super) fn xid(&mut self, index: u32, code: u32, ignored: &[u32]) -> Vec<String> {
        /// More are not needed for the exporter's window.
        const KEPT: usize = 64;
        let Some(gpu) = self.gpu_mut(index) else {
            return Vec::new();
        };
        gpu.last_xid = code;
        gpu.xids.push((Instant::now(), code));
        if gpu.xids.len() > KEPT {
            gpu.xids.remove(0);
        }
        gpu.lost |= code == 79;
        if !ignored.contains(&code) {
            self.devices.mark(index);
        }
        if KILLING.contains(&code) {
            self.devices.holders(|device| device.gpu == index)
        } else {
            Vec::new()
        }
    }
}

/// Xids after which no process goes on that uses the GPU.
const KILLING: [u32; 14] = [13, 31, 43, 46, 48, 62, 64, 74, 79, 94, 95, 119, 120, 140];
