//! From the start of the engine until every kind is live.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpudeck::app::bus::Batch;
use gpudeck::app::cli::ClusterArgs;
use gpudeck::app::engine::{Engine, Feed, Options};
use gpudeck::app::place::Place;
use gpudeck::model::{Cluster, Delta, Kind, SourceState};
use gpudeck::sched::{SchedConfig, State};
use tokio::runtime::Runtime;

use crate::memory;
use crate::report::{line, time};
use crate::term::Term;
use crate::world::World;

const BARS: &str = "bars: 3 s, 300 MiB";
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// How fast the embedded cluster takes objects.
pub fn fill(runtime: &Runtime, world: &mut World) {
    let filled = world.large(runtime).filled;
    #[allow(clippy::cast_precision_loss)]
    let rate = (filled.nodes + 2 * filled.pods) as f64 / filled.took.as_secs_f64();
    line(
        "fill of the embedded cluster",
        &time(filled.took),
        &format!(
            "{} nodes, {} pods created and their status written: {rate:.0} writes/s",
            filled.nodes, filled.pods
        ),
    );
}

/// Times and memory of a sync.
pub fn run(runtime: &Runtime, world: &mut World) {
    world.large(runtime);
    let served = world.large(runtime);
    let took = runtime.block_on(async {
        let (engine, feed) = start(Place::embedded(served.server.client()));
        let mut cluster = Cluster::new();
        let took = until_live(feed, |batch| batch.iter().for_each(|d| cluster.apply(d))).await;
        engine.stop().await;
        took
    });
    line("sync in process", &time(took), BARS);
    for (name, with) in [
        ("sync over TLS, picture", "picture"),
        ("sync over TLS, picture and scheduler", "scheduler"),
    ] {
        let this = std::env::current_exe().expect("the bench knows its own file");
        let output = Command::new(this)
            .arg(crate::CONSOLE_OF)
            .arg(served.kubeconfig())
            .arg(with)
            .stderr(Stdio::inherit())
            .output()
            .expect("the bench can start itself");
        let told = String::from_utf8_lossy(&output.stdout);
        let (took, memory) = told.trim().split_once('|').unwrap_or(("failed", ""));
        line(name, took, &format!("{memory}; {BARS}"));
    }
    let begun = Instant::now();
    let kubeconfig = served.kubeconfig();
    let kubeconfig = kubeconfig.to_string_lossy();
    let mut term = Term::start(&["--kubeconfig", &kubeconfig], 40, 120);
    term.wait_for("a live header", |screen| screen.contains("live"));
    let took = begun.elapsed();
    let memory = memory::told(term.pid());
    line(
        "the program, start to live",
        &time(took),
        &format!("{memory}; {BARS}"),
    );
}

/// Everything that is told until all kinds are live.
pub async fn collect(client: kube::Client) -> Vec<Delta> {
    let (engine, feed) = start(Place::embedded(client));
    let mut deltas = Vec::new();
    until_live(feed, |batch| deltas.extend(batch.iter().cloned())).await;
    engine.stop().await;
    deltas
}

fn start(place: Place) -> (Engine, Feed) {
    Engine::start(Options {
        scope: place.scope(),
        source: place.source,
        scheduling: None,
        telemetry: None,
        fabric: gpudeck::model::FabricRules::default(),
    })
}

/// Takes batches until every kind is live; how long that took.
async fn until_live(mut feed: Feed, mut take: impl FnMut(&Batch)) -> Duration {
    let begun = Instant::now();
    let mut waiting: Vec<Kind> = Kind::ALL.to_vec();
    while !waiting.is_empty() {
        let batch = tokio::time::timeout(PATIENCE, feed.deltas.recv())
            .await
            .expect("the cluster answers in time")
            .expect("the engine lives");
        for delta in batch.iter() {
            if let Delta::Source(report) = delta
                && report.state == SourceState::Live
            {
                waiting.retain(|kind| *kind != report.kind);
            }
        }
        take(&batch);
    }
    begun.elapsed()
}

/// The process that memory is counted of: what the console keeps, and nothing else.
pub async fn console_of(kubeconfig: &str, with: &[String]) {
    let args = ClusterArgs {
        kubeconfig: Some(PathBuf::from(kubeconfig)),
        ..ClusterArgs::default()
    };
    let place = Place::connect(&args, false)
        .await
        .expect("the kubeconfig is sound");
    let mut cluster = Cluster::new();
    let mut state = with
        .iter()
        .any(|w| w == "scheduler")
        .then(|| State::new(SchedConfig::default()));
    let (engine, feed) = start(place);
    let took = until_live(feed, |batch| {
        for delta in batch.iter() {
            cluster.apply(delta);
            if let Some(state) = &mut state {
                state.apply(delta);
            }
        }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{}|{}", time(took), memory::told(std::process::id()));
    assert_eq!(
        cluster.pod_count(),
        crate::world::PODS,
        "pods that are known"
    );
    engine.stop().await;
}
