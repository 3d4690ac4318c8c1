//! What is in a queue: the line in order, each with its place and why it waits, then what runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::describe;
use super::jobs::since;
use super::list::{List, News, Spec, list_view};
use super::nodes::{age, unknown};
use super::queues::devices;
use crate::model::{
    Admitter, Cluster, EntryState, ForeignKind, GpuResource, Kind, OUR_SCHEDULER, QueueKey, Str,
    Uid, WorkloadKey, WorkloadRow, WorkloadState,
};
use crate::sched::Ageing;
use crate::tui::filter::{FilterColumn, Unit, Value, contains};
use crate::tui::format;
use crate::tui::reason;
use crate::tui::sort_key::SortKey;
use crate::tui::table::{Align, Cell, Column, Row, Width};
use crate::tui::theme::Meaning;
use crate::tui::view::{Ctx, FilterError, Motion, Opens, Sort, Target, View, ViewId};

/// A piece of work in a queue.
#[derive(Clone, PartialEq, Debug)]
pub struct LineRow {
    /// The workload.
    pub workload: WorkloadKey,
    /// The object that stands for it in the queue; empty where none does.
    pub uid: Uid,
    /// Place in line, from 1.
    pub position: Option<usize>,
    /// Where it stands.
    pub state: EntryState,
    /// Devices that it asks for, in thousandths.
    pub asked_milli: Vec<(GpuResource, i64)>,
    /// Pods that it needs.
    pub pods: u32,
    /// Priority.
    pub priority: i32,
    /// Since when it is in line.
    pub queued: Option<Timestamp>,
    /// Why it stands there.
    pub reason: Option<Str>,
}

impl Row for LineRow {
    type Key = (WorkloadKey, Uid);

    fn key(&self) -> Self::Key {
        (self.workload.clone(), self.uid.clone())
    }

    /// The line first, then what is about to run, what runs, what is held, what ended.
    fn place(&self) -> SortKey {
        let rank = match (self.position, self.state) {
            (Some(_), _) => 0,
            (_, EntryState::Reserved) => 1,
            (_, EntryState::Admitted) => 2,
            (_, EntryState::Waiting | EntryState::Held) => 3,
            (_, EntryState::Finished) => 4,
        };
        let position = i64::try_from(self.position.unwrap_or(0)).unwrap_or(i64::MAX);
        let queued = self.queued.map_or(i64::MAX, Timestamp::as_second);
        SortKey::numbers(rank << 32 | position, queued)
    }
}

impl LineRow {
    fn search(&self, word: &str) -> bool {
        let texts = [
            &*self.workload.name,
            &*self.workload.namespace,
            &*self.workload.kind,
            self.state.name(),
            self.reason.as_deref().unwrap_or_default(),
        ];
        texts.into_iter().any(|t| contains(t, word))
    }

    fn gpus(&self) -> i64 {
        let whole = self
            .asked_milli
            .iter()
            .filter(|(r, _)| !matches!(r, GpuResource::Mig(_)));
        whole.map(|(_, n)| *n).fold(0, i64::saturating_add)
    }

    /// What it asks for, in words.
    pub(super) fn ask(&self) -> String {
        let parts = self
            .asked_milli
            .iter()
            .map(|(resource, milli)| match resource {
                GpuResource::Whole => format!("{} gpu", devices(*milli)),
                GpuResource::Shared => format!("{} shared", devices(*milli)),
                GpuResource::Mig(profile) => format!("{}×{profile}", devices(*milli)),
            });
        parts.collect::<Vec<_>>().join(" + ")
    }
}

