//! A person's own actions: where they are offered, what is asked before, and what is refused.

use super::sample::{Desk, key};
use crate::plan::Danger;
use crate::tui::actions::UserAction;
use crate::tui::app::{Cmd, Msg};
use crate::tui::glyphs::Glyphs;
use crate::tui::session::Session;
use crate::tui::settings::Settings;
use crate::tui::theme::Depth;
use crate::tui::view::ViewId;

fn action(name: &str, danger: Option<Danger>) -> UserAction {
    UserAction {
        name: name.to_owned(),
        about: format!("does {name}"),
        key: None,
        program: name.to_owned(),
        args: vec!["{name}".to_owned(), "{node}/{kind}@{context}".to_owned()],
        views: Vec::new(),
        danger,
        confirm: false,
    }
}

fn desk(actions: Vec<UserAction>) -> Desk {
    let mut settings = Settings::built_in(Depth::Mono, Glyphs { ascii: false });
    settings.take_actions(actions);
    let mut desk = Desk::with(settings);
    desk.size = (120, 24);
    desk.fill(3);
    desk
}

/// Gives a command by its name in the palette.
fn palette(desk: &mut Desk, name: &str) -> Vec<Cmd> {
    desk.press(":");
    desk.typed(name);
    desk.press("enter")
}

fn run(cmds: &[Cmd]) -> Option<(u64, String)> {
    cmds.iter().find_map(|c| match c {
        Cmd::Run(ask) => Some((ask.turn, format!("{} {}", ask.program, ask.args.join(" ")))),
        _ => None,
    })
}

#[test]
fn one_that_reads_runs_by_its_key_on_the_row_and_its_output_is_shown() {
    let mut desk = desk(vec![UserAction {
        key: Some(key("ctrl-g")),
        ..action("uptime", None)
    }]);
    assert!(desk.footer().contains("ctrl-g uptime"), "{}", desk.footer());
    desk.press("?");
    desk.press("G");
    assert!(desk.screen().contains("does uptime"), "{}", desk.screen());
    desk.press("esc j");
    let cmds = desk.press("ctrl-g");
    let (turn, line) = run(&cmds).unwrap();
    assert_eq!(line, "uptime n0001 n0001/Node@prod-eu1");
    let output = |turn, text: &str| Msg::Output {
        turn,
        text: text.to_owned(),
    };
    desk.tell(output(turn, "up 4 days\u{1b}[31m\nand 2 hours"));
    desk.tell(output(turn + 1, "of another one"));
    let screen = desk.screen();
    for text in ["$ uptime n0001", "up 4 days", "and 2 hours"] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    assert!(
        !screen.contains("another") && !screen.contains('\u{1b}'),
        "{screen}"
    );
    assert_eq!(desk.press("esc"), [Cmd::StopRun]);
    desk.tell(output(turn, "too late"));
    assert!(!desk.screen().contains("too late"));
}

#[test]
fn what_changes_something_is_asked_for_and_what_ends_work_has_its_name_typed() {
    let mut desk = desk(vec![
        action("tidy", Some(Danger::Reversible)),
        action("wipe", Some(Danger::Disruptive)),
        UserAction {
            confirm: true,
            ..action("probe", None)
        },
    ]);
    for name in ["tidy", "probe"] {
        assert_eq!(run(&palette(&mut desk, name)), None);
        assert!(desk.screen().contains("really?"), "{}", desk.screen());
        // The first answer is no.
        assert_eq!(run(&desk.press("enter")), None);
        palette(&mut desk, name);
        let (_, line) = run(&desk.press("down enter")).unwrap();
        assert!(line.starts_with(&format!("{name} n0000")), "{line}");
        desk.press("esc");
    }
    assert_eq!(run(&palette(&mut desk, "wipe")), None);
    assert!(desk.footer().contains("type its name"), "{}", desk.footer());
    assert_eq!(run(&desk.press("enter")), None, "nothing is typed");
    desk.typed("n000");
    assert_eq!(run(&desk.press("enter")), None, "half of it is typed");
    desk.typed("0");
    assert!(
        desk.footer().contains("enter runs wipe"),
        "{}",
        desk.footer()
    );
    let (_, line) = run(&desk.press("enter")).unwrap();
    assert!(line.starts_with("wipe n0000"), "{line}");
    desk.press("esc");
    palette(&mut desk, "wipe");
    desk.typed("n0000");
    assert_eq!(run(&desk.press("esc")), None);
    assert!(
        !desk.footer().contains("type its name"),
        "{}",
        desk.footer()
    );
}

#[test]
fn a_console_that_only_reads_refuses_what_may_change_something() {
    let mut desk = desk(vec![
        action("tidy", Some(Danger::Safe)),
        UserAction {
            key: Some(key("ctrl-g")),
            ..action("uptime", None)
        },
    ]);
    let session = Session {
        read_only: true,
        ..desk.app.world().session.clone()
    };
    desk.tell(Msg::Session(session));
    assert_eq!(run(&palette(&mut desk, "tidy")), None);
    assert!(desk.screen().contains("read-only"), "{}", desk.screen());
    desk.press("esc");
    assert!(run(&desk.press("ctrl-g")).is_some());
}

#[test]
fn a_view_that_is_not_named_and_a_key_that_is_taken_do_not_give_it() {
    let mut desk = desk(vec![
        UserAction {
            key: Some(key("ctrl-g")),
            views: vec![ViewId::Nodes],
            ..action("uptime", None)
        },
        UserAction {
            key: Some(key("y")),
            ..action("other", None)
        },
        UserAction {
            key: Some(key("ctrl-g")),
            args: vec!["{namespace}".to_owned()],
            ..action("third", None)
        },
    ]);
    let told: Vec<&str> = desk.app.messages().all().map(|m| &*m.text).collect();
    assert!(
        told[0].contains("action other: y gives yaml already")
            && told[1].contains("action third: ctrl-g gives another action already"),
        "{told:?}"
    );
    desk.press("1");
    assert!(desk.press("ctrl-g").is_empty());
    assert!(
        desk.footer().contains("no meaning here"),
        "{}",
        desk.footer()
    );
    desk.press("2");
    assert!(run(&desk.press("ctrl-g")).is_some());
    desk.press("esc");
    assert_eq!(run(&palette(&mut desk, "third")), None);
    assert!(
        desk.screen().contains("it has no namespace"),
        "{}",
        desk.screen()
    );
}
