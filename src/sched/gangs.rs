//! Gangs in a round: how many pods have to have a place at once, and all or nothing.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::class::ClassId;
use super::decide::Round;
use super::fabric::{DomainId, Level};
use super::gang::{self, GangKey};
use super::gang_place::{Group, Home, Part, Rows as Placed};
use super::scratch::Spot;
use super::state::Tracked;
use super::topology::{SUBGROUP, SUBGROUP_TOPOLOGY, TOPOLOGY, Wish};
use super::{explain, explain_gang};
use crate::model::{FilterCount, Kind, Phase, Pod, Reason};

/// How many pods of a gang have to have a place at once.
pub(super) enum Need {
    /// Each pod is for itself.
    Alone,
    /// So many.
    Pods(u32),
    /// Its Job is not known yet but may come any moment: the watches of two kinds are not in step.
    NotYetKnown,
}

/// How long after a pod's creation its Job may be missing before that is worth a word.
const JOB_GRACE_SECS: i64 = 5;

/// A pod of a gang that can be placed.
type Member<'t> = (&'t Tracked, ClassId);

impl<'a> Round<'a> {
    pub(super) fn need(&self, key: &GangKey, pod: &Pod) -> Result<Need, Reason> {
        let stated = gang::gang_min(pod.meta.annotation(gang::GANG_MIN))?;
        let need = match key {
            GangKey::Group { .. } => {
                let mut need = 1;
                for member in self.state.members(key) {
                    let stated = gang::gang_min(member.pod.meta.annotation(gang::GANG_MIN))?;
                    let group = member.pod.group.as_ref().and_then(|g| g.min_members);
                    need = need.max(stated.or(group).unwrap_or(1));
                }
                need
            }
            GangKey::Job(uid) => {
                if let Some(n) = stated {
                    n
                } else {
                    let Some(job) = self.state.job(uid) else {
                        let grace = SignedDuration::from_secs(JOB_GRACE_SECS);
                        let created = pod.meta.created.unwrap_or(Timestamp::MIN);
                        if self.now.duration_since(created) < grace {
                            return Ok(Need::NotYetKnown);
                        }
                        let why = self.state.source_trouble(Kind::Job);
                        let name = pod.meta.controller().map_or("", |o| &*o.name);
                        return Err(Reason::Unsupported {
                            what: format!(
                                "Job {name} is not known, so neither is how many of its pods \
                                 must start together{}",
                                why.map_or_else(String::new, |w| format!(": {w}"))
                            )
                            .into(),
                        });
                    };
                    match gang::gang_min(job.meta.annotation(gang::GANG_MIN))? {
                        Some(n) => n,
                        // What has succeeded is counted only where it matters.
                        None if job.parallelism <= 1 => 1,
                        None => gang::job_size(job, self.succeeded(key)),
                    }
                }
            }
        };
        Ok(if need > 1 {
            Need::Pods(need)
        } else {
            Need::Alone
        })
    }

    fn succeeded(&self, key: &GangKey) -> u32 {
        let done = self
            .state
            .members(key)
            .filter(|t| t.pod.phase == Phase::Succeeded)
            .count();
        u32::try_from(done).unwrap_or(u32::MAX)
    }

    /// All or nothing: the gang's pods with a place and those placed now reach `need`, or none is
    /// placed.
    pub(super) fn gang(&mut self, key: &GangKey, need: u32) {
        let state = self.state;
        let with_place = state
            .members(key)
            .filter(|t| state.has_place(&t.pod))
            .count();
        let with_place = u32::try_from(with_place).unwrap_or(u32::MAX);
        let mut waiting: Vec<(&Tracked, ClassId)> = state
            .members(key)
            .filter_map(|t| t.waiting.as_ref().map(|(_, class)| (t, *class)))
            .collect();
        waiting.sort_by(|(a, _), (b, _)| {
            let order = |t: &'a Tracked| t.waiting.as_ref().map(|(key, _)| key);
            order(a).cmp(&order(b))
        });
        let mut able = Vec::with_capacity(waiting.len());
        let mut held = None;
        for (tracked, class) in waiting {
            match &tracked.problem {
                // A gated pod does not take part yet; another problem stops the gang only when
                // the others are too few without it.
                Some(reason) => {
                    if !matches!(reason, Reason::Gated { .. }) {
                        held.get_or_insert(reason);
                    }
                    self.wait(&tracked.pod, reason);
                }
                None => able.push((tracked, class)),
            }
        }
        if with_place >= need {
            for (tracked, class) in able {
                self.beside(key, tracked, class);
            }
            return;
        }
        if able.iter().any(|(t, _)| self.was_refused(&t.pod)) {
            return;
        }
        let have = with_place.saturating_add(u32::try_from(able.len()).unwrap_or(u32::MAX));
        if have < need {
            let reason = match held {
                Some(held) => Reason::GangDoesNotFit {
                    fits: have,
                    need,
                    filters: explain::as_filters(state, held),
                },
                None => Reason::GangIncomplete { have, need },
            };
            for (tracked, _) in able {
                self.wait(&tracked.pod, &reason);
            }
            return;
        }
        self.gang_of(key, &able, with_place, need);
    }

