//! How each GPU of a node reaches each other one, as `nvidia-smi topo -m` shows it.
//!
//! NVLinks by the GPUs' model: no API tells them. What goes over PCIe by what the ResourceSlices of
//! NVIDIA's DRA driver say of PCIe roots and NUMA nodes; without them it is not known.
//!
//! Sources: NVIDIA's data sheets of DGX and HGX systems (links a GPU), `nvidia-smi topo` for the words.

use std::sync::Arc;

use super::super::gpu::GpuModel;
use super::super::text::Str;
use super::{NodeLinks, TopoTable};

/// Where a GPU is on its board.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GpuPort {
    /// Its index on the node.
    pub index: u32,
    /// NUMA node.
    pub numa: Option<u32>,
    /// PCIe root (`pci0000:15`).
    pub pcie_root: Option<Str>,
}

/// What lies between two GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// It is one and the same.
    Own,
    /// So many NVLinks.
    NvLinks(u8),
    /// NVLink, but which GPUs have how many is the machine's own business.
    SomeNvLink,
    /// At most one PCIe bridge.
    Bridge,
    /// Several PCIe bridges, no host bridge.
    Bridges,
    /// One PCIe root: below one host bridge.
    Root,
    /// Host bridges of one NUMA node.
    Numa,
    /// The interconnect between NUMA nodes.
    System,
    /// Not known.
    Unknown,
}

impl Link {
    /// As `nvidia-smi topo -m` writes it; what it does not write has words of its own.
    pub fn name(self) -> String {
        match self {
            Link::Own => "X".to_owned(),
            Link::NvLinks(n) => format!("NV{n}"),
            Link::SomeNvLink => "NV?".to_owned(),
            Link::Bridge => "PIX".to_owned(),
            Link::Bridges => "PXB".to_owned(),
            Link::Root => "PHB".to_owned(),
            Link::Numa => "NODE".to_owned(),
            Link::System => "SYS".to_owned(),
            Link::Unknown => "—".to_owned(),
        }
    }

    /// What it means.
    pub fn about(self) -> &'static str {
        match self {
            Link::Own => "itself",
            Link::NvLinks(_) => "so many NVLinks",
            Link::SomeNvLink => "NVLink; how many is the machine's own business",
            Link::Bridge => "PCIe over at most one bridge",
            Link::Bridges => "PCIe over several bridges, not over a host bridge",
            Link::Root => "PCIe below one root, at most over its host bridge (or closer: PIX, PXB)",
            Link::Numa => "PCIe over host bridges of one NUMA node",
            Link::System => "PCIe and the interconnect between NUMA nodes",
            Link::Unknown => "not known",
        }
    }
}

/// The links of a node's GPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkMatrix {
    /// The GPUs in the order of rows and columns.
    pub gpus: Vec<GpuPort>,
    /// Row by row.
    pub links: Vec<Vec<Link>>,
    /// What links them by their model, if that is known.
    pub by_model: Option<NodeLinks>,
    /// Whether somebody told where each is.
    pub told: bool,
    /// What the node's own driver says of links, CPUs and NICs; then nothing is by the model.
    pub table: Option<Arc<TopoTable>>,
}

/// NVLinks of one GPU to the switches of its board.
fn nvlinks(model: &GpuModel) -> u8 {
    match model.short().split('-').next().unwrap_or_default() {
        "A100" => 12,
        _ => 18,
    }
}

impl LinkMatrix {
    /// The links of `count` GPUs of a model, with what the server told of their places.
    pub fn of(model: Option<&GpuModel>, count: u32, told: &[GpuPort]) -> Self {
        let by_model = model.and_then(|m| NodeLinks::of(m, count));
        let port = |index: u32| {
            let known = told.iter().find(|p| p.index == index).cloned();
            known.unwrap_or(GpuPort {
                index,
                ..GpuPort::default()
            })
        };
        let gpus: Vec<GpuPort> = (0..count).map(port).collect();
        let between = |a: &GpuPort, b: &GpuPort| match (by_model, model) {
            _ if a.index == b.index => Link::Own,
            (Some(NodeLinks::NvSwitch(_) | NodeLinks::RackNvSwitch), Some(model)) => {
                Link::NvLinks(nvlinks(model))
            }
            (Some(NodeLinks::NvLink), _) => Link::SomeNvLink,
            _ => pcie(a, b),
        };
        let row = |a: &GpuPort| gpus.iter().map(|b| between(a, b)).collect();
        LinkMatrix {
            links: gpus.iter().map(row).collect(),
            by_model,
            told: gpus
                .iter()
                .any(|g| g.pcie_root.is_some() || g.numa.is_some()),
            gpus,
            table: None,
        }
    }

