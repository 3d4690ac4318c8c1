//! Small random situations: the rules hold in each round, and in the end it is quiet.

use std::collections::BTreeMap;

use gpudeck::sim::scenario::{Case, Got, Steps, read};

/// A small generator of its own, so that the cases stay the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A situation: what runs is within capacity and limits.
fn situation(seed: u64) -> Case {
    let mut d = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1);
    let nodes: Vec<(String, u64)> = (0..1 + d.below(4))
        .map(|i| (format!("n{i}"), 1 + d.below(4)))
        .collect();
    let tree = d.one_in(3);
    let leaves = 1 + d.below(3);
    let mut queues = Vec::new();
    let reclaim = |d: &mut Dice| ["any", "any", "lower-priority", "never"][d.below(4) as usize];
    if tree {
        for p in 0..2 {
            queues.push(serde_json::json!({"name": format!("p{p}"), "parent": null,
                "guaranteed": d.below(5), "weight": 1 + d.below(2)}));
        }
    }
    for q in 0..leaves {
        let guaranteed = d.below(4);
        let limit = d.one_in(3).then(|| guaranteed + d.below(4));
        let parent = tree.then(|| format!("p{}", d.below(2)));
        let within = if d.one_in(4) {
            "never"
        } else {
            "lower-priority"
        };
        queues.push(
            serde_json::json!({"name": format!("q{q}"), "parent": parent,
            "guaranteed": guaranteed, "limit": limit, "weight": d.below(3),
            "preemption": {"reclaim": reclaim(&mut d), "within_queue": within}}),
        );
    }
    let mut free: BTreeMap<String, u64> = nodes.iter().cloned().collect();
    let mut used = vec![0; leaves as usize];
    let mut jobs = Vec::new();
    for j in 0..2 + d.below(7) {
        let q = d.below(leaves) as usize;
        let each = 1 + d.below(3);
        let pods = 1 + d.below(3);
        let min = 1 + d.below(pods);
        let mut list = Vec::new();
        let runs = d.one_in(2);
        let limit = queues[queues.len() - leaves as usize + q]["limit"].as_u64();
        for _ in 0..pods {
            let room = free.iter_mut().find(|(_, f)| **f >= each);
            let allowed = limit.is_none_or(|l| used[q] + each <= l);
            match room.filter(|_| runs && allowed) {
                Some((node, left)) => {
                    *left -= each;
                    used[q] += each;
                    list.push(serde_json::json!({"gpus": each, "state": "running", "node": node}));
                }
                None => list.push(serde_json::json!({"gpus": each, "state": "pending"})),
            }
        }
        let running = list.iter().filter(|p| p["state"] == "running").count() as u64;
        let min = if running > 0 { min.min(running) } else { min };
        jobs.push(
            serde_json::json!({"name": format!("j{j}"), "queue": format!("q{q}"),
            "priority": 10 * d.below(3), "preemptible": !d.one_in(6) || running > 0, "min": min,
            "order": j, "pods": list}),
        );
    }
    let nodes: Vec<_> = nodes
        .iter()
        .map(|(name, gpus)| serde_json::json!({"name": name, "gpus": gpus}))
        .collect();
    let text = serde_json::json!([{"id": format!("random-{seed}"),
        "policy": {"fair_reclaim": d.one_in(2), "consolidate": d.one_in(3)},
        "nodes": nodes, "queues": queues, "jobs": jobs}]);
    read(&text.to_string()).unwrap().remove(0)
}

fn gpus_of(case: &Case, got: &Got, keep: impl Fn(&gpudeck::sim::scenario::JobForm) -> bool) -> u32 {
    case.jobs
        .iter()
        .filter(|j| keep(j))
        .map(|j| {
            let pods = got.running.get(&j.name).map_or(0, |r| r.pods);
            pods * j.pods[0].gpus.unwrap_or(0)
        })
        .sum()
}

