//! The views, one file each.

mod arrears;
pub mod browse;
pub mod describe;
pub mod drill;
pub mod fleet;
pub mod gpu_look;
pub mod happening;
pub mod jobs;
pub mod lens;
pub mod list;
pub mod node_row;
pub mod nodes;
pub mod pods;
pub mod queue_line;
pub mod queue_rows;
pub mod queues;
pub mod series;
pub mod tiers;
pub mod timeline;
pub mod topology;

use super::view::{Target, View};

/// All views there are, in the order of their digits.
pub fn all() -> Vec<Box<dyn View>> {
    vec![
        Box::new(fleet::FleetView::default()),
        Box::new(nodes::NodesView::default()),
        Box::new(topology::TopologyView::default()),
        Box::new(drill::Drill::new(Box::new(queues::QueuesView::default()))),
        Box::new(drill::Drill::new(Box::new(jobs::JobsView::default()))),
        Box::new(drill::Drill::new(Box::new(
            timeline::TimelineView::default(),
        ))),
        Box::new(tiers::TiersView::default()),
        Box::new(browse::BrowseView::default()),
    ]
}

/// The list that Enter leads to from a thing: the pods of a workload.
pub(crate) fn open(target: &Target) -> Option<Box<dyn View>> {
    match target {
        Target::Workload(key) => Some(Box::new(pods::PodsView::new(pods::Scope::Workload(
            key.clone(),
        )))),
        Target::Queue(key) => Some(Box::new(queue_line::LineView::new(key.clone()))),
        _ => None,
    }
}
