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
            prices: with(ActorName::Prices).then(prices::Settings::default),
            network: with(ActorName::Network).then(network::Settings::default),
            foreign: foreign::Settings {
                kueue: with(ActorName::Kueue).then(kueue),
                volcano: with(ActorName::Volcano).then(volcano),
                kai: with(ActorName::Kai).then(kai),
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

/// A queue for each team, in one cohort, reserved capacity before spot.
fn kueue() -> foreign::kueue::Settings {
    use foreign::kueue::{ClusterQueue, Flavor, GpuQuota, LocalQueue, Settings};
    let tiers = ["reserved", "spot"];
    let flavor = |tier: &str| Flavor {
        name: tier.to_owned(),
        node_labels: [("karpenter.sh/capacity-type".to_owned(), tier.to_owned())].into(),
    };
    let quota = |tier: &str| GpuQuota {
        flavor: tier.to_owned(),
        nominal: QUEUE_GPUS,
        borrowing: None,
    };
    let teams = teams();
    Settings {
        flavors: tiers.map(flavor).into(),
        cluster_queues: teams
            .iter()
            .map(|team| ClusterQueue {
                name: team.clone(),
                cohort: "teams".to_owned(),
                strict: false,
                gpus: tiers.map(quota).into(),
            })
            .collect(),
        local_queues: teams
            .iter()
            .map(|team| LocalQueue {
                namespace: team.clone(),
                name: "main".to_owned(),
                cluster_queue: team.clone(),
            })
            .collect(),
        topology: FABRIC.map(str::to_owned).into(),
    }
}

/// The fabric's levels, from the top.
const FABRIC: [&str; 4] = [
    "fabric.topograph.run/tier-2",
    "fabric.topograph.run/tier-1",
    "fabric.topograph.run/tier-0",
    "kubernetes.io/hostname",
];

fn volcano() -> foreign::volcano::Settings {
    let queue = |team: &str| foreign::volcano::Queue {
        name: team.to_owned(),
        parent: String::new(),
        weight: 1,
        deserved_gpus: Some(QUEUE_GPUS),
        capability_gpus: Some(2 * QUEUE_GPUS),
    };
    foreign::volcano::Settings {
        queues: teams().iter().map(|team| queue(team)).collect(),
    }
}

fn kai() -> foreign::kai::Settings {
    let queue = |name: &str, parent: &str, gpus: u32| foreign::kai::Queue {
        name: name.to_owned(),
        parent: parent.to_owned(),
        quota_gpus: f64::from(gpus),
        limit_gpus: -1.0,
        over_quota_weight: 1.0,
        priority: 100,
    };
    let teams = teams();
    let count = u32::try_from(teams.len()).unwrap_or(1);
    let below = teams.iter().map(|team| queue(team, "teams", QUEUE_GPUS));
    foreign::kai::Settings {
        queues: [queue("teams", "", QUEUE_GPUS * count)]
            .into_iter()
            .chain(below)
            .collect(),
        topology: FABRIC.map(str::to_owned).into(),
    }
}

/// Prints a line; a closed pipe ends nothing.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
