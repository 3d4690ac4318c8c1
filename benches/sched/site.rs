//! Clusters and pods that are measured: every filter has work.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpudeck::model::{
    Change, Constraints, Delta, Gone, GroupName, Meta, Node, NodeGpus, Phase, Pod, Resources, Str,
    Taint, TaintEffect, Toleration, Uid,
};
use gpudeck::plan::{Action, Plan};
use gpudeck::sched::{SchedConfig, State, decide};
use jiff::Timestamp;

const H100: &str = "NVIDIA-H100-80GB-HBM3";

/// The time at which all is decided.
pub fn now() -> Timestamp {
    Timestamp::from_second(1_700_100_000).expect("a valid time")
}

fn meta(name: String, index: usize) -> Meta {
    Meta {
        uid: Uid(format!("uid-{name}").into()),
        name: name.into(),
        namespace: "bench".into(),
        created: Timestamp::from_second(1_700_000_000 + i64::try_from(index).expect("small")).ok(),
        ..Meta::default()
    }
}

fn amounts(cpu_milli: i64, mem_gib: i64, gpus: i64) -> Resources {
    let mut r = Resources {
        cpu_milli,
        mem_bytes: mem_gib << 30,
        ..Resources::default()
    };
    if gpus > 0 {
        r.set_extended(&"nvidia.com/gpu".into(), gpus);
    }
    r
}

/// A node of 8 H100 in a fabric of leaves of 100 nodes and spines of 1,000, with a taint.
fn site(index: usize) -> Delta {
    let mut allocatable = amounts(128_000, 2_048, 8);
    allocatable.pods = 110;
    let mut meta = meta(format!("node-{index:05}"), index);
    let (leaf, spine) = (
        format!("leaf-{}", index / 100),
        format!("spine-{}", index / 1_000),
    );
    meta.labels = [
        ("fabric.topograph.run/tier-0", &*leaf),
        ("fabric.topograph.run/tier-1", &spine),
        ("nvidia.com/gpu.memory", "81559"),
        ("nvidia.com/gpu.product", H100),
    ]
    .map(|(key, value)| (Str::from(key), Str::from(value)))
    .into();
    let taint = Taint {
        key: "nvidia.com/gpu".into(),
        value: "present".into(),
        effect: TaintEffect::NoSchedule,
    };
    Delta::Node(Change::Set(Arc::new(Node {
        gpus: NodeGpus::from_labels(&meta, &allocatable),
        meta,
        taints: [taint].into(),
        capacity: allocatable.clone(),
        allocatable,
        ..Node::default()
    })))
}

/// Makes pods with a toleration, a node selector and a memory profile.
#[derive(Clone)]
pub struct Pods {
    pub rng: fastrand::Rng,
    made: usize,
    constraints: Arc<Constraints>,
    /// Sizes in CPU that each kind of pod comes in: classes are about eight times as many.
    sizes: u32,
}

impl Pods {
    pub fn new(sizes: u32) -> Self {
        let toleration = Toleration {
            key: Some("nvidia.com/gpu".into()),
            value: None,
            effect: None,
        };
        Self {
            rng: fastrand::Rng::with_seed(7),
            made: 0,
            constraints: Arc::new(Constraints {
                tolerations: [toleration].into(),
                node_selector: [("nvidia.com/gpu.product".into(), H100.into())].into(),
                ..Constraints::default()
            }),
            sizes,
        }
    }

    fn make(&mut self, cpu_milli: i64, gpus: i64, annotation: (&str, &str)) -> Pod {
        self.made += 1;
        let mut meta = meta(format!("pod-{:07}", self.made), self.made);
        meta.annotations = [(Str::from(annotation.0), Str::from(annotation.1))].into();
        Pod {
            meta,
            phase: Phase::Pending,
            scheduler: "gpudeck".into(),
            requests: amounts(cpu_milli, cpu_milli / 250, gpus),
            constraints: self.constraints.clone(),
            ..Pod::default()
        }
    }

    /// A share, or 1 to 8 devices.
    pub fn single(&mut self) -> Pod {
        const MEMORY: (&str, &str) = ("gpudeck.dev/memory-profile", "20Gi");
        // From 4 to below 16 cores.
        let step = 12_000 / i64::from(self.sizes);
        let cpu = 4_000 + i64::from(self.rng.u32(0..self.sizes)) * step;
        match self.rng.u8(0..100) {
            0..=47 => self.make(cpu, 1, MEMORY),
            48..=85 => {
                let milli = ["230", "350", "470", "590", "810"];
                let milli = milli[self.rng.usize(0..milli.len())];
                self.make(cpu, 0, ("gpudeck.dev/milli-gpu", milli))
            }
            86..=92 => self.make(cpu * 2, 2, MEMORY),
            93..=97 => self.make(cpu * 4, 4, MEMORY),
            _ => self.make(96_000, 8, MEMORY),
        }
    }

    /// 1 to 32 pods of 1 to 8 devices each, which want a spine and would like a leaf.
    pub fn gang(&mut self) -> Vec<Pod> {
        let pods = 1_u32 << self.rng.u8(0..6);
        let gpus = 1_i64 << self.rng.u8(0..4);
        let name: Str = format!("gang-{}", self.made).into();
        (0..pods)
            .map(|_| {
                let wish = ("gpudeck.dev/topology", "required=spine,preferred=leaf");
                let mut pod = self.make(gpus * 8_000, gpus, wish);
                pod.group = Some(GroupName {
                    kind: "PodGroup".into(),
                    name: name.clone(),
                    min_members: Some(pods),
                });
                pod
            })
            .collect()
    }

    /// A pod of a namespace that asks for so many devices.
    pub fn of(&mut self, namespace: &str, gpus: i64) -> Pod {
        let mut pod = self.make(gpus * 8_000, gpus, ("team", "a"));
        pod.meta.namespace = namespace.into();
        pod
    }

