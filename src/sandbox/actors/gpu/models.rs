//! The GPU models that are known here, as tables.
//!
//! Profiles, placements, memory and multiprocessors are those of NVIDIA's MIG user guide and of
//! `nvidia-smi mig -lgip` and `-lgipp` outputs. What no public table tells of the newest models is
//! a share of the whole GPU.

use super::geometry::{Model, Profile};

/// The profiles of the models with eight memory and seven compute slices: 1g, 1g+me, 2g, 3g, 4g,
/// 7g, 1g with twice the memory.
const fn eight(
    names: [&'static str; 7],
    memory_mib: [u32; 7],
    multiprocessors: [u32; 7],
    hopper: bool,
) -> [Profile; 7] {
    const ANY: &[u32] = &[0, 1, 2, 3, 4, 5, 6];
    const HALF: &[u32] = &[0, 4];
    // Copy engines, decoders, JPEG engines, optical flow.
    let engines: [[u32; 4]; 7] = if hopper {
        [
            [1, 1, 1, 0],
            [1, 1, 1, 1],
            [2, 2, 2, 0],
            [3, 3, 3, 0],
            [4, 4, 4, 0],
            [8, 7, 7, 1],
            [1, 1, 1, 0],
        ]
    } else {
        [
            [1, 0, 0, 0],
            [1, 1, 1, 1],
            [2, 1, 0, 0],
            [3, 2, 0, 0],
            [4, 2, 0, 0],
            [7, 5, 1, 1],
            [1, 0, 0, 0],
        ]
    };
    let [e1, me, e2, e3, e4, e7, double] = engines;
    let [m1, mme, m2, m3, m4, m7, mdouble] = memory_mib;
    let [s1, sme, s2, s3, s4, s7, sdouble] = multiprocessors;
    let [n1, nme, n2, n3, n4, n7, ndouble] = names;
    [
        profile(n1, (1, 1), ANY, 7, m1, s1, e1),
        profile(n2, (2, 2), &[0, 2, 4], 3, m2, s2, e2),
        profile(n3, (3, 4), HALF, 2, m3, s3, e3),
        profile(n4, (4, 4), &[0], 1, m4, s4, e4),
        profile(n7, (7, 8), &[0], 1, m7, s7, e7),
        profile(nme, (1, 1), ANY, 1, mme, sme, me),
        profile(ndouble, (1, 2), &[0, 2, 4, 6], 4, mdouble, sdouble, double),
    ]
}

const fn profile(
    name: &'static str,
    (compute, units): (u32, u32),
    starts: &'static [u32],
    max: u32,
    memory_mib: u32,
    multiprocessors: u32,
    engines: [u32; 4],
) -> Profile {
    Profile {
        name,
        compute,
        units,
        starts,
        max,
        memory_mib,
        multiprocessors,
        engines,
    }
}

/// Memory of the seven profiles as shares of a whole GPU, where no table tells it.
const fn shares(whole_mib: u32) -> [u32; 7] {
    let eighth = whole_mib / 8;
    let quarter = whole_mib / 4;
    [
        eighth,
        eighth,
        quarter,
        whole_mib / 2,
        whole_mib / 2,
        whole_mib,
        quarter,
    ]
}

const AMPERE_SMS: [u32; 7] = [14, 14, 28, 42, 56, 98, 14];
const HOPPER_SMS: [u32; 7] = [16, 16, 32, 60, 64, 132, 26];
const BLACKWELL_SMS: [u32; 7] = [18, 18, 36, 70, 72, 148, 30];

const A100_40: [Profile; 7] = eight(
    [
        "1g.5gb",
        "1g.5gb+me",
        "2g.10gb",
        "3g.20gb",
        "4g.20gb",
        "7g.40gb",
        "1g.10gb",
    ],
    [4_864, 4_864, 9_856, 19_968, 19_968, 40_192, 9_856],
    AMPERE_SMS,
    false,
);
const A100_80: [Profile; 7] = eight(
    [
        "1g.10gb",
        "1g.10gb+me",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
        "1g.20gb",
    ],
    [9_856, 9_856, 19_968, 40_192, 40_192, 80_384, 19_968],
    AMPERE_SMS,
    false,
);
const H100_80: [Profile; 7] = eight(
    [
        "1g.10gb",
        "1g.10gb+me",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
        "1g.20gb",
    ],
    [9_984, 9_984, 20_096, 40_448, 40_448, 81_152, 20_096],
    HOPPER_SMS,
    true,
);
const H100_94: [Profile; 7] = eight(
    [
        "1g.12gb",
        "1g.12gb+me",
        "2g.24gb",
        "3g.47gb",
        "4g.47gb",
        "7g.94gb",
        "1g.24gb",
    ],
    [11_008, 11_008, 22_144, 47_488, 47_488, 95_360, 22_144],
    HOPPER_SMS,
    true,
);
const HOPPER_96: [Profile; 7] = eight(
    [
        "1g.12gb",
        "1g.12gb+me",
        "2g.24gb",
        "3g.48gb",
        "4g.48gb",
        "7g.96gb",
        "1g.24gb",
    ],
    shares(97_871),
    HOPPER_SMS,
    true,
);
const GH200_144: [Profile; 7] = eight(
    [
        "1g.18gb",
        "1g.18gb+me",
        "2g.36gb",
        "3g.72gb",
        "4g.72gb",
        "7g.144gb",
        "1g.36gb",
    ],
    [17_920, 17_920, 36_096, 73_728, 73_728, 147_456, 36_096],
    HOPPER_SMS,
    true,
);
const H200: [Profile; 7] = eight(
    [
        "1g.18gb",
        "1g.18gb+me",
        "2g.35gb",
        "3g.71gb",
        "4g.71gb",
        "7g.141gb",
        "1g.35gb",
    ],
    [16_384, 16_384, 33_024, 71_168, 71_168, 143_360, 33_024],
    HOPPER_SMS,
    true,
);
const B200: [Profile; 7] = eight(
    [
        "1g.23gb",
        "1g.23gb+me",
        "2g.45gb",
        "3g.90gb",
        "4g.90gb",
        "7g.180gb",
        "1g.45gb",
    ],
    [22_528, 22_528, 45_312, 91_136, 91_136, 182_784, 45_312],
    BLACKWELL_SMS,
    true,
);
const GB200: [Profile; 7] = eight(
    [
        "1g.23gb",
        "1g.23gb+me",
        "2g.47gb",
        "3g.93gb",
        "4g.93gb",
        "7g.186gb",
        "1g.47gb",
    ],
    [22_528, 22_528, 46_592, 94_208, 94_208, 189_471, 46_592],
    [18, 18, 38, 70, 76, 152, 32],
    true,
);
const B300: [Profile; 7] = eight(
    [
        "1g.34gb",
        "1g.34gb+me",
        "2g.67gb",
        "3g.135gb",
        "4g.135gb",
        "7g.269gb",
        "1g.67gb",
    ],
    shares(275_040),
    BLACKWELL_SMS,
    true,
);
const GB300: [Profile; 7] = eight(
    [
        "1g.35gb",
        "1g.35gb+me",
        "2g.70gb",
        "3g.139gb",
        "4g.139gb",
        "7g.278gb",
        "1g.70gb",
    ],
    shares(284_208),
    BLACKWELL_SMS,
    true,
);
const A30: [Profile; 5] = {
    const QUARTER: &[u32] = &[0, 1, 2, 3];
    const HALF: &[u32] = &[0, 2];
    [
        profile("1g.6gb", (1, 1), QUARTER, 4, 5_952, 14, [1, 0, 0, 0]),
        profile("2g.12gb", (2, 2), HALF, 2, 11_968, 28, [2, 2, 0, 0]),
        profile("4g.24gb", (4, 4), &[0], 1, 24_000, 56, [4, 4, 1, 1]),
        profile("1g.6gb+me", (1, 1), QUARTER, 1, 5_952, 14, [1, 1, 1, 1]),
        profile("2g.12gb+me", (2, 2), HALF, 1, 11_968, 28, [2, 2, 1, 1]),
    ]
};
/// Twelve units of memory: a quarter takes three of them.
const RTX_PRO_6000: [Profile; 11] = {
    const QUARTER: &[u32] = &[0, 3, 6, 9];
    const HALF: &[u32] = &[0, 6];
    const PLAIN: [u32; 4] = [1, 1, 1, 0];
    const ALL: [u32; 4] = [1, 4, 4, 1];
    const TWO: [u32; 4] = [2, 2, 2, 0];
    [
        profile("1g.24gb", (1, 3), QUARTER, 4, 23_674, 46, PLAIN),
        profile("2g.48gb", (2, 6), HALF, 2, 47_616, 94, TWO),
        profile("4g.96gb", (4, 12), &[0], 1, 95_620, 188, [4, 4, 4, 1]),
        profile("1g.24gb+me", (1, 3), QUARTER, 1, 23_674, 46, [1, 1, 1, 1]),
        profile("1g.24gb+gfx", (1, 3), QUARTER, 4, 23_674, 46, PLAIN),
        profile("2g.48gb+gfx", (2, 6), HALF, 2, 47_616, 94, TWO),
        profile("4g.96gb+gfx", (4, 12), &[0], 1, 95_620, 188, [4, 4, 4, 1]),
        profile("1g.24gb-me", (1, 3), QUARTER, 4, 23_674, 46, [1, 0, 0, 0]),
        profile("2g.48gb-me", (2, 6), HALF, 2, 47_616, 94, [2, 0, 0, 0]),
        profile("1g.24gb+me.all", (1, 3), QUARTER, 1, 23_674, 46, ALL),
        profile("2g.48gb+me.all", (2, 6), HALF, 1, 47_616, 94, ALL),
    ]
};

const HOPPER_CLOCKS: (u32, u32) = (1_980, 2_619);

const fn cut(
    words: &'static [&'static str],
    pci_devices: &'static [u16],
    memory_mib: u32,
    profiles: &'static [Profile],
    power_watts: (f64, f64),
    clocks_mhz: (u32, u32),
) -> Model {
    Model {
        words,
        pci_devices,
        memory_mib,
        compute: 7,
        mode_needs_reset: false,
        profiles,
        power_watts,
        clocks_mhz,
        profiling: true,
    }
}

