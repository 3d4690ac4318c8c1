//! Holds the source to the house rules: who may use whom, what stays pure, how long a file is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod known;
mod rules;
mod text;

use std::path::{Path, PathBuf};

use rules::Source;

/// Every Rust file under a folder.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Every Rust file under `src/`, with its path from there.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found: Vec<Source> = files(&root)
        .iter()
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap();
            let name = name.to_str().unwrap().replace('\\', "/");
            Source::new(&name, &std::fs::read_to_string(path).unwrap())
        })
        .collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 10, "the source is where it was");
    found
}

fn assert_none(found: Vec<String>) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn rooms_use_only_the_rooms_they_may() {
    assert_none(rules::room_faults(&sources()));
}

#[test]
fn the_core_is_pure() {
    assert_none(sources().iter().flat_map(rules::purity_faults).collect());
}

#[test]
fn actors_leave_nothing_to_chance() {
    assert_none(sources().iter().flat_map(rules::chance_faults).collect());
}

#[test]
fn unsafe_code_is_only_in_the_nvml_file() {
    assert_none(sources().iter().flat_map(rules::unsafe_faults).collect());
}

#[test]
fn a_long_file_is_two_things() {
    assert_none(sources().iter().flat_map(rules::length_faults).collect());
}
