//! Keys walked, data changed under the cursor, any size drawn.

use std::sync::Arc;

use gpudeck::model::{Change, Cluster, Delta, Event, Gone, Kind, Meta, Phase, SourceState, Uid};
use gpudeck::tui::view::{Act, Motion, Sort, Target, View, ViewId};
use proptest::prelude::*;
use ratatui::layout::Rect;

use crate::fixture::{self, HOUR, NodeSpec, PodSpec};
use crate::screen::{LOOKS, Stage, TRUE, text, view};

const AREA: Rect = Rect::new(0, 0, 120, 34);

fn stage() -> Stage {
    Stage::new(fixture::cluster(), TRUE)
}

fn refreshed(stage: &Stage, id: ViewId) -> Box<dyn View> {
    let mut view = view(id);
    view.refresh(AREA, &stage.ctx());
    view
}

fn gone(uid: &str, name: &str) -> Gone {
    Gone {
        uid: Uid(uid.into()),
        namespace: "".into(),
        name: name.into(),
    }
}

fn go(view: &mut dyn View, motion: Motion, times: usize) {
    for _ in 0..times {
        view.motion(motion);
    }
}

#[test]
fn the_cursor_stays_on_its_node_when_others_come_and_go() {
    let mut stage = stage();
    for id in [ViewId::Nodes, ViewId::Fleet] {
        let mut view = refreshed(&stage, id);
        assert!(view.select(&Target::Node("h100-05".into())));
        let before = view.selected();
        stage
            .cluster
            .apply(&Delta::Node(Change::Gone(gone("uid-h100-02", "h100-02"))));
        stage.cluster.apply(&fixture::node(&NodeSpec {
            name: "a-new-one",
            devices: &[("gpu", 8)],
            ..NodeSpec::default()
        }));
        view.refresh(AREA, &stage.ctx());
        assert_eq!(view.selected(), before, "{}", id.name());
    }
}

#[test]
fn the_map_groups_by_what_most_nodes_tell_not_the_first() {
    let leaf = "fabric.topograph.run/tier-0";
    let some = |name: &str, labels: &[(&str, &str)]| {
        fixture::node(&NodeSpec {
            name,
            labels,
            devices: &[("gpu", 8)],
            ..NodeSpec::default()
        })
    };
    let mut cluster = Cluster::new();
    cluster.apply(&some("early", &[]));
    let mut stage = Stage::new(cluster, TRUE);
    let mut view = refreshed(&stage, ViewId::Fleet);
    for name in ["n1", "n2", "n3"] {
        stage.cluster.apply(&some(name, &[(leaf, "switch-7")]));
    }
    view.refresh(AREA, &stage.ctx());
    let shown = text(&stage.draw(&mut *view, 120, 30));
    assert!(shown.contains("switch-7"), "{shown}");
    // Whoever chose another is not overruled.
    view.act(Act::GroupNext);
    view.refresh(AREA, &stage.ctx());
    stage.cluster.apply(&some("n4", &[(leaf, "switch-7")]));
    view.refresh(AREA, &stage.ctx());
    let shown = text(&stage.draw(&mut *view, 120, 30));
    assert!(shown.contains("no zone"), "{shown}");
}

#[test]
fn the_cursor_keeps_its_place_when_its_own_row_goes() {
    let mut stage = stage();
    let mut view = refreshed(&stage, ViewId::Nodes);
    view.motion(Motion::Last);
    assert_eq!(view.selected(), Some(Target::Node("t4-shared-01".into())));
    stage.cluster.apply(&Delta::Node(Change::Gone(gone(
        "uid-no-labels-01",
        "no-labels-01",
    ))));
    view.refresh(AREA, &stage.ctx());
    assert_eq!(view.selected(), Some(Target::Node("t4-shared-01".into())));
    for uid in (0..9).map(|i| fixture::pod_uid("notebooks", &format!("jupyter-{i}"))) {
        stage.cluster.apply(&Delta::Pod(Change::Gone(Gone {
            uid,
            namespace: "notebooks".into(),
            name: "".into(),
        })));
    }
    stage.cluster.apply(&Delta::Node(Change::Gone(gone(
        "uid-t4-shared-01",
        "t4-shared-01",
    ))));
    view.refresh(AREA, &stage.ctx());
    assert!(view.selected().is_some(), "the row that is last now");
}

