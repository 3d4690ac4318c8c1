//! Fills a cluster quickly with nodes and running pods of realistic size, for benches and for
//! scenarios that start full.

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
use super::inventory::{Fleet, namespace};

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
    let hosts: Arc<Vec<Host>> = Arc::new(fleet.nodes.iter().filter_map(Host::read).collect());
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let (calls, hosts) = (calls.clone(), Arc::clone(&hosts));
        tasks.spawn(async move { write_share(&calls, &hosts, pods, seed, writer).await });
    }
    let mut filled = Filled {
        nodes: fleet.nodes.len(),
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

/// Nodes whose pods are made together.
const HOSTS_A_PART: usize = 16;

/// The pods that [`fill`] writes, whole and with the status of pods that run since `now`.
#[derive(Debug)]
pub struct Crowd {
    hosts: Vec<Host>,
    pods: usize,
    seed: u64,
    now: Timestamp,
}

impl Crowd {
    /// `pods` pods on the nodes of `fleet`.
    pub fn new(fleet: &Fleet, pods: usize, seed: u64, now: Timestamp) -> Self {
        Self {
            hosts: fleet.nodes.iter().filter_map(Host::read).collect(),
            pods,
            seed,
            now,
        }
    }

    /// How many parts they are made in.
    pub fn parts(&self) -> usize {
        self.hosts.len().div_ceil(HOSTS_A_PART)
    }

    /// One part of them.
    pub fn part(&self, part: usize) -> Vec<Value> {
        let each = self.pods / self.hosts.len().max(1);
        let more = self.pods % self.hosts.len().max(1);
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts.skip(part * HOSTS_A_PART).take(HOSTS_A_PART);
        let pods = hosts.flat_map(|(at, host)| {
            let first = at * each + at.min(more);
            host.pods(each + usize::from(at < more), first, self.seed, self.now)
        });
        pods.map(PlannedPod::whole).collect()
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
        let planned = host.pods(each + usize::from(at < more), first, seed, calls.now());
        let mut results = futures::stream::iter(planned)
            .map(|pod| async move { write_pod(calls, &pod).await.map(|()| pod.devices) })
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
async fn write_pod(calls: &Calls, pod: &PlannedPod) -> Result<(), CallError> {
    let collection = path::pods(pod.namespace);
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

struct PlannedPod {
    name: String,
    namespace: &'static str,
    devices: u64,
    body: Value,
    status: Value,
}

impl PlannedPod {
    fn whole(self) -> Value {
        let mut whole = self.body;
        if let (Some(map), Value::Object(status)) = (whole.as_object_mut(), self.status) {
            map.extend(status);
        }
        whole
    }
}

impl Host {
    fn read(node: &Value) -> Option<Self> {
        let status = node.get("status")?;
        let allocatable = status.get("allocatable")?.as_object()?;
        let devices = allocatable
            .iter()
            .filter(|(name, _)| name.starts_with("nvidia.com/"))
            .filter_map(|(name, count)| Some((name.clone(), count.as_str()?.parse().ok()?)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let addresses = status.get("addresses")?.as_array()?;
        Some(Self {
            name: node.get("metadata")?.get("name")?.as_str()?.to_owned(),
            address: addresses.first()?.get("address")?.as_str()?.to_owned(),
            devices,
        })
    }

    /// `count` pods on this node, numbered from `first`: devices are handed out until most are
    /// used, the rest of the pods ask for CPUs only.
    fn pods(&self, count: usize, first: usize, seed: u64, now: Timestamp) -> Vec<PlannedPod> {
        let mut rng = fastrand::Rng::with_seed(hash(seed, &self.name));
        let mut left = self.devices.clone();
        (0..count)
            .map(|at| {
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
                self.pod(first + at, ask, seed, now)
            })
            .collect()
    }

    fn pod(
        &self,
        number: usize,
        ask: Option<(String, u32)>,
        seed: u64,
        now: Timestamp,
    ) -> PlannedPod {
        let job = number / GANG;
        let rank = number % GANG;
        let namespace = team_of(job);
        let job_name = format!("pt-{job:06}");
        let bits = hash(seed, &job_name);
        let name = format!("{job_name}-worker-{rank}");
        let devices = ask.as_ref().map_or(0, |(_, size)| u64::from(*size));
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
            requests.insert(resource, json!(size.to_string()));
        }
        let uid = format!(
            "{:08x}-{:04x}-4000-8000-{:012x}",
            bits >> 32,
            bits & 0xffff,
            job
        );
        let image = "registry.example/train/pytorch:2.9.1-cuda13.0";
        let body = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    "team": namespace,
                    "training.kubeflow.org/job-name": job_name,
                    "training.kubeflow.org/operator-name": "pytorchjob-controller",
                    "training.kubeflow.org/replica-index": rank.to_string(),
                    "training.kubeflow.org/replica-type": "worker",
                    "gpudeck.dev/gang": job_name,
                },
                "annotations": {
                    "gpudeck.dev/queue": namespace,
                    "prometheus.io/scrape": "true",
                    "prometheus.io/port": "9090",
                },
                "ownerReferences": [{
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "PyTorchJob",
                    "name": job_name,
                    "uid": uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "nodeName": self.name,
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
                    "command": ["torchrun", "--nnodes", GANG.to_string(), "--node-rank", rank.to_string(), "train.py"],
                    "env": [
                        {"name": "MASTER_ADDR", "value": format!("{job_name}-worker-0")},
                        {"name": "MASTER_PORT", "value": "23456"},
                        {"name": "WORLD_SIZE", "value": GANG.to_string()},
                        {"name": "RANK", "value": rank.to_string()},
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
        let status = self.running(&name, image, hash(seed, &name), now);
        PlannedPod {
            name,
            namespace,
            devices,
            body,
            status,
        }
    }

    fn running(&self, name: &str, image: &str, bits: u64, now: Timestamp) -> Value {
        let at = rfc3339(now);
        let [a, b, c, ..] = bits.to_le_bytes();
        let ip = format!("10.{}.{b}.{c}", 64 + (a & 63));
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": at});
        json!({"status": {
            "phase": "Running",
            "qosClass": "Guaranteed",
            "hostIP": self.address,
            "hostIPs": [{"ip": self.address}],
            "podIP": ip,
            "podIPs": [{"ip": ip}],
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
                "imageID": format!("registry.example/train/pytorch@sha256:{bits:064x}"),
                "containerID": format!("containerd://{bits:032x}{:032x}", hash(1, name)),
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
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn pods_have_a_realistic_size_and_no_device_is_given_twice() {
        let fleet = Fleet::demo(1);
        for node in &fleet.nodes {
            let host = Host::read(node).unwrap();
            let pods = host.pods(40, 0, 1, Timestamp::now());
            let mut given: BTreeMap<String, u32> = BTreeMap::new();
            for pod in &pods {
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
