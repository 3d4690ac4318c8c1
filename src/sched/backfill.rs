//! Backfill: the first blocked jobs get a place at a time to come, and nobody who runs longer than
//! that starts in it before.
//!
//! When running pods end is told by `gpudeck.dev/runtime-estimate`; a pod without one never ends as
//! far as this goes, so a job that waits for it has no time and no reservation.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::decide::Round;
use super::slot::Slot;
use super::turn::{PodId, PodRow, Search, Spot, Unit, World};
use super::view::RowId;
use crate::model::Pod;

/// Seconds that a pod will run, or a duration like `2h30m`.
pub(super) const RUNTIME_ESTIMATE: &str = "gpudeck.dev/runtime-estimate";
/// Blocked jobs with a reservation.
const MOST_RESERVED: usize = 8;

/// Pods and when they end, the first to end first.
pub(super) type Ends = Vec<(Timestamp, PodId)>;

/// A place at a time to come.
#[derive(Clone)]
pub(super) struct Reservation {
    pub(super) at: Timestamp,
    /// What its rows have left then, with it and those before it there.
    rows: BTreeMap<RowId, Slot>,
}

/// How long a pod says that it runs.
pub(super) fn runtime_secs(pod: &Pod) -> Option<i64> {
    let text = pod.meta.annotation(RUNTIME_ESTIMATE)?;
    let secs = match text.parse::<i64>() {
        Ok(secs) => secs,
        Err(_) => text.parse::<SignedDuration>().ok()?.as_secs(),
    };
    (secs > 0).then_some(secs)
}

/// When a pod that runs ends. One that runs over its estimate ends any moment.
fn end_of(row: &PodRow, now: Timestamp) -> Option<Timestamp> {
    let secs = row.runtime_secs?;
    let started = row.pod.started.unwrap_or(now);
    let end = started.checked_add(SignedDuration::from_secs(secs)).ok()?;
    Some(end.max(now))
}

impl World<'_> {
    /// The pods that end at a known time, the first to end first.
    pub(super) fn ends(&self) -> Ends {
        let now = self.now;
        let mut ends: Ends = self
            .timed
            .iter()
            .filter_map(|id| {
                let row = self.pod(*id)?;
                let end = end_of(row, now)?;
                row.spot.map(|_| (end, *id))
            })
            .collect();
        ends.sort_unstable();
        ends
    }

    /// The first time at which the pods have a place, as far as is known when the others end; with
    /// their places then. The picture is left as it was.
    pub(super) fn first_start(
        &mut self,
        search: &Search<'_>,
        ends: &[(Timestamp, PodId)],
    ) -> Option<(Timestamp, Vec<(PodId, Spot)>)> {
        self.look_at(search.pods);
        let mark = self.mark();
        // By how many ends a prefix of them, with all that end at the same time, is long.
        let whole = |count: usize| match count.checked_sub(1).and_then(|at| ends.get(at)) {
            Some((time, _)) => ends.partition_point(|(t, _)| t <= time),
            None => 0,
        };
        let (mut low, mut high) = (0, ends.len());
        let mut found = None;
        let mut step = 1;
        // With more pods gone there is never less room: first in growing steps, then in between.
        let mut marks: Vec<(usize, usize)> = vec![(0, mark)];
        let mut next = 0;
        while low <= high {
            let count = whole(next);
            self.lift_first(ends, count, &mut marks);
            let tried = self.mark();
            let fits = self.place(search);
            if fits {
                let time = count.checked_sub(1).and_then(|at| ends.get(at));
                let at = time.map_or(self.now, |(t, _)| *t);
                found = Some((at, self.places_of(search.pods)));
                self.undo(tried);
                let Some(below) = count.checked_sub(1) else {
                    break;
                };
                // Only whole times are tried: the one before this ends where this begins.
                let same = ends.get(below).map(|(t, _)| *t);
                high = ends.partition_point(|(t, _)| Some(*t) < same);
            } else {
                low = count + 1;
            }
            if low > high {
                break;
            }
            next = if found.is_some() {
                usize::midpoint(low, high)
            } else {
                step *= 4;
                step.min(high).max(low)
            };
        }
        self.undo(mark);
        found
    }

    /// Lifts just the first `count` of those who end.
    fn lift_first(
        &mut self,
        ends: &[(Timestamp, PodId)],
        count: usize,
        marks: &mut Vec<(usize, usize)>,
    ) {
        while let Some((lifted, mark)) = marks.last().copied() {
            if lifted <= count {
                for (_, pod) in ends.get(lifted..count).unwrap_or_default() {
                    self.lift(*pod);
                }
                if count > lifted {
                    marks.push((count, self.mark()));
                }
                return;
            }
            marks.pop();
            let before = marks.last().map_or(mark, |(_, mark)| *mark);
            self.undo(before);
        }
    }
}

