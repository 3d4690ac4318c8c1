//! mig-manager: what a changed `nvidia.com/mig.config` does to a node.

use gpudeck::sandbox::actors::gpu_config::{MigManagerConfig, Strategy};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::cluster::eventually;
use crate::gpu_world::{World, devices_of, phase};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_configuration_goes_through_pending_to_success() {
    let world = World::start(|_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    world
        .label("n1", json!({"nvidia.com/mig.config": "all-balanced"}))
        .await;
    world.until_state("n1", "pending").await;
    world
        .until_label(
            "n1",
            "nvidia.com/gpu.deploy.device-plugin",
            "paused-for-mig-change",
        )
        .await;
    world.until_state("n1", "success").await;
    world
        .until_label("n1", "nvidia.com/gpu.deploy.device-plugin", "true")
        .await;
    // The whole GPUs' resource stays as zero, the profiles are there.
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("4", "4"))
        .await;
    world
        .until_amounts("n1", "nvidia.com/mig-2g.20gb", ("2", "2"))
        .await;
    world
        .until_amounts("n1", "nvidia.com/mig-3g.40gb", ("2", "2"))
        .await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("0", "0"))
        .await;
    // Feature discovery follows.
    world
        .until_label("n1", "nvidia.com/mig-1g.10gb.count", "4")
        .await;
    let labels = world.labels("n1").await;
    for (name, value) in [
        ("gpu.count", "2"),
        ("gpu.replicas", "0"),
        ("mig.strategy", "mixed"),
        ("mig-3g.40gb.product", "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"),
        ("mig-3g.40gb.multiprocessors", "60"),
    ] {
        let found = labels.get(&format!("nvidia.com/{name}"));
        assert_eq!(found.map(String::as_str), Some(value), "{name}");
    }
    assert!(labels.contains_key("nvidia.com/gfd.timestamp"));

    // A pod on a slice, and the rows of slices.
    world.pod("a", "n1", "nvidia.com/mig-3g.40gb", 1).await;
    world.until_phase("a", "Running").await;
    let rows = world
        .until_rows("n1", "the slice has its pod", |rows| {
            !devices_of(rows, "a").is_empty()
        })
        .await;
    let instance = devices_of(&rows, "a")[0].1.clone();
    let row = rows
        .iter()
        .find(|row| row.metric == "DCGM_FI_PROF_GR_ENGINE_ACTIVE" && row.label("pod").is_some())
        .unwrap();
    assert_eq!(row.label("GPU_I_PROFILE"), Some("3g.40gb"));
    assert_eq!(row.label("GPU_I_ID").map(str::to_owned), instance);
    assert!(rows.iter().all(|row| row.metric != "DCGM_FI_DEV_GPU_UTIL"));
    assert!(rows.iter().all(|row| row.label("GPU_I_ID").is_some()));
    // Power is the parent's on each of its slices.
    let power = |gpu: &'static str| {
        let of_gpu = rows.iter().filter(move |row| {
            row.metric == "DCGM_FI_DEV_POWER_USAGE" && row.label("gpu") == Some(gpu)
        });
        let mut all: Vec<f64> = of_gpu.map(|row| row.value).collect();
        assert_eq!(all.len(), 4);
        all.dedup();
        all.len()
    };
    assert_eq!((power("0"), power("1")), (1, 1));
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_gpu_makes_the_change_fail_and_the_pod_goes_on() {
    let world = World::start(|_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    world.pod("a", "n1", "nvidia.com/gpu", 1).await;
    world.until_phase("a", "Running").await;
    world
        .label("n1", json!({"nvidia.com/mig.config": "all-1g.10gb"}))
        .await;
    world.until_state("n1", "failed").await;
    world.until_operands("n1", 4).await;
    world
        .until_label("n1", "nvidia.com/gpu.deploy.device-plugin", "true")
        .await;
    // Its log is the only place that tells why.
    let log = mig_manager_log(&world).await;
    let errors: Vec<&String> = log
        .iter()
        .filter(|l| l.starts_with("level=error"))
        .collect();
    let [mode, config] = errors[..] else {
        panic!("{log:#?}");
    };
    assert!(
        mode.contains("is currently in use by another process"),
        "{mode}"
    );
    assert!(
        config.contains("MIG mode is disabled, not enabled"),
        "{config}"
    );
    for line in [
        "Waiting for change to 'nvidia.com/mig.config' label",
        "Updating to MIG config: all-1g.10gb",
        "Changing the 'nvidia.com/mig.config.state' node label to 'pending'",
        "Waiting for nvidia-device-plugin-daemonset to shutdown",
    ] {
        let line = format!("level=info msg={line:?}");
        assert!(log.contains(&line), "{line} in {log:#?}");
    }
    let node = world.nodes.get("n1").await.unwrap();
    assert_ne!(
        node.spec.unwrap().unschedulable,
        Some(true),
        "never cordons"
    );
    let api: Api<Pod> = world.cluster.api("default");
    let pod = api.get("a").await.unwrap();
    assert!(pod.metadata.deletion_timestamp.is_none(), "never drains");
    assert_eq!(phase(&pod), "Running");

    // The same value again does nothing, another one and back does.
    world.delete("a").await;
    world
        .label(
            "n1",
            json!({"nvidia.com/mig.config": "all-1g.10gb", "touched": "1"}),
        )
        .await;
    world
        .label("n1", json!({"nvidia.com/mig.config": "no-such-config"}))
        .await;
    world.until_state("n1", "failed").await;
    world
        .label("n1", json!({"nvidia.com/mig.config": "all-1g.10gb"}))
        .await;
    world.until_state("n1", "success").await;
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("14", "14"))
        .await;
    world.cluster.stop().await;
}

