//! Where the pods of one job go together in the picture: the narrowest domain that they may have,
//! and in it the fewest and fullest nodes.

use super::shape::ShapeId;
use super::world::{JobId, PodId, Spot, World};
use crate::sched::fabric::{DomainId, Level};
use crate::sched::view::RowId;

/// Placements that are tried for pods of different size before it is given up.
const MOST_TRIES: u32 = 20_000;
/// Nodes that are tried for one pod among pods of different size.
const MOST_NODES: usize = 64;

/// Where a job's pods may go.
#[derive(Clone, Debug)]
pub(in crate::sched) struct Search<'a> {
    pub(in crate::sched) job: JobId,
    /// Pods that may be placed, in their order.
    pub(in crate::sched) pods: &'a [PodId],
    /// How many of them have to be.
    pub(in crate::sched) need: usize,
    /// Only nodes of this pool.
    pub(in crate::sched) pool: usize,
}

impl World<'_> {
    /// Places `need` of the pods, or none and tells false.
    pub(in crate::sched) fn place(&mut self, search: &Search<'_>) -> bool {
        if search.need == 0 {
            return true;
        }
        self.open_for(search.pods);
        self.sets(search)
            .iter()
            .any(|rows| self.place_in(search, rows))
    }

    fn all_of(&self, pool: usize) -> Vec<RowId> {
        self.rows().filter(|row| self.is_in(*row, pool)).collect()
    }

    /// The sets of rows that are tried one after the other: the narrowest level first.
    fn sets(&self, search: &Search<'_>) -> Vec<Vec<RowId>> {
        let Some(job) = self.job(search.job) else {
            return Vec::new();
        };
        let wish = job.wish;
        let Some(narrowest) = [wish.preferred, wish.required].into_iter().flatten().min() else {
            return vec![self.all_of(search.pool)];
        };
        let widest = wish.required.unwrap_or(Level::CLUSTER);
        let mut levels: Vec<Level> = vec![Level::NODE];
        levels.extend(self.fabric().levels().iter().map(|(level, _)| *level));
        let mut sets = Vec::new();
        for level in levels {
            if level < narrowest || level > widest {
                continue;
            }
            let anchor = self.anchor(search.job, level);
            let mut here = self.domains_at(search, level);
            if let Some(anchor) = anchor {
                let is_there =
                    |rows: &[RowId]| rows.first().map(|r| self.part(*r, level)) == Some(anchor);
                if wish.required == Some(level) {
                    here.retain(|rows| is_there(rows));
                } else if let Some(first) = here.iter().position(|rows| is_there(rows)) {
                    let first = here.remove(first);
                    here.insert(0, first);
                }
            }
            sets.extend(here);
        }
        if widest == Level::CLUSTER {
            sets.push(self.all_of(search.pool));
        }
        sets
    }

    /// The part of a level in which a row is: the row itself at the level of nodes.
    fn part(&self, row: RowId, level: Level) -> Option<Part> {
        if level == Level::NODE {
            return Some(Part::Row(row));
        }
        self.domain(row, level).map(Part::Domain)
    }

    /// The sets of rows within which all pods of a job have to be: each domain of its required
    /// level, or all rows.
    pub(in crate::sched) fn widest_sets(&self, search: &Search<'_>) -> Vec<Vec<RowId>> {
        let Some(job) = self.job(search.job) else {
            return Vec::new();
        };
        match job.wish.required {
            None | Some(Level::CLUSTER) => vec![self.all_of(search.pool)],
            Some(level) => {
                let anchor = self.anchor(search.job, level);
                let mut sets = self.rows_at(level, search.pool);
                if let Some(anchor) = anchor {
                    sets.retain(|rows| rows.first().map(|r| self.part(*r, level)) == Some(anchor));
                }
                sets
            }
        }
    }

    /// The rows of each domain of a level.
    fn rows_at(&self, level: Level, pool: usize) -> Vec<Vec<RowId>> {
        let inside = |row: &RowId| self.is_in(*row, pool);
        if level == Level::NODE {
            return self.rows().filter(inside).map(|row| vec![row]).collect();
        }
        let fabric = self.fabric();
        let found = fabric.levels().iter().find(|(l, _)| *l == level);
        found.map_or_else(Vec::new, |(_, ids)| {
            ids.iter()
                .filter_map(|id| fabric.domain(*id))
                .map(|d| d.rows.iter().copied().filter(inside).collect())
                .collect()
        })
    }

    /// Places as many of these like pods as have room.
    pub(in crate::sched) fn fill_all(&mut self, pods: &[PodId], rows: &[RowId]) -> usize {
        self.open_for(pods);
        self.fill(pods, rows, None)
    }

    /// The part of a level in which the job's pods already are: none, one that has no name, or
    /// this.
    fn anchor(&self, job: JobId, level: Level) -> Option<Option<Part>> {
        let pods = &self.job(job)?.pods;
        let first = pods.iter().find_map(|p| self.pod(*p)?.spot)?;
        Some(self.part(first.row, level))
    }

    /// Domains of a level that have room enough by their counts: those that take most of what the
    /// job wants first, among them the fullest.
    fn domains_at(&self, search: &Search<'_>, level: Level) -> Vec<Vec<RowId>> {
        let mut fits: Vec<((usize, i64, usize), Vec<RowId>)> = Vec::new();
        for (at, rows) in self.rows_at(level, search.pool).into_iter().enumerate() {
            let takes = self.takes(search, &rows);
            if takes < search.need {
                continue;
            }
            let free: i64 = rows.iter().map(|r| self.free_milli(*r)).sum();
            let short = search.pods.len() - takes.min(search.pods.len());
            fits.push(((short, free, at), rows));
        }
        fits.sort_by_key(|(key, _)| *key);
        fits.into_iter().map(|(_, rows)| rows).collect()
    }

    /// An upper bound of the pods that these rows take: exact when all are alike.
    fn takes(&self, search: &Search<'_>, rows: &[RowId]) -> usize {
        let mut by_shape: Vec<(ShapeId, u32)> = Vec::new();
        for pod in search.pods {
            let shape = self.shape_of(*pod);
            match by_shape.iter_mut().find(|(s, _)| *s == shape) {
                Some((_, n)) => *n += 1,
                None => by_shape.push((shape, 1)),
            }
        }
        let mut takes = 0_usize;
        for (shape, wanted) in by_shape {
            let mut fits = 0_u32;
            for row in rows {
                if fits >= wanted {
                    break;
                }
                if self.is_open(shape, *row) {
                    fits += self.room(shape, *row).min(wanted - fits);
                }
            }
            takes += usize::try_from(fits).unwrap_or(usize::MAX);
        }
        takes
    }

    /// Places `need` of the pods on these rows, or none and tells false.
    pub(in crate::sched) fn place_in(&mut self, search: &Search<'_>, rows: &[RowId]) -> bool {
        self.open_for(search.pods);
        if self.takes(search, rows) < search.need {
            return false;
        }
        let first = search.pods.first().map(|p| self.shape_of(*p));
        let alike = search.pods.iter().all(|p| Some(self.shape_of(*p)) == first);
        let mark = self.mark();
        let done = if alike {
            let level = self.job(search.job).and_then(|j| j.wish.preferred);
            let pods = search.pods.get(..search.need).unwrap_or(search.pods);
            self.fill(pods, rows, level) == pods.len()
        } else {
            self.pack(search, rows)
        };
        if !done {
            self.undo(mark);
        }
        done
    }

    /// Places like pods: in the fewest domains of the wished level, in them on the fewest nodes.
    /// Tells how many have a place.
    fn fill(&mut self, pods: &[PodId], rows: &[RowId], level: Option<Level>) -> usize {
        let Some(first) = pods.first() else { return 0 };
        let shape = self.shape_of(*first);
        let mut sorted: Vec<(Option<Part>, RowId)> = rows
            .iter()
            .filter(|row| self.is_open(shape, **row))
            .map(|row| (level.and_then(|level| self.part(*row, level)), *row))
            .collect();
        sorted.sort_unstable();
        let mut bins: Vec<(u32, Vec<(u32, RowId)>)> = Vec::new();
        let mut last = None;
        for (part, row) in sorted {
            let room = self.room(shape, row);
            if room == 0 {
                continue;
            }
            if last.replace(part) != Some(part) {
                bins.push((0, Vec::new()));
            }
            if let Some((sum, list)) = bins.last_mut() {
                *sum = sum.saturating_add(room);
                list.push((room, row));
            }
        }
        let mut left: Vec<PodId> = pods.iter().rev().copied().collect();
        while !left.is_empty() {
            let want = u32::try_from(left.len()).unwrap_or(u32::MAX);
            let Some(bin) = pick(&bins, want) else { break };
            let (_, list) = bins.swap_remove(bin);
            self.fill_rows(&mut left, list);
        }
        pods.len() - left.len()
    }

    /// Fills the rows of one domain.
    fn fill_rows(&mut self, left: &mut Vec<PodId>, mut list: Vec<(u32, RowId)>) {
        let Some(first) = left.last().copied() else {
            return;
        };
        let gpu = self.parts_anywhere(first) > 0;
        let mut sorted: Vec<_> = list
            .drain(..)
            .map(|(room, row)| (self.order(room, row, room, gpu), room, row))
            .collect();
        // Those that take most first, among them the fullest.
        sorted.sort_unstable_by_key(|((off, _, free, rank), room, _)| {
            (*off, std::cmp::Reverse(*room), *free, *rank)
        });
        let mut rows = std::collections::VecDeque::from(sorted);
        while !left.is_empty() && !rows.is_empty() {
            let want = u32::try_from(left.len()).unwrap_or(u32::MAX);
            let off = rows.front().is_some_and(|(key, ..)| key.0);
            let largest = rows.front().map_or(0, |(_, room, _)| *room);
            let at = if largest > want {
                // The rest goes to the fullest that takes it all.
                rows.iter()
                    .enumerate()
                    .take_while(|(_, (key, room, _))| key.0 == off && *room >= want)
                    .min_by_key(|(_, (key, ..))| (key.2, key.3))
                    .map_or(0, |(at, _)| at)
            } else {
                0
            };
            let Some((_, room, row)) = rows.remove(at) else {
                return;
            };
            for _ in 0..room.min(want) {
                let Some(pod) = left.pop() else { return };
                match self.spot_on(pod, row) {
                    Some(spot) => self.put(pod, spot),
                    None => {
                        left.push(pod);
                        break;
                    }
                }
            }
        }
    }

    /// Which row is filled first: the fullest that takes all, else the one that takes most. Pods
    /// without GPUs keep off nodes that have some.
    fn order(&self, room: u32, row: RowId, want: u32, gpu: bool) -> (bool, u32, i64, u32) {
        let off = !gpu && self.row(row).is_some_and(|r| r.has_gpus);
        (
            off,
            want.saturating_sub(room),
            self.free_milli(row),
            self.rank(row),
        )
    }

    /// Pods of different size: the largest first, each on the fullest node; when that fails, a
    /// bounded search.
    fn pack(&mut self, search: &Search<'_>, rows: &[RowId]) -> bool {
        let mut pods = search.pods.to_vec();
        pods.sort_by_key(|p| {
            let size = self.class(self.shape_of(*p)).map(|c| c.size());
            std::cmp::Reverse(size)
        });
        let mut tries = MOST_TRIES;
        let skips = pods.len().saturating_sub(search.need);
        let mut shapes: Vec<ShapeId> = pods.iter().map(|p| self.shape_of(*p)).collect();
        shapes.dedup();
        // Nothing becomes free while they are packed.
        let is_open = |row: &RowId| shapes.iter().any(|shape| self.is_open(*shape, *row));
        let rows: Vec<RowId> = rows.iter().copied().filter(is_open).collect();
        self.pack_from(&pods, search.need, skips, &rows, &mut tries)
    }

    fn pack_from(
        &mut self,
        pods: &[PodId],
        need: usize,
        skips: usize,
        rows: &[RowId],
        tries: &mut u32,
    ) -> bool {
        let (Some((pod, rest)), true) = (pods.split_first(), need > 0) else {
            return need == 0;
        };
        let gpu = self.parts_anywhere(*pod) > 0;
        let mut fits: Vec<Spot> = rows
            .iter()
            .filter_map(|row| self.spot_on(*pod, *row))
            .collect();
        fits.sort_by_key(|spot| self.order(1, spot.row, 1, gpu));
        for spot in fits.into_iter().take(MOST_NODES) {
            if *tries == 0 {
                return false;
            }
            *tries -= 1;
            let mark = self.mark();
            self.put(*pod, spot);
            if self.pack_from(rest, need - 1, skips, rows, tries) {
                return true;
            }
            self.undo(mark);
        }
        skips > 0 && self.pack_from(rest, need, skips - 1, rows, tries)
    }
}

/// A part of a level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Row(RowId),
    Domain(DomainId),
}

/// The bin that is filled next: the smallest that takes all, else the one that takes most.
fn pick(bins: &[(u32, Vec<(u32, RowId)>)], want: u32) -> Option<usize> {
    bins.iter()
        .enumerate()
        .min_by_key(|(_, (sum, list))| {
            let short = want.saturating_sub(*sum);
            (short, *sum, list.first().map(|(_, row)| *row))
        })
        .map(|(at, _)| at)
}
