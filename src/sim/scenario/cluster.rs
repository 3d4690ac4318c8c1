//! A case as a cluster: told to the scheduler by deltas, changed by what it decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::form::{Case, JobForm, NodeForm, PodForm, QueueForm, TolerationForm};
use super::judge::{Got, GotJob};
use crate::model::{
    Change, Constraints, DecisionKind, Delta, Gone, GroupName, Meta, Node, NodeGpus, Phase, Pod,
    Queue, QueuePreemption, QueueTerms, Reason, ReclaimFrom, Resources, Str, Taint, TaintEffect,
    Toleration, Uid,
};
use crate::plan::{Action, Plan};
use crate::sched::{SchedConfig, State, decide};

/// A share of a device by its memory.
const MEMORY: &str = "gpudeck.dev/memory-profile";
/// CPU and memory where a case states none.
const PLENTY_CPU_MILLI: i64 = 1_000_000_000;
const PLENTY_MEM_MIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;
/// Plans for one round, at most: a round is decided until nothing more is to be decided.
const MOST_PLANS: u32 = 64;
/// Seconds from one round to the next.
const ROUND_SECS: i64 = 10;

/// A job's pods.
struct Job {
    name: String,
    pods: Vec<Member>,
    evicted: u32,
}

/// A pod of a job, through all its lives.
struct Member {
    pod: Pod,
    lives: u32,
    leaving: bool,
}

/// The cluster.
pub(super) struct Cluster {
    state: State,
    jobs: Vec<Job>,
    now: Timestamp,
    /// The last that was told of each pod that waits.
    reasons: BTreeMap<Uid, Reason>,
    devices: BTreeMap<String, (i64, Option<u32>)>,
}

impl Cluster {
    /// Tells a case to a new scheduler; the words say what of it cannot be expressed.
    pub(super) fn new(case: &Case) -> Result<Self, String> {
        let config = SchedConfig {
            topology_levels: case.levels.iter().map(|l| level_label(l)).collect(),
            min_runtime_secs: 0,
            half_life_secs: 0,
            fair_reclaim: case.policy.fair_reclaim,
            moves: case.policy.consolidate,
            ..SchedConfig::default()
        };
        let mut this = Cluster {
            state: State::new(config),
            jobs: Vec::new(),
            now: Timestamp::from_second(1_700_000_000).unwrap_or(Timestamp::UNIX_EPOCH),
            reasons: BTreeMap::new(),
            devices: BTreeMap::new(),
        };
        for node in &case.nodes {
            this.devices
                .insert(node.name.clone(), (whole_devices(node), node.gpu_mem_mib));
            let node = node_of(case, node)?;
            this.state.apply(&Delta::Node(Change::Set(Arc::new(node))));
        }
        for (at, queue) in (0..).zip(&case.queues) {
            let queue = queue_of(case, queue, this.now, at)?;
            this.state
                .apply(&Delta::Queue(Change::Set(Arc::new(queue))));
        }
        let mut order: Vec<usize> = (0..case.jobs.len()).collect();
        order.sort_by_key(|at| case.jobs.get(*at).map(|j| (j.order, *at)));
        let rank: BTreeMap<usize, i64> = order.into_iter().zip(0..).collect();
        for (at, job) in case.jobs.iter().enumerate() {
            let rank = rank.get(&at).copied().unwrap_or(0);
            let made = this.job_of(job, rank)?;
            for member in &made.pods {
                this.state.apply(&set(&member.pod));
            }
            this.jobs.push(made);
        }
        Ok(this)
    }

    fn job_of(&self, job: &JobForm, rank: i64) -> Result<Job, String> {
        let created = self.now - SignedDuration::from_secs(100_000 - rank);
        let mut pods = Vec::new();
        for (at, form) in job.pods.iter().enumerate() {
            let mut pod = pod_of(job, form, at)?;
            pod.meta.created = Some(created);
            pod.started = pod.node.is_some().then_some(created);
            let leaving = form.state.as_deref() == Some("leaving");
            if leaving {
                pod.meta.deleting = Some(self.now);
            }
            pods.push(Member {
                pod,
                lives: 0,
                leaving,
            });
        }
        Ok(Job {
            name: job.name.clone(),
            pods,
            evicted: 0,
        })
    }

