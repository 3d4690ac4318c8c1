//! What it costs to put a pod of a class on a node, by the prices of the moment.

use super::class::Class;
use super::filters::Row;
use super::gpus::{Cut, NodeGpus};
use super::needs::Share;
use super::place::{Cost, ModelSet, Shape};
use super::slot::{Held, Slot};
use super::view::Rules;

/// Set in the key of a node whose devices are given out in parts, for a pod that asks for a whole
/// device and does not say that a part is welcome.
const RELUCTANT: u64 = 1 << 62;
/// Below any difference of prices that matters: among replicas and slices the fuller node wins.
const FULLER: f64 = 0.01;

/// A node's best key for a class and what the pod would hold there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Score {
    /// The lowest wins.
    pub(super) key: u64,
    /// Devices.
    pub(super) held: Held,
}

/// The class as packing sees it on a node; `None` where its devices are not kept account of.
fn shape_on(class: &Class, gpus: &NodeGpus) -> Option<Shape> {
    let (devices, milli_gpu) = match class.ask.share {
        Share::Milli(milli) => (1, milli),
        Share::MemoryMib(mib) => (1, gpus.milli_for(mib)?),
        Share::None if class.gpu().is_none() => (0, 0),
        Share::None if class.is_whole() && gpus.cut == Cut::Whole => {
            (u8::try_from(class.ask.whole()).unwrap_or(u8::MAX), 1000)
        }
        Share::None => return None,
    };
    Some(Shape {
        cpu_milli: class.ask.cpu_milli,
        mem_mib: 0,
        gpus: devices,
        milli_gpu,
        models: ModelSet::ANY,
    })
}

/// The score of a node that fits.
pub(super) fn score(rules: Rules<'_>, class: &Class, row: &Row, slot: &Slot) -> Score {
    let (pricing, slices) = (rules.pricing, rules.slices);
    if let Some(shape) = shape_on(class, &row.gpus) {
        let best = pricing.best(&slot.gpu, slot.worth, &shape);
        return best.map_or(
            Score {
                key: RELUCTANT,
                held: Held::default(),
            },
            |best| Score {
                key: best.key,
                held: Held {
                    devices: best.devices,
                    milli: shape.milli_gpu,
                    slices: 0,
                },
            },
        );
    }
    if let Some(layout) = &row.gpus.layout
        && let (slices @ 1.., cost) = layout.take(slot.slices, &class.ask.extended, slices)
    {
        let key = pricing.key(Cost {
            gap: 0.0,
            room: cost,
        });
        let held = Held {
            slices,
            ..Held::default()
        };
        return Score { key, held };
    }
    let key = pricing.key(parts_cost(class, row, slot));
    let unasked = class.is_whole() && !class.needs.welcomes_parts;
    Score {
        key: if unasked { key | RELUCTANT } else { key },
        held: Held::default(),
    }
}

/// What the score of a node is made of.
pub(super) fn cost(rules: Rules<'_>, class: &Class, row: &Row, slot: &Slot, held: Held) -> Cost {
    match (shape_on(class, &row.gpus), &row.gpus.layout) {
        (Some(shape), _) => {
            let pricing = rules.pricing;
            pricing.cost(&slot.gpu, slot.worth, &shape, held.devices)
        }
        (None, Some(layout)) if held.slices != 0 => Cost {
            gap: 0.0,
            room: layout
                .take(slot.slices, &class.ask.extended, rules.slices)
                .1,
        },
        (None, _) => parts_cost(class, row, slot),
    }
}

/// Replicas and slices: their part of a device, and a little for each that would be left.
fn parts_cost(class: &Class, row: &Row, slot: &Slot) -> Cost {
    let Some((key, wanted)) = class.gpu() else {
        return Cost {
            gap: 0.0,
            room: 0.0,
        };
    };
    let all = row.node.as_ref().map_or(0, |n| n.allocatable.extended(key));
    let left = (slot.room.extended(key) - i128::from(wanted)).max(0) as f64;
    let part = match row.gpus.cut {
        Cut::Replicas(n) => 1.0 / f64::from(n.max(1)),
        _ => 1.0,
    };
    Cost {
        gap: wanted as f64 * part,
        room: FULLER * left / (all.max(1) as f64),
    }
}
