//! How long a gang's collective takes where it lies: a model to compare placements by, never a
//! promise.
//!
//! Sources: NCCL graph/topo.h and graph/tuning.cc (bandwidth of a link one way), nccl-tests
//! PERFORMANCE.md (factor 2(n-1)/n of an all-reduce), NVIDIA's system data sheets (NICs).

use super::fabric::Level;

/// What the all-reduce moves.
const GIB: f64 = 1.073_741_824;
/// Switches above the closest are taken to be oversubscribed so much a step.
const OVERSUBSCRIBED: f64 = 2.0;

/// GB/s one way of a GPU to its NVLink neighbours (all links together) and of its NIC, by the
/// start of the model's short name.
const LINKS: [(&str, f64, f64); 9] = [
    ("GB300", 722.0, 100.0),
    ("GB200", 722.0, 50.0),
    ("B300", 722.0, 100.0),
    ("B200", 722.0, 50.0),
    ("GH200", 370.0, 50.0),
    ("H", 370.0, 50.0),
    ("A100", 240.0, 25.0),
    ("V100", 120.0, 12.0),
    ("", 12.0, 12.0),
];

/// Milliseconds of an all-reduce of 1 GiB over `gpus` GPUs on `nodes` nodes that share a domain
/// of this level. Inside nodes and NVLink domains by NVLink, else by a NIC for each GPU.
pub(super) fn all_reduce_ms(model: &str, level: Level, nodes: usize, gpus: usize) -> f64 {
    let found = LINKS.iter().find(|(start, ..)| model.starts_with(start));
    let (_, nvlink, nic) = found.copied().unwrap_or(("", 12.0, 12.0));
    let ring = |n: f64| if n > 1.0 { 2.0 * (n - 1.0) / n } else { 0.0 };
    let (nodes, gpus) = (nodes.max(1) as f64, gpus.max(1) as f64);
    let seconds = if level <= Level::CLIQUE {
        GIB * ring(gpus) / nvlink
    } else {
        let a_node = (gpus / nodes).max(1.0);
        let nic = nic / OVERSUBSCRIBED.powi(i32::from(level.steps_above_leaf().min(3)));
        GIB * ring(a_node) / nvlink + GIB / a_node * ring(nodes) / nic
    };
    seconds * 1000.0
}

/// How far the pods of a gang are from each other: what they share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// One node.
    Node,
    /// An NVLink domain across nodes.
    NvlinkDomain,
    /// A switch, so many levels above the closest one.
    Switch(u16),
    /// Nothing but the cluster.
    Cluster,
}

/// The model of placements for those who compare them outside of the scheduler: milliseconds of an
/// all-reduce of 1 GiB over `gpus` GPUs of a model, by its short name, on `nodes` nodes.
pub fn all_reduce_of(model: &str, reach: Reach, nodes: usize, gpus: usize) -> f64 {
    let level = match reach {
        Reach::Node => Level::NODE,
        Reach::NvlinkDomain => Level::CLIQUE,
        Reach::Switch(steps) => Level::tier(steps.into()),
        Reach::Cluster => Level::CLUSTER,
    };
    all_reduce_ms(model, level, nodes, gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closer_is_faster() {
        let leaf = all_reduce_ms("H100-80", Level::LEAF, 4, 32);
        let node = all_reduce_ms("H100-80", Level::NODE, 1, 8);
        let spread = all_reduce_ms("H100-80", Level::LEAF, 32, 32);
        let wide = all_reduce_ms("H100-80", Level::CLUSTER, 4, 32);
        let clique = all_reduce_ms("GB200", Level::CLIQUE, 18, 72);
        assert!(node < leaf && leaf < spread && leaf < wide && clique < leaf);
        assert_eq!(all_reduce_ms("H100-80", Level::NODE, 1, 1), 0.0);
        let spine = all_reduce_of("H100-80", Reach::Switch(1), 4, 32);
        assert!(leaf < spine && spine < all_reduce_of("H100-80", Reach::Cluster, 4, 32));
    }
}
