#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;

struct Bench {
    job: Job,
    pods: BTreeMap<String, JobPod>,
    tally: Tally,
    now: Timestamp,
}

impl Bench {
    fn new(spec: Value) -> Self {
        let job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": spec, "status": {}});
        Self {
            job: serde_json::from_value(job).unwrap(),
            pods: BTreeMap::new(),
            tally: Tally::default(),
            now: Timestamp::from_second(1_796_040_000).unwrap(),
        }
    }

    /// Decides, and does what was decided as the API server would.
    fn step(&mut self) -> Decision {
        let clock = Clock::new(1.0, 1);
        let decision = decide(&self.job, &self.pods, &mut self.tally, self.now, clock);
        for uid in &decision.delete {
            let pod = self.pods.get_mut(uid).unwrap();
            pod.deleting = true;
            pod.removed_by_us = true;
        }
        for index in &decision.create {
            let uid = format!("p{}", self.pods.len());
            let pod = JobPod {
                name: uid.clone(),
                index: *index,
                outcome: Outcome::Active,
                ready: false,
                deleting: false,
                removed_by_us: false,
                marks: Vec::new(),
            };
            self.pods.insert(uid, pod);
        }
        if let Some(patch) = &decision.status {
            json_patch::merge(&mut self.job.status, &patch["status"]);
        }
        decision
    }

    fn end(&mut self, uid: &str, outcome: Outcome) {
        self.pods.get_mut(uid).unwrap().outcome = outcome;
    }

    fn has(&self, kind: &str) -> bool {
        Status::of(&self.job, self.now).has_condition(kind)
    }
}

#[test]
fn runs_at_most_parallelism_pods_until_completions() {
    let mut bench = Bench::new(json!({"parallelism": 2, "completions": 3}));
    assert_eq!(bench.step().create.len(), 2);
    assert_eq!(bench.job.status["startTime"], "2026-11-30T12:00:00Z");
    assert!(bench.step().create.is_empty());
    bench.end("p0", Outcome::Succeeded);
    assert_eq!(bench.step().create.len(), 1);
    bench.end("p1", Outcome::Succeeded);
    bench.end("p2", Outcome::Succeeded);
    assert!(bench.step().create.is_empty());
    assert!(bench.has("SuccessCriteriaMet") && bench.has("Complete"));
    assert_eq!(bench.job.status["succeeded"], 3);
    assert_eq!(bench.job.status["completionTime"], "2026-11-30T12:00:00Z");
    // Ended is ended: nothing more is written.
    let decision = bench.step();
    assert!(decision.status.is_none() && decision.create.is_empty() && !decision.expired);
}

#[test]
fn indexed_jobs_run_every_index_once() {
    let mut bench = Bench::new(json!({
        "parallelism": 4, "completions": 6, "completionMode": "Indexed", "backoffLimit": 3,
    }));
    let created = bench.step().create;
    assert_eq!(created, (0..4).map(Some).collect::<Vec<_>>());
    bench.end("p1", Outcome::Succeeded);
    bench.end("p3", Outcome::Failed);
    // The failed index waits for its back-off; so do the others.
    let decision = bench.step();
    assert!(decision.create.is_empty());
    assert_eq!(decision.again.map(|wait| wait.as_secs()), Some(10));
    bench.now = bench
        .now
        .checked_add(jiff::SignedDuration::from_secs(11))
        .unwrap();
    assert_eq!(bench.step().create, [Some(3), Some(4)]);
    assert_eq!(bench.job.status["completedIndexes"], "1");
    assert_eq!(bench.job.status["failed"], 1);
    for uid in ["p0", "p2", "p4", "p5"] {
        bench.end(uid, Outcome::Succeeded);
    }
    assert_eq!(bench.step().create, [Some(5)]);
    bench.end("p6", Outcome::Succeeded);
    bench.step();
    assert!(bench.has("Complete"));
    assert_eq!(bench.job.status["completedIndexes"], "0-5");
}

