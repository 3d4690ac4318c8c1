//! Fills a cluster quickly with nodes and running pods of realistic size, for benches and for
//! scenarios that start full.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::actors::clock::{hash, rfc3339};
use super::calls::{CallError, Calls, PatchKind, path, patiently};
use super::inventory::{Fleet, NodePlan, namespace};
use super::{ApiServer, PreloadError, Stamp, hole};

/// Tasks that write at the same time, and calls in flight in each.
const WRITERS: usize = 8;
const IN_FLIGHT: usize = 16;
/// Pods of one training job.
const GANG: usize = 8;
/// The share of devices in use, in percent.
const USED_PERCENT: u32 = 90;

/// What [`fill`] wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Filled {
    /// Nodes of the fleet.
    pub nodes: usize,
    /// Pods, all of them bound and Running.
    pub pods: usize,
    /// Devices (GPUs and MIG devices) that the pods ask for.
    pub devices: u64,
    /// How long it took.
    pub took: Duration,
}

/// Writes the fleet of `nodes` nodes and `pods` pods spread evenly over it, bound and Running.
///
/// The pods belong to PyTorchJobs that do not exist, so that no controller of the sandbox takes
/// them for its own, and run until they are deleted. No device is given twice.
pub async fn fill(
    client: Client,
    nodes: usize,
    pods: usize,
    seed: u64,
) -> Result<Filled, CallError> {
    let began = Instant::now();
    let fleet = Fleet::sized(nodes, seed);
    fleet.write(client.clone()).await?;
    let calls = Calls::new(client);
    for team in 0..TEAMS.len() {
        calls
            .ensure(path::NAMESPACES, &namespace(team_of(team)))
            .await?;
    }
    let hosts: Arc<Vec<Host>> = Arc::new(fleet.plans().iter().filter_map(Host::read).collect());
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let (calls, hosts) = (calls.clone(), Arc::clone(&hosts));
        tasks.spawn(async move { write_share(&calls, &hosts, pods, seed, writer).await });
    }
    let mut filled = Filled {
        nodes: fleet.plans().len(),
        ..Filled::default()
    };
    while let Some(result) = tasks.join_next().await {
        // A writer that panicked wrote nothing that is counted.
        if let Ok(result) = result {
            let (pods, devices) = result?;
            filled.pods += pods;
            filled.devices += devices;
        }
    }
    filled.took = began.elapsed();
    Ok(filled)
}

/// The namespaces of the pods that [`fill`] writes and a [`Crowd`] has.
pub fn namespaces() -> impl Iterator<Item = &'static str> {
    TEAMS.into_iter()
}

/// The pods that [`fill`] writes, whole and with the status of pods that run since `now`.
#[derive(Debug)]
pub struct Crowd {
    hosts: Vec<Host>,
    pods: usize,
    seed: u64,
    since: String,
}

impl Crowd {
    /// `pods` pods on the nodes of `fleet`.
    pub fn new(fleet: &Fleet, pods: usize, seed: u64, now: Timestamp) -> Self {
        Self {
            hosts: fleet.plans().iter().filter_map(Host::read).collect(),
            pods,
            seed,
            since: rfc3339(now),
        }
    }

    /// Stores them. The first of those that ask for the same is admitted, the others are prints.
    ///
    /// # Errors
    /// Admission refuses one.
    pub fn store(&self, server: &ApiServer) -> Result<(), PreloadError> {
        let asks: BTreeSet<Ask> = self.planned().map(|(_, plan)| plan.ask).collect();
        let stamp = |ask: Ask| {
            let exemplar = Texts::holes().pod(&ask, &self.since).whole();
            Ok((ask, server.stamp(exemplar)?))
        };
        let stamps = asks.into_iter().map(stamp);
        let stamps: BTreeMap<Ask, Stamp> = stamps.collect::<Result<_, PreloadError>>()?;
        let prints = self.planned().filter_map(|(host, plan)| {
            let texts = Texts::of(host, plan.number, self.seed);
            Some((stamps.get(&plan.ask)?, texts.into_list()))
        });
        server.preload_prints(prints)
    }

