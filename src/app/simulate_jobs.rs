//! `gpudeck simulate philly|muri|fair`: whole training jobs on public traces.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;

use super::cli::{FormArgs, SimulateOutput};
use super::simulate::{Progress, each_once, print};
use crate::sim::jobs::{
    JobsReport, JobsRow, Policy, Setting, Sharing, Trace, fair, read_muri, read_philly,
    read_tenants, run,
};

/// GPUs of a node in both traces.
const GPUS_PER_NODE: u32 = 8;

/// Arguments of `gpudeck simulate philly` and `muri`.
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Folder with the traces: philly_jobs.csv.gz, muri_testbed_jobs.csv.gz, philly_vc_nodes.csv.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Sizes of the pool, in nodes of 8 GPUs; without it 64, 80 and 96 for philly, 8 for muri.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub nodes: Vec<u32>,
    /// Orders to compare; those marked * in the table know durations.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "fifo-strict,fifo-greedy,easy,sjf,srtf,las,gangless,ours"
    )]
    pub policy: Vec<Policy>,
    /// What an interruption costs.
    #[command(flatten)]
    pub cost: CostArgs,
    /// Seed of the pods' arrival where they come one by one.
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// In which form.
    #[command(flatten)]
    pub form: FormArgs,
}

/// What an interruption costs.
#[derive(Debug, Clone, Args)]
pub struct CostArgs {
    /// Seconds of a checkpoint and a restart that an interrupted job pays.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub restart: f64,
}

/// Arguments of `gpudeck simulate fair`.
#[derive(Debug, Clone, Args)]
pub struct FairArgs {
    /// Folder with philly_jobs.csv.gz and philly_vc_nodes.csv.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Sizes of the pool, in nodes of 8 GPUs.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64,96", value_parser = clap::value_parser!(u32).range(11..=8192))]
    pub nodes: Vec<u32>,
    /// Ways to share the pool.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "static,fifo,quota,ours"
    )]
    pub sharing: Vec<Sharing>,
    /// What an interruption costs.
    #[command(flatten)]
    pub cost: CostArgs,
    /// In which form.
    #[command(flatten)]
    pub form: FormArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    let most = 86_400.0;
    match text.parse::<f64>() {
        Ok(s) if (0.0..=most).contains(&s) => Ok(s),
        _ => Err(format!("{text:?} is no time; 0 to {most} seconds are")),
    }
}

/// Compares orders on Microsoft's Philly jobs.
///
/// # Errors
/// A file is missing or makes no sense, a job is larger than the pool, standard output is closed.
pub fn philly(args: &JobsArgs) -> Result<()> {
    jobs("philly", &read_philly(&args.data)?, args, &[64, 80, 96])
}

/// Compares orders on the jobs of Muri's testbed.
///
/// # Errors
/// As of [`philly`].
pub fn muri(args: &JobsArgs) -> Result<()> {
    jobs("muri", &read_muri(&args.data)?, args, &[8])
}

fn jobs(name: &'static str, trace: &Trace, args: &JobsArgs, usual: &[u32]) -> Result<()> {
    let pools = if args.nodes.is_empty() {
        usual.to_vec()
    } else {
        each_once(&args.nodes)
    };
    let policies = each_once(&args.policy);
    let mut progress = Progress::new(pools.len() * policies.len());
    let mut report = JobsReport::default();
    for nodes in pools {
        for policy in &policies {
            progress.show(&format!("{name} {policy} on {nodes} nodes"));
            let setting = Setting {
                nodes,
                gpus_per_node: GPUS_PER_NODE,
                policy: *policy,
                restart_s: args.cost.restart,
                seed: args.seed,
            };
            let outcome = run(trace, setting).inspect_err(|_| progress.clear())?;
            progress.run_done();
            report.rows.push(JobsRow {
                trace: name,
                gpus: nodes * GPUS_PER_NODE,
                offered_load: offered_load(trace, nodes * GPUS_PER_NODE),
                policy: *policy,
                oracle: policy.is_oracle(),
                outcome,
            });
        }
    }
    progress.clear();
    show(&report, args.form.output)
}

fn offered_load(trace: &Trace, gpus: u32) -> f64 {
    let ends = trace.jobs.first().zip(trace.jobs.last());
    let span_s = ends.map_or(0.0, |(first, last)| last.submit_s - first.submit_s);
    trace.gpu_seconds() / (f64::from(gpus) * span_s.max(1.0))
}

/// Compares ways to share a pool among the tenants of the Philly jobs.
///
/// # Errors
/// As of [`philly`].
pub fn sharing(args: &FairArgs) -> Result<()> {
    let trace = read_philly(&args.data)?;
    let sizes: BTreeMap<String, u32> = read_tenants(&args.data)?;
    let (pools, ways) = (each_once(&args.nodes), each_once(&args.sharing));
    let mut progress = Progress::new(pools.len() * ways.len());
    let mut report = JobsReport::default();
    for nodes in pools {
        for way in &ways {
            progress.show(&format!("{way} on {nodes} nodes"));
            let row = fair(
                &trace,
                &sizes,
                nodes,
                GPUS_PER_NODE,
                *way,
                args.cost.restart,
            );
            report.sharing.push(row.inspect_err(|_| progress.clear())?);
            progress.run_done();
        }
    }
    progress.clear();
    show(&report, args.form.output)
}

fn show(report: &JobsReport, output: SimulateOutput) -> Result<()> {
    print(&match output {
        SimulateOutput::Table => report.table(),
        SimulateOutput::Json => serde_json::to_string_pretty(report)? + "\n",
        SimulateOutput::Csv => report.csv(),
    })
}
