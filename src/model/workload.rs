//! Workloads: pods grouped by the thing a person submitted.

use std::fmt;

use super::job::Job;
use super::pod::{Phase, Pod};
use super::text::Str;

/// The gang or group that a pod names itself (not by ownership).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupName {
    /// What kind of group, by the label that named it: `PodGroup`, `JobSet`, `LeaderWorkerSet`, …
    pub kind: Str,
    /// Its name.
    pub name: Str,
    /// Pods needed together, where the pod says it.
    pub min_members: Option<u32>,
}

/// Identity of a workload.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkloadKey {
    /// Namespace.
    pub namespace: Str,
    /// Kind of the top controller or group, `Pod` for a bare pod.
    pub kind: Str,
    /// Name.
    pub name: Str,
}

impl fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl WorkloadKey {
    /// The workload that a Job belongs to: its own controller's, or the Job itself. Each run of a
    /// CronJob is a workload of its own.
    pub(super) fn of_job(job: &Job) -> Self {
        let parent = job.meta.controller().filter(|o| &*o.kind != "CronJob");
        WorkloadKey {
            namespace: job.meta.namespace.clone(),
            kind: parent.map_or_else(|| "Job".into(), |p| p.kind.clone()),
            name: parent.map_or_else(|| job.meta.name.clone(), |p| p.name.clone()),
        }
    }

    /// The workload of a pod: the top controller if its labels or owners tell one, else its
    /// group, else the pod itself. `job` is the pod's owning Job where known.
    ///
    /// The labels are those of JobSet, Kubeflow, LeaderWorkerSet, KubeRay and Volcano; a ReplicaSet is
    /// traced to its Deployment by the `pod-template-hash` suffix that Deployments give it.
    pub fn of_pod(pod: &Pod, job: Option<&Job>) -> Self {
        const BY_LABEL: [(&str, &str); 6] = [
            ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
            ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
            ("ray.io/cluster", "RayCluster"),
            ("mpi-job-name", "MPIJob"),
            ("volcano.sh/job-name", "VolcanoJob"),
            ("training.kubeflow.org/job-name", ""),
        ];
        let key = |kind: &str, name: &str| WorkloadKey {
            namespace: pod.meta.namespace.clone(),
            kind: kind.into(),
            name: name.into(),
        };
        let controller = pod.meta.controller();
        for (label, kind) in BY_LABEL {
            if let Some(name) = pod.meta.label(label).filter(|v| !v.is_empty()) {
                let kind = match (kind, controller) {
                    ("", Some(owner)) if owner.kind.ends_with("Job") && *owner.name == *name => {
                        &owner.kind
                    }
                    ("", _) => match pod.meta.label("training.kubeflow.org/operator-name") {
                        Some("mpi-operator") => "MPIJob",
                        Some("tfjob-controller") => "TFJob",
                        _ => "PyTorchJob",
                    },
                    (kind, _) => kind,
                };
                return key(kind, name);
            }
        }
        let Some(owner) = controller else {
            return match &pod.group {
                Some(group) => key(&group.kind, &group.name),
                None => key("Pod", &pod.meta.name),
            };
        };
        if let Some(parent) = job
            .filter(|j| j.meta.uid == owner.uid)
            .and_then(|j| j.meta.controller())
            .filter(|parent| &*parent.kind != "CronJob")
        {
            return key(&parent.kind, &parent.name);
        }
        if &*owner.kind == "ReplicaSet"
            && let Some(hash) = pod.meta.label("pod-template-hash")
            && let Some(name) = owner
                .name
                .strip_suffix(hash)
                .and_then(|n| n.strip_suffix('-'))
        {
            return key("Deployment", name);
        }
        key(&owner.kind, &owner.name)
    }
}

/// The state of a workload in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WorkloadState {
    /// At least one pod waits for a node.
    Waiting,
    /// Pods are bound but not all run yet.
    Starting,
    /// All live pods run.
    Running,
    /// Suspended or held; no pods.
    Suspended,
    /// Ended in failure.
    Failed,
    /// Ended with success.
    Done,
}

