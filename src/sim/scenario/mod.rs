//! Scheduling scenarios: small complete situations with the outcome that is expected.
//!
//! A file is a list of cases in one neutral form (see tests/scenarios/README.md). A case is told
//! to [`crate::sched::State`] as deltas, as a cluster would tell it; [`crate::sched::decide`]
//! decides, what it decided is applied, and so on for as many rounds as the case says. Then its
//! expectations are judged.

mod cluster;
mod form;
mod judge;

pub use form::{Case, Expect, FormError, JobForm, NodeForm, PodForm, QueueForm, read};
pub use judge::{Got, Verdict, Verdicts};

use cluster::Cluster;

/// What became of one case.
#[derive(Debug, Clone, serde::Serialize)]
pub struct CaseResult {
    /// Its id.
    pub id: String,
    /// `semantic` or `strict`.
    pub gate: String,
    /// How it ended.
    pub verdict: Verdict,
    /// The outcome, in the form of an expectation.
    pub got: Got,
    /// What differs, in words; empty for a pass.
    pub why: Vec<String>,
}

impl CaseResult {
    /// A case that every scheduler has to get right went wrong.
    pub fn breaks_the_gate(&self) -> bool {
        self.gate != "strict" && self.verdict != Verdict::Pass
    }
}

/// A case, round by round.
pub struct Steps(Cluster);

impl Steps {
    /// Tells a case to a new scheduler.
    ///
    /// # Errors
    /// What of the case cannot be expressed, in words.
    pub fn new(case: &Case) -> Result<Self, String> {
        Cluster::new(case).map(Self)
    }

    /// Decides, applies, and lets those go who leave.
    pub fn round(&mut self) {
        self.0.round();
    }

    /// What the cluster looks like.
    pub fn got(&self) -> Got {
        self.0.got()
    }
}

/// Runs one case.
pub fn run(case: &Case) -> CaseResult {
    let result = |verdict, got, why| CaseResult {
        id: case.id.clone(),
        gate: case.gate.clone(),
        verdict,
        got,
        why,
    };
    let mut cluster = match Cluster::new(case) {
        Ok(cluster) => cluster,
        Err(why) => return result(Verdict::Inexpressible, Got::default(), vec![why]),
    };
    for _ in 0..case.rounds.max(1) {
        cluster.round();
    }
    let got = cluster.got();
    let why = judge::judge(case, &got);
    let verdict = match (why.is_empty(), &*case.gate) {
        (true, _) => Verdict::Pass,
        (false, "strict") => Verdict::StrictDiffers,
        (false, _) => Verdict::Fail,
    };
    result(verdict, got, why)
}
