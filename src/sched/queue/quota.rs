//! ResourceQuotas on whole GPUs: the limit of a namespace that no GpuQueue names.

use std::collections::BTreeMap;

use super::{Parts, of_milli_gpu};
use crate::model::{Foreign, GpuResource, Str, Uid};

/// What quotas say, by quota.
#[derive(Clone, Debug, Default)]
pub(in crate::sched) struct Quotas(BTreeMap<Uid, (Str, i64)>);

impl Quotas {
    /// Takes a quota in; the namespace whose limit it changes. One that counts only some of the
    /// pods limits no queue.
    pub(in crate::sched) fn set(&mut self, quota: &Foreign) -> Option<Str> {
        let terms = quota.queue().into_iter().flat_map(|q| &q.terms);
        let hard = terms
            .filter(|t| t.resource == GpuResource::Whole && t.flavor.is_none())
            .filter_map(|t| t.limit_milli)
            .min();
        let Some(milli) = hard else {
            return self.remove(&quota.meta.uid);
        };
        let entry = (quota.meta.namespace.clone(), milli);
        let before = self.0.insert(quota.meta.uid.clone(), entry.clone());
        (before.as_ref() != Some(&entry)).then_some(entry.0)
    }

    /// A quota is gone.
    pub(in crate::sched) fn remove(&mut self, quota: &Uid) -> Option<Str> {
        self.0.remove(quota).map(|(namespace, _)| namespace)
    }

    /// The least of each namespace.
    pub(in crate::sched) fn limits(&self) -> BTreeMap<Str, Parts> {
        let mut limits: BTreeMap<Str, Parts> = BTreeMap::new();
        for (namespace, milli) in self.0.values() {
            let parts = of_milli_gpu(*milli).max(0);
            limits
                .entry(namespace.clone())
                .and_modify(|least| *least = parts.min(*least))
                .or_insert(parts);
        }
        limits
    }
}
