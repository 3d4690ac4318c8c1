//! Figures of many runs, as table, JSON and CSV.

use std::fmt::Write;

use serde::Serialize;

use super::run::MigRow;

/// The mean over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigMean {
    /// `fill` or `loss`.
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

    /// Aligned text: means over the seeds. A fill has its allocation at 100 and at 130 %.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<10} {:>5} {:<10} {:>16} {:>7}\n",
            "EXPERIMENT", "LOAD", "POLICY", "ALLOC %", "LOST %"
        );
        for mean in &self.means {
            let load = mean.load.map_or(String::new(), |load| load.to_string());
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<10} {load:>5} {:<10} {:>16} {:>7.2}",
                mean.experiment,
                mean.policy,
                joined(&mean.alloc_pct, " / "),
                mean.rejected_pct
            );
        }
        text
    }

    /// A line a run.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "experiment,gpus,load,policy,seed,alloc_pct,rejected_pct\n".to_owned();
        for row in &self.rows {
            let load = row.load.map_or(String::new(), |load| load.to_string());
            let _ = writeln!(
                text,
                "{},{},{load},{},{},{},{}",
                row.experiment,
                row.gpus,
                row.policy,
                row.seed,
                joined(&row.alloc_pct, "/"),
                row.rejected_pct
            );
        }
        text
    }
}

fn joined(values: &[f64], between: &str) -> String {
    let shown: Vec<String> = values.iter().map(|value| format!("{value:.2}")).collect();
    shown.join(between)
}
