//! `gpudeck simulate`: experiments on public traces.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use color_eyre::eyre::{Result, eyre};

use super::cli::{ChurnArgs, MigArgs, MigExperiment, OpenbArgs, SimulateOutput};
use crate::sched::mig::A100_80;
use crate::sim::churn::{self, ChurnReport, Experiment, Moving, Setting, Stream};
use crate::sim::mig::{self, MigReport};
use crate::sim::openb::{Report, Source, Trace, replay};

/// The most seeds at once.
const MOST_SEEDS: u64 = 1_000;
/// Arrivals between two updates of the progress line.
const PROGRESS_EVERY: u64 = 2_000;

/// Seeds, as `42-46`, `42,44` or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds(Vec<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut seeds = Vec::new();
        for part in text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (Ok(from), Ok(to)) = (from.trim().parse::<u64>(), to.trim().parse::<u64>()) else {
                return Err(format!(
                    "{part:?} is no seed; numbers and ranges such as 42-46 are"
                ));
            };
            if from > to {
                return Err(format!("{part:?} goes backwards"));
            }
            if to - from >= MOST_SEEDS || seeds.len() as u64 > MOST_SEEDS {
                return Err(format!("more than {MOST_SEEDS} seeds"));
            }
            seeds.extend(
                (from..=to)
                    .filter(|seed| !seeds.contains(seed))
                    .collect::<Vec<_>>(),
            );
        }
        Ok(Self(seeds))
    }
}

/// Runs the openb experiment and prints its figures.
///
/// # Errors
/// A list, file or seed is not there or makes no sense; standard output is closed.
pub fn openb(args: &OpenbArgs) -> Result<()> {
    let source = source(args.trace.data.as_ref());
    let lists = lists(&source, &args.trace.lists)?;
    let policies = each_once(&args.policy);
    let mut report = Report::default();
    let mut progress = Progress::new(lists.len() * policies.len() * args.seeds.0.len());
    for list in &lists {
        let trace = Trace::read(&source, list)?;
        for policy in &policies {
            for seed in &args.seeds.0 {
                let name = format!("{list} {policy} seed {seed}");
                let started = Instant::now();
                let curve = replay(&trace, *policy, *seed, |arrival| {
                    if arrival % PROGRESS_EVERY == 1 {
                        progress.show(&format!("{name}: {arrival} pods"));
                    }
                });
                progress.run_done();
                let curve = curve.inspect_err(|_| progress.clear())?;
                report.add(
                    list,
                    *policy,
                    *seed,
                    &curve,
                    started.elapsed().as_secs_f64(),
                );
            }
        }
    }
    progress.clear();
    let text = match args.form.output {
        SimulateOutput::Table => report.table(),
        SimulateOutput::Json => serde_json::to_string_pretty(&report)? + "\n",
        SimulateOutput::Csv => report.csv(),
    };
    print(&text)
}

/// Runs the churn experiment and prints its figures.
///
/// # Errors
/// A list or file is not there or makes no sense; standard output is closed.
pub fn churn(args: &ChurnArgs) -> Result<()> {
    let source = source(args.trace.data.as_ref());
    let lists = lists(&source, &args.trace.lists)?;
    let (policies, lives) = (each_once(&args.policy), each_once(&args.lives));
    let loads = each_once(&args.loads);
    let seeds = &args.seeds.0;
    let moving = Moving {
        most: usize::from(args.moves),
        from_gpus: args.moves_from_gpus,
    };
    let default = Trace::read(&source, "default")?;
    let mut report = ChurnReport::default();
    let runs = lists.len() * policies.len() * lives.len() * loads.len() * seeds.len();
    let mut progress = Progress::new(runs);
    for list in &lists {
        let trace = Trace::read(&source, list)?;
        let fleet = trace.thinned_fleet(usize::try_from(args.every)?);
        let (nodes, capacity) = (fleet.rows().len(), fleet.free_milli_gpu());
        for lives in &lives {
            for load in &loads {
                for policy in &policies {
                    let setting = Setting {
                        list: list.clone(),
                        lives: lives.name(),
                        load: *load,
                        model: args.model.name(),
                        policy: policy.name(),
                    };
                    let experiment = Experiment {
                        policy: *policy,
                        model: args.model,
                        moving,
                        measured: args.arrivals,
                    };
                    for seed in seeds {
                        let stream = Stream::new(&trace, &default, *lives, *load, capacity, *seed);
                        let name = format!("{list} {lives} {load} % {policy} seed {seed}");
                        let outcome = churn::run(
                            fleet.clone(),
                            stream,
                            policy.build(&trace, nodes, *seed),
                            &experiment,
                            &mut |arrival| {
                                if arrival % PROGRESS_EVERY == 1 {
                                    progress.show(&format!("{name}: {arrival} pods"));
                                }
                            },
                        );
                        progress.run_done();
                        report.add(&setting, *seed, &outcome);
                    }
                }
            }
        }
    }
    progress.clear();
    print(&match args.form.output {
        SimulateOutput::Table => report.table(),
        SimulateOutput::Json => serde_json::to_string_pretty(&report)? + "\n",
        SimulateOutput::Csv => report.csv(),
    })
}

