//! What a key costs in a list of 100,000 rows.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use gpudeck::model::Str;
use gpudeck::tui::filter::contains;
use gpudeck::tui::sort_key::SortKey;
use gpudeck::tui::table::{Align, Cell, Changed, Column, Row, Table, Width};
use gpudeck::tui::view::{Motion, Sort};
use ratatui::layout::Rect;
use tokio::runtime::Runtime;

use crate::world::World;

const ROWS: u32 = 100_000;
const SCREEN: Rect = Rect::new(0, 0, 200, 55);

/// A row as long as that of a pod.
#[derive(Clone)]
struct Item {
    name: Str,
    group: Str,
    amount: u32,
}

impl Row for Item {
    type Key = Str;

    fn key(&self) -> Str {
        self.name.clone()
    }

    fn place(&self) -> SortKey {
        SortKey::text(&self.name)
    }
}

fn item(n: u32, rng: &mut fastrand::Rng) -> Item {
    Item {
        name: format!("training-of-team-{}-worker-{n}", n % 97).into(),
        group: format!("namespace-of-team-{}", n % 97).into(),
        amount: rng.u32(0..1_000),
    }
}

const fn column(name: &'static str, order: fn(&Item) -> SortKey) -> Column<Item> {
    Column {
        header: name,
        name,
        width: Width::Fixed(20),
        align: Align::Left,
        drop: 0,
        cell: |r, _, _| Cell::Text(r.name.to_string(), ratatui::style::Style::new()),
        order: Some(order),
    }
}

static COLUMNS: &[Column<Item>] = &[
    column("name", |r| SortKey::text(&r.name)),
    column("group", |r| SortKey::text(&r.group)),
    column("amount", |r| SortKey::number(r.amount)),
];

/// Sorting, filtering, changes and jumps, each until the screen's rows are in order.
pub fn run(_: &Runtime, _: &mut World) {
    let mut rng = fastrand::Rng::with_seed(7);
    let rows: Vec<Item> = (0..ROWS).map(|n| item(n, &mut rng)).collect();
    let mut table = Table::default();
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    let mut group = criterion.benchmark_group("list of 100,000 rows");
    group.bench_function("first look", |b| {
        b.iter(|| {
            table.replace(rows.iter().cloned(), |_| true);
            table.fit(SCREEN);
        });
    });
    for column in ["amount", "group", "name"] {
        let other = if column == "amount" { "name" } else { "amount" };
        group.bench_function(format!("sort by {column}"), |b| {
            b.iter_custom(|rounds| {
                let mut took = Duration::ZERO;
                for _ in 0..rounds {
                    let falling = false;
                    let mut by = |column| {
                        table.set_sort(Some(Sort { column, falling }), COLUMNS);
                        table.fit(SCREEN);
                    };
                    by(other);
                    let begun = Instant::now();
                    by(column);
                    took += begun.elapsed();
                }
                took
            });
        });
    }
    let sort = Sort {
        column: "group",
        falling: false,
    };
    table.set_sort(Some(sort), COLUMNS);
    group.bench_function("50 rows change", |b| {
        b.iter(|| {
            let changes: Vec<_> = (0..50)
                .map(|_| Changed::Set(item(rng.u32(0..ROWS), &mut rng)))
                .collect();
            table.change(changes, |_| true);
            table.fit(SCREEN);
        });
    });
    group.bench_function("to the end and back", |b| {
        b.iter(|| {
            for motion in [Motion::Last, Motion::First] {
                table.motion(motion);
                table.fit(SCREEN);
            }
        });
    });
    group.bench_function("filter by a word", |b| {
        b.iter(|| {
            table.filter(|r| contains(&r.name, "er-77"));
            table.fit(SCREEN);
            black_box(table.len());
        });
    });
    group.finish();
}
