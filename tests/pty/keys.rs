//! Keys do what they say.

use super::{Term, demo, demo_with};

#[test]
fn views_open_by_digit_and_rows_are_walked() {
    let mut term = demo();
    term.wait_text("leaf-01");
    term.send("2");
    term.wait_text("NODE");
    term.send("jjG");
    term.send("\r");
    // The detail of the node under the cursor.
    term.wait_text("Requested of allocatable");
    term.send("\x1b");
    term.wait_text("NODE");
    term.send("5");
    term.wait_text("REASON");
    term.send("6");
    term.wait_text("TOLD");
    term.send("1");
    term.wait_text("leaf-01");
}

#[test]
fn a_filter_narrows_and_a_wrong_one_says_what_is_allowed() {
    let mut term = demo();
    term.send("2");
    term.wait_for("all nodes", |s| {
        s.contains("NODE") && s.contains("h100-001")
    });
    term.send("/");
    term.send("model=l40s\r");
    term.wait_for("only L40S nodes", |s| {
        s.contains("l40s-001") && !s.contains("h100-001")
    });
    term.send("/");
    term.send("\x15modle=h100\r");
    term.wait_text("unknown column");
    // The prompt goes, and the old filter is still in force; a second esc takes that away.
    term.send("\x1b");
    term.wait_for("the prompt gone", |s| !s.contains("unknown column"));
    term.send("\x1b");
    term.wait_for("all nodes", |s| {
        s.contains("NODE") && s.contains("h100-001")
    });
}

#[test]
fn the_palette_finds_a_view_and_help_names_the_keys() {
    let mut term = demo();
    term.send(":");
    term.send("timeline\r");
    term.wait_text("TOLD");
    term.send("?");
    term.wait_for("help", |s| s.contains("filter") && s.contains("palette"));
    term.send("\x1b");
    term.wait_text("TOLD");
}

/// The demo's scheduler is asked on its own picture.
#[test]
fn a_job_that_waits_tells_what_would_start_it() {
    let mut term = Term::start(
        &["demo", "--scenario", "fragmented", "--speed", "20"],
        24,
        80,
        &[],
    );
    term.wait_text("live");
    term.send("5/state=waiting\r");
    term.wait_text("pods fit");
    term.send("w");
    term.wait_for("what would start it", |s| {
        s.contains("What would start it") && s.contains("over all queues")
    });
    let screen = term.screen();
    assert!(
        screen.contains("copy of the scheduler's picture"),
        "{screen}"
    );
}

#[test]
fn yaml_of_a_node_comes_from_the_server() {
    let mut term = demo();
    // Both keys at once: the second one means the row that the first one brings up.
    term.send("2y");
    term.wait_text("apiVersion");
}

#[test]
fn the_escape_key_and_torn_sequences_work_over_ssh() {
    let ssh = [("SSH_CONNECTION", "192.0.2.7 50022 192.0.2.1 22")];
    let mut term = demo_with(&[], 24, 80, &ssh);
    term.send("2");
    term.wait_text("NODE");
    term.send("?");
    term.wait_for("help", |s| s.contains("filter") && s.contains("palette"));
    term.send("\x1b");
    term.wait_text("NODE");
    // Whether or not the two are read as one: no `[` or `B` is typed, help stays closed.
    term.send("\x1b");
    term.send("[B?");
    term.wait_for("help", |s| s.contains("filter") && s.contains("palette"));
}
