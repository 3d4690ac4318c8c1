//! Policies that score nodes, and the memory of their scores.

use std::collections::BTreeMap;

use super::fleet::{Fleet, NodeRow};
use super::shape::{ModelSet, Shape};

/// Where a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Index of the node.
    pub node: usize,
    /// Devices of it, bit `i` for device `i`.
    pub devices: u16,
}

/// Says where pods go.
pub trait Policy {
    /// A pod of this shape has arrived and will be placed or rejected.
    fn arrived(&mut self, fleet: &Fleet, shape: &Shape);

    /// Where it goes; `None` when it fits nowhere. A pod that fits somewhere is placed.
    fn choose(&mut self, fleet: &Fleet, shape: &Shape) -> Option<Choice>;

    /// A pod has gone (`sign` 1) to a node or left (-1) it; the fleet shows it already.
    fn changed(&mut self, node: usize, shape: &Shape, sign: i64);
}

/// A node's best score for a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scored {
    /// The lowest wins; below `u64::MAX`.
    pub key: u64,
    /// The devices that it is for.
    pub devices: u16,
}

/// Scores a node by what it has left; what the pod's memory and model allow is seen to elsewhere.
pub trait Scorer {
    /// The score depends on the pod's and the node's memory.
    const SEES_MEMORY: bool = false;

    /// The score of a node that has room. `index` is its place in the fleet.
    fn score(
        &mut self,
        fleet: &Fleet,
        index: usize,
        row: &NodeRow,
        shape: &Shape,
    ) -> Option<Scored>;

    /// A pod has arrived; true when all scores have changed by that.
    fn arrived(&mut self, _fleet: &Fleet, _shape: &Shape) -> bool {
        false
    }

    /// A pod has gone to a node or left it.
    fn changed(&mut self, _fleet_node: usize, _shape: &Shape, _sign: i64) {}
}

/// Scores of one shape over all nodes.
struct Memory {
    version: u64,
    keys: Vec<u64>,
}

/// Takes the node with the lowest score, the first among equals.
pub(super) struct Chooser<S> {
    scorer: S,
    memories: BTreeMap<Shape, Memory>,
}

impl<S: Scorer> Chooser<S> {
    pub(super) fn new(scorer: S) -> Self {
        Self {
            scorer,
            memories: BTreeMap::new(),
        }
    }

    fn key(scorer: &mut S, fleet: &Fleet, index: usize, shape: &Shape) -> u64 {
        let Some(row) = fleet.rows().get(index).filter(|row| row.has_room(shape)) else {
            return u64::MAX;
        };
        scorer
            .score(fleet, index, row, shape)
            .map_or(u64::MAX, |scored| scored.key)
    }
}

impl<S: Scorer> Policy for Chooser<S> {
    fn arrived(&mut self, fleet: &Fleet, shape: &Shape) {
        if self.scorer.arrived(fleet, shape) {
            self.memories.clear();
        }
    }

    fn choose(&mut self, fleet: &Fleet, shape: &Shape) -> Option<Choice> {
        // Shapes that score alike share their memory.
        let alike = Shape {
            mem_mib: if S::SEES_MEMORY { shape.mem_mib } else { 0 },
            models: ModelSet::ANY,
            ..*shape
        };
        let scorer = &mut self.scorer;
        let memory = self.memories.entry(alike).or_insert_with(|| Memory {
            version: 0,
            keys: Vec::new(),
        });
        match fleet.changed_since(memory.version) {
            Some(changed) if memory.keys.len() == fleet.rows().len() => {
                for index in changed {
                    if let Some(key) = memory.keys.get_mut(index) {
                        *key = Self::key(scorer, fleet, index, &alike);
                    }
                }
            }
            _ => {
                memory.keys = (0..fleet.rows().len())
                    .map(|index| Self::key(scorer, fleet, index, &alike))
                    .collect();
            }
        }
        memory.version = fleet.version();
        let mut best: Option<(usize, u64)> = None;
        let mut least = u64::MAX;
        for (index, key) in memory.keys.iter().enumerate() {
            if *key < least
                && let Some(row) = fleet.rows().get(index)
                && row.accepts(shape)
            {
                least = *key;
                best = Some((index, *key));
            }
        }
        let (node, _) = best?;
        let row = fleet.rows().get(node)?;
        let scored = scorer.score(fleet, node, row, &alike)?;
        Some(Choice {
            node,
            devices: scored.devices,
        })
    }

    fn changed(&mut self, node: usize, shape: &Shape, sign: i64) {
        self.scorer.changed(node, shape, sign);
    }
}
