//! A small cluster with queues as an API server and its controllers would keep it, apart from the
//! scheduler: who is in which queue, who runs where, who is on the way out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::build::*;
use super::cast::Dice;
use crate::model::{
    Change, Delta, Meta, Node, Owner, Phase, Pod, PriorityClass, Queue, QueuePreemption,
    QueueTerms, ReclaimFrom, Str, Uid,
};
use crate::sched::SchedConfig;

/// GPUs of each node.
pub(super) const GPUS: i64 = 4;
const NODES: u64 = 5;
/// Queues of the tree, and the one above each.
const TREE: [(&str, Option<&str>); 6] = [
    ("x", None),
    ("y", None),
    ("a", Some("x")),
    ("b", Some("x")),
    ("c", Some("y")),
    ("d", None),
];
/// Namespaces with pods; no queue names the last.
const NAMESPACES: [&str; 5] = ["a", "b", "c", "d", "e"];
const CLASS: &str = "often-changed";

/// The cluster.
pub(super) struct Realm {
    pub(super) config: SchedConfig,
    pub(super) now: i64,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) queues: BTreeMap<String, Queue>,
    pub(super) pods: BTreeMap<String, Pod>,
    /// Value of the priority class.
    class: i32,
    made: u64,
    /// Pods say how long they run.
    pub(super) timed: bool,
}

/// A queue and all above it, the lowest first.
pub(super) type Path = Vec<String>;

impl Realm {
    pub(super) fn new(config: SchedConfig, timed: bool, dice: &mut Dice) -> Self {
        let mut realm = Self {
            config,
            now: 10_000,
            nodes: BTreeMap::new(),
            queues: BTreeMap::new(),
            pods: BTreeMap::new(),
            class: 10,
            made: 0,
            timed,
        };
        for i in 0..NODES {
            realm.nodes.insert(format!("n{i}"), some_node(i));
        }
        for (name, parent) in TREE {
            let queue = some_queue(name, parent, false, dice);
            realm.queues.insert(name.to_owned(), queue);
        }
        realm
    }

    /// All that a scheduler is told when it starts.
    pub(super) fn all(&self) -> Vec<Delta> {
        let nodes = self.nodes.values().cloned().map(set_node);
        let queues = self.queues.values().cloned().map(set_queue);
        let pods = self.pods.values().cloned().map(set_pod);
        let class = [self.set_class()];
        nodes.chain(queues).chain(class).chain(pods).collect()
    }

    fn set_class(&self) -> Delta {
        Delta::PriorityClass(Change::Set(Arc::new(PriorityClass {
            meta: meta(CLASS),
            value: self.class,
            ..PriorityClass::default()
        })))
    }

    pub(super) fn priority(&self, pod: &Pod) -> i32 {
        match &*pod.priority_class {
            CLASS => self.class,
            _ => pod.priority,
        }
    }

    /// One job more.
    pub(super) fn arrive(&mut self, dice: &mut Dice) -> Vec<Delta> {
        self.made += 1;
        let name = format!("j{}", self.made);
        let namespace: Str = dice.of(&NAMESPACES).into();
        let size = 1 + dice.below(4) / 2 * (1 + dice.below(3));
        let min = match dice.below(2) {
            0 => size,
            _ => 1 + dice.below(size),
        };
        let gpus = dice.of(&[1, 1, 1, 2, 2, 4]);
        let mut pod = pod(&name, gpus);
        pod.meta.namespace = namespace;
        pod.meta.created = Some(at(self.now));
        pod.priority = dice.of(&[0, 0, 10, 20]);
        if dice.below(5) == 0 {
            pod.priority = 0;
            pod.priority_class = CLASS.into();
        }
        pod.never_preempts = dice.below(12) == 0;
        let mut notes = Vec::new();
        if dice.below(8) == 0 {
            notes.push(("gpudeck.dev/preemptible", "false"));
        }
        let secs = (100 + 100 * dice.below(40)).to_string();
        if self.timed && dice.below(2) == 0 {
            notes.push(("gpudeck.dev/runtime-estimate", &*secs));
        }
        pod.meta.annotations = pairs(&notes);
        if dice.below(2) == 0 {
            pod.meta.owners = [Owner {
                kind: "ReplicaSet".into(),
                name: name.clone().into(),
                uid: Uid(format!("owner-{name}").into()),
                controller: true,
            }]
            .into();
        }
        let pods: Vec<Pod> = if size == 1 {
            vec![pod]
        } else {
            let min = u32::try_from(min).unwrap();
            let member = |i: u64| {
                let name: Str = format!("{name}-{i}").into();
                let mut one = in_group(pod.clone(), &pod.meta.name, min);
                one.meta.uid = Uid(format!("uid-{name}").into());
                one.meta.name = name;
                one
            };
            (0..size).map(member).collect()
        };
        pods.into_iter().map(|p| self.set(p)).collect()
    }

