//! Random histories, and single ones that have gone wrong.
#![allow(clippy::unwrap_used)]
use super::super::delta::SourceState;
use super::super::meta::{Meta, Owner};
use super::super::pod::Phase;
use super::super::resources::Resources;
use super::*;
use proptest::prelude::*;

/// A step of a random history over few names, so that they meet often.
fn step() -> impl Strategy<Value = (u8, u8, u8, u8, u8)> {
    (0..8_u8, 0..12_u8, 0..4_u8, 0..5_u8, 0..3_u8)
}

fn pod(uid: u8, node: u8, phase: u8, job: u8) -> Arc<Pod> {
    let mut requests = Resources::default();
    // Two of them ask for more than 64 bits can sum up.
    let gpus = if uid < 10 {
        i64::from(uid % 3)
    } else {
        i64::MAX - 1
    };
    requests.set_extended(&"nvidia.com/gpu".into(), gpus);
    requests.set_extended(&"nvidia.com/mig-1g.10gb".into(), i64::from(uid % 2));
    let owner = Owner {
        kind: "Job".into(),
        name: format!("job-{job}").into(),
        uid: Uid(format!("j{job}").into()),
        controller: true,
    };
    Arc::new(Pod {
        meta: Meta {
            uid: Uid(format!("p{uid}").into()),
            name: format!("pod-{uid}").into(),
            namespace: format!("ns-{}", job % 2).into(),
            owners: Box::new([owner]),
            ..Meta::default()
        },
        node: (node > 0).then(|| format!("node-{node}").into()),
        phase: [
            Phase::Pending,
            Phase::Running,
            Phase::Succeeded,
            Phase::Failed,
            Phase::Unknown,
        ]
        .get(usize::from(phase))
        .copied()
        .unwrap_or_default(),
        requests,
        ..Pod::default()
    })
}

fn job(uid: u8, owned: bool) -> Arc<Job> {
    let owner = Owner {
        kind: "TrainJob".into(),
        name: "top".into(),
        uid: Uid("top".into()),
        controller: true,
    };
    Arc::new(Job {
        meta: Meta {
            uid: Uid(format!("j{uid}").into()),
            name: format!("job-{uid}").into(),
            namespace: format!("ns-{}", uid % 2).into(),
            owners: if owned {
                Box::new([owner])
            } else {
                Box::new([])
            },
            ..Meta::default()
        },
        ..Job::default()
    })
}

fn gone(uid: String, name: String) -> Gone {
    Gone {
        uid: Uid(uid.into()),
        namespace: "".into(),
        name: name.into(),
    }
}

fn delta((what, uid, node, phase, job_uid): (u8, u8, u8, u8, u8)) -> Delta {
    match what {
        0..=3 => Delta::Pod(Change::Set(pod(uid, node, phase, job_uid))),
        4 => Delta::Pod(Change::Gone(gone(format!("p{uid}"), format!("pod-{uid}")))),
        5 => Delta::Job(Change::Set(job(job_uid, uid % 2 == 0))),
        6 => Delta::Job(Change::Gone(gone(
            format!("j{job_uid}"),
            format!("job-{job_uid}"),
        ))),
        _ if phase == 0 => Delta::Node(Change::Gone(gone(
            format!("n{node}"),
            format!("node-{node}"),
        ))),
        _ => Delta::Node(Change::Set(Arc::new(Node {
            meta: Meta {
                uid: Uid(format!("n{node}").into()),
                name: format!("node-{node}").into(),
                ..Meta::default()
            },
            ..Node::default()
        }))),
    }
}

