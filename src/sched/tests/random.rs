//! Random clusters and histories against the naive answer. The seeds are fixed.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use super::build::*;
use super::naive::World;
use crate::model::{
    Change, DecisionKind, Delta, HostPort, MatchExpression, Node, Operator, Phase, Pod, Reason,
    Selector, SelectorTerm, Taint, TaintEffect, Toleration,
};
use crate::plan::{Action, Plan};
use crate::sched::scratch::Scratch;
use crate::sched::turn::kept_unlike;
use crate::sched::{State, decide};

fn fixed_seed<S: Strategy>(
    cases: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    if let Err(e) = TestRunner::new_with_rng(config, rng).run(strategy, test) {
        // The input is a long list: what went wrong comes first.
        match e {
            TestError::Fail(why, input) => panic!("{why}\nwith {input:?}"),
            TestError::Abort(why) => panic!("{why}"),
        }
    }
}

/// Any bytes: what they mean is read one by one.
struct Dice<'a>(&'a [u8], usize);

impl Dice<'_> {
    fn below(&mut self, n: u8) -> u8 {
        let byte = self.0.get(self.1 % self.0.len().max(1)).copied();
        self.1 += 1;
        byte.unwrap_or(0) % n
    }

    fn one_in(&mut self, n: u8) -> bool {
        self.below(n) == 0
    }
}

fn some_node(d: &mut Dice) -> Node {
    let mut n = node(&format!("n{}", d.below(6)), i64::from(d.below(4)) * 2);
    n.allocatable.cpu_milli = i64::from(d.below(5)) * 2_000;
    n.allocatable.pods = i64::from(d.below(8));
    n.unschedulable = d.one_in(8);
    if d.one_in(6) {
        n.taints = [Taint {
            key: "k".into(),
            value: "".into(),
            effect: if d.one_in(3) {
                TaintEffect::PreferNoSchedule
            } else {
                TaintEffect::NoExecute
            },
        }]
        .into();
    }
    n.meta.labels = match d.below(4) {
        0 => pairs(&[]),
        z => pairs(&[("zone", ["0", "2", "x"][usize::from(z) - 1])]),
    };
    n
}

fn some_pod(d: &mut Dice) -> Pod {
    let i = d.below(14);
    let mut p = pod(&format!("p{i:02}"), i64::from(d.below(4)));
    p.requests.cpu_milli = i64::from(d.below(3)) * 1_500;
    p.requests.mem_bytes = 0;
    p.priority = i32::from(d.below(3));
    p.meta.created = Some(at(i64::from(d.below(3))));
    p = with(p, |c| {
        if d.one_in(4) {
            c.tolerations = [Toleration {
                key: None,
                value: None,
                effect: None,
            }]
            .into();
        }
        if d.one_in(6) {
            c.host_ports = [HostPort {
                ip: "0.0.0.0".into(),
                protocol: "TCP".into(),
                port: 80 + u16::from(d.below(2)),
            }]
            .into();
        }
        if d.one_in(8) {
            c.node_selector = pairs(&[("zone", "2")]);
        }
        if d.one_in(6) {
            use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
            let (operator, values): (_, &[&str]) = match d.below(6) {
                0 => (In, &["0", "x"]),
                1 => (NotIn, &["2"]),
                2 => (Exists, &[]),
                3 => (DoesNotExist, &[]),
                4 => (Gt, &["1"]),
                _ => (Lt, &["1"]),
            };
            c.affinity = Some(Selector {
                terms: [SelectorTerm {
                    labels: [MatchExpression {
                        key: "zone".into(),
                        operator,
                        values: values.iter().map(|v| (*v).into()).collect(),
                    }]
                    .into(),
                    ..SelectorTerm::default()
                }]
                .into(),
            });
        }
    });
    // Which gang a pod is in does not change in its life: it follows from the name.
    match i {
        0..=2 => p = in_group(p, "g", 3),
        3..=5 => p = in_group(p, "h", 2),
        6..=8 => p = in_job(p, "j"),
        _ => {}
    }
    match d.below(12) {
        0 => p.gates = ["gate".into()].into(),
        1 => p.scheduler = "other".into(),
        2 => p = annotated(p, &[("gpudeck.dev/milli-gpu", "half")]),
        _ => {}
    }
    p
}

