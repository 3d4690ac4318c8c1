//! What the load generator submits: Jobs and Deployments drawn from a seed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::annotation;
use super::clock::{Clock, hash};
use super::objects::Node;

/// Label of everything the load generator makes.
pub(super) const MADE_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "gpudeck-load");
/// Label with the pool that the object asks for.
pub(super) const POOL: &str = "sandbox.gpudeck.dev/pool";
/// Annotation with the devices that the whole Job asks for.
pub(super) const DEVICES: &str = "sandbox.gpudeck.dev/devices";
/// The whole-device resource.
const GPU: &str = "nvidia.com/gpu";

/// The namespace of inference services.
pub(super) const INFERENCE: &str = "prod-infer";

/// A team that submits work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    /// Its namespace.
    pub name: String,
    /// Its queue, as `gpudeck.dev/queue` names it.
    pub queue: String,
    /// Its part of all submissions.
    pub weight: u32,
    /// Its priority class.
    pub priority: String,
}

/// The pods of a training Job, and how often there is one like it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gang {
    /// Pods.
    pub pods: i64,
    /// GPUs of each.
    pub gpus: i64,
    /// Its part of all training Jobs.
    pub weight: u32,
}

/// Who submits what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    /// The teams; at least one.
    pub teams: Vec<Team>,
    /// The shapes of training Jobs; at least one.
    pub gangs: Vec<Gang>,
    /// Of a hundred submissions, how many are notebooks.
    pub notebook_percent: u32,
    /// Of a hundred training Jobs, how many fail.
    pub fail_percent: u32,
    /// Inference services take part of the slices and small GPUs.
    pub services: bool,
}

impl Default for Mix {
    fn default() -> Self {
        let team = |name: &str, weight, priority: &str| Team {
            name: name.to_owned(),
            queue: name.to_owned(),
            weight,
            priority: priority.to_owned(),
        };
        let gang = |pods, gpus, weight| Gang { pods, gpus, weight };
        Mix {
            teams: vec![
                team("team-a", 4, "standard"),
                team("team-b", 3, "standard"),
                team("team-c", 2, "batch"),
                team("team-d", 1, "standard"),
                team("research", 3, "batch"),
            ],
            gangs: vec![
                gang(1, 1, 20),
                gang(2, 1, 15),
                gang(1, 4, 15),
                gang(1, 8, 20),
                gang(2, 8, 15),
                gang(4, 8, 11),
                gang(8, 8, 4),
            ],
            notebook_percent: 25,
            fail_percent: 3,
            services: true,
        }
    }
}

/// The one of `all` whose weight a draw in 0..sum falls into.
fn drawn<T>(all: &[T], weight: impl Fn(&T) -> u32, rng: &mut fastrand::Rng) -> Option<usize> {
    let total: u32 = all.iter().map(&weight).sum();
    let mut left = rng.u32(0..total.max(1));
    for (at, one) in all.iter().enumerate() {
        if left < weight(one) {
            return Some(at);
        }
        left -= weight(one);
    }
    None
}

const MODELS: [&str; 8] = [
    "llm-7b",
    "llm-70b",
    "moe-8x22b",
    "vit-g",
    "asr-large",
    "diff-xl",
    "reward-13b",
    "protein-3b",
];
const PEOPLE: [&str; 8] = ["ana", "bo", "chen", "dara", "eli", "fay", "goran", "hana"];
const SERVICES: [&str; 4] = ["chat", "embed", "rerank", "vision"];

/// Devices of one kind: a GPU model, and the resource that its nodes advertise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pool {
    /// Value of the node label `nvidia.com/gpu.product`.
    pub product: String,
    /// Resource name, such as `nvidia.com/gpu`.
    pub resource: String,
}

impl Pool {
    /// Its name as a label value.
    pub(super) fn label(&self) -> String {
        let resource = self.resource.trim_start_matches("nvidia.com/");
        format!("{}.{resource}", self.product)
    }

    /// The devices are parts of GPUs.
    pub(super) fn is_sliced(&self) -> bool {
        self.resource != GPU || self.product.contains("-MIG-") || self.product.ends_with("-SHARED")
    }

    /// CPUs and memory in GiB for each device, so that they never run out before the devices.
    fn share(&self) -> (i64, i64) {
        match () {
            () if self.is_sliced() => (2, 16),
            () if self.product.contains("H100") || self.product.contains("H200") => (20, 200),
            () if self.product.contains("A100") => (10, 120),
            () => (8, 64),
        }
    }

