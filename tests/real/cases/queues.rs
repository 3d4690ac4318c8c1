//! Queues on a cluster: who takes whose place, with no more rights than deploy/rbac.yaml gives.

use gpudeck::model::{DecisionKind, Reason};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::fixture::{grant, make_pod, pod, ready_node};
use super::session::{SCHEDULING, Seen, Session, get, items};
use crate::servers::{Server, object};

const USER: &str = "viewer";
const QUEUES: &str = "/apis/gpudeck.dev/v1alpha1/gpuqueues";

fn deployed(file: &str) -> Vec<Value> {
    let path = format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// What the shipped roles for looking and scheduling let somebody do.
fn shipped_rules() -> Value {
    let of = ["gpudeck-view", "gpudeck-scheduler"];
    let roles = deployed("rbac.yaml").into_iter();
    let roles = roles.filter(|r| of.contains(&r["metadata"]["name"].as_str().unwrap()));
    let rules = roles.flat_map(|r| r["rules"].as_array().unwrap().clone());
    Value::Array(rules.collect())
}

fn queues(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("gpudeck.dev", "v1alpha1", "GpuQueue");
    let resource = ApiResource::from_gvk_with_plural(&kind, "gpuqueues");
    Api::all_with(client.clone(), &resource)
}

async fn queue(client: &Client, name: &str, spec: Value) -> Result<(), String> {
    let new = object(
        json!({"apiVersion": "gpudeck.dev/v1alpha1", "kind": "GpuQueue",
        "metadata": {"name": name}, "spec": spec}),
    );
    let made = queues(client).create(&PostParams::default(), &new).await;
    made.map(drop).map_err(|e| e.to_string())
}

fn in_gang(mut pod: Value) -> Value {
    pod["metadata"]["labels"] = json!({"gpudeck.dev/gang": "pair"});
    pod["metadata"]["annotations"] = json!({"gpudeck.dev/gang-min": "2"});
    pod
}

fn bound(seen: &Seen, namespace: &str, names: &[&str]) -> bool {
    let is_bound = |name: &&str| seen.node_of(namespace, name).is_some();
    names.iter().all(is_bound)
}

/// The place of the first decision about a pod that is so.
fn first(seen: &Seen, name: &str, is_so: impl Fn(&DecisionKind) -> bool) -> Option<usize> {
    let mut all = seen.decisions.iter();
    all.position(|d| *d.name == *name && is_so(&d.kind))
}

/// Who leaves for whom.
const VICTIMS: [(&str, &str); 4] = [
    ("red-0", "blue-0"),
    ("red-1", "blue-0"),
    ("blue-0", "now"),
    ("blue-1", "now"),
];

pub(crate) async fn reclaim_and_preemption_are_proven_before_anybody_leaves(server: &Server) {
    let client = server.admin().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in deployed("crds/gpuqueue.yaml") {
        definitions
            .create(&PostParams::default(), &object(definition))
            .await
            .unwrap();
    }
    let (red, blue) = (
        server.namespace("red").await,
        server.namespace("blue").await,
    );
    let twice = server.namespace("twice").await;
    super::eventually("the kind is served", async || {
        let spec = json!({"namespaces": [red], "preemption": {"minRuntimeSeconds": 0}});
        queue(&client, "red", spec).await.ok()
    })
    .await;
    let gpus = json!([{"guaranteed": 4, "limit": 4}]);
    let spec = json!({"namespaces": [blue], "gpus": gpus, "preemption": {"minRuntimeSeconds": 0}});
    queue(&client, "blue", spec).await.unwrap();
    for name in ["twice-a", "twice-b"] {
        let spec = json!({"namespaces": [twice]});
        queue(&client, name, spec).await.unwrap();
    }
    for example in deployed("examples/gpuqueues.yaml") {
        let name = example["metadata"]["name"].as_str().unwrap().to_owned();
        let spec = example["spec"].clone();
        queue(&client, &name, spec).await.unwrap();
    }
    grant(&client, USER, shipped_rules()).await;
    let looker = server.client(USER).await;
    super::eventually("the shipped rights are in force", async || {
        queues(&looker).list(&ListParams::default()).await.ok()
    })
    .await;
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let urgent = object(json!({"metadata": {"name": "queues-urgent"}, "value": 1000}));
    classes
        .create(&PostParams::default(), &urgent)
        .await
        .unwrap();
    ready_node(&client, "queues-a", 4).await;

    for name in ["red-0", "red-1"] {
        make_pod(&client, &red, pod(name, "gpudeck", "2")).await;
    }
    let mut session = Session::open(server, USER, None, SCHEDULING).await;
    session
        .until("red uses what is idle", |seen| {
            bound(seen, &red, &["red-0", "red-1"])
        })
        .await;

    // Blue asks for its guarantee: both of red have to go, and blue starts together.
    for name in ["blue-0", "blue-1"] {
        make_pod(&client, &blue, in_gang(pod(name, "gpudeck", "2"))).await;
    }
    session
        .until("blue has its guarantee", |seen| {
            bound(seen, &blue, &["blue-0", "blue-1"])
        })
        .await;
    // What left comes back and waits.
    make_pod(&client, &red, pod("red-again", "gpudeck", "4")).await;
    session
        .until("red waits", |seen| {
            seen.why_waiting(&red, "red-again").is_some()
        })
        .await;

    // Urgent work of blue displaces its own gang as a whole; that comes back and waits as well.
    let mut now = pod("now", "gpudeck", "2");
    now["spec"]["priorityClassName"] = "queues-urgent".into();
    make_pod(&client, &blue, now).await;
    session
        .until("urgent work runs", |seen| bound(seen, &blue, &["now"]))
        .await;
    for name in ["blue-2", "blue-3"] {
        make_pod(&client, &blue, in_gang(pod(name, "gpudeck", "2"))).await;
    }
    session
        .until("the gang waits for its turn", |seen| {
            let why = seen.why_waiting(&blue, "blue-2");
            why.as_deref()
                == Some("queue blue uses 2 of its limit of 4 GPUs; 4 more would exceed it")
        })
        .await;

    session.see(decided_in_order);
    written_in_order(server).await;
    for (namespace, victim, preemptor, why) in [
        (&red, "red-0", "blue-0", "queue blue is below its guarantee"),
        (
            &blue,
            "blue-0",
            "now",
            "it has the lower priority in queue blue",
        ),
    ] {
        let event = super::eventually("the Event of an eviction", async || {
            let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
            let all = items(&client, &path).await.into_iter();
            let mut of = all.filter(|e| e["regarding"]["name"] == victim);
            of.find(|e| e["reason"] == "Preempted")
        })
        .await;
        let note = event["note"].as_str().unwrap();
        let start = format!("evicted from queues-a for {blue}/{preemptor}: {why}");
        assert!(note.starts_with(&start), "{note}");
        assert!(note.contains("GPU-seconds of work are lost"), "{note}");
    }
    told(&client, &twice).await;
    session.stop().await;
    if server.is_real() {
        refused(&client).await;
    }
}

/// A place was held for the newcomer before its victim was told to leave.
fn decided_in_order(seen: &Seen) {
    for (victim, preemptor) in VICTIMS {
        let held = |k: &DecisionKind| matches!(k, DecisionKind::Waiting(Reason::PlaceHeld { nodes }) if nodes.len() == 1);
        let left = |k: &DecisionKind| matches!(k, DecisionKind::Leaves { preemptor: (_, name), .. } if **name == *preemptor);
        let (held, left) = (first(seen, preemptor, held), first(seen, victim, left));
        assert!(left.is_some(), "{victim} did not leave for {preemptor}");
        assert!(held.is_some() && held < left, "{victim}: {held:?} {left:?}");
    }
}

/// The server's own log: each was evicted once, by us, before the place was given away.
async fn written_in_order(server: &Server) {
    let log = super::eventually("a record of each write", async || {
        let log: Vec<(String, String)> = server
            .audit()
            .into_iter()
            .filter(|r| r.user == USER && r.verb == "create" && r.status == 201)
            .map(|r| (r.resource, r.name))
            .filter(|(resource, _)| matches!(&**resource, "pods/binding" | "pods/eviction"))
            .collect();
        let bindings = log.iter().filter(|(r, _)| r == "pods/binding").count();
        (bindings == 5).then_some(log)
    })
    .await;
    let at = |resource: &str, name: &str| {
        let mut all = log.iter();
        all.position(|(r, n)| r == resource && n == name)
    };
    for (victim, preemptor) in VICTIMS {
        let (out, start) = (at("pods/eviction", victim), at("pods/binding", preemptor));
        assert!(out.is_some() && out < start, "{victim}: {log:?}");
    }
    let evictions = log.iter().filter(|(r, _)| r == "pods/eviction");
    assert_eq!(
        evictions.count(),
        VICTIMS.len(),
        "nothing flips back: {log:?}"
    );
}

/// The leader tells the queues what they use, or why they cannot be used.
async fn told(client: &Client, twice: &str) {
    let told = async |name: &str, is_so: fn(&Value) -> bool| {
        super::eventually("the queue is told", async || {
            let queue = get(client, &format!("{QUEUES}/{name}")).await;
            let status = queue["status"].clone();
            is_so(&status).then_some(status)
        })
        .await
    };
    let status = told("blue", |s| s["allocated"] == "2" && s["pending"] == "4").await;
    assert_eq!(status["conditions"][0]["status"], "True", "{status}");
    assert!(status["term"].as_i64().unwrap() > 0, "{status}");
    let status = told("twice-a", |s| s["conditions"][0]["status"] == "False").await;
    assert_eq!(
        status["conditions"][0]["message"],
        format!("namespace {twice} is in queues twice-a and twice-b: it can be in one only")
    );
}

/// Bad ones are refused by the rules of the kind itself.
async fn refused(client: &Client) {
    for (name, spec, words) in [
        (
            "own",
            json!({"parent": "own"}),
            "a queue cannot be its own parent",
        ),
        (
            "below",
            json!({"gpus": [{"guaranteed": 4, "limit": 2}]}),
            "the limit is at least the guarantee",
        ),
        (
            "again",
            json!({"gpus": [{"model": "H100-80"}, {"model": "H100-80"}]}),
            "a kind of GPU is named once",
        ),
    ] {
        let why = queue(client, name, spec).await.unwrap_err();
        assert!(why.contains(words), "{name}: {why}");
    }
}
