//! The parts of a scenario that the world's actors play: spot market, failures, fabric, prices,
//! autoscaler, other admitters, training.

use serde::Deserialize;

use super::numbers::{Real, Whole};
use super::schema::{ModelName, Nodes, Scenario, TierName};
use crate::sandbox::actors::world::{
    Settings, autoscaler, failures, foreign, network, notice, pick, prices, shutdown, spot,
    training,
};
use crate::sandbox::span::Span;

/// The spot market.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Spot {
    /// Mean hours between two reclaims of one node by chance; without it only storms take nodes.
    #[serde(default)]
    pub mean_hours: Option<Real<1, 10_000_000>>,
    /// Whose notices; without it each node's labels tell.
    #[serde(default)]
    pub provider: Option<ProviderName>,
    /// How long before a node goes it is told; the provider's.
    #[serde(default)]
    pub notice: Option<Span>,
    /// Shortest and longest time until a like node comes; without it none does.
    #[serde(default)]
    pub replace: Option<(Span, Span)>,
    /// Of a hundred reclaims by chance, how many are false alarms.
    #[serde(default)]
    pub false_alarm_percent: Option<Whole<0, 100>>,
    /// Many reclaims at a time.
    #[serde(default)]
    pub storms: Vec<Storm>,
}

/// Many reclaims at a time.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Storm {
    /// When.
    pub at: Span,
    /// Over how long they are spread.
    #[serde(default)]
    pub spread: Span,
    /// Of which nodes; all that are spot.
    #[serde(default)]
    pub nodes: Nodes,
}

/// Whose notice.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderName {
    /// EC2 under Karpenter.
    Karpenter,
    /// EC2 under aws-node-termination-handler.
    Nth,
    /// GKE.
    Gke,
    /// AKS.
    Aks,
    /// CoreWeave.
    Coreweave,
}

/// Nodes that are lost.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Failure {
    /// When.
    pub at: Span,
    /// Which.
    pub nodes: Nodes,
    /// How.
    pub how: Loss,
    /// How long they are away; for good.
    #[serde(default)]
    pub down: Option<Span>,
}

/// How a node is lost.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// From one moment to the next.
    Silent,
    /// In order, with a minute for its pods.
    Shutdown,
    /// With its Node object.
    Deleted,
}

/// The network.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fabric {
    /// Whose labels; topograph's present ones.
    #[serde(default)]
    pub schemes: Vec<SchemeName>,
    /// Nodes at a leaf; 8.
    #[serde(default)]
    pub nodes_per_leaf: Option<Whole<1, 1_000>>,
    /// Leaves at a spine; 4.
    #[serde(default)]
    pub leaves_per_spine: Option<Whole<1, 1_000>>,
    /// Nodes of one NVLink domain, as 18 of an NVL72 rack.
    #[serde(default)]
    pub nvlink_nodes: Option<Whole<1, 1_000>>,
    /// Of a hundred nodes, how many have no label of the fabric.
    #[serde(default)]
    pub unlabelled_percent: Option<Whole<0, 100>>,
}

/// Whose labels of the network.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchemeName {
    /// topograph 1.0 and later.
    Topograph,
    /// topograph up to 0.5.
    TopographOld,
    /// AWS.
    Aws,
    /// GKE.
    Gke,
    /// OCI.
    Oci,
    /// CoreWeave.
    Coreweave,
}

/// What a GPU-hour costs.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Price {
    /// Of this model.
    pub model: ModelName,
    /// In this tier.
    pub tier: TierName,
    /// US dollars for an hour of one GPU.
    pub usd: Real<0, 1_000_000>,
    /// How far it moves around that, in percent.
    #[serde(default)]
    pub moves_percent: Option<Whole<0, 100>>,
}

/// Machines that come for pods that fit nowhere.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scale {
    /// Their GPUs.
    pub model: ModelName,
    /// How they are paid for.
    #[serde(default)]
    pub tier: TierName,
    /// The most of them.
    pub most: Whole<1, 5_000>,
    /// Shortest and longest time until one is there; 3 to 6 minutes.
    #[serde(default)]
    pub boot: Option<(Span, Span)>,
}

/// Other admitters beside ours.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Foreign {
    /// Kueue, with a queue for each team.
    #[serde(default)]
    pub kueue: bool,
    /// Volcano, likewise.
    #[serde(default)]
    pub volcano: bool,
    /// KAI, likewise.
    #[serde(default)]
    pub kai: bool,
    /// kube-scheduler, which binds pods one by one.
    #[serde(default)]
    pub default_scheduler: bool,
    /// GPUs that each team's queue may count on; 32.
    #[serde(default)]
    pub queue_gpus: Option<Whole<1, 10_000>>,
}

impl From<&Nodes> for pick::NodePick {
    fn from(nodes: &Nodes) -> Self {
        pick::NodePick {
            names: nodes.names.clone(),
            labels: nodes.labels.clone(),
            count: nodes.count.map(|count| count.count()),
        }
    }
}

fn percent(share: Option<Whole<0, 100>>) -> Option<f64> {
    share.map(|n| f64::from(n.get()) / 100.0)
}