    /// Devices of each pool on nodes that take pods.
    pub(super) fn capacities<'a>(nodes: impl Iterator<Item = &'a Node>) -> BTreeMap<Self, i64> {
        let mut pools = BTreeMap::new();
        for node in nodes.filter(|node| node.ready() == Some("True") && !node.spec.unschedulable) {
            let Some(product) = node.metadata.labels.get("nvidia.com/gpu.product") else {
                continue;
            };
            let devices = node
                .allocatable_milli()
                .into_iter()
                .filter(|(name, milli)| {
                    (name == GPU || name.starts_with("nvidia.com/mig-")) && *milli > 0
                });
            for (resource, milli) in devices {
                let pool = Self {
                    product: product.clone(),
                    resource,
                };
                *pools.entry(pool).or_default() += i64::try_from(milli / 1000).unwrap_or(0);
            }
        }
        pools
    }
}

/// The seeded source of Jobs.
pub(super) struct Plan {
    rng: fastrand::Rng,
    number: u32,
    mix: Mix,
}

impl Plan {
    /// A plan that follows from the clock's seed.
    pub(super) fn new(clock: Clock, mix: Mix) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(hash(clock.seed(), "load plan")),
            number: 0,
            mix,
        }
    }

    /// Whether something that happens in `percent` of the cases happens.
    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    /// A number in 0..`end`; 0 when there is none.
    pub(super) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.rng.usize(0..end) }
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        let at = self.below(of.len());
        of.get(at).copied().unwrap_or("x")
    }

    fn team(&mut self) -> Team {
        let at = drawn(&self.mix.teams, |team| team.weight, &mut self.rng);
        let team = at.and_then(|at| self.mix.teams.get(at)).cloned();
        team.unwrap_or_else(|| Team {
            name: "default".to_owned(),
            queue: "default".to_owned(),
            weight: 1,
            priority: "standard".to_owned(),
        })
    }

    /// The next Job for `pool`, and the devices it asks for: a training gang, or a notebook.
    /// `warm` shortens its time, as if it had begun earlier.
    pub(super) fn job(&mut self, pool: &Pool, capacity: i64, warm: bool) -> (Value, i64) {
        self.number += 1;
        let team = self.team();
        let notebook = pool.is_sliced() || self.chance(self.mix.notebook_percent);
        let (pods, per_pod) = if notebook {
            (1, 1)
        } else {
            self.gang(capacity)
        };
        let (kind, low_secs, high_secs) = match (notebook, pods * per_pod) {
            (true, _) => ("nb", 300.0, 2400.0),
            (false, 1..=4) => ("eval", 90.0, 600.0),
            (false, 5..=16) => ("tune", 240.0, 1200.0),
            (false, _) => ("train", 420.0, 2400.0),
        };
        let subject = if notebook {
            self.pick(&PEOPLE)
        } else {
            self.pick(&MODELS)
        };
        let name = format!("{kind}-{subject}-{:04}", self.number);
        let mut run_secs = low_secs + (high_secs - low_secs) * self.rng.f64().powi(2);
        if warm {
            run_secs *= self.rng.f64();
        }
        let ask = Ask {
            name: &name,
            team: &team,
            pods,
            per_pod,
            run_secs: run_secs.max(5.0).round(),
            fails: !notebook && self.chance(self.mix.fail_percent),
        };
        (ask.job(pool), pods * per_pod)
    }

    /// Pods and devices of each: large gangs are rarer, and none takes more than a third of its pool.
    fn gang(&mut self, capacity: i64) -> (i64, i64) {
        let at = drawn(&self.mix.gangs, |gang| gang.weight, &mut self.rng);
        let gang = at.and_then(|at| self.mix.gangs.get(at));
        let (pods, per_pod) = gang.map_or((1, 1), |gang| (gang.pods, gang.gpus));
        let most = (capacity / 3).max(1);
        let per_pod = if per_pod > most { 1 } else { per_pod };
        (pods.min((most / per_pod).max(1)), per_pod)
    }
}

struct Ask<'a> {
    name: &'a str,
    team: &'a Team,
    pods: i64,
    per_pod: i64,
    run_secs: f64,
    fails: bool,
}

