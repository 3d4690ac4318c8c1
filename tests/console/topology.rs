//! The network as a tree: pictures, keys, and what a job crosses.

use gpudeck::model::{Delta, FabricRules, NamedPlace, WorkloadKey};
use gpudeck::tui::view::{Act, Motion, Target, View, ViewId};

use crate::fixture::{self, NodeSpec, PodSpec};
use crate::screen::{LOOKS, Stage, TRUE, text, view};

fn tree(stage: &Stage, width: u16, height: u16) -> (Box<dyn View>, String) {
    let mut tree = view(ViewId::Topology);
    let picture = text(&stage.draw(&mut *tree, width, height));
    (tree, picture)
}

fn line(picture: &str, name: &str) -> String {
    let found = picture.lines().find(|l| l.contains(name));
    found
        .unwrap_or_else(|| panic!("{name} in\n{picture}"))
        .to_owned()
}

/// Two spines of two leaves of two nodes, and a job on three nodes of two leaves.
fn fabric() -> gpudeck::model::Cluster {
    let mut cluster = gpudeck::model::Cluster::new();
    for n in 0..8 {
        let (spine, leaf) = (format!("s{}", n / 4), format!("l{}", n / 2));
        let mut labels = vec![
            ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
            ("nvidia.com/gpu.count", "8"),
            ("fabric.topograph.run/tier-1", spine.as_str()),
        ];
        // The last node says no leaf.
        if n < 7 {
            labels.push(("fabric.topograph.run/tier-0", leaf.as_str()));
        }
        cluster.apply(&fixture::node(&NodeSpec {
            name: &format!("n{n}"),
            labels: &labels,
            devices: &[("gpu", 8)],
            ..NodeSpec::default()
        }));
    }
    for (rank, node) in [(0, "n0"), (1, "n1"), (2, "n2")] {
        cluster.apply(&fixture::pod(&PodSpec {
            ns: "train",
            name: &format!("llm-{rank}"),
            node: Some(node),
            devices: &[("gpu", 8)],
            owner: Some(("PyTorchJob", "llm")),
            ..PodSpec::default()
        }));
    }
    for rank in 0..2 {
        cluster.apply(&fixture::pod(&PodSpec {
            ns: "train",
            name: &format!("small-{rank}"),
            node: Some("n3"),
            devices: &[("gpu", 2)],
            owner: Some(("Job", "small")),
            ..PodSpec::default()
        }));
    }
    for kind in gpudeck::model::Kind::ALL {
        cluster.apply(&fixture::source(kind, gpudeck::model::SourceState::Live));
    }
    cluster
}

fn job(name: &str, kind: &str) -> WorkloadKey {
    WorkloadKey {
        namespace: "train".into(),
        kind: kind.into(),
        name: name.into(),
    }
}

#[test]
fn sums_holes_gangs_and_gaps() {
    let stage = Stage::new(fabric(), TRUE);
    let (_, picture) = tree(&stage, 120, 30);
    assert!(picture.contains("1 of 8 nodes say no leaf"), "{picture}");
    for (name, figures) in [
        // GPUs, used, free, hole, gangs, crossing
        ("spine s0", "32 28 4 4 2 0"),
        ("leaf l0", "16 16 0 0 1 1"),
        ("leaf l1", "16 12 4 4 2 1"),
        ("n3 ", "8 4 4 4 1 0"),
        ("spine s1", "32 0 32 8 ×4 0 0"),
    ] {
        let line = line(&picture, name);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.join(" ").contains(figures), "{name}: {line}");
    }
}

#[test]
fn a_job_that_was_looked_at_is_lit_with_what_it_crosses() {
    for (name, kind, words) in [
        (
            "llm",
            "PyTorchJob",
            "train/llm: 3 pods on 3 nodes in 2 leaves, 1 spine; crosses leaves",
        ),
        (
            "small",
            "Job",
            "train/small: 2 pods on 1 node in 1 leaf, 1 spine; crosses nothing",
        ),
    ] {
        let mut stage = Stage::new(fabric(), TRUE);
        stage.job = Some(job(name, kind));
        let (_, picture) = tree(&stage, 120, 30);
        assert!(picture.contains(words), "{picture}");
        assert!(line(&picture, "▕").contains('▕'));
        let lit = if name == "llm" { "n2 " } else { "n3 " };
        assert!(
            line(&picture, lit).contains(&format!("← {name}")),
            "{picture}"
        );
    }
    let mut stage = Stage::new(fabric(), TRUE);
    stage.job = Some(job("gone", "Job"));
    assert!(!tree(&stage, 120, 30).1.contains(" pods on "));
}

