//! Which workloads Kueue lets go, in which order, and what it says of the others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::kueue_actor::Kueue;
use super::kueue_preempt::{Asker, Holder, Policy, victims};
use super::kueue_quota::{Amounts, Assignment, Quotas, Usage};
use super::kueue_status as status;
use super::kueue_topology::assignment as assignment_of;
use super::standing::text;
use crate::sandbox::actors::objects::Custom;

impl Kueue {
    /// What admitted workloads hold.
    pub(super) fn usage(&self) -> Usage {
        let mut usage = Usage::new();
        for object in self.workloads.values() {
            if status::is_true(object, "QuotaReserved") && !status::is_true(object, "Finished") {
                status::add_usage(object, &mut usage);
            }
        }
        usage
    }

    pub(super) fn quotas(&self) -> BTreeMap<String, Quotas> {
        let queues = self.cluster_queues.iter();
        queues
            .map(|(name, queue)| (name.clone(), Quotas::read(&queue.spec)))
            .collect()
    }

    pub(super) async fn admit(&mut self) {
        let quotas = self.quotas();
        let mut usage = self.usage();
        let mut pending: Vec<(i64, Option<String>, String)> = self
            .workloads
            .iter()
            .filter(|(_, object)| {
                !status::is_true(object, "QuotaReserved") && !status::is_true(object, "Finished")
            })
            .map(|(key, object)| {
                (
                    -status::priority(object),
                    object.metadata.creation_timestamp.clone(),
                    key.clone(),
                )
            })
            .collect();
        pending.sort();
        let mut blocked: BTreeSet<String> = BTreeSet::new();
        self.seats.wanted = false;
        for (_, _, key) in pending {
            let Some(object) = self.workloads.get(&key).cloned() else {
                continue;
            };
            let mut verdict = self.verdict(&object, &quotas, &usage, &blocked);
            let (mut seats, mut full) = (None, false);
            if let Ok((_, _, assignment)) = &verdict {
                match self.seats_for(&object, assignment) {
                    Ok(found) => seats = found,
                    // Room on nodes is none that a preemption for quota would bring.
                    Err(why) => (full, verdict) = (true, Err(("WaitingForQuota", why))),
                }
            }
            self.seats.wanted |= full;
            let now = self.clock.now();
            let mut wanted = object.status.clone();
            match verdict {
                Ok((queue, asks, assignment)) => {
                    let count = status::pod_count(&object);
                    let topology = seats.as_ref().map(|(_, nodes)| assignment_of(nodes));
                    status::admit(
                        &mut wanted,
                        &object,
                        (&queue, count),
                        &asks,
                        &assignment,
                        topology,
                        now,
                    );
                    if let Some((pod, nodes)) = &seats {
                        self.seats.promise(&key, pod, nodes);
                    }
                    for (resource, flavor) in &assignment {
                        let amount = asks.get(resource).copied().unwrap_or(0);
                        let at = (queue.clone(), flavor.clone(), resource.clone());
                        *usage.entry(at).or_default() += amount;
                    }
                    self.write(&key, &wanted).await;
                    let flavors: Vec<String> = assignment
                        .values()
                        .map(|flavor| format!("{flavor}(Fit)"))
                        .collect();
                    let waited = status::age_secs(&object, now);
                    let reserved = format!(
                        "Quota reserved in ClusterQueue {queue}, wait time since queued was \
                         {waited}s; Flavors considered: main: {}",
                        flavors.join(", ")
                    );
                    self.say(&object, "QuotaReserved", false, reserved).await;
                    let admitted = format!(
                        "Admitted by ClusterQueue {queue}, wait time since reservation was 0s"
                    );
                    self.say(&object, "Admitted", false, admitted).await;
                }
                Err((reason, message)) => {
                    let (mut reason, mut message) = (reason, message);
                    if reason == "WaitingForQuota"
                        && !full
                        && let Some(pending) = self.preempt(&object, &quotas, &mut usage).await
                    {
                        reason = "WaitingForPreemptedWorkloads";
                        message =
                            format!("{message}. Pending the preemption of {pending} workload(s)");
                    }
                    let before = status::reason(&object, "QuotaReserved");
                    let why = (reason, message.as_str());
                    status::set(&mut wanted, &object, "QuotaReserved", false, why, now);
                    if reason.starts_with("WaitingFor")
                        && let Some((_, cluster)) = self.cluster_queue_of(&object)
                        && text(&cluster.spec, "queueingStrategy") == "StrictFIFO"
                    {
                        blocked.insert(cluster.metadata.name.clone());
                    }
                    self.write(&key, &wanted).await;
                    if before.as_deref() != Some(reason) {
                        self.say(&object, reason, true, message).await;
                    }
                }
            }
        }
    }

