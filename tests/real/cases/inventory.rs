//! The published inventory of a production cluster (openb), scheduled to the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpudeck::model::{DecisionKind, Figures, Pod, Reason};
use gpudeck::sandbox::openb::{LoadOptions, load};
use serde_json::Value;

use super::session::{SCHEDULING, Seen, Session, items};
use crate::servers::Server;

/// The environment variable that names the folder with the whole traces.
const SHARED_VARIABLE: &str = "GPUDECK_SHARED";
/// For the whole inventory: 9,400 objects to write, 4,000 bindings, on two cores without
/// optimisation.
const LIMIT: Duration = Duration::from_secs(240);

pub(crate) async fn each_pod_that_fits_is_bound_once(server: &Server) {
    let (options, whole) = files();
    let client = server.admin().await;
    let mut session = Session::open(server, "admin", None, SCHEDULING).await;
    let begun = Instant::now();
    let summary = load(client.clone(), &options, |_| ()).await.unwrap();
    let loaded = begun.elapsed();
    session
        .until_within(LIMIT, "each pod is bound or has its reason", |seen| {
            seen.cluster.pod_count() >= summary.pods && nothing_is_left_to_decide(seen)
        })
        .await;
    let ended = begun.elapsed();

    let nodes = items(&client, "/api/v1/nodes").await;
    let pods = items(&client, "/api/v1/pods").await;
    let naive = Naive::count(&nodes, &pods);
    assert_eq!(naive.overcommitted(), Vec::<String>::new());
    assert_eq!(naive.left_out(&pods), Vec::<String>::new());

    let bound: Vec<&Value> = pods.iter().filter(|pod| node_of(pod).is_some()).collect();
    let devices: i64 = bound
        .iter()
        .filter(|pod| !is_terminal(pod))
        .map(|pod| gpus(pod))
        .sum();
    session
        .until("the model shows each binding", |seen| {
            seen.cluster.pods().filter(|pod| pod.node.is_some()).count() == bound.len()
        })
        .await;
    let figures = session.see(|seen| Figures::of(&seen.cluster));
    assert_eq!(figures.allocated_devices, Some(devices));
    assert_eq!(figures.gpus.map(u64::from), Some(summary.gpus));
    if whole {
        assert_eq!(figures.gpus, Some(6_212));
    }

    let shared: Vec<&Value> = pods.iter().filter(|pod| is_shared(pod)).collect();
    assert!(!shared.is_empty(), "the inventory has shared pods");
    for pod in shared.iter().filter(|pod| node_of(pod).is_none()) {
        let why = session.see(|seen| seen.why_waiting("openb", name(pod)));
        assert!(why.is_some_and(|why| !why.is_empty()), "{}", name(pod));
    }
    let sharing = shared.iter().filter(|pod| node_of(pod).is_some()).count();
    assert!(sharing > 0, "some shares are placed");

    let mut written: BTreeMap<String, u32> = BTreeMap::new();
    let audit = server.audit();
    for record in audit.iter().filter(|r| r.resource == "pods/binding") {
        assert_eq!(record.status, 201, "{record:?}");
        *written.entry(record.name.clone()).or_default() += 1;
    }
    let expected: BTreeMap<String, u32> =
        bound.iter().map(|pod| (name(pod).to_owned(), 1)).collect();
    assert_eq!(written, expected, "bindings in the audit log");
    println!(
        "{} nodes, {} GPUs, {} pods loaded in {:.1} s; {} bound, {devices} devices allocated, {} \
         of them shares, {} wait; all decided after {:.1} s",
        summary.nodes,
        summary.gpus,
        summary.pods,
        loaded.as_secs_f64(),
        bound.len(),
        sharing,
        pods.len() - bound.len(),
        ended.as_secs_f64(),
    );
    session.stop().await;
}

/// The whole trace where it is at hand, else the extract; and which of both.
fn files() -> (LoadOptions, bool) {
    let shared = std::env::var_os(SHARED_VARIABLE).map(PathBuf::from);
    let (nodes, pods) = match &shared {
        Some(shared) => {
            let folder = shared.join("traces/openb");
            (
                folder.join("nodes_gpu.csv.gz"),
                folder.join("pods_default.csv.gz"),
            )
        }
        None => {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/openb");
            (folder.join("nodes.csv"), folder.join("pods.csv"))
        }
    };
    let options = LoadOptions {
        nodes,
        pods,
        namespace: "openb".to_owned(),
    };
    (options, shared.is_some())
}

fn nothing_is_left_to_decide(seen: &Seen) -> bool {
    let waits = |pod: &Pod| {
        seen.cluster.decision(&pod.meta.uid).is_some_and(|d| {
            matches!(&d.kind, DecisionKind::Waiting(reason) if !matches!(reason, Reason::Refused { .. }))
        })
    };
    seen.cluster
        .pods()
        .all(|pod| pod.node.is_some() || waits(pod))
}

/// What a person would count on paper: CPU in thousandths, memory in bytes, GPUs and pods.
type Amounts = [i128; 4];

struct Naive<'a> {
    nodes: BTreeMap<&'a str, (&'a Value, Amounts, Amounts)>,
    /// Thousandths of each device that shares hold, by node and the device's number.
    shares: BTreeMap<(&'a str, &'a str), i128>,
}

