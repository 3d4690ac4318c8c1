//! Whether a kubelet admits a pod: the last check on a scheduler that counted wrongly.

use std::collections::BTreeMap;

/// Why a pod is not admitted, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    /// The pod's `status.reason`.
    pub reason: String,
    /// The text after `Pod was rejected: `.
    pub message: String,
}

/// Checks `asks` against what is left of `allocatable` after `used`, all in thousandths.
///
/// As in the kubelet, devices of a plugin come first (`UnexpectedAdmissionError`); what the node
/// does not have at all, CPU, memory and the pod count are `OutOf<resource>`.
pub(super) fn check(
    asks: &BTreeMap<String, i128>,
    used: &BTreeMap<String, i128>,
    allocatable: &BTreeMap<String, i128>,
) -> Result<(), Rejection> {
    let lacking = |name: &str, asked: i128| {
        let has = allocatable.get(name).copied().unwrap_or(0);
        let taken = used.get(name).copied().unwrap_or(0);
        (asked > 0 && taken.saturating_add(asked) > has).then_some((has, taken))
    };
    for (name, asked) in asks.iter().filter(|(name, _)| name.contains('/')) {
        // A resource without devices, such as one whose plugin has left, is no plugin's.
        let offered = allocatable.get(name).is_some_and(|has| *has > 0);
        if let (Some((has, taken)), true) = (lacking(name, *asked), offered) {
            return Err(Rejection {
                reason: "UnexpectedAdmissionError".to_owned(),
                message: format!(
                    "Allocate failed due to requested number of devices unavailable for {name}. \
                     Requested: {}, Available: {}, which is unexpected",
                    asked / 1000,
                    (has - taken).max(0) / 1000,
                ),
            });
        }
    }
    for (name, asked) in asks {
        // A node that says nothing of storage is not asked for it.
        let silent = !name.contains('/') && !allocatable.contains_key(name);
        if let (Some((has, taken)), false) = (lacking(name, *asked), silent) {
            // CPU is told in thousandths, all else in units.
            let unit = if name == "cpu" { 1 } else { 1000 };
            return Err(Rejection {
                reason: format!("OutOf{name}"),
                message: format!(
                    "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
                    asked / unit,
                    taken / unit,
                    has / unit,
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(pairs: &[(&str, i128)]) -> BTreeMap<String, i128> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, amount)| ((*name).to_owned(), *amount))
            .collect()
    }

    #[test]
    fn what_fits_is_admitted_and_the_rest_is_named() {
        let node = amounts(&[("cpu", 8_000), ("nvidia.com/gpu", 8_000), ("pods", 110_000)]);
        let used = amounts(&[("cpu", 6_000), ("nvidia.com/gpu", 7_000)]);
        assert_eq!(
            check(
                &amounts(&[("cpu", 2_000), ("nvidia.com/gpu", 1_000)]),
                &used,
                &node
            ),
            Ok(())
        );

        let reason = |asks: &[(&str, i128)]| {
            let verdict = check(&amounts(asks), &used, &node);
            verdict
                .err()
                .map(|rejection| (rejection.reason, rejection.message))
        };
        assert_eq!(
            reason(&[("nvidia.com/gpu", 2_000)]),
            Some((
                "UnexpectedAdmissionError".to_owned(),
                "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. \
                 Requested: 2, Available: 1, which is unexpected"
                    .to_owned()
            ))
        );
        assert_eq!(
            reason(&[("cpu", 2_500)]),
            Some((
                "OutOfcpu".to_owned(),
                "Node didn't have enough resource: cpu, requested: 2500, used: 6000, capacity: 8000"
                    .to_owned()
            ))
        );
        assert_eq!(
            reason(&[("nvidia.com/mig-1g.10gb", 1_000)]).map(|(reason, _)| reason),
            Some("OutOfnvidia.com/mig-1g.10gb".to_owned())
        );
    }
}