/// What a state was told.
enum Told {
    Apply(Delta),
    Assume(Action),
    Forget(Action),
}

/// A world, the state that has folded its history, and the time.
struct Run {
    world: World,
    state: State,
    told: Vec<Told>,
    second: i64,
}

fn tell(state: &mut State, told: &Told) {
    match told {
        Told::Apply(delta) => state.apply(delta),
        Told::Assume(action) => state.assume(action),
        Told::Forget(action) => state.forget(action),
    }
}

impl Run {
    fn apply(&mut self, delta: &Delta) {
        self.say(Told::Apply(delta.clone()));
    }

    fn say(&mut self, told: Told) {
        tell(&mut self.state, &told);
        self.told.push(told);
    }

    fn step(&mut self, d: &mut Dice) -> Result<(), TestCaseError> {
        self.second += i64::from(d.below(4));
        match d.below(10) {
            0 | 1 => {
                let n = some_node(d);
                self.world.nodes.insert(n.meta.name.to_string(), n.clone());
                self.apply(&set_node(n));
            }
            2 if d.one_in(2) => {
                if let Some(n) = self.world.nodes.remove(&format!("n{}", d.below(6))) {
                    self.apply(&Delta::Node(Change::Gone(gone(&n.meta))));
                }
            }
            2..=5 => {
                let p = some_pod(d);
                let name = p.meta.name.to_string();
                // Only a new pod, or one that still waits, may look like anything.
                let free = self.world.pods.get(&name).is_none_or(|p| p.node.is_none())
                    && !self.world.assumed.contains_key(&name);
                if free {
                    let p = if d.one_in(5) {
                        bound(p, &format!("n{}", d.below(6)))
                    } else {
                        p
                    };
                    self.world.pods.insert(name, p.clone());
                    self.apply(&set_pod(p));
                }
            }
            6 => self.change_a_pod(d),
            7 => {
                let mut j = job("j", 1 + u32::from(d.below(3)), None);
                j.completions = (!d.one_in(3)).then(|| u32::from(d.below(5)));
                self.world.jobs.insert("j".into(), j.clone());
                self.apply(&set_job(j));
            }
            _ => self.decide(d)?,
        }
        Ok(())
    }

    fn change_a_pod(&mut self, d: &mut Dice) {
        let name = format!("p{:02}", d.below(14));
        let Some(mut p) = self.world.pods.get(&name).cloned() else {
            return;
        };
        match d.below(4) {
            0 => {
                self.world.pods.remove(&name);
                self.world.assumed.remove(&name);
                self.world.decisions.remove(&p.meta.uid);
                self.apply(&Delta::Pod(Change::Gone(gone(&p.meta))));
                return;
            }
            1 => p.meta.deleting = Some(at(self.second)),
            2 if p.node.is_some() => p.phase = Phase::Succeeded,
            _ => {
                if let Some(node) = self.world.assumed.remove(&name) {
                    p = bound(p, &node);
                }
            }
        }
        self.world.pods.insert(name, p.clone());
        self.apply(&set_pod(p));
    }

