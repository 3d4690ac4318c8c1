//! The baseline of baselines.

use super::chooser::{Choice, Policy};
use super::fleet::Fleet;
use super::shape::Shape;

/// Any node that fits, any device of it that fits.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The same seed gives the same choices.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number below `n` (SplitMix64; the bias is below 2^-32 for every n here).
    fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % (n.max(1) as u64)).unwrap_or(0)
    }
}

impl Policy for Random {
    fn arrived(&mut self, _fleet: &Fleet, _shape: &Shape) {}

    fn choose(&mut self, fleet: &Fleet, shape: &Shape) -> Option<Choice> {
        let fitting = || {
            fleet
                .rows()
                .iter()
                .enumerate()
                .filter(|(_, row)| row.fits(shape))
        };
        let nodes = fitting().count();
        let (node, row) = fitting().nth(self.below(nodes))?;
        let devices = if shape.is_shared() {
            let enough = || {
                let free = row.free().iter().enumerate();
                free.filter(|(_, free)| **free >= shape.milli_gpu)
            };
            let (device, _) = enough().nth(self.below(enough().count()))?;
            1 << device
        } else {
            row.lowest_devices(shape)
        };
        Some(Choice { node, devices })
    }

    fn changed(&mut self, _node: usize, _shape: &Shape, _sign: i64) {}
}
