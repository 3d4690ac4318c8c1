//! What is laid over the picture for one round: those who leave are gone, and held places are given
//! to those that they are held for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shape::parts_of;
use super::tables::JobId;
use super::world::World;
use crate::model::Str;
use crate::sched::class::Class;
use crate::sched::holds::Held;

impl World<'_> {
    /// Pods that are on their way out: later their room is free.
    pub(super) fn let_leave(&mut self) {
        let state = self.state;
        self.t.leaving = false;
        for uid in state.leaving() {
            let Some(tracked) = state.tracked(uid) else {
                continue;
            };
            if let Some(spot) = self.spot_of(tracked) {
                let ask = crate::sched::amounts::Ask::of_pod(&tracked.pod);
                let class = Arc::new(Class {
                    ask,
                    ..Class::default()
                });
                self.give(spot.row, class, spot.held);
                self.t.leaving = true;
            }
        }
    }

    /// Gives the held places to the waiting pods of their jobs; those whose pods are not there
    /// (yet) are kept free.
    pub(super) fn give_held(&mut self) {
        let state = self.state;
        if state.holds.all().next().is_none() {
            return;
        }
        let mut by_owner: BTreeMap<Str, Vec<JobId>> = BTreeMap::new();
        // Those of a gang with too few pods are only told so.
        for id in self.t.waiting.union(&self.t.telling) {
            if let Some(job) = self.job(*id) {
                by_owner.entry(job.owner.clone()).or_default().push(*id);
            }
        }
        for (owner, places) in state.holds.all() {
            let jobs = by_owner.get(owner).map_or(&[][..], |j| j);
            let mark = self.mark();
            let mut kept = 0;
            let all = places.iter().all(|place| {
                let taken = self.give_place(jobs, place);
                kept += u32::from(taken == Some(false));
                taken.is_some()
            });
            let serves = all && jobs.iter().all(|job| self.may_start(*job, kept));
            if serves && places.iter().all(|p| self.is_within_limits(p)) {
                self.t.leaving = true;
            } else {
                // Whoever was to leave stays, the room went to somebody else, a limit was lowered,
                // or the gang has lost others meanwhile.
                self.undo(mark);
                self.given_up.push(owner.clone());
            }
        }
    }

    /// The limits may be others than when the place was held.
    fn is_within_limits(&self, held: &Held) -> bool {
        let Some(row) = self.state.rows.id(&held.place.node) else {
            return false;
        };
        let Ok(queue) = self.tree.known_namespace(&held.pod.meta.namespace) else {
            return false;
        };
        let pool = self.pool(row);
        let asks = parts_of(
            &Class::of_pod(&held.pod, &self.state.config),
            self.state.rows.memory_mib(&held.place.node),
        );
        asks == 0
            || self.tree.up(queue).all(|queue| {
                let limit = self.tree.node(queue).due(pool).limit;
                limit.is_none_or(|limit| self.used(pool, queue) <= limit)
            })
    }

    /// With its places and so many that are kept for pods to come the gang has enough.
    fn may_start(&self, job: JobId, kept: u32) -> bool {
        self.job(job)
            .is_none_or(|j| j.gang.is_none() || j.placed.saturating_add(kept) >= j.min)
    }

    /// Tells whether a pod has taken the place; `None` when there is no room for it.
    fn give_place(&mut self, jobs: &[JobId], held: &Held) -> Option<bool> {
        let row = self.state.rows.id(&held.place.node)?;
        let class = Arc::new(Class::of_pod(&held.pod, &self.state.config));
        let shape = self.t.by_class.get(&class).copied();
        let taker = shape.and_then(|shape| {
            jobs.iter().find_map(|job| {
                let pods = &self.job(*job)?.pods;
                pods.iter().copied().find(|pod| {
                    let row = self.pod(*pod);
                    row.is_some_and(|p| p.shape == shape && p.waiting && p.spot.is_none())
                })
            })
        });
        if let (Some(pod), Some(shape)) = (taker, shape) {
            self.look(shape);
            let spot = self.spot_on(pod, row)?;
            self.put(pod, spot);
            return Some(true);
        }
        // Whoever it is held for has not come back yet.
        let known = self.row(row)?;
        let prices = self.state.rules().slices;
        let devices = self
            .slot(row)?
            .assign(&class.ask, &known.gpus, held.place.device, prices);
        let queue = self.tree.known_namespace(&held.pod.meta.namespace).ok()?;
        self.take(row, class, devices, queue);
        Some(false)
    }
}
