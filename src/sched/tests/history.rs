//! Long random lives of a cluster whose watch lags and whose pods take their time to go: whatever
//! is decided, the server never holds more on a node than it has. The seeds are fixed;
//! `GPUDECK_STEPS` makes it longer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::build::*;
use crate::model::{Change, Delta, Meta, Pod, Queue, QueueTerms, Str, Uid};
use crate::plan::{Action, Plan};
use crate::sched::turn::kept_unlike;
use crate::sched::{SchedConfig, State, decide};

const NODES: usize = 6;
const GPUS: i64 = 4;
/// Steps of one life.
const LIFE: usize = 500;
/// Steps of all lives together.
const STEPS: usize = 6_000;

fn queue(name: &str, parent: Option<&str>, guaranteed: i64, limit: Option<i64>) -> Queue {
    Queue {
        meta: Meta {
            namespace: "".into(),
            ..meta(name)
        },
        parent: parent.map(Into::into),
        namespaces: [name.into()].into(),
        terms: [QueueTerms {
            guaranteed_milli_gpu: guaranteed * 1_000,
            limit_milli_gpu: limit.map(|l| l * 1_000),
            ..QueueTerms::default()
        }]
        .into(),
        ..Queue::default()
    }
}

/// A small generator of its own, so that the lives stay the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

/// A server, its pods, and a scheduler that learns of them late.
struct Life {
    dice: Dice,
    state: State,
    second: i64,
    /// By UID what the server has.
    pods: BTreeMap<Uid, Pod>,
    /// What the watch has not told yet.
    late: VecDeque<Delta>,
    made: usize,
    evicted: usize,
    bound: usize,
}

