//! The rules, each with a proof that it can fail.

use crate::text::{UsedPath, lines_with, paths, without_comments_and_literals};

/// One source file.
pub(crate) struct Source {
    /// From `src/`, with `/`.
    pub(crate) path: String,
    /// Without comments and literals.
    blanked: String,
    /// Lines that are not empty, up to the tests at its end.
    lines: usize,
}

impl Source {
    pub(crate) fn new(path: &str, content: &str) -> Self {
        let code = content
            .find("\n#[cfg(test)]\nmod tests {")
            .map_or(content, |at| &content[..at]);
        Self {
            path: path.to_owned(),
            blanked: without_comments_and_literals(content),
            lines: code.lines().filter(|l| !l.trim().is_empty()).count(),
        }
    }

    /// The room it lies in; files beside the rooms (`lib.rs`, `main.rs`) are in none.
    fn room(&self) -> Option<&str> {
        self.path.split_once('/').map(|(room, _)| room)
    }

    /// `super` so many times is the crate.
    fn depth(&self) -> usize {
        let folders = self.path.matches('/').count();
        if self.path.ends_with("/mod.rs") {
            folders
        } else {
            folders + 1
        }
    }

    fn says(&self, line: usize, what: impl std::fmt::Display) -> String {
        format!("src/{}:{line}: {what}", self.path)
    }
}

/// Who may use whom; a room that is not listed may use nothing of ours.
const TABLE: [(&str, &[&str]); 11] = [
    ("model", &[]),
    ("plan", &["model"]),
    ("sched", &["model", "plan"]),
    ("cluster", &["model", "plan"]),
    ("telemetry", &["model"]),
    ("ledger", &["model"]),
    ("sandbox", &["cluster::client"]),
    ("sim", &["model", "plan", "sched", "ledger"]),
    ("tui", &["model", "plan", "sched"]),
    ("agent", &["model", "telemetry"]),
    ("app", &["*"]),
];

fn may_use(room: &str, path: &UsedPath) -> bool {
    let allowed = TABLE
        .iter()
        .find(|(r, _)| *r == room)
        .map_or(&[] as &[&str], |(_, allowed)| *allowed);
    allowed
        .iter()
        .any(|a| *a == "*" || *a == path.first || *a == format!("{}::{}", path.first, path.second))
}

/// Paths to another room that the table does not allow.
pub(crate) fn room_faults(sources: &[Source]) -> Vec<String> {
    let rooms: Vec<&str> = sources.iter().filter_map(Source::room).collect();
    let mut faults = Vec::new();
    for source in sources {
        let Some(room) = source.room() else {
            continue;
        };
        let climb = vec!["super"; source.depth()].join("::");
        let mut used = paths(&source.blanked, "crate");
        used.extend(paths(&source.blanked, &climb));
        // In a module inside the file one more step leads to the same place.
        used.extend(paths(&source.blanked, &format!("{climb}::super")));
        for path in used {
            let is_other_room = path.first != room && rooms.contains(&path.first.as_str());
            let takes_all = path.first == "*" && room != "app";
            if (is_other_room && !may_use(room, &path)) || takes_all {
                faults.push(source.says(
                    path.line,
                    format!(
                        "room {room} may not use crate::{}::{}",
                        path.first, path.second
                    ),
                ));
            }
        }
    }
    faults
}

/// What lets two runs of the embedded cluster's actors differ under one seed: hash order, the
/// machine's clock, and a `select!` whose branches tokio tries in an order drawn by chance.
pub(crate) fn chance_faults(source: &Source) -> Vec<String> {
    const WORDS: [&str; 4] = ["HashMap", "HashSet", "Timestamp::now", "watch::channel"];
    if !source.path.starts_with("sandbox/actors/") {
        return Vec::new();
    }
    let words = WORDS.into_iter().filter(|word| {
        // Where the clock starts.
        *word != "Timestamp::now" || source.path != "sandbox/actors/clock.rs"
    });
    let mut faults: Vec<String> = words
        .flat_map(|word| {
            lines_with(&source.blanked, word)
                .into_iter()
                .map(move |l| (l, word))
        })
        .map(|(line, word)| source.says(line, format!("{word} lets two runs differ")))
        .collect();
    for (at, _) in source.blanked.match_indices("select! {") {
        let behind = source.blanked[at + "select! {".len()..].trim_start();
        if !behind.starts_with("biased;") {
            let line = source.blanked[..at].matches('\n').count() + 1;
            faults.push(source.says(line, "select! without biased; lets two runs differ"));
        }
    }
    faults
}

/// Clocks, chance, hash order and I/O in the rooms that have to be functions of their input.
pub(crate) fn purity_faults(source: &Source) -> Vec<String> {
    const CLOCKS_AND_IO: [&str; 16] = [
        "Instant::now",
        "SystemTime",
        "Timestamp::now",
        "Zoned::now",
        "std::fs",
        "std::io",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "tokio",
        "kube",
        "k8s_openapi",
        "fastrand",
        "RandomState",
        "std::collections::hash_map",
    ];
    // Only what is decided has to be free of hash order altogether; the model looks up by hash
    // with a fixed order nowhere promised.
    const HASHES: [&str; 4] = ["HashMap", "HashSet", "AHashMap", "AHashSet"];
    let words: Vec<&str> = match source.room() {
        Some("sched" | "plan") => CLOCKS_AND_IO.into_iter().chain(HASHES).collect(),
        Some("model") => CLOCKS_AND_IO
            .into_iter()
            .chain(["HashMap", "HashSet"])
            .collect(),
        _ => return Vec::new(),
    };
    // Tests may be told how long to run.
    let is_test = source.path.starts_with("sched/tests/");
    words
        .into_iter()
        .filter(|word| !is_test || !["std::env", "Instant::now"].contains(word))
        .flat_map(|word| {
            lines_with(&source.blanked, word)
                .into_iter()
                .map(move |line| (line, word))
        })
        .map(|(line, word)| source.says(line, format!("{word} has no place in a pure room")))
        .collect()
}

