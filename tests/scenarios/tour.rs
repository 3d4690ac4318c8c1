//! The demo shows each kind of thing that the embedded cluster knows within its first two minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpudeck::app::embedded::World;
use gpudeck::app::stepped::Stepped;
use gpudeck::sandbox::scenario::{Play, Scenario};
use gpudeck::sandbox::{Time, Witness};
use serde_json::Value;

/// A kind of thing: its name, the collection it is seen in, how many different ones there must be,
/// and how an object shows one.
struct Kind {
    name: &'static str,
    table: &'static str,
    least: usize,
    shows: fn(&Value) -> Option<String>,
}

const fn kind(
    name: &'static str,
    table: &'static str,
    least: usize,
    shows: fn(&Value) -> Option<String>,
) -> Kind {
    Kind {
        name,
        table,
        least,
        shows,
    }
}

fn name(object: &Value) -> String {
    text(object, "/metadata/name")
}

fn text(object: &Value, pointer: &str) -> String {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

fn member(object: &Value, map: &str, key: &str) -> Option<String> {
    let found = object["metadata"][map].get(key)?.as_str()?;
    Some(found.to_owned())
}

fn label(object: &Value, key: &str) -> Option<String> {
    member(object, "labels", key)
}

fn annotation(object: &Value, key: &str) -> Option<String> {
    member(object, "annotations", key)
}

/// The object's name if a condition says so.
fn condition(object: &Value, kind: &str, status: &str, reason: &str) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let says = |c: &&Value| {
        c["type"] == kind && c["status"] == status && (reason.is_empty() || c["reason"] == reason)
    };
    conditions.iter().find(says).map(|_| name(object))
}

fn running(pod: &Value) -> Option<&Value> {
    (pod["status"]["phase"] == "Running").then_some(pod)
}

fn tainted(node: &Value, key: &str) -> Option<String> {
    let taints = node["spec"]["taints"].as_array()?;
    let taint = taints.iter().find(|taint| taint["key"] == key);
    taint.map(|_| name(node))
}

fn event(event: &Value, reason: &str) -> Option<String> {
    let about = text(event, "/involvedObject/name") + &text(event, "/regarding/name");
    (event["reason"] == reason).then_some(about)
}

/// A running pod of the load with this beginning of its name.
fn load(pod: &Value, beginning: &str) -> Option<String> {
    running(pod)
        .map(name)
        .filter(|name| name.starts_with(beginning))
}

const NODES: &str = "/nodes";
const PODS: &str = "/pods";
const EVENTS: &str = "/events";