    fn gang_of(&mut self, key: &GangKey, able: &[Member<'_>], with_place: u32, need: u32) {
        let missing = usize::try_from(need - with_place).unwrap_or(usize::MAX);
        let (wish, sets) = match self.wish(key).and_then(|w| Ok((w, self.sets(able)?))) {
            Ok(both) => both,
            Err(reason) => {
                for (tracked, _) in able {
                    self.wait(&tracked.pod, &reason);
                }
                return;
            }
        };
        let within = wish.required.and_then(|level| self.home_of(key, level));
        let groups: Vec<Group> = sets.iter().map(|(group, _)| group.clone()).collect();
        let mark = self.scratch.mark();
        if let Some((home, rows)) = self.scratch.place_gang(&groups, wish, within) {
            let members = sets.iter().map(|(_, members)| &**members);
            let spots = self.spots(able, members, &rows, mark, home, wish);
            self.settle_gang(able, spots, missing);
            return;
        }
        let Some(level) = wish.required else {
            self.gang_anywhere(able, with_place, need);
            return;
        };
        let parts: Vec<Part> = groups.into_iter().flat_map(|g| g.parts).collect();
        let least = u32::try_from(missing).unwrap_or(u32::MAX);
        if missing < able.len()
            && let Some((home, rows)) = self.scratch.place_most(&parts, level, within, least)
        {
            let all: Vec<usize> = (0..able.len()).collect();
            let members = std::iter::once(&*all);
            let spots = self.spots(able, members, &rows, mark, home, wish);
            self.settle_gang(able, spots, missing);
            return;
        }
        let nearest = self.scratch.nearest(&parts, level);
        let reason = Reason::GangDoesNotFit {
            fits: with_place.saturating_add(nearest.fits),
            need,
            filters: [explain_gang::too_small(&self.scratch, level, nearest)].into(),
        };
        for (tracked, _) in able {
            self.wait(&tracked.pod, &reason);
        }
    }

    /// How close together the gang has to be, by its pods or their Job.
    fn wish(&self, key: &GangKey) -> Result<Wish, Reason> {
        let own = self.state.rows.levels();
        let mut found = Wish::default();
        for member in self.state.members(key) {
            let wish = Wish::of_meta(&member.pod.meta, TOPOLOGY, own)?;
            if wish == found || wish == Wish::default() {
                continue;
            }
            if found != Wish::default() {
                return Err(Reason::Unsupported {
                    what: format!("pods of one gang state different annotations {TOPOLOGY}").into(),
                });
            }
            found = wish;
        }
        if found == Wish::default()
            && let GangKey::Job(uid) = key
            && let Some(job) = self.state.job(uid)
        {
            return Wish::of_meta(&job.meta, TOPOLOGY, own);
        }
        Ok(found)
    }

    /// The members by sub-group, the largest first, each with its pods by class.
    fn sets(&self, able: &[Member<'_>]) -> Result<Vec<(Group, Vec<usize>)>, Reason> {
        let own = self.state.rows.levels();
        let mut sets: BTreeMap<&str, (Wish, Vec<usize>)> = BTreeMap::new();
        for (at, (tracked, _)) in able.iter().enumerate() {
            let meta = &tracked.pod.meta;
            let name = meta.annotation(SUBGROUP).unwrap_or("");
            let wish = match name {
                "" => Wish::default(),
                _ => Wish::of_meta(meta, SUBGROUP_TOPOLOGY, own)?,
            };
            let set = sets.entry(name).or_insert((wish, Vec::new()));
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

    /// The domain of a level in which most of the gang's pods are already.
    fn home_of(&self, key: &GangKey, level: Level) -> Option<DomainId> {
        let (fabric, _) = self.state.rows.fabric();
        let mut homes: BTreeMap<DomainId, usize> = BTreeMap::new();
        for member in self.state.members(key) {
            if self.state.has_place(&member.pod)
                && let Some(node) = &member.place
                && let Some(row) = self.state.rows.id(node)
                && let Some(domain) = fabric.at(row, level)
            {
                *homes.entry(domain).or_default() += 1;
            }
        }
        let most = homes
            .into_iter()
            .max_by_key(|(id, n)| (*n, std::cmp::Reverse(*id)));
        most.map(|(id, _)| id)
    }

    /// Deals what was placed since the mark to the members, in their order.
    fn spots<'m>(
        &self,
        able: &[Member<'_>],
        sets: impl Iterator<Item = &'m [usize]>,
        rows: &Placed,
        mark: usize,
        home: Home,
        wish: Wish,
    ) -> Vec<Option<Spot>> {
        let placed = self.scratch.since(mark);
        let why = explain_gang::why_together(&self.scratch, rows, home, wish);
        let mut spots: Vec<Option<Spot>> = able.iter().map(|_| None).collect();
        let mut open = rows.iter().zip(placed).peekable();
        for members in sets {
            let mut waiting: BTreeMap<ClassId, VecDeque<usize>> = BTreeMap::new();
            for at in members {
                if let Some((_, class)) = able.get(*at) {
                    waiting.entry(*class).or_default().push_back(*at);
                }
            }
            // A set's rows end where none of its members waits for the class.
            while let Some(((class, _), _)) = open.peek()
                && let Some(at) = waiting.get_mut(class).and_then(VecDeque::pop_front)
                && let Some((_, (node, device))) = open.next()
            {
                if let Some(spot) = spots.get_mut(at) {
                    *spot = Some(Spot {
                        node,
                        device,
                        why: why.clone(),
                    });
                }
            }
        }
        spots
    }

    /// One more pod for a gang that has what it needs: beside the others where that is required.
    fn beside(&mut self, key: &GangKey, tracked: &Tracked, class: ClassId) {
        let wish = match self.wish(key) {
            Ok(wish) => wish,
            Err(reason) => {
                self.wait(&tracked.pod, &reason);
                return;
            }
        };
        let within = wish.required.and_then(|level| self.home_of(key, level));
        if within.is_none() || self.was_refused(&tracked.pod) {
            self.alone(tracked);
            return;
        }
        let part = Part { class, pods: 1 };
        let group = Group {
            parts: vec![part],
            wish: Wish::default(),
        };
        let mark = self.scratch.mark();
        let found = self.scratch.place_gang(&[group], wish, within);
        let able = [(tracked, class)];
        if let Some((home, rows)) = found {
            let members = std::iter::once(&[0_usize][..]);
            let spots = self.spots(&able, members, &rows, mark, home, wish);
            self.settle_gang(&able, spots, 1);
            return;
        }
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
        self.wait(&tracked.pod, &reason);
    }

    /// Each pod where it costs least, in both orders; else nothing.
    fn gang_anywhere(&mut self, able: &[Member<'_>], with_place: u32, need: u32) {
        let missing = usize::try_from(need - with_place).unwrap_or(usize::MAX);
        let mark = self.scratch.mark();
        let mut best: (usize, Box<[FilterCount]>) = (0, Box::default());
        for order in self.orders(able) {
            let (spots, stopped) = self.try_all(&order);
            let placed = spots.iter().flatten().count();
            if placed >= missing {
                self.settle_gang(&order, spots, missing);
                return;
            }
            let filters = stopped.map_or_else(Box::default, |class| self.scratch.filters(class));
            // The reason is asked for while the others hold their places.
            if best.1.is_empty() || placed > best.0 {
                best = (placed, filters);
            }
            self.scratch.undo(mark);
        }
        let reason = Reason::GangDoesNotFit {
            fits: with_place.saturating_add(u32::try_from(best.0).unwrap_or(u32::MAX)),
            need,
            filters: best.1,
        };
        for (tracked, _) in able {
            self.wait(&tracked.pod, &reason);
        }
    }

    /// The members in queue order and, when they differ, the largest first.
    fn orders<'t>(&self, able: &[(&'t Tracked, ClassId)]) -> Vec<Vec<(&'t Tracked, ClassId)>> {
        let mut orders = vec![able.to_vec()];
        if able.windows(2).any(|w| matches!(w, [a, b] if a.1 != b.1)) {
            let mut largest_first = able.to_vec();
            largest_first.sort_by_key(|(_, class)| std::cmp::Reverse(self.scratch.size(*class)));
            orders.push(largest_first);
        }
        orders
    }

    /// Tries each member; tells the spots and the class of the first that found none.
    fn try_all(&mut self, order: &[(&Tracked, ClassId)]) -> (Vec<Option<Spot>>, Option<ClassId>) {
        let mut stopped = None;
        let spots = order
            .iter()
            .map(|(_, class)| {
                let spot = self.scratch.place(*class);
                if spot.is_none() {
                    stopped.get_or_insert(*class);
                }
                spot
            })
            .collect();
        (spots, stopped)
    }

    /// The pods that the gang needs are one group; those beyond are for themselves.
    fn settle_gang(
        &mut self,
        order: &[(&Tracked, ClassId)],
        spots: Vec<Option<Spot>>,
        missing: usize,
    ) {
        let mut group = Vec::with_capacity(missing);
        let mut beyond = Vec::new();
        for ((tracked, class), spot) in order.iter().zip(spots) {
            match spot {
                Some(spot) => {
                    let action = self.place(&tracked.pod, spot);
                    if group.len() < missing {
                        group.push(action);
                    } else {
                        beyond.push(vec![action]);
                    }
                }
                None => {
                    let reason = self.scratch.reason(*class);
                    self.wait(&tracked.pod, &reason);
                }
            }
        }
        self.plan.groups.push(group);
        self.plan.groups.append(&mut beyond);
    }
}
