//! What a pod asks for, as far as packing is concerned.

/// A GPU model of the fleet, numbered by whoever builds the fleet; 63 at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ModelId(u8);

impl ModelId {
    /// Models that can be told apart.
    pub const LIMIT: usize = 64;

    /// The model with this number; `None` past [`Self::LIMIT`].
    #[must_use]
    pub fn new(number: usize) -> Option<Self> {
        let id = u8::try_from(number).ok()?;
        (number < Self::LIMIT).then_some(Self(id))
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// GPU models that a pod accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelSet(u64);

impl ModelSet {
    /// Any model.
    pub const ANY: Self = Self(u64::MAX);
    /// No model at all.
    pub const NONE: Self = Self(0);

    /// This set and one more.
    #[must_use]
    pub fn with(self, model: ModelId) -> Self {
        Self(self.0 | 1 << model.0)
    }

    /// This set and one less.
    #[must_use]
    pub fn without(self, model: ModelId) -> Self {
        Self(self.0 & !(1 << model.0))
    }

    /// The model is accepted.
    #[must_use]
    pub fn has(self, model: ModelId) -> bool {
        self.0 >> model.0 & 1 == 1
    }
}

/// What a pod asks for. Pods of one shape are alike to every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// MiB.
    pub mem_mib: i64,
    /// Devices; 0 for a pod without GPUs.
    pub gpus: u8,
    /// Thousandths of each device, 1 to 1000; 0 for a pod without GPUs. Less than 1000 only with
    /// one device.
    pub milli_gpu: u16,
    /// Models that it accepts.
    pub models: ModelSet,
}

impl Shape {
    /// Thousandths of a GPU over all its devices.
    #[must_use]
    pub fn total_milli_gpu(&self) -> i64 {
        i64::from(self.gpus) * i64::from(self.milli_gpu)
    }

    /// It shares a device.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.gpus == 1 && self.milli_gpu < 1000
    }
}
