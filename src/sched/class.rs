//! Classes of pods that ask for the same: what holds for one holds for all of its class.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amounts::Ask;
use super::config::SchedConfig;
use super::gpus::{Cut, NodeGpus};
use super::needs::{Needs, Share};
use crate::model::{Constraints, GpuResource, Pod, Str};

/// A class. Numbers are not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ClassId(u64);

/// What the pods of a class ask.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Class {
    pub(super) ask: Ask,
    pub(super) constraints: Arc<Constraints>,
    /// Where its claims are looked up; empty for a class without claims.
    pub(super) namespace: Str,
    /// What its GPUs have to be.
    pub(super) needs: Needs,
}

impl Class {
    pub(super) fn of_pod(pod: &Pod, config: &SchedConfig) -> Self {
        Self {
            // A pod whose needs cannot be read is not placed.
            needs: Needs::of_pod(pod, config).unwrap_or_default(),
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
        self.ask.gpu()
    }

    /// Whole devices are all that it asks for.
    pub(super) fn is_whole(&self) -> bool {
        self.ask.is_whole()
    }

    /// Memory of the smallest device, slice or part of a device that a pod would get of these
    /// GPUs; `None` when it is not known.
    pub(super) fn smallest_part_mib(&self, gpus: &NodeGpus) -> Option<u32> {
        match self.ask.share {
            Share::Milli(milli) => {
                let part = u64::from(gpus.memory_mib?) * u64::from(milli) / 1000;
                return u32::try_from(part).ok();
            }
            // As much as it asks for is taken.
            Share::MemoryMib(mib) => return gpus.memory_mib.filter(|all| *all >= mib).or(Some(0)),
            Share::None => {}
        }
        let part = |key: &Str| match GpuResource::from_key(key)? {
            GpuResource::Mig(profile) => Some(gpus.slice_mib(&profile)),
            GpuResource::Whole if gpus.cut == Cut::Single => Some(gpus.single_mib),
            // Replicas of a device see all of its memory, but have no claim to more than a part.
            GpuResource::Whole | GpuResource::Shared => Some(match gpus.cut {
                Cut::Replicas(n) => gpus.memory_mib.map(|all| all / n.max(1)),
                _ => gpus.memory_mib,
            }),
        };
        let parts = self.ask.extended.iter().filter_map(|(key, _)| part(key));
        parts.min().flatten()
    }

    /// Order in which the members of a mixed gang are tried when their own order fails.
    pub(super) fn size(&self) -> (i64, i64, i64) {
        (
            match self.ask.share {
                Share::None => self.gpu().map_or(0, |(_, n)| n.saturating_mul(1000)),
                Share::Milli(milli) => i64::from(milli),
                Share::MemoryMib(_) => 500,
            },
            self.ask.cpu_milli,
            self.ask.mem_bytes,
        )
    }
}

/// Classes without waiting pods that are remembered, with what is known of them: the next pod of
/// a class often comes soon.
const IDLE: usize = 512;

/// A class's number and its waiting pods.
#[derive(Clone, Copy)]
struct Entry {
    id: ClassId,
    pods: usize,
    /// Since when it has none, in classes that lost their last pod.
    idle: u64,
}

/// The classes that some waiting pod belongs to, or did a short while ago.
#[derive(Clone, Default)]
pub(super) struct Classes {
    by_shape: BTreeMap<Arc<Class>, Entry>,
    by_id: BTreeMap<ClassId, Arc<Class>>,
    /// Classes without pods, the longest first.
    idle: BTreeMap<u64, ClassId>,
    next: u64,
}

impl Classes {
    /// The same class, shared with those who have it already.
    pub(super) fn shared(&self, class: Class) -> Arc<Class> {
        match self.by_shape.get_key_value(&class) {
            Some((known, _)) => known.clone(),
            None => Arc::new(class),
        }
    }

    /// Counts a waiting pod in and tells the number of its class.
    pub(super) fn enter(&mut self, class: &Arc<Class>) -> ClassId {
        if let Some(entry) = self.by_shape.get_mut(class) {
            if entry.pods == 0 {
                self.idle.remove(&entry.idle);
            }
            entry.pods += 1;
            return entry.id;
        }
        self.next += 1;
        let id = ClassId(self.next);
        self.by_id.insert(id, class.clone());
        let entry = Entry {
            id,
            pods: 1,
            idle: 0,
        };
        self.by_shape.insert(class.clone(), entry);
        id
    }

    /// Counts a pod out; tells a class that is forgotten by that.
    pub(super) fn leave(&mut self, id: ClassId) -> Option<ClassId> {
        let entry = self.by_shape.get_mut(self.by_id.get(&id)?)?;
        entry.pods -= 1;
        if entry.pods > 0 {
            return None;
        }
        self.next += 1;
        entry.idle = self.next;
        self.idle.insert(self.next, id);
        if self.idle.len() <= IDLE {
            return None;
        }
        let (_, oldest) = self.idle.pop_first()?;
        let class = self.by_id.remove(&oldest)?;
        self.by_shape.remove(&class);
        Some(oldest)
    }

    pub(super) fn get(&self, id: ClassId) -> Option<&Arc<Class>> {
        self.by_id.get(&id)
    }
}
