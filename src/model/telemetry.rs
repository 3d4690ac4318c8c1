//! What the GPUs of a node measure, as dcgm-exporter tells it.

use jiff::Timestamp;

use super::gpu::MigProfile;
use super::text::Str;

/// A pod by name: all that an exporter tells of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodName {
    /// Namespace.
    pub namespace: Str,
    /// Name.
    pub name: Str,
}

impl PodName {
    /// Whether it is this pod's.
    pub fn is(&self, pod: &super::pod::Pod) -> bool {
        self.namespace == pod.meta.namespace && self.name == pod.meta.name
    }
}

/// Which counter tells how busy a GPU is, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ActivityBy {
    /// Cycles in which a multiprocessor had work (`PROF_SM_ACTIVE`).
    Sm,
    /// Time in which the graphics engine was active (`PROF_GR_ENGINE_ACTIVE`).
    Engine,
    /// `GPU_UTIL`: some kernel ran, however small. Undefined under MIG and never used there.
    Utilisation,
}

impl ActivityBy {
    /// As the screen writes it.
    pub fn name(self) -> &'static str {
        match self {
            ActivityBy::Sm => "SM active",
            ActivityBy::Engine => "engine active",
            ActivityBy::Utilisation => "GPU utilisation",
        }
    }
}

/// What is measured of a whole GPU and of a MIG instance alike.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Share of the time or cycles in which it worked, 0 to 1.
    pub activity: Option<(f32, ActivityBy)>,
    /// Share of cycles of the tensor pipe, 0 to 1.
    pub tensor: Option<f32>,
    /// Share of cycles of the memory interface, 0 to 1.
    pub dram: Option<f32>,
    /// Memory in use, in MiB, without what the driver keeps.
    pub memory_used_mib: Option<u32>,
    /// Memory there is, in MiB, as far as the counters tell it: used, free and reserved.
    pub memory_total_mib: Option<u32>,
}

impl Measured {
    /// Share of its memory that is in use, 0 to 1.
    pub fn memory_share(&self) -> Option<f64> {
        let (used, total) = (self.memory_used_mib?, self.memory_total_mib?);
        (total > 0).then(|| (f64::from(used) / f64::from(total)).min(1.0))
    }
}

/// A MIG instance.
#[derive(Clone, PartialEq, Debug)]
pub struct InstanceReading {
    /// Id of the GPU instance; it does not tell where the instance lies.
    pub gi: u32,
    /// Profile; `None` when the exporter does not know it.
    pub profile: Option<MigProfile>,
    /// What is measured of it.
    pub measured: Measured,
    /// The pod that holds it.
    pub holder: Option<PodName>,
}

/// A GPU.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GpuReading {
    /// Index on its node.
    pub index: u32,
    /// UUID.
    pub uuid: Str,
    /// What is measured of the GPU as a whole; of a cut one, its instances by their share.
    pub measured: Measured,
    /// Temperature in °C.
    pub temperature_c: Option<f32>,
    /// Of its memory, in °C.
    pub memory_temperature_c: Option<f32>,
    /// Watts of the board; instances share it.
    pub power_watts: Option<f32>,
    /// MHz of the multiprocessors.
    pub sm_clock_mhz: Option<u32>,
    /// The last Xid since the driver was loaded; it never goes back to 0 by itself, and the same one
    /// again does not show. 0: none yet.
    pub last_xid: Option<u32>,
    /// Xids of the last minutes and how often, where the exporter counts them.
    pub recent_xids: Box<[(u32, u32)]>,
    /// A row of its memory could not be remapped.
    pub remap_failed: Option<bool>,
    /// Its MIG instances; empty for a whole GPU.
    pub instances: Box<[InstanceReading]>,
    /// Pods that hold the whole GPU, several where it is shared.
    pub holders: Box<[PodName]>,
}

impl GpuReading {
    /// Whether pods are told for it or its instances.
    pub fn tells_pods(&self) -> bool {
        !self.holders.is_empty() || self.instances.iter().any(|i| i.holder.is_some())
    }
}

/// What a node's GPUs measure, or why that is not known.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeTelemetry {
    /// The node.
    pub node: Str,
    /// When it was read, or not read.
    pub at: Timestamp,
    /// GPUs by rising index; or why there are none, in one sentence.
    pub gpus: Result<Box<[GpuReading]>, Str>,
}

impl NodeTelemetry {
    /// A GPU by its index.
    pub fn gpu(&self, index: u32) -> Option<&GpuReading> {
        self.gpus.as_ref().ok()?.iter().find(|g| g.index == index)
    }

    fn mean(&self, of: impl Fn(&GpuReading) -> Option<f64>) -> Option<f64> {
        let gpus = self.gpus.as_ref().ok()?;
        let known: Vec<f64> = gpus.iter().filter_map(of).collect();
        let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
        (count > 0).then(|| known.iter().sum::<f64>() / f64::from(count))
    }

    /// Mean activity of those GPUs that tell it, 0 to 1.
    pub fn activity(&self) -> Option<f64> {
        self.mean(|g| g.measured.activity.map(|(share, _)| f64::from(share)))
    }

    /// Mean share of memory in use, 0 to 1.
    pub fn memory_share(&self) -> Option<f64> {
        self.mean(|g| g.measured.memory_share())
    }

    fn most(&self, of: impl Fn(&GpuReading) -> Option<f32>) -> Option<f32> {
        let known = self.gpus.as_ref().ok()?.iter().filter_map(of);
        known.reduce(f32::max)
    }

    /// The hottest GPU, in °C.
    pub fn temperature_c(&self) -> Option<f32> {
        self.most(|g| g.temperature_c)
    }

    /// Watts of all GPUs that tell theirs.
    pub fn power_watts(&self) -> Option<f64> {
        let gpus = self.gpus.as_ref().ok()?;
        let known: Vec<f32> = gpus.iter().filter_map(|g| g.power_watts).collect();
        (!known.is_empty()).then(|| known.iter().map(|w| f64::from(*w)).sum())
    }
}

/// Samples of a node's activity that are kept.
const HISTORY: usize = 60;

/// The last readings of a node: what is known now, and its activity before.
#[derive(Clone, PartialEq, Debug)]
pub struct TelemetryLog {
    /// The latest reading.
    pub latest: std::sync::Arc<NodeTelemetry>,
    /// Activity in percent, oldest first; `None` where it was not known.
    pub history: std::collections::VecDeque<Option<u8>>,
}

impl TelemetryLog {
    /// Begins with a reading.
    pub(super) fn new(reading: std::sync::Arc<NodeTelemetry>) -> Self {
        let mut log = TelemetryLog {
            latest: reading.clone(),
            history: std::collections::VecDeque::new(),
        };
        log.take(reading);
        log
    }

    /// Takes the next reading. One that failed leaves the figures of the last one, which are old
    /// then and say so by their time.
    pub(super) fn take(&mut self, reading: std::sync::Arc<NodeTelemetry>) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let percent = reading
            .activity()
            .map(|share| (share.clamp(0.0, 1.0) * 100.0).round() as u8);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(percent);
        self.latest = reading;
    }
}
