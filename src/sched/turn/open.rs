//! Which nodes a shape may go to: those that let it in, and those with room for one more pod now.

use super::shape::ShapeId;
use super::world::{PodId, World};
use crate::sched::filters::judge_node;
use crate::sched::view::RowId;

impl World<'_> {
    /// Learns what of each node does not change for the shapes of these pods.
    pub(in crate::sched) fn look_at(&mut self, pods: &[PodId]) {
        let mut last = None;
        for pod in pods {
            let shape = self.shape_of(*pod);
            if last.replace(shape) != Some(shape) {
                self.look(shape);
            }
        }
    }

    /// Learns what of each node does not change for this shape.
    pub(in crate::sched) fn look(&mut self, id: ShapeId) {
        let state = self.state;
        let Some(shape) = self.t.shapes.get(id.0).filter(|s| !s.is_looked_at) else {
            return;
        };
        let (class, volumes) = (shape.class.clone(), shape.volumes.clone());
        let spot = state.config.spot_needs_checkpoint;
        self.look_by(id, |row| {
            let (Ok(volumes), Some(row)) = (&volumes, state.rows.rows.get(row.0)) else {
                return false;
            };
            let fixed = judge_node(&class, volumes, row, spot);
            fixed.first.is_none() && fixed.last.is_none()
        });
    }

    /// It is known which nodes let the shape in.
    pub(in crate::sched) fn is_looked_at(&self, id: ShapeId) -> bool {
        self.t.shapes.get(id.0).is_some_and(|s| s.is_looked_at)
    }

    /// Is told which nodes let the shape in.
    pub(in crate::sched) fn look_by(&mut self, id: ShapeId, lets_in: impl Fn(RowId) -> bool) {
        let state = self.state;
        let rows = &state.rows.rows;
        let Some(shape) = self.t.shapes.get_mut(id.0) else {
            return;
        };
        shape.is_looked_at = true;
        shape.lets_in = vec![0; rows.len().div_ceil(64)];
        for at in 0..rows.len() {
            if lets_in(RowId(at))
                && let Some(word) = shape.lets_in.get_mut(at / 64)
            {
                *word |= 1 << (at % 64);
            }
        }
        // The pools are asked for often.
        let pools = self.tree.pools();
        if pools > 1 {
            let mut found = vec![false; pools];
            for row in (0..rows.len()).map(RowId) {
                if self.lets_in(id, row)
                    && self.row(row).is_some_and(|r| r.has_gpus)
                    && let Some(flag) = found.get_mut(self.pool(row))
                {
                    *flag = true;
                }
            }
            let list = (0..pools)
                .filter(|p| found.get(*p) == Some(&true))
                .collect();
            if let Some(shape) = self.t.shapes.get_mut(id.0) {
                shape.pools = list;
            }
        }
    }

    /// Finds the rows with room for one more pod of these shapes; see [`World::is_open`].
    pub(in crate::sched) fn open_for(&mut self, pods: &[PodId]) {
        self.look_at(pods);
        let mut last = None;
        for pod in pods {
            let shape = self.shape_of(*pod);
            if last.replace(shape) != Some(shape) {
                self.find_open(shape);
            }
        }
    }

    fn find_open(&mut self, id: ShapeId) {
        let rows = self.t.slots.len();
        let end = self.t.journal.len();
        let Some(shape) = self.t.shapes.get_mut(id.0) else {
            return;
        };
        let mut open = std::mem::take(&mut shape.open);
        let seen = shape.open_at.replace(end);
        let news = seen.and_then(|from| self.t.journal.get(from..));
        match news.filter(|news| news.len() < rows) {
            Some(news) => {
                for row in news {
                    let fits = self.fits(id, *row);
                    if let Some(word) = open.get_mut(row.0 / 64) {
                        let bit = 1 << (row.0 % 64);
                        *word = if fits { *word | bit } else { *word & !bit };
                    }
                }
            }
            None => {
                open.clear();
                open.resize(rows.div_ceil(64), 0);
                for row in (0..rows).map(RowId) {
                    if self.fits(id, row)
                        && let Some(word) = open.get_mut(row.0 / 64)
                    {
                        *word |= 1 << (row.0 % 64);
                    }
                }
            }
        }
        if let Some(shape) = self.t.shapes.get_mut(id.0) {
            shape.open = open;
        }
    }

    /// The row had room for one more pod of the shape when [`World::open_for`] was asked last.
    pub(in crate::sched) fn is_open(&self, id: ShapeId, row: RowId) -> bool {
        let word = self.t.shapes.get(id.0).and_then(|s| s.open.get(row.0 / 64));
        word.is_some_and(|w| w & (1 << (row.0 % 64)) != 0)
    }
}
