//! The tree of queues, checked: what makes no sense is a reason, not a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::faults::faults;
use super::{Asker, fill};
use crate::model::{Queue, QueuePreemption, QueueTerms, Str, Tier};

/// A part of a GPU: one GPU is [`GPU`] of them.
pub(in crate::sched) type Parts = i64;

/// Parts of one GPU: whole numbers for thousandths, sevenths and eighths.
pub(in crate::sched) const GPU: Parts = 84_000;

/// More parts than this of one pod, node or queue do not exist: sums of them stay exact whatever
/// a cluster states.
pub(in crate::sched) const MOST_PARTS: Parts = 1_000_000_000_000;

/// Thousandths of a GPU as parts.
pub(in crate::sched) fn of_milli_gpu(milli: i64) -> Parts {
    milli
        .saturating_mul(GPU / 1_000)
        .clamp(-MOST_PARTS, MOST_PARTS)
}

/// Parts as thousandths of a GPU, rounded up.
pub(in crate::sched) fn to_milli_gpu(parts: Parts) -> i64 {
    let milli = GPU / 1_000;
    parts / milli + i64::from(parts % milli > 0)
}

/// A queue's number in its tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::sched) struct QueueId(pub(in crate::sched) usize);

/// The whole cluster, above all queues.
pub(in crate::sched) const ROOT: QueueId = QueueId(0);

/// A kind of GPU that queues are due by themselves.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::sched) struct Pool {
    pub(in crate::sched) model: Option<Str>,
    pub(in crate::sched) tier: Option<Tier>,
}

impl Pool {
    /// Whether a node of this model and tier belongs to it.
    fn takes(&self, model: Option<&str>, tier: Option<Tier>) -> bool {
        self.model.as_deref().is_none_or(|m| model == Some(m))
            && self.tier.is_none_or(|t| tier == Some(t))
    }

    fn specificity(&self) -> u8 {
        2 * u8::from(self.model.is_some()) + u8::from(self.tier.is_some())
    }
}

/// What a queue is due in one pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::sched) struct Due {
    pub(in crate::sched) guaranteed: Parts,
    pub(in crate::sched) limit: Option<Parts>,
}

/// A queue in its place.
#[derive(Clone, Debug)]
pub(in crate::sched) struct QueueNode {
    pub(in crate::sched) name: Str,
    pub(in crate::sched) parent: QueueId,
    pub(in crate::sched) children: Vec<QueueId>,
    pub(in crate::sched) depth: u32,
    due: Vec<Due>,
    pub(in crate::sched) weight: i64,
    pub(in crate::sched) band: i32,
    pub(in crate::sched) preemption: QueuePreemption,
    /// As stated by it or by the nearest queue above that states it.
    pub(in crate::sched) min_runtime_secs: Option<i64>,
}

impl QueueNode {
    /// What it is due in a pool.
    pub(in crate::sched) fn due(&self, pool: usize) -> Due {
        self.due.get(pool).copied().unwrap_or_default()
    }
}

/// The tree, and what is wrong with the queues that are not in it.
#[derive(Clone, Debug)]
pub(in crate::sched) struct Tree {
    nodes: Vec<QueueNode>,
    pools: Vec<Pool>,
    by_namespace: BTreeMap<Str, QueueId>,
    by_name: BTreeMap<Str, QueueId>,
    /// Why the pods of a namespace wait.
    faulty_namespaces: BTreeMap<Str, Str>,
    /// What a namespace that no queue names never exceeds.
    quotas: BTreeMap<Str, Parts>,
    faults: BTreeMap<Str, Str>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree::new(&[], BTreeMap::new())
    }
}