    /// Decides, applies, and lets those go who leave.
    pub(super) fn round(&mut self) {
        self.now += SignedDuration::from_secs(ROUND_SECS);
        self.state.expire(self.now);
        for _ in 0..MOST_PLANS {
            let plan = decide(&self.state, self.now);
            self.carry_out(&plan);
            if !plan.more {
                break;
            }
        }
        self.let_go();
    }

    fn carry_out(&mut self, plan: &Plan) {
        self.state.hold(plan);
        for action in plan.actions() {
            self.state.assume(action);
            match action {
                Action::Bind {
                    pod, node, device, ..
                } => self.bind(pod, node, *device),
                Action::Evict { pod, .. } => self.evict(pod),
                Action::TellQueue { .. } => {}
            }
        }
        for decision in &plan.decisions {
            match &decision.kind {
                DecisionKind::Waiting(reason) => {
                    self.reasons.insert(decision.pod.clone(), reason.clone());
                }
                DecisionKind::Placed { .. } | DecisionKind::Leaves { .. } => {
                    self.reasons.remove(&decision.pod);
                }
            }
            self.state.apply(&Delta::Decision(decision.clone()));
        }
    }

    fn find(&mut self, uid: &Uid) -> Option<(usize, usize)> {
        self.jobs.iter().enumerate().find_map(|(job, j)| {
            let pod = j.pods.iter().position(|m| m.pod.meta.uid == *uid)?;
            Some((job, pod))
        })
    }

    fn member(&mut self, at: (usize, usize)) -> Option<&mut Member> {
        self.jobs.get_mut(at.0)?.pods.get_mut(at.1)
    }

    fn bind(&mut self, uid: &Uid, node: &Str, device: Option<u8>) {
        let now = self.now;
        let Some(at) = self.find(uid) else { return };
        let Some(member) = self.member(at) else {
            return;
        };
        member.pod.node = Some(node.clone());
        member.pod.phase = Phase::Running;
        member.pod.started = Some(now);
        if let Some(device) = device {
            state_device(&mut member.pod, u16::from(device));
        }
        let delta = set(&member.pod);
        self.state.apply(&delta);
    }

    fn evict(&mut self, uid: &Uid) {
        let now = self.now;
        let Some(at) = self.find(uid) else { return };
        if let Some(member) = self.member(at) {
            member.leaving = true;
            member.pod.meta.deleting = Some(now);
            let delta = set(&member.pod);
            self.state.apply(&delta);
        }
        if let Some(job) = self.jobs.get_mut(at.0) {
            job.evicted += 1;
        }
    }

    /// Pods on their way out are gone, and their job makes new ones.
    fn let_go(&mut self) {
        let mut deltas = Vec::new();
        for job in &mut self.jobs {
            for member in job.pods.iter_mut().filter(|m| m.leaving) {
                let meta = &member.pod.meta;
                deltas.push(Delta::Pod(Change::Gone(Gone {
                    uid: meta.uid.clone(),
                    namespace: meta.namespace.clone(),
                    name: meta.name.clone(),
                })));
                member.leaving = false;
                member.lives += 1;
                let pod = &mut member.pod;
                pod.meta.uid = Uid(format!("{}-{}", pod.meta.name, member.lives).into());
                pod.meta.deleting = None;
                pod.node = None;
                pod.started = None;
                pod.phase = Phase::Pending;
                forget_device(pod);
                deltas.push(set(pod));
            }
        }
        for delta in deltas {
            self.state.apply(&delta);
        }
    }

