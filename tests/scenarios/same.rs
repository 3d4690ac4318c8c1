//! Two runs of a scenario under one seed write the same objects.

use std::time::Duration;

use gpudeck::app::embedded::World;
use gpudeck::app::stepped::Stepped;
use gpudeck::sandbox::scenario::{Play, Scenario};
use gpudeck::sandbox::{History, Time};

/// One run: `minutes` of the scenario, on at most `nodes` nodes.
fn run(name: &str, seed: u64, minutes: u64, nodes: usize) -> History {
    let scenario = Scenario::load(name).unwrap();
    // As fast as may be: the clock is not ours, and fewer Leases are renewed.
    let speed = 60.0;
    let mut play = Play {
        seed,
        speed: Some(speed),
        nodes: None,
        time: Time::System,
    };
    play.nodes = Some(scenario.node_count(&play).min(nodes));
    Stepped {
        world: World { scenario, play },
        length: Duration::from_secs(minutes * 60).div_f64(speed),
        schedule: true,
    }
    .run()
    .unwrap()
}

/// Runs it twice, side by side; what was written.
fn same(name: &'static str, minutes: u64, nodes: usize) -> History {
    let second = std::thread::spawn(move || run(name, 7, minutes, nodes));
    let first = run(name, 7, minutes, nodes);
    let second = second.join().unwrap();
    // The first change that differs says more than the digest.
    for (a, b) in first.entries.iter().zip(&second.entries) {
        assert_eq!(a, b);
    }
    assert_eq!(first, second);
    first
}

fn changes(history: &History, table: &str) -> usize {
    let all = history.entries.iter();
    all.filter(|entry| entry.table == table).count()
}

/// Changes of a node.
fn of(history: &History, node: &str) -> usize {
    let all = history.entries.iter();
    all.filter(|e| e.table == "/nodes" && e.key == node).count()
}

#[test]
fn tour() {
    let history = same("tour", 12, 24);
    assert!(changes(&history, "/pods") > 300, "little happened");
    assert!(changes(&history, "batch/jobs") > 50);
}

#[test]
fn quiet() {
    let history = same("quiet", 8, 16);
    assert!(changes(&history, "/pods") > 100, "little happened");
    assert_ne!(
        history.digest,
        run("quiet", 8, 8, 16).digest,
        "another seed"
    );
}

#[test]
fn fragmented() {
    let history = same("fragmented", 3, 24);
    assert!(changes(&history, "/pods") >= 72 + 8);
}

#[test]
fn big() {
    // A fiftieth: as many pods on a node as the whole has.
    let history = same("big", 2, 100);
    assert!(changes(&history, "/pods") >= 2_000);
}

#[test]
fn spot_storm() {
    let history = same("spot-storm", 14, 36);
    let gone = |e: &&gpudeck::sandbox::Entry| e.table == "/nodes" && e.change == "DELETED";
    assert!(history.entries.iter().filter(gone).count() >= 10);
}

#[test]
fn mig_wedge() {
    let history = same("mig-wedge", 8, 8);
    // The one that does it, the one that fails, and the one that hangs.
    assert!(of(&history, "h200-001") > 6);
    assert!(of(&history, "h100-002") > 4);
    let (hangs, done) = (of(&history, "h100-003"), of(&history, "a100-80-001"));
    assert!(hangs >= 3 && hangs < done, "{hangs} {done}");
}

#[test]
fn xid_79() {
    let history = same("xid-79", 12, 14);
    // Nine of the H100 keep all their devices.
    let hit = history
        .entries
        .iter()
        .filter(|e| e.table == "/nodes" && e.change == "MODIFIED");
    let hit: std::collections::BTreeSet<&str> = hit.map(|e| e.key.as_str()).collect();
    assert!(hit.contains("h100-010"), "{hit:?}");
}

#[test]
fn gang_deadlock() {
    let history = same("gang-deadlock", 4, 8);
    assert!(changes(&history, "/pods") > 60);
}

#[test]
fn foreign() {
    let history = same("foreign", 6, 18);
    for table in [
        "kueue.x-k8s.io/workloads",
        "scheduling.volcano.sh/podgroups",
        "scheduling.run.ai/podgroups",
    ] {
        assert!(changes(&history, table) > 0, "{table}");
    }
}
