#![allow(clippy::unwrap_used)]
use super::*;

fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let mut labels: Vec<(Str, Str)> = labels
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    labels.sort();
    Node {
        meta: Meta {
            name: name.into(),
            labels: labels.into(),
            ..Meta::default()
        },
        ..Node::default()
    }
}

/// `core=a spine=b leaf=c [domain] by FAMILY, no LEVEL`.
fn line(place: &Place) -> String {
    let mut words: Vec<String> = place
        .switches
        .iter()
        .map(|s| format!("{}={}", s.level, s.name))
        .collect();
    words.extend(place.nvlink_domain.iter().map(|d| format!("[{d}]")));
    words.extend(place.told_by.iter().map(|f| format!("by {f}")));
    words.extend(place.lacks.iter().map(|l| format!("no {l}")));
    words.join(" ")
}

#[test]
fn each_family_of_labels_tells_its_levels_from_the_widest() {
    let rules = FabricRules::default();
    for (labels, expected) in [
        (
            &[
                ("fabric.topograph.run/tier-0", "l1"),
                ("fabric.topograph.run/tier-2", "c1"),
                ("nvidia.com/gpu.clique", "u.1"),
                ("accelerator.topograph.run/domain", "rack-1"),
            ][..],
            "core=c1 leaf=l1 [u.1] by topograph",
        ),
        (
            &[("fabric.topograph.run/tier-1", "s1")],
            "spine=s1 by topograph no leaf",
        ),
        (
            &[
                ("network.topology.nvidia.com/spine", "s"),
                ("network.topology.nvidia.com/block", "b"),
                ("network.topology.nvidia.com/datacenter", "d"),
            ],
            "datacenter=d spine=s block=b by topograph, old labels",
        ),
        (
            &[
                ("network.topology.nvidia.com/core", "c"),
                ("network.topology.nvidia.com/spine", "s"),
                ("network.topology.nvidia.com/accelerator", "n"),
            ],
            "core=c spine=s [n] by topograph, old labels no leaf",
        ),
        (
            &[
                ("topology.k8s.aws/network-node-layer-1", "n1"),
                ("topology.k8s.aws/network-node-layer-2", "n2"),
                ("topology.k8s.aws/network-node-layer-3", "n3"),
            ],
            "core=n1 spine=n2 leaf=n3 by AWS",
        ),
        (
            &[
                ("topology.k8s.aws/network-node-layer-3", "n3"),
                ("topology.k8s.aws/network-node-layer-4", "n4"),
            ],
            "leaf=n3 sub-leaf=n4 by AWS",
        ),
        (
            &[("cloud.google.com/gce-topology-block", "b")],
            "block=b by GKE no sub-block",
        ),
        (
            &[
                ("oci.oraclecloud.com/rdma.hpc_island_id", "i"),
                ("oci.oraclecloud.com/rdma.network_block_id", "no-imds-data"),
                ("oci.oraclecloud.com/rdma.local_block_id", "l"),
            ],
            "island=i local block=l by OCI",
        ),
        (
            &[
                ("backend.coreweave.cloud/fabric", "ib1"),
                ("backend.coreweave.cloud/leafgroup", "17"),
            ],
            "fabric=ib1 leaf group=17 by CoreWeave",
        ),
        (&[("topology.kubernetes.io/zone", "z")], ""),
        (
            &[
                ("fabric.topograph.run/tier-0", " None "),
                ("nvidia.com/gpu.clique", ""),
            ],
            "",
        ),
    ] {
        assert_eq!(line(&rules.place(&node("n", labels))), expected);
    }
}

#[test]
fn what_the_operator_states_wins() {
    let rules = FabricRules {
        places: vec![NamedPlace {
            nodes: "gpu-a*.lab".into(),
            path: Box::new(["s1".into(), "l1".into()]),
        }],
        levels: vec![LabelLevels {
            name: "Kueue Topology default".into(),
            keys: Box::new([
                "cloud.google.com/gce-topology-block".into(),
                "example.com/rack".into(),
                "kubernetes.io/hostname".into(),
            ]),
        }],
        ..FabricRules::default()
    };
    let both = [
        ("fabric.topograph.run/tier-0", "t0"),
        ("example.com/rack", "r7"),
        ("kubernetes.io/hostname", "n"),
    ];
    let place = |name: &str, labels: &[(&str, &str)]| line(&rules.place(&node(name, labels)));
    assert_eq!(place("gpu-a07.lab", &both), "spine=s1 leaf=l1 by config");
    assert_eq!(
        place("gpu-b07.lab", &both),
        "rack=r7 by Kueue Topology default"
    );
    let block = [("cloud.google.com/gce-topology-block", "b")];
    assert_eq!(
        place("n", &block),
        "block=b by Kueue Topology default no rack"
    );
    assert_eq!(place("n", &both[..1]), "leaf=t0 by topograph");
}

#[test]
fn patterns_of_names() {
    for (pattern, name, fits) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("*b", "ab", true),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "acb", false),
        ("a*a", "a", false),
        ("*", "", true),
        ("", "x", false),
    ] {
        assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
    }
}
