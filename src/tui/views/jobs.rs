//! Jobs: a row a workload, those that wait first.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::describe;
use super::list::{List, Pace, Source, Spec, in_order, list_view};
use super::nodes::{age, unknown};
use crate::model::{Cluster, GpuResource, Kind, WorkloadKey, WorkloadRow, WorkloadState};
use crate::tui::filter::{FilterColumn, Unit, Value, contains};
use crate::tui::format;
use crate::tui::reason;
use crate::tui::sort_key::SortKey;
use crate::tui::table::{Align, Cell, Column, Row, Width};
use crate::tui::theme::Meaning;
use crate::tui::view::{Ctx, FilterError, Motion, Sort, Target, View, ViewId};

/// A workload.
#[derive(Clone, PartialEq, Debug)]
pub struct JobRow(pub Arc<WorkloadRow>);

impl Row for JobRow {
    type Key = WorkloadKey;

    fn key(&self) -> WorkloadKey {
        self.0.key.clone()
    }

    /// Waiting ones first, and among those the highest priority and then the longest wait; all
    /// others by state, youngest first.
    fn place(&self) -> SortKey {
        let w = &self.0;
        let created = w.created.unwrap_or(Timestamp::MAX).as_microsecond();
        let (priority, age) = if w.state == WorkloadState::Waiting {
            (i64::from(i32::MAX) - i64::from(w.priority), created)
        } else {
            (0, -created)
        };
        SortKey::numbers((w.state as i64) << 32 | priority, age)
    }