impl<'a> Naive<'a> {
    fn count(nodes: &'a [Value], pods: &'a [Value]) -> Self {
        let mut all: BTreeMap<&str, (&Value, Amounts, Amounts)> = nodes
            .iter()
            .map(|node| {
                let offered = &node["status"]["allocatable"];
                let pods = quantity(&offered["pods"]) / 1_000;
                (name(node), (node, amounts(offered, pods), [0; 4]))
            })
            .collect();
        for pod in pods.iter().filter(|pod| !is_terminal(pod)) {
            if let Some(node) = node_of(pod) {
                let used = &mut all.get_mut(node).expect("bound to a node that exists").2;
                for (sum, part) in used.iter_mut().zip(asked(pod)) {
                    *sum += part;
                }
            }
        }
        let mut shares: BTreeMap<(&str, &str), i128> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !is_terminal(pod)) {
            if let (Some(node), Some(milli)) = (node_of(pod), milli_gpu(pod)) {
                let device = pod["metadata"]["annotations"]["gpudeck.dev/device"].as_str();
                let device = device.expect("a share that is bound has its device");
                *shares.entry((node, device)).or_default() += milli;
            }
        }
        // A device that is shared is no whole one any more.
        for (node, _) in shares.keys() {
            if let Some((_, _, used)) = all.get_mut(node) {
                used[2] += 1;
            }
        }
        Self { nodes: all, shares }
    }

    /// Nodes that hold more than they offer.
    fn overcommitted(&self) -> Vec<String> {
        let over = self.nodes.iter().filter(|(_, (_, offered, used))| {
            offered
                .iter()
                .zip(used)
                .any(|(offered, used)| used > offered)
        });
        let nodes =
            over.map(|(name, (_, offered, used))| format!("{name}: {used:?} of {offered:?}"));
        let over = self.shares.iter().filter(|(_, milli)| **milli > 1_000);
        let devices = over.map(|((node, device), milli)| format!("{node} {device}: {milli}"));
        nodes.chain(devices).collect()
    }

    /// Whether a device of the node has room for the pod's share.
    fn has_share(&self, node: &str, milli: i128) -> bool {
        let whole = self
            .nodes
            .get(node)
            .is_some_and(|(_, o, used)| used[2] < o[2]);
        let shared = |((at, _), held): (&(&str, &str), &i128)| *at == node && held + milli <= 1_000;
        whole || self.shares.iter().any(shared)
    }

    /// Pods that wait although some node would take them.
    fn left_out(&self, pods: &[Value]) -> Vec<String> {
        let waiting = pods.iter().filter(|pod| node_of(pod).is_none());
        waiting
            .filter_map(|pod| {
                let asked = asked(pod);
                let home = self.nodes.iter().find(|(at, (node, offered, used))| {
                    accepts(pod, node)
                        && milli_gpu(pod).is_none_or(|milli| self.has_share(at, milli))
                        && (0..4).all(|i| asked[i] == 0 || used[i] + asked[i] <= offered[i])
                });
                home.map(|(node, _)| format!("{} would fit on {node}", name(pod)))
            })
            .collect()
    }
}

/// Whether the pod's list of GPU models, the only constraint in this trace, names the node's.
fn accepts(pod: &Value, node: &Value) -> bool {
    let terms = pod.pointer(
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    let Some(terms) = terms.and_then(Value::as_array) else {
        return true;
    };
    let model = &node["metadata"]["labels"]["nvidia.com/gpu.product"];
    terms.iter().any(|term| {
        let values = term["matchExpressions"][0]["values"].as_array().unwrap();
        values.contains(model)
    })
}

fn amounts(list: &Value, pods: i128) -> Amounts {
    [
        quantity(&list["cpu"]),
        quantity(&list["memory"]) / 1_000,
        quantity(&list["nvidia.com/gpu"]) / 1_000,
        pods,
    ]
}

fn asked(pod: &Value) -> Amounts {
    amounts(&pod["spec"]["containers"][0]["resources"]["requests"], 1)
}

/// A quantity in thousandths; 0 where there is none.
fn quantity(value: &Value) -> i128 {
    let Some(text) = value.as_str() else { return 0 };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: i128 = match &text[digits.len()..] {
        "m" => 1,
        "" => 1_000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        "Ti" => 1_000 << 40,
        other => panic!("the trace has no amounts in {other}"),
    };
    digits.parse::<i128>().unwrap() * factor
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

fn is_terminal(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

fn is_shared(pod: &Value) -> bool {
    !pod["metadata"]["annotations"]["gpudeck.dev/milli-gpu"].is_null()
}

/// The share of a device that the pod asks for, in thousandths.
fn milli_gpu(pod: &Value) -> Option<i128> {
    let milli = &pod["metadata"]["annotations"]["gpudeck.dev/milli-gpu"];
    milli.as_str().map(|text| text.parse().unwrap())
}

fn gpus(pod: &Value) -> i64 {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let asked = |c: &Value| {
        let text = c["resources"]["requests"]["nvidia.com/gpu"].as_str();
        text.map_or(0, |n| n.parse::<i64>().unwrap())
    };
    containers.iter().map(asked).sum()
}