    fn planned(&self) -> impl Iterator<Item = (&Host, Planned)> {
        let each = self.pods / self.hosts.len().max(1);
        let more = self.pods % self.hosts.len().max(1);
        self.hosts.iter().enumerate().flat_map(move |(at, host)| {
            let first = at * each + at.min(more);
            let plans = host.plan(each + usize::from(at < more), first, self.seed);
            plans.map(move |plan| (host, plan))
        })
    }
}

/// The pods of every [`WRITERS`]th node.
async fn write_share(
    calls: &Calls,
    hosts: &[Host],
    pods: usize,
    seed: u64,
    writer: usize,
) -> Result<(usize, u64), CallError> {
    let each = pods / hosts.len().max(1);
    let more = pods % hosts.len().max(1);
    let (mut written, mut devices) = (0, 0);
    for (at, host) in hosts.iter().enumerate().skip(writer).step_by(WRITERS) {
        let first = at * each + at.min(more);
        let since = rfc3339(calls.now());
        let planned = host.plan(each + usize::from(at < more), first, seed);
        let planned = planned.map(|plan| {
            let texts = Texts::of(host, plan.number, seed);
            (texts.pod(&plan.ask, &since), plan.devices())
        });
        let mut results = futures::stream::iter(planned)
            .map(|(pod, devices)| async move { write_pod(calls, &pod).await.map(|()| devices) })
            .buffer_unordered(IN_FLIGHT);
        while let Some(result) = results.next().await {
            devices += result?;
            written += 1;
        }
    }
    Ok((written, devices))
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    status: AnswerStatus,
}

#[derive(Default, Deserialize)]
struct AnswerStatus {
    #[serde(default)]
    phase: String,
}

/// Creates the pod and, as servers drop the status of a new pod, writes its status.
async fn write_pod(calls: &Calls, pod: &PodBody) -> Result<(), CallError> {
    let collection = path::pods(&pod.namespace);
    let created = patiently(|| calls.post::<Answer>(&collection, &pod.body)).await;
    let running = match created {
        Ok(answer) => answer.status.phase == "Running",
        Err(error) if error.is_already_exists() => true,
        Err(error) => return Err(error),
    };
    if !running {
        let at = format!("{collection}/{}/status", pod.name);
        let body = &pod.status;
        patiently(|| calls.patch::<IgnoredAny>(&at, PatchKind::Merge, body)).await?;
    }
    Ok(())
}

const TEAMS: [&str; 6] = [
    "team-a",
    "team-b",
    "team-c",
    "team-d",
    "research",
    "prod-infer",
];

fn team_of(number: usize) -> &'static str {
    TEAMS
        .get(number % TEAMS.len())
        .copied()
        .unwrap_or("research")
}

#[derive(Debug)]
struct Host {
    name: String,
    address: String,
    /// Device resources with their allocatable counts.
    devices: Vec<(String, u32)>,
}

/// A device resource and how many of it; `None` for CPUs only.
type Ask = Option<(String, u32)>;

/// A pod to be.
struct Planned {
    number: usize,
    ask: Ask,
}

impl Planned {
    fn devices(&self) -> u64 {
        self.ask.as_ref().map_or(0, |(_, size)| u64::from(*size))
    }
}

/// A pod as it is created, and the status that it then gets.
struct PodBody {
    name: String,
    namespace: String,
    body: Value,
    status: Value,
}

impl PodBody {
    fn whole(self) -> Value {
        let mut whole = self.body;
        if let (Some(map), Value::Object(status)) = (whole.as_object_mut(), self.status) {
            map.extend(status);
        }
        whole
    }
}

