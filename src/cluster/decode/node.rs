//! core/v1 Node.

use jiff::Timestamp;

use super::amounts::Amounts;
use super::constraints::taint_effect;
use super::meta::MetaRead;
use super::read::{Ctx, Message, Word, object, quoted};
use crate::model::{Condition, Node, NodeGpus, Taint};

object! { TaintRead {
    key: Word = "key",
    value: Word = "value",
    effect: Word = "effect",
}}
object! { SpecRead {
    unschedulable: bool = "unschedulable",
    taints: Vec<TaintRead> = "taints",
}}
object! { ConditionRead {
    kind: Word = "type",
    status: Word = "status",
    reason: Word = "reason",
    message: Message = "message",
    changed: Option<Timestamp> = "lastTransitionTime",
}}
object! { InfoRead { kubelet: Word = "kubeletVersion" }}
object! { StatusRead {
    capacity: Amounts = "capacity",
    allocatable: Option<Amounts> = "allocatable",
    conditions: Vec<ConditionRead> = "conditions",
    info: InfoRead = "nodeInfo",
}}
object! { NodeRead {
    meta: MetaRead = "metadata",
    spec: SpecRead = "spec",
    status: Option<StatusRead> = "status",
}}

impl NodeRead {
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<Node, String> {
        if self.status.is_none() {
            ctx.note_at("status", "missing, so the node's capacity is not known");
        }
        let status = self.status.unwrap_or_default();
        let mut taints = Vec::with_capacity(self.spec.taints.len());
        for t in self.spec.taints {
            match taint_effect(&t.effect.0) {
                Some(effect) => taints.push(Taint {
                    key: t.key.0,
                    value: t.value.0,
                    effect,
                }),
                None => ctx.note_at(
                    "spec.taints",
                    format_args!("{} is no effect", quoted(&t.effect.0)),
                ),
            }
        }
        let mut conditions: Vec<Condition> = Vec::with_capacity(status.conditions.len());
        for c in status.conditions {
            let condition = Condition {
                kind: c.kind.0,
                status: match &*c.status.0 {
                    "True" => Some(true),
                    "False" => Some(false),
                    _ => None,
                },
                reason: c.reason.0,
                message: c.message.0,
                changed: c.changed,
            };
            match conditions.iter_mut().find(|k| k.kind == condition.kind) {
                Some(earlier) => {
                    ctx.note_at(
                        "status.conditions",
                        format_args!("{} is stated twice, the last one counts", condition.kind),
                    );
                    *earlier = condition;
                }
                None => conditions.push(condition),
            }
        }
        let capacity = status.capacity.clone().into_resources();
        // The API defaults allocatable to capacity.
        let allocatable = status
            .allocatable
            .map_or_else(|| capacity.clone(), Amounts::into_resources);
        let meta = self.meta.finish(ctx)?;
        Ok(Node {
            gpus: NodeGpus::from_labels(&meta, &capacity),
            meta,
            unschedulable: self.spec.unschedulable,
            taints: taints.into(),
            capacity,
            allocatable,
            conditions: conditions.into(),
            kubelet_version: status.info.kubelet.0,
        })
    }
}