/// What a job would gain elsewhere: told where a closer place is free, and only then.
#[test]
fn a_closer_place_is_told_with_what_it_gains() {
    let mut cluster = fabric();
    for (rank, node) in [(0, "n3"), (1, "n4")] {
        cluster.apply(&fixture::pod(&PodSpec {
            ns: "train",
            name: &format!("wide-{rank}"),
            node: Some(node),
            devices: &[("gpu", 4)],
            owner: Some(("PyTorchJob", "wide")),
            ..PodSpec::default()
        }));
    }
    let mut stage = Stage::new(cluster, TRUE);
    stage.job = Some(job("wide", "PyTorchJob"));
    let (_, picture) = tree(&stage, 160, 30);
    let words = "would fit closer in node n4: 1 GiB all-reduced in about 5.1 ms there, ";
    assert!(picture.contains(words), "{picture}");
    // Three nodes of two leaves: no leaf has three. On one node: it cannot be closer.
    for (name, kind, told) in [("llm", "PyTorchJob", true), ("small", "Job", false)] {
        let mut stage = Stage::new(fabric(), TRUE);
        stage.job = Some(job(name, kind));
        let (_, picture) = tree(&stage, 160, 30);
        let words = picture.contains("no closer place is free for it");
        assert_eq!(words, told, "{picture}");
        assert!(!picture.contains("would fit closer"), "{picture}");
    }
}

/// A level with one part shares its row, and what all zones hang below is told once.
#[test]
fn a_level_of_one_part_is_one_row() {
    let mut cluster = gpudeck::model::Cluster::new();
    for n in 0..6 {
        // Zone b has one spine only, zone a has two.
        let (zone, spine) = [("a", "s0"), ("a", "s1"), ("b", "s2")][n / 2];
        let leaf = format!("l{n}");
        cluster.apply(&fixture::node(&NodeSpec {
            name: &format!("n{n}"),
            labels: &[
                ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
                ("nvidia.com/gpu.count", "8"),
                ("topology.kubernetes.io/zone", zone),
                ("fabric.topograph.run/tier-2", "core-1"),
                ("fabric.topograph.run/tier-1", spine),
                ("fabric.topograph.run/tier-0", &leaf),
            ],
            devices: &[("gpu", 8)],
            ..NodeSpec::default()
        }));
    }
    for kind in gpudeck::model::Kind::ALL {
        cluster.apply(&fixture::source(kind, gpudeck::model::SourceState::Live));
    }
    let stage = Stage::new(cluster, TRUE);
    let (mut tree, picture) = tree(&stage, 120, 30);
    assert_eq!(picture.matches("core-1").count(), 1, "{picture}");
    assert!(picture.contains("all zones below core core-1"), "{picture}");
    assert!(
        line(&picture, "zone b").contains("zone b / spine s2"),
        "{picture}"
    );
    assert!(!line(&picture, "zone a").contains("spine"), "{picture}");
    line(&picture, "spine s0");
    // What shares a row is found at it.
    for way in [
        "zone b",
        "zone b/core core-1",
        "zone b/core core-1/spine s2",
    ] {
        assert!(tree.select(&Target::Domain(way.into())), "{way}");
        stage.draw(&mut *tree, 120, 30);
        let at = Some(Target::Domain("zone b/core core-1/spine s2".into()));
        assert_eq!(tree.selected(), at, "{way}");
    }
    assert!(tree.select(&Target::Node("n5".into())));
    stage.draw(&mut *tree, 120, 30);
    assert_eq!(tree.selected(), Some(Target::Node("n5".into())));
}

