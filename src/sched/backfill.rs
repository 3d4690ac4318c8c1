//! Backfill: the first blocked jobs get a place at a time to come, and nobody who runs longer than
//! that starts in it before.
//!
//! When running pods end is told by `gpudeck.dev/runtime-estimate`; a pod without one never ends as
//! far as this goes, so a job that waits for it has no time and no reservation.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::decide::Round;
use super::filters::{Verdict, judge};
use super::slot::Slot;
use super::turn::{PodId, Search, Spot, Unit, World};
use super::view::RowId;
use crate::model::Pod;

/// Seconds that a pod will run, or a duration like `2h30m`.
const RUNTIME_ESTIMATE: &str = "gpudeck.dev/runtime-estimate";
/// Blocked jobs with a reservation.
const MOST_RESERVED: usize = 8;

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
fn end_of(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    let secs = runtime_secs(pod)?;
    let started = pod.started.unwrap_or(now);
    let end = started.checked_add(SignedDuration::from_secs(secs)).ok()?;
    Some(end.max(now))
}

impl World<'_> {
    /// The pods that end at a known time, the first to end first.
    pub(super) fn ends(&self, now: Timestamp) -> Vec<(Timestamp, PodId)> {
        let mut ends: Vec<(Timestamp, PodId)> = (0..self.pods.len())
            .map(PodId)
            .filter_map(|id| {
                let row = self.pod(id)?;
                row.spot?;
                Some((end_of(&row.pod, now)?, id))
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
        now: Timestamp,
    ) -> Option<(Timestamp, Vec<(PodId, Spot)>)> {
        let mut times: Vec<Timestamp> = ends.iter().map(|(t, _)| *t).collect();
        times.dedup();
        let at = |count: usize| match count.checked_sub(1) {
            None => Some(now),
            Some(last) => times.get(last).copied(),
        };
        // With more pods gone there is never less room.
        let (mut low, mut high) = (0, times.len());
        let mut found = None;
        while low <= high {
            let middle = usize::midpoint(low, high);
            let time = at(middle)?;
            let mark = self.mark();
            for (_, pod) in ends.iter().filter(|(end, _)| *end <= time && middle > 0) {
                self.lift(*pod);
            }
            let fits = self.place(search);
            if fits {
                found = Some((time, self.places_of(search.pods)));
            }
            self.undo(mark);
            match (fits, middle) {
                (true, 0) => break,
                (true, _) => high = middle - 1,
                (false, _) => low = middle + 1,
            }
        }
        found
    }
}

impl Round<'_> {
    /// Reserves a place for a blocked job if its time is known and not too many are before it.
    pub(super) fn reserve(&mut self, unit: &Unit, pool: usize) {
        if unit.surplus || self.reserved.len() >= MOST_RESERVED {
            return;
        }
        let now = self.now;
        let ends = self.world.ends(now);
        if ends.is_empty() {
            return;
        }
        let search = Search {
            job: unit.job,
            pods: &unit.pods,
            need: unit.need,
            pool,
        };
        let Some((at, places)) = self.world.first_start(&search, &ends, now) else {
            return;
        };
        if at <= now {
            return;
        }
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
    pub(super) fn keep_clear<'p>(&self, places: impl Iterator<Item = (PodId, &'p Spot)>) -> bool {
        if self.reserved.is_empty() {
            return true;
        }
        let mut reserved = self.reserved.clone();
        for (pod, spot) in places {
            if !is_clear(&self.world, &reserved, self.now, pod, spot.row) {
                return false;
            }
            take_from(&self.world, &mut reserved, self.now, pod, *spot);
        }
        true
    }

    /// For each row whether the pod may start there now without standing in a reserved place;
    /// `None` when it may anywhere.
    pub(super) fn clear_rows(&self, pod: PodId, pool: usize) -> Option<Vec<bool>> {
        if self.world.tree.pools() == 1 && self.reserved.is_empty() {
            return None;
        }
        let clear = |row: RowId| {
            self.world.is_in(row, pool) && is_clear(&self.world, &self.reserved, self.now, pod, row)
        };
        Some(self.world.rows().map(clear).collect())
    }

    /// What is started now is taken from what the reservations leave.
    pub(super) fn take_from_reservations(&mut self, pod: PodId, spot: Spot) {
        take_from(&self.world, &mut self.reserved, self.now, pod, spot);
    }
}

fn ends_before(pod: &Pod, now: Timestamp, at: Timestamp) -> bool {
    runtime_secs(pod)
        .and_then(|secs| now.checked_add(SignedDuration::from_secs(secs)).ok())
        .is_some_and(|end| end <= at)
}

fn is_clear(
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
        if ends_before(&of.pod, now, reservation.at) {
            return true;
        }
        let (Some(shape), Some(known)) = (world.shapes.get(of.shape.0), world.row(row)) else {
            return false;
        };
        let fixed = shape.fixed.get(row.0).copied();
        fixed.is_some_and(|f| judge(&shape.class, f, known, slot) == Verdict::Fits)
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
        if ends_before(&of.pod, now, reservation.at) {
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
