//! The rows of all nodes, what each has left, and which changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amounts::{Ask, Room};
use super::class::Class;
use super::filters::Row;
use super::view::{RowId, View};
use crate::model::{Node, Str};

/// Changes that are remembered before views have to be built anew.
const LOG_LIMIT: usize = 8_192;

/// All rows.
#[derive(Clone, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) rooms: Vec<Room>,
    by_name: BTreeMap<Str, RowId>,
    unused: Vec<RowId>,
    /// Existing nodes without GPUs, by name.
    cpu_order: Vec<RowId>,
    /// Existing nodes with GPUs, by name.
    gpu_order: Vec<RowId>,
    /// Rows in the order in which they changed, oldest first.
    log: Vec<RowId>,
    /// Changes before the first that `log` still holds.
    log_start: usize,
}

impl Rows {
    /// Changes so far.
    pub(super) fn version(&self) -> usize {
        self.log_start + self.log.len()
    }

    /// Rows changed since `version`; `None` when that is longer ago than is remembered.
    pub(super) fn changed_since(&self, version: usize) -> Option<&[RowId]> {
        self.log.get(version.checked_sub(self.log_start)?..)
    }

    fn changed(&mut self, id: RowId) {
        if self.log.len() >= LOG_LIMIT {
            self.log_start += self.log.len();
            self.log.clear();
        }
        self.log.push(id);
    }

    fn entry(&mut self, name: &Str) -> RowId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let row = Row::new(name.clone());
        let id = match self.unused.pop() {
            Some(id) => {
                if let Some(slot) = self.rows.get_mut(id.0) {
                    *slot = row;
                }
                id
            }
            None => {
                self.rows.push(row);
                self.rooms.push(Room::default());
                RowId(self.rows.len() - 1)
            }
        };
        self.by_name.insert(name.clone(), id);
        id
    }

    /// A row that neither a node nor a pod needs any more is given up.
    fn tidy(&mut self, id: RowId) {
        let (Some(row), Some(room)) = (self.rows.get(id.0), self.rooms.get(id.0)) else {
            return;
        };
        if row.node.is_none() && *room == Room::default() {
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

    /// A node exists and looks like this, or does not exist any more.
    pub(super) fn set_node(&mut self, name: &Str, node: Option<Arc<Node>>) {
        let id = self.entry(name);
        let (Some(row), Some(room)) = (self.rows.get_mut(id.0), self.rooms.get_mut(id.0)) else {
            return;
        };
        let was = (row.node.is_some(), row.has_gpus);
        let same = match (&row.node, &node) {
            (Some(old), Some(new)) => looks_alike(old, new),
            (None, None) => true,
            _ => false,
        };
        if let Some(old) = &row.node {
            room.offer(&old.allocatable, -1);
        }
        if let Some(new) = &node {
            room.offer(&new.allocatable, 1);
        }
        row.set_node(node);
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
        }
        if !same {
            self.changed(id);
        }
        self.tidy(id);
    }

    pub(super) fn node(&self, name: &str) -> Option<&Arc<Node>> {
        let id = self.by_name.get(name)?;
        self.rows.get(id.0)?.node.as_ref()
    }

    /// Nodes that exist.
    pub(super) fn node_count(&self) -> u32 {
        u32::try_from(self.cpu_order.len() + self.gpu_order.len()).unwrap_or(u32::MAX)
    }

    /// A pod comes to a node, known or not.
    pub(super) fn take(&mut self, name: &Str, ask: &Ask) {
        let id = self.entry(name);
        if let Some(room) = self.rooms.get_mut(id.0) {
            room.take(ask);
        }
        self.changed(id);
    }

    /// A pod leaves its node.
    pub(super) fn give(&mut self, name: &Str, ask: &Ask) {
        let Some(id) = self.by_name.get(name).copied() else {
            return;
        };
        if let Some(room) = self.rooms.get_mut(id.0) {
            room.give(ask);
        }
        self.changed(id);
        self.tidy(id);
    }

    /// The order in which nodes are tried: by name, for a pod without GPUs those without first.
    pub(super) fn order(&self, class: &Class) -> impl Iterator<Item = &RowId> {
        let (first, then) = if class.gpu().is_some() {
            (&self.gpu_order, &self.cpu_order)
        } else {
            (&self.cpu_order, &self.gpu_order)
        };
        first.iter().chain(then)
    }

    /// Brings a view that was right at `version` up to date; false when it has to be built anew.
    pub(super) fn refresh(&self, view: &mut View, class: &Class, version: usize) -> bool {
        let Some(changed) = self.changed_since(version) else {
            return false;
        };
        if changed.len() > self.rows.len() {
            return false;
        }
        for id in changed {
            if let (Some(row), Some(room)) = (self.rows.get(id.0), self.rooms.get(id.0)) {
                view.update(class, *id, row, room);
            }
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