#[test]
fn keys_open_and_close_and_find_nodes_again() {
    let stage = Stage::new(fabric(), TRUE);
    let (mut tree, _) = tree(&stage, 120, 30);
    let selected = |tree: &dyn View| match tree.selected() {
        Some(Target::Domain(way)) => way.replace("no zone/", ""),
        Some(Target::Node(name)) => name.to_string(),
        Some(Target::Gpu(name, gpu)) => format!("{name} {gpu}"),
        other => format!("{other:?}"),
    };
    assert_eq!(selected(&*tree), "spine s0");
    // Closes, is closed, opens, goes in.
    for (motion, there, spine_open) in [
        (Motion::Left, "spine s0", false),
        (Motion::Left, "spine s0", false),
        (Motion::Right, "spine s0", true),
        (Motion::Right, "spine s0/leaf l0", true),
        (Motion::Right, "n0", true),
        (Motion::Left, "spine s0/leaf l0", true),
    ] {
        tree.motion(motion);
        let picture = text(&stage.draw(&mut *tree, 120, 30));
        assert_eq!(selected(&*tree), there, "{picture}");
        assert_eq!(picture.contains("leaf l1"), spine_open, "{picture}");
    }
    assert!(tree.select(&Target::Gpu("n3".into(), 2)));
    stage.draw(&mut *tree, 120, 30);
    assert_eq!(selected(&*tree), "n3 2");
    assert!(tree.select(&Target::Domain("no zone/spine s1/leaf l2".into())));
    stage.draw(&mut *tree, 120, 30);
    assert_eq!(selected(&*tree), "spine s1/leaf l2");
    let lines = tree
        .describe(&tree.selected().unwrap(), &stage.ctx())
        .unwrap();
    let words: Vec<String> = lines.iter().map(ToString::to_string).collect();
    assert!(
        words.iter().any(|l| l.contains("8  n4  H100-80")),
        "{words:?}"
    );
    // All levels closed, then opened again.
    for _ in 0..9 {
        tree.act(Act::ZoomOut);
        stage.draw(&mut *tree, 120, 60);
    }
    assert!(!tree.can(Act::ZoomOut));
    for _ in 0..9 {
        tree.act(Act::ZoomIn);
        stage.draw(&mut *tree, 120, 60);
    }
    let picture = text(&stage.draw(&mut *tree, 120, 90));
    assert!(picture.contains("gpu 7"), "{picture}");
}

#[test]
fn a_filter_leaves_its_nodes_and_sums_them() {
    let stage = Stage::new(fabric(), TRUE);
    let (mut tree, _) = tree(&stage, 120, 30);
    tree.set_filter("free>0 leaf=l1").unwrap();
    let picture = text(&stage.draw(&mut *tree, 120, 30));
    assert_eq!(tree.count(), (1, 8));
    assert!(
        picture.contains("n3 ") && !picture.contains("n2 "),
        "{picture}"
    );
    assert!(line(&picture, "spine s0").contains(" 8 "), "{picture}");
    // What labels lack is told of all nodes.
    assert!(picture.contains("1 of 8 nodes say no leaf"), "{picture}");
    tree.set_filter("").unwrap();
    stage.draw(&mut *tree, 120, 30);
    assert_eq!(tree.count(), (8, 8));
}

#[test]
fn the_operators_own_map_of_nodes_moves_them() {
    let mut cluster = fabric();
    let mut tree = view(ViewId::Topology);
    let draw = |cluster: gpudeck::model::Cluster, tree: &mut dyn View| {
        let stage = Stage::new(cluster, TRUE);
        let picture = text(&stage.draw(tree, 120, 30));
        (stage.cluster, picture)
    };
    (cluster, _) = draw(cluster, &mut *tree);
    cluster.apply(&Delta::Fabric(std::sync::Arc::new(FabricRules {
        places: vec![NamedPlace {
            nodes: "n*".into(),
            path: Box::new(["row-7".into()]),
        }],
        ..FabricRules::default()
    })));
    let (_, picture) = draw(cluster, &mut *tree);
    assert!(line(&picture, "leaf row-7").contains("64"), "{picture}");
    assert!(!picture.contains("spine s0"), "{picture}");
}

