//! A gang goes as close together as it fits: one node, NVLink domain, leaf, spine and so on, in
//! each the domain that it leaves fullest, over as few of its parts as can be.

use super::class::ClassId;
use super::fabric::{DomainId, Level};
use super::scratch::Scratch;
use super::topology::Wish;
use super::view::RowId;

/// Domains in which a mixed gang is tried before the next wider level is.
const TRIED: usize = 64;
/// Domains of one class that are compared by the nodes that they take.
const COMPARED: usize = 16;

/// Pods of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) class: ClassId,
    pub(super) pods: u32,
}

/// Pods that lie together: parts, and how close they wish to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) parts: Vec<Part>,
    pub(super) wish: Wish,
}

/// Where a gang lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Home {
    pub(super) level: Level,
    /// `None` for one node, or the cluster.
    pub(super) domain: Option<DomainId>,
}

/// A pod's row, in the order of the parts.
pub(super) type Rows = Vec<(ClassId, RowId)>;

/// What comes nearest where a gang does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nearest {
    /// The best domain of the level.
    pub(super) domain: Option<DomainId>,
    /// Pods that it has room for.
    pub(super) fits: u32,
    /// Domains of the level.
    pub(super) domains: u32,
}

impl Scratch<'_> {
    /// Places all groups of a gang in one domain; the rows are told and taken. `within` is where
    /// it has to be, because others of it are there.
    pub(super) fn place_gang(
        &mut self,
        groups: &[Group],
        wish: Wish,
        within: Option<DomainId>,
    ) -> Option<(Home, Rows)> {
        let parts: Vec<Part> = groups
            .iter()
            .flat_map(|g| g.parts.iter().copied())
            .collect();
        for part in &parts {
            self.count(part.class)?;
        }
        let subgroups = groups.iter().any(|g| g.wish.required.is_some());
        if !subgroups && let Some(found) = self.on_one_node(&parts, within) {
            return Some(found);
        }
        if wish.required == Some(Level::NODE) {
            return None;
        }
        let levels = self.rules().fabric.0.levels();
        for (level, domains) in levels {
            if wish.required.is_some_and(|required| *level > required) {
                return None;
            }
            for domain in self.by_least_left(domains, &parts, within) {
                if let Some(rows) = self.fill_groups(groups, Some(domain)) {
                    let home = Home {
                        level: *level,
                        domain: Some(domain),
                    };
                    return Some((home, rows));
                }
            }
        }
        if wish.required.is_some_and(|r| r != Level::CLUSTER) {
            return None;
        }
        let home = Home {
            level: Level::CLUSTER,
            domain: within,
        };
        self.fill_groups(groups, within).map(|rows| (home, rows))
    }

    /// As many pods as can be, at least `least`, in one domain of the required level.
    pub(super) fn place_most(
        &mut self,
        parts: &[Part],
        level: Level,
        within: Option<DomainId>,
        least: u32,
    ) -> Option<(Home, Rows)> {
        for part in parts {
            self.count(part.class)?;
        }
        let mut domains: Vec<(u32, DomainId)> = self
            .domains_of(level)
            .into_iter()
            .filter(|id| self.rules().fabric.0.lies_in(*id, within))
            .map(|id| (self.most_in(parts, Some(id)), id))
            .filter(|(most, _)| *most >= least)
            .collect();
        domains.sort_by_key(|(most, id)| (std::cmp::Reverse(*most), *id));
        domains.truncate(TRIED);
        for (_, domain) in domains {
            let mark = self.mark();
            let mut rows = Rows::new();
            for part in parts {
                let room = self.room(part.class, Some(domain)).min(part.pods);
                let fewer = Part {
                    pods: room,
                    ..*part
                };
                rows.extend(self.fill(fewer, Some(domain)).unwrap_or_default());
            }
            if u32::try_from(rows.len()).is_ok_and(|n| n >= least) {
                let home = Home {
                    level,
                    domain: Some(domain),
                };
                return Some((home, rows));
            }
            self.undo(mark);
        }
        None
    }

    /// The domain of a level that has room for most of the parts.
    pub(super) fn nearest(&mut self, parts: &[Part], level: Level) -> Nearest {
        let mut nearest = Nearest {
            domain: None,
            fits: 0,
            domains: 0,
        };
        for part in parts {
            if self.count(part.class).is_none() {
                return nearest;
            }
        }
        let domains = self.domains_of(level);
        nearest.domains = u32::try_from(domains.len()).unwrap_or(u32::MAX);
        for id in domains {
            let fits = self.most_in(parts, Some(id));
            if fits > nearest.fits {
                nearest.fits = fits;
                nearest.domain = Some(id);
            }
        }
        nearest
    }

    /// Pods of the parts that there is room for within the level that they require, each class seen
    /// alone: in the domain that takes most.
    pub(super) fn most_within(&mut self, parts: &[Part], required: Option<Level>) -> u32 {
        for part in parts {
            self.count(part.class);
        }
        match required {
            None | Some(Level::CLUSTER) => self.most_in(parts, None),
            Some(Level::NODE) => {
                let on = |row: RowId| -> u32 {
                    let room = |part: &Part| {
                        let view = self.view(part.class);
                        view.map_or(0, |v| u32::from(v.room_on(row)).min(part.pods))
                    };
                    parts.iter().map(room).sum()
                };
                let rows = self.rules().ranks.len();
                (0..rows).map(|row| on(RowId(row))).max().unwrap_or(0)
            }
            Some(level) => {
                let domains = self.domains_of(level).into_iter();
                let most = domains.map(|id| self.most_in(parts, Some(id))).max();
                most.unwrap_or(0)
            }
        }
    }

    fn domains_of(&self, level: Level) -> Vec<DomainId> {
        let levels = self.rules().fabric.0.levels();
        let found = levels.iter().find(|(l, _)| *l == level);
        found.map_or_else(Vec::new, |(_, ids)| ids.clone())
    }

    /// Pods of the parts that there is room for, each class seen alone.
    fn most_in(&self, parts: &[Part], domain: Option<DomainId>) -> u32 {
        let room = |part: &Part| self.room(part.class, domain).min(part.pods);
        parts.iter().map(room).sum()
    }

    /// Domains with room for each class alone, the one that would be left fullest first.
    fn by_least_left(
        &self,
        domains: &[DomainId],
        parts: &[Part],
        within: Option<DomainId>,
    ) -> Vec<DomainId> {
        let fabric = self.rules().fabric.0;
        let mut fit: Vec<(u32, DomainId)> = domains
            .iter()
            .filter(|id| fabric.lies_in(**id, within))
            .filter_map(|id| {
                let mut left = 0;
                for part in parts {
                    left += self.room(part.class, Some(*id)).checked_sub(part.pods)?;
                }
                Some((left, *id))
            })
            .collect();
        fit.sort_unstable();
        fit.truncate(TRIED);
        let [only] = parts else {
            return fit.into_iter().map(|(_, id)| id).collect();
        };
        // All are exact for a single class: of the fullest few the one that takes fewest nodes.
        fit.truncate(COMPARED);
        let nodes = |id: DomainId| self.nodes_for(*only, id);
        let best = fit
            .into_iter()
            .min_by_key(|(left, id)| (nodes(*id), *left, *id));
        best.map(|(_, id)| id).into_iter().collect()
    }

    /// Nodes of a domain that pods of a class need at least.
    fn nodes_for(&self, part: Part, id: DomainId) -> u32 {
        let (Some(view), Some(domain)) = (self.view(part.class), self.rules().fabric.0.domain(id))
        else {
            return u32::MAX;
        };
        // By how many pods a node takes, up to the usual sixteen; more count as so many.
        let mut by_room = [0_u32; 17];
        for row in &domain.rows {
            let room = usize::from(view.room_on(*row)).min(16);
            if let Some(n) = by_room.get_mut(room) {
                *n += 1;
            }
        }
        let (mut left, mut nodes) = (part.pods, 0);
        for (room, count) in (1..=16).rev().zip(by_room.iter().rev()) {
            let used = left.div_ceil(room).min(*count);
            nodes += used;
            left = left.saturating_sub(used * room);
        }
        nodes
    }

    fn on_one_node(&mut self, parts: &[Part], within: Option<DomainId>) -> Option<(Home, Rows)> {
        let (first, others) = parts.split_first()?;
        let fabric = self.rules().fabric.0;
        let mut fit: Vec<(u32, u64, u32, RowId)> = Vec::new();
        {
            let view = self.view(first.class)?;
            for (i, room) in view.rooms().iter().enumerate() {
                let Some(left) = u32::from(*room).checked_sub(first.pods) else {
                    continue;
                };
                let id = RowId(i);
                let inside = within.is_none_or(|outer| fabric.of_row(id).contains(&outer));
                if inside {
                    let rank = self.rules().ranks.get(i).copied().unwrap_or(u32::MAX);
                    fit.push((left, view.key(id), rank, id));
                }
            }
        }
        fit.retain(|(.., id)| {
            let roomy = |part: &Part| {
                self.view(part.class)
                    .is_some_and(|v| u32::from(v.room_on(*id)) >= part.pods)
            };
            others.iter().all(roomy)
        });
        let home = Home {
            level: Level::NODE,
            domain: None,
        };
        if others.is_empty() {
            let (.., row) = fit.into_iter().min()?;
            let rows = self.put_pods(*first, row)?;
            return Some((home, rows));
        }
        fit.sort_unstable();
        fit.truncate(TRIED);
        for (.., row) in fit {
            let mark = self.mark();
            let mut rows = Rows::new();
            let all = parts.iter().all(|part| {
                let room = self.refreshed_room_on(part.class, row);
                if room < part.pods {
                    return false;
                }
                rows.extend(self.put_pods(*part, row).unwrap_or_default());
                true
            });
            if all {
                return Some((home, rows));
            }
            self.undo(mark);
        }
        None
    }

    /// Fills all groups into a domain, or nothing. Groups with a level of their own are placed in
    /// a part of it.
    fn fill_groups(&mut self, groups: &[Group], domain: Option<DomainId>) -> Option<Rows> {
        let mark = self.mark();
        let mut rows = Rows::new();
        for group in groups {
            let placed = if group.wish.required.is_some() {
                let alone = Group {
                    wish: Wish::default(),
                    ..group.clone()
                };
                self.place_gang(&[alone], group.wish, domain)
                    .map(|(_, rows)| rows)
            } else {
                self.fill_parts(&group.parts, domain)
            };
            match placed {
                Some(placed) => rows.extend(placed),
                None => {
                    self.undo(mark);
                    return None;
                }
            }
        }
        Some(rows)
    }

    fn fill_parts(&mut self, parts: &[Part], domain: Option<DomainId>) -> Option<Rows> {
        let mark = self.mark();
        let mut rows = Rows::new();
        for part in parts {
            self.count(part.class)?;
            match self.fill(*part, domain) {
                Some(placed) => rows.extend(placed),
                None => {
                    self.undo(mark);
                    return None;
                }
            }
        }
        Some(rows)
    }

    /// Fills pods of one class into a domain over as few of its parts as can be: the largest
    /// first, and the last into the smallest that takes the rest.
    fn fill(&mut self, part: Part, domain: Option<DomainId>) -> Option<Rows> {
        self.count(part.class)?;
        if self.room(part.class, domain) < part.pods {
            return None;
        }
        let mut rows = Rows::with_capacity(part.pods as usize);
        let mut left = part.pods;
        let (children, loose) = self.rules().fabric.0.parts(domain);
        let mut places: Vec<(u32, u64, u32, Place)> = Vec::with_capacity(loose.len());
        {
            let view = self.view(part.class)?;
            for id in children {
                let room = view.room_in(Some(*id));
                if room > 0 {
                    places.push((room, 0, id.0, Place::Domain(*id)));
                }
            }
            for id in loose {
                let room = u32::from(view.room_on(*id));
                if room > 0 {
                    let rank = self.rules().ranks.get(id.0).copied().unwrap_or(u32::MAX);
                    places.push((room, view.key(*id), rank, Place::Row(*id)));
                }
            }
        }
        places.sort_unstable();
        while left > 0 {
            let largest = places.last()?.0;
            let wanted = left.min(largest);
            let at = places.partition_point(|(room, ..)| *room < wanted);
            let (room, .., place) = places.remove(at);
            let some = Part {
                pods: left.min(room),
                ..part
            };
            left -= some.pods;
            rows.extend(match place {
                Place::Row(row) => self.put_pods(some, row)?,
                Place::Domain(id) => self.fill(some, Some(id))?,
            });
        }
        Some(rows)
    }

    fn put_pods(&mut self, part: Part, row: RowId) -> Option<Rows> {
        let mut rows = Rows::with_capacity(part.pods as usize);
        for _ in 0..part.pods {
            self.take(part.class, row)?;
            rows.push((part.class, row));
        }
        Some(rows)
    }
}

/// A part of a domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Row(RowId),
    Domain(DomainId),
}
