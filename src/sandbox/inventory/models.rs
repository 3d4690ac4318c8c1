//! GPU models of the demo fleet, with the MIG profiles it uses.
//!
//! Memory, multiprocessors and engines are those of the tables of NVIDIA's MIG user guide and of
//! `nvidia-smi mig -lgip`; instances are AWS's, whose sizes are public.

/// A MIG profile as GPU feature discovery describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Name, such as `1g.18gb`.
    pub name: &'static str,
    /// Compute slices (`slices.gi` and `slices.ci`).
    pub slices: u32,
    /// Memory slices, of 8.
    pub memory_slices: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy: u32,
    /// Decoders.
    pub decoder: u32,
    /// JPEG engines.
    pub jpeg: u32,
}

/// A GPU model on the machine that the fleet has it in.
#[derive(Debug)]
pub struct Model {
    /// Short name, used in node names.
    pub slug: &'static str,
    /// Value of `nvidia.com/gpu.product`.
    pub product: &'static str,
    /// GPUs in a node.
    pub gpus: u32,
    /// Memory in MiB of one GPU.
    pub memory_mib: u32,
    /// Architecture as in `nvidia.com/gpu.family`.
    pub family: &'static str,
    /// CUDA compute capability, major and minor.
    pub compute: (u32, u32),
    /// The profiles used here; empty for a model without MIG.
    pub profiles: &'static [Profile],
    /// Instance type.
    pub instance: &'static str,
    /// Virtual CPUs of the node.
    pub cpus: u32,
    /// Memory of the node in GiB.
    pub memory_gib: u64,
    /// Elastic Fabric Adapters of the node.
    pub efa: u32,
}

const fn profile(
    name: &'static str,
    (slices, memory_slices): (u32, u32),
    memory_mib: u32,
    multiprocessors: u32,
    (copy, decoder, jpeg): (u32, u32, u32),
) -> Profile {
    Profile {
        name,
        slices,
        memory_slices,
        memory_mib,
        multiprocessors,
        copy,
        decoder,
        jpeg,
    }
}

/// H100 SXM, 8 in a node.
pub const H100: Model = Model {
    slug: "h100",
    product: "NVIDIA-H100-80GB-HBM3",
    gpus: 8,
    memory_mib: 81_559,
    family: "hopper",
    compute: (9, 0),
    profiles: &[
        profile("1g.10gb", (1, 1), 9_984, 16, (1, 1, 1)),
        profile("1g.20gb", (1, 2), 20_096, 26, (1, 1, 1)),
        profile("2g.20gb", (2, 2), 20_096, 32, (2, 2, 2)),
        profile("3g.40gb", (3, 4), 40_448, 60, (3, 3, 3)),
    ],
    instance: "p5.48xlarge",
    cpus: 192,
    memory_gib: 2_048,
    efa: 32,
};

/// A100 80 GB SXM, 8 in a node.
pub const A100_80: Model = Model {
    slug: "a100-80",
    product: "NVIDIA-A100-SXM4-80GB",
    gpus: 8,
    memory_mib: 81_920,
    family: "ampere",
    compute: (8, 0),
    profiles: &[
        profile("1g.10gb", (1, 1), 9_856, 14, (1, 0, 0)),
        profile("2g.20gb", (2, 2), 19_968, 28, (2, 1, 0)),
        profile("3g.40gb", (3, 4), 40_192, 42, (3, 2, 0)),
    ],
    instance: "p4de.24xlarge",
    cpus: 96,
    memory_gib: 1_152,
    efa: 4,
};

/// H200, 8 in a node.
pub const H200: Model = Model {
    slug: "h200",
    product: "NVIDIA-H200",
    gpus: 8,
    memory_mib: 143_771,
    family: "hopper",
    compute: (9, 0),
    profiles: &[
        profile("1g.18gb", (1, 1), 16_384, 16, (1, 1, 1)),
        profile("2g.35gb", (2, 2), 33_024, 32, (2, 2, 2)),
        profile("3g.71gb", (3, 4), 71_168, 60, (3, 3, 3)),
    ],
    instance: "p5en.48xlarge",
    cpus: 192,
    memory_gib: 2_048,
    efa: 16,
};

/// A100 40 GB SXM, 8 in a node.
pub const A100_40: Model = Model {
    slug: "a100-40",
    product: "NVIDIA-A100-SXM4-40GB",
    gpus: 8,
    memory_mib: 40_960,
    family: "ampere",
    compute: (8, 0),
    profiles: &[
        profile("1g.5gb", (1, 1), 4_864, 14, (1, 0, 0)),
        profile("2g.10gb", (2, 2), 9_856, 28, (2, 1, 0)),
        profile("3g.20gb", (3, 4), 19_968, 42, (3, 2, 0)),
    ],
    instance: "p4d.24xlarge",
    cpus: 96,
    memory_gib: 1_152,
    efa: 4,
};

/// L40S, 4 in a node; no MIG.
pub const L40S: Model = Model {
    slug: "l40s",
    product: "NVIDIA-L40S",
    gpus: 4,
    memory_mib: 46_068,
    family: "ada-lovelace",
    compute: (8, 9),
    profiles: &[],
    instance: "g6e.12xlarge",
    cpus: 48,
    memory_gib: 384,
    efa: 1,
};

impl Model {
    /// The profile of this name.
    pub fn profile(&self, name: &str) -> Option<&'static Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}
