//! The arrivals.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

use crate::sched::place::Shape;
use crate::sim::openb::{Pod, Trace};

/// Mean of the exponential lives in seconds.
const MEAN_SECS: f64 = 3_600.0;

/// How long pods run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lives {
    /// Exponential, one mean for all.
    Exp,
    /// As the list says; a list without times takes lives of the default list's pods with as many
    /// GPUs.
    Own,
}

impl Lives {
    /// As it is typed and printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exp => "exp",
            Self::Own => "own",
        }
    }
}

impl fmt::Display for Lives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Lives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "exp" => Ok(Self::Exp),
            "own" => Ok(Self::Own),
            _ => Err(format!("no lives {text:?}; there are exp and own")),
        }
    }
}

/// A pod arrives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// When, in seconds.
    pub at_secs: f64,
    /// What it asks for.
    pub shape: Shape,
    /// How long it will run, in seconds; no policy sees it.
    pub life_secs: f64,
}

/// Draws arrivals without end; the same seed gives the same.
#[derive(Debug, Clone)]
pub struct Stream {
    rng: Rng,
    shapes: Vec<Shape>,
    /// Lives of each pod of the list to draw from; empty for exponential ones.
    lives: Vec<Vec<f64>>,
    /// Arrivals a second.
    rate: f64,
    now_secs: f64,
    /// Pods of the start that are still to come.
    starting: u64,
    /// Sums of the mean lives up to each pod, for the draw of the start.
    weights: Vec<f64>,
}

impl Stream {
    /// Arrivals that ask for `load_pct` of `milli_gpu` on average; `default` gives lives to a list
    /// without times.
    #[must_use]
    pub fn new(
        trace: &Trace,
        default: &Trace,
        lives: Lives,
        load_pct: f64,
        milli_gpu: i64,
        seed: u64,
    ) -> Self {
        let shapes: Vec<Shape> = trace.pods().iter().map(|pod| pod.shape).collect();
        let lives = match lives {
            Lives::Exp => Vec::new(),
            Lives::Own => own(trace, default),
        };
        let mean = |pod: usize| lives.get(pod).map_or(MEAN_SECS, |l| average(l));
        let mut work = 0.0;
        let mut weights = Vec::with_capacity(shapes.len());
        let mut sum = 0.0;
        for (pod, shape) in shapes.iter().enumerate() {
            sum += mean(pod);
            weights.push(sum);
            work += mean(pod) * shape.total_milli_gpu() as f64;
        }
        let count = shapes.len().max(1) as f64;
        let rate = load_pct / 100.0 * milli_gpu as f64 / (work / count).max(1e-9);
        let mut rng = Rng::with_seed(seed);
        let starting = poisson(&mut rng, rate * sum / count);
        Self {
            rng,
            shapes,
            lives,
            rate,
            now_secs: 0.0,
            starting,
            weights,
        }
    }

    /// Pods that run at the start.
    #[must_use]
    pub fn starting(&self) -> u64 {
        self.starting
    }

    /// The next arrival; those of the start come at 0. `None` only for an empty list.
    pub fn next_arrival(&mut self) -> Option<Arrival> {
        if self.starting > 0 {
            self.starting -= 1;
            // Who runs at any time has been drawn by its life, and is anywhere within it.
            let at = self.rng.f64() * self.weights.last().copied().unwrap_or(0.0);
            let pod = self.weights.partition_point(|sum| *sum <= at);
            let life = match self.lives.get(pod) {
                Some(lives) => {
                    let at = self.rng.f64() * lives.iter().sum::<f64>();
                    drawn(lives, at) * self.rng.f64()
                }
                // An exponential life has no memory.
                None => exponential(&mut self.rng, MEAN_SECS),
            };
            return self.arrival(pod, life);
        }
        self.now_secs += exponential(&mut self.rng, 1.0 / self.rate);
        if self.shapes.is_empty() {
            return None;
        }
        let pod = self.rng.usize(..self.shapes.len());
        let life = match self.lives.get(pod) {
            Some(lives) => lives.get(self.rng.usize(..lives.len().max(1))).copied()?,
            None => exponential(&mut self.rng, MEAN_SECS),
        };
        self.arrival(pod, life)
    }

    fn arrival(&self, pod: usize, life_secs: f64) -> Option<Arrival> {
        let shape = self.shapes.get(pod).or(self.shapes.last())?;
        Some(Arrival {
            at_secs: self.now_secs,
            shape: *shape,
            life_secs,
        })
    }
}

/// Lives of each pod: its own, or those of the default list's pods with as many GPUs.
fn own(trace: &Trace, default: &Trace) -> Vec<Vec<f64>> {
    let kind = |pod: &Pod| (pod.shape.gpus, pod.shape.is_shared());
    let life = |pod: &Pod| pod.life_secs.map(|secs| (secs as f64).max(1.0));
    let mut others: BTreeMap<(u8, bool), Vec<f64>> = BTreeMap::new();
    for pod in default.pods() {
        others.entry(kind(pod)).or_default().extend(life(pod));
    }
    let of = |pod: &Pod| match life(pod) {
        Some(secs) => vec![secs],
        None => others
            .get(&kind(pod))
            .filter(|lives| !lives.is_empty())
            .cloned()
            .unwrap_or_else(|| vec![MEAN_SECS]),
    };
    trace.pods().iter().map(of).collect()
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The value at which the sum of all up to it reaches `at`.
fn drawn(values: &[f64], at: f64) -> f64 {
    let mut sum = 0.0;
    let found = values.iter().find(|value| {
        sum += **value;
        sum > at
    });
    found.or(values.last()).copied().unwrap_or(0.0)
}

fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -(1.0 - rng.f64()).ln() * mean
}

fn poisson(rng: &mut Rng, mean: f64) -> u64 {
    let (mut sum, mut count) = (0.0, 0u64);
    while sum < mean {
        sum += exponential(rng, 1.0);
        count += 1;
    }
    count.saturating_sub(1)
}
