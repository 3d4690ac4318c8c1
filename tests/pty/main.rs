//! The real binary in a real terminal: it starts, answers keys, survives every size and signal, and
//! always gives the terminal back as it found it.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod keys;
mod leaving;
mod looks;
mod sizes;
mod term;

use term::Term;

/// The demo, on a small fleet that still has every kind of node, ready for keys.
fn demo() -> Term {
    demo_with(&[], 24, 80, &[])
}

fn demo_with(args: &[&str], rows: u16, cols: u16, env: &[(&str, &str)]) -> Term {
    let mut all = vec!["demo", "--nodes", "16", "--speed", "1"];
    all.extend(args);
    let mut term = Term::start(&all, rows, cols, env);
    // Live comes first: for a moment the embedded cluster is an empty one.
    term.wait_text("live");
    term.wait_text("leaf-01");
    term
}
