//! A node: devices, MIG counts, conditions, taints, pods, events.

use ratatui::text::{Line, Span};

use super::sheet::{LIST_LIMIT, Sheet};
use crate::model::{
    Condition, GpuCell, GpuReading, Holder, Kind, Measured, MigInstance, MigStrategy, Node,
    NodeTelemetry, Sharing, Str, TaintEffect, Xid,
};
use crate::tui::format;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::gpu_look;
use crate::tui::views::node_row::NodeRow;
use crate::tui::views::pods::{self, Scope};

/// Columns for the drawing of one device.
const DEVICE: u16 = 26;

pub(super) fn describe(name: &Str, gpu: Option<u32>, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let cluster = ctx.cluster;
    let Some((node, held)) = cluster.node(name) else {
        let (_, held) = cluster.unknown_nodes().find(|(n, _)| *n == name)?;
        let row = NodeRow::of_unknown(name, held, cluster.is_known(Kind::Node));
        let mut sheet = Sheet::new("Node", name, ctx);
        sheet.styled("state", row.state.clone(), Meaning::Denied);
        sheet.field(
            "known",
            "only what your pods on it tell; its size, health and other pods are not",
        );
        pods(&mut sheet, name, ctx);
        return Some(sheet.finish());
    };
    let row = NodeRow::of(node, held, cluster);
    let mut sheet = Sheet::new("Node", name, ctx);
    if let Some(index) = gpu {
        sheet.field("GPU", gpu_in_words(&row, index));
    }
    sheet.styled("state", row.state.clone(), row.severity.meaning());
    in_short(&mut sheet, &row, ctx);
    facts(&mut sheet, node, &row);
    sheet.meta(&node.meta);
    resources(&mut sheet, node, &row, &held.requests);
    devices(&mut sheet, &row, gpu, ctx);
    mig(&mut sheet, &row);
    conditions(&mut sheet, node, ctx);
    taints(&mut sheet, node);
    pods(&mut sheet, name, ctx);
    sheet.happenings(|h| h.kind() == "Node" && h.name() == &**name);
    sheet.labels(&node.meta);
    Some(sheet.finish())
}

/// All GPUs in one line: how busy, how full, the hottest, what they draw, and how old that is.
fn in_short(sheet: &mut Sheet<'_>, row: &NodeRow, ctx: &Ctx<'_>) {
    let Some(telemetry) = row.telemetry.as_deref().filter(|t| t.gpus.is_ok()) else {
        return;
    };
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let mut words = Vec::new();
    words.extend(telemetry.activity().map(|s| format!("SM {}", percent(s))));
    words.extend(
        telemetry
            .memory_share()
            .map(|s| format!("memory {}", percent(s))),
    );
    words.extend(
        telemetry
            .temperature_c()
            .map(|t| format!("hottest {t:.0} °C")),
    );
    words.extend(telemetry.power_watts().map(|w| format!("{w:.0} W")));
    let age = format::age(Some(telemetry.at), ctx.now);
    sheet.field("measured", format!("{}, {age} ago", words.join(", ")));
}

fn facts(sheet: &mut Sheet<'_>, node: &Node, row: &NodeRow) {
    let gpus = &node.gpus;
    sheet.maybe("model", gpus.model.as_ref().map(|m| m.product().to_owned()));
    let memory = gpus
        .memory_mib
        .map(|mib| format::bytes(i64::from(mib) << 20));
    sheet.maybe("GPU memory", memory);
    match row.pricing.tier(node) {
        Some((tier, label)) => sheet.field("tier", format!("{} (label {label})", tier.name())),
        None => sheet.styled("tier", format::UNKNOWN, Meaning::Unknown),
    }
    if let Some(price) = row.pricing.price(node) {
        let amount = format::money(price.per_gpu_hour, &row.pricing.currency);
        sheet.field("price", format!("{amount} a GPU-hour ({})", price.source));
    }
    if let Some((at, label)) = node.end() {
        sheet.styled(
            "ends",
            format!("{} ({label})", format::timestamp(at)),
            Meaning::Warn,
        );
    }
    sheet.maybe("leaf", row.leaf());
    sheet.maybe("zone", row.zone());
    if let Some(clique) = &gpus.clique {
        sheet.field("NVLink domain", &**clique);
    }
    match gpus.sharing {
        Sharing::None => {}
        Sharing::TimeSlicing => {
            sheet.field("sharing", format!("time-slicing, {} a GPU", gpus.replicas));
        }
        Sharing::Mps => sheet.field("sharing", format!("MPS, {} a GPU", gpus.replicas)),
    }
    sheet.maybe(
        "kubelet",
        (!node.kubelet_version.is_empty()).then_some(&*node.kubelet_version),
    );
}

