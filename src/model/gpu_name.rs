//! One short name for one GPU model, whoever names it: GPU Feature Discovery
//! (`NVIDIA-H100-80GB-HBM3`), GKE (`nvidia-h100-mega-80gb`), Karpenter (`h100` and its memory),
//! CoreWeave (`H100_NVLINK_80GB`), vGPU guests (`GRID-A100-8C`), or only the machine type.
//!
//! Sources: NVIDIA data sheets (memory sizes), the machine type pages of AWS, Google Cloud, Azure
//! and Oracle.

/// Model names with the memory sizes they are sold with, in GB. One size: the name alone is
/// enough. Several: the short name tells which.
const KNOWN: &[(&str, &[u16])] = &[
    ("K80", &[12]),
    ("M60", &[8]),
    ("P4", &[8]),
    ("P40", &[24]),
    ("P100", &[12, 16]),
    ("V100", &[16, 32]),
    ("T4", &[16]),
    ("T4G", &[16]),
    ("A2", &[16]),
    ("A10", &[24]),
    ("A10G", &[24]),
    ("A16", &[16]),
    ("A30", &[24]),
    ("A40", &[48]),
    ("A100", &[40, 80]),
    ("H20", &[96, 141]),
    ("H100", &[64, 80, 94, 96]),
    ("H200", &[141]),
    ("GH200", &[96, 144]),
    ("L4", &[24]),
    ("L20", &[48]),
    ("L40", &[48]),
    ("L40S", &[48]),
    ("B100", &[180]),
    ("B200", &[180]),
    ("B300", &[269]),
    ("GB200", &[186]),
    ("GB300", &[278]),
];

/// Words of a product name that tell no model.
const NOISE: [&str; 7] = ["NVIDIA", "TESLA", "GEFORCE", "GRID", "QUADRO", "HGX", "DGX"];

/// Words after `RTX`, `GTX` and `TITAN` that belong to the model.
const RTX_WORDS: [&str; 8] = ["RTX", "PRO", "ADA", "TI", "SUPER", "XP", "MAX", "D"];

/// Machine types whose name does not hold the model, by their beginning (lower case), with it.
const MACHINES: &[(&str, &str)] = &[
    ("p3dn.", "V100-32GB"),
    ("p3.", "V100-16GB"),
    ("p4de.", "A100-80GB"),
    ("p4d.", "A100-40GB"),
    ("p5e.", "H200"),
    ("p5en.", "H200"),
    ("p5.", "H100-80GB"),
    ("g4dn.", "T4"),
    ("g5g.", "T4G"),
    ("g5.", "A10G"),
    ("g6e.", "L40S"),
    ("g6f.", "L4"),
    ("g6.", "L4"),
    ("gr6.", "L4"),
    ("a2-ultragpu", "A100-80GB"),
    ("a2-", "A100-40GB"),
    ("a3-ultragpu", "H200"),
    ("a3-", "H100-80GB"),
    ("a4x-", "GB200"),
    ("a4-", "B200"),
    ("g2-", "L4"),
    ("standard_nd96asr_v4", "A100-40GB"),
    ("standard_nd96amsr_a100", "A100-80GB"),
    ("standard_nc6s_v3", "V100-16GB"),
    ("standard_nc12s_v3", "V100-16GB"),
    ("standard_nc24s_v3", "V100-16GB"),
    ("standard_nc24rs_v3", "V100-16GB"),
    ("standard_nd40rs_v2", "V100-32GB"),
    ("bm.gpu4.", "A100-40GB"),
    ("bm.gpu.a100-v2", "A100-80GB"),
    ("bm.gpu3.", "V100-16GB"),
    ("vm.gpu3.", "V100-16GB"),
];

fn known(word: &str) -> Option<(&'static str, &'static [u16])> {
    KNOWN
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word))
        .copied()
}

/// The memory sizes that a model is sold with, in GB; empty for a model that is not in the table.
pub(super) fn sizes(model: &str) -> &'static [u16] {
    known(model).map_or(&[], |(_, sizes)| sizes)
}

