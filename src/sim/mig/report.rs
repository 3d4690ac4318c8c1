//! Figures of many runs, as table, JSON and CSV.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::policy::MigPolicy;
use super::run::{MigRow, Mix};

/// By how much ours allocates more, paired by seed, in points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ahead {
    /// Mean over the seeds.
    pub mean: f64,
    /// Its standard error; absent for one seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se: Option<f64>,
}

impl Ahead {
    /// Of the differences, one a seed; `None` of none.
    fn of(differences: &[f64]) -> Option<Self> {
        let count = differences.len() as f64;
        let mean = average(differences.iter().copied())?;
        let squares: f64 = differences.iter().map(|d| (d - mean).powi(2)).sum();
        Some(Self {
            mean,
            se: (count > 1.0).then(|| (squares / (count - 1.0) / count).sqrt()),
        })
    }

    /// Ours is ahead, or behind by one standard error at most.
    fn is_level(self) -> bool {
        self.mean + self.se.unwrap_or(0.0) >= 0.0
    }

    fn shown(self) -> String {
        let se = self.se.map_or(String::new(), |se| format!(" ± {se:.2}"));
        format!("{:+.2}{se}", self.mean)
    }
}

/// The mean over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigMean {
    /// `fill`, `loss`, `queue` or `drift`.
    pub experiment: &'static str,
    /// Shares of the arrivals.
    pub mix: Mix,
    /// Load; absent in a fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// The policy.
    pub policy: &'static str,
    /// As in a row.
    pub alloc_pct: Vec<f64>,
    /// What ours has more of each; empty for ours, and where it did not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ours_ahead: Vec<Ahead>,
    /// As in a row.
    pub rejected_pct: f64,
    /// As in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<f64>,
    /// As in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_whole: Option<f64>,
}

/// How ours stands beside one policy over several mixes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverMixes {
    /// Load; absent in a fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// The other policy.
    pub policy: &'static str,
    /// What ours has more of each figure in the mean of the mixes, paired by seed.
    pub ours_ahead: Vec<Ahead>,
    /// Mixes and figures in which ours is ahead, or behind by one standard error at most.
    pub level_or_ahead: usize,
    /// All of them.
    pub of: usize,
}

/// All runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MigReport {
    /// A row a run.
    pub rows: Vec<MigRow>,
    /// A row a mix, load and policy.
    pub means: Vec<MigMean>,
    /// A row a load and policy other than ours; only of several mixes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_mixes: Vec<OverMixes>,
}

/// What runs are compared in: a mix and a load.
type Cell<'a> = (&'a Mix, Option<f64>);

fn cell(row: &MigRow) -> Cell<'_> {
    (&row.mix, row.load)
}

impl MigReport {
    /// Takes in a run.
    pub fn add(&mut self, row: MigRow) {
        self.rows.push(row);
    }

