//! dcgm-exporter: the text of `/metrics` for the GPUs of a node, on the port of its pod (for
//! `pods/proxy`) and on a loopback port.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::clock::Clock;
use super::agents::Shared;
use super::config::{ExporterConfig, LabelGeneration};
use super::hardware::{Gpu, Hardware, Instance, Machine};
use super::operands::Operand;
use super::plugin::Held;
use super::series::{Activity, Board};
use crate::sandbox::{ApiServer, PortAnswer};

/// What a scrape is answered with.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The window of `DCGM_EXP_XID_ERRORS_COUNT`.
const XID_WINDOW_SECS: f64 = 300.0;

/// Writes what the exporter of a node would say. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub(super) struct Exporter {
    hardware: Hardware,
    clock: Clock,
    config: ExporterConfig,
    begun: Instant,
}

impl Exporter {
    /// An exporter of all nodes of `hardware`.
    pub(super) fn new(hardware: Hardware, clock: Clock, config: ExporterConfig) -> Self {
        Self {
            hardware,
            clock,
            config,
            begun: Instant::now(),
        }
    }

    /// Answers `GET path` of the exporter on `node`.
    pub(super) fn answer(&self, node: &str, path: &str) -> PortAnswer {
        let answer = |code, body: String| PortAnswer {
            code,
            content_type: TEXT,
            body,
        };
        match path.split('?').next().unwrap_or_default() {
            "/metrics" => match self.text(node) {
                Some(body) => answer(200, body),
                None => answer(404, format!("there is no GPU node {node}\n")),
            },
            "/health" => answer(200, "OK\n".to_owned()),
            _ => answer(404, "404 page not found\n".to_owned()),
        }
    }

    /// The metrics of `node`; `None` when it has no GPUs.
    pub(super) fn text(&self, node: &str) -> Option<String> {
        let elapsed = self.begun.elapsed();
        let interval = self.clock.real(self.config.collect_secs);
        let interval = interval.max(Duration::from_millis(1));
        let tick = u64::try_from(elapsed.as_nanos() / interval.as_nanos()).unwrap_or(0);
        self.hardware
            .with(node, |machine| self.render(machine, node, tick))
    }

    fn generation(&self, node: &str) -> LabelGeneration {
        self.config.labels.unwrap_or_else(|| {
            if self.clock.unit(&format!("{node}/exporter")) < 0.5 {
                LabelGeneration::Hostname
            } else {
                LabelGeneration::LowerHostname
            }
        })
    }

    fn render(&self, machine: &Machine, node: &str, tick: u64) -> String {
        let rows = self.rows(machine, node, tick);
        let mut out = String::with_capacity(rows.len() * 6_000);
        for metric in METRICS {
            if metric.extra && !self.config.more_counters {
                continue;
            }
            let mut lines = String::new();
            for row in &rows {
                if let Some(value) = (metric.value)(row) {
                    // Writing to a String cannot fail.
                    let _ = write!(lines, "{}{{{}", metric.name, row.labels);
                    lines.push_str(&row.attribution(metric.name == XID_ERRORS));
                    let _ = writeln!(lines, "}} {value}");
                }
            }
            head(&mut out, metric, &lines);
        }
        if self.config.more_counters {
            let lines = self.xid_counts(&rows);
            head(&mut out, &XID_COUNT, &lines);
        }
        out
    }