    /// What the cluster looks like.
    pub(super) fn got(&self) -> Got {
        let mut got = Got::default();
        let mut free_milli: i64 = self.devices.values().map(|(n, _)| n * 1_000).sum();
        let mut waits: Vec<(String, i64, &Reason)> = Vec::new();
        for job in &self.jobs {
            let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
            let mut asks = 0;
            let mut why = None;
            for member in &job.pods {
                match &member.pod.node {
                    Some(node) => {
                        *nodes.entry(node.to_string()).or_default() += 1;
                        free_milli -= milli_of(&member.pod, self.devices.get(&**node));
                    }
                    None => {
                        asks += milli_of(&member.pod, None);
                        why = why.or(self.reasons.get(&member.pod.meta.uid));
                    }
                }
            }
            let pods = nodes.values().sum();
            if pods > 0 {
                got.running.insert(job.name.clone(), GotJob { pods, nodes });
            } else {
                got.pending.push(job.name.clone());
                waits.extend(why.map(|why| (job.name.clone(), asks, why)));
            }
            if job.evicted > 0 {
                got.evicted.insert(job.name.clone(), job.evicted);
            }
        }
        for (job, asks, why) in waits {
            let kind = kind_of(why, free_milli >= asks);
            got.reason.insert(job, kind.to_owned());
        }
        got
    }
}

/// A reason in the words of the neutral form. Whether the devices would do if they were together
/// tells fragmentation and topology from a lack of capacity.
fn kind_of(reason: &Reason, free: bool) -> &'static str {
    match reason {
        Reason::OverLimit { .. } => "limit",
        Reason::OverGuarantee { .. } => "nonpreemptible-over-guarantee",
        Reason::GangIncomplete { .. } => "gang",
        Reason::Unsupported { what } if what.contains("gpudeck.dev/topology") => "topology",
        Reason::NoNodeFits { filters, .. } | Reason::GangDoesNotFit { filters, .. } => {
            let says = |words: &str| filters.iter().any(|f| f.why.contains(words));
            let fabric = says("domain(s)") || says("no node has a label") || says("were outside");
            let devices = says("Insufficient") || says("had no GPU with") || fabric;
            match (devices, free, fabric) {
                (false, ..) => "constraint",
                (true, false, _) => "capacity",
                (true, true, true) => "topology",
                (true, true, false) => "fragmentation",
            }
        }
        _ => "constraint",
    }
}

fn milli_of(pod: &Pod, device: Option<&(i64, Option<u32>)>) -> i64 {
    if let Some(milli) = pod.milli_gpu() {
        return i64::from(milli);
    }
    let memory = pod
        .meta
        .annotation(MEMORY)
        .and_then(|m| m.strip_suffix("Mi")?.parse::<i64>().ok());
    if let Some(memory) = memory {
        let all = device.and_then(|d| d.1).map_or(memory, i64::from);
        return memory * 1_000 / all.max(1);
    }
    pod.requests.extended("nvidia.com/gpu") * 1_000
}

fn set(pod: &Pod) -> Delta {
    Delta::Pod(Change::Set(Arc::new(pod.clone())))
}

fn level_label(level: &str) -> Str {
    format!("fabric/{level}").into()
}

fn whole_devices(node: &NodeForm) -> i64 {
    let cut = node
        .mig
        .as_ref()
        .map_or(0, |list| list.iter().filter(|d| d.is_some()).count());
    i64::from(node.gpus) - i64::try_from(cut).unwrap_or(0)
}

fn sorted(pairs: Vec<(Str, Str)>) -> Box<[(Str, Str)]> {
    let mut pairs = pairs;
    pairs.sort();
    pairs.into()
}

