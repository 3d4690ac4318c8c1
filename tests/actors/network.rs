//! Network labels in the schemes of topograph and the clouds, and NVLink domains.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gpudeck::sandbox::actors::Options;
use gpudeck::sandbox::actors::world::Settings as World;
use gpudeck::sandbox::actors::world::network::{NVL72_NODES, Place, Scheme, Settings, labels};
use gpudeck::sandbox::actors::world::pick::NodePick;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};

use crate::cluster::{Cluster, eventually_within};

const LONG: Duration = Duration::from_secs(600);

fn with(settings: Settings) -> Options {
    Options {
        world: World {
            network: Some(Settings {
                nodes: NodePick::named(["n*"]),
                ..settings
            }),
            ..World::default()
        },
        ..Options::default()
    }
}

/// Labels of all nodes by name, once as many as `wanted` have a place.
async fn placed(cluster: &Cluster, wanted: usize) -> BTreeMap<String, BTreeMap<String, String>> {
    let api: Api<Node> = Api::all(cluster.client.clone());
    eventually_within(LONG, "all nodes have a place", || async {
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let mark = "sandbox.gpudeck.dev/network-place";
        let done = all.iter().filter(|node| {
            let annotations = node.metadata.annotations.as_ref();
            annotations.is_some_and(|all| all.contains_key(mark))
        });
        (done.count() == wanted).then(|| {
            let pairs = all.into_iter();
            pairs
                .map(|node| {
                    (
                        node.metadata.name.unwrap(),
                        node.metadata.labels.unwrap_or_default(),
                    )
                })
                .collect()
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn nodes_share_switches_and_a_gap_is_filled() {
    let cluster = Cluster::with(&with(Settings {
        schemes: vec![Scheme::Topograph, Scheme::Aws],
        nodes_per_leaf: 2,
        leaves_per_spine: 2,
        ..Settings::default()
    }));
    for number in 0..6 {
        cluster.node(&format!("n{number}"), 8).await;
    }
    let all = placed(&cluster, 6).await;
    let values = |key: &str| {
        let values = all.values().map(|labels| labels[key].clone());
        values.collect::<BTreeSet<String>>()
    };
    let count = |key: &str| values(key).len();
    assert_eq!(count("fabric.topograph.run/tier-0"), 3);
    assert_eq!(count("fabric.topograph.run/tier-1"), 2);
    // AWS counts from the top.
    assert_eq!(count("topology.k8s.aws/network-node-layer-1"), 1);
    assert_eq!(count("topology.k8s.aws/network-node-layer-3"), 3);
    for id in values("topology.k8s.aws/network-node-layer-3") {
        assert!(id.starts_with("nn-") && id.len() == 20, "{id}");
    }

    let api: Api<Node> = Api::all(cluster.client.clone());
    let leaf = all["n2"]["fabric.topograph.run/tier-0"].clone();
    api.delete("n2", &DeleteParams::default()).await.unwrap();
    placed(&cluster, 5).await;
    cluster.node("n9", 8).await;
    let again = placed(&cluster, 6).await;
    assert_eq!(again["n9"]["fabric.topograph.run/tier-0"], leaf);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn racks_are_cliques_and_some_nodes_stay_unlabelled() {
    let cluster = Cluster::with(&with(Settings {
        nvlink_nodes: Some(NVL72_NODES),
        unlabelled_share: 0.2,
        ..Settings::default()
    }));
    for number in 0..36 {
        cluster.node(&format!("n{number:02}"), 4).await;
    }
    let all = placed(&cluster, 36).await;
    let mut racks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut bare = 0;
    for labels in all.values() {
        match labels.get("nvidia.com/gpu.clique") {
            Some(clique) => {
                let leaf = labels["fabric.topograph.run/tier-0"].clone();
                racks.entry(clique.clone()).or_default().insert(leaf);
            }
            None => {
                bare += 1;
                assert!(
                    labels
                        .keys()
                        .all(|key| !key.starts_with("fabric.topograph.run/"))
                );
            }
        }
    }
    assert_eq!(racks.len(), 2, "{racks:?}");
    assert!(racks.values().all(|leaves| leaves.len() == 1), "{racks:?}");
    assert!(
        racks
            .keys()
            .all(|clique| clique.len() == 42 && clique.ends_with(".32766"))
    );
    assert!((1..=18).contains(&bare), "{bare}");
    cluster.stop().await;
}

#[test]
fn every_scheme_tells_a_leaf_from_its_neighbour_with_labels_a_server_takes() {
    let place = |leaf| Place {
        leaf,
        spine: 1,
        core: 1,
    };
    for scheme in Scheme::ALL {
        let (a, b) = (
            labels(scheme, place(1), "n1", 5),
            labels(scheme, place(2), "n2", 5),
        );
        assert_ne!(a, b, "{}", scheme.name());
        assert_eq!(a, labels(scheme, place(1), "n1", 5));
        for (key, value) in &a {
            let (prefix, name) = key.split_once('/').unwrap();
            assert!(prefix.contains('.') && !name.is_empty(), "{key}");
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            assert!(
                !value.is_empty() && value.len() <= 63 && value.chars().all(good),
                "{value}"
            );
        }
    }
}
