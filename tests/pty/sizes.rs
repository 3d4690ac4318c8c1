//! No size is too small.

use super::{demo, demo_with};

#[test]
fn one_cell_and_back() {
    let mut term = demo();
    for (rows, cols) in [(1, 1), (2, 300), (80, 1), (5, 20), (40, 120)] {
        term.resize(rows, cols);
        // Each key is answered at each size; what it draws is for the last size to show.
        term.send("251");
    }
    term.wait_for("the fleet at 120x40", |s| {
        s.contains("Fleet") && s.contains("leaf-01")
    });
    term.send("q");
    assert_eq!(term.wait_exit(), 0);
    term.assert_restored();
}

#[test]
fn a_key_that_comes_together_with_a_change_of_size_is_not_lost() {
    let mut term = demo();
    // Were a key forgotten, the view that it asks for would never come.
    for round in 0..100_u16 {
        term.resize(30 + round % 2, 100);
        let timeline = round % 2 == 0;
        term.send(if timeline { "6" } else { "2" });
        term.wait_for("the view asked for", |s| s.contains("TOLD") == timeline);
    }
}

#[test]
fn it_starts_in_one_cell() {
    let mut term = super::Term::start(&["demo", "--nodes", "4"], 1, 1, &[]);
    term.wait_for("a first frame", |s| !s.trim().is_empty());
    term.resize(24, 80);
    term.wait_text("live");
    term.send("q");
    assert_eq!(term.wait_exit(), 0);
    term.assert_restored();
}

#[test]
fn large_terminals_are_filled() {
    let mut term = demo_with(&[], 80, 300, &[]);
    term.wait_text("quit");
}
