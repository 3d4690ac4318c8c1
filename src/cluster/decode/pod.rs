//! core/v1 Pod.

use jiff::Timestamp;

use super::amounts::{Amounts, ResourcesRead};
use super::constraints::{
    AffinityRead, ConstraintsPool, Parts, PortRead, SpreadRead, TolerationRead, VolumeRead,
};
use super::group::{SchedulingGroupRead, WorkloadRefRead, group_of};
use super::meta::MetaRead;
use super::read::{Ctx, Pairs, Word, object, quoted};
use crate::model::{ContainerAsk, Phase, Pod, Resources, Str, pod_requests};

object! { NamedRead { name: Word = "name" }}
object! { ContainerRead {
    name: Word = "name",
    resources: ResourcesRead = "resources",
    restart_policy: Word = "restartPolicy",
    ports: Vec<PortRead> = "ports",
}}
object! { SpecRead {
    node: Word = "nodeName",
    scheduler: Word = "schedulerName",
    priority: i32 = "priority",
    priority_class: Word = "priorityClassName",
    preemption: Word = "preemptionPolicy",
    gates: Vec<NamedRead> = "schedulingGates",
    containers: Vec<ContainerRead> = "containers",
    init: Vec<ContainerRead> = "initContainers",
    resources: Option<ResourcesRead> = "resources",
    overhead: Option<Amounts> = "overhead",
    node_selector: Pairs = "nodeSelector",
    affinity: AffinityRead = "affinity",
    tolerations: Vec<TolerationRead> = "tolerations",
    volumes: Vec<VolumeRead> = "volumes",
    resource_claims: Vec<NamedRead> = "resourceClaims",
    spread: Vec<SpreadRead> = "topologySpreadConstraints",
    group: Option<SchedulingGroupRead> = "schedulingGroup",
    workload_ref: Option<WorkloadRefRead> = "workloadRef",
}}
object! { WaitingRead { reason: Word = "reason" }}
object! { TerminatedRead {
    reason: Word = "reason",
    finished: Option<Timestamp> = "finishedAt",
}}
object! { StateRead {
    waiting: Option<WaitingRead> = "waiting",
    terminated: Option<TerminatedRead> = "terminated",
}}
object! { ContainerStatusRead {
    name: Word = "name",
    ready: bool = "ready",
    restarts: u32 = "restartCount",
    state: StateRead = "state",
    allocated: Amounts = "allocatedResources",
    resources: Option<ResourcesRead> = "resources",
}}
object! { ConditionRead {
    kind: Word = "type",
    status: Word = "status",
    reason: Word = "reason",
    message: Word = "message",
}}
object! { StatusRead {
    phase: Word = "phase",
    reason: Word = "reason",
    conditions: Vec<ConditionRead> = "conditions",
    started: Option<Timestamp> = "startTime",
    containers: Vec<ContainerStatusRead> = "containerStatuses",
    init: Vec<ContainerStatusRead> = "initContainerStatuses",
    allocated: Option<Amounts> = "allocatedResources",
}}
object! { PodRead {
    meta: MetaRead = "metadata",
    spec: Option<SpecRead> = "spec",
    status: Option<StatusRead> = "status",
}}

impl StatusRead {
    fn condition(&self, kind: &str) -> Option<&ConditionRead> {
        // Of two conditions of one type the later one counts.
        self.conditions.iter().rfind(|c| &*c.kind.0 == kind)
    }

    /// Why the pod is as it is, or `None` when nothing is wrong.
    fn reason(&self, phase: Phase, bound: bool) -> Option<Str> {
        let filled = |s: &Str| (!s.is_empty()).then(|| s.clone());
        if let Some(reason) = filled(&self.reason.0) {
            return Some(reason);
        }
        let states = || self.init.iter().chain(&self.containers).map(|c| &c.state);
        let waiting = states()
            .filter_map(|s| s.waiting.as_ref())
            .map(|w| &w.reason.0)
            .find(|r| !matches!(&***r, "" | "ContainerCreating" | "PodInitializing"));
        if let Some(reason) = waiting {
            return Some(reason.clone());
        }
        if phase == Phase::Failed
            && let Some(end) = states()
                .filter_map(|s| s.terminated.as_ref())
                .map(|t| &t.reason.0)
                .find(|r| !matches!(&***r, "" | "Completed"))
        {
            return Some(end.clone());
        }
        let scheduled = self.condition("PodScheduled").filter(|_| !bound)?;
        (&*scheduled.status.0 == "False")
            .then(|| filled(&scheduled.message.0).or_else(|| filled(&scheduled.reason.0)))
            .flatten()
    }
}