#[test]
fn without_labels_nodes_are_grouped_and_the_fabric_is_said_to_be_unknown() {
    let mut cluster = gpudeck::model::Cluster::new();
    for n in 0..3 {
        cluster.apply(&fixture::node(&NodeSpec {
            name: &format!("n{n}"),
            labels: &[
                ("nvidia.com/gpu.product", "NVIDIA-L40S"),
                ("topology.kubernetes.io/zone", "z1"),
            ],
            devices: &[("gpu", 4)],
            ..NodeSpec::default()
        }));
    }
    for kind in gpudeck::model::Kind::ALL {
        cluster.apply(&fixture::source(kind, gpudeck::model::SourceState::Live));
    }
    let stage = Stage::new(cluster, TRUE);
    let (_, picture) = tree(&stage, 100, 20);
    assert!(
        picture.contains("fabric unknown: no node has a network label"),
        "{picture}"
    );
    for name in ["zone z1", "model L40S", "n2"] {
        line(&picture, name);
    }
}

/// Each kind of terminal and each size, with a job lit and a GPU of a cut node open.
#[test]
fn pictures_of_the_tree() {
    for look in LOOKS {
        let mut stage = Stage::new(fixture::cluster(), look);
        stage.job = Some(WorkloadKey {
            namespace: "train".into(),
            kind: "PyTorchJob".into(),
            name: "llm-7b".into(),
        });
        let mut shots = String::new();
        for (width, height) in [(80, 18), (120, 34), (200, 40), (300, 40)] {
            let (mut tree, _) = tree(&stage, width, height);
            tree.select(&Target::Gpu("a100-mix-01".into(), 5));
            stage.draw(&mut *tree, width, height);
            tree.motion(Motion::Right);
            let picture = text(&stage.draw(&mut *tree, width, height));
            shots.push_str(&format!("-- {width}\n{picture}\n"));
        }
        insta::assert_snapshot!(format!("topology-open-{}", look.name), shots);
    }
}

/// The GPUs of a node by what they share on its board, where its driver publishes that.
#[test]
fn gpus_of_a_node_are_grouped_as_its_board_is() {
    let mut cluster = gpudeck::model::Cluster::new();
    for report in fixture::live() {
        cluster.apply(&report);
    }
    cluster.apply(&fixture::node(&NodeSpec {
        name: "hgx-t02.lab.example",
        labels: &[
            ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
            ("nvidia.com/gpu.count", "8"),
        ],
        devices: &[("gpu", 8)],
        ..NodeSpec::default()
    }));
    cluster.apply(&fixture::pod(&PodSpec {
        ns: "a",
        name: "p",
        node: Some("hgx-t02.lab.example"),
        devices: &[("gpu", 3)],
        ..PodSpec::default()
    }));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("tests/data/samples/dra/resourceslices-full-gpu-taints.json");
    let list: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut decoder = gpudeck::cluster::decode::Decoder::new();
    let kind = gpudeck::model::Kind::Foreign(gpudeck::model::ForeignKind::ResourceSlice);
    for object in list["items"].as_array().unwrap() {
        let read = decoder.decode(kind, &object.to_string()).unwrap();
        cluster.apply(&read.into_set());
    }
    let stage = Stage::new(cluster, TRUE);
    let mut tree = view(ViewId::Topology);
    stage.draw(&mut *tree, 100, 20);
    // Also a GPU inside of a closed group is found.
    assert!(tree.select(&Target::Gpu("hgx-t02.lab.example".into(), 5)));
    stage.draw(&mut *tree, 100, 20);
    assert_eq!(
        tree.selected(),
        Some(Target::Gpu("hgx-t02.lab.example".into(), 5))
    );
    let picture = text(&stage.draw(&mut *tree, 100, 20));
    assert!(!picture.contains("gpu 0"), "{picture}");
    assert!(tree.select(&Target::Node("hgx-t02.lab.example".into())));
    stage.draw(&mut *tree, 100, 20);
    for motion in [Motion::Left, Motion::Right] {
        tree.motion(motion);
        stage.draw(&mut *tree, 100, 20);
    }
    insta::assert_snapshot!(text(&stage.draw(&mut *tree, 80, 18)));
}
