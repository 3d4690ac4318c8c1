//! How many pods of a class one node could take at once.

use super::amounts::narrow;
use super::class::Class;
use super::filters::Row;
use super::gpus::WHOLE;
use super::needs::Share;
use super::place::MAX_GPUS;
use super::slot::Slot;

/// Pods of the class that a node takes which takes one. Exact: after each placement it is one less.
pub(super) fn copies(class: &Class, row: &Row, slot: &Slot) -> u16 {
    let ask = &class.ask;
    let mut most = narrow(slot.room.pods);
    let mut bound = |wanted: i64, left: i64| {
        if wanted > 0 {
            most = most.min(left / wanted);
        }
    };
    bound(ask.cpu_milli, narrow(slot.room.cpu_milli));
    bound(ask.mem_bytes, narrow(slot.room.mem_bytes));
    bound(ask.ephemeral_bytes, narrow(slot.room.ephemeral_bytes));
    for (key, wanted) in &ask.extended {
        bound(*wanted, narrow(slot.room.extended(key)));
        let counted = row.gpus.devices > 0 && usize::from(row.gpus.devices) < MAX_GPUS;
        if **key == *WHOLE && counted {
            let whole = i64::try_from(slot.gpu.devices_with(1000)).unwrap_or(0);
            bound(*wanted, whole);
        }
    }
    let milli = match ask.share {
        Share::None => None,
        Share::Milli(milli) => Some(milli),
        Share::MemoryMib(mib) => Some(row.gpus.milli_for(mib).unwrap_or(u16::MAX)),
    };
    if let Some(milli) = milli {
        let fit = slot.gpu.free().iter().map(|free| i64::from(free / milli));
        bound(1, fit.sum());
    }
    if !ask.ports.is_empty() {
        bound(1, 1);
    }
    u16::try_from(most.max(0)).unwrap_or(u16::MAX)
}