    /// One row for each whole GPU and each GPU instance.
    fn rows(&self, machine: &Machine, node: &str, tick: u64) -> Vec<Row> {
        let held: Vec<(&str, &Held)> = machine.devices.held().collect();
        let generation = self.generation(node);
        let mut rows = Vec::new();
        for gpu in &machine.gpus {
            let on = |gi: Option<u32>| {
                let on_it = held
                    .iter()
                    .filter(move |(_, held)| held.device.gpu == gpu.index && held.device.gi == gi);
                on_it.copied().collect::<Vec<_>>()
            };
            let activity = |gi: Option<u32>, uuid: &str| {
                let mut sharers = on(gi);
                sharers.dedup_by_key(|(uid, _)| *uid);
                let all = sharers.iter().map(|(_, held)| {
                    let pod = format!("{}/{}", held.namespace, held.pod);
                    Activity::of(self.clock, &pod, uuid, tick)
                });
                // Those who share a GPU take turns on it, and share its memory.
                let share = 1.0 / sharers.len().max(1) as f64;
                Activity::mean(&all.map(|activity| (activity, share)).collect::<Vec<_>>())
            };
            let parts: Vec<(Option<&Instance>, Activity)> = if gpu.instances.is_empty() {
                vec![(None, activity(None, &gpu.uuid))]
            } else {
                let instances = gpu.instances.iter();
                instances
                    .map(|i| (Some(i), activity(Some(i.gi), &i.uuid)))
                    .collect()
            };
            let weighted: Vec<(Activity, f64)> = parts
                .iter()
                .map(|(instance, activity)| {
                    let of = instance.map_or(1.0, |i| f64::from(i.profile.compute));
                    let whole = instance.map_or(1.0, |_| f64::from(machine.model.compute.max(1)));
                    (*activity, of / whole)
                })
                .collect();
            let whole = Activity::mean(&weighted);
            let board = Board::of(self.clock, machine.model, &gpu.uuid, whole);
            for (instance, activity) in parts {
                let labels = labels(machine, gpu, instance, node, generation);
                let holder = on(instance.map(|i| i.gi)).last().map(|(uid, held)| Holder {
                    container: held.container.clone(),
                    namespace: held.namespace.clone(),
                    pod: held.pod.clone(),
                    uid: (generation == LabelGeneration::LowerHostname).then(|| (*uid).to_owned()),
                });
                let memory_mib = instance.map_or(machine.memory_mib, |i| i.profile.memory_mib);
                rows.push(Row {
                    labels,
                    holder,
                    activity,
                    board,
                    sliced: instance.is_some(),
                    lost: gpu.lost,
                    last_xid: gpu.last_xid,
                    recent: self.recent(gpu),
                    memory_mib,
                    memory_clock: machine.model.clocks_mhz.1,
                    profiling: machine.model.profiling,
                    nvlink: machine.model.compute == 7 && machine.gpus.len() > 1,
                    energy_mj: self.energy(machine, &gpu.uuid, tick),
                });
            }
        }
        rows
    }

    /// Millijoules since boot at a mean power of the GPU's own: it only grows.
    fn energy(&self, machine: &Machine, uuid: &str, tick: u64) -> u64 {
        let (idle, most) = machine.model.power_watts;
        let own = self.clock.unit(&format!("{uuid}/energy"));
        let mean = idle + (most - idle) * (0.3 + 0.4 * own);
        let days = 1.0 + 29.0 * own;
        let secs = days * 86_400.0 + tick as f64 * self.config.collect_secs;
        (mean * secs * 1_000.0) as u64
    }

    /// Xids in the window, with how many there were of each.
    fn recent(&self, gpu: &Gpu) -> BTreeMap<u32, usize> {
        let window = self.clock.real(XID_WINDOW_SECS);
        let mut counts = BTreeMap::new();
        for (at, code) in &gpu.xids {
            if at.elapsed() <= window {
                *counts.entry(*code).or_default() += 1;
            }
        }
        counts
    }

    /// The exporter's own count: a GPU without Xids has one row without the label `xid`.
    fn xid_counts(&self, rows: &[Row]) -> String {
        let mut lines = String::new();
        let window = (XID_WINDOW_SECS * 1_000.0) as u64;
        for row in rows {
            let holder = row.attribution(false);
            let name = XID_COUNT.name;
            let common = format!("{}{holder},window_size_in_ms=\"{window}\"", row.labels);
            if row.recent.is_empty() {
                let _ = writeln!(lines, "{name}{{{common}}} 0");
            }
            for (code, count) in &row.recent {
                let _ = writeln!(lines, "{name}{{{common},xid=\"{code}\"}} {count}");
            }
        }
        lines
    }
}

fn head(out: &mut String, metric: &Metric, lines: &str) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "# HELP {} {}", metric.name, metric.help);
    let _ = writeln!(out, "# TYPE {} {}", metric.name, metric.kind);
    out.push_str(lines);
}

