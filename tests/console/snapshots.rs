//! Pictures of each view, at three sizes and in four kinds of terminal.

use gpudeck::model::{SourceState, WorkloadKey};
use gpudeck::tui::snapshot::{self, Request};
use gpudeck::tui::view::{Act, Target, View, ViewId};
use ratatui::text::Line;

use crate::fixture;
use crate::screen::{LOOKS, Stage, TRUE, in_each_look, styles, text, view};

/// What is left for the view of a terminal of 80x24, 120x40 and 200x60.
const SIZES: [(u16, u16); 3] = [(80, 18), (120, 34), (200, 54)];

#[test]
fn each_view_at_each_size_in_each_kind_of_terminal() {
    for id in ViewId::ALL {
        for look in LOOKS {
            let stage = Stage::new(fixture::cluster(), look);
            for (width, height) in SIZES {
                let buf = stage.draw(&mut *view(id), width, height);
                let name = format!("{}-{width}-{}", id.name(), look.name);
                insta::assert_snapshot!(name.clone(), text(&buf));
                // Where colours stand does not depend on the size: one map a look is enough.
                if width == 120 {
                    insta::assert_snapshot!(format!("{name}-styles"), styles(&buf));
                }
            }
        }
    }
}

/// The largest screen, a file a view.
#[test]
fn each_view_on_a_screen_of_300x80_in_each_kind_of_terminal() {
    for id in ViewId::ALL {
        let shots = in_each_look(|look| {
            let stage = Stage::new(fixture::cluster(), look);
            stage.draw(&mut *view(id), 300, 74)
        });
        insta::assert_snapshot!(format!("{}-300", id.name()), shots);
    }
}

#[test]
fn a_fleet_of_1200_nodes_fits_one_screen() {
    for look in LOOKS {
        let stage = Stage::new(fixture::large(1200), look);
        let buf = stage.draw(&mut *view(ViewId::Fleet), 120, 34);
        insta::assert_snapshot!(format!("fleet-1200-nodes-{}", look.name), text(&buf));
    }
}

#[test]
fn one_who_may_see_pods_only() {
    let stage = Stage::new(fixture::namespace_only(), TRUE);
    for id in ViewId::ALL {
        let buf = stage.draw(&mut *view(id), 120, 20);
        insta::assert_snapshot!(format!("{}-pods-only", id.name()), text(&buf));
    }
}

