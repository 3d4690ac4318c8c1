//! One node of the demo fleet as an API object: labels of GPU feature discovery, the GPU operator,
//! topograph, Karpenter and the cloud, capacity, conditions and taints.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::models::{Model, Profile};
use crate::sandbox::actors::annotation;
use crate::sandbox::actors::clock::{hash, rfc3339};
use crate::sandbox::actors::kubelet_conditions;

/// How a node's GPUs are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// No MIG.
    Whole,
    /// Time-slicing: so many pods share each GPU.
    Shared(u32),
    /// Strategy single: every GPU cut into as many of this profile as fit.
    Single(&'static str),
    /// Strategy mixed: `cut` GPUs, each with these profiles; the others whole.
    Mixed {
        /// Name of the mig-parted configuration.
        config: &'static str,
        /// GPUs cut.
        cut: u32,
        /// Profiles and how many of each on a GPU.
        profiles: &'static [(&'static str, u32)],
    },
}

/// What is wrong with a node, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Cordoned by an operator.
    Cordoned,
    /// Its kubelet stopped reporting half an hour ago.
    NotReady,
    /// One device is unhealthy after an Xid: allocatable is one less than capacity.
    SickDevice,
}

/// A node to be.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// Name.
    pub name: String,
    /// Its GPUs; `None` for a CPU node.
    pub model: Option<&'static Model>,
    /// How they are cut.
    pub layout: Layout,
    /// `reserved`, `on-demand` or `spot`.
    pub tier: &'static str,
    /// Zone letter.
    pub zone: char,
    /// Leaf and spine switch, numbered from 1; `None` outside the fabric.
    pub switches: Option<(usize, usize)>,
    /// Position in the fleet, for addresses.
    pub index: usize,
    /// What is wrong with it.
    pub fault: Fault,
}

const REGION: &str = "us-east-2";
const DRIVER: &str = "580.95.05";
const CUDA: &str = "13.0";
/// CPU nodes are of this type.
const CPU_INSTANCE: (&str, u32, u64) = ("m7i.8xlarge", 32, 128);