#[test]
fn waiting_jobs_come_first_by_priority_and_any_column_sorts() {
    let stage = stage();
    let mut view = refreshed(&stage, ViewId::Jobs);
    let name = |view: &dyn View| match view.selected() {
        Some(Target::Workload(key)) => key.name.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(
        name(&*view).starts_with("trainings-lauf"),
        "priority 2,000,000,000"
    );
    view.motion(Motion::Down);
    assert_eq!(name(&*view), "embed", "priority 1,000");
    for column in view.sort_columns() {
        for falling in [false, true] {
            view.set_sort(Sort { column, falling });
            view.refresh(AREA, &stage.ctx());
            assert_eq!(
                name(&*view),
                "embed",
                "the cursor follows its row: {column}"
            );
        }
    }
    view.set_sort(Sort {
        column: "gpus",
        falling: true,
    });
    view.motion(Motion::First);
    assert!(name(&*view).starts_with("trainings-lauf"), "12,000 GPUs");
}

#[test]
fn enter_leads_into_the_pods_of_a_job_and_out_again() {
    let stage = stage();
    let mut view = refreshed(&stage, ViewId::Jobs);
    view.set_filter("name=moe").unwrap();
    view.refresh(AREA, &stage.ctx());
    assert!(view.enter());
    view.refresh(AREA, &stage.ctx());
    assert_eq!(view.count(), (8, 8));
    assert_eq!(
        view.selected(),
        Some(Target::Pod(fixture::pod_uid("train", "moe-0")))
    );
    assert!(!view.enter(), "a pod has no list below it");
    assert!(view.leave());
    view.refresh(AREA, &stage.ctx());
    assert_eq!(view.count().0, 1, "the filter is still there");
    assert!(!view.leave());
}

#[test]
fn filters_hold_in_each_view_and_a_wrong_one_changes_nothing() {
    let stage = stage();
    for (id, filter, rows) in [
        (ViewId::Nodes, "model=h200", 4),
        (ViewId::Nodes, "model=h100 free>0 !cordoned", 3),
        (ViewId::Nodes, "mig=3g", 3),
        (ViewId::Nodes, "tier=spot age<1h", 4),
        (ViewId::Nodes, "state=cordoned", 1),
        (ViewId::Nodes, "gpumem>100Gi", 4),
        (ViewId::Fleet, "model=h200", 4),
        (ViewId::Jobs, "ns:team-a state=failed", 1),
        (ViewId::Jobs, "gpus>=48", 3),
        (ViewId::Jobs, "why:gang", 1),
        (ViewId::Timeline, "class=warning age<1h", 4),
        (ViewId::Timeline, "kind=node", 4),
        (ViewId::Timeline, "xid=79", 2),
        (ViewId::Queues, "admitter=kueue burst>0", 1),
        (ViewId::Tiers, "price=\"\"", 6),
    ] {
        let mut view = refreshed(&stage, id);
        view.set_filter(filter).unwrap();
        view.refresh(AREA, &stage.ctx());
        assert_eq!(view.count().0, rows, "{filter}");
        let error = view.set_filter("colour=red").unwrap_err();
        assert!(error.message.contains("unknown column `colour`"), "{error}");
        view.refresh(AREA, &stage.ctx());
        assert_eq!((view.count().0, view.filter()), (rows, filter));
    }
}

#[test]
fn zooming_keeps_the_gpu_under_the_cursor() {
    let stage = stage();
    let mut view = refreshed(&stage, ViewId::Fleet);
    assert!(view.select(&Target::Gpu("a100-mix-02".into(), 6)));
    for (act, expected) in [
        (Act::ZoomOut, Some(Target::Node("a100-mix-02".into()))),
        (Act::ZoomOut, None),
        (Act::ZoomIn, Some(Target::Node("a100-mix-02".into()))),
        (Act::ZoomIn, Some(Target::Gpu("a100-mix-02".into(), 6))),
    ] {
        assert!(view.can(act));
        view.act(act);
        view.refresh(AREA, &stage.ctx());
        assert_eq!(view.selected(), expected);
    }
    assert!(!view.can(Act::ZoomIn));
    for by in ["zone", "model", "namespace", "leaf"] {
        view.act(Act::GroupNext);
        view.refresh(AREA, &stage.ctx());
        assert!(view.mode().unwrap().ends_with(by), "{:?}", view.mode());
        assert_eq!(view.selected(), Some(Target::Gpu("a100-mix-02".into(), 6)));
    }
}

#[test]
fn the_cursor_walks_the_map() {
    let stage = stage();
    let mut view = refreshed(&stage, ViewId::Fleet);
    let at = |view: &dyn View| view.selected().unwrap();
    assert_eq!(at(&*view), Target::Gpu("h100-01".into(), 0));
    go(&mut *view, Motion::Right, 9);
    assert_eq!(at(&*view), Target::Gpu("h100-02".into(), 1));
    view.motion(Motion::Down);
    assert_eq!(
        at(&*view),
        Target::Gpu("h100-06".into(), 1),
        "straight below"
    );
    view.motion(Motion::Up);
    view.motion(Motion::Up);
    assert_eq!(
        at(&*view),
        Target::Gpu("h100-02".into(), 1),
        "stays at the top"
    );
    view.motion(Motion::Left);
    view.motion(Motion::Left);
    assert_eq!(at(&*view), Target::Gpu("h100-01".into(), 7));
    view.motion(Motion::Last);
    assert_eq!(at(&*view), Target::Gpu("t4-shared-01".into(), 3));
}

#[test]
fn a_fleet_larger_than_any_screen_has_pages() {
    let stage = Stage::new(fixture::large(1200), TRUE);
    let mut view = view(ViewId::Fleet);
    let area = Rect::new(0, 0, 80, 18);
    view.refresh(area, &stage.ctx());
    for _ in 0..2 {
        view.act(Act::ZoomIn);
        view.refresh(area, &stage.ctx());
    }
    let first = text(&stage.draw(&mut *view, 80, 18));
    assert!(first.contains("page 1 of"), "{first}");
    view.motion(Motion::PageDown);
    let second = text(&stage.draw(&mut *view, 80, 18));
    assert!(second.contains("page 2 of"), "{second}");
    view.motion(Motion::Last);
    assert_eq!(view.selected(), Some(Target::Gpu("n1199".into(), 7)));
}

#[test]
fn the_timeline_follows_until_it_is_scrolled() {
    let mut stage = stage();
    let mut view = refreshed(&stage, ViewId::Timeline);
    let happen = |stage: &mut Stage, n: i64| {
        stage
            .cluster
            .apply(&Delta::Event(Change::Set(Arc::new(Event {
                meta: Meta {
                    uid: Uid(format!("late-{n}").into()),
                    ..Meta::default()
                },
                reason: "Late".into(),
                last_seen: Some(fixture::ago(-n)),
                ..Event::default()
            }))));
    };
    let late = |n: i64| Some(Target::Event(Uid(format!("late-{n}").into())));
    happen(&mut stage, 1);
    view.refresh(AREA, &stage.ctx());
    assert_eq!(view.selected(), late(1));
    view.motion(Motion::Up);
    let held = view.selected();
    happen(&mut stage, 2);
    view.refresh(AREA, &stage.ctx());
    assert_eq!(view.selected(), held, "scrolled: it stays");
    view.motion(Motion::Last);
    happen(&mut stage, 3);
    view.refresh(AREA, &stage.ctx());
    assert_eq!(view.selected(), late(3), "at the end: it follows again");
}

#[test]
fn the_timeline_keeps_the_newest() {
    let mut stage = stage();
    for n in 0..12_000_i64 {
        stage
            .cluster
            .apply(&Delta::Event(Change::Set(Arc::new(Event {
                meta: Meta {
                    uid: Uid(format!("many-{n}").into()),
                    ..Meta::default()
                },
                last_seen: Some(fixture::ago(-n)),
                ..Event::default()
            }))));
    }
    let mut view = refreshed(&stage, ViewId::Timeline);
    assert_eq!(view.count(), (10_000, 10_000));
    let many = |n: i64| Some(Target::Event(Uid(format!("many-{n}").into())));
    assert_eq!(view.selected(), many(11_999));
    view.motion(Motion::First);
    assert_eq!(view.selected(), many(2_000));
}

#[test]
fn one_namespace_shows_only_its_own() {
    let mut stage = stage();
    stage.namespace = Some("train".into());
    let view = refreshed(&stage, ViewId::Jobs);
    assert_eq!(view.count(), (2, 2));
    let view = refreshed(&stage, ViewId::Timeline);
    assert_eq!(
        view.count(),
        (5, 5),
        "one gang's decision, two events and two conditions of nodes"
    );
}

#[test]
fn marks_name_things_and_survive_a_refresh() {
    let mut stage = stage();
    let mut view = refreshed(&stage, ViewId::Nodes);
    view.toggle_mark();
    go(&mut *view, Motion::Down, 2);
    view.mark_range();
    stage.cluster.apply(&Delta::Node(Change::Gone(gone(
        "uid-a100-mix-02",
        "a100-mix-02",
    ))));
    // Its pods still name it, so it stays as a node that is gone.
    view.refresh(AREA, &stage.ctx());
    assert_eq!(view.marks().len(), 4);
    view.clear_marks();
    assert!(view.marks().is_empty());
}

/// Every state of a source at once in one cluster of nothing.
fn in_state(state: &SourceState) -> Cluster {
    let mut cluster = Cluster::new();
    for kind in Kind::ALL.into_iter().chain(Kind::foreign()) {
        cluster.apply(&fixture::source(kind, state.clone()));
    }
    cluster
}

#[test]
fn nodes_are_marked_on_the_map() {
    let stage = stage();
    let mut view = refreshed(&stage, ViewId::Fleet);
    go(&mut *view, Motion::Right, 3);
    view.toggle_mark();
    assert_eq!(
        view.selected(),
        Some(Target::Gpu("h100-02".into(), 0)),
        "on to the next node"
    );
    go(&mut *view, Motion::Right, 8);
    view.mark_range();
    let names = ["h100-01", "h100-02", "h100-03"];
    assert_eq!(view.marks(), names.map(|n| Target::Node(n.into())));
    let screen = text(&stage.draw(&mut *view, 120, 34));
    assert!(
        screen.contains("l01    ▌████████▌████████▌████████ ████████"),
        "{screen}"
    );
    view.set_filter("node=h100-02").unwrap();
    view.refresh(AREA, &stage.ctx());
    assert_eq!(view.marks().len(), 1, "what is not shown is not marked");
    view.clear_marks();
    assert!(view.marks().is_empty());
}

#[test]
fn loading_empty_denied_and_failed_never_look_alike() {
    let states = [
        ("loading", SourceState::Loading { read: 7 }),
        ("empty", SourceState::Live),
        (
            "denied",
            SourceState::Denied {
                why: "may not".into(),
            },
        ),
        (
            "failed",
            SourceState::Failed {
                why: "connection refused".into(),
            },
        ),
    ];
    for id in ViewId::ALL {
        let mut seen = Vec::new();
        for (name, state) in &states {
            let stage = Stage::new(in_state(state), TRUE);
            let screen = text(&stage.draw(&mut *view(id), 80, 10));
            assert!(!seen.contains(&screen), "{} {name}", id.name());
            seen.push(screen);
        }
        let stage = Stage::new(Cluster::new(), TRUE);
        let screen = text(&stage.draw(&mut *view(id), 80, 10));
        assert!(!seen.contains(&screen), "{} before any news", id.name());
    }
}

#[test]
fn no_control_or_bidi_character_is_drawn() {
    let stage = stage();
    for id in ViewId::ALL {
        let screen = text(&stage.draw(&mut *view(id), 200, 60));
        let bad = screen
            .chars()
            .find(|c| (c.is_control() && *c != '\n') || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'));
        assert_eq!(bad, None, "{}", id.name());
    }
    let mut stage = Stage::new(fixture::cluster(), LOOKS[3]);
    stage.namespace = None;
    for id in ViewId::ALL {
        let screen = text(&stage.draw(&mut *view(id), 200, 60));
        assert!(screen.is_ascii(), "{}", id.name());
    }
}

/// A key that a person may press.
#[derive(Clone, Debug)]
enum Step {
    Move(Motion),
    Do(Act),
    Filter(String),
    Sort(usize, bool),
    Enter,
    Leave,
    Mark,
    Size(u16, u16),
    NodeGone(u8),
    PodMoves(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let motions = prop::sample::select(vec![
        Motion::Up,
        Motion::Down,
        Motion::Left,
        Motion::Right,
        Motion::PageUp,
        Motion::PageDown,
        Motion::HalfUp,
        Motion::HalfDown,
        Motion::First,
        Motion::Last,
    ]);
    let acts = prop::sample::select(vec![Act::ZoomIn, Act::ZoomOut, Act::GroupNext]);
    let step = prop_oneof![
        4 => motions.prop_map(Step::Move),
        2 => acts.prop_map(Step::Do),
        1 => "((name|state|age|gpus)?[=<>:!]{0,2}[a-z0-9]{0,2} ?){0,2}".prop_map(Step::Filter),
        1 => (0..12_usize, any::<bool>()).prop_map(|(n, f)| Step::Sort(n, f)),
        1 => Just(Step::Enter),
        1 => Just(Step::Leave),
        1 => Just(Step::Mark),
        2 => (0..260_u16, 0..70_u16).prop_map(|(w, h)| Step::Size(w, h)),
        1 => any::<u8>().prop_map(Step::NodeGone),
        1 => any::<u8>().prop_map(Step::PodMoves),
    ];
    prop::collection::vec(step, 1..25)
}

fn take(step: &Step, view: &mut dyn View, stage: &mut Stage, size: &mut (u16, u16)) {
    match step {
        Step::Move(motion) => view.motion(*motion),
        Step::Do(act) => view.act(*act),
        Step::Filter(filter) => drop(view.set_filter(filter)),
        Step::Sort(n, falling) => {
            if let Some(column) = view.sort_columns().get(*n) {
                view.set_sort(Sort {
                    column,
                    falling: *falling,
                });
            }
        }
        Step::Enter => drop(view.enter()),
        Step::Leave => drop(view.leave()),
        Step::Mark => view.toggle_mark(),
        Step::Size(w, h) => *size = (*w, *h),
        Step::NodeGone(n) => {
            let name = format!("h100-{:02}", n % 14);
            let delta = Delta::Node(Change::Gone(gone(&format!("uid-{name}"), &name)));
            stage.cluster.apply(&delta);
        }
        Step::PodMoves(n) => {
            let node = format!("h100-{:02}", n % 14);
            stage.cluster.apply(&fixture::pod(&PodSpec {
                ns: "train",
                name: &format!("moe-{}", n % 9),
                node: (n % 3 > 0).then_some(&*node),
                phase: [Phase::Pending, Phase::Running, Phase::Failed][usize::from(n % 3)],
                devices: &[("gpu", i64::from(n % 10))],
                age: HOUR,
                ..PodSpec::default()
            }));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_a_person_does_at_any_size_panics(id in 0..6_usize, look in 0..4_usize, steps in steps()) {
        let mut stage = Stage::new(fixture::cluster(), LOOKS[look]);
        let mut view = view(ViewId::ALL[id]);
        let mut size = (80, 18);
        for step in &steps {
            take(step, &mut *view, &mut stage, &mut size);
            stage.draw(&mut *view, size.0, size.1);
            let (shown, all) = view.count();
            prop_assert!(shown <= all);
            if shown > 0 && ViewId::ALL[id] != ViewId::Fleet {
                prop_assert!(view.selected().is_some(), "rows but no cursor after {step:?}");
            }
            if let Some(target) = view.selected() {
                prop_assert!(view.describe(&target, &stage.ctx()).is_some(), "{target:?}");
            }
        }
    }
}

#[test]
fn each_target_is_described_or_gone() {
    let stage = stage();
    let view = refreshed(&stage, ViewId::Nodes);
    let at = fixture::ago(12 * 60);
    for target in [
        Target::Node("nowhere".into()),
        Target::Pod(Uid("no".into())),
        Target::Event(Uid("no".into())),
        Target::Decision(at, Uid("no".into())),
        Target::Namespace("no".into()),
    ] {
        assert!(view.describe(&target, &stage.ctx()).is_none(), "{target:?}");
    }
    let target = Target::Decision(at, fixture::pod_uid("team-a", "eval-1"));
    assert!(view.describe(&target, &stage.ctx()).is_some());
}
