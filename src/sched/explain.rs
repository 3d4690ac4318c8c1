//! Decisions in words.

use super::class::Class;
use super::filters::Row;
use super::needs::Share;
use super::place::{NodeRow, Pricing};
use super::score;
use super::slot::{Held, Slot};
use super::state::State;
use super::view::{RowId, Rules};
use crate::model::{FilterCount, Reason, Str};

/// What else could have been chosen.
#[derive(Clone, Copy)]
pub(super) struct Alternative {
    /// Nodes that fit.
    pub(super) fits: u32,
    /// The best of the others.
    pub(super) other: Option<RowId>,
}

/// A node before the pod is there, and what the pod would hold.
type Candidate<'a> = (&'a Row, &'a Slot, Held);

/// Costs closer than this are the same in words.
const SAME: f64 = 0.005;

/// Why a pod goes to this node: what was free, what it costs those who may come, and what the
/// best other node would have cost.
pub(super) fn why_here(
    rules: Rules<'_>,
    class: &Class,
    fits: u32,
    here: Candidate<'_>,
    there: Option<Candidate<'_>>,
) -> Str {
    let free = free_before(class, here);
    let Some(there) = there else {
        return format!("the only node that fits; {free}").into();
    };
    let cost = |(row, slot, held): Candidate<'_>| score::cost(rules, class, row, slot, held);
    let (mine, other) = (cost(here), cost(there));
    let alone = if class.needs.gpu || !here.0.has_gpus {
        ""
    } else {
        ", none of them without GPUs"
    };
    let name = &there.0.name;
    let (gap, room) = (other.gap - mine.gap, other.room - mine.room);
    let elsewhere = if gap > SAME {
        format!("on {name} it would break a gap worth {gap:.2} GPU more")
    } else if gap + room > SAME {
        let who = for_whom(rules.pricing, class, here, there)
            .map_or_else(String::new, |who| format!(", mostly room for {who}"));
        format!(
            "on {name} it would cost others {:.2} GPU more{who}",
            gap + room
        )
    } else {
        return format!("first of {fits} nodes that fit{alone}; {free}").into();
    };
    format!("best of {fits} nodes that fit{alone}; {free}; {elsewhere}").into()
}

/// Whose room the other node would have cost.
fn for_whom(
    pricing: &Pricing,
    class: &Class,
    here: Candidate<'_>,
    there: Candidate<'_>,
) -> Option<String> {
    let lost = |(_, slot, held): Candidate<'_>| -> Vec<(u8, u16, f64)> {
        let mut after: NodeRow = slot.gpu.clone();
        after.shift(held.devices, held.milli, 1);
        after.cpu_milli -= class.ask.cpu_milli;
        pricing.weights().lost(&slot.gpu, &after)
    };
    let (mine, other) = (lost(here), lost(there));
    let (gpus, milli, _) = other
        .iter()
        .zip(&mine)
        .map(|((gpus, milli, there), (_, _, here))| (*gpus, *milli, there - here))
        .filter(|(_, _, more)| *more > 0.0)
        .max_by(|a, b| a.2.total_cmp(&b.2))?;
    Some(match (gpus, milli) {
        (1, 1000) => "1-GPU pods".to_owned(),
        (1, milli) => format!("shares of {:.2} GPU", f64::from(milli) / 1000.0),
        (n, _) => format!("{n}-GPU pods"),
    })
}

/// What was free on the node.
fn free_before(class: &Class, (row, slot, held): Candidate<'_>) -> String {
    let allocatable = row.node.as_ref().map(|n| &n.allocatable);
    if class.ask.share != Share::None {
        let device = held.devices.trailing_zeros();
        let free = slot.gpu.free().get(device as usize).copied().unwrap_or(0);
        return format!("{free} of 1000 thousandths of GPU {device} free before");
    }
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
            format!("{} of {all} {kind} free before", slot.room.extended(key))
        }
        None => {
            let all = allocatable.map_or(0, |a| a.cpu_milli);
            format!(
                "{} of {} cores free before",
                cores(slot.room.cpu_milli),
                cores(i128::from(all))
            )
        }
    }
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
