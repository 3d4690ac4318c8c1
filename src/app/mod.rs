//! Wiring: the command line, the configuration file, and the tasks behind each subcommand.

pub mod actors;
pub mod bus;
pub mod cli;
pub mod config;
pub mod config_actions;
pub mod config_docs;
pub mod console;
pub mod doctor;
pub mod embedded;
pub mod engine;
pub mod explain;
pub mod fault;
pub mod keep;
pub mod log;
pub mod place;
pub mod run_action;
pub mod scenario;
pub mod schedule;
pub mod serve;
pub mod simulate;
pub mod simulate_jobs;
pub mod snapshot;
pub mod stepped;
pub mod telemetry;

use std::path::PathBuf;

use clap::Parser;
use color_eyre::eyre::{Result, WrapErr};
use tokio::runtime;
use tokio_util::sync::CancellationToken;

use self::cli::{
    Cli, ClusterArgs, ColorArg, Command, DemoArgs, LookArgs, SandboxCommand, SimulateCommand,
};
use self::config::Config;
use self::console::{Personal, Rights};
use self::embedded::World;
use self::place::Place;
use crate::sandbox::scenario::{Play, Scenario};
use crate::sandbox::{ApiServer, Options, Time};
use crate::tui::theme::Depth;
use crate::tui::{Choices, Settings};

/// Parses the command line and does what it says, on a runtime of its own. Here and not in the
/// binary, which would compile all of it a second time.
///
/// # Errors
/// One sentence for the user.
pub fn run() -> Result<()> {
    crate::cluster::client::install_crypto();
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .wrap_err("no runtime could be started")?;
    // The console runs on this thread: a slow terminal must not hold up a worker.
    let ended = runtime.block_on(asked());
    // A task that hangs on a dead server must not keep the process.
    runtime.shutdown_background();
    ended
}

async fn asked() -> Result<()> {
    let cli = Cli::parse();
    log::start()?;
    match &cli.command {
        Some(Command::Sandbox(args)) => match &args.command {
            Some(SandboxCommand::Load(load)) => serve::load(load, &cli.cluster).await,
            Some(SandboxCommand::Fault(fault)) => fault::run(fault, &cli.cluster).await,
            Some(SandboxCommand::Actors(actors)) => actors::play(actors, &cli.cluster).await,
            None => serve::serve(&args.serve, cli.cluster.kubeconfig.clone()).await,
        },
        Some(Command::Snapshot(args)) => {
            let config = config::load(cli.look.config.as_deref())?;
            let mut place = Place::connect(&cli.cluster, false).await?;
            place.telemetry = config.telemetry.settings();
            place.fabric = config.fabric.rules();
            snapshot::print(&place, args, &cli.look, config.pricing()).await
        }
        Some(Command::Doctor) => doctor::run(&cli).await,
        Some(Command::Simulate(args)) => match &args.command {
            SimulateCommand::Openb(args) => simulate::openb(args),
            SimulateCommand::Churn(args) => simulate::churn(args),
            SimulateCommand::Mig(args) => simulate::mig(args),
            SimulateCommand::Philly(args) => simulate_jobs::philly(args),
            SimulateCommand::Muri(args) => simulate_jobs::muri(args),
            SimulateCommand::Fair(args) => simulate_jobs::sharing(args),
            SimulateCommand::Scenario(args) => scenario::run(args),
        },
        Some(Command::Demo(args)) => demo(&cli, args).await,
        None => {
            let (settings, config) = settings(&cli.look);
            let mut place = Place::connect(&cli.cluster, false).await?;
            place.scheduler = config.scheduler.settings();
            place.telemetry = config.telemetry.settings();
            place.fabric = config.fabric.rules();
            let read_only = cli.read_only || config.read_only.unwrap_or(false);
            let rights = Rights {
                read_only,
                schedule: cli.schedule,
            };
            let pricing = config.pricing();
            let personal = Personal {
                settings,
                pricing,
                keep: keep::file(),
                remembers: true,
            };
            console::open(place, cli.cluster.clone(), rights, personal).await
        }
    }
}

async fn demo(cli: &Cli, args: &DemoArgs) -> Result<()> {
    let scenario = Scenario::load(&args.scenario)?;
    let (settings, config) = settings(&cli.look);
    let server = ApiServer::new(Options {
        seed: args.seed,
        ..Options::default()
    })?;
    let stop = CancellationToken::new();
    let world = World {
        scenario,
        play: Play {
            seed: args.seed,
            speed: args.speed,
            nodes: args.nodes.and_then(|nodes| usize::try_from(nodes).ok()),
            time: Time::System,
        },
    };
    let mut place = Place::embedded(server.client());
    place.scheduler = config.scheduler.settings();
    place.fabric = config.fabric.rules();
    // The console opens at once and shows the fleet as it is written.
    let life = tokio::spawn({
        let (server, stop) = (server.clone(), stop.clone());
        async move {
            match world.start(&server, &stop).await {
                Ok(mut actors) => while actors.join_next().await.is_some() {},
                Err(e) => tracing::error!(error = %e, "the demo's fleet could not be written"),
            }
        }
    });
    #[cfg(debug_assertions)]
    panic_if_asked();
    let rights = Rights {
        read_only: cli.read_only,
        schedule: !cli.read_only,
    };
    let pricing = config.pricing();
    let personal = Personal {
        settings,
        pricing,
        keep: keep::file(),
        remembers: false,
    };
    let ended = console::open(place, ClusterArgs::default(), rights, personal).await;
    stop.cancel();
    life.abort();
    ended
}

/// Keys and looks from flags, then the configuration file, then the environment. What cannot be
/// read is told in the console, which starts all the same.
fn settings(look: &LookArgs) -> (Settings, Config) {
    let (config, note) = match config::load(look.config.as_deref()) {
        Ok(config) => (config, None),
        Err(e) => (
            Config::default(),
            Some(format!("{e}; the defaults are used")),
        ),
    };
    let folder = config::folder();
    let in_folder = |name: &str| folder.as_ref().map(|f| f.join(name));
    let choices = Choices {
        keymap: look
            .keymap
            .clone()
            .or_else(|| config.keymap.clone())
            .map(PathBuf::from)
            .or_else(|| in_folder("keymap.toml")),
        themes: in_folder("themes"),
        theme: look.theme.clone().or_else(|| config.theme.clone()),
        depth: look.color.or(config.color).and_then(depth),
        ascii: look.ascii || config.ascii.unwrap_or(false),
    };
    let mut settings = Settings::load(&choices, |key| std::env::var(key).ok());
    settings.notes.extend(note);
    settings.take_actions(config.actions());
    (settings, config)
}

/// The depth that is asked for; `None` leaves it to the environment.
fn depth(color: ColorArg) -> Option<Depth> {
    match color {
        ColorArg::Auto => None,
        ColorArg::True => Some(Depth::True),
        ColorArg::Indexed => Some(Depth::Ansi256),
        ColorArg::Ansi => Some(Depth::Ansi16),
        ColorArg::Mono => Some(Depth::Mono),
    }
}

/// Panics in a task of a debug build when the environment asks for it: how the terminal is given
/// back then can only be tested from outside with a panic that really happens.
#[cfg(debug_assertions)]
#[allow(clippy::panic)]
fn panic_if_asked() {
    if std::env::var_os("GPUDECK_TEST_PANIC").is_some() {
        tokio::spawn(async {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            std::panic::panic_any("asked for by GPUDECK_TEST_PANIC");
        });
    }
}
