//! What a person submits as a job: JobSet, LeaderWorkerSet, Kubeflow's, KubeRay's and Volcano's.

use super::read::{Devices, Part, kind_of, workload};
use crate::model::{ForeignJob, ForeignKind, Meta, Str, WorkloadKey, WorkloadState};

/// What its kind tells of a job.
#[derive(Default)]
struct Said {
    asks: Devices,
    pods: u32,
    state: Option<WorkloadState>,
    reason: Option<Str>,
}

impl Said {
    fn add(&mut self, template: Part<'_>, times: u32) {
        self.pods = self.pods.saturating_add(times);
        self.asks.add_template(template, times);
    }

    fn is(&mut self, state: WorkloadState, reason: Option<Str>) {
        (self.state, self.reason) = (Some(state), reason);
    }
}

/// A count that is 1 unless stated.
fn times(part: Part<'_>) -> u32 {
    part.count().unwrap_or(1)
}

pub(super) fn job(kind: ForeignKind, meta: &Meta, part: &Part<'_>) -> ForeignJob {
    let mut said = Said::default();
    let suspended = ["spec.suspend", "spec.runPolicy.suspend"];
    if suspended.iter().any(|s| part.at(s).truth() == Some(true)) {
        said.is(WorkloadState::Suspended, None);
    }
    for (condition, state) in [
        ("Suspended", WorkloadState::Suspended),
        ("Completed", WorkloadState::Done),
        ("Complete", WorkloadState::Done),
        ("Succeeded", WorkloadState::Done),
        ("Failed", WorkloadState::Failed),
    ] {
        if let Some(told) = part.holds(condition) {
            let failed = state == WorkloadState::Failed;
            said.is(state, failed.then(|| told.words()));
        }
    }
    match kind {
        ForeignKind::JobSet => job_set(part, &mut said),
        ForeignKind::LeaderWorkerSet => leader_worker_set(part, &mut said),
        ForeignKind::TrainJob => train_job(part, &mut said),
        ForeignKind::RayJob => ray_job(part, &mut said),
        ForeignKind::RayService => ray_cluster(part.at("spec.rayClusterConfig"), &mut said),
        ForeignKind::RayCluster => {
            ray_cluster(part.at("spec"), &mut said);
            if part.at("status.state").raw() == Some("suspended") {
                said.is(WorkloadState::Suspended, None);
            }
        }
        ForeignKind::VolcanoJob => volcano_job(part, &mut said),
        _ => kubeflow(part, &mut said),
    }
    ForeignJob {
        workload: WorkloadKey {
            namespace: meta.namespace.clone(),
            kind: kind.workload_kind().into(),
            name: meta.name.clone(),
        },
        part_of: part_of(meta, part),
        state: said.state,
        reason: said.reason,
        asks: said.asks.into_whole(),
        pods: (said.pods > 0).then_some(said.pods),
        queue: queue(meta, part),
        started: part.at("status.startTime").time(),
        restarts: part
            .at("status.restarts")
            .count()
            .or_else(|| part.at("status.retryCount").count())
            .unwrap_or(0),
    }
}

/// The managing controller; KubeRay's clusters also say by labels whose they are.
fn part_of(meta: &Meta, part: &Part<'_>) -> Option<WorkloadKey> {
    let by_label = || {
        let kind = meta.label("ray.io/originated-from-crd")?;
        let name = meta.label("ray.io/originated-from-cr-name")?;
        Some(workload(&meta.namespace, None, kind, name))
    };
    let mut owners = part.at("metadata.ownerReferences").list();
    let controller = owners.find(|o| o.key("controller").truth() == Some(true));
    let by_owner = controller.and_then(|o| {
        let (kind, name) = (o.key("kind").raw()?, o.key("name").raw()?);
        let kind = kind_of(o.key("apiVersion").raw(), kind);
        Some(workload(&meta.namespace, None, &kind, name))
    });
    by_owner.or_else(by_label)
}

