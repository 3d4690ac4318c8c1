//! Decisions in words.

use super::amounts::Room;
use super::class::Class;
use super::filters::Row;
use super::state::State;
use crate::model::{FilterCount, Reason, Str};

/// Why a pod goes to this node. `room` is what the node has left before.
pub(super) fn why_here(class: &Class, row: &Row, room: &Room, fits: u32) -> Str {
    let choice = match fits {
        1 => "the only node that fits".to_owned(),
        n => format!("first of {n} nodes that fit"),
    };
    let allocatable = row.node.as_ref().map(|n| &n.allocatable);
    match class.gpu() {
        Some((key, _)) => {
            let all = allocatable.map_or(0, |a| a.extended(key));
            // Under strategy single a MIG device goes by the name of a GPU.
            let single = row
                .node
                .as_ref()
                .and_then(|n| n.gpus.single_profile.as_ref());
            let kind = match (single, &**key) {
                (Some(profile), "nvidia.com/gpu") => profile.to_string(),
                (None, "nvidia.com/gpu") => "GPUs".to_owned(),
                (_, other) => other
                    .strip_prefix("nvidia.com/")
                    .unwrap_or(other)
                    .to_owned(),
            };
            format!(
                "{choice}; {} of {all} {kind} free before",
                room.extended(key)
            )
        }
        None => {
            let all = allocatable.map_or(0, |a| a.cpu_milli);
            let alone = if row.has_gpus {
                ", none of them without GPUs"
            } else {
                ""
            };
            format!(
                "{choice}{alone}; {} of {} cores free before",
                cores(room.cpu_milli),
                cores(i128::from(all))
            )
        }
    }
    .into()
}

/// Thousandths of a core as cores: `64`, `63.5`, `-0.25`.
fn cores(milli: i128) -> String {
    let (whole, rest) = (milli.unsigned_abs() / 1000, milli.unsigned_abs() % 1000);
    let sign = if milli < 0 { "-" } else { "" };
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let digits = format!("{rest:03}");
    format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
}

/// A reason that holds on every node, as counts.
pub(super) fn as_filters(state: &State, reason: &Reason) -> Box<[FilterCount]> {
    [FilterCount {
        nodes: state.rows.node_count(),
        why: reason.to_string().into(),
    }]
    .into()
}

/// The same but for the counts: not worth a new Event at each change of some node.
pub(super) fn same_but_counts(a: &Reason, b: &Reason) -> bool {
    let words = |a: &[FilterCount], b: &[FilterCount]| {
        a.len() == b.len() && a.iter().all(|x| b.iter().any(|y| x.why == y.why))
    };
    match (a, b) {
        (Reason::NoNodeFits { filters: a, .. }, Reason::NoNodeFits { filters: b, .. }) => {
            words(a, b)
        }
        (
            Reason::GangDoesNotFit {
                need: n,
                filters: a,
                ..
            },
            Reason::GangDoesNotFit {
                need: m,
                filters: b,
                ..
            },
        ) => n == m && words(a, b),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_short() {
        for (milli, text) in [
            (64_000, "64"),
            (63_500, "63.5"),
            (250, "0.25"),
            (-1, "-0.001"),
            (0, "0"),
        ] {
            assert_eq!(cores(milli), text);
        }
    }

    #[test]
    fn counts_alone_do_not_make_another_reason() {
        let r = |nodes, why: &[(u32, &str)]| Reason::NoNodeFits {
            nodes,
            filters: why
                .iter()
                .map(|(nodes, why)| FilterCount {
                    nodes: *nodes,
                    why: (*why).into(),
                })
                .collect(),
        };
        assert!(same_but_counts(
            &r(3, &[(2, "a"), (1, "b")]),
            &r(4, &[(3, "b"), (1, "a")])
        ));
        assert!(!same_but_counts(&r(3, &[(3, "a")]), &r(3, &[(3, "b")])));
        assert!(!same_but_counts(
            &r(3, &[(2, "a"), (1, "b")]),
            &r(3, &[(3, "a")])
        ));
        let gated = Reason::Gated {
            gates: ["g".into()].into(),
        };
        assert!(same_but_counts(&gated, &gated) && !same_but_counts(&gated, &r(1, &[])));
    }
}
