//! GpuQueues (`gpudeck.dev/v1alpha1`).

use jiff::Timestamp;

use super::amounts::Amount;
use super::meta::MetaRead;
use super::read::{Ctx, Message, Word, object, quoted};
use crate::model::{
    Queue, QueuePreemption, QueueStatus, QueueTerms, QueueUse, ReclaimFrom, Str, Tier,
};

/// The condition that says whether the scheduler can use a queue.
pub(in crate::cluster) const READY: &str = "Ready";

object! { TermsRead {
    model: Word = "model",
    tier: Word = "tier",
    guaranteed: Option<Amount> = "guaranteed",
    limit: Option<Amount> = "limit",
}}
object! { PreemptionRead {
    reclaim: Word = "reclaim",
    within_queue: Word = "withinQueue",
    borrow: Option<i32> = "borrowUpToPriority",
    min_runtime: Option<u32> = "minRuntimeSeconds",
}}
object! { QueueSpecRead {
    parent: Word = "parent",
    namespaces: Vec<Word> = "namespaces",
    weight: Option<i32> = "weight",
    band: i32 = "band",
    gpus: Vec<TermsRead> = "gpus",
    preemption: PreemptionRead = "preemption",
}}
object! { UseRead {
    model: Word = "model",
    tier: Word = "tier",
    allocated: Amount = "allocated",
    pending: Amount = "pending",
    share: Amount = "share",
}}
object! { JobsRead {
    running: u32 = "running",
    waiting: u32 = "waiting",
}}
object! { ConditionRead {
    kind: Word = "type",
    status: Word = "status",
    message: Message = "message",
    since: Option<Timestamp> = "lastTransitionTime",
}}
object! { QueueStatusRead {
    gpus: Vec<UseRead> = "gpus",
    jobs: JobsRead = "jobs",
    conditions: Vec<ConditionRead> = "conditions",
}}
object! { QueueRead {
    meta: MetaRead = "metadata",
    spec: QueueSpecRead = "spec",
    status: Option<QueueStatusRead> = "status",
}}

impl QueueStatusRead {
    /// `None`: no scheduler has told it yet.
    fn finish(self) -> Option<QueueStatus> {
        let ready = self.conditions.into_iter().find(|c| &*c.kind.0 == READY)?;
        let gpus = self.gpus.into_iter().map(|read| QueueUse {
            tier: stated(read.tier).as_deref().and_then(Tier::from_name),
            model: stated(read.model),
            used_milli_gpu: read.allocated.0.milli(),
            waiting_milli_gpu: read.pending.0.milli(),
            share_milli_gpu: read.share.0.milli(),
        });
        Some(QueueStatus {
            gpus: gpus.collect(),
            running_jobs: self.jobs.running,
            waiting_jobs: self.jobs.waiting,
            fault: (&*ready.status.0 != "True").then_some(ready.message.0),
            since: ready.since,
        })
    }
}

fn stated(word: Word) -> Option<Str> {
    Some(word.0).filter(|w| !w.is_empty())
}

