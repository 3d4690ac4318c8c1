//! What a node costs and how it can be lost, by its labels and taints.
//!
//! Sources: Karpenter, EKS, GKE, AKS, OKE and CoreWeave documentation. A provider that names only
//! what is special (AKS without `priority`, OKE) leaves the tier unknown: absence proves nothing.

use super::meta::Meta;
use super::node::Taint;

/// What a node costs and how it can be lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// Own hardware.
    Owned,
    /// Reserved capacity.
    Reserved,
    /// On-demand.
    OnDemand,
    /// Spot or preemptible.
    Spot,
    /// Ends at a date: capacity blocks, flex-start.
    Calendar,
}

impl Tier {
    /// All of them.
    pub const ALL: [Tier; 5] = [
        Tier::Owned,
        Tier::Reserved,
        Tier::OnDemand,
        Tier::Spot,
        Tier::Calendar,
    ];

    /// As screens and filters write it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Owned => "owned",
            Tier::Reserved => "reserved",
            Tier::OnDemand => "on-demand",
            Tier::Spot => "spot",
            Tier::Calendar => "calendar",
        }
    }

    /// Reads a tier name as [`Tier::name`] writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        Tier::ALL.into_iter().find(|t| t.name() == name)
    }
}

/// The label or taint that told the tier.
pub type TierSource = &'static str;

/// The operator's own word; it wins over all rules.
pub(super) const OWN_LABEL: &str = "gpudeck.dev/tier";

const AWS_RESERVATION: &str = "karpenter.k8s.aws/capacity-reservation-type";
const EKS: &str = "eks.amazonaws.com/capacityType";
const GKE_PROVISIONING: &str = "cloud.google.com/gke-provisioning";
const KARPENTER: &str = "karpenter.sh/capacity-type";
const COREWEAVE_CLASS: &str = "compute.coreweave.com/compute-class";
const LIFECYCLE: &str = "node.kubernetes.io/lifecycle";

/// Rules in order; the first whose label or taint (and value, ignoring case) is there wins. What
/// can be taken away comes first, then what ends at a date, what is reserved, and the rest.
#[rustfmt::skip]
const RULES: &[(&str, Option<&str>, Tier)] = &[
    (KARPENTER, Some("spot"), Tier::Spot),
    (EKS, Some("SPOT"), Tier::Spot),
    ("cloud.google.com/gke-spot", Some("true"), Tier::Spot),
    ("cloud.google.com/gke-preemptible", Some("true"), Tier::Spot),
    (GKE_PROVISIONING, Some("spot"), Tier::Spot),
    (GKE_PROVISIONING, Some("preemptible"), Tier::Spot),
    ("kubernetes.azure.com/priority", Some("spot"), Tier::Spot),
    ("kubernetes.azure.com/scalesetpriority", Some("spot"), Tier::Spot),
    ("oci.oraclecloud.com/oke-is-preemptible", Some("true"), Tier::Spot),
    (COREWEAVE_CLASS, Some("spot"), Tier::Spot),
    (LIFECYCLE, Some("spot"), Tier::Spot),
    (LIFECYCLE, Some("Ec2Spot"), Tier::Spot),
    (LIFECYCLE, Some("preemptible"), Tier::Spot),
    (EKS, Some("CAPACITY_BLOCK"), Tier::Calendar),
    (AWS_RESERVATION, Some("capacity-block"), Tier::Calendar),
    ("topology.k8s.aws/capacity-block-id", None, Tier::Calendar),
    ("cloud.google.com/gke-flex-start", Some("true"), Tier::Calendar),
    (GKE_PROVISIONING, Some("flex-start"), Tier::Calendar),
    ("cloud.google.com/gke-queued", Some("true"), Tier::Calendar),
    ("cloud.google.com/gke-max-run-duration-seconds", None, Tier::Calendar),
    (KARPENTER, Some("reserved"), Tier::Reserved),
    ("cloud.google.com/reservation-name", None, Tier::Reserved),
    (GKE_PROVISIONING, Some("reservation"), Tier::Reserved),
    ("oci.oraclecloud.com/host.capacity_reservation_id", None, Tier::Reserved),
    ("node.coreweave.cloud/reserved", None, Tier::Reserved),
    (COREWEAVE_CLASS, Some("reserved"), Tier::Reserved),
    (KARPENTER, Some("on-demand"), Tier::OnDemand),
    (EKS, Some("ON_DEMAND"), Tier::OnDemand),
    (GKE_PROVISIONING, Some("standard"), Tier::OnDemand),
    ("kubernetes.azure.com/priority", Some("regular"), Tier::OnDemand),
    ("kubernetes.azure.com/scalesetpriority", Some("regular"), Tier::OnDemand),
    (COREWEAVE_CLASS, Some("on-demand"), Tier::OnDemand),
    (LIFECYCLE, Some("on-demand"), Tier::OnDemand),
    (LIFECYCLE, Some("OnDemand"), Tier::OnDemand),
];

