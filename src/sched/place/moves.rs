//! Making room for a pod that fits nowhere by moving others, each of which fits elsewhere.

use super::chooser::{Choice, Policy};
use super::fleet::{Fleet, NodeRow};
use super::shape::Shape;

/// Nodes that are tried, cheapest first.
const TRIED: usize = 8;

/// A pod that runs on a node and may be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Who it is, to whoever asks.
    pub id: u64,
    /// What it takes.
    pub shape: Shape,
    /// Its devices.
    pub devices: u16,
}

/// A pod that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The pod.
    pub pod: Resident,
    /// The node that it leaves.
    pub from: usize,
    /// Where it goes.
    pub to: Choice,
}

/// Places a pod that fits nowhere by moving at most `most` others, and says where all went. The
/// cheapest nodes by thousandths of a GPU moved are tried; unless every victim finds a place by the
/// policy, nothing changes and `None` comes back. `residents` are the movable pods of each node.
pub fn make_room(
    fleet: &mut Fleet,
    policy: &mut dyn Policy,
    residents: &[Vec<Resident>],
    shape: &Shape,
    most: usize,
) -> Option<(Choice, Vec<Move>)> {
    let mut nodes: Vec<(i64, usize, Vec<Resident>)> = fleet
        .rows()
        .iter()
        .zip(residents)
        .enumerate()
        .filter(|(_, (row, _))| shape.gpus == 0 || shape.models.has(row.model))
        .filter_map(|(node, (row, residents))| {
            let victims = victims(row, residents, shape, most)?;
            let cost = victims.iter().map(|pod| pod.shape.total_milli_gpu()).sum();
            Some((cost, node, victims))
        })
        .collect();
    nodes.sort_by_key(|(cost, node, victims)| (*cost, victims.len(), *node));
    nodes.truncate(TRIED);
    let done = nodes.into_iter().find_map(|(_, node, victims)| {
        let (choice, moves) = attempt(fleet, policy, node, &victims, shape)?;
        Some((choice, moves))
    })?;
    let (choice, moves) = &done;
    for step in moves {
        policy.changed(step.from, &step.pod.shape, -1);
        policy.changed(step.to.node, &step.pod.shape, 1);
    }
    policy.changed(choice.node, shape, 1);
    Some(done)
}

/// The fewest pods whose leaving makes room; `None` when there are more than `most` or none would
/// do. Devices with fewest pods go first, then those with least in use.
fn victims(
    row: &NodeRow,
    residents: &[Resident],
    shape: &Shape,
    most: usize,
) -> Option<Vec<Resident>> {
    let mut devices: Vec<(usize, i64, usize)> = (0..usize::from(row.gpus()))
        .map(|device| {
            let on = residents
                .iter()
                .filter(|pod| pod.devices >> device & 1 == 1);
            let used = on.clone().map(|pod| i64::from(pod.shape.milli_gpu)).sum();
            (on.count(), used, device)
        })
        .collect();
    devices.sort_unstable();
    let mut chosen = vec![false; residents.len()];
    let mut after = row.clone();
    for (_, _, device) in devices {
        if after.has_devices(shape) {
            break;
        }
        for (pod, chosen) in residents.iter().zip(&mut chosen) {
            if !*chosen && pod.devices >> device & 1 == 1 {
                *chosen = true;
                after = after.after(&pod.shape, pod.devices, -1);
            }
        }
    }
    // Then CPU and memory: who takes no GPU first, and of those who takes most.
    let mut rest: Vec<usize> = (0..residents.len()).collect();
    rest.sort_by_key(|at| {
        residents.get(*at).map(|pod| {
            let gpu = pod.shape.total_milli_gpu();
            (gpu, std::cmp::Reverse(pod.shape.cpu_milli), *at)
        })
    });
    for at in rest {
        if after.cpu_milli >= shape.cpu_milli && after.mem_mib >= shape.mem_mib {
            break;
        }
        if let (Some(pod), Some(chosen)) = (residents.get(at), chosen.get_mut(at))
            && !*chosen
        {
            *chosen = true;
            after = after.after(&pod.shape, pod.devices, -1);
        }
    }
    let found: Vec<Resident> = residents
        .iter()
        .zip(&chosen)
        .filter(|(_, chosen)| **chosen)
        .map(|(pod, _)| *pod)
        .collect();
    (after.fits(shape) && found.len() <= most).then_some(found)
}

/// Takes the victims out, places the pod, then each victim by the policy, the largest first; puts
/// all back when one fits nowhere.
fn attempt(
    fleet: &mut Fleet,
    policy: &mut dyn Policy,
    node: usize,
    victims: &[Resident],
    shape: &Shape,
) -> Option<(Choice, Vec<Move>)> {
    for pod in victims {
        fleet.remove(node, &pod.shape, pod.devices);
    }
    let devices = fleet
        .rows()
        .get(node)
        .map_or(0, |row| row.best_devices(shape));
    fleet.place(node, shape, devices);
    let mut largest: Vec<Resident> = victims.to_vec();
    largest
        .sort_by_key(|pod| std::cmp::Reverse((pod.shape.total_milli_gpu(), pod.shape.cpu_milli)));
    let mut moves: Vec<Move> = Vec::with_capacity(largest.len());
    for pod in largest {
        let Some(to) = policy.choose(fleet, &pod.shape) else {
            for done in &moves {
                fleet.remove(done.to.node, &done.pod.shape, done.to.devices);
            }
            fleet.remove(node, shape, devices);
            for pod in victims {
                fleet.place(node, &pod.shape, pod.devices);
            }
            return None;
        };
        fleet.place(to.node, &pod.shape, to.devices);
        moves.push(Move {
            pod,
            from: node,
            to,
        });
    }
    Some((Choice { node, devices }, moves))
}
