//! What leaves at once: a pod beyond its job's minimum, or the rest of the job as a whole.

use std::cmp::Reverse;

use super::claim::{Claimant, Grade};
use crate::sched::queue::Parts;
use crate::sched::turn::{JobId, PodId, Ratio, Spot, World};
use crate::sched::view::RowId;

/// A pod or a job that leaves.
#[derive(Clone, Debug)]
pub(in crate::sched) struct Victim {
    pub(in crate::sched) job: JobId,
    /// Its pods with the places that they had.
    pub(in crate::sched) pods: Vec<(PodId, Spot)>,
    pub(in crate::sched) grade: Grade,
}

/// What leaves first is the least: see [`World::price`].
pub(super) type Price = (Grade, Reverse<Ratio>, i32, bool, i64, Reverse<JobId>);

impl World<'_> {
    /// Jobs with a pod on these nodes, each with its pods there, in the order of their numbers.
    pub(super) fn jobs_on(&self, rows: &[RowId]) -> Vec<(JobId, Vec<PodId>)> {
        let mut found: Vec<(JobId, PodId)> = rows
            .iter()
            .flat_map(|row| self.residents(*row))
            .filter_map(|id| {
                let pod = self.pod(*id)?;
                let here = pod.spot.is_some() && !pod.waiting;
                here.then_some((pod.job, *id))
            })
            .collect();
        found.sort_unstable();
        let mut jobs: Vec<(JobId, Vec<PodId>)> = Vec::new();
        for (job, pod) in found {
            match jobs.last_mut().filter(|(last, _)| *last == job) {
                Some((_, pods)) => pods.push(pod),
                None => jobs.push((job, vec![pod])),
            }
        }
        jobs
    }

    /// What would leave next of a job for room where `here` are: one of them while the job has
    /// pods to spare, else all of its pods.
    pub(super) fn next_of(&self, job: JobId, here: &[PodId]) -> Option<Vec<PodId>> {
        let row = self.job(job)?;
        if let [only] = &*row.pods {
            let pod = self.pod(*only)?;
            let leaves = pod.spot.is_some() && !pod.waiting && !self.is_protected(*only);
            let leaves = leaves && self.may_leave(&[*only]);
            return (leaves && here.contains(only) && row.min <= 1).then(|| vec![*only]);
        }
        let running = |p: &&PodId| {
            self.pod(**p)
                .is_some_and(|p| p.spot.is_some() && !p.waiting)
        };
        let all: Vec<PodId> = row.pods.iter().filter(running).copied().collect();
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        if count > row.min {
            // The one whose end costs least, the last among equals.
            let free = |p: &&PodId| !self.is_protected(**p) && self.may_leave(&[**p]);
            let pod = here
                .iter()
                .filter(running)
                .filter(free)
                .min_by_key(|p| (self.loss(&[**p]), Reverse(**p)))?;
            return Some(vec![*pod]);
        }
        let any_here = here.iter().any(|p| all.contains(p));
        let protected = || all.iter().any(|p| self.is_protected(*p));
        (any_here && !protected() && self.may_leave(&all)).then_some(all)
    }

    /// GPU-milliseconds of work that the end of these pods costs.
    pub(super) fn loss(&self, pods: &[PodId]) -> i64 {
        pods.iter()
            .filter_map(|p| {
                let secs = self.loss_secs(self.pod(*p)?);
                let milli = crate::sched::queue::to_milli_gpu(self.parts(*p));
                Some(secs.saturating_mul(milli))
            })
            .fold(0, i64::saturating_add)
    }

    /// The right by which these pods may be taken, and what decides who goes first: the right, the
    /// queue most above its share, the lowest priority, pods to spare, the least loss, the latest.
    pub(super) fn price(
        &self,
        claimant: &Claimant<'_>,
        shares: &[Parts],
        job: JobId,
        pods: &[PodId],
    ) -> Option<Price> {
        let grade = self.right(claimant, job, self.sum(pods))?;
        let row = self.job(job)?;
        let spare = pods.len() < usize::try_from(row.placed).unwrap_or(usize::MAX);
        Some((
            grade,
            Reverse(self.excess(claimant, job, shares)),
            row.priority,
            !spare,
            self.loss(pods),
            Reverse(job),
        ))
    }

    /// Lets pods go.
    pub(super) fn let_go(&mut self, job: JobId, pods: &[PodId], grade: Grade) -> Victim {
        let pods: Vec<(PodId, Spot)> = pods
            .iter()
            .filter_map(|p| Some((*p, self.pod(*p)?.spot?)))
            .collect();
        for (pod, _) in &pods {
            self.send_off(*pod);
        }
        Victim { job, pods, grade }
    }

    /// Gives pods the places back that they had, if all are free.
    pub(super) fn take_back(&mut self, victim: &Victim) -> bool {
        let mark = self.mark();
        for (pod, spot) in &victim.pods {
            if !self.is_free(*pod, *spot) {
                self.undo(mark);
                return false;
            }
            self.put(*pod, *spot);
            self.stays(*pod);
        }
        true
    }

    /// What is left of a job can run: nothing, or at least its minimum.
    pub(super) fn is_whole(&self, job: JobId) -> bool {
        let Some(row) = self.job(job) else {
            return true;
        };
        let running = row
            .pods
            .iter()
            .filter(|p| {
                self.pod(**p)
                    .is_some_and(|p| p.spot.is_some() && !p.waiting)
            })
            .count();
        running == 0 || u32::try_from(running).is_ok_and(|n| n >= row.min)
    }

    /// A pod that was on a row can be there again with just these devices.
    pub(super) fn is_free(&self, pod: PodId, spot: Spot) -> bool {
        let Some(class) = self.class(self.shape_of(pod)) else {
            return false;
        };
        let Some(slot) = self.slot(spot.row) else {
            return false;
        };
        let held = spot.held;
        let devices = slot
            .gpu
            .free()
            .iter()
            .enumerate()
            .filter(|(at, free)| held.devices & (1 << at) != 0 && **free >= held.milli)
            .count();
        slot.takes(&class.ask)
            && slot.slices & held.slices == held.slices
            && devices == usize::try_from(held.devices.count_ones()).unwrap_or(0)
    }
}
