//! What a person waits for: first paint, sync of a large cluster, key to frame, and what an idle
//! console sends. docs/performance.md has the table and how to read it.
//!
//! `cargo bench --bench console -- sync keys` runs the sections named (here two); without names
//! all of them run. Nothing is asserted: figures depend on the machine.

// The typist and the changer are threads of their own, and there is no terminal to restore here.
#![allow(
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod idle;
mod keys;
mod memory;
mod paint;
mod parts;
mod report;
mod sync;
mod table;
mod term;
mod wire;
mod world;

use std::time::Instant;

use tokio::runtime::Runtime;

use crate::world::World;

/// Marks the process that a sync is measured in; its one argument is a kubeconfig.
const CONSOLE_OF: &str = "--console-of";

/// A section's name and what it measures.
type Section = (&'static str, fn(&Runtime, &mut World));

const SECTIONS: [Section; 8] = [
    ("paint", paint::run),
    ("fill", sync::fill),
    ("sync", sync::run),
    ("keys", keys::run),
    ("parts", parts::run),
    ("table", table::run),
    ("idle", idle::run),
    ("wire", wire::run),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    gpudeck::cluster::client::install_crypto();
    let runtime = Runtime::new().expect("a runtime can be started");
    if let [flag, kubeconfig, rest @ ..] = args.as_slice()
        && flag == CONSOLE_OF
    {
        return runtime.block_on(sync::console_of(kubeconfig, rest));
    }
    // `cargo test --benches` runs this without `--bench`: there is nothing to check then.
    if !args.iter().any(|a| a == "--bench") {
        return;
    }
    let named: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|a| !a.starts_with('-'))
        .collect();
    if let Some(unknown) = named.iter().find(|n| !SECTIONS.iter().any(|s| s.0 == **n)) {
        let known: Vec<&str> = SECTIONS.iter().map(|s| s.0).collect();
        println!(
            "no section is called {unknown}; there are {}",
            known.join(", ")
        );
        std::process::exit(2);
    }
    let begun = Instant::now();
    let mut world = World::default();
    for (name, section) in SECTIONS {
        if named.is_empty() || named.contains(&name) {
            section(&runtime, &mut world);
        }
    }
    println!(
        "console benches took {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    // Tasks of the embedded servers end with the process.
    std::process::exit(0);
}
