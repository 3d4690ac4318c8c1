//! The console's data path and the scheduler get over every fault of an API server: under a clock
//! that stands still while anything is left to do, so that minutes cost no time.

use std::time::Duration;

use gpudeck::app::bus::Batch;
use gpudeck::app::engine::{Engine, Options};
use gpudeck::app::place::Place;
use gpudeck::app::schedule::Scheduling;
use gpudeck::cluster::write::WriteMode;
use gpudeck::model::{Cluster, Kind, Phase, SourceState};
use gpudeck::sandbox::actors::{self, annotation};
use gpudeck::sandbox::faults::{Fault, FaultKind};
use gpudeck::sandbox::span::Span;
use gpudeck::sandbox::{self, ApiServer, Time};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a fault lasts where that is asked for.
const LASTS_SECS: f64 = 30.0;
/// How long recovery may take after that: above the client's own time-outs and pauses.
const RECOVERY: Duration = Duration::from_secs(60);
/// How long the kubelets of the embedded cluster may take: they bear a silent watch for longer.
const KUBELETS: Duration = Duration::from_secs(150);

struct World {
    server: ApiServer,
    engine: Engine,
    deltas: mpsc::Receiver<Batch>,
    model: Cluster,
    stop: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let time = Time::starting("2026-11-30T12:00:00Z".parse().unwrap());
        let server = ApiServer::new(sandbox::Options {
            clock: time.into(),
            ..sandbox::Options::default()
        })
        .unwrap();
        let stop = CancellationToken::new();
        let options = actors::Options {
            time,
            ..actors::Options::default()
        };
        let mut actors = actors::start(server.client(), &options, &stop);
        tokio::spawn(async move { while actors.join_next().await.is_some() {} });
        let place = Place::embedded(server.client());
        let mode = WriteMode::unless_read_only(false).unwrap();
        let (engine, feed) = Engine::start(Options {
            source: place.source.clone().with_clock(move || time.now()),
            scope: place.scope(),
            scheduling: Some(Scheduling::new(mode, Some("test"))),
            telemetry: None,
            fabric: gpudeck::model::FabricRules::default(),
        });
        // As the console does; the scheduler waits for who shows the leader.
        let mut leader = feed.leader;
        tokio::spawn(async move { while leader.recv().await.is_some() {} });
        let mut world = World {
            server,
            engine,
            deltas: feed.deltas,
            model: Cluster::new(),
            stop,
        };
        let resources =
            json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "64"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "annotations": {annotation::KUBELET: "simulated"}},
            "status": {"capacity": resources, "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True"}]},
        });
        world.post("/api/v1/nodes", node).await;
        world.run_pod("before").await;
        world
            .until(RECOVERY, "the first pod runs", |m| runs(m, "before"))
            .await;
        world
    }

    /// Sends until it is taken, as anybody would: the fault meets this client too.
    async fn post(&self, path: &str, object: Value) {
        let deadline = Instant::now() + RECOVERY + Duration::from_secs(30);
        loop {
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes())
                .unwrap();
            match self.server.client().request::<Value>(request).await {
                Ok(_) => return,
                Err(error) if error.to_string().contains("already exists") => return,
                Err(error) => assert!(Instant::now() < deadline, "{path}: {error}"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn run_pod(&self, name: &str) {
        let gpu = json!({"nvidia.com/gpu": "1"});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {annotation::RUN_SECS: "100000"}},
            "spec": {"schedulerName": "gpudeck", "containers": [
                {"name": "c", "image": "i", "resources": {"limits": gpu, "requests": gpu}}]},
        });
        self.post("/api/v1/namespaces/default/pods", pod).await;
    }

    /// Takes deltas in until the model is as wanted.
    async fn until(&mut self, limit: Duration, what: &str, is: impl Fn(&Cluster) -> bool) {
        let deadline = Instant::now() + limit;
        while !is(&self.model) {
            let batch = tokio::time::timeout_at(deadline, self.deltas.recv()).await;
            let Ok(batch) = batch else {
                let pods: Vec<_> = self
                    .model
                    .pods()
                    .map(|p| (&p.meta.name, p.phase, &p.node))
                    .collect();
                let sources: Vec<_> = self.model.sources().map(|s| (s.kind, &s.state)).collect();
                panic!("not within {limit:?}: {what}; {pods:?} {sources:?}");
            };
            for delta in batch.unwrap().iter() {
                self.model.apply(delta);
            }
        }
    }

    /// Takes in what comes within a time.
    async fn pass(&mut self, secs: f64) {
        let end = Instant::now() + Duration::from_secs_f64(secs);
        while let Ok(batch) = tokio::time::timeout_at(end, self.deltas.recv()).await {
            for delta in batch.unwrap().iter() {
                self.model.apply(delta);
            }
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.engine.stop().await;
    }
}

