//! Keys in, state and side effects out.

use super::sample::{Desk, key, live, node, now, source};
use crate::model::{Change, Delta, Gone, Kind, SourceState, Uid};
use crate::tui::app::{Cmd, Msg};
use crate::tui::glyphs::Glyphs;
use crate::tui::messages::Level;
use crate::tui::object::ObjectRef;
use crate::tui::session::Session;
use crate::tui::settings::Settings;
use crate::tui::theme::Depth;
use crate::tui::view::ViewId;

fn object(kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        resource: None,
        kind: kind.into(),
        namespace: "".into(),
        name: name.into(),
    }
}

#[test]
fn movement_keys_move_and_stop_at_the_ends() {
    let mut desk = Desk::of_nodes(100);
    for (keys, at) in [
        ("j", "n0001"),
        ("k k k", "n0000"),
        ("G", "n0099"),
        ("down", "n0099"),
        ("g", "n0000"),
        ("pgdn", "n0017"),
        ("ctrl-d", "n0025"),
        ("ctrl-u pgup", "n0000"),
        ("end home", "n0000"),
    ] {
        assert_eq!(desk.press(keys), []);
        assert_eq!(desk.selected(), at, "after {keys}");
    }
}

#[test]
fn a_key_typed_ahead_acts_on_what_the_one_before_it_shows() {
    let mut desk = Desk::of_nodes(3);
    desk.screen();
    // No frame is drawn between these.
    for text in ["1", "2", "G", "enter"] {
        desk.tell(Msg::Key(key(text)));
    }
    assert!(desk.screen().contains("node n0002 with 8 GPUs"));
    for text in ["esc", "/", "0", "0", "1", "enter", "d"] {
        desk.tell(Msg::Key(key(text)));
    }
    assert!(desk.screen().contains("node n0001 with 8 GPUs"));
}

#[test]
fn selection_follows_the_row_and_not_the_place() {
    let mut desk = Desk::of_nodes(10);
    desk.press("j j j");
    desk.deltas(vec![node("a-new-first-row", 8)]);
    desk.screen();
    assert_eq!(desk.selected(), "n0003");
    let gone = Gone {
        uid: Uid("uid-n0003".into()),
        namespace: "".into(),
        name: "n0003".into(),
    };
    desk.deltas(vec![Delta::Node(Change::Gone(gone))]);
    desk.screen();
    assert_eq!(
        desk.selected(),
        "n0004",
        "the next row takes the place of one that is gone"
    );
}

#[test]
fn enter_describes_and_esc_leaves() {
    let mut desk = Desk::of_nodes(3);
    desk.press("j enter");
    assert!(desk.screen().contains("node n0001 with 8 GPUs"));
    desk.press("G");
    assert!(desk.screen().contains("detail 60"));
    assert_eq!(desk.selected(), "n0001", "the view below does not move");
    desk.press("esc");
    assert!(!desk.screen().contains("detail"));
}

#[test]
fn an_open_description_follows_the_cluster_and_says_when_its_thing_is_gone() {
    let mut desk = Desk::of_nodes(1);
    desk.press("d");
    desk.deltas(vec![node("n0000", 4)]);
    assert!(desk.screen().contains("with 4 GPUs"));
    let gone = Gone {
        uid: Uid("uid-n0000".into()),
        namespace: "".into(),
        name: "n0000".into(),
    };
    desk.deltas(vec![Delta::Node(Change::Gone(gone))]);
    let screen = desk.screen();
    assert!(
        screen.contains("(gone)") && screen.contains("with 4 GPUs"),
        "{screen}"
    );
}

#[test]
fn yaml_asks_the_server_and_shows_the_answer_cleaned() {
    let mut desk = Desk::of_nodes(1);
    let wanted = object("Node", "n0000");
    assert_eq!(desk.press("y"), [Cmd::FetchObject(wanted.clone())]);
    assert!(desk.screen().contains("asking the server"));
    desk.tell(Msg::Fetched {
        object: wanted,
        result: Ok("kind: Node\nname: \u{1b}[31mred\n\tx: 1".to_owned()),
    });
    let screen = desk.screen();
    assert!(
        screen.contains("kind: Node") && screen.contains("[31mred"),
        "{screen}"
    );
    assert!(!screen.contains('\u{1b}'));
}

#[test]
fn a_refused_yaml_says_why_in_its_place_and_in_the_log() {
    let mut desk = Desk::of_nodes(1);
    desk.press("y");
    let why = "denied: get nodes (user \"lead\" may not)".to_owned();
    desk.tell(Msg::Fetched {
        object: object("Node", "n0000"),
        result: Err(why),
    });
    assert_eq!(desk.screen().matches("denied: get nodes").count(), 2);
}

