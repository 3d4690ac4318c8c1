//! The demo fleet against the tables of NVIDIA's documents, written here by hand.

use std::collections::BTreeMap;

use gpudeck::sandbox::inventory::{DEMO_NODES, Fleet};
use serde_json::Value;

fn labels(node: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(node["metadata"]["labels"].clone()).unwrap()
}

fn allocatable(node: &Value, name: &str) -> Option<String> {
    node["status"]["allocatable"]
        .get(name)
        .map(|value| value.as_str().unwrap().to_owned())
}

/// A node that the predicate takes and that has no fault.
fn find(fleet: &Fleet, wanted: impl Fn(&BTreeMap<String, String>) -> bool) -> Value {
    let mut nodes = fleet.nodes().into_iter();
    nodes
        .find(|node| wanted(&labels(node)) && node["spec"].get("taints").is_none())
        .unwrap()
}

fn expect(node: &Value, expected: &[(&str, &str)]) {
    let labels = labels(node);
    for (suffix, value) in expected {
        let key = format!("nvidia.com/{suffix}");
        assert_eq!(labels.get(&key).map(String::as_str), Some(*value), "{key}");
    }
}

#[test]
fn two_fleets_of_one_seed_are_equal_to_the_byte() {
    let text = |seed| serde_json::to_string(&Fleet::demo(seed).nodes()).unwrap();
    assert_eq!(text(5), text(5));
    assert_ne!(text(5), text(6));
}

#[test]
fn whole_h100_nodes_have_the_labels_of_gpu_feature_discovery() {
    let fleet = Fleet::demo(1);
    let node = find(&fleet, |labels| {
        labels
            .get("nvidia.com/gpu.product")
            .is_some_and(|product| product == "NVIDIA-H100-80GB-HBM3")
    });
    expect(
        &node,
        &[
            ("gpu.count", "8"),
            ("gpu.replicas", "1"),
            ("gpu.memory", "81559"),
            ("gpu.family", "hopper"),
            ("gpu.compute.major", "9"),
            ("gpu.compute.minor", "0"),
            ("gpu.sharing-strategy", "none"),
            ("gpu.present", "true"),
            ("gpu.mode", "compute"),
            ("mig.capable", "true"),
            ("mig.config", "all-disabled"),
            ("mig.config.state", "success"),
            ("cuda.driver-version.full", "580.95.05"),
            ("cuda.driver-version.revision", "05"),
            ("cuda.driver.major", "580"),
            ("cuda.runtime.major", "13"),
        ],
    );
    let labels = labels(&node);
    assert!(
        !labels.contains_key("nvidia.com/mig.strategy"),
        "absent for none"
    );
    assert!(
        !labels.contains_key("nvidia.com/gpu.clique"),
        "absent on HGX"
    );
    assert_eq!(allocatable(&node, "nvidia.com/gpu").as_deref(), Some("8"));
}

#[test]
fn strategy_single_counts_mig_devices_as_gpus() {
    let fleet = Fleet::demo(1);
    let node = find(&fleet, |labels| {
        labels
            .get("nvidia.com/mig.strategy")
            .is_some_and(|strategy| strategy == "single")
    });
    // H200: seven 1g.18gb of 16.00 GiB and 16 SMs on each of eight GPUs.
    expect(
        &node,
        &[
            ("gpu.product", "NVIDIA-H200-MIG-1g.18gb"),
            ("gpu.count", "56"),
            ("gpu.replicas", "1"),
            ("gpu.memory", "16384"),
            ("gpu.multiprocessors", "16"),
            ("gpu.slices.gi", "1"),
            ("gpu.slices.ci", "1"),
            ("gpu.engines.copy", "1"),
            ("gpu.engines.decoder", "1"),
            ("gpu.engines.jpeg", "1"),
            ("gpu.engines.ofa", "0"),
            ("gpu.engines.encoder", "0"),
            ("mig.config", "all-1g.18gb"),
        ],
    );
    assert_eq!(allocatable(&node, "nvidia.com/gpu").as_deref(), Some("56"));
    assert!(
        !labels(&node)
            .keys()
            .any(|key| key.starts_with("nvidia.com/mig-"))
    );
}