fn runs(model: &Cluster, name: &str) -> bool {
    model
        .pods()
        .any(|pod| &*pod.meta.name == name && pod.phase == Phase::Running)
}

/// A pod that is submitted in the middle of it runs and is seen to, soon after it is over; every
/// list and watch is live again.
async fn gets_over(fault: Fault) {
    let mut world = World::start().await;
    let lasts = fault.lasts.map_or(0.0, Span::secs);
    world.server.inject(fault).unwrap();
    world.pass(lasts / 2.0).await;
    world.run_pod("during").await;
    world.pass(lasts / 2.0).await;
    world.run_pod("after").await;
    world
        .until(RECOVERY, "what was submitted meanwhile is bound", |m| {
            m.pod_count() == 3 && m.pods().all(|pod| pod.node.is_some())
        })
        .await;
    world
        .until(KUBELETS, "it runs", |m| {
            runs(m, "during") && runs(m, "after") && runs(m, "before")
        })
        .await;
    world
        .until(RECOVERY, "all is live", |m| {
            Kind::ALL
                .into_iter()
                .all(|kind| m.source(kind).is_some_and(|s| s.state == SourceState::Live))
        })
        .await;
    assert_eq!(world.model.pod_count(), 3);
    assert!(world.server.faults().is_empty());
    world.end().await;
}

fn lasting(kind: FaultKind) -> Fault {
    Fault::new(kind).lasting(LASTS_SECS)
}

#[tokio::test(start_paused = true)]
async fn latency() {
    gets_over(Fault {
        delay: Some(Span::from_secs(2.0)),
        ..lasting(FaultKind::Latency)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_once() {
    gets_over(Fault::new(FaultKind::DropWatches)).await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_again_and_again() {
    gets_over(lasting(FaultKind::DropWatches)).await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_fall_silent_for_good() {
    gets_over(Fault::new(FaultKind::SilentWatches)).await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_are_silent_from_the_start() {
    gets_over(lasting(FaultKind::SilentWatches)).await;
}

#[tokio::test(start_paused = true)]
async fn history_that_is_gone() {
    gets_over(Fault::new(FaultKind::Gone)).await;
    gets_over(lasting(FaultKind::Gone)).await;
}

#[tokio::test(start_paused = true)]
async fn too_many_requests() {
    gets_over(Fault {
        retry_after: Some(Span::from_secs(3.0)),
        ..lasting(FaultKind::TooManyRequests)
    })
    .await;
    gets_over(Fault {
        percent: Some(50),
        ..lasting(FaultKind::TooManyRequests)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn conflicts() {
    gets_over(lasting(FaultKind::Conflict)).await;
}

#[tokio::test(start_paused = true)]
async fn internal_errors() {
    gets_over(lasting(FaultKind::InternalError)).await;
    gets_over(Fault {
        percent: Some(50),
        ..lasting(FaultKind::InternalError)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_forgets_and_one_that_does_not() {
    for keep_history in [None, Some(true)] {
        gets_over(Fault {
            keep_history,
            ..lasting(FaultKind::Restart)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off() {
    gets_over(Fault {
        ahead: Some(Span::from_secs(600.0)),
        ..lasting(FaultKind::ClockSkew)
    })
    .await;
    gets_over(Fault {
        behind: Some(Span::from_secs(600.0)),
        ..lasting(FaultKind::ClockSkew)
    })
    .await;
}
