//! Queues: who may use how much, and who pays when somebody below its guarantee asks.
//!
//! Source: the project's own `gpudeck.dev/v1alpha1` GpuQueue (deploy/crds/gpuqueue.yaml).

use jiff::{SignedDuration, Timestamp};

use super::foreign::{Admitter, AdmitterQueue, QueueKey, QueueState, QueueTerm};
use super::gpu::GpuResource;
use super::meta::{Meta, ResourceVersion};
use super::text::Str;
use super::tier::Tier;

/// `spec.schedulerName` of the pods that our scheduler places.
pub const OUR_SCHEDULER: &str = "gpudeck";

/// Kind of our queues.
pub const QUEUE_KIND: &str = "GpuQueue";

/// From whom a queue may take back what others hold above their due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum ReclaimFrom {
    /// From nobody.
    Never,
    /// From jobs of strictly lower priority.
    LowerPriority,
    /// From any priority.
    #[default]
    Any,
}

/// Whom a queue's jobs may displace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueuePreemption {
    /// Across queues.
    pub reclaim: ReclaimFrom,
    /// Strictly lower priorities of the same queue.
    pub within_queue: bool,
    /// Above its guarantee it may still displace work of other queues up to this priority.
    pub borrow_up_to_priority: Option<i32>,
}

impl Default for QueuePreemption {
    fn default() -> Self {
        Self {
            reclaim: ReclaimFrom::Any,
            within_queue: true,
            borrow_up_to_priority: None,
        }
    }
}

/// What a queue is due of one kind of GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueTerms {
    /// Short name of the GPU model (`H100-80`); `None` means every model.
    pub model: Option<Str>,
    /// Tier of the nodes; `None` means every tier.
    pub tier: Option<Tier>,
    /// What it gets whenever it asks, in thousandths of a GPU.
    pub guaranteed_milli_gpu: i64,
    /// What it never exceeds; `None` means no limit.
    pub limit_milli_gpu: Option<i64>,
}

/// What a queue uses of one kind of GPU with all below it, as the scheduler counts it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueUse {
    /// Short name of the GPU model; `None`: of every model that no queue names.
    pub model: Option<Str>,
    /// Tier of the nodes; `None`: of every tier that no queue names.
    pub tier: Option<Tier>,
    /// What its work holds, in thousandths of a GPU.
    pub used_milli_gpu: i64,
    /// What its waiting work asks for.
    pub waiting_milli_gpu: i64,
    /// What it is due now, by guarantees and weights.
    pub share_milli_gpu: i64,
}

/// What the scheduler tells of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueStatus {
    /// What it uses, an entry a kind of GPU.
    pub gpus: Box<[QueueUse]>,
    /// Jobs of it and of all below it that run.
    pub running_jobs: u32,
    /// Jobs of it and of all below it that wait.
    pub waiting_jobs: u32,
    /// Why it cannot be used.
    pub fault: Option<Str>,
    /// Since when it can be used, or cannot.
    pub since: Option<Timestamp>,
}

/// A GpuQueue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Identity; cluster-scoped.
    pub meta: Meta,
    /// The queue above, by name.
    pub parent: Option<Str>,
    /// Namespaces whose pods belong to it.
    pub namespaces: Box<[Str]>,
    /// What it is due, one entry a kind of GPU.
    pub terms: Box<[QueueTerms]>,
    /// Share of what is left above the guarantees; 0 takes none of it.
    pub weight: i64,
    /// Queues of a higher band are served from what is left before those of a lower one.
    pub band: i32,
    /// Whom its jobs may displace.
    pub preemption: QueuePreemption,
    /// Seconds for which its running jobs are left alone after their start; `None`: as the queue
    /// above says, else the scheduler's setting.
    pub min_runtime_secs: Option<i64>,
    /// What the scheduler has told of it; `None`: nothing yet.
    pub status: Option<QueueStatus>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            meta: Meta::default(),
            parent: None,
            namespaces: Box::default(),
            terms: Box::default(),
            weight: 1,
            band: 0,
            preemption: QueuePreemption::default(),
            min_runtime_secs: None,
            status: None,
        }
    }
}

