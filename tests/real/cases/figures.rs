//! `gpudeck snapshot` prints what the model counts, and the model counts what the server holds.

use gpudeck::model::Figures;
use gpudeck::sandbox::inventory::Fleet;
use gpudeck::tui::snapshot::{self, Request};
use gpudeck::tui::view::ViewId;
use jiff::Timestamp;
use serde_json::Value;

use super::binary::gpudeck;
use super::fixture::{make_pod, pod};
use super::session::{LOOKING, Session, items};
use crate::servers::Server;

/// A fleet with each model and MIG layout that the sandbox knows.
const NODES: usize = 40;

pub(crate) async fn the_command_prints_the_models_figures(server: &Server) {
    let client = server.admin().await;
    Fleet::sized(NODES, 7).write(client.clone()).await.unwrap();
    let namespace = server.namespace("figures").await;
    let nodes = items(&client, "/api/v1/nodes").await;
    let whole: Vec<&str> = nodes
        .iter()
        .filter(|node| node["status"]["allocatable"]["nvidia.com/gpu"] == "8")
        .map(|node| node["metadata"]["name"].as_str().unwrap())
        .collect();
    for (n, node) in whole.iter().take(5).enumerate() {
        let mut bound = pod(&format!("bound-{n}"), "gpudeck", &(n + 1).to_string());
        bound["spec"]["nodeName"] = (*node).into();
        make_pod(&client, &namespace, bound).await;
    }
    for n in 0..3 {
        make_pod(
            &client,
            &namespace,
            pod(&format!("waits-{n}"), "gpudeck", "2"),
        )
        .await;
    }
    let mut session = Session::open(server, "admin", None, LOOKING).await;
    session
        .until("everything is read", |seen| {
            seen.is_synced() && seen.cluster.pod_count() == 8
        })
        .await;

    session.see(|seen| {
        let figures = Figures::of(&seen.cluster);
        assert_eq!(figures.nodes.map(|n| n as usize), Some(nodes.len()));
        assert_eq!(figures.allocated_devices, Some(1 + 2 + 3 + 4 + 5));
        assert_eq!(
            (figures.waiting_pods, figures.waiting_gpus),
            (Some(3), Some(6))
        );
    });
    let file = server.kubeconfig().to_str().unwrap();
    for (view, name) in [
        (ViewId::Fleet, "fleet"),
        (ViewId::Nodes, "nodes"),
        (ViewId::Jobs, "jobs"),
    ] {
        let common = ["snapshot", "--view", name, "--kubeconfig", file];
        let printed = gpudeck(&[&common[..], &["-o", "json"]].concat());
        assert_eq!((printed.code, &*printed.errors), (Some(0), ""));
        let printed: Value = serde_json::from_str(&printed.output).unwrap();
        let own = session.see(|seen| snapshot::json(&request(seen, view)).unwrap());
        assert_eq!(printed["view"], name);
        assert_eq!(printed["figures"], own["figures"], "{name}");
        assert_eq!(printed["sources"], own["sources"], "{name}");
        let count = printed["rows"].as_array().unwrap().len();
        assert_eq!(Some(count), own["rows"].as_array().map(Vec::len), "{name}");
        assert!(count > 0, "{name}");

        let text = gpudeck(&[&common[..], &["-o", "text"]].concat());
        assert_eq!((text.code, &*text.errors), (Some(0), ""));
        let own = session.see(|seen| snapshot::text(&request(seen, view)).unwrap());
        assert_eq!(head(&text.output), head(&own), "{name}");
        assert!(head(&own).contains("devices  allocated 15"), "{own}");
        assert!(head(&own).contains("waiting  pods 3  GPUs 6"), "{own}");
    }
    session.stop().await;
}

fn request(seen: &super::session::Seen, view: ViewId) -> Request<'_> {
    Request {
        view,
        cluster: &seen.cluster,
        namespace: None,
        filter: "",
        ascii: false,
        now: Timestamp::now(),
    }
}

/// The figures; what follows tells ages.
fn head(text: &str) -> &str {
    text.split_once("\n\n").map_or(text, |(head, _)| head)
}
