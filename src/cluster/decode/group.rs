//! Which gang or group a pod says it belongs to.
//!
//! Sources: kubernetes/api (schedulingGroup of 1.36, workloadRef of 1.35), scheduler-plugins,
//! Koordinator, Kueue, Volcano and KAI: their label and annotation constants.

use super::read::{Ctx, Word, object, quoted};
use crate::model::{GroupName, Meta, Str};

object! { SchedulingGroupRead { name: Word = "podGroupName" }}
object! { WorkloadRefRead {
    name: Word = "name",
    group: Word = "podGroup",
    replica: Word = "podGroupReplicaKey",
}}

/// How one system names a pod's group.
struct Convention {
    kind: &'static str,
    name: &'static str,
    /// Where the number of members stands.
    min: &'static str,
}

/// In order of precedence; a key is looked up among labels, then annotations.
const CONVENTIONS: [Convention; 9] = [
    Convention {
        kind: "PodGroup",
        name: "scheduling.x-k8s.io/pod-group",
        min: "",
    },
    Convention {
        kind: "PodGroup",
        name: "pod-group.scheduling.sigs.k8s.io",
        min: "pod-group.scheduling.sigs.k8s.io/min-available",
    },
    Convention {
        kind: "PodGroup",
        name: "pod-group.scheduling.sigs.k8s.io/name",
        min: "pod-group.scheduling.sigs.k8s.io/min-available",
    },
    Convention {
        kind: "PodGroup",
        name: "kueue.x-k8s.io/pod-group-name",
        min: "kueue.x-k8s.io/pod-group-total-count",
    },
    Convention {
        kind: "PodGroup",
        name: "scheduling.k8s.io/group-name",
        min: "scheduling.volcano.sh/group-min-member",
    },
    Convention {
        kind: "PodGroup",
        name: "scheduling.volcano.sh/group-name",
        min: "scheduling.volcano.sh/group-min-member",
    },
    Convention {
        kind: "Gang",
        name: "gang.scheduling.koordinator.sh/name",
        min: "gang.scheduling.koordinator.sh/min-available",
    },
    Convention {
        kind: "PodGroup",
        name: "pod-group-name",
        min: "",
    },
    Convention {
        kind: "Gang",
        name: "gpudeck.dev/gang",
        min: "gpudeck.dev/gang-min",
    },
];

fn lookup<'a>(meta: &'a Meta, key: &str) -> Option<&'a str> {
    meta.label(key).or_else(|| meta.annotation(key))
}

/// A name that an object or label value can have; anything else names no group.
fn is_name(text: &str) -> bool {
    let alnum = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 253
        && alnum(text.chars().next())
        && alnum(text.chars().next_back())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !text.contains("..")
}

/// Members needed, from a label or annotation.
fn min_members(meta: &Meta, key: &'static str, ctx: &mut Ctx<'_>) -> Option<u32> {
    let text = lookup(meta, key)?;
    match text.parse::<u32>() {
        Ok(n) if n > 0 => Some(n),
        _ => {
            ctx.note_at(
                key,
                format_args!("{} is no number of members", quoted(text)),
            );
            None
        }
    }
}

/// The group of a pod: our own label first, then what its spec says, then foreign conventions.
pub(super) fn group_of(
    meta: &Meta,
    native: Option<SchedulingGroupRead>,
    older: Option<WorkloadRefRead>,
    ctx: &mut Ctx<'_>,
) -> Option<GroupName> {
    let own = CONVENTIONS.last().and_then(|c| by_convention(meta, c, ctx));
    if own.is_some() {
        return own;
    }
    let min = min_members(meta, "gpudeck.dev/gang-min", ctx);
    if let Some(name) = native.and_then(|g| g.name.filled()) {
        return Some(GroupName {
            kind: ctx.word("PodGroup"),
            name,
            min_members: min,
        });
    }
    if let Some(r) = older {
        let parts: Vec<Str> = [r.name, r.group, r.replica]
            .into_iter()
            .filter_map(Word::filled)
            .collect();
        if !parts.is_empty() {
            return Some(GroupName {
                kind: ctx.word("PodGroup"),
                name: ctx.word(&parts.join("-")),
                min_members: min,
            });
        }
    }
    CONVENTIONS.iter().find_map(|c| by_convention(meta, c, ctx))
}

fn by_convention(meta: &Meta, c: &Convention, ctx: &mut Ctx<'_>) -> Option<GroupName> {
    let name = lookup(meta, c.name).filter(|n| !n.is_empty())?;
    if !is_name(name) {
        ctx.note_at(c.name, format_args!("{} names no group", quoted(name)));
        return None;
    }
    let min = (!c.min.is_empty())
        .then(|| min_members(meta, c.min, ctx))
        .flatten();
    Some(GroupName {
        kind: ctx.word(c.kind),
        name: ctx.word(name),
        min_members: min.or_else(|| min_members(meta, "gpudeck.dev/gang-min", ctx)),
    })
}