    /// The same, running on a node, perhaps for so many seconds.
    pub fn running(
        &mut self,
        namespace: &str,
        gpus: i64,
        node: usize,
        estimate: Option<i64>,
    ) -> Pod {
        let mut pod = self.of(namespace, gpus);
        pod.node = Some(format!("node-{node:05}").into());
        pod.phase = Phase::Running;
        pod.started = pod.meta.created;
        if let Some(secs) = estimate {
            let note = (
                "gpudeck.dev/runtime-estimate".into(),
                secs.to_string().into(),
            );
            pod.meta.annotations = [note].into();
        }
        pod
    }

    /// [`Pods::single`] in a namespace.
    pub fn single_in(&mut self, namespace: &str) -> Pod {
        let mut pod = self.single();
        pod.meta.namespace = namespace.into();
        pod
    }

    /// A gang of so many 8-GPU pods.
    pub fn together(&mut self, namespace: &str, pods: usize, wish: Option<&str>) -> Vec<Pod> {
        let name: Str = format!("gang-{}", self.made).into();
        (0..pods)
            .map(|_| {
                let mut pod = self.of(namespace, 8);
                pod.group = Some(GroupName {
                    kind: "PodGroup".into(),
                    name: name.clone(),
                    min_members: u32::try_from(pods).ok(),
                });
                if let Some(wish) = wish {
                    pod.meta.annotations = [("gpudeck.dev/topology".into(), wish.into())].into();
                }
                pod
            })
            .collect()
    }

    /// A pod that no node has the memory for.
    pub fn hopeless(&mut self) -> Pod {
        let mut pod = self.single();
        pod.requests.mem_bytes = 1 << 50;
        pod
    }

    /// A small pod without GPUs that runs on a node already.
    pub fn bystander(&mut self, node: usize) -> Delta {
        let mut pod = self.make(10, 0, ("team", "a"));
        pod.requests.mem_bytes = 1 << 20;
        pod.node = Some(format!("node-{node:05}").into());
        pod.phase = Phase::Running;
        come(&pod)
    }
}

/// A pod has come.
pub fn come(pod: &Pod) -> Delta {
    Delta::Pod(Change::Set(Arc::new(pod.clone())))
}

/// A pod is gone.
pub fn leave(pod: &Pod) -> Delta {
    Delta::Pod(Change::Gone(Gone {
        uid: pod.meta.uid.clone(),
        namespace: pod.meta.namespace.clone(),
        name: pod.meta.name.clone(),
    }))
}

/// Folds pods in, decides and assumes: what is timed.
pub fn round(state: &mut State, pods: &[Delta]) -> Plan {
    for pod in pods {
        state.apply(pod);
    }
    state.expire(now());
    let plan = decide(state, now());
    plan.actions().for_each(|action| state.assume(action));
    plan
}

/// The watch shows what was bound; those that have no place give up. How many have one.
pub fn settle(state: &mut State, pods: &[Delta], plan: &Plan) -> usize {
    let mut places: BTreeMap<&Str, (&Str, Option<u8>)> = BTreeMap::new();
    for action in plan.actions() {
        let Action::Bind {
            name, node, device, ..
        } = action
        else {
            continue;
        };
        places.insert(name, (node, *device));
    }
    for delta in pods {
        let Delta::Pod(Change::Set(pod)) = delta else {
            continue;
        };
        let Some((node, device)) = places.get(&pod.meta.name) else {
            state.apply(&leave(pod));
            continue;
        };
        let mut seen = Pod::clone(pod);
        seen.node = Some((*node).clone());
        seen.phase = Phase::Running;
        if let Some(device) = device {
            let mut notes = seen.meta.annotations.to_vec();
            notes.push(("gpudeck.dev/device".into(), device.to_string().into()));
            notes.sort();
            seen.meta.annotations = notes.into();
        }
        state.apply(&Delta::Pod(Change::Set(Arc::new(seen))));
    }
    places.len()
}

/// So many nodes of 8 GPUs, empty.
pub fn empty(nodes: usize) -> State {
    let mut state = State::new(SchedConfig {
        assume_secs: i64::MAX,
        ..SchedConfig::default()
    });
    for i in 0..nodes {
        state.apply(&site(i));
    }
    state
}

/// So many nodes of 8 GPUs, nine tenths in use by pods that were placed one by one.
pub fn nearly_full(nodes: usize, pods: &mut Pods) -> (State, Vec<Pod>) {
    let mut state = empty(nodes);
    let (mut running, mut used) = (Vec::new(), 0);
    let full = i64::try_from(nodes).expect("small") * 8_000 * 9 / 10;
    while used < full {
        let pod = pods.single();
        let news = [come(&pod)];
        let plan = round(&mut state, &news);
        if settle(&mut state, &news, &plan) == 0 {
            continue;
        }
        let whole = pod.requests.extended("nvidia.com/gpu") * 1_000;
        used += whole + pod.milli_gpu().map_or(0, i64::from);
        running.push(pod);
    }
    (state, running)
}

/// One pod leaves and one comes, over and over; what is timed hears of each pod that comes.
pub fn churn(
    state: &mut State,
    running: &mut Vec<Pod>,
    pods: &mut Pods,
    decisions: usize,
    mut timed: impl FnMut(&mut State, &[Delta]) -> Plan,
) {
    for _ in 0..decisions {
        let at = pods.rng.usize(0..running.len());
        state.apply(&leave(&running.swap_remove(at)));
        let pod = pods.single();
        let news = [come(&pod)];
        let plan = timed(state, &news);
        if settle(state, &news, &plan) > 0 {
            running.push(pod);
        }
    }
}
