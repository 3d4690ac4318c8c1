//! The policies that can be compared, by name.

use std::fmt;
use std::str::FromStr;

use super::read::Trace;
use crate::sched::place::{Baseline, Demand, Fgd, GapPrice, Policy, Random, Shape, by_score};

/// A policy of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyName {
    /// Gap prices and scarcity over the list's own histogram.
    Ours,
    /// The same, which learns the histogram from the arrivals.
    OursOnline,
    /// Fragmentation gradient descent, over the list's own histogram.
    Fgd,
    /// Least left.
    BestFit,
    /// Least aligned free vector.
    DotProd,
    /// Used devices first.
    Packing,
    /// Nodes with the same kind of pod first.
    Clustering,
    /// kube-scheduler's default scores, fractional GPUs.
    K8sLeast,
    /// kube-scheduler's MostAllocated, fractional GPUs.
    K8sMost,
    /// kube-scheduler's default scores, a whole GPU for every share of one.
    K8sWhole,
    /// Any node and device that fits.
    Random,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Ours,
        Self::OursOnline,
        Self::Fgd,
        Self::BestFit,
        Self::DotProd,
        Self::Packing,
        Self::Clustering,
        Self::K8sLeast,
        Self::K8sMost,
        Self::K8sWhole,
        Self::Random,
    ];

    /// As it is typed and printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursOnline => "ours-online",
            Self::Fgd => "fgd",
            Self::BestFit => "bestfit",
            Self::DotProd => "dotprod",
            Self::Packing => "packing",
            Self::Clustering => "clustering",
            Self::K8sLeast => "k8s-least",
            Self::K8sMost => "k8s-most",
            Self::K8sWhole => "k8s-whole",
            Self::Random => "random",
        }
    }

    /// The policy, ready for the first arrival of the trace's pods on an empty fleet of `nodes`.
    #[must_use]
    pub fn build(self, trace: &Trace, nodes: usize, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::Ours => {
                let shapes = trace.pods().iter().map(|pod| &pod.shape);
                Box::new(GapPrice::known(Demand::of(shapes), nodes))
            }
            Self::OursOnline => Box::new(GapPrice::learning(nodes)),
            Self::Fgd => {
                let pods = trace.pods().iter();
                let named = pods.map(|pod| (&pod.shape, pod.models.as_str()));
                Box::new(by_score(Fgd::new(named)))
            }
            Self::BestFit => Box::new(by_score(Baseline::BestFit)),
            Self::DotProd => Box::new(by_score(Baseline::DotProduct)),
            Self::Packing => Box::new(by_score(Baseline::Packing)),
            Self::Clustering => Box::new(by_score(Baseline::clustering(nodes))),
            Self::K8sLeast | Self::K8sWhole => Box::new(by_score(Baseline::KubeLeast)),
            Self::K8sMost => Box::new(by_score(Baseline::KubeMost)),
            Self::Random => Box::new(Random::new(seed)),
        }
    }

    /// What a pod takes under this policy.
    #[must_use]
    pub fn takes(self, shape: &Shape) -> Shape {
        if self == Self::K8sWhole && shape.is_shared() {
            Shape {
                milli_gpu: 1000,
                ..*shape
            }
        } else {
            *shape
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|policy| policy.name()).collect();
            format!("no policy {text:?}; there are {}", names.join(", "))
        })
    }
}
