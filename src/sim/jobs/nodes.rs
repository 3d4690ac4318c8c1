//! A pool of equal nodes, and where a job goes in it.

/// Part of a job on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The node.
    pub node: usize,
    /// GPUs on it.
    pub gpus: u32,
}

/// A place that interruptions make, and who has to go for it.
pub(super) struct Room {
    /// Jobs to interrupt, each once.
    pub(super) victims: Vec<usize>,
    /// The place.
    pub(super) parts: Vec<Part>,
}

/// Nodes with the GPUs that are free on each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Nodes {
    free: Vec<u32>,
    per_node: u32,
    free_gpus: u32,
}

impl Nodes {
    /// `count` nodes of `per_node` GPUs, all free.
    pub(super) fn new(count: u32, per_node: u32) -> Self {
        Nodes {
            free: (0..count).map(|_| per_node).collect(),
            per_node,
            free_gpus: count * per_node,
        }
    }

    /// All GPUs.
    pub(super) fn gpus(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX) * self.per_node
    }

    /// GPUs of a node.
    pub(super) fn per_node(&self) -> u32 {
        self.per_node
    }

    /// Free GPUs.
    pub(super) fn free_gpus(&self) -> u32 {
        self.free_gpus
    }

    /// Free GPUs of one node.
    pub(super) fn free_on(&self, node: usize) -> u32 {
        self.free.get(node).copied().unwrap_or_default()
    }

    /// Nodes.
    pub(super) fn count(&self) -> usize {
        self.free.len()
    }

    /// Whole nodes and the rest that a job of this size needs.
    pub(super) fn shape(&self, gpus: u32) -> (u32, u32) {
        if gpus <= self.per_node {
            (0, gpus)
        } else {
            (gpus / self.per_node, gpus % self.per_node)
        }
    }

    /// Where a job fits now: the fullest node that takes it, or whole nodes and the fullest for the
    /// rest.
    pub(super) fn fit(&self, gpus: u32) -> Option<Vec<Part>> {
        if gpus > self.free_gpus {
            return None;
        }
        let (whole, rest) = self.shape(gpus);
        let mut parts = Vec::new();
        if whole > 0 {
            let empty = (0..self.free.len()).filter(|n| self.free_on(*n) == self.per_node);
            parts.extend(empty.take(whole as usize).map(|node| Part {
                node,
                gpus: self.per_node,
            }));
            if parts.len() < whole as usize {
                return None;
            }
        }
        if rest > 0 {
            let node = (0..self.free.len())
                .filter(|n| self.free_on(*n) >= rest && !parts.iter().any(|p| p.node == *n))
                .min_by_key(|n| self.free_on(*n))?;
            parts.push(Part { node, gpus: rest });
        }
        Some(parts)
    }

    /// The cheapest place for a job that interruptions can make: proven before the first of them.
    /// `clear` tells what it costs to have so many GPUs of a node free, and who goes for it.
    pub(super) fn cheapest_room(
        &self,
        gpus: u32,
        clear: impl Fn(usize, u32) -> Option<(u32, Vec<usize>)>,
    ) -> Option<Room> {
        let (whole, rest) = self.shape(gpus);
        let costs = |node: usize, gpus: u32| {
            let (cost, victims) = clear(node, gpus)?;
            Some((cost, node, victims))
        };
        let mut chosen: Vec<(u32, usize, Vec<usize>)> = Vec::new();
        if whole > 0 {
            let all = 0..self.count();
            chosen = all.filter_map(|node| costs(node, self.per_node)).collect();
            chosen.sort();
            chosen.truncate(whole as usize);
            if chosen.len() < whole as usize {
                return None;
            }
        }
        let whole_node = |node: &usize| Part {
            node: *node,
            gpus: self.per_node,
        };
        let mut parts: Vec<Part> = chosen.iter().map(|(_, node, _)| whole_node(node)).collect();
        if rest > 0 {
            let cheapest = (0..self.count())
                .filter(|node| !parts.iter().any(|p| p.node == *node))
                .filter_map(|node| costs(node, rest))
                .min()?;
            parts.push(Part {
                node: cheapest.1,
                gpus: rest,
            });
            chosen.push(cheapest);
        }
        let mut victims: Vec<usize> = chosen.into_iter().flat_map(|c| c.2).collect();
        victims.sort_unstable();
        victims.dedup();
        Some(Room { victims, parts })
    }

    /// Takes GPUs.
    pub(super) fn take(&mut self, parts: &[Part]) {
        for part in parts {
            if let Some(free) = self.free.get_mut(part.node) {
                debug_assert!(*free >= part.gpus, "a GPU is held once");
                *free = free.saturating_sub(part.gpus);
                self.free_gpus = self.free_gpus.saturating_sub(part.gpus);
            }
        }
    }

    /// Gives GPUs back.
    pub(super) fn give(&mut self, parts: &[Part]) {
        for part in parts {
            if let Some(free) = self.free.get_mut(part.node) {
                *free += part.gpus;
                debug_assert!(*free <= self.per_node, "a GPU is given back once");
                self.free_gpus += part.gpus;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_go_to_the_fullest_node_that_takes_them_and_large_ones_to_whole_nodes() {
        let mut nodes = Nodes::new(3, 8);
        nodes.take(&[Part { node: 1, gpus: 5 }]);
        assert_eq!(nodes.fit(3), Some(vec![Part { node: 1, gpus: 3 }]));
        assert_eq!(nodes.fit(4), Some(vec![Part { node: 0, gpus: 4 }]));
        let parts = nodes.fit(18).unwrap_or_default();
        let expected = [(0, 8), (2, 8), (1, 2)];
        assert_eq!(
            parts,
            expected.map(|(node, gpus)| Part { node, gpus }).to_vec()
        );
        assert_eq!(nodes.fit(20), None, "19 are free");
        nodes.take(&parts);
        assert_eq!(nodes.free_gpus(), 1);
        nodes.give(&parts);
        assert_eq!(nodes.free_gpus(), 19);
    }
}
