//! A cluster with GPU actors, and how tests look at it through the API.

use std::collections::BTreeMap;

use gpudeck::sandbox::ApiServer;
use gpudeck::sandbox::actors::Options;
use gpudeck::sandbox::actors::gpu_config::{Config, ExporterConfig, LabelGeneration};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, bind, eventually, server};

/// A world in which a minute passes in a second.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) nodes: Api<Node>,
    pub(crate) server: ApiServer,
}

impl World {
    pub(crate) fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            exporter: Some(ExporterConfig {
                labels: Some(LabelGeneration::LowerHostname),
                ..ExporterConfig::default()
            }),
            ..Config::default()
        };
        change(&mut config);
        let server = server();
        let options = Options {
            speed: 60.0,
            gpu: Some(config),
            ports: Some(server.clone()),
            ..Options::default()
        };
        let cluster = Cluster::on(&server, &options);
        let nodes = Api::all(cluster.client.clone());
        Self {
            cluster,
            nodes,
            server,
        }
    }

    /// A node with `gpus` whole GPUs of `product` that can be cut.
    pub(crate) async fn node(&self, name: &str, product: &str, gpus: u32, labels: Value) {
        let mut all = json!({
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.count": gpus.to_string(),
            "nvidia.com/gpu.replicas": "1",
            "nvidia.com/gpu.sharing-strategy": "none",
            "nvidia.com/mig.capable": "true",
            "nvidia.com/mig.config": "all-disabled",
            "nvidia.com/mig.config.state": "success",
        });
        for (key, value) in labels.as_object().unwrap() {
            all[key] = value.clone();
        }
        let resources = json!({
            "cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string(),
        });
        let node = json!({
            "metadata": {"name": name, "labels": all},
            "status": {
                "capacity": resources, "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let node: Node = serde_json::from_value(node).unwrap();
        self.nodes
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
        let operands = if all["nvidia.com/mig.capable"] == "true" {
            4
        } else {
            3
        };
        self.until_operands(name, operands).await;
    }

    /// Waits until so many operands' pods run on the node.
    pub(crate) async fn until_operands(&self, node: &str, count: usize) {
        let pods: Api<Pod> = self.cluster.api("gpu-operator");
        eventually(&format!("{count} operands run on {node}"), || async {
            let pods = pods.list(&ListParams::default()).await.unwrap();
            let running = pods.iter().filter(|pod| {
                let on = pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node);
                on && phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none()
            });
            (running.count() == count).then_some(())
        })
        .await;
    }

    pub(crate) async fn label(&self, node: &str, labels: Value) {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        self.nodes
            .patch(node, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub(crate) async fn annotate(&self, node: &str, annotations: Value) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.nodes
            .patch(node, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub(crate) async fn labels(&self, node: &str) -> BTreeMap<String, String> {
        let node = self.nodes.get(node).await.unwrap();
        node.metadata.labels.unwrap_or_default()
    }

    /// Waits until the label has the value.
    pub(crate) async fn until_label(&self, node: &str, label: &str, value: &str) {
        eventually(&format!("{label}={value} on {node}"), || async {
            let labels = self.labels(node).await;
            (labels.get(label).map(String::as_str) == Some(value)).then_some(())
        })
        .await;
    }

    /// Waits until feature discovery has written its labels once: the device plugin, which starts
    /// with it, has registered long before.
    pub(crate) async fn until_discovered(&self, node: &str) {
        eventually("feature discovery has run", || async {
            let labels = self.labels(node).await;
            labels
                .contains_key("nvidia.com/gfd.timestamp")
                .then_some(())
        })
        .await;
    }

    pub(crate) async fn until_state(&self, node: &str, state: &str) {
        self.until_label(node, "nvidia.com/mig.config.state", state)
            .await;
    }

    /// Capacity and allocatable of a resource, as written; `None` without the key.
    pub(crate) async fn amounts(&self, node: &str, resource: &str) -> Option<(String, String)> {
        let status = self.nodes.get(node).await.unwrap().status.unwrap();
        let of = |map: Option<BTreeMap<String, Quantity>>| Some(map?.get(resource)?.0.clone());
        Some((of(status.capacity)?, of(status.allocatable)?))
    }

    pub(crate) async fn until_amounts(&self, node: &str, resource: &str, wanted: (&str, &str)) {
        eventually(&format!("{resource} of {node} is {wanted:?}"), || async {
            let found = self.amounts(node, resource).await?;
            ((found.0.as_str(), found.1.as_str()) == wanted).then_some(())
        })
        .await;
    }

    /// A bound pod that asks for so many of a resource and runs until it is deleted.
    pub(crate) async fn pod(&self, name: &str, node: &str, resource: &str, count: u32) -> Pod {
        let asks = json!({resource: count.to_string()});
        let pod: Pod = self
            .cluster
            .create(
                "default",
                json!({
                    "metadata": {"name": name},
                    "spec": {
                        "schedulerName": "gpudeck",
                        "containers": [{
                            "name": "train", "image": "train",
                            "resources": {"requests": asks, "limits": asks},
                        }],
                    },
                }),
            )
            .await;
        assert!(bind(&self.cluster.client, &pod, node).await);
        pod
    }

    pub(crate) async fn until_phase(&self, name: &str, wanted: &str) -> Pod {
        let api: Api<Pod> = self.cluster.api("default");
        eventually(&format!("{name} is {wanted}"), || async {
            api.get(name).await.ok().filter(|pod| phase(pod) == wanted)
        })
        .await
    }

    pub(crate) async fn delete(&self, name: &str) {
        let api: Api<Pod> = self.cluster.api("default");
        api.delete(name, &DeleteParams::default()).await.unwrap();
        eventually(&format!("{name} is gone"), || async {
            api.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Deletes the operand's pod on `node` and waits for the next one to run.
    pub(crate) async fn restart(&self, node: &str, app: &str) {
        let pods: Api<Pod> = self.cluster.api("gpu-operator");
        let of_app = ListParams::default().labels(&format!("app={app}"));
        let find = async || {
            let all = pods.list(&of_app).await.unwrap();
            let on_node =
                |pod: &&Pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node);
            all.iter().find(on_node).cloned()
        };
        let old = find().await.unwrap().metadata;
        let name = old.name.unwrap();
        pods.delete(&name, &DeleteParams::default()).await.unwrap();
        eventually(&format!("{app} has started again on {node}"), || async {
            let pod = find().await?;
            (pod.metadata.uid != old.uid && phase(&pod) == "Running").then_some(())
        })
        .await;
    }

    /// What the exporter on `node` says, through `pods/proxy`; `None` when it cannot be reached.
    pub(crate) async fn scrape(&self, node: &str) -> Option<String> {
        let pods: Api<Pod> = self.cluster.api("gpu-operator");
        let exporters = ListParams::default().labels("app=nvidia-dcgm-exporter");
        let pods = pods.list(&exporters).await.unwrap();
        let on_node = |pod: &&Pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node);
        let pod = pods.iter().find(on_node)?.metadata.name.clone()?;
        let path = format!("/api/v1/namespaces/gpu-operator/pods/{pod}:9400/proxy/metrics");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.cluster.client.request_text(request).await.ok()
    }

    /// The first row of a metric for which `wanted` holds, as labels and value.
    pub(crate) async fn until_rows(
        &self,
        node: &str,
        what: &str,
        wanted: impl Fn(&[Row]) -> bool,
    ) -> Vec<Row> {
        eventually(what, || async {
            let rows = rows(&self.scrape(node).await?);
            wanted(&rows).then_some(rows)
        })
        .await
    }
}

/// A sample of the text format.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) metric: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Row {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }
}

/// Reads the text format; the values here hold no quotes.
pub(crate) fn rows(text: &str) -> Vec<Row> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (metric, rest) = line.split_once('{').unwrap();
            let (labels, value) = rest.split_once("} ").unwrap();
            let labels = labels.trim_end_matches('"').split("\",").map(|label| {
                let (name, value) = label.split_once("=\"").unwrap();
                (name.to_owned(), value.to_owned())
            });
            Row {
                metric: metric.to_owned(),
                labels: labels.collect(),
                value: value.parse().unwrap(),
            }
        })
        .collect()
}

pub(crate) fn phase(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
    phase.unwrap_or_default()
}

/// The GPU UUIDs, with the instance where there is one, that the exporter gives to a pod.
pub(crate) fn devices_of(rows: &[Row], pod: &str) -> Vec<(String, Option<String>)> {
    let of_pod = rows
        .iter()
        .filter(|row| row.metric == "DCGM_FI_DEV_FB_USED" && row.label("pod") == Some(pod));
    of_pod
        .map(|row| {
            let instance = row.label("GPU_I_ID").map(str::to_owned);
            (row.label("UUID").unwrap().to_owned(), instance)
        })
        .collect()
}