fn resources(sheet: &mut Sheet<'_>, node: &Node, row: &NodeRow, asked: &crate::model::Resources) {
    sheet.section("Requested of allocatable");
    let known = row.pods.is_some();
    let of = |used: String, all: String, percent: Option<i64>| {
        let used = if known { &used } else { format::UNKNOWN };
        match percent {
            Some(p) => format!("{used} of {all} ({p}%)"),
            None => format!("{used} of {all}"),
        }
    };
    let all = &node.allocatable;
    let cpu = of(
        format::cpu(asked.cpu_milli),
        format::cpu(all.cpu_milli),
        row.cpu_percent,
    );
    sheet.field("CPU", cpu);
    let mem = of(
        format::bytes(asked.mem_bytes),
        format::bytes(all.mem_bytes),
        row.mem_percent,
    );
    sheet.field("memory", mem);
    let pods = of(format::count(asked.pods), format::count(all.pods), None);
    sheet.field("pods", pods);
    for (key, capacity) in &node.capacity.extended {
        let given = all.extended(key);
        // What a re-partition or an unused page size leaves behind.
        if *capacity == 0 && given == 0 && asked.extended(key) == 0 {
            continue;
        }
        let mut text = of(
            format::count(asked.extended(key)),
            format::count(given),
            None,
        );
        let meaning = if given < *capacity {
            text.push_str(&format!(
                ", {} of {} not given out",
                format::count(capacity - given),
                format::count(*capacity)
            ));
            Meaning::Warn
        } else {
            Meaning::Text
        };
        sheet.styled(
            key.strip_prefix("nvidia.com/").unwrap_or(key),
            text,
            meaning,
        );
    }
}

/// One GPU in words: `3 of 7 slices used`.
pub(crate) fn gpu_in_words(row: &NodeRow, index: u32) -> String {
    let Some(cell) = row.cells.get(index as usize) else {
        return format!("gpu {index}: not known");
    };
    let mut text = match cell {
        GpuCell::Free => "free".to_owned(),
        GpuCell::Used => "held by a pod".to_owned(),
        GpuCell::Unhealthy => "sick: the node does not give it out".to_owned(),
        GpuCell::Shared { used, of } => format!("shared, {used} of {of} shares held"),
        GpuCell::Mig { instances, slices } => {
            let width = |used: bool| -> u32 {
                let those = instances.iter().filter(|i| i.used == used);
                those.map(|i| u32::from(i.width)).sum()
            };
            let held = instances.iter().filter(|i| i.used).count();
            if instances.is_empty() {
                "cut by MIG, no instances".to_owned()
            } else {
                format!(
                    "MIG, {held} of {} instances held, {} of {slices} memory slices",
                    instances.len(),
                    width(true),
                )
            }
        }
    };
    if !row.is_ready() {
        text.push_str("; the node does not answer or is not ready");
    } else if row.is_cordoned() {
        text.push_str("; the node is cordoned");
    }
    format!("gpu {index}: {text}")
}