#[test]
fn too_many_failures_end_the_job_once_its_pods_are_gone() {
    let mut bench = Bench::new(json!({"parallelism": 2, "completions": 2, "backoffLimit": 0}));
    bench.step();
    bench.end("p0", Outcome::Failed);
    assert_eq!(bench.step().delete, ["p1"]);
    assert!(bench.has("FailureTarget") && !bench.has("Failed"));
    bench.pods.remove("p1");
    bench.step();
    assert!(bench.has("Failed"));
    assert_eq!(bench.job.status["failed"], 1);
}

#[test]
fn suspend_deletes_the_pods_and_does_not_count_them() {
    let mut bench = Bench::new(json!({"parallelism": 2, "completions": 2, "backoffLimit": 0}));
    bench.step();
    bench.job.spec.suspend = true;
    assert_eq!(bench.step().delete.len(), 2);
    assert!(bench.has("Suspended"));
    assert!(bench.job.status["startTime"].is_null());
    bench.pods.clear();
    bench.job.spec.suspend = false;
    assert_eq!(bench.step().create.len(), 2);
    assert!(!bench.has("Suspended") && !bench.has("Failed"));
    assert!(bench.job.status["startTime"].is_string());
}

#[test]
fn an_ignored_disruption_is_no_failure() {
    let mut bench = Bench::new(json!({
        "parallelism": 1, "completions": 1, "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }]},
    }));
    bench.step();
    let pod = bench.pods.get_mut("p0").unwrap();
    pod.deleting = true;
    pod.marks = vec!["DisruptionTarget".to_owned()];
    // With a failure policy the pod is replaced only when it has ended.
    assert!(bench.step().create.is_empty());
    bench.pods.clear();
    assert_eq!(bench.step().create.len(), 1);
    assert!(!bench.has("Failed"));
}

#[test]
fn ended_jobs_expire_and_late_ones_fail() {
    let mut bench = Bench::new(json!({"ttlSecondsAfterFinished": 60}));
    bench.step();
    bench.end("p0", Outcome::Succeeded);
    bench.step();
    bench.now = bench
        .now
        .checked_add(jiff::SignedDuration::from_secs(59))
        .unwrap();
    assert!(!bench.step().expired);
    bench.now = bench
        .now
        .checked_add(jiff::SignedDuration::from_secs(2))
        .unwrap();
    assert!(bench.step().expired);

    let mut bench = Bench::new(json!({"activeDeadlineSeconds": 5}));
    assert_eq!(bench.step().again.map(|left| left.as_secs()), Some(5));
    bench.now = bench
        .now
        .checked_add(jiff::SignedDuration::from_secs(6))
        .unwrap();
    assert_eq!(bench.step().delete, ["p0"]);
    bench.pods.clear();
    bench.step();
    let conditions = bench.job.status["conditions"].as_array().unwrap();
    let failed = conditions
        .iter()
        .find(|condition| condition["type"] == "Failed");
    assert_eq!(failed.unwrap()["reason"], "DeadlineExceeded");
}

#[test]
fn counts_survive_a_restart_of_the_controller() {
    let mut bench = Bench::new(json!({"parallelism": 2, "completions": 3, "backoffLimit": 1}));
    bench.job.status = json!({"succeeded": 2, "failed": 1, "startTime": "2026-11-30T11:00:00Z"});
    // One of the two successes is still there, the other pod and the failure are gone.
    bench.step();
    assert_eq!(bench.pods.len(), 1);
    bench.end("p0", Outcome::Succeeded);
    bench.step();
    assert!(bench.has("Complete"), "{}", bench.job.status);
}

#[test]
fn index_ranges_are_written_as_kubernetes_does() {
    let indexes = parse_indexes("0-2,5,7-8");
    assert_eq!(
        indexes.iter().copied().collect::<Vec<_>>(),
        [0, 1, 2, 5, 7, 8]
    );
    assert_eq!(format_indexes(&indexes), "0-2,5,7-8");
    assert_eq!(format_indexes(&BTreeSet::new()), "");
    assert!(parse_indexes("x,3-,-4").is_empty());
}
