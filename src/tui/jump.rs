//! Where a thing leads to: its pods, its owner, its node, its view.

use std::sync::Arc;

use super::view::{Target, ViewId};
use crate::model::{Cluster, Pod};

/// The view that shows a thing.
pub(super) fn view_of(target: &Target) -> ViewId {
    match target {
        Target::Node(_) | Target::Gpu(..) => ViewId::Nodes,
        Target::Event(_) | Target::Decision(..) | Target::Fault(..) => ViewId::Timeline,
        Target::Workload(_) | Target::Pod(_) | Target::Namespace(_) => ViewId::Jobs,
        Target::Queue(_) => ViewId::Queues,
        Target::Tier(_) => ViewId::Tiers,
        Target::Object(_) => ViewId::Browse,
        Target::Domain(_) => ViewId::Topology,
    }
}

/// Whether it can be told why a thing is where it is.
pub(super) fn has_why(target: &Target) -> bool {
    matches!(target, Target::Workload(_) | Target::Pod(_))
}

/// Whether a thing has pods that were started, without a look at each.
pub(super) fn has_pods(target: &Target, cluster: &Cluster) -> bool {
    match target {
        Target::Workload(key) => cluster.workload(key).is_some_and(|w| w.pods > w.waiting),
        Target::Pod(uid) | Target::Decision(_, uid) => {
            cluster.pod(uid).is_some_and(|p| p.node.is_some())
        }
        _ => false,
    }
}

/// Whether a thing may be a part of something else; who goes there may find that it is not.
pub(super) fn has_owner(target: &Target, cluster: &Cluster) -> bool {
    match target {
        Target::Event(_) => true,
        other => owner(other, cluster).is_some(),
    }
}

/// Whether a thing is on a node.
pub(super) fn has_node(target: &Target, cluster: &Cluster) -> bool {
    match target {
        Target::Workload(_) | Target::Pod(_) | Target::Decision(..) => has_pods(target, cluster),
        other => node(other, cluster).is_some(),
    }
}

/// The pods of a thing that were started once, in the order of their ranks.
pub(super) fn pods<'a>(target: &Target, cluster: &'a Cluster) -> Vec<&'a Arc<Pod>> {
    let mut pods: Vec<&Arc<Pod>> = match target {
        Target::Workload(key) => cluster.workload_pods(key),
        Target::Pod(uid) | Target::Decision(_, uid) => cluster.pod(uid).into_iter().collect(),
        _ => Vec::new(),
    };
    pods.retain(|p| p.node.is_some());
    pods.sort_by_cached_key(|p| (p.rank(), p.meta.name.clone()));
    pods
}

/// What a thing is a part of: a pod's workload, a workload's queue, what an Event is about.
pub(super) fn owner(target: &Target, cluster: &Cluster) -> Option<Target> {
    match target {
        Target::Pod(uid) | Target::Decision(_, uid) => {
            cluster.workload_of(uid).cloned().map(Target::Workload)
        }
        Target::Workload(key) => cluster
            .entry_of(key)
            .map(|e| Target::Queue(e.queue.clone())),
        Target::Gpu(node, _) | Target::Fault(node, _) => Some(Target::Node(node.clone())),
        Target::Queue(key) => cluster
            .queue(key)?
            .queue()?
            .parent
            .clone()
            .map(Target::Queue),
        Target::Event(uid) => subject(cluster, cluster.event(uid)?),
        Target::Domain(way) => {
            let (above, _) = way.rsplit_once('/')?;
            Some(Target::Domain(above.into()))
        }
        Target::Node(_) | Target::Namespace(_) | Target::Object(_) | Target::Tier(_) => None,
    }
}

/// The thing that an Event is about, where it is one that a view shows.
pub(super) fn subject(cluster: &Cluster, event: &crate::model::Event) -> Option<Target> {
    let (namespace, name) = (&event.subject_namespace, &event.subject_name);
    match &*event.subject_kind {
        "Node" => Some(Target::Node(name.clone())),
        "Pod" => {
            let pod = cluster
                .pods()
                .find(|p| p.meta.name == *name && p.meta.namespace == *namespace)?;
            let key = cluster.workload_of(&pod.meta.uid)?;
            Some(Target::Workload(key.clone()))
        }
        kind => {
            let key = crate::model::WorkloadKey {
                namespace: namespace.clone(),
                kind: kind.into(),
                name: name.clone(),
            };
            cluster.workload(&key).map(|_| Target::Workload(key))
        }
    }
}

/// The node of a thing; of a workload that of its first rank.
pub(super) fn node(target: &Target, cluster: &Cluster) -> Option<Target> {
    match target {
        Target::Gpu(node, _) | Target::Fault(node, _) => Some(Target::Node(node.clone())),
        Target::Event(uid) => {
            let event = cluster.event(uid)?;
            (&*event.subject_kind == "Node").then(|| Target::Node(event.subject_name.clone()))
        }
        _ => {
            let first = pods(target, cluster).into_iter().next()?;
            first.node.clone().map(Target::Node)
        }
    }
}