/// The pods on a GPU, or on its n-th instance, each with who tells that it is this device.
pub(crate) fn holders_of(
    row: &NodeRow,
    index: u32,
    part: Option<usize>,
    holders: &[Holder],
) -> Vec<String> {
    let words = |h: &Holder| {
        let told = match h.told_by {
            Some(source) => source.name(),
            None => "device unknown",
        };
        format!("{}/{} ({told})", h.namespace, h.name)
    };
    let Some(part) = part else {
        return holders.iter().map(words).collect();
    };
    let Some(GpuCell::Mig { instances, .. }) = row.cells.get(index as usize) else {
        return Vec::new();
    };
    let Some(instance) = instances.get(part).filter(|i| i.used) else {
        return Vec::new();
    };
    // Of several instances of one profile nothing tells which pod has which: in their order.
    let before = instances.iter().take(part);
    let before = before.filter(|i| i.used && i.profile == instance.profile);
    let alike = holders
        .iter()
        .filter(|h| h.profile.as_ref().is_none_or(|p| *p == instance.profile));
    alike.skip(before.count()).take(1).map(words).collect()
}

fn devices(sheet: &mut Sheet<'_>, row: &NodeRow, at: Option<u32>, ctx: &Ctx<'_>) {
    sheet.section("Devices");
    if row.cells.is_empty() {
        match row.gpus() {
            None if row.has_gpus() => sheet.text(
                "their number is not known: neither a label nor the device plugin states it",
                Meaning::Unknown,
            ),
            _ => sheet.text("no GPUs", Meaning::Muted),
        }
        return;
    }
    let all = ctx.cluster.holders(&row.name, &row.cells);
    let published = ctx.cluster.published(&row.name);
    let mut told = true;
    for (index, cell) in (0u32..).zip(&row.cells) {
        let one = NodeRow {
            cells: vec![cell.clone()],
            ..row.clone()
        };
        let drawing = gpu_look::row(&one, DEVICE, ctx);
        let pad = usize::from(DEVICE).saturating_sub(drawing.width());
        let mut spans = vec![Span::styled(
            format!("{index:>3}  "),
            ctx.style(if at == Some(index) {
                Meaning::Title
            } else {
                Meaning::Muted
            }),
        )];
        spans.extend(drawing.spans);
        let words = gpu_in_words(row, index);
        let words = words.split_once(": ").map_or(&*words, |(_, rest)| rest);
        spans.push(Span::styled(
            format!("{} {words}", " ".repeat(pad)),
            ctx.style(Meaning::Text),
        ));
        sheet.line(spans);
        let reading = row.telemetry.as_ref().and_then(|t| t.gpu(index));
        if let Some(reading) = reading {
            sheet.below(measures(reading), Meaning::Muted);
            if let Some((words, meaning)) = faults(reading) {
                sheet.below(words, meaning);
            }
        }
        for taint in published.taints(index) {
            let meaning = if taint.bars() {
                Meaning::Warn
            } else {
                Meaning::Muted
            };
            sheet.below(format!("taint {}", taint.in_words()), meaning);
        }
        let holders = all.get(index as usize).map_or(&[][..], |h| h);
        told &= holders.iter().all(|h| h.told_by.is_some());
        match cell {
            GpuCell::Mig { instances, .. } => {
                for (part, instance) in instances.iter().enumerate() {
                    let pods = holders_of(row, index, Some(part), holders);
                    sheet.below(instance_words(instance, reading, &pods), Meaning::Text);
                }
            }
            _ => {
                for pod in holders_of(row, index, None, holders) {
                    sheet.below(pod, Meaning::Text);
                }
            }
        }
    }
    if !told {
        sheet.text(
            "device unknown: neither a ResourceClaim nor dcgm-exporter tells which device a pod holds; \
             counts are drawn, used ones first",
            Meaning::Muted,
        );
    }
    telemetry(sheet, row, ctx);
}

