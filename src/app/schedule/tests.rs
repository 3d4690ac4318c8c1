//! The scheduler's task on the embedded cluster, with a gate in front of the bindings.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::app::engine::{Engine, Feed, Options};
use crate::app::explain;
use crate::cluster::watch::Scope;
use crate::model::Cluster;
use crate::sandbox::{ApiServer, Options as ServerOptions};
use crate::tui::explaining::{WhyAnswer, WhyAsk};

/// Longest that anything here is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, future).await;
    waited.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// What the gate does with the nth binding, counted from 0.
type Rule = dyn Fn(usize) -> Way + Send + Sync;

enum Way {
    Through,
    /// Answered so, and not handed on.
    Refused(u16),
    /// Once the gate is opened.
    WhenOpen,
    /// Handed on, but answered so.
    DoneButSays(u16),
}

struct Gate {
    /// Bindings that have come to it.
    come: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

/// A client of the server whose bindings go through a gate.
fn gated(
    server: &ApiServer,
    rule: impl Fn(usize) -> Way + Send + Sync + 'static,
) -> (Client, Arc<Gate>) {
    let gate = Arc::new(Gate {
        come: watch::Sender::new(0),
        open: watch::Sender::new(false),
    });
    let rule: Arc<Rule> = Arc::new(rule);
    let (inner, at, count) = (server.client(), gate.clone(), Arc::new(AtomicUsize::new(0)));
    let serve = move |request: Request<Body>| {
        let (inner, gate, rule, count) = (inner.clone(), at.clone(), rule.clone(), count.clone());
        async move {
            let mut says = None;
            if request.uri().path().ends_with("/binding") {
                let way = rule(count.fetch_add(1, Ordering::SeqCst));
                gate.come.send_modify(|n| *n += 1);
                match way {
                    Way::Through => {}
                    Way::Refused(code) => return Ok(answer(code)),
                    Way::DoneButSays(code) => says = Some(code),
                    Way::WhenOpen => {
                        let _ = gate.open.subscribe().wait_for(|open| *open).await;
                    }
                }
            }
            let response = inner.send(request).await.map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>(match says {
                Some(code) => answer(code),
                None => response,
            })
        }
    };
    (Client::new(tower::service_fn(serve), "default"), gate)
}

fn answer(code: u16) -> Response<Body> {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"});
    let body = Body::from(status.to_string().into_bytes());
    Response::builder().status(code).body(body).unwrap()
}

async fn call(server: &ApiServer, method: &str, path: &str, body: &Value) -> Value {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap();
    let response = server.client().send(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

/// A node with GPUs, and a gang of `pods` that ask one each.
async fn world(pods: usize) -> ApiServer {
    let server = ApiServer::new(ServerOptions::default()).unwrap();
    let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"capacity": amounts, "allocatable": amounts}});
    call(&server, "POST", "/api/v1/nodes", &node).await;
    for n in 0..pods {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{n}"),
                "labels": {"gpudeck.dev/gang": "g"},
                "annotations": {"gpudeck.dev/gang-min": pods.to_string()}},
            "spec": {"schedulerName": "gpudeck", "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "i",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}});
        call(&server, "POST", "/api/v1/namespaces/default/pods", &pod).await;
    }
    server
}

fn engine(client: Client) -> (Engine, Feed) {
    let mode = WriteMode::unless_read_only(false).unwrap();
    Engine::start(Options {
        source: ClientSource::fixed(client, "the embedded cluster"),
        scope: Scope::default(),
        scheduling: Some(Scheduling::new(mode, Some("here"))),
        telemetry: None,
        fabric: crate::model::FabricRules::default(),
    })
}

/// The pods' nodes.
async fn nodes(server: &ApiServer) -> BTreeMap<String, Option<String>> {
    let list = call(
        server,
        "GET",
        "/api/v1/namespaces/default/pods",
        &Value::Null,
    )
    .await;
    let text = |v: &Value| v.as_str().map(str::to_owned);
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| {
            (
                text(&p["metadata"]["name"]).unwrap(),
                text(&p["spec"]["nodeName"]),
            )
        })
        .collect()
}