/// The size nearest to what the driver reports: 81,559 MiB are an 80 GB part.
fn nearest(sizes: &[u16], mib: u32) -> Option<u16> {
    let mib = i64::from(mib);
    let distance = |gb: &u16| (i64::from(*gb) * 1_024 - mib).abs();
    let best = *sizes.iter().min_by_key(|gb| distance(gb))?;
    // A slice or a vGPU's share tells nothing about the part.
    (distance(&best) * 8 < i64::from(best) * 1_024).then_some(best)
}

/// The short name of a product, with the memory of one GPU where a label tells it.
pub(super) fn short(product: &str, memory_mib: Option<u32>) -> String {
    let upper = product.to_ascii_uppercase();
    let words: Vec<&str> = upper
        .split(['-', ' ', '_'])
        .filter(|w| !w.is_empty() && !NOISE.contains(w))
        .collect();
    let Some((first, rest)) = words.split_first() else {
        return product.to_owned();
    };
    if matches!(*first, "RTX" | "GTX" | "TITAN") {
        return consumer(first, rest);
    }
    // A vGPU's profile stands behind the model and is what the guest has: A100-8C.
    if let Some(profile) = rest.first().filter(|w| is_vgpu_profile(w)) {
        return format!("{first}-{profile}");
    }
    let stated = rest.iter().find_map(|w| {
        let number = w.strip_suffix("GB")?;
        number.parse::<u16>().ok()
    });
    let size = match known(first) {
        Some((_, [_])) => None,
        // GH200's name tells the memory of its CPU (480GB): only sizes of the GPU count.
        Some((_, sizes)) => stated
            .filter(|gb| sizes.contains(gb))
            .or_else(|| memory_mib.and_then(|mib| nearest(sizes, mib)))
            // `nvidia-tesla-a100` and bare `A100` name the first of its kind on no cloud but GKE.
            .or_else(|| upper.contains("TESLA-A100").then_some(40)),
        None => stated,
    };
    match size {
        Some(gb) => format!("{first}-{gb}"),
        None => (*first).to_owned(),
    }
}

