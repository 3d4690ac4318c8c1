//! Short ways to make objects.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::{
    Change, Constraints, Decision, DecisionKind, Delta, Gone, GroupName, Job, Meta, Node, Owner,
    Phase, Pod, Queue, QueueTerms, Reason, Resources, Str, Uid,
};
use crate::plan::{Action, Plan};
use crate::sched::{SchedConfig, State, decide};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

pub(super) fn meta(name: &str) -> Meta {
    Meta {
        uid: Uid(format!("uid-{name}").into()),
        name: name.into(),
        namespace: "team".into(),
        created: Some(at(0)),
        ..Meta::default()
    }
}

/// A queue of the namespace of its name with so many GPUs guaranteed, changed by `change`.
pub(super) fn queue_with(name: &str, guaranteed: i64, change: impl FnOnce(&mut Queue)) -> Delta {
    let mut queue = Queue {
        meta: Meta {
            namespace: "".into(),
            ..meta(name)
        },
        namespaces: [name.into()].into(),
        terms: [QueueTerms {
            guaranteed_milli_gpu: guaranteed * 1_000,
            ..QueueTerms::default()
        }]
        .into(),
        ..Queue::default()
    };
    change(&mut queue);
    Delta::Queue(Change::Set(Arc::new(queue)))
}

/// The pod in another namespace.
pub(super) fn of(namespace: &str, mut pod: Pod) -> Pod {
    pod.meta.namespace = namespace.into();
    pod
}

pub(super) fn pairs(list: &[(&str, &str)]) -> Box<[(Str, Str)]> {
    let mut list: Vec<(Str, Str)> = list
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    list.sort();
    list.into()
}

pub(super) fn amounts(cpu: i64, mem: i64, gpus: i64) -> Resources {
    let mut r = Resources {
        cpu_milli: cpu,
        mem_bytes: mem,
        ..Resources::default()
    };
    if gpus != 0 {
        r.set_extended(&"nvidia.com/gpu".into(), gpus);
    }
    r
}

/// A node with 64 cores, plenty of memory and room for 110 pods.
pub(super) fn node(name: &str, gpus: i64) -> Node {
    let mut allocatable = amounts(64_000, 1 << 40, gpus);
    allocatable.pods = 110;
    Node {
        meta: Meta {
            namespace: "".into(),
            ..meta(name)
        },
        capacity: allocatable.clone(),
        allocatable,
        ..Node::default()
    }
}

/// A waiting pod of ours with one core.
pub(super) fn pod(name: &str, gpus: i64) -> Pod {
    Pod {
        meta: meta(name),
        phase: Phase::Pending,
        scheduler: "gpudeck".into(),
        requests: amounts(1_000, 1 << 30, gpus),
        ..Pod::default()
    }
}

pub(super) fn with(mut pod: Pod, change: impl FnOnce(&mut Constraints)) -> Pod {
    let mut c = (*pod.constraints).clone();
    change(&mut c);
    pod.constraints = Arc::new(c);
    pod
}

pub(super) fn annotated(mut pod: Pod, list: &[(&str, &str)]) -> Pod {
    pod.meta.annotations = pairs(list);
    pod
}

pub(super) fn bound(mut pod: Pod, node: &str) -> Pod {
    pod.node = Some(node.into());
    pod.phase = Phase::Running;
    pod
}

pub(super) fn in_group(mut pod: Pod, group: &str, min: u32) -> Pod {
    pod.group = Some(GroupName {
        kind: "PodGroup".into(),
        name: group.into(),
        min_members: Some(min),
    });
    pod
}

pub(super) fn in_job(mut pod: Pod, job: &str) -> Pod {
    pod.meta.owners = [Owner {
        kind: "Job".into(),
        name: job.into(),
        uid: Uid(format!("uid-{job}").into()),
        controller: true,
    }]
    .into();
    pod
}

pub(super) fn job(name: &str, parallelism: u32, completions: Option<u32>) -> Job {
    Job {
        meta: meta(name),
        parallelism,
        completions,
        ..Job::default()
    }
}

pub(super) fn set_node(n: Node) -> Delta {
    Delta::Node(Change::Set(Arc::new(n)))
}

pub(super) fn set_pod(p: Pod) -> Delta {
    Delta::Pod(Change::Set(Arc::new(p)))
}

pub(super) fn set_job(j: Job) -> Delta {
    Delta::Job(Change::Set(Arc::new(j)))
}

pub(super) fn gone(meta: &Meta) -> Gone {
    Gone {
        uid: meta.uid.clone(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
    }
}

pub(super) fn state(deltas: impl IntoIterator<Item = Delta>) -> State {
    state_with(quiet(), deltas)
}

/// Placement alone: nobody is moved or evicted.
pub(super) fn quiet() -> SchedConfig {
    SchedConfig {
        preemption: false,
        moves: false,
        ..SchedConfig::default()
    }
}

pub(super) fn state_with(config: SchedConfig, deltas: impl IntoIterator<Item = Delta>) -> State {
    let mut state = State::new(config);
    for d in deltas {
        state.apply(&d);
    }
    state
}

/// `pod>node` for each binding, `pod<node` for each eviction, the groups parted by ` | `.
pub(super) fn binds(plan: &Plan) -> String {
    let group = |g: &Vec<Action>| {
        g.iter()
            .map(|action| match action {
                Action::Bind { name, node, .. } => format!("{name}>{node}"),
                Action::Evict { name, node, .. } => format!("{name}<{node}"),
                Action::TellQueue { name, .. } => format!("{name}?"),
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    plan.groups
        .iter()
        .map(group)
        .collect::<Vec<_>>()
        .join(" | ")
}

/// What the plan says about a pod, in words.
pub(super) fn told(plan: &Plan, name: &str) -> String {
    plan.decisions
        .iter()
        .find(|d| &*d.name == name)
        .map_or_else(String::new, |d| match &d.kind {
            DecisionKind::Placed { node, why } => format!("{node}: {why}"),
            DecisionKind::Waiting(reason) => reason.to_string(),
            DecisionKind::Leaves { .. } => String::new(),
        })
}

/// The reason of the only decision of a fresh state.
pub(super) fn reason(deltas: impl IntoIterator<Item = Delta>) -> Reason {
    let plan = decide(&state(deltas), at(0));
    match plan.decisions.as_slice() {
        [one] => match &one.kind {
            DecisionKind::Waiting(reason) => reason.clone(),
            other => panic!("placed: {other:?}"),
        },
        other => panic!("{} decisions", other.len()),
    }
}

/// Assumes all bindings and folds all decisions, as the engine does.
pub(super) fn carry_out(state: &mut State, plan: &Plan) {
    for action in plan.actions() {
        state.assume(action);
    }
    for d in &plan.decisions {
        state.apply(&Delta::Decision(d.clone()));
    }
}

pub(super) fn refused(pod: &Pod, second: i64) -> Delta {
    Delta::Decision(Arc::new(Decision {
        pod: pod.meta.uid.clone(),
        namespace: pod.meta.namespace.clone(),
        name: pod.meta.name.clone(),
        kind: DecisionKind::Waiting(Reason::Refused {
            message: "no".into(),
        }),
        at: at(second),
    }))
}
