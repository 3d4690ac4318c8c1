//! A second, slow and simple answer to "may this pod run there": it sums up all pods each time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::build::*;
use crate::model::{
    Change, Decision, Delta, Job, Node, Operator, Phase, Pod, Selector, Str, TaintEffect, Uid,
};

/// Everything that exists, by name.
#[derive(Clone, Default)]
pub(super) struct World {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) jobs: BTreeMap<String, Job>,
    pub(super) decisions: BTreeMap<Uid, Arc<Decision>>,
    /// Pod name to node, for bindings that are written and not seen.
    pub(super) assumed: BTreeMap<String, Str>,
}

impl World {
    /// The deltas that tell all of it.
    pub(super) fn deltas(&self) -> Vec<Delta> {
        let nodes = self.nodes.values().cloned().map(set_node);
        let pods = self.pods.values().cloned().map(set_pod);
        let jobs = self
            .jobs
            .values()
            .map(|j| Delta::Job(Change::Set(Arc::new(j.clone()))));
        nodes.chain(pods).chain(jobs).collect()
    }

    fn place(&self, pod: &Pod) -> Option<Str> {
        if matches!(pod.phase, Phase::Succeeded | Phase::Failed) {
            return None;
        }
        pod.node
            .clone()
            .or_else(|| self.assumed.get(&*pod.meta.name).cloned())
    }

    fn on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods
            .values()
            .filter(move |p| self.place(p).as_deref() == Some(node))
    }

    pub(super) fn fits(&self, pod: &Pod, node: &Node) -> bool {
        let tolerant = !pod.constraints.tolerations.is_empty();
        let tainted = node
            .taints
            .iter()
            .any(|t| t.effect != TaintEffect::PreferNoSchedule);
        if (node.unschedulable || tainted) && !tolerant {
            return false;
        }
        let zone = node.meta.label("zone");
        for (key, value) in &pod.constraints.node_selector {
            if node.meta.label(key) != Some(&**value) {
                return false;
            }
        }
        if let Some(affinity) = &pod.constraints.affinity
            && !zone_passes(affinity, zone)
        {
            return false;
        }
        let here: Vec<&Pod> = self.on(&node.meta.name).collect();
        if here.len() as i64 >= node.allocatable.pods {
            return false;
        }
        for port in &pod.constraints.host_ports {
            if here.iter().any(|p| p.constraints.host_ports.contains(port)) {
                return false;
            }
        }
        let cpu: i64 = here.iter().map(|p| p.requests.cpu_milli).sum();
        let gpus = |p: &&Pod| p.requests.extended("nvidia.com/gpu");
        let used: i64 = here.iter().map(gpus).sum();
        let wanted = gpus(&pod);
        (pod.requests.cpu_milli == 0 || cpu + pod.requests.cpu_milli <= node.allocatable.cpu_milli)
            && (wanted == 0 || used + wanted <= node.allocatable.extended("nvidia.com/gpu"))
    }

    pub(super) fn fits_somewhere(&self, pod: &Pod) -> bool {
        self.nodes.values().any(|n| self.fits(pod, n))
    }

    /// Waits for us and has no problem of its own.
    pub(super) fn is_able(&self, pod: &Pod) -> bool {
        pod.node.is_none()
            && pod.phase == Phase::Pending
            && &*pod.scheduler == "gpudeck"
            && pod.gates.is_empty()
            && pod.meta.deleting.is_none()
            && pod.meta.annotations.is_empty()
            && !self.assumed.contains_key(&*pod.meta.name)
    }

    /// Members of the pod's gang, itself among them, and how many must have a place; `None` for a
    /// pod that is for itself, `Some(None)` when its Job is not known.
    pub(super) fn gang(&self, pod: &Pod) -> Option<Option<(Vec<&Pod>, usize)>> {
        if let Some(group) = &pod.group {
            let members: Vec<&Pod> = self
                .pods
                .values()
                .filter(|p| p.group.as_ref().is_some_and(|g| g.name == group.name))
                .collect();
            let need = members
                .iter()
                .filter_map(|p| p.group.as_ref()?.min_members)
                .max()?;
            return (need > 1).then_some(Some((members, need as usize)));
        }
        let owner = pod.meta.owners.first()?;
        let Some(job) = self.jobs.get(&*owner.name) else {
            return Some(None);
        };
        let members: Vec<&Pod> = self
            .pods
            .values()
            .filter(|p| p.meta.owners.first() == Some(owner) && p.group.is_none())
            .collect();
        let done = members
            .iter()
            .filter(|p| p.phase == Phase::Succeeded)
            .count();
        let need = match job.completions {
            Some(c) => (job.parallelism as usize).min((c as usize).saturating_sub(done)),
            None => (job.parallelism as usize).saturating_sub(done),
        };
        (need > 1 && job.parallelism > 1).then_some(Some((members, need)))
    }

    /// Members that have a place now.
    pub(super) fn with_place(&self, members: &[&Pod]) -> usize {
        members
            .iter()
            .filter(|p| p.meta.deleting.is_none() && self.place(p).is_some())
            .count()
    }

    /// Places as many equal pods as fit, and tells how many that are.
    pub(super) fn how_many_fit(&self, members: &[&Pod]) -> usize {
        let mut world = self.clone();
        for (placed, member) in members.iter().enumerate() {
            let Some(node) = self.nodes.values().find(|n| world.fits(member, n)) else {
                return placed;
            };
            world
                .assumed
                .insert(member.meta.name.to_string(), node.meta.name.clone());
        }
        members.len()
    }
}

/// Terms on the label `zone` only, as the random worlds make them.
fn zone_passes(affinity: &Selector, zone: Option<&str>) -> bool {
    affinity.terms.iter().any(|t| {
        let Some(e) = t.labels.first() else {
            return false;
        };
        let listed = e.values.iter().any(|v| Some(&**v) == zone);
        match e.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => zone.is_some(),
            Operator::DoesNotExist => zone.is_none(),
            Operator::Gt => zone.is_some_and(|z| z.parse::<i64>().is_ok_and(|z| z > 1)),
            Operator::Lt => zone.is_some_and(|z| z.parse::<i64>().is_ok_and(|z| z < 1)),
        }
    })
}
