//! The description of a part of the network.

use ratatui::text::Line;

use super::gangs::{Gangs, Tally};
use super::tree::{Branch, Step};
use crate::tui::format;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;
use crate::tui::views::describe::sheet::{LIST_LIMIT, Sheet};

/// Nodes that are named with what is free on them.
const HOLES: usize = 20;

/// What there is below a branch, who has pods there, and where the largest holes are.
pub(super) fn describe(
    branch: &Branch,
    step: &Step,
    way: &str,
    gangs: &Gangs,
    ctx: &Ctx<'_>,
) -> Vec<Line<'static>> {
    let sum = &branch.sum;
    let mut sheet = Sheet::new("Network", &step.in_words(), ctx);
    sheet.field("way", way.replace('/', " / "));
    sheet.field("nodes", format::count(sum.nodes.into()));
    if sum.closed > 0 {
        let text = format!("{} are cordoned or down", format::count(sum.closed.into()));
        sheet.styled("closed", text, Meaning::Warn);
    }
    sheet.field("GPUs", format::count(sum.gpus.into()));
    let known = sum.unknown < sum.nodes;
    sheet.maybe("used", known.then(|| format::amount(sum.used)));
    sheet.maybe("free", known.then(|| format::amount(sum.free)));
    if sum.sick > 0.0 {
        sheet.styled("sick", format::amount(sum.sick), Meaning::Sick);
    }
    if sum.unknown > 0 {
        let text = format!("of {} nodes", format::count(sum.unknown.into()));
        sheet.styled("not known", text, Meaning::Unknown);
    }
    holes(&mut sheet, branch);
    held(&mut sheet, branch, gangs);
    sheet.finish()
}

fn holes(sheet: &mut Sheet<'_>, branch: &Branch) {
    sheet.section("Most whole GPUs free on a node");
    let mut leaves = branch.leaves();
    leaves.retain(|leaf| leaf.hole.is_some_and(|n| n > 0));
    leaves.sort_by_key(|leaf| std::cmp::Reverse(leaf.hole));
    if leaves.is_empty() {
        sheet.text("none", Meaning::Muted);
    }
    for leaf in leaves.iter().take(HOLES) {
        let model = leaf.row.model().unwrap_or(format::UNKNOWN);
        let text = format!("{:>4}  {}  {model}", leaf.hole.unwrap_or(0), leaf.row.name);
        sheet.text(text, Meaning::Text);
    }
    if let Some(more) = leaves.len().checked_sub(HOLES).filter(|n| *n > 0) {
        let text = format!("and {} nodes more", format::count_of(more));
        sheet.text(text, Meaning::Muted);
    }
}

fn held(sheet: &mut Sheet<'_>, branch: &Branch, gangs: &Gangs) {
    sheet.section("Gangs with pods here");
    let mut tally = Tally::default();
    let held = tally.of(branch.held());
    let several = |(gang, _): &(u32, u32)| gangs.total_of(*gang) > 1;
    let mut all: Vec<(u32, u32)> = held.filter(several).collect();
    // Those that cross first, then the largest.
    all.sort_by_key(|(gang, here)| {
        let total = gangs.total_of(*gang);
        (*here == total, std::cmp::Reverse(total), gangs.key(*gang))
    });
    if all.is_empty() {
        sheet.text("none", Meaning::Muted);
    }
    for (gang, here) in all.iter().copied().take(LIST_LIMIT) {
        let Some(key) = gangs.key(gang) else {
            continue;
        };
        let total = gangs.total_of(gang);
        let text = if here == total {
            format!("{key}  {} {total} pods, all here", key.kind)
        } else {
            format!(
                "{key}  {} {here} of {total} pods, the others elsewhere",
                key.kind
            )
        };
        let meaning = if here == total {
            Meaning::Text
        } else {
            Meaning::Warn
        };
        sheet.text(text, meaning);
    }
    if let Some(more) = all.len().checked_sub(LIST_LIMIT).filter(|n| *n > 0) {
        sheet.text(
            format!("and {} more", format::count_of(more)),
            Meaning::Muted,
        );
    }
}
