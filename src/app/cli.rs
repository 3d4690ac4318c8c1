//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::simulate::Seeds;
use super::simulate_jobs::{FairArgs, JobsArgs};
use crate::sandbox::span::Span;
use crate::sim::churn::{Lives, Model};
use crate::sim::mig::{MigPolicy, Mix};
use crate::sim::openb::PolicyName;

/// A full-screen terminal console and scheduler for GPU clusters on Kubernetes.
///
/// Without a subcommand the console opens on the current kubeconfig context; `gpudeck demo` opens
/// it on an embedded cluster that needs nothing.
#[derive(Debug, Parser)]
#[command(name = "gpudeck", version, max_term_width = 100)]
pub struct Cli {
    /// How to reach the cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How the console looks.
    #[command(flatten)]
    pub look: LookArgs,
    /// Never write: the code that could is not even set up.
    #[arg(long, global = true)]
    pub read_only: bool,
    /// Let the scheduler in this process bind pods that ask for it (schedulerName: gpudeck); off
    /// by default on a real cluster. Several consoles may: a Lease lets one of them decide.
    #[arg(long)]
    pub schedule: bool,
    /// What to do instead of opening the console.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How to reach the cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArgs {
    /// Kubeconfig file; default: $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: its current one.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Show one namespace only; default: all.
    #[arg(long, short = 'n', global = true, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// How the console looks.
#[derive(Debug, Clone, Default, Args)]
pub struct LookArgs {
    /// Theme: dark, light, high-contrast, ansi16, mono, or a file.
    #[arg(long, global = true, value_name = "NAME|FILE")]
    pub theme: Option<String>,
    /// Keymap: default, or a file.
    #[arg(long, global = true, value_name = "NAME|FILE")]
    pub keymap: Option<String>,
    /// Colours; `auto` follows NO_COLOR, COLORTERM and TERM.
    #[arg(long, global = true, value_enum, value_name = "DEPTH")]
    pub color: Option<ColorArg>,
    /// Draw with ASCII only (by default when the locale is not UTF-8).
    #[arg(long, global = true)]
    pub ascii: bool,
    /// Configuration file; default: gpudeck/config.toml in the user's configuration folder.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Colour depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColorArg {
    /// As the terminal says.
    Auto,
    /// 24 bit.
    True,
    /// 256 colours.
    #[value(name = "256")]
    #[serde(rename = "256")]
    Indexed,
    /// 16 colours.
    #[value(name = "16")]
    #[serde(rename = "16")]
    Ansi,
    /// None.
    Mono,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Open the console on an embedded cluster that lives (no Kubernetes and no GPU needed).
    Demo(DemoArgs),
    /// Serve the embedded cluster on loopback (--kubeconfig names the file that is written when it
    /// is ready), or fill a cluster with data.
    Sandbox(SandboxArgs),
    /// Print a view's figures and rows once and exit.
    Snapshot(SnapshotArgs),
    /// Check files, terminal, connection, rights and what the cluster has; each with what to do.
    Doctor,
    /// Run the scheduler's policies on public traces and print how well they do; no cluster needed.
    Simulate(SimulateArgs),
}

/// Arguments of `gpudeck simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Which experiment.
    #[command(subcommand)]
    pub command: SimulateCommand,
}

/// Experiments.
#[derive(Debug, Subcommand)]
pub enum SimulateCommand {
    /// The published openb experiment: fill 6,212 GPUs with a production cluster's pods.
    Openb(OpenbArgs),
    /// A living cluster: the same pods arrive as a Poisson stream and leave again.
    Churn(ChurnArgs),
    /// Slices of MIG GPUs whose idle slices can be cut in place.
    Mig(MigArgs),
    /// Training jobs of Microsoft's Philly clusters: who goes first, who is interrupted.
    Philly(JobsArgs),
    /// The same on the 400 jobs of Muri's testbed.
    Muri(JobsArgs),
    /// Tenants of the Philly jobs on one pool, against each alone on its quota.
    Fair(FairArgs),
    /// Small situations with an expected outcome: does the scheduler keep its rules?
    Scenario(ScenarioArgs),
}

/// Arguments of `gpudeck simulate scenario`.
#[derive(Debug, Clone, Args)]
pub struct ScenarioArgs {
    /// JSON files, each a list of cases in the neutral form (tests/scenarios/README.md).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// In which form.
    #[arg(long, short, value_enum, default_value_t = ScenarioOutput::Table)]
    pub output: ScenarioOutput,
}

/// Forms of the result of scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScenarioOutput {
    /// What did not go as expected, and counts.
    Table,
    /// JSON: each case with its verdict and outcome.
    Json,
}

