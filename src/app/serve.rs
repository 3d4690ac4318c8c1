//! `gpudeck sandbox`: serves the embedded cluster, or fills a cluster with the published inventory.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use color_eyre::eyre::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::cli::{ClusterArgs, LoadArgs, ServeArgs};
use super::embedded::World;
use super::place::Place;
use crate::sandbox::actors;
use crate::sandbox::listen::{self, RunOptions};
use crate::sandbox::openb::{self, LoadOptions};
use crate::sandbox::scenario::{Play, Scenario};
use crate::sandbox::{Options, Time};

/// Namespace of the loaded pods when none is asked for.
const LOAD_NAMESPACE: &str = "openb";
/// Where the served cluster's kubeconfig goes when `--kubeconfig` does not say.
pub(super) const KUBECONFIG: &str = "gpudeck-sandbox.kubeconfig";

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// An address that is not loopback or is taken; a file that cannot be written.
pub async fn serve(args: &ServeArgs, kubeconfig: Option<PathBuf>) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let options = RunOptions {
        listen: args.listen,
        // Written below, once the fleet is there: a kubeconfig says that the cluster is ready.
        kubeconfig: None,
        server: Options {
            seed: args.seed,
            audit_log: args.audit_log.clone(),
            ..Options::default()
        },
    };
    let running = listen::run(options).await?;
    let stop = CancellationToken::new();
    let _actors = match world_of(args)? {
        Some(world) => world.start(&running.server, &stop).await?,
        None => actors::start(
            running.server.client(),
            &actors::Options {
                speed: args.speed.unwrap_or(1.0),
                seed: args.seed,
                ..actors::Options::default()
            },
            &stop,
        ),
    };
    let kubeconfig = kubeconfig.unwrap_or_else(|| PathBuf::from(KUBECONFIG));
    running
        .server
        .write_kubeconfig(&kubeconfig, running.listener.addr())?;
    // For trying what a user sees who may do less.
    running
        .server
        .write_people(&kubeconfig, running.listener.addr())?;
    say(&format!(
        "serving on https://{}; use it with: gpudeck --kubeconfig {}",
        running.listener.addr(),
        kubeconfig.display()
    ));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    stop.cancel();
    running.listener.stop().await;
    Ok(())
}

/// What is asked for; `None` for an empty cluster.
fn world_of(args: &ServeArgs) -> Result<Option<World>> {
    let scenario = match &args.scenario {
        Some(name) => Scenario::load(name)?,
        None if args.nodes == Some(0) => return Ok(None),
        None => Scenario::plain(),
    };
    let speed = args.speed.or(args.scenario.is_none().then_some(1.0));
    let play = Play {
        seed: args.seed,
        speed,
        nodes: args.nodes.and_then(|nodes| usize::try_from(nodes).ok()),
        time: Time::System,
    };
    Ok(Some(World { scenario, play }))
}

/// Loads the trace into the cluster that the kubeconfig names.
///
/// # Errors
/// A file or row that cannot be used, or a server that refuses.
pub async fn load(args: &LoadArgs, cluster: &ClusterArgs) -> Result<()> {
    let place = Place::connect(cluster, false).await?;
    let client = place.source.client();
    let options = LoadOptions {
        nodes: args.nodes.clone(),
        pods: args.pods.clone(),
        namespace: cluster
            .namespace
            .clone()
            .unwrap_or_else(|| LOAD_NAMESPACE.to_owned()),
    };
    let live = std::io::stderr().is_terminal();
    let summary = openb::load(client, &options, |p| {
        if live {
            // A progress line that cannot be written is no reason to stop loading.
            let _ = write!(std::io::stderr(), "\r{} {}/{}   ", p.what, p.done, p.total);
        }
    })
    .await?;
    if live {
        let _ = writeln!(std::io::stderr());
    }
    say(&summary.to_string());
    Ok(())
}

/// Prints a line; a closed pipe ends nothing.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
