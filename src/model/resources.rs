//! Amounts of compute, and how kube-scheduler counts what a pod asks for.
//!
//! Source: k8s.io/component-helpers/resource (PodRequests), KEP-753 (sidecars),
//! KEP-2837 (pod-level resources).

use super::text::Str;

/// An amount of each resource. Requests, allocatable and capacity use the same shape.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory in bytes, the unit that kube-scheduler compares.
    pub mem_bytes: i64,
    /// Local ephemeral storage in bytes.
    pub ephemeral_bytes: i64,
    /// Number of pods; only nodes state it.
    pub pods: i64,
    /// Extended resources (`nvidia.com/gpu`, `rdma/ib`, `hugepages-2Mi`, …), sorted by key.
    pub extended: Box<[(Str, i64)]>,
}

impl Resources {
    /// The amount of an extended resource; 0 when absent.
    pub fn extended(&self, key: &str) -> i64 {
        self.extended_if_stated(key).unwrap_or(0)
    }

    /// The amount of an extended resource if the object states it (an absent key and a zero are
    /// different things on a node).
    pub fn extended_if_stated(&self, key: &str) -> Option<i64> {
        let at = self
            .extended
            .binary_search_by(|(k, _)| (**k).cmp(key))
            .ok()?;
        self.extended.get(at).map(|(_, v)| *v)
    }

    /// Sets an extended resource.
    pub fn set_extended(&mut self, key: &Str, amount: i64) {
        let mut list = std::mem::take(&mut self.extended).into_vec();
        match list.binary_search_by(|(k, _)| k.cmp(key)) {
            Ok(at) => {
                if let Some(slot) = list.get_mut(at) {
                    slot.1 = amount;
                }
            }
            Err(at) => list.insert(at, (key.clone(), amount)),
        }
        self.extended = list.into();
    }

    fn combine(&mut self, other: &Resources, f: impl Fn(i64, i64) -> i64) {
        self.cpu_milli = f(self.cpu_milli, other.cpu_milli);
        self.mem_bytes = f(self.mem_bytes, other.mem_bytes);
        self.ephemeral_bytes = f(self.ephemeral_bytes, other.ephemeral_bytes);
        self.pods = f(self.pods, other.pods);
        for (key, amount) in &other.extended {
            self.set_extended(key, f(self.extended(key), *amount));
        }
    }

    /// Adds `other`, saturating.
    pub fn add(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_add);
    }

    /// The larger of both, resource by resource.
    pub fn max(&mut self, other: &Resources) {
        self.combine(other, i64::max);
    }
}

/// Sums of many amounts, wide enough that what was counted in can be taken out again exactly even
/// where a cluster states absurd amounts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    cpu_milli: i128,
    mem_bytes: i128,
    ephemeral_bytes: i128,
    pods: i128,
    /// Sorted by key.
    extended: Vec<(Str, i128)>,
}

impl Sums {
    /// Counts `amounts` in (`sign` 1) or out (-1).
    pub(super) fn count(&mut self, amounts: &Resources, sign: i128) {
        self.cpu_milli += sign * i128::from(amounts.cpu_milli);
        self.mem_bytes += sign * i128::from(amounts.mem_bytes);
        self.ephemeral_bytes += sign * i128::from(amounts.ephemeral_bytes);
        self.pods += sign * i128::from(amounts.pods);
        for (key, amount) in &amounts.extended {
            let part = sign * i128::from(*amount);
            match self.extended.binary_search_by(|(k, _)| k.cmp(key)) {
                Ok(at) => {
                    if let Some((_, sum)) = self.extended.get_mut(at) {
                        *sum += part;
                    }
                }
                Err(at) => self.extended.insert(at, (key.clone(), part)),
            }
        }
    }

    /// The sums as amounts; what is beyond them is the largest one.
    pub(super) fn narrow(&self) -> Resources {
        Resources {
            cpu_milli: narrow(self.cpu_milli),
            mem_bytes: narrow(self.mem_bytes),
            ephemeral_bytes: narrow(self.ephemeral_bytes),
            pods: narrow(self.pods),
            extended: self
                .extended
                .iter()
                .map(|(key, n)| (key.clone(), narrow(*n)))
                .collect(),
        }
    }
}

