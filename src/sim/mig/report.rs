//! Figures of many runs, as table, JSON and CSV.

use std::fmt::Write;

use serde::Serialize;

use super::run::MigRow;

/// The mean over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigMean {
    /// `fill`, `loss`, `queue` or `drift`.
    pub experiment: &'static str,
    /// Load; absent in a fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// The policy.
    pub policy: &'static str,
    /// As in a row.
    pub alloc_pct: Vec<f64>,
    /// As in a row.
    pub rejected_pct: f64,
    /// As in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<f64>,
    /// As in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_whole: Option<f64>,
}

/// All runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MigReport {
    /// A row a run.
    pub rows: Vec<MigRow>,
    /// A row a load and policy.
    pub means: Vec<MigMean>,
}

impl MigReport {
    /// Takes in a run.
    pub fn add(&mut self, row: MigRow) {
        let (load, policy, experiment) = (row.load, row.policy, row.experiment);
        self.rows.push(row);
        let alike = self
            .rows
            .iter()
            .filter(|row| row.load == load && row.policy == policy);
        let count = alike.clone().count() as f64;
        let mut mean = MigMean {
            experiment,
            load,
            policy,
            alloc_pct: Vec::new(),
            rejected_pct: alike.clone().map(|row| row.rejected_pct).sum::<f64>() / count,
            wait: average(alike.clone().filter_map(|row| row.wait)),
            wait_whole: average(alike.clone().filter_map(|row| row.wait_whole)),
        };
        for row in alike {
            mean.alloc_pct.resize(row.alloc_pct.len(), 0.0);
            for (sum, value) in mean.alloc_pct.iter_mut().zip(&row.alloc_pct) {
                *sum += value / count;
            }
        }
        let known = |other: &&mut MigMean| other.load == load && other.policy == policy;
        match self.means.iter_mut().find(known) {
            Some(slot) => *slot = mean,
            None => self.means.push(mean),
        }
    }

    /// Aligned text: means over the seeds. A fill has its allocation at 100 and at 130 %;
    /// waits are in mean durations.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<10} {:>5} {:<10} {:>16} {:>7} {:>7} {:>9}\n",
            "EXPERIMENT", "LOAD", "POLICY", "ALLOC %", "LOST %", "WAIT", "WHOLE GPU"
        );
        for mean in &self.means {
            let load = mean.load.map_or(String::new(), |load| load.to_string());
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<10} {load:>5} {:<10} {:>16} {:>7.2} {:>7} {:>9}",
                mean.experiment,
                mean.policy,
                joined(&mean.alloc_pct, " / "),
                mean.rejected_pct,
                shown(mean.wait),
                shown(mean.wait_whole)
            );
        }
        text
    }

    /// A line a run.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text =
            "experiment,gpus,load,policy,seed,alloc_pct,rejected_pct,wait,wait_whole\n".to_owned();
        for row in &self.rows {
            let load = row.load.map_or(String::new(), |load| load.to_string());
            let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
            let _ = writeln!(
                text,
                "{},{},{load},{},{},{},{},{},{}",
                row.experiment,
                row.gpus,
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

fn average(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, n), value| (sum + value, n + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "—".to_owned(), |value| format!("{value:.3}"))
}

fn joined(values: &[f64], between: &str) -> String {
    let shown: Vec<String> = values.iter().map(|value| format!("{value:.2}")).collect();
    shown.join(between)
}
