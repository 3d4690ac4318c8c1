//! Jobs that wait, by band and size: of equals in size one verdict on fit serves all.

use std::collections::{BTreeMap, BTreeSet};

/// A place in the order: a key and a job's index, lower first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Turn {
    /// The policy's key.
    pub key: f64,
    /// The job.
    pub job: usize,
}

impl Eq for Turn {}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key
            .total_cmp(&other.key)
            .then(self.job.cmp(&other.job))
    }
}

/// Waiting jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting {
    by_size: BTreeMap<(u8, u32), BTreeSet<Turn>>,
    count: usize,
}

impl Waiting {
    /// A job begins to wait.
    pub(super) fn add(&mut self, band: u8, gpus: u32, turn: Turn) {
        if self.by_size.entry((band, gpus)).or_default().insert(turn) {
            self.count += 1;
        }
    }

    /// A job waits no more.
    pub(super) fn remove(&mut self, band: u8, gpus: u32, turn: Turn) {
        if let Some(turns) = self.by_size.get_mut(&(band, gpus)) {
            self.count -= usize::from(turns.remove(&turn));
            if turns.is_empty() {
                self.by_size.remove(&(band, gpus));
            }
        }
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first of each size, in order: better rank of the band, then key. Ranks are better the
    /// higher.
    pub(super) fn heads(&self, rank: impl Fn(u8) -> f64) -> Vec<(u8, u32, Turn)> {
        let heads = self.by_size.iter();
        let heads = heads.filter_map(|((band, gpus), turns)| Some((*band, *gpus, *turns.first()?)));
        sorted(heads.collect(), rank)
    }

    /// At most `most` of all, in order.
    pub(super) fn first(&self, most: usize, rank: impl Fn(u8) -> f64) -> Vec<(u8, u32, Turn)> {
        let all = self.by_size.iter().flat_map(|((band, gpus), turns)| {
            turns.iter().take(most).map(|turn| (*band, *gpus, *turn))
        });
        let mut all = sorted(all.collect(), rank);
        all.truncate(most);
        all
    }
}

fn sorted(mut all: Vec<(u8, u32, Turn)>, rank: impl Fn(u8) -> f64) -> Vec<(u8, u32, Turn)> {
    all.sort_by(|a, b| {
        let ranks = rank(b.0).total_cmp(&rank(a.0));
        ranks.then((a.0, a.2).cmp(&(b.0, b.2)))
    });
    all
}
