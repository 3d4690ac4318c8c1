//! Brings the picture's nodes up to date: what each has left, its pool, and whom it lets in.

use super::shape::parts_of;
use super::tables::Counted;
use super::world::World;
use crate::model::{GpuModel, GpuResource, Resources};
use crate::sched::filters::judge_node;
use crate::sched::needs::Share;
use crate::sched::queue::{GPU, MOST_PARTS, Parts};
use crate::sched::slot::Slot;
use crate::sched::view::RowId;

impl World<'_> {
    /// Rows that changed since the tables were kept.
    pub(super) fn follow_rows(&mut self) {
        let state = self.state;
        let all = state.rows.slots.len();
        let changed = self.t.seen.rows.and_then(|v| state.rows.changed_since(v));
        let (mut slots, mut nodes): (Vec<RowId>, Vec<RowId>) = (Vec::new(), Vec::new());
        match changed {
            Some(list) => {
                for (row, node) in list {
                    slots.push(row);
                    if node {
                        nodes.push(row);
                    }
                }
                let known = self.t.slots.len();
                nodes.extend((known..all).map(RowId));
                slots.extend((known..all).map(RowId));
            }
            None => {
                slots = (0..all).map(RowId).collect();
                nodes.clone_from(&slots);
            }
        }
        for list in [&mut slots, &mut nodes] {
            list.sort_unstable();
            list.dedup();
        }
        self.t.slots.resize(all, &Slot::default());
        self.t.rows.resize(all, Counted::default());
        self.t.residents.resize(all, &Vec::new());
        for row in slots {
            if let (Some(mine), Some(new)) =
                (self.t.slots.get_mut(row.0), state.rows.slots.get(row.0))
            {
                mine.clone_from(new);
            }
        }
        if nodes.is_empty() {
            return;
        }
        let mem = self.least_mem_mib();
        for row in &nodes {
            self.count_node(*row);
        }
        self.look_again(&nodes);
        if mem != self.least_mem_mib() {
            let mem = self.least_mem_mib();
            for shape in &mut self.t.shapes {
                if matches!(shape.class.ask.share, Share::MemoryMib(_)) {
                    shape.parts = parts_of(&shape.class, mem);
                }
            }
        }
    }

    pub(super) fn least_mem_mib(&self) -> Option<u32> {
        self.t.mems.keys().next().copied()
    }

    /// Counts a node's devices in its pool, and no longer what it had before.
    fn count_node(&mut self, row: RowId) {
        let known = self.row(row);
        let node = known.and_then(|k| k.node.as_ref().map(|n| (k, n)));
        let counted = node.map_or_else(Counted::default, |(known, node)| {
            let model = node.gpus.model.as_ref().map(GpuModel::short);
            Counted {
                pool: self.tree.pool_of(model, known.gpus.tier),
                parts: parts_of_node(&node.allocatable),
                mem_mib: known.gpus.memory_mib.filter(|_| known.gpus.devices > 0),
            }
        });
        let Some(slot) = self.t.rows.get_mut(row.0) else {
            return;
        };
        let before = std::mem::replace(slot, counted);
        for (counted, sign) in [(before, -1), (counted, 1)] {
            if let Some(sum) = self.t.capacity.get_mut(counted.pool) {
                *sum += sign * counted.parts;
            }
        }
        if let Some(mem) = before.mem_mib
            && let Some(n) = self.t.mems.get_mut(&mem)
        {
            *n -= 1;
            if *n == 0 {
                self.t.mems.remove(&mem);
            }
        }
        if let Some(mem) = counted.mem_mib {
            *self.t.mems.entry(mem).or_default() += 1;
        }
    }

    /// What does not change while a node does not, for the nodes that did.
    fn look_again(&mut self, nodes: &[RowId]) {
        let state = self.state;
        let spot = state.config.spot_needs_checkpoint;
        let words = state.rows.rows.len().div_ceil(64);
        let one_pool = self.tree.pools() == 1;
        for shape in &mut self.t.shapes {
            if !one_pool {
                shape.is_looked_at = false;
            }
            let Ok(volumes) = &shape.volumes else {
                continue;
            };
            if !shape.is_looked_at {
                continue;
            }
            shape.lets_in.resize(words, 0);
            for row in nodes {
                let Some(known) = state.rows.rows.get(row.0) else {
                    continue;
                };
                let fixed = judge_node(&shape.class, volumes, known, spot);
                let yes = fixed.first.is_none() && fixed.last.is_none();
                if let Some(word) = shape.lets_in.get_mut(row.0 / 64) {
                    let bit = 1 << (row.0 % 64);
                    *word = if yes { *word | bit } else { *word & !bit };
                }
            }
        }
    }
}

/// All GPUs of a node: whole ones and slices. Replicas of a device count by the device.
fn parts_of_node(allocatable: &Resources) -> Parts {
    allocatable
        .extended
        .iter()
        .filter(|(_, n)| *n > 0)
        .filter_map(|(key, n)| {
            let one = match GpuResource::from_key(key)? {
                GpuResource::Whole | GpuResource::Shared => GPU,
                GpuResource::Mig(profile) => GPU / 7 * i64::from(profile.compute_slices).min(7),
            };
            Some(n.saturating_mul(one))
        })
        .fold(0, i64::saturating_add)
        .min(MOST_PARTS)
}
