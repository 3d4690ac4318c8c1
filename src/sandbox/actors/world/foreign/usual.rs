//! A queue for each team in each of the other admitters, as a cluster that is new to them has it.

use super::{kai, kueue, volcano};

/// The fabric's levels, from the top.
const FABRIC: [&str; 4] = [
    "fabric.topograph.run/tier-2",
    "fabric.topograph.run/tier-1",
    "fabric.topograph.run/tier-0",
    "kubernetes.io/hostname",
];

/// A queue of `gpus` GPUs for each team, in one cohort, reserved capacity before spot.
pub fn kueue(teams: &[String], gpus: u32) -> kueue::Settings {
    use kueue::{ClusterQueue, Flavor, GpuQuota, LocalQueue};
    let tiers = ["reserved", "spot"];
    let flavor = |tier: &str| Flavor {
        name: tier.to_owned(),
        node_labels: [("karpenter.sh/capacity-type".to_owned(), tier.to_owned())].into(),
    };
    let quota = |tier: &str| GpuQuota {
        flavor: tier.to_owned(),
        nominal: gpus,
        borrowing: None,
    };
    let cluster_queue = |team: &String| ClusterQueue {
        name: team.clone(),
        cohort: "teams".to_owned(),
        strict: false,
        gpus: tiers.map(quota).into(),
        preempts: "LowerPriority".to_owned(),
        reclaims: "Any".to_owned(),
    };
    let local_queue = |team: &String| LocalQueue {
        namespace: team.clone(),
        name: "main".to_owned(),
        cluster_queue: team.clone(),
    };
    kueue::Settings {
        flavors: tiers.map(flavor).into(),
        cluster_queues: teams.iter().map(cluster_queue).collect(),
        local_queues: teams.iter().map(local_queue).collect(),
        priorities: [("prod", 1_000), ("dev", 100)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        topology: FABRIC.map(str::to_owned).into(),
    }
}

/// A queue that deserves `gpus` GPUs for each team, and may hold twice as many.
pub fn volcano(teams: &[String], gpus: u32) -> volcano::Settings {
    let queue = |team: &String| volcano::Queue {
        name: team.clone(),
        parent: String::new(),
        weight: 1,
        deserved_gpus: Some(gpus),
        capability_gpus: Some(gpus.saturating_mul(2)),
    };
    // A node is what the narrowest HyperNodes hold, and no level of its own.
    let [switches @ .., _] = FABRIC;
    volcano::Settings {
        queues: teams.iter().map(queue).collect(),
        topology: switches.map(str::to_owned).into(),
    }
}

/// A queue of `gpus` GPUs for each team below one for all.
pub fn kai(teams: &[String], gpus: u32) -> kai::Settings {
    let queue = |name: &str, parent: &str, quota_gpus: f64| kai::Queue {
        name: name.to_owned(),
        parent: parent.to_owned(),
        quota_gpus,
        limit_gpus: -1.0,
        over_quota_weight: 1.0,
        priority: 100,
    };
    let each = f64::from(gpus);
    let all = queue("teams", "", each * teams.len() as f64);
    let own = teams.iter().map(|team| queue(team, "teams", each));
    kai::Settings {
        queues: [all].into_iter().chain(own).collect(),
        topology: FABRIC.map(str::to_owned).into(),
    }
}
