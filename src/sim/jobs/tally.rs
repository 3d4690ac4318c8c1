//! Figures of a run.

use serde::Serialize;

use super::job::Trace;
use super::progress::Progress;

/// Parts of the time between first and last arrival that use is told for.
const PIECES: usize = 24;

/// A mean and percentiles, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Times {
    /// Mean.
    pub mean: f64,
    /// Half are shorter.
    pub p50: f64,
    /// 95 of 100 are shorter.
    pub p95: f64,
    /// 99 of 100 are shorter.
    pub p99: f64,
}

impl Times {
    /// Of any number of times.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    pub fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |q: f64| {
            let n = (q * times.len() as f64) as usize;
            times.get(n.min(times.len().saturating_sub(1))).copied()
        };
        Times {
            mean: times.iter().sum::<f64>() / (times.len().max(1)) as f64,
            p50: at(0.50).unwrap_or_default(),
            p95: at(0.95).unwrap_or_default(),
            p99: at(0.99).unwrap_or_default(),
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Outcome {
    /// Submission to end.
    pub jct_s: Times,
    /// The part of it in which the job did not work.
    pub wait_s: Times,
    /// Mean [`Outcome::jct_s`] of jobs of 1 GPU, 2 to 8, and more.
    pub jct_by_gpus_s: [f64; 3],
    /// First submission to last end.
    pub makespan_s: f64,
    /// GPUs that worked, of all, from first to last arrival, in percent.
    pub busy_pct: f64,
    /// The same in equal parts of that time.
    pub busy_over_time_pct: Vec<f64>,
    /// Interruptions.
    pub interrupted: u64,
    /// GPU-hours that were held while a job was not whole.
    pub held_gpu_h: f64,
    /// Times at which incomplete gangs held all GPUs, so that none could ever go on.
    pub deadlocks: u64,
    /// Each job's time from submission to end, in the trace's order.
    #[serde(skip)]
    pub jcts_s: Vec<f64>,
}

/// Counts while a run goes on.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    gpus: f64,
    first_s: f64,
    last_s: f64,
    now: f64,
    /// GPU-seconds at work in each part.
    pieces: Vec<f64>,
    interrupted: u64,
    held_gpu_s: f64,
    deadlocks: u64,
}

impl Tally {
    /// For a pool of so many GPUs.
    pub(super) fn new(gpus: u32, trace: &Trace) -> Self {
        let first_s = trace.jobs.first().map_or(0.0, |j| j.submit_s);
        Tally {
            gpus: f64::from(gpus),
            first_s,
            last_s: trace.jobs.last().map_or(0.0, |j| j.submit_s),
            now: first_s,
            pieces: vec![0.0; PIECES],
            interrupted: 0,
            held_gpu_s: 0.0,
            deadlocks: 0,
        }
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    /// Until now so many GPUs were at work.
    pub(super) fn until(&mut self, now: f64, busy: u32) {
        let width = (self.last_s - self.first_s) / PIECES as f64;
        if width > 0.0 {
            let (mut from, to) = (self.now, now.min(self.last_s));
            while from < to {
                let piece = (((from - self.first_s) / width) as usize).min(PIECES - 1);
                let end = (self.first_s + width * (piece + 1) as f64).max(from + width * 1e-9);
                let until = end.min(to);
                if let Some(sum) = self.pieces.get_mut(piece) {
                    *sum += (until - from) * f64::from(busy);
                }
                from = until;
            }
        }
        self.now = self.now.max(now);
    }

    /// A job was interrupted.
    pub(super) fn interrupted(&mut self) {
        self.interrupted += 1;
    }

    /// GPU-seconds were held in vain.
    pub(super) fn held(&mut self, gpu_s: f64) {
        self.held_gpu_s += gpu_s;
    }

    /// Nothing could go on.
    pub(super) fn deadlock(&mut self) {
        self.deadlocks += 1;
    }

    /// The figures.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn outcome(&self, trace: &Trace, progress: &[Progress]) -> Outcome {
        let ends = trace.jobs.iter().zip(progress);
        let jcts_s: Vec<f64> = ends
            .map(|(job, p)| p.end_s.map_or(f64::NAN, |end| end - job.submit_s))
            .collect();
        let waits = trace.jobs.iter().zip(&jcts_s);
        let waits = waits.map(|(job, jct)| (jct - job.duration_s).max(0.0));
        let class = |least: u32, most: u32| {
            let of = trace.jobs.iter().zip(&jcts_s);
            let of = of.filter(|(job, _)| (least..=most).contains(&job.gpus));
            Times::of(of.map(|(_, jct)| *jct).collect()).mean
        };
        let width = (self.last_s - self.first_s) / PIECES as f64;
        let share = |gpu_s: f64, time_s: f64| {
            if time_s > 0.0 {
                100.0 * gpu_s / (self.gpus * time_s)
            } else {
                0.0
            }
        };
        Outcome {
            jct_s: Times::of(jcts_s.clone()),
            wait_s: Times::of(waits.collect()),
            jct_by_gpus_s: [class(1, 1), class(2, 8), class(9, u32::MAX)],
            makespan_s: progress
                .iter()
                .filter_map(|p| p.end_s)
                .fold(self.first_s, f64::max)
                - self.first_s,
            busy_pct: share(self.pieces.iter().sum(), self.last_s - self.first_s),
            busy_over_time_pct: self.pieces.iter().map(|p| share(*p, width)).collect(),
            interrupted: self.interrupted,
            held_gpu_h: self.held_gpu_s / 3_600.0,
            deadlocks: self.deadlocks,
            jcts_s,
        }
    }
}
