//! Which of a job's pods a pod is.
//!
//! Labels: batch/v1 Indexed Jobs and StatefulSets, JobSet, Kubeflow, LeaderWorkerSet, KubeRay,
//! Volcano.

use std::fmt;

use super::pod::Pod;
use super::text::Str;

/// The place of a pod in its job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank {
    /// Its role, where the job has several: `worker`, `master`, a replicated job's name.
    pub role: Option<Str>,
    /// Number of its group, where the job has several.
    pub group: Option<u32>,
    /// Its number.
    pub index: Option<u32>,
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        if let Some(role) = &self.role {
            f.write_str(role)?;
            before = " ";
        }
        if let Some(group) = self.group {
            write!(f, "{before}{group}")?;
            before = ".";
        }
        match self.index {
            Some(index) => write!(f, "{before}{index}"),
            None => Ok(()),
        }
    }
}

impl Pod {
    /// Its place in its job, as its labels tell; `None` when they do not.
    pub fn rank(&self) -> Option<Rank> {
        let text = |key: &str| {
            self.meta
                .label(key)
                .filter(|v| !v.is_empty())
                .map(Str::from)
        };
        let number = |key: &str| -> Option<u32> {
            let value = self.meta.label(key).or_else(|| self.meta.annotation(key))?;
            value.parse().ok()
        };
        let completion = || number("batch.kubernetes.io/job-completion-index");
        let rank = if let Some(role) = text("jobset.sigs.k8s.io/replicatedjob-name") {
            Rank {
                role: Some(role),
                group: number("jobset.sigs.k8s.io/job-index"),
                index: completion(),
            }
        } else if let Some(role) = text("training.kubeflow.org/replica-type")
            .or_else(|| text("training.kubeflow.org/job-role"))
        {
            Rank {
                role: Some(role),
                group: None,
                index: number("training.kubeflow.org/replica-index"),
            }
        } else if let Some(group) = number("leaderworkerset.sigs.k8s.io/group-index") {
            Rank {
                role: None,
                group: Some(group),
                index: number("leaderworkerset.sigs.k8s.io/worker-index"),
            }
        } else if let Some(role) = text("ray.io/group") {
            Rank {
                role: Some(role),
                group: None,
                index: number("ray.io/replica-index").or_else(|| number("replica-index")),
            }
        } else if let Some(role) = text("volcano.sh/task-spec") {
            Rank {
                role: Some(role),
                group: None,
                index: number("volcano.sh/task-index"),
            }
        } else {
            Rank {
                role: None,
                group: None,
                index: Some(completion().or_else(|| number("apps.kubernetes.io/pod-index"))?),
            }
        };
        Some(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::super::meta::Meta;
    use super::*;

    #[test]
    fn by_the_labels_of_each_kind_of_job() {
        for (labels, wanted) in [
            (
                &[("batch.kubernetes.io/job-completion-index", "3")][..],
                Some("3"),
            ),
            (
                &[
                    ("batch.kubernetes.io/job-completion-index", "7"),
                    ("jobset.sigs.k8s.io/replicatedjob-name", "workers"),
                    ("jobset.sigs.k8s.io/job-index", "1"),
                ],
                Some("workers 1.7"),
            ),
            (
                &[
                    ("training.kubeflow.org/replica-type", "worker"),
                    ("training.kubeflow.org/replica-index", "0"),
                ],
                Some("worker 0"),
            ),
            (
                &[("training.kubeflow.org/job-role", "launcher")],
                Some("launcher"),
            ),
            (
                &[
                    ("leaderworkerset.sigs.k8s.io/group-index", "2"),
                    ("leaderworkerset.sigs.k8s.io/worker-index", "5"),
                ],
                Some("2.5"),
            ),
            (&[("ray.io/group", "h100")], Some("h100")),
            (
                &[
                    ("volcano.sh/task-spec", "worker"),
                    ("volcano.sh/task-index", "1"),
                ],
                Some("worker 1"),
            ),
            (&[("apps.kubernetes.io/pod-index", "4")], Some("4")),
            (&[("batch.kubernetes.io/job-completion-index", "x")], None),
            (&[], None),
        ] {
            let mut labels: Vec<(Str, Str)> = labels
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect();
            labels.sort();
            let meta = Meta {
                labels: labels.into(),
                ..Meta::default()
            };
            let pod = Pod {
                meta,
                ..Pod::default()
            };
            assert_eq!(pod.rank().map(|r| r.to_string()).as_deref(), wanted);
        }
    }
}
