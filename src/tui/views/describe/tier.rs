//! A tier: its models, prices and where those are from, and the nodes that end next.

use std::collections::BTreeMap;

use ratatui::text::Line;

use super::sheet::Sheet;
use crate::model::{Node, Str, Tier};
use crate::tui::format;
use crate::tui::theme::Meaning;
use crate::tui::view::Ctx;

/// Nodes that are written out.
const NODES: usize = 40;

pub(super) fn describe(name: &str, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    let tier = Tier::from_name(name);
    let parts: Vec<_> = ctx
        .figures
        .tiers
        .iter()
        .filter(|t| t.tier == tier)
        .collect();
    if parts.is_empty() {
        return None;
    }
    let pricing = ctx.cluster.pricing();
    let money = |n: f64| format::money(n, &pricing.currency);
    let mut sheet = Sheet::new("Tier", name, ctx);
    if tier.is_none() {
        let text = "no label, taint or rule tells it; `tiers.rules` of the configuration can";
        sheet.styled("why", text, Meaning::Unknown);
    }
    for part in parts {
        let model: &str = match &*part.model {
            "" => "GPUs whose model nothing tells",
            model => model,
        };
        sheet.section(model);
        sheet.field("nodes", format::count(part.nodes.into()));
        let n = &part.part;
        let used = [
            ("used", n.used),
            ("free", n.free),
            ("sick", n.sick),
            ("stranded", n.stranded),
            ("cordoned", n.cordoned),
        ];
        let used: Vec<String> = used
            .iter()
            .map(|(name, n)| format!("{name} {}", format::amount(*n)))
            .collect();
        sheet.field("GPUs", format!("{} in all: {}", n.gpus, used.join(", ")));
        let cost = &part.money;
        match (cost.lowest, cost.highest) {
            (Some(low), Some(high)) => {
                let range = if low < high {
                    format!("{} to {}", money(low), money(high))
                } else {
                    money(low)
                };
                sheet.field("price", format!("{range} a GPU-hour"));
                sheet.field("an hour", money(cost.per_hour));
                let share = if cost.per_hour > 0.0 {
                    format!(" ({})", format::percent(cost.idle_per_hour / cost.per_hour))
                } else {
                    String::new()
                };
                sheet.field(
                    "idle",
                    format!("{} an hour{share}", money(cost.idle_per_hour)),
                );
                sheet.field(
                    "stranded",
                    format!("{} an hour", money(cost.stranded_per_hour)),
                );
                if cost.unpriced_gpus > 0 {
                    let text = format!("{} GPUs have no price", cost.unpriced_gpus);
                    sheet.styled("unpriced", text, Meaning::Unknown);
                }
            }
            _ => sheet.styled(
                "price",
                "? no rate of the rate card fits; add one under `prices.rate`",
                Meaning::Unknown,
            ),
        }
    }
    let nodes = ctx.cluster.nodes().map(|(node, _)| node);
    let own: Vec<&Node> = nodes
        .filter(|n| pricing.tier(n).map(|(t, _)| t) == tier && n.gpus.count != Some(0))
        .map(|n| &**n)
        .collect();
    told_by(&mut sheet, &own, ctx);
    let mut ending: Vec<_> = own.iter().filter_map(|n| Some((n.end()?, *n))).collect();
    ending.sort_by_key(|((at, _), node)| (*at, node.meta.name.clone()));
    if !ending.is_empty() {
        sheet.section("End or are taken away");
    }
    for ((at, label), node) in ending.iter().take(NODES) {
        let text = format!("{}  {}  ({label})", format::timestamp(*at), node.meta.name);
        sheet.text(text, Meaning::Warn);
    }
    Some(sheet.finish())
}

/// Labels that told the tier and sources of prices, each with the nodes it is true of.
fn told_by(sheet: &mut Sheet<'_>, nodes: &[&Node], ctx: &Ctx<'_>) {
    let pricing = ctx.cluster.pricing();
    let (mut labels, mut sources) = (BTreeMap::<Str, u32>::new(), BTreeMap::<Str, u32>::new());
    for node in nodes {
        if let Some((_, label)) = pricing.tier(node) {
            *labels.entry(label).or_default() += 1;
        }
        if let Some(price) = pricing.price(node) {
            *sources.entry(price.source).or_default() += 1;
        }
    }
    for (title, counts) in [("Told by", labels), ("Prices from", sources)] {
        if counts.is_empty() {
            continue;
        }
        sheet.section(title);
        for (what, n) in counts {
            sheet.text(
                format!("{what}  {} nodes", format::count(n.into())),
                Meaning::Text,
            );
        }
    }
}
