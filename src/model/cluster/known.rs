//! The picture as deltas again: who folds them into a shape of its own knows as much.

use std::fmt;
use std::sync::Arc;

use ahash::AHashMap;
use jiff::Timestamp;

use super::super::budget::DisruptionBudget;
use super::super::delta::{Change, Delta};
use super::super::foreign::ForeignKind;
use super::super::job::{VolumeClaim, VolumeTopology};
use super::super::meta::{Meta, Uid};
use super::super::queue::Queue;
use super::Cluster;

/// Objects that no view shows and that decisions rest on.
#[derive(Default)]
pub(super) struct Unshown {
    budgets: AHashMap<Uid, Arc<DisruptionBudget>>,
    volumes: AHashMap<Uid, Arc<VolumeTopology>>,
    claims: AHashMap<Uid, Arc<VolumeClaim>>,
    /// Our queues as they are written; views have them in the shape of all queues.
    queues: AHashMap<Uid, Arc<Queue>>,
}

fn fold<T>(all: &mut AHashMap<Uid, Arc<T>>, change: &Change<T>, meta: fn(&T) -> &Meta) {
    match change {
        Change::Set(object) => {
            all.insert(meta(object).uid.clone(), object.clone());
        }
        Change::Gone(gone) => {
            all.remove(&gone.uid);
        }
    }
}

impl Unshown {
    pub(super) fn apply(&mut self, delta: &Delta) {
        match delta {
            Delta::Budget(change) => fold(&mut self.budgets, change, |b| &b.meta),
            Delta::Volume(change) => fold(&mut self.volumes, change, |v| &v.meta),
            Delta::VolumeClaim(change) => fold(&mut self.claims, change, |c| &c.meta),
            Delta::Queue(change) => fold(&mut self.queues, change, |q| &q.meta),
            _ => {}
        }
    }
}

/// All that decisions rest on, at one moment. Cheap to copy.
#[derive(Clone)]
pub struct Known(Arc<[Delta]>);

impl Known {
    /// The objects as deltas, each once, in an order that depends on nothing else.
    pub fn deltas(&self) -> Vec<Delta> {
        let mut deltas = self.0.to_vec();
        deltas.sort_by_cached_key(order);
        deltas
    }
}

/// The same moment.
impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Known {}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Known({} objects)", self.0.len())
    }
}

/// What others refer to comes first, of a kind the oldest.
fn order(delta: &Delta) -> (u8, Option<Timestamp>, Option<Uid>) {
    let at = |rank: u8, meta: &Meta| (rank, meta.created, Some(meta.uid.clone()));
    match delta {
        Delta::PriorityClass(Change::Set(class)) => at(1, &class.meta),
        Delta::Queue(Change::Set(queue)) => at(2, &queue.meta),
        Delta::Foreign(_, Change::Set(object)) => at(3, &object.meta),
        Delta::Volume(Change::Set(volume)) => at(4, &volume.meta),
        Delta::VolumeClaim(Change::Set(claim)) => at(5, &claim.meta),
        Delta::Node(Change::Set(node)) => at(6, &node.meta),
        Delta::Job(Change::Set(job)) => at(7, &job.meta),
        Delta::Pod(Change::Set(pod)) => at(8, &pod.meta),
        Delta::Budget(Change::Set(budget)) => at(9, &budget.meta),
        Delta::Decision(decision) => (10, Some(decision.at), Some(decision.pod.clone())),
        _ => (0, None, None),
    }
}

impl Cluster {
    /// What decisions rest on, as of now.
    pub fn known(&self) -> Known {
        let most = self.pods.len() + self.nodes.len() + self.jobs.len();
        let mut all: Vec<Delta> = Vec::with_capacity(most);
        all.extend(self.sources.values().cloned().map(Delta::Source));
        let classes = self.priority_classes.values().cloned();
        all.extend(classes.map(|c| Delta::PriorityClass(Change::Set(c))));
        let hidden = &self.unshown;
        let queues = hidden.queues.values().cloned();
        all.extend(queues.map(|q| Delta::Queue(Change::Set(q))));
        all.extend(self.quotas());
        let volumes = hidden.volumes.values().cloned();
        all.extend(volumes.map(|v| Delta::Volume(Change::Set(v))));
        let claims = hidden.claims.values().cloned();
        all.extend(claims.map(|c| Delta::VolumeClaim(Change::Set(c))));
        let nodes = self.nodes.values().filter_map(|e| {
            let node = e.node.as_ref()?;
            let plain = self.plain_nodes.get(&node.meta.name);
            Some(plain.unwrap_or(node).clone())
        });
        all.extend(nodes.map(|n| Delta::Node(Change::Set(n))));
        let jobs = self.jobs.values().cloned();
        all.extend(jobs.map(|j| Delta::Job(Change::Set(j))));
        let pods = self.pods.values().map(|e| e.pod.clone());
        all.extend(pods.map(|p| Delta::Pod(Change::Set(p))));
        let budgets = hidden.budgets.values().cloned();
        all.extend(budgets.map(|b| Delta::Budget(Change::Set(b))));
        all.extend(self.decisions.values().cloned().map(Delta::Decision));
        Known(all.into())
    }

    /// ResourceQuotas limit namespaces.
    fn quotas(&self) -> impl Iterator<Item = Delta> {
        let objects = self.foreign_objects(ForeignKind::ResourceQuota);
        objects.map(|o| Delta::Foreign(ForeignKind::ResourceQuota, Change::Set(o.clone())))
    }
}
