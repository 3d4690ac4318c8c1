//! Pods: opened from a workload or a node.

use std::sync::Arc;

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::describe;
use super::jobs::since;
use super::list::{List, News, Spec, in_order, list_view};
use super::nodes::{age, number, unknown};
use crate::model::{
    Cluster, DecisionKind, GpuResource, Kind, Phase, Pod, Rank, Str, Uid, WorkloadKey,
};
use crate::tui::filter::{FilterColumn, Unit, Value, contains};
use crate::tui::format;
use crate::tui::sort_key::SortKey;
use crate::tui::table::{Align, Cell, Column, Row, Width};
use crate::tui::theme::Meaning;
use crate::tui::view::{Ctx, FilterError, Motion, Sort, Target, View, ViewId};

/// Whose pods are listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those of a workload.
    Workload(WorkloadKey),
    /// Those that hold a node.
    Node(Str),
}

/// A pod with why it is as it is.
#[derive(Clone, PartialEq, Debug)]
pub struct PodRow {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The latest decision's reason while it waits, else the pod's own.
    pub reason: Option<Str>,
    /// Which of its job's pods it is.
    pub rank: Option<Rank>,
    /// Whether it stands in a list by name.
    by_name: bool,
}

impl Row for PodRow {
    type Key = Uid;

    fn key(&self) -> Uid {
        self.pod.meta.uid.clone()
    }

    /// Of a workload the straggler first: what waits, the longest wait before others, then what is
    /// not up, what runs by rank, what ended. On a node by namespace and name; the sign between them
    /// is below all that names contain.
    fn place(&self) -> SortKey {
        let meta = &self.pod.meta;
        if self.by_name {
            return SortKey::str(&format!("{}\u{1}{}", meta.namespace, meta.name));
        }
        let created = meta.created.map_or(i64::MAX, Timestamp::as_second);
        let class = match self.pod.phase {
            _ if self.pod.is_waiting() => 0,
            Phase::Pending => 1,
            Phase::Unknown => 2,
            Phase::Failed => 3,
            Phase::Running if !self.pod.ready => 4,
            Phase::Running => 5,
            Phase::Succeeded => 6,
        };
        let rank = self
            .rank
            .as_ref()
            .map_or_else(|| meta.name.to_string(), rank_key);
        let waits = if class < 2 { created } else { 0 };
        SortKey::number_and_text(class, &format!("{waits:020}{rank}"))
    }
}

/// A text whose order is that of the ranks: numbers in full width.
fn rank_key(rank: &Rank) -> String {
    let number = |n: Option<u32>| n.map_or(0, |n| u64::from(n) + 1);
    let role = rank.role.as_deref().unwrap_or_default();
    format!(
        "{role}\u{1}{:010}{:010}",
        number(rank.group),
        number(rank.index)
    )
}

impl PodRow {
    /// The row of a pod.
    pub fn of(pod: &Arc<Pod>, cluster: &Cluster) -> Self {
        let decided = match cluster.decision(&pod.meta.uid).map(|d| &d.kind) {
            Some(DecisionKind::Waiting(reason)) if pod.is_waiting() => {
                Some(reason.to_string().into())
            }
            _ => None,
        };
        PodRow {
            rank: pod.rank(),
            by_name: false,
            reason: decided.or_else(|| pod.reason.clone()),
            pod: pod.clone(),
        }
    }

    /// Its phase as `kubectl get pods` words it.
    pub fn phase(&self) -> String {
        if self.pod.meta.deleting.is_some() && !self.pod.is_terminal() {
            "Terminating".to_owned()
        } else {
            self.pod.phase.to_string()
        }
    }

    /// The style of its phase.
    pub fn meaning(&self) -> Meaning {
        match self.pod.phase {
            Phase::Failed => Meaning::Danger,
            Phase::Succeeded => Meaning::Done,
            Phase::Running if self.pod.ready => Meaning::Running,
            Phase::Running => Meaning::Warn,
            Phase::Pending => Meaning::Waiting,
            Phase::Unknown => Meaning::Unknown,
        }
    }

    fn asked(&self) -> Vec<(GpuResource, i64)> {
        self.pod.gpu_requests().collect()
    }

    fn search(&self, word: &str) -> bool {
        let texts = [
            Some(&*self.pod.meta.name),
            self.pod.node.as_deref(),
            self.reason.as_deref(),
        ];
        texts.into_iter().flatten().any(|t| contains(t, word)) || contains(&self.phase(), word)
    }
}