#[test]
fn an_answer_for_a_pane_that_is_closed_changes_nothing() {
    let mut desk = Desk::of_nodes(1);
    desk.press("y esc");
    let before = desk.screen();
    desk.tell(Msg::Fetched {
        object: object("Node", "n0000"),
        result: Ok("late".to_owned()),
    });
    assert_eq!(desk.screen(), before);
}

#[test]
fn filter_holds_while_typed_and_esc_brings_the_old_one_back() {
    let mut desk = Desk::of_nodes(30);
    desk.press("/");
    desk.typed("n002");
    assert_eq!(desk.app.view().unwrap().count(), (10, 30));
    desk.press("enter");
    assert!(desk.screen().contains("/n002 10 of 30"));
    desk.press("/");
    desk.typed("5");
    assert_eq!(desk.app.view().unwrap().count(), (1, 30));
    desk.press("esc");
    assert_eq!(desk.app.view().unwrap().filter(), "n002");
    desk.press("esc");
    assert_eq!(
        desk.app.view().unwrap().count(),
        (30, 30),
        "esc in the view clears it"
    );
}

#[test]
fn a_filter_with_a_fault_keeps_the_rows_and_says_what_is_wrong() {
    let mut desk = Desk::of_nodes(3);
    desk.press("/");
    desk.typed("n=1");
    assert!(desk.footer().contains("this view has no columns"));
    desk.press("enter");
    assert!(
        desk.footer().contains("this view has no columns"),
        "it stays open"
    );
    desk.press("backspace backspace enter");
    assert_eq!(desk.app.view().unwrap().filter(), "n");
}

#[test]
fn keys_that_are_text_go_into_the_prompt_and_quit_by_ctrl_c_still_works() {
    let mut desk = Desk::of_nodes(3);
    desk.press("/");
    assert_eq!(desk.press("q 1 ? space"), []);
    assert_eq!(desk.app.view().unwrap().filter(), "q1? ");
    assert_eq!(desk.press("ctrl-c"), [Cmd::Quit]);
}

#[test]
fn views_by_digit_with_history_both_ways() {
    let mut desk = Desk::of_nodes(9);
    desk.press("j j 2");
    assert_eq!(desk.app.view().unwrap().id(), ViewId::Nodes);
    desk.press("j [");
    assert_eq!(desk.app.view().unwrap().id(), ViewId::Fleet);
    assert_eq!(desk.selected(), "n0002");
    desk.press("]");
    assert_eq!(
        (desk.app.view().unwrap().id(), desk.selected().as_str()),
        (ViewId::Nodes, "n0001")
    );
    desk.press("]");
    assert_eq!(desk.footer(), "later: this is the last place");
}

#[test]
fn views_that_do_not_exist_are_neither_shown_nor_reached() {
    let mut desk = Desk::of_nodes(1);
    assert_eq!(desk.press("5"), []);
    assert_eq!(desk.footer(), "view-jobs has no meaning here");
    assert!(!desk.screen().contains("Jobs"));
}

#[test]
fn palette_finds_commands_nodes_namespaces_and_contexts() {
    let mut desk = Desk::of_nodes(50);
    desk.press(":");
    desk.typed("n0042");
    desk.press("enter");
    assert_eq!(desk.app.view().unwrap().id(), ViewId::Nodes);
    assert_eq!(desk.selected(), "n0042");
    desk.press(":");
    desk.typed("lab");
    assert_eq!(desk.press("enter"), [Cmd::SwitchContext("lab".into())]);
    desk.press(":");
    desk.typed("quit");
    assert_eq!(desk.press("enter"), [Cmd::Quit]);
}

#[test]
fn a_switch_of_context_is_shown_until_it_ends_and_can_be_given_up() {
    let mut desk = Desk::of_nodes(3);
    let switch = |desk: &mut Desk| {
        desk.press(":");
        desk.typed("lab");
        assert_eq!(desk.press("enter"), [Cmd::SwitchContext("lab".into())]);
    };
    switch(&mut desk);
    assert_eq!(desk.footer(), "connecting to lab; esc stays here");
    // The place is still there, and says where it goes.
    desk.press("j");
    assert!(
        desk.screen().contains("connecting to lab"),
        "{}",
        desk.screen()
    );
    assert_eq!(desk.press("esc"), [Cmd::StayHere]);
    assert!(desk.footer().starts_with("stays in "), "{}", desk.footer());
    assert!(!desk.screen().contains("connecting to lab"));
    assert_eq!(desk.press("esc"), []);

    switch(&mut desk);
    desk.tell(Msg::NotSwitched {
        context: "lab".into(),
        why: "it is away\u{1b}[2J".to_owned(),
    });
    assert_eq!(desk.footer(), "lab cannot be opened: it is away�[2J");
    assert!(!desk.screen().contains("connecting to lab"));
}

