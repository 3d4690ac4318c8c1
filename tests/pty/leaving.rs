//! However it ends, the terminal is given back.

use super::demo;
use super::term::Term;

#[test]
fn q_quits() {
    let mut term = demo();
    term.send("q");
    assert_eq!(term.wait_exit(), 0);
    term.assert_restored();
}

#[test]
fn signals_end_it_cleanly() {
    for name in ["TERM", "HUP", "INT"] {
        let mut term = demo();
        term.signal(name);
        assert_eq!(term.wait_exit(), 0, "SIG{name}");
        term.assert_restored();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn it_stops_and_continues() {
    let mut term = demo();
    term.signal("TSTP");
    term.wait_state('T');
    term.wait_restored();
    term.signal("CONT");
    term.wait_for("the console again", |s| {
        s.contains("Fleet") && s.contains("live")
    });
    term.send("q");
    assert_eq!(term.wait_exit(), 0);
    term.assert_restored();
}

#[test]
fn a_panic_in_a_task_gives_the_terminal_back_and_says_so() {
    let mut term = super::Term::start(
        &["demo", "--nodes", "4"],
        24,
        80,
        &[("GPUDECK_TEST_PANIC", "1")],
    );
    assert_ne!(term.wait_exit(), 0);
    term.assert_restored();
    assert!(term.screen().contains("panicked"), "{}", term.screen());
}

#[test]
fn the_tour_comes_once_and_a_bad_state_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let start = || Term::start(&["demo"], 24, 80, &[("XDG_STATE_HOME", state)]);
    let mut term = start();
    term.wait_text("the tour");
    term.send("\u{3}");
    assert_eq!(term.wait_exit(), 0);
    let mut term = start();
    term.wait_text("Fleet");
    term.wait_for("no tour", |s| s.contains("live") && !s.contains("the tour"));
    term.send("q");
    assert_eq!(term.wait_exit(), 0);
    std::fs::write(folder.path().join("gpudeck/session.json"), "{").unwrap();
    let mut term = start();
    term.wait_text("the tour");
    term.wait_text("session.json is not used");
    term.send("\u{1b}");
    // A key right behind the escape would be Alt with it.
    term.wait_for("no tour", |s| !s.contains("the tour"));
    term.send("q");
    assert_eq!(term.wait_exit(), 0);
}