fn words(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for line in lines {
        let text: String = line.spans.iter().map(|s| &*s.content).collect();
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[test]
fn descriptions() {
    let stage = Stage::new(fixture::cluster(), TRUE);
    let view = view(ViewId::Nodes);
    let workload = |namespace: &str, kind: &str, name: &str| {
        Target::Workload(WorkloadKey {
            namespace: namespace.into(),
            kind: kind.into(),
            name: name.into(),
        })
    };
    let warning = stage
        .cluster
        .events()
        .find(|e| &*e.subject_name == "h100-07")
        .map(|e| e.meta.uid.clone())
        .unwrap();
    for (name, target) in [
        ("node-sick", Target::Node("h100-07".into())),
        ("node-mig", Target::Gpu("a100-mix-01".into(), 5)),
        ("node-of-unknown-size", Target::Node("bare-01".into())),
        (
            "workload-running",
            workload("train", "PyTorchJob", "llm-7b"),
        ),
        ("workload-waiting", workload("train", "JobSet", "moe")),
        ("workload-held", workload("research", "Job", "held")),
        (
            "pod-waiting",
            Target::Pod(fixture::pod_uid("train", "moe-3")),
        ),
        (
            "pod-running",
            Target::Pod(fixture::pod_uid("train", "llm-7b-3")),
        ),
        ("event", Target::Event(warning)),
        (
            "decision",
            Target::Decision(fixture::ago(46 * 60), fixture::pod_uid("train", "moe-0")),
        ),
        ("namespace", Target::Namespace("train".into())),
    ] {
        let lines = view.describe(&target, &stage.ctx()).unwrap();
        insta::assert_snapshot!(format!("describe-{name}"), words(&lines));
    }
    let stage = Stage::new(fixture::namespace_only(), TRUE);
    let lines = view.describe(&Target::Node("h100-01".into()), &stage.ctx());
    insta::assert_snapshot!("describe-node-denied", words(&lines.unwrap()));
}

#[test]
fn pods_of_a_job() {
    let stage = Stage::new(fixture::cluster(), TRUE);
    for (name, filter) in [("waiting", "name=moe"), ("running", "name=llm-7b")] {
        let mut view = view(ViewId::Jobs);
        view.set_filter(filter).unwrap();
        stage.draw(&mut *view, 120, 14);
        assert!(view.enter());
        for width in [80, 120] {
            let buf = stage.draw(&mut *view, width, 10);
            insta::assert_snapshot!(format!("pods-{name}-{width}"), text(&buf));
        }
    }
}

#[test]
fn the_fleet_at_each_zoom_and_group() {
    let stage = Stage::new(fixture::cluster(), TRUE);
    let mut view = view(ViewId::Fleet);
    let shot = |view: &mut dyn View, name: &str| {
        let buf = stage.draw(view, 100, 14);
        insta::assert_snapshot!(format!("fleet-{name}"), text(&buf));
    };
    shot(&mut *view, "by-leaf");
    for by in ["by-zone", "by-model", "by-namespace"] {
        view.act(Act::GroupNext);
        shot(&mut *view, by);
    }
    for zoom in ["nodes", "groups"] {
        view.act(Act::ZoomOut);
        shot(&mut *view, zoom);
    }
}

#[test]
fn stale_data_is_dimmed() {
    let mut cluster = fixture::cluster();
    for kind in gpudeck::model::Kind::ALL {
        let state = SourceState::Stale {
            since: fixture::ago(20),
            why: "connection refused".into(),
        };
        cluster.apply(&fixture::source(kind, state));
    }
    let stage = Stage::new(cluster, TRUE);
    for id in ViewId::ALL {
        let buf = stage.draw(&mut *view(id), 80, 12);
        insta::assert_snapshot!(format!("{}-stale-styles", id.name()), styles(&buf));
    }
}

#[test]
fn the_snapshot_command_prints_figures_and_all_rows() {
    for (name, cluster) in [
        ("all", fixture::cluster()),
        ("pods-only", fixture::namespace_only()),
    ] {
        for id in ViewId::ALL {
            let request = Request {
                view: id,
                cluster: &cluster,
                namespace: None,
                filter: "",
                ascii: false,
                now: fixture::now(),
            };
            let shot = snapshot::text(&request).unwrap();
            insta::assert_snapshot!(format!("command-{}-{name}", id.name()), shot);
            let value = snapshot::json(&request).unwrap();
            let shot = serde_json::to_string_pretty(&value).unwrap();
            if name == "pods-only" || id == ViewId::Timeline {
                insta::assert_snapshot!(format!("command-{}-{name}-json", id.name()), shot);
            }
        }
    }
}

#[test]
fn text_json_and_screen_agree() {
    let stage = Stage::new(fixture::cluster(), TRUE);
    let request = Request {
        view: ViewId::Nodes,
        cluster: &stage.cluster,
        namespace: None,
        filter: "model=a100",
        ascii: true,
        now: fixture::now(),
    };
    let printed = snapshot::text(&request).unwrap();
    assert!(printed.is_ascii());
    let value = snapshot::json(&request).unwrap();
    let mut view = view(ViewId::Nodes);
    view.set_filter("model=a100").unwrap();
    let screen = text(&stage.draw(&mut *view, 200, 40));
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.len(), view.count().0);
    for row in rows {
        let used = gpudeck::tui::format::amount(row["used_gpus"].as_f64().unwrap());
        let shown = format!("{used}/{}", row["gpus"]);
        for place in [&printed, &screen] {
            let name = row["name"].as_str().unwrap();
            let line = place.lines().find(|l| l.trim_start().starts_with(name));
            assert!(line.unwrap().contains(&shown), "{shown} in {line:?}");
        }
    }
    assert_eq!(
        value["figures"]["gpus"].as_u64(),
        stage.figures.gpus.map(u64::from)
    );
}

/// A name that has room is not cut while the column behind it is empty.
#[test]
fn what_the_last_column_does_not_need_goes_to_names_that_are_cut() {
    let name = "a-name-of-thirty-columns-in-all";
    let pod = |node| {
        fixture::pod(&fixture::PodSpec {
            ns: "team",
            name,
            node,
            devices: &[("gpu", 1)],
            ..fixture::PodSpec::default()
        })
    };
    let shown = |node| {
        let mut cluster = gpudeck::model::Cluster::new();
        cluster.apply(&pod(node));
        let stage = Stage::new(cluster, TRUE);
        text(&stage.draw(&mut *view(ViewId::Jobs), 80, 3))
    };
    let running = shown(Some("n1"));
    assert!(running.contains(name), "{running}");
}

/// How many wait and what they ask for is told in full where there is room, and never cut.
#[test]
fn numbers_of_what_waits_are_never_cut() {
    let mut cluster = gpudeck::model::Cluster::new();
    for n in 0..138 {
        cluster.apply(&fixture::pod(&fixture::PodSpec {
            ns: "team",
            name: &format!("job-{n}"),
            phase: gpudeck::model::Phase::Pending,
            devices: &[("gpu", if n == 0 { 65 } else { 5 })],
            ..fixture::PodSpec::default()
        }));
    }
    let queue = serde_json::json!({"metadata": {"name": "team", "uid": "u"},
        "spec": {"namespaces": ["team"], "gpus": [{"model": "H200", "tier": "reserved", "guaranteed": 8}]}});
    let read = gpudeck::cluster::decode::Decoder::new()
        .decode(gpudeck::model::Kind::GpuQueue, &queue.to_string())
        .unwrap();
    cluster.apply(&read.into_set());
    for report in fixture::live() {
        cluster.apply(&report);
    }
    let stage = Stage::new(cluster, TRUE);
    for (width, told) in [(80, "138/750"), (120, "138 for 750"), (200, "138 for 750")] {
        let shown = text(&stage.draw(&mut *view(ViewId::Queues), width, 6));
        assert!(shown.contains(told), "{width}: {shown}");
    }
}