/// What n1's mig-manager has written, without the times.
async fn mig_manager_log(world: &World) -> Vec<String> {
    let pods: Api<Pod> = world.cluster.api("gpu-operator");
    let of_mig_manager = ListParams::default().labels("app=nvidia-mig-manager");
    let found = pods.list(&of_mig_manager).await.unwrap();
    let name = found.items[0].metadata.name.clone().unwrap();
    let log = pods.logs(&name, &Default::default()).await.unwrap();
    let lines = log.lines().map(|line| {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.starts_with("time=\"20"), "{line}");
        rest.to_owned()
    });
    lines.collect()
}

/// A world whose mig-managers read a ConfigMap with these configurations beside the usual ones.
fn with_configs(more: &str, change: impl FnOnce(&mut MigManagerConfig)) -> World {
    World::start(|config| {
        let operator = config.operator.as_mut().unwrap();
        operator.mig_config_map = "custom".to_owned();
        operator.more_mig_configs = more.to_owned();
        change(config.mig_manager.as_mut().unwrap());
    })
}

async fn apply(world: &World, node: &str, config: &str) {
    world
        .label(node, json!({"nvidia.com/mig.config": config}))
        .await;
}

const FIRST_CUT: &str = "\
first-cut:
- devices: [0]
  mig-enabled: true
  mig-devices: {1g.10gb: 7}
- devices: [1]
  mig-enabled: false
second-3g:
- devices: [0]
  mig-enabled: true
  mig-devices: {1g.10gb: 7}
- devices: [1]
  mig-enabled: true
  mig-devices: {3g.40gb: 2}
";

