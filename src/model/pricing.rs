//! What capacity costs: the operator's rules for tiers and the rate card.
//!
//! Nothing here is guessed: a node that no rate fits has no price, which is not a price of 0.

use super::node::Node;
use super::text::Str;
use super::tier::Tier;

/// Annotations with the price of an hour of one whole GPU of a node, such as `2.41`; the second is
/// written by the embedded cluster.
const ANNOTATIONS: [&str; 2] = [
    "gpudeck.dev/price-per-gpu-hour",
    "sandbox.gpudeck.dev/usd-per-gpu-hour",
];

/// Prices above this are no prices of a GPU-hour.
const HIGHEST: f64 = 100_000.0;

/// A rule of the operator that tells the tier of nodes; it wins over what labels of providers say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierRule {
    /// Label of the node.
    pub label: Str,
    /// Its value; `None`: any.
    pub value: Option<Str>,
    /// The tier.
    pub tier: Tier,
}

/// A row of the rate card. What is not stated fits every node.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rate {
    /// Begin of the model's short name (`H100` also fits `H100-80`).
    pub model: Option<Str>,
    /// Tier.
    pub tier: Option<Tier>,
    /// Value of the label `topology.kubernetes.io/region`.
    pub region: Option<Str>,
    /// Value of the label `topology.kubernetes.io/zone`.
    pub zone: Option<Str>,
    /// Price of an hour of one whole GPU.
    pub per_gpu_hour: f64,
    /// Where the price is from and as of when, in words.
    pub source: Str,
}

/// The price of a node's GPUs.
#[derive(Clone, PartialEq, Debug)]
pub struct Price {
    /// Of an hour of one whole GPU.
    pub per_gpu_hour: f64,
    /// Where it is from.
    pub source: Str,
}

/// Rules and rates of the operator.
#[derive(Clone, PartialEq, Debug)]
pub struct Pricing {
    /// In order; the first that fits wins.
    pub rules: Vec<TierRule>,
    /// In any order; the most exact that fits wins.
    pub rates: Vec<Rate>,
    /// Sign before amounts.
    pub currency: Str,
}

impl Default for Pricing {
    fn default() -> Self {
        Pricing {
            rules: Vec::new(),
            rates: Vec::new(),
            currency: "$".into(),
        }
    }
}

impl Rate {
    /// How exact it is, if it fits; a zone tells more than a region, that more than a model, and
    /// that more than a tier.
    fn fit(&self, node: &Node, tier: Option<Tier>) -> Option<[bool; 4]> {
        let label = |key: &str| node.meta.label(key);
        let same = |wanted: &Option<Str>, key: &str| {
            wanted.as_ref().is_none_or(|w| label(key) == Some(&**w))
        };
        let model = node.gpus.model.as_ref().map(|m| m.short());
        let of_model = self
            .model
            .as_ref()
            .is_none_or(|wanted| model.is_some_and(|short| begins(short, wanted)));
        let fits = of_model
            && self.tier.is_none_or(|wanted| tier == Some(wanted))
            && same(&self.region, "topology.kubernetes.io/region")
            && same(&self.zone, "topology.kubernetes.io/zone");
        fits.then_some([
            self.zone.is_some(),
            self.region.is_some(),
            self.model.is_some(),
            self.tier.is_some(),
        ])
    }
}