impl Life {
    fn new(seed: u64) -> Self {
        let config = SchedConfig {
            min_runtime_secs: 20,
            ..SchedConfig::default()
        };
        let queues = [
            queue("a", None, 8, None),
            queue("b", None, 6, Some(16)),
            queue("c", None, 0, None),
        ];
        let queues = queues.map(|q| Delta::Queue(Change::Set(Arc::new(q))));
        let nodes = (0..NODES).map(|i| set_node(node(&format!("n{i}"), GPUS)));
        Self {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1),
            state: state_with(config, queues.into_iter().chain(nodes)),
            second: 1_000,
            pods: BTreeMap::new(),
            late: VecDeque::new(),
            made: 0,
            evicted: 0,
            bound: 0,
        }
    }

    fn set(&mut self, pod: Pod) {
        self.late.push_back(set_pod(pod.clone()));
        self.pods.insert(pod.meta.uid.clone(), pod);
    }

    fn remove(&mut self, uid: &Uid) {
        if let Some(pod) = self.pods.remove(uid) {
            self.late
                .push_back(Delta::Pod(Change::Gone(gone(&pod.meta))));
        }
    }

    fn make(&mut self, namespace: &str, group: Option<(&str, u32)>, gpus: i64, priority: i32) {
        self.made += 1;
        let mut pod = pod(&format!("p{:06}", self.made), gpus);
        pod.meta.namespace = namespace.into();
        pod.meta.created = Some(at(self.second));
        pod.priority = priority;
        if let Some((name, min)) = group {
            pod = in_group(pod, name, min);
        }
        self.set(pod);
    }

    fn any(&mut self, which: impl Fn(&Pod) -> bool) -> Option<Pod> {
        let pods: Vec<&Pod> = self.pods.values().filter(|p| which(p)).collect();
        if pods.is_empty() {
            return None;
        }
        Some(pods[self.dice.below(pods.len())].clone())
    }

    fn step(&mut self) {
        self.second += self.dice.below(6) as i64;
        if self.dice.below(100) == 0 {
            // The watch, and with it the scheduler, has slept.
            self.second += self.dice.below(400) as i64;
        }
        match self.dice.below(20) {
            0..=4 if self.pods.len() < 60 => self.come(),
            5..=6 => {
                if let Some(pod) = self.any(|p| p.node.is_some() && p.meta.deleting.is_none()) {
                    self.remove(&pod.meta.uid.clone());
                }
            }
            // The kubelet has ended a pod at last; its controller makes it anew.
            7..=8 => {
                if let Some(mut pod) = self.any(|p| p.meta.deleting.is_some()) {
                    self.remove(&pod.meta.uid.clone());
                    self.made += 1;
                    pod.meta.uid = Uid(format!("uid-{}-{}", pod.meta.name, self.made).into());
                    pod.meta.deleting = None;
                    pod.node = None;
                    pod.phase = crate::model::Phase::Pending;
                    self.set(pod);
                }
            }
            9 => {
                if let Some(pod) = self.any(|p| p.node.is_none()) {
                    self.remove(&pod.meta.uid.clone());
                }
            }
            10..=14 => {
                let some = self.dice.below(self.late.len() + 1);
                self.tell(some);
            }
            _ => self.decide(),
        }
    }

    fn come(&mut self) {
        let namespace = ["a", "b", "c", "d"][self.dice.below(4)];
        let priority = self.dice.below(3) as i32;
        let gpus = self.dice.below(GPUS as usize + 1) as i64;
        if self.dice.below(4) > 0 {
            return self.make(namespace, None, gpus, priority);
        }
        let (group, min) = (format!("g{}", self.made), 2 + self.dice.below(3) as u32);
        for _ in 0..min + self.dice.below(2) as u32 {
            self.make(namespace, Some((&group, min)), gpus.min(2), priority);
        }
    }

    fn tell(&mut self, some: usize) {
        for delta in self.late.drain(..some).collect::<Vec<_>>() {
            self.state.apply(&delta);
        }
    }

    fn decide(&mut self) {
        let now = at(self.second);
        self.state.expire(now);
        for _ in 0..8 {
            let plan = decide(&self.state, now);
            if self.dice.below(4) == 0 {
                let anew = self.state.clone();
                anew.kept.forget();
                assert_eq!(plan, decide(&anew, now), "the same with and without memory");
                assert_eq!(kept_unlike(&self.state, &anew), None);
            }
            let more = plan.more;
            self.carry_out(&plan);
            self.check();
            if !more {
                return;
            }
        }
    }

    fn carry_out(&mut self, plan: &Plan) {
        let leave = plan.actions().any(|a| matches!(a, Action::Evict { .. }));
        assert!(
            !leave || !plan.holds.is_empty(),
            "nobody leaves for nothing"
        );
        self.state.hold(plan);
        for action in plan.actions() {
            self.state.assume(action);
        }
        for decision in &plan.decisions {
            self.state.apply(&Delta::Decision(decision.clone()));
        }
        let mut doubt = false;
        for action in plan.actions() {
            // A lost answer: the write may have been made or not, and the watch shows it in time.
            let (made, answered) = (self.dice.below(30) > 0, self.dice.below(30) > 0);
            let done = made && self.write(action);
            match (done, answered) {
                (true, true) => {}
                (false, true) => self.state.forget(action),
                (_, false) => {
                    doubt = true;
                    self.state.doubt(action);
                }
            }
        }
        if doubt {
            self.tell(self.late.len());
        }
    }

    /// What the server does; false: it says no.
    fn write(&mut self, action: &Action) -> bool {
        match action {
            Action::Bind { pod, node, .. } => {
                let Some(mut pod) = self.pods.get(pod).cloned() else {
                    return false;
                };
                if pod.node.is_some() || pod.meta.deleting.is_some() {
                    return false;
                }
                pod = bound(pod, node);
                pod.started = Some(at(self.second));
                self.bound += 1;
                self.set(pod);
            }
            Action::Evict { pod, why, .. } => {
                let Some(mut pod) = self.pods.get(pod).cloned() else {
                    return false;
                };
                assert!(!why.is_empty());
                if pod.meta.deleting.is_none() {
                    pod.meta.deleting = Some(at(self.second));
                    self.evicted += 1;
                    self.set(pod);
                }
            }
            Action::TellQueue { .. } => {}
        }
        true
    }

    /// Devices in use on each node, by what the server has: a pod that is to go is still there.
    fn used(&self) -> BTreeMap<Str, i64> {
        let mut used: BTreeMap<Str, i64> = BTreeMap::new();
        for pod in self.pods.values() {
            if let Some(node) = &pod.node {
                *used.entry(node.clone()).or_default() += pod.requests.extended("nvidia.com/gpu");
            }
        }
        used
    }

    fn check(&self) {
        for (node, used) in self.used() {
            assert!(
                used <= GPUS,
                "{used} devices of {GPUS} are in use on {node}"
            );
        }
    }

    /// Everything is told and has gone, and no answer is missed: whoever fits is bound.
    fn settle(&mut self) {
        for _ in 0..20 {
            while let Some(pod) = self.any(|p| p.meta.deleting.is_some()) {
                self.remove(&pod.meta.uid.clone());
            }
            self.tell(self.late.len());
            self.second += 150;
            self.decide();
        }
        while let Some(pod) = self.any(|p| p.meta.deleting.is_some()) {
            self.remove(&pod.meta.uid.clone());
        }
        self.tell(self.late.len());
        for _ in 0..3 {
            self.second += 150;
            self.decide();
            self.tell(self.late.len());
        }
        if self.pods.values().any(|p| p.meta.deleting.is_some()) {
            return;
        }
        let used = self.used();
        let of_b: i64 = self
            .pods
            .values()
            .filter(|p| p.node.is_some() && &*p.meta.namespace == "b")
            .map(|p| p.requests.extended("nvidia.com/gpu"))
            .sum();
        for pod in self.pods.values() {
            let asks = pod.requests.extended("nvidia.com/gpu");
            let limited = &*pod.meta.namespace == "b" && of_b + asks > 16;
            if pod.node.is_some() || pod.group.is_some() || limited {
                continue;
            }
            for at in 0..NODES {
                let node: Str = format!("n{at}").into();
                let here = used.get(&node).copied().unwrap_or(0);
                assert!(
                    here + asks > GPUS,
                    "{} waits though it fits on {node}",
                    pod.meta.name
                );
            }
        }
        let mut groups: BTreeMap<&Str, (u32, u32)> = BTreeMap::new();
        for pod in self.pods.values() {
            if let Some(group) = &pod.group {
                let count = groups.entry(&group.name).or_default();
                count.0 += u32::from(pod.node.is_some());
                count.1 = group.min_members.unwrap_or(0);
            }
        }
        // Members that ended or were deleted may leave a gang below its minimum; none started so.
        assert!(groups.len() < 100);
    }
}

