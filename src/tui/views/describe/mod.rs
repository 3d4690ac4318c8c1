//! Descriptions: what kubectl would tell of a thing, and what gpudeck knows beyond it.

mod node;
mod pod;
mod queue;
pub(in crate::tui::views) mod sheet;
mod small;
mod tier;
mod workload;

pub(crate) use node::{gpu_in_words, holders_of};
pub(super) use queue::work;
pub(super) use small::{listed, series};

use ratatui::text::Line;

use crate::tui::view::{Ctx, Target};

/// The description of a thing; `None` when it is not there (any more).
pub fn target(target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
    match target {
        Target::Node(name) => node::describe(name, None, ctx),
        Target::Gpu(name, index) => node::describe(name, Some(*index), ctx),
        Target::Workload(key) => workload::describe(key, ctx),
        Target::Pod(uid) => pod::describe(uid, ctx),
        Target::Event(uid) => small::event(uid, ctx),
        Target::Fault(node, kind) => small::fault(node, kind, ctx),
        Target::Decision(at, pod) => small::decision(*at, pod, ctx),
        Target::Namespace(name) => small::namespace(name, ctx),
        Target::Queue(key) => queue::describe(key, ctx),
        Target::Tier(name) => tier::describe(name, ctx),
        Target::Object(_) | Target::Domain(_) => None,
    }
}
