//! Decisions about gangs in words.

use std::collections::BTreeSet;

use super::fabric::{DomainId, Level};
use super::gang_place::{Home, Nearest, Rows};
use super::scratch::Scratch;
use super::topology::Wish;
use super::traffic;
use crate::model::{FilterCount, Str};

/// Why a gang lies where it does: what it shares, on how many nodes, and what the next wider level
/// would cost its traffic.
pub(super) fn why_together(scratch: &Scratch<'_>, rows: &Rows, home: Home, wish: Wish) -> Str {
    let nodes: BTreeSet<_> = rows.iter().map(|(_, row)| *row).collect();
    let milli: i64 = rows.iter().map(|(class, _)| scratch.size(*class).0).sum();
    let gpus = usize::try_from(milli / 1000).unwrap_or(0);
    let mut text = format!("gang of {}", rows.len());
    match (home.level, home.domain) {
        (Level::NODE, _) => text += " on one node",
        (level, Some(id)) => {
            let name = scratch.domain_name(id);
            text += &format!(" in {} {name} on {} nodes", level.name(), nodes.len());
        }
        _ => text += &format!(" on {} nodes", nodes.len()),
    }
    if let Some(preferred) = wish.preferred
        && home.level > preferred
    {
        text += &format!("; no {} has room for all", preferred.name());
    }
    let model = rows.first().and_then(|(_, row)| scratch.model_of(*row));
    let levels = scratch.rules().fabric.0.levels();
    let wider = levels
        .iter()
        .map(|(level, _)| *level)
        .find(|level| *level > home.level && *level > Level::CLIQUE);
    if let (Some(model), Some(wider)) = (model, wider)
        && gpus > 1
    {
        let ms = |level, nodes| traffic::all_reduce_ms(&model, level, nodes, gpus);
        let spread = nodes.len().max(2);
        text += &format!(
            "; by the model an all-reduce of 1 GiB takes {:.0} ms here, {:.0} ms across a {}",
            ms(home.level, nodes.len()),
            ms(wider, spread),
            wider.name()
        );
    }
    text.into()
}

/// No domain of the required level has room for all.
pub(super) fn too_small(scratch: &Scratch<'_>, level: Level, nearest: Nearest) -> FilterCount {
    let level = level.name();
    let why = match nearest.domain {
        _ if nearest.domains == 0 && level != "node" => {
            format!("{level} known: no node has a label that tells it")
        }
        Some(id) => format!(
            "{level} domain(s) had too little room: most has {}, for {}",
            scratch.domain_name(id),
            nearest.fits
        ),
        None => format!("{level} domain(s) had too little room"),
    };
    FilterCount {
        nodes: nearest.domains,
        why: why.into(),
    }
}

/// Nodes that have room, but not where the rest of the gang is.
pub(super) fn outside(scratch: &Scratch<'_>, within: Option<DomainId>, nodes: u32) -> FilterCount {
    let name = within.map_or_else(String::new, |id| scratch.domain_name(id));
    FilterCount {
        nodes,
        why: format!("node(s) with room were outside {name}, where the rest of the gang is").into(),
    }
}
