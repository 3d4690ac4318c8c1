//! Pods, as slim as scheduling and the console allow.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::gpu::GpuResource;
use super::meta::Meta;
use super::resources::Resources;
use super::text::Str;
use super::workload::GroupName;

/// `status.phase`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Phase {
    /// Accepted, not all containers run.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended with success.
    Succeeded,
    /// All ended, at least one in failure.
    Failed,
    /// The node does not answer, or the server stated no phase that we know.
    #[default]
    Unknown,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
            Phase::Unknown => "Unknown",
        })
    }
}

/// Operator of a node selector requirement (core/v1 NodeSelectorOperator).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operator {
    /// The label's value is one of `values`.
    In,
    /// The label is absent or its value is none of `values`.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The value is an integer above `values[0]`.
    Gt,
    /// The value is an integer below `values[0]`.
    Lt,
}

/// One requirement on a label or field.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MatchExpression {
    /// Label key, or `metadata.name` among fields.
    pub key: Str,
    /// How it is compared.
    pub operator: Operator,
    /// Compared with.
    pub values: Box<[Str]>,
}

/// All of these must hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SelectorTerm {
    /// On labels.
    pub labels: Box<[MatchExpression]>,
    /// On fields (only `metadata.name` exists).
    pub fields: Box<[MatchExpression]>,
}

/// One of these terms must hold; a selector without terms matches nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Selector {
    /// The alternatives.
    pub terms: Box<[SelectorTerm]>,
}

/// The required node affinity; preferred terms do not filter.
pub type Affinity = Selector;

/// A toleration (core/v1 Toleration).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Toleration {
    /// Taint key; `None` tolerates each key (with `Exists`).
    pub key: Option<Str>,
    /// `None` means operator `Exists`; else the value must be equal.
    pub value: Option<Str>,
    /// `None` tolerates each effect.
    pub effect: Option<super::node::TaintEffect>,
}

/// A port on the node that a container wants for itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostPort {
    /// Address; `0.0.0.0` or empty means every address.
    pub ip: Str,
    /// TCP, UDP or SCTP.
    pub protocol: Str,
    /// Port number.
    pub port: u16,
}

/// Where a pod may run. Equal ones are shared: the pods of one gang have one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Constraints {
    /// `spec.nodeSelector`: all must be equal.
    pub node_selector: Box<[(Str, Str)]>,
    /// `requiredDuringSchedulingIgnoredDuringExecution` of node affinity.
    pub affinity: Option<Affinity>,
    /// Tolerations.
    pub tolerations: Box<[Toleration]>,
    /// Host ports of all containers.
    pub host_ports: Box<[HostPort]>,
    /// Names of the PersistentVolumeClaims it mounts.
    pub claims: Box<[Str]>,
    /// What it asks that a scheduler of ours cannot check (DRA claims, pod affinity, hard
    /// topology spread), named: such a pod is left waiting with this as its reason.
    pub unsupported: Box<[Str]>,
}

/// A pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pod {
    /// Identity.
    pub meta: Meta,
    /// The node it is bound to.
    pub node: Option<Str>,
    /// Phase.
    pub phase: Phase,
    /// `spec.schedulerName`.
    pub scheduler: Str,
    /// `spec.priority`, 0 when absent.
    pub priority: i32,
    /// `spec.priorityClassName`, may be empty.
    pub priority_class: Str,
    /// `spec.preemptionPolicy: Never`.
    pub never_preempts: bool,
    /// Names of the scheduling gates that are still there.
    pub gates: Box<[Str]>,
    /// What it occupies (see [`super::pod_requests`]).
    pub requests: Resources,
    /// Where it may run; shared among equals.
    pub constraints: Arc<Constraints>,
    /// The gang or group it says it belongs to.
    pub group: Option<GroupName>,
    /// All containers ready.
    pub ready: bool,
    /// Restarts of all containers.
    pub restarts: u32,
    /// Why it is as it is: the waiting reason of a container (`CrashLoopBackOff`), `status.reason`
    /// or the PodScheduled condition's message.
    pub reason: Option<Str>,
    /// Start of the pod on its node.
    pub started: Option<Timestamp>,
    /// End of its last container.
    pub finished: Option<Timestamp>,
}

impl Pod {
    /// It will not run again and holds no resources (Succeeded or Failed), as kube-scheduler
    /// leaves terminal pods out of a node's use.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// It occupies resources on its node.
    pub fn holds_node(&self) -> Option<&Str> {
        self.node.as_ref().filter(|_| !self.is_terminal())
    }

    /// It waits for a node.
    pub fn is_waiting(&self) -> bool {
        self.node.is_none() && !self.is_terminal() && self.meta.deleting.is_none()
    }

    /// The NVIDIA devices it asks for: kind and amount, only those above zero.
    pub fn gpu_requests(&self) -> impl Iterator<Item = (GpuResource, i64)> {
        self.requests
            .extended
            .iter()
            .filter(|(_, n)| *n > 0)
            .filter_map(|(key, n)| GpuResource::from_key(key).map(|r| (r, *n)))
    }

    /// `gpudeck.dev/milli-gpu`: a share of one GPU in thousandths; a value that is no integer
    /// from 1 to 999 is `None`.
    pub fn milli_gpu(&self) -> Option<u32> {
        let value: u32 = self
            .meta
            .annotation("gpudeck.dev/milli-gpu")?
            .parse()
            .ok()?;
        (1..1000).contains(&value).then_some(value)
    }

    /// `gpudeck.dev/device`: the device of its node that holds the pod's share of a GPU, as our
    /// scheduler has chosen it.
    pub fn device(&self) -> Option<u8> {
        self.meta.annotation("gpudeck.dev/device")?.parse().ok()
    }
}