    /// Makes the means, once all runs are there.
    pub fn finish(&mut self) {
        self.means.clear();
        let mut seen: Vec<(Cell<'_>, &'static str)> = Vec::new();
        for row in &self.rows {
            let key = (cell(row), row.policy);
            if !seen.contains(&key) {
                seen.push(key);
            }
        }
        let means = seen
            .iter()
            .map(|(cell, policy)| self.mean(*cell, policy))
            .collect();
        self.means = means;
        let mut mixes: Vec<&Mix> = Vec::new();
        let mut pairs: Vec<(Option<f64>, &'static str)> = Vec::new();
        for ((mix, load), policy) in seen {
            if !mixes.contains(&mix) {
                mixes.push(mix);
            }
            if !pairs.contains(&(load, policy)) {
                pairs.push((load, policy));
            }
        }
        let over = match mixes.len() {
            0 | 1 => Vec::new(),
            _ => pairs
                .into_iter()
                .filter_map(|(load, policy)| self.over(&mixes, load, policy))
                .collect(),
        };
        self.over_mixes = over;
    }

    fn of<'a>(&'a self, at: Cell<'a>, policy: &'a str) -> impl Iterator<Item = &'a MigRow> + Clone {
        let rows = self.rows.iter();
        rows.filter(move |row| cell(row) == at && row.policy == policy)
    }

    /// By seed, what ours allocates more than a policy, figure by figure.
    fn differences(&self, at: Cell<'_>, policy: &str) -> BTreeMap<u64, Vec<f64>> {
        let ours = MigPolicy::Ours.name();
        if policy == ours {
            return BTreeMap::new();
        }
        let pair = |row: &MigRow| {
            let ours = self.of(at, ours).find(|o| o.seed == row.seed)?;
            let pairs = ours.alloc_pct.iter().zip(&row.alloc_pct);
            Some((row.seed, pairs.map(|(a, b)| a - b).collect()))
        };
        self.of(at, policy).filter_map(pair).collect()
    }

    fn mean(&self, at: Cell<'_>, policy: &'static str) -> MigMean {
        let rows = self.of(at, policy);
        let figure = |number: usize| {
            average(
                rows.clone()
                    .filter_map(|row| row.alloc_pct.get(number).copied()),
            )
        };
        MigMean {
            experiment: rows.clone().next().map_or("", |row| row.experiment),
            mix: at.0.clone(),
            load: at.1,
            policy,
            alloc_pct: (0..).map_while(figure).collect(),
            ours_ahead: ahead(
                &self
                    .differences(at, policy)
                    .into_values()
                    .collect::<Vec<_>>(),
            ),
            rejected_pct: average(rows.clone().map(|row| row.rejected_pct)).unwrap_or(0.0),
            wait: average(rows.clone().filter_map(|row| row.wait)),
            wait_whole: average(rows.clone().filter_map(|row| row.wait_whole)),
        }
    }

    fn over(&self, mixes: &[&Mix], load: Option<f64>, policy: &'static str) -> Option<OverMixes> {
        let of_mixes: Vec<BTreeMap<u64, Vec<f64>>> = mixes
            .iter()
            .map(|mix| self.differences((*mix, load), policy))
            .collect();
        let first = of_mixes.first()?;
        // A seed's differences in the mean of the mixes, as far as it ran in all.
        let mean = |seed: &u64| -> Option<Vec<f64>> {
            let all: Option<Vec<&Vec<f64>>> = of_mixes.iter().map(|d| d.get(seed)).collect();
            let all = all?;
            let figure = |number: usize| average(all.iter().filter_map(|d| d.get(number).copied()));
            Some((0..).map_while(figure).collect())
        };
        let by_seed: Vec<Vec<f64>> = first.keys().filter_map(mean).collect();
        let ours_ahead = ahead(&by_seed);
        if ours_ahead.is_empty() {
            return None;
        }
        let cells = self
            .means
            .iter()
            .filter(|m| m.load == load && m.policy == policy)
            .flat_map(|m| &m.ours_ahead);
        Some(OverMixes {
            load,
            policy,
            ours_ahead,
            level_or_ahead: cells.clone().filter(|a| a.is_level()).count(),
            of: cells.count(),
        })
    }

    /// Aligned text: means over the seeds, with what ours allocates more, paired by seed, and the
    /// standard error of that. A fill has its allocation at 100 and at 130 %; waits are in mean
    /// durations.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<18} {:<10} {:>4} {:<8} {:>13} {:>27} {:>6} {:>6} {:>9}\n",
            "MIX",
            "EXPERIMENT",
            "LOAD",
            "POLICY",
            "ALLOC %",
            "OURS AHEAD",
            "LOST %",
            "WAIT",
            "WHOLE GPU"
        );
        let load_of = |load: Option<f64>| load.map_or(String::new(), |load| load.to_string());
        for mean in &self.means {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<18} {:<10} {:>4} {:<8} {:>13} {:>27} {:>6.2} {:>6} {:>9}",
                mean.mix.to_string(),
                mean.experiment,
                load_of(mean.load),
                mean.policy,
                joined(&mean.alloc_pct, " / "),
                leads(&mean.ours_ahead),
                mean.rejected_pct,
                shown(mean.wait),
                shown(mean.wait_whole)
            );
        }
        for over in &self.over_mixes {
            let _ = writeln!(
                text,
                "{:<18} {:<10} {:>4} {:<8} {:>13} {:>27} level within one SE or ahead in {} of {}",
                "mean of the mixes",
                "",
                load_of(over.load),
                over.policy,
                "",
                leads(&over.ours_ahead),
                over.level_or_ahead,
                over.of
            );
        }
        text
    }

    /// A line a run.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text =
            "experiment,gpus,mix,load,policy,seed,alloc_pct,rejected_pct,wait,wait_whole\n"
                .to_owned();
        for row in &self.rows {
            let load = row.load.map_or(String::new(), |load| load.to_string());
            let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
            let _ = writeln!(
                text,
                "{},{},{},{load},{},{},{},{},{},{}",
                row.experiment,
                row.gpus,
                row.mix.to_string().replace(',', "/"),
                row.policy,
                row.seed,
                joined(&row.alloc_pct, "/"),
                row.rejected_pct,
                number(row.wait),
                number(row.wait_whole)
            );
        }
        text
    }
}

