//! How fast the scheduler decides, one thread, no writing. docs/performance.md has the figures.
//!
//! `cargo bench --bench sched -- bars growth` runs the sections named (here two); without names
//! all of them run. Nothing is asserted: figures depend on the machine.

// There is no terminal to restore here.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod bars;
mod counts;
mod fill;
mod growth;
mod memory;
mod queues;
mod report;
mod site;
mod turns;

/// A section's name and what it measures.
type Section = (&'static str, fn());

const SECTIONS: [Section; 6] = [
    ("bars", bars::run),
    ("turns", turns::run),
    ("fill", fill::run),
    ("growth", growth::run),
    ("memory", memory::run),
    ("instructions", counts::run),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some(memory::FLAG) => return memory::tell(),
        Some(counts::FLAG) => return counts::work(&args[1..]),
        _ => {}
    }
    // `cargo test --benches` runs this without `--bench`: there is nothing to check then.
    if !args.iter().any(|a| a == "--bench") {
        return;
    }
    let names = args.iter().map(String::as_str);
    let named: Vec<&str> = names.filter(|a| !a.starts_with('-')).collect();
    if let Some(unknown) = named.iter().find(|n| !SECTIONS.iter().any(|s| s.0 == **n)) {
        let known: Vec<&str> = SECTIONS.iter().map(|s| s.0).collect();
        println!(
            "no section is called {unknown}; there are {}",
            known.join(", ")
        );
        std::process::exit(2);
    }
    for (name, section) in SECTIONS {
        if named.is_empty() || named.contains(&name) {
            section();
        }
    }
}
