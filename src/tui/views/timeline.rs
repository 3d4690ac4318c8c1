//! Timeline: Kubernetes Events and our scheduler's decisions, newest last.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::describe;
use super::happening::{self, What};
use super::jobs::since;
use super::list::{List, News, Spec, list_view};
use super::series::{self, Series, SeriesView};
use crate::model::{Cluster, Decision, DecisionKind, Event, Kind, NodeFault, Severity, Str, Xid};
use crate::tui::filter::{FilterColumn, Unit, Value, contains};
use crate::tui::format;
use crate::tui::glyphs::Glyph;
use crate::tui::sort_key::SortKey;
use crate::tui::table::{Align, Cell, Column, Row, Width};
use crate::tui::theme::Meaning;
use crate::tui::view::{Ctx, FilterError, Motion, Sort, Target, View, ViewId};

/// Entries that are kept, the newest.
const LIMIT: usize = 10_000;

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub enum Happening {
    /// A Kubernetes Event.
    Event(Arc<Event>),
    /// A decision of our scheduler, and how many more pods it was made about in the same breath.
    Decision(Arc<Decision>, usize),
    /// A condition of a node that tells of a fault or of something planned, as it is now.
    Fault(Arc<NodeFault>),
    /// Several of one kind about the pods of a workload; only the view makes them.
    Series(Arc<Series>),
}

impl Row for Happening {
    type Key = Target;

    fn key(&self) -> Target {
        match self {
            Happening::Event(event) => Target::Event(event.meta.uid.clone()),
            Happening::Decision(decision, _) => Target::Decision(decision.at, decision.pod.clone()),
            Happening::Fault(fault) => Target::Fault(fault.node.clone(), fault.kind.clone()),
            // A series is never empty; as it grows it keeps its name.
            Happening::Series(series) => series
                .first()
                .map_or_else(|| Target::Namespace(Str::default()), Row::key),
        }
    }

    /// Those without a time are the oldest.
    fn place(&self) -> SortKey {
        self.at().map(SortKey::time).unwrap_or_default()
    }
}

impl Happening {
    /// When.
    pub fn at(&self) -> Option<Timestamp> {
        match self {
            Happening::Event(event) => event.last_seen.or(event.meta.created),
            Happening::Decision(decision, _) => Some(decision.at),
            Happening::Fault(fault) => fault.since,
            Happening::Series(series) => series.last().and_then(Happening::at),
        }
    }

    /// Namespace of what it is about, empty for things of the whole cluster.
    pub fn namespace(&self) -> &str {
        match self {
            Happening::Event(event) => &event.subject_namespace,
            Happening::Decision(decision, _) => &decision.namespace,
            Happening::Fault(_) => "",
            Happening::Series(series) => series.namespace(),
        }
    }

    /// Kind of what it is about.
    pub fn kind(&self) -> &str {
        match self {
            Happening::Event(event) => &event.subject_kind,
            Happening::Decision(..) | Happening::Series(_) => "Pod",
            Happening::Fault(_) => "Node",
        }
    }

    /// Name of what it is about.
    pub fn name(&self) -> &str {
        match self {
            Happening::Event(event) => &event.subject_name,
            Happening::Decision(decision, _) => &decision.name,
            Happening::Fault(fault) => &fault.node,
            Happening::Series(series) => &series.stem,
        }
    }

    /// What it is about, as one text.
    pub fn subject(&self) -> String {
        if let Happening::Series(series) = self {
            return series.subject();
        }
        let kind = self.kind().to_ascii_lowercase();
        let more = match self {
            Happening::Decision(_, more) if *more > 0 => format!(" +{}", format::count_of(*more)),
            _ => String::new(),
        };
        match self.namespace() {
            "" => format!("{kind} {}", self.name()),
            namespace => format!("{kind} {namespace}/{}{more}", self.name()),
        }
    }

    /// Who tells it.
    pub fn reporter(&self) -> &str {
        match self {
            Happening::Event(event) => &event.reporter,
            Happening::Decision(..) => "gpudeck",
            Happening::Fault(_) => "condition",
            Happening::Series(series) => series.first().map_or("", Happening::reporter),
        }
    }

