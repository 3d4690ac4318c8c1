//! Starting pods in a round: where the pods of a job go at once, or why there is no place.

use std::collections::{BTreeMap, VecDeque};

use super::backfill;
use super::class::ClassId;
use super::decide::{Placed, Round};
use super::explain_gang;
use super::fabric::Level;
use super::gang_place::{Group, Part, Rows};
use super::scratch;
use super::topology::{SUBGROUP, SUBGROUP_TOPOLOGY, Wish};
use super::turn::{PodId, Spot, Unit};
use super::view::RowId;
use crate::model::{FilterCount, Reason, Str, Uid};

fn spots<'p>(placed: impl Iterator<Item = &'p Placed>) -> Vec<(PodId, Spot)> {
    placed.map(|(pod, spot, _)| (*pod, *spot)).collect()
}

/// A pod that can be placed.
type Member = (PodId, ClassId);

impl Round<'_> {
    /// Finds places that are free now for a unit; the scratch copy holds them.
    pub(super) fn place_now(&mut self, unit: &Unit, pool: usize) -> Result<Vec<Placed>, Reason> {
        let able: Vec<Member> = unit
            .pods
            .iter()
            .filter_map(|id| {
                let shape = self.world.shape_of(*id);
                let class = self.world.shapes.get(shape.0)?.waiting?;
                Some((*id, class))
            })
            .collect();
        let gang = self.world.job(unit.job).is_some_and(|j| j.gang.is_some());
        if unit.surplus || !gang {
            return self.one(unit, &able, pool);
        }
        self.all(unit, &able, pool)
    }

    /// Where it costs least among the rows of the pool that it keeps no reserved place from.
    fn place_one(&mut self, pod: PodId, class: ClassId, pool: usize) -> Option<scratch::Spot> {
        if self.world.tree.pools() == 1 && self.reserved.is_empty() {
            return match self.pod(pod)?.meta.controller() {
                Some(owner) if self.state.is_spread(class) => self.apart(&owner.uid, class),
                _ => self.scratch.place(class),
            };
        }
        // What found no row before finds none now, unless something was started since.
        let key = (class, pool, self.outlasted(pod));
        let when = (self.placed, self.reserved.len());
        if self.stuck.get(&key) == Some(&when) {
            return None;
        }
        self.world.look(self.world.shape_of(pod));
        let (world, reserved, now) = (&self.world, &self.reserved, self.now);
        let found = self.scratch.place_among(class, |row| {
            world.is_in(row, pool) && backfill::is_clear(world, reserved, now, pod, row)
        });
        if found.is_none() {
            self.stuck.insert(key, when);
        }
        found
    }

    /// Apart from the pods of the same owner, those placed in this round among them.
    fn apart(&mut self, owner: &Uid, class: ClassId) -> Option<scratch::Spot> {
        let known = self.state.siblings.get(owner);
        let siblings = self
            .siblings
            .entry(owner.clone())
            .or_insert_with(|| known.cloned().unwrap_or_default());
        let (spot, row) = if siblings.is_empty() {
            let mark = self.scratch.mark();
            let spot = self.scratch.place(class)?;
            let (row, _) = self.scratch.tried_since(mark).first().copied()?;
            (spot, row)
        } else {
            self.scratch.place_apart(class, siblings)?
        };
        *siblings.entry(row).or_default() += 1;
        Some(spot)
    }

    fn wish_of(&self, unit: &Unit) -> Wish {
        self.world.job(unit.job).map_or(Wish::default(), |j| j.wish)
    }

    /// Where the job's other pods are.
    fn anchor(&self, unit: &Unit) -> Option<RowId> {
        let pods = &self.world.job(unit.job)?.pods;
        let spot = pods.iter().find_map(|p| self.world.pod(*p)?.spot)?;
        Some(spot.row)
    }

    /// One pod: by itself, or beside the others of its gang.
    fn one(&mut self, unit: &Unit, able: &[Member], pool: usize) -> Result<Vec<Placed>, Reason> {
        let Some((pod, class)) = able.first().copied() else {
            return Err(Reason::NoNodeFits {
                nodes: 0,
                filters: Box::default(),
            });
        };
        let wish = self.wish_of(unit);
        let mark = self.scratch.mark();
        let anchor = self.anchor(unit);
        let levels = self.levels_around(wish);
        if let Some(anchor) = anchor {
            for level in levels {
                if self.beside(class, anchor, level, pool) {
                    let placed = self.dealt(&[(pod, class)], mark, None);
                    if self.keep_clear(&spots(placed.iter())) {
                        return Ok(placed);
                    }
                    self.scratch.undo(mark);
                }
            }
            if wish.required.is_some() {
                return Err(self.no_room_beside(class, anchor, wish));
            }
        }
        if let Some(level) = wish.required {
            return self.all_at(unit, able, pool, level);
        }
        let spot = self.place_one(pod, class, pool);
        match spot {
            Some(spot) => Ok(self.dealt(&[(pod, class)], mark, Some(spot.why))),
            None => Err(self.scratch.reason(class)),
        }
    }

    /// Levels at which a further pod would like to be beside the others, the closest first.
    fn levels_around(&self, wish: Wish) -> Vec<Level> {
        let Some(closest) = [wish.preferred, wish.required].into_iter().flatten().min() else {
            return Vec::new();
        };
        let widest = wish.required.unwrap_or(Level::CLUSTER);
        let mut levels = vec![Level::NODE];
        levels.extend(self.world.fabric().levels().iter().map(|(l, _)| *l));
        levels.retain(|l| *l >= closest && *l <= widest && *l != Level::CLUSTER);
        levels
    }

    fn beside(&mut self, class: ClassId, anchor: RowId, level: Level, pool: usize) -> bool {
        let world = &self.world;
        if level == Level::NODE {
            return self
                .scratch
                .place_among(class, |row| row == anchor)
                .is_some();
        }
        let Some(domain) = world.domain(anchor, level) else {
            return false;
        };
        self.scratch
            .place_among(class, |row| {
                world.domain(row, level) == Some(domain) && world.is_in(row, pool)
            })
            .is_some()
    }

    fn no_room_beside(&mut self, class: ClassId, anchor: RowId, wish: Wish) -> Reason {
        let within = wish
            .required
            .and_then(|level| self.world.domain(anchor, level));
        let mut reason = self.scratch.reason(class);
        if let Reason::NoNodeFits { nodes, filters } = &mut reason {
            let refused: u32 = filters.iter().map(|f| f.nodes).sum();
            let outside = nodes.saturating_sub(refused);
            let mut all = std::mem::take(filters).into_vec();
            if outside > 0 {
                all.push(explain_gang::outside(&self.scratch, within, outside));
            }
            *filters = all.into();
        }
        reason
    }

    /// The pods that a job needs, together.
    fn all(&mut self, unit: &Unit, able: &[Member], pool: usize) -> Result<Vec<Placed>, Reason> {
        let wish = self.wish_of(unit);
        let sets = self.sets(able)?;
        let within = match (wish.required, self.anchor(unit)) {
            (Some(level), Some(anchor)) => {
                if level == Level::NODE {
                    return self.all_beside(unit, able, anchor);
                }
                self.world.domain(anchor, level)
            }
            _ => None,
        };
        let groups: Vec<Group> = sets.iter().map(|(group, _)| group.clone()).collect();
        let mark = self.scratch.mark();
        if let Some((home, rows)) = self.scratch.place_gang(&groups, wish, within) {
            let why = explain_gang::why_together(&self.scratch, &rows, home, wish);
            let dealt = self.deal(able, &sets, &rows, mark, &why);
            if self.all_in(&dealt, pool) {
                return Ok(self.trim(dealt, able, unit.need, mark));
            }
            self.scratch.undo(mark);
        }
        match wish.required {
            None => self.anywhere(unit, able, pool),
            Some(level) => self.all_at(unit, able, pool, level),
        }
    }

    fn all_in(&mut self, placed: &[Option<Placed>], pool: usize) -> bool {
        let places = spots(placed.iter().flatten());
        let inside = |(_, spot): &(PodId, Spot)| self.world.is_in(spot.row, pool);
        places.iter().all(inside) && self.keep_clear(&places)
    }

    /// As many as can be in one domain of the level that is required, at least as many as the job
    /// needs.
    fn all_at(
        &mut self,
        unit: &Unit,
        able: &[Member],
        pool: usize,
        level: Level,
    ) -> Result<Vec<Placed>, Reason> {
        let sets = self.sets(able)?;
        let parts: Vec<Part> = sets
            .iter()
            .flat_map(|(group, _)| group.parts.iter().copied())
            .collect();
        let within = self
            .anchor(unit)
            .and_then(|anchor| self.world.domain(anchor, level));
        let least = u32::try_from(unit.need).unwrap_or(u32::MAX);
        let mark = self.scratch.mark();
        if unit.need < able.len() || level == Level::NODE {
            let found = if level == Level::NODE {
                self.most_on_node(able, unit.need, pool)
            } else {
                self.scratch
                    .place_most(&parts, level, within, least)
                    .map(|(home, rows)| {
                        let wish = self.wish_of(unit);
                        let why = explain_gang::why_together(&self.scratch, &rows, home, wish);
                        (rows, why)
                    })
            };
            if let Some((rows, why)) = found {
                let members: Vec<usize> = (0..able.len()).collect();
                let all = [(
                    Group {
                        parts: parts.clone(),
                        wish: Wish::default(),
                    },
                    members,
                )];
                let dealt = self.deal(able, &all, &rows, mark, &why);
                if self.all_in(&dealt, pool) {
                    return Ok(self.trim(dealt, able, unit.need, mark));
                }
                self.scratch.undo(mark);
            }
        }
        // A pod that no node takes at all waits for that, not for the level.
        let alone = parts.iter().find(|part| {
            let view = self.scratch.view(part.class);
            view.is_none_or(|v| v.fits() == 0)
        });
        if let Some(part) = alone.copied() {
            return Err(self.scratch.reason(part.class));
        }
        let nearest = self.scratch.nearest(&parts, level);
        let placed = self.world.job(unit.job).map_or(0, |j| j.placed);
        Err(Reason::GangDoesNotFit {
            fits: placed.saturating_add(nearest.fits),
            need: placed.saturating_add(least),
            filters: [explain_gang::too_small(&self.scratch, level, nearest)].into(),
        })
    }

    /// Some node that takes as many of the pods as the job needs.
    fn most_on_node(&mut self, able: &[Member], need: usize, pool: usize) -> Option<(Rows, Str)> {
        for row in self.world.rows() {
            if !self.world.is_in(row, pool) {
                continue;
            }
            let mark = self.scratch.mark();
            let mut rows = Rows::new();
            for (_, class) in able {
                if rows.len() < need && self.scratch.place_among(*class, |r| r == row).is_some() {
                    rows.push((*class, row));
                }
            }
            if rows.len() >= need {
                return Some((rows, "the node takes all that it needs".into()));
            }
            self.scratch.undo(mark);
        }
        None
    }

    fn all_beside(
        &mut self,
        unit: &Unit,
        able: &[Member],
        anchor: RowId,
    ) -> Result<Vec<Placed>, Reason> {
        let mark = self.scratch.mark();
        let mut members = Vec::new();
        for (pod, class) in able {
            if members.len() < unit.need
                && self.scratch.place_among(*class, |r| r == anchor).is_some()
            {
                members.push((*pod, *class));
            }
        }
        if members.len() >= unit.need {
            return Ok(self.dealt(&members, mark, None));
        }
        self.scratch.undo(mark);
        let class = able.first().map(|(_, class)| *class);
        Err(class.map_or(
            Reason::NoNodeFits {
                nodes: 0,
                filters: Box::default(),
            },
            |class| self.scratch.reason(class),
        ))
    }

    /// What was placed since the mark, one place for each of these members.
    fn dealt(&self, members: &[Member], mark: usize, why: Option<Str>) -> Vec<Placed> {
        let why = why.unwrap_or_else(|| "beside the rest of its gang".into());
        let tried = self.scratch.tried_since(mark);
        members
            .iter()
            .zip(tried)
            .map(|((pod, _), (row, held))| (*pod, Spot { row, held }, why.clone()))
            .collect()
    }

    /// Deals what was placed since the mark to the members, in their order.
    fn deal(
        &self,
        able: &[Member],
        sets: &[(Group, Vec<usize>)],
        rows: &Rows,
        mark: usize,
        why: &Str,
    ) -> Vec<Option<Placed>> {
        let tried = self.scratch.tried_since(mark);
        let mut spots: Vec<Option<Placed>> = able.iter().map(|_| None).collect();
        let mut open = rows.iter().zip(tried).peekable();
        for (_, members) in sets {
            let mut waiting: BTreeMap<ClassId, VecDeque<usize>> = BTreeMap::new();
            for at in members {
                if let Some((_, class)) = able.get(*at) {
                    waiting.entry(*class).or_default().push_back(*at);
                }
            }
            // A set's rows end where none of its members waits for the class.
            while let Some(((class, _), _)) = open.peek()
                && let Some(at) = waiting.get_mut(class).and_then(VecDeque::pop_front)
                && let Some((_, (row, held))) = open.next()
            {
                if let (Some(slot), Some((pod, _))) = (spots.get_mut(at), able.get(at)) {
                    *slot = Some((*pod, Spot { row, held }, why.clone()));
                }
            }
        }
        spots
    }

    /// Keeps the first `need` of what was placed since the mark.
    fn trim(
        &mut self,
        placed: Vec<Option<Placed>>,
        able: &[Member],
        need: usize,
        mark: usize,
    ) -> Vec<Placed> {
        let all = placed.iter().flatten().count();
        let kept: Vec<(Placed, ClassId)> = placed
            .into_iter()
            .zip(able)
            .filter_map(|(placed, (_, class))| Some((placed?, *class)))
            .take(need)
            .collect();
        if kept.len() < all {
            self.scratch.undo(mark);
            for ((_, spot, _), class) in &kept {
                if let Some(class) = self.state.classes.get(*class) {
                    self.scratch.take_here(class, spot.row, spot.held);
                }
            }
        }
        kept.into_iter().map(|(placed, _)| placed).collect()
    }

    /// The members by sub-group, the largest first, each with its pods by class.
    fn sets(&self, able: &[Member]) -> Result<Vec<(Group, Vec<usize>)>, Reason> {
        let own = self.state.rows.levels();
        let mut sets: BTreeMap<Str, (Wish, Vec<usize>)> = BTreeMap::new();
        for (at, (pod, _)) in able.iter().enumerate() {
            let Some(pod) = self.pod(*pod) else { continue };
            let name = pod.meta.annotation(SUBGROUP).unwrap_or("");
            let wish = match name {
                "" => Wish::default(),
                _ => Wish::of_meta(&pod.meta, SUBGROUP_TOPOLOGY, own)?,
            };
            let set = sets.entry(name.into()).or_insert((wish, Vec::new()));
            set.1.push(at);
        }
        let mut sets: Vec<(Group, Vec<usize>)> = sets
            .into_values()
            .map(|(wish, members)| {
                let mut parts: Vec<Part> = Vec::new();
                for (_, class) in members.iter().filter_map(|at| able.get(*at)) {
                    match parts.iter_mut().find(|p| p.class == *class) {
                        Some(part) => part.pods += 1,
                        None => parts.push(Part {
                            class: *class,
                            pods: 1,
                        }),
                    }
                }
                parts.sort_by_key(|part| std::cmp::Reverse(self.scratch.size(part.class)));
                (Group { parts, wish }, members)
            })
            .collect();
        sets.sort_by_key(|(group, members)| {
            let size = |p: &Part| {
                self.scratch
                    .size(p.class)
                    .0
                    .saturating_mul(i64::from(p.pods))
            };
            let size: i64 = group.parts.iter().map(size).sum();
            std::cmp::Reverse((group.wish.required.is_some(), size, members.len()))
        });
        Ok(sets)
    }

    /// Each pod where it costs least, in both orders; else nothing.
    fn anywhere(
        &mut self,
        unit: &Unit,
        able: &[Member],
        pool: usize,
    ) -> Result<Vec<Placed>, Reason> {
        let mark = self.scratch.mark();
        let mut best: (usize, Box<[FilterCount]>) = (0, Box::default());
        for order in self.orders(able) {
            let (places, stopped) = self.try_each(&order, unit.need, pool);
            if places.len() >= unit.need && self.keep_clear(&spots(places.iter())) {
                return Ok(places);
            }
            let filters = stopped.map_or_else(Box::default, |class| self.scratch.filters(class));
            // The reason is asked for while the others hold their places.
            let fits = places.len().min(unit.need.saturating_sub(1));
            if best.1.is_empty() || fits > best.0 {
                best = (fits, filters);
            }
            self.scratch.undo(mark);
        }
        let placed = self.world.job(unit.job).map_or(0, |j| j.placed);
        let min = self.world.job(unit.job).map_or(1, |j| j.min);
        if min <= 1 {
            let class = able.first().map(|(_, class)| *class);
            return Err(class.map_or(
                Reason::NoNodeFits {
                    nodes: 0,
                    filters: Box::default(),
                },
                |class| self.scratch.reason(class),
            ));
        }
        Err(Reason::GangDoesNotFit {
            fits: placed.saturating_add(u32::try_from(best.0).unwrap_or(u32::MAX)),
            need: min,
            filters: best.1,
        })
    }

    /// The members in their order and, when they differ, the largest first.
    fn orders(&self, able: &[Member]) -> Vec<Vec<Member>> {
        let mut orders = vec![able.to_vec()];
        if able.windows(2).any(|w| matches!(w, [a, b] if a.1 != b.1)) {
            let mut largest_first = able.to_vec();
            largest_first.sort_by_key(|(_, class)| std::cmp::Reverse(self.scratch.size(*class)));
            orders.push(largest_first);
        }
        orders
    }

    /// Tries each member until enough have a place; tells the class of the first that found none.
    fn try_each(
        &mut self,
        order: &[Member],
        need: usize,
        pool: usize,
    ) -> (Vec<Placed>, Option<ClassId>) {
        let mut stopped = None;
        let mut placed = Vec::new();
        for (pod, class) in order {
            if placed.len() >= need {
                break;
            }
            let mark = self.scratch.mark();
            match self.place_one(*pod, *class, pool) {
                Some(spot) => placed.extend(self.dealt(&[(*pod, *class)], mark, Some(spot.why))),
                None => {
                    stopped.get_or_insert(*class);
                }
            }
        }
        (placed, stopped)
    }
}