    /// One round: the plan is checked, then carried out with luck and without.
    fn decide(&mut self, d: &mut Dice) -> Result<(), TestCaseError> {
        let now = at(self.second);
        // Other tests look at expiry: here nothing expires.
        let plan = decide(&self.state, now);
        prop_assert_eq!(&plan, &decide(&self.state, now), "twice the same");
        prop_assert_eq!(&plan, &decide(&self.state.clone(), now), "without memory");
        prop_assert_eq!(&plan, &decide(&self.again(), now), "told the same");
        let anew = self.state.clone();
        anew.kept.forget();
        prop_assert_eq!(&plan, &decide(&anew, now), "made anew");
        prop_assert_eq!(kept_unlike(&self.state, &anew), None);
        let mut after = self.world.clone();
        self.check_places(&mut after, &plan)?;
        self.check_rest(&after, &plan)?;
        for decision in &plan.decisions {
            self.tell(decision);
        }
        for group in &plan.groups {
            for action in group {
                self.say(Told::Assume(action.clone()));
                let Action::Bind { name, node, .. } = action else {
                    panic!("nobody may be evicted here");
                };
                match d.below(4) {
                    0 => {
                        self.say(Told::Forget(action.clone()));
                        let p = self.world.pods[&**name].clone();
                        let Delta::Decision(no) = refused(&p, self.second) else {
                            panic!("not a decision");
                        };
                        self.tell(&no);
                        // The rest of a group is not begun.
                        break;
                    }
                    1 => {
                        self.world.assumed.insert(name.to_string(), node.clone());
                    }
                    _ => {
                        let p = bound(self.world.pods[&**name].clone(), node);
                        self.world.pods.insert(name.to_string(), p.clone());
                        self.apply(&set_pod(p));
                    }
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, decision: &Arc<crate::model::Decision>) {
        self.world
            .decisions
            .insert(decision.pod.clone(), decision.clone());
        self.apply(&Delta::Decision(decision.clone()));
    }

    /// A new state that is told the same.
    fn again(&self) -> State {
        let mut state = State::new(quiet());
        for told in &self.told {
            tell(&mut state, told);
        }
        state
    }

    /// Each binding is allowed where and when it is made; no gang is cut.
    fn check_places(&self, after: &mut World, plan: &Plan) -> Result<(), TestCaseError> {
        let mut placed = BTreeSet::new();
        for group in &plan.groups {
            prop_assert!(!group.is_empty());
            for action in group {
                let Action::Bind { name, node, .. } = action else {
                    panic!("nobody may be evicted here");
                };
                let p = &self.world.pods[&**name];
                prop_assert!(after.is_able(p), "{} is not to be placed", name);
                prop_assert!(after.fits(p, &after.nodes[&**node]), "{} on {}", name, node);
                after.assumed.insert(name.to_string(), node.clone());
                placed.insert(name.clone());
            }
            for action in group {
                let Action::Bind { name, .. } = action else {
                    continue;
                };
                match after.gang(&self.world.pods[&**name]) {
                    None => prop_assert_eq!(group.len(), 1),
                    Some(None) => prop_assert!(false, "{}: its Job is not known", name),
                    Some(Some((members, need))) => {
                        prop_assert!(after.with_place(&members) >= need, "a part of a gang");
                    }
                }
            }
        }
        prop_assert_eq!(placed.len(), plan.actions().count(), "a pod placed twice");
        Ok(())
    }

    /// Who still waits could not be placed; what is said of it adds up.
    fn check_rest(&self, after: &World, plan: &Plan) -> Result<(), TestCaseError> {
        prop_assert!(!plan.more);
        // A place that becomes free is kept for whoever's turn it is.
        if !plan.holds.is_empty() {
            return Ok(());
        }
        let backs_off = |p: &Pod| {
            self.world.decisions.get(&p.meta.uid).is_some_and(|d| {
                matches!(d.kind, DecisionKind::Waiting(Reason::Refused { .. }))
                    && at(self.second).duration_since(d.at).as_secs() < 10
            })
        };
        for p in after.pods.values().filter(|p| after.is_able(p)) {
            match after.gang(p) {
                None if !backs_off(p) => {
                    prop_assert!(!after.fits_somewhere(p), "{} would fit", p.meta.name);
                }
                Some(Some((members, need))) => {
                    let able: Vec<&Pod> = members
                        .iter()
                        .copied()
                        .filter(|p| after.is_able(p))
                        .collect();
                    let alike = able.windows(2).all(|w| {
                        w[0].requests == w[1].requests && w[0].constraints == w[1].constraints
                    });
                    if alike && !able.iter().any(|p| backs_off(p)) {
                        let have = after.with_place(&members);
                        let more = after.how_many_fit(&able);
                        prop_assert!(have < need || more == 0, "{} would fit", p.meta.name);
                        prop_assert!(have + more < need || more == 0, "a gang would fit");
                    }
                }
                _ => {}
            }
        }
        for decision in &plan.decisions {
            if let DecisionKind::Waiting(Reason::NoNodeFits { nodes, filters }) = &decision.kind {
                prop_assert_eq!(*nodes as usize, self.world.nodes.len());
                // Each is refused by something, and by several when it lacks several.
                prop_assert!(filters.iter().map(|f| f.nodes).sum::<u32>() >= *nodes);
                prop_assert!(filters.iter().all(|f| (1..=*nodes).contains(&f.nodes)));
            }
        }
        Ok(())
    }
}

#[test]
fn histories_keep_every_promise() {
    let bytes = prop::collection::vec(any::<u8>(), 60..1_200);
    fixed_seed(150, &bytes, |bytes| {
        let mut dice = Dice(&bytes, 0);
        let mut run = Run {
            world: World::default(),
            state: State::new(quiet()),
            told: Vec::new(),
            second: 0,
        };
        while dice.1 < bytes.len() {
            run.step(&mut dice)?;
        }
        run.decide(&mut dice)
    });
}

#[test]
fn one_pod_is_placed_exactly_where_the_naive_filter_says_yes() {
    let bytes = prop::collection::vec(any::<u8>(), 20..80);
    fixed_seed(2_000, &bytes, |bytes| {
        let mut d = Dice(&bytes, 0);
        let mut world = World::default();
        for _ in 0..=d.below(4) {
            let n = some_node(&mut d);
            world.nodes.insert(n.meta.name.to_string(), n);
        }
        for i in 0..d.below(4) {
            let mut p = some_pod(&mut d);
            p.meta = meta(&format!("q{i}"));
            let node = format!("n{}", d.below(6));
            world.pods.insert(p.meta.name.to_string(), bound(p, &node));
        }
        let mut p = some_pod(&mut d);
        p.meta = meta("p");
        p.group = None;
        p.gates = Box::default();
        p.scheduler = "gpudeck".into();
        world.pods.insert("p".into(), p.clone());
        let plan = decide(&state_with(quiet(), world.deltas()), at(0));
        match plan.groups.first().and_then(|g| g.first()) {
            Some(Action::Evict { name, .. }) => prop_assert!(false, "{} is evicted", name),
            Some(Action::Bind { node, .. }) => {
                prop_assert!(world.fits(&p, &world.nodes[&**node]));
            }
            Some(Action::TellQueue { .. }) | None => {
                prop_assert!(!world.fits_somewhere(&p));
            }
        }
        Ok(())
    });
}

#[test]
fn undo_leaves_no_trace() {
    let bytes = prop::collection::vec(any::<u8>(), 100..600);
    fixed_seed(300, &bytes, |bytes| {
        let mut d = Dice(&bytes, 0);
        let mut deltas = Vec::new();
        for _ in 0..6 {
            deltas.push(set_node(some_node(&mut d)));
        }
        for _ in 0..10 {
            deltas.push(set_pod(some_pod(&mut d)));
        }
        let state = state(deltas);
        let classes: Vec<_> = state
            .queue
            .values()
            .filter_map(|uid| Some(state.tracked(uid)?.waiting.as_ref()?.1))
            .collect();
        if classes.is_empty() {
            return Ok(());
        }
        let mut pick = || classes[usize::from(d.below(255)) % classes.len()];
        let (kept, tried): (Vec<_>, Vec<_>) = (
            (0..4).map(|_| pick()).collect(),
            (0..12).map(|_| pick()).collect(),
        );
        let mut with_undo = Scratch::new(&state);
        let mut without = Scratch::new(&state);
        let spots = |s: &mut Scratch, list: &[_]| -> Vec<Option<String>> {
            list.iter()
                .map(|c| s.place(*c).map(|spot| spot.why.to_string()))
                .collect()
        };
        let first = spots(&mut with_undo, &kept);
        prop_assert_eq!(&first, &spots(&mut without, &kept));
        let mark = with_undo.mark();
        let trial = spots(&mut with_undo, &tried);
        with_undo.undo(mark);
        prop_assert_eq!(with_undo.slots(), without.slots());
        for class in &classes {
            prop_assert_eq!(with_undo.reason(*class), without.reason(*class));
        }
        prop_assert_eq!(trial, spots(&mut without, &tried), "as if never tried");
        with_undo.undo(0);
        prop_assert_eq!(&with_undo.slots(), &state.rows.slots);
        Ok(())
    });
}
