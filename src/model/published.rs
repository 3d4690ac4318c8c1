//! GPUs as a DRA driver publishes them in ResourceSlices: which there are, where they sit on their
//! board, how they are cut, and what keeps them from being given out.
//!
//! Sources: resource.k8s.io/v1 (pools, generations, device taints), NVIDIA's DRA driver
//! (`partitions.go`, `deviceinfo.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::devices::{KnownDevice, KnownInstance};
use super::fabric::GpuPort;
use super::gpu::GpuModel;
use super::node::Node;
use super::text::Str;

/// What a taint of a device does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceTaintEffect {
    /// It only tells something.
    None,
    /// Nobody gets the device any more.
    NoSchedule,
    /// Whoever has it leaves, too.
    NoExecute,
}

/// A taint of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceTaint {
    /// Key (`gpu.nvidia.com/xid`).
    pub key: Str,
    /// Value, may be empty.
    pub value: Str,
    /// Effect; one that is not known counts as one that keeps pods away.
    pub effect: DeviceTaintEffect,
}

impl DeviceTaint {
    /// As the screen writes it.
    pub fn in_words(&self) -> String {
        let value = if self.value.is_empty() { "" } else { "=" };
        let effect = match self.effect {
            DeviceTaintEffect::None => "for information",
            DeviceTaintEffect::NoSchedule => "not given out",
            DeviceTaintEffect::NoExecute => "taken from its pods",
        };
        format!("{}{value}{}: {effect}", self.key, self.value)
    }

    /// Whether it keeps the device from being given out.
    pub fn bars(&self) -> bool {
        self.effect != DeviceTaintEffect::None
    }
}

/// A GPU, or a MIG instance of one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PublishedDevice {
    /// Index of its GPU on the node.
    pub gpu: u32,
    /// The MIG instance that it is.
    pub instance: Option<KnownInstance>,
    /// An instance that the driver would cut if somebody asked for it, and that is not there now.
    pub possible: bool,
    /// Product, as the driver names it.
    pub product: Option<Str>,
    /// Memory of the device in MiB.
    pub memory_mib: Option<u32>,
    /// UUID of the GPU; of an instance, that of the GPU which it is cut from.
    pub uuid: Option<Str>,
    /// NUMA node.
    pub numa: Option<u32>,
    /// PCIe root (`pci0000:15`).
    pub pcie_root: Option<Str>,
    /// Taints.
    pub taints: Box<[DeviceTaint]>,
}

/// The part of a pool that one ResourceSlice holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PublishedSlice {
    /// The node; empty where devices are not of one node.
    pub node: Str,
    /// Name of the pool.
    pub pool: Str,
    /// Generation of the pool: older ones do not count beside a newer one.
    pub generation: i64,
    /// Slices that the pool has in this generation.
    pub of: u32,
    /// GPUs and their instances; devices that are no GPUs are left out.
    pub devices: Box<[PublishedDevice]>,
}

/// All that is published of a node's GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Published {
    /// Devices by GPU, whole ones before instances.
    pub devices: Vec<PublishedDevice>,
    /// Whether every slice of its pools is here.
    pub complete: bool,
}

impl Published {
    /// What these slices tell, in whatever order they come.
    pub fn of<'a>(slices: impl Iterator<Item = &'a PublishedSlice>) -> Self {
        let mut pools: BTreeMap<&Str, Vec<&PublishedSlice>> = BTreeMap::new();
        for slice in slices {
            pools.entry(&slice.pool).or_default().push(slice);
        }
        let mut published = Published {
            devices: Vec::new(),
            complete: true,
        };
        for mut slices in pools.into_values() {
            let newest = slices.iter().map(|s| s.generation).max();
            slices.retain(|s| Some(s.generation) == newest);
            let of = slices.iter().map(|s| s.of).max().unwrap_or(0);
            published.complete &= u32::try_from(slices.len()).is_ok_and(|n| n >= of);
            let devices = slices.iter().flat_map(|s| s.devices.iter());
            published.devices.extend(devices.cloned());
        }
        published.devices.sort_by(|a, b| {
            let key = |d: &PublishedDevice| (d.gpu, d.instance.clone());
            key(a).cmp(&key(b))
        });
        published
    }

    /// GPUs of which at least something is published.
    pub fn gpus(&self) -> u32 {
        let mut all: Vec<u32> = self.devices.iter().map(|d| d.gpu).collect();
        all.dedup();
        u32::try_from(all.len()).unwrap_or(u32::MAX)
    }

    /// Where each GPU is on its board.
    pub fn ports(&self) -> Vec<GpuPort> {
        let mut ports: Vec<GpuPort> = Vec::new();
        for device in &self.devices {
            let port = GpuPort {
                index: device.gpu,
                numa: device.numa,
                pcie_root: device.pcie_root.clone(),
            };
            match ports.last_mut().filter(|p| p.index == device.gpu) {
                Some(known) => {
                    known.numa = known.numa.or(port.numa);
                    known.pcie_root = known.pcie_root.take().or(port.pcie_root);
                }
                None => ports.push(port),
            }
        }
        ports
    }

    /// Taints of a GPU and of its instances.
    pub fn taints(&self, gpu: u32) -> impl Iterator<Item = &DeviceTaint> {
        let own = self.devices.iter().filter(move |d| d.gpu == gpu);
        own.filter(|d| !d.possible).flat_map(|d| d.taints.iter())
    }

    /// Instances that are there.
    pub(super) fn instances(&self) -> impl Iterator<Item = (u32, &KnownInstance)> {
        let there = self.devices.iter().filter(|d| !d.possible);
        there.filter_map(|d| Some((d.gpu, d.instance.as_ref()?)))
    }

    /// Adds the devices that nobody holds to those that somebody does.
    pub(super) fn beside(&self, mut devices: Vec<KnownDevice>) -> Vec<KnownDevice> {
        for (gpu, instance) in self.instances() {
            let is = |d: &KnownDevice| {
                let own = d.instance.as_ref();
                d.gpu == gpu
                    && own
                        .is_some_and(|i| i.start == instance.start && i.profile == instance.profile)
            };
            if !devices.iter().any(is) {
                devices.push(KnownDevice {
                    gpu,
                    instance: Some(instance.clone()),
                    pod: None,
                    source: super::devices::DeviceSource::Claim,
                });
            }
        }
        devices.sort();
        devices
    }

    /// The node with what is published in the place of what it does not say itself.
    pub(super) fn complete(&self, node: &Arc<Node>) -> Arc<Node> {
        if self.devices.is_empty() {
            return node.clone();
        }
        let own = &node.gpus;
        let whole = || self.devices.iter().find(|d| d.instance.is_none());
        let memory_mib = own.memory_mib.or_else(|| whole()?.memory_mib);
        let product = || self.devices.iter().find_map(|d| d.product.as_ref());
        // Labels write the product with dashes.
        let model = || Some(GpuModel::new(&product()?.replace(' ', "-"), memory_mib));
        let count = || self.complete.then(|| self.gpus());
        let gpus = super::node::NodeGpus {
            model: own.model.clone().or_else(model),
            memory_mib,
            count: own.count.or_else(count),
            ..own.clone()
        };
        if gpus == *own {
            return node.clone();
        }
        let mut node = Node::clone(node);
        node.gpus = gpus;
        Arc::new(node)
    }
}
