//! Figures of many runs, as table and CSV; JSON is the rows as they are.

use std::fmt::Write;

use serde::Serialize;

use super::fair::FairRow;
use super::policy::Policy;
use super::tally::Outcome;

/// What must be known to read the figures of the Philly jobs.
const PHILLY: &str = "A subset of the published trace (82,247 of 117,325 jobs); durations are those of the old cluster,\n\
     failed and killed work included. One pod a GPU without gangs. * knows durations, as no cluster does.";
/// And of Muri's.
const MURI: &str = "A simulation: their testbed's logs lie 10 to 12 % above one (SRTF 69.2 h, Tiresias 93.5 h), and their\n\
     own policies share GPUs, which none does here. * knows durations, as no cluster does.";
/// And of sharing.
const FAIR: &str = "Alone: the tenant's jobs on its quota's nodes of the same shape under the same order. Tenants with\n\
     fewer than 9 jobs and jobs larger than their tenant's quota are left out of all runs.";

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobsRow {
    /// `philly` or `muri`.
    pub trace: &'static str,
    /// GPUs of the pool.
    pub gpus: u32,
    /// What the jobs need until the last arrival, by what the pool has until then.
    pub offered_load: f64,
    /// The order.
    pub policy: Policy,
    /// It looks at durations.
    pub oracle: bool,
    /// Figures.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// All runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JobsReport {
    /// Orders on one pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<JobsRow>,
    /// Ways to share.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<FairRow>,
}

impl JobsReport {
    /// For people: hours where seconds are many.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        if !self.rows.is_empty() {
            let _ = writeln!(
                text,
                "{:<7} {:>5} {:>5} {:<13} {:>9} {:>8} {:>9} {:>9} {:>9} {:>6} {:>9} {:>11} {:>9} {:>9}",
                "trace",
                "GPUs",
                "load",
                "order",
                "JCT mean",
                "p50",
                "p95",
                "p99",
                "wait",
                "busy",
                "makespan",
                "interrupted",
                "held",
                "deadlocks",
            );
        }
        for row in &self.rows {
            let star = if row.oracle { "*" } else { "" };
            let out = &row.outcome;
            let _ = writeln!(
                text,
                "{:<7} {:>5} {:>5.2} {:<13} {:>8.2}h {:>7.2}h {:>8.2}h {:>8.2}h {:>8.2}h {:>5.1}% {:>8.0}h {:>11} {:>8.0}h {:>9}",
                row.trace,
                row.gpus,
                row.offered_load,
                format!("{}{star}", row.policy),
                hours(out.jct_s.mean),
                hours(out.jct_s.p50),
                hours(out.jct_s.p95),
                hours(out.jct_s.p99),
                hours(out.wait_s.mean),
                out.busy_pct,
                hours(out.makespan_s),
                out.interrupted,
                out.held_gpu_h,
                out.deadlocks,
            );
        }
        for (trace, note) in [("philly", PHILLY), ("muri", MURI)] {
            if self.rows.iter().any(|row| row.trace == trace) {
                let _ = writeln!(text, "\n{note}");
            }
        }
        self.sharing_table(&mut text);
        text
    }

    fn sharing_table(&self, text: &mut String) {
        for row in &self.sharing {
            let _ = writeln!(
                text,
                "{} GPUs, {}: JCT mean {:.2} h, p99 {:.1} h; {} of {} tenants worse off than alone, worst ratio {:.3}; Jain {:.3}; busy {:.1} %, {} interrupted",
                row.gpus,
                row.sharing,
                hours(row.jct_s.mean),
                hours(row.jct_s.p99),
                row.worse_off,
                row.tenants.len(),
                row.worst_ratio,
                row.jain,
                row.busy_pct,
                row.interrupted,
            );
            for tenant in &row.tenants {
                let _ = writeln!(
                    text,
                    "    {:<12} {:>4} nodes {:>6} jobs  {:>9.2} h shared {:>9.2} h alone  {:>6.3}",
                    tenant.tenant,
                    tenant.nodes,
                    tenant.jobs,
                    hours(tenant.jct_s),
                    hours(tenant.alone_s),
                    tenant.ratio,
                );
            }
        }
        if !self.sharing.is_empty() {
            let _ = writeln!(text, "\n{FAIR}");
        }
    }

    /// For other programs: a line a run, or a line a tenant.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = String::new();
        if !self.rows.is_empty() {
            text.push_str(
                "trace,gpus,offered_load,policy,oracle,jct_mean_s,jct_p50_s,jct_p95_s,jct_p99_s,wait_mean_s,busy_pct,makespan_s,interrupted,held_gpu_h,deadlocks\n",
            );
        }
        for row in &self.rows {
            let out = &row.outcome;
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                row.trace,
                row.gpus,
                row.offered_load,
                row.policy,
                row.oracle,
                out.jct_s.mean,
                out.jct_s.p50,
                out.jct_s.p95,
                out.jct_s.p99,
                out.wait_s.mean,
                out.busy_pct,
                out.makespan_s,
                out.interrupted,
                out.held_gpu_h,
                out.deadlocks,
            );
        }
        if !self.sharing.is_empty() {
            text.push_str("gpus,sharing,tenant,nodes,jobs,jct_s,alone_s,ratio\n");
        }
        for row in &self.sharing {
            for t in &row.tenants {
                let _ = writeln!(
                    text,
                    "{},{},{},{},{},{},{},{}",
                    row.gpus, row.sharing, t.tenant, t.nodes, t.jobs, t.jct_s, t.alone_s, t.ratio,
                );
            }
        }
        text
    }
}

fn hours(seconds: f64) -> f64 {
    seconds / 3_600.0
}
