//! What one node has left: sums of resources, and the free part of each device.

use super::amounts::{Ask, Room};
use super::gpus::NodeGpus;
use super::needs::Share;
use super::place::NodeRow;
use super::slices::SlicePrices;

/// Devices that a pod holds, and thousandths of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Held {
    /// Bit `i` for device `i`.
    pub(super) devices: u16,
    /// Thousandths of each.
    pub(super) milli: u16,
    /// MIG instances of the node's layout, bit `i` for instance `i`.
    pub(super) slices: u128,
}

impl Held {
    /// The device of a share.
    pub(super) fn shared_device(self) -> Option<u8> {
        let shared = self.devices != 0 && self.milli < 1000;
        let device = self.devices.trailing_zeros();
        u8::try_from(device).ok().filter(|_| shared)
    }

    /// It is this device and no other.
    pub(super) fn is_on(self, device: u8) -> bool {
        u32::from(self.devices) == 1u32.checked_shl(u32::from(device)).unwrap_or(0)
    }
}

/// What a node has left.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Slot {
    /// Sums.
    pub(super) room: Room,
    /// Devices.
    pub(super) gpu: NodeRow,
    /// Free MIG instances of the node's layout.
    pub(super) slices: u128,
    /// What the room is worth to those who may come, in GPUs.
    pub(super) worth: f64,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            room: Room::default(),
            gpu: NodeRow::empty(0, 0, 0, super::place::ModelId::default()),
            slices: 0,
            worth: 0.0,
        }
    }
}

impl Slot {
    /// A pod comes to these devices.
    pub(super) fn take(&mut self, ask: &Ask, held: Held) {
        self.room.take(ask);
        self.hold(held);
        self.note_cpu();
    }

    /// A pod that was taken in goes: the exact inverse of [`Slot::take`].
    pub(super) fn give(&mut self, ask: &Ask, held: Held) {
        self.room.give(ask);
        self.gpu.shift(held.devices, held.milli, -1);
        self.slices |= held.slices;
        self.note_cpu();
    }

    /// Devices and instances are taken.
    pub(super) fn hold(&mut self, held: Held) {
        self.gpu.shift(held.devices, held.milli, 1);
        self.slices &= !held.slices;
    }

    /// There is room for this beside devices.
    pub(super) fn takes(&self, ask: &Ask) -> bool {
        !self.room.has_port_conflict(&ask.ports)
            && super::filters::room_verdict(ask, &self.room).is_none()
    }

    /// No more than this of anything is left.
    pub(super) fn cap(&mut self, most: &Slot) {
        self.room.cap(&most.room);
        let over: Vec<(usize, u16)> = self
            .gpu
            .free()
            .iter()
            .zip(most.gpu.free())
            .map(|(here, there)| here.saturating_sub(*there))
            .enumerate()
            .filter(|(_, over)| *over > 0)
            .collect();
        for (device, over) in over {
            self.gpu.shift(1 << device, over, 1);
        }
        self.slices &= most.slices;
        self.note_cpu();
    }

    /// Keeps the CPU beside the devices in step with the sums.
    pub(super) fn note_cpu(&mut self) {
        self.gpu.cpu_milli = super::amounts::narrow(self.room.cpu_milli);
    }

    /// Devices for a pod that is on the node already: those it names if they are free, else the
    /// fullest for a share and the lowest for whole ones. Fewer than it asks for when more is bound
    /// than the node offers.
    pub(super) fn assign(
        &self,
        ask: &Ask,
        gpus: &NodeGpus,
        named: Option<u8>,
        prices: &SlicePrices,
    ) -> Held {
        let free = self.gpu.free();
        let milli = match ask.share {
            Share::None => {
                let wanted = usize::try_from(ask.whole()).unwrap_or(usize::MAX);
                let whole = free.iter().enumerate().filter(|(_, f)| **f == 1000);
                let devices = whole.take(wanted).fold(0, |mask, (i, _)| mask | 1 << i);
                let layout = gpus.layout.as_ref();
                let slices = layout.map(|l| l.take(self.slices, &ask.extended, prices).0);
                return Held {
                    devices,
                    milli: 1000,
                    slices: slices.unwrap_or(0),
                };
            }
            Share::Milli(milli) => milli,
            Share::MemoryMib(mib) => match gpus.milli_for(mib) {
                Some(milli) => milli,
                None => return Held::default(),
            },
        };
        let named = named
            .map(usize::from)
            .filter(|i| free.get(*i).is_some_and(|f| *f >= milli));
        named
            .or_else(|| self.gpu.fullest_device(milli))
            .map_or(Held::default(), |device| Held {
                devices: 1 << device,
                milli,
                slices: 0,
            })
    }
}
