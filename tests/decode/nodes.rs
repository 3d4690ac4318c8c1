//! What each sample node reads as: model, physical GPUs, tier, MIG strategy, readiness, faults, what is
//! planned for it and when it ends.

use gpudeck::cluster::decode::{Decoder, Object};
use gpudeck::model::{FabricRules, GpuModel, MigStrategy, Node, NodeUse, Readiness};

use crate::samples::{files, kind_of, objects};

/// A node in one line: name, model, physical GPUs, MIG strategy, tier, readiness, `!` faults, `~`
/// notices and `>` its end.
fn line(node: &Node) -> String {
    let model = node.gpus.model.as_ref().map_or("?", GpuModel::short);
    let count = node.gpus.count.map_or("?".to_owned(), |n| n.to_string());
    let tier = node.tier().map_or("?", |(tier, _)| tier.name());
    let strategy = match node.gpus.strategy {
        Some(MigStrategy::Single) => " single",
        Some(MigStrategy::Mixed) => " mixed",
        None => "",
    };
    let ready = match node.readiness() {
        Readiness::Ready => "ready",
        Readiness::NotReady => "not ready",
        Readiness::Unknown => "no answer",
    };
    let mut line = format!(
        "{}: {model} x{count}{strategy} {tier} {ready}",
        node.meta.name
    );
    for fault in node.faults() {
        line.push_str(" !");
        line.push_str(&fault.kind);
    }
    for notice in node.notices() {
        line.push_str(" ~");
        line.push_str(&notice.kind);
    }
    if let Some((at, told_by)) = node.end() {
        line.push_str(&format!(" >{at} {told_by}"));
    }
    line
}

/// `?`: the object does not tell. `!`: a fault. `~`: planned or under way.
#[rustfmt::skip]
const TABLE: &[&str] = &[
    "10.140.66.21: H100-80 x8 reserved ready !oci.oraclecloud.com/MaintenanceFault !GpuRowRemap",
    "aks-ncspot-31907744-vmss00000c: H100-94 x1 spot ready",
    "aks-ndh100-20411836-vmss000003: H100-80 x8 on-demand ready !XIDErrors ~VMEventScheduled",
    "dgx-a07.lab.example: A100-40 x8 ? ready",
    "dgx-a11.lab.example: A100-40 x8 single ? ready",
    "dgx-b02.lab.example: B200 x8 mixed ? ready",
    "edge-a30-01: A30 x2 mixed ? ready",
    "edge-t4-02: T4 x2 ? ready",
    "g4c2e71: H100-80 x8 reserved ready",
    "gke-deck-a2-5f0d3311-x0pw: A100-80 x8 single on-demand ready !XidCriticalError",
    "gke-deck-a3h-spot-1c22e0aa-r4zt: H100-80 x8 spot ready",
    "gke-deck-a3m-cp-9ab40077-mw2d: H100-80 x8 on-demand ready >2026-12-02T12:00:00Z cloud.google.com/scheduled-maintenance-time",
    "gke-deck-a3u-pool-7f2c91d4-q8kx: H200 x8 reserved ready",
    "gke-deck-a4-flex-3d90bb1e-z2lv: B200 x? calendar ready >2026-12-06T12:00:00Z node.gke.io/machine-termination-datetime",
    "gke-deck-l4-ts-77aa0c2d-kk3q: L4 x2 spot ready",
    "hgx-h14.lab.example: H100-80 x8 mixed ? ready",
    "hgx-h15.lab.example: ? x? ? ready",
    "hgx-h16.lab.example: H100-80 x8 ? ready !GpuXid !InfinibandReady ~DrainScheduled",
    "hgx-h18.lab.example: H100-80 x8 ? ready ~DrainInProgress ~MaintenancePlanned",
    "hgx-h20.lab.example: H100-80 x8 ? no answer",
    "hgx-m01.lab.example: H100-80 x8 mixed ? ready",
    "hgx-m02.lab.example: H100-80 x8 mixed ? ready",
    "hgx-m03.lab.example: H100-80 x8 mixed ? not ready",
    "hgx-t01.lab.example: H100-80 x8 ? ready",
    "hgx-t02.lab.example: H100-80 x8 ? ready",
    "hgx-t03.lab.example: H100-80 x8 ? ready",
    "ip-10-41-12-130.us-east-2.compute.internal: H100-80 x8 calendar ready !AcceleratedHardwareReady",
    "ip-10-41-12-61.us-east-2.compute.internal: H100-80 x8 calendar ready",
    "ip-10-41-3-9.us-east-2.compute.internal: T4 x1 spot ready",
    "ip-10-41-5-77.us-east-2.compute.internal: A10G x1 on-demand ready",
    "ip-10-41-7-22.us-east-2.compute.internal: L40S x4 spot ready >2026-11-30T12:02:00Z karpenter.sh/nodeclaim-termination-timestamp",
    "ip-10-41-9-14.us-east-2.compute.internal: A100-40 x8 on-demand ready",
    "kwok-fake-a100-0: A100-80 x4 ? ready",
    "nvl72-r1-t00: GB200 x4 mixed ? ready",
    "nvl72-r1-t01: GB200 x4 mixed ? ready",
    "nvl72-r1-t13: GB200 x4 mixed ? ready",
    "nvl72-r1-t14: GB200 x4 mixed ? ready",
    "r750xa-03.lab.example: A100-80 x4 mixed ? ready",
    "rtxp-04.lab.example: RTX-PRO-6000 x8 mixed ? ready",
    "vks-a100-np1-xtw8-5n7j2: A100-8C x1 ? ready",
    "worker-gpu-9: ? x4 ? ready",
];

