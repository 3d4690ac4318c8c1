//! MFI: the least increment of fragmentation, a published rule for MIG placement.

use super::geometry::{Geometry, Mask, Profile};
use super::policy::{Device, Slot};

/// Legal windows that are blocked, over the profiles for which the GPU has slices enough. Of the
/// readings of the published formula this is the one that places best.
fn fragmentation(geometry: &Geometry, mask: Mask) -> u32 {
    let free = u32::from(geometry.slices).saturating_sub(mask.count_ones());
    geometry
        .plain()
        .filter(|profile| u32::from(profile.mem_slices) <= free)
        .map(|profile| {
            let open = profile.free_starts(mask).count();
            let blocked = profile.starts.len().saturating_sub(open);
            u32::try_from(blocked).unwrap_or(0)
        })
        .sum()
}

/// The place for `profile` that adds least fragmentation; among equals the lowest GPU, then the
/// lowest start. `None` when it fits nowhere.
#[must_use]
pub fn fragmentation_increment(
    geometry: &Geometry,
    devices: &[Device],
    profile: &Profile,
) -> Option<Slot> {
    let mut best: Option<Slot> = None;
    for (index, device) in devices.iter().enumerate() {
        let before = f64::from(fragmentation(geometry, device.mask));
        for (start, window) in profile.free_starts(device.mask) {
            let after = f64::from(fragmentation(geometry, device.mask | window));
            let score = after - before;
            if best.is_none_or(|best| score < best.score) {
                best = Some(Slot {
                    device: index,
                    start,
                    score,
                });
            }
        }
    }
    best
}
