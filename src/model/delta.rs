//! The one stream that every consumer folds.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::budget::DisruptionBudget;
use super::claim::ResourceClaim;
use super::decision::Decision;
use super::event::Event;
use super::fabric::FabricRules;
use super::foreign::{Foreign, ForeignKind};
use super::gpu_node::GpuNode;
use super::job::{Job, Namespace, PriorityClass, VolumeClaim, VolumeTopology};
use super::meta::Uid;
use super::node::Node;
use super::pod::Pod;
use super::queue::Queue;
use super::telemetry::NodeTelemetry;
use super::text::Str;

/// The kinds that are watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// core/v1 Node.
    Node,
    /// core/v1 Pod.
    Pod,
    /// core/v1 Namespace.
    Namespace,
    /// batch/v1 Job.
    Job,
    /// core/v1 Event.
    Event,
    /// scheduling.k8s.io/v1 PriorityClass.
    PriorityClass,
    /// core/v1 PersistentVolumeClaim.
    VolumeClaim,
    /// core/v1 PersistentVolume.
    Volume,
    /// A kind of another system; not each cluster has it.
    Foreign(ForeignKind),
    /// resource.k8s.io/v1 ResourceClaim.
    ResourceClaim,
    /// gpudeck.dev/v1alpha1 GpuQueue. A server without that kind has no queues, which is no fault.
    GpuQueue,
    /// policy/v1 PodDisruptionBudget.
    Budget,
    /// gpudeck.dev/v1alpha1 GpuNode: what an agent on a node says of its GPUs. A server without that
    /// kind has no agents, which is no fault.
    GpuNode,
}

impl Kind {
    /// Those that every cluster has, in the order in which they are asked for.
    pub const ALL: [Kind; 8] = [
        Kind::Node,
        Kind::Namespace,
        Kind::PriorityClass,
        Kind::Pod,
        Kind::Job,
        Kind::Event,
        Kind::VolumeClaim,
        Kind::Volume,
    ];

    /// Those of other systems.
    pub fn foreign() -> impl Iterator<Item = Kind> {
        ForeignKind::ALL.iter().copied().map(Kind::Foreign)
    }

    /// Kinds that are asked for as well, and without which nothing is amiss: not every server has
    /// them, and not everybody may read them.
    pub const EXTRA: [Kind; 4] = [
        Kind::ResourceClaim,
        Kind::GpuQueue,
        Kind::Budget,
        Kind::GpuNode,
    ];

    /// The resource name in URLs and RBAC rules; with its API group where another system has the
    /// same name.
    pub fn resource(self) -> &'static str {
        match self {
            Kind::Node => "nodes",
            Kind::Pod => "pods",
            Kind::Namespace => "namespaces",
            Kind::Job => "jobs",
            Kind::Event => "events",
            Kind::PriorityClass => "priorityclasses",
            Kind::VolumeClaim => "persistentvolumeclaims",
            Kind::Volume => "persistentvolumes",
            Kind::Foreign(kind) => kind.api().full_name,
            Kind::ResourceClaim => "resourceclaims",
            Kind::GpuQueue => "gpuqueues",
            Kind::Budget => "poddisruptionbudgets",
            Kind::GpuNode => "gpunodes",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource())
    }
}

/// Which object is gone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Gone {
    /// UID.
    pub uid: Uid,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Name.
    pub name: Str,
}

/// A change of one object.
#[derive(Clone, PartialEq, Debug)]
pub enum Change<T> {
    /// It exists and looks like this now.
    Set(Arc<T>),
    /// It does not exist any more.
    Gone(Gone),
}

/// How well a kind is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceState {
    /// The first list is under way.
    Loading {
        /// Objects read so far.
        read: usize,
    },
    /// Listed and watched.
    Live,
    /// Was known; the connection is lost since then. What is shown is that old.
    Stale {
        /// When the source was last heard.
        since: Timestamp,
        /// What went wrong, in words.
        why: Str,
    },
    /// The user may not list or watch it.
    Denied {
        /// The missing right and the server's words.
        why: Str,
    },
    /// The server does not have it, or only in versions that we do not read.
    Absent {
        /// Which, in words.
        why: Str,
    },
    /// Never known, and the server does not answer or answers what cannot be read.
    Failed {
        /// What went wrong, in words.
        why: Str,
    },
}

/// News of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceReport {
    /// The kind.
    pub kind: Kind,
    /// In one namespace only, when the user may not list it in all.
    pub namespace: Option<Str>,
    /// Its state.
    pub state: SourceState,
    /// When this was so, by the watcher's clock.
    pub at: Timestamp,
}

/// One step of the stream.
#[derive(Clone, PartialEq, Debug)]
pub enum Delta {
    /// A node.
    Node(Change<Node>),
    /// A pod.
    Pod(Change<Pod>),
    /// A namespace.
    Namespace(Change<Namespace>),
    /// A Job.
    Job(Change<Job>),
    /// An Event.
    Event(Change<Event>),
    /// A priority class.
    PriorityClass(Change<PriorityClass>),
    /// A PersistentVolumeClaim.
    VolumeClaim(Change<VolumeClaim>),
    /// A PersistentVolume.
    Volume(Change<VolumeTopology>),
    /// An object of another system.
    Foreign(ForeignKind, Change<Foreign>),
    /// A ResourceClaim.
    ResourceClaim(Change<ResourceClaim>),
    /// A GpuQueue.
    Queue(Change<Queue>),
    /// A PodDisruptionBudget.
    Budget(Change<DisruptionBudget>),
    /// A GpuNode.
    GpuNode(Change<GpuNode>),
    /// News of a source.
    Source(SourceReport),
    /// A decision of our scheduler.
    Decision(Arc<Decision>),
    /// What the GPUs of a node measure.
    Telemetry(Arc<NodeTelemetry>),
    /// What is stated of the fabric besides the labels of known families.
    Fabric(Arc<FabricRules>),
    /// An object that could not be read at all, in words that name it.
    Unreadable {
        /// Its kind.
        kind: Kind,
        /// What and why.
        what: Str,
    },
}
