//! The table of every MIG-capable model.

use super::geometry::{Geometry, Profile};

const ONES: &[u8] = &[0, 1, 2, 3, 4, 5, 6];
const PAIRS: &[u8] = &[0, 2, 4, 6];
const TWOS: &[u8] = &[0, 2, 4];
const HALVES: &[u8] = &[0, 4];
const START: &[u8] = &[0];
const QUARTERS: &[u8] = &[0, 1, 2, 3];
const A30_TWOS: &[u8] = &[0, 2];
const RTX_ONES: &[u8] = &[0, 3, 6, 9];
const RTX_TWOS: &[u8] = &[0, 6];

const fn profile(
    name: &'static str,
    compute: u8,
    mem_slices: u8,
    starts: &'static [u8],
    most: u8,
    mem_mib: Option<u32>,
) -> Profile {
    Profile {
        name,
        compute,
        mem_slices,
        starts,
        most,
        mem_mib,
    }
}

/// A100-40: name and memory in GB.
pub const A100_40: Geometry = Geometry {
    model: "A100-40",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.5gb", 1, 1, ONES, 7, Some(4864)),
        profile("1g.5gb+me", 1, 1, ONES, 1, Some(4864)),
        profile("1g.10gb", 1, 2, PAIRS, 4, Some(9856)),
        profile("2g.10gb", 2, 2, TWOS, 3, Some(9856)),
        profile("3g.20gb", 3, 4, HALVES, 2, Some(19968)),
        profile("4g.20gb", 4, 4, START, 1, Some(19968)),
        profile("7g.40gb", 7, 8, START, 1, Some(40192)),
    ],
};

/// A100-80: name and memory in GB.
pub const A100_80: Geometry = Geometry {
    model: "A100-80",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.10gb", 1, 1, ONES, 7, Some(9856)),
        profile("1g.10gb+me", 1, 1, ONES, 1, Some(9856)),
        profile("1g.20gb", 1, 2, PAIRS, 4, Some(19968)),
        profile("2g.20gb", 2, 2, TWOS, 3, Some(19968)),
        profile("3g.40gb", 3, 4, HALVES, 2, Some(40192)),
        profile("4g.40gb", 4, 4, START, 1, Some(40192)),
        profile("7g.80gb", 7, 8, START, 1, Some(80384)),
    ],
};

/// H100-80: name and memory in GB.
pub const H100_80: Geometry = Geometry {
    model: "H100-80",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.10gb", 1, 1, ONES, 7, Some(9984)),
        profile("1g.10gb+me", 1, 1, ONES, 1, Some(9984)),
        profile("1g.20gb", 1, 2, PAIRS, 4, Some(20091)),
        profile("2g.20gb", 2, 2, TWOS, 3, Some(20091)),
        profile("3g.40gb", 3, 4, HALVES, 2, Some(40448)),
        profile("4g.40gb", 4, 4, START, 1, Some(40448)),
        profile("7g.80gb", 7, 8, START, 1, Some(81152)),
    ],
};

/// H100-94: name and memory in GB.
pub const H100_94: Geometry = Geometry {
    model: "H100-94",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.12gb", 1, 1, ONES, 7, Some(11008)),
        profile("1g.12gb+me", 1, 1, ONES, 1, Some(11008)),
        profile("1g.24gb", 1, 2, PAIRS, 4, Some(22139)),
        profile("2g.24gb", 2, 2, TWOS, 3, Some(22139)),
        profile("3g.47gb", 3, 4, HALVES, 2, Some(47493)),
        profile("4g.47gb", 4, 4, START, 1, Some(47493)),
        profile("7g.94gb", 7, 8, START, 1, Some(95355)),
    ],
};

/// H100-96: name and memory in GB.
pub const H100_96: Geometry = Geometry {
    model: "H100-96",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.12gb", 1, 1, ONES, 7, None),
        profile("1g.12gb+me", 1, 1, ONES, 1, None),
        profile("1g.24gb", 1, 2, PAIRS, 4, None),
        profile("2g.24gb", 2, 2, TWOS, 3, None),
        profile("3g.48gb", 3, 4, HALVES, 2, None),
        profile("4g.48gb", 4, 4, START, 1, None),
        profile("7g.96gb", 7, 8, START, 1, None),
    ],
};