#[test]
fn every_sample_node_reads_right() {
    let mut lines = Vec::new();
    let nodes = files().into_iter().filter(|path| {
        path.parent()
            .is_some_and(|folder| folder.ends_with("nodes"))
    });
    for object in nodes.flat_map(|path| objects(&path)) {
        let Some(kind) = kind_of(&object) else {
            continue;
        };
        if let Ok(Object::Node(node)) = Decoder::new().decode(kind, &object.to_string()) {
            lines.push(line(&node));
        }
    }
    lines.sort();
    assert_eq!(lines.join("\n"), TABLE.join("\n"));
}

/// Where a node hangs, by what and what it lacks; `[]` an NVLink domain.
fn place(node: &Node) -> String {
    let place = FabricRules::default().place(node);
    let mut words: Vec<String> = place
        .switches
        .iter()
        .map(|s| format!("{}={}", s.level, s.name))
        .collect();
    words.extend(place.nvlink_domain.iter().map(|d| format!("[{d}]")));
    words.extend(place.told_by.iter().map(|f| format!("by {f}")));
    words.extend(place.lacks.iter().map(|l| format!("no {l}")));
    if words.is_empty() {
        words.push("unknown".to_owned());
    }
    format!("{}: {}", node.meta.name, words.join(" "))
}

/// The cut GPUs of a node: how many are alike, each instance at the slice where it starts, and what
/// is stranded.
fn layout(node: &Node) -> Option<String> {
    use gpudeck::model::GpuCell;
    let cells = NodeUse::default().cells(node);
    let mut kinds: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
    for cell in &cells {
        let words = match cell {
            GpuCell::Mig { instances, .. } => {
                let parts = instances
                    .iter()
                    .map(|i| format!("{}@{}", i.profile, i.start));
                let parts: Vec<String> = parts.collect();
                format!("{} stranded {:.3}", parts.join(" "), cell.stranded_share())
            }
            GpuCell::Shared { of, .. } => format!("shared by {of}"),
            GpuCell::Unhealthy => "sick".to_owned(),
            _ => "whole".to_owned(),
        };
        *kinds.entry(words).or_default() += 1;
    }
    let all: Vec<String> = kinds.iter().map(|(k, n)| format!("{n}x({k})")).collect();
    let plain = kinds.keys().all(|k| k == "whole");
    (!plain).then(|| format!("{}: {}", node.meta.name, all.join(" ")))
}

fn sample_nodes() -> Vec<std::sync::Arc<Node>> {
    let mut nodes = Vec::new();
    let files = files().into_iter().filter(|path| {
        path.parent()
            .is_some_and(|folder| folder.ends_with("nodes"))
    });
    for object in files.flat_map(|path| objects(&path)) {
        let Some(kind) = kind_of(&object) else {
            continue;
        };
        if let Ok(Object::Node(node)) = Decoder::new().decode(kind, &object.to_string()) {
            nodes.push(node);
        }
    }
    nodes.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    nodes
}

#[test]
fn every_sample_node_hangs_where_it_says() {
    let lines: Vec<String> = sample_nodes().iter().map(|n| place(n)).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_sample_node_is_cut_as_it_says() {
    let lines: Vec<String> = sample_nodes().iter().filter_map(|n| layout(n)).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