/// Two pods on two GPUs, of which the first ends: GPU 1 is busy, GPU 0 is not.
async fn second_gpu_is_busy(world: &World) {
    for name in ["a", "b"] {
        world.pod(name, "n1", "nvidia.com/gpu", 1).await;
        world.until_phase(name, "Running").await;
    }
    world.delete("a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hopper_changes_the_mode_of_one_gpu_beside_a_busy_one() {
    let world = with_configs(FIRST_CUT, |_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    second_gpu_is_busy(&world).await;
    apply(&world, "n1", "first-cut").await;
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("7", "7"))
        .await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("1", "1"))
        .await;
    world.until_state("n1", "success").await;
    let pod = world.until_phase("b", "Running").await;
    assert!(pod.metadata.deletion_timestamp.is_none());
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ampere_resets_all_gpus_of_the_node_so_that_a_busy_one_is_in_the_way() {
    let world = with_configs(FIRST_CUT, |_| ());
    world
        .node("n1", "NVIDIA-A100-SXM4-80GB", 2, json!({}))
        .await;
    second_gpu_is_busy(&world).await;
    apply(&world, "n1", "first-cut").await;
    world.until_state("n1", "failed").await;
    world.until_phase("b", "Running").await;
    world.delete("b").await;
    apply(&world, "n1", "all-disabled").await;
    world.until_state("n1", "success").await;
    apply(&world, "n1", "first-cut").await;
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("7", "7"))
        .await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_mode_clears_gpus_that_are_as_wanted_and_a_rebuild_does_not() {
    let world = with_configs(FIRST_CUT, |_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    apply(&world, "n1", "first-cut").await;
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("7", "7"))
        .await;
    world.until_state("n1", "success").await;
    world.pod("a", "n1", "nvidia.com/mig-1g.10gb", 1).await;
    world.until_phase("a", "Running").await;
    // GPU 0 stays as it is, yet the mode of GPU 1 changes: GPU 0 would be cleared.
    apply(&world, "n1", "second-3g").await;
    world.until_state("n1", "failed").await;
    world.until_phase("a", "Running").await;
    world.delete("a").await;

    apply(&world, "n1", "all-1g.10gb").await;
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("14", "14"))
        .await;
    world.until_state("n1", "success").await;
    world.pod("b", "n1", "nvidia.com/mig-1g.10gb", 1).await;
    world.until_phase("b", "Running").await;
    let rows = world
        .until_rows("n1", "b has a slice", |rows| {
            !devices_of(rows, "b").is_empty()
        })
        .await;
    let slice = devices_of(&rows, "b");
    // No mode changes now: only GPU 1 is rebuilt.
    apply(&world, "n1", "second-3g").await;
    world
        .until_amounts("n1", "nvidia.com/mig-3g.40gb", ("2", "2"))
        .await;
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("7", "7"))
        .await;
    world.until_phase("b", "Running").await;
    let rows = world
        .until_rows("n1", "the exporter is back", |rows| {
            !devices_of(rows, "b").is_empty()
        })
        .await;
    assert_eq!(devices_of(&rows, "b"), slice);
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_does_not_go_wedges_the_node_in_pending() {
    let world = World::start(|_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    let pods: Api<Pod> = world.cluster.api("gpu-operator");
    let plugin = ListParams::default().labels("app=nvidia-device-plugin-daemonset");
    let plugin = pods.list(&plugin).await.unwrap().items.remove(0);
    let name = plugin.metadata.name.unwrap();
    let finalizers =
        |list: serde_json::Value| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    let hold = finalizers(json!(["example.com/held"]));
    let params = PatchParams::default();
    pods.patch(&name, &params, &hold).await.unwrap();
    apply(&world, "n1", "all-1g.10gb").await;
    world.until_state("n1", "pending").await;
    // After five minutes it gives up: letting the pod go helps no more.
    world
        .until_amounts("n1", "nvidia.com/gpu", ("0", "0"))
        .await;
    pods.patch(&name, &params, &finalizers(json!(null)))
        .await
        .unwrap();
    world.until_operands("n1", 1).await;
    let labels = world.labels("n1").await;
    let state = labels.get("nvidia.com/mig.config.state");
    assert_eq!(state.map(String::as_str), Some("pending"));
    for operand in ["device-plugin", "gpu-feature-discovery", "dcgm-exporter"] {
        let value = labels.get(&format!("nvidia.com/gpu.deploy.{operand}"));
        assert_eq!(
            value.map(String::as_str),
            Some("paused-for-mig-change"),
            "{operand}"
        );
    }
    // Another value gets it going again.
    apply(&world, "n1", "all-2g.20gb").await;
    world.until_state("n1", "success").await;
    world
        .until_amounts("n1", "nvidia.com/mig-2g.20gb", ("6", "6"))
        .await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_file_is_seen_late_or_by_a_new_pod() {
    // Ten minutes: far longer than the test lives.
    let world = with_configs("", |manager| manager.volume_sync_secs = (600.0, 600.0));
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    let maps: Api<ConfigMap> = world.cluster.api("gpu-operator");
    let mut map = maps.get("custom").await.unwrap();
    let data = map.data.as_mut().unwrap().get_mut("config.yaml").unwrap();
    for line in FIRST_CUT.lines() {
        data.push_str(&format!("  {line}\n"));
    }
    maps.replace("custom", &PostParams::default(), &map)
        .await
        .unwrap();
    apply(&world, "n1", "first-cut").await;
    world.until_state("n1", "failed").await;
    world.restart("n1", "nvidia-mig-manager").await;
    world.until_state("n1", "success").await;
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("7", "7"))
        .await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_of_feature_discovery_come_after_the_devices() {
    let world = World::start(|config| {
        let discovery = config.discovery.as_mut().unwrap();
        discovery.lag_secs = (300.0, 300.0);
    });
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    apply(&world, "n1", "all-1g.10gb").await;
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("14", "14"))
        .await;
    let labels = world.labels("n1").await;
    assert!(!labels.contains_key("nvidia.com/mig-1g.10gb.count"));
    let replicas = labels.get("nvidia.com/gpu.replicas");
    assert_eq!(
        replicas.map(String::as_str),
        Some("1"),
        "still the old layout"
    );
    world
        .until_label("n1", "nvidia.com/mig-1g.10gb.count", "14")
        .await;
    world
        .until_label("n1", "nvidia.com/gpu.replicas", "0")
        .await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_strategies_offer_what_they_see() {
    let world = World::start(|config| config.plugin.strategy = Strategy::None);
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    // none: cut GPUs are offered as whole ones, on which nothing runs.
    apply(&world, "n1", "all-1g.10gb").await;
    world.until_state("n1", "success").await;
    world
        .until_amounts("n1", "nvidia.com/gpu", ("2", "2"))
        .await;
    world.until_discovered("n1").await;
    world.pod("a", "n1", "nvidia.com/gpu", 1).await;
    let failed = world.until_phase("a", "Failed").await.status.unwrap();
    assert_eq!(failed.reason, None, "admitted, and then it failed");
    // single: MIG devices are offered as GPUs, and a mixed layout makes the plugin exit.
    let single = json!({"nvidia.com/mig.strategy": "single"});
    world.node("n2", "NVIDIA-H100-80GB-HBM3", 2, single).await;
    apply(&world, "n2", "all-1g.10gb").await;
    world
        .until_amounts("n2", "nvidia.com/gpu", ("14", "14"))
        .await;
    world
        .until_label(
            "n2",
            "nvidia.com/gpu.product",
            "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
        )
        .await;
    apply(&world, "n2", "all-balanced").await;
    world
        .until_label(
            "n2",
            "nvidia.com/gpu.product",
            "NVIDIA-H100-80GB-HBM3-MIG-INVALID",
        )
        .await;
    world.until_label("n2", "nvidia.com/gpu.count", "0").await;
    world
        .until_amounts("n2", "nvidia.com/gpu", ("0", "0"))
        .await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mode_that_cannot_be_changed_reboots_the_node_when_allowed() {
    let world = with_configs(FIRST_CUT, |manager| {
        manager.with_reboot = true;
        manager.no_reset_instances = vec!["vm-".to_owned()];
    });
    let machine = json!({"node.kubernetes.io/instance-type": "vm-a100"});
    world.node("n1", "NVIDIA-A100-SXM4-80GB", 2, machine).await;
    let boot_id = async || {
        let status = world.nodes.get("n1").await.unwrap().status.unwrap();
        status.node_info.map(|info| info.boot_id)
    };
    let before = boot_id().await;
    apply(&world, "n1", "first-cut").await;
    world.until_state("n1", "rebooting").await;
    world.until_state("n1", "success").await;
    assert_ne!(boot_id().await, before);
    world
        .until_amounts("n1", "nvidia.com/mig-1g.10gb", ("7", "7"))
        .await;
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_tells_its_state_and_labels_new_nodes() {
    let world = World::start(|_| ());
    let gone = json!({"nvidia.com/mig.config": null, "nvidia.com/mig.config.state": null});
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    // The chart's default comes back: taking the label away means all-disabled.
    world.label("n1", gone).await;
    world
        .until_label("n1", "nvidia.com/mig.config", "all-disabled")
        .await;
    let policy = async || {
        let request = http::Request::get("/apis/nvidia.com/v1/clusterpolicies/cluster-policy");
        let request = request.body(Vec::new()).unwrap();
        let client = &world.cluster.client;
        client.request::<serde_json::Value>(request).await.unwrap()
    };
    eventually("ClusterPolicy is ready", || async {
        (policy().await["status"]["state"] == "ready").then_some(())
    })
    .await;
    // What was generated for the node is there to be read.
    let maps: Api<ConfigMap> = world.cluster.api("gpu-operator");
    let map = eventually("the generated configurations", || async {
        maps.get_opt("n1-mig-config").await.unwrap()
    })
    .await;
    let text = &map.data.unwrap()["config.yaml"];
    assert!(text.contains("\n  all-1g.10gb.me:\n"), "{text}");
    let spec = &policy().await["spec"];
    assert_eq!(spec["mig"]["strategy"], "mixed");
    assert_eq!(spec["migManager"]["config"]["default"], "all-disabled");
    world.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_are_had_by_annotation() {
    let world = World::start(|_| ());
    world
        .node("n1", "NVIDIA-H100-80GB-HBM3", 2, json!({}))
        .await;
    let fault = |what: &str| json!({"sandbox.gpudeck.dev/mig-fault": what});
    // A host process has the GPUs open.
    world.annotate("n1", fault("client")).await;
    apply(&world, "n1", "all-1g.10gb").await;
    world.until_state("n1", "failed").await;
    world.until_operands("n1", 4).await;
    // The validator's pods cannot be deleted.
    world.annotate("n1", fault("wedge")).await;
    apply(&world, "n1", "all-2g.20gb").await;
    world.until_state("n1", "pending").await;
    world.until_operands("n1", 1).await;
    // A restarted mig-manager tries again, as long as it is so in vain.
    world.restart("n1", "nvidia-mig-manager").await;
    let labels = world.labels("n1").await;
    let state = labels.get("nvidia.com/mig.config.state");
    assert_eq!(state.map(String::as_str), Some("pending"));
    world
        .annotate("n1", json!({"sandbox.gpudeck.dev/mig-fault": null}))
        .await;
    world.restart("n1", "nvidia-mig-manager").await;
    world.until_state("n1", "success").await;
    world
        .until_amounts("n1", "nvidia.com/mig-2g.20gb", ("6", "6"))
        .await;
    world.cluster.stop().await;
}
