//! What the pods on a node hold of it, and the node's GPUs drawn as cells.

use std::collections::BTreeMap;

use super::gpu::{GpuResource, MigProfile};
use super::meta::Uid;
use super::mig_layout::lay_out;
use super::node::{MigStrategy, Node, Sharing};
use super::pod::Pod;
use super::resources::{Resources, Sums};
use super::text::Str;

/// Sum of the requests of the live pods that are bound to one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeUse {
    /// Requests, `pods` being their number; a sum beyond 64 bits is the largest number.
    pub requests: Resources,
    sums: Sums,
    /// The pods, by UID.
    pub pods: std::collections::BTreeSet<Uid>,
    /// Those of them that ask for GPUs.
    pub gpu_pods: GpuPods,
}

/// Pods with GPUs, summed up: to look at each of them takes too long on a large cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GpuPods {
    /// Devices asked for, by namespace.
    devices: BTreeMap<Str, i128>,
    /// Pods that state since when they run, and the sum of those times in seconds since 1970.
    started: (i128, i128),
}

impl GpuPods {
    fn count(&mut self, pod: &Pod, sign: i128) {
        let asked = pod.gpu_requests().map(|(_, n)| i128::from(n));
        let asked: i128 = asked.sum();
        if asked == 0 {
            return;
        }
        let namespace = &pod.meta.namespace;
        let devices = self.devices.entry(namespace.clone()).or_default();
        *devices += sign * asked;
        if *devices <= 0 {
            self.devices.remove(namespace);
        }
        if let Some(since) = pod.started.or(pod.meta.created) {
            self.started.0 += sign;
            self.started.1 += sign * i128::from(since.as_second());
        }
    }

    /// Devices that pods ask for, by namespace.
    pub fn devices(&self) -> impl Iterator<Item = (&Str, u32)> {
        let narrow = |n: i128| u32::try_from(n.max(0)).unwrap_or(u32::MAX);
        self.devices.iter().map(move |(ns, n)| (ns, narrow(*n)))
    }

    /// Whether no pod asks for any.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// How many pods state since when they run, and when they began on average, in seconds since
    /// 1970.
    pub fn started(&self) -> Option<(u32, i64)> {
        let (pods, sum) = self.started;
        let mean = sum.checked_div(pods)?;
        Some((u32::try_from(pods).ok()?, i64::try_from(mean).ok()?))
    }
}

/// A MIG profile's count on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigCount {
    /// Profile.
    pub profile: MigProfile,
    /// Instances that exist.
    pub capacity: u32,
    /// Instances that may be given out.
    pub allocatable: u32,
    /// Instances that pods hold.
    pub used: u32,
}

/// A MIG instance as drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigInstance {
    /// Profile.
    pub profile: MigProfile,
    /// Width in memory slices.
    pub width: u8,
    /// Whether a pod holds it.
    pub used: bool,
    /// Whether no pod holds it and the kubelet does not give it out.
    pub sick: bool,
    /// The memory slice that it starts at.
    pub start: u8,
    /// Whether that is known; else it is a place where it could be.
    pub told: bool,
    /// Id of the GPU instance, where an exporter tells it.
    pub gi: Option<u32>,
}

/// One physical GPU as drawn.
///
/// Which device a pod holds is not in the API objects that this is made of; cells show counts,
/// used ones first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GpuCell {
    /// Whole and free.
    Free,
    /// Whole and held by a pod.
    Used,
    /// Known to the kubelet but not given out, or counted by a label and not by the kubelet.
    Unhealthy,
    /// Shared by time-slicing or MPS: replicas held and offered.
    Shared {
        /// Replicas held.
        used: u32,
        /// Replicas that exist.
        of: u32,
    },
    /// Cut by MIG.
    Mig {
        /// Its instances.
        instances: Vec<MigInstance>,
        /// Memory slices of the GPU.
        slices: u8,
    },
}