/// Runs an experiment with MIG slices and prints its figures.
///
/// # Errors
/// The mix has not a share for each profile; standard output is closed.
pub fn mig(args: &MigArgs) -> Result<()> {
    let experiments: Vec<mig::Experiment> = match args.experiment {
        MigExperiment::Fill => vec![mig::Experiment::Fill],
        MigExperiment::Loss => at_loads(&args.loads, mig::Experiment::Loss),
        MigExperiment::Queue => at_loads(&args.loads, mig::Experiment::Queue),
        MigExperiment::Drift => at_loads(&args.loads, mig::Experiment::Drift),
    };
    let policies = each_once(&args.policy);
    let mut report = MigReport::default();
    let runs = args.mix.len() * experiments.len() * policies.len() * args.seeds.0.len();
    let mut progress = Progress::new(runs);
    for (mix, experiment) in args
        .mix
        .iter()
        .flat_map(|mix| experiments.iter().map(move |e| (mix, *e)))
    {
        for policy in &policies {
            for seed in &args.seeds.0 {
                progress.show(&format!("{mix} {policy} seed {seed}"));
                let gpus = usize::from(args.gpus);
                let row = mig::run(&A100_80, gpus, mix, experiment, *policy, *seed);
                progress.run_done();
                report.add(
                    row.inspect_err(|_| progress.clear())
                        .map_err(|e| eyre!(e))?,
                );
            }
        }
    }
    report.finish();
    progress.clear();
    print(&match args.form.output {
        SimulateOutput::Table => report.table(),
        SimulateOutput::Json => serde_json::to_string_pretty(&report)? + "\n",
        SimulateOutput::Csv => report.csv(),
    })
}

fn at_loads(loads: &[f64], kind: fn(f64) -> mig::Experiment) -> Vec<mig::Experiment> {
    each_once(loads).into_iter().map(kind).collect()
}

fn source(data: Option<&PathBuf>) -> Source {
    data.map_or(Source::BuiltIn, |folder| Source::Folder(folder.clone()))
}

pub(super) fn each_once<T: Copy + PartialEq>(named: &[T]) -> Vec<T> {
    let mut once: Vec<T> = Vec::new();
    for item in named {
        if !once.contains(item) {
            once.push(*item);
        }
    }
    once
}

pub(super) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The lists that are meant, each once.
fn lists(source: &Source, named: &[String]) -> Result<Vec<String>> {
    let mut lists: Vec<String> = Vec::new();
    for name in named {
        let meant = if name == "all" {
            source.lists().into_iter().map(str::to_owned).collect()
        } else {
            vec![name.clone()]
        };
        for list in meant {
            if !lists.contains(&list) {
                lists.push(list);
            }
        }
    }
    if lists.is_empty() {
        return Err(eyre!(
            "no list has an order_LIST.txt.gz there; --data names the folder with the openb files"
        ));
    }
    Ok(lists)
}

/// A line on a terminal that says how far it is.
pub(super) struct Progress {
    shown: bool,
    done: usize,
    total: usize,
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        Self {
            shown: std::io::stderr().is_terminal(),
            done: 0,
            total,
        }
    }

    pub(super) fn run_done(&mut self) {
        self.done += 1;
    }

    pub(super) fn show(&self, what: &str) {
        self.write(&format!("\r\x1b[K{}/{} {what}", self.done + 1, self.total));
    }

    pub(super) fn clear(&self) {
        self.write("\r\x1b[K");
    }

    fn write(&self, text: &str) {
        if self.shown {
            let mut err = std::io::stderr().lock();
            // Nothing can be done about a closed standard error.
            let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn seeds_are_numbers_and_ranges() {
        assert_eq!("42-44".parse(), Ok(Seeds(vec![42, 43, 44])));
        assert_eq!("42,45-46,42".parse(), Ok(Seeds(vec![42, 45, 46])));
        let wrong = |text: &str| text.parse::<Seeds>().unwrap_err();
        assert!(wrong("x").contains("42-46"));
        assert!(wrong("46-42").contains("backwards"));
        assert!(wrong("0-18446744073709551615").contains("more than 1000"));
    }

    #[test]
    fn a_list_that_is_not_there_is_named() {
        let err = Trace::read(&Source::BuiltIn, "cpu050")
            .unwrap_err()
            .to_string();
        assert!(
            err.contains("\"cpu050\"") && err.contains("--data"),
            "{err}"
        );
    }
}
