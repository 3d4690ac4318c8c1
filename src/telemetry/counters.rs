//! The counters that are read, under the names of each generation of DCGM, and which values of them
//! can be true.
//!
//! Sources: dcgm-exporter's counter lists, DCGM's field identifiers up to 4.6 (which renamed some).

/// What a counter tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Counter {
    /// Multiprocessor clock in MHz.
    SmClock,
    /// Temperature in °C.
    Temperature,
    /// Temperature of the memory in °C.
    MemoryTemperature,
    /// Watts.
    Power,
    /// Utilisation in percent; not under MIG.
    Utilisation,
    /// The same as a ratio.
    UtilisationRatio,
    /// Cycles of the multiprocessors with work, ratio.
    Sm,
    /// Time of the graphics engine, ratio.
    Engine,
    /// Tensor pipe, ratio.
    Tensor,
    /// Memory interface, ratio.
    Dram,
    /// Memory in use, MiB.
    MemoryUsed,
    /// Memory that is free, MiB.
    MemoryFree,
    /// Memory that the driver keeps, MiB.
    MemoryReserved,
    /// All memory, MiB.
    MemoryTotal,
    /// The last Xid.
    Xid,
    /// Xids of the last minutes, one row each.
    XidCount,
    /// Whether a row could not be remapped.
    RemapFailure,
}

/// All names of each counter, the usual one first.
pub const NAMES: &[(Counter, &[&str])] = &[
    (Counter::SmClock, &["DCGM_FI_DEV_SM_CLOCK"]),
    (
        Counter::Temperature,
        &["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"],
    ),
    (
        Counter::MemoryTemperature,
        &["DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"],
    ),
    (
        Counter::Power,
        &["DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"],
    ),
    (Counter::Utilisation, &["DCGM_FI_DEV_GPU_UTIL"]),
    (Counter::UtilisationRatio, &["DCGM_FI_DEV_GPU_UTIL_RATIO"]),
    (
        Counter::Sm,
        &["DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"],
    ),
    (
        Counter::Engine,
        &[
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        ],
    ),
    (
        Counter::Tensor,
        &[
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
        ],
    ),
    (
        Counter::Dram,
        &["DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"],
    ),
    (Counter::MemoryUsed, &["DCGM_FI_DEV_FB_USED"]),
    (Counter::MemoryFree, &["DCGM_FI_DEV_FB_FREE"]),
    (Counter::MemoryReserved, &["DCGM_FI_DEV_FB_RESERVED"]),
    (Counter::MemoryTotal, &["DCGM_FI_DEV_FB_TOTAL"]),
    (
        Counter::Xid,
        &["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"],
    ),
    (Counter::XidCount, &["DCGM_EXP_XID_ERRORS_COUNT"]),
    (
        Counter::RemapFailure,
        &[
            "DCGM_FI_DEV_ROW_REMAP_FAILURE",
            "DCGM_FI_DEV_ROW_REMAP_FAILED",
        ],
    ),
];

impl Counter {
    /// The counter of a metric's name.
    pub fn of(name: &str) -> Option<Self> {
        // Of thousands of rows most are of other metrics.
        if !name.starts_with("DCGM_") {
            return None;
        }
        NAMES
            .iter()
            .find(|(_, names)| names.contains(&name))
            .map(|(counter, _)| *counter)
    }

    /// The value, if it can be true. DCGM writes "not available" as a number beyond all others
    /// (2147483632 and on, 140737488355328 and on, 9223372036854775792 and on), and some exporters
    /// print it.
    pub fn sound(self, value: f64) -> Option<f64> {
        let within = |low: f64, high: f64| (low..=high).contains(&value).then_some(value);
        match self {
            Counter::SmClock => within(0.0, 20_000.0),
            Counter::Temperature => within(-50.0, 200.0),
            // Cards whose memory has no sensor say 0.
            Counter::MemoryTemperature => within(1.0, 200.0),
            Counter::Power => within(0.0, 10_000.0),
            Counter::Utilisation => within(0.0, 100.0),
            // Rounding goes a little beyond 1; under MIG some versions tell more.
            Counter::Sm
            | Counter::Engine
            | Counter::Tensor
            | Counter::Dram
            | Counter::UtilisationRatio => {
                within(0.0, 2.0).map(|share| share.clamp(0.0, 1.0).abs())
            }
            Counter::MemoryUsed
            | Counter::MemoryFree
            | Counter::MemoryReserved
            | Counter::MemoryTotal => within(0.0, 16_000_000.0),
            Counter::Xid | Counter::XidCount => {
                within(0.0, 1_000_000.0).filter(|n| n.fract() == 0.0)
            }
            Counter::RemapFailure => within(0.0, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_dcgm_are_not_numbers() {
        for counter in NAMES.iter().map(|(c, _)| *c) {
            for blank in [
                2_147_483_632.0,
                140_737_488_355_330.0,
                9.223_372_036_854_776e18,
                f64::NAN,
                f64::INFINITY,
                -1.0e9,
            ] {
                assert_eq!(counter.sound(blank), None, "{counter:?} {blank}");
            }
        }
        assert_eq!(Counter::Engine.sound(1.000_001), Some(1.0));
        assert_eq!(Counter::MemoryTemperature.sound(0.0), None);
        assert_eq!(Counter::of("DCGM_FI_DEV_XID_ERROR"), Some(Counter::Xid));
        assert_eq!(Counter::of("DCGM_FI_DEV_SM_CLOCKS"), None);
    }
}
