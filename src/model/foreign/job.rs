//! What a person submitted, of any kind with a controller of its own.

use jiff::Timestamp;

use super::super::gpu::GpuResource;
use super::super::text::Str;
use super::super::workload::{WorkloadKey, WorkloadState};

/// A submitted job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignJob {
    /// The workload that it is.
    pub workload: WorkloadKey,
    /// The workload whose part it is: a JobSet's TrainJob, a RayCluster's RayJob.
    pub part_of: Option<WorkloadKey>,
    /// What it says of itself; `None`: its pods tell.
    pub state: Option<WorkloadState>,
    /// Why, in one clause.
    pub reason: Option<Str>,
    /// Devices that it asks for once it runs.
    pub asks: Box<[(GpuResource, i64)]>,
    /// Pods that it wants.
    pub pods: Option<u32>,
    /// The queue it names, as labels and fields name it.
    pub queue: Option<Str>,
    /// When it began.
    pub started: Option<Timestamp>,
    /// How often it began anew.
    pub restarts: u32,
}
