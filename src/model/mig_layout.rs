//! Where the MIG instances of a GPU lie among its memory slices.
//!
//! Legal starts are those of NVIDIA's MIG user guide and `nvidia-smi mig -lgipp`. Labels and
//! resources tell which instances there are and not where: then a layout is drawn that could exist.

use super::gpu::{GpuModel, MigProfile};
use super::node_use::MigInstance;

impl MigProfile {
    /// The memory slices at which an instance of `width` slices may start on a model, in the order
    /// in which they are tried: a 3g leaves the lower half to those that can only be there.
    fn starts(&self, width: u8, slices: u8) -> Vec<u8> {
        match (slices, width, self.compute_slices) {
            (8, 1, _) => (0..=6).collect(),
            (8, 2, 1) => vec![0, 2, 4, 6],
            (8, 2, _) => vec![0, 2, 4],
            (8, 4, 3) => vec![4, 0],
            (8, 4, _) => vec![0],
            _ => {
                let last = slices.saturating_sub(width);
                (0..=last).step_by(usize::from(width.max(1))).collect()
            }
        }
    }
}

fn bits(start: u8, width: u8) -> u32 {
    let ones = 1u32
        .checked_shl(u32::from(width))
        .map_or(u32::MAX, |n| n - 1);
    ones.checked_shl(u32::from(start)).unwrap_or(0)
}

/// Gives each instance a start: the told ones theirs, the others one at which they may lie. Where no
/// legal layout exists they are put side by side, for something has to be drawn.
pub(super) fn lay_out(instances: &mut [MigInstance], model: &GpuModel) {
    let slices = model.memory_slices();
    let mut taken = 0;
    let mut sound = true;
    for instance in instances.iter().filter(|i| i.told) {
        let own = bits(instance.start, instance.width);
        sound &= taken & own == 0 && instance.start + instance.width <= slices;
        taken |= own;
    }
    let mut order: Vec<usize> = (0..instances.len()).collect();
    order.retain(|at| instances.get(*at).is_some_and(|i| !i.told));
    // The widest have the fewest places.
    order.sort_by_key(|at| {
        let instance = instances.get(*at);
        std::cmp::Reverse(instance.map_or((0, 0), |i| (i.width, i.profile.compute_slices)))
    });
    if !sound || !place(instances, &order, taken, slices) {
        let mut at = 0;
        for instance in instances.iter_mut() {
            instance.start = at;
            at = at.saturating_add(instance.width);
        }
    }
    instances.sort_by_key(|i| i.start);
}

/// Finds starts for the rest of the instances, given what is taken.
fn place(instances: &mut [MigInstance], order: &[usize], taken: u32, slices: u8) -> bool {
    let Some((at, rest)) = order.split_first() else {
        return true;
    };
    let Some(instance) = instances.get(*at) else {
        return true;
    };
    let width = instance.width;
    for start in instance.profile.starts(width, slices) {
        let own = bits(start, width);
        if taken & own != 0 || start + width > slices {
            continue;
        }
        if let Some(instance) = instances.get_mut(*at) {
            instance.start = start;
        }
        if place(instances, rest, taken | own, slices) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn instances(model: &GpuModel, profiles: &[(&str, Option<u8>)]) -> Vec<MigInstance> {
        let one = |(text, start): &(&str, Option<u8>)| {
            let profile: MigProfile = text.parse().unwrap();
            MigInstance {
                width: profile.memory_slices(model, None),
                profile,
                used: false,
                sick: false,
                start: start.unwrap_or(0),
                told: start.is_some(),
                gi: None,
            }
        };
        profiles.iter().map(one).collect()
    }

    #[test]
    fn layouts_are_those_that_can_exist() {
        let h100 = GpuModel::from_product("NVIDIA-H100-80GB-HBM3");
        let a30 = GpuModel::from_product("NVIDIA-A30");
        let rtx = GpuModel::from_product("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition");
        for (model, profiles, expected) in [
            (
                &h100,
                &[("3g.40gb", None), ("3g.40gb", None)][..],
                "0:3g 4:3g",
            ),
            (
                &h100,
                &[
                    ("1g.10gb", None),
                    ("1g.10gb", None),
                    ("2g.20gb", None),
                    ("3g.40gb", None),
                ],
                "0:2g 2:1g 3:1g 4:3g",
            ),
            (&h100, &[("4g.40gb", None), ("3g.40gb", None)], "0:4g 4:3g"),
            (
                &h100,
                &[("1g.20gb", None), ("2g.20gb", None), ("3g.40gb", Some(0))],
                "0:3g 4:2g 6:1g",
            ),
            (
                &h100,
                &[("1g.10gb", Some(5)), ("1g.10gb", None)],
                "0:1g 5:1g",
            ),
            (
                &a30,
                &[("1g.6gb", None), ("2g.12gb", None), ("1g.6gb", None)],
                "0:2g 2:1g 3:1g",
            ),
            (&rtx, &[("1g.24gb", None), ("2g.48gb", None)], "0:2g 6:1g"),
            // Five 2g do not exist; they are drawn side by side all the same.
            (
                &h100,
                &[
                    ("2g.20gb", None),
                    ("2g.20gb", None),
                    ("2g.20gb", None),
                    ("2g.20gb", None),
                ],
                "0:2g 2:2g 4:2g 6:2g",
            ),
        ] {
            let mut laid = instances(model, profiles);
            lay_out(&mut laid, model);
            let words: Vec<String> = laid
                .iter()
                .map(|i| format!("{}:{}g", i.start, i.profile.compute_slices))
                .collect();
            assert_eq!(words.join(" "), expected, "{profiles:?}");
        }
    }
}