#[test]
fn a_disabled_command_in_the_palette_says_why_and_stays() {
    let mut desk = Desk::of_nodes(0);
    desk.press(":");
    desk.typed("describe");
    desk.press("enter");
    assert_eq!(desk.footer(), "there is no row under the cursor");
    assert!(desk.screen().contains("command"));
}

#[test]
fn namespace_is_picked_and_reported() {
    let mut desk = Desk::of_nodes(1);
    let ns = crate::model::Namespace {
        meta: crate::model::Meta {
            uid: Uid("ns".into()),
            name: "team-a".into(),
            ..Default::default()
        },
        ..Default::default()
    };
    desk.deltas(vec![Delta::Namespace(Change::Set(std::sync::Arc::new(ns)))]);
    desk.press("n");
    desk.typed("team");
    assert_eq!(
        desk.press("enter"),
        [Cmd::SwitchNamespace(Some("team-a".into()))]
    );
    assert!(desk.screen().lines().next().unwrap().contains("team-a"));
    desk.press("n");
    desk.typed("all");
    assert_eq!(desk.press("enter"), [Cmd::SwitchNamespace(None)]);
}

#[test]
fn another_generation_forgets_everything_and_drops_late_deltas() {
    let mut desk = Desk::of_nodes(5);
    desk.press("space d");
    let session = Session {
        generation: 1,
        context: "lab".into(),
        ..Session::default()
    };
    desk.tell(Msg::Session(session));
    let screen = desk.screen();
    assert!(screen.contains("lab") && !screen.contains("n0000") && !screen.contains("marked"));
    assert!(screen.contains("waiting for nodes"), "{screen}");
    desk.tell(Msg::Deltas {
        generation: 0,
        deltas: vec![node("late", 8)],
    });
    assert!(!desk.screen().contains("late"));
    let mut deltas = live();
    deltas.push(node("fresh", 8));
    desk.tell(Msg::Deltas {
        generation: 1,
        deltas,
    });
    assert!(desk.screen().contains("fresh"));
}

#[test]
fn marks_by_row_and_range_and_copy_of_their_names() {
    let mut desk = Desk::of_nodes(9);
    desk.press("space j j v");
    assert!(desk.footer().ends_with("4 marked"), "{}", desk.footer());
    assert_eq!(
        desk.press("c"),
        [Cmd::Copy("n0000\nn0001\nn0002\nn0003".to_owned())]
    );
    desk.press(":");
    desk.typed("clear-marks");
    desk.press("enter");
    assert!(!desk.screen().contains("marked"));
}

#[test]
fn copy_without_marks_copies_this_row_and_in_a_text_the_text() {
    let mut desk = Desk::of_nodes(2);
    assert_eq!(desk.press("j c"), [Cmd::Copy("n0001".to_owned())]);
    let cmds = desk.press("d c");
    assert!(
        matches!(&cmds[..], [Cmd::Copy(text)] if text.starts_with("node n0001 with 8 GPUs\ndetail 1\n"))
    );
}

#[test]
fn sort_is_picked_and_picking_it_again_turns_it_round() {
    let mut desk = Desk::of_nodes(3);
    desk.deltas(vec![node("small", 1)]);
    desk.press("s");
    desk.typed("gpus");
    desk.press("enter g");
    assert_eq!(desk.selected(), "small");
    desk.press("s");
    desk.typed("gpus");
    desk.press("enter G");
    assert_eq!(desk.selected(), "small");
}

#[test]
fn search_in_a_text_goes_from_match_to_match() {
    let mut desk = Desk::of_nodes(1);
    desk.press("d /");
    desk.typed("detail 3");
    desk.press("enter");
    assert!(desk.screen().contains("/detail 3: 11 rows"));
    let top = |desk: &mut Desk| {
        let screen = desk.screen();
        let line = screen.lines().nth(5).unwrap();
        line.trim_end_matches('┃').trim().to_owned()
    };
    assert_eq!(top(&mut desk), "detail 3");
    desk.press("]");
    assert_eq!(top(&mut desk), "detail 30");
    desk.press("[");
    assert_eq!(top(&mut desk), "detail 3");
}