    /// One word for what happened.
    pub fn reason(&self) -> &str {
        match self {
            Happening::Event(event) => &event.reason,
            Happening::Decision(decision, _) => match decision.kind {
                DecisionKind::Placed { .. } => "placed",
                DecisionKind::Waiting(_) => "waits",
                DecisionKind::Leaves { .. } => "leaves",
            },
            Happening::Fault(fault) => &fault.kind,
            Happening::Series(series) => series.first().map_or("", Happening::reason),
        }
    }

    /// What kind of thing it is.
    pub fn what(&self) -> What {
        match self {
            Happening::Event(event) => What::of_event(event),
            Happening::Fault(fault) if fault.planned => What::Fleet,
            Happening::Fault(_) => What::Fault,
            Happening::Series(series) => series.first().map_or(What::Other, Happening::what),
            Happening::Decision(decision, _) => match decision.kind {
                DecisionKind::Placed { .. } => What::Placed,
                DecisionKind::Waiting(_) => What::Waits,
                DecisionKind::Leaves { .. } => What::Preempted,
            },
        }
    }

    /// What happened, in one sentence.
    pub fn sentence(&self) -> String {
        match self {
            Happening::Event(event) => {
                let times = if event.count > 1 {
                    format!(" (×{})", format::count(event.count.into()))
                } else {
                    String::new()
                };
                if let Some(xid) = happening::xid(event) {
                    return format!("{}{times} ({})", happening::told(&xid), event.reason);
                }
                if event.message.is_empty() {
                    format!("{}{times}", event.reason)
                } else {
                    format!("{}{times}: {}", event.reason, event.message)
                }
            }
            Happening::Decision(decision, _) => match &decision.kind {
                DecisionKind::Placed { node, why } => format!("placed on {node}: {why}"),
                DecisionKind::Waiting(reason) => {
                    format!("waits: {}", crate::tui::reason::short(&reason.to_string()))
                }
                DecisionKind::Leaves {
                    node,
                    preemptor: (namespace, name),
                    why,
                } => format!("leaves {node} for {namespace}/{name}: {why}"),
            },
            Happening::Fault(fault) => {
                match Xid::in_condition(&fault.kind, &fault.reason, &fault.message) {
                    Some(xid) => format!("{} ({})", happening::told(&xid), fault.kind),
                    None if &*fault.kind == "Ready" => {
                        format!("not ready: {} {}", fault.reason, fault.message)
                    }
                    None if fault.message.is_empty() => {
                        format!("{}: {}", fault.kind, fault.reason)
                    }
                    None => format!("{}: {}", fault.kind, fault.message),
                }
            }
            Happening::Series(series) => series.sentence(),
        }
    }

    /// The sign of its kind.
    pub fn sign(&self) -> (Glyph, Meaning) {
        self.what().sign()
    }

    /// What filters call it: `warning`, `normal`, `placed`, `waits` or `leaves`.
    pub fn class(&self) -> &'static str {
        match self {
            Happening::Event(event) if event.severity == Severity::Warning => "warning",
            Happening::Event(_) => "normal",
            Happening::Fault(fault) if fault.planned => "normal",
            Happening::Fault(_) => "warning",
            Happening::Series(series) => series.first().map_or("normal", Happening::class),
            Happening::Decision(decision, _) => match decision.kind {
                DecisionKind::Placed { .. } => "placed",
                DecisionKind::Waiting(_) => "waits",
                DecisionKind::Leaves { .. } => "leaves",
            },
        }
    }

    /// The code of the driver that it tells of.
    pub fn xid(&self) -> Option<Xid> {
        match self {
            Happening::Event(event) => happening::xid(event),
            Happening::Fault(f) => Xid::in_condition(&f.kind, &f.reason, &f.message),
            Happening::Decision(..) => None,
            Happening::Series(series) => series.last().and_then(Happening::xid),
        }
    }

    fn search(&self, word: &str) -> bool {
        if let Happening::Series(series) = self {
            return contains(&self.sentence(), word) || series.all().iter().any(|h| h.search(word));
        }
        [
            self.name(),
            self.namespace(),
            self.kind(),
            self.reason(),
            self.reporter(),
        ]
        .into_iter()
        .any(|t| contains(t, word))
            || contains(&self.sentence(), word)
    }
}