impl Tree {
    /// Builds the tree of these queues; their order decides among equals. Namespaces without one
    /// are limited by `quotas`.
    pub(in crate::sched) fn new(queues: &[Arc<Queue>], quotas: BTreeMap<Str, Parts>) -> Self {
        let pools = pools(queues);
        let root = QueueNode {
            name: "cluster".into(),
            parent: ROOT,
            children: Vec::new(),
            depth: 0,
            due: vec![Due::default(); pools.len()],
            weight: 1,
            band: 0,
            preemption: QueuePreemption::default(),
            min_runtime_secs: None,
        };
        let mut tree = Tree {
            nodes: vec![root],
            pools,
            by_namespace: BTreeMap::new(),
            by_name: BTreeMap::new(),
            faulty_namespaces: BTreeMap::new(),
            quotas,
            faults: faults(queues),
        };
        let mut left: Vec<&Arc<Queue>> = queues
            .iter()
            .filter(|q| !tree.faults.contains_key(&q.meta.name))
            .collect();
        // Parents first; no cycle is left, so each turn adds at least one.
        while !left.is_empty() {
            let before = left.len();
            left.retain(|queue| !tree.add(queue));
            if left.len() == before {
                break;
            }
        }
        tree.serve_namespaces(queues);
        tree
    }

    fn add(&mut self, queue: &Queue) -> bool {
        let parent = match &queue.parent {
            None => ROOT,
            Some(name) => match self.by_name.get(name) {
                Some(id) => *id,
                None => return false,
            },
        };
        let due = self
            .pools
            .iter()
            .map(|pool| due_in(&queue.terms, pool))
            .collect();
        let id = self.push(QueueNode {
            name: queue.meta.name.clone(),
            parent,
            children: Vec::new(),
            depth: self.node(parent).depth + 1,
            due,
            weight: queue.weight,
            band: queue.band,
            preemption: queue.preemption,
            min_runtime_secs: queue
                .min_runtime_secs
                .map(|secs| secs.max(0))
                .or(self.node(parent).min_runtime_secs),
        });
        self.by_name.insert(queue.meta.name.clone(), id);
        true
    }

    fn push(&mut self, node: QueueNode) -> QueueId {
        let id = QueueId(self.nodes.len());
        if let Some(parent) = self.nodes.get_mut(node.parent.0) {
            parent.children.push(id);
        }
        self.nodes.push(node);
        id
    }

    /// Jobs live in leaves: an inner queue with namespaces of its own gets a leaf for them.
    fn serve_namespaces(&mut self, queues: &[Arc<Queue>]) {
        for queue in queues {
            let name = &queue.meta.name;
            if let Some(why) = self.faults.get(name) {
                for namespace in &queue.namespaces {
                    self.faulty_namespaces
                        .insert(namespace.clone(), format!("queue {name}: {why}").into());
                }
                continue;
            }
            let Some(id) = self.by_name.get(name).copied() else {
                continue;
            };
            if queue.namespaces.is_empty() {
                continue;
            }
            let leaf = if self.node(id).children.is_empty() {
                id
            } else {
                let node = QueueNode {
                    name: name.clone(),
                    parent: id,
                    children: Vec::new(),
                    due: vec![Due::default(); self.pools.len()],
                    depth: self.node(id).depth + 1,
                    ..self.node(id).clone()
                };
                self.push(node)
            };
            for namespace in &queue.namespaces {
                self.by_namespace.insert(namespace.clone(), leaf);
            }
        }
    }

    /// The queue of a namespace; one that no queue names is a queue of its own.
    pub(in crate::sched) fn of_namespace(&mut self, namespace: &Str) -> Result<QueueId, Str> {
        if let Some(id) = self.by_namespace.get(namespace) {
            return Ok(*id);
        }
        if let Some(why) = self.faulty_namespaces.get(namespace) {
            return Err(why.clone());
        }
        // The quota is one for all kinds of GPU: the server holds their sum within it.
        let due = Due {
            guaranteed: 0,
            limit: self.quotas.get(namespace).copied(),
        };
        let id = self.push(QueueNode {
            name: namespace.clone(),
            parent: ROOT,
            children: Vec::new(),
            depth: 1,
            due: vec![due; self.pools.len()],
            weight: 1,
            band: 0,
            preemption: QueuePreemption::default(),
            min_runtime_secs: None,
        });
        self.by_namespace.insert(namespace.clone(), id);
        Ok(id)
    }

    /// The namespace has a queue, or a faulty one.
    pub(in crate::sched) fn knows_namespace(&self, namespace: &str) -> bool {
        self.by_namespace.contains_key(namespace) || self.faulty_namespaces.contains_key(namespace)
    }

