//! Which kinds of other systems are read, and where they live in the API.

use std::fmt;

/// Who admits work: decides that it may start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Admitter {
    /// Our own scheduler, by GpuQueues.
    Gpudeck,
    /// Kueue.
    Kueue,
    /// Volcano.
    Volcano,
    /// KAI.
    Kai,
    /// The API server itself, by ResourceQuotas.
    Quota,
}

impl Admitter {
    /// All of them, in the order of the table.
    pub const ALL: [Admitter; 5] = [
        Admitter::Gpudeck,
        Admitter::Kueue,
        Admitter::Volcano,
        Admitter::Kai,
        Admitter::Quota,
    ];

    /// As screens and filters write it.
    pub fn name(self) -> &'static str {
        match self {
            Admitter::Gpudeck => "gpudeck",
            Admitter::Kueue => "kueue",
            Admitter::Volcano => "volcano",
            Admitter::Kai => "kai",
            Admitter::Quota => "quota",
        }
    }

    /// The kinds that its queues and their work are read from, the queues first.
    pub fn kinds(self) -> &'static [ForeignKind] {
        match self {
            Admitter::Gpudeck => &[],
            Admitter::Kueue => &[
                ForeignKind::KueueClusterQueue,
                ForeignKind::KueueLocalQueue,
                ForeignKind::KueueCohort,
                ForeignKind::KueueWorkload,
            ],
            Admitter::Volcano => &[ForeignKind::VolcanoQueue, ForeignKind::VolcanoPodGroup],
            Admitter::Kai => &[ForeignKind::KaiQueue, ForeignKind::KaiPodGroup],
            Admitter::Quota => &[ForeignKind::ResourceQuota],
        }
    }
}

impl fmt::Display for Admitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a kind lives in the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignApi {
    /// API group, empty for core.
    pub group: &'static str,
    /// Versions that we read, the preferred one first.
    pub versions: &'static [&'static str],
    /// Plural name, as in URLs.
    pub plural: &'static str,
    /// `kind` of its objects.
    pub kind: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// As kubectl names it beyond doubt: `queues.scheduling.run.ai`.
    pub full_name: &'static str,
}