/// All happenings in scope, oldest first, the newest [`LIMIT`] of them. Those of the whole cluster
/// are in every scope.
pub fn all(cluster: &Cluster, in_scope: impl Fn(&str) -> bool) -> Vec<Happening> {
    let events = cluster.events().cloned().map(Happening::Event);
    let decisions = cluster
        .decision_log()
        .map(|d| Happening::Decision(d.clone(), 0));
    let faults = cluster
        .node_faults()
        .cloned()
        .map(|f| Happening::Fault(Arc::new(f)));
    let mut all: Vec<Happening> = events
        .chain(decisions)
        .chain(faults)
        .filter(|h| h.namespace().is_empty() || in_scope(h.namespace()))
        .collect();
    // Those without a time are the oldest; the key makes the order the same each time.
    let order = |a: &Happening, b: &Happening| {
        let by_time = a.at().cmp(&b.at());
        by_time.then_with(|| a.key().cmp(&b.key()))
    };
    let excess = all.len().saturating_sub(LIMIT);
    if excess > 0 {
        // A large cluster has far more events than are kept: only those are put in order.
        all.select_nth_unstable_by(excess, order);
        all.drain(..excess);
    }
    all.sort_unstable_by(order);
    merge(all)
}

/// Makes neighbours that are decisions of one moment and leave pods of a namespace waiting for the
/// same reason (a gang's) one.
pub(crate) fn merge(all: Vec<Happening>) -> Vec<Happening> {
    let mut merged: Vec<Happening> = Vec::with_capacity(all.len());
    for next in all {
        if let (Some(Happening::Decision(last, more)), Happening::Decision(decision, _)) =
            (merged.last_mut(), &next)
            && last.at == decision.at
            && last.namespace == decision.namespace
            && matches!(last.kind, DecisionKind::Waiting(_))
            && last.kind == decision.kind
        {
            *more += 1;
        } else {
            merged.push(next);
        }
    }
    merged
}

type Entry = Happening;