/// The labels of a row that every metric has, up to the driver's version.
fn labels(
    machine: &Machine,
    gpu: &Gpu,
    instance: Option<&Instance>,
    node: &str,
    generation: LabelGeneration,
) -> String {
    let mut out = format!(
        "gpu=\"{}\",UUID=\"{}\",pci_bus_id=\"{}\",device=\"nvidia{}\",modelName=\"{}\"",
        gpu.index,
        gpu.uuid,
        gpu.pci_bus_id(),
        gpu.index,
        model_name(&machine.product),
    );
    if let Some(instance) = instance {
        let _ = write!(
            out,
            ",GPU_I_PROFILE=\"{}\",GPU_I_ID=\"{}\"",
            instance.profile.name, instance.gi
        );
    }
    let host = match generation {
        LabelGeneration::Hostname => "Hostname",
        LabelGeneration::LowerHostname => "hostname",
    };
    let _ = write!(
        out,
        ",{host}=\"{}\",DCGM_FI_DRIVER_VERSION=\"{}\"",
        escape(node),
        escape(&machine.driver)
    );
    out
}

/// NVML's name of a product: the label has dashes for blanks, except inside an A100's own name.
fn model_name(product: &str) -> String {
    let spaced = |text: &str| text.replace('-', " ");
    match product.split_once("A100-") {
        Some((before, rest)) if !rest.starts_with("80GB") => {
            escape(&format!("{}A100-{rest}", spaced(before)))
        }
        _ if product.is_empty() => "NVIDIA Graphics Device".to_owned(),
        _ => escape(&spaced(product)),
    }
}

/// A label's value as the text format writes it.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\\\");
    text.replace('"', "\\\"").replace('\n', "\\n")
}

struct Holder {
    container: String,
    namespace: String,
    pod: String,
    uid: Option<String>,
}

/// What the metrics of one row are made from.
struct Row {
    labels: String,
    holder: Option<Holder>,
    activity: Activity,
    board: Board,
    sliced: bool,
    lost: bool,
    last_xid: u32,
    recent: BTreeMap<u32, usize>,
    memory_mib: u32,
    memory_clock: u32,
    profiling: bool,
    nvlink: bool,
    energy_mj: u64,
}

impl Row {
    /// The labels behind the driver's version, in order of their names; for the Xid with its code.
    fn attribution(&self, with_xid: bool) -> String {
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
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    /// Not among those that the operator enables.
    extra: bool,
    value: fn(&Row) -> Option<String>,
}

const XID_ERRORS: &str = "DCGM_FI_DEV_XID_ERRORS";

const XID_COUNT: Metric = Metric {
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
static METRICS: &[Metric] = &[
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

/// The exporter's ports on its pods, where the pods have a network: in the embedded cluster.
pub(super) struct Ports {
    server: Option<ApiServer>,
    exporter: Option<Exporter>,
    /// The pod whose port is open, by node.
    open: BTreeMap<String, String>,
}

impl Ports {
    /// Ports on the pods of `server`; none without a server.
    pub(super) fn new(server: Option<ApiServer>, exporter: Option<Exporter>) -> Self {
        Self {
            server,
            exporter,
            open: BTreeMap::new(),
        }
    }

    /// Opens and closes the port on `node` as its pod comes and goes.
    pub(super) fn follow(&mut self, shared: &Shared, node: &str) {
        let (Some(server), Some(exporter)) = (&self.server, &self.exporter) else {
            return;
        };
        let running = shared.operands(|all| all.running_pod(node, Operand::Exporter));
        let running = running.map(|(_, name)| name);
        let open = self.open.get(node);
        if open == running.as_ref() {
            return;
        }
        let (namespace, port) = (shared.config.namespace.as_str(), exporter.config.port);
        if let Some(pod) = self.open.remove(node) {
            server.close_port(namespace, &pod, port);
        }
        if let Some(pod) = running {
            let (exporter, name) = (exporter.clone(), node.to_owned());
            let responder = Arc::new(move |path: &str| exporter.answer(&name, path));
            server.serve_port(namespace, &pod, port, responder);
            self.open.insert(node.to_owned(), pod);
        }
    }
}
