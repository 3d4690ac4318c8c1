//! Whether a job would fit closer together, and what that would gain by the scheduler's cost model.
//!
//! Counted as the scheduler counts: whole GPUs of the job's model on nodes that take pods, and those
//! that it holds itself. What is MIG, shared, or of several sizes is not compared.

use super::tree::{Branch, Leaf, Level, Step, Tree};
use crate::model::{Cluster, GpuResource, WorkloadKey};
use crate::sched::{Reach, all_reduce_of};
use crate::tui::format;

/// Share of the time that a better place has to save to be told.
const WORTH: f64 = 0.05;

/// The job as it is placed.
struct Job<'a> {
    gang: u32,
    pods: u32,
    /// Whole GPUs of each pod.
    gpus: u32,
    model: &'a str,
}

impl Job<'_> {
    /// Pods of it that a node would take.
    fn room(&self, leaf: &Leaf) -> u32 {
        let row = &leaf.row;
        if row.model() != Some(self.model) || !row.is_ready() || row.is_cordoned() {
            return 0;
        }
        let own = leaf.held.of(self.gang) * self.gpus;
        (leaf.hole.unwrap_or(0) + own) / self.gpus
    }

    /// Milliseconds of an all-reduce of 1 GiB.
    fn cost(&self, reach: Reach, nodes: usize) -> f64 {
        let gpus = usize::try_from(self.pods * self.gpus).unwrap_or(usize::MAX);
        all_reduce_of(self.model, reach, nodes, gpus)
    }
}

/// A place for the whole job.
struct Candidate {
    cost: f64,
    nodes: usize,
    name: String,
}

/// What there is below a branch for the job.
struct Room {
    /// Pods that each node takes.
    nodes: Vec<u32>,
    /// Levels of switches below.
    height: u16,
}

/// Nodes that so many pods need at least; `None`: they do not fit.
fn nodes_for(pods: u32, rooms: &[u32]) -> Option<usize> {
    let mut rooms = rooms.to_vec();
    rooms.sort_unstable_by_key(|room| std::cmp::Reverse(*room));
    let mut left = pods;
    for (nodes, room) in (1..).zip(rooms) {
        left = left.saturating_sub(room);
        if left == 0 {
            return Some(nodes);
        }
    }
    None
}

fn keep(best: &mut Option<Candidate>, candidate: Candidate) {
    let better = |b: &Candidate| (candidate.cost, candidate.nodes) < (b.cost, b.nodes);
    if best.as_ref().is_none_or(better) {
        *best = Some(candidate);
    }
}

/// Looks for the cheapest place below a branch.
fn search(
    job: &Job<'_>,
    branch: &Branch,
    step: Option<&Step>,
    best: &mut Option<Candidate>,
) -> Room {
    let mut room = Room {
        nodes: Vec::new(),
        height: 0,
    };
    for (step, part) in &branch.branches {
        let inner = search(job, part, Some(step), best);
        let own = u16::from(matches!(step.level, Level::Switch(_)));
        room.height = room.height.max(inner.height + own);
        room.nodes.extend(inner.nodes);
    }
    for leaf in branch.nodes() {
        let here = job.room(leaf);
        if here >= job.pods {
            let cost = job.cost(Reach::Node, 1);
            let name = format!("node {}", leaf.row.name);
            keep(
                best,
                Candidate {
                    cost,
                    nodes: 1,
                    name,
                },
            );
        }
        if here > 0 {
            room.nodes.push(here);
        }
    }
    let reach = step.and_then(|step| match step.level {
        Level::Switch(_) => Some(Reach::Switch(room.height)),
        Level::Nvlink => Some(Reach::NvlinkDomain),
        _ => None,
    });
    if let (Some(reach), Some(step)) = (reach, step)
        && let Some(nodes) = nodes_for(job.pods, &room.nodes)
    {
        let cost = job.cost(reach, nodes);
        let name = step.in_words();
        keep(best, Candidate { cost, nodes, name });
    }
    room
}

/// How far apart nodes are, by the ways to them.
fn reach(leaves: &[&Leaf]) -> Option<Reach> {
    let [first, others @ ..] = leaves else {
        return None;
    };
    if others.is_empty() {
        return Some(Reach::Node);
    }
    let mut common = first.path.len();
    for leaf in others {
        let same = first
            .path
            .iter()
            .zip(&leaf.path)
            .take_while(|(a, b)| a == b);
        common = common.min(same.count());
    }
    let is_switch = |step: &&Step| matches!(step.level, Level::Switch(_));
    let last = first.path.get(..common)?.last();
    Some(match last.map(|step| &step.level) {
        Some(Level::Nvlink) => Reach::NvlinkDomain,
        Some(Level::Switch(_)) => {
            let below = |leaf: &&Leaf| leaf.path.iter().skip(common).filter(is_switch).count();
            let steps = leaves.iter().map(below).max().unwrap_or(0);
            Reach::Switch(u16::try_from(steps).unwrap_or(u16::MAX))
        }
        Some(Level::Unknown) => return None,
        _ => Reach::Cluster,
    })
}

/// Where the job would be better off, in one sentence; nothing where it cannot be told.
pub(super) fn sentence(
    key: &WorkloadKey,
    gang: u32,
    tree: &Tree,
    cluster: &Cluster,
) -> Option<String> {
    let pods = cluster.workload_pods(key);
    let mut asks = pods.iter().filter(|pod| pod.node.is_some()).map(|pod| {
        let mut all = pod.gpu_requests();
        match (all.next(), all.next()) {
            (Some((GpuResource::Whole, n)), None) => u32::try_from(n).ok(),
            _ => None,
        }
    });
    let gpus = asks.next()??;
    if asks.any(|other| other != Some(gpus)) {
        return None;
    }
    let leaves: Vec<&Leaf> = tree.leaves().filter(|l| l.held.of(gang) > 0).collect();
    let model = leaves.first()?.row.model()?;
    if leaves.iter().any(|l| l.row.model() != Some(model)) {
        return None;
    }
    let job = Job {
        gang,
        pods: tree.gangs.total_of(gang),
        gpus,
        model,
    };
    if job.pods * gpus < 2 {
        return None;
    }
    let reach = reach(&leaves)?;
    if reach == Reach::Node {
        return None;
    }
    let here = job.cost(reach, leaves.len());
    let mut best = None;
    search(&job, tree.whole(), None, &mut best);
    let better = best.filter(|b| b.cost < here * (1.0 - WORTH));
    Some(match better {
        None => "no closer place is free for it".to_owned(),
        Some(b) => {
            let nodes = match b.nodes {
                1 => String::new(),
                n => format!(" on {} nodes", format::count_of(n)),
            };
            format!(
                "would fit closer in {}{nodes}: 1 GiB all-reduced in about {} there, {} here (by model)",
                b.name,
                millis(b.cost),
                millis(here)
            )
        }
    })
}

fn millis(ms: f64) -> String {
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_nodes_are_counted_first() {
        assert_eq!(nodes_for(4, &[1, 2, 1, 3]), Some(2));
        assert_eq!(nodes_for(7, &[1, 2, 1, 3]), Some(4));
        assert_eq!(nodes_for(8, &[1, 2, 1, 3]), None);
        assert_eq!(nodes_for(1, &[]), None);
    }
}
