//! The fleet through each lens, with what exporters tell of some of its nodes.

use std::sync::Arc;

use gpudeck::model::{
    ActivityBy, Cluster, Delta, GpuReading, InstanceReading, Measured, NodeTelemetry, PodName,
};
use gpudeck::tui::view::{Act, Target, View, ViewId};

use crate::fixture;
use crate::screen::{LOOKS, Look, Stage, TRUE, in_each_look, styles, text, view};

fn pod(namespace: &str, name: &str) -> PodName {
    PodName {
        namespace: namespace.into(),
        name: name.into(),
    }
}

/// A GPU that is busy by its index, so that all steps of a lens are there.
fn gpu(index: u32) -> GpuReading {
    let step = index as f32;
    GpuReading {
        index,
        uuid: format!("GPU-{index}").into(),
        measured: Measured {
            activity: Some((step / 8.0, ActivityBy::Sm)),
            memory_used_mib: Some(10_000 * index),
            memory_total_mib: Some(81_000),
            ..Measured::default()
        },
        temperature_c: Some(35.0 + step * 8.0),
        power_watts: Some(80.0 + step * 90.0),
        last_xid: Some(0),
        ..GpuReading::default()
    }
}

fn told(node: &str, secs: i64, gpus: Vec<GpuReading>) -> Delta {
    Delta::Telemetry(Arc::new(NodeTelemetry {
        node: node.into(),
        at: fixture::ago(secs),
        gpus: Ok(gpus.into()),
    }))
}

/// The cluster of the pictures, measured.
pub(crate) fn measured() -> Cluster {
    let mut cluster = fixture::cluster();
    for n in 1..=10 {
        let gpus = (0..8).map(|index| {
            let holders: Vec<PodName> = match (n, index) {
                (1..=6, _) => vec![pod("train", &format!("llm-7b-{}", n - 1))],
                // Not the first ones.
                (8, 2..) => vec![pod("research", "sweep-9-8")],
                _ => Vec::new(),
            };
            GpuReading {
                holders: holders.into(),
                last_xid: Some(if n == 9 && index == 3 { 79 } else { 0 }),
                ..gpu(index)
            }
        });
        cluster.apply(&told(&format!("h100-{n:02}"), 12, gpus.collect()));
    }
    // GPUs 2 to 5 are cut, which counts cannot tell.
    let gpus = (0..8).map(|index| {
        let cut = (2..6).contains(&index);
        let profiles = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"];
        let instances = profiles
            .iter()
            .zip(1u32..)
            .map(|(profile, gi)| InstanceReading {
                gi,
                profile: profile.parse().ok(),
                measured: Measured {
                    activity: Some((0.5, ActivityBy::Engine)),
                    ..Measured::default()
                },
                holder: (*profile == "3g.40gb").then(|| {
                    let name = format!("chat-a100-mix-01-mig-3g.40gb-{}", index - 2);
                    pod("prod-infer", &name)
                }),
            });
        GpuReading {
            instances: if cut {
                instances.collect()
            } else {
                Box::default()
            },
            measured: if cut {
                Measured::default()
            } else {
                gpu(index).measured
            },
            ..gpu(index)
        }
    });
    cluster.apply(&told("a100-mix-01", 400, gpus.collect()));
    cluster.apply(&Delta::Telemetry(Arc::new(NodeTelemetry {
        node: "h200-01".into(),
        at: fixture::ago(5),
        gpus: Err("you may not get pods/proxy: forbidden".into()),
    })));
    cluster
}

fn fleet(lens: &str) -> Box<dyn View> {
    let mut fleet = view(ViewId::Fleet);
    fleet.set_lens(lens);
    assert_eq!(fleet.lens(), Some(lens));
    fleet
}

fn names() -> Vec<&'static str> {
    let names = view(ViewId::Fleet).lenses().into_iter();
    names
        .map(|(name, _)| name)
        .filter(|n| *n != "allocation")
        .collect()
}

/// One picture a kind of terminal, all lenses in it: where the signs are, and the colours.
#[test]
fn the_fleet_through_each_lens() {
    for look in LOOKS {
        let stage = Stage::new(measured(), look);
        let mut shots = String::new();
        for lens in names() {
            let buf = stage.draw(&mut *fleet(lens), 120, 14);
            let picture = match look.name {
                "true" | "16" => styles(&buf),
                _ => text(&buf),
            };
            shots.push_str(&format!("-- {lens}\n{picture}\n"));
        }
        insta::assert_snapshot!(format!("lenses-{}", look.name), shots);
    }
}

