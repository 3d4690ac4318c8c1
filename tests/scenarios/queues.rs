//! The demo's queues: who takes whose place, read from the objects alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpudeck::app::embedded::World;
use gpudeck::app::stepped::Stepped;
use gpudeck::sandbox::scenario::{Play, Scenario};
use gpudeck::sandbox::{Time, Witness};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// What our scheduler said of a pod.
#[derive(Debug, Clone)]
struct Said {
    at: Timestamp,
    /// `namespace/name` of the pod.
    pod: String,
    reason: String,
    note: String,
}

/// What was seen of a pod.
#[derive(Debug, Clone, Default)]
struct Pod {
    /// `namespace/name` of its Job, or its own.
    job: String,
    node: String,
    leaves: bool,
}

/// The audit of a run.
#[derive(Debug, Default)]
struct Audit {
    /// By `namespace/name`; names of a Job's pods are never used again.
    pods: BTreeMap<String, Pod>,
    said: Vec<Said>,
    /// Statuses of the queues, by name.
    queues: BTreeMap<String, Value>,
}

fn text(object: &Value, pointer: &str) -> String {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

impl Audit {
    fn see(&mut self, table: &str, key: &str, object: &Value) {
        match table {
            "/pods" => {
                let owner = text(object, "/metadata/ownerReferences/0/name");
                let namespace = text(object, "/metadata/namespace");
                let pod = self.pods.entry(key.to_owned()).or_default();
                pod.job = match owner.is_empty() {
                    true => key.to_owned(),
                    false => format!("{namespace}/{owner}"),
                };
                pod.node = text(object, "/spec/nodeName");
                pod.leaves |= object.pointer("/metadata/deletionTimestamp").is_some();
            }
            "/events" | "events.k8s.io/events" => {
                let by =
                    text(object, "/reportingComponent") + &text(object, "/reportingController");
                if by != "gpudeck" {
                    return;
                }
                let of = match object.get("regarding") {
                    Some(_) => "/regarding",
                    None => "/involvedObject",
                };
                self.said.push(Said {
                    at: text(object, "/eventTime").parse().unwrap(),
                    pod: [
                        text(object, &format!("{of}/namespace")),
                        text(object, &format!("{of}/name")),
                    ]
                    .join("/"),
                    reason: text(object, "/reason"),
                    note: text(object, "/message") + &text(object, "/note"),
                });
            }
            "gpudeck.dev/gpuqueues" => {
                let status = object.get("status").cloned().unwrap_or_default();
                self.queues.insert(key.to_owned(), status);
            }
            _ => {}
        }
    }

    fn job(&self, pod: &str) -> String {
        self.pods.get(pod).map_or(String::new(), |p| p.job.clone())
    }

    /// Who left, for whom, why, and when that was known.
    fn evictions(&self) -> Vec<Eviction> {
        let of = self.said.iter().filter(|s| s.reason == "Preempted");
        of.map(|said| {
            let rest = said.note.strip_prefix("evicted from ").unwrap();
            let (_, rest) = rest.split_once(" for ").unwrap();
            let (preemptor, why) = rest.split_once(": ").unwrap();
            Eviction {
                at: said.at,
                victim: said.pod.clone(),
                preemptor: preemptor.to_owned(),
                why: why.to_owned(),
            }
        })
        .collect()
    }

    /// Nodes on which a place was held for one of the job's pods, and since when.
    fn held(&self, job: &str) -> Vec<(Timestamp, BTreeSet<String>)> {
        let of = self.said.iter().filter(|s| self.job(&s.pod) == job);
        of.filter_map(|s| {
            let rest = s.note.strip_prefix("a place is held on ")?;
            let nodes = rest.strip_suffix(" and becomes free")?;
            Some((s.at, nodes.split(", ").map(str::to_owned).collect()))
        })
        .collect()
    }
}

#[derive(Debug, Clone)]
struct Eviction {
    at: Timestamp,
    victim: String,
    preemptor: String,
    why: String,
}

fn run(secs: u64, seed: u64) -> Audit {
    let audit: Arc<Mutex<Audit>> = Arc::default();
    let witness = Witness::new({
        let audit = audit.clone();
        move |change| {
            let wanted = [
                "/pods",
                "/events",
                "events.k8s.io/events",
                "gpudeck.dev/gpuqueues",
            ];
            if change.change != "DELETED" && wanted.contains(&change.table) {
                let object: Value = serde_json::from_slice(change.json).unwrap();
                let mut audit = audit.lock().unwrap();
                audit.see(change.table, change.key, &object);
            }
        }
    });
    let run = Stepped {
        world: World {
            scenario: Scenario::load("tour").unwrap(),
            play: Play {
                seed,
                speed: None,
                nodes: None,
                time: Time::System,
            },
        },
        length: Duration::from_secs(secs),
        schedule: true,
    };
    run.run_before(Some(witness)).unwrap();
    std::mem::take(&mut *audit.lock().unwrap())
}

#[test]
fn reclaim_and_preemption_are_seen_in_the_tour_and_nothing_flips_back() {
    let audit = run(120, 0);
    let evictions = audit.evictions();
    let shown: Vec<String> = evictions
        .iter()
        .map(|e| {
            let (of, to) = (audit.job(&e.victim), audit.job(&e.preemptor));
            format!("{} {of} for {to}: {}", e.at, e.why)
        })
        .collect();
    let between = |preemptor: &str, victims: &[&str], why: &str| {
        let of = evictions.iter().filter(|e| {
            let victim = audit.job(&e.victim);
            audit.job(&e.preemptor).starts_with(preemptor)
                && victims.iter().any(|v| victim.starts_with(v))
                && e.why.contains(why)
        });
        of.count()
    };
    let below = "is below its guarantee";
    let teams = ["team-", "research/"];
    assert!(
        between("vision/vision-", &teams, below) > 0,
        "vision takes back what the teams hold: {shown:#?}"
    );
    assert_eq!(
        between("speech/", &["vision/vision-base"], ""),
        0,
        "what vision is guaranteed is nobody's to take: {shown:#?}"
    );
    let lower = "it has the lower priority in queue vision";
    assert_eq!(
        between("vision/vision-demo", &["vision/vision-base"], lower),
        1,
        "{shown:#?}"
    );

    for eviction in &evictions {
        // What left was told to leave, and a place was proven and held there before it was.
        assert!(audit.pods[&eviction.victim].leaves, "{eviction:?}");
        let held = audit.held(&audit.job(&eviction.preemptor));
        assert!(
            held.iter().any(|(at, _)| *at <= eviction.at),
            "no place was held before: {eviction:?} {held:?}"
        );
        assert!(eviction.why.contains("GPU-seconds"), "{eviction:?}");
    }
    // Those for whom somebody left got such a place, unless the run ended first.
    let end = audit.said.iter().map(|s| s.at).max().unwrap();
    let preemptors: BTreeSet<String> = evictions
        .iter()
        .filter(|e| e.at < end - SignedDuration::from_secs(40))
        .map(|e| audit.job(&e.preemptor))
        .collect();
    for job in &preemptors {
        let held: BTreeSet<String> = audit.held(job).into_iter().flat_map(|h| h.1).collect();
        let mut pods = audit.pods.values().filter(|p| p.job == *job);
        assert!(
            pods.any(|p| held.contains(&p.node)),
            "{job} got none of {held:?}: {shown:#?}"
        );
    }
    // Who was displaced does not displace whom it made way for.
    let lost = evictions.iter().filter(|e| !e.why.contains("elsewhere"));
    let pairs: BTreeSet<(String, String)> = lost
        .map(|e| (audit.job(&e.preemptor), audit.job(&e.victim)))
        .collect();
    for (a, b) in &pairs {
        assert!(
            !pairs.contains(&(b.clone(), a.clone())),
            "{a} and {b} displace each other: {shown:#?}"
        );
    }

    let vision = &audit.queues["vision"];
    assert_eq!(vision["conditions"][0]["status"], "True", "{vision}");
    assert!(vision["term"].as_u64().unwrap() > 0, "{vision}");
    let teams = &audit.queues["teams"];
    assert!(teams["jobs"]["running"].as_u64().unwrap() > 10, "{teams}");
}