    /// The namespace is a queue by itself, or would be.
    pub(in crate::sched) fn is_of_its_own(&self, namespace: &str) -> bool {
        if self.faulty_namespaces.contains_key(namespace) {
            return false;
        }
        let id = self.by_namespace.get(namespace);
        id.is_none_or(|id| {
            let node = self.node(*id);
            *node.name == *namespace && !self.by_name.values().any(|named| named == id)
        })
    }

    /// A queue by its name.
    pub(in crate::sched) fn named(&self, name: &str) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

    /// The queue of a namespace that [`Tree::of_namespace`] was asked for before; else the cluster.
    pub(in crate::sched) fn known_namespace(&self, namespace: &str) -> Result<QueueId, Str> {
        match (
            self.by_namespace.get(namespace),
            self.faulty_namespaces.get(namespace),
        ) {
            (Some(id), _) => Ok(*id),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => Ok(ROOT),
        }
    }

    /// Why a queue is not in the tree.
    pub(in crate::sched) fn fault(&self, name: &str) -> Option<&str> {
        self.faults.get(name).map(|why| &**why)
    }

    /// Gives a queue another guarantee, and those above it at least as much.
    pub(in crate::sched) fn guarantee(&mut self, id: QueueId, pool: usize, parts: Parts) {
        let up: Vec<QueueId> = self.up(id).collect();
        for at in up {
            let due = self.nodes.get_mut(at.0).and_then(|n| n.due.get_mut(pool));
            if let Some(due) = due {
                due.guaranteed = due.guaranteed.max(parts);
            }
        }
    }

    /// All queues; the first is the cluster.
    pub(in crate::sched) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Kinds of GPU that are shared apart, the most particular first.
    pub(in crate::sched) fn pools(&self) -> usize {
        self.pools.len()
    }

    /// One of them.
    pub(in crate::sched) fn pool(&self, pool: usize) -> Option<&Pool> {
        self.pools.get(pool)
    }

    /// The pool of a node.
    pub(in crate::sched) fn pool_of(&self, model: Option<&str>, tier: Option<Tier>) -> usize {
        self.pools
            .iter()
            .position(|p| p.takes(model, tier))
            .unwrap_or(self.pools.len().saturating_sub(1))
    }

    /// A queue; the cluster for a number that is none.
    pub(in crate::sched) fn node(&self, id: QueueId) -> &QueueNode {
        self.nodes
            .get(id.0)
            .or(self.nodes.first())
            .unwrap_or(&NOWHERE)
    }

    /// The queue and all above it, without the cluster.
    pub(in crate::sched) fn up(&self, id: QueueId) -> impl Iterator<Item = QueueId> {
        let mut at = id;
        std::iter::from_fn(move || {
            if at == ROOT {
                return None;
            }
            let here = at;
            at = self.node(here).parent;
            Some(here)
        })
    }

    /// The two children of the common ancestor under which the queues lie; `None` when one queue
    /// is the other or above it.
    pub(in crate::sched) fn part(&self, a: QueueId, b: QueueId) -> Option<(QueueId, QueueId)> {
        let (mut a, mut b) = (a, b);
        while self.node(a).depth > self.node(b).depth {
            if self.node(a).parent == b {
                return None;
            }
            a = self.node(a).parent;
        }
        while self.node(b).depth > self.node(a).depth {
            if self.node(b).parent == a {
                return None;
            }
            b = self.node(b).parent;
        }
        if a == b {
            return None;
        }
        while self.node(a).parent != self.node(b).parent {
            a = self.node(a).parent;
            b = self.node(b).parent;
        }
        Some((a, b))
    }

