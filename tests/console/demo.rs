//! The picture of the README: the demo's fleet of a fixed seed under a load of a fixed seed.

use gpudeck::cluster::decode::{Decoder, Object};
use gpudeck::model::{Change, Delta, Kind, SourceReport, SourceState};
use gpudeck::sandbox::inventory::Fleet;
use gpudeck::tui::glyphs::Glyphs;
use gpudeck::tui::session::Leader;
use gpudeck::tui::theme::Depth;
use gpudeck::tui::{App, Msg, Session, Settings, views};
use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

const SEED: u64 = 42;

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn delta(kind: Kind, mut object: Value, n: usize) -> Delta {
    object["metadata"]["uid"] = json!(format!("{kind}-{n}"));
    match Decoder::new().decode(kind, &object.to_string()).unwrap() {
        Object::Node(node) => Delta::Node(Change::Set(node)),
        Object::Pod(pod) => Delta::Pod(Change::Set(pod)),
        other => panic!("{other:?}"),
    }
}

fn pod(n: usize, node: Option<&str>, resource: &str, count: i64) -> Value {
    let team = ["team-a", "team-b", "research"][n % 3];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("work-{n}"), "namespace": team,
            "creationTimestamp": "2026-11-30T11:00:00Z"},
        "spec": {"schedulerName": "gpudeck", "containers": [{"name": "main",
            "resources": {"requests": {resource: count.to_string()}}}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// Nodes, and pods that hold about five sixths of what they offer.
fn deltas() -> Vec<Delta> {
    let mut dice = fastrand::Rng::with_seed(SEED);
    let mut deltas = Vec::new();
    let mut pods = Vec::new();
    for (n, node) in Fleet::demo(SEED).nodes().into_iter().enumerate() {
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        let allocatable = node["status"]["allocatable"].as_object().unwrap().clone();
        deltas.push(delta(Kind::Node, node, n));
        for (resource, offered) in allocatable {
            if !resource.starts_with("nvidia.com/") {
                continue;
            }
            let offered: i64 = offered.as_str().unwrap().parse().unwrap();
            let held = match dice.u8(..6) {
                0 => 0,
                1 => offered / 2,
                2 => offered - offered.min(1),
                _ => offered,
            };
            if held > 0 {
                pods.push(pod(pods.len(), Some(&name), &resource, held));
            }
        }
    }
    for _ in 0..12 {
        pods.push(pod(pods.len(), None, "nvidia.com/gpu", 8));
    }
    let pods = pods.into_iter().enumerate();
    deltas.extend(pods.map(|(n, pod)| delta(Kind::Pod, pod, n)));
    deltas.extend(Kind::ALL.map(|kind| {
        Delta::Source(SourceReport {
            kind,
            namespace: None,
            state: SourceState::Live,
            at: now(),
        })
    }));
    deltas
}

/// The console's first screen.
pub(crate) fn screen(width: u16, height: u16) -> String {
    let settings = Settings::built_in(Depth::Mono, Glyphs { ascii: false });
    let session = Session {
        context: "demo".into(),
        contexts: vec!["demo".into()],
        ..Session::default()
    };
    let mut app = App::new(settings, session, views::all(), now());
    let told = [
        Msg::Deltas {
            generation: 0,
            deltas: deltas(),
        },
        Msg::Leader(Leader::Here),
    ];
    for msg in told {
        app.update(msg, now());
    }
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    app.render(area, &mut buf);
    crate::screen::text(&buf).trim_end().to_owned()
}