/// H200-141: name and memory in GB.
pub const H200_141: Geometry = Geometry {
    model: "H200-141",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.18gb", 1, 1, ONES, 7, Some(16384)),
        profile("1g.18gb+me", 1, 1, ONES, 1, Some(16384)),
        profile("1g.35gb", 1, 2, PAIRS, 4, Some(33024)),
        profile("2g.35gb", 2, 2, TWOS, 3, Some(33024)),
        profile("3g.71gb", 3, 4, HALVES, 2, Some(71168)),
        profile("4g.71gb", 4, 4, START, 1, Some(71168)),
        profile("7g.141gb", 7, 8, START, 1, Some(143360)),
    ],
};

/// GH200-96: name and memory in GB.
pub const GH200_96: Geometry = Geometry {
    model: "GH200-96",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.12gb", 1, 1, ONES, 7, None),
        profile("1g.12gb+me", 1, 1, ONES, 1, None),
        profile("1g.24gb", 1, 2, PAIRS, 4, None),
        profile("2g.24gb", 2, 2, TWOS, 3, None),
        profile("3g.48gb", 3, 4, HALVES, 2, None),
        profile("4g.48gb", 4, 4, START, 1, None),
        profile("7g.96gb", 7, 8, START, 1, None),
    ],
};

/// GH200-144: name and memory in GB.
pub const GH200_144: Geometry = Geometry {
    model: "GH200-144",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.18gb", 1, 1, ONES, 7, Some(17920)),
        profile("1g.18gb+me", 1, 1, ONES, 1, Some(17920)),
        profile("1g.36gb", 1, 2, PAIRS, 4, Some(36096)),
        profile("2g.36gb", 2, 2, TWOS, 3, Some(36096)),
        profile("3g.72gb", 3, 4, HALVES, 2, None),
        profile("4g.72gb", 4, 4, START, 1, None),
        profile("7g.144gb", 7, 8, START, 1, None),
    ],
};

/// B200-180: name and memory in GB.
pub const B200_180: Geometry = Geometry {
    model: "B200-180",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.23gb", 1, 1, ONES, 7, Some(22528)),
        profile("1g.23gb+me", 1, 1, ONES, 1, Some(22528)),
        profile("1g.45gb", 1, 2, PAIRS, 4, Some(45312)),
        profile("2g.45gb", 2, 2, TWOS, 3, Some(45312)),
        profile("3g.90gb", 3, 4, HALVES, 2, None),
        profile("4g.90gb", 4, 4, START, 1, None),
        profile("7g.180gb", 7, 8, START, 1, None),
    ],
};

/// GB200-186: name and memory in GB.
pub const GB200_186: Geometry = Geometry {
    model: "GB200-186",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.23gb", 1, 1, ONES, 7, None),
        profile("1g.23gb+me", 1, 1, ONES, 1, None),
        profile("1g.47gb", 1, 2, PAIRS, 4, Some(46592)),
        profile("2g.47gb", 2, 2, TWOS, 3, Some(46592)),
        profile("3g.93gb", 3, 4, HALVES, 2, None),
        profile("4g.93gb", 4, 4, START, 1, None),
        profile("7g.186gb", 7, 8, START, 1, None),
    ],
};

/// B300-269: name and memory in GB.
pub const B300_269: Geometry = Geometry {
    model: "B300-269",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.34gb", 1, 1, ONES, 7, None),
        profile("1g.34gb+me", 1, 1, ONES, 1, None),
        profile("1g.67gb", 1, 2, PAIRS, 4, None),
        profile("2g.67gb", 2, 2, TWOS, 3, None),
        profile("3g.135gb", 3, 4, HALVES, 2, None),
        profile("4g.135gb", 4, 4, START, 1, None),
        profile("7g.269gb", 7, 8, START, 1, None),
    ],
};

