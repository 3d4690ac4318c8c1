//! Our scheduler on a cluster: who decides, what it binds, and what it leaves alone.

use std::collections::{BTreeMap, BTreeSet};

use gpudeck::tui::Leader;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::fixture::{make_pod, pod, ready_node};
use super::session::{SCHEDULING, Session, items};
use crate::servers::Server;

/// Pods for each half of the handover.
const HALF: usize = 40;

pub(crate) async fn one_leads_and_the_other_takes_over(server: &Server) {
    let client = server.admin().await;
    let namespace = server.namespace("handover").await;
    for n in 0..12 {
        ready_node(&client, &format!("handover-{n:02}"), 8).await;
    }
    let mut first = Session::open(server, "admin", None, SCHEDULING).await;
    first
        .until("the first leads", |seen| seen.leader == Leader::Here)
        .await;
    let mut second = Session::open(server, "admin", None, SCHEDULING).await;
    second
        .until("the second stands by", |seen| {
            matches!(seen.leader, Leader::Other { standby: true, .. })
        })
        .await;
    let lease = super::session::get(
        &client,
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpudeck-scheduler",
    )
    .await;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap().to_owned();
    second.see(|seen| {
        let Leader::Other { holder: shown, .. } = &seen.leader else {
            panic!("{:?}", seen.leader);
        };
        assert_eq!(**shown, *holder);
    });

    let load = tokio::spawn(make_pods(client.clone(), namespace.clone(), 0..HALF));
    first
        .until("the first binds", |seen| {
            seen.cluster.pods().filter(|p| p.node.is_some()).count() >= HALF / 2
        })
        .await;
    // The rest of the load comes while leadership changes hands.
    let rest = tokio::spawn(make_pods(client.clone(), namespace.clone(), HALF..2 * HALF));
    first.stop().await;
    load.await.unwrap();
    rest.await.unwrap();
    second
        .until("the second leads", |seen| seen.leader == Leader::Here)
        .await;
    second
        .until("every pod is bound", |seen| {
            let pods = || seen.cluster.pods();
            pods().count() == 2 * HALF && pods().all(|p| p.node.is_some())
        })
        .await;
    assert!(
        second.see(|seen| !seen.decisions.is_empty()),
        "the second placed none"
    );
    second.stop().await;

    // The first waits for the answers to what it has sent before the lease goes to the second: a
    // client that leaves has its write recorded as 504 (context canceled) though it is made. The
    // log is written after the answer.
    let bindings = async || {
        let mut of_pod: BTreeMap<String, Vec<u16>> = BTreeMap::new();
        for record in server.audit() {
            if record.resource == "pods/binding" && record.namespace == namespace {
                of_pod.entry(record.name).or_default().push(record.status);
            }
        }
        (of_pod.len() >= 2 * HALF).then_some(of_pod)
    };
    let bindings = super::eventually("a record of each binding", bindings).await;
    let expected: BTreeMap<String, Vec<u16>> = (0..2 * HALF)
        .map(|n| (format!("p-{n:03}"), vec![201]))
        .collect();
    assert_eq!(bindings, expected);
    let mut used: BTreeMap<String, u32> = BTreeMap::new();
    for pod in items(&client, "/api/v1/pods").await {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        *used.entry(node.to_owned()).or_default() += 1;
    }
    assert!(used.values().all(|n| *n <= 8), "{used:?}");
}

async fn make_pods(client: Client, namespace: String, numbers: std::ops::Range<usize>) {
    for n in numbers {
        make_pod(
            &client,
            &namespace,
            pod(&format!("p-{n:03}"), "gpudeck", "1"),
        )
        .await;
    }
}

