//! What is read of each queue, piece of work and job of another system in the samples.

use std::sync::Arc;

use gpudeck::cluster::decode::{Decoder, Object};
use gpudeck::model::{Cluster, Foreign, ForeignBody, GpuResource, Kind, WorkloadRow};
use gpudeck::tui::views::pods;
use serde_json::Value;

use crate::samples::{file, kind_of};

fn device(resource: &GpuResource) -> String {
    match resource {
        GpuResource::Whole => "gpu".to_owned(),
        GpuResource::Shared => "shared".to_owned(),
        GpuResource::Mig(profile) => profile.to_string(),
    }
}

fn milli(n: i64) -> String {
    let text = format!("{}.{:03}", n / 1_000, n % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// An object in one line.
pub(crate) fn told(object: &Foreign) -> String {
    let mut parts: Vec<String> = Vec::new();
    match &object.body {
        ForeignBody::Queue(q) => {
            parts.push(format!(
                "{} {} {} {}",
                q.key.admitter,
                q.key.kind,
                q.key,
                q.state.name()
            ));
            parts.extend(q.why.as_ref().map(|w| format!("why {w}")));
            parts.extend(q.parent.as_ref().map(|p| format!("below {p}")));
            for t in &q.terms {
                let mut term = device(&t.resource);
                if let Some(flavor) = &t.flavor {
                    term = format!("{term} of {flavor}");
                }
                for (name, n) in [
                    ("due", t.guaranteed_milli),
                    ("kept", t.kept_milli),
                    ("limit", t.limit_milli),
                    ("used", t.used_milli),
                ] {
                    if let Some(n) = n {
                        term.push_str(&format!(" {name} {}", milli(n)));
                    }
                }
                parts.push(term);
            }
            parts.extend(q.weight_milli.map(|w| format!("weight {}", milli(w))));
            parts.extend(q.pending.map(|n| format!("{n} wait")));
        }
        ForeignBody::Entry(e) => {
            parts.push(format!("{} in {}: {}", e.workload, e.queue, e.state.name()));
            parts.push(format!("{} {}", e.workload.kind, e.priority));
            let asks: Vec<String> = e
                .asked_milli
                .iter()
                .map(|(r, n)| format!("{} {}", milli(*n), device(r)))
                .collect();
            parts.push(format!("{} pods ask {}", e.pods, asks.join(" + ")));
            parts.extend(e.reason.as_ref().map(|r| format!("why {r}")));
        }
        ForeignBody::Devices(slice) => {
            parts.push(format!(
                "{} GPUs and instances of {}",
                slice.devices.len(),
                slice.node
            ));
        }
        ForeignBody::Job(j) => {
            parts.push(format!("{} {}", j.workload.kind, j.workload));
            parts.push(j.state.map_or("its pods tell", |s| s.name()).to_owned());
            parts.extend(
                j.part_of
                    .as_ref()
                    .map(|p| format!("part of {} {}", p.kind, p.name)),
            );
            let asks: Vec<String> = j
                .asks
                .iter()
                .map(|(r, n)| format!("{n} {}", device(r)))
                .collect();
            parts.push(format!(
                "{} pods ask {}",
                j.pods.unwrap_or(0),
                asks.join(" + ")
            ));
            parts.extend(j.queue.as_ref().map(|q| format!("queue {q}")));
            parts.extend(j.reason.as_ref().map(|r| format!("why {r}")));
        }
    }
    parts.join(" | ")
}

fn read(object: &Value) -> Option<Arc<Foreign>> {
    let kind = kind_of(object).filter(|k| matches!(k, Kind::Foreign(_)))?;
    match Decoder::new().decode(kind, &object.to_string()).unwrap() {
        Object::Foreign(_, object) => Some(object),
        other => panic!("{other:?}"),
    }
}

fn check(name: &str, wanted: &[&str]) {
    let found: Vec<String> = file(name)
        .iter()
        .filter_map(read)
        .map(|o| told(&o))
        .collect();
    let found: Vec<&str> = found.iter().map(|t| &**t).collect();
    assert!(found == wanted, "{name} is read as\n{:#?}", found);
}

#[test]
fn queues_of_kueue() {
    let nlp = "below research | gpu of h100-reserved due 64 kept 48 limit 96 used 72 | \
               gpu of h100-spot due 0 limit 64 used 0 | weight 2 | 3 wait";
    check(
        "queues/kueue-clusterqueues-v1beta2.json",
        &[
            &format!("kueue ClusterQueue nlp-cq open | {nlp}"),
            "kueue ClusterQueue vision-cq draining | why held and drained by its stopPolicy | \
             below research | gpu of a100-mig due 8 used 0 | 1g.10gb of a100-mig due 28 used 0 | \
             11 wait",
            "kueue ClusterQueue robotics-cq broken | why references missing ResourceFlavor(s): \
             b300-reserved | gpu of b300-reserved due 72 limit 72 used 0 | 1 wait",
            "kueue Cohort research open | below company | gpu of h100-reserved due 16 | weight 1",
            "kueue Cohort company open",
        ],
    );
    check(
        "queues/kueue-clusterqueue-v1beta1.json",
        &[&format!("kueue ClusterQueue nlp-cq-old open | {nlp}")],
    );
    check(
        "queues/kueue-localqueues.json",
        &[
            "kueue LocalQueue team-nlp/main open | below nlp-cq | gpu of h100-reserved used 72 | \
             3 wait",
            "kueue LocalQueue team-vision/main held | why its ClusterQueue takes nothing | \
             below vision-cq | 11 wait",
            "kueue LocalQueue team-nlp/held held | why held by its stopPolicy | below nlp-cq | \
             2 wait",
        ],
    );
}

#[test]
fn work_of_kueue() {
    check(
        "queues/kueue-workloads-v1beta2.json",
        &[
            "team-nlp/llm-7b-pre in team-nlp/main: admitted | Job 1000 | 4 pods ask 32 gpu",
            "team-nlp/moe-8x22 in team-nlp/main: admitted | JobSet 1000 | 17 pods ask 128 gpu",
            "team-nlp/ablate-3 in team-nlp/main: waiting | Job 100 | 2 pods ask 16 gpu | why \
             h100-reserved lacks 8 gpu, h100-spot lacks 16 gpu",
            "team-nlp/too-big in team-nlp/main: waiting | Job 100 | 20 pods ask 160 gpu | why \
             asks more than it can ever have: insufficient quota for nvidia.com/gpu in flavor \
             h100-reserved, previously considered podsets requests (0) + current podset request \
             (160) > maximum capacity (112)",
            "team-nlp/tas-nofit in team-nlp/main: waiting | Job 1000 | 6 pods ask 48 gpu | why \
             topology \"gke-default\" allows to fit only 4 out of 6 pod(s)",
            "team-nlp/waiting-preempt in team-nlp/main: waiting | Job 1000 | 1 pods ask 8 gpu | \
             why waits for those that it displaces to be gone",
            "team-vision/vit-large in team-vision/main: waiting | Job -50 | 2 pods ask 16 gpu | \
             why displaced by work of /company/research/nlp-cq",
            "team-nlp/flaky-ddp in team-nlp/main: waiting | Job 1000 | 8 pods ask 64 gpu | why \
             its pods were not ready in time, 4 times, tries again at 12:06",
            "team-nlp/readmitted in team-nlp/main: reserved | Job 1000 | 1 pods ask 8 gpu | why \
             The workload has not all checks ready",
            "team-nlp/limit-hit in team-nlp/main: held | Job 1000 | 1 pods ask 8 gpu | why \
             deactivated due to exceeding the maximum number of re-queuing retries",
            "team-nlp/done in team-nlp/main: finished | Job 1000 | 1 pods ask 8 gpu",
            "team-nlp/suspended-lq in team-nlp/held: held | Job 1000 | 1 pods ask 8 gpu | why \
             LocalQueue held is stopped",
            "team-nlp/no-queue in team-nlp/mian: waiting | Job 1000 | 1 pods ask 8 gpu | why \
             LocalQueue mian doesn't exist",
        ],
    );
    check(
        "queues/kueue-workload-v1beta1.json",
        &["team-hpc/old-api in team-hpc/main: admitted | Job 1000 | 3 pods ask 24 gpu"],
    );
}

#[test]
fn queues_and_work_of_volcano() {
    check(
        "queues/volcano-queues-podgroups.json",
        &[
            "volcano Queue root open | gpu used 96 | weight 1",
            "volcano Queue nlp open | below root | gpu due 64 kept 16 limit 96 used 64 | weight 4 | \
             2 wait",
            "volcano Queue vision open | below root | gpu due 32 used 32 | weight 2 | 2 wait",
            "volcano Queue archive closed | why closed | below root | gpu used 0 | weight 1 | \
             2 wait",
            "volcano Queue winding-down draining | why closing: what runs may end | below root | \
             gpu used 0 | weight 1 | 2 wait",
            "volcano Queue default open | below root | gpu used 0 | weight 1 | 2 wait",
            "team-nlp/llama-sft in nlp: admitted | VolcanoJob 0 | 4 pods ask 32 gpu",
            "team-vision/diffusion-11326ea9-8881-4759-80b6-2121213b3b09 in vision: waiting | \
             VolcanoJob 0 | 2 pods ask 16 gpu | why 0/31 nodes are unavailable: 22 Insufficient \
             nvidia.com/gpu, 9 node(s) pod number exceeded",
            "team-vision/big-eval in vision: waiting | VolcanoJob 0 | 16 pods ask 128 gpu | why \
             queue resource quota insufficient: insufficient nvidia.com/gpu",
            "team-nlp/hyper-fe899a91-b219-4999-a3c3-3ed545c7cf2f in nlp: waiting | VolcanoJob 0 | \
             8 pods ask 64 gpu | why In hyperNode s1: 0/4 nodes are unavailable: 4 Insufficient \
             nvidia.com/gpu",
            "team-nlp/few-pods in default: waiting | VolcanoJob 0 | 4 pods ask 32 gpu | why pods \
             are missing: 2 Pending, 4 minAvailable",
        ],
    );
    check(
        "queues/volcano-job-command.json",
        &["VolcanoJob team-nlp/llama-sft | its pods tell | 4 pods ask 32 gpu | queue nlp"],
    );
}

#[test]
fn queues_and_work_of_kai() {
    check(
        "queues/kai-queues-podgroups.json",
        &[
            "kai Queue research open | gpu due 64 used 44.5 | weight 1",
            "kai Queue nlp open | below research | gpu due 32 used 32 | weight 2",
            "kai Queue vision open | below research | gpu due 16 limit 16 used 12 | weight 1",
            "kai Queue scavenge open | gpu due 0 used 0.5 | weight 0",
            "team-nlp/llm-7b in nlp: admitted | Job 0 | 4 pods ask 32 gpu",
            "team-vision/vit in vision: waiting | Job 0 | 1 pods ask 8 gpu | why vision quota has \
             reached the allowable limit of GPUs",
            "team-nlp/serve in nlp: waiting | Deployment 0 | 1 pods ask  | why Non-preemptible \
             workload is over quota",
            "team-nlp/moe in nlp: waiting | Job 0 | 6 pods ask  | why 22 node(s) didn't have \
             enough resources: GPUs, 3 node(s) didn't have enough of mig profile: \
             nvidia.com/mig-1g.10gb",
        ],
    );
}

#[test]
fn quotas_of_namespaces() {
    check(
        "queues/resourcequota-namespaces-priorityclasses.json",
        &[
            "quota ResourceQuota quota-nlp/gpu open | gpu limit 64 used 64",
            "quota ResourceQuota quota-ds/mig open | gpu limit 0 used 0 | shared limit 20 used 0 | \
             1g.10gb limit 14 used 14",
            "quota ResourceQuota quota-vision/low-only open | gpu of PriorityClass scavenge limit \
             128 used 40",
            "quota ResourceQuota quota-ds/dra-claims open | gpu of DRA gpu.nvidia.com limit 8 \
             used 3",
        ],
    );
}

#[test]
fn jobs_of_all_kinds() {
    for (name, wanted) in [
        (
            "jobs/jobset-with-job-and-pods.json",
            &["JobSet team-nlp/moe-8x22 | its pods tell | 17 pods ask 128 gpu | queue main"][..],
        ),
        (
            "jobs/leaderworkerset-with-pods.json",
            &["LeaderWorkerSet team-nlp/deepseek | its pods tell | 4 pods ask 32 gpu"],
        ),
        (
            "jobs/mpijob-with-pods.json",
            &["MPIJob team-nlp/nccl-allreduce | its pods tell | 3 pods ask 16 gpu | queue nlp"],
        ),
        (
            "jobs/pytorchjob-with-pods.json",
            &["PyTorchJob team-nlp/bert-ft | its pods tell | 3 pods ask 24 gpu | queue main"],
        ),
        (
            "jobs/rayjob-raycluster-with-pods.json",
            &[
                "RayJob team-nlp/tune-lora | its pods tell | 3 pods ask 16 gpu | queue nlp",
                "RayCluster team-nlp/tune-lora-r8s2d | its pods tell | part of RayJob tune-lora | \
                 3 pods ask 16 gpu",
            ],
        ),
        (
            "jobs/trainjob-suspended.json",
            &["TrainJob team-nlp/sft-13b | suspended | 4 pods ask 32 gpu | queue main"],
        ),
    ] {
        check(name, wanted);
    }
}

/// The workloads of a file, and of each the pods in the order in which they are looked at.
fn workloads(name: &str) -> Vec<String> {
    let mut cluster = Cluster::new();
    let mut decoder = Decoder::new();
    for object in file(name) {
        let Some(kind) = kind_of(&object) else {
            continue;
        };
        cluster.apply(
            &decoder
                .decode(kind, &object.to_string())
                .unwrap()
                .into_set(),
        );
    }
    let row = |w: Arc<WorkloadRow>| {
        let asks: Vec<String> = w
            .asked
            .iter()
            .map(|(r, n)| format!("{n} {}", device(r)))
            .collect();
        let pods = pods::all(&cluster, &pods::Scope::Workload(w.key.clone()));
        let first = pods.first().map_or("no pods".to_owned(), |p| {
            let rank = p
                .rank
                .as_ref()
                .map_or("no rank".to_owned(), ToString::to_string);
            format!("first {} ({rank})", p.pod.meta.name)
        });
        format!(
            "{} {} {} {}/{} asks {} | {first}",
            w.key.kind,
            w.key.name,
            w.state.name(),
            w.running,
            w.pods,
            asks.join(" + ")
        )
    };
    cluster.workloads().map(row).collect()
}

#[test]
fn each_job_is_one_row_and_its_straggler_comes_first() {
    for (name, wanted) in [
        (
            "jobs/batch-job-kueue-suspend-and-gates.json",
            &[
                "Job ablate-3 suspended 0/0 asks  | no pods",
                "Job llm-7b-pre waiting 2/4 asks 24 gpu | first llm-7b-pre-2-zgke7 (2)",
            ][..],
        ),
        (
            "jobs/jobset-with-job-and-pods.json",
            &[
                "JobSet moe-8x22 running 2/2 asks 16 gpu | first moe-8x22-workers-0-0-syzaa \
                 (workers 0.0)",
            ],
        ),
        (
            "jobs/kserve-deployment-mig-pdb.json",
            &[
                "Deployment embed-predictor running 2/3 asks 2 1g.10gb | first \
                 embed-predictor-57946f6c67-zz9zz (no rank)",
            ],
        ),
        (
            "jobs/leaderworkerset-with-pods.json",
            &["LeaderWorkerSet deepseek waiting 3/4 asks 32 gpu | first deepseek-1-1 (1.1)"],
        ),
        (
            "jobs/mpijob-with-pods.json",
            &["MPIJob nccl-allreduce running 3/3 asks 16 gpu | first \
                 nccl-allreduce-launcher-x8v2k (launcher)"],
        ),
        (
            "jobs/pytorchjob-with-pods.json",
            &["PyTorchJob bert-ft waiting 2/3 asks 24 gpu | first bert-ft-worker-1 (worker 1)"],
        ),
        (
            "jobs/rayjob-raycluster-with-pods.json",
            &["RayJob tune-lora running 2/2 asks 8 gpu | first \
                 tune-lora-r8s2d-h100-worker-vbltl (h100)"],
        ),
        (
            "jobs/trainjob-suspended.json",
            &["TrainJob sft-13b suspended 0/0 asks 32 gpu | no pods"],
        ),
        (
            "queues/volcano-job-command.json",
            &["VolcanoJob llama-sft running 1/1 asks 8 gpu | first llama-sft-worker-1 (worker 1)"],
        ),
    ] {
        let found = workloads(name);
        assert!(found == wanted, "{name}: {found:#?}");
    }
}
