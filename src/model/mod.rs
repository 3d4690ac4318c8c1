//! What gpudeck knows of a cluster: slim types, and the folding of changes into one picture.
//!
//! Pure: no I/O, no wall clock. `Delta` comes in, `Cluster` holds the picture, `Figures` are the
//! numbers that both the console and `gpudeck snapshot` print.

mod budget;
mod change_log;
mod claim;
mod cluster;
mod condition;
mod decision;
mod delta;
mod devices;
mod event;
mod fabric;
mod fault;
mod figures;
mod foreign;
mod gpu;
mod gpu_name;
mod gpu_node;
mod job;
mod meta;
mod mig_layout;
mod node;
mod node_labels;
mod node_use;
mod pod;
mod pricing;
mod published;
mod quantity;
mod queue;
mod rank;
mod resources;
mod telemetry;
mod text;
mod tier;
mod tier_figure;
mod unreadable;
mod workload;
mod workload_entry;
mod xid;

pub use budget::DisruptionBudget;
pub use claim::{ClaimedDevice, ResourceClaim, known_device};
pub use cluster::{Cluster, Known};
pub use condition::Condition;
pub use decision::{Decision, DecisionKind, FilterCount, Reason};
pub use delta::{Change, Delta, Gone, Kind, SourceReport, SourceState};
pub use devices::{DeviceSource, Holder, KnownDevice, KnownInstance};
pub use event::{Event, Severity};
pub use fabric::{
    BoardGroup, FabricRules, GpuPort, HyperNode, HyperNodes, LabelLevels, Link, LinkMatrix,
    Members, NamedPlace, NodeLinks, Place, Switch, TopoTable, groups as board_groups,
};
pub use fault::NodeFault;
pub use figures::{Figures, MigFigure, ModelFigure, NamespaceFigure, NodePart};
pub use foreign::{
    Admitter, AdmitterQueue, EntryState, Foreign, ForeignApi, ForeignBody, ForeignId, ForeignJob,
    ForeignKind, QueueEntry, QueueKey, QueueState, QueueTally, QueueTerm,
};
pub use gpu::{GpuModel, GpuResource, MigProfile, MigProfileError};
pub use gpu_node::GpuNode;
pub use job::{Job, Namespace, PriorityClass, VolumeClaim, VolumeTopology};
pub use meta::{Meta, Owner, ResourceVersion, Uid};
pub use node::{
    MigConfigState, MigStrategy, Node, NodeGpus, Readiness, Sharing, Taint, TaintEffect,
};
pub use node_labels::NodeLabels;
pub use node_use::{GpuCell, GpuPods, MigCount, MigInstance, NodeUse};
pub use pod::{
    Affinity, Constraints, HostPort, MatchExpression, Operator, Phase, Pod, Selector, SelectorTerm,
    Toleration,
};
pub use pricing::{Price, Pricing, Rate, TierRule};
pub use published::{DeviceTaint, DeviceTaintEffect, Published, PublishedDevice, PublishedSlice};
pub use quantity::{Quantity, QuantityError};
pub use queue::{
    OUR_SCHEDULER, QUEUE_KIND, Queue, QueuePreemption, QueueStatus, QueueTerms, QueueUse,
    ReclaimFrom,
};
pub use rank::Rank;
pub use resources::{ContainerAsk, Resources, pod_requests};
pub use telemetry::{
    ActivityBy, GpuReading, InstanceReading, Measured, NodeTelemetry, PodName, TelemetryLog,
};
pub use text::{Str, clean, natural_key, truncate_middle};
pub use tier::{Tier, TierSource};
pub use tier_figure::{Money, TierFigure};
pub use workload::{GroupName, WorkloadKey, WorkloadState};
pub use workload_entry::WorkloadRow;
pub use xid::{Xid, XidClass};
