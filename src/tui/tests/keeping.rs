//! What is kept from session to session, the tour, and logs.

use std::sync::Arc;

use super::sample::{Desk, live, node, now, source};
use crate::model::{
    Change, Delta, Foreign, ForeignBody, ForeignKind, Kind, Meta, Owner, Phase, Pod, QueueKey,
    SourceState, Uid,
};
use crate::tui::app::{App, Cmd, Msg};
use crate::tui::glyphs::Glyphs;
use crate::tui::keep::Kept;
use crate::tui::logs::LogLine;
use crate::tui::session::Session;
use crate::tui::settings::Settings;
use crate::tui::theme::Depth;
use crate::tui::view::{View, ViewId};
use crate::tui::views;

/// A console with all views.
fn desk() -> Desk {
    let settings = Settings::built_in(Depth::Mono, Glyphs { ascii: false });
    let session = Session {
        context: "prod-eu1".into(),
        ..Session::default()
    };
    let mut desk = Desk::empty();
    desk.app = App::new(settings, session, views::all(), now());
    let mut deltas = live();
    deltas.extend([node("n1", 8), node("n2", 8)]);
    for rank in 0..3 {
        deltas.push(Delta::Pod(Change::Set(Arc::new(pod(rank)))));
    }
    desk.deltas(deltas);
    desk.screen();
    desk
}

/// A rank of a job; the last one waits.
fn pod(rank: u32) -> Pod {
    let label = (
        "batch.kubernetes.io/job-completion-index".into(),
        rank.to_string().into(),
    );
    Pod {
        meta: Meta {
            uid: Uid(format!("p{rank}").into()),
            name: format!("llm-{rank}").into(),
            namespace: "team-a".into(),
            labels: Box::new([label]),
            owners: Box::new([Owner {
                kind: "Job".into(),
                name: "llm".into(),
                uid: Uid("llm".into()),
                controller: true,
            }]),
            created: Some(now()),
            ..Meta::default()
        },
        node: (rank < 2).then(|| "n1".into()),
        phase: if rank < 2 {
            Phase::Running
        } else {
            Phase::Pending
        },
        ready: true,
        ..Pod::default()
    }
}

fn view(desk: &Desk) -> (ViewId, String) {
    let view = desk.app.view().unwrap();
    (view.id(), view.filter().to_owned())
}

