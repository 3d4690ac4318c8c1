//! What a scenario file may hold.
//!
//! Times are those of the scenario: its `speed`, or `--speed`, divides them.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::happenings::{Fabric, Failure, Foreign, Price, Scale, Spot};
use super::numbers::{Real, Whole};
use super::queues::QueueSpec;
use crate::sandbox::faults::Fault;
use crate::sandbox::inventory::{self, Model};
use crate::sandbox::span::Span;

/// A scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scenario {
    /// What is to be seen, in a sentence or two.
    pub about: String,
    /// How much faster than real time it runs when nobody says otherwise.
    #[serde(default)]
    pub speed: Option<Real<100, 1_000_000>>,
    /// The nodes; without any the demo's fleet of 72.
    #[serde(default)]
    pub pool: Vec<Pool>,
    /// Who submits work; without any the demo's five teams.
    #[serde(default)]
    pub team: Vec<TeamSpec>,
    /// Queues of gpudeck's own scheduler; without any each namespace is one.
    #[serde(default)]
    pub queue: Vec<QueueSpec>,
    /// How much work there is; without it none is submitted.
    #[serde(default)]
    pub load: Option<Load>,
    /// Pods that run from the start.
    #[serde(default)]
    pub fill: Option<Fill>,
    /// The spot market; without it no spot node is taken.
    #[serde(default)]
    pub spot: Option<Spot>,
    /// Nodes that are lost.
    #[serde(default)]
    pub failure: Vec<Failure>,
    /// The network; without it nodes keep the labels that they come with.
    #[serde(default)]
    pub fabric: Option<Fabric>,
    /// What a GPU-hour costs; without any no price is told.
    #[serde(default)]
    pub price: Vec<Price>,
    /// Machines that come for pods that fit nowhere.
    #[serde(default)]
    pub scale: Vec<Scale>,
    /// Other admitters.
    #[serde(default)]
    pub foreign: Option<Foreign>,
    /// Training pods save checkpoints and go on from them.
    #[serde(default)]
    pub training: bool,
    /// What is done to the cluster, and when.
    #[serde(default)]
    pub event: Vec<Event>,
    /// What goes wrong with the API server, and when.
    #[serde(default)]
    pub fault: Vec<TimedFault>,
}

/// Nodes of one kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pool {
    /// Their GPUs, or `cpu`.
    pub model: ModelName,
    /// How many.
    pub nodes: Whole<1, 20_000>,
    /// How they are paid for.
    #[serde(default)]
    pub tier: TierName,
    /// How their GPUs are cut: `whole`, a profile such as `1g.10gb` for all of them, or `balanced`
    /// for one of each size.
    #[serde(default)]
    pub mig: Option<Spanned<MigLayout>>,
    /// With `balanced`: how many GPUs of a node are cut; all.
    #[serde(default)]
    pub cut: Option<Spanned<Whole<1, 8>>>,
    /// How many pods share each GPU by time-slicing; none do.
    #[serde(default)]
    pub shared: Option<Spanned<Whole<2, 48>>>,
    /// How many an operator has cordoned.
    #[serde(default)]
    pub cordoned: Option<Whole<0, 20_000>>,
    /// How many have not reported for half an hour.
    #[serde(default)]
    pub not_ready: Option<Whole<0, 20_000>>,
    /// How many have one sick GPU.
    #[serde(default)]
    pub sick_device: Option<Whole<0, 20_000>>,
}

/// A GPU model of the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelName {
    /// H100 SXM.
    H100,
    /// H200.
    H200,
    /// A100 SXM with 80 GB.
    #[serde(rename = "a100-80")]
    A100Of80,
    /// A100 SXM with 40 GB.
    #[serde(rename = "a100-40")]
    A100Of40,
    /// L40S.
    L40s,
    /// No GPU.
    Cpu,
}

impl ModelName {
    /// The model; `None` without GPUs.
    pub fn model(self) -> Option<&'static Model> {
        Some(match self {
            ModelName::H100 => &inventory::H100,
            ModelName::H200 => &inventory::H200,
            ModelName::A100Of80 => &inventory::A100_80,
            ModelName::A100Of40 => &inventory::A100_40,
            ModelName::L40s => &inventory::L40S,
            ModelName::Cpu => return None,
        })
    }
}

