//! Long random lives with queues, with fixed seeds: arrivals, ends, node loss, other quotas and
//! priorities, refusals, restarts. What may never happen is looked for at every step, and now and
//! then the world stands still to see whether the scheduler comes to rest, and where.
//!
//! `GPUDECK_STEPS` sets how many steps all lives make together; `GPUDECK_SEED` makes them others.

use std::collections::{BTreeMap, BTreeSet};

use super::build::*;
use super::cast::Dice;
use super::realm::{GPUS, Realm, gpus, is_preemptible, part};
use crate::model::{Delta, Pod, ReclaimFrom, Str};
use crate::plan::{Action, Plan};
use crate::sched::turn::kept_unlike;
use crate::sched::{SchedConfig, State, decide};

/// Lives that share the steps: a test each, so they run side by side.
const LIVES: u64 = 4;
/// Steps from one time that the world stands still to the next.
const STILL_EVERY: u64 = 500;
/// Rounds in which it has to come to rest.
const MOST_ROUNDS: u32 = 100;
/// Rounds without a change that are rest: a refused pod is left alone for 60 s, a place held 120 s.
const QUIET_ROUNDS: u32 = 8;
const ROUND_SECS: i64 = 20;

struct Life {
    dice: Dice,
    realm: Realm,
    state: State,
    /// What happened, for the account at the end.
    bound: u64,
    evicted: u64,
}

/// A pod that leaves by a plan, and for whom.
struct Leaver<'a> {
    pod: &'a Pod,
    for_pod: &'a Pod,
}

