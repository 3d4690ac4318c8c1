//! The neutral form of a case.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

/// A file that cannot be read as a list of cases.
#[derive(Debug, Error)]
#[error("not a list of scheduling scenarios: {0}; each file is a JSON list of cases")]
pub struct FormError(#[from] serde_json::Error);

/// Reads a file's text.
///
/// # Errors
/// The text is no JSON list of cases; the message tells the place and what is wrong.
pub fn read(text: &str) -> Result<Vec<Case>, FormError> {
    Ok(serde_json::from_str(text)?)
}

/// A case.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    /// Its name.
    pub id: String,
    /// Where its facts come from.
    #[serde(default)]
    pub source: String,
    /// `semantic` when every scheduler that keeps the rules gets this outcome, else `strict`.
    #[serde(default = "semantic")]
    pub gate: String,
    /// What it is about.
    #[serde(default)]
    pub about: String,
    /// What the scheduler may do.
    #[serde(default)]
    pub policy: Policy,
    /// Levels of the fabric, widest first.
    #[serde(default)]
    pub levels: Vec<String>,
    /// Nodes.
    #[serde(default)]
    pub nodes: Vec<NodeForm>,
    /// Queues.
    #[serde(default)]
    pub queues: Vec<QueueForm>,
    /// Jobs.
    #[serde(default)]
    pub jobs: Vec<JobForm>,
    /// Rounds of decide and apply.
    #[serde(default = "one")]
    pub rounds: u32,
    /// What is expected after them.
    #[serde(default)]
    pub expect: Expect,
}

fn semantic() -> String {
    "semantic".to_owned()
}

fn one() -> u32 {
    1
}

fn one_i64() -> i64 {
    1
}

fn yes() -> bool {
    true
}

/// What the scheduler may do.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Policy {
    /// Take back up to the weighted share.
    #[serde(default)]
    pub fair_reclaim: bool,
    /// Move running work.
    #[serde(default)]
    pub consolidate: bool,
    /// `pack` or `spread`.
    #[serde(default)]
    pub node_order: Option<String>,
}

/// A node.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeForm {
    /// Its name.
    pub name: String,
    /// Devices.
    #[serde(default)]
    pub gpus: u32,
    /// Memory of a device.
    #[serde(default)]
    pub gpu_mem_mib: Option<u32>,
    /// CPU; absent is plenty.
    #[serde(default)]
    pub cpu_m: Option<i64>,
    /// Memory; absent is plenty.
    #[serde(default)]
    pub mem_mib: Option<i64>,
    /// Slices in place, one entry a device; null for a device that is whole.
    #[serde(default)]
    pub mig: Option<Vec<Option<Vec<String>>>>,
    /// Its place at each level.
    #[serde(default)]
    pub domain: Vec<Option<String>>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints.
    #[serde(default)]
    pub taints: Vec<TaintForm>,
    /// It takes pods.
    #[serde(default = "yes")]
    pub ready: bool,
}

/// A taint.
#[derive(Debug, Clone, Deserialize)]
pub struct TaintForm {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(default)]
    pub value: String,
    /// Effect.
    pub effect: String,
}

/// A toleration.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct TolerationForm {
    /// Key.
    #[serde(default)]
    pub key: Option<String>,
    /// `Exists` or `Equal`.
    #[serde(default)]
    pub operator: Option<String>,
    /// Value.
    #[serde(default)]
    pub value: Option<String>,
    /// Effect.
    #[serde(default)]
    pub effect: Option<String>,
}

/// A queue.
#[derive(Debug, Clone, Deserialize)]
pub struct QueueForm {
    /// Its name.
    pub name: String,
    /// The queue above.
    #[serde(default)]
    pub parent: Option<String>,
    /// GPUs that it gets whenever it asks.
    #[serde(default)]
    pub guaranteed: f64,
    /// GPUs that it never exceeds.
    #[serde(default)]
    pub limit: Option<f64>,
    /// Its part of what is left.
    #[serde(default = "one_i64")]
    pub weight: i64,
    /// Its band.
    #[serde(default)]
    pub priority: i32,
    /// Whom it may displace.
    #[serde(default)]
    pub preemption: PreemptionForm,
}

/// Whom a queue may displace.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct PreemptionForm {
    /// `never`, `lower-priority` or `any`.
    #[serde(default)]
    pub reclaim: Option<String>,
    /// `never` or `lower-priority`.
    #[serde(default)]
    pub within_queue: Option<String>,
    /// While it borrows.
    #[serde(default)]
    pub borrow_up_to_priority: Option<i32>,
}

/// A job.
#[derive(Debug, Clone, Deserialize)]
pub struct JobForm {
    /// Its name.
    pub name: String,
    /// Its queue.
    pub queue: String,
    /// Higher wins.
    #[serde(default)]
    pub priority: i32,
    /// It may be evicted.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// Pods that start together.
    #[serde(default = "one")]
    pub min: u32,
    /// Submit order; among equals the list's.
    #[serde(default)]
    pub order: i64,
    /// Levels.
    #[serde(default)]
    pub topology: Option<TopologyForm>,
    /// Its pods.
    #[serde(default)]
    pub pods: Vec<PodForm>,
}

/// Levels of a job.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct TopologyForm {
    /// All pods in one domain of this level.
    #[serde(default)]
    pub required: Option<String>,
    /// If it can be.
    #[serde(default)]
    pub preferred: Option<String>,
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct PodForm {
    /// Whole devices.
    #[serde(default)]
    pub gpus: Option<u32>,
    /// A part of one.
    #[serde(default)]
    pub milli_gpu: Option<u32>,
    /// A part of one, by memory.
    #[serde(default)]
    pub gpu_mem_mib: Option<u32>,
    /// A slice.
    #[serde(default)]
    pub mig: Option<String>,
    /// CPU.
    #[serde(default)]
    pub cpu_m: Option<i64>,
    /// Memory.
    #[serde(default)]
    pub mem_mib: Option<i64>,
    /// Node labels.
    #[serde(default)]
    pub selector: BTreeMap<String, String>,
    /// Tolerations.
    #[serde(default)]
    pub tolerations: Vec<TolerationForm>,
    /// `pending`, `running` or `leaving`.
    #[serde(default)]
    pub state: Option<String>,
    /// Where it runs.
    #[serde(default)]
    pub node: Option<String>,
    /// The device of a share.
    #[serde(default)]
    pub gpu: Option<u16>,
}

/// What is expected; an absent key claims nothing.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Expect {
    /// Jobs that run, and where.
    #[serde(default)]
    pub running: Option<BTreeMap<String, RunningForm>>,
    /// Jobs with no pod placed.
    #[serde(default)]
    pub pending: Option<Vec<String>>,
    /// Pods of each job that were evicted at some time.
    #[serde(default)]
    pub evicted: Option<BTreeMap<String, u32>>,
    /// Jobs of which nobody was evicted.
    #[serde(default)]
    pub untouched: Option<Vec<String>>,
    /// One of these holds as well.
    #[serde(default)]
    pub any_of: Option<Vec<Expect>>,
    /// Why jobs wait.
    #[serde(default)]
    pub reason: Option<BTreeMap<String, String>>,
}

/// How a job runs.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct RunningForm {
    /// Pods that run or are placed.
    #[serde(default)]
    pub pods: Option<u32>,
    /// Pods on each node.
    #[serde(default)]
    pub nodes: Option<BTreeMap<String, u32>>,
}
