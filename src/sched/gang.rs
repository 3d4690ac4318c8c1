//! Which pods belong together, and how many of them are needed at once.

use crate::model::{Job, Pod, Reason, Str, Uid};

/// Annotation on a pod or its Job: how many must start together; `1` lets each start alone.
pub(super) const GANG_MIN: &str = "gpudeck.dev/gang-min";

/// What a gang is known by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum GangKey {
    /// A group that the pods name themselves.
    Group {
        /// Namespace.
        namespace: Str,
        /// Kind of the group.
        kind: Str,
        /// Name of the group.
        name: Str,
    },
    /// The batch Job that owns the pods.
    Job(Uid),
}

/// What a pod's `gpudeck.dev/gang-min` says: absent, a number, or what is wrong with it.
pub(super) fn gang_min(annotation: Option<&str>) -> Result<Option<u32>, Reason> {
    let Some(text) = annotation else {
        return Ok(None);
    };
    match text.parse::<u32>() {
        Ok(n) if n > 0 => Ok(Some(n)),
        _ => Err(Reason::Unsupported {
            what: format!("annotation {GANG_MIN}: {text:?} is not a whole number of at least 1")
                .into(),
        }),
    }
}

/// The gang that a pod may belong to. A group without a size is none; a Job of Volcano, which has
/// the same kind, is not ours to know.
pub(super) fn key_of(pod: &Pod) -> Option<GangKey> {
    let stated = pod.meta.annotation(GANG_MIN).is_some();
    if let Some(group) = &pod.group
        && (group.min_members.is_some() || stated)
    {
        return Some(GangKey::Group {
            namespace: pod.meta.namespace.clone(),
            kind: group.kind.clone(),
            name: group.name.clone(),
        });
    }
    pod.meta
        .controller()
        .filter(|o| &*o.kind == "Job" && pod.meta.label("volcano.sh/job-name").is_none())
        .map(|o| GangKey::Job(o.uid.clone()))
}

/// Pods of a Job that run at once: its parallelism, or what is left of its completions.
/// `succeeded` pods have ended well.
pub(super) fn job_size(job: &Job, succeeded: u32) -> u32 {
    let succeeded = succeeded.max(job.succeeded);
    match job.completions {
        Some(completions) => job.parallelism.min(completions.saturating_sub(succeeded)),
        // A work queue: once a pod has succeeded no new ones are made.
        None => job.parallelism.saturating_sub(succeeded),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    #[test]
    fn the_last_wave_of_a_job_is_smaller() {
        let job = |parallelism, completions, succeeded| Job {
            parallelism,
            completions,
            succeeded,
            ..Job::default()
        };
        for (job, succeeded, expected) in [
            (job(8, Some(8), 0), 0, 8),
            (job(8, Some(4), 0), 0, 4),
            (job(4, Some(6), 4), 0, 2),
            (job(4, Some(6), 1), 4, 2),
            (job(4, None, 0), 1, 3),
            (job(4, Some(0), 0), 0, 0),
            (job(u32::MAX, None, u32::MAX), 0, 0),
        ] {
            assert_eq!(job_size(&job, succeeded), expected, "{job:?} {succeeded}");
        }
    }

    #[test]
    fn a_wrong_minimum_is_told() {
        assert_eq!(gang_min(None), Ok(None));
        assert_eq!(gang_min(Some("3")), Ok(Some(3)));
        for bad in ["0", "-1", "two", "", "99999999999"] {
            let Err(Reason::Unsupported { what }) = gang_min(Some(bad)) else {
                panic!("{bad:?} was taken");
            };
            assert!(what.contains(&format!("{bad:?}")), "{what}");
        }
    }
}