impl Ask<'_> {
    fn job(&self, pool: &Pool) -> Value {
        let gang = self.pods > 1;
        let mut labels = json!({
            MADE_BY.0: MADE_BY.1,
            POOL: pool.label(),
            "app.kubernetes.io/name": self.name,
            "team": self.team.name,
        });
        let mut annotations = json!({
            annotation::RUN_SECS: self.run_secs.to_string(),
            "gpudeck.dev/queue": self.team.queue,
        });
        if self.fails {
            insert(&mut annotations, annotation::EXIT_CODE, json!("1"));
        }
        if gang {
            insert(&mut labels, "gpudeck.dev/gang", json!(self.name));
            insert(
                &mut annotations,
                "gpudeck.dev/gang-min",
                json!(self.pods.to_string()),
            );
        }
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": self.name,
                "namespace": self.team.name,
                "labels": labels,
                "annotations": {
                    DEVICES: (self.pods * self.per_pod).to_string(),
                    "gpudeck.dev/queue": self.team.queue,
                },
            },
            "spec": {
                "parallelism": self.pods,
                "completions": self.pods,
                "completionMode": "Indexed",
                "backoffLimit": 2,
                "ttlSecondsAfterFinished": 300,
                "podFailurePolicy": {"rules": [{
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                }]},
                "template": {
                    "metadata": {"labels": labels, "annotations": annotations},
                    "spec": pod_spec(pool, self.per_pod, &self.team.priority, "Never", "registry.example/train:1.9"),
                },
            },
        })
    }
}

/// The inference services that a pool carries: name and usual replicas.
pub(super) fn services(pool: &Pool, capacity: i64) -> Vec<(String, i64)> {
    let slug: String = pool
        .label()
        .to_lowercase()
        .trim_start_matches("nvidia-")
        .replace(['.', '_'], "-");
    // Slices are for inference; of whole GPUs only the small ones carry some.
    let percent = match () {
        () if pool.is_sliced() => 75,
        () if pool.product.contains("L40S") => 40,
        () => return Vec::new(),
    };
    let count = SERVICES
        .len()
        .min(usize::try_from(capacity / 4).unwrap_or(0).max(1));
    let each = (capacity * percent / 100 / i64::try_from(count).unwrap_or(1)).max(1);
    let names = SERVICES.iter().take(count);
    names
        .map(|service| (format!("{service}-{slug}"), each))
        .collect()
}

/// The Deployment of an inference service.
pub(super) fn deployment(pool: &Pool, name: &str, replicas: i64) -> Value {
    let labels = json!({
        MADE_BY.0: MADE_BY.1,
        POOL: pool.label(),
        "app": name,
        "component": "predictor",
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": INFERENCE, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels, "annotations": {"gpudeck.dev/queue": INFERENCE}},
                "spec": pod_spec(pool, 1, "production", "Always", "registry.example/serve:0.12"),
            },
        },
    })
}

fn pod_spec(pool: &Pool, devices: i64, priority: &str, restart: &str, image: &str) -> Value {
    let (cpus, gib) = pool.share();
    let asks = json!({
        "cpu": (cpus * devices).to_string(),
        "memory": format!("{}Gi", gib * devices),
        pool.resource.as_str(): devices.to_string(),
    });
    json!({
        "schedulerName": "gpudeck",
        "priorityClassName": priority,
        "restartPolicy": restart,
        "nodeSelector": {"nvidia.com/gpu.product": pool.product},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{
            "name": "main",
            "image": image,
            "resources": {"requests": asks, "limits": asks},
        }],
    })
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn pool(product: &str, resource: &str) -> Pool {
        Pool {
            product: product.to_owned(),
            resource: resource.to_owned(),
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_jobs() {
        let draw = |seed| {
            let mut plan = Plan::new(Clock::new(1.0, seed), Mix::default());
            let pool = pool("NVIDIA-H100-80GB-HBM3", GPU);
            (0..50)
                .map(|_| plan.job(&pool, 192, false))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn no_gang_asks_for_more_than_a_third_of_its_pool() {
        let mut plan = Plan::new(Clock::new(1.0, 1), Mix::default());
        for capacity in [1, 4, 8, 30, 192] {
            for _ in 0..200 {
                let (job, devices) = plan.job(&pool("NVIDIA-L40S", GPU), capacity, true);
                assert!(devices <= (capacity / 3).max(1), "{devices} of {capacity}");
                let name = job["metadata"]["name"].as_str().unwrap_or_default();
                assert!(name.len() <= 52 && !name.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn services_leave_room_and_have_names_a_server_takes() {
        let mixed = pool("NVIDIA-H200", "nvidia.com/mig-1g.18gb");
        let all = services(&mixed, 64);
        assert_eq!(all.len(), 4);
        assert!(all.iter().map(|(_, replicas)| replicas).sum::<i64>() <= 64);
        let names: Vec<&String> = all.iter().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| {
            name.len() <= 63
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        }));
        assert!(services(&pool("NVIDIA-H100-80GB-HBM3", GPU), 192).is_empty());
    }
}