#[test]
fn unknown_keys_and_acts_that_a_view_lacks_say_so() {
    let mut desk = Desk::of_nodes(1);
    desk.press("f9");
    assert_eq!(desk.footer(), "f9 has no meaning; ? shows all keys");
    desk.press("Z");
    assert_eq!(desk.footer(), "zoom-out has no meaning here");
    desk.press("z");
    assert!(
        desk.footer().contains("open"),
        "a message goes with the next key"
    );
}

#[test]
fn messages_stay_in_the_log() {
    let mut desk = Desk::of_nodes(1);
    desk.tell(Msg::Notice(
        Level::Warn,
        "the lease was \u{7}lost".to_owned(),
    ));
    assert!(desk.footer().contains("the lease was"));
    desk.press("j :");
    desk.typed("messages");
    desk.press("enter");
    let screen = desk.screen();
    assert!(
        screen.contains("2026-11-30 12:00:00Z  the lease was \u{fffd}lost"),
        "{screen}"
    );
}

#[test]
fn terminal_effects_are_data() {
    let mut desk = Desk::of_nodes(1);
    assert_eq!(desk.press("ctrl-l"), [Cmd::Redraw]);
    assert_eq!(desk.press("ctrl-z"), [Cmd::Suspend]);
    assert_eq!(desk.press("q"), [Cmd::Quit]);
    assert_eq!(desk.tell(Msg::Resize), [Cmd::Redraw]);
    assert_eq!(desk.tell(Msg::Quit), [Cmd::Quit]);
}

#[test]
fn a_paste_is_text_and_never_keys() {
    let mut desk = Desk::of_nodes(3);
    assert_eq!(desk.tell(Msg::Paste("q\nq".to_owned())), []);
    desk.press("/");
    assert_eq!(desk.tell(Msg::Paste("n0\u{1b}[2J\n".to_owned())), []);
    assert_eq!(desk.app.view().unwrap().filter(), "n0\u{fffd}[2J");
}

#[test]
fn a_tick_is_wanted_only_while_an_age_is_on_the_screen() {
    let mut desk = Desk::of_nodes(3);
    assert!(!desk.app.wants_tick());
    let stale = SourceState::Stale {
        since: now(),
        why: "connection reset".into(),
    };
    desk.deltas(vec![source(Kind::Node, stale)]);
    assert!(desk.app.wants_tick());
}

#[test]
fn ctrl_c_leaves_even_when_a_keymap_gives_it_to_nobody() {
    let source = crate::tui::config_file::Source::new("k.toml", "[keys]\nquit = []\n");
    let (keymap, _) = crate::tui::keymap::Keymap::with_user(&source).unwrap();
    let mut desk = Desk::of_nodes(1);
    desk.app.world.keymap = keymap;
    assert_eq!(desk.tell(Msg::Key(key("ctrl-c"))), [Cmd::Quit]);
}

#[test]
fn a_namespace_that_cannot_be_listed_can_be_typed() {
    let mut desk = Desk::of_nodes(1);
    desk.press("n");
    desk.typed("team-b");
    assert_eq!(
        desk.press("enter"),
        [Cmd::SwitchNamespace(Some("team-b".into()))]
    );
    desk.press("n");
    desk.typed("No Such");
    assert!(desk.screen().contains("nothing is called that"));
}

#[test]
fn going_to_a_thing_that_the_filter_hides_takes_the_filter_away() {
    let mut desk = Desk::of_nodes(9);
    desk.press("2 /");
    desk.typed("n0001");
    desk.press("enter :");
    desk.typed("n0007");
    desk.press("enter");
    assert_eq!(desk.selected(), "n0007");
    assert_eq!(desk.app.view().unwrap().filter(), "");
}

#[test]
fn several_notes_on_files_are_counted_in_the_footer_and_kept_in_the_log() {
    let mut settings = Settings::built_in(Depth::True, Glyphs { ascii: false });
    settings.notes = vec!["first fault".to_owned(), "second fault".to_owned()];
    let mut desk = Desk::with(settings);
    assert_eq!(
        desk.footer(),
        "2 notes on your files: type :messages to read them"
    );
    desk.press(":");
    desk.typed("messages");
    desk.press("enter");
    let screen = desk.screen();
    assert!(screen.contains("first fault") && screen.contains("second fault"));
}

#[test]
fn what_keeps_happening_is_one_message() {
    let mut desk = Desk::of_nodes(1);
    for _ in 0..50 {
        desk.tell(Msg::Notice(
            Level::Warn,
            "no answer from the server".to_owned(),
        ));
    }
    assert_eq!(desk.app.messages().all().count(), 1);
}
