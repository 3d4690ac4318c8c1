//! What the nodes have left, on which placements are tried and taken back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::{Class, ClassId};
use super::explain::{self, Alternative};
use super::fabric::DomainId;
use super::filters::Volumes;
use super::memo::Kept;
use super::overlay::Overlay;
use super::problem;
use super::score;
use super::slot::Held;
use super::state::State;
use super::view::{RowId, Rules, Siblings, View};
use crate::model::{FilterCount, Reason, Str};

/// One tried placement.
struct Tried {
    row: RowId,
    class: Arc<Class>,
    held: Held,
}

/// A class as this run sees it.
struct Local {
    class: Arc<Class>,
    view: View,
    /// Tries that the view has taken in.
    seen: usize,
    /// Rows that differ from the state in this view.
    touched: Vec<RowId>,
    /// The reason that was made from the view, and for which `seen`.
    reason: Option<(usize, Reason)>,
}

impl Local {
    /// Asks the filters again about the rows of these tries.
    fn look_again(
        &mut self,
        tries: &[Tried],
        state: &State,
        rules: Rules<'_>,
        slots: &Overlay<'_>,
    ) {
        let mut last = None;
        for Tried { row, .. } in tries {
            // The pods that a gang has on one node come one after the other.
            if last.replace(*row) == Some(*row) {
                continue;
            }
            if let (Some(known), Some(slot)) = (state.rows.rows.get(row.0), slots.get(*row)) {
                self.view.update(&self.class, rules, *row, known, slot);
                self.touched.push(*row);
            }
        }
    }
}

/// Where a pod was placed.
pub(super) struct Spot {
    pub(super) why: Str,
}

/// The scratch copy.
pub(super) struct Scratch<'a> {
    state: &'a State,
    rules: Rules<'a>,
    slots: Overlay<'a>,
    /// What was placed since the state, in order; the rows that a view has to look at again.
    tried: Vec<Tried>,
    locals: BTreeMap<ClassId, Result<Local, Reason>>,
}

