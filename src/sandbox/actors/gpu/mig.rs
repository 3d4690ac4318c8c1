//! What mig-parted does to the GPUs of a node: change modes, clear and rebuild; and what a reboot
//! does to them.

use std::collections::{BTreeMap, BTreeSet};

use super::geometry::Profile;
use super::hardware::Machine;

/// What one GPU is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// MIG mode.
    pub mig: bool,
    /// Profiles with how many of each.
    pub profiles: BTreeMap<&'static str, u32>,
    /// Those that are cut into compute instances.
    pub split: BTreeSet<&'static str>,
}

/// The targets of the GPUs that a configuration matches, by index.
pub(super) type Targets = BTreeMap<u32, Target>;

/// Why mig-parted ends with an error, as its log would say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MigError {
    /// A process has a handle of what is to go.
    #[error("error destroying GPU instance {gi} of GPU {gpu}: In use by another client")]
    InstanceInUse {
        /// Index of the GPU.
        gpu: u32,
        /// Id of the instance.
        gi: u32,
    },
    /// A GPU of the node is in use, so that it cannot be reset.
    #[error("error resetting all GPUs: GPU {gpu} is currently in use by another process")]
    GpuInUse {
        /// Index of the GPU.
        gpu: u32,
    },
    /// The GPU is passed through to a virtual machine.
    #[error("error resetting all GPUs: Not Supported")]
    ResetNotSupported,
    /// The mode is not what it should be by now.
    #[error("cannot configure MIG devices on GPU {gpu}: MIG mode is {is}, not {wanted}")]
    WrongMode {
        /// Index of the GPU.
        gpu: u32,
        /// What it is.
        is: &'static str,
        /// What the configuration wants.
        wanted: &'static str,
    },
    /// The profiles do not fit together.
    #[error("error attempting multiple config orderings on GPU {gpu}: Insufficient Resources")]
    DoesNotFit {
        /// Index of the GPU.
        gpu: u32,
    },
}

impl Machine {
    /// Whether every GPU is what a configuration wants: each must be matched by an entry.
    pub(super) fn is(&self, targets: &Targets) -> bool {
        self.gpus.iter().all(|gpu| {
            let target = targets.get(&gpu.index);
            target.is_some_and(|target| gpu.mig == target.mig && gpu.layout() == target.profiles)
        })
    }

    /// Whether a matched GPU has another mode.
    pub(super) fn needs_mode_change(&self, targets: &Targets) -> bool {
        self.gpus.iter().any(|gpu| {
            let target = targets.get(&gpu.index);
            target.is_some_and(|target| target.mig != gpu.mig || target.mig != gpu.pending_mig)
        })
    }

    /// `mig-parted apply --mode-only`: when a mode differs, all instances of the matched GPUs go;
    /// when one needs a reset, all GPUs of the node are reset.
    pub(super) fn change_modes(
        &mut self,
        targets: &Targets,
        can_reset: bool,
    ) -> Result<(), MigError> {
        if !self.needs_mode_change(targets) {
            return Ok(());
        }
        for index in targets.keys() {
            self.clear(*index)?;
        }
        let needs_reset = self.model.mode_needs_reset;
        for (index, target) in targets {
            let in_use = self.in_use(*index);
            if let Some(gpu) = self.gpu_mut(*index) {
                gpu.pending_mig = target.mig;
                if !needs_reset && !in_use {
                    gpu.mig = target.mig;
                }
            }
        }
        if self.gpus.iter().all(|gpu| gpu.mig == gpu.pending_mig) {
            return Ok(());
        }
        self.reset_all(can_reset)
    }

    /// `nvidia-smi -r` without an index: all GPUs of the node, or none.
    fn reset_all(&mut self, can_reset: bool) -> Result<(), MigError> {
        if !can_reset {
            return Err(MigError::ResetNotSupported);
        }
        let mut indices = self.gpus.iter().map(|gpu| gpu.index);
        if let Some(gpu) = indices.find(|index| self.in_use(*index)) {
            return Err(MigError::GpuInUse { gpu });
        }
        for gpu in &mut self.gpus {
            gpu.mig = gpu.pending_mig;
            gpu.instances.clear();
        }
        Ok(())
    }

    /// The second stage: a GPU that is as wanted is left alone, any other is cleared and rebuilt.
    /// The first error ends it; what is done stays done.
    pub(super) fn rebuild(&mut self, targets: &Targets) -> Result<(), MigError> {
        for (index, target) in targets {
            let Some(gpu) = self.gpu_mut(*index) else {
                continue;
            };
            if gpu.mig != target.mig {
                let word = |on: bool| if on { "enabled" } else { "disabled" };
                return Err(MigError::WrongMode {
                    gpu: *index,
                    is: word(gpu.mig),
                    wanted: word(target.mig),
                });
            }
            if gpu.layout() == target.profiles {
                continue;
            }
            self.clear(*index)?;
            let wanted: Vec<&'static Profile> = target
                .profiles
                .iter()
                .filter_map(|(name, count)| Some((self.model.profile(name)?, *count)))
                .flat_map(|(profile, count)| (0..count).map(move |_| profile))
                .collect();
            let at = self.gpus.iter().position(|gpu| gpu.index == *index);
            if !self.make(at.unwrap_or(usize::MAX), &wanted, &target.split) {
                return Err(MigError::DoesNotFit { gpu: *index });
            }
        }
        Ok(())
    }

    /// Destroys the instances of a GPU in the order of NVML's profiles, until one is in use.
    fn clear(&mut self, index: u32) -> Result<(), MigError> {
        let profiles = self.model.profiles;
        for profile in profiles {
            let Some(gpu) = self.gpus.iter().find(|gpu| gpu.index == index) else {
                return Ok(());
            };
            let of_it = |gi: &&super::hardware::Instance| gi.profile.name == profile.name;
            let ids: Vec<u32> = gpu.instances.iter().filter(of_it).map(|i| i.gi).collect();
            for gi in ids {
                let users = |device: &super::plugin::Device| {
                    device.gpu == index && (device.gi.is_none() || device.gi == Some(gi))
                };
                if !self.devices.holders(users).is_empty() {
                    return Err(MigError::InstanceInUse { gpu: index, gi });
                }
                if let Some(gpu) = self.gpu_mut(index) {
                    gpu.instances.retain(|instance| instance.gi != gi);
                }
            }
        }
        Ok(())
    }

    fn in_use(&self, index: u32) -> bool {
        let holders = self.devices.holders(|device| device.gpu == index);
        !holders.is_empty()
    }

    /// The host restarts: no instance outlives it; the mode does on Ampere only, where a pending
    /// change takes effect; a GPU that fell off the bus is back.
    pub(super) fn reboot(&mut self) {
        let persists = self.model.mode_needs_reset;
        for gpu in &mut self.gpus {
            gpu.mig = gpu.pending_mig && persists;
            gpu.pending_mig = gpu.mig;
            gpu.instances.clear();
            gpu.lost = false;
            gpu.last_xid = 0;
            gpu.xids.clear();
        }
    }
}