/// A wide sum as an amount, saturating.
pub(super) fn narrow(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

/// What one container asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerAsk {
    /// Its requests (limits stand in where a request is missing, as the API server defaults them).
    pub requests: Resources,
    /// An init container with `restartPolicy: Always` (a sidecar), which keeps running.
    pub sidecar: bool,
}

/// What a pod occupies on a node: the larger of what its containers and sidecars need together
/// and what each init container needs beside the sidecars started before it, with pod-level CPU
/// and memory in place of that where stated, plus overhead.
pub fn pod_requests(
    init: &[ContainerAsk],
    containers: &[ContainerAsk],
    pod_level: Option<&Resources>,
    overhead: Option<&Resources>,
) -> Resources {
    let mut total = Resources::default();
    for c in containers {
        total.add(&c.requests);
    }
    let mut sidecars = Resources::default();
    let mut init_peak = Resources::default();
    for c in init {
        if c.sidecar {
            total.add(&c.requests);
            sidecars.add(&c.requests);
            init_peak.max(&sidecars);
        } else {
            let mut with_sidecars = c.requests.clone();
            with_sidecars.add(&sidecars);
            init_peak.max(&with_sidecars);
        }
    }
    total.max(&init_peak);
    if let Some(level) = pod_level {
        // Only the resources that pod level supports: CPU, memory, huge pages.
        if level.cpu_milli > 0 {
            total.cpu_milli = level.cpu_milli;
        }
        if level.mem_bytes > 0 {
            total.mem_bytes = level.mem_bytes;
        }
        for (key, amount) in &level.extended {
            if key.starts_with("hugepages-") {
                total.set_extended(key, *amount);
            }
        }
    }
    if let Some(overhead) = overhead {
        total.add(overhead);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cpu_milli: i64, gpus: i64, sidecar: bool) -> ContainerAsk {
        let mut requests = Resources {
            cpu_milli,
            ..Resources::default()
        };
        if gpus > 0 {
            requests.set_extended(&"nvidia.com/gpu".into(), gpus);
        }
        ContainerAsk { requests, sidecar }
    }

    #[test]
    fn init_containers_run_one_by_one_and_sidecars_stay() {
        // Worked example of KEP-753: init 5, sidecar 1, init 3, container 2.
        let r = pod_requests(
            &[ask(5, 0, false), ask(1, 0, true), ask(3, 2, false)],
            &[ask(2, 1, false)],
            None,
            None,
        );
        assert_eq!(
            r.cpu_milli, 5,
            "init 1 alone (5) beats sidecar + init (4) and sidecar + main (3)"
        );
        assert_eq!(
            r.extended("nvidia.com/gpu"),
            2,
            "the init container's two GPUs"
        );
        let r = pod_requests(
            &[ask(1, 0, true), ask(9, 0, false)],
            &[ask(2, 1, false)],
            None,
            None,
        );
        assert_eq!(r.cpu_milli, 10);
    }

    #[test]
    fn pod_level_replaces_and_overhead_adds() {
        let level = Resources {
            cpu_milli: 700,
            ..Resources::default()
        };
        let overhead = Resources {
            cpu_milli: 250,
            mem_bytes: 10,
            ..Resources::default()
        };
        let r = pod_requests(
            &[],
            &[ask(500, 1, false), ask(500, 1, false)],
            Some(&level),
            Some(&overhead),
        );
        assert_eq!(
            (r.cpu_milli, r.mem_bytes, r.extended("nvidia.com/gpu")),
            (950, 10, 2)
        );
    }

    #[test]
    fn sums_saturate() {
        let r = pod_requests(
            &[],
            &[ask(i64::MAX, 0, false), ask(i64::MAX, 0, false)],
            None,
            None,
        );
        assert_eq!(r.cpu_milli, i64::MAX);
    }
}
