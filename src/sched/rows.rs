//! The rows of all nodes, what each has left, and which changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use std::sync::OnceLock;

use super::amounts::{Ask, Room};
use super::class::Class;
use super::fabric::{self, Fabric, Place};
use super::filters::Row;
use super::gpus::{Models, NodeGpus};
use super::place::{NodeRow, Pricing};
use super::slices::SlicePrices;
use super::slot::{Held, Slot};
use super::view::{RowId, Rules, View};
use crate::model::{Node, Str, Uid};

/// Changes that are remembered before views have to be built anew.
const LOG_LIMIT: usize = 8_192;

/// A row that changed.
#[derive(Clone, Copy, Debug)]
struct Changed {
    row: RowId,
    /// The node itself, not only what is left of it.
    node: bool,
}

/// The pods that hold a node, with their devices.
type Holders = BTreeMap<Uid, Held>;

/// All rows.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) slots: Vec<Slot>,
    /// By row; shared among forks until it changes.
    holders: Vec<Arc<Holders>>,
    pub(super) pricing: Pricing,
    /// Prices of MIG slices.
    slices: SlicePrices,
    pub(super) models: Models,
    /// Free thousandths of all devices.
    free_milli_gpu: i64,
    by_name: BTreeMap<Str, RowId>,
    unused: Vec<RowId>,
    /// Existing nodes without GPUs, by name.
    cpu_order: Vec<RowId>,
    /// Existing nodes with GPUs, by name.
    gpu_order: Vec<RowId>,
    /// By row: its place in both orders, those without GPUs first. Made when it is asked for.
    ranks: OnceLock<Vec<u32>>,
    /// Grows when the orders change.
    order_version: u64,
    /// Where the nodes stand. Made when it is asked for; shared among forks.
    fabric: OnceLock<Arc<Fabric>>,
    /// Grows when it changes.
    fabric_version: u64,
    /// The operator's own levels, the widest first.
    levels: Box<[Str]>,
    /// Rows in the order in which they changed, oldest first.
    log: Vec<Changed>,
    /// Changes before the first that `log` still holds.
    log_start: usize,
    /// Changes up to the last one of a node itself.
    nodes_changed: usize,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            slots: Vec::new(),
            holders: Vec::new(),
            pricing: Pricing::with_prior(),
            slices: SlicePrices::default(),
            models: Models::default(),
            free_milli_gpu: 0,
            by_name: BTreeMap::new(),
            unused: Vec::new(),
            cpu_order: Vec::new(),
            gpu_order: Vec::new(),
            ranks: OnceLock::new(),
            order_version: 0,
            fabric: OnceLock::new(),
            fabric_version: 0,
            levels: Box::default(),
            log: Vec::new(),
            log_start: 0,
            nodes_changed: 0,
        }
    }
}

/// Which state of the rows a view was right for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Version {
    pub(super) changes: usize,
    order: u64,
}

impl Rows {
    /// The state of the rows.
    pub(super) fn version(&self) -> Version {
        Version {
            changes: self.log_start + self.log.len(),
            order: self.order_version,
        }
    }

    /// Rows that changed since a version, and whether the node itself did; `None` when that is not
    /// known any more.
    pub(super) fn changed_since(
        &self,
        version: Version,
    ) -> Option<impl Iterator<Item = (RowId, bool)>> {
        let from = version.changes.checked_sub(self.log_start)?;
        let changed = self.log.get(from..)?;
        Some(changed.iter().map(|c| (c.row, c.node)))
    }

    fn changed(&mut self, row: RowId, node: bool) {
        if self.log.len() >= LOG_LIMIT {
            // The newer half stays, so that views which are looked at often never start anew.
            self.log.drain(..LOG_LIMIT / 2);
            self.log_start += LOG_LIMIT / 2;
        }
        self.log.push(Changed { row, node });
        if node {
            self.nodes_changed = self.log_start + self.log.len();
        }
    }

    /// No nodes; `levels` are the operator's own levels of the fabric, the widest first.
    pub(super) fn new(levels: Box<[Str]>) -> Self {
        Self {
            levels,
            ..Self::default()
        }
    }