async fn holder(server: &ApiServer) -> String {
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}",
        LEASE.0, LEASE.1
    );
    let lease = call(server, "GET", &path, &Value::Null).await;
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or("")
        .to_owned()
}

/// What the engine has told.
struct Seen {
    feed: Feed,
    cluster: Cluster,
    /// Decisions that leave a pod waiting, in words.
    waits: Vec<String>,
}

impl Seen {
    fn new(feed: Feed) -> Self {
        Seen {
            feed,
            cluster: Cluster::new(),
            waits: Vec::new(),
        }
    }

    fn bound(&self) -> usize {
        self.cluster.pods().filter(|p| p.node.is_some()).count()
    }

    async fn until(&mut self, what: &str, enough: impl Fn(&Seen) -> bool) {
        within(what, async {
            while !enough(self) {
                let batch = self.feed.deltas.recv().await.unwrap();
                for delta in batch.iter() {
                    self.cluster.apply(delta);
                    if let Delta::Decision(decision) = delta
                        && let DecisionKind::Waiting(reason) = &decision.kind
                    {
                        self.waits.push(format!("{}: {reason}", decision.name));
                    }
                }
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_given_back_only_when_what_was_sent_is_answered() {
    let server = world(2).await;
    let (client, gate) = gated(&server, |_| Way::WhenOpen);
    let (engine, _feed) = engine(client);
    let come = |n: usize| {
        let mut come = gate.come.subscribe();
        async move { come.wait_for(|seen| *seen >= n).await.map(|_| ()) }
    };
    within("both bindings are sent", come(2)).await.unwrap();
    let ours = holder(&server).await;
    assert!(ours.starts_with("here_"), "{ours}");
    let stopped = tokio::spawn(engine.stop());
    tokio::time::sleep(LAST_ANSWERS / 2).await;
    assert_eq!(holder(&server).await, ours, "bindings are under way");
    assert!(!stopped.is_finished());
    gate.open.send_replace(true);
    within("it stops", stopped).await.unwrap();
    assert_eq!(holder(&server).await, "");
    assert!(nodes(&server).await.values().all(Option::is_some));
    let done: Vec<_> = server
        .audit()
        .into_iter()
        .filter(|r| r.subresource == "binding")
        .map(|r| r.code)
        .collect();
    assert_eq!(done, [201, 201]);
}

#[tokio::test(start_paused = true)]
async fn a_binding_without_an_answer_leaves_the_lease_to_expire() {
    let server = world(1).await;
    let (client, gate) = gated(&server, |_| Way::WhenOpen);
    let (engine, _feed) = engine(client);
    let mut come = gate.come.subscribe();
    within("the binding is sent", come.wait_for(|n| *n == 1))
        .await
        .unwrap();
    let ours = holder(&server).await;
    within("it stops all the same", engine.stop()).await;
    assert_eq!(holder(&server).await, ours);
    assert_eq!(nodes(&server).await["p0"], None);
}

#[tokio::test(start_paused = true)]
async fn what_would_start_a_gang_is_told_by_the_scheduler_and_found_from_what_a_console_knows() {
    let server = world(9).await;
    let (engine, feed) = engine(server.client());
    let questions = feed.questions.clone();
    assert!(questions.is_some());
    let mut seen = Seen::new(feed);
    seen.until("all are told", |seen| seen.waits.len() == 9)
        .await;
    let pod = seen
        .cluster
        .pods()
        .map(|p| p.meta.uid.clone())
        .min()
        .unwrap();
    let now = ClientSource::fixed(server.client(), "it").now();
    let ask = |known| WhyAsk {
        turn: 1,
        pod: pod.clone(),
        known,
    };
    let config = SchedConfig::default;
    let told = explain::answered(ask(None), config(), now, questions);
    let told = within("the scheduler answers", told).await;
    let known = Some(seen.cluster.known());
    let found = explain::answered(ask(known), config(), now, None).await;
    assert_eq!(told, found);
    let WhyAnswer::Waits(why) = told else {
        panic!("{told:?}");
    };
    assert_eq!((why.position, why.waiting), (1, 1));
    assert_eq!(why.predicted_start, None);
    assert_eq!(
        &*why.start_by,
        "nothing that runs says for how long (gpudeck.dev/runtime-estimate)"
    );
    let texts: Vec<&str> = why.near_misses.iter().map(|m| &*m.text).collect();
    assert_eq!(
        texts,
        ["8 of 9 pods have room now; 1 more empty node(s) like n1 would do"]
    );
    // Without a scheduler and without a picture there is nothing to say.
    let nobody = explain::answered(ask(None), config(), now, None).await;
    assert!(matches!(nobody, WhyAnswer::Failed(_)), "{nobody:?}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_is_refused_halfway_is_named_and_tried_again_at_once() {
    let server = world(3).await;
    let (client, _gate) = gated(&server, |n| match n {
        1 => Way::Refused(409),
        _ => Way::Through,
    });
    let (engine, feed) = engine(client);
    let mut seen = Seen::new(feed);
    let begun = Instant::now();
    seen.until("it is told", |seen| !seen.waits.is_empty())
        .await;
    let told = &seen.waits;
    let cut = "pods of the gang were bound, the others are tried again at once: no (HTTP 409)";
    assert!(told.iter().all(|t| t.contains(cut)), "{told:?}");
    seen.until("all are bound", |seen| seen.bound() == 3).await;
    let waited = begun.elapsed();
    let backoff = SchedConfig::default().refused_backoff_secs.unsigned_abs();
    assert!(waited < Duration::from_secs(backoff), "{waited:?}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_gang_that_is_refused_twice_waits_as_any_refused_pod() {
    let server = world(2).await;
    let (client, gate) = gated(&server, |n| match n {
        0 => Way::Through,
        _ => Way::Refused(422),
    });
    let (engine, feed) = engine(client);
    let mut seen = Seen::new(feed);
    let refused = |seen: &Seen| {
        seen.waits
            .iter()
            .any(|t| t.contains("refused by the server"))
    };
    seen.until("it is told", refused).await;
    let told = &seen.waits;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("only 1 of 2 pods of the gang were bound"),
        "{told:?}"
    );
    assert!(
        told[1].ends_with(": refused by the server: no (HTTP 422)"),
        "{told:?}"
    );
    assert_eq!(*gate.come.borrow(), 3);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_was_done_though_the_server_says_500_is_taken_as_done() {
    let server = world(1).await;
    let (client, gate) = gated(&server, |_| Way::DoneButSays(500));
    let (engine, feed) = engine(client);
    let mut seen = Seen::new(feed);
    seen.until("it is bound", |seen| seen.bound() == 1).await;
    engine.stop().await;
    assert_eq!(*gate.come.borrow(), 1, "it is sent once");
    let reread = server
        .audit()
        .iter()
        .any(|r| r.verb == "get" && r.resource == "pods" && r.name == "p0");
    assert!(reread);
}

#[tokio::test(start_paused = true)]
async fn a_binding_of_which_nothing_is_known_is_named_and_tried_again_later() {
    let server = world(1).await;
    let (client, gate) = gated(&server, |n| match n {
        0 => Way::Refused(503),
        _ => Way::Through,
    });
    let (engine, feed) = engine(client);
    let mut seen = Seen::new(feed);
    seen.until("it is told", |seen| !seen.waits.is_empty())
        .await;
    let told = &seen.waits;
    assert_eq!(
        *told,
        ["p0: whether it was bound is not known yet: the API server answered 503: no"]
    );
    assert_eq!(*gate.come.borrow(), 1, "its place is held");
    engine.stop().await;
}