const KINDS: &[Kind] = &[
    kind("gangs that run", PODS, 10, |pod| {
        label(running(pod)?, "gpudeck.dev/gang")
    }),
    kind("trainings", PODS, 5, |pod| load(pod, "train-")),
    kind("evaluations", PODS, 5, |pod| load(pod, "eval-")),
    kind("notebooks", PODS, 5, |pod| load(pod, "nb-")),
    kind("inference services", "apps/deployments", 3, |service| {
        (service["status"]["readyReplicas"].as_i64()? > 0).then(|| name(service))
    }),
    kind("Jobs that complete", "batch/jobs", 5, |job| {
        condition(job, "Complete", "True", "")
    }),
    kind("Jobs that fail", "batch/jobs", 1, |job| {
        condition(job, "Failed", "True", "")
    }),
    kind("pods on MIG slices, by profile", PODS, 5, |pod| {
        let requests = running(pod)?.pointer("/spec/containers/0/resources/requests")?;
        let mut asked = requests.as_object()?.keys();
        asked
            .find(|name| name.starts_with("nvidia.com/mig-"))
            .cloned()
    }),
    kind("nodes with GPUs cut all alike", NODES, 1, |node| {
        let product = label(node, "nvidia.com/gpu.product")?;
        product.contains("-MIG-").then(|| name(node))
    }),
    kind("pods that share a GPU in turns", PODS, 3, |pod| {
        let pool = label(running(pod)?, "sandbox.gpudeck.dev/pool")?;
        pool.contains("-SHARED").then(|| name(pod))
    }),
    kind("ends of repartitions", NODES, 3, |node| {
        label(node, "nvidia.com/mig.config.state")
    }),
    kind("pods that wait, by reason", EVENTS, 2, |event| {
        let says = text(event, "/message") + &text(event, "/note");
        let words = says.split(|c: char| c.is_ascii_digit()).collect::<String>();
        (event["reason"] == "FailedScheduling").then_some(words)
    }),
    kind("tiers", NODES, 3, |node| {
        label(node, "karpenter.sh/capacity-type")
    }),
    kind("prices", NODES, 5, |node| {
        annotation(node, "sandbox.gpudeck.dev/usd-per-gpu-hour")
    }),
    kind("switches", NODES, 3, |node| {
        label(node, "fabric.topograph.run/tier-0")
    }),
    kind("a spot node that is taken back", NODES, 1, |node| {
        tainted(node, "karpenter.sh/disrupted")
    }),
    kind("the notice of it", EVENTS, 1, |e| {
        event(e, "SpotInterrupted")
    }),
    kind("a machine in its place", NODES, 1, |node| {
        annotation(node, "sandbox.gpudeck.dev/first-of-its-like")
    }),
    kind("machines that the autoscaler asks for", EVENTS, 1, |e| {
        event(e, "TriggeredScaleUp")
    }),
    kind("machines that came for waiting pods", NODES, 1, |node| {
        name(node).contains("-scale-").then(|| name(node))
    }),
    kind("nodes that fall silent", NODES, 1, |node| {
        condition(node, "Ready", "Unknown", "NodeStatusUnknown")
    }),
    kind("pods of a machine that shuts down", PODS, 1, |pod| {
        (pod["status"]["reason"] == "Terminated").then(|| name(pod))
    }),
    kind("nodes cordoned with a reason", NODES, 1, |node| {
        let cordoned = node["spec"]["unschedulable"] == true;
        annotation(node, "gpudeck.dev/cordon-reason").filter(|_| cordoned)
    }),
    kind("Xids", NODES, 1, |node| {
        let whole = node.pointer("/status/capacity/nvidia.com~1gpu")?;
        let sound = node.pointer("/status/allocatable/nvidia.com~1gpu")?;
        annotation(node, "sandbox.gpudeck.dev/xids").filter(|_| whole != sound)
    }),
    kind("checkpoints", PODS, 1, |pod| {
        annotation(pod, "gpudeck.dev/checkpoint-last")
    }),
    kind("trainings that go on from one", PODS, 1, |pod| {
        annotation(pod, "gpudeck.dev/resumed-from-step")
    }),
    kind(
        "workloads that Kueue admits",
        "kueue.x-k8s.io/workloads",
        2,
        |w| condition(w, "PodsReady", "True", "Started"),
    ),
    kind(
        "workloads that wait in Kueue",
        "kueue.x-k8s.io/workloads",
        1,
        |w| condition(w, "QuotaReserved", "False", "WaitingForQuota"),
    ),
    kind("preemptions", "kueue.x-k8s.io/workloads", 1, |w| {
        condition(w, "Preempted", "True", "")
    }),
    kind(
        "groups that Volcano runs",
        "scheduling.volcano.sh/podgroups",
        1,
        |group| (group["status"]["phase"] == "Running").then(|| name(group)),
    ),
    kind(
        "groups that wait in Volcano",
        "scheduling.volcano.sh/podgroups",
        1,
        |group| condition(group, "Unschedulable", "True", ""),
    ),
    kind(
        "groups that KAI runs",
        "scheduling.run.ai/podgroups",
        1,
        |group| {
            let held = &group["status"]["resourcesStatus"]["allocated"];
            (held.as_object()?.contains_key("nvidia.com/gpu")).then(|| name(group))
        },
    ),
    kind("parts of GPUs under KAI", PODS, 2, |pod| {
        running(pod)?;
        label(pod, "runai-gpu-group")?;
        annotation(pod, "gpu-fraction").map(|_| name(pod))
    }),
];

#[test]
fn each_kind_of_thing_is_there_within_two_minutes() {
    let seen: Arc<Mutex<BTreeMap<&str, BTreeSet<String>>>> = Arc::default();
    let witness = Witness::new({
        let seen = seen.clone();
        move |change| {
            let mut kinds = KINDS
                .iter()
                .filter(|kind| kind.table == change.table)
                .peekable();
            if kinds.peek().is_none() {
                return;
            }
            let object: Value = serde_json::from_slice(change.json).unwrap();
            let mut seen = seen.lock().unwrap();
            for kind in kinds {
                if let Some(one) = (kind.shows)(&object) {
                    seen.entry(kind.name).or_default().insert(one);
                }
            }
        }
    });
    let run = Stepped {
        world: World {
            scenario: Scenario::load("tour").unwrap(),
            play: Play {
                seed: 0,
                speed: None,
                nodes: None,
                time: Time::System,
            },
        },
        length: Duration::from_secs(120),
        schedule: true,
    };
    run.run_before(Some(witness)).unwrap();
    let seen = seen.lock().unwrap();
    let missing: Vec<String> = KINDS
        .iter()
        .filter_map(|kind| {
            let there = seen.get(kind.name).map_or(0, BTreeSet::len);
            let few = there < kind.least;
            few.then(|| format!("{}: {there} of {}", kind.name, kind.least))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
