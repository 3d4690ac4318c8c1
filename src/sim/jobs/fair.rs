//! Ways to share one pool among tenants, each against what its tenants would have alone.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::cells::{self, Shares};
use super::job::{JobsError, Trace};
use super::policy::Policy;
use super::run::{self, Setting};
use super::tally::{Outcome, Times};

/// Tenants with fewer jobs are left out, as the Helios artifact does: their means say nothing.
const FEWEST_JOBS: usize = 9;
/// A tenant counts as worse off from this ratio on: a thousandth is rounding.
const WORSE: f64 = 1.001;

/// How a pool is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Each tenant has its nodes and no others.
    Static,
    /// No quotas: first come of those that fit.
    Fifo,
    /// Quotas in GPUs say whose turn it is; nothing is guaranteed, nobody interrupted.
    Quota,
    /// gpudeck's: guaranteed cells of whole nodes, bursts beyond, odds within a tenant.
    Ours,
}

impl Sharing {
    /// All, baselines first.
    pub const ALL: [Sharing; 4] = [
        Sharing::Static,
        Sharing::Fifo,
        Sharing::Quota,
        Sharing::Ours,
    ];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sharing::Static => "static",
            Sharing::Fifo => "fifo",
            Sharing::Quota => "quota",
            Sharing::Ours => "ours",
        }
    }

    /// The order of a tenant's jobs, shared and alone.
    fn policy(self) -> Policy {
        match self {
            Sharing::Ours => Policy::Ours,
            _ => Policy::FifoGreedy,
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Sharing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Sharing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Sharing::ALL.into_iter().find(|s| s.name() == text);
        found.ok_or_else(|| {
            let names = Sharing::ALL.map(Sharing::name).join(", ");
            format!("{text:?} is no way to share; there are {names}")
        })
    }
}

/// What sharing did to one tenant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantRow {
    /// Its name.
    pub tenant: String,
    /// Its quota.
    pub nodes: u32,
    /// Its jobs.
    pub jobs: usize,
    /// Mean time from submission to end, shared.
    pub jct_s: f64,
    /// The same alone on its quota, under the same order.
    pub alone_s: f64,
    /// The former by the latter: finish-time fairness, above 1 it is worse off.
    pub ratio: f64,
}

/// A way to share, and what became of the tenants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FairRow {
    /// The way.
    pub sharing: Sharing,
    /// GPUs of the pool.
    pub gpus: u32,
    /// Of all jobs.
    pub jct_s: Times,
    /// The worst ratio of a tenant.
    pub worst_ratio: f64,
    /// Tenants that are worse off than alone.
    pub worse_off: usize,
    /// Jain's index of the tenants' mean slowdowns; 1 is equal.
    pub jain: f64,
    /// GPUs that worked, in percent.
    pub busy_pct: f64,
    /// Interruptions.
    pub interrupted: u64,
    /// Jobs left out: larger than their tenant's quota, or of a tenant with hardly any.
    pub left_out: usize,
    /// Each tenant.
    pub tenants: Vec<TenantRow>,
}

/// Nodes of each of the trace's tenants, in proportion to `sizes`, at least one each, together
/// `nodes`; those that are not in `sizes` get none.
#[must_use]
pub fn quotas(tenants: &[String], sizes: &BTreeMap<String, u32>, nodes: u32) -> Vec<u32> {
    let size = |tenant: &String| u64::from(sizes.get(tenant).copied().unwrap_or_default());
    let all: u64 = tenants.iter().map(size).sum::<u64>().max(1);
    let exact = |tenant: &String| size(tenant) * u64::from(nodes);
    let mut quotas: Vec<u32> = tenants
        .iter()
        .map(|tenant| {
            let least = u64::from(size(tenant) > 0);
            u32::try_from((exact(tenant) / all).max(least)).unwrap_or(u32::MAX)
        })
        .collect();
    // Largest remainders first, then the smallest index; what was given too much comes from the
    // largest.
    let mut order: Vec<usize> = (0..tenants.len())
        .filter(|n| tenants.get(*n).is_some_and(|t| size(t) > 0))
        .collect();
    order.sort_by_key(|n| {
        let rest = tenants.get(*n).map_or(0, |t| exact(t) % all);
        (std::cmp::Reverse(rest), *n)
    });
    let mut next = order.iter().cycle();
    while quotas.iter().sum::<u32>() < nodes
        && let Some(quota) = next.next().and_then(|n| quotas.get_mut(*n))
    {
        *quota += 1;
    }
    while quotas.iter().sum::<u32>() > nodes
        && let Some(quota) = quotas.iter_mut().max().filter(|quota| **quota > 1)
    {
        *quota -= 1;
    }
    quotas
}

