//! A view and a cluster to test with.

use std::sync::Arc;

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::model::{
    Change, Condition, Delta, Kind, Meta, Node, NodeGpus, Resources, SourceReport, SourceState,
    Str, Uid,
};
use crate::tui::app::{App, Cmd, Msg};
use crate::tui::format;
use crate::tui::glyphs::Glyphs;
use crate::tui::key::Key;
use crate::tui::session::Session;
use crate::tui::settings::Settings;
use crate::tui::sort_key::SortKey;
use crate::tui::state::{DataState, Placeholder};
use crate::tui::table::{Align, Cell, Column, Row, Table, Width};
use crate::tui::theme::{Depth, Meaning};
use crate::tui::view::{Act, Ctx, FilterError, Motion, Sort, Stamp, Target, View, ViewId};

struct NodeRow {
    name: Str,
    gpus: Option<u32>,
}

impl Row for NodeRow {
    type Key = Str;
    fn key(&self) -> Str {
        self.name.clone()
    }
    fn place(&self) -> SortKey {
        SortKey::text(&self.name)
    }
}

const COLUMNS: &[Column<NodeRow>] = &[
    Column {
        header: "NODE",
        name: "node",
        width: Width::Flex {
            min: 8,
            max: 40,
            weight: 1,
        },
        align: Align::Left,
        drop: 0,
        cell: |row, ctx, _| Cell::Text(row.name.to_string(), ctx.style(Meaning::Text)),
        order: Some(|row| SortKey::text(&row.name)),
    },
    Column {
        header: "GPUS",
        name: "gpus",
        width: Width::Fixed(6),
        align: Align::Right,
        drop: 1,
        cell: |row, ctx, _| {
            Cell::Text(format::count_or_unknown(row.gpus), ctx.style(Meaning::Text))
        },
        order: Some(|row| SortKey::known(row.gpus, SortKey::number)),
    },
];

/// Nodes by name, the simplest view there can be; its filter is a text that the name contains.
struct Names {
    id: ViewId,
    table: Table<NodeRow>,
    filter: String,
    made_from: Option<(Stamp, String)>,
}

impl Names {
    fn new(id: ViewId) -> Self {
        Names {
            id,
            table: Table::default(),
            filter: String::new(),
            made_from: None,
        }
    }
}

impl View for Names {
    fn id(&self) -> ViewId {
        self.id
    }
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Node]
    }
    fn refresh(&mut self, area: Rect, ctx: &Ctx<'_>) {
        let from = Some((ctx.stamp(), self.filter.clone()));
        if self.made_from != from {
            let rows = ctx.cluster.nodes().map(|(n, _)| NodeRow {
                name: n.meta.name.clone(),
                gpus: n.gpus.count,
            });
            self.table.replace(rows, |r| r.name.contains(&self.filter));
            self.made_from = from;
        }
        self.table.fit(area);
    }
    fn draw(&self, area: Rect, buf: &mut Buffer, ctx: &Ctx<'_>) {
        let state = DataState::of(ctx.cluster, Kind::Node);
        if self.table.is_empty() {
            Placeholder {
                state,
                filter: &self.filter,
                hidden: self.table.all_len(),
                awaits: "nodes of the cluster",
            }
            .draw(area, buf, ctx);
        } else {
            let dim = matches!(state, DataState::Stale(..));
            self.table.draw(area, buf, ctx, COLUMNS, dim);
        }
    }
    fn motion(&mut self, motion: Motion) {
        self.table.motion(motion);
    }
    fn selected(&self) -> Option<Target> {
        self.table.selected().map(|r| Target::Node(r.name.clone()))
    }
    fn select(&mut self, target: &Target) -> bool {
        matches!(target, Target::Node(name) if self.table.select(name))
    }
    fn describe(&self, target: &Target, ctx: &Ctx<'_>) -> Option<Vec<Line<'static>>> {
        let Target::Node(name) = target else {
            return None;
        };
        let (node, _) = ctx.cluster.node(name)?;
        let gpus = format::count_or_unknown(node.gpus.count);
        let mut lines = vec![Line::from(format!("node {name} with {gpus} GPUs"))];
        lines.extend((1..=60).map(|n| Line::from(format!("detail {n}"))));
        Some(lines)
    }
    fn count(&self) -> (usize, usize) {
        (self.table.len(), self.table.all_len())
    }
    fn filter(&self) -> &str {
        &self.filter
    }
    fn set_filter(&mut self, text: &str) -> Result<(), FilterError> {
        if let Some(at) = text.find('=') {
            let message = "this view has no columns; type a part of a name".to_owned();
            return Err(FilterError { at, message });
        }
        text.clone_into(&mut self.filter);
        Ok(())
    }
    fn sort_columns(&self) -> &'static [&'static str] {
        &["node", "gpus"]
    }
    fn sort(&self) -> Option<Sort> {
        self.table.sort()
    }
    fn set_sort(&mut self, sort: Sort) {
        self.table.set_sort(Some(sort), COLUMNS);
    }
    fn marks(&self) -> Vec<Target> {
        self.table
            .marked()
            .into_iter()
            .map(|r| Target::Node(r.name.clone()))
            .collect()
    }
    fn toggle_mark(&mut self) {
        self.table.toggle_mark();
    }
    fn mark_range(&mut self) {
        self.table.mark_range();
    }
    fn clear_marks(&mut self) {
        self.table.clear_marks();
    }
    fn can(&self, act: Act) -> bool {
        self.id == ViewId::Fleet && act == Act::ZoomIn
    }
}