    fn key_order(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl JobRow {
    /// GPUs it asks for, whole and shared.
    pub fn gpus(&self) -> i64 {
        self.0
            .asked
            .iter()
            .filter(|(r, _)| !matches!(r, GpuResource::Mig(_)))
            .map(|(_, n)| *n)
            .fold(0, i64::saturating_add)
    }

    /// MIG instances it asks for.
    pub fn mig(&self) -> impl Iterator<Item = String> {
        self.0.asked.iter().filter_map(|(r, _)| match r {
            GpuResource::Mig(profile) => Some(profile.to_string()),
            _ => None,
        })
    }

    fn search(&self, word: &str) -> bool {
        let key = &self.0.key;
        let texts = [
            Some(&*key.name),
            Some(&*key.namespace),
            Some(&*key.kind),
            Some(self.0.state.name()),
            self.0.reason.as_deref(),
        ];
        texts.into_iter().flatten().any(|t| contains(t, word))
    }
}

/// The style of a workload's state.
pub(super) fn state_meaning(state: WorkloadState) -> Meaning {
    match state {
        WorkloadState::Waiting => Meaning::Waiting,
        WorkloadState::Starting => Meaning::Accent,
        WorkloadState::Running => Meaning::Running,
        WorkloadState::Suspended => Meaning::Muted,
        WorkloadState::Failed => Meaning::Danger,
        WorkloadState::Done => Meaning::Done,
    }
}

/// Workloads of a namespace (or all) in the order of the list.
pub fn all(cluster: &Cluster, in_scope: impl Fn(&str) -> bool) -> Vec<JobRow> {
    in_order(unordered(cluster, in_scope))
}

fn unordered(cluster: &Cluster, in_scope: impl Fn(&str) -> bool) -> Vec<JobRow> {
    let all = cluster.workloads();
    all.filter(|w| in_scope(&w.key.namespace))
        .map(JobRow)
        .collect()
}

fn pods(row: &JobRow, ctx: &Ctx<'_>) -> Cell {
    let w = &row.0;
    let text = format!(
        "{}/{}",
        format::count(w.running.into()),
        format::count(w.pods.max(w.wanted.unwrap_or(0)).into())
    );
    Cell::Text(text, ctx.style(Meaning::Text))
}

fn reason(row: &JobRow, ctx: &Ctx<'_>, width: u16) -> Cell {
    let meaning = match row.0.state {
        WorkloadState::Failed => Meaning::Danger,
        WorkloadState::Waiting => Meaning::Text,
        _ => Meaning::Muted,
    };
    match &row.0.reason {
        Some(reason) => {
            let text = reason::short(reason);
            let text = format::sentence_within(&text, usize::from(width)).into_owned();
            Cell::Text(text, ctx.style(meaning))
        }
        // Only what waits or failed is expected to have one.
        None if matches!(row.0.state, WorkloadState::Waiting | WorkloadState::Failed) => {
            unknown(ctx)
        }
        None if row.0.state == WorkloadState::Starting && row.0.pods == 0 => {
            text("no pods yet", Meaning::Muted, ctx)
        }
        None => Cell::Text(String::new(), ctx.style(Meaning::Muted)),
    }
}

type Job = JobRow;

fn text(text: &str, meaning: Meaning, ctx: &Ctx<'_>) -> Cell {
    Cell::Text(text.to_owned(), ctx.style(meaning))
}

/// Columns, and in which order they go when it gets narrow: queue, scheduler, kind, priority, pods,
/// namespace, age.
static COLUMNS: &[Column<Job>] = &[
    Column {
        header: "STATE",
        name: "state",
        width: Width::Fixed(9),
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| text(r.0.state.name(), state_meaning(r.0.state), ctx),
        order: Some(|r| SortKey::number(r.0.state as i64)),
    },
    Column {
        header: "NAME",
        name: "name",
        width: Width::Flex {
            min: 16,
            max: 48,
            weight: 3,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| text(&r.0.key.name, Meaning::Text, ctx),
        order: Some(|r| SortKey::text(&r.0.key.name)),
    },
    Column {
        header: "NS",
        name: "ns",
        width: Width::Flex {
            min: 10,
            max: 24,
            weight: 1,
        },
        align: Align::Left,
        drop: 2,
        cell: |r, ctx, _| text(&r.0.key.namespace, Meaning::Text, ctx),
        order: Some(|r| SortKey::text(&r.0.key.namespace)),
    },
    Column {
        header: "KIND",
        name: "kind",
        width: Width::Flex {
            min: 10,
            max: 16,
            weight: 1,
        },
        align: Align::Left,
        drop: 5,
        cell: |r, ctx, _| text(&r.0.key.kind, Meaning::Muted, ctx),
        order: Some(|r| SortKey::text(&r.0.key.kind)),
    },
    Column {
        header: "ASK",
        name: "gpus",
        width: Width::Flex {
            min: 9,
            max: 22,
            weight: 1,
        },
        align: Align::Right,
        drop: 0,
        cell: |r, ctx, width| {
            let ask = format::ask_within(&r.0.asked, usize::from(width));
            text(&ask, Meaning::Text, ctx)
        },
        order: Some(|r| {
            let kinds = i64::try_from(r.0.asked.len()).unwrap_or(i64::MAX);
            SortKey::numbers(r.gpus(), kinds)
        }),
    },
    Column {
        header: "PODS",
        name: "pods",
        width: Width::Fixed(7),
        align: Align::Right,
        drop: 3,
        cell: |r, ctx, _| pods(r, ctx),
        order: Some(|r| SortKey::number(r.0.pods)),
    },
    Column {
        header: "PRIO",
        name: "prio",
        width: Width::Flex {
            min: 6,
            max: 13,
            weight: 1,
        },
        align: Align::Right,
        drop: 4,
        cell: |r, ctx, width| {
            let n = format::count_within(r.0.priority.into(), usize::from(width));
            text(&n, Meaning::Text, ctx)
        },
        order: Some(|r| SortKey::number(r.0.priority)),
    },
    Column {
        header: "SCHEDULER",
        name: "scheduler",
        width: Width::Flex {
            min: 17,
            max: 24,
            weight: 1,
        },
        align: Align::Left,
        drop: 6,
        cell: |r, ctx, _| {
            // A workload without pods names no scheduler.
            if r.0.scheduler.is_empty() {
                unknown(ctx)
            } else {
                text(&r.0.scheduler, Meaning::Muted, ctx)
            }
        },
        order: Some(|r| SortKey::text(&r.0.scheduler)),
    },
    Column {
        header: "QUEUE",
        name: "queue",
        width: Width::Flex {
            min: 12,
            max: 24,
            weight: 1,
        },
        align: Align::Left,
        drop: 7,
        cell: |r, ctx, _| {
            let queue = r.0.queue.as_deref().unwrap_or_default();
            text(queue, Meaning::Muted, ctx)
        },
        order: Some(|r| SortKey::known(r.0.queue.as_ref(), SortKey::text)),
    },
    Column {
        header: "AGE",
        name: "age",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 1,
        cell: |r, ctx, _| age(r.0.created, ctx),
        order: Some(|r| SortKey::known(r.0.created, SortKey::latest)),
    },
    Column {
        header: "REASON",
        name: "reason",
        width: Width::Flex {
            min: 24,
            max: 200,
            weight: 8,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, width| reason(r, ctx, width),
        order: Some(|r| SortKey::known(r.0.reason.as_ref(), SortKey::text)),
    },
];

fn count(n: u32) -> Value<'static> {
    Value::Number(f64::from(n))
}

/// Columns that filters can name.
static FILTER: &[FilterColumn<JobRow>] = &[
    FilterColumn {
        name: "name",
        aliases: &["job"],
        unit: Unit::Text,
        about: "name of the workload",
        value: |r, _| Value::text(&r.0.key.name),
    },
    FilterColumn {
        name: "ns",
        aliases: &["namespace"],
        unit: Unit::Text,
        about: "namespace",
        value: |r, _| Value::text(&r.0.key.namespace),
    },
    FilterColumn {
        name: "kind",
        aliases: &[],
        unit: Unit::Text,
        about: "kind of the top controller, such as Job or PyTorchJob",
        value: |r, _| Value::text(&r.0.key.kind),
    },
    FilterColumn {
        name: "state",
        aliases: &["status"],
        unit: Unit::Text,
        about: "waiting, starting, running, suspended, failed or done",
        value: |r, _| Value::text(r.0.state.name()),
    },
    FilterColumn {
        name: "gpus",
        aliases: &["ask"],
        unit: Unit::Count,
        about: "GPUs asked for, whole and shared",
        value: |r, _| {
            #[allow(clippy::cast_precision_loss)]
            Value::Number(r.gpus() as f64)
        },
    },
    FilterColumn {
        name: "mig",
        aliases: &["profile"],
        unit: Unit::Text,
        about: "MIG profiles asked for, such as 1g.10gb",
        value: |r, _| Value::List(r.mig().map(Cow::Owned).collect()),
    },
    FilterColumn {
        name: "pods",
        aliases: &[],
        unit: Unit::Count,
        about: "pods that exist",
        value: |r, _| count(r.0.pods),
    },
    FilterColumn {
        name: "running",
        aliases: &[],
        unit: Unit::Count,
        about: "pods that run",
        value: |r, _| count(r.0.running),
    },
    FilterColumn {
        name: "waiting",
        aliases: &[],
        unit: Unit::Count,
        about: "pods that wait for a node",
        value: |r, _| count(r.0.waiting),
    },
    FilterColumn {
        name: "failed",
        aliases: &[],
        unit: Unit::Count,
        about: "pods that failed",
        value: |r, _| count(r.0.failed),
    },
    FilterColumn {
        name: "prio",
        aliases: &["priority"],
        unit: Unit::Count,
        about: "highest priority among its pods",
        value: |r, _| Value::Number(f64::from(r.0.priority)),
    },
    FilterColumn {
        name: "scheduler",
        aliases: &[],
        unit: Unit::Text,
        about: "schedulerName of its pods",
        value: |r, _| Value::text(&r.0.scheduler),
    },
    FilterColumn {
        name: "queue",
        aliases: &[],
        unit: Unit::Text,
        about: "queue of the system that admits it",
        value: |r, _| r.0.queue.as_deref().map_or(Value::Unknown, Value::text),
    },
    FilterColumn {
        name: "age",
        aliases: &[],
        unit: Unit::Secs,
        about: "since its creation, such as 3h",
        value: |r, now| since(r.0.created, now),
    },
    FilterColumn {
        name: "reason",
        aliases: &["why"],
        unit: Unit::Text,
        about: "why it waits or failed",
        value: |r, _| r.0.reason.as_deref().map_or(Value::Unknown, Value::text),
    },
];

/// An age as filters compare it.
pub(super) fn since(created: Option<Timestamp>, now: Timestamp) -> Value<'static> {
    #[allow(clippy::cast_precision_loss)]
    Value::number(created.map(|c| format::secs_since(c, now) as f64))
}

/// What the list of workloads is made of.
pub(crate) static SPEC: Spec<JobRow> = Spec {
    columns: COLUMNS,
    sortable: &[
        "state",
        "name",
        "ns",
        "kind",
        "gpus",
        "pods",
        "prio",
        "scheduler",
        "queue",
        "age",
        "reason",
    ],
    filter: FILTER,
    search: JobRow::search,
    since: |r| r.0.created,
    kind: Kind::Pod,
    awaits: "pods and Jobs, grouped by what was submitted",
};

/// The workloads of the namespaces that are looked at.
struct Shown<'a>(&'a Ctx<'a>);

impl Source<JobRow> for Shown<'_> {
    fn changed_since(&self, version: u64) -> Option<impl Iterator<Item = &WorkloadKey>> {
        self.0.cluster.workloads_changed_since(version)
    }

    fn keys(&self) -> impl Iterator<Item = &WorkloadKey> {
        let keys = self.0.cluster.workload_keys();
        keys.filter(|key| self.0.in_scope(&key.namespace))
    }

    fn row(&self, key: &WorkloadKey) -> Option<JobRow> {
        let row = self.0.cluster.workload(key);
        row.filter(|w| self.0.in_scope(&w.key.namespace))
            .map(JobRow)
    }

    fn all(&self) -> Vec<JobRow> {
        unordered(self.0.cluster, |ns| self.0.in_scope(ns))
    }
}

/// The view.
pub struct JobsView {
    list: List<JobRow>,
}

impl Default for JobsView {
    fn default() -> Self {
        JobsView {
            list: List::new(&SPEC),
        }
    }
}

impl View for JobsView {
    fn id(&self) -> ViewId {
        ViewId::Jobs
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::Job]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.list.catch_up(area, ctx, Pace::AtOnce, &Shown(ctx));
    }

    fn prepare(&mut self, area: Rect, ctx: &Ctx<'_>) {
        self.list.catch_up(area, ctx, Pace::InParts, &Shown(ctx));
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.list.draw(area, buf, ctx);
    }

    fn motion(&mut self, motion: Motion) {
        self.list.motion(motion, false);
    }

    fn select(&mut self, target: &Target) -> bool {
        match target {
            Target::Workload(key) => self.list.select(key),
            _ => false,
        }
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        describe::target(target, ctx)
    }

    fn open(&self, target: &Target) -> Option<Box<dyn View>> {
        super::open(target)
    }

    list_view!(list, |r: &Job| Target::Workload(r.0.key.clone()));
}