impl GpuCell {
    /// The part of the GPU that pods hold, 0 to 1, by memory slices or replicas.
    pub fn used_share(&self) -> f64 {
        match self {
            GpuCell::Free | GpuCell::Unhealthy => 0.0,
            GpuCell::Used => 1.0,
            GpuCell::Shared { used, of } => (f64::from(*used) / f64::from((*of).max(1))).min(1.0),
            GpuCell::Mig { .. } => self.mig_share(|i| i.used),
        }
    }

    /// The part that nobody holds and that is not given out because it is unhealthy.
    pub fn sick_share(&self) -> f64 {
        match self {
            GpuCell::Unhealthy => 1.0,
            GpuCell::Mig { .. } => self.mig_share(|i| i.sick && !i.used),
            GpuCell::Free | GpuCell::Used | GpuCell::Shared { .. } => 0.0,
        }
    }

    /// The part that the layout leaves out: memory slices that belong to no MIG instance.
    pub fn stranded_share(&self) -> f64 {
        match self {
            GpuCell::Mig { .. } => 1.0 - self.mig_share(|_| true),
            _ => 0.0,
        }
    }

    fn mig_share(&self, counts: impl Fn(&MigInstance) -> bool) -> f64 {
        let GpuCell::Mig { instances, slices } = self else {
            return 0.0;
        };
        let counted = instances.iter().filter(|i| counts(i));
        let width: u32 = counted.map(|i| u32::from(i.width)).sum();
        (f64::from(width) / f64::from((*slices).max(1))).min(1.0)
    }
}

fn count(n: i64) -> u32 {
    u32::try_from(n.max(0)).unwrap_or(u32::MAX)
}

/// More cells than any machine has: a hostile count must not allocate without bound.
const MAX_CELLS: u32 = 256;

impl NodeUse {
    /// Takes a pod's requests in.
    pub(super) fn add(&mut self, pod: &Pod) {
        if self.pods.insert(pod.meta.uid.clone()) {
            self.count(pod, 1);
        }
    }

    /// Takes a pod's requests out.
    pub(super) fn remove(&mut self, pod: &Pod) {
        if self.pods.remove(&pod.meta.uid) {
            self.count(pod, -1);
        }
    }

    fn count(&mut self, pod: &Pod, sign: i128) {
        self.sums.count(&pod.requests, sign);
        self.gpu_pods.count(pod, sign);
        if self.pods.is_empty() {
            // No zeros are left behind by keys that are gone.
            self.sums = Sums::default();
        }
        self.requests = self.sums.narrow();
        self.requests.pods = i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
    }

    /// MIG profiles that the node shows as resources of their own; rows with neither capacity nor
    /// use (left behind by a re-partition) are dropped.
    pub fn mig(&self, node: &Node) -> Vec<MigCount> {
        let mut rows: BTreeMap<MigProfile, MigCount> = BTreeMap::new();
        for (key, n) in &node.capacity.extended {
            let Some(GpuResource::Mig(profile)) = GpuResource::from_key(key) else {
                continue;
            };
            let row = rows.entry(profile.clone()).or_insert(MigCount {
                profile,
                capacity: 0,
                allocatable: 0,
                used: 0,
            });
            let add = |sum: &mut u32, n: i64| *sum = sum.saturating_add(count(n));
            add(&mut row.capacity, *n);
            add(&mut row.allocatable, node.allocatable.extended(key));
            add(&mut row.used, self.requests.extended(key));
        }
        rows.into_values()
            .filter(|r| r.capacity > 0 || r.used > 0)
            .collect()
    }