    /// The operator's own levels.
    pub(super) fn levels(&self) -> &[Str] {
        &self.levels
    }

    /// Where the nodes stand, and the version of that.
    pub(super) fn fabric(&self) -> (&Fabric, u64) {
        let fabric = self.fabric.get_or_init(|| {
            let order = self.cpu_order.iter().chain(&self.gpu_order);
            Arc::new(Fabric::new(&self.rows, order.copied()))
        });
        (fabric, self.fabric_version)
    }

    /// What all classes are judged by.
    pub(super) fn rules(&self, spot_needs_checkpoint: bool) -> Rules<'_> {
        Rules {
            pricing: &self.pricing,
            slices: &self.slices,
            spot_needs_checkpoint,
            ranks: self.ranks(),
            fabric: self.fabric(),
        }
    }

    fn ranks(&self) -> &[u32] {
        self.ranks.get_or_init(|| {
            let mut ranks = vec![u32::MAX; self.rows.len()];
            let order = self.cpu_order.iter().chain(&self.gpu_order);
            for (place, id) in (0..).zip(order) {
                if let Some(rank) = ranks.get_mut(id.0) {
                    *rank = place;
                }
            }
            ranks
        })
    }

    /// A pod that asks for these resources has arrived.
    pub(super) fn slices_arrived(&mut self, extended: &[(Str, i64)]) {
        let (rows, slots) = (&self.rows, &self.slots);
        self.slices.arrived(extended, |model| {
            rows.iter()
                .zip(slots)
                .filter_map(|(row, slot)| Some((row.gpus.layout.as_ref()?, slot)))
                .filter(|(layout, _)| layout.model() == model)
                .flat_map(|(layout, slot)| layout.devices(slot.slices))
                .collect()
        });
    }

    /// Prices are renewed when they are due; called when a pod has arrived.
    pub(super) fn reprice_if_due(&mut self) {
        let nodes = self.gpu_order.len();
        if !self.pricing.is_due(nodes, self.free_milli_gpu) {
            return;
        }
        let rows = self.slots.iter().map(|slot| &slot.gpu);
        self.pricing.renew(rows, self.free_milli_gpu);
        for slot in &mut self.slots {
            slot.worth = self.pricing.worth(&slot.gpu);
        }
    }

    fn entry(&mut self, name: &Str) -> RowId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let row = Row::new(name.clone());
        let id = match self.unused.pop() {
            Some(id) => {
                if let Some(unused) = self.rows.get_mut(id.0) {
                    *unused = row;
                }
                id
            }
            None => {
                self.rows.push(row);
                self.slots.push(Slot::default());
                self.holders.push(Arc::default());
                RowId(self.rows.len() - 1)
            }
        };
        self.by_name.insert(name.clone(), id);
        id
    }

    /// A row that neither a node nor a pod needs any more is given up.
    fn tidy(&mut self, id: RowId) {
        let (Some(row), Some(slot)) = (self.rows.get(id.0), self.slots.get(id.0)) else {
            return;
        };
        if row.node.is_none() && slot.room == Room::default() {
            self.by_name.remove(&row.name);
            self.unused.push(id);
        }
    }

    fn order_of(&mut self, has_gpus: bool) -> &mut Vec<RowId> {
        if has_gpus {
            &mut self.gpu_order
        } else {
            &mut self.cpu_order
        }
    }

    fn place_in_order(&self, has_gpus: bool, name: &str) -> Result<usize, usize> {
        let order = if has_gpus {
            &self.gpu_order
        } else {
            &self.cpu_order
        };
        order.binary_search_by(|id| {
            self.rows
                .get(id.0)
                .map_or(std::cmp::Ordering::Less, |row| (*row.name).cmp(name))
        })
    }

    /// A node exists and looks like this, or does not exist any more. Where that changes its
    /// devices the row comes back: its pods have to be assigned to them anew.
    #[must_use]
    pub(super) fn set_node(&mut self, name: &Str, node: Option<Arc<Node>>) -> Option<RowId> {
        let id = self.entry(name);
        let gpus = node
            .as_ref()
            .map_or_else(NodeGpus::default, |n| NodeGpus::of(n, &mut self.models));
        let (Some(row), Some(slot)) = (self.rows.get_mut(id.0), self.slots.get_mut(id.0)) else {
            return None;
        };
        let place = node
            .as_ref()
            .map_or_else(Place::default, |n| fabric::place_of(n, &self.levels));
        let moved = row.place != place || row.node.is_some() != node.is_some();
        row.place = place;
        let was = (row.node.is_some(), row.has_gpus);
        let same = match (&row.node, &node) {
            (Some(old), Some(new)) => looks_alike(old, new),
            (None, None) => true,
            _ => false,
        };
        if let Some(old) = &row.node {
            slot.room.offer(&old.allocatable, -1);
        }
        if let Some(new) = &node {
            slot.room.offer(&new.allocatable, 1);
        }
        slot.note_cpu();
        let reshaped = (row.gpus.devices, row.gpus.memory_mib, row.gpus.cut)
            != (gpus.devices, gpus.memory_mib, gpus.cut)
            || row.gpus.layout != gpus.layout;
        if let Some(layout) = &gpus.layout {
            self.slices.meet(layout);
        }
        slot.gpu.model = gpus.model;
        row.set_node(node, gpus);
        let is = (row.node.is_some(), row.has_gpus);
        if was != is {
            if was.0
                && let Ok(at) = self.place_in_order(was.1, name)
            {
                self.order_of(was.1).remove(at);
            }
            if is.0
                && let Err(at) = self.place_in_order(is.1, name)
            {
                self.order_of(is.1).insert(at, id);
            }
            self.ranks = OnceLock::new();
            self.order_version += 1;
            self.pricing.resize(self.gpu_order.len());
        }
        if moved || was != is {
            self.fabric = OnceLock::new();
            self.fabric_version += 1;
        }
        if reshaped {
            self.reassign(id, |_| None);
        } else {
            self.revalue(id);
        }
        if !same {
            self.changed(id, true);
        }
        let held = self.holders.get(id.0).is_some_and(|h| !h.is_empty());
        self.tidy(id);
        (reshaped && held).then_some(id)
    }

    /// Deals the devices of a node to its pods anew, in the order of their UIDs.
    pub(super) fn reassign(&mut self, id: RowId, asks: impl Fn(&Uid) -> Option<(Ask, Option<u8>)>) {
        let (Some(row), Some(slot), Some(holders)) = (
            self.rows.get(id.0),
            self.slots.get_mut(id.0),
            self.holders.get_mut(id.0),
        ) else {
            return;
        };
        self.free_milli_gpu -= slot.gpu.free_milli_gpu();
        slot.gpu = NodeRow::empty(0, 0, row.gpus.devices, row.gpus.model);
        slot.slices = row.gpus.layout.as_ref().map_or(0, |layout| layout.all());
        slot.note_cpu();
        for (uid, held) in Arc::make_mut(holders) {
            *held = asks(uid).map_or(Held::default(), |(ask, named)| {
                slot.assign(&ask, &row.gpus, named, &self.slices)
            });
            slot.hold(*held);
        }
        self.free_milli_gpu += slot.gpu.free_milli_gpu();
        self.revalue(id);
        self.changed(id, true);
    }

    /// What the row's room is worth now.
    fn revalue(&mut self, id: RowId) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.worth = self.pricing.worth(&slot.gpu);
        }
    }

    pub(super) fn node(&self, name: &str) -> Option<&Arc<Node>> {
        let id = self.by_name.get(name)?;
        self.rows.get(id.0)?.node.as_ref()
    }

    /// The row of a node.
    pub(super) fn id(&self, name: &str) -> Option<RowId> {
        self.by_name.get(name).copied()
    }

    /// What a pod holds of a node.
    pub(super) fn held(&self, name: &str, uid: &Uid) -> Option<Held> {
        let id = self.by_name.get(name)?;
        self.holders.get(id.0)?.get(uid).copied()
    }

    /// Memory of one device of a node.
    pub(super) fn memory_mib(&self, name: &str) -> Option<u32> {
        self.rows.get(self.id(name)?.0)?.gpus.memory_mib
    }

    /// Nodes that exist.
    pub(super) fn node_count(&self) -> u32 {
        u32::try_from(self.cpu_order.len() + self.gpu_order.len()).unwrap_or(u32::MAX)
    }

    /// A pod comes to a node, known or not; `named` is the device that it says it has.
    pub(super) fn take(&mut self, name: &Str, uid: &Uid, ask: &Ask, named: Option<u8>) {
        let id = self.entry(name);
        let (Some(row), Some(slot), Some(holders)) = (
            self.rows.get(id.0),
            self.slots.get_mut(id.0),
            self.holders.get_mut(id.0),
        ) else {
            return;
        };
        let held = slot.assign(ask, &row.gpus, named, &self.slices);
        let before = slot.gpu.free_milli_gpu();
        slot.take(ask, held);
        self.free_milli_gpu += slot.gpu.free_milli_gpu() - before;
        Arc::make_mut(holders).insert(uid.clone(), held);
        self.revalue(id);
        self.changed(id, false);
    }

    /// A pod leaves its node.
    pub(super) fn give(&mut self, name: &Str, uid: &Uid, ask: &Ask) {
        let Some(id) = self.by_name.get(name).copied() else {
            return;
        };
        let (Some(slot), Some(holders)) = (self.slots.get_mut(id.0), self.holders.get_mut(id.0))
        else {
            return;
        };
        let held = Arc::make_mut(holders).remove(uid).unwrap_or_default();
        let before = slot.gpu.free_milli_gpu();
        slot.give(ask, held);
        self.free_milli_gpu += slot.gpu.free_milli_gpu() - before;
        self.revalue(id);
        self.changed(id, false);
        self.tidy(id);
    }

    /// Brings a view that was right at `version` up to date, looking at `also` besides what has
    /// changed; false when it has to be built anew.
    pub(super) fn refresh(
        &self,
        view: &mut View,
        class: &Class,
        rules: Rules<'_>,
        version: Version,
        also: &[RowId],
    ) -> bool {
        let from = version.changes.checked_sub(self.log_start);
        let changed = from.and_then(|from| self.log.get(from..));
        let few = |changed: &&[Changed]| changed.len() + also.len() <= self.rows.len();
        let Some(changed) = changed.filter(few) else {
            return self.refresh_all(view, class, rules, version);
        };
        if version.order != self.order_version {
            view.forget_order();
        }
        view.drop_counts_unless(rules.fabric.1);
        let at = |id: RowId| Some((self.rows.get(id.0)?, self.slots.get(id.0)?));
        let mut seen: Vec<RowId> = Vec::with_capacity(changed.len() + also.len());
        for change in changed.iter().filter(|c| c.node) {
            if let Some((row, slot)) = at(change.row) {
                view.update_node(class, rules, change.row, row, slot);
            }
        }
        seen.extend(changed.iter().filter(|c| !c.node).map(|c| c.row));
        seen.extend(also);
        seen.sort_unstable();
        seen.dedup();
        for id in seen {
            if let Some((row, slot)) = at(id) {
                view.update(class, rules, id, row, slot);
            }
        }
        view.reprice(class, rules, &self.rows, &self.slots);
        true
    }

    /// Looks at what is left of every node; false when nodes themselves have changed since.
    fn refresh_all(
        &self,
        view: &mut View,
        class: &Class,
        rules: Rules<'_>,
        version: Version,
    ) -> bool {
        if version.changes < self.nodes_changed || version.order != self.order_version {
            return false;
        }
        view.drop_counts_unless(rules.fabric.1);
        view.set_pricing(rules);
        for (i, (row, slot)) in self.rows.iter().zip(&self.slots).enumerate() {
            view.update(class, rules, RowId(i), row, slot);
        }
        true
    }
}

/// Nothing that a filter reads differs: heartbeats are not changes.
fn looks_alike(a: &Node, b: &Node) -> bool {
    a.unschedulable == b.unschedulable
        && a.taints == b.taints
        && a.allocatable == b.allocatable
        && a.capacity == b.capacity
        && a.meta.labels == b.meta.labels
        && a.meta.name == b.meta.name
}
