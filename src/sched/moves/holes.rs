//! What has to leave a node so that pods of a class fit there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::model::Uid;
use crate::sched::amounts::Ask;
use crate::sched::class::Class;
use crate::sched::copies::copies;
use crate::sched::filters::{Row, Verdict, Volumes, judge, judge_node};
use crate::sched::slot::{Held, Slot};
use crate::sched::view::RowId;

/// A pod on a node that can be moved.
#[derive(Clone, Debug)]
pub(super) struct Movable {
    pub(super) uid: Uid,
    pub(super) ask: Ask,
    pub(super) held: Held,
    /// Thousandths of a GPU, all its devices and instances together.
    pub(super) milli_gpu: i64,
}

/// Pods of a class that a node takes, and who has to leave for them.
#[derive(Clone, Debug)]
pub(super) struct Hole {
    pub(super) row: RowId,
    /// Room for the first, the second and so on: who has to leave for it beside those before.
    pub(super) steps: Vec<Vec<Movable>>,
}

/// What the parts of the fabric cost.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) leave: Vec<Movable>,
    /// Thousandths of a GPU that move.
    pub(super) milli_gpu: i64,
}

/// The holes that a node can have for up to `wanted` pods of the class by moving at most `most`
/// others; `None` when it is not for them or cannot have one.
pub(super) fn of_node(
    class: &Class,
    (id, row, slot): (RowId, &Row, &Slot),
    movable: &[Movable],
    spot_needs_checkpoint: bool,
    (wanted, most): (usize, usize),
) -> Option<Hole> {
    let fixed = judge_node(class, &Volumes::default(), row, spot_needs_checkpoint);
    if fixed.first.is_some() || fixed.last.is_some() {
        return None;
    }
    let room = |slot: &Slot| match judge(class, fixed, row, slot) {
        Verdict::Fits => usize::from(copies(class, row, slot)).max(1),
        _ => 0,
    };
    let mut after = slot.clone();
    let mut rest = in_order(row, slot, movable);
    let mut left = most;
    let mut steps: Vec<Vec<Movable>> = Vec::new();
    while steps.len() < wanted {
        let mut leave: Vec<Movable> = Vec::new();
        while room(&after) <= steps.len() {
            let Some(next) = rest.pop().filter(|_| leave.len() < left) else {
                return (!steps.is_empty()).then_some(Hole { row: id, steps });
            };
            after.give(&next.ask, next.held);
            leave.push(next);
        }
        // Who is not in the way stays, the largest first.
        leave.sort_by_key(|pod| Reverse(pod.milli_gpu));
        leave.retain(|pod| {
            after.take(&pod.ask, pod.held);
            let stays = room(&after) > steps.len();
            if !stays {
                after.give(&pod.ask, pod.held);
            } else {
                rest.push(pod.clone());
            }
            !stays
        });
        left = left.saturating_sub(leave.len());
        steps.push(leave);
    }
    Some(Hole { row: id, steps })
}

/// Who goes first comes last: those alone on their device before those among many, by what the
/// device has in use; then those without GPUs, who takes most CPU first.
fn in_order(row: &Row, slot: &Slot, movable: &[Movable]) -> Vec<Movable> {
    let load = |device: usize| {
        let on = movable.iter().filter(|p| p.held.devices >> device & 1 == 1);
        let free = slot.gpu.free().get(device).copied().unwrap_or(0);
        let mine: u32 = on.clone().map(|p| u32::from(p.held.milli)).sum();
        // A device that somebody else holds too cannot be emptied.
        let stays = mine + u32::from(free) < 1000;
        (stays, on.count(), 1000_u16.saturating_sub(free))
    };
    let devices: Vec<_> = (0..usize::from(row.gpus.devices)).map(load).collect();
    let of = |pod: &Movable| {
        let first = pod.held.devices.trailing_zeros() as usize;
        let device = devices.get(first).copied().unwrap_or((false, 0, 0));
        let no_gpu = pod.milli_gpu == 0;
        (no_gpu, device, first, Reverse(pod.ask.cpu_milli))
    };
    let mut order = movable.to_vec();
    order.sort_by(|a, b| of(b).cmp(&of(a)).then_with(|| b.uid.cmp(&a.uid)));
    order
}

/// Thousandths of a GPU and pods that a step moves, its node, and its place in the hole.
type Step = ((i64, usize), RowId, usize);

/// The cheapest way to room for `wanted` pods among these holes, with at most `most` moves.
pub(super) fn cheapest<'a>(
    holes: impl Iterator<Item = &'a Hole>,
    wanted: usize,
    most: usize,
) -> Option<Opening> {
    let by_row: BTreeMap<RowId, &Hole> = holes.map(|hole| (hole.row, hole)).collect();
    let price = |step: &[Movable]| -> (i64, usize) {
        (step.iter().map(|pod| pod.milli_gpu).sum(), step.len())
    };
    let mut heap: BinaryHeap<Reverse<Step>> = by_row
        .values()
        .filter_map(|hole| Some(Reverse((price(hole.steps.first()?), hole.row, 0))))
        .collect();
    let mut opening = Opening {
        leave: Vec::new(),
        milli_gpu: 0,
    };
    for _ in 0..wanted {
        let Reverse(((milli_gpu, _), row, at)) = heap.pop()?;
        let steps = &by_row.get(&row)?.steps;
        opening.leave.extend(steps.get(at)?.iter().cloned());
        opening.milli_gpu += milli_gpu;
        if opening.leave.len() > most {
            return None;
        }
        if let Some(next) = steps.get(at + 1) {
            heap.push(Reverse((price(next), row, at + 1)));
        }
    }
    Some(opening)
}