/// The one file that calls a C library.
const NVML: &str = "telemetry/nvml.rs";

/// `unsafe` anywhere else.
pub(crate) fn unsafe_faults(source: &Source) -> Vec<String> {
    if source.path == NVML {
        return Vec::new();
    }
    lines_with(&source.blanked, "unsafe")
        .into_iter()
        .map(|line| source.says(line, "unsafe outside the NVML file"))
        .collect()
}

/// Lines of code and comment a file may have, blank ones and its tests aside.
const MAX_LINES: usize = 600;

/// Files that are too long.
pub(crate) fn length_faults(source: &Source) -> Vec<String> {
    if source.lines > MAX_LINES {
        let what = format!("{} lines: a file over {MAX_LINES} is two", source.lines);
        vec![source.says(MAX_LINES, what)]
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room_fault(path: &str, content: &str) -> usize {
        let mut sources: Vec<Source> = TABLE
            .iter()
            .map(|(room, _)| Source::new(&format!("{room}/mod.rs"), ""))
            .collect();
        sources.push(Source::new(path, content));
        room_faults(&sources).len()
    }

    #[test]
    fn room_rules_can_fail() {
        for (path, content, faults) in [
            ("model/a.rs", "use crate::plan::Plan;", 1),
            ("model/a.rs", "use crate::model::Pod; use super::pod;", 0),
            ("plan/a.rs", "use crate::model::Pod;", 0),
            ("sched/a.rs", "use crate::{model::Pod, tui, plan};", 1),
            (
                "sched/a.rs",
                "// use crate::tui;\nlet s = \"crate::tui\";",
                0,
            ),
            ("sched/a.rs", "fn f() { crate::cluster::write() }", 1),
            ("sched/a.rs", "use super::super::cluster::Watch;", 1),
            ("sched/a.rs", "mod t { use super::super::super::tui; }", 1),
            ("sched/a/mod.rs", "use super::super::app::X;", 1),
            ("sched/mod.rs", "use super::app::X;", 1),
            ("sched/mod.rs", "use crate::*;", 1),
            ("sandbox/a.rs", "use crate::cluster::client::inner;", 0),
            ("sandbox/a.rs", "use crate::cluster::{client, watch};", 1),
            ("sandbox/a.rs", "use crate::cluster;", 1),
            ("sandbox/a.rs", "use crate::model::Pod;", 1),
            ("tui/a.rs", "use crate::sched::State;", 0),
            ("tui/a.rs", "use crate::cluster::write;", 1),
            ("app/a.rs", "use crate::tui::App;", 0),
            ("unheard/a.rs", "use crate::model::Pod;", 1),
            ("main.rs", "use crate::app;", 0),
        ] {
            assert_eq!(room_fault(path, content), faults, "{path}: {content}");
        }
    }

    #[test]
    fn chance_rules_can_fail() {
        for (path, content, faults) in [
            ("sandbox/actors/a.rs", "use std::collections::HashMap;", 1),
            ("sandbox/actors/a.rs", "Timestamp::now()", 1),
            ("sandbox/actors/clock.rs", "Timestamp::now()", 0),
            ("sandbox/actors/a.rs", "tokio::select! {\n a = b => {} }", 1),
            (
                "sandbox/actors/a.rs",
                "tokio::select! {\n // why\n biased;\n a = b => {} }",
                0,
            ),
            ("sandbox/store.rs", "use std::collections::HashMap;", 0),
        ] {
            let found = chance_faults(&Source::new(path, content));
            assert_eq!(found.len(), faults, "{path}: {content}: {found:?}");
        }
    }

    #[test]
    fn purity_rules_can_fail() {
        for (path, content, faults) in [
            ("sched/a.rs", "let t = Instant::now();", 1),
            ("sched/a.rs", "jiff::Timestamp::now()", 1),
            ("sched/a.rs", "for x in HashMap::new() {}", 1),
            ("plan/a.rs", "use ahash::AHashMap;", 1),
            ("plan/a.rs", "std::fs::read(p)", 1),
            ("model/a.rs", "use ahash::AHashMap;", 0),
            ("model/a.rs", "use std::collections::HashMap;", 1),
            ("model/a.rs", "SystemTime::now()", 1),
            ("sched/a.rs", "// Instant::now\nfn now(t: Timestamp) {}", 0),
            ("tui/a.rs", "let t = Instant::now();", 0),
        ] {
            let found = purity_faults(&Source::new(path, content));
            assert_eq!(found.len(), faults, "{path}: {content}: {found:?}");
        }
    }

    #[test]
    fn unsafe_and_length_rules_can_fail() {
        let bad = "fn f() { unsafe { g() } }";
        assert_eq!(unsafe_faults(&Source::new("app/a.rs", bad)).len(), 1);
        assert_eq!(unsafe_faults(&Source::new(NVML, bad)).len(), 0);
        let comment = "// unsafe\n#![forbid(unsafe_code)]";
        assert_eq!(unsafe_faults(&Source::new("lib.rs", comment)).len(), 0);

        let lines = |n: usize| "x();\n\n".repeat(n);
        assert_eq!(length_faults(&Source::new("a.rs", &lines(600))).len(), 0);
        assert_eq!(length_faults(&Source::new("a.rs", &lines(601))).len(), 1);
        let tested = format!("{}\n#[cfg(test)]\nmod tests {{\n{}}}", lines(9), lines(900));
        assert_eq!(length_faults(&Source::new("a.rs", &tested)).len(), 0);
    }
}