/// One instance: profile, place, memory, activity, who holds it.
fn instance_words(instance: &MigInstance, reading: Option<&GpuReading>, pods: &[String]) -> String {
    let last = instance.start + instance.width.saturating_sub(1);
    let slices = if last == instance.start {
        format!("slice {last}")
    } else {
        format!("slices {}-{last}", instance.start)
    };
    let mut words = vec![format!("{:<12} {slices:<12}", instance.profile.to_string())];
    if !instance.told {
        words.push("place not told".to_owned());
    }
    let measured = reading.and_then(|r| {
        let found = r.instances.iter().find(|i| Some(i.gi) == instance.gi)?;
        Some(&found.measured)
    });
    if let Some(measured) = measured {
        words.extend(
            measured
                .activity
                .map(|(share, by)| format!("{} {:.0}%", by.name(), share * 100.0)),
        );
        words.extend(memory_words(measured));
    }
    words.push(match (pods, instance.used, instance.sick) {
        ([pod, ..], ..) => pod.clone(),
        ([], true, _) => "held".to_owned(),
        ([], false, true) => "sick".to_owned(),
        ([], false, false) => "free".to_owned(),
    });
    words.join("  ")
}

fn memory_words(measured: &Measured) -> Option<String> {
    let gib = |mib: u32| format::bytes(i64::from(mib) << 20);
    match (measured.memory_used_mib, measured.memory_total_mib) {
        (Some(used), Some(total)) => Some(format!("{} of {}", gib(used), gib(total))),
        (Some(used), None) => Some(format!("{} used", gib(used))),
        (None, _) => None,
    }
}

/// What is measured of a GPU, on one line.
fn measures(reading: &GpuReading) -> String {
    let mut words = Vec::new();
    words.push(match reading.measured.activity {
        Some((share, by)) => format!("{} {:.0}%", by.name(), share * 100.0),
        None if !reading.instances.is_empty() => {
            format!("activity {} (no counter under MIG)", format::UNKNOWN)
        }
        None => format!("activity {}", format::UNKNOWN),
    });
    words.extend(
        reading
            .measured
            .tensor
            .map(|t| format!("tensor {:.0}%", t * 100.0)),
    );
    words.extend(memory_words(&reading.measured).map(|m| format!("memory {m}")));
    words.extend(reading.temperature_c.map(|t| format!("{t:.0} °C")));
    words.extend(reading.power_watts.map(|w| format!("{w:.0} W")));
    words.extend(reading.sm_clock_mhz.map(|c| format!("{c} MHz")));
    words.join("  ")
}

/// Xids with their meaning, rows that could not be remapped.
fn faults(reading: &GpuReading) -> Option<(String, Meaning)> {
    if reading.remap_failed == Some(true) {
        let text = "a memory row could not be remapped: drain, reset, replace".to_owned();
        return Some((text, Meaning::Danger));
    }
    let words = |code: u32| {
        let xid = Xid::of(code);
        format!("Xid {code}: {}; {}", xid.meaning, xid.action)
    };
    if let Some((code, count)) = reading.recent_xids.first() {
        let text = format!("{} ({count} in the last minutes)", words(*code));
        return Some((text, Meaning::Danger));
    }
    let last = reading.last_xid.filter(|code| *code != 0)?;
    // It stays until the driver is loaded anew, and the same one again does not show.
    let text = format!("last {}, since the driver was loaded", words(last));
    Some((text, Meaning::Warn))
}

/// How old the figures are, or why there are none.
fn telemetry(sheet: &mut Sheet<'_>, row: &NodeRow, ctx: &Ctx<'_>) {
    match row.telemetry.as_deref() {
        None => sheet.text("no exporter was read", Meaning::Unknown),
        Some(NodeTelemetry {
            gpus: Err(why), at, ..
        }) => {
            let age = format::age(Some(*at), ctx.now);
            sheet.text(format!("not measured: {why} ({age} ago)"), Meaning::Warn);
        }
        Some(t) => {
            let age = format::age(Some(t.at), ctx.now);
            sheet.text(
                format!("measured {age} ago by dcgm-exporter"),
                Meaning::Muted,
            );
        }
    }
}

