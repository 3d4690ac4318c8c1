//! One run: the arrivals of a seed under a policy.

use super::error::OpenbError;
use super::policy::PolicyName;
use super::read::Trace;

/// Loads that are kept, in percent.
const LOADS: usize = 131;

/// Allocation over load.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Per percent of load: sum of the allocation over the arrivals, and their number.
    bins: Vec<(f64, u32)>,
    /// Arrivals.
    pub arrivals: u64,
    /// Pods that were placed.
    pub placed: u64,
}

impl Curve {
    /// Allocation in percent of the fleet's GPUs at a load in percent; `None` when no arrival fell
    /// on it.
    #[must_use]
    pub fn at(&self, load_pct: usize) -> Option<f64> {
        let (sum, count) = self.bins.get(load_pct)?;
        (*count > 0).then(|| sum / f64::from(*count))
    }
}

/// Lets the pods of `seed` arrive under a policy. `each` hears of every arrival's number.
///
/// # Errors
/// The order or the ranks cannot be read.
pub fn replay(
    trace: &Trace,
    policy: PolicyName,
    seed: u64,
    mut each: impl FnMut(u64),
) -> Result<Curve, OpenbError> {
    let mut fleet = trace.fleet(seed)?;
    let mut order = trace.order(seed)?;
    let capacity = fleet.free_milli_gpu() as f64;
    let mut chooser = policy.build(trace, trace.nodes(), seed);
    let mut curve = Curve {
        bins: vec![(0.0, 0); LOADS],
        arrivals: 0,
        placed: 0,
    };
    let (mut arrived, mut allocated) = (0i64, 0i64);
    while let Some(pod) = order.next_pod()? {
        arrived += pod.shape.total_milli_gpu();
        let takes = policy.takes(&pod.shape);
        chooser.arrived(&fleet, &takes);
        if let Some(choice) = chooser.choose(&fleet, &takes) {
            fleet.place(choice.node, &takes, choice.devices);
            chooser.changed(choice.node, &takes, 1);
            allocated += pod.shape.total_milli_gpu();
            curve.placed += 1;
        }
        curve.arrivals += 1;
        let load = (arrived as f64 / capacity * 100.0).round() as usize;
        if let Some((sum, count)) = curve.bins.get_mut(load) {
            *sum += allocated as f64 / capacity * 100.0;
            *count += 1;
        }
        each(curve.arrivals);
    }
    Ok(curve)
}
