//! `metadata`.

use jiff::Timestamp;
use serde::de::MapAccess;

use super::RowMeta;
use super::read::{Ctx, Pairs, Read, Unique, Word, object, read_pairs};
use crate::model::{Meta, Owner, ResourceVersion, Str, Uid};

/// Annotations that are kept besides `gpudeck.dev/*`; a ConfigMap's worth of others is not.
const KEPT: [&str; 24] = [
    "batch.kubernetes.io/job-completion-index",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "cordonReason",
    "gang.scheduling.koordinator.sh/min-available",
    "gang.scheduling.koordinator.sh/name",
    "gpu-fraction",
    "gpu-fraction-num-devices",
    "gpu-memory",
    "karpenter.sh/do-not-disrupt",
    "karpenter.sh/nodeclaim-termination-timestamp",
    "kueue.x-k8s.io/pod-group-total-count",
    "kueue.x-k8s.io/workload",
    "kwok.x-k8s.io/node",
    "leaderworkerset.sigs.k8s.io/size",
    "node.gke.io/machine-termination-datetime",
    "pod-group-name",
    "received-resource-type",
    "run.ai/reserve_for_gpu_index",
    "sandbox.gpudeck.dev/usd-per-gpu-hour",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-min-member",
    "scheduling.volcano.sh/group-name",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
];

fn is_kept(key: &str) -> bool {
    key.starts_with("gpudeck.dev/") || KEPT.binary_search(&key).is_ok()
}

#[derive(Default)]
pub(super) struct Annotations(Box<[(Str, Str)]>);

impl<'de> Read<'de> for Annotations {
    const WANTED: &'static str = "an object of texts";
    fn map<A: MapAccess<'de>>(&mut self, access: A, ctx: &mut Ctx<'_>) -> Result<bool, A::Error> {
        self.0 = read_pairs(access, ctx, is_kept)?;
        Ok(true)
    }
}

object! { OwnerRead {
    kind: Word = "kind",
    name: Word = "name",
    uid: Word = "uid",
    controller: bool = "controller",
}}

object! { MetaRead {
    name: Unique = "name",
    namespace: Word = "namespace",
    uid: Unique = "uid",
    resource_version: Unique = "resourceVersion",
    created: Option<Timestamp> = "creationTimestamp",
    deleting: Option<Timestamp> = "deletionTimestamp",
    labels: Pairs = "labels",
    annotations: Annotations = "annotations",
    owners: Vec<OwnerRead> = "ownerReferences",
}}

object! {
    /// An object of which only the identity is read.
    AnyRead { meta: MetaRead = "metadata" }
}

impl MetaRead {
    /// Name, namespace and age alone.
    pub(super) fn row(self, ctx: &mut Ctx<'_>) -> Result<RowMeta, String> {
        if self.name.0.is_empty() {
            return Err("an object without a name".to_owned());
        }
        Ok(RowMeta {
            namespace: self.namespace.0,
            name: self.name.0,
            created: self.created,
            unreadable: ctx.take_notes(),
        })
    }

    /// The model's form, with the notes taken so far. `Err` says why it has no identity.
    pub(super) fn finish(self, ctx: &mut Ctx<'_>) -> Result<Meta, String> {
        if self.name.0.is_empty() {
            return Err("an object without a name".to_owned());
        }
        if self.uid.0.is_empty() {
            return Err(if self.namespace.0.is_empty() {
                format!("{} has no UID", self.name.0)
            } else {
                format!("{}/{} has no UID", self.namespace.0, self.name.0)
            });
        }
        Ok(Meta {
            uid: Uid(self.uid.0),
            name: self.name.0,
            namespace: self.namespace.0,
            resource_version: ResourceVersion(self.resource_version.0),
            labels: self.labels.0,
            annotations: self.annotations.0,
            created: self.created,
            deleting: self.deleting,
            owners: self
                .owners
                .into_iter()
                .filter(|o| !o.uid.0.is_empty())
                .map(|o| Owner {
                    kind: o.kind.0,
                    name: o.name.0,
                    uid: Uid(o.uid.0),
                    controller: o.controller,
                })
                .collect(),
            unreadable: ctx.take_notes(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_annotations_are_sorted_for_the_search() {
        assert!(KEPT.is_sorted());
        assert!(is_kept("gpudeck.dev/milli-gpu") && is_kept("gpu-fraction"));
        assert!(!is_kept("kubectl.kubernetes.io/last-applied-configuration"));
    }
}
