//! `--read-only`: the real binary, seen from the server's audit log.

use std::collections::BTreeSet;

use serde_json::json;

use super::binary::gpudeck;
use super::fixture::{grant, make_pod, pod, ready_node};
use super::session::{SCHEDULING, Session, get};
use crate::servers::Server;
use crate::term::Term;

pub(crate) async fn a_read_only_run_writes_nothing(server: &Server) {
    let client = server.admin().await;
    let namespace = server.namespace("read-only").await;
    // She may do everything: what keeps her from writing is the flag alone.
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    grant(&client, "viewer", everything).await;
    ready_node(&client, "read-only-node", 8).await;
    make_pod(&client, &namespace, pod("waits", "gpudeck", "1")).await;
    super::eventually("her rights are in force", async || {
        get_as_viewer(server).await
    })
    .await;

    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let common = [
        "--read-only",
        "--kubeconfig",
        kubeconfig,
        "--context",
        "viewer",
    ];
    for view in ["fleet", "nodes", "jobs", "timeline"] {
        let args = [&["snapshot", "--view", view][..], &common].concat();
        let ended = gpudeck(&args);
        assert_eq!(ended.code, Some(0), "{view}: {}", ended.errors);
    }
    drive_the_console(&[&["--schedule"][..], &common].concat());

    let asked: BTreeSet<(String, String)> = server
        .audit()
        .into_iter()
        .filter(|record| record.user == "viewer")
        .map(|record| (record.verb, record.resource))
        .collect();
    let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    let writes: Vec<_> = asked
        .iter()
        .filter(|(verb, resource)| {
            let reads = matches!(&**verb, "get" | "list" | "watch");
            let asks = verb == "create" && reviews.iter().any(|r| resource.starts_with(r));
            !reads && !asks
        })
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
    for kind in ["nodes", "pods", "jobs", "events"] {
        for verb in ["list", "watch"] {
            let request = (verb.to_owned(), kind.to_owned());
            assert!(asked.contains(&request), "no {verb} of {kind} in {asked:?}");
        }
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods/waits");
    let waits = get(&client, &path).await;
    assert!(waits["spec"]["nodeName"].is_null(), "it was bound");

    // The same pod is bound as soon as somebody may write: it was there to be bound all along.
    let mut session = Session::open(server, "viewer", None, SCHEDULING).await;
    session
        .until("it is bound", |seen| {
            seen.node_of(&namespace, "waits").is_some()
        })
        .await;
    session.stop().await;
}

async fn get_as_viewer(server: &Server) -> Option<()> {
    let request = http::Request::get("/api/v1/nodes")
        .body(Vec::new())
        .unwrap();
    let answer = server
        .client("viewer")
        .await
        .request::<serde_json::Value>(request)
        .await;
    answer.ok().map(drop)
}

/// Goes through the views, looks at an object and its YAML, and quits.
fn drive_the_console(args: &[&str]) {
    let mut term = Term::start(args, 40, 140, &[]);
    term.wait_text("live");
    // Typed ahead: the second key acts on what the first one opens.
    term.send("2d");
    term.wait_text("Requested of allocatable");
    term.send("y");
    term.wait_text("apiVersion: v1");
    for view in ["5", "6", "1"] {
        term.send(view);
    }
    term.send("q");
    assert_eq!(term.wait_exit(), 0);
}
