//! Whole training jobs: anchors of an ideal pool, and gpudeck's order beside its baselines.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpudeck::sim::jobs::{
    FairRow, Outcome, Policy, Setting, Sharing, Trace, fair, read_muri, read_philly, read_tenants,
    run,
};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/training")
}

fn on(trace: &Trace, nodes: u32, policy: Policy) -> Outcome {
    let setting = Setting {
        nodes,
        gpus_per_node: 8,
        policy,
        restart_s: 60.0,
        seed: 42,
    };
    let outcome = run(trace, setting).unwrap();
    assert!(
        outcome.jcts_s.iter().all(|jct| jct.is_finite()),
        "{policy}: a job was never done"
    );
    outcome
}

fn mean_h(outcome: &Outcome) -> f64 {
    outcome.jct_s.mean / 3_600.0
}

/// Hours that an ideal pool of 64 GPUs gives by the same rules, computed elsewhere.
#[test]
fn muri_agrees_with_an_ideal_pool() {
    let trace = read_muri(&data()).unwrap();
    for (policy, hours, within) in [
        (Policy::FifoStrict, 207.6, 0.01),
        (Policy::FifoGreedy, 118.9, 0.01),
        (Policy::Sjf, 70.1, 0.01),
        // Interruptions cost a minute here and nothing there.
        (Policy::Srtf, 61.0, 0.03),
    ] {
        let got = mean_h(&on(&trace, 8, policy));
        assert!(
            (got / hours - 1.0).abs() < within,
            "{policy}: {got} h, not {hours}"
        );
    }
    let las = mean_h(&on(&trace, 8, Policy::Las));
    assert!((85.0..=106.0).contains(&las), "las: {las} h");
}

/// Ours ends jobs sooner than every FIFO and backfill, though that knows durations, and is at most
/// 5 % behind the best order that knows none.
fn ours_is_best(trace: &Trace, nodes: u32) {
    let ours = on(trace, nodes, Policy::Ours);
    assert_eq!((ours.deadlocks, ours.held_gpu_h), (0, 0.0));
    for policy in [
        Policy::FifoStrict,
        Policy::FifoGreedy,
        Policy::Easy,
        Policy::Gangless,
    ] {
        let other = on(trace, nodes, policy);
        assert!(
            mean_h(&ours) < mean_h(&other),
            "{nodes} nodes: ours {} h, {policy} {} h",
            mean_h(&ours),
            mean_h(&other)
        );
    }
    let las = on(trace, nodes, Policy::Las);
    assert!(mean_h(&ours) < 1.05 * mean_h(&las), "{nodes} nodes: las");
}

#[test]
fn ours_ends_jobs_sooner_on_muri() {
    ours_is_best(&read_muri(&data()).unwrap(), 8);
}

#[test]
fn ours_ends_jobs_sooner_on_philly_at_each_load() {
    let trace = read_philly(&data()).unwrap();
    for nodes in [16, 24, 32] {
        ours_is_best(&trace, nodes);
    }
}

#[test]
fn pods_without_gangs_hold_gpus_in_vain() {
    let trace = read_muri(&data()).unwrap();
    let gangless = on(&trace, 8, Policy::Gangless);
    assert!(gangless.held_gpu_h > 1_000.0, "{}", gangless.held_gpu_h);
    let ours = on(&trace, 8, Policy::Ours);
    assert!(ours.busy_pct > gangless.busy_pct + 20.0);
}

#[test]
fn nobody_is_worse_off_than_alone() {
    let (trace, sizes) = (
        read_philly(&data()).unwrap(),
        read_tenants(&data()).unwrap(),
    );
    for nodes in [16, 24, 32] {
        let row = |sharing| -> FairRow { fair(&trace, &sizes, nodes, 8, sharing, 60.0).unwrap() };
        let (ours, fifo, alone) = (row(Sharing::Ours), row(Sharing::Fifo), row(Sharing::Static));
        assert_eq!(ours.worse_off, 0, "{ours:?}");
        assert!(fifo.worse_off > 0, "there is something to protect from");
        assert!(ours.jct_s.mean < fifo.jct_s.mean.min(alone.jct_s.mean));
        assert_eq!(alone.worse_off, 0);
    }
}

#[test]
fn the_same_twice() {
    let trace = read_philly(&data()).unwrap();
    for policy in Policy::ALL {
        assert_eq!(on(&trace, 24, policy), on(&trace, 24, policy), "{policy}");
    }
}

#[test]
fn the_command_prints_figures_and_says_what_is_wrong() {
    let gpudeck = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_gpudeck"))
            .arg("simulate")
            .args(args)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (out.status.success(), text(out.stdout), text(out.stderr))
    };
    let folder = data();
    let folder = folder.to_str().unwrap();
    let (ok, json, _) = gpudeck(&[
        "muri",
        "--data",
        folder,
        "--policy",
        "fifo-greedy,ours",
        "-o",
        "json",
    ]);
    assert!(ok);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rows"][1]["policy"], "ours");
    assert!(json["rows"][1]["jct_s"]["mean"].as_f64() < json["rows"][0]["jct_s"]["mean"].as_f64());
    let (ok, table, _) = gpudeck(&[
        "fair",
        "--data",
        folder,
        "--nodes",
        "16",
        "--sharing",
        "ours",
    ]);
    assert!(ok && table.contains("0 of 8 tenants worse off"), "{table}");
    for (args, says) in [
        (vec!["muri", "--data", "/nowhere"], "/nowhere"),
        (
            vec!["muri", "--data", folder, "--nodes", "3"],
            "a job of 32 GPUs can never run on 24 GPUs",
        ),
        (
            vec!["philly", "--data", folder, "--policy", "lifo"],
            "fifo-strict",
        ),
        (
            vec!["fair", "--data", folder, "--restart=-1"],
            "0 to 86400 seconds",
        ),
    ] {
        let (ok, out, err) = gpudeck(&args);
        assert!(!ok && out.is_empty(), "{args:?}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
}