proptest! {
    /// Whatever the order of changes, the running sums are those of a fresh count of the end.
    #[test]
    fn sums_equal_a_fresh_count(history in prop::collection::vec(step(), 0..120)) {
        let mut folded = Cluster::new();
        for s in history {
            folded.apply(&delta(s));
        }
        let mut fresh = Cluster::new();
        for job in folded.jobs.values() {
            fresh.apply(&Delta::Job(Change::Set(job.clone())));
        }
        for (node, _) in folded.nodes() {
            fresh.apply(&Delta::Node(Change::Set(node.clone())));
        }
        for pod in folded.pods() {
            fresh.apply(&Delta::Pod(Change::Set(pod.clone())));
        }
        prop_assert_eq!(folded.namespace_figures(), fresh.namespace_figures());
        prop_assert_eq!(folded.workloads().collect::<Vec<_>>(), fresh.workloads().collect::<Vec<_>>());
        let held = |c: &Cluster| -> Vec<(Str, NodeUse)> {
            c.nodes.iter().map(|(n, e)| (n.clone(), e.held.clone())).collect()
        };
        prop_assert_eq!(held(&folded).into_iter().filter(|h| !h.1.pods.is_empty()).collect::<Vec<_>>(),
            held(&fresh).into_iter().filter(|h| !h.1.pods.is_empty()).collect::<Vec<_>>());
    }
}

#[test]
fn a_workload_of_several_jobs_lasts_until_its_last_one() {
    let mut c = Cluster::new();
    let set = |id: u8| Delta::Job(Change::Set(job(id, true)));
    let leave = |id: u8| Delta::Job(Change::Gone(gone(format!("j{id}"), format!("job-{id}"))));
    c.apply(&set(1));
    c.apply(&set(3));
    assert_eq!(c.workload_count(), 1, "one controller made both");
    c.apply(&leave(3));
    assert_eq!(c.workload_count(), 1);
    c.apply(&leave(1));
    assert_eq!(c.workload_count(), 0);
}

#[test]
fn a_denied_source_is_not_an_empty_one() {
    let mut c = Cluster::new();
    let report = |state| {
        Delta::Source(SourceReport {
            kind: Kind::Node,
            namespace: None,
            state,
            at: jiff::Timestamp::UNIX_EPOCH,
        })
    };
    c.apply(&report(SourceState::Denied {
        why: "list nodes".into(),
    }));
    assert_eq!(super::super::figures::Figures::of(&c).nodes, None);
    c.apply(&report(SourceState::Live));
    assert_eq!(super::super::figures::Figures::of(&c).nodes, Some(0));
}

#[test]
fn all_that_decisions_rest_on_is_told_again_and_what_is_gone_is_not() {
    use super::super::budget::DisruptionBudget;
    use super::super::job::{VolumeClaim, VolumeTopology};
    use super::super::queue::Queue;
    let meta = |uid: &str| Meta {
        uid: Uid(uid.into()),
        name: uid.into(),
        ..Meta::default()
    };
    let hidden = |id: &str| -> [Delta; 4] {
        [
            Delta::Queue(Change::Set(Arc::new(Queue {
                meta: meta(&format!("q{id}")),
                ..Queue::default()
            }))),
            Delta::Volume(Change::Set(Arc::new(VolumeTopology {
                meta: meta(&format!("v{id}")),
                ..VolumeTopology::default()
            }))),
            Delta::VolumeClaim(Change::Set(Arc::new(VolumeClaim {
                meta: meta(&format!("c{id}")),
                ..VolumeClaim::default()
            }))),
            Delta::Budget(Change::Set(Arc::new(DisruptionBudget {
                meta: meta(&format!("b{id}")),
                ..DisruptionBudget::default()
            }))),
        ]
    };
    let mut deltas: Vec<Delta> = hidden("1").into();
    deltas.extend([
        Delta::Job(Change::Set(job(1, true))),
        Delta::Pod(Change::Set(pod(1, 1, 1, 1))),
        Delta::Pod(Change::Set(pod(2, 0, 0, 1))),
    ]);
    let mut forth = Cluster::new();
    deltas.iter().for_each(|d| forth.apply(d));
    let mut back = Cluster::new();
    deltas.iter().rev().for_each(|d| back.apply(d));
    assert_eq!(forth.known().deltas(), back.known().deltas());
    assert_eq!(forth.known().deltas().len(), deltas.len());
    for delta in &deltas {
        assert!(forth.known().deltas().contains(delta), "{delta:?}");
    }
    let gone_of = |meta: &Meta| gone(meta.uid.0.to_string(), meta.name.to_string());
    for delta in hidden("1") {
        forth.apply(&match delta {
            Delta::Queue(Change::Set(q)) => Delta::Queue(Change::Gone(gone_of(&q.meta))),
            Delta::Volume(Change::Set(v)) => Delta::Volume(Change::Gone(gone_of(&v.meta))),
            Delta::VolumeClaim(Change::Set(c)) => {
                Delta::VolumeClaim(Change::Gone(gone_of(&c.meta)))
            }
            Delta::Budget(Change::Set(b)) => Delta::Budget(Change::Gone(gone_of(&b.meta))),
            other => other,
        });
    }
    assert_eq!(forth.known().deltas().len(), 3);
}