/// The queue that it names, by the labels and fields of each system.
fn queue(meta: &Meta, part: &Part<'_>) -> Option<Str> {
    const LABELS: [&str; 4] = [
        "kueue.x-k8s.io/queue-name",
        "kai.scheduler/queue",
        "volcano.sh/queue-name",
        "yunikorn.apache.org/queue",
    ];
    let labelled = LABELS.iter().find_map(|l| meta.label(l)).map(Into::into);
    labelled
        .or_else(|| part.at("spec.queue").name())
        .or_else(|| part.at("spec.runPolicy.schedulingPolicy.queue").name())
}

fn job_set(part: &Part<'_>, said: &mut Said) {
    for jobs in part.at("spec.replicatedJobs").list() {
        let job = jobs.at("template.spec");
        let pods = times(jobs.key("replicas")).saturating_mul(times(job.key("parallelism")));
        said.add(job.key("template"), pods);
    }
}

fn leader_worker_set(part: &Part<'_>, said: &mut Said) {
    let groups = times(part.at("spec.replicas"));
    let template = part.at("spec.leaderWorkerTemplate");
    let size = times(template.key("size"));
    let workers = template.key("workerTemplate");
    let leader = template.key("leaderTemplate");
    let leader = if leader.exists() { leader } else { workers };
    said.add(leader, groups);
    said.add(workers, groups.saturating_mul(size.saturating_sub(1)));
    if groups == 0 {
        said.is(WorkloadState::Suspended, Some("scaled to 0".into()));
    }
}

fn train_job(part: &Part<'_>, said: &mut Said) {
    let trainer = part.at("spec.trainer");
    let nodes = times(trainer.key("numNodes"));
    said.pods = nodes;
    let each = trainer.key("resourcesPerNode");
    let mut devices = each.key("limits").devices().0;
    devices.extend(each.key("requests").devices().0);
    for (resource, milli) in devices {
        said.asks.add(resource, milli.saturating_mul(nodes.into()));
    }
}

/// `pytorchReplicaSpecs`, `mpiReplicaSpecs` and their like.
fn kubeflow(part: &Part<'_>, said: &mut Said) {
    for (name, specs) in part.at("spec").entries() {
        if name.ends_with("ReplicaSpecs") {
            for (_, role) in specs.entries() {
                said.add(role.key("template"), times(role.key("replicas")));
            }
        }
    }
}

fn ray_cluster(spec: Part<'_>, said: &mut Said) {
    said.add(spec.at("headGroupSpec.template"), 1);
    for group in spec.key("workerGroupSpecs").list() {
        let off = group.key("suspend").truth() == Some(true);
        let hosts = times(group.key("numOfHosts"));
        let replicas = group.key("replicas").count();
        let replicas = replicas
            .or_else(|| group.key("minReplicas").count())
            .unwrap_or(0);
        if !off {
            said.add(group.key("template"), replicas.saturating_mul(hosts));
        }
    }
}

fn ray_job(part: &Part<'_>, said: &mut Said) {
    ray_cluster(part.at("spec.rayClusterSpec"), said);
    let message = || part.at("status.message").sentence();
    let reason = || part.at("status.reason").name();
    match (
        part.at("status.jobDeploymentStatus").raw(),
        part.at("status.jobStatus").raw(),
    ) {
        (Some("Failed"), _) | (_, Some("FAILED" | "STOPPED")) => {
            said.is(WorkloadState::Failed, message().or_else(reason));
        }
        (Some("Complete"), _) | (_, Some("SUCCEEDED")) => said.is(WorkloadState::Done, None),
        (Some("Suspended" | "Suspending"), _) => said.is(WorkloadState::Suspended, None),
        _ => {}
    }
}

fn volcano_job(part: &Part<'_>, said: &mut Said) {
    for task in part.at("spec.tasks").list() {
        said.add(task.key("template"), times(task.key("replicas")));
    }
    let message = || part.at("status.state.message").sentence();
    match part.at("status.state.phase").raw() {
        Some("Completed") => said.is(WorkloadState::Done, None),
        Some("Failed" | "Terminated") => said.is(WorkloadState::Failed, message()),
        Some("Aborted" | "Aborting") => {
            let reason = message().unwrap_or_else(|| "aborted by a Command".into());
            said.is(WorkloadState::Suspended, Some(reason));
        }
        _ => {}
    }
}