fn kept(cmds: &[Cmd]) -> Kept {
    let found = cmds.iter().find_map(|c| match c {
        Cmd::Keep(kept) => Some(kept.clone()),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn view_and_filter_of_a_context_come_back_and_no_other_has_them() {
    let mut first = desk();
    first.app.remember(
        Kept {
            toured: true,
            ..Kept::default()
        },
        true,
    );
    first.press("5 /");
    first.typed("gpus>=0");
    first.press("enter s");
    first.typed("name");
    first.press("enter");
    let cmds = first.tell(Msg::Quit);
    assert_eq!(cmds.last(), Some(&Cmd::Quit));
    let file = kept(&cmds);

    let mut again = desk();
    again.app.remember(file.clone(), true);
    assert_eq!(view(&again), (ViewId::Jobs, "gpus>=0".to_owned()));
    assert_eq!(
        again.app.view().and_then(View::sort).map(|s| s.column),
        Some("name")
    );
    // Another context knows nothing of it, and what was done there is its own.
    let other = Session {
        generation: 1,
        context: "lab".into(),
        ..Session::default()
    };
    let cmds = again.tell(Msg::Session(other));
    assert!(kept(&cmds).contexts.contains_key("prod-eu1"));
    assert_eq!(view(&again).1, "");
    again.press("2");
    let back = Session {
        generation: 2,
        context: "prod-eu1".into(),
        ..Session::default()
    };
    again.tell(Msg::Session(back));
    assert_eq!(view(&again), (ViewId::Jobs, "gpus>=0".to_owned()));

    // What is no filter, column or view any more is left out.
    let mut odd = file;
    let place = odd.contexts.get_mut("prod-eu1").unwrap();
    place.view = "holodeck".to_owned();
    place.views.get_mut("jobs").unwrap().filter = "warp>9".to_owned();
    let mut third = desk();
    third.app.remember(odd, true);
    assert_eq!(view(&third), (ViewId::Fleet, String::new()));
}

#[test]
fn the_lens_of_a_context_comes_back_and_no_other_has_it() {
    let kept_before = Kept {
        toured: true,
        ..Kept::default()
    };
    let mut desk = desk();
    desk.app.remember(kept_before, true);
    let lens = |desk: &Desk| desk.app.view().and_then(View::lens);
    assert_eq!(lens(&desk), Some("allocation"));
    desk.press("i i i i i");
    assert_eq!(lens(&desk), Some("power"));
    let at = |generation, context: &str| {
        Msg::Session(Session {
            generation,
            context: context.into(),
            ..Session::default()
        })
    };
    let cmds = desk.tell(at(1, "lab"));
    let file = kept(&cmds);
    assert_eq!(lens(&desk), Some("allocation"), "lab was never looked at");
    desk.tell(at(2, "prod-eu1"));
    assert_eq!(lens(&desk), Some("power"));
    let mut again = self::desk();
    again.app.remember(file, true);
    assert_eq!(lens(&again), Some("power"));
}

#[test]
fn the_order_of_a_context_is_its_own() {
    let kept_before = Kept {
        toured: true,
        ..Kept::default()
    };
    let mut desk = desk();
    desk.app.remember(kept_before, true);
    let sort = |desk: &Desk| desk.app.view().and_then(View::sort).map(|s| s.column);
    desk.press("5 s");
    desk.typed("name");
    desk.press("enter");
    assert_eq!(sort(&desk), Some("name"));
    let at = |generation, context: &str| {
        Msg::Session(Session {
            generation,
            context: context.into(),
            ..Session::default()
        })
    };
    desk.tell(at(1, "lab"));
    desk.press("5");
    assert_eq!(sort(&desk), None, "nobody chose one there");
    desk.tell(at(2, "prod-eu1"));
    assert_eq!(sort(&desk), Some("name"));
}

#[test]
fn the_tour_is_shown_once_and_leads_to_the_views() {
    let mut desk = desk();
    desk.app.remember(Kept::default(), false);
    let screen = desk.screen();
    assert!(
        screen.contains("the tour") && screen.contains("4   Queues"),
        "{screen}"
    );
    assert_eq!(screen.lines().count(), 24, "it is one screen");
    desk.press("4");
    assert_eq!(view(&desk).0, ViewId::Queues);
    let file = kept(&desk.tell(Msg::Quit));
    assert!(file.toured && file.contexts.is_empty());
    desk.app.remember(file, false);
    assert!(!desk.screen().contains("the tour"));
}

#[test]
fn logs_of_all_ranks_are_followed_searched_and_given_up() {
    let mut desk = desk();
    let cmds = desk.press("5 t");
    let [Cmd::Logs(ask)] = cmds.as_slice() else {
        panic!("{cmds:?}");
    };
    let labels: Vec<&str> = ask.pods.iter().map(|p| &*p.label).collect();
    assert_eq!(labels, ["0", "1"], "the one that waits has no log");
    let line = |pod, text: &str| LogLine {
        pod,
        text: text.into(),
        notice: false,
    };
    let lines = vec![line(0, "step 1"), line(1, "loss is nan")];
    desk.tell(Msg::LogLines {
        turn: ask.turn,
        lines,
    });
    desk.tell(Msg::LogLines {
        turn: ask.turn + 1,
        lines: vec![line(0, "of another question")],
    });
    let screen = desk.screen();
    assert!(
        screen.contains("0 step 1") && screen.contains("1 loss is nan"),
        "{screen}"
    );
    assert!(!screen.contains("of another question"));
    // Many lines: the newest are kept, and who looks at the end keeps looking at it.
    let many = (0..12_000).map(|n| line(0, &format!("line {n}"))).collect();
    desk.tell(Msg::LogLines {
        turn: ask.turn,
        lines: many,
    });
    assert!(desk.screen().contains("line 11999"));
    desk.press("g");
    assert!(desk.screen().contains("line 7000"), "{}", desk.screen());
    desk.tell(Msg::LogLines {
        turn: ask.turn,
        lines: vec![line(1, "late")],
    });
    assert!(!desk.screen().contains("late"));
    desk.press("/");
    desk.typed("late");
    desk.press("enter");
    assert!(desk.screen().contains("/late: 1 rows"), "{}", desk.screen());
    assert_eq!(desk.press("esc"), [Cmd::StopLogs]);
    // One pod alone, by its row.
    let cmds = desk.press("enter G t");
    assert!(
        matches!(cmds.as_slice(), [Cmd::Logs(ask)] if ask.pods.len() == 1),
        "{cmds:?}"
    );
}

#[test]
fn owner_and_node_are_one_key_away() {
    let mut desk = desk();
    desk.press("5 enter G N");
    assert_eq!(view(&desk).0, ViewId::Nodes);
    assert_eq!(desk.selected(), "n1");
    // From the pod that was entered to its workload, which is a part of nothing.
    desk.press("5 O O");
    assert!(
        desk.footer().contains("owner: it is no part of anything"),
        "{}",
        desk.screen()
    );
    desk.press("w");
    assert!(
        desk.screen()
            .contains("llm is waiting: 1 of its 3 pods wait"),
        "{}",
        desk.screen()
    );
}

#[test]
fn each_system_says_how_well_it_is_known() {
    let mut desk = desk();
    let kind = Kind::Foreign;
    let denied = SourceState::Denied { why: "no".into() };
    let absent = SourceState::Absent {
        why: "other version: the server has scheduling.run.ai v9, and v2 can be read".into(),
    };
    desk.deltas(vec![
        source(kind(ForeignKind::KueueClusterQueue), denied),
        source(kind(ForeignKind::KueueLocalQueue), SourceState::Live),
        source(kind(ForeignKind::KaiQueue), absent),
        source(kind(ForeignKind::VolcanoQueue), SourceState::Live),
        source(kind(ForeignKind::VolcanoPodGroup), SourceState::Live),
        source(kind(ForeignKind::ResourceQuota), SourceState::Live),
    ]);
    let local = |uid: &str| {
        let key = |kind: &str, namespace: &str, name: &str| QueueKey {
            admitter: crate::model::Admitter::Kueue,
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let queue = crate::model::AdmitterQueue {
            parent: Some(key("ClusterQueue", "", "hidden-cq")),
            ..crate::model::AdmitterQueue::new(key("LocalQueue", "team-a", "main"))
        };
        let meta = Meta {
            uid: Uid(uid.into()),
            name: "main".into(),
            namespace: "team-a".into(),
            ..Meta::default()
        };
        Arc::new(Foreign {
            meta,
            version: "v1beta2".into(),
            body: ForeignBody::Queue(queue),
        })
    };
    desk.deltas(vec![Delta::Foreign(
        ForeignKind::KueueLocalQueue,
        Change::Set(local("lq")),
    )]);
    let no_queues = SourceState::Absent {
        why: "not installed: each namespace is a queue of its own".into(),
    };
    desk.deltas(vec![source(Kind::GpuQueue, no_queues)]);
    desk.size = (200, 24);
    desk.press("4");
    let screen = desk.screen();
    for text in [
        "not installed: each namespace is a queue of its own",
        "hidden-cq",
        "denied: list clusterqueues.kueue.x-k8s.io",
        "team-a/main",
        "other version: the server has",
        "installed, without a queue",
        "no namespace has a quota",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    // Systems that are not there are no news, and share a row.
    let gone = |what: &str| SourceState::Absent {
        why: format!("not installed: the server has no {what}").into(),
    };
    desk.deltas(vec![
        source(kind(ForeignKind::VolcanoQueue), gone("volcano")),
        source(kind(ForeignKind::VolcanoPodGroup), gone("volcano")),
        source(kind(ForeignKind::KaiQueue), gone("kai")),
    ]);
    let screen = desk.screen();
    let rows = screen.lines().filter(|l| l.contains("not installed  "));
    let rows: Vec<&str> = rows.map(str::trim).collect();
    assert!(
        matches!(rows.as_slice(), [one] if one.ends_with("volcano, kai")),
        "{screen}"
    );
    for (state, text) in [
        (
            SourceState::Denied { why: "no".into() },
            "denied: list gpuqueues.gpudeck.dev",
        ),
        (
            SourceState::Live,
            "no GpuQueue: each namespace is a queue of its own",
        ),
    ] {
        desk.deltas(vec![source(Kind::GpuQueue, state)]);
        let screen = desk.screen();
        assert!(screen.contains(text), "{text}: {screen}");
    }
}
