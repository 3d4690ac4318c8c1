//! Objects made in code, as short as a test can say them.

use std::sync::Arc;

use gpudeck::model::{
    Change, Condition, ContainerAsk, Decision, DecisionKind, Delta, Event, GroupName, Kind, Meta,
    Node, NodeGpus, Owner, Phase, Pod, Resources, Severity, SourceReport, SourceState, Str, Taint,
    TaintEffect, Uid, clean, pod_requests,
};
use jiff::{SignedDuration, Timestamp};

/// The time at which all pictures are taken.
pub(crate) fn now() -> Timestamp {
    "2026-11-30T14:20:00Z".parse().unwrap()
}

/// A time before [`now`].
pub(crate) fn ago(secs: i64) -> Timestamp {
    now() - SignedDuration::from_secs(secs)
}

pub(crate) const MINUTE: i64 = 60;
pub(crate) const HOUR: i64 = 3600;
pub(crate) const DAY: i64 = 86_400;

fn pairs(list: &[(&str, &str)]) -> Box<[(Str, Str)]> {
    let mut list: Vec<(Str, Str)> = list
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect();
    list.sort();
    list.into()
}

fn amounts(cpu: i64, mem_gib: i64, devices: &[(&str, i64)]) -> Resources {
    let mut r = Resources {
        cpu_milli: cpu * 1000,
        mem_bytes: mem_gib << 30,
        pods: 110,
        ..Resources::default()
    };
    for (key, n) in devices {
        r.set_extended(&format!("nvidia.com/{key}").into(), *n);
    }
    r
}

/// A node being made.
pub(crate) struct NodeSpec<'a> {
    pub(crate) name: &'a str,
    pub(crate) labels: &'a [(&'a str, &'a str)],
    pub(crate) devices: &'a [(&'a str, i64)],
    pub(crate) sick: i64,
    pub(crate) cordoned: bool,
    pub(crate) ready: Option<bool>,
    pub(crate) fault: Option<&'a str>,
    pub(crate) age: i64,
}

impl Default for NodeSpec<'_> {
    fn default() -> Self {
        NodeSpec {
            name: "",
            labels: &[],
            devices: &[],
            sick: 0,
            cordoned: false,
            ready: Some(true),
            fault: None,
            age: 40 * DAY,
        }
    }
}

pub(crate) fn node(spec: &NodeSpec<'_>) -> Delta {
    let meta = Meta {
        uid: Uid(format!("uid-{}", spec.name).into()),
        name: spec.name.into(),
        labels: pairs(spec.labels),
        created: Some(ago(spec.age)),
        ..Meta::default()
    };
    let mut capacity = amounts(96, 1024, spec.devices);
    let mut allocatable = amounts(94, 1000, spec.devices);
    // Every kubelet states the page sizes that it does not use; a description leaves them out.
    for all in [&mut capacity, &mut allocatable] {
        all.set_extended(&"hugepages-1Gi".into(), 0);
    }
    if spec.sick > 0 {
        let key: Str = "nvidia.com/gpu".into();
        allocatable.set_extended(&key, allocatable.extended(&key) - spec.sick);
    }
    let condition = |kind: &str, status, reason: &str, message: &str| Condition {
        kind: kind.into(),
        status,
        reason: reason.into(),
        message: message.into(),
        changed: Some(ago(5 * MINUTE)),
    };
    let mut conditions = vec![
        condition(
            "MemoryPressure",
            Some(false),
            "KubeletHasSufficientMemory",
            "",
        ),
        condition(
            "Ready",
            spec.ready,
            if spec.ready == Some(true) {
                "KubeletReady"
            } else {
                "NodeStatusUnknown"
            },
            if spec.ready == Some(true) {
                "kubelet is posting ready status"
            } else {
                "Kubelet stopped posting node status."
            },
        ),
    ];
    if let Some(fault) = spec.fault {
        conditions.push(condition(
            fault,
            Some(true),
            "GpuXidErrorIsNotHealthy",
            "[79] GPU has fallen off the bus - RecommendedAction: RESTART_BM",
        ));
    }
    let taints: Box<[Taint]> = if spec.cordoned {
        Box::new([Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            value: "".into(),
            effect: TaintEffect::NoSchedule,
        }])
    } else {
        Box::default()
    };
    Delta::Node(Change::Set(Arc::new(Node {
        gpus: NodeGpus::from_labels(&meta, &capacity),
        meta,
        unschedulable: spec.cordoned,
        taints,
        capacity,
        allocatable,
        conditions: conditions.into(),
        kubelet_version: "v1.37.2".into(),
    })))
}

