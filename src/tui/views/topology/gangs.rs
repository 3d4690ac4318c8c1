//! Which gangs have pods where: what a branch holds of each, and whether the rest is elsewhere.

use ahash::AHashMap;

use crate::model::{Cluster, WorkloadKey};

/// Controllers whose pods need not be near each other.
const LOOSE: [&str; 5] = [
    "DaemonSet",
    "Deployment",
    "Pod",
    "ReplicaSet",
    "StatefulSet",
];

/// Pods with GPUs by gang: gang and pods, by rising gang.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Held(Vec<(u32, u32)>);

impl Held {
    /// Puts what was taken in together by gang.
    fn settle(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 += later.1;
            }
            same
        });
    }

    /// Pods of one gang.
    pub(super) fn of(&self, gang: u32) -> u32 {
        let at = self.0.binary_search_by_key(&gang, |(g, _)| *g);
        at.ok().and_then(|at| self.0.get(at)).map_or(0, |(_, n)| *n)
    }

    /// Gangs with their pods.
    pub(super) fn gangs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().copied()
    }
}

/// Numbers for workloads, and how many pods with GPUs each has bound.
#[derive(Default)]
pub(super) struct Gangs {
    numbers: AHashMap<WorkloadKey, u32>,
    keys: Vec<WorkloadKey>,
    totals: Vec<u32>,
}

impl Gangs {
    fn number(&mut self, key: &WorkloadKey) -> u32 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        self.keys.push(key.clone());
        self.numbers.insert(key.clone(), number);
        number
    }

    /// The number of a workload that has pods somewhere.
    pub(super) fn find(&self, key: &WorkloadKey) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// A workload by its number.
    pub(super) fn key(&self, gang: u32) -> Option<&WorkloadKey> {
        self.keys.get(gang as usize)
    }

    /// What the pods on a node belong to.
    pub(super) fn on_node(&mut self, node: &str, cluster: &Cluster) -> Held {
        let known = cluster.node(node).map(|(_, held)| held);
        let held = known.or_else(|| cluster.unknown_node(node).map(|(_, held)| held));
        let mut sum = Held::default();
        for uid in held.into_iter().flat_map(|held| &held.pods) {
            let asks = cluster
                .pod(uid)
                .is_some_and(|pod| pod.gpu_requests().next().is_some());
            let Some(key) = cluster.workload_of(uid).filter(|_| asks) else {
                continue;
            };
            if LOOSE.binary_search(&&*key.kind).is_err() {
                sum.0.push((self.number(key), 1));
            }
        }
        sum.settle();
        sum
    }

    /// Counts the pods of a node that has come.
    pub(super) fn enter(&mut self, held: &Held) {
        self.totals.resize(self.keys.len(), 0);
        for (gang, pods) in held.gangs() {
            if let Some(total) = self.totals.get_mut(gang as usize) {
                *total += pods;
            }
        }
    }

    /// Counts the pods of a node out that has gone.
    pub(super) fn leave(&mut self, held: &Held) {
        for (gang, pods) in held.gangs() {
            if let Some(total) = self.totals.get_mut(gang as usize) {
                *total = total.saturating_sub(pods);
            }
        }
    }

    /// Whether most numbers stand for workloads that are gone, so that it is time to begin anew.
    pub(super) fn is_worn(&self) -> bool {
        let live = self.totals.iter().filter(|n| **n > 0).count();
        self.keys.len() > 1_024 && live * 2 < self.keys.len()
    }

    /// Pods of a gang that are bound anywhere.
    pub(super) fn total_of(&self, gang: u32) -> u32 {
        self.totals.get(gang as usize).copied().unwrap_or(0)
    }

    /// Gangs of several pods that have one here, and how many of them have others elsewhere.
    pub(super) fn count(&self, held: impl Iterator<Item = (u32, u32)>) -> (u32, u32) {
        let (mut gangs, mut crossing) = (0, 0);
        for (gang, pods) in held {
            let total = self.total_of(gang);
            gangs += u32::from(total > 1);
            crossing += u32::from(total > pods);
        }
        (gangs, crossing)
    }
}

/// Adds up what many nodes hold. One outlives many sums, so that none has to look its gangs up.
#[derive(Default)]
pub(super) struct Tally {
    /// By gang.
    pods: Vec<u32>,
    /// Gangs that have some.
    there: Vec<u32>,
}

impl Tally {
    /// What the nodes hold together, in no order; forgotten with the next sum.
    pub(super) fn of<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a Held>,
    ) -> impl Iterator<Item = (u32, u32)> {
        for gang in self.there.drain(..) {
            if let Some(pods) = self.pods.get_mut(gang as usize) {
                *pods = 0;
            }
        }
        for (gang, pods) in nodes.flat_map(Held::gangs) {
            let at = gang as usize;
            if at >= self.pods.len() {
                self.pods.resize(at + 1, 0);
            }
            let Some(sum) = self.pods.get_mut(at) else {
                continue;
            };
            if *sum == 0 {
                self.there.push(gang);
            }
            *sum += pods;
        }
        let pods = |gang: &u32| self.pods.get(*gang as usize).copied();
        self.there
            .iter()
            .map(move |gang| (*gang, pods(gang).unwrap_or(0)))
    }
}