impl Queue {
    /// All but its status and what the server changes with it is the same.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let bare = |q: &Self| Queue {
            meta: Meta {
                resource_version: ResourceVersion::default(),
                labels: Box::default(),
                annotations: Box::default(),
                ..q.meta.clone()
            },
            status: None,
            ..q.clone()
        };
        bare(self) == bare(other)
    }

    /// Its identity in the table of all systems' queues.
    pub fn key(name: &Str) -> QueueKey {
        QueueKey {
            admitter: Admitter::Gpudeck,
            kind: QUEUE_KIND.into(),
            namespace: Str::default(),
            name: name.clone(),
        }
    }

    /// As a row of that table.
    pub fn as_admitter_queue(&self) -> AdmitterQueue {
        let status = self.status.as_ref();
        let mut unread = self.meta.unreadable.iter();
        let fault = match unread.find(|note| !note.starts_with("status")) {
            Some(first) => Some(format!("not all of it could be read: {first}").into()),
            None => status.and_then(|s| s.fault.clone()),
        };
        AdmitterQueue {
            parent: self.parent.as_ref().map(Queue::key),
            terms: self.shown_terms(),
            weight_milli: Some(self.weight.saturating_mul(1_000)),
            priority: Some(self.band),
            state: match fault {
                Some(_) => QueueState::Broken,
                None => QueueState::Open,
            },
            why: fault,
            pending: status.map(|s| s.waiting_jobs),
            running: status.map(|s| s.running_jobs),
            namespaces: self.namespaces.clone(),
            notes: self.notes().into(),
            ..AdmitterQueue::new(Queue::key(&self.meta.name))
        }
    }

    /// What it is due, with what it uses of that; and what it uses without being due it.
    fn shown_terms(&self) -> Box<[QueueTerm]> {
        let uses = self.status.as_ref().map(|s| &*s.gpus);
        let flavor = |model: &Option<Str>, tier: Option<Tier>| -> Option<Str> {
            let parts = [model.as_deref(), tier.map(Tier::name)];
            let words: Vec<&str> = parts.into_iter().flatten().collect();
            (!words.is_empty()).then(|| words.join(" ").into())
        };
        let mut terms: Vec<QueueTerm> = Vec::new();
        for term in &self.terms {
            let of = |u: &&QueueUse| u.model == term.model && u.tier == term.tier;
            let used = uses.and_then(|all| all.iter().find(of));
            terms.push(QueueTerm {
                flavor: flavor(&term.model, term.tier),
                resource: GpuResource::Whole,
                guaranteed_milli: Some(term.guaranteed_milli_gpu),
                kept_milli: None,
                limit_milli: term.limit_milli_gpu,
                used_milli: uses.map(|_| used.map_or(0, |u| u.used_milli_gpu)),
            });
        }
        for used in uses.into_iter().flatten() {
            let due = |t: &QueueTerms| t.model == used.model && t.tier == used.tier;
            if !self.terms.iter().any(due) && (used.used_milli_gpu > 0 || self.terms.is_empty()) {
                terms.push(QueueTerm {
                    flavor: flavor(&used.model, used.tier),
                    resource: GpuResource::Whole,
                    guaranteed_milli: None,
                    kept_milli: None,
                    limit_milli: None,
                    used_milli: Some(used.used_milli_gpu),
                });
            }
        }
        terms.into()
    }

    fn notes(&self) -> Vec<Str> {
        let mut notes: Vec<Str> = Vec::new();
        if self.namespaces.is_empty() {
            notes.push("no namespace is in it, only queues".into());
        } else {
            notes.push(format!("namespaces {}", self.namespaces.join(", ")).into());
        }
        let reclaim = match self.preemption.reclaim {
            ReclaimFrom::Any => "takes back what others hold above their due",
            ReclaimFrom::LowerPriority => {
                "takes back from lower priority what others hold above their due"
            }
            ReclaimFrom::Never => "takes nothing back from others",
        };
        notes.push(reclaim.into());
        if !self.preemption.within_queue {
            notes.push("its jobs displace none of their own queue".into());
        }
        if let Some(most) = self.preemption.borrow_up_to_priority {
            notes.push(format!("above its due it displaces others up to priority {most}").into());
        }
        if let Some(secs) = self.min_runtime_secs {
            let time = SignedDuration::from_secs(secs);
            notes.push(format!("its work is left alone for {time:#} after its start").into());
        }
        if let Some(status) = &self.status {
            let shares = status.gpus.iter().map(|u| u.share_milli_gpu);
            let gpus = super::decision::gpus(shares.fold(0, i64::saturating_add));
            notes.push(format!("due {gpus} GPUs now, by guarantees and weights").into());
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn queue() -> Queue {
        Queue {
            meta: Meta {
                name: "vision".into(),
                ..Meta::default()
            },
            terms: [QueueTerms {
                model: Some("H200".into()),
                tier: Some(Tier::Reserved),
                guaranteed_milli_gpu: 8_000,
                limit_milli_gpu: Some(16_000),
            }]
            .into(),
            ..Queue::default()
        }
    }

    fn status() -> QueueStatus {
        let used = |model: Option<&str>, tier, used_milli_gpu| QueueUse {
            model: model.map(Into::into),
            tier,
            used_milli_gpu,
            waiting_milli_gpu: 0,
            share_milli_gpu: 9_500,
        };
        QueueStatus {
            gpus: [
                used(Some("H200"), Some(Tier::Reserved), 12_000),
                used(None, None, 500),
            ]
            .into(),
            running_jobs: 2,
            waiting_jobs: 1,
            fault: None,
            since: None,
        }
    }

    #[test]
    fn what_nobody_has_counted_is_not_known() {
        let row = queue().as_admitter_queue();
        assert_eq!(row.terms.len(), 1);
        assert_eq!(row.terms[0].used_milli, None);
        assert_eq!((row.pending, row.state), (None, QueueState::Open));
    }

    #[test]
    fn the_scheduler_tells_what_is_used() {
        let told = Queue {
            status: Some(status()),
            ..queue()
        };
        let row = told.as_admitter_queue();
        let terms: Vec<_> = row
            .terms
            .iter()
            .map(|t| (t.flavor.as_deref(), t.guaranteed_milli, t.used_milli))
            .collect();
        assert_eq!(
            terms,
            [
                (Some("H200 reserved"), Some(8_000), Some(12_000)),
                (None, None, Some(500)),
            ]
        );
        assert_eq!((row.running, row.pending), (Some(2), Some(1)));
        let due = row.notes.iter().any(|n| n.contains("due 19 GPUs"));
        assert!(due, "{:?}", row.notes);
        assert!(told.says_the_same(&queue()), "a status decides nothing");
        let other = Queue {
            weight: 2,
            ..queue()
        };
        assert!(!told.says_the_same(&other));
    }

    #[test]
    fn a_queue_that_cannot_be_used_says_why() {
        let broken = Queue {
            status: Some(QueueStatus {
                fault: Some("its parent x does not exist".into()),
                ..QueueStatus::default()
            }),
            ..queue()
        };
        let row = broken.as_admitter_queue();
        assert_eq!(row.state, QueueState::Broken);
        assert_eq!(row.why.as_deref(), Some("its parent x does not exist"));
    }
}
