//! The label families that tell where a node hangs in the network.
//!
//! Sources: topograph's node labels (old and renamed), EC2 and EKS network topology, GKE compact
//! placement, placement groups of GKE and Karpenter, Oracle's RDMA labeller and host labels, CoreWeave's node labels.

/// One level of a family.
pub(super) struct Rung {
    /// The label, or older and newer ones of the same level, each with what a person calls it.
    pub(super) keys: &'static [(&'static str, &'static str)],
    /// Not every node of the family has it.
    pub(super) optional: bool,
}

const fn rung(keys: &'static [(&'static str, &'static str)]) -> Rung {
    Rung {
        keys,
        optional: false,
    }
}

const fn some_have(keys: &'static [(&'static str, &'static str)]) -> Rung {
    Rung {
        keys,
        optional: true,
    }
}

/// topograph 1.0 and later numbers its switches from the closest: `tier-0`.
pub(super) const TOPOGRAPH_TIER: &str = "fabric.topograph.run/tier-";

/// Deeper fabrics do not exist.
pub(super) const MAX_TIERS: usize = 16;

/// What topograph's tiers are called, the closest first; further ones are `tier-N`.
pub(super) const TIER_NAMES: [&str; 3] = ["leaf", "spine", "core"];

/// A family of labels: its name and its levels, the widest first.
pub(super) struct Family {
    /// As the screen writes it.
    pub(super) name: &'static str,
    /// Levels, the widest first.
    pub(super) rungs: &'static [Rung],
}

/// Name of the family that [`TOPOGRAPH_TIER`] makes.
pub(super) const TOPOGRAPH: &str = "topograph";

/// The families with fixed keys, in the order in which they are asked; topograph's own is first.
pub(super) const FAMILIES: [Family; 8] = [
    Family {
        name: "topograph, old labels",
        rungs: &[
            some_have(&[
                ("network.topology.nvidia.com/core", "core"),
                ("network.topology.nvidia.com/datacenter", "datacenter"),
            ]),
            rung(&[("network.topology.nvidia.com/spine", "spine")]),
            rung(&[
                ("network.topology.nvidia.com/leaf", "leaf"),
                ("network.topology.nvidia.com/block", "block"),
            ]),
        ],
    },
    Family {
        name: "AWS",
        rungs: &[
            rung(&[("topology.k8s.aws/network-node-layer-1", "core")]),
            rung(&[("topology.k8s.aws/network-node-layer-2", "spine")]),
            rung(&[("topology.k8s.aws/network-node-layer-3", "leaf")]),
            some_have(&[("topology.k8s.aws/network-node-layer-4", "sub-leaf")]),
        ],
    },
    Family {
        name: "GKE",
        rungs: &[
            rung(&[("cloud.google.com/gce-topology-block", "block")]),
            rung(&[("cloud.google.com/gce-topology-subblock", "sub-block")]),
        ],
    },
    Family {
        name: "GKE, old labels",
        rungs: &[
            rung(&[("topology.gke.io/cluster", "cluster")]),
            rung(&[("topology.gke.io/rack", "rack")]),
        ],
    },
    Family {
        name: "OCI",
        rungs: &[
            rung(&[("oci.oraclecloud.com/rdma.hpc_island_id", "island")]),
            rung(&[("oci.oraclecloud.com/rdma.network_block_id", "network block")]),
            rung(&[("oci.oraclecloud.com/rdma.local_block_id", "local block")]),
        ],
    },
    Family {
        name: "OCI, host labels",
        rungs: &[
            rung(&[("oci.oraclecloud.com/host.network_block_id", "network block")]),
            rung(&[("oci.oraclecloud.com/host.rack_id", "rack")]),
        ],
    },
    Family {
        name: "CoreWeave",
        rungs: &[
            rung(&[("backend.coreweave.cloud/fabric", "fabric")]),
            some_have(&[("backend.coreweave.cloud/superpod", "superpod")]),
            rung(&[("backend.coreweave.cloud/leafgroup", "leaf group")]),
        ],
    },
    // Machines that the cloud put near each other; no more is said.
    Family {
        name: "placement groups",
        rungs: &[rung(&[
            ("cloud.google.com/gke-placement-group", "placement group"),
            ("karpenter.k8s.aws/placement-group-id", "placement group"),
        ])],
    },
];

/// Labels that name an NVLink domain across nodes, the most exact first. topograph writes the name
/// of the rack where NVIDIA's own label is absent.
pub(super) const NVLINK_DOMAIN: [&str; 3] = [
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
];

/// Values that stand where there is none: they must not join unrelated nodes.
pub(super) const PLACEHOLDERS: [&str; 6] = ["", "none", "null", "unknown", "no-imds-data", "n/a"];