/// Arguments of `gpudeck simulate mig`.
#[derive(Debug, Clone, Args)]
pub struct MigArgs {
    /// Fill the GPUs, or let slices come and go at a load: what fits nowhere is lost or waits.
    #[arg(long, value_enum, default_value_t = MigExperiment::Loss)]
    pub experiment: MigExperiment,
    /// GPUs.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub gpus: u16,
    /// Share of the arrivals of each profile, from 1g to the whole GPU; for the 8-slice models 1g,
    /// 1g with double memory, 2g, 3g, 4g, 7g. Several mixes are parted by semicolons.
    #[arg(
        long,
        value_name = "SHARE,...;...",
        value_delimiter = ';',
        default_value = "35,8,22,15,8,12"
    )]
    pub mix: Vec<Mix>,
    /// Loads, but for a fill; 1 asks for all GPUs when packed without loss.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0.9,1", value_parser = mig_load)]
    pub loads: Vec<f64>,
    /// Seeds of the arrivals.
    #[arg(long, value_name = "N-M", default_value = "1-5")]
    pub seeds: Seeds,
    /// Policies to compare.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "ours,mfi,fgd,bestfit,firstfit,random"
    )]
    pub policy: Vec<MigPolicy>,
    /// In which form.
    #[command(flatten)]
    pub form: FormArgs,
}

/// Experiments with MIG slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MigExperiment {
    /// Nothing leaves.
    Fill,
    /// A Poisson stream; what fits nowhere is lost.
    Loss,
    /// The same stream; what fits nowhere waits.
    Queue,
    /// The loss model with a mix that turns around every six mean durations, and nobody tells.
    Drift,
}

/// Arguments of `gpudeck simulate churn`.
#[derive(Debug, Clone, Args)]
pub struct ChurnArgs {
    /// Whose pods.
    #[command(flatten)]
    pub trace: TraceArgs,
    /// What becomes of a pod that fits nowhere: it is lost, or it waits (queue).
    #[arg(long, value_name = "loss|queue", default_value = "loss")]
    pub model: Model,
    /// How long pods run: exponential times, or the list's own.
    #[arg(
        long,
        value_name = "exp|own,...",
        value_delimiter = ',',
        default_value = "exp,own"
    )]
    pub lives: Vec<Lives>,
    /// Loads in percent of the GPUs.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "90,100,110", value_parser = load)]
    pub loads: Vec<f64>,
    /// Seeds of the streams.
    #[arg(long, value_name = "N-M", default_value = "1-3")]
    pub seeds: Seeds,
    /// Policies to compare.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "ours-online,fgd,bestfit"
    )]
    pub policy: Vec<PolicyName>,
    /// Move at most N others to make room for a pod that fits nowhere; each move loses 60 s of its
    /// pod's work.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=64))]
    pub moves: u8,
    /// Move others only for pods with at least N GPUs.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub moves_from_gpus: u8,
    /// Take every Nth node of the fleet.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
    /// Pods that are measured in a run, after a warm-up of a quarter as many.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub arrivals: u64,
    /// In which form.
    #[command(flatten)]
    pub form: FormArgs,
}

/// Arguments of `gpudeck simulate openb`.
#[derive(Debug, Clone, Args)]
pub struct OpenbArgs {
    /// Whose pods.
    #[command(flatten)]
    pub trace: TraceArgs,
    /// Seeds of the published arrival orders.
    #[arg(long, value_name = "N-M", default_value = "42-46")]
    pub seeds: Seeds,
    /// Policies to compare.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "ours,fgd"
    )]
    pub policy: Vec<PolicyName>,
    /// In which form.
    #[command(flatten)]
    pub form: FormArgs,
}

/// The published pods that an experiment takes.
#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    /// Folder with nodes_gpu.csv.gz and, for each list, pods_LIST.csv.gz, order_LIST.txt.gz and
    /// noderank_LIST.txt.gz; without it the default list that ships with gpudeck.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Lists of pods: their names, or `all`.
    #[arg(
        long,
        visible_alias = "list",
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "default"
    )]
    pub lists: Vec<String>,
}

/// The form of an experiment's result.
#[derive(Debug, Clone, Args)]
pub struct FormArgs {
    /// In which form.
    #[arg(long, short, value_enum, default_value_t = SimulateOutput::Table)]
    pub output: SimulateOutput,
}

/// Forms of an experiment's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimulateOutput {
    /// Aligned text: means over the seeds.
    Table,
    /// JSON: every run, and means.
    Json,
    /// A line a run.
    Csv,
}

