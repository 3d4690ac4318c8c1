//! Loads the published inventory of a production GPU cluster (the openb trace: Weng et al.,
//! "Beware of Fragmentation", USENIX ATC '23) into any cluster.

mod rows;

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use futures::StreamExt;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

pub use self::rows::{NodeRow, PodRow, TraceError};
use super::actors::annotation;
use super::actors::clock::rfc3339;
use super::actors::kubelet_conditions;
use super::calls::{CallError, Calls, Created, PatchKind, path, patiently};
use super::inventory::namespace;

/// Writes in flight at a time.
const IN_FLIGHT: usize = 32;
/// Pods that a node takes: more than any node of the trace can hold by its CPUs, so that the pod
/// count, which the trace does not tell, never decides.
const PODS_PER_NODE: &str = "256";
/// The annotation by which a pod asks for thousandths of one GPU.
const MILLI_GPU: &str = "gpudeck.dev/milli-gpu";
/// Prefix of the annotations that keep the published columns.
const PUBLISHED: &str = "openb.gpudeck.dev/";
/// The taint that a real server's admission gives every new node.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Progress is told every so many objects.
const PROGRESS_STEP: usize = 100;

/// What to load, and where to.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The node list, CSV or gzip'd CSV.
    pub nodes: PathBuf,
    /// The pod list.
    pub pods: PathBuf,
    /// The namespace of the pods; created when it is not there.
    pub namespace: String,
}

/// Why the trace was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be used; nothing was written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The server refused or was away for long; loading again goes on from there.
    #[error("{0}; run it again to load the rest")]
    Call(#[from] CallError),
}

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// `nodes` or `pods`.
    pub what: &'static str,
    /// Objects done.
    pub done: usize,
    /// Objects in all.
    pub total: usize,
}

/// What is in the cluster now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    /// Nodes of the trace.
    pub nodes: usize,
    /// GPUs of these nodes.
    pub gpus: u64,
    /// Pods of the trace.
    pub pods: usize,
    /// Nodes and pods of them that were there before and were left as they are.
    pub skipped: usize,
    /// How long it took.
    pub seconds: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} nodes with {} GPUs and {} pods loaded in {:.1} s; {} were there already",
            self.nodes, self.gpus, self.pods, self.seconds, self.skipped,
        )
    }
}

/// Loads the trace. Both files are read and checked before anything is written; objects that exist
/// are left as they are.
pub async fn load(
    client: Client,
    options: &LoadOptions,
    mut progress: impl FnMut(Progress),
) -> Result<Summary, LoadError> {
    let began = Instant::now();
    let node_rows = rows::nodes(&options.nodes)?;
    let pod_rows = rows::pods(&options.pods)?;
    let calls = &Calls::new(client);
    calls
        .ensure(path::NAMESPACES, &namespace(&options.namespace))
        .await?;

    let mut summary = Summary {
        nodes: node_rows.len(),
        gpus: node_rows.iter().map(|row| u64::from(row.gpus)).sum(),
        pods: pod_rows.len(),
        ..Summary::default()
    };
    let now = Timestamp::now();
    let nodes = node_rows
        .iter()
        .map(|row| async move { write_node(calls, row, now).await });
    summary.skipped += write_all("nodes", nodes, &mut progress).await?;
    let at = &path::pods(&options.namespace);
    let pods = pod_rows
        .iter()
        .map(|row| async move { calls.ensure(at, &pod(row)).await });
    summary.skipped += write_all("pods", pods, &mut progress).await?;
    summary.seconds = began.elapsed().as_secs_f64();
    Ok(summary)
}

/// Runs the writes and returns how many found their object there.
async fn write_all<F>(
    what: &'static str,
    work: impl ExactSizeIterator<Item = F>,
    progress: &mut impl FnMut(Progress),
) -> Result<usize, CallError>
where
    F: Future<Output = Result<Created, CallError>>,
{
    let total = work.len();
    let mut results = futures::stream::iter(work).buffer_unordered(IN_FLIGHT);
    let (mut done, mut existing) = (0, 0);
    while let Some(result) = results.next().await {
        existing += usize::from(result? == Created::Existing);
        done += 1;
        if done % PROGRESS_STEP == 0 || done == total {
            progress(Progress { what, done, total });
        }
    }
    Ok(existing)
}