/// What each container asks for. While a resize is under way the larger of what is wanted, what
/// is allocated and what is in force counts; of a resize that cannot be done the wanted amount
/// does not (component-helpers resource, `determineContainerReqs`).
fn asks(
    containers: Vec<ContainerRead>,
    statuses: &[ContainerStatusRead],
    infeasible: bool,
    ports: &mut Vec<PortRead>,
) -> Vec<ContainerAsk> {
    containers
        .into_iter()
        .map(|c| {
            ports.extend(c.ports);
            let mut amounts = c.resources.into_amounts();
            let status = statuses.iter().find(|s| s.name == c.name);
            if let Some((status, in_force)) =
                status.and_then(|s| s.resources.as_ref().map(|r| (s, r)))
            {
                if infeasible {
                    amounts = in_force.requests.clone();
                } else {
                    amounts.max(&in_force.requests);
                }
                amounts.max(&status.allocated);
            }
            ContainerAsk {
                requests: amounts.into_resources(),
                sidecar: &*c.restart_policy.0 == "Always",
            }
        })
        .collect()
}

impl PodRead {
    pub(super) fn finish(
        self,
        ctx: &mut Ctx<'_>,
        pool: &mut ConstraintsPool,
    ) -> Result<Pod, String> {
        if self.spec.is_none() {
            ctx.note_at("spec", "missing, so what the pod asks for is not known");
        }
        if self.status.is_none() {
            ctx.note_at("status", "missing");
        }
        let spec = self.spec.unwrap_or_default();
        let status = self.status.unwrap_or_default();
        let phase = match &*status.phase.0 {
            "Pending" => Phase::Pending,
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            "" | "Unknown" => Phase::Unknown,
            other => {
                ctx.note_at(
                    "status.phase",
                    format_args!("{} is no phase", quoted(other)),
                );
                Phase::Unknown
            }
        };
        let infeasible = status
            .condition("PodResizePending")
            .is_some_and(|c| &*c.reason.0 == "Infeasible");
        let mut ports = Vec::new();
        let containers = asks(spec.containers, &status.containers, infeasible, &mut ports);
        let init = asks(spec.init, &status.init, infeasible, &mut ports);
        let pod_level = spec.resources.map(|r| {
            let mut amounts = r.into_amounts();
            if let Some(allocated) = &status.allocated {
                amounts.max(allocated);
            }
            amounts.into_resources()
        });
        let overhead: Option<Resources> = spec.overhead.map(Amounts::into_resources);
        let requests = pod_requests(&init, &containers, pod_level.as_ref(), overhead.as_ref());

        let parts = Parts {
            node_selector: spec.node_selector.0,
            affinity: spec.affinity,
            tolerations: spec.tolerations,
            ports,
            volumes: spec.volumes,
            spread: spec.spread,
            resource_claims: spec.resource_claims.into_iter().map(|c| c.name.0).collect(),
        };
        let mut constraints = parts.finish(&self.meta.name.0, ctx);
        // A pod that is only half understood must not be placed by what is left of it.
        if let Some(note) = ctx.first_note_below("spec") {
            let mut unsupported = constraints.unsupported.into_vec();
            unsupported.push(format!("a spec that cannot be read in full ({note})").into());
            constraints.unsupported = unsupported.into();
        }

        let node = spec.node.filled();
        let ready = match status.condition("Ready") {
            Some(c) => &*c.status.0 == "True",
            None => !status.containers.is_empty() && status.containers.iter().all(|c| c.ready),
        };
        let statuses = || status.init.iter().chain(&status.containers);
        let finished = matches!(phase, Phase::Succeeded | Phase::Failed)
            .then(|| {
                statuses()
                    .filter_map(|c| c.state.terminated.as_ref()?.finished)
                    .max()
            })
            .flatten();
        let mut pod = Pod {
            reason: status.reason(phase, node.is_some()),
            restarts: statuses().fold(0, |sum: u32, c| sum.saturating_add(c.restarts)),
            meta: self.meta.finish(ctx)?,
            node,
            phase,
            scheduler: spec.scheduler.0,
            priority: spec.priority,
            priority_class: spec.priority_class.0,
            never_preempts: &*spec.preemption.0 == "Never",
            gates: spec.gates.into_iter().map(|g| g.name.0).collect(),
            requests,
            constraints: pool.share(constraints),
            group: None,
            ready,
            started: status.started,
            finished,
        };
        pod.group = group_of(&pod.meta, spec.group, spec.workload_ref, ctx);
        let late = ctx.take_notes();
        if !late.is_empty() {
            let mut notes = std::mem::take(&mut pod.meta.unreadable).into_vec();
            notes.extend(late);
            pod.meta.unreadable = notes.into();
        }
        Ok(pod)
    }
}
