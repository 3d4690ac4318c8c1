//! What a user is told when something is wrong, word for word.

use std::path::{Path, PathBuf};

use gpudeck::app::cli::ClusterArgs;
use gpudeck::app::place::Place;
use gpudeck::model::{Figures, Kind, SourceState};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::binary::gpudeck;
use super::fixture::{grant_in, make_node, make_pod, pod, ready_node};
use super::session::{LOOKING, SCHEDULING, Session};
use crate::servers::Server;

/// The address as messages name it.
fn address(kubeconfig: &Path) -> String {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let server = read.clusters[0].cluster.as_ref().unwrap().server.clone();
    server.unwrap().trim_end_matches('/').to_owned()
}

/// A copy of the server's kubeconfig, changed.
fn changed(server: &Server, folder: &Path, change: impl FnOnce(&mut Kubeconfig)) -> PathBuf {
    let mut kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    change(&mut kubeconfig);
    let path = folder.join("kubeconfig");
    std::fs::write(&path, serde_json::to_vec(&kubeconfig).unwrap()).unwrap();
    path
}

pub(crate) async fn an_expired_token_is_told(server: &Server) {
    let folder = tempfile::tempdir().unwrap();
    let path = changed(server, folder.path(), |kubeconfig| {
        let viewer = kubeconfig
            .auth_infos
            .iter_mut()
            .find(|a| a.name == "viewer");
        let info = viewer.unwrap().auth_info.as_mut().unwrap();
        info.token = Some("expired-long-ago".to_owned().into());
        info.token_file = None;
    });
    let file = path.to_str().unwrap();
    let args = [
        "snapshot",
        // Longer than the case may take: it must not be waited for.
        "--timeout",
        "3600",
        "--kubeconfig",
        file,
        "--context",
        "viewer",
    ];
    let ended = gpudeck(&args);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.output, "");
    assert_eq!(
        ended.errors,
        format!(
            "gpudeck: nodes could not be read: the API server {} refuses the \
             credentials, which may have expired (401 Unauthorized): log in again\n",
            address(&path)
        )
    );
}