#[derive(Deserialize)]
struct NodeAnswer {
    metadata: AnswerMeta,
    #[serde(default)]
    spec: AnswerSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerMeta {
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnswerSpec {
    taints: Option<Vec<Value>>,
}

/// Creates the node and takes away the taint that admission gave it, also from a node that an
/// earlier run left with it.
async fn write_node(calls: &Calls, row: &NodeRow, now: Timestamp) -> Result<Created, CallError> {
    let at = format!("{}/{}", path::NODES, row.name);
    let body = node(row, now);
    let (created, mut answer) =
        match patiently(|| calls.post::<NodeAnswer>(path::NODES, &body)).await {
            Ok(answer) => (Created::New, answer),
            Err(error) if error.is_already_exists() => {
                let answer = patiently(|| calls.get::<NodeAnswer>(&at)).await?;
                (Created::Existing, answer)
            }
            Err(error) => return Err(error),
        };
    loop {
        let taints = answer.spec.taints.unwrap_or_default();
        let is_not_ready =
            |taint: &Value| taint.get("key").and_then(Value::as_str) == Some(NOT_READY);
        if !taints.iter().any(is_not_ready) {
            return Ok(created);
        }
        let left: Vec<&Value> = taints.iter().filter(|taint| !is_not_ready(taint)).collect();
        let patch = json!({
            "metadata": {"resourceVersion": answer.metadata.resource_version},
            "spec": {"taints": left},
        });
        match patiently(|| calls.patch::<IgnoredAny>(&at, PatchKind::Merge, &patch)).await {
            Ok(_) => return Ok(created),
            // Somebody else wrote the node: look again.
            Err(error) if error.code() == Some(409) => {
                answer = patiently(|| calls.get::<NodeAnswer>(&at)).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

fn node(row: &NodeRow, now: Timestamp) -> Value {
    let mut labels = json!({
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": row.name,
        "kubernetes.io/os": "linux",
    });
    let mut resources = json!({
        "cpu": format!("{}m", row.cpu_milli),
        "memory": format!("{}Mi", row.memory_mib),
        "pods": PODS_PER_NODE,
    });
    if row.gpus > 0 {
        insert(&mut labels, "nvidia.com/gpu.present", json!("true"));
        insert(&mut labels, "nvidia.com/gpu.product", json!(row.model));
        insert(
            &mut labels,
            "nvidia.com/gpu.count",
            json!(row.gpus.to_string()),
        );
        insert(
            &mut resources,
            "nvidia.com/gpu",
            json!(row.gpus.to_string()),
        );
    }
    let at = rfc3339(now);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": row.name,
            "labels": labels,
            "annotations": {annotation::KUBELET: "simulated"},
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": kubelet_conditions(&at, &at),
            "addresses": [{"type": "Hostname", "address": row.name}],
        },
    })
}

fn pod(row: &PodRow) -> Value {
    let mut annotations = Map::new();
    for (column, value) in row.published.iter().filter(|(_, value)| !value.is_empty()) {
        annotations.insert(
            format!("{PUBLISHED}{}", column.replace('_', "-")),
            json!(value),
        );
    }
    let mut requests = json!({
        "cpu": format!("{}m", row.cpu_milli),
        "memory": format!("{}Mi", row.memory_mib),
    });
    let mut limits = json!({});
    if row.is_shared() {
        annotations.insert(MILLI_GPU.to_owned(), json!(row.milli_gpu.to_string()));
    } else if row.gpus > 0 {
        insert(&mut requests, "nvidia.com/gpu", json!(row.gpus.to_string()));
        // An extended resource has to have its limit, and that has to be the request.
        insert(&mut limits, "nvidia.com/gpu", json!(row.gpus.to_string()));
    }
    let mut spec = json!({
        "schedulerName": "gpudeck",
        "containers": [{
            "name": "main",
            "image": "registry.example/openb:1",
            "resources": {"requests": requests, "limits": limits},
        }],
    });
    if !row.models.is_empty() {
        let affinity = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
                "matchExpressions": [{
                    "key": "nvidia.com/gpu.product",
                    "operator": "In",
                    "values": row.models,
                }],
            }]},
        }});
        insert(&mut spec, "affinity", affinity);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": row.name, "annotations": annotations},
        "spec": spec,
    })
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn row(gpus: u32, milli_gpu: u32, models: &[&str]) -> PodRow {
        PodRow {
            name: "p".to_owned(),
            cpu_milli: 4_000,
            memory_mib: 8_192,
            gpus,
            milli_gpu,
            models: models.iter().map(|model| (*model).to_owned()).collect(),
            published: vec![("creation_time".to_owned(), "12".to_owned())],
        }
    }

    #[test]
    fn whole_shared_and_cpu_pods_ask_differently() {
        let resources = |row: &PodRow| pod(row)["spec"]["containers"][0]["resources"].clone();
        let whole = row(2, 1000, &[]);
        assert_eq!(resources(&whole)["requests"]["nvidia.com/gpu"], "2");
        assert_eq!(resources(&whole)["limits"]["nvidia.com/gpu"], "2");

        let shared = pod(&row(1, 460, &[]));
        assert_eq!(shared["metadata"]["annotations"][MILLI_GPU], "460");
        assert_eq!(shared["spec"]["schedulerName"], "gpudeck");
        assert!(
            resources(&row(1, 460, &[]))["requests"]
                .get("nvidia.com/gpu")
                .is_none()
        );

        let cpu = pod(&row(0, 0, &[]));
        assert!(cpu["metadata"]["annotations"].get(MILLI_GPU).is_none());
        assert_eq!(
            cpu["metadata"]["annotations"]["openb.gpudeck.dev/creation-time"],
            "12"
        );
    }

    #[test]
    fn accepted_models_become_required_affinity() {
        let pod = pod(&row(1, 1000, &["G2", "T4"]));
        let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let expression = &required["nodeSelectorTerms"][0]["matchExpressions"][0];
        assert_eq!(expression["key"], "nvidia.com/gpu.product");
        assert_eq!(expression["values"], json!(["G2", "T4"]));
    }
}