impl NodePlan {
    /// The node as it is posted, with heartbeats and ages relative to `now`.
    pub fn object(&self, seed: u64, now: Timestamp) -> Value {
        let bits = hash(seed, &self.name);
        let mut spec = json!({
            "podCIDR": self.cidr(),
            "podCIDRs": [self.cidr()],
            "providerID": format!("aws:///{REGION}{}/i-{:016x}0", self.zone, bits),
        });
        let taints = self.taints(now);
        if !taints.is_empty() {
            insert(&mut spec, "taints", Value::Array(taints));
        }
        if self.fault == Fault::Cordoned {
            insert(&mut spec, "unschedulable", json!(true));
        }
        let (capacity, allocatable) = self.resources();
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": self.labels(seed, now),
                "annotations": self.annotations(),
            },
            "spec": spec,
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": self.address()},
                    {"type": "Hostname", "address": self.name},
                ],
                "capacity": capacity,
                "allocatable": allocatable,
                "conditions": self.conditions(bits, now),
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {
                    "architecture": "amd64",
                    "operatingSystem": "linux",
                    "osImage": "Ubuntu 24.04.3 LTS",
                    "kernelVersion": "6.8.0-85-generic",
                    "kubeletVersion": "v1.34.2",
                    "kubeProxyVersion": "",
                    "containerRuntimeVersion": "containerd://2.1.4",
                    "bootID": uuid(seed, &self.name, "boot"),
                    "machineID": uuid(seed, &self.name, "machine").replace('-', ""),
                    "systemUUID": uuid(seed, &self.name, "system"),
                },
            },
        })
    }

    /// Its internal address.
    pub fn address(&self) -> String {
        format!("10.20.{}.{}", self.index / 250, self.index % 250 + 1)
    }

    fn cidr(&self) -> String {
        format!("10.{}.{}.0/24", 128 + self.index / 256, self.index % 256)
    }

    fn annotations(&self) -> Value {
        let mut all = json!({
            "node.alpha.kubernetes.io/ttl": "0",
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            annotation::KUBELET: if self.fault == Fault::NotReady { "stopped" } else { "simulated" },
        });
        if self.switches.is_some() {
            insert(&mut all, "topograph.run/instance", json!(self.name));
            insert(&mut all, "topograph.run/region", json!(REGION));
        }
        all
    }

    fn taints(&self, now: Timestamp) -> Vec<Value> {
        let mut taints = Vec::new();
        if self.model.is_some() && self.tier == "spot" {
            taints
                .push(json!({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}));
        }
        if self.fault == Fault::Cordoned {
            let key = "node.kubernetes.io/unschedulable";
            taints.push(json!({"key": key, "effect": "NoSchedule"}));
        }
        if self.fault == Fault::NotReady {
            let since = rfc3339(ago(now, 29 * 60));
            for effect in ["NoSchedule", "NoExecute"] {
                let key = "node.kubernetes.io/unreachable";
                taints.push(json!({"key": key, "effect": effect, "timeAdded": since}));
            }
        }
        taints
    }

    fn conditions(&self, bits: u64, now: Timestamp) -> Vec<Value> {
        // Nodes are between one and thirty days old.
        let age_secs = 86_400 + i64::try_from(bits % (29 * 86_400)).unwrap_or(0);
        let mut conditions =
            kubelet_conditions(&rfc3339(ago(now, 30)), &rfc3339(ago(now, age_secs)));
        if self.fault == Fault::NotReady {
            for condition in &mut conditions {
                insert(condition, "status", json!("Unknown"));
                insert(condition, "reason", json!("NodeStatusUnknown"));
                insert(
                    condition,
                    "message",
                    json!("Kubelet stopped posting node status."),
                );
                insert(
                    condition,
                    "lastHeartbeatTime",
                    json!(rfc3339(ago(now, 30 * 60))),
                );
                insert(
                    condition,
                    "lastTransitionTime",
                    json!(rfc3339(ago(now, 29 * 60))),
                );
            }
        }
        if self.fault == Fault::SickDevice {
            // NVSentinel's form; its conditions are True when there is a fault.
            conditions.push(json!({
                "type": "SysLogsXIDError",
                "status": "True",
                "lastHeartbeatTime": rfc3339(ago(now, 12 * 60)),
                "lastTransitionTime": rfc3339(ago(now, 12 * 60)),
                "reason": "SysLogsXIDErrorIsNotHealthy",
                "message": "ErrorCode:79 gpu:5 GPU has fallen off the bus Recommended Action=NODE_REBOOT;",
            }));
        }
        conditions
    }

    /// What its pods may ask for, as its status says it.
    pub fn allocatable(&self) -> Value {
        self.resources().1
    }

    /// Capacity and allocatable.
    fn resources(&self) -> (Value, Value) {
        let (_, cpus, memory_gib) = self.machine();
        let memory_kib = memory_gib * 1024 * 1024;
        let mut capacity = json!({
            "cpu": cpus.to_string(),
            "ephemeral-storage": "1841577656Ki",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
            "memory": format!("{memory_kib}Ki"),
            "pods": "110",
        });
        if let Some(model) = self.model {
            for (name, count) in self.devices(model) {
                insert(&mut capacity, &name, json!(count.to_string()));
            }
            insert(
                &mut capacity,
                "vpc.amazonaws.com/efa",
                json!(model.efa.to_string()),
            );
        }
        let mut allocatable = capacity.clone();
        // What the system and the kubelet keep: about 1.3 % of the CPUs and 3 % of the memory.
        let cpu_milli = cpus * 1000 - cpus * 13;
        insert(&mut allocatable, "cpu", json!(format!("{cpu_milli}m")));
        insert(
            &mut allocatable,
            "memory",
            json!(format!("{}Ki", memory_kib / 100 * 97)),
        );
        insert(
            &mut allocatable,
            "ephemeral-storage",
            json!("1697197967769"),
        );
        if self.fault == Fault::SickDevice
            && let Some(model) = self.model
        {
            let lost = match self.layout {
                Layout::Shared(pods) => pods,
                _ => 1,
            };
            let offered = self.devices(model);
            let offered = offered.first().map_or(0, |(_, count)| *count);
            let healthy = offered.saturating_sub(lost);
            insert(
                &mut allocatable,
                "nvidia.com/gpu",
                json!(healthy.to_string()),
            );
        }
        (capacity, allocatable)
    }

    /// What the device plugin advertises: resource names and counts.
    fn devices(&self, model: &'static Model) -> Vec<(String, u32)> {
        match self.layout {
            Layout::Whole => vec![("nvidia.com/gpu".to_owned(), model.gpus)],
            Layout::Shared(pods) => vec![("nvidia.com/gpu".to_owned(), model.gpus * pods)],
            Layout::Single(profile) => {
                let each = model.profile(profile).map_or(0, fits);
                vec![("nvidia.com/gpu".to_owned(), model.gpus * each)]
            }
            Layout::Mixed { cut, profiles, .. } => {
                let mut all = vec![("nvidia.com/gpu".to_owned(), model.gpus - cut)];
                all.extend(
                    profiles
                        .iter()
                        .map(|(name, each)| (resource(name), cut * each)),
                );
                all
            }
        }
    }

    fn machine(&self) -> (&'static str, u32, u64) {
        self.model.map_or(CPU_INSTANCE, |model| {
            (model.instance, model.cpus, model.memory_gib)
        })
    }

    fn labels(&self, seed: u64, now: Timestamp) -> Value {
        let (instance, cpus, _) = self.machine();
        let zone = format!("{REGION}{}", self.zone);
        let mut labels = json!({
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/instance-type": instance,
            "beta.kubernetes.io/os": "linux",
            "failure-domain.beta.kubernetes.io/region": REGION,
            "failure-domain.beta.kubernetes.io/zone": zone,
            "karpenter.k8s.aws/instance-cpu": cpus.to_string(),
            "karpenter.sh/capacity-type": self.tier,
            "karpenter.sh/initialized": "true",
            "karpenter.sh/nodepool": self.pool(),
            "karpenter.sh/registered": "true",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": instance,
            "topology.kubernetes.io/region": REGION,
            "topology.kubernetes.io/zone": zone,
        });
        if self.tier == "reserved" {
            let bits = hash(seed, &self.pool());
            let id = format!("cr-{bits:016x}0");
            insert(
                &mut labels,
                "karpenter.k8s.aws/capacity-reservation-id",
                json!(id),
            );
            insert(
                &mut labels,
                "karpenter.k8s.aws/capacity-reservation-type",
                json!("default"),
            );
        }
        if let Some((leaf, spine)) = self.switches {
            insert(
                &mut labels,
                "fabric.topograph.run/tier-0",
                json!(format!("leaf-{leaf:02}")),
            );
            insert(
                &mut labels,
                "fabric.topograph.run/tier-1",
                json!(format!("spine-{spine:02}")),
            );
            insert(&mut labels, "fabric.topograph.run/tier-2", json!("core-1"));
        }
        if let Some(model) = self.model {
            // A node that fell silent half an hour ago has old discovery labels, too.
            let lag = if self.fault == Fault::NotReady {
                30 * 60
            } else {
                60
            };
            let discovered = ago(now, lag).as_second().to_string();
            insert(&mut labels, "nvidia.com/gfd.timestamp", json!(discovered));
            self.gpu_labels(model, &mut labels);
        }
        labels
    }

    fn pool(&self) -> String {
        let slug = self.model.map_or("cpu", |model| model.slug);
        format!("{slug}-{}", self.tier)
    }

    fn gpu_labels(&self, model: &'static Model, labels: &mut Value) {
        let mut set = |name: &str, value: &str| insert(labels, name, json!(value));
        let (major, minor) = model.compute;
        let (cuda_major, cuda_minor) = CUDA.split_once('.').unwrap_or((CUDA, "0"));
        let mut driver = DRIVER.splitn(3, '.');
        let mut part = || driver.next().unwrap_or("0");
        let (driver_major, driver_minor, driver_revision) = (part(), part(), part());
        for (name, value) in [
            ("feature.node.kubernetes.io/pci-10de.present", "true"),
            (
                "feature.node.kubernetes.io/kernel-version.full",
                "6.8.0-85-generic",
            ),
            ("feature.node.kubernetes.io/system-os_release.ID", "ubuntu"),
            (
                "feature.node.kubernetes.io/system-os_release.VERSION_ID",
                "24.04",
            ),
            ("nvidia.com/cuda.driver-version.full", DRIVER),
            ("nvidia.com/cuda.driver-version.major", driver_major),
            ("nvidia.com/cuda.driver-version.minor", driver_minor),
            ("nvidia.com/cuda.driver-version.revision", driver_revision),
            ("nvidia.com/cuda.driver.major", driver_major),
            ("nvidia.com/cuda.driver.minor", driver_minor),
            ("nvidia.com/cuda.driver.rev", driver_revision),
            ("nvidia.com/cuda.runtime-version.full", CUDA),
            ("nvidia.com/cuda.runtime-version.major", cuda_major),
            ("nvidia.com/cuda.runtime-version.minor", cuda_minor),
            ("nvidia.com/cuda.runtime.major", cuda_major),
            ("nvidia.com/cuda.runtime.minor", cuda_minor),
            ("nvidia.com/gpu-driver-upgrade-state", "upgrade-done"),
            ("nvidia.com/gpu.compute.major", &major.to_string()),
            ("nvidia.com/gpu.compute.minor", &minor.to_string()),
            ("nvidia.com/gpu.deploy.container-toolkit", "true"),
            ("nvidia.com/gpu.deploy.dcgm", "true"),
            ("nvidia.com/gpu.deploy.dcgm-exporter", "true"),
            ("nvidia.com/gpu.deploy.device-plugin", "true"),
            ("nvidia.com/gpu.deploy.driver", "true"),
            ("nvidia.com/gpu.deploy.gpu-feature-discovery", "true"),
            ("nvidia.com/gpu.deploy.node-status-exporter", "true"),
            ("nvidia.com/gpu.deploy.operator-validator", "true"),
            ("nvidia.com/gpu.family", model.family),
            ("nvidia.com/gpu.machine", model.instance),
            ("nvidia.com/gpu.mode", "compute"),
            ("nvidia.com/gpu.present", "true"),
            (
                "nvidia.com/gpu.sharing-strategy",
                match self.layout {
                    Layout::Shared(_) => "time-slicing",
                    _ => "none",
                },
            ),
            (
                "nvidia.com/mig.capable",
                if model.profiles.is_empty() {
                    "false"
                } else {
                    "true"
                },
            ),
            ("nvidia.com/mps.capable", "false"),
            ("nvidia.com/vgpu.present", "false"),
        ] {
            set(name, value);
        }
        if !model.profiles.is_empty() {
            set("nvidia.com/gpu.deploy.mig-manager", "true");
            set("nvidia.com/mig.config.state", "success");
        }
        match self.layout {
            Layout::Whole => {
                set("nvidia.com/gpu.product", model.product);
                set("nvidia.com/gpu.count", &model.gpus.to_string());
                set("nvidia.com/gpu.replicas", "1");
                set("nvidia.com/gpu.memory", &model.memory_mib.to_string());
                if !model.profiles.is_empty() {
                    set("nvidia.com/mig.config", "all-disabled");
                }
            }
            Layout::Shared(pods) => {
                set(
                    "nvidia.com/gpu.product",
                    &format!("{}-SHARED", model.product),
                );
                set("nvidia.com/gpu.count", &model.gpus.to_string());
                set("nvidia.com/gpu.replicas", &pods.to_string());
                set("nvidia.com/gpu.memory", &model.memory_mib.to_string());
                if !model.profiles.is_empty() {
                    set("nvidia.com/mig.config", "all-disabled");
                }
            }
            Layout::Single(name) => {
                let Some(profile) = model.profile(name) else {
                    return;
                };
                set("nvidia.com/mig.strategy", "single");
                set("nvidia.com/mig.config", &format!("all-{name}"));
                set(
                    "nvidia.com/gpu.product",
                    &format!("{}-MIG-{name}", model.product),
                );
                set(
                    "nvidia.com/gpu.count",
                    &(model.gpus * fits(profile)).to_string(),
                );
                set("nvidia.com/gpu.replicas", "1");
                set("nvidia.com/gpu.memory", &profile.memory_mib.to_string());
                for (suffix, value) in attributes(profile) {
                    set(&format!("nvidia.com/gpu.{suffix}"), &value.to_string());
                }
            }
            Layout::Mixed {
                config,
                cut,
                profiles,
            } => {
                set("nvidia.com/mig.strategy", "mixed");
                set("nvidia.com/mig.config", config);
                set("nvidia.com/gpu.product", model.product);
                // All physical GPUs, also those in MIG mode.
                set("nvidia.com/gpu.count", &model.gpus.to_string());
                set(
                    "nvidia.com/gpu.replicas",
                    if cut == model.gpus { "0" } else { "1" },
                );
                set("nvidia.com/gpu.memory", &model.memory_mib.to_string());
                for (name, each) in profiles {
                    let Some(profile) = model.profile(name) else {
                        continue;
                    };
                    let key = resource(name);
                    set(&format!("{key}.count"), &(cut * each).to_string());
                    set(&format!("{key}.replicas"), "1");
                    set(&format!("{key}.sharing-strategy"), "none");
                    set(
                        &format!("{key}.product"),
                        &format!("{}-MIG-{name}", model.product),
                    );
                    set(&format!("{key}.memory"), &profile.memory_mib.to_string());
                    for (suffix, value) in attributes(profile) {
                        set(&format!("{key}.{suffix}"), &value.to_string());
                    }
                }
            }
        }
    }
}