/// Each lens on each size of screen in each kind of terminal, a file a size.
#[test]
fn each_lens_at_each_size_in_each_kind_of_terminal() {
    for (width, height) in [(80, 18), (120, 34), (200, 54), (300, 74)] {
        let mut shots = String::new();
        for (lens, _) in view(ViewId::Fleet).lenses() {
            let pictures = in_each_look(|look| {
                let stage = Stage::new(measured(), look);
                stage.draw(&mut *fleet(lens), width, height)
            });
            shots.push_str(&format!("== {lens}\n{pictures}\n"));
        }
        insta::assert_snapshot!(format!("each-lens-{width}"), shots);
    }
}

#[test]
fn lenses_on_small_and_large_screens_and_at_each_zoom() {
    let stage = Stage::new(measured(), look_of("mono"));
    let mut shots = String::new();
    for (width, height) in [(80, 18), (200, 20), (300, 20)] {
        for lens in ["SM active", "owner"] {
            let mut fleet = fleet(lens);
            for zoom in ["GPUs", "nodes", "groups"] {
                let buf = stage.draw(&mut *fleet, width, height);
                shots.push_str(&format!("-- {lens} {zoom} {width}\n{}\n", text(&buf)));
                fleet.act(Act::ZoomOut);
            }
        }
    }
    insta::assert_snapshot!("lenses-sizes", shots);
}

fn look_of(name: &str) -> Look {
    LOOKS.into_iter().find(|l| l.name == name).unwrap()
}

#[test]
fn a_lens_says_what_it_sees_under_the_cursor_and_why_it_sees_nothing() {
    let stage = Stage::new(measured(), TRUE);
    let below = |lens: &str, node: &str, gpu: u32| {
        let mut fleet = fleet(lens);
        stage.draw(&mut *fleet, 160, 20);
        assert!(fleet.select(&Target::Gpu(node.into(), gpu)));
        let picture = text(&stage.draw(&mut *fleet, 160, 20));
        picture.lines().last().unwrap().to_owned()
    };
    for (lens, node, gpu, words) in [
        ("SM active", "h100-02", 4, "SM active: 50%"),
        (
            "SM active",
            "a100-mix-01",
            3,
            "SM active: — (no profiling counter under MIG)",
        ),
        ("temperature", "h100-02", 7, "temperature: 91 °C"),
        (
            "power",
            "h200-01",
            0,
            "power: — (you may not get pods/proxy: forbidden)",
        ),
        ("memory", "h200-02", 0, "memory: — (no exporter was read)"),
        ("owner", "h100-08", 2, "owner: research"),
        ("owner", "h100-08", 1, "owner: held by nobody"),
        ("tier", "h200-01", 0, "tier: owned"),
        (
            "health",
            "h100-09",
            3,
            "health: last Xid 79, GPU has fallen off the bus",
        ),
        ("health", "h100-12", 3, "health: no answer"),
        ("age of job", "h100-08", 2, "age of job: 2d"),
    ] {
        let line = below(lens, node, gpu);
        assert!(line.contains(words), "{lens} {node} {gpu}: {line}");
    }
}

/// Each step can be told from its neighbours, in each kind of terminal.
#[test]
fn steps_are_told_apart_by_colour_or_sign() {
    for look in LOOKS {
        let stage = Stage::new(measured(), look);
        let mut fleet = fleet("SM active");
        let buf = stage.draw(&mut *fleet, 120, 20);
        // GPUs 0 to 7 of the second node: 0, 12, 25, 38, 50, 62, 75, 88 percent.
        let line = text(&buf);
        let x = line.lines().next().unwrap();
        let at = 1 + "no leaf".len() as u16 + 1 + 9;
        let cells: Vec<String> = (0..8)
            .map(|i| {
                let cell = &buf[(at + i, 0)];
                format!("{} {:?}", cell.symbol(), cell.style().fg)
            })
            .collect();
        let steps = [0, 0, 1, 1, 2, 3, 3, 4];
        for (a, b) in (0..8).zip(1..8) {
            let same = steps[a] == steps[b];
            assert_eq!(cells[a] == cells[b], same, "{}: {x}\n{cells:?}", look.name);
        }
    }
}