macro_rules! kinds {
    ($( $(#[$doc:meta])* $id:ident = $group:literal $versions:expr, $plural:literal, $kind:literal,
        $namespaced:literal, $full:literal; )*) => {
        /// A kind of another system.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ForeignKind { $( $(#[$doc])* $id, )* }

        impl ForeignKind {
            /// All of them.
            pub const ALL: &'static [ForeignKind] = &[ $( ForeignKind::$id, )* ];

            /// Where it lives in the API.
            pub fn api(self) -> ForeignApi {
                match self {
                    $( ForeignKind::$id => ForeignApi {
                        group: $group,
                        versions: &$versions,
                        plural: $plural,
                        kind: $kind,
                        namespaced: $namespaced,
                        full_name: $full,
                    }, )*
                }
            }
        }
    };
}

kinds! {
    /// Kueue: quota of a team, by flavor.
    KueueClusterQueue = "kueue.x-k8s.io" ["v1beta2", "v1beta1"], "clusterqueues", "ClusterQueue", false, "clusterqueues.kueue.x-k8s.io";
    /// Kueue: a namespace's door to a ClusterQueue.
    KueueLocalQueue = "kueue.x-k8s.io" ["v1beta2", "v1beta1"], "localqueues", "LocalQueue", true, "localqueues.kueue.x-k8s.io";
    /// Kueue: ClusterQueues that lend to each other.
    KueueCohort = "kueue.x-k8s.io" ["v1beta2", "v1beta1", "v1alpha1"], "cohorts", "Cohort", false, "cohorts.kueue.x-k8s.io";
    /// Kueue: a piece of work.
    KueueWorkload = "kueue.x-k8s.io" ["v1beta2", "v1beta1"], "workloads", "Workload", true, "workloads.kueue.x-k8s.io";
    /// Volcano: a queue.
    VolcanoQueue = "scheduling.volcano.sh" ["v1beta1"], "queues", "Queue", false, "queues.scheduling.volcano.sh";
    /// Volcano: a gang.
    VolcanoPodGroup = "scheduling.volcano.sh" ["v1beta1"], "podgroups", "PodGroup", true, "podgroups.scheduling.volcano.sh";
    /// KAI: a queue.
    KaiQueue = "scheduling.run.ai" ["v2"], "queues", "Queue", false, "queues.scheduling.run.ai";
    /// KAI: a gang.
    KaiPodGroup = "scheduling.run.ai" ["v2alpha2"], "podgroups", "PodGroup", true, "podgroups.scheduling.run.ai";
    /// core/v1 ResourceQuota.
    ResourceQuota = "" ["v1"], "resourcequotas", "ResourceQuota", true, "resourcequotas";
    /// JobSet.
    JobSet = "jobset.x-k8s.io" ["v1", "v1alpha2"], "jobsets", "JobSet", true, "jobsets.jobset.x-k8s.io";
    /// LeaderWorkerSet.
    LeaderWorkerSet = "leaderworkerset.x-k8s.io" ["v1"], "leaderworkersets", "LeaderWorkerSet", true, "leaderworkersets.leaderworkerset.x-k8s.io";
    /// Kubeflow Trainer.
    TrainJob = "trainer.kubeflow.org" ["v1", "v1beta1", "v1alpha1"], "trainjobs", "TrainJob", true, "trainjobs.trainer.kubeflow.org";
    /// Kubeflow Training Operator.
    PyTorchJob = "kubeflow.org" ["v1"], "pytorchjobs", "PyTorchJob", true, "pytorchjobs.kubeflow.org";
    /// Kubeflow Training Operator.
    TfJob = "kubeflow.org" ["v1"], "tfjobs", "TFJob", true, "tfjobs.kubeflow.org";
    /// Kubeflow Training Operator.
    XgboostJob = "kubeflow.org" ["v1"], "xgboostjobs", "XGBoostJob", true, "xgboostjobs.kubeflow.org";
    /// Kubeflow Training Operator.
    PaddleJob = "kubeflow.org" ["v1"], "paddlejobs", "PaddleJob", true, "paddlejobs.kubeflow.org";
    /// Kubeflow Training Operator.
    JaxJob = "kubeflow.org" ["v1"], "jaxjobs", "JAXJob", true, "jaxjobs.kubeflow.org";
    /// MPI Operator.
    MpiJob = "kubeflow.org" ["v2beta1", "v1"], "mpijobs", "MPIJob", true, "mpijobs.kubeflow.org";
    /// KubeRay: a job with its own cluster.
    RayJob = "ray.io" ["v1", "v1alpha1"], "rayjobs", "RayJob", true, "rayjobs.ray.io";
    /// KubeRay: a service.
    RayService = "ray.io" ["v1", "v1alpha1"], "rayservices", "RayService", true, "rayservices.ray.io";
    /// KubeRay: a cluster.
    RayCluster = "ray.io" ["v1", "v1alpha1"], "rayclusters", "RayCluster", true, "rayclusters.ray.io";
    /// Volcano's own Job.
    VolcanoJob = "batch.volcano.sh" ["v1alpha1"], "jobs", "Job", true, "jobs.batch.volcano.sh";
    /// DRA: what a driver has on a node.
    ResourceSlice = "resource.k8s.io" ["v1", "v1beta2", "v1beta1"], "resourceslices", "ResourceSlice", false, "resourceslices.resource.k8s.io";
}

impl ForeignKind {
    /// What workloads of this kind are called on the screen: as the API does, except where that
    /// name is another kind's too.
    pub fn workload_kind(self) -> &'static str {
        match self {
            ForeignKind::VolcanoJob => "VolcanoJob",
            other => other.api().kind,
        }
    }

    /// The kind whose workloads are called so.
    pub fn of_workload(name: &str) -> Option<Self> {
        ForeignKind::ALL
            .iter()
            .copied()
            .find(|k| k.is_job() && k.workload_kind() == name)
    }

    /// Whether its objects are what a person submits as a job.
    pub fn is_job(self) -> bool {
        self.admitter().is_none() && self != ForeignKind::ResourceSlice
    }

    /// The system whose queues it belongs to.
    pub fn admitter(self) -> Option<Admitter> {
        Admitter::ALL
            .into_iter()
            .find(|a| a.kinds().contains(&self))
    }
}