    fn set(&mut self, pod: Pod) -> Delta {
        self.pods.insert(pod.meta.name.to_string(), pod.clone());
        set_pod(pod)
    }

    /// A binding is seen.
    pub(super) fn bind(&mut self, name: &str, node: &str) -> Delta {
        let mut pod = bound(self.pods[name].clone(), node);
        pod.started = Some(at(self.now));
        self.set(pod)
    }

    /// An eviction is accepted.
    pub(super) fn evict(&mut self, name: &str) -> Delta {
        let mut pod = self.pods[name].clone();
        pod.meta.deleting = Some(at(self.now + 30));
        self.set(pod)
    }

    /// A pod is gone; its controller makes a new one if it has one and the work is not done.
    pub(super) fn go(&mut self, name: &str, done: bool) -> Vec<Delta> {
        let pod = self.pods.remove(name).unwrap();
        let mut deltas = vec![Delta::Pod(Change::Gone(gone(&pod.meta)))];
        let comes_back = pod.group.is_some() || pod.meta.controller().is_some();
        if comes_back && !done {
            self.made += 1;
            let base = name.split('+').next().unwrap();
            let name = format!("{base}+{}", self.made);
            let mut next = pod;
            next.meta.uid = Uid(format!("uid-{name}").into());
            next.meta.name = name.into();
            next.meta.created = Some(at(self.now));
            next.meta.deleting = None;
            next.node = None;
            next.phase = Phase::Pending;
            next.started = None;
            deltas.push(self.set(next));
        }
        deltas
    }

    /// A job ends, with all its pods, or one pod fails.
    pub(super) fn end(&mut self, dice: &mut Dice) -> Vec<Delta> {
        let running: Vec<String> = self.names(Pod::holds_node);
        if running.is_empty() {
            return Vec::new();
        }
        let name = running[dice.index(running.len())].clone();
        let group = self.pods[&name].group.clone();
        match group {
            Some(group) if dice.below(3) > 0 => {
                let of = |p: &Pod| p.group.as_ref().is_some_and(|g| g.name == group.name);
                let all: Vec<String> = self
                    .pods
                    .iter()
                    .filter(|(_, p)| of(p))
                    .map(|(n, _)| n.clone())
                    .collect();
                all.iter().flat_map(|name| self.go(name, true)).collect()
            }
            Some(_) => self.go(&name, false),
            None => self.go(&name, dice.below(3) > 0),
        }
    }

    fn names(&self, of: impl Fn(&Pod) -> Option<&Str>) -> Vec<String> {
        let pods = self.pods.iter().filter(|(_, p)| of(p).is_some());
        pods.map(|(name, _)| name.clone()).collect()
    }