    /// The node's physical GPUs as cells; empty when the node has none or their number is unknown.
    pub fn cells(&self, node: &Node) -> Vec<GpuCell> {
        let gpus = &node.gpus;
        let Some(physical) = gpus.count.map(|n| n.min(MAX_CELLS)) else {
            return Vec::new();
        };
        let key = if node
            .capacity
            .extended_if_stated("nvidia.com/gpu.shared")
            .is_some()
        {
            "nvidia.com/gpu.shared"
        } else {
            "nvidia.com/gpu"
        };
        let capacity = count(node.capacity.extended(key));
        let healthy = count(node.allocatable.extended(key));
        let used = count(self.requests.extended(key));
        if let (Some(MigStrategy::Single), Some(profile)) = (gpus.strategy, &gpus.single_profile) {
            let row = MigCount {
                profile: profile.clone(),
                capacity,
                allocatable: healthy,
                used,
            };
            return self.mig_cells(node, physical, &[row]);
        }
        if gpus.sharing != Sharing::None || key == "nvidia.com/gpu.shared" {
            let per_gpu = gpus.replicas.max(1);
            return (0..physical)
                .map(|i| GpuCell::Shared {
                    used: used.saturating_sub(i.saturating_mul(per_gpu)).min(per_gpu),
                    of: per_gpu,
                })
                .collect();
        }
        let mig = self.mig(node);
        let cut = if mig.is_empty() {
            0
        } else {
            physical.saturating_sub(capacity)
        };
        let whole = physical - cut;
        let mut cells: Vec<GpuCell> = (0..whole)
            .map(|i| {
                if i < used {
                    GpuCell::Used
                } else if i < healthy {
                    GpuCell::Free
                } else {
                    GpuCell::Unhealthy
                }
            })
            .collect();
        cells.extend(self.mig_cells(node, cut, &mig));
        cells
    }