/// A pod being made.
pub(crate) struct PodSpec<'a> {
    pub(crate) ns: &'a str,
    pub(crate) name: &'a str,
    pub(crate) node: Option<&'a str>,
    pub(crate) phase: Phase,
    pub(crate) devices: &'a [(&'a str, i64)],
    pub(crate) cpu: i64,
    pub(crate) owner: Option<(&'a str, &'a str)>,
    pub(crate) gang: Option<(&'a str, u32)>,
    pub(crate) priority: i32,
    pub(crate) scheduler: &'a str,
    pub(crate) restarts: u32,
    pub(crate) reason: Option<&'a str>,
    pub(crate) age: i64,
}

impl Default for PodSpec<'_> {
    fn default() -> Self {
        PodSpec {
            ns: "team-a",
            name: "",
            node: None,
            phase: Phase::Running,
            devices: &[],
            cpu: 8,
            owner: None,
            gang: None,
            priority: 0,
            scheduler: "gpudeck",
            restarts: 0,
            reason: None,
            age: 2 * HOUR,
        }
    }
}

pub(crate) fn pod_uid(ns: &str, name: &str) -> Uid {
    Uid(format!("uid-{ns}-{name}").into())
}

pub(crate) fn pod(spec: &PodSpec<'_>) -> Delta {
    // What decoding does with text from outside.
    let name: Str = clean(spec.name, 253).into();
    let owners: Vec<Owner> = spec
        .owner
        .iter()
        .map(|(kind, name)| Owner {
            kind: (*kind).into(),
            name: (*name).into(),
            uid: Uid(format!("uid-{kind}-{name}").into()),
            controller: true,
        })
        .collect();
    let ask = ContainerAsk {
        requests: Resources {
            pods: 0,
            ..amounts(spec.cpu, spec.cpu * 8, spec.devices)
        },
        sidecar: false,
    };
    Delta::Pod(Change::Set(Arc::new(Pod {
        meta: Meta {
            uid: pod_uid(spec.ns, spec.name),
            name,
            namespace: spec.ns.into(),
            created: Some(ago(spec.age)),
            owners: owners.into(),
            ..Meta::default()
        },
        node: spec.node.map(Into::into),
        phase: spec.phase,
        scheduler: spec.scheduler.into(),
        priority: spec.priority,
        requests: pod_requests(&[], &[ask], None, None),
        group: spec.gang.map(|(name, min)| GroupName {
            kind: "PodGroup".into(),
            name: name.into(),
            min_members: Some(min),
        }),
        ready: spec.phase == Phase::Running,
        restarts: spec.restarts,
        reason: spec.reason.map(Into::into),
        started: spec.node.map(|_| ago(spec.age - 5)),
        ..Pod::default()
    })))
}

pub(crate) fn source(kind: Kind, state: SourceState) -> Delta {
    Delta::Source(SourceReport {
        kind,
        namespace: None,
        state,
        at: now(),
    })
}

pub(crate) fn event(
    about: (&str, &str, &str),
    severity: Severity,
    what: (&str, &str),
    age: i64,
    count: u32,
) -> Delta {
    let (kind, ns, name) = about;
    Delta::Event(Change::Set(Arc::new(Event {
        meta: Meta {
            uid: Uid(format!("event-{kind}-{name}-{}-{age}", what.0).into()),
            name: format!("{name}.17").into(),
            namespace: ns.into(),
            created: Some(ago(age)),
            ..Meta::default()
        },
        severity,
        reason: what.0.into(),
        message: clean(what.1, 1000).into(),
        subject_kind: kind.into(),
        subject_namespace: ns.into(),
        subject_name: clean(name, 253).into(),
        reporter: if kind == "Node" {
            "nvsentinel"
        } else {
            "kubelet"
        }
        .into(),
        last_seen: Some(ago(age)),
        count,
    })))
}

pub(crate) fn decision(ns: &str, name: &str, kind: DecisionKind, age: i64) -> Delta {
    Delta::Decision(Arc::new(Decision {
        pod: pod_uid(ns, name),
        namespace: ns.into(),
        name: name.into(),
        kind,
        at: ago(age),
    }))
}
