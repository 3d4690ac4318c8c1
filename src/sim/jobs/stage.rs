//! Time and the jobs in it, for every way to run them: arrivals, ends, and jobs that leave their
//! band.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::job::Trace;
use super::nodes::Part;
use super::policy::Policy;
use super::progress::Progress;
use super::tally::Tally;
use super::waiting::Turn;

/// What happened at a time.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Happened {
    /// A job was submitted.
    Arrived(usize),
    /// A job was done, and held this.
    Done(usize, Vec<Part>),
    /// A running job left this band.
    LeftBand(usize, u8),
}

/// A time and what happens then, earliest first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Due {
    at: f64,
    job: usize,
    run: u32,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    End,
    LeaveBand,
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = self.at.total_cmp(&other.at);
        order.then((self.job, self.what).cmp(&(other.job, other.what)))
    }
}

/// Jobs on their way from submission to end.
pub(super) struct Stage<'a> {
    /// The jobs.
    pub trace: &'a Trace,
    /// What became of each.
    pub progress: Vec<Progress>,
    /// The time.
    pub now: f64,
    /// Figures.
    pub tally: Tally,
    policy: Policy,
    restart_s: f64,
    due: BinaryHeap<Reverse<Due>>,
    arrived: usize,
}

impl<'a> Stage<'a> {
    /// Before the first arrival, with a pool of so many GPUs.
    pub(super) fn new(trace: &'a Trace, policy: Policy, restart_s: f64, gpus: u32) -> Self {
        Stage {
            trace,
            progress: vec![Progress::default(); trace.jobs.len()],
            now: 0.0,
            tally: Tally::new(gpus, trace),
            policy,
            restart_s,
            due: BinaryHeap::new(),
            arrived: 0,
        }
    }

    /// Goes on to the next time at which anything happens, and tells all of it; until then so many
    /// GPUs were busy. `None` when nothing happens any more.
    pub(super) fn next(&mut self, busy: u32) -> Option<Vec<Happened>> {
        let arrival = self.trace.jobs.get(self.arrived).map(|job| job.submit_s);
        let event = self.due.peek().map(|Reverse(due)| due.at);
        let now = [arrival, event].into_iter().flatten().reduce(f64::min)?;
        self.tally.until(now, busy);
        self.now = now;
        let mut happened = Vec::new();
        while let Some(job) = self.trace.jobs.get(self.arrived)
            && job.submit_s <= now
        {
            happened.push(Happened::Arrived(self.arrived));
            self.arrived += 1;
        }
        while let Some(Reverse(due)) = self.due.peek().copied()
            && due.at <= now
        {
            self.due.pop();
            happened.extend(self.happen(due));
        }
        Some(happened)
    }

    fn happen(&mut self, due: Due) -> Option<Happened> {
        let progress = self.progress.get_mut(due.job)?;
        if progress.run != due.run || !progress.runs() {
            return None;
        }
        match due.what {
            What::End => {
                progress.done_s = progress.done_at(due.at);
                progress.end_s = Some(due.at);
                let parts = std::mem::take(&mut progress.parts);
                Some(Happened::Done(due.job, parts))
            }
            What::LeaveBand => {
                let left = progress.band;
                progress.band += 1;
                self.watch_band(due.job);
                Some(Happened::LeftBand(due.job, left))
            }
        }
    }

    /// A job's place among those that wait.
    pub(super) fn turn(&self, at: usize) -> Turn {
        let found = self.trace.jobs.get(at).zip(self.progress.get(at));
        found.map_or(Turn { key: 0.0, job: at }, |(job, progress)| {
            progress.turn(at, job, self.policy)
        })
    }

    /// Its band.
    pub(super) fn band(&self, at: usize) -> u8 {
        self.progress.get(at).map_or(0, |p| p.band)
    }

    /// Its GPUs.
    pub(super) fn gpus(&self, at: usize) -> u32 {
        self.trace.jobs.get(at).map_or(0, |j| j.gpus)
    }

    /// Its tenant.
    pub(super) fn tenant(&self, at: usize) -> usize {
        self.trace.jobs.get(at).map_or(0, |j| j.tenant)
    }

    /// What it holds.
    pub(super) fn parts(&self, at: usize) -> &[Part] {
        self.progress.get(at).map_or(&[], |p| &p.parts)
    }

    /// The GPU-seconds that a job took in all.
    pub(super) fn service(&self, at: usize) -> f64 {
        let job = self.trace.jobs.get(at);
        job.map_or(0.0, |j| j.duration_s * f64::from(j.gpus))
    }

    /// A job starts.
    pub(super) fn start(&mut self, at: usize, parts: Vec<Part>) {
        let found = self.trace.jobs.get(at).zip(self.progress.get_mut(at));
        let Some((job, progress)) = found else { return };
        progress.start(self.now, parts, self.restart_s);
        self.due.push(Reverse(Due {
            at: progress.end(job),
            job: at,
            run: progress.run,
            what: What::End,
        }));
        self.watch_band(at);
    }

    /// A job is interrupted; returns what it held.
    pub(super) fn interrupt(&mut self, at: usize) -> Vec<Part> {
        self.tally.interrupted();
        let now = self.now;
        self.progress
            .get_mut(at)
            .map_or(Vec::new(), |progress| progress.interrupt(now))
    }

    /// Notes when a running job leaves its band, if it will.
    fn watch_band(&mut self, at: usize) {
        let found = self.trace.jobs.get(at).zip(self.progress.get(at));
        let Some((job, progress)) = found else { return };
        if let Some(end) = self.policy.band_end(progress.band) {
            let leaves = progress.since + (end / f64::from(job.gpus) - progress.done_s).max(0.0);
            if leaves < progress.end(job) {
                self.due.push(Reverse(Due {
                    at: leaves,
                    job: at,
                    run: progress.run,
                    what: What::LeaveBand,
                }));
            }
        }
    }
}
