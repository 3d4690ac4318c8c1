//! Figures of many runs, as table, JSON and CSV.

use std::fmt::Write;

use serde::Serialize;

use super::tally::{Outcome, Rejected, Waits};

/// What a run was about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// The list.
    pub list: String,
    /// How long pods run.
    pub lives: &'static str,
    /// Load in percent of the GPUs.
    pub load: f64,
    /// What becomes of pods that fit nowhere.
    pub model: &'static str,
    /// The policy.
    pub policy: &'static str,
}

/// One run, or the mean over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChurnRow {
    /// What it was about.
    #[serde(flatten)]
    pub setting: Setting,
    /// The seed; absent in a mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Allocated share of the GPUs over time, in percent.
    pub alloc_pct: f64,
    /// Shares of pods that were lost, in percent.
    pub rejected_pct: Rejected,
    /// Seconds that pods waited.
    pub wait_s: Waits,
    /// Pods that were moved.
    pub moves: f64,
}

/// All runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ChurnReport {
    /// A row a run.
    pub rows: Vec<ChurnRow>,
    /// A row a setting.
    pub means: Vec<ChurnRow>,
}

impl ChurnReport {
    /// Takes in a run.
    pub fn add(&mut self, setting: &Setting, seed: u64, outcome: &Outcome) {
        self.rows.push(ChurnRow {
            setting: setting.clone(),
            seed: Some(seed),
            alloc_pct: outcome.alloc_pct,
            rejected_pct: outcome.rejected_pct,
            wait_s: outcome.wait_s,
            moves: outcome.moves as f64,
        });
        let rows: Vec<&ChurnRow> = self.rows.iter().filter(|r| r.setting == *setting).collect();
        let mean = mean_of(setting, &rows);
        match self.means.iter_mut().find(|row| row.setting == *setting) {
            Some(slot) => *slot = mean,
            None => self.means.push(mean),
        }
    }

    /// Aligned text: means by setting, then by policy over all settings.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<12} {:<5} {:>5} {:<6} {:<12} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9}\n",
            "LIST",
            "LIVES",
            "LOAD",
            "MODEL",
            "POLICY",
            "ALLOC %",
            "LOST %",
            "8-GPU %",
            "WAIT s",
            "P95 s",
            "8-GPU s"
        );
        let mut line = |row: &ChurnRow| {
            let load = if row.setting.load > 0.0 {
                row.setting.load.to_string()
            } else {
                String::new()
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<12} {:<5} {load:>5} {:<6} {:<12} {:>7.2} {:>7} {:>7} {:>9} {:>9} {:>9}",
                row.setting.list,
                row.setting.lives,
                row.setting.model,
                row.setting.policy,
                row.alloc_pct,
                shown(row.rejected_pct.all, 2),
                shown(row.rejected_pct.gpu8, 1),
                shown(row.wait_s.mean, 0),
                shown(row.wait_s.p95, 0),
                shown(row.wait_s.gpu8, 0),
            );
        };
        self.means.iter().for_each(&mut line);
        let over = self.over_settings();
        if self.means.len() > over.len() {
            over.iter().for_each(line);
        }
        text
    }

    /// Means by model and policy over all settings, in the order of their first run.
    #[must_use]
    pub fn over_settings(&self) -> Vec<ChurnRow> {
        let mut settings: Vec<Setting> = Vec::new();
        for row in &self.means {
            let over = Setting {
                list: "mean".to_owned(),
                lives: "",
                load: 0.0,
                ..row.setting.clone()
            };
            if !settings.contains(&over) {
                settings.push(over);
            }
        }
        let of = |setting: &Setting| {
            let same = |row: &&ChurnRow| {
                row.setting.policy == setting.policy && row.setting.model == setting.model
            };
            let rows: Vec<&ChurnRow> = self.means.iter().filter(same).collect();
            mean_of(setting, &rows)
        };
        settings.iter().map(of).collect()
    }

    /// A line a run.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "list,lives,load,model,policy,seed,alloc_pct,rejected_all_pct,\
            rejected_small_pct,rejected_whole_pct,rejected_gpu8_pct,rejected_typed_pct,\
            wait_mean_s,wait_p95_s,wait_gpu8_s,moves\n"
            .to_owned();
        for row in &self.rows {
            let Setting {
                list,
                lives,
                load,
                model,
                policy,
            } = &row.setting;
            let seed = row.seed.unwrap_or(0);
            let _ = write!(
                text,
                "{list},{lives},{load},{model},{policy},{seed},{}",
                row.alloc_pct
            );
            let (lost, wait) = (&row.rejected_pct, &row.wait_s);
            for value in [
                lost.all, lost.small, lost.whole, lost.gpu8, lost.typed, wait.mean, wait.p95,
                wait.gpu8,
            ] {
                let _ = write!(text, ",{}", value.map_or(String::new(), |v| v.to_string()));
            }
            let _ = writeln!(text, ",{}", row.moves);
        }
        text
    }
}

fn mean_of(setting: &Setting, rows: &[&ChurnRow]) -> ChurnRow {
    let known = |of: fn(&ChurnRow) -> Option<f64>| {
        let values: Vec<f64> = rows.iter().filter_map(|row| of(row)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    ChurnRow {
        setting: setting.clone(),
        seed: None,
        alloc_pct: known(|row| Some(row.alloc_pct)).unwrap_or(0.0),
        rejected_pct: Rejected {
            all: known(|row| row.rejected_pct.all),
            small: known(|row| row.rejected_pct.small),
            whole: known(|row| row.rejected_pct.whole),
            gpu8: known(|row| row.rejected_pct.gpu8),
            typed: known(|row| row.rejected_pct.typed),
        },
        wait_s: Waits {
            mean: known(|row| row.wait_s.mean),
            p95: known(|row| row.wait_s.p95),
            gpu8: known(|row| row.wait_s.gpu8),
        },
        moves: known(|row| Some(row.moves)).unwrap_or(0.0),
    }
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "—".to_owned(), |value| format!("{value:.digits$}"))
}