/// Figure by figure, of the differences of each seed.
fn ahead(by_seed: &[Vec<f64>]) -> Vec<Ahead> {
    let figure = |number: usize| {
        let of: Vec<f64> = by_seed
            .iter()
            .filter_map(|d| d.get(number).copied())
            .collect();
        Ahead::of(&of)
    };
    (0..).map_while(figure).collect()
}

fn average(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, n), value| (sum + value, n + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "—".to_owned(), |value| format!("{value:.3}"))
}

fn leads(all: &[Ahead]) -> String {
    let shown: Vec<String> = all.iter().map(|ahead| ahead.shown()).collect();
    shown.join(" / ")
}

fn joined(values: &[f64], between: &str) -> String {
    let shown: Vec<String> = values.iter().map(|value| format!("{value:.2}")).collect();
    shown.join(between)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn row(mix: &str, policy: &'static str, seed: u64, alloc: f64) -> MigRow {
        MigRow {
            experiment: "loss",
            model: "A100-80GB",
            gpus: 8,
            mix: mix.parse().unwrap(),
            load: Some(0.9),
            policy,
            seed,
            alloc_pct: vec![alloc],
            rejected_pct: 1.0,
            wait: None,
            wait_whole: None,
        }
    }

    #[test]
    fn seeds_are_paired_and_mixes_counted() {
        let mut report = MigReport::default();
        for (mix, ours, other) in [
            ("1,1", [80.0, 84.0], [79.0, 81.0]),
            ("1,3", [70.0, 70.0], [70.5, 70.5]),
        ] {
            for seed in 0..2 {
                report.add(row(mix, "mfi", seed as u64, other[seed]));
                report.add(row(mix, "ours", seed as u64, ours[seed]));
            }
        }
        report.finish();
        let ahead: Vec<&Vec<Ahead>> = report.means.iter().map(|m| &m.ours_ahead).collect();
        // Differences 1 and 3: mean 2, standard error 1.
        assert_eq!(
            ahead[0][0],
            Ahead {
                mean: 2.0,
                se: Some(1.0)
            }
        );
        assert!(ahead[1].is_empty(), "ours is not ahead of itself");
        assert_eq!(
            ahead[2][0],
            Ahead {
                mean: -0.5,
                se: Some(0.0)
            }
        );
        let over = &report.over_mixes[0];
        // In the mean of the mixes 0.25 and 1.25.
        assert_eq!(
            over.ours_ahead,
            [Ahead {
                mean: 0.75,
                se: Some(0.5)
            }]
        );
        assert_eq!((over.level_or_ahead, over.of), (1, 2));
        let table = report.table();
        assert!(table.contains("+2.00 ± 1.00"), "{table}");
        assert!(
            table.contains("+0.75 ± 0.50 level within one SE or ahead in 1 of 2"),
            "{table}"
        );
    }
}
