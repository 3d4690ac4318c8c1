//! A copy of what the nodes have left, on which placements are tried and taken back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::amounts::Room;
use super::class::{Class, ClassId};
use super::filters::Volumes;
use super::memo::Kept;
use super::state::State;
use super::view::{RowId, View};
use super::{explain, problem};
use crate::model::{FilterCount, Reason, Str};

/// One tried placement.
struct Tried {
    row: RowId,
    class: Arc<Class>,
}

/// A class as this run sees it.
struct Local {
    class: Arc<Class>,
    view: View,
    /// Tries that the view has taken in.
    seen: usize,
    /// The reason that was made from the view, and for which `seen`.
    reason: Option<(usize, Reason)>,
}

impl Local {
    /// Asks the filters again about the rows of these tries.
    fn look_again(&mut self, tries: &[Tried], state: &State, rooms: &[Room]) {
        for Tried { row, .. } in tries {
            if let (Some(known), Some(room)) = (state.rows.rows.get(row.0), rooms.get(row.0)) {
                self.view.update(&self.class, *row, known, room);
            }
        }
    }
}

/// Where a pod was placed.
pub(super) struct Spot {
    pub(super) node: Str,
    pub(super) why: Str,
}

/// The scratch copy.
pub(super) struct Scratch<'a> {
    state: &'a State,
    /// Copied from the state at the first placement.
    rooms: Option<Vec<Room>>,
    /// What was placed since the state, in order; the rows that a view has to look at again.
    tried: Vec<Tried>,
    locals: BTreeMap<ClassId, Result<Local, Reason>>,
}

impl<'a> Scratch<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self {
            state,
            rooms: None,
            tried: Vec::new(),
            locals: BTreeMap::new(),
        }
    }

    /// Brings a class up to date with the tries so far.
    fn refresh(&mut self, id: ClassId) {
        let state = self.state;
        let local = self.locals.entry(id).or_insert_with(|| open(state, id));
        let Ok(local) = local else {
            return;
        };
        let rooms = self.rooms.as_ref().unwrap_or(&state.rows.rooms);
        let news = self.tried.get(local.seen..).unwrap_or_default();
        if news.len() > state.rows.rows.len() {
            let volumes = std::mem::take(&mut local.view.volumes);
            local.view = View::build(&local.class, volumes, &state.rows.rows, rooms);
        } else {
            local.look_again(news, state, rooms);
        }
        local.seen = self.tried.len();
    }

    /// Places one pod of the class on the first node that fits; `None` when there is none.
    pub(super) fn place(&mut self, id: ClassId) -> Option<Spot> {
        self.refresh(id);
        let Some(Ok(local)) = self.locals.get_mut(&id) else {
            return None;
        };
        let row = local.view.first(self.state.rows.order(&local.class))?;
        let class = local.class.clone();
        let fits = local.view.fits();
        let rooms = self
            .rooms
            .get_or_insert_with(|| self.state.rows.rooms.clone());
        let (room, known) = (rooms.get_mut(row.0)?, self.state.rows.rows.get(row.0)?);
        let spot = Spot {
            node: known.name.clone(),
            why: explain::why_here(&class, known, room, fits),
        };
        room.take(&class.ask);
        self.tried.push(Tried { row, class });
        Some(spot)
    }

    /// A mark to go back to.
    pub(super) fn mark(&self) -> usize {
        self.tried.len()
    }

    /// Takes back every placement since the mark, as if it had never been tried.
    pub(super) fn undo(&mut self, mark: usize) {
        if self.tried.len() <= mark {
            return;
        }
        let undone = self.tried.split_off(mark);
        let Some(rooms) = &mut self.rooms else {
            return;
        };
        for Tried { row, class } in &undone {
            if let Some(room) = rooms.get_mut(row.0) {
                room.give(&class.ask);
            }
        }
        for local in self.locals.values_mut().flatten() {
            if let Some(taken_in @ 1..) = local.seen.checked_sub(mark) {
                let news = undone.get(..taken_in).unwrap_or(&undone);
                local.look_again(news, self.state, rooms);
                local.seen = mark;
                local.reason = None;
            }
        }
    }

    /// Why no node takes a pod of the class now.
    pub(super) fn reason(&mut self, id: ClassId) -> Reason {
        self.refresh(id);
        match self.locals.get_mut(&id) {
            Some(Ok(local)) => {
                if let Some((seen, reason)) = &local.reason
                    && *seen == local.seen
                {
                    return reason.clone();
                }
                let (nodes, filters) = local.view.counts(&local.class);
                let reason = Reason::NoNodeFits { nodes, filters };
                local.reason = Some((local.seen, reason.clone()));
                reason
            }
            Some(Err(reason)) => reason.clone(),
            None => Reason::NoNodeFits {
                nodes: 0,
                filters: Box::default(),
            },
        }
    }

    /// The same as counts, for the reason of a whole gang.
    pub(super) fn filters(&mut self, id: ClassId) -> Box<[FilterCount]> {
        match self.reason(id) {
            Reason::NoNodeFits { filters, .. } => filters,
            other => explain::as_filters(self.state, &other),
        }
    }

    /// Size of a class, to sort the members of a gang.
    pub(super) fn size(&self, id: ClassId) -> (i64, i64, i64) {
        self.state.classes.get(id).map_or((0, 0, 0), |c| c.size())
    }

    /// What the nodes have left now.
    #[cfg(test)]
    pub(super) fn rooms(&self) -> &[Room] {
        self.rooms.as_ref().unwrap_or(&self.state.rows.rooms)
    }
}

/// The class's view as of the state: the kept one brought up to date, or a new one.
fn open(state: &State, id: ClassId) -> Result<Local, Reason> {
    let Some(class) = state.classes.get(id).cloned() else {
        return Err(Reason::NoNodeFits {
            nodes: 0,
            filters: Box::default(),
        });
    };
    let has_claims = !class.constraints.claims.is_empty();
    let kept = state
        .memo
        .take(id)
        .filter(|k| !has_claims || k.volumes == state.volume_version);
    let fresh = |kept: Kept| {
        let mut view = kept.view;
        state
            .rows
            .refresh(&mut view, &class, kept.rows)
            .then_some(view)
    };
    let view = match kept.and_then(fresh) {
        Some(view) => view,
        None => {
            let volumes = if has_claims {
                problem::volumes(state, &class.namespace, &class.constraints)?
            } else {
                Volumes::default()
            };
            View::build(&class, volumes, &state.rows.rows, &state.rows.rooms)
        }
    };
    state.memo.keep(
        id,
        Kept {
            view: view.clone(),
            rows: state.rows.version(),
            volumes: state.volume_version,
        },
    );
    Ok(Local {
        class,
        view,
        seen: 0,
        reason: None,
    })
}
