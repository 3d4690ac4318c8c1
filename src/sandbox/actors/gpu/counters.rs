//! The exporter's counters: their names and texts, and how a device's row shows each.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::series::{Activity, Board};

/// A label's value as the text format writes it.
pub(super) fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\\\");
    text.replace('"', "\\\"").replace('\n', "\\n")
}

/// The pod that holds a device.
pub(super) struct Holder {
    pub container: String,
    pub namespace: String,
    pub pod: String,
    pub uid: Option<String>,
}

/// What the metrics of one row are made from.
pub(super) struct Row {
    pub labels: String,
    pub holder: Option<Holder>,
    pub activity: Activity,
    pub board: Board,
    /// The GPU is in MIG mode, where utilisation and link counters do not exist.
    pub sliced: bool,
    pub lost: bool,
    pub last_xid: u32,
    pub recent: BTreeMap<u32, usize>,
    pub memory_mib: u32,
    pub memory_clock: u32,
    pub profiling: bool,
    pub nvlink: bool,
    pub energy_mj: u64,
}

impl Row {
    /// The labels behind the driver's version, in order of their names; for the Xid with its code.
    pub(super) fn attribution(&self, with_xid: bool) -> String {
        let mut out = String::new();
        let mut label = |name: &str, value: &str| {
            let _ = write!(out, ",{name}=\"{}\"", escape(value));
        };
        if let Some(holder) = &self.holder {
            label("container", &holder.container);
        }
        if with_xid {
            label("err_code", &self.last_xid.to_string());
            label("err_msg", xid_text(self.last_xid));
        }
        if let Some(holder) = &self.holder {
            label("namespace", &holder.namespace);
            label("pod", &holder.pod);
            if let Some(uid) = &holder.uid {
                label("pod_uid", uid);
            }
        }
        out
    }

    fn used_mib(&self) -> u32 {
        (f64::from(self.memory_mib) * self.activity.memory * 0.98) as u32
    }

    /// Kept for the driver: only whole GPUs show it.
    fn reserved_mib(&self) -> u32 {
        if self.sliced {
            0
        } else {
            self.memory_mib / 150
        }
    }
}

/// One metric: how a row shows it, if it does.
pub(super) struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: &'static str,
    /// Not among those that the operator enables.
    pub extra: bool,
    pub value: fn(&Row) -> Option<String>,
}

pub(super) const XID_ERRORS: &str = "DCGM_FI_DEV_XID_ERRORS";

pub(super) const XID_COUNT: Metric = Metric {
    name: "DCGM_EXP_XID_ERRORS_COUNT",
    help: "Count of XID Errors within user-specified time window (see xid-count-window-size param).",
    kind: "counter",
    extra: true,
    value: |_| None,
};

const fn gauge(
    name: &'static str,
    help: &'static str,
    value: fn(&Row) -> Option<String>,
) -> Metric {
    Metric {
        name,
        help,
        kind: "gauge",
        extra: false,
        value,
    }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    value: fn(&Row) -> Option<String>,
) -> Metric {
    Metric {
        kind: "counter",
        ..gauge(name, help, value)
    }
}

const fn extra(
    name: &'static str,
    help: &'static str,
    value: fn(&Row) -> Option<String>,
) -> Metric {
    Metric {
        extra: true,
        ..gauge(name, help, value)
    }
}

/// A whole number of a GPU that still answers.
fn whole(row: &Row, value: impl Into<f64>) -> Option<String> {
    let value: f64 = value.into();
    (!row.lost).then(|| format!("{value:.0}"))
}

fn ratio(row: &Row, value: f64) -> Option<String> {
    (!row.lost && row.profiling).then(|| format!("{value:.6}"))
}

/// What only a GPU that is not cut has.
fn uncut(row: &Row, value: f64) -> Option<String> {
    if row.sliced { None } else { whole(row, value) }
}

fn percent(value: f64) -> f64 {
    (value * 100.0).round()
}