/// Values that stand where there is none: they must not make a node reserved.
const PLACEHOLDERS: [&str; 6] = ["", "none", "null", "unknown", "false", "no-imds-data"];

/// Tier and what told it; `None` when nothing does.
pub(super) fn of(meta: &Meta, taints: &[Taint]) -> Option<(Tier, TierSource)> {
    let own = meta.label(OWN_LABEL).and_then(Tier::from_name);
    if let Some(tier) = own {
        return Some((tier, OWN_LABEL));
    }
    RULES.iter().find_map(|(key, wanted, tier)| {
        let fits = |value: &str| match wanted {
            Some(wanted) => wanted.eq_ignore_ascii_case(value),
            None => !PLACEHOLDERS.iter().any(|p| p.eq_ignore_ascii_case(value)),
        };
        let labelled = meta.label(key).is_some_and(fits);
        let tainted =
            || wanted.is_some() && taints.iter().any(|t| *t.key == **key && fits(&t.value));
        (labelled || tainted()).then_some((*tier, *key))
    })
}

#[cfg(test)]
mod tests {
    use super::super::node::TaintEffect;
    use super::super::text::Str;
    use super::*;

    fn tier(labels: &[(&str, &str)], taints: &[(&str, &str)]) -> Option<Tier> {
        let mut labels: Vec<(Str, Str)> = labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        labels.sort();
        let meta = Meta {
            labels: labels.into(),
            ..Meta::default()
        };
        let taint = |(key, value): &(&str, &str)| Taint {
            key: (*key).into(),
            value: (*value).into(),
            effect: TaintEffect::NoSchedule,
        };
        let taints: Vec<Taint> = taints.iter().map(taint).collect();
        of(&meta, &taints).map(|(tier, _)| tier)
    }

    #[test]
    fn by_the_labels_of_each_provider() {
        for (labels, wanted) in [
            (&[(KARPENTER, "spot")][..], Some(Tier::Spot)),
            (&[(KARPENTER, "reserved")], Some(Tier::Reserved)),
            (
                &[(KARPENTER, "reserved"), (AWS_RESERVATION, "capacity-block")],
                Some(Tier::Calendar),
            ),
            (
                &[(KARPENTER, "reserved"), (AWS_RESERVATION, "default")],
                Some(Tier::Reserved),
            ),
            (&[(EKS, "ON_DEMAND")], Some(Tier::OnDemand)),
            (&[(EKS, "CAPACITY_BLOCK")], Some(Tier::Calendar)),
            (&[(EKS, "SPOT")], Some(Tier::Spot)),
            (&[(GKE_PROVISIONING, "standard")], Some(Tier::OnDemand)),
            (
                &[
                    (GKE_PROVISIONING, "standard"),
                    ("cloud.google.com/reservation-name", "r1"),
                ],
                Some(Tier::Reserved),
            ),
            (
                &[("cloud.google.com/gke-max-run-duration-seconds", "604800")],
                Some(Tier::Calendar),
            ),
            (
                &[
                    ("cloud.google.com/gke-spot", "true"),
                    ("cloud.google.com/gke-max-run-duration-seconds", "3600"),
                ],
                Some(Tier::Spot),
            ),
            (&[("cloud.google.com/gke-spot", "false")], None),
            (
                &[("kubernetes.azure.com/scalesetpriority", "spot")],
                Some(Tier::Spot),
            ),
            (
                &[("kubernetes.azure.com/priority", "regular")],
                Some(Tier::OnDemand),
            ),
            (
                &[("oci.oraclecloud.com/oke-is-preemptible", "true")],
                Some(Tier::Spot),
            ),
            (
                &[(
                    "oci.oraclecloud.com/host.capacity_reservation_id",
                    "no-imds-data",
                )],
                None,
            ),
            (
                &[
                    ("node.coreweave.cloud/reserved", "org-1"),
                    (COREWEAVE_CLASS, "default"),
                ],
                Some(Tier::Reserved),
            ),
            (&[(COREWEAVE_CLASS, "spot")], Some(Tier::Spot)),
            (&[(LIFECYCLE, "spot")], Some(Tier::Spot)),
            (
                &[(OWN_LABEL, "owned"), (KARPENTER, "spot")],
                Some(Tier::Owned),
            ),
            (&[(OWN_LABEL, "nonsense")], None),
            (&[], None),
        ] {
            assert_eq!(tier(labels, &[]), wanted, "{labels:?}");
        }
    }

    #[test]
    fn by_taints_where_labels_are_lost() {
        let azure = ("kubernetes.azure.com/scalesetpriority", "spot");
        assert_eq!(tier(&[], &[azure]), Some(Tier::Spot));
        let other = ("nvidia.com/gpu", "present");
        assert_eq!(tier(&[], &[other]), None);
    }
}