/// The rows of a queue and of all below it, as of now.
pub fn rows(
    cluster: &Cluster,
    queue: &QueueKey,
    now: Timestamp,
    in_scope: impl Fn(&str) -> bool,
) -> Vec<LineRow> {
    match queue.admitter {
        Admitter::Quota => return of_namespace(cluster, &queue.namespace),
        Admitter::Gpudeck => return of_ours(cluster, queue, now, in_scope),
        Admitter::Kueue | Admitter::Volcano | Admitter::Kai => {}
    }
    let mut places: BTreeMap<Uid, usize> = BTreeMap::new();
    let mut lines = std::collections::BTreeSet::new();
    let mut rows = Vec::new();
    for queue in cluster.queue_tree(queue) {
        let line = cluster.line_of(&queue);
        if lines.insert(line.clone()) {
            let line = cluster.line(&line);
            let numbered = line.iter().enumerate();
            places.extend(numbered.map(|(n, (object, _))| (object.meta.uid.clone(), n + 1)));
        }
        for (object, entry) in cluster.queue_entries(&queue) {
            if !in_scope(&entry.workload.namespace) {
                continue;
            }
            rows.push(LineRow {
                workload: entry.workload.clone(),
                uid: object.meta.uid.clone(),
                position: None,
                state: entry.state,
                asked_milli: entry.asked_milli.to_vec(),
                pods: entry.pods,
                priority: cluster.entry_priority(entry),
                queued: entry.queued,
                reason: entry.reason.clone(),
            });
        }
    }
    for row in &mut rows {
        row.position = places.get(&row.uid).copied();
    }
    rows
}

/// Work of our scheduler: each queue serves by priority, with points for waiting, and then time.
fn of_ours(
    cluster: &Cluster,
    queue: &QueueKey,
    now: Timestamp,
    in_scope: impl Fn(&str) -> bool,
) -> Vec<LineRow> {
    let ageing = Ageing::default();
    let mut rows = Vec::new();
    for key in cluster.queue_tree(queue) {
        let queue = cluster.queue(&key).and_then(|q| q.queue());
        let namespaces = queue.into_iter().flat_map(|q| &q.namespaces);
        let ours = |w: &Arc<WorkloadRow>| {
            &*w.scheduler == OUR_SCHEDULER && (!w.asked.is_empty() || w.waiting > 0)
        };
        let work = namespaces
            .flat_map(|ns| cluster.workloads_of(ns))
            .filter(ours);
        let mut here: Vec<LineRow> = work
            .map(|w| {
                let pods = cluster.workload_pods(&w.key).into_iter();
                let since = pods
                    .filter(|p| p.is_waiting())
                    .filter_map(|p| p.meta.created);
                LineRow {
                    queued: since.min().or(w.created),
                    ..of_workload(&w)
                }
            })
            .collect();
        here.sort_by_cached_key(|row| {
            let points = ageing.points(row.queued, now);
            let turn = std::cmp::Reverse(row.priority.saturating_add(points));
            (turn, row.queued, row.workload.clone())
        });
        let waits = here.iter_mut().filter(|r| r.state == EntryState::Waiting);
        for (at, row) in waits.enumerate() {
            row.position = Some(at + 1);
        }
        rows.extend(here);
    }
    rows.retain(|row| in_scope(&row.workload.namespace));
    rows
}

/// The place of a workload in the line of our queue for its namespace, and how many are in line;
/// `None` when it does not wait there.
pub fn our_place(
    cluster: &Cluster,
    workload: &WorkloadKey,
    now: Timestamp,
) -> Option<(QueueKey, usize, usize)> {
    let queue = cluster.queue_of_namespace(&workload.namespace)?;
    let rows = of_ours(cluster, queue, now, |_| true);
    let own = |ns: &Str| cluster.queue_of_namespace(ns) == Some(queue);
    let line = rows
        .iter()
        .filter(|r| r.position.is_some() && own(&r.workload.namespace));
    let place = rows.iter().find(|r| r.workload == *workload)?.position?;
    Some((queue.clone(), place, line.count()))
}

/// Workloads of a namespace: a quota has no line; the server refuses what goes beyond it.
fn of_namespace(cluster: &Cluster, namespace: &str) -> Vec<LineRow> {
    let keys = cluster
        .workload_keys()
        .filter(|k| *k.namespace == *namespace);
    let found = keys.filter_map(|key| cluster.workload(key));
    found
        .filter(|w| !w.asked.is_empty())
        .map(|w| of_workload(&w))
        .collect()
}

fn of_workload(w: &Arc<WorkloadRow>) -> LineRow {
    let asked = w.asked.iter();
    LineRow {
        workload: w.key.clone(),
        uid: Uid::default(),
        position: None,
        state: match w.state {
            WorkloadState::Waiting => EntryState::Waiting,
            WorkloadState::Starting => EntryState::Reserved,
            WorkloadState::Running => EntryState::Admitted,
            WorkloadState::Suspended => EntryState::Held,
            WorkloadState::Failed | WorkloadState::Done => EntryState::Finished,
        },
        asked_milli: asked
            .map(|(r, n)| (r.clone(), n.saturating_mul(1_000)))
            .collect(),
        pods: w.pods,
        priority: w.priority,
        queued: w.created,
        reason: w.reason.clone(),
    }
}