impl Host {
    fn read(plan: &NodePlan) -> Option<Self> {
        let allocatable = plan.allocatable();
        let devices = allocatable
            .as_object()?
            .iter()
            .filter(|(name, _)| name.starts_with("nvidia.com/"))
            .filter_map(|(name, count)| Some((name.clone(), count.as_str()?.parse().ok()?)))
            .filter(|(_, count)| *count > 0)
            .collect();
        Some(Self {
            name: plan.name.clone(),
            address: plan.address(),
            devices,
        })
    }

    /// `count` pods on this node, numbered from `first`: devices are handed out until most are
    /// used, the rest of the pods ask for CPUs only.
    fn plan(&self, count: usize, first: usize, seed: u64) -> impl Iterator<Item = Planned> + use<> {
        let mut rng = fastrand::Rng::with_seed(hash(seed, &self.name));
        let mut left = self.devices.clone();
        (first..first + count).map(move |number| {
            let mut ask = None;
            if let Some((resource, free)) = left.iter_mut().find(|(_, free)| *free > 0) {
                let most = if resource == "nvidia.com/gpu" {
                    *free
                } else {
                    1
                };
                let size = [1, 1, 2, 4, 8].get(rng.usize(0..5)).copied().unwrap_or(1);
                let size = size.min(most);
                *free -= size;
                ask = (rng.u32(0..100) < USED_PERCENT).then(|| (resource.clone(), size));
            }
            Planned { number, ask }
        })
    }
}

/// What differs between pods that ask for the same.
struct Texts {
    name: String,
    namespace: String,
    job: String,
    rank: String,
    owner_uid: String,
    node: String,
    host_ip: String,
    pod_ip: String,
    image_digest: String,
    container_id: String,
}

impl Texts {
    /// Of the pod `number`.
    fn of(host: &Host, number: usize, seed: u64) -> Self {
        let job_number = number / GANG;
        let rank = (number % GANG).to_string();
        let job = format!("pt-{job_number:06}");
        let name = format!("{job}-worker-{rank}");
        let of_job = hash(seed, &job);
        let bits = hash(seed, &name);
        let [a, b, c, ..] = bits.to_le_bytes();
        Self {
            namespace: team_of(job_number).to_owned(),
            owner_uid: format!(
                "{:08x}-{:04x}-4000-8000-{job_number:012x}",
                of_job >> 32,
                of_job & 0xffff,
            ),
            node: host.name.clone(),
            host_ip: host.address.clone(),
            pod_ip: format!("10.{}.{b}.{c}", 64 + (a & 63)),
            image_digest: format!("{bits:064x}"),
            container_id: format!("{bits:032x}{:032x}", hash(1, &name)),
            name,
            job,
            rank,
        }
    }

    /// Of the exemplar of a stamp.
    fn holes() -> Self {
        Self {
            name: hole(0),
            namespace: hole(1),
            job: hole(2),
            rank: hole(3),
            owner_uid: hole(4),
            node: hole(5),
            host_ip: hole(6),
            pod_ip: hole(7),
            image_digest: hole(8),
            container_id: hole(9),
        }
    }

    /// In the order of the holes.
    fn into_list(self) -> Vec<String> {
        vec![
            self.name,
            self.namespace,
            self.job,
            self.rank,
            self.owner_uid,
            self.node,
            self.host_ip,
            self.pod_ip,
            self.image_digest,
            self.container_id,
        ]
    }