/// R1, R2 and R3 in one moment.
fn check_moment(case: &Case, got: &Got) {
    for node in &case.nodes {
        let used: u32 = case
            .jobs
            .iter()
            .map(|j| {
                let here = got
                    .running
                    .get(&j.name)
                    .and_then(|r| r.nodes.get(&node.name));
                here.copied().unwrap_or(0) * j.pods[0].gpus.unwrap_or(0)
            })
            .sum();
        assert!(used <= node.gpus, "{}: {used} on {}", case.id, node.name);
    }
    for job in &case.jobs {
        let pods = got.running.get(&job.name).map_or(0, |r| r.pods);
        assert!(
            pods == 0 || pods >= job.min,
            "{}: {} runs {pods}",
            case.id,
            job.name
        );
    }
    for queue in &case.queues {
        let inside = |j: &gpudeck::sim::scenario::JobForm| j.queue == queue.name;
        let used = gpus_of(case, got, inside);
        if let Some(limit) = queue.limit {
            assert!(
                f64::from(used) <= limit,
                "{}: {used} in {}",
                case.id,
                queue.name
            );
        }
    }
}

/// Nobody is below a guarantee that single work of one GPU could be given back for.
fn check_guarantees(case: &Case, got: &Got) {
    let plain = case
        .jobs
        .iter()
        .all(|j| j.pods.len() == 1 && j.pods[0].gpus == Some(1) && j.preemptible)
        && case
            .queues
            .iter()
            .all(|q| q.parent.is_none() && q.limit.is_none());
    if !plain {
        return;
    }
    let used = |name: &str| f64::from(gpus_of(case, got, |j| j.queue == name));
    for queue in &case.queues {
        let asks = case
            .jobs
            .iter()
            .any(|j| j.queue == queue.name && got.pending.contains(&j.name));
        let may = queue.preemption.reclaim.as_deref() == Some("any");
        if !asks || !may || used(&queue.name) + 1.0 > queue.guaranteed {
            continue;
        }
        for other in case.queues.iter().filter(|o| o.name != queue.name) {
            assert!(
                used(&other.name) <= other.guaranteed,
                "{}: {} asks inside its guarantee while {} is above its own",
                case.id,
                queue.name,
                other.name
            );
        }
    }
}

fn check(seed: u64) {
    let case = situation(seed);
    let mut steps = Steps::new(&case).unwrap();
    let mut before = steps.got();
    let mut quiet = 0;
    for round in 0..40 {
        steps.round();
        let got = steps.got();
        check_moment(&case, &got);
        for job in case.jobs.iter().filter(|j| !j.preemptible) {
            assert!(
                !got.evicted.contains_key(&job.name),
                "{}: {}",
                case.id,
                job.name
            );
        }
        let same = serde_json::to_string(&got.running).unwrap()
            == serde_json::to_string(&before.running).unwrap()
            && got.evicted == before.evicted;
        quiet = if same { quiet + 1 } else { 0 };
        before = got;
        assert!(
            round < 39 || quiet >= 10,
            "{}: it never comes to rest",
            case.id
        );
    }
    check_guarantees(&case, &before);
}

#[test]
fn the_rules_hold_and_it_comes_to_rest() {
    for seed in 0..1_500 {
        check(seed);
    }
}

/// Work of one GPU each, where the outcome can be told from the rules alone.
#[test]
fn guarantees_are_given_back() {
    for seed in 0..300 {
        let mut case = situation(seed);
        case.policy.fair_reclaim = seed % 2 == 0;
        for queue in &mut case.queues {
            queue.limit = None;
            queue.parent = None;
        }
        for job in &mut case.jobs {
            job.pods.truncate(1);
            job.pods[0].gpus = Some(1);
            job.min = 1;
            job.preemptible = true;
        }
        let mut steps = Steps::new(&case).unwrap();
        for _ in 0..30 {
            steps.round();
        }
        check_moment(&case, &steps.got());
        check_guarantees(&case, &steps.got());
    }
}