/// Whether a model's name begins with the wanted parts: `H100` and `H100-80`, not `H1001`.
fn begins(short: &str, wanted: &str) -> bool {
    let head = short.get(..wanted.len());
    head.is_some_and(|h| h.eq_ignore_ascii_case(wanted))
        && short
            .get(wanted.len()..)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

impl Pricing {
    /// Tier of a node and what told it: the node's own `gpudeck.dev/tier`, then the operator's
    /// rules, then what labels and taints of providers say; `None` when nothing does.
    pub fn tier(&self, node: &Node) -> Option<(Tier, Str)> {
        let by_provider = node.tier().map(|(tier, source)| (tier, source.into()));
        if node.meta.label(super::tier::OWN_LABEL).is_some() && by_provider.is_some() {
            return by_provider;
        }
        let fits = |rule: &&TierRule| {
            let value = node.meta.label(&rule.label);
            value.is_some_and(|v| rule.value.as_ref().is_none_or(|w| **w == *v))
        };
        let by_rule = self.rules.iter().find(fits);
        by_rule
            .map(|rule| (rule.tier, rule.label.clone()))
            .or(by_provider)
    }

    /// The price of a node's GPUs: as it stands on the node, else by the rate card.
    pub fn price(&self, node: &Node) -> Option<Price> {
        let annotated = ANNOTATIONS.iter().find_map(|key| {
            let price: f64 = node.meta.annotation(key)?.trim().parse().ok()?;
            (0.0..=HIGHEST).contains(&price).then(|| Price {
                per_gpu_hour: price,
                source: format!("annotation {key}").into(),
            })
        });
        annotated.or_else(|| {
            let tier = self.tier(node).map(|(tier, _)| tier);
            let fits = self
                .rates
                .iter()
                .filter_map(|r| Some((r.fit(node, tier)?, r)));
            let (_, rate) = fits.max_by_key(|(exact, _)| *exact)?;
            Some(Price {
                per_gpu_hour: rate.per_gpu_hour,
                source: rate.source.clone(),
            })
        })
    }

    /// Why the rate card is not sound: an amount that is no price, or two rows for the same nodes.
    pub fn fault(&self) -> Option<String> {
        for (n, rate) in self.rates.iter().enumerate() {
            if !(0.0..=HIGHEST).contains(&rate.per_gpu_hour) {
                return Some(format!(
                    "rate {} of the rate card: {} is no price of a GPU-hour; 0 to {HIGHEST} is",
                    n + 1,
                    rate.per_gpu_hour
                ));
            }
            let same = |other: &Rate| {
                (&other.model, other.tier, &other.region, &other.zone)
                    == (&rate.model, rate.tier, &rate.region, &rate.zone)
            };
            if let Some(m) = self.rates.iter().skip(n + 1).position(same) {
                return Some(format!(
                    "rates {} and {} of the rate card are for the same nodes; keep one",
                    n + 1,
                    n + m + 2
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::gpu::GpuModel;
    use super::super::meta::Meta;
    use super::super::node::NodeGpus;
    use super::*;

    fn node(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Node {
        let pairs = |pairs: &[(&str, &str)]| {
            let mut all: Vec<(Str, Str)> = pairs
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect();
            all.sort();
            all.into_boxed_slice()
        };
        Node {
            meta: Meta {
                labels: pairs(labels),
                annotations: pairs(annotations),
                ..Meta::default()
            },
            gpus: NodeGpus {
                model: Some(GpuModel::new("NVIDIA-H100-80GB-HBM3", None)),
                ..NodeGpus::default()
            },
            ..Node::default()
        }
    }

    fn rate(model: Option<&str>, tier: Option<Tier>, zone: Option<&str>, price: f64) -> Rate {
        Rate {
            model: model.map(Into::into),
            tier,
            zone: zone.map(Into::into),
            per_gpu_hour: price,
            ..Rate::default()
        }
    }

    #[test]
    fn the_most_exact_rate_wins_and_none_is_no_price() {
        let spot = [
            ("karpenter.sh/capacity-type", "spot"),
            ("topology.kubernetes.io/zone", "a"),
        ];
        let cards = Pricing {
            rates: vec![
                rate(Some("H100"), None, None, 6.0),
                rate(Some("h100"), Some(Tier::Spot), None, 2.0),
                rate(None, None, Some("a"), 1.0),
                rate(Some("H10"), None, None, 99.0),
            ],
            ..Pricing::default()
        };
        let price =
            |labels: &[(&str, &str)]| cards.price(&node(labels, &[])).map(|p| p.per_gpu_hour);
        assert_eq!(price(&[]), Some(6.0));
        assert_eq!(price(&spot[..1]), Some(2.0));
        assert_eq!(price(&spot), Some(1.0), "a zone tells most");
        let none = Pricing::default();
        assert_eq!(none.price(&node(&spot, &[])), None);
        let noted = node(&[], &[("gpudeck.dev/price-per-gpu-hour", "2.41")]);
        assert_eq!(cards.price(&noted).map(|p| p.per_gpu_hour), Some(2.41));
        for bad in ["NaN", "-1", "free", "1e9"] {
            let noted = node(&[], &[("gpudeck.dev/price-per-gpu-hour", bad)]);
            assert_eq!(none.price(&noted), None, "{bad}");
        }
    }

    #[test]
    fn rules_of_the_operator_win_over_providers_and_lose_to_the_node_itself() {
        let rules = Pricing {
            rules: vec![TierRule {
                label: "pool".into(),
                value: Some("ours".into()),
                tier: Tier::Owned,
            }],
            ..Pricing::default()
        };
        let tier = |labels: &[(&str, &str)]| rules.tier(&node(labels, &[])).map(|(t, _)| t);
        let spot = ("karpenter.sh/capacity-type", "spot");
        assert_eq!(tier(&[("pool", "ours"), spot]), Some(Tier::Owned));
        assert_eq!(tier(&[("pool", "theirs"), spot]), Some(Tier::Spot));
        let own = ("gpudeck.dev/tier", "reserved");
        assert_eq!(tier(&[("pool", "ours"), own]), Some(Tier::Reserved));
        assert_eq!(tier(&[]), None);
    }

    #[test]
    fn a_card_with_two_rows_for_the_same_nodes_is_refused() {
        let twice = Pricing {
            rates: vec![
                rate(Some("H100"), None, None, 6.0),
                rate(None, None, None, 1.0),
                rate(Some("H100"), None, None, 5.0),
            ],
            ..Pricing::default()
        };
        let fault = twice.fault();
        assert!(fault.is_some_and(|f| f.starts_with("rates 1 and 3")));
        let negative = Pricing {
            rates: vec![rate(None, None, None, -1.0)],
            ..Pricing::default()
        };
        assert!(
            negative
                .fault()
                .is_some_and(|f| f.contains("-1 is no price"))
        );
        assert_eq!(Pricing::default().fault(), None);
    }
}
