//! Series of the timeline: what happens to one pod after the other of a workload in a short time is
//! one row, which Enter opens. What another scheduler or the autoscaler says of all that waits is one
//! row whatever workloads it is about.

use std::collections::BTreeSet;
use std::sync::Arc;

use ahash::AHashMap;
use jiff::{SignedDuration, Timestamp};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::describe;
use super::happening::What;
use super::list::{List, News, list_view};
use super::timeline::{self, Happening, SPEC};
use crate::model::{DecisionKind, Kind};
use crate::tui::format;
use crate::tui::view::{Ctx, FilterError, Motion, Sort, Target, View, ViewId};

/// How far apart two neighbours of a series may be.
const GAP: SignedDuration = SignedDuration::from_secs(60);
/// Letters of the random endings of names that Kubernetes makes.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Happenings of one kind about different pods of one workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What the names of their pods have in common; empty when they are of several workloads.
    pub stem: String,
    /// All of them, oldest first; never empty.
    all: Vec<Happening>,
}

impl Series {
    /// All of them, oldest first.
    pub fn all(&self) -> &[Happening] {
        &self.all
    }

    /// The first of them, by which the series goes.
    pub fn first(&self) -> Option<&Happening> {
        self.all.first()
    }

    /// The latest of them.
    pub fn last(&self) -> Option<&Happening> {
        self.all.last()
    }

    /// Their number; pods that one decision is about count one by one.
    pub fn count(&self) -> usize {
        let pods = |h: &Happening| match h {
            Happening::Decision(_, more) => more + 1,
            _ => 1,
        };
        self.all.iter().map(pods).sum()
    }

    /// The namespace of all of them; empty when there are several.
    pub fn namespace(&self) -> &str {
        let first = self.first().map_or("", Happening::namespace);
        let same = self.all.iter().all(|h| h.namespace() == first);
        if same { first } else { "" }
    }

    /// `12 pods of train/llm`, `40 pods, 9 workloads`.
    pub fn subject(&self) -> String {
        let pods = format::count_of(self.count());
        if !self.stem.is_empty() {
            return format!("{pods} pods of {}/{}", self.namespace(), self.stem);
        }
        let of = self.all.iter().map(|h| (h.namespace(), stem(h.name())));
        let of: BTreeSet<(&str, &str)> = of.collect();
        format!("{pods} pods, {} workloads", format::count_of(of.len()))
    }

    /// What happened to all of them.
    pub fn sentence(&self) -> String {
        let Some(last) = self.last() else {
            return String::new();
        };
        let nodes: BTreeSet<&str> = self.all.iter().filter_map(node).collect();
        let on = |verb: &str| match nodes.len() {
            0 => verb.to_owned(),
            1 => format!("{verb} 1 node"),
            n => format!("{verb} {} nodes", format::count_of(n)),
        };
        match last {
            Happening::Decision(decision, _) => match &decision.kind {
                DecisionKind::Placed { why, .. } => format!("{}: {why}", on("placed on")),
                DecisionKind::Leaves {
                    preemptor: (namespace, name),
                    why,
                    ..
                } => format!("{} for {namespace}/{name}: {why}", on("leave")),
                DecisionKind::Waiting(_) => last.sentence(),
            },
            _ if last.what() == What::Placed && !nodes.is_empty() => on("placed on"),
            _ => last.sentence(),
        }
    }
}

/// The node that it gives a pod, or takes it from.
fn node(h: &Happening) -> Option<&str> {
    match h {
        Happening::Decision(decision, _) => match &decision.kind {
            DecisionKind::Placed { node, .. } | DecisionKind::Leaves { node, .. } => Some(node),
            DecisionKind::Waiting(_) => None,
        },
        // `Successfully assigned team-a/eval-1 to n7`
        Happening::Event(event) if &*event.reason == "Scheduled" => {
            let (_, node) = event.message.rsplit_once(" to ")?;
            (!node.contains(' ')).then_some(node)
        }
        _ => None,
    }
}

/// A pod's name without what tells it from the others of its workload: ranks and random endings.
fn stem(name: &str) -> &str {
    let ends = |part: &str| {
        let is_rank = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let is_random =
            matches!(part.len(), 5 | 8..=10) && part.chars().all(|c| RANDOM.contains(c));
        is_rank || is_random
    };
    let mut stem = name;
    for _ in 0..3 {
        match stem.rsplit_once('-') {
            Some((front, end)) if !front.is_empty() && ends(end) => stem = front,
            _ => break,
        }
    }
    stem
}

/// What the members of a series have in common.
#[derive(PartialEq, Eq, Hash)]
struct Same {
    what: What,
    reason: Box<str>,
    namespace: Box<str>,
    stem: Box<str>,
    for_whom: Box<str>,
}

