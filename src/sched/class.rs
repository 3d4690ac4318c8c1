//! Classes of pods that ask for the same: what holds for one holds for all of its class.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amounts::Ask;
use crate::model::{Constraints, GpuResource, Pod, Str};

/// A class. Numbers are not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ClassId(u64);

/// What the pods of a class ask.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class {
    pub(super) ask: Ask,
    pub(super) constraints: Arc<Constraints>,
    /// Where its claims are looked up; empty for a class without claims.
    pub(super) namespace: Str,
}

impl Class {
    fn of_pod(pod: &Pod) -> Self {
        Self {
            ask: Ask::of_pod(pod),
            constraints: pod.constraints.clone(),
            namespace: if pod.constraints.claims.is_empty() {
                "".into()
            } else {
                pod.meta.namespace.clone()
            },
        }
    }

    /// The first kind of GPU that it asks for.
    pub(super) fn gpu(&self) -> Option<(&Str, i64)> {
        self.ask
            .extended
            .iter()
            .find(|(key, _)| GpuResource::from_key(key).is_some())
            .map(|(key, n)| (key, *n))
    }

    /// Order in which the members of a mixed gang are tried when their own order fails.
    pub(super) fn size(&self) -> (i64, i64, i64) {
        (
            self.gpu().map_or(0, |(_, n)| n),
            self.ask.cpu_milli,
            self.ask.mem_bytes,
        )
    }
}

/// The classes that some waiting pod belongs to.
#[derive(Clone, Default)]
pub(super) struct Classes {
    by_shape: BTreeMap<Arc<Class>, (ClassId, usize)>,
    by_id: BTreeMap<ClassId, Arc<Class>>,
    next: u64,
}

impl Classes {
    /// Counts a waiting pod in and tells its class.
    pub(super) fn enter(&mut self, pod: &Pod) -> ClassId {
        let class = Class::of_pod(pod);
        if let Some((id, pods)) = self.by_shape.get_mut(&class) {
            *pods += 1;
            return *id;
        }
        let id = ClassId(self.next);
        self.next += 1;
        let class = Arc::new(class);
        self.by_id.insert(id, class.clone());
        self.by_shape.insert(class, (id, 1));
        id
    }

    /// Counts a pod out; true when it was the last of its class.
    pub(super) fn leave(&mut self, id: ClassId) -> bool {
        let Some(class) = self.by_id.get(&id).cloned() else {
            return false;
        };
        let Some((_, pods)) = self.by_shape.get_mut(&class) else {
            return false;
        };
        *pods -= 1;
        let last = *pods == 0;
        if last {
            self.by_shape.remove(&class);
            self.by_id.remove(&id);
        }
        last
    }

    pub(super) fn get(&self, id: ClassId) -> Option<&Arc<Class>> {
        self.by_id.get(&id)
    }
}