/// Arguments of `gpudeck demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Seed of everything random: the same seed gives the same fleet and the same arrivals.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// What is shown: tour, quiet, spot-storm, mig-wedge, xid-79, gang-deadlock, fragmented,
    /// foreign, big, or a file (docs/scenarios.md).
    #[arg(long, default_value = "tour", value_name = "NAME|FILE")]
    pub scenario: String,
    /// How much faster than real time work runs; default: as the scenario says.
    #[arg(long, value_parser = speed)]
    pub speed: Option<f64>,
    /// Nodes of the fleet; default: as the scenario says.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub nodes: Option<u32>,
}

/// Arguments of `gpudeck sandbox`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SandboxArgs {
    /// What to do; without it the embedded cluster is served.
    #[command(subcommand)]
    pub command: Option<SandboxCommand>,
    /// How it is served.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// How the embedded cluster is served.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Loopback address to serve on; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
    /// Seed of everything random.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// What lives in it: a scenario as `gpudeck demo` has it, by name or file; default: a fleet of
    /// 72 nodes under load.
    #[arg(long, value_name = "NAME|FILE")]
    pub scenario: Option<String>,
    /// How much faster than real time work runs; default: 1, or as the scenario says.
    #[arg(long, value_parser = speed)]
    pub speed: Option<f64>,
    /// Nodes of the fleet; 0 serves an empty cluster without actors' load.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=5_000))]
    pub nodes: Option<u32>,
    /// Write an audit log in the form of kube-apiserver's (level Metadata).
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
}

/// Subcommands of `gpudeck sandbox`.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Write the published inventory of a production cluster (openb trace) into the cluster that
    /// the kubeconfig names.
    Load(LoadArgs),
    /// Let the API server of a running `gpudeck sandbox` fail for a while, or list or end its
    /// faults.
    Fault(FaultArgs),
    /// Let a cluster live: play kubelets and a GPU world against the API server that the kubeconfig
    /// names, until interrupted. Only nodes annotated `sandbox.gpudeck.dev/kubelet: simulated` are
    /// touched.
    Actors(ActorsArgs),
}

/// Arguments of `gpudeck sandbox fault`.
#[derive(Debug, Clone, Args)]
pub struct FaultArgs {
    /// What goes wrong; or `list`, or `clear`.
    #[arg(value_enum, value_name = "WHAT")]
    pub what: FaultWhat,
    /// For how long, as 30s or 2m; default: until cleared, or once.
    #[arg(long = "for", value_name = "TIME")]
    pub lasts: Option<Span>,
    /// latency: how long each request waits (1s).
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Span>,
    /// too-many-requests: what clients are asked to wait (1s).
    #[arg(long, value_name = "TIME")]
    pub retry_after: Option<Span>,
    /// restart: let watches go on where they were.
    #[arg(long)]
    pub keep_history: bool,
    /// clock-skew: how much the server's clock is ahead.
    #[arg(long, value_name = "TIME")]
    pub ahead: Option<Span>,
    /// clock-skew: how much it is behind.
    #[arg(long, value_name = "TIME")]
    pub behind: Option<Span>,
    /// How many of a hundred requests it meets.
    #[arg(long, value_name = "N")]
    pub percent: Option<u8>,
    /// Only these verbs: get, list, watch, create, update, patch, delete, deletecollection.
    #[arg(long, value_name = "VERB,...", value_delimiter = ',')]
    pub verbs: Vec<String>,
    /// Only these kinds, as pods,nodes.
    #[arg(long, value_name = "PLURAL,...", value_delimiter = ',')]
    pub resources: Vec<String>,
}

/// What `gpudeck sandbox fault` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FaultWhat {
    /// Every request waits.
    Latency,
    /// Open watches break.
    DropWatches,
    /// Open watches fall silent.
    SilentWatches,
    /// The history is gone: 410.
    Gone,
    /// 429 with Retry-After.
    TooManyRequests,
    /// 409 for changes.
    Conflict,
    /// 500.
    InternalError,
    /// All connections break, and none is taken for a while.
    Restart,
    /// The server's clock is wrong.
    ClockSkew,
    /// List what is in force.
    List,
    /// End all faults.
    Clear,
}

/// Arguments of `gpudeck sandbox actors`.
#[derive(Debug, Clone, Args)]
pub struct ActorsArgs {
    /// First write a fleet of N simulated nodes, with namespaces and priority classes, unless they
    /// are there.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=5_000))]
    pub nodes: u32,
    /// What happens in the cluster.
    #[arg(
        long,
        value_enum,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "training"
    )]
    pub with: Vec<ActorName>,
    /// Also play kube-controller-manager: Jobs, Deployments, taints and evictions of nodes. Never
    /// beside a real one.
    #[arg(long)]
    pub controllers: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// How much faster than real time work runs.
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
}