#[test]
fn strategy_mixed_counts_physical_gpus_and_names_each_profile() {
    let fleet = Fleet::demo(1);
    let mixed = |product: &'static str| {
        find(&fleet, move |labels| {
            labels
                .get("nvidia.com/mig.strategy")
                .is_some_and(|strategy| strategy == "mixed")
                && labels
                    .get("nvidia.com/gpu.product")
                    .is_some_and(|name| name == product)
        })
    };
    // H200, all eight cut into 2x1g.18gb, 2g.35gb, 3g.71gb: 16.00, 32.25 and 69.50 GiB.
    let h200 = mixed("NVIDIA-H200");
    expect(
        &h200,
        &[
            ("gpu.count", "8"),
            ("gpu.replicas", "0"),
            ("gpu.memory", "143771"),
            ("mig-1g.18gb.count", "16"),
            ("mig-1g.18gb.memory", "16384"),
            ("mig-1g.18gb.multiprocessors", "16"),
            ("mig-1g.18gb.product", "NVIDIA-H200-MIG-1g.18gb"),
            ("mig-1g.18gb.sharing-strategy", "none"),
            ("mig-2g.35gb.count", "8"),
            ("mig-2g.35gb.memory", "33024"),
            ("mig-2g.35gb.multiprocessors", "32"),
            ("mig-2g.35gb.engines.copy", "2"),
            ("mig-3g.71gb.count", "8"),
            ("mig-3g.71gb.memory", "71168"),
            ("mig-3g.71gb.multiprocessors", "60"),
            ("mig-3g.71gb.slices.gi", "3"),
            ("mig-3g.71gb.engines.decoder", "3"),
        ],
    );
    for (name, count) in [
        ("nvidia.com/gpu", "0"),
        ("nvidia.com/mig-1g.18gb", "16"),
        ("nvidia.com/mig-2g.35gb", "8"),
        ("nvidia.com/mig-3g.71gb", "8"),
    ] {
        assert_eq!(allocatable(&h200, name).as_deref(), Some(count), "{name}");
    }
    // A100 40 GB: half of the GPUs whole, half cut; memory 4864, 9856, 19968 MiB.
    let a100 = mixed("NVIDIA-A100-SXM4-40GB");
    expect(
        &a100,
        &[
            ("gpu.count", "8"),
            ("gpu.replicas", "1"),
            ("gpu.family", "ampere"),
            ("mig-1g.5gb.count", "8"),
            ("mig-1g.5gb.memory", "4864"),
            ("mig-1g.5gb.multiprocessors", "14"),
            ("mig-1g.5gb.engines.decoder", "0"),
            ("mig-2g.10gb.count", "4"),
            ("mig-2g.10gb.memory", "9856"),
            ("mig-2g.10gb.multiprocessors", "28"),
            ("mig-3g.20gb.count", "4"),
            ("mig-3g.20gb.memory", "19968"),
            ("mig-3g.20gb.multiprocessors", "42"),
        ],
    );
    assert_eq!(allocatable(&a100, "nvidia.com/gpu").as_deref(), Some("4"));
}

#[test]
fn the_demo_shows_each_kind_of_node() {
    let fleet = Fleet::demo(1);
    let nodes = fleet.nodes();
    assert_eq!(nodes.len(), DEMO_NODES);
    assert!((450..550).contains(&fleet.gpus()), "{}", fleet.gpus());
    let count = |wanted: &dyn Fn(&Value) -> bool| nodes.iter().filter(|node| wanted(node)).count();
    for tier in ["reserved", "on-demand", "spot"] {
        let of_tier =
            |node: &Value| node["metadata"]["labels"]["karpenter.sh/capacity-type"] == tier;
        assert!(count(&of_tier) > 0, "{tier}");
    }
    assert_eq!(count(&|node| node["spec"]["unschedulable"] == true), 2);
    assert_eq!(
        count(&|node| node["status"]["conditions"][3]["status"] == "Unknown"),
        1
    );
    let sick = |node: &Value| {
        allocatable(node, "nvidia.com/gpu")
            .is_some_and(|left| node["status"]["capacity"]["nvidia.com/gpu"] != left)
    };
    assert_eq!(count(&sick), 1);
    let no_gpu = |node: &Value| {
        node["metadata"]["labels"]
            .get("nvidia.com/gpu.product")
            .is_none()
    };
    assert_eq!(count(&no_gpu), 5);
    let in_fabric = |node: &Value| {
        node["metadata"]["labels"]
            .get("fabric.topograph.run/tier-0")
            .is_some()
    };
    assert_eq!(count(&in_fabric), nodes.len() - 5);
}

#[test]
fn fleets_of_any_size_have_distinct_names_and_addresses() {
    for count in [0, 1, 7, 100, 5_000] {
        let nodes = Fleet::sized(count, 2).nodes();
        assert_eq!(nodes.len(), count);
        let distinct = |pointer: &str| {
            let values = nodes
                .iter()
                .map(|node| node.pointer(pointer).unwrap().to_string());
            values.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(distinct("/metadata/name"), count);
        assert_eq!(distinct("/status/addresses/0/address"), count);
        assert_eq!(distinct("/spec/podCIDR"), count);
        for (key, value) in nodes.iter().flat_map(labels) {
            assert!(value.len() <= 63 && key.len() <= 253, "{key}={value}");
        }
    }
}
