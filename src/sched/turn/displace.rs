//! Places for those that cannot start at once: what becomes free, moves, and victims.

use std::collections::{BTreeMap, BTreeSet};

use super::gang::Search;
use super::order::Unit;
use super::world::{JobId, PodId, Spot};
use crate::sched::decide::Round;
use crate::sched::fabric::Level;
use crate::sched::gang_place::Part;
use crate::sched::reclaim::{Claimant, Moves, Victim};
use crate::sched::view::RowId;

/// Nodes that are searched for moves in one round, all searches together.
const MOST_SEARCHED: usize = 16_384;

impl Round<'_> {
    /// Places that become free, then moves, then victims.
    pub(super) fn displace(&mut self, unit: &Unit, pool: usize) -> bool {
        let signature = self.signature(unit, pool);
        let job = self.world.job(unit.job);
        let rights = job.map(|j| (j.queue, j.priority, j.may_preempt && !unit.surplus));
        let known = match (&signature, rights) {
            (Some(s), Some((queue, priority, may))) => Some((queue, priority, may, s.clone())),
            _ => None,
        };
        if known
            .as_ref()
            .is_some_and(|k| self.verdicts.hopeless.contains(k))
        {
            return false;
        }
        let kept_off = known.clone().filter(|_| !self.reserved.is_empty());
        let kept_off = kept_off.map(|k| (k, self.all_outlasted(&unit.pods)));
        let when = (self.placed, self.reserved.len());
        if kept_off
            .as_ref()
            .is_some_and(|k| self.unclear.get(k) == Some(&when))
        {
            return false;
        }
        let seen = signature
            .as_ref()
            .is_some_and(|s| self.verdicts.failed.contains(s));
        self.look_by_views(&unit.pods);
        self.world.look_at(&unit.pods);
        let done = (!seen && self.leaving && self.wait_for_room(unit, pool))
            || (!seen && self.state.config.moves && !unit.surplus && self.move_others(unit, pool))
            || self.displace_within(unit, pool);
        let found = std::mem::take(&mut self.kept_off);
        if !done && found {
            // The next round has other reservations.
            self.unclear.extend(kept_off.map(|k| (k, when)));
        } else if !done {
            self.verdicts.failed.extend(signature);
            if std::mem::take(&mut self.world.exhausted) {
                self.plan.more = true;
            } else {
                self.verdicts.hopeless.extend(known);
            }
        }
        done
    }

    fn search<'u>(unit: &'u Unit, pool: usize) -> Search<'u> {
        Search {
            job: unit.job,
            pods: &unit.pods,
            need: unit.need,
            pool,
        }
    }

    fn wait_for_room(&mut self, unit: &Unit, pool: usize) -> bool {
        let mark = self.world.mark();
        if !self.world.place(&Self::search(unit, pool)) {
            return false;
        }
        let places = self.world.places_of(&unit.pods);
        if !self.keep_clear(&places) {
            self.kept_off = true;
            self.world.undo(mark);
            return false;
        }
        self.hold(unit.job, &places);
        true
    }

    /// The job's places, which the picture has, are held from now on.
    fn hold(&mut self, job: JobId, places: &[(PodId, Spot)]) {
        let rows: BTreeSet<RowId> = places.iter().map(|(_, s)| s.row).collect();
        for row in rows {
            self.cap(row);
        }
        self.keep(job, places);
        let evictions = std::mem::take(&mut self.evictions);
        if !evictions.is_empty() {
            self.plan.groups.push(evictions);
        }
        self.leaving = true;
        self.ends = None;
        self.verdicts.failed.clear();
        self.verdicts.hopeless.clear();
    }

    /// What is known of each node for a class need not be found out for its shape again.
    fn look_by_views(&mut self, pods: &[PodId]) {
        let mut last = None;
        for pod in pods {
            let shape = self.world.shape_of(*pod);
            if last.replace(shape) == Some(shape) || self.world.is_looked_at(shape) {
                continue;
            }
            let class = self.world.shapes.get(shape.0).and_then(|s| s.waiting);
            if let Some(view) = class.and_then(|class| self.scratch.view(class)) {
                self.world.look_by(shape, |row| view.lets_in(row));
            }
        }
    }

    /// Whether enough of the pods have room somewhere within the level that they require, each
    /// class seen alone. While nobody leaves, what is free now is free later.
    fn could_start(&mut self, unit: &Unit) -> bool {
        let required = self.world.job(unit.job).and_then(|j| j.wish.required);
        let anywhere = required.is_none_or(|level| level == Level::CLUSTER);
        let mut parts: Vec<Part> = Vec::new();
        for pod in &unit.pods {
            let shape = self.world.shape_of(*pod);
            let Some(class) = self.world.shapes.get(shape.0).and_then(|s| s.waiting) else {
                return true;
            };
            if anywhere && unit.need == 1 {
                // To count is not worth the while.
                if self.scratch.fits(class) > 0 {
                    return true;
                }
                continue;
            }
            match parts.iter_mut().find(|p| p.class == class) {
                Some(part) => part.pods += 1,
                None => parts.push(Part { class, pods: 1 }),
            }
        }
        let most = self.scratch.most_within(&parts, required);
        usize::try_from(most).is_ok_and(|most| most >= unit.need)
    }

    fn move_others(&mut self, unit: &Unit, pool: usize) -> bool {
        if !self.leaving && self.world.movable == 0 && !self.could_start(unit) {
            return false;
        }
        // One more search is not worth the time of all others.
        let most = MOST_SEARCHED / self.state.rows.slots.len().max(1);
        self.searches += 1;
        if self.searches > most.max(2) {
            return false;
        }
        let Some(found) = self.world.find_moves(&Self::search(unit, pool)) else {
            return false;
        };
        let moved = found.moved.iter().map(|(pod, _, new)| (*pod, *new));
        let places: Vec<(PodId, Spot)> = found.placed.iter().copied().chain(moved).collect();
        if !self.keep_clear(&places) {
            self.kept_off = true;
            return false;
        }
        self.carry_out(unit.job, &found);
        true
    }

    fn carry_out(&mut self, for_job: JobId, found: &Moves) {
        self.evict(for_job, &found.victims);
        let mut by_job: BTreeMap<JobId, Vec<(PodId, Spot)>> = BTreeMap::new();
        for (pod, old, new) in &found.moved {
            self.world.send_off(*pod);
            self.leave(*pod, *old, for_job, None);
            let job = self.world.pod(*pod).map_or(for_job, |p| p.job);
            by_job.entry(job).or_default().push((*pod, *new));
        }
        for (pod, spot) in found.placed.iter().chain(by_job.values().flatten()) {
            self.world.put(*pod, *spot);
        }
        for (pod, ..) in &found.moved {
            self.world.waits_again(*pod);
        }
        self.world.served.insert(for_job);
        self.hold(for_job, &found.placed);
        for (job, places) in by_job {
            self.world.served.insert(job);
            self.hold(job, &places);
        }
    }

    pub(super) fn displace_within(&mut self, unit: &Unit, pool: usize) -> bool {
        let Some(job) = self.world.job(unit.job).cloned() else {
            return false;
        };
        if unit.surplus || !job.may_preempt || !self.state.config.preemption {
            return false;
        }
        let shares = self.shares.get(pool).cloned().unwrap_or_default();
        let search = Self::search(unit, pool);
        let mut claimant = Claimant {
            unit,
            queue: job.queue,
            priority: job.priority,
            pool,
            shares: self.state.config.fair_reclaim.then_some(&shares[..]),
            straddling: false,
        };
        let mut found = self.world.find_victims(&claimant, &search, &shares);
        if found.is_none() && self.state.config.moves {
            let moves = self
                .world
                .find_victims_and_moves(&claimant, &search, &shares);
            if let Some(moves) = moves {
                self.carry_out(unit.job, &moves);
                return true;
            }
        }
        if found.is_none() {
            claimant.straddling = true;
            found = self.world.find_victims(&claimant, &search, &shares);
        }
        let Some(found) = found else {
            return false;
        };
        self.evict(unit.job, &found.victims);
        for (pod, spot) in &found.placed {
            self.world.put(*pod, *spot);
        }
        self.world.served.insert(unit.job);
        self.hold(unit.job, &found.placed);
        true
    }

    fn evict(&mut self, for_job: JobId, victims: &[Victim]) {
        for victim in victims {
            for (pod, spot) in &victim.pods {
                self.world.send_off(*pod);
                self.leave(*pod, *spot, for_job, Some(victim.grade));
            }
        }
        for victim in victims {
            self.give_up_surplus(victim.job);
        }
    }

    /// Of a gang too few are left: the places that were held for more of it are of no use.
    fn give_up_surplus(&mut self, job: JobId) {
        let Some(row) = self.world.job(job).filter(|j| j.placed < j.min) else {
            return;
        };
        let owner = row.owner.clone();
        let held = self.held_pods(job);
        if held.is_empty() {
            return;
        }
        for pod in held {
            self.world.lift(pod);
        }
        self.plan.holds.retain(|hold| hold.owner != owner);
        if self.state.holds.all().any(|(other, _)| *other == owner) {
            self.plan.given_up.push(owner);
        }
    }
}