fn node_of(case: &Case, form: &NodeForm) -> Result<Node, String> {
    let mut labels: Vec<(Str, Str)> = form
        .labels
        .iter()
        .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
        .collect();
    for (level, domain) in case.levels.iter().zip(&form.domain) {
        if let Some(domain) = domain {
            labels.push((level_label(level), domain.as_str().into()));
        }
    }
    if let Some(mem) = form.gpu_mem_mib {
        labels.push(("nvidia.com/gpu.memory".into(), mem.to_string().into()));
    }
    let mut allocatable = Resources {
        cpu_milli: form.cpu_m.unwrap_or(PLENTY_CPU_MILLI),
        mem_bytes: form.mem_mib.unwrap_or(PLENTY_MEM_MIB).saturating_mul(MIB),
        pods: 1_000_000,
        ..Resources::default()
    };
    let whole = whole_devices(form);
    if whole > 0 {
        allocatable.set_extended(&"nvidia.com/gpu".into(), whole);
    }
    for profile in form.mig.iter().flatten().flatten().flatten() {
        let key: Str = format!("nvidia.com/mig-{profile}").into();
        let n = allocatable.extended(&key);
        allocatable.set_extended(&key, n + 1);
    }
    let mut taints = Vec::new();
    for taint in &form.taints {
        taints.push(Taint {
            key: taint.key.as_str().into(),
            value: taint.value.as_str().into(),
            effect: effect_of(&taint.effect)?,
        });
    }
    if !form.ready {
        // What the node controller does to a node that is not ready.
        taints.push(Taint {
            key: "node.kubernetes.io/not-ready".into(),
            value: "".into(),
            effect: TaintEffect::NoSchedule,
        });
    }
    let meta = Meta {
        uid: Uid(form.name.as_str().into()),
        name: form.name.as_str().into(),
        labels: sorted(labels),
        ..Meta::default()
    };
    Ok(Node {
        gpus: NodeGpus::from_labels(&meta, &allocatable),
        meta,
        taints: taints.into(),
        capacity: allocatable.clone(),
        allocatable,
        ..Node::default()
    })
}

