//! Figures of many runs, as table, JSON and CSV.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::policy::PolicyName;
use super::run::Curve;

/// Loads that are reported, in percent.
const REPORTED: [usize; 2] = [100, 130];

/// Allocation in percent, by load in percent; `None` where no arrival fell on the load.
type Alloc = BTreeMap<String, Option<f64>>;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The list.
    pub list: String,
    /// The policy.
    pub policy: &'static str,
    /// The seed of the order.
    pub seed: u64,
    /// Allocation at each reported load.
    pub alloc_pct: Alloc,
    /// Arrivals decided in a second.
    pub pods_per_s: f64,
}

/// The mean over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    /// The list.
    pub list: String,
    /// The policy.
    pub policy: &'static str,
    /// Allocation at each reported load.
    pub alloc_pct: Alloc,
}

/// All runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// A row a run.
    pub rows: Vec<Row>,
    /// A row a list and policy.
    pub means: Vec<Mean>,
}

impl Report {
    /// Takes in a run that lasted `secs`.
    pub fn add(&mut self, list: &str, policy: PolicyName, seed: u64, curve: &Curve, secs: f64) {
        self.rows.push(Row {
            list: list.to_owned(),
            policy: policy.name(),
            seed,
            alloc_pct: REPORTED
                .iter()
                .map(|load| (load.to_string(), curve.at(*load).map(rounded)))
                .collect(),
            pods_per_s: (curve.arrivals as f64 / secs.max(1e-9)).round(),
        });
        self.renew_mean(list, policy);
    }

    fn renew_mean(&mut self, list: &str, policy: PolicyName) {
        let rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| row.list == list && row.policy == policy.name())
            .collect();
        let mean = Mean {
            list: list.to_owned(),
            policy: policy.name(),
            alloc_pct: mean(rows.iter().map(|row| &row.alloc_pct)),
        };
        let known = |other: &&mut Mean| other.list == mean.list && other.policy == mean.policy;
        match self.means.iter_mut().find(known) {
            Some(slot) => *slot = mean,
            None => self.means.push(mean),
        }
    }

    /// Means over all lists, by policy, in the order of their first run.
    #[must_use]
    pub fn over_lists(&self) -> Vec<(&'static str, Alloc)> {
        let mut policies: Vec<&'static str> = Vec::new();
        for row in &self.means {
            if !policies.contains(&row.policy) {
                policies.push(row.policy);
            }
        }
        let of = |policy: &'static str| {
            let means = self.means.iter().filter(move |m| m.policy == policy);
            (policy, mean(means.map(|m| &m.alloc_pct)))
        };
        policies.into_iter().map(of).collect()
    }

    /// Aligned text: means by list and policy, then over the lists.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<12} {:<12} {:>5} {:>7} {:>7} {:>9}\n",
            "LIST", "POLICY", "SEEDS", "@100 %", "@130 %", "PODS/S"
        );
        for mean in &self.means {
            let runs = self
                .rows
                .iter()
                .filter(|row| row.list == mean.list && row.policy == mean.policy);
            let (mut seeds, mut speed) = (0u32, 0.0);
            for row in runs {
                seeds += 1;
                speed += row.pods_per_s;
            }
            let [at_100, at_130] = REPORTED.map(|load| shown(&mean.alloc_pct, load));
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<12} {:<12} {seeds:>5} {at_100:>7} {at_130:>7} {:>9.0}",
                mean.list,
                mean.policy,
                speed / f64::from(seeds.max(1))
            );
        }
        let mut lists: Vec<&str> = self.means.iter().map(|m| m.list.as_str()).collect();
        lists.dedup();
        if lists.len() > 1 {
            for (policy, alloc) in self.over_lists() {
                let [at_100, at_130] = REPORTED.map(|load| shown(&alloc, load));
                let _ = writeln!(
                    text,
                    "{:<12} {policy:<12} {:>5} {at_100:>7} {at_130:>7}",
                    "mean", ""
                );
            }
        }
        text
    }

    /// A line a run.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "list,policy,seed,alloc_pct_100,alloc_pct_130,pods_per_s\n".to_owned();
        for row in &self.rows {
            let [at_100, at_130] = REPORTED.map(|load| {
                let value = row.alloc_pct.get(&load.to_string()).copied().flatten();
                value.map_or(String::new(), |value| value.to_string())
            });
            let _ = writeln!(
                text,
                "{},{},{},{at_100},{at_130},{}",
                row.list, row.policy, row.seed, row.pods_per_s
            );
        }
        text
    }
}

fn mean<'a>(allocs: impl Iterator<Item = &'a Alloc>) -> Alloc {
    let mut sums: BTreeMap<&String, (f64, u32)> = BTreeMap::new();
    for (load, value) in allocs.flatten() {
        let sum = sums.entry(load).or_insert((0.0, 0));
        if let Some(value) = value {
            *sum = (sum.0 + value, sum.1 + 1);
        }
    }
    sums.into_iter()
        .map(|(load, (sum, count))| {
            let value = (count > 0).then(|| rounded(sum / f64::from(count)));
            (load.clone(), value)
        })
        .collect()
}

fn shown(alloc: &Alloc, load: usize) -> String {
    let value = alloc.get(&load.to_string()).copied().flatten();
    value.map_or_else(|| "—".to_owned(), |value| format!("{value:.2}"))
}

/// To a ten-thousandth of a percent.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