fn mig(sheet: &mut Sheet<'_>, row: &NodeRow) {
    let Some(node) = &row.node else { return };
    let gpus = &node.gpus;
    if row.mig.is_empty() && gpus.mig_config.is_none() && gpus.strategy.is_none() {
        return;
    }
    sheet.section("MIG");
    if let Some(strategy) = gpus.strategy {
        let name = match strategy {
            MigStrategy::Single => "single",
            MigStrategy::Mixed => "mixed",
        };
        sheet.field("strategy", name);
    }
    if let Some(config) = &gpus.mig_config {
        let state = gpus.mig_state.map_or(format::UNKNOWN, |s| s.name());
        sheet.field("layout", format!("{config}, {state}"));
    }
    for m in &row.mig {
        let mut text = format!("{} of {} held", m.used, m.capacity);
        if m.allocatable < m.capacity {
            text.push_str(&format!(", {} not given out", m.capacity - m.allocatable));
        }
        sheet.field(&m.profile.to_string(), text);
    }
}

fn conditions(sheet: &mut Sheet<'_>, node: &Node, ctx: &Ctx<'_>) {
    sheet.section("Conditions");
    if node.conditions.is_empty() {
        sheet.text("none stated", Meaning::Unknown);
    }
    let mut sorted: Vec<&Condition> = node.conditions.iter().collect();
    // Faults first, then Ready, then the rest by name.
    sorted.sort_by_key(|c| {
        (
            c.is_fault() != Some(true),
            &*c.kind != "Ready",
            c.kind.clone(),
        )
    });
    for c in sorted {
        let (word, meaning) = match c.is_fault() {
            Some(true) => ("fault", Meaning::Danger),
            Some(false) => ("good", Meaning::Ok),
            None => ("—", Meaning::Unknown),
        };
        let status = match c.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let since = format::age(c.changed, ctx.now);
        let mut spans = vec![
            Span::styled(format!("{word:<6}"), ctx.style(meaning)),
            Span::styled(format!("{} ", c.kind), ctx.style(Meaning::Text)),
            Span::styled(format!("{status} for {since}"), ctx.style(Meaning::Muted)),
        ];
        let words: Vec<&str> = [&*c.reason, &*c.message]
            .into_iter()
            .filter(|w| !w.is_empty())
            .collect();
        if !words.is_empty() {
            spans.push(Span::styled(
                format!("  {}", words.join(": ")),
                ctx.style(Meaning::Text),
            ));
        }
        sheet.line(spans);
    }
}

fn taints(sheet: &mut Sheet<'_>, node: &Node) {
    if node.taints.is_empty() {
        return;
    }
    sheet.section("Taints");
    for taint in &node.taints {
        let effect = match taint.effect {
            TaintEffect::NoSchedule => "NoSchedule: new pods stay away",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule: new pods stay away if they can",
            TaintEffect::NoExecute => "NoExecute: running pods leave too",
        };
        let value = if taint.value.is_empty() {
            String::new()
        } else {
            format!("={}", taint.value)
        };
        sheet.text(format!("{}{value}  {effect}", taint.key), Meaning::Text);
    }
}

fn pods(sheet: &mut Sheet<'_>, name: &Str, ctx: &Ctx<'_>) {
    sheet.section("Pods");
    if !ctx.cluster.is_known(Kind::Pod) {
        sheet.text("not known", Meaning::Unknown);
        return;
    }
    let rows = pods::all(ctx.cluster, &Scope::Node(name.clone()));
    if rows.is_empty() {
        sheet.text("none", Meaning::Muted);
    }
    for row in rows.iter().take(LIST_LIMIT) {
        sheet.line(super::pod::one_line(row, None, ctx));
    }
    if let Some(more) = rows.len().checked_sub(LIST_LIMIT).filter(|n| *n > 0) {
        sheet.text(
            format!("and {} more", format::count_of(more)),
            Meaning::Muted,
        );
    }
}