fn effect_of(text: &str) -> Result<TaintEffect, String> {
    match text {
        "NoSchedule" => Ok(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Ok(TaintEffect::PreferNoSchedule),
        "NoExecute" => Ok(TaintEffect::NoExecute),
        other => Err(format!(
            "taint effect {other:?}: NoSchedule, PreferNoSchedule and NoExecute exist"
        )),
    }
}

/// GPUs as thousandths; a case states at most three decimals.
#[allow(clippy::cast_possible_truncation)]
fn milli(gpus: f64) -> i64 {
    (gpus * 1_000.0).round() as i64
}

fn queue_of(case: &Case, form: &QueueForm, now: Timestamp, at: i64) -> Result<Queue, String> {
    let inner = case
        .queues
        .iter()
        .any(|q| q.parent.as_ref() == Some(&form.name));
    let used = case.jobs.iter().any(|j| j.queue == form.name);
    let reclaim = match form.preemption.reclaim.as_deref() {
        None | Some("any") => ReclaimFrom::Any,
        Some("lower-priority") => ReclaimFrom::LowerPriority,
        Some("never") => ReclaimFrom::Never,
        Some(other) => return Err(format!("queue {}: reclaim {other:?}", form.name)),
    };
    let within_queue = match form.preemption.within_queue.as_deref() {
        None | Some("lower-priority") => true,
        Some("never") => false,
        Some(other) => return Err(format!("queue {}: within_queue {other:?}", form.name)),
    };
    Ok(Queue {
        meta: Meta {
            uid: Uid(form.name.as_str().into()),
            name: form.name.as_str().into(),
            created: Some(now - SignedDuration::from_secs(200_000 - at)),
            ..Meta::default()
        },
        parent: form.parent.as_deref().map(Into::into),
        namespaces: if inner && !used {
            Box::default()
        } else {
            [form.name.as_str().into()].into()
        },
        terms: [QueueTerms {
            guaranteed_milli_gpu: milli(form.guaranteed),
            limit_milli_gpu: form.limit.map(milli),
            ..QueueTerms::default()
        }]
        .into(),
        weight: form.weight,
        band: form.priority,
        preemption: QueuePreemption {
            reclaim,
            within_queue,
            borrow_up_to_priority: form.preemption.borrow_up_to_priority,
        },
        min_runtime_secs: None,
        status: None,
    })
}

fn pod_of(job: &JobForm, form: &PodForm, at: usize) -> Result<Pod, String> {
    let name = format!("{}-{at:04}", job.name);
    let mut annotations: Vec<(Str, Str)> =
        vec![("gpudeck.dev/gang-min".into(), job.min.to_string().into())];
    if !job.preemptible {
        annotations.push(("gpudeck.dev/preemptible".into(), "false".into()));
    }
    let topology = job.topology.clone().unwrap_or_default();
    let levels: Vec<String> = [
        topology
            .required
            .map(|l| format!("required={}", level_label(&l))),
        topology
            .preferred
            .map(|l| format!("preferred={}", level_label(&l))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !levels.is_empty() {
        annotations.push(("gpudeck.dev/topology".into(), levels.join(",").into()));
    }
    let mut requests = Resources {
        cpu_milli: form.cpu_m.unwrap_or(0),
        mem_bytes: form.mem_mib.unwrap_or(0).saturating_mul(MIB),
        ..Resources::default()
    };
    if let Some(gpus) = form.gpus.filter(|n| *n > 0) {
        requests.set_extended(&"nvidia.com/gpu".into(), i64::from(gpus));
    }
    match form.milli_gpu {
        Some(1_000) => requests.set_extended(&"nvidia.com/gpu".into(), 1),
        Some(milli) => annotations.push(("gpudeck.dev/milli-gpu".into(), milli.to_string().into())),
        None => {}
    }
    if let Some(mem) = form.gpu_mem_mib {
        annotations.push((MEMORY.into(), format!("{mem}Mi").into()));
    }
    if let Some(profile) = &form.mig {
        requests.set_extended(&format!("nvidia.com/mig-{profile}").into(), 1);
    }
    if let Some(device) = form.gpu {
        annotations.push(("gpudeck.dev/device".into(), device.to_string().into()));
    }
    let running = matches!(form.state.as_deref(), Some("running" | "leaving"));
    if running && form.node.is_none() {
        return Err(format!("pod {at} of job {} runs on no node", job.name));
    }
    let tolerations = form
        .tolerations
        .iter()
        .map(toleration_of)
        .collect::<Result<Box<[Toleration]>, String>>()?;
    Ok(Pod {
        meta: Meta {
            uid: Uid(name.as_str().into()),
            name: name.as_str().into(),
            namespace: job.queue.as_str().into(),
            annotations: sorted(annotations),
            ..Meta::default()
        },
        node: form.node.as_deref().filter(|_| running).map(Into::into),
        phase: if running {
            Phase::Running
        } else {
            Phase::Pending
        },
        scheduler: SchedConfig::default().scheduler_name,
        priority: job.priority,
        requests,
        constraints: Arc::new(Constraints {
            node_selector: form
                .selector
                .iter()
                .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
                .collect(),
            tolerations,
            ..Constraints::default()
        }),
        group: Some(GroupName {
            kind: "PodGroup".into(),
            name: job.name.as_str().into(),
            min_members: Some(job.min),
        }),
        ..Pod::default()
    })
}

fn toleration_of(form: &TolerationForm) -> Result<Toleration, String> {
    let effect = form.effect.as_deref().map(effect_of).transpose()?;
    let exists = form.operator.as_deref() == Some("Exists");
    Ok(Toleration {
        key: form.key.as_deref().map(Into::into),
        value: if exists {
            None
        } else {
            Some(form.value.as_deref().unwrap_or_default().into())
        },
        effect,
    })
}

fn state_device(pod: &mut Pod, device: u16) {
    forget_device(pod);
    let mut list = pod.meta.annotations.to_vec();
    list.push(("gpudeck.dev/device".into(), device.to_string().into()));
    pod.meta.annotations = sorted(list);
}

fn forget_device(pod: &mut Pod) {
    pod.meta.annotations = pod
        .meta
        .annotations
        .iter()
        .filter(|(key, _)| &**key != "gpudeck.dev/device")
        .cloned()
        .collect();
}