impl WorkloadState {
    /// As screens and filters write it.
    pub fn name(self) -> &'static str {
        match self {
            WorkloadState::Waiting => "waiting",
            WorkloadState::Starting => "starting",
            WorkloadState::Running => "running",
            WorkloadState::Suspended => "suspended",
            WorkloadState::Failed => "failed",
            WorkloadState::Done => "done",
        }
    }

    /// The state of the workload that consists of these counts.
    pub(super) fn of(counts: &PhaseCounts) -> Self {
        if counts.waiting > 0 {
            WorkloadState::Waiting
        } else if counts.starting > 0 {
            WorkloadState::Starting
        } else if counts.running > 0 {
            WorkloadState::Running
        } else if counts.failed > 0 {
            WorkloadState::Failed
        } else {
            WorkloadState::Done
        }
    }
}

/// Pods of a workload by what they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PhaseCounts {
    pub(super) waiting: u32,
    pub(super) starting: u32,
    pub(super) running: u32,
    pub(super) failed: u32,
    pub(super) done: u32,
}

impl PhaseCounts {
    fn slot(&mut self, pod: &Pod) -> &mut u32 {
        match pod.phase {
            Phase::Succeeded => &mut self.done,
            Phase::Failed => &mut self.failed,
            Phase::Running => &mut self.running,
            _ if pod.node.is_none() => &mut self.waiting,
            _ => &mut self.starting,
        }
    }

    pub(super) fn add(&mut self, pod: &Pod) {
        *self.slot(pod) += 1;
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        let slot = self.slot(pod);
        *slot = slot.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::meta::{Meta, Owner, Uid};
    use super::*;

    fn pod(labels: &[(&str, &str)], owner: Option<(&str, &str)>) -> Pod {
        let mut labels: Vec<(Str, Str)> = labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        labels.sort();
        let owners: Vec<Owner> = owner
            .iter()
            .map(|(kind, name)| Owner {
                kind: (*kind).into(),
                name: (*name).into(),
                uid: Uid("o".into()),
                controller: true,
            })
            .collect();
        Pod {
            meta: Meta {
                uid: Uid("p".into()),
                name: "p-0".into(),
                namespace: "ns".into(),
                labels: labels.into(),
                owners: owners.into(),
                ..Meta::default()
            },
            ..Pod::default()
        }
    }

    #[test]
    fn pods_are_grouped_by_what_a_person_submitted() {
        for (labels, owner, expected) in [
            (vec![], Some(("Job", "train")), ("Job", "train")),
            (
                vec![("jobset.sigs.k8s.io/jobset-name", "moe")],
                Some(("Job", "moe-w-0")),
                ("JobSet", "moe"),
            ),
            (
                vec![("pod-template-hash", "57946f6c67")],
                Some(("ReplicaSet", "embed-57946f6c67")),
                ("Deployment", "embed"),
            ),
            (
                vec![],
                Some(("ReplicaSet", "bare-rs")),
                ("ReplicaSet", "bare-rs"),
            ),
            (
                vec![("training.kubeflow.org/job-name", "bert")],
                Some(("PyTorchJob", "bert")),
                ("PyTorchJob", "bert"),
            ),
            (
                vec![
                    ("training.kubeflow.org/job-name", "nccl"),
                    ("training.kubeflow.org/operator-name", "mpi-operator"),
                ],
                Some(("Job", "nccl-launcher")),
                ("MPIJob", "nccl"),
            ),
            (
                vec![("leaderworkerset.sigs.k8s.io/name", "ds")],
                Some(("StatefulSet", "ds-0")),
                ("LeaderWorkerSet", "ds"),
            ),
            (
                vec![("ray.io/cluster", "tune")],
                Some(("RayCluster", "tune")),
                ("RayCluster", "tune"),
            ),
            (vec![], None, ("Pod", "p-0")),
        ] {
            let key = WorkloadKey::of_pod(&pod(&labels, owner), None);
            assert_eq!((&*key.kind, &*key.name), expected);
        }
    }

    #[test]
    fn an_object_that_owns_itself_is_its_own_workload() {
        let mut p = pod(&[], Some(("Pod", "p-0")));
        p.meta.uid = Uid("o".into());
        assert_eq!(&*WorkloadKey::of_pod(&p, None).kind, "Pod");
    }
}