/// An exporter that tells of one pod on GPU 1, and an agent that tells of it on GPU 5.
#[test]
fn an_agent_is_believed_before_the_exporter_unless_it_has_stopped() {
    use super::super::devices::{DeviceSource, KnownDevice};
    use super::super::gpu_node::GpuNode;
    use super::super::telemetry::{GpuReading, PodName};
    let at = |secs| jiff::Timestamp::from_second(1_000 + secs).unwrap();
    let pod = || PodName {
        namespace: "a".into(),
        name: "train".into(),
    };
    let exporter = |secs| {
        let gpu = GpuReading {
            index: 1,
            holders: Box::new([pod()]),
            ..GpuReading::default()
        };
        Delta::Telemetry(Arc::new(NodeTelemetry {
            node: "n1".into(),
            at: at(secs),
            gpus: Ok(Box::new([gpu])),
        }))
    };
    let agent = |observed: Option<i64>| {
        let device = KnownDevice {
            gpu: 5,
            instance: None,
            pod: Some(pod()),
            source: DeviceSource::GpuNode,
        };
        Delta::GpuNode(Change::Set(Arc::new(GpuNode {
            topology: None,
            meta: Meta {
                name: "n1".into(),
                uid: Uid("agent".into()),
                ..Meta::default()
            },
            observed: observed.map(at),
            devices: Box::new([device]),
        })))
    };
    let told = |c: &Cluster| -> Vec<(u32, DeviceSource)> {
        let devices = c.known_devices("n1");
        devices.iter().map(|d| (d.gpu, d.source)).collect()
    };
    let mut c = Cluster::new();
    let meta = Meta {
        name: "n1".into(),
        uid: Uid("n1".into()),
        ..Meta::default()
    };
    c.apply(&Delta::Node(Change::Set(Arc::new(Node {
        meta,
        ..Node::default()
    }))));
    c.apply(&agent(None));
    assert_eq!(told(&c), [(5, DeviceSource::GpuNode)], "nobody else tells");
    c.apply(&exporter(100));
    assert_eq!(told(&c), [(1, DeviceSource::Exporter)], "it says no time");
    let before = c.version();
    c.apply(&agent(Some(0)));
    assert_eq!(told(&c), [(5, DeviceSource::GpuNode)]);
    let changed = c.nodes_changed_since(before).unwrap();
    assert_eq!(changed.map(|n| &**n).collect::<Vec<_>>(), ["n1"]);
    c.apply(&exporter(200));
    assert_eq!(told(&c), [(1, DeviceSource::Exporter)], "it has stopped");
    c.apply(&agent(Some(200)));
    assert_eq!(told(&c), [(5, DeviceSource::GpuNode)]);
    c.apply(&Delta::GpuNode(Change::Gone(gone(
        "other".into(),
        "n1".into(),
    ))));
    assert_eq!(told(&c), [(5, DeviceSource::GpuNode)], "another one went");
    c.apply(&Delta::GpuNode(Change::Gone(gone(
        "agent".into(),
        "n1".into(),
    ))));
    assert_eq!(told(&c), [(1, DeviceSource::Exporter)]);
}