impl Round<'_> {
    /// Reserves a place for a blocked job if its time is known and not too many are before it.
    pub(super) fn reserve(&mut self, unit: &Unit, pool: usize) {
        if unit.surplus || self.reserved.len() >= MOST_RESERVED {
            return;
        }
        let world = &self.world;
        let ends = self
            .ends
            .get_or_insert_with(|| Arc::new(world.ends()))
            .clone();
        if ends.is_empty() {
            return;
        }
        let signature = self.signature(unit, pool);
        if signature
            .as_ref()
            .is_some_and(|s| self.unreservable.contains(s))
        {
            return;
        }
        let search = Search {
            job: unit.job,
            pods: &unit.pods,
            need: unit.need,
            pool,
        };
        let found = self.world.first_start(&search, &ends);
        let Some((at, places)) = found.filter(|(at, _)| *at > self.now) else {
            self.unreservable.extend(signature);
            return;
        };
        let mark = self.world.mark();
        for (_, pod) in ends.iter().filter(|(end, _)| *end <= at) {
            self.world.lift(*pod);
        }
        for (pod, spot) in &places {
            self.world.put(*pod, *spot);
        }
        let rows = places
            .iter()
            .filter_map(|(_, s)| Some((s.row, self.world.slot(s.row)?.clone())))
            .collect();
        self.world.undo(mark);
        self.reserved.push(Reservation { at, rows });
    }

    /// These pods, started now in these places, stand in nobody's reserved place.
    pub(super) fn keep_clear(&mut self, places: &[(PodId, Spot)]) -> bool {
        if self.reserved.is_empty() {
            return true;
        }
        let pods: Vec<PodId> = places.iter().map(|(pod, _)| *pod).collect();
        self.world.look_at(&pods);
        let mut reserved = self.reserved.clone();
        for (pod, spot) in places.iter().copied() {
            if !is_clear(&self.world, &reserved, self.now, pod, spot.row) {
                return false;
            }
            take_from(&self.world, &mut reserved, self.now, pod, spot);
        }
        true
    }

    /// Which of the first reservations the pod would outlast, a bit each.
    pub(super) fn outlasted(&self, pod: PodId) -> u64 {
        let Some(row) = self.world.pod(pod) else {
            return 0;
        };
        let outlasts = |r: &Reservation| !ends_before(row, self.now, r.at);
        self.reserved
            .iter()
            .take(64)
            .fold(0, |bits, r| bits << 1 | u64::from(outlasts(r)))
    }

    /// The same of several pods, each answer once for pods that come one after the other.
    pub(super) fn all_outlasted(&self, pods: &[PodId]) -> Vec<u64> {
        let mut all: Vec<u64> = pods.iter().map(|pod| self.outlasted(*pod)).collect();
        all.dedup();
        all
    }

    /// What is started now is taken from what the reservations leave.
    pub(super) fn take_from_reservations(&mut self, pod: PodId, spot: Spot) {
        take_from(&self.world, &mut self.reserved, self.now, pod, spot);
    }
}

fn ends_before(row: &PodRow, now: Timestamp, at: Timestamp) -> bool {
    row.runtime_secs
        .and_then(|secs| now.checked_add(SignedDuration::from_secs(secs)).ok())
        .is_some_and(|end| end <= at)
}

/// A pod that starts on this row now stands in nobody's reserved place.
pub(super) fn is_clear(
    world: &World<'_>,
    reserved: &[Reservation],
    now: Timestamp,
    pod: PodId,
    row: RowId,
) -> bool {
    let Some(of) = world.pod(pod) else {
        return false;
    };
    reserved.iter().all(|reservation| {
        let Some(slot) = reservation.rows.get(&row) else {
            return true;
        };
        if ends_before(of, now, reservation.at) {
            return true;
        }
        let known = world.row(row);
        known.is_some_and(|known| world.fits_in(of.shape, row, known, slot))
    })
}

fn take_from(
    world: &World<'_>,
    reserved: &mut [Reservation],
    now: Timestamp,
    pod: PodId,
    spot: Spot,
) {
    let Some(of) = world.pod(pod) else { return };
    let (Some(class), Some(known)) = (world.class(of.shape), world.row(spot.row)) else {
        return;
    };
    for reservation in reserved {
        if ends_before(of, now, reservation.at) {
            continue;
        }
        if let Some(slot) = reservation.rows.get_mut(&spot.row) {
            // Which whole devices a pod gets is the kubelet's choice.
            let prices = world.state.rules().slices;
            let named = spot.held.shared_device();
            let held = slot.assign(&class.ask, &known.gpus, named, prices);
            slot.take(&class.ask, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Meta;

    #[test]
    fn estimates_are_seconds_or_durations() {
        for (text, secs) in [
            ("3600", Some(3_600)),
            ("1h30m", Some(5_400)),
            ("PT2H", Some(7_200)),
            ("0", None),
            ("-5", None),
            ("soon", None),
        ] {
            let pod = Pod {
                meta: Meta {
                    annotations: [(RUNTIME_ESTIMATE.into(), text.into())].into(),
                    ..Meta::default()
                },
                ..Pod::default()
            };
            assert_eq!(runtime_secs(&pod), secs, "{text}");
        }
    }
}