impl Same {
    /// `None`: it stands for itself.
    fn of(h: &Happening) -> Option<Self> {
        let what = h.what();
        // One by one they are what a person looks for.
        if h.kind() != "Pod" || matches!(what, What::Fault | What::Reclaim) {
            return None;
        }
        let (mut namespace, mut stem) = (h.namespace(), stem(h.name()));
        // Said of each that waits, again and again.
        if what == What::Waits && matches!(h, Happening::Event(_)) {
            (namespace, stem) = ("", "");
        }
        let for_whom = match h {
            Happening::Decision(decision, _) => match &decision.kind {
                DecisionKind::Leaves { preemptor, .. } => &*preemptor.1,
                _ => "",
            },
            Happening::Event(_) | Happening::Fault(_) | Happening::Series(_) => "",
        };
        Some(Same {
            what,
            reason: h.reason().into(),
            namespace: namespace.into(),
            stem: stem.into(),
            for_whom: for_whom.into(),
        })
    }
}

/// A series while it is put together.
struct Open {
    /// Its place in the list.
    at: usize,
    last: Timestamp,
    names: BTreeSet<Box<str>>,
}

/// Makes one row of each series in a list that is in the order of time. A pod that the same happens
/// to again begins another one: that it goes round is to be seen.
pub(crate) fn fold(all: Vec<Happening>) -> Vec<Happening> {
    let mut rows: Vec<Vec<Happening>> = Vec::with_capacity(all.len());
    let mut open: AHashMap<Same, Open> = AHashMap::new();
    for h in all {
        let (Some(same), Some(time)) = (Same::of(&h), h.at()) else {
            rows.push(vec![h]);
            continue;
        };
        let name: Box<str> = format!("{}/{}", h.namespace(), h.name()).into();
        if let Some(series) = open.get_mut(&same)
            && time.duration_since(series.last) <= GAP
            && series.names.insert(name.clone())
            && let Some(row) = rows.get_mut(series.at)
        {
            series.last = time;
            row.push(h);
            continue;
        }
        let begun = Open {
            at: rows.len(),
            last: time,
            names: BTreeSet::from([name]),
        };
        open.insert(same, begun);
        rows.push(vec![h]);
    }
    let mut folded: Vec<Happening> = rows.into_iter().filter_map(one).collect();
    folded.sort_by_key(Happening::at);
    folded
}

/// The members of a row as what is shown.
fn one(mut all: Vec<Happening>) -> Option<Happening> {
    if all.len() < 2 {
        return all.pop();
    }
    let first = all.first()?;
    let of = |h: &Happening| (h.namespace().to_owned(), stem(h.name()).to_owned());
    let (whose, name) = of(first);
    let several = all.iter().any(|h| of(h) != (whose.clone(), name.clone()));
    let stem = if several { String::new() } else { name };
    Some(Happening::Series(Arc::new(Series { stem, all })))
}

/// The members of one series, a row each.
pub struct SeriesView {
    first: Target,
    list: List<Happening>,
}

impl SeriesView {
    /// The series that begins with this one.
    pub fn new(first: Target) -> Self {
        SeriesView {
            first,
            list: List::new(&SPEC),
        }
    }
}

impl View for SeriesView {
    fn id(&self) -> ViewId {
        ViewId::Timeline
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Event]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        let cluster = ctx.cluster;
        let first = &self.first;
        self.list.refresh(area, ctx, |since| {
            let changed = since.is_none_or(|version| cluster.happened() > version);
            News::all_if(changed, || {
                let all = fold(timeline::all(cluster, |ns| ctx.in_scope(ns)));
                let own = all.into_iter().find(|h| {
                    use crate::tui::table::Row as _;
                    h.key() == *first
                });
                match own {
                    Some(Happening::Series(series)) => series.all().to_vec(),
                    own => own.into_iter().collect(),
                }
            })
        });
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.list.draw(area, buf, ctx);
    }

    fn motion(&mut self, motion: Motion) {
        self.list.motion(motion, false);
    }

    fn select(&mut self, target: &Target) -> bool {
        self.list.select(target)
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        describe::target(target, ctx)
    }

    fn mode(&self) -> Option<String> {
        let shown = self.list.count().1;
        (shown > 0).then(|| format!("series of {}", format::count_of(shown)))
    }

    list_view!(list, |r: &Happening| {
        use crate::tui::table::Row as _;
        r.key()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stem_of_a_name_leaves_rank_and_random_endings_out() {
        for (name, expected) in [
            ("llm-7b-3", "llm-7b"),
            ("llm-7b", "llm-7b"),
            ("sweep-0-x7k2p", "sweep"),
            ("chat-7d9f8b6c5d-x7k2p", "chat"),
            ("chat-5c8b9d4f7-zx2kp", "chat"),
            ("chat-train-0", "chat-train"),
            ("eval", "eval"),
            ("-3", "-3"),
            ("7", "7"),
            ("a100-mix-01", "a100-mix"),
        ] {
            assert_eq!(stem(name), expected, "{name}");
        }
    }
}