/// Shares a pool of `nodes` nodes, and runs each tenant alone beside it.
///
/// # Errors
/// There are fewer nodes than tenants.
pub fn fair(
    trace: &Trace,
    sizes: &BTreeMap<String, u32>,
    nodes: u32,
    gpus_per_node: u32,
    sharing: Sharing,
    restart_s: f64,
) -> Result<FairRow, JobsError> {
    let quotas = quotas(&trace.tenants, sizes, nodes);
    let of = |tenant: usize| quotas.get(tenant).copied().unwrap_or_default();
    let mut jobs: Vec<usize> = vec![0; trace.tenants.len()];
    for job in &trace.jobs {
        if let Some(count) = jobs.get_mut(job.tenant) {
            *count += 1;
        }
    }
    let kept = trace.filtered(|job| {
        let many = jobs.get(job.tenant).is_some_and(|n| *n >= FEWEST_JOBS);
        many && job.gpus <= of(job.tenant) * gpus_per_node
    });
    let policy = sharing.policy();
    let setting = |nodes: u32| Setting {
        nodes,
        gpus_per_node,
        policy,
        restart_s,
        seed: 0,
    };
    let mut alone: Vec<Option<Outcome>> = Vec::new();
    for tenant in 0..trace.tenants.len() {
        let of_tenant = kept.filtered(|job| job.tenant == tenant);
        alone.push(if of_tenant.jobs.is_empty() {
            None
        } else {
            Some(run::run(&of_tenant, setting(of(tenant)))?)
        });
    }
    let shared = match sharing {
        Sharing::Static => None,
        Sharing::Fifo => Some(run::run(&kept, setting(nodes))?),
        Sharing::Quota | Sharing::Ours => Some(cells::run(
            &kept,
            Shares {
                nodes: &quotas,
                gpus_per_node,
                policy,
                restart_s,
                guaranteed: sharing == Sharing::Ours,
            },
        )),
    };
    let mut row = FairRow {
        sharing,
        gpus: nodes * gpus_per_node,
        jct_s: Times::default(),
        worst_ratio: 0.0,
        worse_off: 0,
        jain: 0.0,
        busy_pct: 0.0,
        interrupted: 0,
        left_out: trace.jobs.len() - kept.jobs.len(),
        tenants: Vec::new(),
    };
    let mut slowdowns: Vec<f64> = Vec::new();
    let mut jcts: Vec<f64> = Vec::new();
    for (tenant, alone) in alone.iter().enumerate() {
        let Some(alone) = alone else { continue };
        let own = kept.jobs.iter().enumerate();
        let own = own.filter(|(_, job)| job.tenant == tenant);
        let together: Vec<f64> = match &shared {
            Some(shared) => own
                .clone()
                .filter_map(|(at, _)| shared.jcts_s.get(at).copied())
                .collect(),
            None => alone.jcts_s.clone(),
        };
        let slow = own.zip(&together);
        let slow = slow.map(|((_, job), jct)| jct / job.duration_s.max(1.0));
        slowdowns.push(mean(&slow.collect::<Vec<f64>>()));
        let (jct_s, alone_s) = (mean(&together), mean(&alone.jcts_s));
        row.tenants.push(TenantRow {
            tenant: trace.tenants.get(tenant).cloned().unwrap_or_default(),
            nodes: of(tenant),
            jobs: together.len(),
            jct_s,
            alone_s,
            ratio: jct_s / alone_s,
        });
        jcts.extend(together);
        if shared.is_none() {
            row.interrupted += alone.interrupted;
            row.busy_pct += alone.busy_pct * f64::from(of(tenant)) / f64::from(nodes);
        }
    }
    if let Some(shared) = &shared {
        row.interrupted = shared.interrupted;
        row.busy_pct = shared.busy_pct;
    }
    row.jct_s = Times::of(jcts);
    row.worst_ratio = row.tenants.iter().map(|t| t.ratio).fold(0.0, f64::max);
    row.worse_off = row.tenants.iter().filter(|t| t.ratio > WORSE).count();
    row.jain = jain(&slowdowns);
    Ok(row)
}

#[allow(clippy::cast_precision_loss)]
fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

/// Jain's index: 1 where all are equal, 1/n where one has all.
#[allow(clippy::cast_precision_loss)]
fn jain(all: &[f64]) -> f64 {
    let sum: f64 = all.iter().sum();
    let squares: f64 = all.iter().map(|x| x * x).sum();
    if squares > 0.0 {
        sum * sum / (all.len() as f64 * squares)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_whole_proportional_and_all_of_the_pool() {
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let sizes: BTreeMap<String, u32> = [("a", 64), ("b", 32), ("c", 1)]
            .map(|(name, size)| (name.to_owned(), size))
            .into();
        assert_eq!(quotas(&names, &sizes, 16), [10, 5, 1, 0]);
        assert_eq!(quotas(&names, &sizes, 97), [64, 32, 1, 0]);
        assert_eq!(quotas(&names, &sizes, 3), [1, 1, 1, 0]);
    }

    #[test]
    fn jain_tells_equal_from_unequal() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0]) - 0.5).abs() < 1e-12);
    }
}