pub(crate) async fn a_user_without_rights_is_told_which(server: &Server) {
    let file = server.kubeconfig().to_str().unwrap();
    let ended = gpudeck(&["snapshot", "--kubeconfig", file, "--context", "nobody"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.output, "");
    assert_eq!(
        ended.errors,
        "gpudeck: you may not list and watch pods in namespace default: forbidden (403): pods is \
         forbidden: User \"nobody\" cannot list resource \"pods\" in API group \"\" in the \
         namespace \"default\"\n"
    );
}

pub(crate) async fn a_user_of_one_namespace_sees_it_and_what_is_denied(server: &Server) {
    let client = server.admin().await;
    let own = server.namespace("team").await;
    let other = server.namespace("not-team").await;
    let rules = json!([{"apiGroups": ["", "batch"], "resources": ["pods", "events", "jobs"],
                        "verbs": ["get", "list", "watch"]}]);
    grant_in(&client, &own, "team-lead", rules).await;
    for namespace in [&own, &other] {
        make_pod(&client, namespace, pod("one", "somebody-else", "2")).await;
    }
    let lead = server.client("team-lead").await;
    let path = format!("/api/v1/namespaces/{own}/pods");
    super::eventually("her right is in force", async || {
        let request = http::Request::get(&path).body(Vec::new()).unwrap();
        lead.request::<Value>(request).await.ok()
    })
    .await;

    // Her context names her namespace; all are asked for first.
    let folder = tempfile::tempdir().unwrap();
    let path = changed(server, folder.path(), |kubeconfig| {
        let context = kubeconfig
            .contexts
            .iter_mut()
            .find(|c| c.name == "team-lead");
        context.unwrap().context.as_mut().unwrap().namespace = Some(own.clone());
    });
    let before = requests(server);
    let args = ClusterArgs {
        kubeconfig: Some(path.clone()),
        context: Some("team-lead".to_owned()),
        namespace: None,
    };
    let begun = tokio::time::Instant::now();
    let mut session = Session::at(Place::connect(&args, true).await.unwrap(), LOOKING);
    let denied = |seen: &super::session::Seen, kind: Kind| {
        let report = seen.cluster.source(kind)?;
        match &report.state {
            SourceState::Denied { why } => Some(why.to_string()),
            _ => None,
        }
    };
    session
        .until("she sees what is hers and what is denied", |seen| {
            [Kind::Pod, Kind::Job, Kind::Event]
                .into_iter()
                .all(|kind| seen.is_live(kind))
                && [
                    Kind::Node,
                    Kind::Namespace,
                    Kind::PriorityClass,
                    Kind::Volume,
                ]
                .into_iter()
                .all(|kind| denied(seen, kind).is_some())
        })
        .await;
    session.see(|seen| {
        let pods: Vec<_> = seen
            .cluster
            .pods()
            .map(|p| (&*p.meta.namespace, &*p.meta.name))
            .collect();
        assert_eq!(pods, [(&*own, "one")]);
        assert_eq!(
            denied(seen, Kind::Node).unwrap(),
            "you may not list and watch nodes in the cluster: forbidden (403): nodes is \
             forbidden: User \"team-lead\" cannot list resource \"nodes\" in API group \"\" at \
             the cluster scope"
        );
        assert!(!seen.cluster.is_known(Kind::Node));
        let figures = Figures::of(&seen.cluster);
        assert_eq!((figures.nodes, figures.gpus), (None, None));
        assert_eq!(figures.waiting_gpus, Some(2));
    });
    // What is refused is not asked for all the time.
    tokio::time::sleep_until(begun + std::time::Duration::from_secs(10)).await;
    session.stop().await;
    let asked = requests(server) - before;
    // Each kind once in all namespaces and once in her own, three watches; a watch may end.
    let kinds = Kind::ALL.len() + Kind::EXTRA.len() + Kind::foreign().count();
    assert!(asked <= 2 * kinds + 6, "{asked} requests in 10 s");

    let file = path.to_str().unwrap();
    let args = [
        "snapshot",
        "--view",
        "nodes",
        "--kubeconfig",
        file,
        "--context",
        "team-lead",
    ];
    let ended = gpudeck(&args);
    assert_eq!((ended.code, &*ended.errors), (Some(0), ""));
    assert!(
        ended.output.contains(
            "denied   list nodes: you may not list and watch nodes in the cluster: forbidden (403)"
        ),
        "{}",
        ended.output
    );
    assert!(
        ended.output.contains("nodes    all —  ready —  cordoned —"),
        "{}",
        ended.output
    );
}

/// Requests that team-lead has made.
fn requests(server: &Server) -> usize {
    let audit = server.audit();
    audit.iter().filter(|r| r.user == "team-lead").count()
}

pub(crate) async fn odd_objects_are_shown_for_what_they_are(server: &Server) {
    let client = server.admin().await;
    let namespace = server.namespace("odd").await;
    let second = server.namespace("odd-too").await;
    make_node(&client, json!({"metadata": {"name": "odd-bare"}})).await;
    ready_node(&client, "odd-ready", 8).await;
    // The largest number but one still counts; the largest stands for anything beyond it.
    let huge = "9223372036854775806";
    let beyond = pod("beyond", "gpudeck", "9223372036854775807");
    make_pod(&client, &namespace, beyond).await;
    for (namespace, name) in [
        (&namespace, "huge-a"),
        (&namespace, "huge-b"),
        (&second, "huge-c"),
    ] {
        make_pod(&client, namespace, pod(name, "gpudeck", huge)).await;
    }
    // One is on a node already: whoever may create pods may also name a node.
    let mut placed = pod("huge-placed", "gpudeck", huge);
    placed["spec"]["nodeName"] = "odd-ready".into();
    make_pod(&client, &namespace, placed).await;
    let mut modest = pod("modest", "gpudeck", "3");
    modest["spec"]["nodeName"] = "odd-ready".into();
    make_pod(&client, &namespace, modest).await;

    let mut session = Session::open(server, "admin", None, SCHEDULING).await;
    session
        .until("the absurd ones wait", |seen| {
            ["huge-a", "huge-b"].into_iter().all(|name| {
                seen.why_waiting(&namespace, name).as_deref()
                    == Some(
                        "0/2 nodes fit: 2 Insufficient nvidia.com/gpu, 1 Too many pods, 1 \
                         Insufficient cpu, 1 Insufficient memory",
                    )
            })
        })
        .await;
    let unread = "not all of the pod could be read: spec.containers[0].resources.limits \
                  nvidia.com/gpu: \"9223372036854775807\" is beyond any machine and is not counted; \
                  spec.containers[0].resources.requests nvidia.com/gpu: \"9223372036854775807\" is \
                  beyond any machine and is not counted";
    session
        .until("the one beyond numbers waits as well", |seen| {
            seen.why_waiting(&namespace, "beyond").as_deref() == Some(unread)
        })
        .await;
    session.see(|seen| {
        let (bare, held) = seen.cluster.node("odd-bare").unwrap();
        assert!(bare.meta.labels.is_empty(), "{:?}", bare.meta.labels);
        assert!(held.cells(bare).is_empty());
        let figures = Figures::of(&seen.cluster);
        assert_eq!((figures.nodes, figures.gpus), (Some(2), Some(8)));
        assert_eq!(figures.nodes_of_unknown_size, 0);
        // More than a number holds is the largest number.
        assert_eq!(figures.waiting_gpus, Some(i64::MAX));
        assert_eq!(figures.allocated_devices, Some(i64::MAX));
        assert_eq!(figures.used_gpus, Some(8.0));
    });

    // When they are gone what is left is counted right.
    let api = |namespace: &str| Api::<Pod>::namespaced(client.clone(), namespace);
    let at_once = DeleteParams::default().grace_period(0);
    for (namespace, name) in [
        (&namespace, "huge-placed"),
        (&namespace, "huge-a"),
        (&second, "huge-c"),
    ] {
        api(namespace).delete(name, &at_once).await.unwrap();
    }
    session
        .until("they are gone", |seen| seen.cluster.pod_count() == 3)
        .await;
    session.see(|seen| {
        let figures = Figures::of(&seen.cluster);
        assert_eq!(figures.allocated_devices, Some(3));
        assert_eq!(figures.used_gpus, Some(3.0));
        assert_eq!(figures.waiting_gpus, Some(i64::MAX - 1));
        let (_, held) = seen.cluster.node("odd-ready").unwrap();
        assert_eq!(held.requests.extended("nvidia.com/gpu"), 3);
    });
    session.stop().await;
}
