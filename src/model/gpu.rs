//! GPU names: models, device-plugin resources, MIG profiles.
//!
//! Sources: NVIDIA k8s-device-plugin (resource names, GFD labels), NVIDIA MIG user guide
//! (profiles and memory slices); AKS documents the spelling `nvidia.com/mig1g.5gb`.

use std::fmt;

use super::gpu_name;
use super::text::Str;

/// A GPU model as the cluster names it, e.g. `NVIDIA-H100-80GB-HBM3`, with a short form for
/// screens and filters (`H100-80`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GpuModel {
    short: Str,
    product: Str,
}

impl GpuModel {
    /// Reads a product label; sharing (`-SHARED`) and MIG (`-MIG-1g.10gb`) suffixes are not part
    /// of the model.
    pub fn from_product(product: &str) -> Self {
        Self::new(product, None)
    }

    /// Reads a product as some label names it; the memory of one GPU in MiB, where it is known,
    /// tells parts of one name apart (`h100` with 81,920 MiB is an `H100-80`).
    pub fn new(product: &str, memory_mib: Option<u32>) -> Self {
        let mut core = product.strip_suffix("-SHARED").unwrap_or(product);
        if let Some((model, _)) = core.split_once("-MIG-") {
            core = model;
        }
        GpuModel {
            short: gpu_name::short(core, memory_mib).into(),
            product: core.into(),
        }
    }

    /// The short form, e.g. `H100-80`, `L40S`, `RTX-PRO-6000`.
    pub fn short(&self) -> &str {
        &self.short
    }

    /// The product without sharing and MIG suffixes.
    pub fn product(&self) -> &str {
        &self.product
    }

    /// In how many memory slices the GPU is cut for MIG: 4 on A30, 12 on RTX PRO 6000, 8 on the
    /// data-centre parts from A100 on (NVIDIA MIG user guide, "Supported profiles").
    pub fn memory_slices(&self) -> u8 {
        if self.short.starts_with("A30") && !self.short.starts_with("A300") {
            4
        } else if self.short.starts_with("RTX-PRO") {
            12
        } else {
            8
        }
    }
}

impl GpuModel {
    /// Nominal memory of one GPU in GB: from the name's own suffix, else from NVIDIA's data sheets.
    pub fn nominal_memory_gb(&self) -> Option<u16> {
        if let Some((_, gb)) = self.short.rsplit_once('-')
            && let Ok(gb) = gb.parse::<u16>()
            && !self.short.starts_with("RTX")
        {
            return Some(gb);
        }
        match (&*self.short, gpu_name::sizes(&self.short)) {
            ("RTX-PRO-6000" | "GH200", _) => Some(96),
            (_, [gb]) => Some(*gb),
            _ => None,
        }
    }
}

impl fmt::Display for GpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short)
    }
}

/// A MIG profile, e.g. `1g.10gb`, `1g.10gb+me`, `1c.3g.40gb`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MigProfile {
    /// GPC (compute) slices, the `1` of `1g.10gb`.
    pub compute_slices: u8,
    /// Nominal memory in GB, the `10` of `1g.10gb`.
    pub memory_gb: u16,
    /// What follows, without separator: empty, `me`, `gfx`, `me.all`, `-me`.
    pub variant: Str,
}

/// Why a text is not a MIG profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MIG profile (like 1g.10gb or 1g.10gb+me)")]
pub struct MigProfileError(pub String);

impl std::str::FromStr for MigProfile {
    type Err = MigProfileError;

    fn from_str(text: &str) -> Result<Self, MigProfileError> {
        let refuse = || MigProfileError(super::text::clean(text, 40).into_owned());
        let mut rest = text;
        // A compute-instance split (1c.3g.40gb) has the geometry of its GPU instance.
        if let Some((ci, tail)) = rest.split_once('.')
            && ci
                .strip_suffix('c')
                .is_some_and(|n| n.parse::<u8>().is_ok())
        {
            rest = tail;
        }
        let (compute, rest) = rest.split_once("g.").ok_or_else(refuse)?;
        let (memory, variant) = rest.split_once("gb").ok_or_else(refuse)?;
        let compute_slices = compute.parse().map_err(|_| refuse())?;
        let memory_gb = memory.parse().map_err(|_| refuse())?;
        if compute_slices == 0 || memory_gb == 0 {
            return Err(refuse());
        }
        let variant = variant.strip_prefix(['+', '.']).unwrap_or(variant);
        if !variant
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-')
        {
            return Err(refuse());
        }
        Ok(MigProfile {
            compute_slices,
            memory_gb,
            variant: variant.into(),
        })
    }
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}g.{}gb", self.compute_slices, self.memory_gb)?;
        match &*self.variant {
            "" => Ok(()),
            v if v.starts_with('-') => f.write_str(v),
            v => write!(f, "+{v}"),
        }
    }
}

impl MigProfile {
    /// How many memory slices of `model` one instance takes.
    ///
    /// On 8-slice parts 3g takes 4 and 7g takes 8; a 1g of double memory takes 2 and is told from
    /// the plain one by its share of `gpu_memory_mib` (of the whole GPU, MiB) or of the model's
    /// nominal memory, where either is known.
    pub fn memory_slices(&self, model: &GpuModel, gpu_memory_mib: Option<u32>) -> u8 {
        let total = model.memory_slices();
        let by_compute = match (total, self.compute_slices) {
            (8, 3 | 4) => 4,
            (8, 7) => 8,
            (8, c) => c,
            (12, c) => c.saturating_mul(3),
            (_, c) => c,
        };
        let gpu_gb = gpu_memory_mib
            .map(|mib| f64::from(mib) / 1024.0)
            .or_else(|| model.nominal_memory_gb().map(f64::from));
        let width = match gpu_gb {
            Some(gb) if self.compute_slices == 1 && total == 8 => {
                if f64::from(self.memory_gb) * 8.0 / gb.max(1.0) > 1.6 {
                    2
                } else {
                    1
                }
            }
            _ => by_compute,
        };
        width.clamp(1, total)
    }

