//! On a tenth of the fleet, through the files and the command.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use gpudeck::sim::openb::{OpenbError, PolicyName, Source, Trace, replay};
use tempfile::TempDir;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sim/data");

fn read(name: &str) -> String {
    let mut text = String::new();
    let file = File::open(Path::new(SHIPPED).join(name)).unwrap();
    MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

fn write(folder: &TempDir, name: &str, text: &str) {
    let file = File::create(folder.path().join(name)).unwrap();
    let mut out = GzEncoder::new(file, Compression::fast());
    out.write_all(text.as_bytes()).unwrap();
    out.finish().unwrap();
}

/// Every tenth node, and as many arrivals as fill 130 % of them.
fn small() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let nodes = read("nodes_gpu.csv.gz");
    let mut lines = nodes.lines();
    let mut kept = vec![lines.next().unwrap()];
    kept.extend(lines.step_by(10));
    write(&folder, "nodes_gpu.csv.gz", &(kept.join("\n") + "\n"));
    write(&folder, "pods_default.csv.gz", &read("pods_default.csv.gz"));
    let first = |text: &str, count: usize| {
        let line = text.lines().next().unwrap();
        line.split(' ')
            .take(count + 1)
            .collect::<Vec<_>>()
            .join(" ")
            + "\n"
    };
    let order = first(&read("order_default.txt.gz"), 1_150);
    write(&folder, "order_default.txt.gz", &order);
    let ranks = first(&read("noderank_default.txt.gz"), kept.len() - 1);
    write(&folder, "noderank_default.txt.gz", &ranks);
    folder
}

fn allocated(folder: &TempDir, policy: PolicyName) -> f64 {
    let source = Source::Folder(folder.path().to_owned());
    let trace = Trace::read(&source, "default").unwrap();
    replay(&trace, policy, 42, |_| {}).unwrap().at(130).unwrap()
}

#[test]
fn the_order_of_the_policies_holds_on_a_tenth() {
    let folder = small();
    let at = |policy| allocated(&folder, policy);
    let (ours, fgd, random) = (
        at(PolicyName::Ours),
        at(PolicyName::Fgd),
        at(PolicyName::Random),
    );
    assert!(ours > fgd && fgd > random, "{ours} {fgd} {random}");
    let online = at(PolicyName::OursOnline);
    assert!(online > fgd, "{online} {fgd}");
    // A share of a GPU that takes a whole one is what sharing is for.
    assert!(at(PolicyName::K8sWhole) < at(PolicyName::K8sLeast));
}

