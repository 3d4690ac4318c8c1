//! What the filters say of each node for one class, kept up to date node by node.

use super::amounts::Room;
use super::class::Class;
use super::filters::{Row, Verdict, Volumes, judge};
use crate::model::FilterCount;

/// A node's row. Rows keep their number while the node is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RowId(pub(super) usize);

/// The verdicts of one class, one for each row.
#[derive(Clone)]
pub(super) struct View {
    pub(super) volumes: Volumes,
    verdicts: Vec<Verdict>,
    fits: u32,
    /// No row before this place of the search order fits.
    hint: usize,
}

impl View {
    /// Asks the filters about every row.
    pub(super) fn build(class: &Class, volumes: Volumes, rows: &[Row], rooms: &[Room]) -> Self {
        let verdicts: Vec<Verdict> = rows
            .iter()
            .zip(rooms)
            .map(|(row, room)| judge(class, &volumes, row, room))
            .collect();
        let fits = verdicts.iter().filter(|v| **v == Verdict::Fits).count();
        Self {
            volumes,
            verdicts,
            fits: u32::try_from(fits).unwrap_or(u32::MAX),
            hint: 0,
        }
    }

    /// Asks the filters about one row again.
    pub(super) fn update(&mut self, class: &Class, id: RowId, row: &Row, room: &Room) {
        let now = judge(class, &self.volumes, row, room);
        if id.0 >= self.verdicts.len() {
            self.verdicts.resize(id.0 + 1, Verdict::Absent);
        }
        let Some(slot) = self.verdicts.get_mut(id.0) else {
            return;
        };
        let before = std::mem::replace(slot, now);
        match (before == Verdict::Fits, now == Verdict::Fits) {
            (true, false) => self.fits -= 1,
            (false, true) => {
                self.fits += 1;
                self.hint = 0;
            }
            _ => {}
        }
    }

    /// Rows that fit.
    pub(super) fn fits(&self) -> u32 {
        self.fits
    }

    /// The first row of `order` that fits.
    pub(super) fn first<'a>(&mut self, order: impl Iterator<Item = &'a RowId>) -> Option<RowId> {
        if self.fits == 0 {
            return None;
        }
        let found = order
            .enumerate()
            .skip(self.hint)
            .find(|(_, id)| self.verdicts.get(id.0) == Some(&Verdict::Fits));
        let (at, id) = found?;
        self.hint = at;
        Some(*id)
    }

    /// Nodes that exist, and how many each filter took out, largest first. A node that lacks
    /// several resources counts at each.
    pub(super) fn counts(&self, class: &Class) -> (u32, Box<[FilterCount]>) {
        let mut sums: Vec<(Verdict, u32)> = Vec::new();
        let mut count = |verdict: Verdict| match sums.iter_mut().find(|(v, _)| *v == verdict) {
            Some((_, n)) => *n += 1,
            None => sums.push((verdict, 1)),
        };
        let mut nodes = 0;
        for verdict in self.verdicts.iter().filter(|v| **v != Verdict::Absent) {
            nodes += 1;
            match verdict {
                Verdict::Lacks(lacks) => lacks.parts().for_each(&mut count),
                other => count(*other),
            }
        }
        sums.sort_by_key(|(verdict, n)| (std::cmp::Reverse(*n), *verdict));
        let filters = sums
            .into_iter()
            .filter(|(v, _)| *v != Verdict::Fits)
            .map(|(v, nodes)| FilterCount {
                nodes,
                why: v.words(class),
            })
            .collect();
        (nodes, filters)
    }
}
