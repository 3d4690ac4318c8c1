//! Pictures of what the core draws itself: header states, help, palette, panes.

use insta::assert_snapshot;

use super::sample::{Desk, now, source};
use crate::model::{Kind, SourceState};
use crate::tui::app::Msg;
use crate::tui::glyphs::Glyphs;
use crate::tui::session::{Leader, Session};
use crate::tui::settings::Settings;
use crate::tui::theme::Depth;

fn at(size: (u16, u16), nodes: usize) -> Desk {
    let mut desk = Desk::of_nodes(nodes);
    desk.size = size;
    desk
}

fn header(desk: &mut Desk) -> String {
    let screen = desk.screen();
    let lines: Vec<&str> = screen.lines().take(3).collect();
    lines.join("\n")
}

const SMALL: (u16, u16) = (80, 24);
const WIDE: (u16, u16) = (120, 40);

#[test]
fn rows() {
    assert_snapshot!(at(SMALL, 40).screen());
}

#[test]
fn help_80() {
    let mut desk = at(SMALL, 5);
    desk.press("?");
    assert_snapshot!(desk.screen());
}

#[test]
fn help_120() {
    let mut desk = at(WIDE, 5);
    desk.press("?");
    assert_snapshot!(desk.screen());
}

#[test]
fn palette_80() {
    let mut desk = at(SMALL, 5);
    desk.press(":");
    assert_snapshot!(desk.screen());
}

#[test]
fn palette_120_typed() {
    let mut desk = at(WIDE, 50);
    desk.press(":");
    desk.typed("no");
    assert_snapshot!(desk.screen());
}

#[test]
fn palette_ascii() {
    let mut desk = Desk::with(Settings::built_in(Depth::Mono, Glyphs { ascii: true }));
    desk.fill(5);
    desk.press(":");
    assert_snapshot!(desk.screen());
}

#[test]
fn description_with_search() {
    let mut desk = at(SMALL, 5);
    desk.press("d /");
    desk.typed("tail 2");
    assert_snapshot!(desk.screen());
}

#[test]
fn header_states() {
    let stale = |secs: i64| SourceState::Stale {
        since: now() - jiff::SignedDuration::from_secs(secs),
        why: "connection reset".into(),
    };
    let denied = || SourceState::Denied {
        why: "nodes is forbidden".into(),
    };
    let failed = || SourceState::Failed {
        why: "connection refused".into(),
    };
    let mut shown = Vec::new();
    for size in [SMALL, WIDE] {
        let mut desk = Desk::empty();
        desk.size = size;
        shown.push(("nothing yet", header(&mut desk)));
        desk.deltas(vec![source(
            Kind::Node,
            SourceState::Loading { read: 12_345 },
        )]);
        shown.push(("loading", header(&mut desk)));
        desk.fill(40);
        shown.push(("live", header(&mut desk)));
        desk.tell(Msg::Leader(Leader::Other {
            holder: "gpudeck-7f".into(),
            standby: true,
        }));
        desk.tell(Msg::Session(Session {
            read_only: true,
            namespace: Some("team-a".into()),
            ..desk.app.world().session.clone()
        }));
        shown.push(("leader, namespace, read-only", header(&mut desk)));
        desk.deltas(vec![
            source(Kind::Pod, stale(75)),
            source(Kind::Node, stale(42)),
        ]);
        shown.push(("stale", header(&mut desk)));
        desk.deltas(vec![
            source(Kind::Pod, SourceState::Live),
            source(Kind::Node, denied()),
        ]);
        desk.deltas(vec![source(Kind::Namespace, denied())]);
        shown.push(("denied", header(&mut desk)));
        desk.deltas(vec![source(Kind::Job, failed())]);
        shown.push(("failed", header(&mut desk)));
    }
    let text: Vec<String> = shown
        .iter()
        .map(|(name, lines)| format!("-- {name}\n{lines}"))
        .collect();
    assert_snapshot!(text.join("\n"));
}

#[test]
fn places_without_rows_look_different_for_each_cause() {
    let mut shown = Vec::new();
    for (name, state) in [
        ("loading", SourceState::Loading { read: 7 }),
        ("empty", SourceState::Live),
        (
            "denied",
            SourceState::Denied {
                why: "user \"lead\" cannot list nodes".into(),
            },
        ),
        (
            "failed",
            SourceState::Failed {
                why: "connection refused".into(),
            },
        ),
    ] {
        let mut desk = Desk::empty();
        desk.deltas(vec![source(Kind::Node, state)]);
        let screen = desk.screen();
        let lines: Vec<&str> = screen.lines().skip(4).take(2).collect();
        shown.push(format!("-- {name}\n{}", lines.join("\n")));
    }
    let mut desk = Desk::of_nodes(3);
    desk.press("/");
    desk.typed("zzz");
    let screen = desk.screen();
    let lines: Vec<&str> = screen.lines().skip(4).take(2).collect();
    shown.push(format!("-- filtered\n{}", lines.join("\n")));
    assert_snapshot!(shown.join("\n"));
}

#[test]
fn themes_keep_states_apart_by_more_than_colour_in_mono() {
    use crate::tui::theme::{Meaning, Theme};
    let mono = Theme::default_for(Depth::Mono);
    for meaning in Meaning::ALL {
        let style = mono.style(*meaning);
        assert!(
            style.fg.is_none() && style.bg.is_none(),
            "{meaning:?} has a colour"
        );
    }
    for (a, b) in [
        (Meaning::Text, Meaning::Selection),
        (Meaning::Text, Meaning::Muted),
        (Meaning::Warn, Meaning::Danger),
        (Meaning::Stale, Meaning::Loading),
        (Meaning::Text, Meaning::Denied),
    ] {
        assert_ne!(mono.style(a), mono.style(b), "{a:?} {b:?}");
    }
}