type Work = LineRow;

fn text(text: impl Into<String>, meaning: Meaning, ctx: &Ctx<'_>) -> Cell {
    Cell::Text(text.into(), ctx.style(meaning))
}

fn meaning(state: EntryState) -> Meaning {
    match state {
        EntryState::Waiting => Meaning::Waiting,
        EntryState::Reserved => Meaning::Accent,
        EntryState::Admitted => Meaning::Running,
        EntryState::Held => Meaning::Muted,
        EntryState::Finished => Meaning::Done,
    }
}

/// Columns, and in which order they go when it gets narrow: pods, kind, priority, namespace.
static COLUMNS: &[Column<Work>] = &[
    Column {
        header: "POS",
        name: "position",
        width: Width::Fixed(4),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| match r.position {
            Some(n) => text(format::count_of(n), Meaning::Text, ctx),
            None => text("", Meaning::Muted, ctx),
        },
        order: Some(|r| {
            let n = r.position.and_then(|n| i64::try_from(n).ok());
            SortKey::known(n, SortKey::number)
        }),
    },
    Column {
        header: "STATE",
        name: "state",
        width: Width::Fixed(8),
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| text(r.state.name(), meaning(r.state), ctx),
        order: Some(|r| SortKey::number(r.state as i64)),
    },
    Column {
        header: "NAME",
        name: "name",
        width: Width::Flex {
            min: 14,
            max: 40,
            weight: 3,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| text(&*r.workload.name, Meaning::Text, ctx),
        order: Some(|r| SortKey::text(&r.workload.name)),
    },
    Column {
        header: "NS",
        name: "ns",
        width: Width::Flex {
            min: 8,
            max: 20,
            weight: 1,
        },
        align: Align::Left,
        drop: 1,
        cell: |r, ctx, _| text(&*r.workload.namespace, Meaning::Text, ctx),
        order: Some(|r| SortKey::text(&r.workload.namespace)),
    },
    Column {
        header: "KIND",
        name: "kind",
        width: Width::Flex {
            min: 8,
            max: 16,
            weight: 1,
        },
        align: Align::Left,
        drop: 3,
        cell: |r, ctx, _| text(&*r.workload.kind, Meaning::Muted, ctx),
        order: Some(|r| SortKey::text(&r.workload.kind)),
    },
    Column {
        header: "ASK",
        name: "gpus",
        width: Width::Flex {
            min: 8,
            max: 22,
            weight: 1,
        },
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, width| {
            let ask = format::sentence_within(&r.ask(), usize::from(width)).into_owned();
            text(ask, Meaning::Text, ctx)
        },
        order: Some(|r| SortKey::number(r.gpus())),
    },
    Column {
        header: "PODS",
        name: "pods",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 4,
        cell: |r, ctx, _| text(format::count(r.pods.into()), Meaning::Text, ctx),
        order: Some(|r| SortKey::number(r.pods)),
    },
    Column {
        header: "PRIO",
        name: "prio",
        width: Width::Fixed(6),
        align: Align::Right,
        drop: 2,
        cell: |r, ctx, _| {
            text(
                format::count_within(r.priority.into(), 6),
                Meaning::Text,
                ctx,
            )
        },
        order: Some(|r| SortKey::number(r.priority)),
    },
    Column {
        header: "AGE",
        name: "age",
        width: Width::Fixed(4),
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, _| age(r.queued, ctx),
        order: Some(|r| SortKey::known(r.queued, SortKey::latest)),
    },
    Column {
        header: "WHY",
        name: "reason",
        width: Width::Flex {
            min: 20,
            max: 200,
            weight: 8,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, width| match &r.reason {
            Some(why) => {
                let why = reason::short(why);
                let why = format::sentence_within(&why, usize::from(width)).into_owned();
                text(why, Meaning::Text, ctx)
            }
            None if r.state.waits() => unknown(ctx),
            None => text("", Meaning::Muted, ctx),
        },
        order: Some(|r| SortKey::known(r.reason.as_ref(), SortKey::text)),
    },
];

/// Columns that filters can name.
static FILTER: &[FilterColumn<LineRow>] = &[
    FilterColumn {
        name: "name",
        aliases: &["job"],
        unit: Unit::Text,
        about: "name of the workload",
        value: |r, _| Value::text(&r.workload.name),
    },
    FilterColumn {
        name: "ns",
        aliases: &["namespace"],
        unit: Unit::Text,
        about: "namespace",
        value: |r, _| Value::text(&r.workload.namespace),
    },
    FilterColumn {
        name: "kind",
        aliases: &[],
        unit: Unit::Text,
        about: "kind of the workload",
        value: |r, _| Value::text(&r.workload.kind),
    },
    FilterColumn {
        name: "state",
        aliases: &["status"],
        unit: Unit::Text,
        about: "waiting, reserved, admitted, held or finished",
        value: |r, _| Value::text(r.state.name()),
    },
    FilterColumn {
        name: "position",
        aliases: &["pos"],
        unit: Unit::Count,
        about: "place in line, from 1",
        value: |r, _| {
            let n = r.position.and_then(|n| u32::try_from(n).ok());
            Value::number(n.map(f64::from))
        },
    },
    FilterColumn {
        name: "gpus",
        aliases: &["ask"],
        unit: Unit::Count,
        about: "GPUs asked for, whole and shared",
        value: |r, _| {
            #[allow(clippy::cast_precision_loss)]
            Value::Number(r.gpus() as f64 / 1_000.0)
        },
    },
    FilterColumn {
        name: "prio",
        aliases: &["priority"],
        unit: Unit::Count,
        about: "priority",
        value: |r, _| Value::Number(f64::from(r.priority)),
    },
    FilterColumn {
        name: "age",
        aliases: &[],
        unit: Unit::Secs,
        about: "time in line, such as 3h",
        value: |r, now| since(r.queued, now),
    },
    FilterColumn {
        name: "reason",
        aliases: &["why"],
        unit: Unit::Text,
        about: "why it waits",
        value: |r, _| r.reason.as_deref().map_or(Value::Unknown, Value::text),
    },
];

static SPEC: Spec<LineRow> = Spec {
    columns: COLUMNS,
    sortable: &[
        "position", "state", "name", "ns", "kind", "gpus", "pods", "prio", "age", "reason",
    ],
    filter: FILTER,
    search: LineRow::search,
    since: |r| r.queued,
    kind: Kind::Foreign(ForeignKind::ResourceQuota),
    awaits: "work that is in this queue or below it; there is none now",
};

/// The list.
pub struct LineView {
    queue: QueueKey,
    list: List<LineRow>,
}

impl LineView {
    /// What is in a queue.
    pub fn new(queue: QueueKey) -> Self {
        LineView {
            queue,
            list: List::new(&SPEC),
        }
    }
}

impl View for LineView {
    fn id(&self) -> ViewId {
        ViewId::Queues
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Pod]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        let (cluster, queue) = (ctx.cluster, &self.queue);
        self.list.refresh(area, ctx, |since| {
            let by_pods = matches!(queue.admitter, Admitter::Quota | Admitter::Gpudeck);
            let changed = since.is_none_or(|v| by_pods || cluster.queues_changed() > v);
            News::all_if(changed, || {
                rows(cluster, queue, ctx.now, |ns| ctx.in_scope(ns))
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
        let Target::Workload(key) = target else {
            return false;
        };
        let found = self.list.rows().find(|r| r.workload == *key).map(Row::key);
        found.is_some_and(|key| self.list.select(&key))
    }

    fn opens(&self, ctx: &Ctx<'_>) -> Opens {
        match self.list.selected() {
            Some(row) if ctx.cluster.workload(&row.workload).is_some() => {
                Opens::Place(ViewId::Jobs, Target::Workload(row.workload.clone()))
            }
            _ => Opens::Description,
        }
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        describe::target(target, ctx).or_else(|| {
            // Work whose job is not known, such as that of a kind that nobody watches.
            let Target::Workload(key) = target else {
                return None;
            };
            let row = self.list.rows().find(|r| r.workload == *key)?;
            Some(describe::work(row, ctx))
        })
    }

    fn mode(&self) -> Option<String> {
        Some(format!("{} of {}", self.queue, self.queue.admitter))
    }

    list_view!(list, |r: &Work| Target::Workload(r.workload.clone()));
}