    /// The pod that asks for this and runs since then.
    fn pod(&self, ask: &Ask, since: &str) -> PodBody {
        let mut requests = Map::from_iter([
            (
                "cpu".to_owned(),
                json!(if ask.is_some() { "4" } else { "500m" }),
            ),
            (
                "memory".to_owned(),
                json!(if ask.is_some() { "32Gi" } else { "1Gi" }),
            ),
        ]);
        if let Some((resource, size)) = ask {
            requests.insert(resource.clone(), json!(size.to_string()));
        }
        let image = "registry.example/train/pytorch:2.9.1-cuda13.0";
        let body = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {
                    "team": self.namespace,
                    "training.kubeflow.org/job-name": self.job,
                    "training.kubeflow.org/operator-name": "pytorchjob-controller",
                    "training.kubeflow.org/replica-index": self.rank,
                    "training.kubeflow.org/replica-type": "worker",
                    "gpudeck.dev/gang": self.job,
                },
                "annotations": {
                    "gpudeck.dev/queue": self.namespace,
                    "prometheus.io/scrape": "true",
                    "prometheus.io/port": "9090",
                },
                "ownerReferences": [{
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "PyTorchJob",
                    "name": self.job,
                    "uid": self.owner_uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "nodeName": self.node,
                "schedulerName": "gpudeck",
                "priorityClassName": "standard",
                "restartPolicy": "OnFailure",
                "tolerations": [
                    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                ],
                "containers": [{
                    "name": "pytorch",
                    "image": image,
                    "command": ["torchrun", "--nnodes", GANG.to_string(), "--node-rank", self.rank, "train.py"],
                    "env": [
                        {"name": "MASTER_ADDR", "value": format!("{}-worker-0", self.job)},
                        {"name": "MASTER_PORT", "value": "23456"},
                        {"name": "WORLD_SIZE", "value": GANG.to_string()},
                        {"name": "RANK", "value": self.rank},
                        {"name": "NCCL_DEBUG", "value": "WARN"},
                    ],
                    "ports": [{"containerPort": 23456, "name": "pytorchjob-port", "protocol": "TCP"}],
                    "resources": {"limits": requests, "requests": requests},
                    "volumeMounts": [
                        {"mountPath": "/dev/shm", "name": "shm"},
                        {"mountPath": "/data", "name": "data"},
                    ],
                }],
                "volumes": [
                    {"name": "shm", "emptyDir": {"medium": "Memory"}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}},
                ],
            },
        });
        PodBody {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            body,
            status: self.running(image, since),
        }
    }

    fn running(&self, image: &str, at: &str) -> Value {
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": at});
        json!({"status": {
            "phase": "Running",
            "qosClass": "Guaranteed",
            "hostIP": self.host_ip,
            "hostIPs": [{"ip": self.host_ip}],
            "podIP": self.pod_ip,
            "podIPs": [{"ip": self.pod_ip}],
            "startTime": at,
            "conditions": [
                condition("PodReadyToStartContainers"),
                condition("Initialized"),
                condition("Ready"),
                condition("ContainersReady"),
                condition("PodScheduled"),
            ],
            "containerStatuses": [{
                "name": "pytorch",
                "image": image,
                "imageID": format!("registry.example/train/pytorch@sha256:{}", self.image_digest),
                "containerID": format!("containerd://{}", self.container_id),
                "ready": true,
                "started": true,
                "restartCount": 0,
                "state": {"running": {"startedAt": at}},
            }],
        }})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn pods_have_a_realistic_size_and_no_device_is_given_twice() {
        let fleet = Fleet::demo(1);
        for node in fleet.plans() {
            let host = Host::read(node).unwrap();
            let pods = host.plan(40, 0, 1);
            let pods = pods.map(|plan| Texts::of(&host, plan.number, 1).pod(&plan.ask, "2026"));
            let mut given: BTreeMap<String, u32> = BTreeMap::new();
            for pod in pods {
                let size = pod.body.to_string().len() + pod.status.to_string().len();
                assert!((1_500..4_096).contains(&size), "{size} bytes");
                let requests = &pod.body["spec"]["containers"][0]["resources"]["requests"];
                for (name, count) in requests.as_object().unwrap() {
                    if name.starts_with("nvidia.com/") {
                        *given.entry(name.clone()).or_default() +=
                            count.as_str().unwrap().parse::<u32>().unwrap();
                    }
                }
            }
            for (name, count) in given {
                let has = host.devices.iter().find(|(device, _)| *device == name);
                assert!(count <= has.unwrap().1, "{name} on {}", host.name);
            }
        }
    }
}