/// Workstation and consumer parts: the words after `RTX` up to the first that is no part of a name.
fn consumer(first: &str, rest: &[&str]) -> String {
    let belongs = |w: &&&str| {
        let digits = w.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let letters = w.len() - digits.len();
        RTX_WORDS.contains(w)
            || (letters <= 1 && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut name = first.to_owned();
    for word in rest.iter().take_while(belongs) {
        name.push('-');
        name.push_str(word);
    }
    name
}

/// `8C`, `40Q`: framebuffer in GB and the series of a vGPU type.
fn is_vgpu_profile(word: &str) -> bool {
    word.strip_suffix(['A', 'B', 'C', 'Q'])
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The product that a machine type stands for, e.g. `Standard_ND96isr_H100_v5`, `p5.48xlarge`,
/// `BM.GPU.H100.8`, `gd-8xh100ib-i128`; `None` for machines that name no GPU.
pub(super) fn of_machine(machine: &str) -> Option<String> {
    let lower = machine.to_ascii_lowercase();
    if let Some((_, product)) = MACHINES.iter().find(|(start, _)| lower.starts_with(start)) {
        return Some((*product).to_owned());
    }
    let azure = lower.starts_with("standard_n");
    let oracle = lower.contains(".gpu.");
    let words = lower.split(['.', '_', '-']);
    let mut found = words.filter_map(|word| {
        let word = word.split_once('x').map_or(word, |(n, rest)| {
            // `8xh100ib`: eight of them.
            if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) {
                rest
            } else {
                word
            }
        });
        let word = word.strip_suffix("ib").unwrap_or(word);
        known(word)
    });
    let (name, sizes) = found.next()?;
    // Short names such as `a2` or `t4` also mean machine families elsewhere.
    if !azure && !oracle && name.len() < 4 {
        return None;
    }
    let product = match (name, sizes) {
        (_, [_]) => name.to_owned(),
        // Azure's NC machines have the 94 GB H100 NVL, its ND machines the 80 GB SXM part.
        ("H100", _) if lower.starts_with("standard_nc") => "H100-94GB".to_owned(),
        ("H100" | "A100", _) if azure || oracle || lower.starts_with("gd-") => {
            format!("{name}-80GB")
        }
        _ => name.to_owned(),
    };
    Some(product)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_for_one_model() {
        for (product, mib, name) in [
            ("NVIDIA-H100-80GB-HBM3", Some(81_559), "H100-80"),
            ("nvidia-h100-80gb", None, "H100-80"),
            ("nvidia-h100-mega-80gb", None, "H100-80"),
            ("h100", Some(81_920), "H100-80"),
            ("H100_NVLINK_80GB", None, "H100-80"),
            ("NVIDIA-H100-NVL", Some(95_830), "H100-94"),
            ("NVIDIA-H100-NVL", None, "H100"),
            ("NVIDIA-H200", Some(143_771), "H200"),
            ("nvidia-h200-141gb", None, "H200"),
            ("nvidia-tesla-a100", None, "A100-40"),
            ("nvidia-a100-80gb", None, "A100-80"),
            ("NVIDIA-A100-80GB-PCIe", None, "A100-80"),
            ("a100", Some(40_960), "A100-40"),
            ("Tesla-V100-SXM2-16GB", None, "V100-16"),
            ("nvidia-tesla-t4", None, "T4"),
            ("Tesla-T4", None, "T4"),
            ("l40s", Some(45_776), "L40S"),
            ("NVIDIA-L40S-48GB", None, "L40S"),
            ("NVIDIA-GH200-480GB", Some(97_871), "GH200-96"),
            ("nvidia-b200", None, "B200"),
            ("NVIDIA-GB200", Some(189_471), "GB200"),
            ("GRID-A100-8C", Some(8_192), "A100-8C"),
            ("A100", Some(8_192), "A100"),
            ("NVIDIA-RTX-A6000", None, "RTX-A6000"),
            (
                "NVIDIA-RTX-6000-Ada-Generation",
                Some(49_140),
                "RTX-6000-ADA",
            ),
            ("nvidia-rtx-pro-6000", None, "RTX-PRO-6000"),
            ("NVIDIA-GeForce-RTX-4090", None, "RTX-4090"),
            ("NVIDIA-GeForce-RTX-3080-Ti", None, "RTX-3080-TI"),
            ("NVIDIA-R100-288GB", None, "R100-288"),
            ("nvidia", None, "nvidia"),
        ] {
            assert_eq!(short(product, mib), name, "{product} {mib:?}");
        }
    }

    #[test]
    fn machines() {
        for (machine, name) in [
            ("p5.48xlarge", Some("H100-80")),
            ("p5en.48xlarge", Some("H200")),
            ("p6-b200.48xlarge", Some("B200")),
            ("g6e.12xlarge", Some("L40S")),
            ("a2-highgpu-8g", Some("A100-40")),
            ("a3-megagpu-8g", Some("H100-80")),
            ("a4x-highgpu-4g", Some("GB200")),
            ("Standard_ND96isr_H100_v5", Some("H100-80")),
            ("Standard_NC40ads_H100_v5", Some("H100-94")),
            ("Standard_NC24ads_A100_v4", Some("A100-80")),
            ("Standard_ND96asr_v4", Some("A100-40")),
            ("Standard_NC4as_T4_v3", Some("T4")),
            ("Standard_D8s_v5", None),
            ("BM.GPU.H100.8", Some("H100-80")),
            ("BM.GPU4.8", Some("A100-40")),
            ("VM.GPU.A10.1", Some("A10")),
            ("gd-8xh100ib-i128", Some("H100-80")),
            ("a2.medium", None),
            ("t4g.xlarge", None),
            ("c5.a10.large", None),
        ] {
            let got = of_machine(machine).map(|p| short(&p, None));
            assert_eq!(got.as_deref(), name, "{machine}");
        }
    }
}
