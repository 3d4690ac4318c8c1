//! Views that follow single changes show what views made from nothing show.

use std::sync::Arc;

use proptest::prelude::*;

use super::sample::{Desk, live, node, now};
use crate::model::{
    Change, Decision, DecisionKind, Delta, Event, Gone, Meta, Owner, Phase, Pod, Reason, Resources,
    Uid,
};
use crate::tui::glyphs::Glyphs;
use crate::tui::settings::Settings;
use crate::tui::sort_key::SortKey;
use crate::tui::table::{Align, Cell, Changed, Column, Row, Table, Width};
use crate::tui::theme::Depth;
use crate::tui::view::{Motion, Sort, Stamp};
use crate::tui::views;
use ratatui::layout::Rect;

/// A node with its pods: what a byte each stands for is up to [`delta`].
type Step = (u8, u8, u8);

fn gone(uid: String, name: String, namespace: &str) -> Gone {
    Gone {
        uid: Uid(uid.into()),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn pod(id: u8, how: u8) -> Pod {
    let mut requests = Resources::default();
    requests.set_extended(&"nvidia.com/gpu".into(), i64::from(how % 3));
    let owner = Owner {
        kind: "PyTorchJob".into(),
        name: format!("job-{}", id % 7).into(),
        uid: Uid(format!("job-{}", id % 7).into()),
        controller: true,
    };
    let phases = [
        Phase::Pending,
        Phase::Running,
        Phase::Succeeded,
        Phase::Failed,
    ];
    let bound = how.is_multiple_of(2);
    Pod {
        meta: Meta {
            uid: Uid(format!("p{id}").into()),
            name: format!("pod-{id}").into(),
            namespace: if id.is_multiple_of(2) { "a" } else { "b" }.into(),
            owners: Box::new([owner]),
            created: Some(now() - jiff::SignedDuration::from_secs(i64::from(how) * 100)),
            ..Meta::default()
        },
        phase: phases[usize::from(how % 4) * usize::from(bound)],
        // Also one that is not known.
        node: bound.then(|| format!("n{}", how % 9).into()),
        priority: i32::from(how % 5),
        requests,
        ..Pod::default()
    }
}

fn delta((what, id, how): Step) -> Delta {
    match what % 8 {
        0 => node(&format!("n{}", id % 8), i64::from(how % 5)),
        1 => {
            let name = format!("n{}", id % 8);
            Delta::Node(Change::Gone(gone(format!("uid-{name}"), name, "")))
        }
        2 => {
            let namespace = if id.is_multiple_of(2) { "a" } else { "b" };
            let (uid, name) = (format!("p{}", id % 40), format!("pod-{}", id % 40));
            Delta::Pod(Change::Gone(gone(uid, name, namespace)))
        }
        3 => Delta::Decision(Arc::new(Decision {
            at: now() - jiff::SignedDuration::from_secs(i64::from(how)),
            pod: Uid(format!("p{}", id % 40).into()),
            namespace: "a".into(),
            name: format!("pod-{}", id % 40).into(),
            kind: DecisionKind::Waiting(Reason::GangIncomplete {
                have: 1,
                need: how.into(),
            }),
        })),
        4 => Delta::Event(Change::Set(Arc::new(Event {
            meta: Meta {
                uid: Uid(format!("e{}", id % 9).into()),
                created: Some(now() - jiff::SignedDuration::from_secs(i64::from(how))),
                ..Meta::default()
            },
            reason: format!("reason-{how}").into(),
            ..Event::default()
        }))),
        _ => Delta::Pod(Change::Set(Arc::new(pod(id % 40, how)))),
    }
}

fn desk() -> Desk {
    let settings = Settings::built_in(Depth::True, Glyphs { ascii: false });
    let mut desk = Desk::with(settings);
    desk.app = crate::tui::App::new(
        Settings::built_in(Depth::True, Glyphs { ascii: false }),
        crate::tui::Session::default(),
        views::all(),
        now(),
    );
    desk.size = (160, 30);
    desk.deltas(live());
    desk
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_view_that_follows_every_change_shows_what_a_fresh_one_shows(
        batches in prop::collection::vec(
            prop::collection::vec(any::<Step>(), 1..12), 1..12),
        view in prop::sample::select(vec!["1", "2", "3", "5", "6"]),
        keys in prop::sample::select(vec![
            "", "s down down enter", "/ p o d enter", "/ g p u s > 0 enter", "G k", "/ a g e > 1 m enter",
        ]),
    ) {
        // The map and the tree have no columns to sort by.
        let keys = if ["1", "3"].contains(&view) && keys.starts_with('s') { "" } else { keys };
        let mut following = desk();
        following.press(view);
        following.press(keys);
        let mut fresh = desk();
        for batch in &batches {
            let deltas: Vec<Delta> = batch.iter().map(|s| delta(*s)).collect();
            following.deltas(deltas.clone());
            following.screen();
            fresh.deltas(deltas);
        }
        fresh.press(view);
        fresh.press(keys);
        following.press("g");
        fresh.press("g");
        prop_assert_eq!(following.screen(), fresh.screen());
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Item(u8, u8);

impl Row for Item {
    type Key = u8;
    fn key(&self) -> u8 {
        self.0
    }
    fn place(&self) -> SortKey {
        SortKey::number(self.1 % 8)
    }
}

static COLUMNS: &[Column<Item>] = &[Column {
    header: "",
    name: "amount",
    width: Width::Fixed(1),
    align: Align::Left,
    drop: 0,
    cell: |r, ctx, _| Cell::Text(r.1.to_string(), ctx.style(crate::tui::theme::Meaning::Text)),
    order: Some(|r| SortKey::number(r.1 / 4)),
}];

proptest! {
    #[test]
    fn rows_that_come_and_go_stand_in_order_and_the_cursor_stays_with_its_own(
        batches in prop::collection::vec(
            prop::collection::vec((any::<bool>(), 0..60_u8, any::<u8>()), 1..10), 1..20),
        falling in prop::option::of(any::<bool>()),
        motion in prop::sample::select(vec![Motion::Down, Motion::Last, Motion::PageDown]),
    ) {
        let passes = |r: &Item| !r.1.is_multiple_of(5);
        let mut table = Table::default();
        table.set_sort(falling.map(|falling| Sort { column: "amount", falling }), COLUMNS);
        let mut model: Vec<Item> = Vec::new();
        for batch in batches {
            table.motion(motion);
            let before = table.selected().cloned();
            let changes = batch.iter().map(|(set, id, amount)| {
                model.retain(|r| r.0 != *id);
                if *set {
                    model.push(Item(*id, *amount));
                    Changed::Set(Item(*id, *amount))
                } else {
                    Changed::Gone(*id)
                }
            });
            table.change(changes.collect::<Vec<_>>(), passes);
            table.fit(Rect::new(0, 0, 10, 100));
            let mut expected: Vec<Item> = model.iter().filter(|r| passes(r)).cloned().collect();
            expected.sort_by_key(|r| (r.1 % 8, r.0));
            match falling {
                Some(true) => expected.sort_by_key(|r| std::cmp::Reverse(r.1 / 4)),
                Some(false) => expected.sort_by_key(|r| r.1 / 4),
                None => {}
            }
            let seen: Vec<Item> = table.visible().cloned().collect();
            prop_assert_eq!(&seen, &expected);
            if let Some(before) = before.filter(|b| expected.iter().any(|r| r.0 == b.0)) {
                prop_assert_eq!(table.selected().map(Row::key), Some(before.0));
            }
        }
    }
}

#[test]
fn hidden_views_are_brought_up_to_date_one_by_one() {
    let mut desk = desk();
    desk.deltas(vec![
        node("n1", 8),
        Delta::Pod(Change::Set(Arc::new(pod(1, 2)))),
    ]);
    desk.screen();
    let mut turns = 0;
    while desk.app.has_unprepared() {
        desk.app.prepare();
        turns += 1;
        assert!(turns < 10);
    }
    let views = crate::tui::views::all().len();
    assert_eq!(turns, views - 1, "all but the one on the screen");
    desk.press("2");
    assert_eq!(desk.selected(), "n1");
}

#[test]
fn news_without_end_keep_no_hidden_view_waiting() {
    let mut desk = desk();
    let nodes = (0..60).map(|n| node(&format!("n{n}"), 8)).collect();
    desk.deltas(nodes);
    desk.screen();
    let views = crate::tui::views::all().len();
    let mut restarts = 0;
    for _ in 0..views * 3 {
        restarts += 1;
        let mut restarted = pod(1, 2);
        restarted.restarts = restarts;
        desk.deltas(vec![Delta::Pod(Change::Set(Arc::new(restarted)))]);
        desk.app.prepare();
    }
    let never = desk.app.prepared.iter().filter(|s| **s == Stamp::default());
    assert_eq!(never.count(), 0, "views that never had their turn");
}

#[test]
fn hidden_views_get_their_first_rows_in_parts() {
    let nodes = (0..120).map(|n| node(&format!("n{n}"), 8));
    let pods = (0..120).map(|n| {
        let mut lone = pod(n, n);
        lone.meta.owners = Box::default();
        Delta::Pod(Change::Set(Arc::new(lone)))
    });
    let deltas: Vec<Delta> = nodes.chain(pods).collect();
    for view in ['2', '3', '5'] {
        let [mut hidden, mut fresh] = [desk(), desk()];
        for desk in [&mut hidden, &mut fresh] {
            desk.deltas(deltas.clone());
            desk.screen();
        }
        let mut views = hidden.app.views.iter();
        let at = views.position(|v| v.id().digit() == Some(view)).unwrap();
        let area = Rect::new(0, 0, 80, 20);
        hidden.app.bring(at, |view, ctx| view.prepare(area, ctx));
        assert!(hidden.app.views[at].lags(), "view {view} took all at once");
        // Somebody looks at it before the other parts are there.
        hidden.press(&view.to_string());
        fresh.press(&view.to_string());
        assert_eq!(hidden.screen(), fresh.screen(), "view {view}");
    }
}

#[test]
fn many_changes_are_taken_in_parts_until_all_are_shown() {
    let nodes = |gpus: i64| -> Vec<Delta> {
        let names = (0..240).map(|n| format!("n{n}"));
        names.map(|name| node(&name, gpus)).collect()
    };
    for view in ["1", "2", "3"] {
        let mut following = desk();
        following.deltas(nodes(8));
        following.press(view);
        following.screen();
        following.deltas(nodes(4));
        let mut frames = 0;
        while following.app.is_dirty() {
            following.screen();
            frames += 1;
            assert!(frames < 20, "view {view} never shows all");
        }
        assert!(frames > 2, "view {view} took them all at once: {frames}");
        let mut fresh = desk();
        fresh.deltas(nodes(4));
        fresh.press(view);
        assert_eq!(following.screen(), fresh.screen(), "view {view}");
    }
}