pub(super) fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

pub(super) fn key(text: &str) -> Key {
    text.parse().unwrap()
}

pub(super) fn source(kind: Kind, state: SourceState) -> Delta {
    Delta::Source(SourceReport {
        kind,
        namespace: None,
        state,
        at: now(),
    })
}

pub(super) fn node(name: &str, gpus: i64) -> Delta {
    let mut capacity = Resources::default();
    capacity.set_extended(&"nvidia.com/gpu".into(), gpus);
    let label = |k: &str, v: &str| (k.into(), v.into());
    let meta = Meta {
        uid: Uid(format!("uid-{name}").into()),
        name: name.into(),
        labels: Box::new([label("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")]),
        ..Meta::default()
    };
    Delta::Node(Change::Set(Arc::new(Node {
        gpus: NodeGpus::from_labels(&meta, &capacity),
        meta,
        allocatable: capacity.clone(),
        capacity,
        conditions: Box::new([Condition {
            kind: "Ready".into(),
            status: Some(true),
            reason: "".into(),
            message: "".into(),
            changed: None,
        }]),
        ..Node::default()
    })))
}

pub(super) fn live() -> Vec<Delta> {
    Kind::ALL.map(|k| source(k, SourceState::Live)).into()
}

/// The console over a cluster of `nodes` live nodes, with the keys that a test presses.
pub(super) struct Desk {
    pub(super) app: App,
    pub(super) size: (u16, u16),
}

impl Desk {
    pub(super) fn empty() -> Self {
        Self::with(Settings::built_in(Depth::True, Glyphs { ascii: false }))
    }

    pub(super) fn with(settings: Settings) -> Self {
        let session = Session {
            context: "prod-eu1".into(),
            contexts: vec!["prod-eu1".into(), "lab".into()],
            ..Session::default()
        };
        let views: Vec<Box<dyn View>> = vec![
            Box::new(Names::new(ViewId::Fleet)),
            Box::new(Names::new(ViewId::Nodes)),
            Box::new(crate::tui::views::browse::BrowseView::default()),
        ];
        Desk {
            app: App::new(settings, session, views, now()),
            size: (80, 24),
        }
    }

    pub(super) fn of_nodes(nodes: usize) -> Self {
        let mut desk = Self::empty();
        desk.fill(nodes);
        desk
    }

    pub(super) fn fill(&mut self, nodes: usize) {
        let mut deltas = live();
        deltas.extend((0..nodes).map(|n| node(&format!("n{n:04}"), 8)));
        self.deltas(deltas);
        self.screen();
    }

    pub(super) fn deltas(&mut self, deltas: Vec<Delta>) {
        let generation = self.app.world().session.generation;
        assert_eq!(self.tell(Msg::Deltas { generation, deltas }), []);
    }

    pub(super) fn tell(&mut self, msg: Msg) -> Vec<Cmd> {
        self.app.update(msg, now())
    }

    /// Presses keys written with blanks between them, drawing after each as the loop does.
    pub(super) fn press(&mut self, keys: &str) -> Vec<Cmd> {
        let mut cmds = Vec::new();
        for text in keys.split_whitespace() {
            cmds.extend(self.tell(Msg::Key(key(text))));
            self.screen();
        }
        cmds
    }

    /// Types a text into what is open.
    pub(super) fn typed(&mut self, text: &str) {
        for c in text.chars() {
            let name = if c == ' ' {
                "space".to_owned()
            } else {
                c.to_string()
            };
            self.press(&name);
        }
    }

    pub(super) fn buffer(&mut self) -> Buffer {
        let area = Rect::new(0, 0, self.size.0, self.size.1);
        let mut buf = Buffer::empty(area);
        self.app.render(area, &mut buf);
        buf
    }

    pub(super) fn screen(&mut self) -> String {
        let buf = self.buffer();
        let mut lines = Vec::new();
        for y in 0..buf.area.height {
            let line: String = (0..buf.area.width)
                .filter_map(|x| buf.cell((x, y)).map(|c| c.symbol().to_owned()))
                .collect();
            lines.push(line.trim_end().to_owned());
        }
        lines.join("\n")
    }

    pub(super) fn selected(&self) -> String {
        match self.app.view().and_then(View::selected) {
            Some(Target::Node(name)) => name.to_string(),
            other => format!("{other:?}"),
        }
    }

    pub(super) fn footer(&mut self) -> String {
        self.screen()
            .lines()
            .last()
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}
