//! `gpudeck sandbox actors`: a GPU world played against any API server.

use std::io::Write;

use color_eyre::eyre::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::cli::{ActorName, ActorsArgs, ClusterArgs};
use super::place::Place;
use crate::sandbox::actors::world::{
    Settings as World, autoscaler, failures, foreign, network, prices, spot, training,
};
use crate::sandbox::actors::{self, Manage, load};
use crate::sandbox::inventory::Fleet;

/// Mean hours between two failures of one node.
const FAILURE_HOURS: f64 = 200.0;
/// How long a failed node is away, in seconds.
const DOWN_SECS: (f64, f64) = (300.0, 1_800.0);

/// Plays until SIGINT or SIGTERM.
///
/// # Errors
/// A cluster that cannot be reached, or that refuses the fleet.
pub async fn play(args: &ActorsArgs, cluster: &ClusterArgs) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let place = Place::connect(cluster, false).await?;
    let client = place.source.client();
    let stop = CancellationToken::new();
    // The actors come first: a fleet without kubelets would be NotReady for a moment.
    let mut tasks = actors::start(client.clone(), &options(args), &stop);
    if args.nodes > 0 {
        let nodes = usize::try_from(args.nodes).unwrap_or(usize::MAX);
        let written = Fleet::sized(nodes, args.seed).write(client).await?;
        say(&format!(
            "wrote {} objects; {} were there already",
            written.created, written.existing
        ));
    }
    say("playing; stop with Ctrl-C");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// What the command line asks for.
fn options(args: &ActorsArgs) -> actors::Options {
    let with = |name: ActorName| args.with.contains(&name);
    let teams = teams();
    let by_chance = failures::Chance {
        nodes: Default::default(),
        mean_hours: FAILURE_HOURS,
        down_secs: DOWN_SECS,
    };
    actors::Options {
        speed: args.speed,
        seed: args.seed,
        kubelets: Some(Manage::Marked),
        controllers: args.controllers,
        load: with(ActorName::Load).then(load::Settings::default),
        world: World {
            failures: with(ActorName::Failures).then(|| failures::Settings {
                failures: Vec::new(),
                chance: Some(by_chance),
            }),
            spot: with(ActorName::Spot).then(spot::Settings::default),
            node_claims: with(ActorName::Spot) || with(ActorName::Autoscaler),
            prices: with(ActorName::Prices).then(prices::Settings::default),
            network: with(ActorName::Network).then(network::Settings::default),
            foreign: foreign::Settings {
                kueue: with(ActorName::Kueue).then(|| foreign::usual::kueue(&teams, QUEUE_GPUS)),
                volcano: with(ActorName::Volcano)
                    .then(|| foreign::usual::volcano(&teams, QUEUE_GPUS)),
                kai: with(ActorName::Kai).then(|| foreign::usual::kai(&teams, QUEUE_GPUS)),
                default_scheduler: with(ActorName::DefaultScheduler),
            },
            training: with(ActorName::Training).then(training::Settings::default),
            autoscaler: with(ActorName::Autoscaler).then(|| autoscaler::Settings {
                groups: vec![autoscaler::NodeGroup::default()],
                ..autoscaler::Settings::default()
            }),
        },
        ..actors::Options::default()
    }
}

/// GPUs of a team's queue: few enough that they fill.
const QUEUE_GPUS: u32 = 32;

/// The namespaces of the load's teams; each has a queue of its name.
fn teams() -> Vec<String> {
    let load = load::Settings::default();
    load.namespaces().map(str::to_owned).collect()
}

/// Prints a line; a closed pipe ends nothing.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