    /// How many instances of this profile fit one GPU of `model` (compute and memory both bound).
    pub fn max_per_gpu(&self, model: &GpuModel, gpu_memory_mib: Option<u32>) -> u8 {
        let by_memory = model.memory_slices() / self.memory_slices(model, gpu_memory_mib);
        let compute_total = match model.memory_slices() {
            8 => 7,
            _ => 4,
        };
        by_memory
            .min(compute_total / self.compute_slices.min(compute_total))
            .max(1)
    }
}

/// What a device-plugin resource key stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GpuResource {
    /// `nvidia.com/gpu`: a whole GPU, or a replica of one when the node shares without renaming,
    /// or a MIG device under strategy `single`.
    Whole,
    /// `nvidia.com/gpu.shared`: a time-slicing or MPS replica.
    Shared,
    /// `nvidia.com/mig-<profile>` (also `…​.shared`, and AKS' `nvidia.com/mig1g.5gb`).
    Mig(MigProfile),
}

impl GpuResource {
    /// Reads a resource key; `None` for keys that are no NVIDIA device.
    pub fn from_key(key: &str) -> Option<Self> {
        let name = key.strip_prefix("nvidia.com/")?;
        match name {
            "gpu" => return Some(GpuResource::Whole),
            "gpu.shared" => return Some(GpuResource::Shared),
            _ => {}
        }
        let profile = name.strip_prefix("mig")?;
        let profile = profile.strip_prefix('-').unwrap_or(profile);
        let profile = profile.strip_suffix(".shared").unwrap_or(profile);
        profile.parse().ok().map(GpuResource::Mig)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn short_names() {
        for (product, short) in [
            ("NVIDIA-H100-80GB-HBM3", "H100-80"),
            ("NVIDIA-A100-SXM4-40GB", "A100-40"),
            ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-40"),
            ("Tesla-T4-SHARED", "T4"),
            ("NVIDIA-L40S", "L40S"),
            ("NVIDIA-H200", "H200"),
            (
                "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
                "RTX-PRO-6000",
            ),
            ("V100M32", "V100M32"),
            ("NVIDIA A30", "A30"),
            ("", ""),
        ] {
            assert_eq!(GpuModel::from_product(product).short(), short, "{product}");
        }
    }

    #[test]
    fn profiles_in_every_spelling() {
        for (text, shown) in [
            ("1g.10gb", "1g.10gb"),
            ("1g.10gb+me", "1g.10gb+me"),
            ("1g.10gb.me", "1g.10gb+me"),
            ("1g.24gb-me", "1g.24gb-me"),
            ("1g.24gb.me.all", "1g.24gb+me.all"),
            ("1c.3g.40gb", "3g.40gb"),
        ] {
            assert_eq!(text.parse::<MigProfile>().unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "g.gb",
            "0g.10gb",
            "1g.10",
            "1g.99999999gb",
            "1g.10gb+\u{1b}",
        ] {
            assert!(bad.parse::<MigProfile>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys() {
        assert_eq!(
            GpuResource::from_key("nvidia.com/gpu"),
            Some(GpuResource::Whole)
        );
        assert_eq!(
            GpuResource::from_key("nvidia.com/gpu.shared"),
            Some(GpuResource::Shared)
        );
        for key in [
            "nvidia.com/mig-1g.12gb",
            "nvidia.com/mig1g.12gb",
            "nvidia.com/mig-1g.12gb.shared",
        ] {
            assert_eq!(
                GpuResource::from_key(key),
                Some(GpuResource::Mig("1g.12gb".parse().unwrap())),
                "{key}"
            );
        }
        for other in [
            "nvidia.com/gpumem",
            "cpu",
            "amd.com/gpu",
            "nvidia.com/mig-",
            "nvidia.com/mlnxnics",
        ] {
            assert_eq!(GpuResource::from_key(other), None, "{other}");
        }
    }

    #[test]
    fn widths_follow_the_mig_tables() {
        let h100 = GpuModel::from_product("NVIDIA-H100-80GB-HBM3");
        let a30 = GpuModel::from_product("NVIDIA-A30");
        let rtx = GpuModel::from_product("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition");
        for (model, mib, profile, width, max) in [
            (&h100, 81559, "1g.10gb", 1, 7),
            (&h100, 81559, "1g.20gb", 2, 4),
            (&h100, 81559, "2g.20gb", 2, 3),
            (&h100, 81559, "3g.40gb", 4, 2),
            (&h100, 81559, "4g.40gb", 4, 1),
            (&h100, 81559, "7g.80gb", 8, 1),
            (&a30, 24576, "1g.6gb", 1, 4),
            (&a30, 24576, "2g.12gb", 2, 2),
            (&a30, 24576, "4g.24gb", 4, 1),
            (&rtx, 97887, "1g.24gb", 3, 4),
            (&rtx, 97887, "2g.48gb", 6, 2),
            (&rtx, 97887, "4g.96gb", 12, 1),
        ] {
            let p: MigProfile = profile.parse().unwrap();
            assert_eq!(
                p.memory_slices(model, Some(mib)),
                width,
                "{model} {profile}"
            );
            assert_eq!(p.max_per_gpu(model, Some(mib)), max, "{model} {profile}");
        }
    }
}