fn owner_of(pod: &Pod) -> Str {
    match (&pod.group, pod.meta.controller()) {
        (Some(group), _) => {
            format!("group/{}/{}/{}", pod.meta.namespace, group.kind, group.name).into()
        }
        (None, Some(owner)) => format!("owner/{}", owner.uid).into(),
        (None, None) => format!("pod/{}", pod.meta.uid).into(),
    }
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let config = SchedConfig {
            fair_reclaim: seed.is_multiple_of(2),
            moves: seed % 4 < 2,
            half_life_secs: if seed.is_multiple_of(3) { 3_600 } else { 0 },
            ..SchedConfig::default()
        };
        let realm = Realm::new(config, seed % 4 == 1, &mut dice);
        let mut life = Self {
            dice,
            state: State::new(realm.config.clone()),
            realm,
            bound: 0,
            evicted: 0,
        };
        life.restart();
        life
    }

    fn tell(&mut self, deltas: Vec<Delta>) {
        deltas.iter().for_each(|delta| self.state.apply(delta));
    }

    /// Another scheduler takes over: it knows what the server does.
    fn restart(&mut self) {
        self.state = State::new(self.realm.config.clone());
        self.tell(self.realm.all());
    }

    fn step(&mut self) {
        let dice = &mut self.dice;
        match dice.below(40) {
            0..=9 => {
                let deltas = self.realm.arrive(dice);
                self.tell(deltas);
            }
            10..=15 => {
                let deltas = self.realm.end(dice);
                self.tell(deltas);
            }
            16..=22 => {
                let deltas = self.realm.let_go();
                self.tell(deltas);
            }
            23 => {
                let deltas = self.realm.lose_or_return(dice);
                self.tell(deltas);
            }
            24 | 25 => {
                let deltas = self.realm.rule(dice);
                self.tell(deltas);
            }
            26 => {
                let deltas = self.realm.give_up();
                self.tell(deltas);
            }
            27 if dice.below(8) == 0 => self.restart(),
            28..=31 => {
                // Clocks are set back now and then.
                let secs = match dice.below(40) {
                    0 => -5_000,
                    1 => 20_000,
                    _ => i64::try_from(dice.below(60)).unwrap(),
                };
                self.realm.now += secs;
            }
            _ => {
                self.round(true);
            }
        }
    }

    /// Decides, checks the plan and carries it out; true when it had something in it.
    fn round(&mut self, refusals: bool) -> bool {
        let now = at(self.realm.now);
        self.state.expire(now);
        let plan = decide(&self.state, now);
        if self.dice.below(24) == 0 {
            let fork = self.state.fork();
            assert_eq!(decide(&fork, now), plan, "the same, twice");
            fork.kept.forget();
            assert_eq!(decide(&fork, now), plan, "made anew");
            assert_eq!(kept_unlike(&self.state, &fork), None);
        }
        self.check(&plan);
        self.state.hold(&plan);
        self.check_proof(&plan);
        for decision in &plan.decisions {
            self.state.apply(&Delta::Decision(decision.clone()));
        }
        for group in &plan.groups {
            group.iter().for_each(|action| self.state.assume(action));
            let bad_luck = refusals && self.dice.below(12) == 0;
            for action in group {
                if bad_luck {
                    self.state.forget(action);
                    continue;
                }
                let delta = match action {
                    Action::Bind { name, node, .. } => {
                        self.bound += 1;
                        self.realm.bind(name, node)
                    }
                    Action::Evict { name, .. } => {
                        self.evicted += 1;
                        self.realm.evict(name)
                    }
                    Action::TellQueue { .. } => continue,
                };
                self.state.apply(&delta);
            }
        }
        !plan.groups.is_empty() || !plan.holds.is_empty() || plan.more
    }

    fn pod(&self, name: &str) -> &Pod {
        &self.realm.pods[name]
    }

    /// Over-commitment, limits, gangs, and who leaves for whom.
    fn check(&self, plan: &Plan) {
        let realm = &self.realm;
        let mut free = realm.free();
        let running = || realm.pods.values().filter(|p| Realm::runs(p));
        let mut used = realm.used(running());
        // Whoever leaves by this plan gives way to those who start by it.
        let leave = |p: &&Pod| {
            let is_it =
                |a: &Action| matches!(a, Action::Evict { name, .. } if *name == p.meta.name);
            plan.actions().any(is_it)
        };
        let mut then = realm.used(running().filter(|p| !leave(p)));
        let mut leaves: BTreeSet<&str> = BTreeSet::new();
        let mut binds: BTreeSet<&str> = BTreeSet::new();
        for group in &plan.groups {
            let mut gang = None;
            for action in group {
                match action {
                    Action::Bind { name, node, .. } => {
                        let pod = self.pod(name);
                        assert!(pod.is_waiting() && binds.insert(name), "{name} twice");
                        let left = free.get_mut(&**node).expect("the node exists");
                        *left -= gpus(pod);
                        assert!(*left >= 0, "{node}: {left} after {name}");
                        let path = realm.path(pod).expect("its queue is usable");
                        for queue in path {
                            *used.entry(queue.clone()).or_default() += gpus(pod);
                            let sum = then.entry(queue.clone()).or_default();
                            *sum += gpus(pod);
                            let limit = realm.limit(&queue).unwrap_or(i64::MAX);
                            assert!(*sum <= limit, "{queue}: {sum} of {limit} with {name}");
                        }
                        gang = Some(pod);
                    }
                    Action::Evict { name, .. } => {
                        assert!(leaves.insert(name), "{name} leaves twice");
                    }
                    Action::TellQueue { .. } => {}
                }
            }
            if let Some(pod) = gang {
                let min = pod.group.as_ref().map_or(1, |g| g.min_members.unwrap());
                let runs = |p: &&Pod| {
                    Realm::runs(p) && !leaves.contains(&*p.meta.name)
                        || binds.contains(&*p.meta.name)
                };
                let all = realm.gang_of(pod).filter(runs).count();
                let name = &pod.meta.name;
                assert!(all >= min as usize, "{name}: {all} of {min} start");
            }
        }
        for group in &plan.groups {
            for action in group {
                if let Action::Evict {
                    name, preemptor, ..
                } = action
                {
                    let leaver = Leaver {
                        pod: self.pod(name),
                        for_pod: self.pod(&preemptor.1),
                    };
                    self.check_leaver(plan, &leaver, &leaves, &used);
                }
            }
        }
    }

    fn check_leaver(
        &self,
        plan: &Plan,
        leaver: &Leaver<'_>,
        leaves: &BTreeSet<&str>,
        used: &BTreeMap<String, i64>,
    ) {
        let Leaver { pod, for_pod } = leaver;
        let realm = &self.realm;
        let name = &pod.meta.name;
        assert!(Realm::runs(pod), "{name} is not one to leave");
        assert!(realm.may_leave(pod), "{name} is protected");
        // What stays of its gang can run, unless that was too few before.
        let min = pod.group.as_ref().map_or(1, |g| g.min_members.unwrap()) as usize;
        let before = realm.gang_of(pod).filter(|p| Realm::runs(p)).count();
        let starts = |p: &Pod| {
            let is_it = |a: &Action| matches!(a, Action::Bind { name, .. } if *name == p.meta.name);
            plan.actions().any(is_it)
        };
        let stays = |p: &&Pod| (Realm::runs(p) || starts(p)) && !leaves.contains(&*p.meta.name);
        let after = realm.gang_of(pod).filter(stays).count();
        assert!(
            after == 0 || after >= min || before < min,
            "{name}: {after} of {min} are left"
        );
        let holds = |owner: &Str| plan.holds.iter().any(|h| h.owner == *owner);
        if holds(&owner_of(pod)) {
            // It moves: it comes back, to a place that is held for it.
            assert!(
                pod.group.is_some() || pod.meta.controller().is_some(),
                "{name} would not come back"
            );
            return;
        }
        assert!(holds(&owner_of(for_pod)), "{name} leaves for nothing");
        let (mine, theirs) = (realm.path(for_pod).unwrap(), realm.path(pod));
        let theirs = theirs.expect("the queue of a victim is usable");
        let preemption = realm.preemption(for_pod);
        let (high, low) = (realm.priority(for_pod), realm.priority(pod));
        let gang_priority = |p: &Pod| {
            let all = realm.gang_of(p).map(|p| realm.priority(p));
            all.max().unwrap()
        };
        let lower = gang_priority(pod) < gang_priority(for_pod);
        assert!(!for_pod.never_preempts, "{name}: for one that never does");
        if mine == theirs {
            assert!(lower && preemption.within_queue, "{name}: {low} for {high}");
            return;
        }
        let (_, payer) = part(&mine, &theirs).expect("neither is above the other");
        // A place that is held may come to nothing: only what runs counts.
        let uses = used.get(payer).copied().unwrap_or(0);
        let due = realm.guaranteed(payer);
        assert!(
            uses > due,
            "{name}: {payer} is within its guarantee, {uses} of {due}"
        );
        let borrows = preemption.borrow_up_to_priority.is_some_and(|b| low <= b) && lower;
        let may = match preemption.reclaim {
            ReclaimFrom::Never => false,
            ReclaimFrom::LowerPriority => lower,
            ReclaimFrom::Any => true,
        };
        assert!(may || borrows, "{name}: {:?}", preemption.reclaim);
    }

    /// Once all who leave are gone, whoever a place is held for has room there, and enough of its
    /// job do.
    fn check_proof(&self, plan: &Plan) {
        if plan.holds.is_empty() {
            return;
        }
        let realm = &self.realm;
        let mut leaves: BTreeSet<&str> = BTreeSet::new();
        let mut binds: BTreeMap<&str, &str> = BTreeMap::new();
        for action in plan.actions() {
            match action {
                Action::Bind { name, node, .. } => {
                    binds.insert(name, node);
                }
                Action::Evict { name, .. } => {
                    leaves.insert(name);
                }
                Action::TellQueue { .. } => {}
            }
        }
        let mut free: BTreeMap<&str, i64> = realm.nodes.keys().map(|n| (&**n, GPUS)).collect();
        for (name, pod) in &realm.pods {
            let stays = Realm::runs(pod) && !leaves.contains(&**name);
            let node = pod.node.as_deref().filter(|_| stays);
            let node = node.or_else(|| binds.get(&**name).copied());
            if let Some(left) = node.and_then(|n| free.get_mut(n)) {
                *left -= gpus(pod);
            }
        }
        let held = self.state.holds.all();
        let mut held: BTreeMap<Str, Vec<(&str, i64)>> = held
            .map(|(owner, places)| {
                let places = places.iter().map(|h| (&*h.place.node, gpus(&h.pod)));
                (owner.clone(), places.collect())
            })
            .collect();
        // Whoever is bound gives a held place up.
        for (name, node) in &binds {
            let places = held.entry(owner_of(self.pod(name))).or_default();
            if !places.is_empty() {
                let at = places.iter().position(|(n, _)| n == node);
                places.remove(at.unwrap_or(0));
            }
        }
        for (node, asks) in held.values().flatten() {
            if let Some(left) = free.get_mut(node) {
                *left -= asks;
            }
        }
        for hold in &plan.holds {
            for place in &hold.places {
                let left = free.get(&*place.node).expect("the node exists");
                assert!(*left >= 0, "{}: {left} for {}", place.node, hold.owner);
            }
            let of = |p: &&Pod| owner_of(p) == hold.owner;
            let any = realm.pods.values().find(of);
            let min = any.and_then(|p| p.group.as_ref());
            let min = min.map_or(1, |g| g.min_members.unwrap()) as usize;
            let stays = |p: &&Pod| {
                of(p) && Realm::runs(p) && !leaves.contains(&*p.meta.name)
                    || of(p) && binds.contains_key(&*p.meta.name)
            };
            let stay = realm.pods.values().filter(stays).count();
            let places = held.get(&hold.owner).map_or(0, Vec::len);
            assert!(
                places + stay >= min,
                "{}: {places} places, {stay} run, of {min}",
                hold.owner
            );
        }
    }

    /// Nothing comes and nothing ends: after a while nothing changes any more, and who then waits
    /// has a reason to.
    fn stand_still(&mut self) {
        let mut quiet = 0;
        // What was used before is forgotten with a restart: shares change by it.
        let restarts = self.realm.config.half_life_secs == 0;
        for round in 0.. {
            assert!(round < MOST_ROUNDS, "it never comes to rest");
            self.realm.now += ROUND_SECS;
            if restarts && self.dice.below(12) == 0 {
                self.restart();
            }
            let acted = self.round(false);
            quiet = if acted { 0 } else { quiet + 1 };
            let deltas = self.realm.let_go();
            if !deltas.is_empty() {
                quiet = 0;
            }
            self.tell(deltas);
            if quiet >= QUIET_ROUNDS {
                break;
            }
        }
        if !self.realm.timed {
            self.check_rest();
        }
    }

    /// Who waits alone cannot start on what is free, nor take back what its guarantee gives it.
    fn check_rest(&self) {
        let realm = &self.realm;
        let free = realm.free();
        let used = realm.used(realm.pods.values().filter(|p| Realm::runs(p)));
        let uses = |queue: &str| used.get(queue).copied().unwrap_or(0);
        for pod in realm.pods.values().filter(|p| p.is_waiting()) {
            let (name, asks) = (&pod.meta.name, gpus(pod));
            let Some(path) = realm.path(pod) else {
                continue;
            };
            let within = path
                .iter()
                .all(|q| realm.limit(q).is_none_or(|l| uses(q) + asks <= l));
            if pod.group.is_some() || !is_preemptible(pod) || !within {
                continue;
            }
            assert!(
                free.values().all(|left| *left < asks),
                "{name} would fit: {free:?}"
            );
            let reclaims = realm.preemption(pod).reclaim == ReclaimFrom::Any;
            if asks > 1 || !reclaims || pod.never_preempts {
                continue;
            }
            for other in realm.pods.values() {
                let plain = other.group.is_none() && gpus(other) == 1 && Realm::runs(other);
                let Some(theirs) = realm.path(other).filter(|_| plain) else {
                    continue;
                };
                let Some((mine, payer)) = part(&path, &theirs) else {
                    continue;
                };
                let stays = theirs.iter().enumerate().all(|(at, q)| {
                    // A guarantee counts as far as that of the queue above.
                    let above = theirs.get(at + 1).map(|q| realm.guaranteed(q));
                    let inner = q != payer;
                    let due = match above.filter(|_| inner) {
                        Some(above) => realm.guaranteed(q).min(above),
                        None => realm.guaranteed(q),
                    };
                    due == 0 || uses(q) > due
                });
                let above = uses(payer) > realm.guaranteed(payer);
                let inside = uses(mine) < realm.guaranteed(mine);
                assert!(
                    !(stays && above && inside && realm.may_leave(other)),
                    "{name} is due what {} has",
                    other.meta.name
                );
            }
        }
    }
}

fn a_life(number: u64) {
    let all = std::env::var("GPUDECK_STEPS").ok();
    let all: u64 = all.and_then(|n| n.parse().ok()).unwrap_or(24_000);
    let seed = std::env::var("GPUDECK_SEED").ok();
    let seed: u64 = seed.and_then(|n| n.parse().ok()).unwrap_or(0);
    let steps = all / LIVES;
    let mut life = Life::new(seed * LIVES + number);
    for step in 0..steps {
        life.step();
        if step % STILL_EVERY == STILL_EVERY - 1 {
            life.stand_still();
        }
    }
    let (bound, evicted) = (life.bound, life.evicted);
    println!("life {number}: {steps} steps, {bound} bound, {evicted} evicted");
    assert!(
        bound > steps / 10 && evicted > steps / 200,
        "{bound} {evicted}"
    );
}

#[test]
fn a_long_life_with_queues_breaks_no_promise_1() {
    a_life(0);
}

#[test]
fn a_long_life_with_queues_breaks_no_promise_2() {
    a_life(1);
}

#[test]
fn a_long_life_with_queues_breaks_no_promise_3() {
    a_life(2);
}

#[test]
fn a_long_life_with_queues_breaks_no_promise_4() {
    a_life(3);
}