/// Columns, and in which order they go when it gets narrow: what, reporter.
static COLUMNS: &[Column<Entry>] = &[
    Column {
        header: "TIME",
        name: "time",
        width: Width::Fixed(12),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| Cell::Text(format::moment(r.at(), ctx.now), ctx.style(Meaning::Muted)),
        order: Some(Row::place),
    },
    Column {
        header: "",
        name: "class",
        width: Width::Fixed(1),
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| {
            let (glyph, meaning) = r.sign();
            Cell::Text(ctx.glyph(glyph).to_owned(), ctx.style(meaning))
        },
        order: Some(|r| SortKey::str(r.class())),
    },
    Column {
        header: "WHAT",
        name: "what",
        width: Width::Fixed(9),
        align: Align::Left,
        drop: 2,
        cell: |r, ctx, _| {
            let what = r.what();
            Cell::Text(what.name().to_owned(), ctx.style(what.sign().1))
        },
        order: Some(|r| SortKey::number(r.what() as i64)),
    },
    Column {
        header: "SUBJECT",
        name: "subject",
        width: Width::Flex {
            min: 24,
            max: 52,
            weight: 2,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| Cell::Text(r.subject(), ctx.style(Meaning::Text)),
        order: Some(|r| SortKey::str(&r.subject())),
    },
    Column {
        header: "FROM",
        name: "from",
        width: Width::Flex {
            min: 10,
            max: 20,
            weight: 1,
        },
        align: Align::Left,
        drop: 1,
        cell: |r, ctx, _| Cell::Text(r.reporter().to_owned(), ctx.style(Meaning::Muted)),
        order: Some(|r| SortKey::str(r.reporter())),
    },
    Column {
        header: "TOLD",
        name: "told",
        width: Width::Flex {
            min: 36,
            max: 400,
            weight: 8,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, width| {
            let meaning = match r.sign().1 {
                Meaning::Muted => Meaning::Muted,
                _ => Meaning::Text,
            };
            let sentence = r.sentence();
            let shown = format::sentence_within(&sentence, usize::from(width));
            Cell::Text(shown.into_owned(), ctx.style(meaning))
        },
        order: None,
    },
];

/// Columns that filters can name.
static FILTER: &[FilterColumn<Happening>] = &[
    FilterColumn {
        name: "class",
        aliases: &["type"],
        unit: Unit::Text,
        about: "warning, normal, placed or waits",
        value: |r, _| Value::text(r.class()),
    },
    FilterColumn {
        name: "what",
        aliases: &[],
        unit: Unit::Text,
        about: "preempted, evicted, placed, queued, waits, fault, reclaim, mig, fleet, warning, other",
        value: |r, _| Value::text(r.what().name()),
    },
    FilterColumn {
        name: "xid",
        aliases: &[],
        unit: Unit::Count,
        about: "code of the driver that it tells of, such as xid=79",
        value: |r, _| Value::number(r.xid().map(|x| f64::from(x.code))),
    },
    FilterColumn {
        name: "ns",
        aliases: &["namespace"],
        unit: Unit::Text,
        about: "namespace of the subject",
        value: |r, _| match r {
            Happening::Series(series) => {
                let all = series.all().iter().map(|h| Cow::Borrowed(h.namespace()));
                Value::List(all.collect())
            }
            _ => Value::text(r.namespace()),
        },
    },
    FilterColumn {
        name: "kind",
        aliases: &[],
        unit: Unit::Text,
        about: "kind of the subject, such as node",
        value: |r, _| Value::text(r.kind()),
    },
    FilterColumn {
        name: "name",
        aliases: &["subject"],
        unit: Unit::Text,
        about: "name of the subject",
        value: |r, _| match r {
            Happening::Series(series) => {
                let names = series.all().iter().map(|h| Cow::Borrowed(h.name()));
                Value::List(names.collect())
            }
            _ => Value::text(r.name()),
        },
    },
    FilterColumn {
        name: "reason",
        aliases: &[],
        unit: Unit::Text,
        about: "one word for what happened, such as Evicted",
        value: |r, _| Value::text(r.reason()),
    },
    FilterColumn {
        name: "from",
        aliases: &["reporter"],
        unit: Unit::Text,
        about: "who tells it",
        value: |r, _| Value::text(r.reporter()),
    },
    FilterColumn {
        name: "age",
        aliases: &[],
        unit: Unit::Secs,
        about: "since it happened, such as 10m",
        value: |r, now| since(r.at(), now),
    },
];

/// What the list of happenings is made of.
pub(crate) static SPEC: Spec<Happening> = Spec {
    columns: COLUMNS,
    sortable: &["time", "what", "class", "subject", "from"],
    filter: FILTER,
    search: Happening::search,
    since: Happening::at,
    kind: Kind::Event,
    awaits: "Kubernetes Events and the scheduler's decisions",
};

/// The view.
pub struct TimelineView {
    list: List<Happening>,
}

impl Default for TimelineView {
    fn default() -> Self {
        TimelineView {
            list: List::following(&SPEC),
        }
    }
}

impl View for TimelineView {
    fn id(&self) -> ViewId {
        ViewId::Timeline
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Event]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        let cluster = ctx.cluster;
        self.list.refresh(area, ctx, |since| {
            let changed = since.is_none_or(|version| cluster.happened() > version);
            News::all_if(changed, || {
                series::fold(all(cluster, |ns| ctx.in_scope(ns)))
            })
        });
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.list.draw(area, buf, ctx);
    }

    fn motion(&mut self, motion: Motion) {
        self.list.motion(motion, true);
    }

    fn select(&mut self, target: &Target) -> bool {
        if self.list.select(target) {
            return true;
        }
        let holds = |h: &&Happening| match h {
            Happening::Series(series) => series.all().iter().any(|h| h.key() == *target),
            _ => false,
        };
        let series = self.list.rows().find(holds).map(Row::key);
        series.is_some_and(|key| self.list.select(&key))
    }

    fn open(&self, target: &Target) -> Option<Box<dyn View>> {
        match self.list.get(target)? {
            Happening::Series(_) => Some(Box::new(SeriesView::new(target.clone()))),
            _ => None,
        }
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        match self.list.get(target) {
            Some(Happening::Series(series)) => Some(describe::series(series, ctx)),
            _ => describe::target(target, ctx),
        }
    }

    fn mode(&self) -> Option<String> {
        Some(
            if self.list.follows() {
                "follows"
            } else {
                "held"
            }
            .to_owned(),
        )
    }

    list_view!(list, |r: &Entry| r.key());
}
