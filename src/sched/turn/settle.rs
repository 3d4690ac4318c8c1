//! Jobs of which nothing has changed but that their pods have places now: they keep their number.

use std::collections::BTreeSet;

use super::build::{PREEMPTIBLE, saved_at};
use super::tables::{JobId, JobRow, PodId, PodRow, Spot};
use super::world::World;
use crate::model::{Pod, Uid};
use crate::sched::gang::GangKey;
use crate::sched::state::Tracked;

impl<'a> World<'a> {
    /// Brings the job of a pod up to date if all its pods run and it is the same job as before,
    /// once for each of `settled`; false when it has to be gathered anew.
    pub(super) fn settle(&mut self, uid: &Uid, settled: &mut BTreeSet<JobId>) -> bool {
        let Some((id, rows)) = self.settled(uid, settled) else {
            return false;
        };
        if !settled.insert(id) {
            return true;
        }
        self.t.delist(id);
        let numbers = self.job(id).map_or(Vec::new(), |j| j.pods.clone());
        for number in &numbers {
            self.count_out(*number);
        }
        if let Some(job) = self.t.jobs.get_mut(id.0) {
            job.waits = false;
            job.placed = 0;
        }
        for (number, (row, spot)) in numbers.into_iter().zip(rows) {
            if let Some(slot) = self.t.pods.get_mut(number.0) {
                *slot = row;
            }
            self.settle_in(number, spot);
        }
        self.t.enlist(id);
        true
    }

    /// The job and its rows as they are now; no rows for one that is settled already.
    fn settled(
        &self,
        uid: &Uid,
        settled: &BTreeSet<JobId>,
    ) -> Option<(JobId, Vec<(PodRow, Spot)>)> {
        let state = self.state;
        let seat = self.t.seats.get(uid)?;
        let (_, id) = self.t.seated.get(*seat as usize)?.as_ref()?;
        if settled.contains(id) {
            return Some((*id, Vec::new()));
        }
        let tracked = state.tracked(uid)?;
        let job = self.job(*id)?;
        if job.recheck || !job.told.is_empty() || job.gang != tracked.gang {
            return None;
        }
        let members: Vec<&'a Tracked> = match &tracked.gang {
            None => vec![tracked],
            Some(key @ GangKey::Group { .. }) => state.members(key).collect(),
            // How many of a Job start together is told by more than its pods.
            Some(GangKey::Job(_)) => return None,
        };
        if members.len() != job.pods.len() || job.seats.len() != job.pods.len() {
            return None;
        }
        let mut before: Vec<(&Uid, PodId)> = job
            .pods
            .iter()
            .filter_map(|number| Some((&self.pod(*number)?.pod.meta.uid, *number)))
            .collect();
        before.sort_unstable();
        let rows: Option<Vec<(PodRow, Spot)>> = members
            .into_iter()
            .map(|tracked| {
                let uid = &tracked.pod.meta.uid;
                let at = before
                    .binary_search_by(|(other, _)| (*other).cmp(uid))
                    .ok()?;
                let old = self.pod(before.get(at)?.1)?;
                self.settled_row(*id, job, old, tracked)
            })
            .collect();
        Some((*id, rows?))
    }

    fn settled_row(
        &self,
        id: JobId,
        job: &JobRow,
        old: &PodRow,
        tracked: &Tracked,
    ) -> Option<(PodRow, Spot)> {
        let state = self.state;
        let pod = &tracked.pod;
        let runs = tracked.waiting.is_none()
            && pod.scheduler == state.config.scheduler_name
            && state.has_place(pod)
            && !state.holds.is_evicting(&pod.meta.uid);
        let class = tracked.class.as_ref()?;
        let same_class = self.class(old.shape).is_some_and(|c| c == class);
        if !runs || !same_class || !is_same(job, &old.pod, pod) {
            return None;
        }
        if job.gang.is_none() && state.priority_of(pod) != job.priority {
            return None;
        }
        let spot = self.spot_of(tracked)?;
        let row = PodRow {
            pod: pod.clone(),
            job: id,
            shape: old.shape,
            spot: None,
            counted: (0, 0),
            waiting: false,
            began: self.began(pod),
            saved: saved_at(pod),
            runtime_secs: crate::sched::backfill::runtime_secs(pod),
            left_alone: state.holds.is_left_alone(&pod.meta.uid),
            guard: state.budgets.guard_of(pod),
        };
        Some((row, spot))
    }
}

/// Nothing differs that a job is gathered from.
fn is_same(job: &JobRow, old: &Pod, new: &Pod) -> bool {
    let preemptible = |pod: &Pod| pod.meta.annotation(PREEMPTIBLE) != Some("false");
    old.meta.created == new.meta.created
        && old.meta.namespace == new.meta.namespace
        && old.meta.name == new.meta.name
        && old.meta.owners == new.meta.owners
        && old.priority == new.priority
        && old.priority_class == new.priority_class
        && old.never_preempts == new.never_preempts
        && old.group == new.group
        && match job.gang {
            // Its size and wish are read from its pods.
            Some(_) => old.meta.annotations == new.meta.annotations,
            None => preemptible(old) == preemptible(new),
        }
}