fn gpudeck(args: &[&str]) -> (bool, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_gpudeck"))
        .arg("simulate")
        .args(args)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

#[test]
fn the_command_prints_every_run_and_means() {
    let folder = small();
    let data = folder.path().to_str().unwrap();
    let base = ["openb", "--data", data, "--list", "all", "--seeds", "42"];
    let run = |more: &[&str]| gpudeck(&[&base[..], more].concat());
    let (ok, json, err) = run(&["--policy", "fgd,bestfit", "-o", "json"]);
    assert!(ok, "{err}");
    assert_eq!(err, "", "progress is for terminals");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 2);
    let row = &json["rows"][0];
    assert_eq!(
        (&row["list"], &row["policy"]),
        (&"default".into(), &"fgd".into())
    );
    assert_eq!(row["seed"], 42);
    assert!(row["pods_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(
        row["alloc_pct"]["130"],
        json["means"][0]["alloc_pct"]["130"]
    );
    let (ok, csv, _) = run(&["--policy", "fgd", "-o", "csv"]);
    assert!(ok);
    assert!(
        csv.starts_with("list,policy,seed,alloc_pct_100,alloc_pct_130,pods_per_s\ndefault,fgd,42,")
    );
    let (ok, table, _) = run(&["--policy", "fgd"]);
    assert!(ok && table.lines().count() == 2, "{table}");
}

#[test]
fn what_is_not_there_is_named() {
    let folder = small();
    let data = folder.path().to_str().unwrap();
    let refused = |args: &[&str], wanted: &[&str]| {
        let (ok, _, err) = gpudeck(args);
        assert!(!ok);
        for part in wanted {
            assert!(err.contains(part), "{part:?} in {err}");
        }
    };
    refused(
        &["openb", "--seeds", "7"],
        &["no seed 7", "42, 43, 44, 45, 46"],
    );
    refused(
        &["openb", "--policy", "best"],
        &["no policy \"best\"", "bestfit"],
    );
    refused(
        &["openb", "--list", "cpu050"],
        &["\"cpu050\"", "--data DIR"],
    );
    let unknown = ["openb", "--data", data, "--list", "../x"];
    refused(&unknown, &["\"../x\"", "default"]);
}

#[test]
fn rows_that_make_no_sense_are_named() {
    let fault = |name: &str, from: &str, to: &str| -> String {
        let folder = small();
        let mut text = String::new();
        let file = File::open(folder.path().join(name)).unwrap();
        MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert!(text.contains(from), "{from}");
        write(&folder, name, &text.replacen(from, to, 1));
        let source = Source::Folder(folder.path().to_owned());
        let run = || -> Result<(), OpenbError> {
            let trace = Trace::read(&source, "default")?;
            replay(&trace, PolicyName::BestFit, 42, |_| {}).map(|_| ())
        };
        run().unwrap_err().to_string()
    };
    let pod = "openb-pod-0000,12000,16384,1,1000,";
    let err = fault(
        "pods_default.csv.gz",
        pod,
        "openb-pod-0000,-12000,16384,1,1000,",
    );
    assert!(err.contains("line 2: cpu_milli is \"-12000\""), "{err}");
    let err = fault(
        "pods_default.csv.gz",
        pod,
        "openb-pod-0000,12000,16384,2,500,",
    );
    assert!(
        err.contains("2 GPUs of 500 thousandths; right are"),
        "{err}"
    );
    let err = fault("nodes_gpu.csv.gz", "64000,262144,2,", "64000,262144,99,");
    assert!(
        err.contains("gpu is \"99\"; a whole number from 0 to 16"),
        "{err}"
    );
    let err = fault("nodes_gpu.csv.gz", "memory_mib", "memory");
    assert!(err.contains("line 1: no column \"memory_mib\""), "{err}");
    let err = fault("order_default.txt.gz", "42 ", "42 9999999 ");
    assert!(
        err.contains("row 9999999 of a list that has 8152 pods"),
        "{err}"
    );
    let err = fault("order_default.txt.gz", "42 ", "42 seven ");
    assert!(err.contains("\"seven\" is no number"), "{err}");
    let err = fault("nodes_gpu.csv.gz", "\nopenb", "\nx,1,1,1,T4\nopenb");
    assert!(err.contains("fewer ranks than nodes"), "{err}");
}

#[test]
fn a_living_cluster_prints_losses_and_waits() {
    let run = |more: &[&str]| {
        let base = ["churn", "--lives", "exp", "--loads", "100", "--seeds", "1"];
        let short = ["--every", "40", "--arrivals", "600", "-o", "json"];
        let (ok, out, err) = gpudeck(&[&base[..], &short, more].concat());
        assert!(ok, "{err}");
        serde_json::from_str::<serde_json::Value>(&out).unwrap()
    };
    let lost = run(&["--policy", "ours-online,random"]);
    let [ours, random] = [0, 1].map(|row| &lost["rows"][row]);
    assert_eq!(
        (&ours["list"], &ours["lives"]),
        (&"default".into(), &"exp".into())
    );
    assert_eq!((&ours["model"], &ours["seed"]), (&"loss".into(), &1.into()));
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    assert!(number(&ours["alloc_pct"]) > number(&random["alloc_pct"]));
    assert!(number(&ours["rejected_pct"]["all"]) < number(&random["rejected_pct"]["all"]));
    assert!(
        ours["wait_s"]["mean"].is_null(),
        "nobody waits where pods are lost"
    );
    let queued = run(&["--policy", "fgd", "--model", "queue"]);
    let fgd = &queued["rows"][0];
    assert!(number(&fgd["wait_s"]["p95"]) >= 0.0);
    assert!(
        fgd["rejected_pct"]["all"].is_null(),
        "nobody is lost where pods wait"
    );
    assert_eq!(queued["means"].as_array().unwrap().len(), 1);
    assert!(queued["means"][0].get("seed").is_none());
    assert_eq!(queued, run(&["--policy", "fgd", "--model", "queue"]));
    let moved = run(&["--policy", "fgd", "--moves", "8", "--moves-from-gpus", "1"]);
    assert!(number(&moved["rows"][0]["moves"]) > 0.0);
}

#[test]
fn slices_are_placed_better_than_by_the_baselines() {
    let base = ["mig", "--gpus", "8", "--seeds", "1-3", "-o", "json"];
    let means = |more: &[&str]| {
        let (ok, out, err) = gpudeck(&[&base[..], more].concat());
        assert!(ok, "{err}");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        json["means"].clone()
    };
    for more in [vec!["--experiment", "fill"], vec!["--loads", "1"]] {
        let means = means(&more);
        let alloc = |policy: &str| {
            let rows = means.as_array().unwrap();
            let row = rows.iter().find(|row| row["policy"] == policy).unwrap();
            row["alloc_pct"][0].as_f64().unwrap()
        };
        assert!(alloc("ours") > alloc("mfi"), "{means}");
        assert!(alloc("ours") > alloc("random"), "{means}");
    }
    let (ok, _, err) = gpudeck(&["mig", "--mix", "1,2"]);
    assert!(
        !ok && err.contains("the mix has 2 shares; A100-80 has 6 profiles"),
        "{err}"
    );
}
