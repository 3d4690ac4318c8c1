//! Which pods changed, in the order in which they did.

use crate::model::Uid;

/// Changes that are remembered.
const LIMIT: usize = 65_536;

/// The changes since some time ago.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Changes before the first that `log` still holds.
    start: usize,
    log: Vec<Uid>,
}

impl Changes {
    /// A pod changed.
    pub(super) fn push(&mut self, pod: &Uid) {
        if self.log.len() >= LIMIT {
            self.log.drain(..LIMIT / 2);
            self.start += LIMIT / 2;
        }
        self.log.push(pod.clone());
    }

    /// Everything may have changed.
    pub(super) fn reset(&mut self) {
        self.start = self.end() + 1;
        self.log.clear();
    }

    /// The point that has been reached.
    pub(super) fn end(&self) -> usize {
        self.start + self.log.len()
    }

    /// All that changed since a point is still known.
    pub(super) fn is_known_since(&self, point: usize) -> bool {
        (self.start..=self.end()).contains(&point)
    }

    /// What changed since a point.
    pub(super) fn since(&self, point: usize) -> Vec<Uid> {
        let from = point.saturating_sub(self.start);
        self.log.get(from..).unwrap_or_default().to_vec()
    }
}