    /// Those on their way out are gone.
    pub(super) fn let_go(&mut self) -> Vec<Delta> {
        let leaving: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, p)| p.meta.deleting.is_some())
            .map(|(n, _)| n.clone())
            .collect();
        leaving.iter().flat_map(|n| self.go(n, false)).collect()
    }

    /// Those that waited longest give up when there are too many.
    pub(super) fn give_up(&mut self) -> Vec<Delta> {
        let waiting: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, p)| p.node.is_none())
            .map(|(n, _)| n.clone())
            .collect();
        if waiting.len() < 14 {
            return Vec::new();
        }
        waiting.iter().flat_map(|n| self.go(n, true)).collect()
    }

    /// A node is lost with all on it, or comes back.
    pub(super) fn lose_or_return(&mut self, dice: &mut Dice) -> Vec<Delta> {
        let i = dice.below(NODES);
        let name = format!("n{i}");
        let Some(node) = self.nodes.remove(&name) else {
            let node = some_node(i);
            self.nodes.insert(name, node.clone());
            return vec![set_node(node)];
        };
        let on = |p: &Pod| p.node.as_ref().is_some_and(|n| **n == *name);
        let lost: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, p)| on(p))
            .map(|(n, _)| n.clone())
            .collect();
        let mut deltas = vec![Delta::Node(Change::Gone(gone(&node.meta)))];
        deltas.extend(lost.iter().flat_map(|n| self.go(n, false)));
        deltas
    }

    /// A queue gets other terms, goes or comes back, or the priority class another value.
    pub(super) fn rule(&mut self, dice: &mut Dice) -> Vec<Delta> {
        if dice.below(3) == 0 {
            self.class = dice.of(&[-10, 0, 10, 15, 30]);
            return vec![self.set_class()];
        }
        let (name, parent) = dice.of(&TREE);
        if dice.below(8) == 0
            && let Some(queue) = self.queues.remove(name)
        {
            return vec![Delta::Queue(Change::Gone(gone(&queue.meta)))];
        }
        let queue = some_queue(name, parent, dice.below(10) == 0, dice);
        self.queues.insert(name.to_owned(), queue.clone());
        vec![set_queue(queue)]
    }

    /// Queues with nothing wrong about them or those above them.
    fn sound(&self, name: &str) -> bool {
        self.queues.get(name).is_some_and(|q| {
            let terms = &q.terms[0];
            let limit = terms.limit_milli_gpu.unwrap_or(i64::MAX);
            q.weight >= 0
                && limit >= terms.guaranteed_milli_gpu
                && q.parent.as_ref().is_none_or(|p| self.sound(p))
        })
    }

    /// The queues that count a pod; `None` while its queue is not usable.
    pub(super) fn path(&self, pod: &Pod) -> Option<Path> {
        let name = &*pod.meta.namespace;
        let Some(queue) = self.queues.get(name) else {
            return Some(vec![name.to_owned()]);
        };
        if !self.sound(name) {
            return None;
        }
        let mut path = vec![name.to_owned()];
        path.extend(queue.parent.as_ref().map(ToString::to_string));
        Some(path)
    }

    /// What a queue is guaranteed, in GPUs.
    pub(super) fn guaranteed(&self, name: &str) -> i64 {
        let queue = self.queues.get(name);
        queue.map_or(0, |q| q.terms[0].guaranteed_milli_gpu / 1_000)
    }

    pub(super) fn limit(&self, name: &str) -> Option<i64> {
        let limit = self.queues.get(name)?.terms[0].limit_milli_gpu;
        limit.map(|l| l / 1_000)
    }

    pub(super) fn preemption(&self, pod: &Pod) -> QueuePreemption {
        let queue = self.queues.get(&*pod.meta.namespace);
        queue.map_or_else(QueuePreemption::default, |q| q.preemption)
    }

    /// What each queue uses with all below it, by these pods.
    pub(super) fn used<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> BTreeMap<String, i64> {
        let mut used = BTreeMap::new();
        for pod in pods {
            for queue in self.path(pod).unwrap_or_default() {
                *used.entry(queue).or_default() += gpus(pod);
            }
        }
        used
    }

    /// It runs to stay.
    pub(super) fn runs(pod: &Pod) -> bool {
        pod.node.is_some() && pod.meta.deleting.is_none()
    }

    /// Pods of the gang of a pod, itself among them.
    pub(super) fn gang_of<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Pod> {
        let same = move |p: &&Pod| match &pod.group {
            None => p.meta.uid == pod.meta.uid,
            Some(group) => p.group.as_ref().is_some_and(|g| g.name == group.name),
        };
        self.pods.values().filter(same)
    }

    /// It has run for the time for which it is left alone.
    pub(super) fn may_leave(&self, pod: &Pod) -> bool {
        let path = self.path(pod).unwrap_or_default();
        let stated = |name: &String| self.queues.get(&**name)?.min_runtime_secs;
        let least = path.iter().find_map(stated);
        let least = least.unwrap_or(self.config.min_runtime_secs);
        let ran = |p: &Pod| {
            p.started
                .map(|t| at(self.now).duration_since(t).as_secs().max(0))
        };
        is_preemptible(pod) && ran(pod).is_some_and(|secs| secs >= least)
    }

    /// GPUs that nobody holds on each node.
    pub(super) fn free(&self) -> BTreeMap<String, i64> {
        let mut free: BTreeMap<String, i64> =
            self.nodes.keys().map(|n| (n.clone(), GPUS)).collect();
        for pod in self.pods.values() {
            let node = pod.node.as_ref().and_then(|n| free.get_mut(&**n));
            if let Some(left) = node {
                *left -= gpus(pod);
            }
        }
        free
    }
}

