//! What became of each job so far.

use super::job::Job;
use super::nodes::Part;
use super::policy::Policy;
use super::waiting::Turn;

/// A job under way.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Progress {
    /// Seconds of its work that are done, as of `since`.
    pub done_s: f64,
    /// It works from here on, after its restart; while it runs.
    pub since: f64,
    /// What it holds; empty while it waits.
    pub parts: Vec<Part>,
    /// Its band.
    pub band: u8,
    /// Counts starts and interruptions: an event of an earlier run means nothing.
    pub run: u32,
    /// Interruptions.
    pub interrupted: u32,
    /// When it was done.
    pub end_s: Option<f64>,
}

impl Progress {
    /// Whether it holds GPUs.
    pub(super) fn runs(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Seconds of work done at `now`.
    pub(super) fn done_at(&self, now: f64) -> f64 {
        if self.runs() {
            self.done_s + (now - self.since).max(0.0)
        } else {
            self.done_s
        }
    }

    /// Its place among those that wait.
    pub(super) fn turn(&self, at: usize, job: &Job, policy: Policy) -> Turn {
        Turn {
            key: policy.key(job.submit_s, job.duration_s, self.done_s),
            job: at,
        }
    }

    /// When it will be done, while it runs.
    pub(super) fn end(&self, job: &Job) -> f64 {
        self.since + (job.duration_s - self.done_s).max(0.0)
    }

    /// It starts: from `now` it holds `parts`, and after a restart it works.
    pub(super) fn start(&mut self, now: f64, parts: Vec<Part>, restart_s: f64) {
        let cost = if self.interrupted > 0 { restart_s } else { 0.0 };
        self.since = now + cost;
        self.parts = parts;
        self.run += 1;
    }

    /// It is interrupted after a checkpoint; returns what it held.
    pub(super) fn interrupt(&mut self, now: f64) -> Vec<Part> {
        self.done_s = self.done_at(now);
        self.interrupted += 1;
        self.run += 1;
        std::mem::take(&mut self.parts)
    }
}
