//! What is counted.

use serde::Serialize;

use crate::sched::place::{ModelSet, Shape};

/// Ratio of two neighbouring buckets of waits.
const STEP: f64 = 1.01;

/// Shares of pods that were lost, in percent; `None` where no such pod came, or none can be lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rejected {
    /// Of all pods.
    pub all: Option<f64>,
    /// Of those that share a GPU.
    pub small: Option<f64>,
    /// Of those with whole GPUs.
    pub whole: Option<f64>,
    /// Of those with 8 GPUs.
    pub gpu8: Option<f64>,
    /// Of those that name GPU models.
    pub typed: Option<f64>,
}

/// Seconds that pods waited; `None` where none came, or none can wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Waits {
    /// Mean.
    pub mean: Option<f64>,
    /// 95th percentile, to 1 %.
    pub p95: Option<f64>,
    /// Mean of pods with 8 GPUs.
    pub gpu8: Option<f64>,
}

/// Result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// Allocated share of the GPUs over time, in percent, less the work that moves lost.
    pub alloc_pct: f64,
    /// What was lost.
    pub rejected_pct: Rejected,
    /// How long it took to start.
    pub wait_s: Waits,
    /// Pods that were moved while it was measured.
    pub moves: u64,
    /// Arrivals in the whole run.
    pub arrivals: u64,
}

/// Arrivals and losses of one kind of pod.
#[derive(Debug, Clone, Copy, Default)]
struct Lost {
    came: u64,
    lost: u64,
}

impl Lost {
    fn pct(self) -> Option<f64> {
        (self.came > 0).then(|| 100.0 * self.lost as f64 / self.came as f64)
    }
}

/// Counts by kind of pod.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    all: Lost,
    small: Lost,
    whole: Lost,
    gpu8: Lost,
    typed: Lost,
}

impl Losses {
    pub(super) fn add(&mut self, shape: &Shape, lost: bool) {
        let kinds = [
            (&mut self.all, true),
            (&mut self.small, shape.is_shared()),
            (&mut self.whole, shape.gpus > 0 && !shape.is_shared()),
            (&mut self.gpu8, shape.gpus == 8),
            (
                &mut self.typed,
                shape.gpus > 0 && shape.models != ModelSet::ANY,
            ),
        ];
        for (kind, _) in kinds.into_iter().filter(|(_, is)| *is) {
            kind.came += 1;
            kind.lost += u64::from(lost);
        }
    }

    pub(super) fn pct(&self) -> Rejected {
        Rejected {
            all: self.all.pct(),
            small: self.small.pct(),
            whole: self.whole.pct(),
            gpu8: self.gpu8.pct(),
            typed: self.typed.pct(),
        }
    }
}

/// Waits, in buckets, so that a run of any length takes no more room.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitTally {
    sum: f64,
    count: u64,
    buckets: Vec<u64>,
    sum_gpu8: f64,
    count_gpu8: u64,
}

impl WaitTally {
    pub(super) fn add(&mut self, shape: &Shape, secs: f64) {
        self.sum += secs;
        self.count += 1;
        let bucket = ((secs.max(0.0) + 1.0).ln() / STEP.ln()) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
        if shape.gpus == 8 {
            self.sum_gpu8 += secs;
            self.count_gpu8 += 1;
        }
    }

    pub(super) fn secs(&self) -> Waits {
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen as f64 >= 0.95 * self.count as f64
        });
        Waits {
            mean: mean(self.sum, self.count),
            p95: bucket
                .filter(|_| self.count > 0)
                .map(|bucket| STEP.powf(bucket as f64) - 1.0),
            gpu8: mean(self.sum_gpu8, self.count_gpu8),
        }
    }
}