pub(crate) async fn what_must_wait_waits_and_says_why(server: &Server) {
    let client = server.admin().await;
    let namespace = server.namespace("rules").await;
    for name in ["rules-a", "rules-b"] {
        ready_node(&client, name, 4).await;
    }
    for n in 0..3 {
        let mut member = pod(&format!("gang-{n}"), "gpudeck", "4");
        member["metadata"]["labels"] = json!({"gpudeck.dev/gang": "trio"});
        member["metadata"]["annotations"] = json!({"gpudeck.dev/gang-min": "3"});
        make_pod(&client, &namespace, member).await;
    }
    let mut gated = pod("gated", "gpudeck", "0");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/held"}]);
    make_pod(&client, &namespace, gated).await;
    make_pod(&client, &namespace, pod("foreign", "somebody-else", "1")).await;
    make_pod(&client, &namespace, pod("too-large", "gpudeck", "9")).await;

    let mut session = Session::open(server, "admin", None, SCHEDULING).await;
    let reasons = [
        (
            "gang-0",
            "only 2 of 3 pods of the gang fit: 2 Insufficient nvidia.com/gpu",
        ),
        ("gated", "held by scheduling gate example.com/held"),
        ("too-large", "0/2 nodes fit: 2 Insufficient nvidia.com/gpu"),
    ];
    for (name, why) in reasons {
        session
            .until(&format!("{name} waits: {why}"), |seen| {
                seen.why_waiting(&namespace, name).as_deref() == Some(why)
            })
            .await;
    }
    // Everything above has been decided on; this one comes later and is bound at once.
    make_pod(&client, &namespace, pod("small", "gpudeck", "0")).await;
    session
        .until("the small one is bound", |seen| {
            seen.node_of(&namespace, "small").is_some()
        })
        .await;
    assert_eq!(bound_pods(&client, &namespace).await, names(&["small"]));
    let told = session.see(|seen| {
        let foreign = seen.pod(&namespace, "foreign").unwrap().meta.uid.clone();
        seen.decisions.iter().any(|d| d.pod == foreign)
    });
    assert!(
        !told,
        "there is a decision about a pod of another scheduler"
    );

    let reason_of = [
        ("small", "Scheduled", "Normal"),
        ("too-large", "FailedScheduling", "Warning"),
        ("gang-0", "FailedScheduling", "Warning"),
    ];
    for (name, reason, severity) in reason_of {
        let event = super::eventually("its Event is written", async || {
            event_of(&client, &namespace, name).await
        })
        .await;
        assert_eq!(event["reason"], reason, "{event}");
        assert_eq!(event["type"], severity, "{event}");
        assert_eq!(event["reportingComponent"], "gpudeck", "{event}");
        let message = event["message"].as_str().unwrap().to_owned();
        match reasons.iter().find(|(of, _)| *of == name) {
            Some((_, why)) => assert_eq!(message, *why),
            None => assert!(
                message.starts_with(&format!("assigned {namespace}/small to rules-")),
                "{message}"
            ),
        }
        session
            .until("the console has the Event", |seen| {
                seen.cluster
                    .events()
                    .any(|e| *e.subject_name == *name && *e.message == *message)
            })
            .await;
    }
    assert_eq!(event_of(&client, &namespace, "foreign").await, None);

    // What was missing comes: a third node for the gang, and the gate is lifted.
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let lifted = Patch::Merge(json!({"spec": {"schedulingGates": []}}));
    pods.patch("gated", &PatchParams::default(), &lifted)
        .await
        .unwrap();
    ready_node(&client, "rules-c", 4).await;
    let all = ["gang-0", "gang-1", "gang-2", "gated", "small"];
    session
        .until("the gang and the ungated one are bound", |seen| {
            all.iter()
                .all(|name| seen.node_of(&namespace, name).is_some())
        })
        .await;
    assert_eq!(bound_pods(&client, &namespace).await, names(&all));
    let nodes: BTreeSet<_> = (0..3)
        .map(|n| session.see(|seen| seen.node_of(&namespace, &format!("gang-{n}"))))
        .collect();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    session.stop().await;
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn bound_pods(client: &Client, namespace: &str) -> BTreeSet<String> {
    items(client, &format!("/api/v1/namespaces/{namespace}/pods"))
        .await
        .into_iter()
        .filter(|pod| pod["spec"]["nodeName"].is_string())
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn event_of(client: &Client, namespace: &str, pod: &str) -> Option<Value> {
    items(client, &format!("/api/v1/namespaces/{namespace}/events"))
        .await
        .into_iter()
        .find(|event| event["involvedObject"]["name"] == pod)
}