    /// The links that the node's own driver tells, with PCIe roots where somebody else told them.
    pub fn told_by(table: &Arc<TopoTable>, model: Option<&GpuModel>, told: &[GpuPort]) -> Self {
        let mut gpus = table.gpus.clone();
        for gpu in &mut gpus {
            let other = told.iter().find(|p| p.index == gpu.index);
            gpu.pcie_root = other.and_then(|p| p.pcie_root.clone());
            gpu.numa = gpu.numa.or(other.and_then(|p| p.numa));
        }
        let count = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        LinkMatrix {
            links: table.links.clone(),
            by_model: model.and_then(|m| NodeLinks::of(m, count)),
            told: gpus
                .iter()
                .any(|g| g.pcie_root.is_some() || g.numa.is_some()),
            gpus,
            table: Some(table.clone()),
        }
    }
}

/// What lies between two GPUs without NVLink.
fn pcie(a: &GpuPort, b: &GpuPort) -> Link {
    let same = |a: bool, b: bool| a && b;
    if a.pcie_root.is_some() && a.pcie_root == b.pcie_root {
        return Link::Root;
    }
    match (a.numa, b.numa) {
        (Some(x), Some(y)) if x != y => Link::System,
        // Two roots of one NUMA node; with a root untold it may be one and the same.
        (Some(_), Some(_)) if same(a.pcie_root.is_some(), b.pcie_root.is_some()) => Link::Numa,
        _ => Link::Unknown,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn port(index: u32, numa: Option<u32>, root: Option<&str>) -> GpuPort {
        GpuPort {
            index,
            numa,
            pcie_root: root.map(Into::into),
        }
    }

    fn row(matrix: &LinkMatrix, at: usize) -> String {
        let names: Vec<String> = matrix.links[at].iter().map(|l| l.name()).collect();
        names.join(" ")
    }

    #[test]
    fn nvlink_by_model_and_pcie_by_place() {
        let h100 = GpuModel::from_product("NVIDIA-H100-80GB-HBM3");
        let eight = LinkMatrix::of(Some(&h100), 8, &[]);
        assert_eq!(row(&eight, 1), "NV18 X NV18 NV18 NV18 NV18 NV18 NV18");
        assert!(!eight.told);
        let a100 = GpuModel::from_product("NVIDIA-A100-SXM4-80GB");
        assert_eq!(
            row(&LinkMatrix::of(Some(&a100), 8, &[]), 0)
                .matches("NV12")
                .count(),
            7
        );
        let v100 = GpuModel::from_product("Tesla-V100-SXM2-16GB");
        assert_eq!(
            row(&LinkMatrix::of(Some(&v100), 4, &[]), 0),
            "X NV? NV? NV?"
        );
        let ports = [
            port(0, Some(0), Some("pci0000:10")),
            port(1, Some(0), Some("pci0000:10")),
            port(2, Some(0), Some("pci0000:20")),
            port(3, Some(1), Some("pci0000:90")),
            port(4, Some(1), None),
        ];
        let l40s = GpuModel::from_product("NVIDIA-L40S");
        let box_ = LinkMatrix::of(Some(&l40s), 6, &ports);
        assert!(box_.told);
        for (at, expected) in [
            (0, "X PHB NODE SYS SYS —"),
            (3, "SYS SYS SYS X — —"),
            (5, "— — — — — X"),
        ] {
            assert_eq!(row(&box_, at), expected, "{at}");
        }
        assert_eq!(row(&LinkMatrix::of(None, 2, &[]), 0), "X —");
    }
}
