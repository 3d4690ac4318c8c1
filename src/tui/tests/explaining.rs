//! What would start a job, in the pane that tells why it waits.

use std::sync::Arc;

use jiff::SignedDuration;

use super::sample::{Desk, live, node, now};
use crate::model::{Change, Delta, Meta, Phase, Pod, Resources, Uid};
use crate::sched::{self, Explanation, NearMiss};
use crate::tui::app::{App, Cmd, Msg};
use crate::tui::explaining::{WhyAnswer, WhyAsk};
use crate::tui::glyphs::Glyphs;
use crate::tui::session::Session;
use crate::tui::settings::Settings;
use crate::tui::theme::Depth;
use crate::tui::views;

fn pod(scheduler: &str, gpus: i64) -> Delta {
    let mut requests = Resources::default();
    requests.set_extended(&"nvidia.com/gpu".into(), gpus);
    Delta::Pod(Change::Set(Arc::new(Pod {
        meta: Meta {
            uid: Uid("p".into()),
            name: "train-x".into(),
            namespace: "team-a".into(),
            created: Some(now()),
            ..Meta::default()
        },
        phase: Phase::Pending,
        scheduler: scheduler.into(),
        requests,
        ..Pod::default()
    })))
}

/// A console with all views, on a job that waits.
fn desk(session: Session, scheduler: &str) -> Desk {
    let settings = Settings::built_in(Depth::Mono, Glyphs { ascii: false });
    let mut desk = Desk::empty();
    desk.app = App::new(settings, session, views::all(), now());
    let mut deltas = live();
    deltas.extend([node("n1", 8), pod(scheduler, 16)]);
    desk.deltas(deltas);
    desk.screen();
    desk.press("5");
    desk
}

fn asked(cmds: &[Cmd]) -> Option<WhyAsk> {
    cmds.iter().find_map(|cmd| match cmd {
        Cmd::Explain(ask) => Some(ask.clone()),
        _ => None,
    })
}

fn miss(change: sched::Change, text: &str) -> NearMiss {
    NearMiss {
        change,
        text: text.into(),
    }
}

fn explanation() -> Explanation {
    Explanation {
        queue: "team-a".into(),
        position: 3,
        waiting: 12,
        reason: None,
        predicted_start: Some(now() + SignedDuration::from_mins(140)),
        start_by:
            "when team-b/sweep-9 ends by its own estimate, unless somebody before it in line \
                   takes the place"
                .into(),
        near_misses: vec![
            miss(
                sched::Change::Priority,
                "with priority 60 (now 20) it would displace 2 pod(s) of its queue",
            ),
            miss(sched::Change::Wait, "its place is free in 2h"),
        ],
    }
}

#[test]
fn near_misses_are_asked_for_and_shown_and_follow_the_cluster() {
    let mut desk = desk(Session::default(), "gpudeck");
    let cmds = desk.press("w");
    let ask = asked(&cmds).unwrap();
    assert_eq!(&*ask.pod.0, "p");
    let known = ask.known.unwrap().deltas();
    assert!(known.contains(&pod("gpudeck", 16)), "{known:?}");
    assert!(desk.screen().contains("… being tried out"));
    let answer = WhyAnswer::Waits(Box::new(explanation()));
    let told = |turn, answer: &WhyAnswer| Msg::Explained {
        turn,
        answer: answer.clone(),
    };
    desk.tell(told(ask.turn, &answer));
    let screen = desk.screen();
    let from = screen.find("What would start it").unwrap();
    let shown: Vec<&str> = screen[from..].lines().take(7).map(str::trim_end).collect();
    assert_eq!(
        shown,
        [
            "What would start it",
            "   start       about 14:20Z (in 2h), when team-b/sweep-9 ends by its own",
            "               estimate, unless somebody before it in line takes the place",
            "   turn        number 3 of 12 over all queues",
            "   priority    with priority 60 (now 20) it would displace 2 pod(s) of its",
            "               queue",
            " Tried one by one on what this console sees, without past use and held places.",
        ]
    );
    // News at once are not asked about at once; the same pane opened again asks nothing.
    assert_eq!(asked(&desk.press("esc w")), None);
    let news = |desk: &mut Desk, gpus, secs| {
        let deltas = vec![pod("gpudeck", gpus)];
        let told = Msg::Deltas {
            generation: 0,
            deltas,
        };
        desk.app
            .update(told, now() + SignedDuration::from_secs(secs))
    };
    assert_eq!(asked(&news(&mut desk, 15, 2)), None);
    let again = asked(&news(&mut desk, 14, 6)).unwrap();
    assert_ne!(again.turn, ask.turn);
    assert_eq!(asked(&news(&mut desk, 13, 20)), None, "one at a time");
    // The answer to an older question changes nothing; the newest does.
    desk.tell(told(ask.turn, &WhyAnswer::Failed("old".into())));
    assert!(desk.screen().contains("number 3 of 12"));
    desk.tell(told(
        again.turn,
        &WhyAnswer::Failed("nodes are not known".into()),
    ));
    let screen = desk.screen();
    assert!(
        screen.contains("It cannot be tried out: nodes are not known"),
        "{screen}"
    );
    desk.press("esc");
    assert_eq!(asked(&news(&mut desk, 12, 60)), None, "nobody looks");
}

#[test]
fn a_scheduler_of_this_process_is_asked_without_a_copy_and_others_work_not_at_all() {
    let session = Session {
        schedules: true,
        ..Session::default()
    };
    let ask = asked(&desk(session.clone(), "gpudeck").press("w")).unwrap();
    assert_eq!(ask.known, None);
    assert_eq!(asked(&desk(session, "default-scheduler").press("w")), None);
}

#[test]
fn a_pod_of_the_same_name_elsewhere_is_not_told_the_answer_of_before() {
    let mut desk = desk(Session::default(), "gpudeck");
    let ask = asked(&desk.press("w")).unwrap();
    let elsewhere = Session {
        generation: 1,
        context: "lab".into(),
        ..Session::default()
    };
    desk.tell(Msg::Session(elsewhere));
    desk.tell(Msg::Explained {
        turn: ask.turn,
        answer: WhyAnswer::Waits(Box::new(explanation())),
    });
    let mut deltas = live();
    deltas.extend([node("n1", 8), pod("gpudeck", 16)]);
    desk.deltas(deltas);
    let cmds = desk.press("5 w");
    assert!(asked(&cmds).is_some());
    assert!(!desk.screen().contains("number 3 of 12"));
}