/// The resource of a profile under strategy mixed; also the stem of its labels.
fn resource(profile: &str) -> String {
    format!("nvidia.com/mig-{}", profile.replace('+', "."))
}

/// How many of the profile one GPU holds: seven compute and eight memory slices.
fn fits(profile: &Profile) -> u32 {
    (7 / profile.slices.max(1)).min(8 / profile.memory_slices.max(1))
}

/// The attribute labels of a profile besides its memory.
fn attributes(profile: &Profile) -> [(&'static str, u32); 8] {
    [
        ("multiprocessors", profile.multiprocessors),
        ("slices.gi", profile.slices),
        ("slices.ci", profile.slices),
        ("engines.copy", profile.copy),
        ("engines.decoder", profile.decoder),
        ("engines.encoder", 0),
        ("engines.jpeg", profile.jpeg),
        ("engines.ofa", 0),
    ]
}

fn ago(now: Timestamp, secs: i64) -> Timestamp {
    now.checked_sub(SignedDuration::from_secs(secs))
        .unwrap_or(now)
}

fn uuid(seed: u64, name: &str, what: &str) -> String {
    let (high, low) = (
        hash(seed, &format!("{name}/{what}/1")),
        hash(seed, &format!("{name}/{what}/2")),
    );
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff,
    )
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = object {
        map.insert(key.to_owned(), value);
    } else {
        *object = Value::Object(Map::from_iter([(key.to_owned(), value)]));
    }
}