    /// Stops others so that the workload finds quota in a later round, which it is counted with
    /// from now on; how many, and `None` when that does not help.
    async fn preempt(
        &mut self,
        object: &Custom,
        quotas: &BTreeMap<String, Quotas>,
        usage: &mut Usage,
    ) -> Option<usize> {
        let (_, cluster) = self.cluster_queue_of(object)?;
        let queue = cluster.metadata.name.clone();
        let asks = status::asks(object);
        let asker = Asker {
            queue: &queue,
            priority: status::priority(object),
            created: object
                .metadata
                .creation_timestamp
                .as_deref()
                .unwrap_or_default(),
            asks: &asks,
            policy: Policy::read(&cluster.spec),
        };
        let (assignment, victims) = victims(&asker, quotas, usage, &self.holders())?;
        for (resource, flavor) in assignment {
            let amount = asks.get(&resource).copied().unwrap_or(0);
            *usage.entry((queue.clone(), flavor, resource)).or_default() += amount;
        }
        let path = |queue: &str| {
            let cohort = quotas
                .get(queue)
                .map_or("", |quotas| quotas.cohort.as_str());
            match cohort {
                "" => format!("/{queue}"),
                cohort => format!("/{cohort}/{queue}"),
            }
        };
        let job = object.metadata.controller().map(|owner| owner.uid.clone());
        for (key, cause) in &victims {
            let Some(victim) = self.workloads.get(key).cloned() else {
                continue;
            };
            if status::is_true(&victim, "Evicted") {
                continue;
            }
            let theirs = text(victim.status.get("admission")?, "clusterQueue");
            let message = format!(
                "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor \
                 path: {}; preemptee path: {}",
                object.metadata.uid,
                job.as_deref().unwrap_or("UNKNOWN"),
                cause.words(),
                path(&queue),
                path(&theirs),
            );
            let now = self.clock.now();
            let mut wanted = victim.status.clone();
            status::evict(&mut wanted, &victim, ("Preempted", &message), now);
            let why = (cause.reason(), message.as_str());
            status::set(&mut wanted, &victim, "Preempted", true, why, now);
            self.write(key, &wanted).await;
            self.say(&victim, "EvictedDueToPreempted", false, message.clone())
                .await;
            self.say(&victim, "Preempted", false, message).await;
        }
        Some(victims.len())
    }

    /// The workloads that hold quota.
    fn holders(&self) -> Vec<Holder> {
        let all = self.workloads.iter().filter(|(_, object)| {
            status::is_true(object, "QuotaReserved") && !status::is_true(object, "Finished")
        });
        let holder = |(key, object): (&String, &std::sync::Arc<Custom>)| {
            let mut holds = Usage::new();
            status::add_usage(object, &mut holds);
            Some(Holder {
                key: key.clone(),
                queue: text(object.status.get("admission")?, "clusterQueue"),
                priority: status::priority(object),
                created: object
                    .metadata
                    .creation_timestamp
                    .clone()
                    .unwrap_or_default(),
                since: status::reserved_at(object),
                evicted: status::is_true(object, "Evicted"),
                holds,
            })
        };
        all.filter_map(holder).collect()
    }

    /// The queue, amounts and flavors of a workload that may go; else reason and message.
    fn verdict(
        &self,
        object: &Custom,
        quotas: &BTreeMap<String, Quotas>,
        usage: &Usage,
        blocked: &BTreeSet<String>,
    ) -> Result<(String, Amounts, Assignment), (&'static str, String)> {
        let name = text(&object.spec, "queueName");
        let local_key = format!("{}/{name}", object.metadata.namespace);
        let Some(local) = self.local_queues.get(&local_key) else {
            return Err(("Misconfigured", format!("LocalQueue {name} doesn't exist")));
        };
        let queue = text(&local.spec, "clusterQueue");
        let Some(cluster) = self.cluster_queues.get(&queue) else {
            return Err((
                "Misconfigured",
                format!("ClusterQueue {queue} doesn't exist"),
            ));
        };
        let stopped =
            |queue: &Custom| !matches!(text(&queue.spec, "stopPolicy").as_str(), "" | "None");
        if object.spec.get("active").and_then(Value::as_bool) == Some(false) {
            return Err(("Suspended", "The workload is deactivated".to_owned()));
        }
        if stopped(local) {
            return Err(("Suspended", format!("LocalQueue {name} is stopped")));
        }
        if stopped(cluster) {
            return Err(("Suspended", format!("ClusterQueue {queue} is stopped")));
        }
        let asks = status::asks(object);
        if blocked.contains(&queue) {
            let message = "Waiting for the workload at the head of the ClusterQueue".to_owned();
            return Err(("PendingEvaluation", message));
        }
        let Some(own) = quotas.get(&queue) else {
            return Err(("Misconfigured", format!("ClusterQueue {queue} is inactive")));
        };
        match own.assign(&queue, &asks, usage, quotas) {
            Ok(assignment) => Ok((queue, asks, assignment)),
            Err(message) => Err(("WaitingForQuota", message)),
        }
    }
}
