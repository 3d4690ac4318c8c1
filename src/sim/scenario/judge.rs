//! What came out, against what is expected.

use std::collections::BTreeMap;

use serde::Serialize;

use super::form::{Case, Expect};

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As expected.
    Pass,
    /// Not as expected, and a rule is broken by it.
    Fail,
    /// Another outcome than that system's own, which only its tie-breaks explain.
    StrictDiffers,
    /// The case says something that has no counterpart here.
    Inexpressible,
}

/// The outcome of a case.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Got {
    /// Jobs with pods that run or are placed.
    pub running: BTreeMap<String, GotJob>,
    /// Jobs with no pod placed.
    pub pending: Vec<String>,
    /// Pods of each job that were evicted.
    pub evicted: BTreeMap<String, u32>,
    /// Why jobs wait.
    pub reason: BTreeMap<String, String>,
}

/// A job that runs.
#[derive(Debug, Clone, Default, Serialize)]
pub struct GotJob {
    /// Pods.
    pub pods: u32,
    /// Pods on each node.
    pub nodes: BTreeMap<String, u32>,
}

/// How many cases ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Passed.
    pub pass: usize,
    /// Failed.
    pub fail: usize,
    /// Strict ones that differ.
    pub differ: usize,
    /// Could not be run.
    pub inexpressible: usize,
}

impl Verdicts {
    /// Counts one.
    pub fn count(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Pass => &mut self.pass,
            Verdict::Fail => &mut self.fail,
            Verdict::StrictDiffers => &mut self.differ,
            Verdict::Inexpressible => &mut self.inexpressible,
        } += 1;
    }
}

/// What differs, in words; nothing when all holds.
pub(super) fn judge(case: &Case, got: &Got) -> Vec<String> {
    let mut common = case.expect.clone();
    let alternatives = common.any_of.take().unwrap_or_default();
    if !alternatives.is_empty() {
        // Who is evicted is what the alternatives differ in.
        common.evicted = None;
    }
    let mut wrong = differences(&common, got);
    if !alternatives.is_empty() {
        let best = alternatives
            .iter()
            .map(|expect| differences(expect, got))
            .min_by_key(Vec::len)
            .unwrap_or_default();
        wrong.extend(best);
    }
    wrong
}

fn differences(expect: &Expect, got: &Got) -> Vec<String> {
    let mut wrong = Vec::new();
    for (job, wanted) in expect.running.iter().flatten() {
        match got.running.get(job) {
            None => wrong.push(format!("{job} does not run")),
            Some(is) => {
                if wanted.pods.is_some_and(|n| n != is.pods) {
                    wrong.push(format!(
                        "{job} runs with {} pods, not {}",
                        is.pods,
                        wanted.pods.unwrap_or(0)
                    ));
                }
                if let Some(nodes) = &wanted.nodes
                    && *nodes != is.nodes
                {
                    wrong.push(format!("{job} runs on {:?}, not {nodes:?}", is.nodes));
                }
            }
        }
    }
    for job in expect.pending.iter().flatten() {
        if !got.pending.contains(job) {
            wrong.push(format!("{job} runs, but should wait"));
        }
    }
    if let Some(evicted) = &expect.evicted
        && *evicted != got.evicted
    {
        wrong.push(format!("evicted {:?}, not {evicted:?}", got.evicted));
    }
    for job in expect.untouched.iter().flatten() {
        if got.evicted.contains_key(job) {
            wrong.push(format!("{job} lost pods, but should be untouched"));
        }
    }
    for (job, wanted) in expect.reason.iter().flatten() {
        let is = got.reason.get(job).map_or("none", |r| r);
        if is != wanted {
            wrong.push(format!("{job} waits for {is}, not for {wanted}"));
        }
    }
    wrong
}
