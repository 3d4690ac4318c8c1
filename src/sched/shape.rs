//! A class of pods as the demand counts it.

use super::class::Class;
use super::gpus::Models;
use super::needs::Share;
use super::place::{MAX_GPUS, Shape};

/// Memory of a device where no model is known, to size shares that are asked for by memory.
const USUAL_MIB: u32 = 80 * 1024;

/// The shape of a class. CPU and shares are rounded, so that a cluster in which each pod asks for
/// something else still has a histogram.
pub(super) fn of(class: &Class, models: &Models) -> Shape {
    let accepted = models.accepted(&class.constraints, &class.needs);
    let (gpus, milli_gpu) = match class.ask.share {
        Share::Milli(milli) => (1, tens(u32::from(milli))),
        Share::MemoryMib(mib) => {
            let all = models.memory_mib(accepted).unwrap_or(USUAL_MIB).max(1);
            (1, tens(mib.saturating_mul(1000) / all))
        }
        Share::None if class.is_whole() => {
            let most = i64::try_from(MAX_GPUS).unwrap_or(i64::MAX);
            let gpus = class.ask.whole().clamp(1, most);
            (u8::try_from(gpus).unwrap_or(1), 1000)
        }
        Share::None => (0, 0),
    };
    Shape {
        cpu_milli: cores(class.ask.cpu_milli),
        mem_mib: 0,
        gpus,
        milli_gpu,
        models: accepted,
    }
}

/// Rounded up to tens, below a whole device.
fn tens(milli: u32) -> u16 {
    u16::try_from(milli.div_ceil(10) * 10)
        .unwrap_or(990)
        .clamp(10, 990)
}

/// Rounded up to half cores, cores, or fours of them as the amount grows.
fn cores(milli: i64) -> i64 {
    let step = if milli < 8_000 {
        500
    } else if milli < 32_000 {
        1_000
    } else {
        4_000
    };
    // Beyond any node's CPU there is nothing to tell apart.
    let milli = milli.clamp(0, 1_000_000_000);
    (milli + step - 1) / step * step
}