impl Scenario {
    /// What the world's actors do.
    pub(super) fn world(&self, teams: &[String]) -> Settings {
        Settings {
            failures: (!self.failure.is_empty()).then(|| failures::Settings {
                failures: self.failure.iter().map(failure).collect(),
                chance: None,
            }),
            spot: self.spot.as_ref().map(market),
            prices: (!self.price.is_empty()).then(|| prices::Settings {
                rates: self.price.iter().map(rate).collect(),
                ..prices::Settings::default()
            }),
            network: self.fabric.as_ref().map(fabric),
            foreign: self
                .foreign
                .map(|spec| others(spec, teams))
                .unwrap_or_default(),
            node_claims: self.spot.is_some() || !self.scale.is_empty(),
            training: self.training.then(training::Settings::default),
            autoscaler: (!self.scale.is_empty()).then(|| autoscaler::Settings {
                groups: self.scale.iter().enumerate().map(group).collect(),
                claims: true,
                ..autoscaler::Settings::default()
            }),
        }
    }
}

/// A node that shuts down in order: a minute, of it 15 s for critical pods.
const GRACE: shutdown::Grace = shutdown::Grace {
    total_secs: 60.0,
    critical_secs: 15.0,
};

fn failure(spec: &Failure) -> failures::Failure {
    failures::Failure {
        at_secs: spec.at.secs(),
        nodes: (&spec.nodes).into(),
        loss: match spec.how {
            Loss::Silent => failures::Loss::Silent,
            Loss::Shutdown => failures::Loss::Shutdown(GRACE),
            Loss::Deleted => failures::Loss::Deleted,
        },
        down_secs: spec.down.map(Span::secs),
    }
}

fn market(spec: &Spot) -> spot::Settings {
    let usual = spot::Settings::default();
    spot::Settings {
        provider: spec.provider.map(|provider| match provider {
            ProviderName::Karpenter => notice::Provider::Karpenter,
            ProviderName::Nth => notice::Provider::Nth,
            ProviderName::Gke => notice::Provider::Gke,
            ProviderName::Aks => notice::Provider::Aks,
            ProviderName::Coreweave => notice::Provider::CoreWeave,
        }),
        lead_secs: spec.notice.map(Span::secs),
        mean_hours: spec.mean_hours.map(|hours| hours.get()),
        false_alarm_share: percent(spec.false_alarm_percent).unwrap_or(usual.false_alarm_share),
        storms: spec
            .storms
            .iter()
            .map(|storm| spot::Storm {
                at_secs: storm.at.secs(),
                nodes: (&storm.nodes).into(),
                spread_secs: storm.spread.secs(),
            })
            .collect(),
        replace_secs: spec.replace.map(|(low, high)| (low.secs(), high.secs())),
        ..usual
    }
}

fn rate(spec: &Price) -> prices::Rate {
    let product = spec.model.model().map_or("none", |model| model.product);
    let labels = [
        ("nvidia.com/gpu.product", format!("{product}*")),
        ("karpenter.sh/capacity-type", spec.tier.name().to_owned()),
    ];
    prices::Rate {
        nodes: pick::NodePick {
            labels: labels
                .map(|(label, value)| (label.to_owned(), value))
                .into(),
            ..pick::NodePick::default()
        },
        usd_per_gpu_hour: spec.usd.get(),
        moves: percent(spec.moves_percent).unwrap_or(0.0),
    }
}

fn fabric(spec: &Fabric) -> network::Settings {
    let usual = network::Settings::default();
    let schemes = spec.schemes.iter().map(|scheme| match scheme {
        SchemeName::Topograph => network::Scheme::Topograph,
        SchemeName::TopographOld => network::Scheme::TopographOld,
        SchemeName::Aws => network::Scheme::Aws,
        SchemeName::Gke => network::Scheme::Gke,
        SchemeName::Oci => network::Scheme::Oci,
        SchemeName::Coreweave => network::Scheme::CoreWeave,
    });
    network::Settings {
        schemes: if spec.schemes.is_empty() {
            usual.schemes.clone()
        } else {
            schemes.collect()
        },
        nodes_per_leaf: spec
            .nodes_per_leaf
            .map_or(usual.nodes_per_leaf, |n| n.count()),
        leaves_per_spine: spec
            .leaves_per_spine
            .map_or(usual.leaves_per_spine, |n| n.count()),
        nvlink_nodes: spec.nvlink_nodes.map(|n| n.count()),
        unlabelled_share: percent(spec.unlabelled_percent).unwrap_or(0.0),
        ..usual
    }
}

fn group((number, spec): (usize, &Scale)) -> autoscaler::NodeGroup {
    let usual = autoscaler::NodeGroup::default();
    let slug = spec.model.model().map_or("cpu", |model| model.slug);
    autoscaler::NodeGroup {
        name: format!("{slug}-scale-{}", number + 1),
        model: slug.to_owned(),
        tier: spec.tier.name().to_owned(),
        max: spec.most.count(),
        boot_secs: spec
            .boot
            .map_or(usual.boot_secs, |(low, high)| (low.secs(), high.secs())),
        ..usual
    }
}

fn others(spec: Foreign, teams: &[String]) -> foreign::Settings {
    let gpus = spec.queue_gpus.map_or(32, |gpus| gpus.get());
    foreign::Settings {
        kueue: spec.kueue.then(|| foreign::usual::kueue(teams, gpus)),
        volcano: spec.volcano.then(|| foreign::usual::volcano(teams, gpus)),
        kai: spec.kai.then(|| foreign::usual::kai(teams, gpus)),
        default_scheduler: spec.default_scheduler,
    }
}
