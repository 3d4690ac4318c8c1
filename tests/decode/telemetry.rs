//! What each sample page of dcgm-exporter reads as.

use std::fmt::Write as _;

use gpudeck::model::{GpuReading, Measured};
use gpudeck::telemetry::exposition::samples;
use gpudeck::telemetry::page;

use crate::samples::text_files;

fn measured(m: &Measured) -> String {
    let activity = m.activity.map_or("?".to_owned(), |(share, by)| {
        format!("{} {:.2}", by.name(), share)
    });
    let memory = match (m.memory_used_mib, m.memory_total_mib) {
        (Some(used), Some(total)) => format!("{used}/{total}"),
        (Some(used), None) => format!("{used}/?"),
        (None, _) => "?".to_owned(),
    };
    format!("{activity}, {memory} MiB")
}

/// A GPU in one line, and a line for each of its instances.
fn lines(gpu: &GpuReading) -> String {
    let number = |n: Option<f32>| n.map_or("?".to_owned(), |n| format!("{n:.0}"));
    let mut out = format!(
        "  {}: {}, {} °C, {} W, {} MHz, xid {}",
        gpu.index,
        measured(&gpu.measured),
        number(gpu.temperature_c),
        number(gpu.power_watts),
        gpu.sm_clock_mhz.map_or("?".to_owned(), |n| n.to_string()),
        gpu.last_xid.map_or("?".to_owned(), |n| n.to_string()),
    );
    for (code, count) in &gpu.recent_xids {
        write!(out, " recent {code}x{count}").unwrap();
    }
    for pod in &gpu.holders {
        write!(out, " {}/{}", pod.namespace, pod.name).unwrap();
    }
    out.push('\n');
    for instance in &gpu.instances {
        let profile = instance
            .profile
            .as_ref()
            .map_or("?".to_owned(), ToString::to_string);
        write!(
            out,
            "    {} {profile}: {}",
            instance.gi,
            measured(&instance.measured)
        )
        .unwrap();
        if let Some(pod) = &instance.holder {
            write!(out, " {}/{}", pod.namespace, pod.name).unwrap();
        }
        out.push('\n');
    }
    out
}

#[test]
fn every_sample_page_reads_right() {
    let mut out = String::new();
    for path in text_files("dcgm") {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        let faults = samples(&text, |_| {});
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        writeln!(out, "{name}: {faults} lines are not sound").unwrap();
        for gpu in page(&text) {
            out.push_str(&lines(&gpu));
        }
    }
    insta::assert_snapshot!(out);
}

/// Rules that hold for every page of the kind, whatever its figures.
#[test]
fn nothing_that_cannot_be_true_is_told() {
    for path in text_files("dcgm") {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        for gpu in page(&text) {
            let all =
                std::iter::once(&gpu.measured).chain(gpu.instances.iter().map(|i| &i.measured));
            for m in all {
                assert!(
                    m.activity
                        .is_none_or(|(share, _)| (0.0..=1.0).contains(&share))
                );
                assert!(m.memory_used_mib.is_none_or(|mib| mib < 16_000_000));
                if let (Some(used), Some(total)) = (m.memory_used_mib, m.memory_total_mib) {
                    assert!(used <= total, "{}", path.display());
                }
            }
            assert!(gpu.temperature_c.is_none_or(|t| t < 200.0));
            assert!(gpu.power_watts.is_none_or(|w| w < 10_000.0));
            // Utilisation is undefined under MIG, whatever a page says.
            for instance in &gpu.instances {
                let by = instance.measured.activity.map(|(_, by)| by.name());
                assert_ne!(by, Some("GPU utilisation"), "{}", path.display());
            }
        }
    }
}

#[test]
fn a_cut_gpu_is_the_sum_of_its_instances_and_its_board_counts_once() {
    let row = |metric: &str, gi: u32, profile: &str, value: f64| {
        format!(
            "{metric}{{gpu=\"0\",UUID=\"GPU-1\",modelName=\"NVIDIA H100 80GB HBM3\",\
             GPU_I_PROFILE=\"{profile}\",GPU_I_ID=\"{gi}\",pod=\"p{gi}\",namespace=\"ns\"}} {value}\n"
        )
    };
    let mut text = String::new();
    for (gi, profile, active) in [(1, "3g.40gb", 1.0), (2, "4g.40gb", 0.5)] {
        text += &row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gi, profile, active);
        text += &row("DCGM_FI_DEV_GPU_UTIL", gi, profile, 99.0);
        text += &row("DCGM_FI_DEV_POWER_USAGE", gi, profile, 400.0);
        text += &row("DCGM_FI_DEV_FB_USED", gi, profile, 1_000.0);
        text += &row("DCGM_FI_DEV_FB_FREE", gi, profile, 39_000.0);
    }
    let gpus = page(&text);
    let [gpu] = gpus.as_slice() else {
        panic!("{gpus:?}")
    };
    let (activity, by) = gpu.measured.activity.unwrap();
    // 3 of 7 busy and 4 of 7 half busy.
    assert!((activity - 5.0 / 7.0).abs() < 1e-6, "{activity}");
    assert_eq!(by.name(), "engine active");
    assert_eq!(gpu.power_watts, Some(400.0));
    assert_eq!(gpu.measured.memory_used_mib, Some(2_000));
    // One of which nothing is known would count as idle: then the whole is not known.
    let gpus = page(&text.replace("GR_ENGINE_ACTIVE{gpu=\"0\",UUID=\"GPU-1\",modelName=\"NVIDIA H100 80GB HBM3\",GPU_I_PROFILE=\"3g", "X{gpu=\"0\",GPU_I_PROFILE=\"3g"));
    assert_eq!(gpus[0].measured.activity, None);
}
