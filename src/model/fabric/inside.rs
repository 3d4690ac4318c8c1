//! How the GPUs of one node are linked, by their model.
//!
//! Source: NVIDIA's data sheets and user guides of DGX and HGX systems. A node's own report would be
//! better; nothing in the API gives one.

use super::super::gpu::GpuModel;

/// What links the GPUs of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeLinks {
    /// So many NVSwitch chips, over which each GPU reaches each other one.
    NvSwitch(u8),
    /// The switches of the rack's NVLink domain.
    RackNvSwitch,
    /// NVLink between GPUs without a switch.
    NvLink,
    /// NVLink bridges between pairs, if they are there at all.
    Bridges,
    /// PCIe alone.
    Pcie,
}

impl NodeLinks {
    /// The links of `gpus` GPUs of a model in one node; `None` when the model is not known.
    pub fn of(model: &GpuModel, gpus: u32) -> Option<Self> {
        let product = model.product().to_ascii_uppercase();
        let has = |word: &str| {
            let mut words = product.split(|c: char| !c.is_ascii_alphanumeric());
            words.any(|w| w == word)
        };
        let name = model.short().split('-').next().unwrap_or_default();
        let on_board = !has("PCIE") && !has("NVL");
        let full = gpus >= 8;
        // A vGPU, or a single GPU, has nobody to be linked to.
        if has("GRID") || gpus == 0 {
            return None;
        }
        Some(match name {
            "GB200" | "GB300" => NodeLinks::RackNvSwitch,
            "GH200" if gpus <= 1 => NodeLinks::Pcie,
            "B100" | "B200" | "B300" if full => NodeLinks::NvSwitch(2),
            "H20" | "H100" | "H200" if on_board && full => NodeLinks::NvSwitch(4),
            "A100" if on_board && full => NodeLinks::NvSwitch(6),
            "V100" if has("SXM2") || has("SXM3") => NodeLinks::NvLink,
            "B100" | "B200" | "B300" | "H20" | "H100" | "H200" | "A100" | "GH200" if on_board => {
                NodeLinks::NvLink
            }
            "H100" | "H200" | "A100" | "A30" | "A40" => NodeLinks::Bridges,
            "T4" | "T4G" | "L4" | "L20" | "L40" | "L40S" | "A2" | "A10" | "A10G" | "A16" | "P4"
            | "P40" | "P100" | "V100" | "M60" | "K80" | "RTX" | "GTX" | "TITAN" => NodeLinks::Pcie,
            _ => return None,
        })
    }

    /// As the screen writes it.
    pub fn name(self) -> String {
        match self {
            NodeLinks::NvSwitch(chips) => format!("NVSwitch ×{chips}"),
            NodeLinks::RackNvSwitch => "rack NVSwitch".to_owned(),
            NodeLinks::NvLink => "NVLink".to_owned(),
            NodeLinks::Bridges => "PCIe, bridges?".to_owned(),
            NodeLinks::Pcie => "PCIe".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_follow_the_board() {
        for (product, gpus, expected) in [
            ("NVIDIA-H100-80GB-HBM3", 8, Some(NodeLinks::NvSwitch(4))),
            ("NVIDIA-H100-80GB-HBM3", 4, Some(NodeLinks::NvLink)),
            ("NVIDIA-H100-PCIe", 8, Some(NodeLinks::Bridges)),
            ("NVIDIA-H100-NVL", 2, Some(NodeLinks::Bridges)),
            ("NVIDIA-A100-SXM4-80GB", 8, Some(NodeLinks::NvSwitch(6))),
            ("NVIDIA-A100-80GB-PCIe", 4, Some(NodeLinks::Bridges)),
            ("NVIDIA-B200", 8, Some(NodeLinks::NvSwitch(2))),
            ("NVIDIA-GB200", 4, Some(NodeLinks::RackNvSwitch)),
            ("NVIDIA-L40S", 8, Some(NodeLinks::Pcie)),
            ("Tesla-V100-SXM2-16GB", 8, Some(NodeLinks::NvLink)),
            ("Tesla-V100-PCIE-16GB", 8, Some(NodeLinks::Pcie)),
            ("GRID-A100-8C", 1, None),
            ("NVIDIA-R100-288GB", 8, None),
        ] {
            let model = GpuModel::from_product(product);
            assert_eq!(NodeLinks::of(&model, gpus), expected, "{product} x{gpus}");
        }
    }
}
