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
use super::counters::{Holder, METRICS, Metric, Row, XID_COUNT, XID_ERRORS, escape};
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
                    sliced: gpu.mig,
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