impl QueueRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<Queue, String> {
        let spec = self.spec;
        let reclaim = match &*spec.preemption.reclaim.0 {
            "" | "Any" => ReclaimFrom::Any,
            "LowerPriority" => ReclaimFrom::LowerPriority,
            "Never" => ReclaimFrom::Never,
            other => {
                ctx.note_at(
                    "spec.preemption.reclaim",
                    format_args!("{} is none of Never, LowerPriority, Any", quoted(other)),
                );
                ReclaimFrom::Never
            }
        };
        let within_queue = match &*spec.preemption.within_queue.0 {
            "" | "LowerPriority" => true,
            "Never" => false,
            other => {
                ctx.note_at(
                    "spec.preemption.withinQueue",
                    format_args!("{} is none of Never, LowerPriority", quoted(other)),
                );
                false
            }
        };
        let mut terms = Vec::with_capacity(spec.gpus.len());
        for read in spec.gpus {
            let tier = stated(read.tier);
            let known = tier.as_deref().and_then(Tier::from_name);
            if let (Some(tier), None) = (&tier, known) {
                ctx.note_at(
                    "spec.gpus.tier",
                    format_args!("{} is no tier", quoted(tier)),
                );
            }
            terms.push(QueueTerms {
                model: stated(read.model),
                tier: known,
                guaranteed_milli_gpu: read.guaranteed.map_or(0, |a| a.0.milli()),
                limit_milli_gpu: read.limit.map(|a| a.0.milli()),
            });
        }
        Ok(Queue {
            parent: stated(spec.parent),
            namespaces: spec.namespaces.into_iter().filter_map(stated).collect(),
            terms: terms.into(),
            weight: i64::from(spec.weight.unwrap_or(1)),
            band: spec.band,
            preemption: QueuePreemption {
                reclaim,
                within_queue,
                borrow_up_to_priority: spec.preemption.borrow,
            },
            min_runtime_secs: spec.preemption.min_runtime.map(i64::from),
            status: self.status.and_then(QueueStatusRead::finish),
            // Last: it takes the notes.
            meta: self.meta.finish(ctx)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use crate::cluster::decode::{Decoder, Object};
    use crate::model::{Kind, Queue, ReclaimFrom, Tier};

    fn read(spec: &str) -> Queue {
        let json = format!(r#"{{"metadata": {{"name": "q", "uid": "u"}}, "spec": {spec}}}"#);
        match Decoder::new().decode(Kind::GpuQueue, &json).unwrap() {
            Object::Queue(queue) => (*queue).clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_queue_is_read() {
        let q = read(
            r#"{"parent": "research", "namespaces": ["nlp", "vision"], "weight": 3, "band": 2,
            "gpus": [{"guaranteed": 8, "limit": "16"},
                     {"model": "H100-80", "tier": "reserved", "guaranteed": "500m"}],
            "preemption": {"reclaim": "LowerPriority", "withinQueue": "Never",
                           "borrowUpToPriority": 5, "minRuntimeSeconds": 600}}"#,
        );
        assert_eq!(q.parent.as_deref(), Some("research"));
        assert_eq!((q.namespaces.len(), q.weight, q.band), (2, 3, 2));
        let [all, h100] = &*q.terms else {
            panic!("{:?}", q.terms)
        };
        assert_eq!(
            (all.guaranteed_milli_gpu, all.limit_milli_gpu),
            (8_000, Some(16_000))
        );
        assert_eq!(
            (h100.guaranteed_milli_gpu, h100.limit_milli_gpu),
            (500, None)
        );
        assert_eq!(
            (h100.model.as_deref(), h100.tier),
            (Some("H100-80"), Some(Tier::Reserved))
        );
        assert_eq!(q.preemption.reclaim, ReclaimFrom::LowerPriority);
        assert!(!q.preemption.within_queue && q.meta.unreadable.is_empty());
        assert_eq!(q.min_runtime_secs, Some(600));
    }

    #[test]
    fn what_the_scheduler_told_is_read() {
        let json = r#"{"metadata": {"name": "q", "uid": "u"}, "spec": {},
            "status": {"allocated": "2500m", "pending": 8, "share": "4",
                "gpus": [{"tier": "spot", "allocated": "2500m", "pending": 8, "share": "4"}],
                "jobs": {"running": 3, "waiting": 1},
                "conditions": [{"type": "Ready", "status": "False", "reason": "Invalid",
                    "message": "it is below itself",
                    "lastTransitionTime": "2026-11-30T12:00:00Z"}]}}"#;
        let Object::Queue(q) = Decoder::new().decode(Kind::GpuQueue, json).unwrap() else {
            panic!("no queue")
        };
        let status = q.status.as_ref().unwrap();
        assert_eq!((status.running_jobs, status.waiting_jobs), (3, 1));
        assert_eq!(status.fault.as_deref(), Some("it is below itself"));
        assert!(status.since.is_some());
        let [one] = &*status.gpus else {
            panic!("{:?}", status.gpus)
        };
        let amounts = (
            one.used_milli_gpu,
            one.waiting_milli_gpu,
            one.share_milli_gpu,
        );
        assert_eq!(
            (amounts, one.tier),
            ((2_500, 8_000, 4_000), Some(Tier::Spot))
        );
        assert_eq!(read("{}").status, None);
    }

    #[test]
    fn what_makes_no_sense_is_noted() {
        let q = read(
            r#"{"weight": "many", "gpus": [{"tier": "gold", "guaranteed": "x"}],
            "preemption": {"reclaim": "Always"}}"#,
        );
        let notes = q.meta.unreadable.join("\n");
        for words in [
            "spec.weight",
            "\"gold\" is no tier",
            "guaranteed",
            "\"Always\" is none of",
        ] {
            assert!(notes.contains(words), "{words}: {notes}");
        }
        let empty = read("{}");
        assert_eq!((empty.weight, empty.terms.len()), (1, 0));
        assert_eq!(empty.min_runtime_secs, None);
    }
}
