//! MIG: what each model can be cut into, and where a slice goes.

mod baseline;
mod geometry;
mod policy;
mod prices;
mod propose;
mod tables;
#[cfg(test)]
mod tests;

pub use baseline::fragmentation_increment;
pub use geometry::{Geometry, LayoutError, Mask, Profile};
pub use policy::{Device, Scarcity, Slot, choose, scarcity};
pub use prices::Prices;
pub use propose::{CutGpu, Recut, blocked, propose};
pub use tables::{
    A30_24, A100_40, A100_80, ALL, B200_180, B300_269, GB200_186, GB300_278, GH200_96, GH200_144,
    H100_80, H100_94, H100_96, H200_141, RTX_PRO_6000, of_product,
};