impl<'a> Scratch<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self {
            state,
            rules: state.rules(),
            slots: Overlay::new(&state.rows.slots),
            tried: Vec::new(),
            locals: BTreeMap::new(),
        }
    }

    /// Brings a class up to date with the tries so far.
    fn refresh(&mut self, id: ClassId) -> Option<&mut Local> {
        let (state, rules) = (self.state, self.rules);
        let local = self
            .locals
            .entry(id)
            .or_insert_with(|| open(state, rules, id));
        let Ok(local) = local else {
            return None;
        };
        let news = self.tried.get(local.seen..).unwrap_or_default();
        local.look_again(news, state, rules, &self.slots);
        local.seen = self.tried.len();
        Some(local)
    }

    /// What a row has left now.
    pub(super) fn slot(&self, row: RowId) -> Option<&super::slot::Slot> {
        self.slots.get(row)
    }

    /// No more than this is left of a row. It cannot be undone.
    pub(super) fn cap(&mut self, row: RowId, most: &super::slot::Slot) {
        let Some(slot) = self.slots.get_mut(row) else {
            return;
        };
        slot.cap(most);
        slot.worth = self.rules.pricing.worth(&slot.gpu);
        self.tried.push(Tried {
            row,
            class: Arc::new(Class::default()),
            held: Held::default(),
        });
    }

    /// Takes exactly this of a row.
    pub(super) fn take_here(&mut self, class: &Arc<Class>, row: RowId, held: Held) {
        self.hold(class.clone(), row, held);
    }

    /// The rows and devices that were tried since a mark.
    pub(super) fn tried_since(&self, mark: usize) -> Vec<(RowId, Held)> {
        let tries = self.tried.get(mark..).unwrap_or_default();
        tries.iter().map(|t| (t.row, t.held)).collect()
    }

    /// Places one pod of the class on the cheapest row among some.
    pub(super) fn place_among(
        &mut self,
        id: ClassId,
        among: impl Fn(RowId) -> bool,
    ) -> Option<Spot> {
        let ranks = self.rules.ranks;
        let local = self.refresh(id)?;
        let row = local.view.best_among(ranks, among)?;
        let class = local.class.clone();
        let fits = local.view.fits();
        self.put(&class, row, Alternative { fits, other: None })
    }

    /// Places one pod of the class where it costs least; `None` when it fits nowhere.
    pub(super) fn place(&mut self, id: ClassId) -> Option<Spot> {
        let ranks = self.rules.ranks;
        let local = self.refresh(id)?;
        let row = local.view.best(ranks)?;
        let class = local.class.clone();
        let fits = local.view.fits();
        let other = local.view.runner_up(row, ranks);
        let alternative = Alternative { fits, other };
        self.put(&class, row, alternative)
    }

    /// Places one pod apart from its siblings, and tells its row; `None` when it fits nowhere.
    pub(super) fn place_apart(
        &mut self,
        id: ClassId,
        siblings: &Siblings,
    ) -> Option<(Spot, RowId)> {
        let rules = self.rules;
        let local = self.refresh(id)?;
        let row = local.view.best_apart(siblings, rules)?;
        let (class, fits) = (local.class.clone(), local.view.fits());
        let mut spot = self.put(&class, row, Alternative { fits, other: None })?;
        let (nodes, here) = (siblings.len(), siblings.get(&row).copied().unwrap_or(0));
        let free = spot.why.rsplit("; ").next().unwrap_or_default();
        spot.why = format!(
            "kept apart from its siblings: {here} of them here, the others on {nodes} of {fits} \
             nodes; {free}"
        )
        .into();
        Some((spot, row))
    }

    /// Puts a pod on a row that fits.
    fn put(&mut self, class: &Arc<Class>, row: RowId, alternative: Alternative) -> Option<Spot> {
        let known = self.state.rows.rows.get(row.0)?;
        let slot = self.slots.get(row)?;
        let held = score::score(self.rules, class, known, slot).held;
        let here = (known, slot, held);
        let there = alternative.other.and_then(|other| {
            let known = self.state.rows.rows.get(other.0)?;
            let slot = self.slots.get(other)?;
            let held = score::score(self.rules, class, known, slot).held;
            Some((known, slot, held))
        });
        let spot = Spot {
            why: explain::why_here(self.rules, class, alternative.fits, here, there),
        };
        self.hold(class.clone(), row, held)?;
        Some(spot)
    }

    fn hold(&mut self, class: Arc<Class>, row: RowId, held: Held) -> Option<()> {
        let slot = self.slots.get_mut(row)?;
        slot.take(&class.ask, held);
        slot.worth = self.rules.pricing.worth(&slot.gpu);
        self.tried.push(Tried { row, class, held });
        Some(())
    }

    /// Puts a pod on a row that fits, without a word.
    pub(super) fn take(&mut self, id: ClassId, row: RowId) -> Option<()> {
        let Some(Ok(local)) = self.locals.get(&id) else {
            return None;
        };
        let class = local.class.clone();
        let known = self.state.rows.rows.get(row.0)?;
        let slot = self.slots.get(row)?;
        let held = score::score(self.rules, &class, known, slot).held;
        self.hold(class, row, held)
    }

    /// What all classes are judged by.
    pub(super) fn rules(&self) -> Rules<'a> {
        self.rules
    }

    /// The name of a domain.
    pub(super) fn domain_name(&self, id: DomainId) -> String {
        let domain = self.rules.fabric.0.domain(id);
        domain.map_or_else(String::new, |d| d.name().to_owned())
    }

    /// The GPU model of a row.
    pub(super) fn model_of(&self, row: RowId) -> Option<Str> {
        self.state.rows.rows.get(row.0)?.gpus.name.clone()
    }

    /// Counts how many pods of a class there is room for now; `None` when none can be placed.
    pub(super) fn count(&mut self, id: ClassId) -> Option<()> {
        self.refresh(id)?;
        let Some(Ok(local)) = self.locals.get_mut(&id) else {
            return None;
        };
        let class = local.class.clone();
        local
            .view
            .count(&class, self.rules, &self.state.rows.rows, &self.slots);
        Some(())
    }

    /// Rows on which a pod of a class fits.
    pub(super) fn fits(&mut self, id: ClassId) -> u32 {
        self.refresh(id).map_or(0, |local| local.view.fits())
    }

    /// A class's view as of the last refresh.
    pub(super) fn view(&self, id: ClassId) -> Option<&View> {
        match self.locals.get(&id) {
            Some(Ok(local)) => Some(&local.view),
            _ => None,
        }
    }

    /// Pods of a class that a domain, or the cluster, has room for.
    pub(super) fn room(&self, id: ClassId, domain: Option<DomainId>) -> u32 {
        self.view(id).map_or(0, |v| v.room_in(domain))
    }

    /// Pods of a class that a row has room for after all that was tried.
    pub(super) fn refreshed_room_on(&mut self, id: ClassId, row: RowId) -> u32 {
        self.refresh(id)
            .map_or(0, |local| u32::from(local.view.room_on(row)))
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
        for Tried { row, class, held } in undone.iter().rev() {
            if let Some(slot) = self.slots.get_mut(*row) {
                slot.give(&class.ask, *held);
                slot.worth = self.rules.pricing.worth(&slot.gpu);
            }
        }
        for local in self.locals.values_mut().flatten() {
            if let Some(taken_in @ 1..) = local.seen.checked_sub(mark) {
                let news = undone.get(..taken_in).unwrap_or(&undone);
                local.look_again(news, self.state, self.rules, &self.slots);
                local.seen = mark;
                local.reason = None;
            }
        }
    }

    /// Why no node takes a pod of the class now.
    pub(super) fn reason(&mut self, id: ClassId) -> Reason {
        if let Some(local) = self.refresh(id) {
            if let Some((seen, reason)) = &local.reason
                && *seen == local.seen
            {
                return reason.clone();
            }
            let (nodes, filters) = local.view.counts(&local.class);
            let reason = Reason::NoNodeFits { nodes, filters };
            local.reason = Some((local.seen, reason.clone()));
            return reason;
        }
        match self.locals.get(&id) {
            Some(Err(reason)) => reason.clone(),
            _ => Reason::NoNodeFits {
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

    /// Keeps the views for the next run.
    pub(super) fn finish(self) {
        let rows = self.state.rows.version();
        let volumes = self.state.volume_version;
        for (id, local) in self.locals {
            if let Ok(local) = local {
                let kept = Kept {
                    view: local.view,
                    rows,
                    volumes,
                    touched: local.touched,
                };
                self.state.memo.keep(id, kept);
            }
        }
    }

    /// What a node has left now.
    #[cfg(test)]
    pub(super) fn slots(&self) -> Vec<super::slot::Slot> {
        (0..self.state.rows.slots.len())
            .filter_map(|i| self.slots.get(RowId(i)).cloned())
            .collect()
    }
}

/// The class's view as of the state: the kept one brought up to date, or a new one.
fn open(state: &State, rules: Rules<'_>, id: ClassId) -> Result<Local, Reason> {
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
            .refresh(&mut view, &class, rules, kept.rows, &kept.touched)
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
            View::build(&class, volumes, rules, &state.rows.rows, &state.rows.slots)
        }
    };
    Ok(Local {
        class,
        view,
        seen: 0,
        touched: Vec::new(),
        reason: None,
    })
}