/// How capacity is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierName {
    /// Bought ahead.
    Reserved,
    /// By the hour.
    #[default]
    OnDemand,
    /// By the hour, until somebody pays more.
    Spot,
}

impl TierName {
    /// As Karpenter's capacity type.
    pub fn name(self) -> &'static str {
        match self {
            TierName::Reserved => "reserved",
            TierName::OnDemand => "on-demand",
            TierName::Spot => "spot",
        }
    }
}

/// How GPUs are cut, as it is written; whether a model can be cut so is checked later.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum MigLayout {
    /// Not.
    Whole,
    /// One of each size.
    Balanced,
    /// All into this profile.
    Profile(String),
}

impl From<String> for MigLayout {
    fn from(text: String) -> Self {
        match text.as_str() {
            "whole" => MigLayout::Whole,
            "balanced" => MigLayout::Balanced,
            _ => MigLayout::Profile(text),
        }
    }
}

/// A team.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TeamSpec {
    /// Its namespace.
    pub name: Spanned<String>,
    /// Its queue; as its name.
    #[serde(default)]
    pub queue: Option<String>,
    /// Its part of all submissions; 1.
    #[serde(default)]
    pub weight: Option<Whole<1, 1_000>>,
    /// Its priority class; `standard`.
    #[serde(default)]
    pub priority: PriorityName,
}

/// The demo's priority classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriorityName {
    /// Inference that users wait for.
    Production,
    /// Training.
    #[default]
    Standard,
    /// What can wait.
    Batch,
}

impl PriorityName {
    /// The name of the class.
    pub fn name(self) -> &'static str {
        match self {
            PriorityName::Production => "production",
            PriorityName::Standard => "standard",
            PriorityName::Batch => "batch",
        }
    }
}

/// The work that teams submit.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Load {
    /// Wanted demand for each device: 1.15 keeps about an eighth of it waiting.
    #[serde(default)]
    pub demand: Option<Real<0, 10_000>>,
    /// Finished Jobs kept for a look back.
    #[serde(default)]
    pub finished_jobs: Option<Whole<0, 100_000>>,
    /// Of a hundred submissions, how many are notebooks.
    #[serde(default)]
    pub notebook_percent: Option<Whole<0, 100>>,
    /// Of a hundred training Jobs, how many fail.
    #[serde(default)]
    pub fail_percent: Option<Whole<0, 100>>,
    /// Whether inference services take part of the slices and small GPUs.
    #[serde(default)]
    pub services: Option<bool>,
    /// Shapes of training Jobs; without any the demo's seven.
    #[serde(default)]
    pub gangs: Vec<GangShape>,
}

/// A shape of training Jobs.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GangShape {
    /// Pods.
    pub pods: Whole<1, 1_000>,
    /// GPUs of each.
    pub gpus: Whole<1, 8>,
    /// Its part of all training Jobs; 1.
    #[serde(default)]
    pub weight: Option<Whole<1, 1_000>>,
}

/// Pods that run from the start.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fill {
    /// How many, spread evenly over the nodes.
    pub pods: Whole<1, 500_000>,
}

/// A choice of nodes: all that is said must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Nodes {
    /// Names, in which `*` stands for any text.
    #[serde(default)]
    pub names: Vec<String>,
    /// Labels with their values, in which `*` stands for any text.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// At most so many of them, chosen by the seed.
    #[serde(default)]
    pub count: Option<Whole<1, 20_000>>,
}

/// Something that is done to the cluster. All that is said is done.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Event {
    /// When, counted from the start.
    pub at: Spanned<Span>,
    /// To which nodes.
    #[serde(default)]
    pub nodes: Option<Nodes>,
    /// Cordons or uncordons them.
    #[serde(default)]
    pub cordon: Option<bool>,
    /// Labels they get.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations they get.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Objects to create, as YAML.
    #[serde(default)]
    pub create: Option<Spanned<String>>,
    /// Objects to delete: `/api/v1/namespaces/NAME/pods/NAME` and so on.
    #[serde(default)]
    pub delete: Vec<Spanned<String>>,
}

/// A fault of the API server at a time.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TimedFault {
    /// When, counted from the start.
    pub at: Span,
    /// What; its own times are real ones.
    pub inject: Spanned<Fault>,
}