#[test]
fn no_node_ever_holds_more_than_it_has_and_whoever_fits_starts() {
    // GPUDECK_STEPS=1000000 takes minutes.
    let steps = std::env::var("GPUDECK_STEPS").ok();
    let steps = steps.and_then(|n| n.parse().ok()).unwrap_or(STEPS);
    let (mut evicted, mut bound) = (0, 0);
    for seed in 0..steps.div_ceil(LIFE) {
        let mut life = Life::new(seed as u64);
        for _ in 0..LIFE {
            life.step();
        }
        life.settle();
        evicted += life.evicted;
        bound += life.bound;
    }
    println!("{steps} steps: {bound} bindings, {evicted} evictions");
    assert!(bound > steps / 20, "{bound} bindings");
    assert!(evicted > steps / 200, "{evicted} evictions");
}

#[test]
fn the_place_of_a_pod_that_takes_its_time_to_go_is_not_given_away() {
    let mut s = state_with(
        SchedConfig::default(),
        [
            Delta::Queue(Change::Set(Arc::new(queue("b", None, 2, None)))),
            set_node(node("n", 2)),
        ],
    );
    let of = |namespace: &str, mut pod: Pod| {
        pod.meta.namespace = namespace.into();
        pod
    };
    let victim = of("a", bound(pod("a0", 2), "n"));
    s.apply(&set_pod(victim.clone()));
    s.apply(&set_pod(of("b", pod("b0", 2))));
    s.expire(at(1_000));
    let plan = decide(&s, at(1_000));
    assert_eq!(binds(&plan), "a0<n");
    s.hold(&plan);
    carry_out(&mut s, &plan);
    let mut leaving = victim.clone();
    leaving.meta.deleting = Some(at(1_000));
    s.apply(&set_pod(leaving));
    // Nothing else wakes it, and others come: for days the pod is on its node.
    for round in 0..40_i64 {
        let now = at(1_001 + round * 7_000);
        s.apply(&set_pod(of("c", pod(&format!("c{round}"), 1))));
        s.expire(now);
        let plan = decide(&s, now);
        assert_eq!(binds(&plan), "", "round {round}");
        s.hold(&plan);
        carry_out(&mut s, &plan);
    }
    s.apply(&Delta::Pod(Change::Gone(gone(&victim.meta))));
    let now = at(400_000);
    s.expire(now);
    assert_eq!(binds(&decide(&s, now)), "b0>n", "the one it was freed for");
}