/// Parts of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ActorName {
    /// Training pods save checkpoints and go on from them (annotations sandbox.gpudeck.dev/…).
    Training,
    /// Teams submit Jobs and services (schedulerName: gpudeck).
    Load,
    /// Nodes fail and return.
    Failures,
    /// Spot nodes are reclaimed with their provider's notice, and replaced.
    Spot,
    /// Prices of GPU-hours stand on the nodes and move.
    Prices,
    /// Network labels of topograph.
    Network,
    /// Machines of 8 H100 come for pods that fit nowhere, and go when empty.
    Autoscaler,
    /// Kueue: its kinds, flavors by tier and a queue for each team; it admits Jobs with its label.
    Kueue,
    /// Volcano: its kinds and a queue for each team; it binds pods with schedulerName volcano.
    Volcano,
    /// KAI: its kinds and a queue for each team; it binds pods with schedulerName kai-scheduler.
    Kai,
    /// Bind the pods of default-scheduler; never beside a real kube-scheduler.
    DefaultScheduler,
}

/// Arguments of `gpudeck sandbox load`.
#[derive(Debug, Clone, Args)]
pub struct LoadArgs {
    /// Nodes, e.g. traces/openb/nodes_gpu.csv.gz.
    #[arg(long, value_name = "FILE")]
    pub nodes: PathBuf,
    /// Pods, e.g. traces/openb/pods_default.csv.gz.
    #[arg(long, value_name = "FILE")]
    pub pods: PathBuf,
}

/// Arguments of `gpudeck snapshot`.
#[derive(Debug, Clone, Args)]
pub struct SnapshotArgs {
    /// Which view.
    #[arg(long, value_enum, default_value_t = SnapshotView::Fleet)]
    pub view: SnapshotView,
    /// In which form.
    #[arg(long, short, value_enum, default_value_t = SnapshotOutput::Text)]
    pub output: SnapshotOutput,
    /// Only rows that pass this filter, as the console's `/` takes it (model=h100 free>0).
    #[arg(long, default_value = "", value_name = "FILTER")]
    pub filter: String,
    /// Lens of a picture of the fleet, by its name (SM active).
    #[arg(long, value_name = "NAME")]
    pub lens: Option<String>,
    /// Size of the screen of a picture, in columns and rows.
    #[arg(long, default_value = "120x40", value_name = "COLUMNSxROWS", value_parser = size)]
    pub size: (u16, u16),
    /// How long to wait for the cluster's lists, in seconds.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub timeout: u64,
}

/// Views that can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SnapshotView {
    /// Figures and models.
    Fleet,
    /// A row a node.
    Nodes,
    /// A row a part of the network.
    Topology,
    /// A row a queue of any system.
    Queues,
    /// A row a workload.
    Jobs,
    /// A row an event.
    Timeline,
    /// A row a tier of capacity.
    Tiers,
}

/// Forms of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SnapshotOutput {
    /// Aligned text.
    Text,
    /// JSON.
    Json,
    /// Rows as CSV.
    Csv,
    /// The screen as a picture of lines and letters.
    Svg,
    /// The screen as a picture of pixels; send it to a file.
    Png,
}

/// Reads `--size`.
fn size(text: &str) -> Result<(u16, u16), String> {
    let parts = text
        .split_once('x')
        .and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    parts
        .filter(|(w, h)| (20..=500).contains(w) && (5..=300).contains(h))
        .ok_or_else(|| "columns (20 to 500) and rows (5 to 300) are needed, as 120x40".to_owned())
}

/// Reads `--loads`.
fn load(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && (1.0..=1_000.0).contains(&n) => Ok(n),
        _ => Err("a number from 1 to 1000 is needed".to_owned()),
    }
}

/// Reads `--loads` of `simulate mig`.
fn mig_load(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && (0.01..=10.0).contains(&n) => Ok(n),
        _ => Err("a number from 0.01 to 10 is needed".to_owned()),
    }
}

/// Reads `--speed`.
fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && (0.1..=1_000.0).contains(&n) => Ok(n),
        _ => Err("a number from 0.1 to 1000 is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bad_speed_says_what_is_right() {
        let err = Cli::try_parse_from(["gpudeck", "demo", "--speed", "NaN"])
            .unwrap_err()
            .to_string();
        assert!(err.contains("0.1 to 1000"), "{err}");
    }
}