    /// Deals MIG instances to `gpus` GPUs, widest first and evenly: the usual layouts are uniform.
    #[allow(clippy::unused_self)]
    fn mig_cells(&self, node: &Node, gpus: u32, rows: &[MigCount]) -> Vec<GpuCell> {
        let Some(model) = &node.gpus.model else {
            return vec![GpuCell::Unhealthy; gpus as usize];
        };
        let slices = model.memory_slices();
        let mut dealt: Vec<Vec<MigInstance>> = vec![Vec::new(); gpus as usize];
        let mut sorted: Vec<(u8, &MigCount)> = rows
            .iter()
            .map(|r| (r.profile.memory_slices(model, node.gpus.memory_mib), r))
            .collect();
        sorted.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.profile.cmp(&b.1.profile)));
        for (width, row) in sorted {
            let total = row.capacity.min(gpus * u32::from(slices));
            for i in 0..total {
                let fits = |g: &Vec<MigInstance>| {
                    g.iter().map(|x| u32::from(x.width)).sum::<u32>() + u32::from(width)
                        <= u32::from(slices)
                };
                let fewest = dealt
                    .iter_mut()
                    .filter(|g| fits(g))
                    .min_by_key(|g| g.iter().filter(|x| x.profile == row.profile).count());
                let Some(gpu) = fewest else { break };
                gpu.push(MigInstance {
                    profile: row.profile.clone(),
                    width,
                    used: i < row.used,
                    sick: i >= row.used && i >= row.allocatable,
                    start: 0,
                    told: false,
                    gi: None,
                });
            }
        }
        dealt
            .into_iter()
            .map(|mut instances| {
                lay_out(&mut instances, model);
                GpuCell::Mig { instances, slices }
            })
            .collect()
    }

    /// GPUs that pods hold, in whole-GPU equivalents (a slice counts by its memory slices).
    pub fn used_gpus(&self, node: &Node) -> f64 {
        self.cells(node).iter().map(GpuCell::used_share).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::meta::Meta;
    use super::super::node::NodeGpus;
    use super::super::text::Str;
    use super::*;

    fn node(
        labels: &[(&str, &str)],
        capacity: &[(&str, i64)],
        allocatable: &[(&str, i64)],
    ) -> Node {
        let mut labels: Vec<(Str, Str)> = labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        labels.sort();
        let meta = Meta {
            labels: labels.into(),
            ..Meta::default()
        };
        let fill = |pairs: &[(&str, i64)]| {
            let mut r = Resources::default();
            for (k, n) in pairs {
                r.set_extended(&(*k).into(), *n);
            }
            r
        };
        let (capacity, allocatable) = (fill(capacity), fill(allocatable));
        Node {
            gpus: NodeGpus::from_labels(&meta, &capacity),
            meta,
            capacity,
            allocatable,
            ..Node::default()
        }
    }

    fn holding(asks: &[(&str, i64)]) -> NodeUse {
        let mut requests = Resources::default();
        for (k, n) in asks {
            requests.set_extended(&(*k).into(), *n);
        }
        let mut held = NodeUse::default();
        held.add(&Pod {
            requests,
            ..Pod::default()
        });
        held
    }

    #[test]
    fn whole_gpus_used_free_and_unhealthy() {
        let n = node(
            &[("nvidia.com/gpu.count", "8")],
            &[("nvidia.com/gpu", 8)],
            &[("nvidia.com/gpu", 7)],
        );
        let cells = holding(&[("nvidia.com/gpu", 5)]).cells(&n);
        let of = |c: &GpuCell| cells.iter().filter(|x| *x == c).count();
        assert_eq!(
            (
                of(&GpuCell::Used),
                of(&GpuCell::Free),
                of(&GpuCell::Unhealthy)
            ),
            (5, 2, 1)
        );
    }

    #[test]
    fn mixed_mig_is_dealt_evenly_and_counts_by_slices() {
        let labels = [
            ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
            ("nvidia.com/gpu.count", "8"),
            ("nvidia.com/gpu.memory", "81559"),
            ("nvidia.com/mig.strategy", "mixed"),
        ];
        let sizes = [
            ("nvidia.com/gpu", 6),
            ("nvidia.com/mig-3g.40gb", 2),
            ("nvidia.com/mig-1g.10gb", 6),
        ];
        let n = node(&labels, &sizes, &sizes);
        let held = holding(&[("nvidia.com/gpu", 1), ("nvidia.com/mig-3g.40gb", 1)]);
        let cells = held.cells(&n);
        assert_eq!(cells.len(), 8);
        for cell in cells.iter().filter(|c| matches!(c, GpuCell::Mig { .. })) {
            let GpuCell::Mig { instances, .. } = cell else {
                continue;
            };
            assert_eq!(instances.len(), 4, "one 3g and three 1g each");
        }
        assert!((held.used_gpus(&n) - 1.5).abs() < 1e-9);
    }

    #[test]
    fn single_strategy_and_sharing() {
        let labels = [
            ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
            ("nvidia.com/gpu.count", "56"),
            ("nvidia.com/mig.strategy", "single"),
        ];
        let n = node(
            &labels,
            &[("nvidia.com/gpu", 56)],
            &[("nvidia.com/gpu", 56)],
        );
        assert_eq!(holding(&[("nvidia.com/gpu", 7)]).cells(&n).len(), 8);
        let n = node(
            &[
                ("nvidia.com/gpu.sharing-strategy", "time-slicing"),
                ("nvidia.com/gpu.replicas", "4"),
            ],
            &[("nvidia.com/gpu", 8)],
            &[("nvidia.com/gpu", 8)],
        );
        let cells = holding(&[("nvidia.com/gpu", 5)]).cells(&n);
        assert_eq!(
            cells,
            [
                GpuCell::Shared { used: 4, of: 4 },
                GpuCell::Shared { used: 1, of: 4 }
            ]
        );
    }

    #[test]
    fn stale_zero_rows_and_absurd_counts() {
        let zero = [("nvidia.com/mig-1g.10gb", 0), ("nvidia.com/gpu", 2)];
        assert!(NodeUse::default().mig(&node(&[], &zero, &zero)).is_empty());
        let n = node(
            &[("nvidia.com/gpu.count", "4000000000")],
            &[("nvidia.com/gpu", i64::MAX)],
            &[],
        );
        assert_eq!(NodeUse::default().cells(&n).len(), MAX_CELLS as usize);
    }
}