    /// What each queue is due of `capacity` when they ask for `demand` (per queue, its own
    /// children not counted in): guarantees first, then what is left by band and weight.
    pub(in crate::sched) fn shares(
        &self,
        pool: usize,
        capacity: Parts,
        demand: &[Parts],
        weight: impl Fn(QueueId) -> i64,
    ) -> Vec<Parts> {
        let wanted = self.wanted(pool, demand);
        let mut share = vec![0; self.nodes.len()];
        put(&mut share, ROOT, capacity.max(0));
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            let children = &self.node(id).children;
            if children.is_empty() {
                continue;
            }
            let parts = self.divide(pool, at(&share, id), children, &wanted, &weight);
            for (child, part) in children.iter().zip(parts) {
                put(&mut share, *child, part);
                open.push(*child);
            }
        }
        share
    }

    /// What each queue asks for with all below it, not above its limit.
    fn wanted(&self, pool: usize, demand: &[Parts]) -> Vec<Parts> {
        let mut wanted = vec![0; self.nodes.len()];
        // Children have higher numbers than their parents.
        for at_ in (0..self.nodes.len()).rev() {
            let id = QueueId(at_);
            let sum = at(&wanted, id).saturating_add(demand.get(at_).copied().unwrap_or(0));
            let most = self.node(id).due(pool).limit.unwrap_or(Parts::MAX);
            let sum = sum.min(most).max(0);
            put(&mut wanted, id, sum);
            if id != ROOT {
                let parent = self.node(id).parent;
                let above = at(&wanted, parent).saturating_add(sum);
                put(&mut wanted, parent, above);
            }
        }
        wanted
    }

    fn divide(
        &self,
        pool: usize,
        amount: Parts,
        children: &[QueueId],
        wanted: &[Parts],
        weight: &impl Fn(QueueId) -> i64,
    ) -> Vec<Parts> {
        let firm: Vec<Asker> = children
            .iter()
            .map(|id| {
                let guaranteed = self.node(*id).due(pool).guaranteed;
                Asker {
                    weight: guaranteed,
                    cap: guaranteed.min(at(wanted, *id)),
                }
            })
            .collect();
        let mut parts = fill(amount, &firm);
        let mut left = amount - parts.iter().sum::<Parts>();
        let bands: BTreeSet<i32> = children.iter().map(|id| self.node(*id).band).collect();
        for band in bands.into_iter().rev() {
            let askers: Vec<Asker> = children
                .iter()
                .zip(&parts)
                .map(|(id, part)| Asker {
                    weight: if self.node(*id).band == band {
                        weight(*id)
                    } else {
                        0
                    },
                    cap: at(wanted, *id) - part,
                })
                .collect();
            for (part, more) in parts.iter_mut().zip(fill(left, &askers)) {
                *part += more;
                left -= more;
            }
        }
        parts
    }
}

static NOWHERE: std::sync::LazyLock<QueueNode> = std::sync::LazyLock::new(|| QueueNode {
    name: "".into(),
    parent: ROOT,
    children: Vec::new(),
    depth: 0,
    due: Vec::new(),
    weight: 0,
    band: 0,
    preemption: QueuePreemption::default(),
    min_runtime_secs: None,
});

fn at(list: &[Parts], id: QueueId) -> Parts {
    list.get(id.0).copied().unwrap_or(0)
}

fn put(list: &mut [Parts], id: QueueId, value: Parts) {
    if let Some(slot) = list.get_mut(id.0) {
        *slot = value;
    }
}

/// The kinds of GPU that some queue names, the most particular first, and the rest.
fn pools(queues: &[Arc<Queue>]) -> Vec<Pool> {
    let named: BTreeSet<Pool> = queues
        .iter()
        .flat_map(|q| q.terms.iter())
        .map(|t| Pool {
            model: t.model.clone(),
            tier: t.tier,
        })
        .chain([Pool::default()])
        .collect();
    let mut pools: Vec<Pool> = named.into_iter().collect();
    pools.sort_by_key(|p| std::cmp::Reverse(p.specificity()));
    pools
}

fn due_in(terms: &[QueueTerms], pool: &Pool) -> Due {
    terms
        .iter()
        .find(|t| t.model == pool.model && t.tier == pool.tier)
        .map_or_else(Due::default, |t| Due {
            guaranteed: of_milli_gpu(t.guaranteed_milli_gpu),
            limit: t.limit_milli_gpu.map(of_milli_gpu),
        })
}

#[cfg(test)]
mod tests;