const fn whole(
    words: &'static [&'static str],
    memory_mib: u32,
    power_watts: (f64, f64),
    profiling: bool,
) -> Model {
    Model {
        words,
        pci_devices: &[],
        memory_mib,
        compute: 0,
        mode_needs_reset: false,
        profiles: &[],
        power_watts,
        clocks_mhz: (2_520, 9_001),
        profiling,
    }
}

/// Models from the most to the least particular: the first whose words are all in a product's
/// name is meant.
static MODELS: [Model; 19] = [
    cut(
        &["GB300"],
        &[0x31C2],
        284_208,
        &GB300,
        (180.0, 1_400.0),
        (2_062, 3_996),
    ),
    cut(
        &["GB200"],
        &[0x2941],
        189_471,
        &GB200,
        (170.0, 1_200.0),
        (2_062, 3_996),
    ),
    cut(
        &["B300"],
        &[0x3182],
        275_040,
        &B300,
        (160.0, 1_100.0),
        (2_032, 3_996),
    ),
    cut(
        &["B200"],
        &[0x2901],
        183_359,
        &B200,
        (140.0, 1_000.0),
        (1_965, 3_996),
    ),
    cut(
        &["GH200", "144G"],
        &[0x2348],
        147_456,
        &GH200_144,
        (90.0, 900.0),
        HOPPER_CLOCKS,
    ),
    cut(
        &["GH200"],
        &[0x2342],
        97_871,
        &HOPPER_96,
        (90.0, 900.0),
        HOPPER_CLOCKS,
    ),
    cut(
        &["H200"],
        &[0x2335, 0x233B],
        143_771,
        &H200,
        (75.0, 700.0),
        (1_980, 3_201),
    ),
    cut(
        &["H100", "NVL"],
        &[0x2321, 0x233A],
        95_830,
        &H100_94,
        (60.0, 400.0),
        HOPPER_CLOCKS,
    ),
    cut(
        &["H100", "96GB"],
        &[0x233D],
        97_871,
        &HOPPER_96,
        (70.0, 700.0),
        HOPPER_CLOCKS,
    ),
    cut(
        &["H20"],
        &[0x2329],
        97_871,
        &HOPPER_96,
        (70.0, 500.0),
        HOPPER_CLOCKS,
    ),
    cut(
        &["H100"],
        &[0x2330, 0x2331, 0x2322, 0x2324],
        81_559,
        &H100_80,
        (70.0, 700.0),
        HOPPER_CLOCKS,
    ),
    Model {
        mode_needs_reset: true,
        ..cut(
            &["A100", "40GB"],
            &[0x20B0, 0x20B1, 0x20F1, 0x20F6],
            40_960,
            &A100_40,
            (55.0, 400.0),
            (1_410, 1_215),
        )
    },
    Model {
        mode_needs_reset: true,
        ..cut(
            &["A100"],
            &[0x20B2, 0x20B5, 0x20F3, 0x20F5],
            81_920,
            &A100_80,
            (60.0, 400.0),
            (1_410, 1_593),
        )
    },
    Model {
        compute: 4,
        mode_needs_reset: true,
        ..cut(
            &["A30"],
            &[0x20B7],
            24_576,
            &A30,
            (28.0, 165.0),
            (1_440, 1_215),
        )
    },
    Model {
        compute: 4,
        profiling: false,
        ..cut(
            &["RTX", "PRO", "6000"],
            &[0x2BB5],
            97_887,
            &RTX_PRO_6000,
            (30.0, 600.0),
            (2_617, 12_481),
        )
    },
    whole(&["L40S"], 46_068, (35.0, 350.0), true),
    whole(&["L4"], 23_034, (13.0, 72.0), true),
    whole(&["A10G"], 23_028, (20.0, 300.0), true),
    whole(&["T4"], 15_360, (10.0, 70.0), false),
];

/// The model of a product, as `nvidia.com/gpu.product` names it.
///
/// Words are compared, not parts of words: `GH200` is no `H200`.
pub(super) fn model(product: &str) -> &'static Model {
    let has = |word: &str| product.split(['-', ' ', '_']).any(|part| part == word);
    let mut models = MODELS.iter();
    let found = models.find(|model| model.words.iter().all(|word| has(word)));
    found.unwrap_or(&UNKNOWN)
}

/// What is not known here is a GPU that cannot be cut.
static UNKNOWN: Model = whole(&[], 16_384, (25.0, 250.0), false);

/// The models that can be cut.
pub(super) fn cut_models() -> impl Iterator<Item = &'static Model> {
    MODELS.iter().filter(|model| !model.profiles.is_empty())
}