/// The two queues below the common one of two paths; `None` for one queue, or one above the other.
pub(super) fn part<'p>(a: &'p Path, b: &'p Path) -> Option<(&'p str, &'p str)> {
    let shared: BTreeSet<&String> = a.iter().filter(|q| b.contains(q)).collect();
    let below = |path: &'p Path| path.iter().rev().find(|q| !shared.contains(q));
    Some((below(a)?, below(b)?))
}

pub(super) fn is_preemptible(pod: &Pod) -> bool {
    pod.meta.annotation("gpudeck.dev/preemptible") != Some("false")
}

pub(super) fn gpus(pod: &Pod) -> i64 {
    pod.requests.extended("nvidia.com/gpu")
}

fn some_node(i: u64) -> Node {
    node(&format!("n{i}"), GPUS)
}

fn set_queue(queue: Queue) -> Delta {
    Delta::Queue(Change::Set(Arc::new(queue)))
}

fn some_queue(name: &str, parent: Option<&str>, odd: bool, dice: &mut Dice) -> Queue {
    let inner = name == "x" || name == "y";
    let most = if inner { 9 } else { 6 };
    let guaranteed = i64::try_from(dice.below(most)).unwrap();
    let more = i64::try_from(dice.below(6)).unwrap();
    let limit = (dice.below(4) == 0).then_some((guaranteed + more) * 1_000);
    Queue {
        meta: Meta {
            namespace: "".into(),
            ..meta(name)
        },
        parent: parent.map(Str::from),
        namespaces: if inner {
            Box::default()
        } else {
            [Str::from(name)].into()
        },
        terms: [QueueTerms {
            guaranteed_milli_gpu: guaranteed * 1_000,
            limit_milli_gpu: if odd { Some(-5) } else { limit },
            ..QueueTerms::default()
        }]
        .into(),
        weight: i64::try_from(dice.below(4)).unwrap(),
        band: i32::try_from(dice.below(2)).unwrap(),
        preemption: QueuePreemption {
            reclaim: dice.of(&[
                ReclaimFrom::Any,
                ReclaimFrom::Any,
                ReclaimFrom::LowerPriority,
                ReclaimFrom::Never,
            ]),
            within_queue: dice.below(4) > 0,
            borrow_up_to_priority: (dice.below(5) == 0).then_some(10),
        },
        min_runtime_secs: dice.of(&[None, None, Some(0), Some(300)]),
        status: None,
    }
}