/// The metrics that the operator's exporter is set up for, in its order, and a few more.
pub(super) static METRICS: &[Metric] = &[
    gauge(
        "DCGM_FI_DEV_SM_CLOCK",
        "SM clock frequency (in MHz).",
        |row| whole(row, row.board.sm_clock),
    ),
    gauge(
        "DCGM_FI_DEV_MEM_CLOCK",
        "Memory clock frequency (in MHz).",
        |row| whole(row, row.memory_clock),
    ),
    gauge(
        "DCGM_FI_DEV_MEMORY_TEMP",
        "Memory temperature (in C).",
        |row| whole(row, row.board.temperature.1),
    ),
    gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", |row| {
        whole(row, row.board.temperature.0)
    }),
    gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", |row| {
        (!row.lost).then(|| format!("{:.6}", row.board.power))
    }),
    counter(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since boot (in mJ).",
        |row| (!row.lost).then(|| row.energy_mj.to_string()),
    ),
    counter(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "Total number of PCIe retries.",
        |row| whole(row, 0),
    ),
    gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", |row| {
        uncut(row, percent(row.activity.engine))
    }),
    gauge(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "Memory utilization (in %).",
        |row| uncut(row, percent(row.activity.dram)),
    ),
    gauge(
        "DCGM_FI_DEV_ENC_UTIL",
        "Encoder utilization (in %).",
        |row| uncut(row, 0.0),
    ),
    gauge(
        "DCGM_FI_DEV_DEC_UTIL",
        "Decoder utilization (in %).",
        |row| uncut(row, 0.0),
    ),
    gauge(
        XID_ERRORS,
        "Value of the last XID error encountered.",
        |row| Some(row.last_xid.to_string()),
    ),
    gauge(
        "DCGM_FI_DEV_FB_FREE",
        "Framebuffer memory free (in MiB).",
        |row| {
            let taken = row.used_mib() + row.reserved_mib();
            whole(row, row.memory_mib.saturating_sub(taken))
        },
    ),
    gauge(
        "DCGM_FI_DEV_FB_USED",
        "Framebuffer memory used (in MiB).",
        |row| whole(row, row.used_mib()),
    ),
    gauge(
        "DCGM_FI_DEV_FB_RESERVED",
        "Framebuffer memory reserved (in MiB).",
        |row| whole(row, row.reserved_mib()),
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "Total number of NVLink bandwidth counters for all lanes.",
        |row| {
            if row.nvlink {
                uncut(row, (row.activity.tensor * 180_000.0).round())
            } else {
                None
            }
        },
    ),
    gauge(
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        "vGPU License status",
        |row| whole(row, 0),
    ),
    counter(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors",
        |row| whole(row, u32::from(matches!(row.last_xid, 63 | 64))),
    ),
    counter(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for correctable errors",
        |row| whole(row, 0),
    ),
    gauge(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "Whether remapping of rows has failed",
        |row| whole(row, u32::from(row.last_xid == 64)),
    ),
    gauge(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active.",
        |row| ratio(row, row.activity.engine),
    ),
    extra(
        "DCGM_FI_PROF_SM_ACTIVE",
        "The ratio of cycles an SM has at least 1 warp assigned.",
        |row| ratio(row, row.activity.sm),
    ),
    extra(
        "DCGM_FI_PROF_SM_OCCUPANCY",
        "The ratio of number of warps resident on an SM.",
        |row| ratio(row, row.activity.occupancy),
    ),
    gauge(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        |row| ratio(row, row.activity.tensor),
    ),
    gauge(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        |row| ratio(row, row.activity.dram),
    ),
    gauge(
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "The rate of data transmitted over the PCIe bus - including both protocol headers and data \
         payloads - in bytes per second.",
        |row| {
            let rate = row.profiling.then_some(row.activity.engine * 2.1e8)?;
            uncut(row, rate)
        },
    ),
    gauge(
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        "The rate of data received over the PCIe bus - including both protocol headers and data \
         payloads - in bytes per second.",
        |row| {
            let rate = row.profiling.then_some(row.activity.engine * 6.4e8)?;
            uncut(row, rate)
        },
    ),
];

/// The text that the exporter has for an Xid.
fn xid_text(code: u32) -> &'static str {
    match code {
        0 => "No Error",
        13 => "Graphics Engine Exception",
        31 => "GPU memory page fault",
        43 => "GPU stopped processing",
        45 => "Preemptive cleanup, due to previous errors",
        48 => "Double Bit ECC Error",
        63 => "ECC page retirement or row remapping recording event",
        64 => "ECC page retirement or row remapper recording failure",
        74 => "NVLINK Error",
        79 => "GPU has fallen off the bus",
        92 => "High single-bit ECC error rate",
        94 => "Contained ECC error",
        95 => "Uncontained ECC error",
        109 => "Context Switch Timeout Error",
        119 => "GSP RPC Timeout",
        120 => "GSP Error",
        154 => "GPU Recovery Action Changed",
        _ => "Unknown Error",
    }
}