/// Pods of a scope: of a workload the straggler first, of a node by name.
pub fn all(cluster: &Cluster, scope: &Scope) -> Vec<PodRow> {
    match scope {
        Scope::Workload(key) => in_order(
            cluster
                .workload_pods(key)
                .into_iter()
                .map(|p| PodRow::of(p, cluster))
                .collect::<Vec<_>>(),
        ),
        Scope::Node(name) => of_node(cluster, name),
    }
}

fn of_node(cluster: &Cluster, name: &Str) -> Vec<PodRow> {
    let held = cluster.node(name).map(|(_, held)| held).or_else(|| {
        cluster
            .unknown_nodes()
            .find(|(n, _)| *n == name)
            .map(|(_, held)| held)
    });
    let rows = held
        .into_iter()
        .flat_map(|h| &h.pods)
        .filter_map(|uid| cluster.pod(uid))
        .map(|p| PodRow {
            by_name: true,
            ..PodRow::of(p, cluster)
        });
    in_order(rows.collect())
}

type Row_ = PodRow;

fn text(text: &str, meaning: Meaning, ctx: &Ctx<'_>) -> Cell {
    Cell::Text(text.to_owned(), ctx.style(meaning))
}

/// Columns, and in which order they go when it gets narrow: namespace, age, restarts, ask, rank.
static COLUMNS: &[Column<Row_>] = &[
    Column {
        header: "POD",
        name: "name",
        width: Width::Flex {
            min: 18,
            max: 56,
            weight: 3,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| text(&r.pod.meta.name, Meaning::Text, ctx),
        order: Some(|r| SortKey::text(&r.pod.meta.name)),
    },
    Column {
        header: "RANK",
        name: "rank",
        width: Width::Flex {
            min: 5,
            max: 18,
            weight: 1,
        },
        align: Align::Left,
        drop: 1,
        cell: |r, ctx, _| match &r.rank {
            Some(rank) => text(&rank.to_string(), Meaning::Text, ctx),
            None => text("", Meaning::Muted, ctx),
        },
        order: Some(|r| SortKey::known(r.rank.as_ref(), |r| SortKey::str(&rank_key(r)))),
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
        drop: 4,
        cell: |r, ctx, _| text(&r.pod.meta.namespace, Meaning::Text, ctx),
        order: Some(|r| SortKey::text(&r.pod.meta.namespace)),
    },
    Column {
        header: "NODE",
        name: "node",
        width: Width::Flex {
            min: 10,
            max: 32,
            weight: 2,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| match &r.pod.node {
            Some(node) => text(node, Meaning::Text, ctx),
            None => unknown(ctx),
        },
        order: Some(|r| SortKey::known(r.pod.node.as_ref(), SortKey::text)),
    },
    Column {
        header: "PHASE",
        name: "phase",
        width: Width::Fixed(11),
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, _| text(&r.phase(), r.meaning(), ctx),
        order: Some(|r| SortKey::number(r.pod.phase as i64)),
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
        drop: 1,
        cell: |r, ctx, width| {
            let ask = format::ask_within(&r.asked(), usize::from(width));
            text(&ask, Meaning::Text, ctx)
        },
        order: Some(|r| SortKey::number(r.pod.requests.extended("nvidia.com/gpu"))),
    },
    Column {
        header: "RESTARTS",
        name: "restarts",
        width: Width::Fixed(8),
        align: Align::Right,
        drop: 2,
        cell: |r, ctx, _| number(Some(r.pod.restarts), ctx),
        order: Some(|r| SortKey::number(r.pod.restarts)),
    },
    Column {
        header: "AGE",
        name: "age",
        width: Width::Fixed(5),
        align: Align::Right,
        drop: 3,
        cell: |r, ctx, _| age(r.pod.meta.created, ctx),
        order: Some(|r| SortKey::known(r.pod.meta.created, SortKey::latest)),
    },
    Column {
        header: "REASON",
        name: "reason",
        width: Width::Flex {
            min: 18,
            max: 200,
            weight: 8,
        },
        align: Align::Left,
        drop: 0,
        cell: |r, ctx, width| {
            let reason = r.reason.as_deref().unwrap_or_default();
            let reason = crate::tui::reason::short(reason);
            let shown = format::sentence_within(&reason, usize::from(width));
            text(&shown, Meaning::Muted, ctx)
        },
        order: Some(|r| SortKey::known(r.reason.as_ref(), SortKey::text)),
    },
];

/// Columns that filters can name.
static FILTER: &[FilterColumn<PodRow>] = &[
    FilterColumn {
        name: "name",
        aliases: &["pod"],
        unit: Unit::Text,
        about: "name of the pod",
        value: |r, _| Value::text(&r.pod.meta.name),
    },
    FilterColumn {
        name: "ns",
        aliases: &["namespace"],
        unit: Unit::Text,
        about: "namespace",
        value: |r, _| Value::text(&r.pod.meta.namespace),
    },
    FilterColumn {
        name: "rank",
        aliases: &[],
        unit: Unit::Text,
        about: "which of its job's pods it is, such as \"worker 3\"",
        value: |r, _| {
            r.rank
                .as_ref()
                .map_or(Value::Unknown, |r| Value::Text(r.to_string().into()))
        },
    },
    FilterColumn {
        name: "node",
        aliases: &[],
        unit: Unit::Text,
        about: "the node it is bound to",
        value: |r, _| r.pod.node.as_deref().map_or(Value::Unknown, Value::text),
    },
    FilterColumn {
        name: "phase",
        aliases: &["state", "status"],
        unit: Unit::Text,
        about: "Pending, Running, Succeeded, Failed, Unknown or Terminating",
        value: |r, _| Value::Text(r.phase().into()),
    },
    FilterColumn {
        name: "gpus",
        aliases: &["ask"],
        unit: Unit::Count,
        about: "GPUs asked for, whole and shared",
        value: |r, _| {
            let gpus = r.asked().into_iter().filter_map(|(resource, n)| {
                (!matches!(resource, GpuResource::Mig(_))).then_some(n)
            });
            #[allow(clippy::cast_precision_loss)]
            Value::Number(gpus.fold(0, i64::saturating_add) as f64)
        },
    },
    FilterColumn {
        name: "restarts",
        aliases: &[],
        unit: Unit::Count,
        about: "restarts of its containers",
        value: |r, _| Value::Number(f64::from(r.pod.restarts)),
    },
    FilterColumn {
        name: "age",
        aliases: &[],
        unit: Unit::Secs,
        about: "since its creation, such as 3h",
        value: |r, now| since(r.pod.meta.created, now),
    },
    FilterColumn {
        name: "reason",
        aliases: &["why"],
        unit: Unit::Text,
        about: "why it is as it is",
        value: |r, _| r.reason.as_deref().map_or(Value::Unknown, Value::text),
    },
];

static SPEC: Spec<PodRow> = Spec {
    columns: COLUMNS,
    sortable: &[
        "name", "rank", "ns", "node", "phase", "gpus", "restarts", "age", "reason",
    ],
    filter: FILTER,
    search: PodRow::search,
    since: |r: &PodRow| -> Option<Timestamp> { r.pod.meta.created },
    kind: Kind::Pod,
    awaits: "the pods of what was opened; it has none now",
};

/// The list.
pub struct PodsView {
    scope: Scope,
    list: List<PodRow>,
}

impl PodsView {
    /// The pods of a workload or node.
    pub fn new(scope: Scope) -> Self {
        PodsView {
            scope,
            list: List::new(&SPEC),
        }
    }
}

impl View for PodsView {
    fn id(&self) -> ViewId {
        match self.scope {
            Scope::Workload(_) => ViewId::Jobs,
            Scope::Node(_) => ViewId::Nodes,
        }
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Pod]
    }

    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        let (scope, cluster) = (&self.scope, ctx.cluster);
        self.list.refresh(area, ctx, |since| {
            let changed = since.is_none_or(|version| match scope {
                Scope::Workload(key) => cluster
                    .workloads_changed_since(version)
                    .is_none_or(|mut keys| keys.any(|k| k == key)),
                Scope::Node(name) => cluster
                    .nodes_changed_since(version)
                    .is_none_or(|mut names| names.any(|n| n == name)),
            });
            News::all_if(changed, || all(cluster, scope))
        });
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        self.list.draw(area, buf, ctx);
    }

    fn motion(&mut self, motion: Motion) {
        self.list.motion(motion, false);
    }

    fn select(&mut self, target: &Target) -> bool {
        match target {
            Target::Pod(uid) => self.list.select(uid),
            _ => false,
        }
    }

    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        describe::target(target, ctx)
    }

    fn mode(&self) -> Option<String> {
        Some(match &self.scope {
            Scope::Workload(key) => format!("pods of {key}"),
            Scope::Node(name) => format!("pods on {name}"),
        })
    }

    list_view!(list, |r: &Row_| Target::Pod(r.pod.meta.uid.clone()));
}