/// GB300-278: name and memory in GB.
pub const GB300_278: Geometry = Geometry {
    model: "GB300-278",
    slices: 8,
    compute: 7,
    profiles: &[
        profile("1g.35gb", 1, 1, ONES, 7, None),
        profile("1g.35gb+me", 1, 1, ONES, 1, None),
        profile("1g.70gb", 1, 2, PAIRS, 4, None),
        profile("2g.70gb", 2, 2, TWOS, 3, None),
        profile("3g.139gb", 3, 4, HALVES, 2, None),
        profile("4g.139gb", 4, 4, START, 1, None),
        profile("7g.278gb", 7, 8, START, 1, None),
    ],
};

/// A30-24: name and memory in GB.
pub const A30_24: Geometry = Geometry {
    model: "A30-24",
    slices: 4,
    compute: 4,
    profiles: &[
        profile("1g.6gb", 1, 1, QUARTERS, 4, Some(5949)),
        profile("1g.6gb+me", 1, 1, QUARTERS, 1, Some(5949)),
        profile("2g.12gb", 2, 2, A30_TWOS, 2, Some(11971)),
        profile("2g.12gb+me", 2, 2, A30_TWOS, 1, Some(11971)),
        profile("4g.24gb", 4, 4, START, 1, Some(24003)),
    ],
};

/// RTX-PRO-6000-96: name and memory in GB.
pub const RTX_PRO_6000: Geometry = Geometry {
    model: "RTX-PRO-6000-96",
    slices: 12,
    compute: 4,
    profiles: &[
        profile("1g.24gb", 1, 3, RTX_ONES, 4, Some(24187)),
        profile("1g.24gb+me", 1, 3, RTX_ONES, 1, Some(24187)),
        profile("2g.48gb", 2, 6, RTX_TWOS, 2, Some(48517)),
        profile("4g.96gb", 4, 12, START, 1, Some(97382)),
    ],
};

/// All of them.
pub const ALL: [&Geometry; 14] = [
    &A100_40,
    &A100_80,
    &H100_80,
    &H100_94,
    &H100_96,
    &H200_141,
    &GH200_96,
    &GH200_144,
    &B200_180,
    &GB200_186,
    &B300_269,
    &GB300_278,
    &A30_24,
    &RTX_PRO_6000,
];

/// The table for a product name (`nvidia.com/gpu.product`, DCGM's `modelName`) and its memory in
/// MiB, which tells the sizes of one product apart where its name does not. `None` when the model
/// has no MIG or is not known.
#[must_use]
pub fn of_product(product: &str, mem_mib: Option<u32>) -> Option<&'static Geometry> {
    let text = product.to_ascii_uppercase();
    let has = |word: &str| {
        text.split(|c: char| !c.is_ascii_alphanumeric())
            .any(|part| part == word)
    };
    let gib = mem_mib.map(|mib| mib / 1024);
    let named = |size: &str| text.contains(size);
    let larger_than = |limit: u32| gib.is_some_and(|gib| gib > limit);
    let found = if has("A30") {
        &A30_24
    } else if has("A100") {
        if named("80GB") || larger_than(60) {
            &A100_80
        } else {
            &A100_40
        }
    } else if has("GH200") {
        if named("144G") || larger_than(110) {
            &GH200_144
        } else {
            &GH200_96
        }
    } else if has("H100") {
        if named("94GB") || named("NVL") {
            &H100_94
        } else if named("96GB") || larger_than(94) {
            &H100_96
        } else if larger_than(85) {
            &H100_94
        } else {
            &H100_80
        }
    } else if has("H200") {
        &H200_141
    } else if has("GB300") {
        &GB300_278
    } else if has("B300") {
        &B300_269
    } else if has("GB200") {
        &GB200_186
    } else if has("B200") {
        &B200_180
    } else if has("RTX") && has("PRO") && has("6000") {
        &RTX_PRO_6000
    } else {
        return None;
    };
    Some(found)
}
